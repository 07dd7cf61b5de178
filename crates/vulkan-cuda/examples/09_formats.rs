//! Which images can this GPU share, and does every texel arrive? Tries each format, kind of image and level
//! in both directions.
//!
//! ```sh
//! cargo run -p vulkan-cuda --example 09_formats
//! ```
//!
//! CUDA writes and reads texels through surface objects, Vulkan copies them from and to a shared buffer.

use std::collections::BTreeMap;
use std::error::Error;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use ash::vk;
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use vulkan_cuda::ownership::{Access, Owner, SHARED_LAYOUT, first_release};
use vulkan_cuda::{ArrayFormat, FORMATS, ImageRequest, Shape, SharedBuffer, SharedImage, ViewType, shape};

#[path = "01_match.rs"]
mod match_devices;
#[path = "readback/mod.rs"]
mod readback;

use match_devices::Gpu;

/// View type, sides, layers, and a usage beside copies. The sides are odd, so that a wrong pitch shows.
const KINDS: [(ViewType, [u32; 3], u32, vk::ImageUsageFlags); 8] = [
    (ViewType::D1, [37, 1, 1], 1, vk::ImageUsageFlags::SAMPLED),
    (ViewType::D2, [37, 21, 1], 1, vk::ImageUsageFlags::SAMPLED),
    (ViewType::D3, [19, 11, 7], 1, vk::ImageUsageFlags::SAMPLED),
    (ViewType::Cube, [23, 23, 1], 6, vk::ImageUsageFlags::SAMPLED),
    (ViewType::D1Array, [37, 1, 1], 5, vk::ImageUsageFlags::SAMPLED),
    (ViewType::D2Array, [37, 21, 1], 3, vk::ImageUsageFlags::SAMPLED),
    (ViewType::CubeArray, [23, 23, 1], 12, vk::ImageUsageFlags::SAMPLED),
    (ViewType::D2, [37, 21, 1], 1, vk::ImageUsageFlags::COLOR_ATTACHMENT),
];
/// More than the largest image here has with all its levels.
const BYTES: u64 = 1 << 18;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Bench<'a> {
    gpu: &'a Gpu,
    target: readback::Target,
    stream: Arc<CudaStream>,
    surface_write: CudaFunction,
    surface_read: CudaFunction,
    buffer: SharedBuffer,
    /// The same memory, as CUDA sees it.
    texels: ManuallyDrop<CudaSlice<u8>>,
}

impl<'a> Bench<'a> {
    fn new(gpu: &'a Gpu) -> Result<Self> {
        let module = gpu.cuda.load_module(Ptx::from_src(include_str!("formats/surfaces.ptx")))?;
        let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        let buffer = SharedBuffer::new(&gpu.pair, BYTES, usage)?;
        let stream = gpu.cuda.new_stream()?;
        // SAFETY: the buffer has these bytes and lives as long. It is the shared buffer that frees them.
        let texels = ManuallyDrop::new(unsafe { stream.upgrade_device_ptr(buffer.cuda(), BYTES as usize) });
        Ok(Self {
            gpu,
            target: readback::Target::new(gpu, 4)?,
            surface_write: module.load_function("surface_write")?,
            surface_read: module.load_function("surface_read")?,
            stream,
            buffer,
            texels,
        })
    }

    /// Sends every level through CUDA and back. Returns how many arrived in both directions.
    fn round_trips(&mut self, image: &Arc<SharedImage>, seed: u64) -> Result<u32> {
        let levels = levels(image.exported().shape(), image.exported().format());
        let bytes = levels.last().map_or(0, |last| last.offset + last.bytes);
        let [there, back] = [0, 1].map(|direction| noise(bytes, 2 * seed + direction));
        let raw = image.exported().raw();
        for barrier in first_release(raw, self.gpu.family) {
            self.target.run(self.gpu, |device, commands| barrier_of(device, commands, &[], &[barrier]))?;
        }

        // CUDA writes every level before Vulkan reads the first, so that an overlap is found.
        self.upload(&there)?;
        for level in &levels {
            self.launch(&self.surface_write, image, level)?;
        }
        // Zeros first, so that old bytes cannot pass for new ones.
        self.upload(&vec![0; bytes])?;
        self.copy(image, &levels, false)?;
        let by_cuda = self.download(bytes)?;

        self.upload(&back)?;
        self.copy(image, &levels, true)?;
        self.upload(&vec![0; bytes])?;
        for level in &levels {
            self.launch(&self.surface_read, image, level)?;
        }
        let by_vulkan = self.download(bytes)?;

        let arrived = |level: &&Level| {
            let place = level.offset..level.offset + level.bytes;
            there[place.clone()] == by_cuda[place.clone()] && back[place.clone()] == by_vulkan[place]
        };
        Ok(levels.iter().filter(arrived).count() as u32)
    }

    fn upload(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.memcpy_htod(bytes, &mut self.texels.slice_mut(..bytes.len()))?;
        Ok(self.stream.synchronize()?)
    }

    fn download(&self, bytes: usize) -> Result<Vec<u8>> {
        let got = self.stream.clone_dtoh(&self.texels.slice(..bytes))?;
        self.stream.synchronize()?;
        Ok(got)
    }

