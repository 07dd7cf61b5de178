//! Distributions, the spread between rounds, and the confidence interval of a ratio of runs. `statrs`
//! provides Student's t. Its quantiles are not used, because they are interpolated, and each quantile here is
//! a measured frame.

use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::statistics::{Data, OrderStatistics, Statistics};

use super::record::Distribution;

/// A cell whose rounds spread by more than this is noisy.
///
/// On a quiet machine with a GPU at steady clocks, the means of rounds differ by a few percent. Beyond 10 %,
/// something else ran or the clocks changed, and that alone may make two cells differ.
pub(super) const NOISY_SPREAD: f64 = 0.10;

/// The confidence level: 95 of 100 such intervals contain the true ratio.
pub(super) const CONFIDENCE: f64 = 0.95;

impl Distribution {
    /// Sorts `samples` and returns their distribution, which is all zeros if there are none.
    ///
    /// Each quantile is a sample (nearest rank): the smallest one that at least the given share of the
    /// samples does not exceed. The p99 of fewer than 100 samples is therefore the largest sample.
    pub fn of(samples: &mut [f64]) -> Distribution {
        samples.sort_unstable_by(f64::total_cmp);
        let samples = &*samples;
        let Some(&max) = samples.last() else { return Distribution::default() };
        let quantile = |share: f64| {
            let rank = (share * samples.len() as f64).ceil() as usize;
            samples[rank.clamp(1, samples.len()) - 1]
        };
        Distribution {
            mean: samples.mean(),
            p50: quantile(0.50),
            p95: quantile(0.95),
            p99: quantile(0.99),
            max,
        }
    }
}

/// Returns (largest - smallest) / median of the rounds' means; 0 with fewer than two rounds.
///
/// The spread grows with the number of rounds: it is no standard error, but shows the worst case.
pub(super) fn spread(round_means: &[f64]) -> f64 {
    let mut sorted = round_means.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let [smallest, .., largest] = sorted[..] else { return 0.0 };
    let median = Data::new(sorted).median();
    // A median of zero means broken data, but must not cause a division by zero.
    let scale = if median > 0.0 { median } else { largest.abs() };
    if largest == smallest { 0.0 } else { (largest - smallest) / scale }
}

/// Returns whether the rounds spread by more than [`NOISY_SPREAD`]. A single round has no spread.
pub(super) fn is_noisy(round_means: &[f64]) -> bool {
    let spread = spread(round_means);
    spread.is_nan() || spread > NOISY_SPREAD
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// Returns new / old and its interval, from the rounds' mean frame times, by Student's t on their logarithms.
///
/// Logarithms turn the ratio into a difference, and give the same interval whichever side is old. With one
/// run on each side, the samples are rounds; otherwise they are runs, each the geometric mean of its rounds.
/// Frames of one round, and rounds of one run, are not independent. If they were pooled, an effect on a whole
/// run would look like a difference between old and new. Both sides share one variance, because the machine
/// causes it. One side may therefore have a single run if the other side has several.
///
/// Returns `None` if both sides have one run and one of the runs has fewer than two rounds, if a run has no
/// round, or if a mean is not positive and finite.
pub(super) fn ratio(old: &[&[f64]], new: &[&[f64]]) -> Option<Ratio> {
    let one_each = old.len() == 1 && new.len() == 1;
    let side = |runs: &[&[f64]]| -> Option<Vec<f64>> {
        let logs = runs.iter().map(|rounds| logs(rounds)).collect::<Option<Vec<_>>>()?;
        match one_each {
            true => logs.into_iter().next().filter(|rounds| rounds.len() > 1),
            false => (!logs.is_empty()).then(|| logs.iter().map(|rounds| rounds.mean()).collect()),
        }
    };
    let (old, new) = (side(old)?, side(new)?);
    let freedom = (old.len() + new.len() - 2) as f64;
    let squared_distances = |samples: &[f64]| samples.population_variance() * samples.len() as f64;
    let variance = (squared_distances(&old) + squared_distances(&new)) / freedom;
    let error = (variance * (1.0 / old.len() as f64 + 1.0 / new.len() as f64)).sqrt();
    let reach = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.5 + CONFIDENCE / 2.0) * error;
    let difference = new.as_slice().mean() - old.as_slice().mean();
    let [value, low, high] = [difference, difference - reach, difference + reach].map(f64::exp);
    [value, low, high].iter().all(|figure| figure.is_finite()).then_some(Ratio { value, low, high })
}

