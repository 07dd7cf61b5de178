//! Changes the settings many times in random order while the field moves. Every frame arrives whole, and
//! nothing is left over.

use crate::common;
#[cfg(target_os = "linux")]
use wavefield_test_support::stand_in;

use ash::vk;
use clap::ValueEnum;
use vulkan_cuda::Ring;
use wavefield_draw::{ColorMap, Samples, Style};
use wavefield_gpu::report::Failures;
use wavefield_gpu::vulkan::Validation;
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::gallery;
use wavefield_handoff::contents::wave::Grid;
use wavefield_run::{Batching, Choice, Config, DeviceTable, FrameTimes, Headless, ProducerKind, Scene};

/// Pseudo-random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % end as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// The settings that a tour switches between.
#[derive(Clone, Copy)]
struct Tour<'a> {
    cuda: bool,
    scenes: &'static [Scene],
    handoffs: &'a [Handoff],
    /// Whether to use kernels of the gallery that also run without CUDA.
    kernels: bool,
    verify: bool,
    validation: Validation,
}

const SCENES: [Scene; 2] = [Scene::Field, Scene::Texture];

/// All settings, with verification and validation.
const EVERYTHING: Tour<'static> = Tour {
    cuda: true,
    scenes: &SCENES,
    handoffs: &Handoff::ALL,
    kernels: true,
    verify: true,
    validation: Validation::IfInstalled,
};

/// Changes one or two settings at random.
fn another(config: &Config, dice: &mut Dice, tour: &Tour<'_>) -> Config {
    let mut config = config.clone();
    for _ in 0..=dice.below(2) {
        match dice.below(10) {
            0 => config.scene = dice.one_of(tour.scenes),
            1 if tour.cuda => config.producer = dice.one_of(&[ProducerKind::Auto, ProducerKind::Cuda]),
            1 | 2 => config.producer = dice.one_of(&[ProducerKind::Compute, ProducerKind::Host]),
            3 => config.handoff = dice.one_of(tour.handoffs),
            4 => (config.ring, config.batch) = (Ring::new(1 + dice.below(9) as u32), Batching::default()),
            5 => {
                let batch = 1 + dice.below(5) as u32;
                (config.ring, config.batch) = (Ring::new(batch.max(3)), Batching::Fixed(batch));
            }
            6 => config.grid = Grid { cols: 8 + dice.below(60) as u32, rows: 8 + dice.below(60) as u32 },
            7 if tour.kernels => {
                let entry = dice.one_of(&["wave", "ripples", "ocean", "swarm"]);
                config.kernel = gallery::named(entry).unwrap().map(gallery::GalleryEntry::source);
                config.parameters = Default::default();
            }
            8 => config.style = dice.one_of(Style::value_variants()),
            _ => {
                config.samples = dice.one_of(&[Samples::One, Samples::Four]);
                config.color_map = config.color_map.next(None);
            }
        }
    }
    // CPU threads compute only the wave, and a kernel of the gallery fills a field, not a texture.
    if config.producer == ProducerKind::Host || config.scene == Scene::Texture {
        config.kernel = None;
    }
    if config.handoff.check_scene(config.scene).is_err() {
        config.handoff = Handoff::default();
    }
    config
}

/// Does a run with this many switches.
fn tour(switches: usize, tour: &Tour<'_>) {
    let mut config = Config {
        grid: Grid { cols: 32, rows: 32 },
        size: vk::Extent2D { width: 64, height: 48 },
        color_map: ColorMap::default(),
        verify: tour.verify,
        validation: tour.validation,
        ..Config::default()
    };
    let table = DeviceTable::headless(tour.validation).unwrap();
    let choice = table.choose(None, ProducerKind::Auto).unwrap();
    assert_eq!(choice.twin.is_some(), tour.cuda);
    let mut run = Headless::make(&choice, &config, choice.twin.is_some(), true, 1).unwrap();
    let (mut dice, mut drawn, mut settled) = (Dice(7), 0, 0);
    for switch in 0..switches {
        // Mostly not a whole number of rounds of the ring.
        for _ in 0..2 + dice.below(12) {
            run.frame(1.0 / 64.0)
                .unwrap_or_else(|error| panic!("after switch {switch}: {error}\n{config:?}"));
            drawn += 1;
        }
        let next = another(&config, &mut dice, tour);
        run.switch(&choice, &next).unwrap_or_else(|error| panic!("switch {switch}: {error}\n{next:?}"));
        config = next;
        // Drivers open some files once per process and keep them open.
        if switch == switches / 2 {
            settled = common::open_descriptors();
        }
    }
    run.frame(1.0 / 64.0).unwrap();
    finish(run, &choice, drawn + 1);
    let left = common::open_descriptors();
    println!(
        "{switches} switches, {drawn} frames: {settled} descriptors after half of them, {left} at the end"
    );
    assert!(left <= settled, "{} descriptors were left open", left - settled);
}

