//! The recipe: wgpu reads what a CUDA kernel writes, without a copy. Seven steps, in order.

mod give_back;
pub mod texture;

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use ash::vk::{self, AccessFlags as Access, PipelineStageFlags as Stage};
use cudarc::driver::{CudaContext, CudaStream};
use vulkan_cuda::shared_ring::{QueueUse, SharedRing, Slot};
use vulkan_cuda::{Cuda, CudaInfo, Driver, Pair, SharedBuffer, Vk, VkInfo, find_twin};
use wgpu::hal::vulkan::{Api, Buffer, CreateDeviceCallbackArgs};
use wgpu::{BufferUsages, CommandBuffer, CommandEncoder};

/// wgpu's device and CUDA's stream, on one GPU.
pub struct Gpu {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub stream: Arc<CudaStream>,
    pub pair: Pair,
}

/// Step 1: finds the first of wgpu's adapters that is also a CUDA device, by its UUID. The error says why there is none.
pub fn find(instance: &wgpu::Instance) -> Result<(wgpu::Adapter, VkInfo, CudaInfo)> {
    let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN));
    let devices = Driver::load()?.devices()?; // Without a driver cudarc would panic.
    let mut reason = anyhow!("there is no Vulkan device");
    for adapter in adapters {
        // SAFETY: nothing is destroyed, and the physical device belongs to this instance.
        let info = unsafe {
            let raw = adapter.as_hal::<Api>().expect(VULKAN);
            VkInfo::query(raw.shared_instance().raw_instance(), raw.raw_physical_device())?
        };
        match find_twin(&info, &devices) {
            Ok(twin) => return Ok((adapter, info, twin.clone())),
            Err(mismatch) => reason = anyhow!("{}: {mismatch}", info.name),
        }
    }
    Err(reason)
}

/// Steps 2 and 3: opens wgpu's device with the extensions for sharing, and pairs it with CUDA's context.
pub fn open(adapter: &wgpu::Adapter, info: &VkInfo, twin: &CudaInfo) -> Result<Gpu> {
    let desc = wgpu::DeviceDescriptor { required_limits: adapter.limits(), ..Default::default() };
    // wgpu itself enables timelines and the export of memory, but not the export of semaphores.
    let extend = |args: CreateDeviceCallbackArgs| {
        let missing: Vec<_> = info.extensions().filter(|name| !args.extensions.contains(name)).collect();
        args.extensions.extend(missing);
    };
    // SAFETY: `Vk` keeps `device` alive. wgpu enables timelines.
    let (device, queue, vk) = unsafe {
        let raw = adapter.as_hal::<Api>().expect(VULKAN);
        let (features, limits) = (desc.required_features, &desc.required_limits);
        let opened = raw.open_with_callback(features, limits, &desc.memory_hints, Some(Box::new(extend)))?;
        let instance = raw.shared_instance().raw_instance().clone();
        let (physical, logical) = (raw.raw_physical_device(), opened.device.raw_device().clone());
        let (device, queue) = adapter.create_device_from_hal(opened, &desc)?;
        let vk = Vk::from_raw(instance, physical, logical, Arc::new(device.clone()))?;
        (device, queue, vk)
    };
    let context = CudaContext::new(twin.ordinal as usize)?;
    let (stream, pair) = (context.new_stream()?, Pair::new(vk, Cuda::from_cudarc(&context)?)?);
    Ok(Gpu { device, queue, stream, pair })
}

/// Three slots that CUDA writes and any wgpu command may read, frame by frame. Drop bind groups made from [`Frames::slots`] first.
pub struct Frames<'a, S: Slot, W> {
    pub slots: Vec<W>,
    ring: SharedRing<S>,
    /// Each of wgpu's buffers and textures holds a clone until wgpu and the GPU have finished with it.
    lent: Arc<()>,
    /// Returns a slot to the state in which CUDA left it.
    restore: fn(&W, &mut CommandEncoder),
    gpu: &'a Gpu,
}

