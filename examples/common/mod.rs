//! What the examples begin and end with. The first example shows what [`Gpu::open`] does about the choice of a device.

#![allow(dead_code)] // Each example uses its own part of this.

use std::process::ExitCode;
use std::sync::Arc;

use wavefield::app::{DeviceTable, ProducerKind};
use wavefield::cuda::{Context, Kernel, KernelSource, Stream};
use wavefield::vulkan::{Device, DeviceDesc, Instance, InstanceDesc, Queue, Validation};
use wavefield::{Error, Result};

/// How an example ended, if not with an error.
pub enum Outcome {
    /// It did what it shows.
    Done,
    /// This machine has no device that CUDA and Vulkan share, for this reason.
    Skipped(String),
}

/// 0 for what was done or skipped, 1 with words for an error.
pub fn exit(outcome: Result<Outcome>) -> ExitCode {
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Skipped(reason)) => {
            println!("skipped: {reason}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A Vulkan instance, under the validation layer where it is installed; `Err` inside has the reason to skip.
pub fn instance() -> Result<Result<Instance, String>> {
    match Instance::new(&InstanceDesc { validation: Validation::IfInstalled, display: None }) {
        Ok(instance) => Ok(Ok(instance)),
        // No Vulkan here at all.
        Err(error @ Error::Missing { .. }) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

/// Both APIs on one GPU.
pub struct Gpu {
    pub stream: Stream,
    pub context: Arc<Context>,
    pub queue: Queue,
    pub device: Device,
}

impl Gpu {
    /// `Err` inside has the reason to skip.
    pub fn open() -> Result<Result<Self, String>> {
        let instance = match instance()? {
            Ok(instance) => instance,
            Err(reason) => return Ok(Err(reason)),
        };
        let choice = match DeviceTable::query(&instance, None)?.choose(None, ProducerKind::Cuda) {
            Ok(choice) => choice,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let Some((driver, info)) = &choice.cuda else {
            return Ok(Err("no CUDA device".into()));
        };
        let context = Context::new(*driver, info)?;
        let desc = DeviceDesc { interop: true, ..DeviceDesc::default() };
        let (device, queue) = choice.adapter.request_device(&desc)?;
        Ok(Ok(Self { stream: Stream::new(&context)?, context, queue, device }))
    }

    /// The kernel of `count.ptx`: writes [`counted`] to every word.
    pub fn count(&self) -> Result<Kernel> {
        let source = KernelSource {
            name: "count.ptx".into(),
            ptx: include_str!("count.ptx").into(),
            entry: "count".into(),
            cubin: None,
        };
        Kernel::load(&self.context, &source)
    }
}

/// The word that `count.ptx` writes at `index` in frame `frame`.
pub fn counted(frame: u64, index: usize) -> u32 {
    ((frame as u32) << 16) + index as u32
}

/// Compares words of `bytes` with what they should be.
pub fn check(what: &str, bytes: &[u8], expected: impl Fn(usize) -> u32) -> Result<()> {
    let words: Vec<u32> = bytemuck::allocation::pod_collect_to_vec(bytes);
    match words.iter().enumerate().find(|&(index, &word)| word != expected(index)) {
        None => Ok(()),
        Some((index, word)) => {
            let text = format!("{what}: word {index} is {word:#x}, not {:#x}", expected(index));
            Err(Error::Rule(text))
        }
    }
}
