//! Tries everything that [`list`](super::list()) has listed.

use super::kernels::ImageKernels;
use super::record::Report;
use super::{buffers, images, list};
use crate::app::{Choice, Stop};
use crate::cuda::Cuda;
use crate::report::Failures;
use crate::vulkan::{DeviceDesc, Queue};
use crate::{Error, Result};

/// Takes everything that the device exports through CUDA and back, and records the results. `progress` is called with
/// the number of images that are done and the number of all.
///
/// A stop ends the check early, and so does a failure that tells nothing about what was tried, such as memory that ran
/// out or a kernel that faulted. The report then has the results so far. Bytes that differ are not such a failure: see
/// [`Report::failures`].
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

/// Records the result for each buffer and image.
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
                "stopped after image {index} of {total}; the others are listed but were not tried"
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
