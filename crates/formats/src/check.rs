//! Takes everything that [`list`](super::list()) has listed through CUDA and back: buffers, and images level by level.

use std::sync::Arc;

use ash::vk;
use cudarc::driver::sys::CUdeviceptr;
use vulkan_cuda::ownership::Owner;
use vulkan_cuda::{ArrayFormat, ExportedAllocation, ExportedImage, ImageRequest, SharedBuffer, SharedImage};

use super::kernels::ImageKernels;
use super::record::Report;
use super::{list, pattern, transfer};
use wavefield_base::{Error, Result, progress::Progress, report::Failures};
use wavefield_engine::{Choice, Stop};
use wavefield_gpu::cuda::{Cuda, DeviceMemory, Stream, Texture, TextureDesc};
use wavefield_gpu::vulkan::{DeviceDesc, Queue, read_buffer};
use wavefield_handoff::producer::SLOT_USAGE;

/// What a try found: nothing, or which bytes differ.
type Compared = Result<(), String>;

/// Takes everything that the device exports through CUDA and back, and records the results.
///
/// A stop ends the check early, and so does a failure that tells nothing about what was tried, such as memory that ran
/// out or a kernel that faulted. The report then has the results so far. Bytes that differ are not such a failure: see
/// [`Report::failed`].
pub fn check(choice: &Choice, command: String, stop: &Stop, failures: &mut Failures) -> Result<Report> {
    let mut report = list::list(choice, command);
    let Some((driver, info)) = &choice.cuda else {
        let reason = choice.fallback.as_deref().unwrap_or("CUDA was not asked for");
        let name = &choice.adapter.info().name;
        return Err(Error::Unsupported(format!("--check needs CUDA on {name}: {reason}")));
    };
    let context = Cuda::primary(*driver, info)?;
    let desc = DeviceDesc { interop: true, ..DeviceDesc::default() };
    let (_device, mut queue) = choice.adapter.request_device(&desc)?;
    let kernels = ImageKernels::new(&context)?;
    let tried = try_all(&mut report, choice, &mut queue, &kernels, stop);
    report.checked = failures.catch(tried).is_some();
    Ok(report)
}

fn try_all(
    report: &mut Report,
    choice: &Choice,
    queue: &mut Queue,
    kernels: &ImageKernels,
    stop: &Stop,
) -> Result<()> {
    let Report { buffers, images, instead, failed, refused, .. } = report;
    let mut notes = Notes { context: kernels.stream.context(), failed, refused };
    for buffer in buffers.iter_mut().filter(|buffer| buffer.handle.is_some()) {
        let tried = match buffer.kind.as_str() {
            list::DEDICATED => dedicated(queue, &kernels.stream),
            _ => several(queue, &kernels.stream),
        };
        buffer.passed = Some(notes.passed(buffer.full_name(), tried)?.into());
    }
    for object in instead.iter_mut().filter(|object| object.handle.is_some()) {
        let passed = match object.name.as_str() {
            list::DEPTH => notes.passed(object.full_name(), depth_copy(queue, &kernels.stream))?,
            _ => nv12(queue, kernels, &list::planes(&choice.adapter), &mut notes)?,
        };
        object.passed = Some(passed.into());
    }
    let requests = list::requests(&choice.adapter);
    let total = requests.len() as u64;
    let bar = Progress::new("checking");
    for (index, (image, request)) in (0..).zip(images.iter_mut().zip(requests)) {
        bar.at(index, total);
        if stop.requested() {
            return Err(Error::Stopped(format!(
                "stopped after image {index} of {total}; the others are listed but were not tried"
            )));
        }
        if image.handle.is_some() {
            let name = image.full_name();
            let passed = check_image(queue, kernels, &request, index, &name, &mut notes);
            let named = |error| Error::Unsupported(format!("{name}: {error}"));
            image.passed = Some(passed.map_err(named)?);
        }
    }
    Ok(())
}

struct Notes<'a> {
    context: &'a Cuda,
    failed: &'a mut Vec<String>,
    refused: &'a mut Vec<String>,
}

