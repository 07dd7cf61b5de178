//! Saves a kernel while its window is open. The picture changes, unless the new kernel is bad.
//!
//! Runs on the GPU if CUDA and Vulkan share one here, otherwise on the stand-in.

use crate::common;
use wavefield_test_support::display;
use wavefield_test_support::stand_in;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::first_uuid;
use common::{is_same, process, read_png, wavefield};
use display::{Display, Picture, poll};
use stand_in::{ALL, StandIn};
use tempfile::TempDir;
use wavefield_gpu::vulkan::Validation;
use wavefield_run::{DeviceTable, ProducerKind};
use wavefield_test_support::PATIENCE;

const FLAT: &str = include_str!("../../../handoff/kernels/test/flat.ptx");
const LEVEL: &str = include_str!("../../../handoff/kernels/test/level.ptx");
const WAVE: &str = include_str!("../../../../kernels/wave.ptx");
const BROKEN: &str = include_str!("../../../handoff/kernels/test/broken.ptx");
const TRAP: &str = include_str!("../../../handoff/kernels/test/trap.ptx");
const SPIN: &str = include_str!("../../../handoff/kernels/test/spin.ptx");

const LOOK: [&str; 5] =
    ["--grid=64x64", "--size=640x480", "--speed=0", "--validation=off", "--producer=cuda"];

/// Where the program runs.
enum Machine {
    Gpu,
    /// The stand-in, and the UUID of its device.
    StandIn(StandIn, String),
}

impl Machine {
    fn new() -> Option<Self> {
        let table = DeviceTable::headless(Validation::default()).expect("a Vulkan driver");
        match table.choose(None, ProducerKind::Cuda) {
            Ok(_) => Some(Self::Gpu),
            Err(_) => StandIn::new().map(|stand_in| Self::StandIn(stand_in, first_uuid())),
        }
    }

    fn command(&self) -> Command {
        match self {
            Self::Gpu => wavefield(),
            Self::StandIn(stand_in, uuid) => {
                let mut command = stand_in.command(&ALL);
                command.env("STAND_IN_UUID", uuid);
                command
            }
        }
    }
}

/// A window whose kernel is edited.
struct Edited<'a> {
    machine: &'a Machine,
    display: &'a Display,
    folder: TempDir,
    program: Child,
}

impl<'a> Edited<'a> {
    fn start(machine: &'a Machine, display: &'a Display, text: &str, more: &[&str]) -> Option<Self> {
        Self::start_entry(machine, display, text, "", more)
    }

