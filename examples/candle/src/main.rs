//! A model of candle computes heights, wgpu draws them, and the picture comes back as a tensor. The rings are on candle's own
//! stream, so its kernels need no other order. The CPU waits only to be at most one frame ahead.
//!
//! Each frame is copied on the GPU: from the model's tensor to a slot, because candle's operations write only to memory of
//! their own; from wgpu's picture to the slot of the way back; and from there to a tensor, because an image's texels are not
//! in a tensor's order.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use candle_core::op::BackpropOp;
use candle_core::{CudaDevice, CudaStorage, DType, Device, Storage, Tensor};
use cudarc::driver::DevicePtrMut;
use support::{Options, draw, judge};
use vulkan_cuda_wgpu::{Gpu, WgpuTexture, picture};

const COLS: usize = 512;
const ROWS: usize = 512;

/// Two hidden layers, with weights from candle's random numbers. It maps x, y and the time to a height.
struct Model {
    inputs: Tensor,
    weights: [Tensor; 3],
}

impl Model {
    fn new(device: &Device) -> candle_core::Result<Self> {
        let weight = |shape, scale| Tensor::randn(0f32, scale, shape, device);
        let at = |i: usize, count: usize| 2.0 * i as f32 / count as f32 - 1.0;
        let inputs = (0..ROWS * COLS).flat_map(|i| [at(i % COLS, COLS), at(i / COLS, ROWS), 1.0]);
        let inputs = Tensor::from_iter(inputs, device)?.reshape((ROWS * COLS, 3))?;
        Ok(Self { inputs, weights: [weight((3, 32), 2.0)?, weight((32, 32), 0.5)?, weight((32, 1), 0.3)?] })
    }

    fn heights(&self, time: f32) -> candle_core::Result<Tensor> {
        let now = Tensor::new(&[[1.0, 1.0, time]], self.inputs.device())?;
        let [first, second, last] = &self.weights;
        let hidden = self.inputs.broadcast_mul(&now)?.matmul(first)?.sin()?;
        hidden.matmul(second)?.sin()?.matmul(last)?.tanh()?.flatten_all()
    }
}

fn main() -> Result<ExitCode> {
    let options =
        Options::read("wgpu draws a candle tensor, and the picture comes back as a tensor.", "1000");
    let (_instance, adapter) = support::find();
    let gpu = Gpu::open(&adapter, &wgpu::DeviceDescriptor::default())?;
    // `Device::new_cuda` would use CUDA's per-thread default stream, on which no ring can be.
    let device = Device::new_cuda_with_stream(gpu.pair().cuda().info().ordinal as usize)?;
    let candle = device.as_cuda_device()?;
    let model = Model::new(&device)?;

    let size = [COLS as u32, ROWS as u32];
    let (bytes, usage) = (4 * (COLS * ROWS) as u64, wgpu::BufferUsages::STORAGE);
    let desc = wgpu::BufferDescriptor { label: None, size: bytes, usage, mapped_at_creation: false };
    let slots = (0..3).map(|_| gpu.buffer(&desc)).collect::<Result<_, _>>()?;
    let mut to_wgpu = gpu.shared_ring(candle.cuda_stream(), slots)?;
    let usage = wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC;
    let shown = gpu.device().create_texture(&picture(size.into(), draw::FORMAT, usage));
    let desc = picture(size.into(), draw::FORMAT, wgpu::TextureUsages::COPY_DST);
    let slots = (0..3).map(|_| gpu.texture(&desc)).collect::<Result<_, _>>()?;
    let mut to_candle = gpu.ring_to_cuda(candle.cuda_stream(), slots)?;
    let map = draw::Map::new(gpu.device(), size);

    let (mut wrong, mut before) = (Tensor::zeros((), DType::F64, &device)?, None);
    let begin = Instant::now();
    for number in 0..options.frames {
        let heights = model.heights(number as f32 * 0.02)?;
        let turn = to_wgpu.write()?.context("each frame is submitted before the next one")?;
        let stream = support::delay(&options, turn.stream())?;
        {
            // `heights` is the whole of its storage, in order. For others call `force_contiguous` before.
            let (storage, _) = heights.storage_and_layout();
            let Storage::Cuda(storage) = &*storage else { anyhow::bail!("the model runs on the GPU") };
            turn.stream().memcpy_dtod(storage.as_cuda_slice::<f32>()?, &mut turn.view::<f32>()?)?;
        }
        let frame = turn.finish()?; // CUDA signals, and wgpu's queue waits for it.
        support::submit(&gpu, (&options, &stream), frame, |slot, encoder| {
            map.draw(&gpu, encoder, slot.wgpu(), &shown)
        })?;

        let turn = to_candle.write().context("each picture is read before the next one")?;
        let index = gpu.submit(turn, |slot, encoder| {
            encoder.copy_texture_to_texture(shown.as_image_copy(), slot.wgpu().as_image_copy(), shown.size());
        })?;
        let turn = to_candle.next_read()?.context("a picture was submitted")?;
        let picture = tensor(turn.slot(), candle)?;
        turn.finish()?;
        if options.check {
            // The model's next layer would be here. The alpha of a pixel is its height.
            let alpha = picture.narrow(2, 3, 1)?.flatten_all()?;
            wrong = (wrong + alpha.ne(&heights)?.to_dtype(DType::F64)?.sum_all()?)?;
        }
        support::wait(&gpu, before.replace(index))?;
    }
    let wrong = wrong.to_scalar::<f64>()? as u64;
    let code = judge(&options, (COLS * ROWS) as u64, wrong, begin);
    if let Some(path) = &options.output {
        map.save(&gpu, &shown, path)?;
    }
    to_wgpu.wait_idle(Duration::from_secs(10))?;
    to_candle.wait_idle(Duration::from_secs(10))?;
    Ok(code)
}

/// Enqueues a copy of the picture, and returns it as a tensor of rows, columns and channels.
fn tensor(texture: &WgpuTexture, device: &CudaDevice) -> Result<Tensor> {
    let stream = device.cuda_stream();
    // SAFETY: the copy writes all of it.
    let mut slice = unsafe { device.alloc::<f32>(4 * COLS * ROWS) }?;
    {
        let (to, _record) = slice.device_ptr_mut(&stream);
        let row = 16 * COLS;
        // SAFETY: the picture is the stream's in its turn, and both have this size.
        unsafe { texture.image().level(0)?.copy_to(&stream, to, row, [row, ROWS]) }?;
    }
    let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(slice, device.clone()));
    Ok(Tensor::from_storage(storage, (ROWS, COLS, 4), BackpropOp::none(), false))
}
