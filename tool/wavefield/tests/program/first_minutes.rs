//! What a new user meets first: the scripts on a machine that lacks programs, the progress of a run, the page
//! of a benchmark, the published package.

use crate::common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{ROOT, assert_exit, stderr, stdout};

/// A simulated machine: the scripts see only its programs, and do not run as root.
struct Machine {
    folder: tempfile::TempDir,
}

const LIBRARIES: &str = "echo '\tlibvulkan.so.1 (libc6,x86-64) => /lib/libvulkan.so.1'";

impl Machine {
    /// A machine with Rust, a linker, a Vulkan loader and apt-get. It lacks sudo, and what only a window or a
    /// test needs.
    fn new() -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        for folder in ["", "bin", "root", "root/scripts", "root/target", "root/target/debug", "tmp"] {
            fs::create_dir_all(machine.path(folder)).unwrap();
            fs::set_permissions(machine.path(folder), fs::Permissions::from_mode(0o777)).unwrap();
        }
        for entry in fs::read_dir(Path::new(ROOT).join("scripts")).unwrap() {
            let entry = entry.unwrap();
            let to = machine.path("root/scripts").join(entry.file_name());
            fs::copy(entry.path(), to).unwrap();
        }
        fs::copy(Path::new(ROOT).join("Cargo.toml"), machine.path("root/Cargo.toml")).unwrap();
        let real = [
            "awk", "bash", "cat", "cut", "dirname", "env", "grep", "mkdir", "mktemp", "nproc", "rm", "sed",
            "sleep", "sort", "tail", "tee", "timeout", "uname", "wc",
        ];
        for name in real {
            let paths = std::env::var_os("PATH").unwrap();
            let found =
                std::env::split_paths(&paths).map(|folder| folder.join(name)).find(|path| path.exists());
            symlink(found.expect(name), machine.path("bin").join(name)).unwrap();
        }
        machine.program("../root/target/debug/wavefield", "");
        machine.program("cargo", "echo \"cargo $*\" >>\"$TMPDIR/log\"");
        machine.program("rustc", "echo 'rustc 1.99.0 (0000000 2026-01-01)'");
        machine.program("cc", "echo /usr/lib/crt1.o");
        machine.program("ldconfig", LIBRARIES);
        machine.program("dpkg", "");
        machine.program("apt-cache", "echo '  Candidate: 1.0'");
        machine.program("apt-get", "echo \"apt-get $*\" >>\"$TMPDIR/log\"");
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, name: &str, body: &str) {
        let path = self.path("bin").join(name);
        // It may be a link to the real program, and a write would go through it.
        let _ = fs::remove_file(&path);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self, script: &str, variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(self.path("bin/bash"));
        command.arg(self.path("root/scripts").join(script));
        self.output(command, variables)
    }

    /// Runs a script with its arguments at a terminal, where the user types `typed`. Returns what the
    /// terminal shows.
    fn at_a_terminal(&self, line: &str, typed: &str) -> Option<String> {
        let paths = std::env::var_os("PATH").unwrap();
        let Some(script) =
            std::env::split_paths(&paths).map(|folder| folder.join("script")).find(|path| path.exists())
        else {
            common::skip_without_tools("`script`, which gives a program a terminal");
            return None;
        };
        fs::write(self.path("tmp/typed"), typed).unwrap();
        let mut command = Command::new(script);
        command.args(["-qec", &format!("bash {}/{line}", self.path("root/scripts").display()), "/dev/null"]);
        command.stdin(fs::File::open(self.path("tmp/typed")).unwrap());
        Some(stdout(&self.output(command, &[("SHELL", self.path("bin/bash").to_str().unwrap())])))
    }

    fn output(&self, mut command: Command, variables: &[(&str, &str)]) -> Output {
        command.env_clear();
        command.env("PATH", self.path("bin")).env("HOME", self.path("")).env("TMPDIR", self.path("tmp"));
        command.env("VK_DRIVER_FILES", "chosen").envs(variables.iter().copied());
        // Run as the user `nobody`.
        // SAFETY: `geteuid` always succeeds.
        if unsafe { libc::geteuid() } == 0 {
            command.uid(65534).gid(65534);
        }
        command.output().unwrap()
    }

    /// The commands that cargo and apt-get were given.
    fn log(&self) -> String {
        fs::read_to_string(self.path("tmp/log")).unwrap_or_default()
    }
}