impl Notes<'_> {
    /// Whether a try passed. A driver's refusal is a result. A fault is an error, because nothing works after it, and so is
    /// memory that ran out.
    fn passed(&mut self, name: String, tried: Result<Compared>) -> Result<bool> {
        const OUT_OF_MEMORY: u32 = 2;
        match tried {
            Ok(Ok(())) => return Ok(true),
            Ok(Err(words)) => self.failed.push(format!("{name}: {words}")),
            Err(error @ Error::Cuda { code, .. }) if code != OUT_OF_MEMORY && !self.context.has_faulted() => {
                self.refused.push(format!("{name}: {error}"));
            }
            Err(error) => return Err(error),
        }
        Ok(false)
    }
}

/// Sizes near the alignments of both APIs. None is a multiple of a page.
const SIZES: [u64; 10] = [1, 3, 17, 255, 256, 257, 1000, 4099, 65_537, 1_000_003];

fn dedicated(queue: &mut Queue, stream: &Stream) -> Result<Compared> {
    let size = SIZES[SIZES.len() - 1];
    let shared = SharedBuffer::new(&queue.device().pair(stream.context())?, size, SLOT_USAGE)?;
    round_trips(queue, stream, &[(shared.vulkan(), shared.cuda(), size)])
}

fn several(queue: &mut Queue, stream: &Stream) -> Result<Compared> {
    let pair = queue.device().pair(stream.context())?;
    let shared = ExportedAllocation::new(pair.vk(), &SIZES, SLOT_USAGE)?.share(&pair)?;
    let buffers: Vec<_> =
        shared.iter().map(|buffer| (buffer.vulkan(), buffer.cuda(), buffer.size())).collect();
    round_trips(queue, stream, &buffers)
}

/// Writes and reads buffers from both sides. All are written before the first is read, so that an overlap is found.
fn round_trips(
    queue: &mut Queue,
    stream: &Stream,
    buffers: &[(vk::Buffer, CUdeviceptr, u64)],
) -> Result<Compared> {
    let byte = ArrayFormat::of(vk::Format::R8_UINT)?;
    let noise = |size: u64, seed: u64| pattern::noise(byte, size as usize, seed + size);
    let mut wrong = Vec::new();
    // CUDA writes, Vulkan reads.
    for &(_, pointer, size) in buffers {
        let own = DeviceMemory::new(stream.context(), size)?;
        own.write(stream, &noise(size, 1000))?;
        // SAFETY: the mapping has `size` bytes, and Vulkan is idle.
        unsafe { own.copy_to(stream, pointer) }?;
        stream.synchronize()?;
    }
    for &(buffer, _, size) in buffers {
        // SAFETY: it has this size, and the callers in this module keep it alive.
        let got = unsafe { read_buffer(queue, buffer, size, Owner::External) }?;
        let compared = pattern::compare_bytes(&noise(size, 1000), &got, 1);
        wrong.extend(compared.err().map(|words| format!("{size} bytes by CUDA: {words}")));
    }
    // Vulkan writes, CUDA reads.
    for &(buffer, _, size) in buffers {
        transfer::write_buffer(queue, buffer, &noise(size, 2000))?;
    }
    for &(_, pointer, size) in buffers {
        // SAFETY: the mapping has `size` bytes, and Vulkan is idle.
        let got = unsafe { read_by_cuda(stream, pointer, size) }?;
        let compared = pattern::compare_bytes(&noise(size, 2000), &got, 1);
        wrong.extend(compared.err().map(|words| format!("{size} bytes by Vulkan: {words}")));
    }
    Ok(if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) })
}

/// Copies `size` bytes by CUDA, into its own memory and then to the CPU.
///
/// # Safety
/// `pointer` has `size` bytes, and Vulkan is idle.
unsafe fn read_by_cuda(stream: &Stream, pointer: CUdeviceptr, size: u64) -> Result<Vec<u8>> {
    let own = DeviceMemory::new(stream.context(), size)?;
    // SAFETY: the caller's promise.
    unsafe { own.copy_from(stream, pointer) }?;
    let mut got = vec![0; size as usize];
    own.read(stream, &mut got)?;
    Ok(got)
}