    /// Runs a kernel of `formats/surfaces.cu` for all texels of a level, and waits.
    fn launch(&self, kernel: &CudaFunction, image: &Arc<SharedImage>, level: &Level) -> Result<()> {
        let surface = image.level(level.index)?.surface()?;
        let address = self.buffer.cuda() + level.offset as u64;
        let view = image.exported().shape().view().vulkan().as_raw();
        let [width, height, depth] = level.texels;
        let (object, texel) = (surface.raw(), image.exported().format().bytes());
        let mut launch = self.stream.launch_builder(kernel);
        launch.arg(&object).arg(&address).arg(&view).arg(&width).arg(&height).arg(&depth).arg(&texel);
        // SAFETY: the kernel's parameters; surface and buffer have this many texels, and live until the wait.
        unsafe { launch.launch(LaunchConfig::for_num_elems(width * height * depth)) }?;
        Ok(self.stream.synchronize()?)
    }

    /// Copies all levels from the buffer to the image or back. CUDA owns both before and after.
    fn copy(&self, image: &Arc<SharedImage>, levels: &[Level], to_image: bool) -> Result<()> {
        let (raw, buffer, family) = (image.exported().raw(), self.buffer.vulkan(), self.gpu.family);
        let shape = image.exported().shape();
        let layers = vk::ImageSubresourceLayers::default().aspect_mask(vk::ImageAspectFlags::COLOR);
        let layers = layers.layer_count(shape.layers());
        let region = |level: &Level| {
            vk::BufferImageCopy::default()
                .buffer_offset(level.offset as u64)
                .image_subresource(layers.mip_level(level.index))
                .image_extent(shape.level_extent(level.index))
        };
        let regions: Vec<_> = levels.iter().map(region).collect();
        let access = vk::AccessFlags2::TRANSFER_READ | vk::AccessFlags2::TRANSFER_WRITE;
        let copies = Access { stage: vk::PipelineStageFlags2::ALL_TRANSFER, access };
        let acquire = [Owner::External.acquire(buffer, family, copies)];
        let release = [Owner::External.release(buffer, family, copies)];
        let acquire_image = [Owner::External.acquire_image(raw, family, copies)];
        let release_image = [Owner::External.release_image(raw, family, copies)];
        Ok(self.target.run(self.gpu, |device, commands| {
            barrier_of(device, commands, &acquire, &acquire_image);
            // SAFETY: being recorded; the image has these levels, and the buffer their bytes.
            unsafe {
                match to_image {
                    true => device.cmd_copy_buffer_to_image(commands, buffer, raw, SHARED_LAYOUT, &regions),
                    false => device.cmd_copy_image_to_buffer(commands, raw, SHARED_LAYOUT, buffer, &regions),
                }
            }
            barrier_of(device, commands, &release, &release_image);
        })?)
    }
}

fn barrier_of(
    device: &ash::Device,
    commands: vk::CommandBuffer,
    buffers: &[vk::BufferMemoryBarrier2<'_>],
    images: &[vk::ImageMemoryBarrier2<'_>],
) {
    let barriers =
        vk::DependencyInfo::default().buffer_memory_barriers(buffers).image_memory_barriers(images);
    // SAFETY: being recorded; what the barriers name lives until the queue is idle.
    unsafe { device.cmd_pipeline_barrier2(commands, &barriers) };
}

/// Where a level's texels lie in the buffer.
struct Level {
    index: u32,
    texels: [u32; 3],
    offset: usize,
    bytes: usize,
}

fn levels(shape: Shape, format: ArrayFormat) -> Vec<Level> {
    let mut offset = 0;
    let level = |index| {
        let texels = shape.level_texels(index);
        let bytes = texels.iter().product::<u32>() as usize * format.bytes() as usize;
        let level = Level { index, texels, offset, bytes };
        // A multiple of every texel's size, as a copy needs.
        offset += bytes.next_multiple_of(16);
        level
    };
    (0..shape.levels()).map(level).collect()
}

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let next = |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    std::iter::successors(Some(seed + 1), next).skip(8).take(bytes).map(|state| (state >> 56) as u8).collect()
}

pub fn run() -> Result<()> {
    let gpu = match_devices::open()?;
    let mut bench = Bench::new(&gpu)?;
    let heads = KINDS.map(|(view, .., usage)| match usage {
        vk::ImageUsageFlags::SAMPLED => format!("{:>11}", view.name()),
        _ => format!("{:>11}", "drawn on"),
    });
    println!("{:24}{}", "format", heads.concat());
    let (mut seed, mut wrong, mut refused) = (0, 0, BTreeMap::<String, Vec<String>>::new());
    for format in FORMATS.map(|format| format.vulkan) {
        let mut line = format!("{:24}", format!("{format:?}"));
        for (view, [width, height, depth], layers, usage) in KINDS {
            let extent = vk::Extent3D { width, height, depth };
            let shape = Shape::new(view, extent, layers, shape::full_chain(extent))?;
            let usage = usage | vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST;
            let request = ImageRequest { shape, format, usage, surface: true };
            let cell = match SharedImage::new(&gpu.pair, &request) {
                Ok(image) => {
                    seed += 1;
                    let arrived = bench.round_trips(&image, seed)?;
                    wrong += shape.levels() - arrived;
                    format!("{arrived}/{}", shape.levels())
                }
                Err(error) => {
                    refused.entry(error.to_string()).or_default().push(format!("{format:?} {}", view.name()));
                    "-".to_owned()
                }
            };
            line += &format!("{cell:>11}");
        }
        println!("{line}");
    }
    println!(
        "n/m: n of m levels arrived, written by CUDA and by Vulkan; -: this GPU does not share such an image"
    );
    refused.iter().for_each(|(reason, images)| println!("{}: {reason}", images.join("; ")));
    match wrong {
        0 => Ok(()),
        levels => Err(format!("{levels} levels did not arrive as they were written").into()),
    }
}

#[allow(dead_code)]
fn main() -> Result<()> {
    match_devices::report(run())
}
