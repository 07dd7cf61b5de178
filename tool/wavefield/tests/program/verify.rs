//! `wavefield verify` reports a correct hand-off as clean, and finds a broken one.

use crate::common;
#[cfg(target_os = "linux")]
use wavefield_test_support::display;

use ash::vk;
use common::{assert_exit, run, stderr, stdout};
use vulkan_cuda::Ring;
use wavefield_gpu::Error;
use wavefield_gpu::cuda::KernelSource;
use wavefield_gpu::report::{Failures, word};
use wavefield_gpu::vulkan::Validation;
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::wave::Grid;
use wavefield_run::watch::verify::slots::{SlotsFound, tolerance};
use wavefield_run::watch::verify::{Broken, Checked};
use wavefield_run::{
    Batching, Config, DeviceTable, Ended, FrameTimes, Headless, ProducerKind, Scene, Stop, run_headless,
};

/// Columns and rows; slots and batch.
type Shape = ((u32, u32), (u32, u32));

fn config(producer: ProducerKind, grid: (u32, u32), ring: (u32, u32)) -> Config {
    Config {
        producer,
        grid: Grid { cols: grid.0, rows: grid.1 },
        ring: Ring::new(ring.0),
        batch: Batching::Fixed(ring.1),
        size: vk::Extent2D { width: 64, height: 48 },
        frames: Some(23),
        validation: Validation::IfInstalled,
        verify: true,
        ..Config::default()
    }
}

/// Does a run and asserts what every run must fulfil: the validation layer does not warn, and the check
/// reaches every vertex of every frame twice.
fn checked(config: &Config) -> Result<Checked, Error> {
    let Ended { summary, failure } = run_headless(config, &Stop::default())?;
    failure.map_or(Ok(()), Err)?;
    assert_eq!(summary.validation.unwrap_or(0), 0, "validation warnings");
    let checked = summary.checked.expect("the run was checked");
    let (tally, frames) = (&checked.tally, config.frames.unwrap());
    assert_eq!((summary.frames, tally.frames, tally.unchecked_frames), (frames, frames, 0));
    let all = frames * config.scene.element_count(config.grid);
    assert_eq!((tally.before_draw.checked, tally.after_draw.checked), (all, all));
    Ok(checked)
}

/// Whether all stamps are right, and all values within the tolerance.
fn right(slots: &SlotsFound, scene: Scene) -> bool {
    slots.wrong_stamps == 0 && slots.worst_error.is_none_or(|worst| worst <= tolerance(scene))
}

fn assert_clean(config: &Config, name: &str) -> Result<(), Error> {
    let Checked { tally, slots, .. } = checked(config)?;
    let total = tally.total();
    assert_eq!((total.stale, total.overwritten, total.missing), (0, 0, 0), "{name}: {tally:?}");
    assert_eq!((tally.wrong_frames, tally.torn_frames), (0, 0), "{name}: {tally:?}");
    assert!(
        right(&slots, config.scene) && slots.worst_error.is_some() && slots.slots > 0,
        "{name}: {slots:?}"
    );
    Ok(())
}

/// Even and odd grids, smaller and larger than a workgroup; rings deeper than the run; batches that divide
/// neither.
const CASES: [Shape; 7] = [
    ((2, 2), (1, 1)),
    ((33, 7), (2, 1)),
    ((16, 16), (32, 1)),
    ((257, 129), (3, 3)),
    ((1000, 37), (5, 2)),
    ((128, 64), (8, 8)),
    ((160, 200), (3, 1)),
];