/// The depths to which Vulkan clears an image: none is 0, as new memory may be. Its size is odd, so that a wrong pitch shows.
const DEPTHS: [f32; 4] = [1.0, 0.1, 0.5, 0.987_654];
const DEPTH_EXTENT: vk::Extent2D = vk::Extent2D { width: 37, height: 21 };

/// The bytes of all images of [`DEPTHS`], one after the other.
fn depths() -> Vec<u8> {
    let pixels = (DEPTH_EXTENT.width * DEPTH_EXTENT.height) as usize;
    DEPTHS.iter().flat_map(|depth| depth.to_le_bytes().repeat(pixels)).collect()
}

/// Vulkan copies depth images into a shared buffer, and CUDA reads floats.
fn depth_copy(queue: &mut Queue, stream: &Stream) -> Result<Compared> {
    let want = depths();
    let size = want.len() as u64;
    let shared = SharedBuffer::new(&queue.device().pair(stream.context())?, size, SLOT_USAGE)?;
    transfer::write_depths(queue, shared.vulkan(), DEPTH_EXTENT, &DEPTHS)?;
    // SAFETY: the buffer has `size` bytes, and Vulkan is idle.
    let got = unsafe { read_by_cuda(stream, shared.cuda(), size) }?;
    Ok(pattern::compare_bytes(&want, &got, 4))
}

/// Tries both planes of a picture. Returns whether everything passed.
fn nv12(
    queue: &mut Queue,
    kernels: &ImageKernels,
    planes: &[ImageRequest],
    notes: &mut Notes<'_>,
) -> Result<bool> {
    let mut passed = 0;
    for (seed, plane) in (1_000_000..).zip(planes) {
        let name = format!("NV12 {:?}", plane.format);
        passed += check_image(queue, kernels, plane, seed, &name, notes)?;
    }
    Ok(passed as usize == planes.len())
}

/// Tries everything with one image. Returns the number of levels at which everything passed. An error tells nothing about the
/// image: it is one of Vulkan, memory that ran out, or a kernel that faulted.
fn check_image(
    queue: &mut Queue,
    kernels: &ImageKernels,
    request: &ImageRequest,
    seed: u64,
    name: &str,
    notes: &mut Notes<'_>,
) -> Result<u32> {
    let stream = &kernels.stream;
    let exported = Arc::new(ExportedImage::new(queue.device().sharing()?, request)?);
    transfer::hand_over(queue, &exported)?;
    let mapped = match SharedImage::import(&queue.device().pair(stream.context())?, &exported) {
        Ok(mapped) => mapped,
        Err(error) => return notes.passed(name.to_owned(), Err(error.into())).map(|_| 0),
    };
    let (shape, format) = (exported.shape(), exported.format());
    let texel = format.bytes() as usize;
    // Different bytes in each direction, so that old content cannot pass for what was written.
    let [there, back] = [0, 1].map(|direction| levels(&exported, 2 * seed + direction));
    // For 4 channels of 32 bits: as large as any format, and as what a texture object returns.
    let memory = DeviceMemory::new(stream.context(), (there[0].len() / texel * 16) as u64)?;

    // CUDA writes, Vulkan reads. Every level is written before the first is read, so that an overlap is found.
    let write = |(level, bytes): (u32, &Vec<u8>)| -> Result<()> {
        let surface = mapped.level(level)?.surface()?;
        memory.write(stream, bytes)?;
        kernels.run(&kernels.write, surface.raw(), &memory, &exported, level, &mut [format.bytes()])
    };
    let written: Vec<Result<()>> = (0..).zip(&there).map(write).collect();
    let got = transfer::read_levels(queue, &exported)?;

    // Then Vulkan writes, CUDA reads.
    transfer::write_levels(queue, &exported, &back)?;
    let mut passed = 0;
    for (level, written) in (0..shape.levels()).zip(written) {
        let (want, at) = (&back[level as usize], level as usize);
        let read = || -> Result<Compared> {
            let surface = mapped.level(level)?.surface()?;
            // Zeros first, so that old content cannot pass for what is read.
            let mut bytes = vec![0; want.len()];
            memory.write(stream, &bytes)?;
            kernels.run(&kernels.read, surface.raw(), &memory, &exported, level, &mut [format.bytes()])?;
            memory.read(stream, &mut bytes)?;
            Ok(pattern::compare_bytes(want, &bytes, texel))
        };
        let sample = |linear: bool| -> Result<Compared> {
            let how = TextureDesc { linear, as_integer: !format.filters() };
            let texture = Texture::of_level(&mapped, level, how)?;
            // The texture object has a single level, so the level that the kernel asks for must not matter. Unfiltered
            // reads ask for level 0, like a `tex` without a level; filtered reads ask for the level's number in the chain.
            let lod = if linear { level as f32 } else { 0.0 };
            let got = kernels.sample(&texture, &exported, level, linear, lod, &memory)?;
            let size = shape.level_texels(level);
            Ok(pattern::compare_texture(format, shape.view(), want, size, linear, &got))
        };
        let mut tries = vec![
            ("surface write", written.map(|()| pattern::compare_bytes(&there[at], &got[at], texel))),
            ("surface read", read()),
            ("texture", sample(false)),
        ];
        if format.filters() {
            tries.push(("filtered texture", sample(true)));
        }
        let mut all = true;
        for (what, tried) in tries {
            all &= notes.passed(format!("{name}, level {level}, {what}"), tried)?;
        }
        passed += u32::from(all);
    }
    Ok(passed)
}

