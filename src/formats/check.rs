//! Tries what [`list`](super::list()) has listed.

use super::kernels::ImageKernels;
use super::record::Report;
use super::{buffers, images, list};
use crate::app::{Choice, Stop};
use crate::cuda::Cuda;
use crate::report::Failures;
use crate::vulkan::{DeviceDesc, Queue};
use crate::{Error, Result};

/// Takes everything that the device exports through CUDA and back, and fills in what became of it. `progress` is called
/// with how many images are done and how many there are.
///
/// A stop, or a failure that says nothing about what was tried (memory that ran out, a kernel that faulted), gives what was
/// found so far. Bytes that differ are no failure here: see [`Report::failures`].
///
/// # Errors
/// A device that does not share with CUDA.
pub fn check(
    choice: &Choice,
    command: String,
    stop: &Stop,
    progress: &mut dyn FnMut(usize, usize),
    failures: &mut Failures,
) -> Result<Report> {
    let mut report = list(choice, command);
    let Some((driver, info)) = &choice.cuda else {
        let reason = choice.fallback.as_deref().unwrap_or("CUDA was not asked for");
        let name = &choice.adapter.info().name;
        return Err(Error::Unsupported(format!("--check needs CUDA on {name}: {reason}")));
    };
    let context = Cuda::primary(*driver, info)?;
    let desc = DeviceDesc { interop: true, ..DeviceDesc::default() };
    let (_device, mut queue) = choice.adapter.request_device(&desc)?;
    let kernels = ImageKernels::new(&context)?;
    let tried = try_all(&mut report, choice, &mut queue, &context, &kernels, stop, progress);
    report.checked = failures.catch(tried).is_some();
    Ok(report)
}

/// Fills in what becomes of each buffer and image.
fn try_all(
    report: &mut Report,
    choice: &Choice,
    queue: &mut Queue,
    context: &Cuda,
    kernels: &ImageKernels,
    stop: &Stop,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<()> {
    for buffer in report.buffers.iter_mut().filter(|buffer| buffer.handle.is_some()) {
        let check = match buffer.kind.as_str() {
            buffers::DEDICATED => buffers::check_dedicated,
            _ => buffers::check_several,
        };
        buffer.check = Some(check(queue, context, kernels)?);
    }
    let cases = list::cases(&choice.adapter);
    let total = cases.len();
    for (index, (image, case)) in report.images.iter_mut().zip(cases).enumerate() {
        progress(index, total);
        if stop.requested() {
            return Err(Error::Stopped(format!(
                "stopped after image {index} of {total}; the others are listed and were not tried"
            )));
        }
        if image.handle.is_some() {
            let tried = images::check(queue, context, kernels, &case, index as u64)
                .map_err(|error| Error::Unsupported(format!("{}: {error}", image.name())))?;
            (image.map, image.check) = (Some(tried.map), tried.levels);
        }
    }
    progress(total, total);
    Ok(())
}

/// Vulkan's half of [`check`] alone, for every image that the device exports: written and read back through the same
/// barriers, with nobody on the other side. Needs no CUDA; fills in [`super::record::Image::map`].
///
/// # Errors
/// A device that does not export memory, or a failure of Vulkan's.
pub fn check_vulkan_alone(choice: &Choice) -> Result<Report> {
    let mut report = list(choice, String::new());
    let desc = DeviceDesc { interop: true, ..DeviceDesc::default() };
    let (_device, mut queue) = choice.adapter.request_device(&desc)?;
    let cases = list::cases(&choice.adapter);
    for (index, (image, case)) in report.images.iter_mut().zip(cases).enumerate() {
        if image.handle.is_some() {
            image.map = Some(images::check_vulkan(&mut queue, &case, index as u64)?);
        }
    }
    Ok(report)
}
