//! wgpu's device and CUDA's context, slots for both, and the submission of wgpu's turns.

use std::fmt::Display;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use ash::vk;
use cudarc::driver::{CudaContext, CudaStream};
use vulkan_cuda::shared_ring::{self, Resource, Slot};
use vulkan_cuda::{
    Cuda, CudaInfo, Driver, Error, ImageRequest, Pair, QueueUse, Result, RingToCuda, Shape, SharedBuffer,
    SharedImage, SharedRing, ViewType, Vk, VkInfo, find_twin,
};
use wgpu::hal::vulkan::{Adapter, Api, Buffer, CreateDeviceCallbackArgs, TextureMemory};
use wgpu::{BufferUsages, CommandBuffer, CommandEncoder, TextureUsages, TextureUses};

use crate::slot::{CUDA_HAS_IT, WgpuBuffer, WgpuSlot, WgpuTexture, sealed::Sealed};
use crate::turn::WgpuTurn;

type Info = vk::SemaphoreSubmitInfo<'static>;

/// Returns wgpu's first adapter that is the same GPU as a CUDA device and can share with it.
///
/// # Errors
/// Fails if there is no CUDA driver, or if no adapter can share: the error has the last adapter's reason.
pub async fn find(instance: &wgpu::Instance) -> Result<wgpu::Adapter> {
    let devices = Driver::load()?.devices()?; // First, because cudarc panics without a driver.
    let mut reason = Error::SystemLacks("wgpu found no Vulkan device".into());
    for adapter in instance.enumerate_adapters(wgpu::Backends::VULKAN).await {
        match twin(&adapter, &devices) {
            Ok(_) => return Ok(adapter),
            Err(error) => reason = error,
        }
    }
    Err(reason)
}

/// Returns what Vulkan and CUDA report about the adapter, if the two can share.
fn twin(adapter: &wgpu::Adapter, devices: &[CudaInfo]) -> Result<(VkInfo, CudaInfo)> {
    let raw = hal(adapter)?;
    // SAFETY: the physical device belongs to this instance, which wgpu creates for the latest Vulkan version.
    let info = unsafe { VkInfo::query(raw.shared_instance().raw_instance(), raw.raw_physical_device()) }?;
    match find_twin(&info, devices) {
        Ok(twin) => Ok((info, twin.clone())),
        Err(mismatch) => Err(Error::DeviceLacks(format!("{} and CUDA cannot share: {mismatch}", info.name))),
    }
}

fn hal(adapter: &wgpu::Adapter) -> Result<impl Deref<Target = Adapter>> {
    // SAFETY: nothing destroys the adapter's handles.
    unsafe { adapter.as_hal::<Api>() }.ok_or_else(|| {
        let name = adapter.get_info().name;
        Error::Rule(format!(
            "wgpu's adapter {name} is not one of Vulkan: create the instance with Backends::VULKAN"
        ))
    })
}

/// Adds the extensions that sharing needs, and that the adapter has, to those of a device that is being
/// created. Call it in the callback of `wgpu::hal`'s `open_with_callback`, or of Bevy's
/// `RawVulkanInitSettings`. [`Gpu::adopt`] then takes the device.
///
/// # Examples
/// ```no_run
/// use wgpu::hal::vulkan::{Api, CreateDeviceCallbackArgs};
///
/// # fn example(adapter: &wgpu::Adapter) -> Option<()> {
/// # let (features, limits, hints) = (wgpu::Features::empty(), wgpu::Limits::default(), Default::default());
/// // SAFETY: the adapter has these features and limits, and the added extensions.
/// let opened = unsafe {
///     let raw = adapter.as_hal::<Api>()?;
///     let add = Box::new(|mut args: CreateDeviceCallbackArgs| vulkan_cuda_wgpu::extend(&mut args, &raw));
///     raw.open_with_callback(features, &limits, &hints, Some(add))
/// };
/// # Some(())
/// # }
/// ```
///
/// In Bevy 0.20, before `DefaultPlugins` are added:
///
/// ```ignore
/// let mut settings = RawVulkanInitSettings::default();
/// // SAFETY: adds only extensions that the adapter has.
/// unsafe { settings.add_create_device_callback(|args, adapter, _| vulkan_cuda_wgpu::extend(args, adapter)) };
/// app.insert_resource(settings);
/// ```
pub fn extend(args: &mut CreateDeviceCallbackArgs, adapter: &Adapter) {
    // SAFETY: the physical device belongs to this instance, which wgpu creates for the latest Vulkan version.
    let info =
        unsafe { VkInfo::query(adapter.shared_instance().raw_instance(), adapter.raw_physical_device()) };
    // (If the query fails, so does everything that needs the extensions, and says why.)
    let wanted = info.iter().flat_map(VkInfo::extensions);
    let missing: Vec<_> = wanted.filter(|name| !args.extensions.contains(name)).collect();
    args.extensions.extend(missing);
}

