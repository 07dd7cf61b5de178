//! Round numbers for the axes of pictures.

/// The smallest of 1, 2 or 5 times a power of ten that is at least `least`.
pub(crate) fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let parts = [1.0, 2.0, 5.0, 10.0];
    parts.into_iter().map(|part| part * power).find(|step| *step >= least * 0.999).unwrap_or(least)
}
