//! Formats figures as text, the same in every output.

use super::record::{Cell, Report};
use super::strategy::Strategy;

/// The text for an absent figure.
pub const NOTHING: &str = "-";

/// A figure with four digits, or as many as its whole part has: 0.123, 12.34, 123.4, 12345.
pub fn figure(value: f64) -> String {
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

/// A figure per frame, with two decimals.
pub fn places(value: f64) -> String {
    if value.abs() < 1e4 { format!("{value:.2}") } else { figure(value) }
}

/// A figure, or [`NOTHING`].
pub fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| NOTHING.into(), figure)
}

/// A figure, or [`NOTHING`] for zero.
pub fn unless_zero(value: f64) -> String {
    if value == 0.0 { NOTHING.into() } else { figure(value) }
}

/// A grid's name, such as `64x64`.
pub fn grid(grid: [u32; 2]) -> String {
    format!("{}x{}", grid[0], grid[1])
}

/// The elements of a grid: vertices or texels.
pub fn elements(report: &Report) -> &'static str {
    match report.settings.scene.as_str() {
        "texture" => "texels",
        _ => "vertices",
    }
}

/// The number of vertices of a grid.
pub fn vertices(grid: [u32; 2]) -> u64 {
    u64::from(grid[0]) * u64::from(grid[1])
}

/// A count; a million and more in millions.
pub fn count(count: u64) -> String {
    if count < 1_000_000 { count.to_string() } else { format!("{:.1} million", count as f64 / 1e6) }
}

/// Seconds since 1970 as a date and time in UTC, or as the number itself if it is too large for a date.
pub fn moment(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| chrono::DateTime::from_timestamp(seconds, 0));
    time.map_or_else(|| format!("{seconds} s after 1970"), |time| time.to_string())
}

/// Text for a terminal, without control characters. A report may come from anywhere, and a control character in a name could
/// move the cursor.
pub fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// [`plain`], cut to `most` characters.
pub fn short(text: &str, most: usize) -> String {
    let text = plain(text);
    if text.chars().count() <= most {
        return text;
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Lines of at most `most` characters, broken between words.
pub fn wrapped(text: &str, most: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        match lines.last_mut() {
            Some(last) if line == 0 => last.push_str(word),
            Some(last) if line + 1 + word.chars().count() <= most => last.extend([" ", word]),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// A report's machine, as labels and values, one for each line.
pub fn machine(report: &Report) -> Vec<(&'static str, String)> {
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

/// What the report's machine cannot answer, in words; empty if it can answer everything.
pub fn limits(report: &Report) -> String {
    let Report { machine, skipped, .. } = report;
    let mut words = String::new();
    if machine.software {
        words = format!(
            "{} is a software device: the CPU draws, so no time here says anything about a GPU. ",
            machine.gpu
        );
    }
    if no_handoff(report) && skipped.iter().any(|skipped| Strategy::has_handoff(&skipped.strategy)) {
        words += "What a hand-off costs cannot be measured here: none can run (see the skipped strategies).";
    }
    words
}

/// Whether no cell has a hand-off.
pub fn no_handoff(report: &Report) -> bool {
    !report.cells.iter().any(|cell| Strategy::has_handoff(&cell.strategy))
}

/// The skipped strategies by reason.
pub fn skipped(report: &Report) -> Vec<(String, &str)> {
    let mut groups: Vec<(String, &str)> = Vec::new();
    for skipped in &report.skipped {
        match groups.iter_mut().find(|(_, reason)| *reason == skipped.reason) {
            Some((names, _)) => names.extend([", ", &skipped.strategy]),
            None => groups.push((skipped.strategy.clone(), &skipped.reason)),
        }
    }
    groups
}

/// The cells by grid, the smallest grid first. Within a grid, cells keep their order.
pub fn by_grid(cells: &[Cell]) -> Vec<([u32; 2], Vec<&Cell>)> {
    let mut grids: Vec<([u32; 2], Vec<&Cell>)> = Vec::new();
    for cell in cells {
        match grids.iter_mut().find(|(grid, _)| *grid == cell.grid) {
            Some((_, group)) => group.push(cell),
            None => grids.push((cell.grid, vec![cell])),
        }
    }
    grids.sort_by_key(|(grid, _)| (vertices(*grid), *grid));
    grids
}

/// The strategies in the order in which they first appear. A strategy's index selects its colour.
pub fn strategies(cells: &[Cell]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for cell in cells {
        if !names.contains(&cell.strategy.as_str()) {
            names.push(&cell.strategy);
        }
    }
    names
}

/// Rows as lines. Every column is as wide as its widest entry, with two spaces between columns. The first column is aligned to
/// the left, the others to the right.
pub fn align(rows: &[Vec<String>]) -> Vec<String> {
    let width = |text: &str| text.chars().count();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(|text| width(text)).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let entries = row.iter().zip(&widths).enumerate().map(|(at, (text, &width))| match at {
            0 => format!("{text:<width$}"),
            _ => format!("{text:>width$}"),
        });
        entries.collect::<Vec<_>>().join("  ").trim_end().to_owned()
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
    fn counts_in_short() {
        assert_eq!(count(65_536), "65536");
        assert_eq!(count(1 << 24), "16.8 million");
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
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three", 7), "one two\nthree");
        assert_eq!(wrapped("one two three", 8), "one two\nthree");
        assert_eq!(wrapped("very-long-word a b", 3), "very-long-word\na b");
        assert_eq!((wrapped("µµ µµ", 5), wrapped("", 5)), ("µµ µµ".into(), String::new()));
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "1".into(), "22".into()], vec!["bbb".into(), "4444".into()]];
        assert_eq!(align(&rows), ["a       1  22", "bbb  4444"]);
        assert!(align(&[]).is_empty());
    }
}
