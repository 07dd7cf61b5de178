//! The parameters of kernels: the values on the command line, and values that change during a run, reach the
//! producer.

use crate::common;
#[cfg(target_os = "linux")]
use wavefield_test_support::stand_in;

use ash::vk;
use common::{assert_exit, run, stderr, stdout};
use wavefield_gpu::vulkan::Validation;
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::wave::{self, Grid, Vertex, WaveShape};
use wavefield_run::{Batching, Config, DeviceTable, Headless, ProducerKind};

const SMALL: [&str; 6] =
    ["--headless", "--frames=3", "--grid=8x8", "--size=32x24", "--validation=off", "--producer=compute"];

/// Declares three floats, for a kernel that never runs here.
const THREE: &str = "//!PARAM a float 0 1 1\n//!PARAM b float 0 1 1\n//!PARAM c float 0 1 1\n";
const FIVE: &str = ".param .u64 v, .param .u32 c, .param .u32 r, .param .u64 f, .param .f64 t";

/// Writes this text to a PTX file.
fn file(text: &str) -> tempfile::TempPath {
    let file = tempfile::Builder::new().suffix(".ptx").tempfile().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file.into_temp_path()
}

#[test]
fn what_the_kernel_does_not_have_is_wrong_usage() {
    let has = "amplitude (0 to 2 x, default 1), frequency (0.25 to 4 x, default 1)";
    let none = concat!(env!("CARGO_MANIFEST_DIR"), "/../handoff/kernels/test/flat.ptx");
    for (arguments, parts) in [
        (&["--param=height=1"][..], ["--param: the built-in wave has no parameter `height`: it has", has]),
        (&["--param", "amplitude=2.5"], ["--param: amplitude cannot be 2.5: the built-in wave has", has]),
        (&["--param", "frequency=1", "--param", "frequency=-1"], ["--param: frequency cannot be -1", has]),
        (&["--param=amplitude"], ["`amplitude` is not a name and a number", "amplitude=0.5"]),
        (&["--param=amplitude=inf"], ["`amplitude=inf` is not a name and a number", ""]),
        (
            &["--scene=texture", "--param=amplitude=1"],
            ["the built-in texture has no parameter `amplitude`: it has none", "README.md"],
        ),
    ] {
        for command in ["run", "verify", "bench"] {
            let own: &[&str] = if command == "bench" { &["--quick"] } else { &SMALL };
            let output = run(&[&[command], own, arguments].concat());
            assert_exit(&output, 2);
            let text = stderr(&output);
            assert!(parts.iter().all(|part| text.contains(part)), "{command}: {text}");
        }
    }
    // With `--kernel`, that kernel's parameters count. They are checked before anything else of the kernel.
    let output = run(&["--headless", "--kernel", none, "--param=amplitude=1"]);
    assert_exit(&output, 2);
    assert!(stderr(&output).contains("flat.ptx has no parameter"), "{}", stderr(&output));
}

#[test]
fn lines_that_cannot_be_right_are_named() {
    let entry = format!(".version 6.0\n.entry k({FIVE}, .param .align 4 .b8 p[8]) {{ ret; }}");
    for (text, parts) in [
        (format!("{THREE}{entry}"), ["expected (.u64, .u32, .u32, .u64, .f64, .b8[12])", "3 floats"]),
        (entry.clone(), ["found (.u64, .u32, .u32, .u64, .f64, .b8[8])", "expected (.u64, .u32, .u32"]),
        (format!("\n//!PARAM a double 0 1 1\n{entry}"), ["line 2, //!PARAM: a: its type is `double`", ""]),
    ] {
        let kernel = file(&text);
        let output = run(&["--headless", "--kernel", kernel.to_str().unwrap()]);
        assert_exit(&output, 1);
        assert!(parts.iter().all(|part| stderr(&output).contains(part)), "{}", stderr(&output));
    }
}

/// Draws a wave whose shape changes. Returns the largest error of the slots against the references of their
/// frames.
fn worst_error(producer: ProducerKind, handoff: Handoff) -> f64 {
    let config = Config {
        producer,
        handoff,
        // A frame that was filled ahead would still have the old shape.
        batch: Batching::Fixed(1),
        grid: Grid { cols: 129, rows: 65 },
        size: vk::Extent2D { width: 64, height: 48 },
        validation: Validation::IfInstalled,
        ..Config::default()
    };
    let parameters = config.kernel().parameters().unwrap();
    let first = parameters.choose("the wave", &[], [("amplitude", 2.0)]).unwrap();
    let config = Config { parameters: first, ..config };
    let choice = DeviceTable::headless(config.validation).unwrap().choose(None, producer).unwrap();
    let log = choice.adapter.instance().validation_log().clone();
    let mut run = Headless::new(&choice, &config).unwrap();
    let depth = run.engine().work.producer.profile().slots.len();
    let names: Vec<_> = run
        .engine()
        .work
        .producer
        .profile()
        .parameters
        .iter()
        .map(|parameter| parameter.name.clone())
        .collect();
    assert_eq!(names, ["amplitude", "frequency"]);
    assert_eq!(run.engine().work.producer.parameters[..], [2.0, 1.0]);
    let mut worst: f64 = 0.0;
    let shapes = [None, Some([0.5, 4.0]), None, Some([0.0, 1.0]), Some([1.5, 0.25]), Some([99.0, -99.0])];
    let mut now = [2.0, 1.0];
    for (frame, shape) in shapes.into_iter().enumerate() {
        if let Some(shape) = shape {
            run.engine().work.producer.set_parameters(&shape);
            // Each value is clamped to its range.
            now = [shape[0].clamp(0.0, 2.0), shape[1].clamp(0.25, 4.0)];
        }
        run.frame(0.37).unwrap();
        let shape = WaveShape { amplitude: now[0], frequency: now[1] };
        let vertices: Vec<Vertex> = common::read_slot(run.engine(), frame % depth).unwrap();
        let apart = |got: f32, want: f64| (f64::from(got) - want).abs();
        let moment = (frame as f64 * 0.37, shape);
        worst = worst.max(wave::worst_distance(config.grid, &vertices, moment, apart));
    }
    drop((run, choice));
    log.verdict().unwrap();
    worst
}

