//! Kernels that clients send. They are tried and compiled on a separate thread, so no frame waits for that.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use super::closing::ClientFd;
use crate::app::{Choice, Config, RISK};
use crate::cuda::{Cuda, CudaInfo, Driver, KernelSource, Signature, cubin};
use crate::handoff::Handoff;
use crate::producer::Producer;
use crate::threads::Job;
use crate::trial::{THIS_PROGRAM, Trial};
use crate::vulkan::Queue;
use crate::{Error, Result, note};

/// A kernel with its machine code, and the context in which that was made.
type Compiled = (KernelSource, Cuda);

/// How long to wait for a job that may hold a faulted context.
const MOMENT: Duration = Duration::from_millis(30);

/// The compiler of clients' kernels, and the CUDA context that they run in.
pub(super) struct Kernels {
    cuda: Result<(Driver, CudaInfo), String>,
    /// The primary context: from the first kernel until a fault.
    context: Option<Cuda>,
    /// A kernel that is being tried and compiled. Dropping it ends the trial.
    job: Option<Job<Compiled>>,
    /// A kernel would run in Vulkan's command buffer, and the user has not accepted that risk (`--risk-the-gpu`).
    too_risky: bool,
    /// The kernel in the engine, if it is a client's.
    running: Option<KernelSource>,
    /// The kernel that ran before it and did not fault.
    good: Option<KernelSource>,
    config: Config,
}

impl Kernels {
    pub(super) fn new(choice: &Choice, config: &Config) -> Self {
        let reason = || match &choice.fallback {
            Some(reason) => format!("this renderer has no CUDA: {reason}"),
            None => "this renderer was started with another --producer than CUDA".into(),
        };
        let cuda = choice.cuda.clone().ok_or_else(reason);
        Self {
            cuda,
            context: None,
            job: None,
            too_risky: config.handoff == Handoff::Inline
                && choice.adapter.info().inline
                && !config.risk_the_gpu,
            running: None,
            good: None,
            config: config.clone(),
        }
    }

    pub(super) fn compile(&mut self, client: &str, entry: String, file: ClientFd, bytes: u64) -> Result<()> {
        let cuda = self.compiler().map_err(Error::Unsupported)?;
        let context = self.context.clone();
        let name = format!("`{}` of {client}", super::protocol::short(&entry, 200));
        let (grid, patience) = (self.config.grid, self.config.timeout / 2);
        let job = move |wanted: &dyn Fn() -> bool| {
            let ptx = read(&name, &file, bytes)?;
            drop(file);
            let mut source = KernelSource { name, ptx, entry, cubin: None, gallery: None };
            source.check_signature(Signature::Field)?;
            // First, and in another process: here a fault would end CUDA, and a kernel that never ends would end everything.
            let trial = Trial { program: Path::new(THIS_PROGRAM), device: &cuda.1, grid, patience };
            let took = trial.run(&source, wanted)?;
            note!("note: {} passed its trial, which took {:.2} s", source.name, took.as_secs_f64());
            // A new context takes a while too. (With a producer of CUDA in the engine this is only one more reference.)
            let context = match context {
                Some(context) => context,
                None => Cuda::primary(cuda.0, &cuda.1)?,
            };
            source.cubin = Some(cubin::link(&context, &source)?);
            Ok((source, context))
        };
        self.job = Some(Job::begin("kernel compiler", job)?);
        Ok(())
    }

    /// What a kernel is compiled and tried with, or why no kernel can be taken now.
    fn compiler(&self) -> Result<(Driver, CudaInfo), String> {
        if self.job.is_some() {
            return Err("the kernel before this one is still being tried or compiled".into());
        }
        let cuda = self.cuda.clone()?;
        if self.too_risky {
            return Err(format!(
                "this renderer was started with --handoff inline and takes no kernels: {RISK}"
            ));
        }
        Ok(cuda)
    }

    pub(super) fn compiled(&mut self) -> Option<Result<KernelSource>> {
        let job = self.job.take_if(|job| job.is_done())?;
        Some(job.finish().map(|(source, context)| {
            self.context = Some(context);
            source
        }))
    }

    pub(super) fn producer(&mut self, queue: &mut Queue, source: &KernelSource) -> Result<Box<dyn Producer>> {
        let context = match &self.context {
            Some(context) => context.clone(),
            // After a fault there is none.
            None => {
                let (driver, info) = self.cuda.clone().map_err(Error::Unsupported)?;
                self.context.insert(Cuda::primary(driver, &info)?).clone()
            }
        };
        let config = &self.config;
        let (handoff, _) = config.handoff.on(queue.device().info(), config.scene);
        handoff.make(queue, &context, source, &config.producer_desc())
    }

    /// `source` is in the engine now; what was there before did not fault.
    pub(super) fn runs(&mut self, source: KernelSource) {
        self.good = self.running.replace(source);
    }

    pub(super) fn running(&self) -> Option<&KernelSource> {
        self.running.as_ref()
    }

    /// The kernel in the engine has faulted. Returns the last one that did not, if there is one.
    pub(super) fn take_last_good(&mut self) -> Option<KernelSource> {
        self.running = None;
        self.good.take()
    }

    /// After a fault: lets go of the primary context, so that the next one is new. Gives up a kernel that is being tried or
    /// compiled.
    pub(super) fn forget_context(&mut self) {
        self.context = None;
        let Some(job) = self.job.take() else { return };
        // The job may hold the context too. Calls on a faulted context fail at once, and a trial is broken off. But a
        // client's kernel can make the compiler take long, so the job gets only a moment.
        job.give_up(MOMENT);
    }

    pub(super) fn give_up(&mut self, reason: String) {
        self.cuda = Err(reason);
    }

    pub(super) fn clear(&mut self) {
        // This ends a trial. A compilation goes on, and its result is dropped.
        (self.job, self.running, self.good) = (None, None, None);
    }
}

fn read(name: &str, file: &impl AsFd, bytes: u64) -> Result<String> {
    let problem = |problem: &str| Error::Kernel { kernel: name.to_owned(), problem: problem.to_owned() };
    // Only a memfd has seals. A read from anything else (a pipe, a file of a file system that the client serves) could block
    // without end.
    if rustix::fs::fcntl_get_seals(file).is_err() {
        return Err(problem("its descriptor is no memfd"));
    }
    let mut text = vec![0; bytes as usize];
    let mut done = 0;
    while done < text.len() {
        match rustix::io::pread(file, &mut text[done..], done as u64) {
            Ok(0) => return Err(problem("its descriptor holds fewer bytes than the message says")),
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(problem(&std::io::Error::from(error).to_string())),
        }
    }
    String::from_utf8(text).map_err(|_| problem("it is not UTF-8: is this PTX text?"))
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    fn memfd(text: &[u8]) -> OwnedFd {
        let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        assert_eq!(rustix::io::pwrite(&file, text, 0), Ok(text.len()));
        file
    }

    #[test]
    fn only_a_memfd_is_read() {
        assert_eq!(read("k", &memfd(b"ptx"), 3).unwrap(), "ptx");
        let words = |file: OwnedFd, bytes| read("k", &file, bytes).unwrap_err().to_string();
        assert!(words(memfd(b"ptx"), 4).contains("fewer bytes"));
        assert!(words(memfd(b"\xff\xff"), 2).contains("UTF-8"));
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        assert!(words(pipe, 3).contains("no memfd"));
    }
}
