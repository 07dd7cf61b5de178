//! A report as a table for people: a line for each format, a column for each view type, and the reasons below.

use std::fmt;

use super::record::{Image, Outcome, Report};

pub struct Table<'a>(pub &'a Report);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        let machine = &report.machine;
        writeln!(f, "device      {} ({}), Vulkan {}", machine.gpu, machine.driver, machine.vulkan)?;
        for semaphore in &report.semaphores {
            let handle = semaphore.handle.as_deref().map_or("not exported".into(), exported_as);
            writeln!(f, "semaphore   {}: {handle}", semaphore.kind)?;
        }
        for buffer in &report.buffers {
            let exported = exported_as(buffer.handle.as_deref().unwrap_or_default());
            let verdict = match (&buffer.reason, &buffer.check) {
                (Some(reason), _) => reason.clone(),
                (None, None) => exported,
                (None, Some(outcome)) => format!("{exported}, {outcome}"),
            };
            writeln!(f, "buffers     {}: {verdict}", buffer.kind)?;
        }
        let mut handles: Vec<_> = report.images.iter().filter_map(|image| image.handle.as_deref()).collect();
        handles.sort_unstable();
        handles.dedup();
        match handles.as_slice() {
            [] => writeln!(f, "images      not exported")?,
            _ => writeln!(f, "images      {}, as below", exported_as(&handles.join(" and ")))?,
        }
        writeln!(f)?;
        self.images(f)?;
        let meaning = match report.checked {
            true => {
                "n/m: of m levels n passed: written by CUDA and read by Vulkan, and the other way round, by surface \
                 and texture"
            }
            false => "yes N: exported, with N levels",
        };
        write!(f, "\n{meaning}; -: not exported")?;
        self.reasons(f)
    }
}

impl Table<'_> {
    fn images(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = |image: &Image| match image.attachment {
            true => format!("{}, drawn on", image.view),
            false => image.view.clone(),
        };
        let (mut columns, mut formats) = (Vec::new(), Vec::new());
        for image in &self.0.images {
            if !columns.contains(&column(image)) {
                columns.push(column(image));
            }
            if !formats.contains(&image.format) {
                formats.push(image.format.clone());
            }
        }
        let first = formats.iter().map(String::len).max().unwrap_or(0);
        let mut line = format!("{:first$}", "format");
        columns.iter().for_each(|column| line.push_str(&format!("  {column:8}")));
        writeln!(f, "{}", line.trim_end())?;
        for format in &formats {
            let mut line = format!("{format:first$}");
            for name in &columns {
                let image =
                    self.0.images.iter().find(|image| image.format == *format && column(image) == *name);
                let width = name.len().max(8);
                line.push_str(&format!("  {:width$}", image.map_or(String::new(), cell)));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Each reason once, with everything that it applies to.
    fn reasons(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
        for image in &self.0.images {
            let Some(reason) = &image.reason else { continue };
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, names)) => names.push(image.name()),
                None => reasons.push((reason.clone(), vec![image.name()])),
            }
        }
        for (reason, names) in reasons {
            write!(f, "\nnot exported: {reason}: {}", names.join("; "))?;
        }
        for words in self.0.refusals().into_iter().chain(self.0.failures()) {
            write!(f, "\n{words}")?;
        }
        Ok(())
    }
}

fn exported_as(handle: &str) -> String {
    format!("exported as {handle}")
}

fn cell(image: &Image) -> String {
    match (&image.map, image.handle.is_some()) {
        (_, false) => "-".into(),
        (None, true) => format!("yes {}", image.levels),
        (Some(Outcome::Passed), true) => format!("{}/{}", image.passed(), image.levels),
        (Some(_), true) => "refused".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_cell_and_every_reason() {
        let text = Table(&super::super::record::tests::sample()).to_string();
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("format"), ["format", "2d", "3d", "cube"]);
        assert_eq!(row("R8_UNORM"), ["R8_UNORM", "1/2", "refused"]);
        assert_eq!(row("R32_UINT"), ["R32_UINT", "2/2", "-"]);
        for part in [
            "semaphore   timeline: exported as OPAQUE_FD",
            "buffers     dedicated: exported as OPAQUE_FD, passed",
            "images      exported as OPAQUE_FD, as below",
            "not exported: the driver has no such image: R32_UINT cube",
            "R8_UNORM 3d: refused: invalid argument: 1",
            "R8_UNORM 2d, level 1, filtered texture: failed: 3 of 180 texels differ",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }
}
