// Reads a slot as an array of numbers of one type.

@group(1) @binding(0) var<storage, read> words: array<u32>;

// Types of numbers, as in draw/src/inputs.rs. Any other is a 32-bit float.
const F16: u32 = 1;
const U8: u32 = 2;

fn number_at(index: u32) -> f32 {
    switch globals.number {
        case F16: {
            let both = unpack2x16float(words[index / 2]);
            return select(both.x, both.y, index % 2 == 1);
        }
        case U8: {
            return f32((words[index / 4] >> (8 * (index % 4))) & 0xff);
        }
        default: {
            return bitcast<f32>(words[index]);
        }
    }
}
