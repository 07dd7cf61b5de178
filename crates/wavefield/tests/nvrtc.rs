//! Kernels in CUDA C++: how they are compiled, what NVRTC reports, and what happens if it is missing or fails. These tests use the
//! stand-in, and NVRTC itself if it is installed.

#![cfg(target_os = "linux")]

mod common;
use wavefield_test_support::stand_in;

use std::path::PathBuf;

use common::{assert_exit, stderr};
use stand_in::{StandIn, each, with_libraries};
use tempfile::TempDir;
use wavefield_base::Error;
use wavefield_field::gallery::gallery;
use wavefield_gpu::cuda::{KernelSource, Signature};

const SMALL: [&str; 5] = ["--headless", "--frames=3", "--grid=8x8", "--size=32x24", "--validation=off"];

const FLAT: &str = "extern \"C\" __global__ void flat(float4 *vertices, unsigned cols, unsigned rows,
                                unsigned long long frame, double time)
{
}
";

/// Writes this text to a file in a new folder. Returns both.
fn file(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.cu");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn a_cu_file_is_compiled_and_run() {
    let Some(stand_in) = StandIn::new() else { return };
    let (_folder, path) = file(FLAT);
    for argument in [path.display().to_string(), format!("{}:flat", path.display())] {
        let mut command = stand_in.command(&stand_in::ALL);
        let run = stand_in::run(command.args(SMALL).args(["--kernel", &argument])).unwrap();
        let report = run.check_clean(0).unwrap();
        assert_eq!((report.count("nvrtcCompileProgram"), report.count("nvrtcDestroyProgram")), (1, 1));
        assert!(report.count("cuLaunchKernel") >= 3 && !run.text().contains("warning"), "{}", run.text());
    }
}

/// The declarations of parameters come from the source, because the compiler drops these lines.
#[test]
fn the_parameters_of_a_cu_file_reach_the_kernel() {
    let Some(stand_in) = StandIn::new() else { return };
    let declared = "//!PARAM height float -0.5 0.5 0.25\n  //!PARAM colour float 0 1 0.5 \"of 1\"\n";
    let (_folder, path) = file(&format!("{declared}void level(int unused)"));
    let mut command = stand_in.command(&stand_in::ALL);
    command.args(SMALL).args(["--param=colour=0.75", "--kernel", path.to_str().unwrap()]);
    let run = stand_in::run(&mut command).unwrap();
    let report = run.check_clean(0).unwrap();
    assert_eq!(report.values, ["0.25 0.75"]);
    let warning = format!("note: {}(3): warning #177-D", path.display());
    assert!(run.text().contains(&warning), "{}", run.text());
}

#[test]
fn what_is_wrong_with_a_cu_file_is_said_with_its_line() {
    let Some(stand_in) = StandIn::new() else { return };
    let several = format!("//!PARAM a float 0 1 1\n{FLAT}");
    for (text, entry, parts) in [
        (
            "\n\n  mistake;\n",
            "",
            ["NVRTC 12.0 cannot compile it:\n", "kernel.cu(3): error: identifier \"mistake\" is undefined"],
        ),
        (FLAT, ":round", ["kernel.cu: it has no entry `round`; it has: flat", ""]),
        ("//!PARAM\n", "", ["kernel.cu: line 1, //!PARAM: found 0 words", ""]),
        (&several, "", ["kernel.cu: the parameters of entry `flat` are wrong", "a structure of 1 float"]),
    ] {
        let (_folder, path) = file(text);
        let mut command = stand_in.command(&stand_in::ALL);
        command.args(SMALL).args(["--kernel", &format!("{}{entry}", path.display())]);
        let run = stand_in::run(&mut command).unwrap();
        match &run.report {
            Some(_) => drop(run.check_clean(1).unwrap()),
            // The program did not call the stand-in.
            None => run.check_exit(1).unwrap(),
        }
        assert!(parts.iter().all(|part| run.text().contains(part)), "{}", run.text());
    }
}