/// wgpu's device and queue, and CUDA's context, on one GPU.
pub struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    queue_use: QueueUse,
    context: Arc<CudaContext>,
    pair: Pair,
    /// Maps wgpu's formats to Vulkan's.
    adapter: wgpu::Adapter,
    /// Locked while a turn's semaphores are added to the queue and submitted.
    submitting: Mutex<()>,
    /// The thread that holds `submitting`.
    submitter: Mutex<Option<ThreadId>>,
}

impl Gpu {
    /// Opens `adapter` for wgpu and CUDA: like `Adapter::request_device`, with the extensions that export
    /// memory and semaphores. CUDA uses the device's primary context, as its runtime does.
    ///
    /// # Errors
    /// Fails if the adapter is not a CUDA device (see [`find`]), or lacks a feature or a limit of `desc`.
    pub fn open(adapter: &wgpu::Adapter, desc: &wgpu::DeviceDescriptor) -> Result<Self> {
        let (info, _) = twin(adapter, &Driver::load()?.devices()?)?;
        let lacking = desc.required_features - adapter.features();
        if !lacking.is_empty() || !desc.required_limits.check_limits(&adapter.limits()) {
            return Err(Error::DeviceLacks(format!(
                "{} lacks features ({lacking:?}) or limits that the DeviceDescriptor requires",
                info.name
            )));
        }
        let failed =
            |error: &dyn Display| Error::DeviceLacks(format!("wgpu did not open {}: {error}", info.name));
        // SAFETY: the adapter has the features and limits (checked above), and `extend` adds only extensions
        // that it has.
        let (device, queue) = unsafe {
            let raw = hal(adapter)?;
            let (features, limits) = (desc.required_features, &desc.required_limits);
            let callback = Box::new(|mut args: CreateDeviceCallbackArgs| extend(&mut args, &raw));
            let opened = raw
                .open_with_callback(features, limits, &desc.memory_hints, Some(callback))
                .map_err(|error| failed(&error))?;
            adapter.create_device_from_hal(opened, desc).map_err(|error| failed(&error))?
        };
        Self::adopt(adapter, device, queue)
    }

    /// Takes a device that your program or its engine has opened, with its adapter and its queue.
    ///
    /// wgpu enables every extension that sharing needs but one, so [`extend`] must have been called when the
    /// device was created. If your program opens the device itself, call [`Gpu::open`], which does that. eframe
    /// takes such a device: `WgpuSetup::Existing`.
    ///
    /// # Errors
    /// Fails if the device was created without an extension: the error lists those that are missing. Also fails
    /// if the adapter is not a CUDA device (see [`find`]), or if the three do not belong together.
    pub fn adopt(adapter: &wgpu::Adapter, device: wgpu::Device, queue: wgpu::Queue) -> Result<Self> {
        let (info, twin) = twin(adapter, &Driver::load()?.devices()?)?;
        let foreign = || Error::Rule("the adapter, the device and the queue do not belong together".into());
        // SAFETY: nothing destroys the handles. wgpu enables timeline semaphores on every device that has them.
        // `Vk` keeps the device alive.
        let (family, vk) = unsafe {
            let raw = device.as_hal::<Api>().ok_or_else(foreign)?;
            let submits = queue.as_hal::<Api>().ok_or_else(foreign)?;
            let (physical, logical) = (raw.raw_physical_device(), raw.raw_device());
            if physical != hal(adapter)?.raw_physical_device()
                || submits.raw_device().handle() != logical.handle()
            {
                return Err(foreign());
            }
            let enabled = raw.enabled_device_extensions();
            let missing = info.extensions().filter(|name| !enabled.contains(name));
            let missing: Vec<_> = missing.map(|name| name.to_string_lossy()).collect();
            if !missing.is_empty() {
                return Err(Error::NotEnabled(format!(
                    "wgpu's device on {} was opened without {}: open it with Gpu::open (eframe takes it as \
                     WgpuSetup::Existing), or call vulkan_cuda_wgpu::extend in the callback of wgpu::hal's \
                     open_with_callback (in Bevy: RawVulkanInitSettings, of its feature raw_vulkan_init)",
                    info.name,
                    missing.join(" and ")
                )));
            }
            let instance = raw.shared_instance().raw_instance().clone();
            let keep = Arc::new(device.clone());
            (raw.queue_family_index(), Vk::from_raw(instance, physical, logical.clone(), keep)?)
        };
        let context = CudaContext::new(twin.ordinal as usize)
            .map_err(|error| Error::from_cudarc("cuDevicePrimaryCtxRetain", &twin.name, error))?;
        let pair = Pair::new(vk, Cuda::from_cudarc(&context)?)?;
        let queue_use = QueueUse {
            family,
            stage: vk::PipelineStageFlags::ALL_COMMANDS,
            access: vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE,
        };
        let (adapter, submitting, submitter) = (adapter.clone(), Mutex::default(), Mutex::default());
        Ok(Self { device, queue, queue_use, context, pair, adapter, submitting, submitter })
    }

