//! A CubeCL kernel, written in Rust, computes heights with CUDA, and wgpu draws them. Burn runs on the same runtime: take a
//! tensor's handle instead of `heights`.
//!
//! CubeCL neither writes to memory of others nor shows its stream. So one copy, on the GPU, takes each frame to a slot, and
//! events of the whole CUDA context order CubeCL's stream and the ring's. The CPU is at most one frame ahead.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use cubecl::cuda::{CudaDevice, CudaRuntime};
use cubecl::prelude::*;
use cudarc::driver::{result, sys};
use support::{Options, check, draw, judge};
use vulkan_cuda_wgpu::{Gpu, picture};

const SIZE: [u32; 2] = [1024, 1024];
const COUNT: usize = 1 << 20;

/// A swell of parabolas. Every height is a fraction of a power of two, so the check can compare bits.
#[cube(launch)]
fn swell(heights: &mut Array<f32>, cols: u32, frame: u32) {
    if ABSOLUTE_POS < heights.len() {
        let i = ABSOLUTE_POS as u32;
        let phase = i % cols * 4 + i / cols * 2 + frame * 3;
        let t = phase % 256;
        let height = f32::cast_from(t * (256 - t)) / 16384.0;
        heights[ABSOLUTE_POS] = if phase % 512 < 256 { height } else { -height };
    }
}

fn main() -> Result<ExitCode> {
    let options = Options::read("wgpu draws what a CubeCL kernel computes.", "1000");
    let (_instance, adapter) = support::find();
    let gpu = Gpu::open(&adapter, &wgpu::DeviceDescriptor::default())?;
    let client = CudaRuntime::client(&CudaDevice::new(gpu.pair().cuda().info().ordinal as usize));

    let (size, usage) = (4 * COUNT as u64, wgpu::BufferUsages::STORAGE);
    let desc = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
    let slots = (0..3).map(|_| gpu.buffer(&desc)).collect::<Result<_, _>>()?;
    let (stream, event) = (gpu.context().new_stream()?, gpu.context().new_event(None)?);
    let mut ring = gpu.shared_ring(stream.clone(), slots)?;
    let map = draw::Map::new(gpu.device(), SIZE);
    let usage = wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC;
    let target = gpu.device().create_texture(&picture(SIZE.into(), draw::FORMAT, usage));
    let check = check::Check::new(gpu.device(), include_str!("check.wgsl"));

    let (mut before, begin) = (None, Instant::now());
    let heights = client.empty(size as usize);
    for number in 0..options.frames {
        // SAFETY: the buffer has so many elements.
        let argument = unsafe { ArrayArg::from_raw_parts(heights.clone(), COUNT) };
        let (cubes, units) = (CubeCount::Static(COUNT as u32 / 256, 1, 1), CubeDim::new_1d(256));
        swell::launch::<CudaRuntime>(&client, cubes, units, argument, SIZE[0], number);
        let source = client.get_resource(heights.clone())?; // CubeCL has enqueued the kernel by now.
        let Some(turn) = ring.write()? else { continue };
        support::delay(&options, &stream)?;
        // SAFETY: the context and the event are alive. The resource and the slot have `size` bytes, and live until the
        // stream has passed the copy.
        unsafe {
            sys::cuCtxRecordEvent(gpu.context().cu_ctx(), event.cu_event()).result()?; // After the kernel…
            stream.wait(&event)?;
            result::memcpy_dtod_async(
                turn.slot().cuda(),
                source.resource().ptr,
                size as usize,
                stream.cu_stream(),
            )?;
            event.record(&stream)?;
            sys::cuCtxWaitEvent(gpu.context().cu_ctx(), event.cu_event()).result()?; // … and before the next one.
        }
        let frame = turn.finish()?; // CUDA signals, and wgpu's queue waits for it.
        let index = support::submit(&gpu, (&options, &stream), frame, |slot, encoder| {
            map.draw(&gpu, encoder, slot.wgpu(), &target);
            if options.check {
                check.record(&gpu, encoder, slot.wgpu(), [SIZE[0], SIZE[1], number, 0]);
            }
        })?;
        support::wait(&gpu, before.replace(index))?;
    }
    let code = judge(&options, COUNT as u64, check.wrong(&gpu), begin);
    if let Some(path) = &options.output {
        map.save(&gpu, &target, path)?;
    }
    ring.wait_idle(std::time::Duration::from_secs(10))?;
    Ok(code)
}
