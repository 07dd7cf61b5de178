//! How far another process has come. Tests wait for a state, not for a time: on a busy machine no time is
//! long enough.

use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

/// The longest wait. Only a test that fails takes this long.
const LIMIT: Duration = Duration::from_secs(180);

/// Waits until `there` is true of the running program. `there` gets its process id.
#[track_caller]
pub fn wait_for(child: &mut Child, what: &str, mut there: impl FnMut(u32) -> bool) {
    let until = Instant::now() + LIMIT;
    while !there(child.id()) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before this: {what}");
        assert!(Instant::now() < until, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether it handles, or ignores, every signal that asks it to stop.
pub fn minds_signals(process: u32) -> bool {
    let minded = signals(process, "SigCgt:") | signals(process, "SigIgn:");
    [libc::SIGHUP, libc::SIGINT, libc::SIGTERM].iter().all(|&signal| minded & bit(signal) != 0)
}

/// Whether it ignores a signal.
pub fn ignores(process: u32, signal: i32) -> bool {
    signals(process, "SigIgn:") & bit(signal) != 0
}

/// Whether it has opened a library of this name.
pub fn has_opened(process: u32, library: &str) -> bool {
    std::fs::read_to_string(proc(process).join("maps")).is_ok_and(|maps| maps.contains(library))
}

/// Whether it has used a second of CPU time. The start takes a seventh of that, so it draws by then.
pub fn has_worked(process: u32) -> bool {
    let stat = std::fs::read_to_string(proc(process).join("stat")).unwrap_or_default();
    // proc_pid_stat(5): fields 14 and 15, in hundredths of a second. The second field, the name, may have
    // spaces.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>() >= 100
}

/// How often its threads have waited for something.
pub fn waits(process: u32) -> u64 {
    let tasks = std::fs::read_dir(proc(process).join("task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .filter_map(|status| value(&status, "voluntary_ctxt_switches:")?.parse::<u64>().ok())
        .sum()
}

fn proc(process: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{process}"))
}

fn value<'a>(status: &'a str, field: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(field)).map(str::trim)
}

fn signals(process: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(proc(process).join("status")).unwrap_or_default();
    value(&status, field).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0)
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}
