//! Ctrl-C, SIGTERM and SIGHUP: the first stops the run after the current frame, a later one at once.

#[cfg(unix)]
pub(crate) use unix::{listen, no_memory};

#[cfg(unix)]
mod unix {
    use std::io::{Error, Result};
    use std::mem::zeroed;
    use std::ptr::{null, null_mut};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    use libc::{SA_RESTART, SIG_DFL, SIG_IGN, SIGHUP, SIGINT, SIGTERM, c_int, sigaction, sighandler_t};
    use wavefield_run::Stop;

    /// Signals within this many milliseconds after the first belong to the same request: `timeout` sends
    /// SIGTERM to the program and to its process group, and a closing terminal causes SIGHUP from the kernel
    /// and from the shell.
    const SAME_WISH_MS: u64 = 100;

    /// The [`Stop`] that the handler requests, and when [`listen`] was called.
    static LISTENER: OnceLock<(Stop, Instant)> = OnceLock::new();
    /// When the first signal arrived, in milliseconds since [`listen`] was called, plus one; 0 until then.
    static FIRST: AtomicU64 = AtomicU64::new(0);

    /// Requests `stop` at the first signal. Signals that were ignored at the start stay ignored: `nohup`
    /// ignores SIGHUP, and a shell without job control ignores SIGINT for background commands.
    pub(crate) fn listen(stop: &Stop) -> Result<()> {
        LISTENER.get_or_init(|| (stop.clone(), Instant::now()));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // SAFETY: all bytes zero is a valid `sigaction`, and means the default action.
            let (mut before, mut action): (sigaction, sigaction) = unsafe { zeroed() };
            // SAFETY: a valid signal. Only queries the action, into a local.
            if unsafe { sigaction(signal, null(), &mut before) } != 0 {
                return Err(Error::last_os_error());
            }
            if before.sa_sigaction == SIG_IGN {
                continue;
            }
            action.sa_sigaction = on_signal as extern "C" fn(c_int) as sighandler_t;
            action.sa_flags = SA_RESTART;
            // SAFETY: a valid signal, and a handler of the right type that is async-signal-safe.
            if unsafe { sigaction(signal, &action, null_mut()) } != 0 {
                return Err(Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Ends the program on SIGBUS, when memory cannot be accessed: Mesa's software driver keeps its memory
    /// in a file, and does not notice that the file could not grow.
    pub(crate) extern "C" fn no_memory(_: c_int) {
        const WORDS: &str = "wavefield: memory could not be accessed (SIGBUS). With a software driver: it keeps its memory in a file, \
            and `ulimit -f` or the system's memory allows no more. With a GPU: see the kernel's log\n";
        // SAFETY: `write` and `_exit` are async-signal-safe, and the text is static.
        unsafe {
            libc::write(libc::STDERR_FILENO, WORDS.as_ptr().cast(), WORDS.len());
            libc::_exit(1)
        }
    }

    /// May interrupt any code, so it uses only the clock and atomics, allocates nothing and takes no lock.
    extern "C" fn on_signal(signal: c_int) {
        let Some((stop, since)) = LISTENER.get() else { return };
        let now = since.elapsed().as_millis() as u64 + 1;
        match FIRST.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => stop.request(),
            Err(first) if now < first + SAME_WISH_MS => {}
            // SAFETY: `signal` and `raise` are async-signal-safe. The raised signal takes effect when this
            // handler returns.
            Err(_) => unsafe {
                libc::signal(signal, SIG_DFL);
                libc::raise(signal);
            },
        }
    }
}

#[cfg(windows)]
pub(crate) use windows::listen;

#[cfg(windows)]
mod windows {
    use std::io::{Error, Result};
    use std::sync::OnceLock;

    use wavefield_run::Stop;
    use windows_sys::Win32::Foundation::{FALSE, TRUE};
    use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, CTRL_C_EVENT, SetConsoleCtrlHandler};
    use windows_sys::core::BOOL;

    static STOP: OnceLock<Stop> = OnceLock::new();

    /// Requests `stop` at the first Ctrl-C, or when the console is closed or the user logs off. The next event ends the
    /// process.
    pub(crate) fn listen(stop: &Stop) -> Result<()> {
        STOP.get_or_init(|| stop.clone());
        // SAFETY: a function, which Windows calls on a thread of its own.
        match unsafe { SetConsoleCtrlHandler(Some(on_event), TRUE) } {
            FALSE => Err(Error::last_os_error()),
            _ => Ok(()),
        }
    }

    unsafe extern "system" fn on_event(event: u32) -> BOOL {
        match STOP.get() {
            Some(stop) if !stop.requested() => stop.request(),
            _ => super::leave_at_once(1),
        }
        // When the console is closed, Windows ends the process as soon as this returns, or after five seconds. The run
        // needs that time to finish its files.
        while ![CTRL_C_EVENT, CTRL_BREAK_EVENT].contains(&event) {
            std::thread::park();
        }
        TRUE
    }
}

/// Ends the process without the drivers' exit handlers, which would wait for a kernel that never ends.
pub(crate) fn leave_at_once(code: u8) -> ! {
    #[cfg(unix)]
    // SAFETY: ends the process. None of its code runs afterwards, and every output file is already complete.
    unsafe {
        libc::_exit(code.into())
    }
    #[cfg(windows)]
    // SAFETY: this ends the process, as above. The handle is a constant that means this process and needs no
    // closing.
    unsafe {
        use windows_sys::Win32::System::Threading::{GetCurrentProcess, TerminateProcess};
        TerminateProcess(GetCurrentProcess(), code.into());
    }
    #[cfg(not(unix))]
    std::process::abort()
}
