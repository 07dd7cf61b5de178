//! Round numbers between two ends.

use crate::{Look, Norm};

/// The most ticks of a logarithm. With more decades, it shows every second, third...
const MOST: f64 = 6.0;

/// Returns the ticks of a colour bar: their places, from 0 to 1, and their words.
pub(super) fn of_colors(look: &Look, limits: [f32; 2], [offset, factor]: [f64; 2]) -> Vec<(f64, String)> {
    let [low, high] = limits.map(|limit| offset + factor * f64::from(limit));
    let turned = |part: f64| if look.invert { 1.0 - part } else { part };
    let round = between(low, high);
    if look.norm == Norm::Linear {
        return round.into_iter().map(|tick| (turned(tick.part), tick.words)).collect();
    }
    let [least, most] = if low < high { [low, high] } else { [high, low] };
    // Limits are 32-bit floats, so one of 0.1 is not quite 0.1.
    let is_inside = |number: &f64| (number - number.clamp(least, most)).abs() <= 1e-6 * number.abs();
    let inside = |numbers: Vec<f64>| numbers.into_iter().filter(is_inside).collect::<Vec<_>>();
    let numbers = match look.norm {
        Norm::Symlog => {
            let around = decades(look.threshold(limits) * factor.abs(), most.abs().max(least.abs()), &[1.0]);
            let below = around.iter().rev().map(|number| -number);
            inside(below.chain([0.0]).chain(around.iter().copied()).collect())
        }
        _ => match inside(decades(least, most, &[1.0])) {
            powers if powers.len() < 3 => inside(decades(least / 10.0, most, &[1.0, 2.0, 5.0])),
            powers => powers,
        },
    };
    let words: Vec<_> = match numbers.len() {
        0..3 => round.into_iter().map(|tick| (tick.number, tick.words)).collect(),
        _ => numbers
            .into_iter()
            .map(|tick| (tick, number(tick, 10f64.powf((1.0001 * tick.abs()).log10().floor()))))
            .collect(),
    };
    let place = |tick: f64| look.place(limits, (tick - offset) / factor);
    words.into_iter().map(|(tick, words)| (place(tick), words)).filter(|(part, _)| part.is_finite()).collect()
}

/// Returns powers of ten from `least` to `most`, both above 0, each times all of `factors`. Between two are as many decades.
fn decades(least: f64, most: f64, factors: &[f64]) -> Vec<f64> {
    let (first, last) = ((least.log10() - 1e-7).ceil(), (most.log10() + 1e-7).floor());
    let step = ((last - first + 1.0) / MOST).ceil().max(1.0);
    let count = ((last - first) / step).floor();
    if count.is_nan() || count < 0.0 {
        return Vec::new();
    }
    // Read from words, so that they are the numbers nearest to the powers.
    let power = |n: i32| format!("1e{}", first + step * f64::from(n)).parse().unwrap_or(f64::NAN);
    (0..=count as i32).flat_map(|n| factors.iter().map(move |factor| factor * power(n))).collect()
}

pub(super) struct Tick {
    pub(super) number: f64,
    /// Its place between the ends, from 0 to 1.
    pub(super) part: f64,
    pub(super) words: String,
}

/// Returns three to six round numbers from `low` to `high`.
pub(super) fn between(low: f64, high: f64) -> Vec<Tick> {
    let width = high / 4.0 - low / 4.0;
    let power = 10f64.powf(width.abs().log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|round| round * power);
    let step = steps.into_iter().find(|step| *step >= 0.999 * width.abs()).unwrap_or(power);
    let (first, last) = ((low.min(high) / step - 1e-6).ceil(), (low.max(high) / step + 1e-6).floor());
    // A quarter of a power of ten needs one more digit.
    let digits = if step == 2.5 * power { power / 10.0 } else { power };
    (0..=(last - first).min(9.0) as u32)
        .map(|n| (first + f64::from(n)) * step)
        .map(|tick| Tick {
            number: tick,
            part: (tick / 4.0 - low / 4.0) / width,
            words: number(tick, digits),
        })
        .collect()
}

