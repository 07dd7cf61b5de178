//! Kernels in CUDA C++: how they are compiled, what NVRTC reports, and what happens if it is missing or
//! fails. These tests use the stand-in, and NVRTC itself if it is installed.

use crate::common;
use wavefield_test_support::{harness, stand_in};

use std::path::{Path, PathBuf};

use common::{assert_exit, stderr};
use stand_in::{StandIn, each, with_libraries};
use tempfile::TempDir;
use wavefield_gpu::Error;
use wavefield_gpu::cuda::{KernelSource, Signature};
use wavefield_handoff::contents::gallery::GALLERY;

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

/// The bytes that editors and compilers on other systems write. Compilers themselves take only ASCII, without
/// a mark.
#[test]
fn kernel_files_are_read_as_editors_write_them() {
    let Some(stand_in) = StandIn::new() else { return };
    let utf16 = |text: &str, of: fn(u16) -> [u8; 2]| {
        format!("\u{feff}{text}").encode_utf16().flat_map(of).collect::<Vec<u8>>()
    };
    let latin_1 = |text: &str| [b"// \xe9t\xe9, 20 \xb0C\n", text.as_bytes()].concat();
    let flat = include_str!("../../../handoff/kernels/test/flat.ptx");
    let mut cases = Vec::new();
    for (ending, text) in [("cu", FLAT), ("ptx", flat)] {
        let marked = |text: &str| format!("\u{feff}{text}").into_bytes();
        let all = [
            ("a mark", marked(text)),
            ("UTF-16", utf16(text, u16::to_le_bytes)),
            ("UTF-16, the other order", utf16(text, u16::to_be_bytes)),
            ("Latin-1", latin_1(text)),
            ("a mark and CRLF", marked(&text.replace('\n', "\r\n"))),
            ("the end of a C string", [text.as_bytes(), b"\0"].concat()),
        ];
        cases.extend(all.map(|(name, bytes)| (format!("{name} in .{ending}"), ending, bytes)));
    }
    let problems = each(&cases, |(name, ending, bytes)| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernel").with_extension(ending);
        std::fs::write(&path, bytes).unwrap();
        let mut command = stand_in.command(&stand_in::ALL);
        let run = stand_in::run(command.args(SMALL).arg("--kernel").arg(&path))?;
        run.check_clean(0).map(|_| ()).map_err(|problem| format!("{name}: {problem}"))
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn what_is_no_kernel_is_said() {
    let code = "it is machine code (a cubin or fatbin), so it cannot be ";
    let mark = &[0xff, 0xfe, 0, 0xd8][..];
    for (ending, bytes, words) in [
        ("ptx", &b""[..], "it is empty, so it cannot be PTX"),
        ("cu", b"", "it is empty, so it cannot be CUDA C++"),
        ("ptx", b"\x7fELF\x02\x01\x01\x33", code),
        ("cubin", b"\x7fELF\x02\x01\x01\x33", code),
        ("fatbin", b"\x50\xed\x55\xba\x01\0\x10\0", code),
        ("cu", b"\x7fELF\x02\x01\x01\x33", code),
        ("ptx", mark, "it is broken UTF-16"),
        ("cuh", FLAT.as_bytes(), "no .entry in it: is this PTX text? CUDA C++ has a `__global__` function"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernel").with_extension(ending);
        std::fs::write(&path, bytes).unwrap();
        let output = common::run(&[&SMALL[..], &["--kernel", path.to_str().unwrap()]].concat());
        assert_exit(&output, 1);
        assert!(stderr(&output).contains(words), "{ending}: {}", stderr(&output));
    }
}

/// CUDA's headers are found where NVRTC is installed, in each form that it comes in, and those of C always.
#[test]
fn headers_are_found_beside_nvrtc_or_it_is_said_who_has_them() {
    let Some(stand_in) = StandIn::new() else { return };
    let nothing = tempfile::tempdir().unwrap();
    let run = |libraries: &Path, toolkit: &Path, header: &str| {
        let (_folder, path) = file(&format!("#include <{header}>\n{FLAT}"));
        let mut command = harness::finding(stand_in.command(&stand_in::ALL), libraries);
        command.args(SMALL).arg("--kernel").arg(&path).env("CUDA_HOME", toolkit).env_remove("CUDA_PATH");
        stand_in::run(&mut command).unwrap()
    };
    for header in ["math.h", "cmath", "cstdint", "stdint.h", "cfloat", "assert.h"] {
        run(nothing.path(), nothing.path(), header).check_clean(0).unwrap();
    }
    for (library, headers) in [
        ("nvidia/cuda_nvrtc/lib", "nvidia/cuda_runtime/include"),
        ("nvidia/cu13/lib", "nvidia/cu13/include"),
        ("cuda/lib64", "cuda/include"),
        ("elsewhere", "toolkit/include"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let library = root.path().join(library);
        for folder in
            [&library, &root.path().join(headers).join("cccl"), &root.path().join("nvidia/curand/include")]
        {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::os::unix::fs::symlink(stand_in.library(), library.join("libnvrtc.so.12")).unwrap();
        for header in ["cuda_runtime.h", "cuda_fp16.h", "cccl/cstring_view"] {
            std::fs::write(root.path().join(headers).join(header), "").unwrap();
        }
        for header in ["cuda_runtime.h", "cuda_fp16.h", "cstring_view"] {
            run(&library, &root.path().join("toolkit"), header).check_clean(0).unwrap();
        }
    }
    if Path::new("/usr/local/cuda/include").exists() || Path::new("/usr/include/cuda_runtime.h").exists() {
        return common::skip("CUDA's headers are installed here");
    }
    let run = run(nothing.path(), nothing.path(), "cuda_fp16.h");
    run.check_clean(1).unwrap();
    for part in [
        "cannot open source file \"cuda_fp16.h\"",
        "Headers are in [",
        "CUDA_HOME",
        "nvidia-cuda-runtime-cu12",
    ] {
        assert!(run.text().contains(part), "{part}: {}", run.text());
    }
}

/// The driver's compiler refuses PTX for another kind of GPU, or of a newer version, in words that name
/// neither.
#[test]
fn ptx_for_another_gpu_is_named_with_this_one() {
    let Some(stand_in) = StandIn::new() else { return };
    let flat = include_str!("../../../handoff/kernels/test/flat.ptx");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.ptx");
    std::fs::write(
        &path,
        flat.replace(".version 6.0\n.target sm_50", ".version 8.8\n.target sm_120a, debug"),
    )
    .unwrap();
    for failure in ["cuModuleLoadDataEx:209", "cuModuleLoadDataEx:218", "cuModuleLoadDataEx:222"] {
        let mut command = stand_in.command(&stand_in::ALL);
        command.env("STAND_IN_FAIL", failure).args(SMALL).arg("--producer=cuda").arg("--kernel").arg(&path);
        let run = stand_in::run(&mut command).unwrap();
        run.check_clean(1).unwrap();
        let words = "It is PTX 8.8 for sm_120a; Stand-in GPU, which is sm_";
        assert!(run.text().contains(words) && run.text().contains("CUDA 12.0"), "{}", run.text());
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
    // A call for a size is named after the text. The version is only for messages, so its failure is no
    // error.
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
    for entry in &GALLERY {
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

#[test]
fn nvrtc_takes_what_people_include() {
    if !has_nvrtc() {
        return common::skip("NVRTC is not installed, or not where LD_LIBRARY_PATH says");
    }
    let uses = "__device__ std::uint8_t all() { return std::isnan(std::sin(float(M_PI)) * FLT_MAX) ? UINT8_MAX : 0; }\n";
    let source =
        format!("#include <cmath>\n#include <cstdint>\n#include <float.h>\n#include <math.h>\n{uses}{FLAT}");
    let (_folder, path) = file(&source);
    KernelSource::from_file(&path, None).unwrap();
    // In any order, and beside CUDA's, which have some of the same names.
    for includes in
        [["cuda_runtime.h", "cstdint"], ["cmath", "cuda_fp16.h"], ["cooperative_groups.h", "climits"]]
    {
        let (_folder, path) =
            file(&format!("#include <{}>\n#include <{}>\n{FLAT}", includes[0], includes[1]));
        match KernelSource::from_file(&path, None).map_err(|error| error.to_string()) {
            Ok(_) => {}
            Err(words) if words.contains("Headers are in") => common::skip(&words),
            Err(words) => panic!("{words}"),
        }
    }
    // A comment that is not UTF-8, and a byte-order mark.
    for start in [&b"// \xe9t\xe9\n"[..], b"\xef\xbb\xbf// mark\n"] {
        std::fs::write(&path, [start, FLAT.as_bytes()].concat()).unwrap();
        assert_eq!(KernelSource::from_file(&path, None).unwrap().entry, "flat");
    }
}
