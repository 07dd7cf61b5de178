// Reads the element under the pointer for the CPU (run/src/engine/probe.rs). One invocation.

struct Parameters {
    // The number of components of an element.
    components: u32,
    // How many components are in a word.
    per_word: u32,
}

// The side of the square that was drawn around the pointer; draw/src/pick.rs has the same.
const SIDE: u32 = 7;

struct Found {
    // The number of the element that is nearest to the middle of the square, or -1.
    number: i32,
    // Four words, from that in which the element begins. No element has more.
    element: array<u32, 4>,
    // The numbers of the elements in the square, or -1.
    square: array<i32, SIDE * SIDE>,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(1) @binding(0) var<storage, read_write> found: Found;

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
    let first = u32(max(number, 0)) * parameters.components / parameters.per_word;
    for (var i = 0u; i < 4; i++) {
        found.element[i] = words[min(first + i, arrayLength(&words) - 1)];
    }
}
