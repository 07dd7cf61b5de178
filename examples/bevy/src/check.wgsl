// Compares a vertex of the mesh in Bevy's buffer with what `swell.cu` writes in this frame.

fn wrong_words(i: u32) -> u32 {
    let col = i % frame.cols;
    let row = i / frame.cols;
    let phase = col * 4u + row * 2u + frame.number * 3u;
    let t = phase % 256u;
    let sign = select(-1.0, 1.0, phase % 512u < 256u);
    let height = f32(t * (256u - t)) / 65536.0;
    let slope = (256.0 - 2.0 * f32(t)) / 256.0;
    let vertex = array(
        (f32(col) - f32(frame.cols / 2u)) / 64.0,
        sign * height,
        (f32(row) - f32(frame.rows / 2u)) / 64.0,
        -sign * slope,
        1.0,
        -sign * slope / 2.0,
    );
    var found = 0u;
    for (var word = 0u; word < 6u; word++) {
        // As numbers, for which 0 and -0 are equal.
        if bitcast<f32>(words[frame.first + 6u * i + word]) != vertex[word] {
            found++;
        }
    }
    return found;
}