    /// Opens a window whose kernel is the file with this text, followed by `entry` (a colon and a name, or
    /// nothing). Returns `None` and reports a skip if the GPU cannot draw in such a window.
    fn start_entry(
        machine: &'a Machine,
        display: &'a Display,
        text: &str,
        entry: &str,
        more: &[&str],
    ) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("k.ptx"), text).unwrap();
        let notes = fs::File::create(folder.path().join("notes.txt")).unwrap();
        let mut command = machine.command();
        let kernel = format!("{}{entry}", folder.path().join("k.ptx").display());
        command.args(LOOK).args(more).arg("--kernel").arg(kernel);
        let program =
            display.show(&mut command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(notes).spawn();
        let mut edited = Self { machine, display, folder, program: program.unwrap() };
        let shown = poll(|| {
            let ended = edited.program.try_wait().unwrap().is_some();
            (ended || display.window(edited.program.id(), true).is_some()).then_some(!ended)
        });
        let notes = edited.notes();
        match (shown, machine) {
            (Some(true), _) => Some(edited),
            (Some(false), Machine::Gpu) if notes.contains("CUDA") => {
                common::skip(&format!("the GPU cannot draw on this display: {notes}"));
                None
            }
            _ => panic!("no window: {notes}"),
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("k.ptx")
    }

    /// The program's standard error so far.
    fn notes(&self) -> String {
        fs::read_to_string(self.folder.path().join("notes.txt")).unwrap()
    }

    /// Overwrites the file, and waits until the program reports `words`.
    fn save(&mut self, text: &str, words: &str) {
        self.expect(words, |file| fs::write(file, text).unwrap());
    }

    /// Like [`save`](Self::save), but replaces the file by another one, as many editors do.
    fn replace(&mut self, text: &str, words: &str) {
        self.expect(words, |file| {
            fs::write(file.with_extension("new"), text).unwrap();
            fs::rename(file.with_extension("new"), file).unwrap();
        });
    }

    fn expect(&mut self, words: &str, change: impl FnOnce(&Path)) {
        let before = self.notes().len();
        change(&self.file());
        self.poll(&format!("`{words}`"), |edited| edited.notes()[before..].contains(words).then_some(()));
    }

    /// Calls `ask` until it answers. Panics if the program ends.
    fn poll<T>(&mut self, what: &str, mut ask: impl FnMut(&Self) -> Option<T>) -> T {
        let answer = poll(|| {
            let ended = self.program.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", self.notes());
            ask(self)
        });
        answer.unwrap_or_else(|| panic!("{what}: not within {PATIENCE:?}; {}", self.notes()))
    }

    fn picture(&self) -> Picture {
        let window = self.display.window(self.program.id(), true).expect("it has a window");
        self.display.screenshot().crop(self.display.geometry(window))
    }

    /// The picture of a kernel, drawn headless.
    fn reference(&self, text: &str, more: &[&str]) -> Vec<u8> {
        let (kernel, picture) = (self.folder.path().join("r.ptx"), self.folder.path().join("r.png"));
        fs::write(&kernel, text).unwrap();
        let mut command = self.machine.command();
        command.args(LOOK).args(more).args(["--headless", "--frames=1", "--output"]).arg(&picture);
        common::assert_exit(&command.arg("--kernel").arg(kernel).output().unwrap(), 0);
        read_png(&picture).unwrap().1
    }

    /// Waits until the window shows exactly this picture.
    fn assert_shows(&mut self, what: &str, reference: &[u8]) {
        self.poll(what, |edited| is_same(&edited.picture().rgba, reference).then_some(()));
    }

    /// Waits until the window shows this picture with something over its lower half.
    fn assert_shows_problem(&mut self, what: &str, reference: &[u8]) {
        self.poll(what, |edited| {
            let picture = edited.picture().rgba;
            let (upper, lower) = picture.split_at(picture.len() / 2);
            let (upper_want, lower_want) = reference.split_at(reference.len() / 2);
            (is_same(upper, upper_want) && !is_same(lower, lower_want)).then_some(())
        });
    }

    fn assert_ends_well(mut self) {
        let window = self.display.window(self.program.id(), true).expect("it has a window").to_string();
        self.display.xdotool(&["windowfocus", &window, "key", "Escape"]);
        let status = poll(|| self.program.try_wait().unwrap()).expect("it ends");
        assert!(status.success(), "{status}: {}", self.notes());
    }
}

impl Drop for Edited<'_> {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[test]
fn what_is_saved_is_drawn_and_what_is_no_good_is_not() {
    let (Some(display), Some(machine)) = (Display::start(), Machine::new()) else { return };
    let Some(mut edited) = Edited::start(&machine, &display, FLAT, &["--overlay=off"]) else { return };
    let (flat, wave) = (edited.reference(FLAT, &[]), edited.reference(WAVE, &[]));
    assert!(!is_same(&flat, &wave));
    edited.assert_shows("the first kernel", &flat);

    edited.save(WAVE, "note: reloaded ");
    edited.assert_shows("what was saved", &wave);

    // The overlay is hidden, but a problem is still shown.
    for (text, words) in [
        (BROKEN, "tried in a process of its own: "),
        ("no PTX at all", "no .entry"),
        (TRAP, "(CUDA_ERROR_LAUNCH_FAILED, 719)"),
        (&FLAT.replace(".u32 rows", ".u64 rows"), "the parameters of entry `flat` are wrong"),
    ] {
        edited.replace(text, words);
        edited.assert_shows_problem(words, &wave);
    }
    let words = format!(
        "note: not reloaded, the last good kernel keeps running: kernel {}: ",
        edited.file().display()
    );
    assert_eq!(edited.notes().matches(&words).count(), 4, "{}", edited.notes());

    // Saving the kernel that is already drawn removes the problem, and so does saving another good kernel.
    edited.save(WAVE, "");
    edited.assert_shows("the unchanged kernel", &wave);
    edited.save("no PTX at all", "no .entry");
    edited.assert_shows_problem("another problem", &wave);
    edited.replace(FLAT, "note: reloaded ");
    edited.assert_shows("the corrected kernel", &flat);

    // A file that is missing for a while is no problem.
    fs::remove_file(edited.file()).unwrap();
    // It is missing for many frames: each waits for the GPU at least once.
    let before = process::waits(edited.program.id());
    process::wait_for(&mut edited.program, "more frames", |program| process::waits(program) > before + 500);
    edited.save(WAVE, "note: reloaded ");
    edited.assert_shows("the file that came back", &wave);
    assert!(!edited.notes().contains("cannot read"), "{}", edited.notes());
    edited.assert_ends_well();
}

