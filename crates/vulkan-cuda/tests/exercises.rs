//! Checks the guide's exercises (docs/guide/src/exercises.md): the solutions, or `exercises/yours.rs` with `EXERCISES=yours`.

mod simulation;
#[path = "exercises/solutions.rs"]
mod solutions;
#[path = "exercises/yours.rs"]
mod yours;

use simulation::{Case, FRAMES, explore};
use vulkan_cuda::{Ring, Turn};

/// The answer to exercise 2.
#[derive(Debug, PartialEq, Eq)]
pub struct Prediction {
    pub slot: usize,
    pub waits_for: Option<u64>,
    pub has_waited_for: u64,
    pub signals_ready: u64,
    pub signals_free: u64,
}

/// Exercise 4: which side signals the only timeline, at the end of which frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Cuda(u64),
    Vulkan(u64),
}

/// Returns whether to check the reader's answers.
fn are_yours() -> bool {
    std::env::var("EXERCISES").is_ok_and(|which| which == "yours")
}

fn check_frame_11(answer: Prediction) -> Result<(), String> {
    let turn = Ring::new(4).unwrap().batch(10, 2).nth(1).unwrap();
    let right = Prediction {
        slot: turn.slot,
        waits_for: turn.wait_free,
        has_waited_for: Ring::new(4).unwrap().batch(10, 2).next().unwrap().wait_free.unwrap(),
        signals_ready: turn.signal_ready,
        signals_free: turn.signal_free,
    };
    // The error names the wrong number, but not the right one.
    for (what, is_right) in [
        ("slot", answer.slot == right.slot),
        ("waits_for", answer.waits_for == right.waits_for),
        ("has_waited_for", answer.has_waited_for == right.has_waited_for),
        ("signals_ready", answer.signals_ready == right.signals_ready),
        ("signals_free", answer.signals_free == right.signals_free),
    ] {
        if !is_right {
            return Err(format!("{what} is not right: {answer:?}"));
        }
    }
    Ok(())
}

fn check_deadlock(change: fn(&mut [Turn])) -> Result<(), String> {
    let case = || Case::new(Ring::new(2).unwrap(), &[1; FRAMES as usize], 4);
    let (right, mut broken) = (case(), case());
    change(&mut broken.turns);
    let numbers = |turn: &Turn| {
        [turn.slot as u64, turn.wait_free.unwrap_or(0), turn.signal_ready, turn.wait_ready, turn.signal_free]
    };
    let numbers = |case: &Case| case.turns.iter().flat_map(numbers).collect::<Vec<_>>();
    let changed =
        numbers(&right).iter().zip(numbers(&broken)).filter(|(right, broken)| *right != broken).count();
    if changed != 1 {
        return Err(format!("{changed} numbers are changed, not 1"));
    }
    match explore(&broken) {
        Err(end) if end.starts_with("deadlock") => Ok(()),
        Err(other) => Err(format!("it goes wrong in another way: {other}")),
        Ok(states) => Err(format!("none of {states} states is a deadlock")),
    }
}

/// Replays signals of one timeline for both sides of a ring of `depth`. Succeeds if the last one, and only that,
/// breaks the rule.
fn check_violation(order: &[Signal], depth: u64) -> Result<(), String> {
    let (mut counter, mut cuda, mut vulkan) = (0, 0, 0);
    for (place, &signal) in order.iter().enumerate() {
        let (frame, next, wait, value) = match signal {
            Signal::Cuda(n) => {
                (n, &mut cuda, n.checked_sub(depth).map_or(0, |before| 2 * before + 2), 2 * n + 1)
            }
            Signal::Vulkan(n) => (n, &mut vulkan, 2 * n + 1, 2 * n + 2),
        };
        if frame != *next {
            return Err(format!(
                "{signal:?} at place {place}: each side takes its frames in order, and {next} is next"
            ));
        }
        if counter < wait {
            return Err(format!(
                "{signal:?} at place {place} waits for {wait}, and the counter is {counter}"
            ));
        }
        let is_last = place + 1 == order.len();
        match (value > counter, is_last) {
            (true, false) => (counter, *next) = (value, *next + 1),
            (false, true) => return Ok(()),
            (true, true) => {
                return Err(format!("{signal:?} signals {value} after {counter}, which is allowed"));
            }
            (false, false) => return Err(format!("{signal:?} at place {place} breaks the rule already")),
        }
    }
    Err("no signals".into())
}

#[test]
fn frame_11_is_predicted() {
    let answer = if are_yours() { yours::frame_11() } else { solutions::frame_11() };
    check_frame_11(answer).unwrap();
}

#[test]
fn the_plan_deadlocks() {
    check_deadlock(if are_yours() { yours::deadlock } else { solutions::deadlock }).unwrap();
}

#[test]
fn one_timeline_is_not_enough() {
    let order = if are_yours() { yours::violation() } else { solutions::violation() };
    check_violation(&order, 2).unwrap();
}

/// Tries every order of up to eight signals.
#[test]
fn one_timeline_is_enough_for_one_slot() {
    for length in 1..=8 {
        for choice in 0..1_u32 << length {
            let (mut cuda, mut vulkan) = (0.., 0..);
            let order: Vec<_> = (0..length)
                .map(|place| match choice >> place & 1 {
                    0 => Signal::Cuda(cuda.next().unwrap()),
                    _ => Signal::Vulkan(vulkan.next().unwrap()),
                })
                .collect();
            assert!(check_violation(&order, 1).is_err(), "{order:?}");
        }
    }
}

/// A check that never fails proves nothing.
#[test]
fn wrong_answers_are_refused() {
    assert!(
        check_frame_11(Prediction { slot: 2, ..solutions::frame_11() })
            .is_err_and(|why| why.contains("slot"))
    );
    let at_10 = Prediction { waits_for: Some(8), ..solutions::frame_11() };
    assert!(check_frame_11(at_10).is_err_and(|why| why.contains("waits_for")));
    type Change = fn(&mut [Turn]);
    let changes: [(Change, &str); 3] = [
        (|_| (), "0 numbers"),
        (|plan| plan[2].wait_free = None, "in another way"),
        (|plan| plan[3].wait_free = Some(3), "none of"),
    ];
    for (change, part) in changes {
        let why = check_deadlock(change).unwrap_err();
        assert!(why.contains(part), "{why}");
    }
    use Signal::{Cuda, Vulkan};
    for (order, part) in [
        (vec![], "no signals"),
        (vec![Cuda(0), Vulkan(0)], "allowed"),
        (vec![Vulkan(0)], "waits for 1"),
        (vec![Cuda(1)], "0 is next"),
        (vec![Cuda(0), Cuda(1), Vulkan(0), Cuda(2)], "already"),
    ] {
        let why = check_violation(&order, 2).unwrap_err();
        assert!(why.contains(part), "{why}");
    }
}