#[test]
fn the_compute_shader_and_the_cpu_follow_the_reference() {
    for producer in [ProducerKind::Compute, ProducerKind::Host] {
        let worst = worst_error(producer, Handoff::default());
        assert!(worst <= 1e-5, "{producer:?}: {worst:e}");
    }
}

#[test]
fn the_cuda_kernel_follows_the_reference_by_every_hand_off() {
    if common::has_gpu() {
        for handoff in Handoff::ALL {
            let worst = worst_error(ProducerKind::Cuda, handoff);
            println!("{}: worst error {worst:.2e}", handoff.name());
            assert!(worst <= 1e-5, "{}: {worst:e}", handoff.name());
        }
    }
}

/// `verify` compares with the reference of the chosen shape.
#[test]
fn a_run_with_parameters_is_verified() {
    for producer in ["compute", "host"] {
        let arguments = ["verify", "--frames=9", "--grid=64x64", "--size=32x24", "--validation=off"];
        let shape = ["--param=amplitude=1.75", "--param=frequency=3"];
        let output = run(&[&arguments[..], &shape, &["--producer", producer]].concat());
        assert_exit(&output, 0);
        let text = stdout(&output);
        assert!(text.contains("from the reference at the worst") && text.contains("clean"), "{text}");
    }
}

#[cfg(target_os = "linux")]
mod cuda {
    use super::stand_in::{ALL, Run, StandIn, run};
    use super::{FIVE, file};
    use crate::common::stdout;
    use wavefield_handoff::Handoff;
    use wavefield_run::Scene;

    fn done(stand_in: &StandIn, arguments: &[&str]) -> Run {
        let mut command = stand_in.command(&ALL);
        let sizes = ["--producer=cuda", "--frames=7", "--grid=32x32", "--size=32x24", "--validation=off"];
        run(command.args(arguments).args(sizes)).unwrap()
    }

    /// The wave is right only if its two values have arrived. In a command buffer, the stand-in's kernels do
    /// nothing, so the test looks at the values that they were given.
    #[test]
    fn they_reach_the_kernel_by_every_hand_off() {
        let Some(stand_in) = StandIn::new() else { return };
        let shape = ["--param=amplitude=0.5", "--param=frequency=2"];
        for handoff in Handoff::ALL.map(Handoff::name) {
            let inline = handoff == "inline";
            let command = if inline { ["run", "--headless"] } else { ["verify", "--headless"] };
            let done = done(&stand_in, &[&command[..], &["--handoff", handoff], &shape].concat());
            let report = done.check_clean(0).unwrap_or_else(|problem| panic!("{handoff}: {problem}"));
            assert_eq!(report.values, ["0.5 2"], "{handoff}");
            let text = stdout(&done.output);
            assert!(inline || text.contains("from the reference at the worst"), "{handoff}: {text}");
        }
    }

    #[test]
    fn a_kernel_of_ones_own_has_its_defaults_and_what_is_given() {
        let Some(stand_in) = StandIn::new() else { return };
        let level = concat!(env!("CARGO_MANIFEST_DIR"), "/../handoff/kernels/test/level.ptx");
        let values = |arguments: &[&str]| {
            let done = done(&stand_in, &[&["--headless", "--kernel", level], arguments].concat());
            done.check_clean(0).unwrap().values.clone()
        };
        assert_eq!(values(&[]), ["0.25 0.5"]);
        assert_eq!(values(&["--param=height=-0.5"]), ["-0.5 0.5"]);
        let inline = ["--handoff=inline", "--risk-the-gpu", "--param=colour=1"];
        assert_eq!(values(&inline), ["0.25 1"]);
    }

    /// Only the kernel that paints gets the parameters, not the others of a frame.
    #[test]
    fn a_kernel_that_paints_has_them_too() {
        let Some(stand_in) = StandIn::new() else { return };
        let five = FIVE.replace(".u64 v", ".u64 surface");
        let kernel = file(&format!(
            "//!PARAM roughness float 0 1 0.75 \"µm\"\n.version 6.0\n.entry paint({five}, .param .align 4 .b8 p[4]) {{ ret; }}"
        ));
        for handoff in crate::common::handoffs(Scene::Texture).map(Handoff::name) {
            let arguments = ["--headless", "--scene=texture", "--handoff", handoff];
            let own = ["--param=roughness=0.125", "--kernel", kernel.to_str().unwrap()];
            let done = done(&stand_in, &[&arguments[..], &own].concat());
            let report = done.check_clean(0).unwrap_or_else(|problem| panic!("{handoff}: {problem}"));
            assert_eq!(report.values, ["0.125"], "{handoff}");
        }
    }

    #[test]
    fn they_are_measured_too() {
        let Some(stand_in) = StandIn::new() else { return };
        let mut command = stand_in.command(&ALL);
        command.args([
            "bench",
            "--strategies=produce-only,timeline",
            "--grids=8x8",
            "--rounds=1",
            "--round-ms=1",
        ]);
        let done =
            run(command.args(["--rings=1", "--batches=1", "--size=32x24", "--param=amplitude=0"])).unwrap();
        assert_eq!(done.check_clean(0).unwrap().values, ["0 1"]);
    }
}
