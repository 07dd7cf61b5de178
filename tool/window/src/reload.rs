//! Reloads a kernel when its file is saved. A thread reads, compiles and tries the kernel. No frame waits for
//! the thread.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use wavefield_gpu::cuda::{CudaInfo, KernelSource};
use wavefield_gpu::{Error, Result, note, threads::Job};
#[cfg(target_os = "linux")]
use wavefield_run::child_process::{THIS_PROGRAM, Trial};
use wavefield_run::{Config, Scene};

/// How long a file must be unchanged before it is read: programs may write it in several parts.
const QUIET: Duration = Duration::from_millis(80);

pub(super) struct Reloader {
    argument: String,
    pub(super) file: PathBuf,
    /// Whether the watcher has seen a write, or may have missed one.
    pub(super) saved: Arc<AtomicBool>,
    /// When to read the file, unless it is written again before then.
    due: Option<Instant>,
    job: Option<Job<KernelSource>>,
    /// Whether a note has said that kernels are not tried.
    said: bool,
    _watcher: RecommendedWatcher,
}

impl Reloader {
    /// Watches the kernel's file. If that fails, prints a note and returns `None`.
    pub(super) fn new(argument: String) -> Option<Self> {
        let (file, _) = KernelSource::split_argument(&argument);
        let saved = Arc::new(AtomicBool::new(false));
        let watched = watch(&file, saved.clone()).inspect_err(|error| {
            let file = file.display();
            note!("note: {file} cannot be watched ({error}), so it is not reloaded when it is saved");
        });
        let _watcher = watched.ok()?;
        Some(Self { argument, file, saved, due: None, job: None, said: false, _watcher })
    }

    /// Returns a saved kernel, or an error, once the kernel has been read and tried. Call this regularly.
    /// Returns `None` while `config` selects a different kernel. `device` is the device that will run the
    /// kernel.
    pub(super) fn poll(
        &mut self,
        config: &Config,
        device: Option<&CudaInfo>,
    ) -> Option<Result<KernelSource>> {
        if !config.has_own_kernel() {
            // The user has since chosen a different kernel. Saving this one does not switch back to it.
            self.saved.store(false, Ordering::Relaxed);
            (self.due, self.job) = (None, None);
            return None;
        }
        let now = Instant::now();
        if self.saved.swap(false, Ordering::Relaxed) {
            self.due = Some(now + QUIET);
        }
        // Some editors and compilers remove the file and write a new one: wait for the next write.
        if self.due.take_if(|due| *due <= now).is_some() && self.file.exists() {
            // A job in progress has read an older version.
            self.job = None;
            match self.begin(config, device) {
                Ok(job) => self.job = Some(job),
                Err(error) => return Some(Err(error)),
            }
        }
        self.job.take_if(|job| job.is_done()).map(Job::finish)
    }

    /// Begins to read the kernel, and to try it if possible.
    #[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
    fn begin(&mut self, config: &Config, device: Option<&CudaInfo>) -> Result<Job<KernelSource>> {
        // Trials run only on Linux. The child process can try only kernels that write vertices, not kernels
        // that paint a texture.
        let can_try = cfg!(target_os = "linux") && config.scene == Scene::Field;
        let device = device.filter(|_| can_try).cloned();
        let (grid, patience) = (config.grid, config.timeout / 2);
        if device.is_none() && !std::mem::replace(&mut self.said, true) {
            note!(
                "note: {} is reloaded without a trial in a process of its own: if it faults, the run ends",
                self.file.display()
            );
        }
        let (argument, signature) = (self.argument.clone(), config.scene.signature());
        Job::begin("kernel reload", move |wanted| {
            let source = KernelSource::from_argument(&argument).map_err(|error| match error {
                // This is a usage error only at the start of a run. Later, the saved kernel is broken.
                Error::Usage(words) => Error::Unsupported(words),
                error => error,
            })?;
            source.check_signature(signature)?;
            #[cfg(target_os = "linux")]
            if let Some(device) = &device {
                let trial = Trial { program: Path::new(THIS_PROGRAM), device, grid, patience };
                trial.run(&source, wanted)?;
            }
            Ok(source)
        })
    }
}

