#[cfg(target_os = "linux")]
use std::ffi::{c_int, c_void};
#[cfg(target_os = "linux")]
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind, set_hook, take_hook};
#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use winit::application::ApplicationHandler;
use winit::error::EventLoopError;
use winit::platform::run_on_demand::EventLoopExtRunOnDemand;

use wavefield_gpu::{Error, Result};

/// winit's event loop. A process can have only one, but can use it for several windows in turn.
pub struct EventLoop(pub(super) winit::event_loop::EventLoop<()>);

impl EventLoop {
    pub fn new() -> Result<Self> {
        let failed = |reason: String| {
            let package = package(&reason).map(|package| format!("; Debian's package is {package}"));
            Error::Window { what: "no display", reason: reason + &package.unwrap_or_default() }
        };
        let made = without_winit_panic(|| {
            #[allow(unused_mut)]
            let mut builder = winit::event_loop::EventLoop::builder();
            #[cfg(target_os = "linux")]
            if let Some(reason) = no_wayland().filter(|_| is_set("DISPLAY")) {
                use winit::platform::x11::EventLoopBuilderExtX11;
                wavefield_gpu::note!("note: no Wayland: {reason}; trying X11");
                builder.with_x11();
            }
            builder.build()
        });
        let made = made.map_err(failed)?.map_err(|error| failed(words(&error)))?;
        #[cfg(target_os = "linux")]
        outlive_x_server(&made);
        Ok(Self(made))
    }

    /// Returns an error in the middle of a run if the display server or its libraries end it.
    pub(super) fn run(&mut self, app: &mut impl ApplicationHandler) -> Result<()> {
        let ran = without_winit_panic(|| self.0.run_app_on_demand(app));
        ran.map_err(ended)?.map_err(|error| ended(words(&error)))
    }
}

/// Turns a panic of winit into an error with its text, and does not print it. winit panics if an X11 library is
/// missing, and on some errors of the X server, such as one about a window that another program has destroyed.
/// Other panics go on.
fn without_winit_panic<T>(run: impl FnOnce() -> T) -> std::result::Result<T, String> {
    let previous = Arc::new(take_hook());
    let is_of_winit = Arc::new(AtomicBool::new(false));
    let (print, seen) = (previous.clone(), is_of_winit.clone());
    set_hook(Box::new(move |panic| match panic.location().map(Location::file) {
        Some(file) if ["winit-", "xkbcommon-dl-"].iter().any(|name| file.contains(name)) => {
            seen.store(true, Relaxed)
        }
        _ => print(panic),
    }));
    let outcome = catch_unwind(AssertUnwindSafe(run));
    set_hook(Box::new(move |panic| previous(panic)));
    outcome.map_err(|panic| {
        if !is_of_winit.load(Relaxed) {
            resume_unwind(panic);
        }
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        text.unwrap_or("the window system failed").to_owned()
    })
}

#[cfg(target_os = "linux")]
fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// Returns why the compositor named in the environment cannot be reached; `None` if it can, or none is named.
/// winit uses Wayland whenever a compositor is named, and creates an event loop only once per process.
#[cfg(target_os = "linux")]
fn no_wayland() -> Option<String> {
    // `WAYLAND_SOCKET` is an inherited connection, which an attempt to connect here would use up.
    if is_set("WAYLAND_SOCKET") || !is_set("WAYLAND_DISPLAY") {
        return None;
    }
    let name = PathBuf::from(std::env::var_os("WAYLAND_DISPLAY")?);
    let folder = std::env::var_os("XDG_RUNTIME_DIR").unwrap_or_default();
    if name.is_relative() && folder.is_empty() {
        return Some("XDG_RUNTIME_DIR is not set".into());
    }
    // If the name is absolute, `join` drops the folder.
    let path = PathBuf::from(folder).join(name);
    let error = UnixStream::connect(&path).err()?;
    Some(format!("{}: {error}", path.display()))
}

/// Set once the connection to the X server has ended.
static X_SERVER_IS_GONE: AtomicBool = AtomicBool::new(false);