/// Formats a number with enough digits to show multiples of `step`.
pub fn number(value: f64, step: f64) -> String {
    let digits = -step.log10().round();
    match value == 0.0 || (-4.0..8.0).contains(&digits) && value.abs() < 1e12 {
        true if value == 0.0 && !(-4.0..8.0).contains(&digits) => "0".into(),
        true => format!("{value:.*}", digits.max(0.0) as usize),
        false => {
            let digits = (value.abs() / step).log10().floor().clamp(0.0, 16.0);
            format!("{value:.*e}", digits as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_has_round_numbers_with_the_digits_they_need() {
        for (low, high, words) in [
            (0.0, 1.0, "0.00 0.25 0.50 0.75 1.00"),
            (0.0, 255.0, "0 100 200"),
            (4.0, -4.0, "-4 -2 0 2 4"),
            (0.013, 0.11, "0.025 0.050 0.075 0.100"),
            (1e6 - 1e-3, 1e6 + 1e-3, "999999.9990 999999.9995 1000000.0000 1000000.0005 1000000.0010"),
            (1.7e18, 1.7e18 + 6e10, "1.70000000e18 1.70000002e18 1.70000004e18 1.70000006e18"),
            (-3e38, 3e38, "-2e38 0 2e38"),
        ] {
            let found = between(low, high);
            let all: Vec<_> = found.iter().map(|tick| tick.words.as_str()).collect();
            assert_eq!(all.join(" "), words);
            for Tick { part, words, .. } in &found {
                let at = low + (high - low) * part;
                assert!(
                    (at - words.parse::<f64>().unwrap()).abs() <= 1e-6 * (high - low).abs(),
                    "{at}, {words}"
                );
            }
        }
    }

    #[test]
    fn logarithms_have_powers_of_ten() {
        let words = |norm, linthresh, limits, units| {
            let look = Look { norm, linthresh, ..Look::default() };
            let found = of_colors(&look, limits, units);
            assert!(found.iter().all(|(part, _)| (-1e-6..=1.0 + 1e-6).contains(part)), "{found:?}");
            found.into_iter().map(|(_, words)| words).collect::<Vec<_>>().join(" ")
        };
        for (norm, linthresh, limits, units, want) in [
            (Norm::Log, 0.0, [0.01, 100.0], [0.0, 1.0], "0.01 0.1 1 10 100"),
            (Norm::Log, 0.0, [5e-9, 3e9], [0.0, 1.0], "1e-8 0.00001 0.01 10 10000 1e7"),
            (Norm::Log, 0.0, [2.0, 6.0], [0.0, 1.0], "2 3 4 5 6"),
            (Norm::Log, 0.0, [1.1e-3, 1.1], [0.0, 1.0], "0.01 0.1 1"),
            (Norm::Log, 0.0, [0.1, 50.0], [0.0, 1.0], "0.1 1 10"),
            (Norm::Log, 0.0, [0.3, 40.0], [0.0, 1.0], "0.5 1 2 5 10 20"),
            (Norm::Log, 0.0, [1.0, 1e4], [0.0, 1e200], "1e200 1e201 1e202 1e203 1e204"),
            (Norm::Symlog, 1.0, [-100.0, 1000.0], [0.0, 1.0], "-100 -10 -1 0 1 10 100 1000"),
        ] {
            assert_eq!(words(norm, linthresh, limits, units), want);
        }
        let look = Look { norm: Norm::Log, invert: true, ..Look::default() };
        let places: Vec<_> =
            of_colors(&look, [1.0, 100.0], [0.0, 1.0]).into_iter().map(|(part, _)| part).collect();
        assert_eq!(places.len(), 3);
        assert!(
            places.iter().zip([1.0, 0.5, 0.0]).all(|(found, want)| (found - want).abs() < 1e-9),
            "{places:?}"
        );
    }
}