    /// Returns wgpu's device.
    pub fn device(&self) -> &wgpu::Device {
        &self.device
    }

    /// Returns wgpu's queue, for your other work.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    /// Returns CUDA's context, for streams and modules.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Returns the Vulkan device and the CUDA context, for everything else in [`vulkan_cuda`].
    pub fn pair(&self) -> &Pair {
        &self.pair
    }

    /// Creates a buffer in Vulkan, imports it into CUDA, and gives it to wgpu.
    ///
    /// # Errors
    /// Fails if the buffer is mapped at creation or empty, or has no usage or a usage that cannot be shared.
    pub fn buffer(&self, desc: &wgpu::BufferDescriptor) -> Result<WgpuBuffer> {
        const USAGES: [(BufferUsages, vk::BufferUsageFlags); 7] = [
            (BufferUsages::COPY_SRC, vk::BufferUsageFlags::TRANSFER_SRC),
            (BufferUsages::COPY_DST, vk::BufferUsageFlags::TRANSFER_DST),
            (BufferUsages::INDEX, vk::BufferUsageFlags::INDEX_BUFFER),
            (BufferUsages::VERTEX, vk::BufferUsageFlags::VERTEX_BUFFER),
            (BufferUsages::UNIFORM, vk::BufferUsageFlags::UNIFORM_BUFFER),
            (BufferUsages::STORAGE, vk::BufferUsageFlags::STORAGE_BUFFER),
            (BufferUsages::INDIRECT, vk::BufferUsageFlags::INDIRECT_BUFFER),
        ];
        let known = USAGES.iter().fold(BufferUsages::empty(), |all, (known, _)| all | *known);
        if desc.mapped_at_creation || !known.contains(desc.usage) {
            let text = format!("a shared buffer cannot be mapped, or have usages other than {known:?}");
            return Err(Error::Rule(text));
        }
        let wanted = USAGES.iter().filter(|(wanted, _)| desc.usage.contains(*wanted));
        let usage = wanted.fold(vk::BufferUsageFlags::empty(), |all, (_, usage)| all | *usage);
        let shared = Arc::new(SharedBuffer::new(&self.pair, desc.size, usage)?);
        let keep = shared.clone();
        // SAFETY: the buffer is from this device, has this size and usage, and lives as long as `keep`.
        let wgpu = unsafe {
            let raw = Buffer::from_raw_externally_owned(shared.vulkan(), Box::new(move || drop(keep)));
            self.device.create_buffer_from_hal::<Api>(raw, desc)
        };
        Ok(WgpuBuffer { wgpu, shared })
    }

