//! `scripts/stand-in.sh`, which runs any program on the stand-in.

use std::path::Path;
use std::process::{Command, Output};

use cudarc::driver::CudaContext;
use cudarc::nvrtc::Ptx;
use wavefield_test_support::stand_in::{StandIn, finish};
use wavefield_test_support::{harness, stderr, test_process};

/// Runs a program by the script. `fail`: which calls fail, as `STAND_IN_FAIL` takes it.
fn by_script(program: &Command, fail: &str) -> Output {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/stand-in.sh"));
    command.arg(program.get_program()).args(program.get_args());
    command.env("STAND_IN_LIBRARY", harness::library()).env("STAND_IN_FAIL", fail);
    for (name, value) in program.get_envs() {
        value.map(|value| command.env(name, value));
    }
    finish(&mut command).unwrap()
}

fn demo() -> Command {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_wavefield-demo"));
    demo.args(["--headless", "--frames=6", "--grid=8x8", "--size=32x32"]);
    demo
}

#[test]
fn a_program_runs_and_what_it_leaves_is_said() {
    if StandIn::new().is_none() {
        return;
    }
    for (fail, code, words) in [
        ("", 0, "no rule was broken, and everything was given back"),
        ("cuDestroyExternalSemaphore:999", 1, "not given back: 1 of external semaphore"),
        ("cuLaunchKernel:700:3", 1, "error: "),
    ] {
        let output = by_script(&demo(), fail);
        let said = stderr(&output);
        assert!(output.status.code() == Some(code) && said.contains(words), "{fail}: {said}");
        assert!(said.contains("which is CUDA's device 0"), "{fail}: {said}");
    }
    let output = by_script(&Command::new("true"), "");
    assert!(output.status.code() == Some(1) && stderr(&output).contains("no report"), "{}", stderr(&output));
}

const CHILD: &str = "UNKNOWN_KERNEL";

/// The process that asks for a kernel which the stand-in does not know. As an ordinary test it does nothing.
#[test]
fn in_its_own_process() {
    if std::env::var_os(CHILD).is_some() {
        let ptx = ".version 6.0\n.target sm_50\n.visible .entry mine()\n{\n\tret;\n}\n";
        let module = CudaContext::new(0).unwrap().load_module(Ptx::from_src(ptx)).unwrap();
        assert!(module.load_function("mine").is_err());
    }
}

#[test]
fn an_unknown_kernel_is_an_error_that_says_how_to_add_it() {
    if StandIn::new().is_none() {
        return;
    }
    let mut child = test_process(module_path!(), "in_its_own_process");
    let output =
        by_script(child.env(CHILD, "1").env("STAND_IN_UUID", "00000000-0000-0000-0000-000000000000"), "");
    let said = stderr(&output);
    assert!(said.contains("it has no kernel `mine`. To add it, follow `write_words` through"), "{said}");
}