/// Each call of NVRTC fails once, and the error names it.
#[test]
fn a_failing_call_of_nvrtc_is_named() {
    let Some(stand_in) = StandIn::new() else { return };
    let (_folder, path) = file(FLAT);
    // A call for a size is named after the text. The version is only for messages, so its failure is no error.
    let calls = [
        ("nvrtcCreateProgram", "nvrtcCreateProgram"),
        ("nvrtcCompileProgram", "nvrtcCompileProgram"),
        ("nvrtcGetProgramLogSize", "nvrtcGetProgramLog"),
        ("nvrtcGetProgramLog", "nvrtcGetProgramLog"),
        ("nvrtcGetPTXSize", "nvrtcGetPTX"),
        ("nvrtcGetPTX", "nvrtcGetPTX"),
    ];
    let problems = each(&calls, |(call, named)| {
        let mut command = stand_in.command(&stand_in::ALL);
        command.args(SMALL).args(["--kernel", path.to_str().unwrap()]);
        let run = stand_in::run(command.env("STAND_IN_FAIL", format!("{call}:5")))?;
        run.check_clean(1)?;
        let words = format!("kernel.cu: {named} of NVRTC 12.0 failed: NVRTC_ERROR of the stand-in (5)");
        if run.text().contains(&words) { Ok(()) } else { Err(format!("{call}: {}", run.text())) }
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_library_that_is_no_nvrtc_is_said_to_lack_a_function() {
    let Some(stand_in) = StandIn::new() else { return };
    let (_folder, path) = file(FLAT);
    let lacking = stand_in.lacking(&["nvrtcGetPTX"]);
    let mut command = lacking.command(&stand_in::ALL);
    let run = stand_in::run(command.args(SMALL).args(["--kernel", path.to_str().unwrap()])).unwrap();
    run.check_exit(1).unwrap();
    assert!(
        run.text().contains("NVRTC, which compiles .cu files: ") && run.text().contains("nvrtcGetPTX"),
        "{}",
        run.text()
    );
}

#[test]
fn without_nvrtc_what_to_install_is_said() {
    let (folder, path) = file(FLAT);
    let mut command = with_libraries(folder.path());
    let output = command.args(SMALL).args(["--kernel", path.to_str().unwrap()]).output().unwrap();
    if has_nvrtc() {
        return common::skip("NVRTC is installed here");
    }
    assert_exit(&output, 1);
    for part in [
        "the system finds none of libnvrtc.so.12",
        "/usr/local/cuda/lib64",
        "pip install nvidia-cuda-nvrtc-cu12",
    ] {
        assert!(stderr(&output).contains(part), "{part}: {}", stderr(&output));
    }
}

/// Whether NVRTC itself is installed.
fn has_nvrtc() -> bool {
    let (_folder, path) = file(FLAT);
    match KernelSource::from_file(&path, None) {
        Ok(_) => true,
        Err(Error::Missing { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn nvrtc_compiles_the_gallery() {
    if !has_nvrtc() {
        return common::skip("NVRTC is not installed, or not where LD_LIBRARY_PATH says");
    }
    for entry in gallery() {
        let path = common::kernel(&format!("{}.cu", entry.name)).display().to_string();
        let source = KernelSource::from_argument(&path).unwrap();
        assert_eq!((source.entry.as_str(), source.built_in), (entry.name, None));
        source.check_signature(Signature::Field).unwrap();
        assert_eq!(source.parameters().unwrap(), entry.source().parameters().unwrap());
        assert!(source.ptx.contains(".target sm_75"), "{}", source.ptx);
    }
}

#[test]
fn nvrtc_s_own_words_name_the_file_and_its_line() {
    if !has_nvrtc() {
        return common::skip("NVRTC is not installed, or not where LD_LIBRARY_PATH says");
    }
    let (_folder, path) = file(&FLAT.replace("{\n", "{\n    vertices[0] = mistake;\n"));
    let error = KernelSource::from_file(&path, None).unwrap_err().to_string();
    let line = format!("{}(4): error: identifier \"mistake\" is undefined", path.display());
    assert!(error.contains(&line) && error.contains("1 error detected"), "{error}");
    // Without `extern "C"`, the entry has a mangled name.
    let (_folder, path) = file(&FLAT.replace("extern \"C\" ", ""));
    let error = KernelSource::from_file(&path, Some("flat")).unwrap_err().to_string();
    assert!(error.contains("it has: _Z4flat") && error.contains("extern \"C\" keeps"), "{error}");
    assert!(KernelSource::from_file(&path, None).unwrap().entry.starts_with("_Z4flat"));
    // The source may include a header beside it.
    let (folder, path) = file(&format!("#include \"part.h\"\n{FLAT}"));
    std::fs::write(folder.path().join("part.h"), "constexpr float HEIGHT = 0.3f;\n").unwrap();
    KernelSource::from_file(&path, None).unwrap();
}