/// Asserts that one line has the install command with `package`, and that only one other line names it and
/// what it is for.
#[track_caller]
fn assert_packages_once(text: &str, package: &str) {
    let lines: Vec<&str> =
        text.lines().filter(|line| line.starts_with("apt-get update && apt-get install ")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0].split(' ').any(|word| word == package), "{text}");
    let setup = text.split("formatting").next().unwrap();
    let purposes: Vec<&str> =
        setup.lines().filter(|line| line.trim_start().starts_with(&format!("{package} "))).collect();
    assert!(purposes.len() == 1 && purposes[0].split_whitespace().count() > 2, "{text}");
    assert_eq!(setup.matches(&format!(" {package}")).count(), 2, "{text}");
}

#[test]
fn the_tests_run_without_sudo_and_say_what_is_left_out() {
    let machine = Machine::new();
    machine.program(
        "cargo",
        "echo \"cargo $*\" >>\"$TMPDIR/log\"
        case $1 in test)
            echo 'test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s'
            echo 'skipped: no Xvfb' >&2
            echo 'test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.00s'
        esac",
    );
    let output = machine.run("test.sh", &[]);
    let text = stderr(&output);
    assert_exit(&output, 0);
    assert_packages_once(&text, "xvfb");
    assert!(text.contains("no sudo") && !text.contains("online"), "{text}");
    assert!(machine.log().contains("cargo test --locked"), "{}", machine.log());
    assert!(!machine.log().contains("install"), "{}", machine.log());
    // Four checks are left out: the tools, the links, the Python package and the tunnel to a page. cargo runs
    // tests three times: those of windows, the others, and those of the documentation. In each run two tests
    // are left out: one skips itself, one is ignored.
    let last = text.lines().last().unwrap();
    assert!(
        last.contains("51 tests passed") && last.contains("4 of the checks") && last.contains(" 6 tests"),
        "{text}"
    );
}

