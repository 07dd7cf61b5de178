// Reads a slot as arrays of numbers of one type each.

@group(1) @binding(0) var<storage, read> words: array<u32>;

// Types of numbers, as in draw/src/inputs.rs. Any other is a 32-bit float.
const F16: u32 = 1;
const U8: u32 = 2;

// Returns number `index` of the array itself.
fn number_at(index: u32) -> f32 {
    return number_of(globals.number, 0, index);
}

// Returns number `index` of numbers of this type that begin at word `first`.
fn number_of(kind: u32, first: u32, index: u32) -> f32 {
    switch kind {
        case F16: {
            let both = unpack2x16float(words[first + index / 2]);
            return select(both.x, both.y, index % 2 == 1);
        }
        case U8: {
            return f32((words[first + index / 4] >> (8 * (index % 4))) & 0xff);
        }
        default: {
            return bitcast<f32>(words[first + index]);
        }
    }
}
