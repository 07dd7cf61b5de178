//! Turns settings into a command line, parses that, and expects the same settings.

use std::time::Duration;

use ash::vk;
use clap::{CommandFactory, FromArgMatches};
use proptest::prelude::*;
use proptest::sample::select;
use vulkan_cuda::Ring;
use wavefield_draw::{Camera, ColorMap, Raster, Samples, Style};
use wavefield_gpu::cuda::KernelSource;
use wavefield_gpu::vulkan::{PresentMode, Validation};
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::{gallery::GALLERY, wave::Grid};
use wavefield_run::{Batching, Config, OverlayMode, ProducerKind, Scene};

use super::Cli;

/// Splits a line into words as a shell does, with its quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            '\'' => quoted = !quoted,
            '\\' if !quoted => word.extend(rest.next()),
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    words
}

fn parsed(words: &[String], headless: bool) -> Config {
    let matches = Cli::command().try_get_matches_from(words);
    let matches = matches.unwrap_or_else(|error| panic!("{words:?}: {error}"));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    assert_eq!(cli.run.run.headless, headless);
    cli.run.run.check_ring().unwrap();
    let config = cli.run.run.config(headless, &matches).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    Config { any_grid: false, any_samples: false, ..config }
}

prop_compose! {
    fn camera()(
        angles in (-7.0f32..7.0, -1.5f32..=1.5), distance in 0.4f32..=20.0, target in prop::array::uniform3(-1.7f32..1.7)
    ) -> Camera {
        Camera::new(angles.0, angles.1, distance, target).unwrap()
    }
}

prop_compose! {
    fn shown()(
        scene in select(vec![Scene::Field, Scene::Texture]),
        style in select(vec![Style::Surface, Style::Wireframe, Style::Points]),
        color_map in select(vec![ColorMap::Viridis, ColorMap::Magma, ColorMap::Cividis]),
        grid in (2u32..9000, 2u32..9000), size in (1u32..9000, 1u32..9000),
        speed in prop_oneof![Just(1.0), -1000.0..1000.0],
        camera in prop::option::of(camera()),
        names in prop::array::uniform3(prop::option::of("[a-z '\"$\\\\ü%-]{1,12}")),
        raw in any::<bool>(), record_side in 16u32..=4096,
        samples in select(vec![Samples::One, Samples::Four]),
        raster in select(vec![Raster::Auto, Raster::Graphics, Raster::Compute]),
    ) -> Config {
        let [output, record, trace] = names;
        let ending = |name: Option<String>, ending| name.map(|name| format!("{name}.{ending}").into());
        let record = if raw { record.map(|_| "-".into()) } else { ending(record, "gif") };
        let has_side = record.is_some() && !raw;
        Config {
            scene,
            style: if scene == Scene::Field { style } else { Style::default() },
            color_map,
            grid: Grid { cols: grid.0, rows: grid.1 },
            size: vk::Extent2D { width: size.0, height: size.1 },
            speed,
            camera,
            output: ending(output, "png"),
            record,
            record_side: if has_side { record_side } else { Config::default().record_side },
            trace: ending(trace, "json"),
            samples,
            raster,
            ..Config::default()
        }
    }
}

prop_compose! {
    fn settings()(
        shown in shown(),
        headless in any::<bool>(),
        device in prop::option::of("[A-Za-z0-9'\"`$&ü -]{0,9}[0-9]"),
        producer in select(vec![ProducerKind::Auto, ProducerKind::Cuda, ProducerKind::Compute, ProducerKind::Host]),
        handoff in select(Handoff::ALL.to_vec()),
        kernel in prop::option::of(0..=GALLERY.len()), parameters in (0.0f32..2.0, 0.0f32..2.0),
        risk_the_gpu in any::<bool>(),
        ring in prop::option::of(1u32..=32),
        batch in prop::option::of(1u32..=32), latency in prop_oneof![Just(33.0), 0.0..60_000.0],
        frames in prop::option::of(1u64..),
        present in select(vec![PresentMode::Fifo, PresentMode::Mailbox, PresentMode::Immediate]),
        overlay in select(vec![OverlayMode::On, OverlayMode::Legend, OverlayMode::Off]),
        seconds in prop_oneof![Just(10.0), 0.1..86_400.0],
        validation in select(vec![Validation::usual(), Validation::Required, Validation::Off]),
    ) -> (Config, bool) {
        let cuda = matches!(producer, ProducerKind::Auto | ProducerKind::Cuda);
        let possible = cuda && handoff.check_scene(shown.scene).is_ok();
        let handoff = if possible { handoff } else { Handoff::default() };
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../handoff/kernels/test/flat.ptx");
        let kernel = match kernel.filter(|_| shown.scene == Scene::Field) {
            Some(index) => match GALLERY.get(index) {
                Some(entry) if cuda || (entry.shader.is_some() && producer == ProducerKind::Compute) => Some(entry.source()),
                None if cuda => Some(KernelSource::from_argument(path).unwrap()),
                _ => None,
            },
            None => None,
        };
        let ring = ring.filter(|_| !handoff.has_one_slot()).and_then(Ring::new);
        let batch = match batch.filter(|_| cuda && handoff == Handoff::Timeline) {
            Some(frames) => Batching::Fixed(frames.min(ring.map_or(32, |ring| ring.depth() as u32))),
            None if cuda && handoff == Handoff::Timeline => {
                Batching::Auto { latency: Duration::from_secs_f64(latency * 1e-3) }
            }
            None => Batching::default(),
        };
        let config = Config {
            device,
            producer,
            handoff,
            risk_the_gpu: risk_the_gpu || kernel.is_some(),
            kernel,
            ring,
            batch,
            frames,
            output: shown.output.clone().filter(|_| headless),
            present: if headless { PresentMode::Fifo } else { present },
            overlay: if headless { OverlayMode::On } else { overlay },
            timeout: Duration::from_secs_f64(seconds),
            validation,
            ..shown
        };
        let given = [parameters.0, parameters.1];
        let parameters = config.kernel().parameters().unwrap().values(&given);
        (Config { parameters, ..config }, headless)
    }
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_command_line_asks_for_the_settings_that_it_was_made_of((config, headless) in settings()) {
        let line = config.command_line(headless);
        prop_assert_eq!(parsed(&words(&line), headless), config, "{}", line);
    }
}

/// [`words`] splits a line as a real shell does.
#[cfg(unix)]
#[test]
fn a_shell_sees_the_same_words() {
    let config = Config {
        device: Some(r#"it's "$HOME" `x` \ *"#.into()),
        output: Some("ein Bild für 100%.png".into()),
        ..Config::default()
    };
    let line = config.command_line(true);
    let script = format!("printf '%s\\n' {line}");
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    let seen: Vec<_> = std::str::from_utf8(&output.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(seen, words(&line));
}
