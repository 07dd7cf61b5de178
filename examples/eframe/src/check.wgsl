// Compares a pixel of a copy of egui's texture with what `squares.cu` writes in this frame.

fn wrong_words(i: u32) -> u32 {
    let x = i % frame.cols + frame.number;
    let y = i / frame.cols;
    let red = (x ^ y) % 256u;
    let green = ((x ^ y) + frame.number) % 256u;
    let blue = x % 256u;
    return select(0u, 1u, words[i] != (red | (green << 8u) | (blue << 16u) | (255u << 24u)));
}
