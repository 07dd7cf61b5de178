//! Makes and destroys the whole windowed program many times in one process. Nothing may be left behind.
//!
//! This test has its own `main`, because the window system needs the main thread. `WAVEFIELD_TEST_DISPLAY`
//! names a display to use instead of a new one, and `WAVEFIELD_ROUNDS` sets the number of rounds.

#[cfg(target_os = "linux")]
mod common;
#[cfg(target_os = "linux")]
use wavefield_test_support::display;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::process::ExitCode;
    use std::time::Instant;

    use ash::vk;
    use wavefield_gpu::vulkan::Validation;
    use wavefield_handoff::contents::wave::Grid;
    use wavefield_run::{Config, Ended, Stop};
    use wavefield_window::{EventLoop, run_windowed};

    use crate::common::open_descriptors;
    use crate::display::Display;

    const NAME: &str = "rounds_leave_nothing_behind";
    const ROUNDS: u32 = 50;
    /// The number of rounds that load libraries and fill caches, which stay.
    const WARM: u32 = 3;
    const FRAMES: u64 = 3;

    enum Outcome {
        Passed,
        Skipped,
    }

    /// Prints what the test harness would, as far as cargo and people read it.
    pub fn main() -> ExitCode {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        if arguments.iter().any(|argument| argument == "--list") {
            println!("{NAME}: test");
            return ExitCode::SUCCESS;
        }
        // Cargo passes the filter first.
        let filter = arguments.first().filter(|argument| !argument.starts_with('-'));
        if filter.is_some_and(|filter| !NAME.contains(filter.as_str())) {
            println!("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out");
            return ExitCode::SUCCESS;
        }
        let start = Instant::now();
        println!("running 1 test");
        // A panic has already printed its message.
        let outcome = std::panic::catch_unwind(rounds).unwrap_or_else(|_| Err("it panicked".into()));
        let (word, verdict, [passed, failed, ignored]) = match &outcome {
            Ok(Outcome::Passed) => ("ok", "ok", [1, 0, 0]),
            Ok(Outcome::Skipped) => ("ignored", "ok", [0, 0, 1]),
            Err(_) => ("FAILED", "FAILED", [0, 1, 0]),
        };
        println!("test {NAME} ... {word}");
        if let Err(problem) = &outcome {
            println!("\n{problem}");
        }
        println!(
            "\ntest result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; \
             0 filtered out; finished in {:.2}s\n",
            start.elapsed().as_secs_f64()
        );
        if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn rounds() -> Result<Outcome, String> {
        let rounds = match std::env::var("WAVEFIELD_ROUNDS") {
            Ok(text) => text.parse().map_err(|error| format!("WAVEFIELD_ROUNDS={text}: {error}"))?,
            Err(_) => ROUNDS,
        };
        // The server ends with this function.
        let mut server = None;
        let display = match std::env::var("WAVEFIELD_TEST_DISPLAY") {
            Ok(display) => display,
            Err(_) => match Display::start() {
                Some(display) => server.insert(display).name(),
                None => return Ok(Outcome::Skipped),
            },
        };
        // SAFETY: this process has only one thread so far, so no other thread reads the environment
        // meanwhile.
        unsafe {
            std::env::set_var("DISPLAY", display);
            // winit prefers Wayland to DISPLAY.
            std::env::remove_var("WAYLAND_DISPLAY");
            std::env::remove_var("WAYLAND_SOCKET");
        }
        let mut event_loop = EventLoop::new().map_err(|error| error.to_string())?;
        let config = Config {
            grid: Grid { cols: 16, rows: 16 },
            size: vk::Extent2D { width: 200, height: 160 },
            frames: Some(FRAMES),
            validation: Validation::IfInstalled,
            ..Config::default()
        };

        let mut warm = open_descriptors();
        for round in 1..=rounds {
            run(&mut event_loop, &config, &Stop::default(), FRAMES)
                .map_err(|problem| format!("round {round} of {rounds}: {problem}"))?;
            if round <= WARM {
                warm = open_descriptors();
            }
        }
        let left = open_descriptors();
        println!(
            "{rounds} rounds: {warm} descriptors open after round {}, {left} at the end",
            WARM.min(rounds)
        );
        if left > warm {
            return Err(format!(
                "{left} descriptors are open after round {rounds}, {warm} were after {WARM}"
            ));
        }

        let asked = Stop::default();
        asked.request();
        run(&mut event_loop, &config, &asked, 0)
            .map_err(|problem| format!("a stop asked for before the window opens: {problem}"))?;
        Ok(Outcome::Passed)
    }

    /// Runs one window to its end. Returns an error if a frame is missing or the validation layer warns.
    fn run(event_loop: &mut EventLoop, config: &Config, stop: &Stop, frames: u64) -> Result<(), String> {
        // An error from the validation layer already fails the run.
        let summary = run_windowed(event_loop, config, stop, None)
            .and_then(|Ended { summary, failure }| failure.map_or(Ok(summary), Err))
            .map_err(|error| error.to_string())?;
        if summary.frames != frames {
            return Err(format!("{} frames instead of {frames}", summary.frames));
        }
        match summary.validation {
            Some(warnings) if warnings > 0 => Err(format!("{warnings} warnings of the validation layer")),
            _ => Ok(()),
        }
    }
}