#[test]
fn what_vulkan_and_the_cpu_fill_arrives_whole() {
    for producer in [ProducerKind::Compute, ProducerKind::Host] {
        for (grid, ring) in CASES {
            let name = format!("{producer:?}, {grid:?}, ring and batch {ring:?}");
            assert_clean(&config(producer, grid, ring), &name).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}

/// Square, odd, flat, tall and the smallest textures; rings deeper than the run; batches that divide neither.
const TEXTURES: [Shape; 6] = [
    ((64, 64), (3, 1)),
    ((77, 53), (2, 1)),
    ((200, 3), (1, 1)),
    ((5, 130), (5, 2)),
    ((2, 2), (32, 1)),
    ((300, 200), (4, 4)),
];

fn texture(producer: ProducerKind, (grid, ring): Shape) -> Config {
    Config { scene: Scene::Texture, ..config(producer, grid, ring) }
}

#[test]
fn what_vulkan_and_the_cpu_paint_arrives_whole() {
    for producer in [ProducerKind::Compute, ProducerKind::Host] {
        for shape in TEXTURES {
            let name = format!("{producer:?}, a texture, {shape:?}");
            assert_clean(&texture(producer, shape), &name).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}

#[test]
fn what_cuda_paints_arrives_whole_by_every_handoff() {
    if !common::has_gpu() {
        return;
    }
    for handoff in common::handoffs(Scene::Texture) {
        for shape in TEXTURES {
            let config = Config { handoff, ..texture(ProducerKind::Cuda, shape) };
            let name = format!("{}, a texture, {shape:?}", handoff.name());
            assert_clean(&config, &name).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

#[test]
fn what_cuda_fills_arrives_whole_by_every_handoff() {
    if !common::has_gpu() {
        return;
    }
    for handoff in Handoff::ALL {
        for (grid, ring) in CASES {
            let config = Config { handoff, ..config(ProducerKind::Cuda, grid, ring) };
            let name = format!("{}, {grid:?}, ring and batch {ring:?}", handoff.name());
            assert_clean(&config, &name).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

/// The batch may change at any frame. No frame is lost, drawn twice or overwritten.
#[test]
fn batches_of_changing_length_arrive_whole() {
    if !common::has_gpu() {
        return;
    }
    for scene in [Scene::Field, Scene::Texture] {
        // 16 is the default's depth with three frames in flight.
        for depth in [2, 3, 8, 16] {
            let mut config = config(ProducerKind::Cuda, (48, 40), (depth, 1));
            (config.scene, config.frames) = (scene, Some(400));
            if depth == 16 {
                (config.ring, config.batch) = (None, Batching::default());
            }
            let choice =
                DeviceTable::headless(config.validation).unwrap().choose(None, config.producer).unwrap();
            let mut run = Headless::new(&choice, &config).unwrap();
            for frame in 0..400u32 {
                // Includes batches longer than the ring, and of no frames.
                run.engine()
                    .work
                    .producer
                    .set_batch((frame.wrapping_mul(2_654_435_761) >> 27) as usize % (depth as usize + 2));
                run.frame(0.02).unwrap();
            }
            let mut failures = Failures::default();
            let summary = run.engine().summary(FrameTimes::default(), 0, &mut failures);
            failures.outcome().unwrap();
            let Checked { tally, slots, .. } = summary.checked.expect("the run was checked");
            let (name, total) = (format!("{scene:?}, ring {depth}"), tally.total());
            assert_eq!(
                (tally.frames, tally.wrong_frames, tally.torn_frames),
                (400, 0, 0),
                "{name}: {tally:?}"
            );
            assert_eq!((total.stale, total.overwritten, total.missing), (0, 0, 0), "{name}: {tally:?}");
            assert!(right(&slots, config.scene) && slots.slots == depth as u64, "{name}: {slots:?}");
        }
    }
}

/// For a kernel without a reference, only the stamps are checked.
#[test]
fn a_users_kernel_is_stamped_too() {
    if !common::has_gpu() {
        return;
    }
    let flat = concat!(env!("CARGO_MANIFEST_DIR"), "/../handoff/kernels/test/flat.ptx");
    for handoff in [Handoff::Timeline, Handoff::Inline] {
        let mut config = config(ProducerKind::Cuda, (100, 90), (3, 1));
        config.handoff = handoff;
        config.kernel = Some(KernelSource::from_argument(flat).unwrap());
        let Checked { tally, slots, .. } = checked(&config).unwrap();
        assert_eq!((tally.wrong_frames, slots.wrong_stamps, slots.worst_error), (0, 0, None));
    }
}

/// Leaves out a part of the hand-off, in several shapes. Returns the number of wrong frames of each.
fn broken(scene: Scene, broken: Broken) -> Vec<u64> {
    let tries = TRIES.iter().map(|&(grid, ring)| {
        let mut config = config(ProducerKind::Cuda, grid, ring);
        config.scene = scene;
        config.broken = Some(broken);
        config.frames = Some(200);
        // The layer does not know what CUDA does, and slows Vulkan down.
        config.validation = Validation::Off;
        let tally = checked(&config).unwrap_or_else(|error| panic!("{broken:?}: {error}")).tally;
        println!(
            "{}, --break {}, {grid:?}, ring and batch {ring:?}: {} of {} frames wrong, {} torn, {:?}",
            word(scene),
            word(broken),
            tally.wrong_frames,
            tally.frames,
            tally.torn_frames,
            tally.total()
        );
        tally.wrong_frames
    });
    tries.collect()
}

const TRIES: [Shape; 4] =
    [((1024, 1024), (1, 1)), ((2048, 2048), (1, 1)), ((1024, 1024), (2, 2)), ((1024, 1024), (3, 1))];

#[test]
fn a_draw_that_does_not_wait_for_cuda_is_caught() {
    if common::has_gpu() {
        for scene in [Scene::Field, Scene::Texture] {
            let wrong = broken(scene, Broken::Ready);
            assert!(wrong.iter().any(|&wrong| wrong > 0), "{scene:?}: {wrong:?}");
        }
    }
}

#[test]
fn a_kernel_that_does_not_wait_for_vulkan_is_caught() {
    if common::has_gpu() {
        for scene in [Scene::Field, Scene::Texture] {
            let wrong = broken(scene, Broken::Free);
            assert!(wrong.iter().any(|&wrong| wrong > 0), "{scene:?}: {wrong:?}");
        }
    }
}

/// Whether the error is visible depends on the hardware. The run must only end.
#[test]
fn without_ownership_transfers_it_ends_well() {
    if common::has_gpu() {
        broken(Scene::Field, Broken::Barrier);
        broken(Scene::Texture, Broken::Barrier);
    }
}

const SMALL: [&str; 5] = ["verify", "--producer=compute", "--grid=40x30", "--size=64x48", "--frames=250"];

#[test]
fn the_command_reports_and_writes_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("verify.json");
    let output = run(&[SMALL.as_slice(), &["--json", path.to_str().unwrap()]].concat());
    assert_exit(&output, 0);
    let text = stdout(&output);
    for line in [
        "checked       250 frames",
        "vertices      600000 looked",
        "stale         0\n",
        "verdict       clean",
    ] {
        assert!(text.contains(line), "`{line}` is missing in: {text}");
    }
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(json["schema"], "wavefield-verify/1");
    assert_eq!((&json["complete"], &json["verdict"]), (&true.into(), &"clean".into()));
    assert_eq!((&json["frames"], &json["tally"]["frames"]), (&250.into(), &250.into()));
    assert_eq!(json["tally"]["before_draw"]["checked"], 300_000);
    assert_eq!(json["settled"]["frame"], 200);
    // A software device's memory is that of all processes.
    assert!(!text.contains("llvmpipe") || json["settled"]["device_bytes"].is_null(), "{json:#}");
    assert!(json["command"].as_str().unwrap().starts_with("wavefield verify "), "{json:#}");
    assert!(json["machine"]["gpu"].is_string() && json["findings"].as_array().unwrap().is_empty());
}

#[test]
fn the_command_reports_of_texels() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("verify.json");
    let texture = ["--scene=texture", "--validation=off", "--json", path.to_str().unwrap()];
    let output = run(&[SMALL.as_slice(), &texture].concat());
    assert_exit(&output, 0);
    let text = stdout(&output);
    // 40x30, 20x15, 10x7, 5x3, 2x1 and 1x1 texels, twice per frame.
    for line in ["every texel of every level", "texels        794000 looked", "verdict       clean"] {
        assert!(text.contains(line), "`{line}` is missing in: {text}");
    }
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((&json["scene"], &json["verdict"]), (&"texture".into(), &"clean".into()));
    assert_eq!(json["tally"]["after_draw"]["checked"], 397_000);
    assert!(json["slots"]["worst_error"].as_f64().unwrap() < 0.005, "{json:#}");
}

#[test]
fn nonsense_is_wrong_usage() {
    let cases: [(&[&str], &str); 5] = [
        (&["--break=ready"], "--producer cuda with --handoff timeline"),
        (&["--break=everything"], "possible values"),
        (&["--window", "--headless"], "cannot be used with"),
        (&["--batch=9"], "--batch is for the CUDA producer"),
        (&["--frames=0"], "`0` is not a whole number from 1 on"),
    ];
    for (arguments, part) in cases {
        let output = run(&[&SMALL[..4], arguments].concat());
        assert_exit(&output, 2);
        assert!(stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    }
    for handoff in Handoff::ALL.map(Handoff::name).into_iter().filter(|&name| name != "timeline") {
        assert_exit(&run(&["verify", "--break=free", "--handoff", handoff]), 2);
        assert_exit(&run(&["verify", "--scene=texture", "--break=free", "--handoff", handoff]), 2);
    }
}

#[test]
fn a_place_that_cannot_be_written_is_said_before_anything_runs() {
    let output = run(&[SMALL.as_slice(), &["--json=/no/such/folder/a.json"]].concat());
    assert_exit(&output, 1);
    assert!(stderr(&output).contains("/no/such/folder/a.json") && stdout(&output).is_empty());
}

/// The verdict says whether the broken hand-off was caught.
#[test]
fn the_command_says_what_a_broken_run_found() {
    if !common::has_gpu() {
        return;
    }
    let base = ["verify", "--frames=300", "--grid=1024x1024", "--ring=1", "--validation=off", "--scene"];
    for scene in ["field", "texture"] {
        for broken in ["ready", "free"] {
            let output = run(&[base.as_slice(), &[scene, "--break", broken]].concat());
            assert_exit(&output, 0);
            assert!(stdout(&output).contains("verdict       caught"), "{}", stdout(&output));
        }
        let output = run(&[base.as_slice(), &[scene, "--break=barrier"]].concat());
        assert_exit(&output, 0);
        let text = stdout(&output);
        assert!(text.contains("not observable on this device") || text.contains("caught"), "{text}");
    }
}

/// The stamp takes 12 bits of each colour or texel. The difference is not visible.
#[test]
fn a_checked_picture_is_the_same_picture() {
    let folder = tempfile::tempdir().unwrap();
    let picture = |name: &str, command: &str, scene: &str| {
        let path = folder.path().join(name);
        let arguments =
            [command, "--headless", "--producer=compute", "--frames=31", "--grid=128x128", "--size=320x240"];
        let more = ["--scene", scene, "--output", path.to_str().unwrap()];
        assert_exit(&run(&[arguments.as_slice(), &more].concat()), 0);
        path
    };
    for scene in ["field", "texture"] {
        let (plain, checked) = (picture("plain.png", "run", scene), picture("checked.png", "verify", scene));
        common::assert_same_picture(&checked, &plain, common::SAME_PICTURE);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_stopped_run_reports_what_it_has_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("verify.json");
    let mut command = common::wavefield();
    command.args(&SMALL[..4]).args(["--frames=100000000", "--validation=off", "--json"]).arg(&path);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    common::process::wait_for(&mut child, "frames", common::process::has_worked);
    let kill = format!("kill -TERM {}", child.id());
    assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_exit(&output, 1);
    assert!(stderr(&output).contains("marked incomplete"), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((&json["complete"], &json["verdict"]), (&false.into(), &"clean".into()));
    assert_eq!(json["frames"], json["tally"]["frames"]);
}

#[cfg(target_os = "linux")]
#[test]
fn it_works_in_a_window() {
    let Some(display) = display::Display::start() else { return };
    for (producer, scene) in
        [("auto", "field"), ("compute", "field"), ("host", "field"), ("auto", "texture"), ("host", "texture")]
    {
        let mut command = common::wavefield();
        command.args(["verify", "--window", "--frames=60", "--grid=64x64", "--size=200x150", "--ring=4"]);
        command.args(["--producer", producer, "--scene", scene]);
        let output = display.show(&mut command).output().expect("it starts");
        assert_exit(&output, 0);
        let text = stdout(&output);
        assert!(text.contains("checked       60 frames") && text.contains("verdict       clean"), "{text}");
        assert!(!stderr(&output).contains("validation"), "{}", stderr(&output));
    }
}
