#[cfg(target_os = "linux")]
use std::os::unix::net::UnixStream;
use std::panic::catch_unwind;
#[cfg(target_os = "linux")]
use std::path::PathBuf;

use winit::error::EventLoopError;

use wavefield_gpu::{Error, Result};

/// winit's event loop. A process can have only one, but can use it for several windows in turn.
pub struct EventLoop(pub(super) winit::event_loop::EventLoop<()>);

impl EventLoop {
    pub fn new() -> Result<Self> {
        let failed = |reason| Error::Window { what: "no display", reason };
        // winit panics if an X11 library that it opens at run time is missing. Turn that into an error.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        let made = catch_unwind(|| {
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
        std::panic::set_hook(hook);
        match made {
            Ok(Ok(event_loop)) => Ok(Self(event_loop)),
            Ok(Err(error)) => Err(failed(words(&error))),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or(panic.downcast_ref::<&str>().copied());
                Err(failed(text.unwrap_or("the window system's libraries are incomplete").to_owned()))
            }
        }
    }
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

pub(super) fn ended(reason: String) -> Error {
    Error::Window { what: "the event loop ended", reason }
}

/// Removes the source location at the start of winit's error.
fn words(error: &EventLoopError) -> String {
    let text = error.to_string();
    let reason = text.split_once(".rs:").and_then(|(_, rest)| rest.split_once(": "));
    reason.map_or(&*text, |(_line, reason)| reason).trim_end_matches('.').to_owned()
}
