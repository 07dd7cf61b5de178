//! Threads: rayon's pool, single jobs, precise sleeps, and the CPU time of all threads.

use std::fmt::Display;
use std::io::Error as IoError;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle, available_parallelism};
use std::time::Duration;

use rayon::{ThreadBuilder, ThreadPoolBuilder};

use crate::{Error, Result};

/// Starts rayon's pool with one thread per processor, or with fewer if the system refuses more. On its own,
/// rayon would panic then.
pub fn start() -> Result<()> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    let started = STARTED.get_or_init(|| try_start().map_err(|error| error.to_string()));
    started.clone().map_err(|reason| not_started("wavefield", reason))
}

fn not_started(name: &str, reason: impl Display) -> Error {
    Error::Unsupported(format!(
        "the thread `{name}` could not be started: {reason}; raise the limit (ulimit -u) or end other programs"
    ))
}

/// Starts the threads first and then tells rayon how many there are, because its pool can be built only once.
fn try_start() -> Result<(), IoError> {
    let (give, take) = channel::<ThreadBuilder>();
    let take = Arc::new(Mutex::new(take));
    let mut count = 0;
    for _ in 0..available_parallelism().map_or(1, usize::from) {
        let take = take.clone();
        let work = move || {
            let given = take.lock().unwrap_or_else(PoisonError::into_inner).recv();
            if let Ok(thread) = given {
                thread.run();
            }
        };
        match Builder::new().name("wavefield".into()).spawn(work) {
            Ok(_) => count += 1,
            Err(error) if count == 0 => return Err(error),
            Err(_) => break,
        }
    }
    let hand_over = |thread| give.send(thread).map_err(|_| IoError::other("the thread is gone"));
    // This fails if rayon's pool has already started. Then that pool does the work, and these threads end.
    let _ = ThreadPoolBuilder::new().num_threads(count).spawn_handler(hand_over).build_global();
    Ok(())
}

/// Work on a separate thread. Dropping a job does not wait for it.
pub struct Job<T> {
    thread: JoinHandle<Result<T>>,
    /// Dropped with the job. The thread then sees that its result is no longer wanted.
    _wanted: Arc<()>,
}

impl<T: Send + 'static> Job<T> {
    /// Starts `work` on a thread called `name`. `work` can ask whether its result is still wanted.
    pub fn begin(
        name: &str,
        work: impl FnOnce(&dyn Fn() -> bool) -> Result<T> + Send + 'static,
    ) -> Result<Self> {
        let wanted = Arc::new(());
        let watched = Arc::downgrade(&wanted);
        let started = Builder::new().name(name.into()).spawn(move || work(&|| watched.strong_count() > 0));
        Ok(Self { thread: started.map_err(|error| not_started(name, error))?, _wanted: wanted })
    }

    pub fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    pub fn finish(self) -> Result<T> {
        let name = self.thread.thread().name().unwrap_or_default().to_owned();
        let panicked = |_| Err(Error::Unsupported(format!("the thread `{name}` failed")));
        self.thread.join().unwrap_or_else(panicked)
    }
}

/// Makes this thread's sleeps more precise: Linux may add 50 µs by default. A failure is harmless.
#[cfg(target_os = "linux")]
pub fn sleep_exactly() {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
}

/// Returns the CPU time that all threads of this process have used so far; `None` outside Linux.
pub fn cpu_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let seconds = u64::try_from(time.tv_sec).ok()?;
        Some(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?))
    }
    #[cfg(not(target_os = "linux"))]
    None
}