#[test]
fn parameters_keep_their_values_by_name() {
    let (Some(display), Some(machine)) = (Display::start(), Machine::new()) else { return };
    let low = ["--param=height=-0.5", "--param=colour=1"];
    let more = [&low[..], &["--overlay=off"]].concat();
    let Some(mut edited) = Edited::start(&machine, &display, LEVEL, &more) else { return };
    let (given, default) = (edited.reference(LEVEL, &low), edited.reference(LEVEL, &low[1..]));
    assert!(!is_same(&given, &default));
    edited.assert_shows("the values that were given", &given);

    edited.save(&LEVEL.replace("0.25\n", "0.5\n"), "note: reloaded ");
    edited.assert_shows("the values from before", &given);
    // A new parameter has its default.
    edited.save(&LEVEL.replace("PARAM height", "PARAM tallness"), "note: reloaded ");
    edited.assert_shows("a default", &default);
    edited.assert_ends_well();
}

/// After a kernel that never ends is corrected, nobody has to wait for the end of its trial.
#[test]
fn a_trial_that_is_out_of_date_is_given_up() {
    let (Some(display), Some(machine)) = (Display::start(), Machine::new()) else { return };
    let more = ["--overlay=off", "--timeout=3600"];
    let Some(mut edited) = Edited::start(&machine, &display, FLAT, &more) else { return };
    let wave = edited.reference(WAVE, &[]);
    fs::write(edited.file(), SPIN).unwrap();
    let process = edited.program.id().to_string();
    edited.poll("a trial", |_| children(&process).contains("try-kernel").then_some(()));
    edited.replace(WAVE, "note: reloaded ");
    edited.assert_shows("the corrected kernel", &wave);
    edited.poll("the end of the trial", |_| children(&process).is_empty().then_some(()));
    assert!(!edited.notes().contains("goes on"), "{}", edited.notes());
    edited.assert_ends_well();
}

/// The command lines of a process's children.
fn children(process: &str) -> String {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let ids = lists.collect::<Vec<_>>().join(" ");
    ids.split_whitespace().filter_map(|id| fs::read_to_string(format!("/proc/{id}/cmdline")).ok()).collect()
}

/// Such a kernel cannot be tried, because the child process has no surface to paint on.
#[test]
fn a_kernel_that_paints_is_reloaded_without_a_trial() {
    let (Some(display), Some(machine)) = (Display::start(), Machine::new()) else { return };
    let texture = include_str!("../../../handoff/kernels/texture.ptx");
    let more = ["--overlay=off", "--scene=texture"];
    let Some(mut edited) = Edited::start_entry(&machine, &display, texture, ":paint", &more) else { return };
    // The file is watched before anything is drawn.
    edited.poll("a picture", |edited| (edited.picture().colors() > 1).then_some(()));
    for comment in ["// one", "// two"] {
        edited.save(&format!("{texture}{comment}\n"), "note: reloaded ");
    }
    assert_eq!(edited.notes().matches("reloaded without a trial").count(), 1, "{}", edited.notes());
    edited.save(FLAT, "it has no entry `paint`");
    edited.assert_ends_well();
}
