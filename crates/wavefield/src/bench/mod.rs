//! The benchmark: measures what a hand-off costs, so that others can check it.
//!
//! [`choose`] chooses a device, [`plan`] lists the cells, and [`run`] measures them into a [`record::Report`]. Every output
//! (table, JSON, CSV, page, comparison) is made from that report alone.

mod advice;
mod chart;
mod compare;
mod figures;
mod files;
mod graph;
mod html;
mod latency;
mod produce_only;
pub mod record;
mod runner;
#[cfg(test)]
mod sample;
mod startup;
pub mod stats;
mod strategy;
mod table;
mod traces;

pub use compare::{Options, compare};
pub use files::{read_json, write_csv, write_json};
pub use html::write_report;
pub use latency::{LATENCY_SCHEMA, Latency, Trial, measure_latency};
pub use runner::{Plan, choose, run};
pub use startup::{STARTUP_SCHEMA, Stage, Start, Startup, measure_startup, startup_child};
pub use strategy::{CellPlan, Strategy, plan};
pub use table::Table;
pub use traces::write_traces;

/// A made-up machine for tests.
#[cfg(test)]
pub(crate) fn sample_machine() -> record::Machine {
    sample::small().machine
}