/// Keeps Xlib from ending the process when the X server ends. Needs libX11 1.7; an older one still ends it.
/// `XSetIOErrorExitHandler` is described in
/// <https://gitlab.freedesktop.org/xorg/lib/libx11/-/blob/master/include/X11/Xlib.h>.
#[cfg(target_os = "linux")]
fn outlive_x_server(event_loop: &winit::event_loop::EventLoop<()>) {
    use winit::raw_window_handle::{HasDisplayHandle, RawDisplayHandle};

    extern "C" fn broken(_display: *mut c_void) -> c_int {
        0
    }
    extern "C" fn gone(_display: *mut c_void, _data: *mut c_void) {
        X_SERVER_IS_GONE.store(true, Relaxed);
    }
    type OnBroken = unsafe extern "C" fn(extern "C" fn(*mut c_void) -> c_int) -> *mut c_void;
    type OnExit = unsafe extern "C" fn(*mut c_void, extern "C" fn(*mut c_void, *mut c_void), *mut c_void);
    let Ok(RawDisplayHandle::Xlib(handle)) = event_loop.display_handle().map(|handle| handle.as_raw()) else {
        return;
    };
    let Some(display) = handle.display else { return };
    // SAFETY: the library, which winit has loaded already, runs no code of ours when it is loaded or closed. The
    // display lives as long as the event loop. The functions have these types, and the handlers live for ever.
    unsafe {
        let Ok(library) = libloading::Library::new("libX11.so.6") else { return };
        let on_broken = library.get::<OnBroken>("XSetIOErrorHandler");
        let on_exit = library.get::<OnExit>("XSetIOErrorExitHandler");
        if let (Ok(on_broken), Ok(on_exit)) = (on_broken, on_exit) {
            // The default of the first one ends the process, too.
            on_broken(broken);
            on_exit(display.as_ptr(), gone, std::ptr::null_mut());
        }
    }
}

pub(super) fn check_x_server() -> Result<()> {
    match X_SERVER_IS_GONE.load(Relaxed) {
        true => Err(ended("the X server has closed the connection".into())),
        false => Ok(()),
    }
}

pub(super) fn ended(reason: String) -> Error {
    Error::Window { what: "the event loop ended", reason }
}

/// Removes the source location at the start of winit's error.
fn words(error: &EventLoopError) -> String {
    let text = error.to_string();
    let reason = text.split_once(".rs:").and_then(|(_, rest)| rest.split_once(": "));
    reason.map_or(&*text, |(_line, reason)| reason).trim_end_matches('.').to_owned()
}

/// Returns Debian's package of the first shared library that `text` names: its name in lower case, and its version.
fn package(text: &str) -> Option<String> {
    if text.contains("xlib's shared libraries") {
        // winit does not say which of them.
        return Some("libx11-6, libx11-xcb1, libxcursor1 or libxi6".into());
    }
    let library =
        text.split([' ', ':', '"', '`', ',']).find(|word| word.starts_with("lib") && word.contains(".so"))?;
    let (name, version) = library.split_once(".so")?;
    let version = version.split('.').nth(1).unwrap_or("0");
    let dash = if name.ends_with(|last: char| last.is_ascii_digit()) { "-" } else { "" };
    Some(format!("{}{dash}{version}", name.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    #[test]
    fn a_missing_library_has_a_package() {
        for (text, name) in [
            ("opening libXcursor.so.1 failed: cannot open shared object file", Some("libxcursor1")),
            ("Library libxkbcommon-x11.so could not be loaded.", Some("libxkbcommon-x11-0")),
            ("libX11.so.6: cannot open shared object file", Some("libx11-6")),
            (
                "Failed to load one of xlib's shared libraries",
                Some("libx11-6, libx11-xcb1, libxcursor1 or libxi6"),
            ),
            ("the library is gone", None),
        ] {
            assert_eq!(package(text).as_deref(), name);
        }
    }

    /// The hook for panics is the process's, so the tests that change it take turns.
    static ALONE: Mutex<()> = Mutex::new(());

    /// winit allows an event loop in the main thread only, where no test runs.
    #[test]
    fn a_panic_of_winit_is_an_error() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let made = without_winit_panic(|| winit::event_loop::EventLoop::<()>::with_user_event().build());
        let reason = made.expect_err("winit panics outside of the main thread");
        assert!(reason.contains("main thread"), "{reason}");
    }

    #[test]
    #[should_panic(expected = "this crate's own")]
    fn another_panic_goes_on() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = without_winit_panic(|| panic!("this crate's own"));
    }
}
