const TAU: f32 = 6.2831853;

// Returns the sine of an angle in turns (1 is 360 degrees). Vulkan's own sin may be wrong by 2^-11 between -pi and pi,
// and SwiftShader's is. Products and sums are exact except for rounding. So this removes whole turns, folds the rest
// into a quarter turn on each side, and sums the series. The first omitted term is below 6e-8.
fn sine(turns: f32) -> f32 {
    let rest = turns - round(turns);
    let x = TAU * select(rest, 0.5 * sign(rest) - rest, abs(rest) > 0.25);
    let s = x * x;
    let series = 1.0 / 120.0 + s * (-1.0 / 5040.0 + s * (1.0 / 362880.0 + s * (-1.0 / 39916800.0)));
    return x + x * s * (-1.0 / 6.0 + s * series);
}
