//! The window: keys, sizes, and its end.

use std::process::Child;

use crate::common::display::{Display, poll};
use crate::common::{StandIn, demo, finish, text};

const SMALL: [&str; 2] = ["--grid=16x16", "--size=320x200"];

/// An open window.
struct Open {
    display: Display,
    program: Child,
    window: String,
}

impl Open {
    fn new(display: Display, mut command: std::process::Command) -> Self {
        let command = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let program = display.show(command).spawn().unwrap();
        let window = poll(|| display.window(program.id(), true)).expect("a window opens").to_string();
        // A key that is held while the focus comes is not meant for the window, so the focus comes early.
        display.xdotool(&["windowfocus", &window]);
        Self { display, program, window }
    }

    fn title(&self) -> String {
        self.display.xdotool(&["getwindowname", &self.window])
    }

    /// Waits until the title has these words.
    fn shows(&self, words: &str) {
        let shown = poll(|| self.title().contains(words).then_some(()));
        shown.unwrap_or_else(|| panic!("the title has `{words}`: {}", self.title()));
    }

    fn press(&self, key: &str) {
        self.display.xdotool(&["key", key]);
    }

    /// Waits for the end, which must be a good one. Returns both outputs.
    fn ends(self) -> String {
        let output = self.program.wait_with_output().unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        said
    }
}

#[test]
fn keys_change_the_ring_and_the_batch_while_it_runs() {
    let (Some(stand_in), Some(display)) = (StandIn::new(), Display::start()) else { return };
    let mut demo = stand_in.demo(&[&SMALL[..], &["--validation"]].concat());
    // Above the stand-in, where it sees which semaphores are shared. Below, a present would seem to wait for
    // nobody's signal.
    demo.env("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation:VK_LAYER_WAVEFIELD_stand_in");
    let open = Open::new(display, demo);
    open.shows("CUDA, ring 3, batch 1:");
    // The bar's parts, once the window had its size for a while.
    open.shows("(orange) + draw ");
    open.press("Up");
    open.shows("CUDA, ring 4, batch 1:");
    open.press("Right");
    open.shows("CUDA, ring 4, batch 2:");
    open.press("c");
    open.shows("CUDA, ring 4, batch 2, the CPU waits:");
    for _ in 0..4 {
        open.press("Down");
    }
    open.shows("CUDA, ring 1, batch 1, the CPU waits:");
    open.press("Escape");
    let said = open.ends();
    assert!(said.contains("frames: mean ") && !said.contains("validation:"), "{said}");
}

/// The window changes all the time: larger, smaller, hidden, shown.
#[test]
fn a_window_that_changes_all_the_time_is_drawn() {
    let Some(display) = Display::start() else { return };
    let arguments = ["--validation", "--present=mailbox", "--frames=400"];
    let mut open = Open::new(display, demo(&[&SMALL[..], &arguments].concat()));
    let mut step = 0;
    while open.program.try_wait().unwrap().is_none() {
        step += 1;
        let (width, height) = ((1 + step * 97 % 700).to_string(), (1 + step * 61 % 500).to_string());
        // Each may fail: the program may end meanwhile, and its window with it.
        match step % 10 {
            8 => open.display.try_xdotool(&["windowunmap", &open.window]),
            9 => open.display.try_xdotool(&["windowmap", &open.window]),
            _ => open.display.try_xdotool(&["windowsize", &open.window, &width, &height]),
        }
    }
    let said = open.ends();
    assert!(step > 10 && !said.contains("validation:"), "{step} changes: {said}");
}

#[test]
fn ctrl_c_ends_it_well() {
    let Some(display) = Display::start() else { return };
    let open = Open::new(display, demo(&SMALL));
    open.shows("ms a frame");
    let kill = format!("kill -INT {}", open.program.id());
    assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert!(open.ends().contains("frames: mean "));
}

/// The socket is left over, or never existed.
#[test]
fn without_a_wayland_compositor_it_uses_x11() {
    let Some(display) = Display::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("left")).unwrap());
    for socket in ["left", "nobody"] {
        let mut command = demo(&[&SMALL[..], &["--frames=2"]].concat());
        display.show(&mut command).env("XDG_RUNTIME_DIR", folder.path()).env("WAYLAND_DISPLAY", socket);
        let output = finish(&mut command).unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(0) && said.contains("In the window: "), "{socket}: {said}");
    }
}

#[test]
fn a_wrong_scale_of_x11_is_an_error() {
    let Some(display) = Display::start() else { return };
    for scale in ["0", "nan", "large"] {
        let mut command = demo(&SMALL);
        let output = finish(display.show(&mut command).env("WINIT_X11_SCALE_FACTOR", scale)).unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("`WINIT_X11_SCALE_FACTOR` invalid") && !said.contains("panicked"), "{said}");
    }
}
