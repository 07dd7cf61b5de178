//! A render loop for learning: wgpu draws pictures without a window, and a CUDA kernel looks at each of them
//! where it is. The kernel finds the disc that was drawn; in your program it is a network. Prints a table of
//! what that costs.

mod scene;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DevicePtr, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use vulkan_cuda_wgpu::{Gpu, RingToCuda, WgpuTexture, vulkan_cuda};

use scene::Scene;

const HELP: &str = "\
A headless renderer hands its pictures to a CUDA kernel, without copies, and prints what that costs.

Usage: wavefield-render-to-cuda-example [--frames N]

  --frames N    Frames in a measurement [default: 2000]

Exit codes: 0 done, or skipped because no GPU is shared; 1 failed; 2 wrong arguments.
With WAVEFIELD_REQUIRE_GPU=1 it fails instead of skipping.
";
const SIZES: [(u32, u32); 2] = [(84, 84), (1280, 720)];
/// How many measurements there are of each kind. The table has their median.
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let frames = match (arguments.next().as_deref(), arguments.next(), arguments.next()) {
        (None, ..) => Some(2000),
        (Some("--help" | "-h"), None, None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        (Some("--frames"), Some(count), None) => {
            count.parse().ok().filter(|count| (1..=1 << 20).contains(count))
        }
        _ => None,
    };
    let Some(frames) = frames else {
        eprintln!("error: the arguments are wrong\n\n{HELP}");
        return ExitCode::from(2);
    };
    match run(frames) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(frames: u32) -> Result<()> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu::Backends::VULKAN,
        ..wgpu::InstanceDescriptor::new_without_display_handle_from_env()
    });
    let adapter = match pollster::block_on(vulkan_cuda_wgpu::find(&instance)) {
        Ok(adapter) => adapter,
        Err(error) if error.is_unavailable() && !is_required() => {
            println!("skipped: {error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let gpu = Gpu::open(&adapter, &wgpu::DeviceDescriptor::default())?;
    let driver = vulkan_cuda::Driver::load()?.version();
    println!("{}, CUDA {driver}, {frames} frames, median of {ROUNDS}", gpu.pair().vk().info().name);
    println!("picture    slots  frames/s  µs a frame  draws  looks  hand-off");
    for size in SIZES {
        let scene = Scene::new(gpu.device(), size);
        let eyes = Eyes::new(&gpu, size, frames)?;
        let draws = median(|| scene.draw_alone(&gpu, frames))?;
        let looks = median(|| eyes.look_alone(&gpu, &scene))?;
        for slots in [1, 8] {
            let whole = median(|| hand_over(&gpu, &scene, &eyes, slots))?;
            println!(
                "{:<9}  {slots:>5}  {:>8.0}  {whole:>10.1}  {draws:>5.1}  {looks:>5.1}  {:>8.1}",
                format!("{}x{}", size.0, size.1),
                1e6 / whole,
                whole - draws - looks
            );
        }
    }
    println!("every disc was seen where it was drawn");
    Ok(())
}

fn is_required() -> bool {
    std::env::var_os("WAVEFIELD_REQUIRE_GPU").is_some_and(|value| value == "1")
}

/// The median of several measurements.
fn median(mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut times = (0..ROUNDS).map(|_| measure()).collect::<Result<Vec<_>>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[ROUNDS / 2])
}

/// Pictures go from wgpu to CUDA through a ring, in batches of all its slots: wgpu draws the batch, then CUDA
/// looks at it. Returns the µs of a frame.
fn hand_over(gpu: &Gpu, scene: &Scene, eyes: &Eyes, slots: usize) -> Result<f64> {
    let pictures = (0..slots).map(|_| gpu.texture(&scene.picture())).collect::<Result<_, _>>()?;
    let mut ring: RingToCuda<WgpuTexture> = gpu.ring_to_cuda(eyes.stream.clone(), pictures)?;
    let mut sums = eyes.stream.alloc_zeros::<u64>(3 * eyes.frames as usize)?;
    let (mut drawn, mut last) = (0, None);
    let begin = Instant::now();
    while drawn < eyes.frames {
        let count = slots.min((eyes.frames - drawn) as usize);
        // ANCHOR: batch
        // wgpu's queue waits, on the GPU, until CUDA has looked at the batch before.
        let begun = ring.write_batch(count, |turn| {
            let (frame, index) = (turn.frame() as u32, turn.index());
            drawn = frame + 1;
            let now = gpu.submit(turn, |slot, encoder| scene.draw(encoder, slot.wgpu(), frame))?;
            let before = last.replace(now);
            // The CPU is at most one batch ahead of the GPU.
            if index == 0 { scene.wait(gpu, before) } else { Ok(()) }
        })?;
        ensure!(begun, "CUDA was asked to look at every frame");
        while let Some(turn) = ring.next_read()? {
            eyes.look(turn.slot(), turn.frame() as u32, &mut sums)?;
            turn.finish_after_kernels()?; // CUDA signals.
        }
        // ANCHOR_END: batch
    }
    let seen = eyes.stream.clone_dtoh(&sums)?;
    eyes.stream.synchronize()?;
    let seconds = begin.elapsed().as_secs_f64();
    scene.wait(gpu, last)?; // CUDA has waited for it, but wgpu does not know.
    for (frame, sums) in (0..).zip(seen.chunks(3)) {
        let [red, x, y] = [sums[0], sums[1], sums[2]].map(|sum| sum as f64);
        let (centre, seen) = (scene.centre(frame), [x / red + 0.5, y / red + 0.5]);
        let near = centre.iter().zip(seen).all(|(centre, seen)| (centre - seen).abs() < 0.5);
        ensure!(near, "frame {frame}: the disc was drawn at {centre:.1?} and seen at {seen:.1?}");
    }
    Ok(seconds * 1e6 / f64::from(eyes.frames))
}

/// CUDA's part: the kernel that looks at pictures.
struct Eyes {
    stream: Arc<CudaStream>,
    kernel: CudaFunction,
    size: (u32, u32),
    frames: u32,
}

impl Eyes {
    fn new(gpu: &Gpu, size: (u32, u32), frames: u32) -> Result<Self> {
        let module = gpu.context().load_module(Ptx::from_src(include_str!("look.ptx")));
        let kernel = module.context("the driver refused the PTX")?.load_function("look")?;
        Ok(Self { stream: gpu.context().new_stream()?, kernel, size, frames })
    }

    /// Enqueues a look at the picture of this frame.
    fn look(&self, picture: &WgpuTexture, frame: u32, sums: &mut CudaSlice<u64>) -> Result<()> {
        let (cols, rows) = self.size;
        let surface = picture.surface().raw();
        let (first, _record) = sums.device_ptr(&self.stream);
        let sums = first + 24 * u64::from(frame);
        let mut launch = self.stream.launch_builder(&self.kernel);
        launch.arg(&surface).arg(&cols).arg(&rows).arg(&sums);
        // SAFETY: these are the kernel's parameters. The picture has this size, and is the stream's in its
        // turn. The sums have a place for this frame.
        unsafe { launch.launch(LaunchConfig::for_num_elems(cols * rows)) }?;
        Ok(())
    }

    /// Looks at one picture again and again. Returns the µs of a look.
    fn look_alone(&self, gpu: &Gpu, scene: &Scene) -> Result<f64> {
        let mut ring = gpu.ring_to_cuda(self.stream.clone(), vec![gpu.texture(&scene.picture())?])?;
        let written = ring.write().context("the ring is new")?;
        gpu.submit(written, |slot, encoder| scene.draw(encoder, slot.wgpu(), 0))?;
        let turn = ring.next_read()?.context("a frame was submitted")?;
        let mut sums = self.stream.alloc_zeros::<u64>(3 * self.frames as usize)?;
        self.stream.synchronize()?;
        let begin = Instant::now();
        for frame in 0..self.frames {
            self.look(turn.slot(), frame, &mut sums)?;
        }
        self.stream.synchronize()?;
        let seconds = begin.elapsed().as_secs_f64();
        turn.finish_after_kernels()?;
        Ok(seconds * 1e6 / f64::from(self.frames))
    }
}