/// Returns the logarithms of the means, or `None` if there is no mean or one has no logarithm.
fn logs(round_means: &[f64]) -> Option<Vec<f64>> {
    let sound = !round_means.is_empty() && round_means.iter().all(|&mean| mean.is_finite() && mean > 0.0);
    sound.then(|| round_means.iter().map(|mean| mean.ln()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, want: f64, within: f64) -> bool {
        (got - want).abs() <= within * want.abs().max(1e-300)
    }

    #[test]
    fn one_to_a_hundred() {
        let mut samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let found = Distribution::of(&mut samples);
        let want = Distribution { mean: 50.5, p50: 50.0, p95: 95.0, p99: 99.0, max: 100.0 };
        assert_eq!(found, want);
    }

    #[test]
    fn exponential_with_known_quantiles() {
        // Evenly spaced through the inverse of the distribution function, so that no random numbers are
        // needed.
        let count = 100_000;
        let mut samples: Vec<f64> =
            (0..count).map(|at| -7.0 * (1.0 - (f64::from(at) + 0.5) / f64::from(count)).ln()).collect();
        let found = Distribution::of(&mut samples);
        assert!(near(found.mean, 7.0, 1e-3), "{found:?}");
        assert!(near(found.p50, 7.0 * 2f64.ln(), 1e-3), "{found:?}");
        assert!(near(found.p95, 7.0 * 20f64.ln(), 1e-3), "{found:?}");
        assert!(near(found.p99, 7.0 * 100f64.ln(), 1e-3), "{found:?}");
        assert!(near(found.max, 7.0 * 200_000f64.ln(), 1e-9), "{found:?}");
    }

    #[test]
    fn constant_single_and_empty() {
        let want = |value| Distribution { mean: value, p50: value, p95: value, p99: value, max: value };
        assert_eq!(Distribution::of(&mut [4.0; 250]), want(4.0));
        assert_eq!(Distribution::of(&mut [3.5]), want(3.5));
        assert_eq!(Distribution::of(&mut []), want(0.0));
    }

    #[test]
    fn of_few_samples_the_p99_is_the_largest_and_the_p50_one_that_happened() {
        let found = Distribution::of(&mut [9.0, 1.0, 2.0, 3.0]);
        assert_eq!((found.p50, found.p95, found.p99, found.max), (2.0, 9.0, 9.0, 9.0));
    }

    #[test]
    fn broken_samples_do_not_panic() {
        let found = Distribution::of(&mut [f64::NAN, 1.0, f64::INFINITY, -2.0]);
        assert!(found.mean.is_nan() && found.p50 == 1.0);
    }

    #[test]
    fn spread_of_known_rounds() {
        assert!(near(spread(&[100.0, 104.0, 98.0]), 0.06, 1e-12));
        assert!(near(spread(&[1.0, 3.0]), 1.0, 1e-12));
        assert_eq!((spread(&[]), spread(&[5.0]), spread(&[5.0; 9])), (0.0, 0.0, 0.0));
        assert_eq!((spread(&[0.0, 0.0, 0.0]), spread(&[0.0, 0.0, 2.0])), (0.0, 1.0));
    }

    #[test]
    fn noisy_begins_beyond_a_tenth() {
        assert!(!is_noisy(&[95.0, 100.0, 104.0]));
        assert!(is_noisy(&[94.0, 100.0, 105.0]));
        assert!(is_noisy(&[100.0, f64::NAN]));
        assert!(!is_noisy(&[100.0]) && !is_noisy(&[]));
    }

    #[test]
    fn the_interval_of_an_example_done_by_hand() {
        // Logs 0, 0.1, 0.2 and 0.5, 0.6, 0.7: both have variance 0.01 and 3 rounds, so there are 4 degrees of
        // freedom and the reach is 2.7764 * sqrt(2 * 0.01 / 3) = 0.22670.
        let [old, new] = [[0.0, 0.1, 0.2], [0.5, 0.6, 0.7]].map(|logs| logs.map(f64::exp));
        let found = ratio(&[&old], &[&new]).unwrap();
        assert!(near(found.value.ln(), 0.5, 1e-12), "{found:?}");
        assert!(near(found.low.ln(), 0.5 - 0.226_70, 1e-3), "{found:?}");
        assert!(near(found.high.ln(), 0.5 + 0.226_70, 1e-3), "{found:?}");
    }

    #[test]
    fn swapping_the_runs_turns_the_ratio_over() {
        let (old, new) = ([10.0, 10.3, 9.9, 10.1, 10.0], [12.0, 12.5, 11.9, 12.2, 12.4, 12.1]);
        let (there, back) = (ratio(&[&old], &[&new]).unwrap(), ratio(&[&new], &[&old]).unwrap());
        assert!(near(there.value, 1.0 / back.value, 1e-12));
        assert!(near(there.low, 1.0 / back.high, 1e-12));
        assert!(there.low > 1.15 && there.high < 1.27, "{there:?}");
    }

    /// Pseudo-random numbers, the same every time: nearly normal, with mean 0 and variance 1.
    fn normal() -> impl FnMut() -> f64 {
        let mut state = 1u64;
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        move || (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }

    /// How often the interval of two equal sides contains 1.
    fn share_held(mut interval: impl FnMut() -> Ratio) -> f64 {
        let tries = 4000;
        let held = (0..tries).filter(|_| {
            let found = interval();
            found.low <= 1.0 && 1.0 <= found.high
        });
        held.count() as f64 / f64::from(tries)
    }

    #[test]
    fn the_interval_holds_the_truth_about_as_often_as_it_says() {
        let mut normal = normal();
        let mut run = || -> [f64; 5] { std::array::from_fn(|_| 100.0 * (0.02 * normal()).exp()) };
        let share = share_held(|| ratio(&[&run()], &[&run()]).unwrap());
        assert!((0.94..=0.97).contains(&share), "{share}");
    }

    type RatioOf = fn(&[&[f64]], &[&[f64]]) -> Option<Ratio>;

    #[test]
    fn what_moves_a_whole_run_is_in_the_interval_of_several_runs() {
        for (old, new) in [(2, 2), (3, 3), (1, 3), (4, 2)] {
            let mut normal = normal();
            let mut side = |runs: usize| -> Vec<Vec<f64>> {
                let mut run = || {
                    let whole = 0.02 * normal();
                    (0..5).map(|_| 100.0 * (whole + 0.005 * normal()).exp()).collect()
                };
                (0..runs).map(|_| run()).collect()
            };
            let mut share = |ratio: RatioOf| {
                share_held(|| {
                    let (old, new) = (side(old), side(new));
                    let [old, new] =
                        [&old, &new].map(|runs| runs.iter().map(|run| &run[..]).collect::<Vec<_>>());
                    ratio(&old, &new).unwrap()
                })
            };
            let held = share(ratio);
            assert!((0.94..=0.97).contains(&held), "{old} and {new} runs: {held}");
            // This is why the rounds of several runs are not pooled.
            let pooled = share(|old, new| ratio(&[&old.concat()], &[&new.concat()]));
            assert!(pooled < 0.75, "{old} and {new} runs: {pooled}");
        }
    }

    #[test]
    fn the_interval_of_runs_done_by_hand() {
        // Means of logs 0.0 and 0.2, and 0.5 and 0.7: a variance of 0.02 and 2 degrees of freedom, so the
        // reach is 4.3027 * sqrt(0.02 * (1/2 + 1/2)) = 0.60849.
        let run = |logs: [f64; 2]| logs.map(f64::exp);
        let runs = [[-0.1, 0.1], [0.1, 0.3], [0.5, 0.5], [0.6, 0.8]].map(run);
        let found = ratio(&[&runs[0], &runs[1]], &[&runs[2], &runs[3]]).unwrap();
        assert!(near(found.value.ln(), 0.5, 1e-12), "{found:?}");
        assert!(near(found.high.ln(), 0.5 + 0.608_49, 1e-3), "{found:?}");
    }

    #[test]
    fn no_interval_of_runs_with_a_broken_one_or_none() {
        let sound: &[f64] = &[10.0, 10.1];
        let (none, negative, unknown): (&[f64], &[f64], &[f64]) = (&[], &[10.0, -1.0], &[f64::NAN]);
        for broken in [&[][..], &[none], &[sound, none], &[sound, negative], &[sound, unknown]] {
            assert_eq!(ratio(&[sound, sound], broken), None, "{broken:?}");
            assert_eq!(ratio(broken, &[sound, sound]), None, "{broken:?}");
        }
        // A run with a single round counts.
        assert!(ratio(&[&[10.0], &[10.1]], &[sound]).is_some());
    }

    #[test]
    fn no_interval_without_two_sound_rounds_on_each_side() {
        let sound = [10.0, 10.1, 10.2];
        for broken in
            [&[][..], &[10.0], &[10.0, 0.0], &[10.0, -1.0], &[10.0, f64::NAN], &[10.0, f64::INFINITY]]
        {
            assert_eq!(ratio(&[&sound], &[broken]), None, "{broken:?}");
            assert_eq!(ratio(&[broken], &[&sound]), None, "{broken:?}");
        }
        assert_eq!(ratio(&[&[1e-300, 1e300]], &[&[1e300, 1e-300]]), None, "an interval without ends");
        let equal = ratio(&[&[5.0, 5.0]], &[&[5.0, 5.0, 5.0]]).unwrap();
        assert_eq!((equal.low, equal.value, equal.high), (1.0, 1.0, 1.0));
    }
}