    /// Creates a texture in Vulkan, imports it into CUDA, and gives it to wgpu. It is two-dimensional, with
    /// any number of levels. Its format must be one of [`vulkan_cuda::FORMATS`].
    ///
    /// # Errors
    /// Fails if the texture has layers, samples or view formats, or if a driver supports no such image.
    pub fn texture(&self, desc: &wgpu::TextureDescriptor) -> Result<WgpuTexture> {
        use vk::ImageUsageFlags as Usage;
        const STORAGE: TextureUses = TextureUses::STORAGE_READ_ONLY
            .union(TextureUses::STORAGE_WRITE_ONLY)
            .union(TextureUses::STORAGE_READ_WRITE);
        const USAGES: [(TextureUsages, Usage, TextureUses); 5] = [
            (TextureUsages::COPY_SRC, Usage::TRANSFER_SRC, TextureUses::COPY_SRC),
            (TextureUsages::COPY_DST, Usage::TRANSFER_DST, TextureUses::COPY_DST),
            (TextureUsages::TEXTURE_BINDING, Usage::SAMPLED, TextureUses::RESOURCE),
            (TextureUsages::STORAGE_BINDING, Usage::STORAGE, STORAGE),
            (TextureUsages::RENDER_ATTACHMENT, Usage::COLOR_ATTACHMENT, TextureUses::COLOR_TARGET),
        ];
        let known = USAGES.iter().fold(TextureUsages::empty(), |all, (known, ..)| all | *known);
        if !known.contains(desc.usage) {
            return Err(Error::Rule(format!("a shared texture has no usages other than {known:?}")));
        }
        let wanted = USAGES.iter().filter(|(wanted, ..)| desc.usage.contains(*wanted));
        let (usage, uses) = wanted.fold((Usage::empty(), TextureUses::empty()), |all, (_, usage, uses)| {
            (all.0 | *usage, all.1 | *uses)
        });
        let wgpu::Extent3d { width, height, depth_or_array_layers } = desc.size;
        let flat = desc.dimension == wgpu::TextureDimension::D2 && depth_or_array_layers == 1;
        if !flat || desc.sample_count != 1 || !desc.view_formats.is_empty() {
            return Err(Error::Rule(
                "a shared texture has two dimensions, one layer, one sample and no view formats".into(),
            ));
        }
        let extent = vk::Extent3D { width, height, depth: 1 };
        let request = ImageRequest {
            format: hal(&self.adapter)?.texture_format_as_raw(desc.format),
            shape: Shape::new(ViewType::D2, extent, 1, desc.mip_level_count)?,
            usage,
            surface: true,
        };
        let image = SharedImage::new(&self.pair, &request)?;
        let surface = image.level(0)?.surface()?;
        let hal_desc = wgpu::hal::TextureDescriptor {
            label: None,
            size: desc.size,
            mip_level_count: desc.mip_level_count,
            sample_count: desc.sample_count,
            dimension: desc.dimension,
            format: desc.format,
            usage: uses,
            memory_flags: wgpu::hal::MemoryFlags::empty(),
            view_formats: Vec::new(),
        };
        let keep = image.clone();
        // SAFETY: the image belongs to this device, is as described, and lives as long as the closure. The
        // ring's first barrier gives it the layout of `CUDA_HAS_IT`.
        let wgpu = unsafe {
            let device = self.device.as_hal::<Api>().expect("the device is one of Vulkan");
            let (raw, done) = (image.exported().raw(), Box::new(move || drop(keep)));
            let raw = device.texture_from_raw(raw, &hal_desc, Some(done), TextureMemory::External);
            self.device.create_texture_from_hal::<Api>(raw, desc, CUDA_HAS_IT)
        };
        Ok(WgpuTexture { wgpu, surface, image })
    }

    /// Creates a ring whose slots CUDA writes, on `stream`, and wgpu reads. Blocks until CUDA owns the slots.
    ///
    /// # Errors
    /// Fails as [`SharedRing::new`] does, and if the queue is not done within 10 seconds.
    pub fn shared_ring<S: WgpuSlot>(&self, stream: Arc<CudaStream>, slots: Vec<S>) -> Result<SharedRing<S>> {
        let ring = SharedRing::new(&self.pair, stream, slots, self.queue_use)?;
        // SAFETY: records barriers for the ring's family. CUDA can write only after the wait below.
        let release = self.raw(|commands| unsafe { ring.record_first_release(commands) });
        let index = self.queue.submit([release]);
        let timeout = Some(Duration::from_secs(10));
        let limit = wgpu::PollType::Wait { submission_index: Some(index), timeout };
        match self.device.poll(limit) {
            Ok(_) => Ok(ring),
            Err(error) => Err(Error::Timeout(format!("wgpu did not give the slots to CUDA: {error}"))),
        }
    }

    /// Creates a ring whose slots wgpu writes and CUDA reads, on `stream`.
    ///
    /// # Errors
    /// Same as [`RingToCuda::new`].
    pub fn ring_to_cuda<S: WgpuSlot>(&self, stream: Arc<CudaStream>, slots: Vec<S>) -> Result<RingToCuda<S>> {
        RingToCuda::new(&self.pair, stream, slots, self.queue_use)
    }