#[test]
fn pytests_results_are_counted() {
    let machine = Machine::new();
    let script = "echo '.s [100%]'; echo 'SKIPPED [4] tests/test_kernel.py:7: skipped: no Numba'
        echo '523 passed, 4 skipped in 71.03s (0:01:11)'";
    fs::write(machine.path("root/scripts/python.sh"), script).unwrap();
    fs::set_permissions(machine.path("root/scripts/python.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let text = stderr(&machine.run("test.sh", &[]));
    let last = text.lines().last().unwrap();
    assert!(last.contains(" 523 tests passed") && last.contains(" 4 tests"), "{text}");
}

#[test]
fn without_the_essentials_it_ends_before_cargo_runs() {
    let machine = Machine::new();
    machine.program("ldconfig", "");
    for script in ["test.sh", "demo.sh"] {
        let output = machine.run(script, &[]);
        let text = stderr(&output);
        assert_exit(&output, 1);
        assert_packages_once(&text, "libvulkan1");
        assert!(text.contains("cannot go on"), "{text}");
        assert_eq!(machine.log(), "");
    }
}

#[test]
fn a_sudo_that_fails_is_not_taken_for_a_machine_without_network() {
    let machine = Machine::new();
    machine.program("sudo", "echo 'sudo: a password is required' >&2; exit 1");
    let output = machine.run("test.sh", &[]);
    let text = stderr(&output);
    assert_exit(&output, 0);
    assert!(text.contains("sudo failed") && !text.contains("online"), "{text}");
    assert_eq!(text.matches("a password is required").count(), 1, "{text}");
    assert_packages_once(&text, "xvfb");

    machine.program("sudo", "shift 2; \"$@\"");
    machine.program("apt-get", "exit 100");
    let text = stderr(&machine.run("test.sh", &[]));
    assert!(text.contains("online") && !text.contains("sudo failed"), "{text}");
    assert_packages_once(&text, "xvfb");
}

#[test]
fn at_a_terminal_it_asks_once_before_it_installs() {
    let installs = |line: &str, typed: &str| {
        let machine = Machine::new();
        machine.program("sudo", "echo \"sudo $*\" >>\"$TMPDIR/log\"; exec \"$@\"");
        let text = machine.at_a_terminal(line, typed)?;
        assert!(text.contains("tests: pages") && text.contains("formatting"), "{text}");
        Some((text.matches("[Y/n]").count(), machine.log().matches("sudo ").count(), text))
    };
    for (line, typed, asked, sudo) in [
        ("test.sh", "n\n", 1, 0),
        ("test.sh", "\u{4}", 1, 0),
        ("test.sh", "\n", 1, 2),
        ("test.sh --yes", "", 0, 2),
    ] {
        let Some((questions, calls, text)) = installs(line, typed) else { return };
        assert_eq!((questions, calls), (asked, sudo), "{line:?} {typed:?}: {text}");
    }
}

/// Debian 13 has no clang 14.
#[test]
fn another_clang_is_installed_where_apt_has_no_clang_14() {
    let machine = Machine::new();
    machine.program("apt-cache", "case $2 in clang-14) ;; *) echo '  Candidate: 1.0' ;; esac");
    machine.program("sudo", "exec \"$@\"");
    // Only with lists does apt know what it has.
    let setup = machine.path("root/scripts/setup.sh");
    let text = fs::read_to_string(&setup).unwrap();
    fs::write(machine.path("tmp/x_Packages"), "").unwrap();
    let lists = machine.path("tmp").display().to_string();
    fs::write(setup, text.replace("/var/lib/apt/lists", &lists)).unwrap();
    let text = stderr(&machine.run("test.sh", &[]));
    let line = text.lines().find(|line| line.starts_with("apt-get update && ")).expect(&text);
    assert!(line.split(' ').any(|word| word == "clang") && !text.contains("apt has no"), "{text}");
    // It is enough, then.
    machine.program("clang-19", "echo 19.1.7");
    let text = stderr(&machine.run("test.sh", &[]));
    assert!(!text.contains("clang"), "{text}");
}

#[test]
fn the_demo_runs_where_only_a_windows_libraries_are_missing() {
    let machine = Machine::new();
    let output = machine.run("demo.sh", &[("DISPLAY", ":7")]);
    let text = stderr(&output);
    assert_exit(&output, 0);
    assert_packages_once(&text, "libx11-6");
    assert!(machine.log().contains("cargo build --release"), "{}", machine.log());
    // Before the build it prints how long a first build takes.
    assert!(text.contains("first build") && text.contains("min") && text.contains("GB"), "{text}");
}

#[test]
fn a_long_build_says_that_it_still_runs() {
    let machine = Machine::new();
    // A minute takes no time. The build lasts until the second one begins: by then, the first one was told.
    machine.program("sleep", "[ ! -e \"$TMPDIR/1\" ] || : >\"$TMPDIR/2\"; : >\"$TMPDIR/1\"");
    let until = "[ -e \"$TMPDIR/2\" ] || [ $tries = 1000000 ]";
    machine.program(
        "cargo",
        &format!("tries=0; case $1 in build) until {until}; do tries=$((tries + 1)); done; esac"),
    );
    let text = stderr(&machine.run("demo.sh", &[]));
    assert!(text.contains("demo.sh: the build: still running after "), "{text}");
}

#[test]
fn what_a_script_needs_is_looked_for_first() {
    let machine = Machine::new();
    let output = machine
        .run("gpu-check.sh", &[("WAVEFIELD_BIN", "/no/such/program"), ("TEST_DIR", "/no/such/folder")]);
    assert_exit(&output, 1);
    let text = stderr(&output);
    assert!(text.contains("/no/such/program"), "{text}");
    assert!(!text.contains("devices:"), "no check was begun: {text}");
    assert_eq!(machine.log(), "");

    fs::remove_file(machine.path("bin/cargo")).unwrap();
    fs::remove_file(machine.path("bin/cc")).unwrap();
    let text = stderr(&machine.run("gpu-check.sh", &[]));
    assert!(text.contains("cargo") && text.contains("C compiler"), "{text}");

    let output = machine.run("python.sh", &[("WAVEFIELD_BIN", "/no/such/program")]);
    assert_exit(&output, 1);
    assert!(stderr(&output).contains("/no/such/program"), "{}", stderr(&output));
}

/// Runs the program with a terminal of 100 columns as its standard error, and returns what it wrote there.
fn on_a_terminal(arguments: &str) -> Option<String> {
    let program = common::wavefield().get_program().to_owned().into_string().unwrap();
    let line = format!("stty cols 100; '{program}' {arguments} >/dev/null; exit $?");
    match Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("TERM", "xterm") // On a terminal that cannot move its cursor, there is no bar.
        .stdin(std::process::Stdio::null())
        .output()
    {
        Ok(output) => {
            assert_exit(&output, 0);
            Some(stdout(&output))
        }
        Err(error) => {
            common::skip_without_tools(&format!("`script`, which gives a program a terminal: {error}"));
            None
        }
    }
}

const SMALL: &str = "--grid 8x8 --size 64x64 --validation=off --producer compute";

#[test]
fn whoever_waits_sees_how_far_it_is() {
    let bench = "--strategies compute --grids 8x8 --size 64x64 --rounds 1 --round-ms 5";
    for (arguments, words) in [
        (format!("--headless --frames 5 {SMALL}"), &["drawing", "/5", "left"][..]),
        (format!("verify --frames 5 {SMALL}"), &["checking", "/5"]),
        (format!("bench {bench}"), &["measuring", "/1"]),
    ] {
        let Some(text) = on_a_terminal(&arguments) else { return };
        for word in words {
            assert!(text.contains(word), "{word} is missing for {arguments}:\n{text}");
        }
    }
}

#[test]
fn a_file_gets_no_bar_and_a_run_without_a_picture_says_so() {
    let arguments: Vec<&str> = SMALL.split(' ').chain(["--headless", "--frames=5"]).collect();
    let output = common::run(&arguments);
    assert_exit(&output, 0);
    assert!(!stderr(&output).contains("drawing") && !stderr(&output).contains("5/5"), "{}", stderr(&output));
    let text = stdout(&output);
    let picture = text.lines().find(|line| line.starts_with("picture")).expect(&text);
    assert!(picture.contains("none") && picture.contains("--output"), "{text}");
}

/// The page and the chart that the program makes of the committed measurement are the references, to the last
/// byte.
#[test]
fn the_reference_page_is_made_from_the_committed_measurement() {
    let measurements = Path::new(ROOT).join("docs/measurements");
    if !measurements.exists() {
        return common::skip("the published package has no measurements");
    }
    let folder = tempfile::tempdir().unwrap();
    let record = measurements.join("h200-bench.json");
    for reference in [common::reference("h200-bench.html"), measurements.join("h200-handoff.svg")] {
        let made = folder.path().join(reference.file_name().unwrap());
        let mut command = common::wavefield();
        let output =
            command.args(["bench", "--from"]).arg(&record).arg("--report").arg(&made).output().unwrap();
        assert_exit(&output, 0);
        assert!(stdout(&output).contains("NVIDIA H200"));
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert!(
            read(&made) == read(&reference),
            "make it again: wavefield bench --from docs/measurements/h200-bench.json --report {}",
            reference.display()
        );
    }
}