fn levels(image: &ExportedImage, seed: u64) -> Vec<Vec<u8>> {
    let noise = |level: u32| {
        let texels = image.shape().level_texels(level).iter().product::<u32>();
        pattern::noise(image.format(), texels as usize, seed * 100 + u64::from(level))
    };
    (0..image.shape().levels()).map(noise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vulkan_cuda::ExportedBuffer;
    use wavefield_engine::{DeviceTable, ProducerKind};
    use wavefield_gpu::vulkan::Validation;

    /// Vulkan's half without CUDA: the copies, the layouts, and the transfers to and from the external queue family.
    #[test]
    fn vulkan_s_half_alone_keeps_every_byte() {
        let table = DeviceTable::headless(Validation::IfInstalled).unwrap();
        let choice = table.choose(None, ProducerKind::Auto).unwrap();
        let log = choice.adapter.instance().validation_log().clone();
        let mut requests = list::requests(&choice.adapter);
        requests.retain(|request| list::image(&choice.adapter, request).handle.is_some());
        if requests.is_empty() {
            println!("skipped: no Vulkan device here exports memory");
            return;
        }
        let desc = DeviceDesc { interop: true, ..DeviceDesc::default() };
        let (device, mut queue) = choice.adapter.request_device(&desc).unwrap();
        for (seed, request) in (0..).zip(&requests) {
            let exported = ExportedImage::new(device.sharing().unwrap(), request).unwrap();
            transfer::hand_over(&mut queue, &exported).unwrap();
            let bytes = levels(&exported, seed);
            transfer::write_levels(&mut queue, &exported, &bytes).unwrap();
            let got = transfer::read_levels(&mut queue, &exported).unwrap();
            for (level, (bytes, got)) in bytes.iter().zip(&got).enumerate() {
                let compared = pattern::compare_bytes(bytes, got, exported.format().bytes() as usize);
                assert_eq!(compared, Ok(()), "{request:?}, level {level}");
            }
        }
        let want = depths();
        let buffer = ExportedBuffer::new(device.sharing().unwrap(), want.len() as u64, SLOT_USAGE).unwrap();
        transfer::write_depths(&mut queue, buffer.raw(), DEPTH_EXTENT, &DEPTHS).unwrap();
        // SAFETY: a live buffer of this size.
        let got = unsafe { read_buffer(&mut queue, buffer.raw(), buffer.size(), Owner::External) }.unwrap();
        assert_eq!(pattern::compare_bytes(&want, &got, 4), Ok(()));
        drop((buffer, queue, device, choice, table));
        log.verdict().unwrap();
        assert_eq!(log.warnings(), 0, "validation warnings");
    }
}