/// Step 4, for buffers ([`texture`]: for textures). wgpu borrows them. If it owned them, each would keep its device alive.
pub fn buffers(gpu: &Gpu, size: u64) -> Result<Frames<'_, SharedBuffer, wgpu::Buffer>> {
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER | vk::BufferUsageFlags::VERTEX_BUFFER;
    let shared = (0..3).map(|_| SharedBuffer::new(&gpu.pair, size, usage)).collect::<Result<_, _>>()?;
    let usage = BufferUsages::STORAGE | BufferUsages::VERTEX;
    let desc = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
    // SAFETY: this device's buffer, with this size and usage. It lives until `lent` is dropped.
    let lend = |buffer: &SharedBuffer, lent: Arc<()>| unsafe {
        let raw = Buffer::from_raw_externally_owned(buffer.vulkan(), Box::new(move || drop(lent)));
        gpu.device.create_buffer_from_hal::<Api>(raw, &desc)
    };
    Frames::new(gpu, shared, lend, |_, _| ())
}

impl<'a, S: Slot, W> Frames<'a, S, W> {
    pub fn new(
        gpu: &'a Gpu,
        shared: Vec<S>,
        lend: impl Fn(&S, Arc<()>) -> W,
        restore: fn(&W, &mut CommandEncoder),
    ) -> Result<Self> {
        let reader = QueueUse { family: 0, stage: Stage::ALL_COMMANDS, access: Access::MEMORY_READ };
        let ring = SharedRing::new(&gpu.pair, gpu.stream.clone(), shared, reader)?;
        // SAFETY: (and below) records only barriers, outside a pass, for wgpu's only queue, which is of family 0.
        let release = |commands| {
            unsafe { ring.record_first_release(commands) };
            Ok(())
        };
        gpu.queue.submit([raw(gpu, release)?]);
        gpu.device.poll(wgpu::PollType::wait_indefinitely())?;
        let lent = Arc::new(());
        let slots = ring.slots().iter().map(|slot| lend(slot, lent.clone())).collect();
        Ok(Self { slots, ring, lent, restore, gpu })
    }

    /// Steps 5 to 7: `write` launches the kernel, `read` records wgpu's work on the slot. `wait` can be left out as a test.
    pub fn frame(
        &mut self,
        wait: bool,
        write: impl FnOnce(&S, u64) -> Result<()>,
        read: impl FnOnce(usize, &mut CommandEncoder),
    ) -> Result<wgpu::SubmissionIndex> {
        // CUDA waits, on the GPU, until wgpu has read the slot.
        let turn = self.ring.write()?.context("each frame is submitted before the next one begins")?;
        write(turn.slot(), turn.frame())?;
        let frame = turn.finish_after_kernels()?; // CUDA signals.
        let slot = frame.index();
        // Three encoders, because wgpu's commands and raw commands cannot share one.
        let acquire = raw(self.gpu, |commands| unsafe { self.ring.record_acquire(slot, commands) })?;
        let mut work = self.gpu.device.create_command_encoder(&Default::default());
        read(slot, &mut work);
        (self.restore)(&self.slots[slot], &mut work);
        let release = raw(self.gpu, |commands| unsafe { self.ring.record_release(slot, commands) })?;
        let commands = [acquire, work.finish(), release];
        // ANCHOR: submit
        let submit = |ready: vk::SemaphoreSubmitInfo, free: vk::SemaphoreSubmitInfo| {
            // SAFETY: the queue is not destroyed.
            let queue = unsafe { self.gpu.queue.as_hal::<Api>() }.expect(VULKAN);
            // The next submission, from any code, takes these two, so submit immediately.
            if wait {
                queue.add_wait_semaphore(ready.semaphore, Some(ready.value), Stage::ALL_COMMANDS);
            }
            queue.add_signal_semaphore(free.semaphore, Some(free.value));
            drop(queue);
            anyhow::Ok(self.gpu.queue.submit(commands))
        };
        // SAFETY: makes one submission, to wgpu's only queue.
        let index = unsafe { frame.submit(submit) }??;
        // ANCHOR_END: submit
        Ok(index)
    }
}

/// Records a command buffer of raw commands.
fn raw(
    gpu: &Gpu,
    record: impl FnOnce(vk::CommandBuffer) -> vulkan_cuda::Result<()>,
) -> Result<CommandBuffer> {
    let mut encoder = gpu.device.create_command_encoder(&Default::default());
    // SAFETY: the caller records only barriers, which change nothing that wgpu tracks.
    unsafe { encoder.as_hal_mut::<Api, _, _>(|hal| record(hal.expect(VULKAN).raw_handle())) }?;
    Ok(encoder.finish())
}

const VULKAN: &str = "`find` asks for Vulkan's adapters only";
