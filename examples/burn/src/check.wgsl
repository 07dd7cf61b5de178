// Compares a height with what `swell` of main.rs computes.

fn wrong_words(i: u32) -> u32 {
    let phase = i % frame.cols * 4u + i / frame.cols * 2u + frame.number * 3u;
    let t = phase % 256u;
    let height = f32(t * (256u - t)) / 16384.0;
    return select(0u, 1u, bitcast<f32>(words[i]) != select(-height, height, phase % 512u < 256u));
}