fn finish(mut run: Headless, choice: &Choice, drawn: u64) {
    let mut failures = Failures::default();
    let summary = run.engine().summary(FrameTimes::default(), 0, &mut failures);
    failures.outcome().unwrap();
    assert_eq!(summary.frames, drawn);
    if let Some(checked) = summary.checked {
        let tally = checked.tally;
        assert_eq!((tally.frames, tally.wrong_frames, tally.unchecked_frames), (drawn, 0, 0), "{tally:?}");
        assert_eq!(checked.slots.wrong_stamps, 0);
    }
    drop(run);
    let log = choice.adapter.instance().validation_log();
    log.verdict().unwrap();
    assert_eq!((log.errors(), log.warnings()), (0, 0));
}

/// Every producer runs the wave. Not every producer runs the other kernels.
#[test]
fn a_kernel_that_a_producer_does_not_run_is_refused_in_words() {
    let choice = DeviceTable::headless(Validation::Off).unwrap().choose(None, ProducerKind::Auto).unwrap();
    let grid = Grid { cols: 8, rows: 8 };
    let shown = |name, producer| {
        let kernel = gallery::named(name).unwrap().map(gallery::GalleryEntry::source);
        Config { kernel, producer, grid, ..Config::default() }
    };
    let mut run =
        Headless::make(&choice, &shown("wave", ProducerKind::Host), choice.twin.is_some(), true, 1).unwrap();
    for (name, kind, word) in
        [("pond", ProducerKind::Compute, "compute"), ("ocean", ProducerKind::Host, "host")]
    {
        let words = run.switch(&choice, &shown(name, kind)).unwrap_err().to_string();
        let wanted =
            format!("the built-in {name} does not run with the producer {word}: choose auto or cuda");
        assert!(words.starts_with(&wanted), "{words}");
        run.frame(0.0).unwrap();
    }
    run.engine().work.finish().unwrap();
}

const SWITCHES: usize = 200;

#[test]
fn without_cuda() {
    let table = DeviceTable::headless(Validation::Off).unwrap();
    if table.choose(None, ProducerKind::Cuda).is_ok() {
        return common::skip("CUDA and Vulkan share a device here, so the test with CUDA runs instead");
    }
    tour(SWITCHES, &Tour { cuda: false, ..EVERYTHING });
}

#[test]
fn with_cuda() {
    if common::has_gpu() {
        tour(SWITCHES, &EVERYTHING);
        tour(SWITCHES / 4, &Tour { verify: false, ..EVERYTHING });
    }
}

/// Checks what the stand-in can run. It runs no kernel inside Vulkan, and the textures are left out.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "runs on the stand-in, where another test starts it"]
fn child_checked() {
    let handoffs: Vec<_> = common::on_a_stream().collect();
    let validation = Validation::Off;
    tour(
        SWITCHES,
        &Tour { scenes: &[Scene::Field], handoffs: &handoffs, kernels: false, validation, ..EVERYTHING },
    );
}

/// Draws everything, unchecked.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "runs on the stand-in, where another test starts it"]
fn child_unchecked() {
    tour(SWITCHES, &Tour { kernels: false, verify: false, validation: Validation::Off, ..EVERYTHING });
}

/// Another process has the GPU to itself: `auto` still computes after a switch.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "runs on the stand-in, where another test starts it"]
fn child_refused() {
    let choice = DeviceTable::headless(Validation::Off).unwrap().choose(None, ProducerKind::Auto).unwrap();
    let config = Config { grid: Grid { cols: 8, rows: 8 }, ..Config::default() };
    let mut run = Headless::make(&choice, &config, true, true, 1).unwrap();
    run.frame(0.0).unwrap();
    run.switch(&choice, &Config { grid: Grid { cols: 16, rows: 8 }, ..config.clone() }).unwrap();
    run.frame(0.0).unwrap();
    let cuda = Config { producer: ProducerKind::Cuda, ..config };
    let words = run.switch(&choice, &cuda).unwrap_err().to_string();
    assert!(words.contains("nvidia-smi -c 0"), "{words}");
    run.frame(0.0).unwrap();
    run.engine().work.finish().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn on_the_stand_in() {
    let Some(stand_in) = stand_in::StandIn::new() else { return };
    for child in ["child_checked", "child_unchecked", "child_refused"] {
        let mut program = common::test_process(module_path!(), child);
        if child == "child_refused" {
            program.env("STAND_IN_FAIL", "cuDevicePrimaryCtxRetain:46:1:9");
        }
        let done = stand_in::run(&mut stand_in.beneath(program, &stand_in::ALL)).unwrap();
        let said = format!("{}{}", common::stdout(&done.output), done.text());
        done.check_clean(0).unwrap_or_else(|problem| panic!("{child}: {problem}\n{said}"));
    }
}
