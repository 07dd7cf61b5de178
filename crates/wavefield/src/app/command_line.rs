//! The command line for a run's settings, and the texts in a picture's file that say how it was made.

use std::fmt::Display;
use std::path::Path;

use clap::ValueEnum;

use super::engine::Engine;
use super::{Batching, Config, Scene};
use crate::array::Array;
use crate::cuda::KernelSource;
use crate::film::FilmDesc;
use crate::handoff::Handoff;
use crate::vulkan::Validation;

impl Config {
    /// `wavefield …` with the options for these settings, quoted for a shell. It contains only options that have an effect and
    /// differ from their defaults, and omits settings that only the library offers.
    pub fn command_line(&self, headless: bool) -> String {
        let mut line = Line("wavefield".into());
        if headless {
            line.flag("headless");
        }
        self.say_what(&mut line);
        self.say_how(&mut line, headless);
        self.say_where(&mut line, headless);
        line.0
    }

    /// What is shown.
    fn say_what(&self, line: &mut Line) {
        let usual = Self::default();
        line.choice("scene", self.scene, usual.scene);
        line.option("grid", format_args!("{}x{}", self.grid.cols, self.grid.rows), self.grid != usual.grid);
        line.option("speed", self.speed, self.speed != usual.speed);
        if self.scene == Scene::Field {
            line.choice("style", self.style, self.usual_style());
        }
        line.choice("colormap", self.color_map, usual.color_map);
        if let Some(camera) = self.camera {
            line.option("camera", camera, true);
        }
    }

    /// How it is filled and drawn.
    fn say_how(&self, line: &mut Line, headless: bool) {
        let usual = Self::default();
        if let Some(device) = &self.device {
            line.option("device", device, true);
        }
        line.choice("producer", self.producer, usual.producer);
        match &self.kernel {
            Some(KernelSource { gallery: Some(name), .. }) => line.option("kernel", name, true),
            Some(kernel) if self.producer.may_use_cuda() => {
                line.option("kernel", format_args!("{}:{}", kernel.name, kernel.entry), true);
            }
            _ => {}
        }
        if self.producer.may_use_cuda() {
            line.choice("handoff", self.handoff, usual.handoff);
            match self.batch {
                _ if self.handoff != Handoff::Timeline => {}
                Batching::Fixed(frames) => line.option("batch", frames, true),
                Batching::Auto { latency } => {
                    let milliseconds = latency.as_secs_f64() * 1e3;
                    line.option("batch-latency", milliseconds, latency != Batching::LATENCY);
                }
            }
        }
        let kernel = self.kernel();
        // A kernel with faulty parameter lines was refused earlier.
        let parameters = kernel.parameters().unwrap_or_default();
        for (parameter, value) in parameters.iter().zip(parameters.values(&self.parameters).iter()) {
            let given = format_args!("{}={value}", parameter.name).to_string();
            line.option("param", given, *value != parameter.default);
        }
        if self.risk_the_gpu {
            line.flag("risk-the-gpu");
        }
        let has_ring = !(self.producer.may_use_cuda() && self.handoff.has_one_slot());
        if let Some(ring) = self.ring.filter(|_| has_ring) {
            line.option("ring", ring.depth(), true);
        }
        if let Some(frames) = self.frames {
            line.option("frames", frames, true);
        }
        if !headless {
            line.choice("present", self.present, usual.present);
            line.choice("overlay", self.overlay, usual.overlay);
        }
        line.choice("wait", self.wait, usual.wait);
        line.option("timeout", self.timeout.as_secs_f64(), self.timeout != usual.timeout);
        match self.validation {
            Validation::Required => line.option("validation", "on", true),
            // A debug build looks for the layer by itself.
            Validation::Off => line.option("validation", "off", cfg!(debug_assertions)),
            Validation::IfInstalled => {}
        }
    }