/// Sets `saved` whenever `file` is written, until the watcher is dropped. Watches the file's folder, because
/// editors replace the file. If the file is a symbolic link, also watches the folder of its target.
fn watch(file: &Path, saved: Arc<AtomicBool>) -> notify::Result<RecommendedWatcher> {
    let mut places = vec![std::path::absolute(file)?];
    places.extend(file.canonicalize().ok().filter(|target| *target != places[0]));
    let names: Vec<OsString> =
        places.iter().filter_map(|place| place.file_name()).map(OsString::from).collect();
    let on_event = move |event: notify::Result<Event>| {
        if event.is_ok_and(|event| writes(&event, &names)) {
            saved.store(true, Ordering::Relaxed);
        }
    };
    let mut watcher = notify::recommended_watcher(on_event)?;
    for folder in places.iter().filter_map(|place| place.parent()) {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}

/// Returns whether a file with one of these names was written or replaced, or events were lost.
fn writes(event: &Event, names: &[OsString]) -> bool {
    let named =
        event.paths.iter().filter_map(|path| path.file_name()).any(|name| names.iter().any(|n| n == name));
    let written = match event.kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        EventKind::Modify(ModifyKind::Metadata(_)) | EventKind::Remove(_) => false,
        EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Other => true,
    };
    named && written || event.need_rescan()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use wavefield_handoff::contents::gallery;

    /// A watched file in its own folder.
    struct Watched {
        folder: tempfile::TempDir,
        file: PathBuf,
        saved: Arc<AtomicBool>,
        _watcher: RecommendedWatcher,
    }

    impl Watched {
        /// `make` creates the file in a folder, and returns its path.
        fn new(make: impl FnOnce(&Path) -> PathBuf) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let file = make(folder.path());
            let saved = Arc::new(AtomicBool::new(false));
            let watcher = watch(&file, saved.clone()).unwrap();
            Self { folder, file, saved, _watcher: watcher }
        }

        fn beside(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// Waits until the watcher has seen a write.
        fn assert_seen(&self, what: &str) {
            let until = Instant::now() + Duration::from_secs(60);
            while !self.saved.swap(false, Ordering::Relaxed) {
                assert!(Instant::now() < until, "{what} was not seen");
                std::thread::sleep(Duration::from_millis(5));
            }
            // Wait for further events of the same write.
            std::thread::sleep(Duration::from_millis(50));
            self.saved.store(false, Ordering::Relaxed);
        }
    }

    fn plain(folder: &Path) -> PathBuf {
        let file = folder.join("k.ptx");
        fs::write(&file, "1").unwrap();
        file
    }

    #[test]
    fn however_it_is_saved_it_is_seen() {
        let watched = Watched::new(plain);
        fs::write(&watched.file, "2").unwrap();
        watched.assert_seen("a write");
        fs::write(watched.beside("k.ptx~"), "3").unwrap();
        fs::rename(watched.beside("k.ptx~"), &watched.file).unwrap();
        watched.assert_seen("a file put in its place");
        fs::write(&watched.file, "4").unwrap();
        watched.assert_seen("a write to that one");
        fs::remove_file(&watched.file).unwrap();
        fs::write(&watched.file, "5").unwrap();
        watched.assert_seen("a new one");
    }

    #[cfg(unix)]
    #[test]
    fn what_a_link_leads_to_is_seen() {
        let watched = Watched::new(|folder| {
            fs::create_dir(folder.join("elsewhere")).unwrap();
            let target = plain(&folder.join("elsewhere"));
            let link = folder.join("link.ptx");
            std::os::unix::fs::symlink(target, &link).unwrap();
            link
        });
        fs::write(watched.beside("elsewhere/k.ptx"), "2").unwrap();
        watched.assert_seen("a write");
    }

    /// Otherwise each reload would cause the next one.
    #[test]
    fn what_is_no_write_is_not_seen() {
        let watched = Watched::new(plain);
        assert_eq!(fs::read(&watched.file).unwrap(), b"1");
        fs::write(watched.beside("other.ptx"), "2").unwrap();
        fs::File::open(&watched.file)
            .unwrap()
            .set_permissions(fs::metadata(&watched.file).unwrap().permissions())
            .unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(!watched.saved.load(Ordering::Relaxed));
        fs::write(&watched.file, "3").unwrap();
        watched.assert_seen("a write");
    }

    #[test]
    fn a_save_counts_only_while_the_kernel_of_the_file_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("k.ptx");
        fs::write(&file, wavefield_handoff::contents::built_in::wave().ptx).unwrap();
        let argument = file.display().to_string();
        let own = Some(KernelSource::from_argument(&argument).unwrap());
        let own = Config { kernel: own, ..Config::default() };
        let mut reloader = Reloader::new(argument).unwrap();
        let mut save = |shown: &Config| {
            fs::write(&file, wavefield_handoff::contents::built_in::wave().ptx).unwrap();
            let until = Instant::now() + Duration::from_secs(60);
            while !reloader.saved.load(Ordering::Relaxed) {
                assert!(Instant::now() < until, "the write was not seen");
                std::thread::sleep(Duration::from_millis(5));
            }
            // The watcher may report one write twice: wait until it has nothing more to report.
            std::thread::sleep(2 * QUIET);
            let first = reloader.poll(shown, None);
            let begun = reloader.due.is_some() || reloader.job.is_some() || first.is_some();
            while begun && Instant::now() < until {
                if let Some(read) = reloader.poll(shown, None) {
                    return Some(read.unwrap());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            first.map(|read| read.unwrap())
        };
        assert_eq!(save(&own), own.kernel);
        for other in [None, Some(gallery::GALLERY[1].source())] {
            assert_eq!(save(&Config { kernel: other, ..Config::default() }), None);
        }
        assert_eq!(save(&own), own.kernel, "the next save counts");
    }

    #[test]
    fn what_cannot_be_watched_is_no_reason_to_end() {
        assert!(Reloader::new("/no/such/folder/k.ptx".into()).is_none());
    }
}
