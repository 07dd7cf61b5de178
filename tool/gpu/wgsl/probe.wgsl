// Reads the element under the pointer for the CPU (run/src/engine/probe.rs). One invocation.

// The side of the square that was drawn around the pointer; draw/src/pick.rs has the same.
const SIDE: u32 = 7;

// An array of the slot. Must match `Elements` in run/src/engine/probe.rs.
struct Elements {
    // The number of its first element among those of all arrays.
    first: u32,
    // Where it begins in the slot, in words.
    at: u32,
    // The number of components of an element.
    components: u32,
    // How many components are in a word.
    per_word: u32,
    // Where faces begin, in words, or 0; then these are its elements, and this is the number of its points.
    faces: u32,
    points: u32,
}

struct Found {
    // The number of the element that is nearest to the middle of the square, or -1.
    number: i32,
    // Four words, from that in which the element begins. No element has more. Of a triangle, the mean of its corners.
    element: array<u32, 4>,
    // The numbers of the elements in the square, or -1.
    square: array<i32, SIDE * SIDE>,
    arrays: array<Elements>,
}

@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(1) @binding(0) var<storage, read_write> found: Found;

fn word(at: u32) -> u32 {
    return words[min(at, arrayLength(&words) - 1)];
}

@compute @workgroup_size(1)
fn probe() {
    var number = -1;
    var nearest = SIDE * SIDE;
    for (var i = 0u; i < SIDE * SIDE; i++) {
        let away = vec2i(vec2u(i % SIDE, i / SIDE)) - i32(SIDE / 2);
        let distance = u32(dot(away, away));
        if found.square[i] >= 0 && distance < nearest {
            number = found.square[i];
            nearest = distance;
        }
    }
    found.number = number;
    let index = u32(max(number, 0));
    var which = arrayLength(&found.arrays) - 1;
    while which > 0 && index < found.arrays[which].first {
        which--;
    }
    let array = found.arrays[which];
    let inside = index - array.first;
    if array.faces == 0 {
        let first = array.at + inside * array.components / array.per_word;
        for (var i = 0u; i < 4; i++) {
            found.element[i] = word(first + i);
        }
        return;
    }
    var mean = vec4f(0.0);
    for (var corner = 0u; corner < 3; corner++) {
        let point = min(word(array.faces + 3 * inside + corner), array.points - 1);
        for (var i = 0u; i < array.components; i++) {
            mean[i] += bitcast<f32>(word(array.at + point * array.components + i)) / 3.0;
        }
    }
    for (var i = 0u; i < 4; i++) {
        found.element[i] = bitcast<u32>(mean[i]);
    }
}
