use super::record::{Cell, Report};
use super::strategy::Strategy;

pub(super) const NOTHING: &str = "-";

/// Formats a value with four digits, or as many as its integer part has: 0.123, 12.34, 123.4, 12345.
pub(super) fn figure(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        _ if !value.is_finite() => return NOTHING.into(),
        _ if size >= 1e8 => format!("{value:.2e}"),
        _ if size >= 999.95 => format!("{value:.0}"),
        _ if size >= 99.995 => format!("{value:.1}"),
        _ if size >= 9.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    // A negative figure that rounds to zero would show as -0.000.
    if text == "-0.000" { "0.000".into() } else { text }
}

pub(super) fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| NOTHING.into(), figure)
}

pub(super) fn grid(grid: [u32; 2]) -> String {
    format!("{}x{}", grid[0], grid[1])
}

pub(super) fn elements(report: &Report) -> &'static str {
    if report.settings.scene == "texture" { "texels" } else { "vertices" }
}

pub(super) fn setting(cell: &Cell) -> String {
    let batch = if cell.batch > 1 { format!(", batch {}", cell.batch) } else { String::new() };
    format!("{}, ring {}{batch}", cell.strategy, cell.ring)
}

/// Formats seconds since 1970 as a UTC date and time, or as a number if too large for a date.
pub(super) fn moment(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| chrono::DateTime::from_timestamp(seconds, 0));
    time.map_or_else(|| format!("{seconds} s after 1970"), |time| time.to_string())
}

/// Replaces control characters: a report may come from somebody else, and they could move a terminal's
/// cursor.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

pub(super) fn short(text: &str, most: usize) -> String {
    let text = plain(text);
    if text.chars().count() <= most {
        return text;
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

pub(super) fn machine(report: &Report) -> Vec<(&'static str, String)> {
    let (machine, settings) = (&report.machine, &report.settings);
    let cuda = machine.cuda.as_ref().map_or_else(|| "no CUDA".into(), |version| format!("CUDA {version}"));
    vec![
        ("GPU", machine.gpu.clone()),
        ("driver", format!("{}, Vulkan {}, {cuda}", machine.driver, machine.vulkan)),
        ("host", format!("{}, {} threads, {}", machine.cpu, machine.threads, machine.os)),
        ("program", format!("wavefield {}, {} build", machine.wavefield, machine.build)),
        ("started", moment(report.started)),
        (
            "measured",
            format!(
                "{}, {} pixels; {} rounds, in each every cell for {} ms after {} frames of warm-up",
                settings.scene,
                grid(settings.size),
                settings.rounds,
                settings.round_ms,
                settings.warmup_frames
            ),
        ),
    ]
}

/// Returns warnings for the reader: what the machine cannot measure, and what is wrong with the run.
pub(super) fn limits(report: &Report) -> String {
    let Report { machine, cells, skipped, .. } = report;
    let mut words = Vec::new();
    if machine.software {
        words.push(format!(
            "{} is a software device: the CPU draws, so no time here says anything about a GPU.",
            machine.gpu
        ));
    }
    let none = !cells.iter().any(|cell| Strategy::has_handoff(&cell.strategy));
    if none && skipped.iter().any(|skipped| Strategy::has_handoff(&skipped.strategy)) {
        words.push(
            "What a hand-off costs cannot be measured here: none can run (see the skipped strategies)."
                .into(),
        );
    }
    if !report.complete {
        words.push(
            "INCOMPLETE: the run was stopped before its last round; cells may have fewer frames than planned."
                .into(),
        );
    }
    if machine.build == "debug" {
        words.push("This is a debug build: CPU times are not those of a release build.".into());
    }
    words.join(" ")
}

pub(super) fn skipped(report: &Report) -> Vec<(String, &str)> {
    let mut groups: Vec<(String, &str)> = Vec::new();
    for skipped in &report.skipped {
        match groups.iter_mut().find(|(_, reason)| *reason == skipped.reason) {
            Some((names, _)) => names.extend([", ", &skipped.strategy]),
            None => groups.push((skipped.strategy.clone(), &skipped.reason)),
        }
    }
    groups
}

/// Groups cells by grid, the smallest grid first. Within a grid, cells keep their order.
pub(super) fn by_grid(cells: &[Cell]) -> Vec<([u32; 2], Vec<&Cell>)> {
    let mut cells: Vec<&Cell> = cells.iter().collect();
    cells.sort_by_key(|cell| (u64::from(cell.grid[0]) * u64::from(cell.grid[1]), cell.grid));
    cells.chunk_by(|a, b| a.grid == b.grid).map(|group| (group[0].grid, group.to_vec())).collect()
}

/// Formats rows as lines, in columns two spaces apart. The first column is aligned left, all others right.
pub(super) fn align<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let widths: [usize; N] =
        std::array::from_fn(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; N]| {
        let (first, width) = (&row[0], widths[0]);
        let mut line = format!("{first:<width$}");
        for (text, width) in row.iter().zip(widths).skip(1) {
            line += &format!("  {text:>width$}");
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits_at_every_size() {
        let cases = [
            (0.0, "0.000"),
            (0.01234, "0.012"),
            (9.9996, "10.00"),
            (12.345, "12.35"),
            (99.996, "100.0"),
            (123.45, "123.5"),
            (999.96, "1000"),
            (54321.6, "54322"),
            (-2.5, "-2.500"),
            (-0.0001, "0.000"),
            (3e20, "3.00e20"),
            (f64::NAN, "-"),
            (f64::INFINITY, "-"),
        ];
        for (value, want) in cases {
            assert_eq!(figure(value), want, "{value}");
        }
    }

    #[test]
    fn moments_near_and_beyond_every_calendar() {
        assert_eq!(moment(1_767_225_599), "2025-12-31 23:59:59 UTC");
        assert_eq!(moment(u64::MAX), format!("{} s after 1970", u64::MAX));
    }

    #[test]
    fn no_control_character_reaches_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\n"), "a?[2Jb?");
        assert_eq!(short("staging", 7), "staging");
        assert_eq!(short("stagings", 7), "stagin…");
    }

    #[test]
    fn columns_line_up() {
        let rows = [["a", "1", "22"], ["bbb", "4444", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(align(&rows), ["a       1  22", "bbb  4444"]);
        assert!(align::<2>(&[]).is_empty());
    }
}
