//! The report of a run by stretches, printed and written at its end.

use std::collections::VecDeque;
use std::time::Instant;

use serde::Serialize;

use super::statistics::{Stretch, Watch};
use super::{FRAME_SECONDS, ServeSetup};
use wavefield_gpu::{Result, output_file, say};
use wavefield_run::{Config, Engine};

/// Limits memory: a renderer may run for months, and have any number of clients.
const MAX_STRETCHES: usize = 1000;

/// The current stretch, the last ones before it, oldest first, and sums over all that have ended.
pub(super) struct ServeReport {
    pub(super) watch: Watch,
    last: VecDeque<Stretch>,
    totals: Totals,
}

/// Covers stretches that are not kept, too.
#[derive(Debug, Default, Serialize)]
struct Totals {
    stretches: u64,
    clients: u64,
    seconds: f64,
    draws: u64,
    frames: u64,
}

impl ServeReport {
    pub(super) fn new() -> Self {
        Self { watch: Watch::start(None), last: VecDeque::new(), totals: Totals::default() }
    }

    pub(super) fn begin(&mut self, last_draw: Instant) {
        self.watch = Watch::start(Some(last_draw));
    }

    pub(super) fn end(&mut self, producer: &str, client: Option<&str>, why: &str) {
        let stretch = self.watch.end(producer, client, why);
        self.totals.stretches += 1;
        self.totals.clients += u64::from(stretch.client.is_some());
        self.totals.seconds += stretch.seconds;
        self.totals.draws += stretch.draws;
        self.totals.frames += stretch.frames;
        if self.last.len() == MAX_STRETCHES {
            self.last.pop_front();
        }
        self.last.push_back(stretch);
    }

    pub(super) fn print(&self) {
        for stretch in &self.last {
            let Some(client) = &stretch.client else { continue };
            say!(
                "stretch       {client}: {} frames in {:.1} s by {}, p50 {} µs, p99 {} µs, {:.0} µs of CPU each; longest gap {} µs",
                stretch.frames,
                stretch.seconds,
                stretch.producer,
                stretch.frame_us.p50,
                stretch.frame_us.p99,
                stretch.cpu_us_per_frame,
                stretch.gaps_us.max
            );
        }
        let Totals { stretches, clients, frames, .. } = self.totals;
        let left_out = stretches - self.last.len() as u64;
        if left_out > 0 {
            say!(
                "clients       {clients} in all, {frames} frames; the first {left_out} stretches are not kept"
            );
        }
    }

    pub(super) fn write(&self, engine: &Engine, setup: &ServeSetup) -> Result<()> {
        let Some(path) = &setup.options.json else { return Ok(()) };
        let Config { grid, handoff, .. } = &setup.config;
        let (ring, _) = setup.config.ring_of(*handoff);
        let report = serde_json::json!({
            "schema": "wavefield-serve/1",
            "device": engine.device().info().name,
            "grid": [grid.cols, grid.rows],
            "ring": ring.depth(),
            "handoff": handoff.name(),
            "verify": engine.observers.tally(),
            "frame_seconds": FRAME_SECONDS,
            "totals": self.totals,
            "stretches": self.last,
        });
        output_file::write(path, |file| Ok(serde_json::to_writer_pretty(file, &report)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_clients_leave_exact_sums_and_a_bounded_list() {
        let mut report = ServeReport::new();
        let many = MAX_STRETCHES as u64 + 7;
        for number in 0..many {
            let client = (number % 2 == 0).then(|| format!("client {number}"));
            report.begin(Instant::now());
            report.watch.drawn(true);
            report.watch.drawn(false);
            report.end("x", client.as_deref(), "left");
        }
        assert_eq!(report.last.len(), MAX_STRETCHES);
        assert_eq!(report.last.back().unwrap().client.as_deref(), Some(&*format!("client {}", many - 1)));
        let totals = &report.totals;
        assert_eq!((totals.stretches, totals.clients), (many, many.div_ceil(2)));
        assert_eq!((totals.draws, totals.frames), (2 * many, many));
    }
}
