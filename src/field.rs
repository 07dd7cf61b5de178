//! The field in CUDA: the kernel, the slots that Vulkan shares, and the ring that hands them over.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ash::vk;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use vulkan_cuda::shared_ring::QueueUse;
use vulkan_cuda::{Cuda, CudaInfo, CudaTurn, Error, Pair, SharedBuffer, SharedRing, Vk};

use crate::gpu::{Gpu, PATIENCE};

const KERNEL: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/wave.ptx"));
const THREADS: u32 = 256;

pub struct Field {
    // Dropped first: the ring waits until the stream has finished the kernels.
    pub ring: SharedRing<SharedBuffer>,
    pub wave: Wave,
    stream: Arc<CudaStream>,
    pair: Pair,
    reader: QueueUse,
}

/// The kernel, and how it is launched.
pub struct Wave {
    kernel: CudaFunction,
    /// Columns and rows of vertices.
    pub grid: [u32; 2],
    /// One thread for each vertex.
    config: LaunchConfig,
    device: String,
}

/// x, y, z, and the position in the colour map.
type Vertex = [f32; 4];

/// `struct Parameters` of the kernel: amplitude and frequency.
const PARAMETERS: [f32; 2] = [1.0, 1.0];

impl Wave {
    // ANCHOR: launch
    /// Launches the kernel, which writes the slot of `write`: the field at `time`, in seconds.
    pub fn launch(&self, write: &CudaTurn<'_, SharedBuffer>, time: f64) -> Result<()> {
        let (mut vertices, number, [cols, rows]) = (write.view::<Vertex>()?, write.frame(), self.grid);
        let mut launch = write.stream().launch_builder(&self.kernel);
        launch.arg(&mut vertices).arg(&cols).arg(&rows).arg(&number).arg(&time).arg(&PARAMETERS);
        // SAFETY: the arguments match those of `wave` in kernels/wave.cu, which writes only the slot.
        unsafe { launch.launch(self.config) }.map_err(failed("cuLaunchKernel", &self.device)).map(drop)
    }
    // ANCHOR_END: launch
}

impl Field {
    /// Loads the kernel, and creates a ring with `slots` slots: CUDA may be so many frames ahead of Vulkan.
    /// `device` must be the same GPU as `gpu`.
    pub fn new(gpu: &Arc<Gpu>, device: &CudaInfo, grid: [u32; 2], slots: usize) -> Result<Self> {
        let failed = |call| failed(call, &device.name);
        // cudarc uses the driver library that `vulkan-cuda` has loaded.
        let context =
            CudaContext::new(device.ordinal as usize).map_err(failed("cuDevicePrimaryCtxRetain"))?;
        let module = context.load_module(Ptx::from_src(KERNEL)).map_err(failed("cuModuleLoadData"))?;
        let kernel = module.load_function("wave").map_err(failed("cuModuleGetFunction"))?;
        let stream = context.new_stream().map_err(failed("cuStreamCreate"))?;

        // ANCHOR: pair
        let (instance, raw) = (gpu.instance.raw.clone(), gpu.device.clone());
        let owner: Arc<dyn Any + Send + Sync> = gpu.clone(); // keeps the device alive
        // SAFETY: the three handles belong together, and live as long as `owner`, which also has the feature
        // timelineSemaphore.
        let vk = unsafe { Vk::from_raw(instance, gpu.physical, raw, owner) }?;
        // This fails if the two devices are not the same GPU.
        let pair = Pair::new(vk, Cuda::from_cudarc(&context)?)?;
        // ANCHOR_END: pair

        // The shaders of `draw` read the slots.
        let reader = QueueUse {
            family: gpu.family,
            stage: vk::PipelineStageFlags::VERTEX_SHADER | vk::PipelineStageFlags::FRAGMENT_SHADER,
            access: vk::AccessFlags::SHADER_READ,
        };
        // ANCHOR: ring
        let slots = (0..slots).map(|_| slot(&pair, grid)).collect::<Result<_>>()?;
        // Creates `ready` and `free`: vkCreateSemaphore, vkGetSemaphoreFdKHR, cuImportExternalSemaphore.
        let ring = SharedRing::new(&pair, stream.clone(), slots, reader)?;
        // ANCHOR_END: ring
        let blocks = (grid[0] * grid[1]).div_ceil(THREADS);
        let config =
            LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 };
        let wave = Wave { kernel, grid, config, device: device.name.clone() };
        Ok(Self { ring, wave, stream, pair, reader })
    }

    /// Changes the number of slots. Waits for the GPU.
    pub fn with_slots(self, count: usize) -> Result<Self> {
        let mut slots = self.ring.into_slots(PATIENCE)?;
        slots.truncate(count);
        while slots.len() < count {
            slots.push(slot(&self.pair, self.wave.grid)?);
        }
        let ring = SharedRing::new(&self.pair, self.stream.clone(), slots, self.reader)?;
        Ok(Self { ring, ..self })
    }

    /// Blocks the CPU until CUDA is done, for `--cpu-sync`. Polls, because that is the fastest wait.
    pub fn wait_for_cuda(&self) -> Result<()> {
        let failed = |call| failed(call, &self.pair.cuda().info().name);
        let event = self.stream.record_event(None).map_err(failed("cuEventRecord"))?;
        let began = Instant::now();
        while !event.try_is_complete().map_err(failed("cuEventQuery"))? {
            if began.elapsed() > PATIENCE {
                bail!("CUDA did not finish in {PATIENCE:?}: {}", self.ring.progress()?);
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Measures the kernel alone. The GPU must be idle. Returns `None` if the next slot is still to be drawn.
    pub fn kernel_time(&mut self) -> Result<Option<Duration>> {
        const LAUNCHES: u32 = 50;
        let Some(write) = self.ring.write()? else { return Ok(None) };
        let began = Instant::now();
        for _ in 0..LAUNCHES {
            self.wave.launch(&write, 0.0)?;
        }
        // Without `finish`, nothing is handed over, and the next write takes the same slot.
        drop(write);
        self.wait_for_cuda()?;
        Ok(Some(began.elapsed() / LAUNCHES))
    }
}

// ANCHOR: slot
fn slot(pair: &Pair, [cols, rows]: [u32; 2]) -> Result<SharedBuffer> {
    let size = u64::from(cols) * u64::from(rows) * size_of::<Vertex>() as u64;
    // One allocation with an address in each API: vkAllocateMemory, vkGetMemoryFdKHR; cuImportExternalMemory,
    // cuExternalMemoryGetMappedBuffer.
    Ok(SharedBuffer::new(pair, size, vk::BufferUsageFlags::STORAGE_BUFFER)?)
}
// ANCHOR_END: slot

/// Returns a function for `map_err` that adds the call and the device to a cudarc error.
fn failed(call: &'static str, device: &str) -> impl Fn(DriverError) -> anyhow::Error {
    move |error| Error::from_cudarc(call, device, error).into()
}
