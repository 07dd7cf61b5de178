//! Threads: those of rayon's pool, which fill and compare whole fields; one for a single job; how exactly one sleeps; what all have
//! used of the CPU.

use std::io::Error as IoError;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{Builder, JoinHandle, available_parallelism};
use std::time::Duration;

use rayon::{ThreadBuilder, ThreadPoolBuilder};

use crate::{Error, Result};

/// Starts them, the first time: one for each processor, or as many as the system allows. Left to itself, rayon would panic
/// where it allows fewer.
///
/// # Errors
/// The system allows not even one.
pub(crate) fn start() -> Result<()> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    STARTED.get_or_init(|| try_start().map_err(|error| error.to_string())).clone().map_err(|reason| {
        Error::Unsupported(format!(
            "no thread could be started to work on the CPU: {reason}; allow this user more (ulimit -u) or end other programs"
        ))
    })
}

/// rayon cannot be asked twice. So the threads come first, and then it is told how many there are.
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
    // Fails if the program that uses this library started rayon's threads before. Then those do the work, and these end.
    let _ = ThreadPoolBuilder::new().num_threads(count).spawn_handler(hand_over).build_global();
    Ok(())
}

/// Work on a thread of its own. Dropped before it is done, it is not [`Wanted`] any more, and nobody waits for it.
pub(crate) struct Job<T> {
    thread: JoinHandle<Result<T>>,
    /// Only for being there: the thread looks whether it still is.
    wanted: Arc<()>,
}

/// Whether anybody waits for what a [`Job`] does.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))] // Only a kernel's trial looks.
pub(crate) struct Wanted(Weak<()>);

#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
impl Wanted {
    pub(crate) fn is_so(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl<T: Send + 'static> Job<T> {
    /// Begins it; `name` is the thread's.
    ///
    /// # Errors
    /// The system allows no more threads.
    pub(crate) fn begin(
        name: &str,
        work: impl FnOnce(&Wanted) -> Result<T> + Send + 'static,
    ) -> Result<Self> {
        let wanted = Arc::new(());
        let watched = Wanted(Arc::downgrade(&wanted));
        match Builder::new().name(name.into()).spawn(move || work(&watched)) {
            Ok(thread) => Ok(Self { thread, wanted }),
            Err(error) => {
                Err(Error::Unsupported(format!("the thread `{name}` could not be started: {error}")))
            }
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    /// What came of it; waits for that.
    pub(crate) fn finish(self) -> Result<T> {
        let name = self.thread.thread().name().unwrap_or_default().to_owned();
        let panicked = |_| Err(Error::Unsupported(format!("the thread `{name}` failed")));
        self.thread.join().unwrap_or_else(panicked)
    }

    /// Nobody wants it any more; waits a moment for its end.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))] // Only `serve` has a reason to.
    pub(crate) fn give_up(self, moment: Duration) {
        drop(self.wanted);
        let began = std::time::Instant::now();
        while !self.thread.is_finished() && began.elapsed() < moment {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Has sleeps of this thread end on time. Linux lets one of 50 µs take twice that, unless told otherwise; nothing is lost without.
pub(crate) fn sleep_exactly() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
}

/// The CPU time of this process so far, by all of its threads; known on Linux only.
pub(crate) fn cpu_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let seconds = u64::try_from(time.tv_sec).ok()?;
        Some(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?))
    }
    #[cfg(not(target_os = "linux"))]
    None
}