    /// The output.
    fn say_where(&self, line: &mut Line, headless: bool) {
        let usual = Self::default();
        let size = format_args!("{}x{}", self.size.width, self.size.height).to_string();
        line.option("size", size, self.size != usual.size);
        line.choice("samples", self.samples, usual.samples);
        let file = |line: &mut Line, name, path: &Path| line.option(name, path.display(), true);
        if let Some(path) = self.output.as_ref().filter(|_| headless) {
            file(line, "output", path);
        }
        if let Some(path) = &self.record {
            file(line, "record", path);
            let has_side = path.as_os_str() != "-" && self.record_side != FilmDesc::SIDE;
            line.option("record-side", self.record_side, has_side);
        }
        if let Some(path) = &self.trace {
            file(line, "trace", path);
        }
    }
}

/// A command line under construction.
struct Line(String);

impl Line {
    fn flag(&mut self, name: &str) {
        self.0 += &format!(" --{name}");
    }

    fn option(&mut self, name: &str, value: impl Display, differs: bool) {
        if differs {
            self.0 += &format!(" --{name}={}", quoted(&value.to_string()));
        }
    }

    /// Adds an option whose value is one of several words. Skips a value that only the library offers.
    fn choice<T: ValueEnum + PartialEq>(&mut self, name: &str, value: T, usual: T) {
        if let Some(word) = value.to_possible_value() {
            self.option(name, word.get_name(), value != usual);
        }
    }
}

/// Quotes a word for a shell, if it needs that.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-+=./:,@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The texts for a picture's file: program, device, settings, and the command that draws it again. They omit the file's path: it is
/// private, and two pictures of the same frame stay bit-identical. The picture is the last of `frames`. If the run `serves`, clients
/// may have drawn, so there is no command.
pub(super) fn picture_texts(
    config: &Config,
    engine: &Engine,
    frames: u64,
    serves: bool,
) -> Vec<(&'static str, String)> {
    let (info, profile) = (engine.device().info(), engine.producer().profile());
    let how = match config.scene {
        Scene::Field => config.style.name(),
        Scene::Texture => "plane",
    };
    let what = match *engine.array() == Array::mesh(config.grid) {
        true => format!("{}x{} {}, {how}", config.grid.cols, config.grid.rows, config.scene.elements()),
        false => engine.array().to_string(),
    };
    let settings = format!(
        "frame {frames}, {what}, {} by {}, ring of {}, {} samples a pixel",
        config.color_map.to_possible_value().map_or(String::new(), |word| word.get_name().to_owned()),
        profile.name,
        profile.slots.len(),
        config.samples.count(),
    );
    let mut texts = vec![
        ("Software", format!("wavefield {}", env!("CARGO_PKG_VERSION"))),
        ("Device", format!("{} ({})", info.name, info.driver)),
        ("Settings", settings),
    ];
    if !serves {
        let output = Some("wave.png".into());
        let shown = Config { frames: Some(frames), output, trace: None, record: None, ..config.clone() };
        texts.push(("Command", shown.command_line(true)));
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::ProducerKind;

    #[test]
    fn only_what_differs_is_said_and_quoted_where_it_must_be() {
        let config = Config { validation: Validation::IfInstalled, ..Config::default() };
        assert_eq!(config.command_line(false), "wavefield");
        let config = Config {
            device: Some("NVIDIA's best".into()),
            speed: -0.5,
            overlay: crate::app::OverlayMode::Off,
            output: Some("my wave.png".into()),
            producer: ProducerKind::Compute,
            handoff: Handoff::Binary,
            ..config
        };
        assert_eq!(
            config.command_line(true),
            r"wavefield --headless --speed=-0.5 --device='NVIDIA'\''s best' --producer=compute --output='my wave.png'"
        );
        let still = Config { producer: ProducerKind::Still, ..config };
        assert!(
            !still.command_line(false).contains("producer")
                && still.command_line(false).contains("--overlay=off")
        );
    }
}
