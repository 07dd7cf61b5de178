//! Tries every order of events for every small ring: none tears a frame or stops the ring.

mod simulation;

use simulation::{Case, FRAMES, explore};
use vulkan_cuda::{Ring, Turn};

/// Every way to cut `frames` frames into batches of at most `most`.
fn cuts(frames: usize, most: usize) -> Vec<Vec<usize>> {
    if frames == 0 {
        return vec![Vec::new()];
    }
    let first = |batch| cuts(frames - batch, most).into_iter().map(move |rest| [vec![batch], rest].concat());
    (1..=most.min(frames)).flat_map(first).collect()
}

#[test]
fn no_interleaving_tears_or_deadlocks() {
    for depth in 1..=5 {
        let ring = Ring::new(depth).unwrap();
        for batches in cuts(FRAMES as usize, depth as usize) {
            for flights in 1..=6 {
                let states = explore(&Case::new(ring, &batches, flights));
                let name = format!("K = {depth}, F = {flights}, batches of {batches:?}");
                assert!(states.as_ref().is_ok_and(|&n| n > 50), "{name}: {states:?}");
            }
        }
    }
}

/// The simulation is useful only if it finds broken plans.
#[test]
fn the_simulation_finds_broken_plans() {
    type Change = fn(Turn) -> Turn;
    let broken: [(&str, Change); 5] = [
        ("no wait for free", |t| Turn { wait_free: None, ..t }),
        ("wait for the frame before", |t| Turn { wait_free: t.wait_free.map(|v| v - 1), ..t }),
        ("wait for a later frame", |t| Turn { wait_free: t.wait_free.map(|v| v + 2), ..t }),
        ("wait for an earlier ready", |t| Turn { wait_ready: t.wait_ready - 1, ..t }),
        ("the other slot", |t| Turn { slot: 0, ..t }),
    ];
    for batches in [&[1; FRAMES as usize][..], &[2, 2, 2, 2, 1], &[1, 2, 2, 1, 1, 2]] {
        for (what, change) in broken {
            let mut case = Case::new(Ring::new(2).unwrap(), batches, 4);
            case.turns.iter_mut().for_each(|turn| *turn = change(*turn));
            assert!(explore(&case).is_err(), "{what} went unnoticed with batches of {batches:?}");
        }
    }
}

/// Compares the tables in the guide's chapter on the ring with the code.
#[test]
fn the_guides_tables_are_right() {
    let page = include_str!("../../../../docs/guide/src/ring.md");
    let wait = |turn: Turn| turn.wait_free.map_or("–".to_owned(), |value| value.to_string());
    for frame in 0..7 {
        let turn = Ring::new(3).unwrap().turn(frame);
        let Turn { slot, signal_ready, wait_ready, signal_free, .. } = turn;
        let row =
            format!("| {frame} | {slot} | {} | {signal_ready} | {wait_ready} | {signal_free} |", wait(turn));
        assert!(page.contains(&row), "no row {row}");
    }
    let turns = Case::new(Ring::new(4).unwrap(), &[2; 5], 1).turns;
    for (frame, turn) in turns.into_iter().enumerate().skip(4) {
        let row = format!("| {frame} | {} | {} | {} |", turn.slot, wait(turn), turn.signal_ready);
        assert!(page.contains(&row), "no row {row}");
    }
}