    /// Submits wgpu's turn: what `record` records, between the barriers that acquire the slot from CUDA and
    /// release it, with the turn's wait and signal. Returns at once; only the GPU waits.
    ///
    /// `record` may use textures in any state and in any pass. Work that does not need the slot can be
    /// submitted separately.
    ///
    /// # Errors
    /// Fails as [`VulkanTurn::submit`](vulkan_cuda::VulkanTurn::submit) does, if the turn belongs to another
    /// [`Gpu`], and if wgpu refuses the commands: its error handler gets the reason. Also fails in a callback
    /// that wgpu runs during `submit`, such as `Queue::on_submitted_work_done`. A
    /// [`VulkanTurn`](vulkan_cuda::VulkanTurn) is then given up, and the frame of a
    /// [`WriteTurn`](vulkan_cuda::WriteTurn) never began.
    ///
    /// # Panics
    /// Panics if wgpu panics, as its default error handler does. The next frame is not affected.
    pub fn submit<T: WgpuTurn>(
        &self,
        turn: T,
        record: impl FnOnce(&T::Slot, &mut CommandEncoder),
    ) -> Result<wgpu::SubmissionIndex> {
        // Compares Vulkan's handles, because wgpu treats the devices of two instances as equal.
        let (Resource::Buffer { device, .. } | Resource::Image { device, .. }) = turn.slot().resource();
        if device != self.pair.vk().device().handle() || turn.queue().family != self.queue_use.family {
            return Err(Error::Rule("the turn is of a ring that was not made by this Gpu".into()));
        }
        // Three encoders, because wgpu's commands and raw commands cannot share an encoder.
        // SAFETY: (and below) records barriers for the ring's family; the three are submitted once, in order.
        let acquire = self.raw(|commands| unsafe { turn.record_acquire(commands) });
        let mut work = self.device.create_command_encoder(&Default::default());
        record(turn.slot(), &mut work);
        turn.slot().give_back(&mut work);
        let work = work.finish();
        // SAFETY: as above.
        let release = self.raw(|commands| unsafe { turn.record_release(commands) });

        let submit = |waits: &[Info], signals: &[Info]| {
            let (wait, signal) = (waits[0], signals[0]);
            // (A poisoned lock only means that another thread panicked.)
            let submitter = || self.submitter.lock().unwrap_or_else(PoisonError::into_inner);
            let this = Some(std::thread::current().id());
            if *submitter() == this {
                let text = "a callback of wgpu called Gpu::submit inside Gpu::submit: submit the next frame after it";
                return Err(Error::Rule(text.into()));
            }
            let _alone = self.submitting.lock().unwrap_or_else(PoisonError::into_inner);
            *submitter() = this;
            // SAFETY: nothing destroys the queue's handle.
            let queue = || unsafe { self.queue.as_hal::<Api>() }.expect("the device is one of Vulkan");
            // ANCHOR: submit
            // wgpu's next submission uses both semaphores, so submit immediately.
            let all = vk::PipelineStageFlags::ALL_COMMANDS;
            let index = catch_unwind(AssertUnwindSafe(|| {
                queue().add_wait_semaphore(wait.semaphore, Some(wait.value), all);
                queue().add_signal_semaphore(signal.semaphore, Some(signal.value));
                self.queue.submit([acquire, work, release])
            }));
            // ANCHOR_END: submit
            *submitter() = None;
            // wgpu submits nothing if the commands are invalid: its queue then still has both semaphores.
            if queue().remove_signal_semaphore(signal.semaphore) {
                queue().remove_wait_semaphore(wait.semaphore);
                index.unwrap_or_else(|panic| resume_unwind(panic));
                return Err(Error::Rule(
                    "wgpu refused the commands of a frame: see its error handler".into(),
                ));
            }
            Ok(index)
        };
        // SAFETY: makes one submission with both semaphores, to wgpu's only queue, or fails without one.
        unsafe { shared_ring::submit(turn, submit) }?.or_else(|panic| resume_unwind(panic))
    }

    fn raw(&self, record: impl FnOnce(vk::CommandBuffer)) -> CommandBuffer {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        // SAFETY: callers record only barriers, which change nothing that wgpu tracks.
        unsafe {
            encoder.as_hal_mut::<Api, _, _>(|hal| {
                // `hal` is `None` after an error of wgpu, which then refuses to submit the commands.
                if let Some(hal) = hal {
                    record(hal.raw_handle());
                }
            });
        }
        encoder.finish()
    }
}
