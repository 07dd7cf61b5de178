//! A client's memory: slots, semaphores, and allocations on request. Each client gets new memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use ash::vk;
use gpu_allocator::MemoryLocation;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use vulkan_cuda::handle::{MemoryHandle, SemaphoreHandle};
use vulkan_cuda::ownership::Owner;
use vulkan_cuda::{CudaBuffer, ExportedBuffer, ExportedSemaphore};

use super::frame_ledger::Origin;
use super::protocol::{MemoryKind, MemoryPlace, Render, VulkanMemory};
use wavefield_draw::{PictureKind, PicturePlace};
use wavefield_gpu::vulkan::{Buffer, BufferDesc, Device};
use wavefield_gpu::{Error, Result};
use wavefield_handoff::contents::{array::DrawnArray, frame_stamp};
use wavefield_handoff::producer::{SLOT_USAGE, Source};
use wavefield_run::Engine;

/// Slots begin at multiples of this many bytes in the memfd. It is a multiple of every page size, so each
/// slot can be mapped alone.
const SLOT_ALIGNMENT: u64 = 65_536;

pub(super) enum ClientMemory {
    Cuda(CudaMemory),
    /// A memfd, and the buffers that its frames are copied to.
    Host(HostMemory),
}

pub(super) struct CudaMemory {
    pub(super) ready: ExportedSemaphore,
    pub(super) free: ExportedSemaphore,
    slots: Vec<ExportedBuffer>,
    allocations: BTreeMap<u64, ExportedBuffer>,
    imports: BTreeMap<u64, CudaBuffer>,
    /// The timeline for pictures, once the client has requested it.
    drawn: Option<ExportedSemaphore>,
}

pub(super) struct HostMemory {
    file: File,
    /// The size of a slot in bytes. `stride` is the distance from one slot to the next.
    size: u64,
    stride: u64,
    allocations: BTreeMap<u64, File>,
    buffers: Vec<Buffer>,
    /// The number of copied frames. They use the buffers in turn, whichever slot they come from.
    copied: usize,
    pictures: Option<Buffer>,
}

pub(super) struct RenderTarget {
    pub(super) into: vk::Buffer,
    pub(super) places: Vec<PicturePlace>,
    /// What to signal once the pictures are drawn. `None` with memory `host`: wait for the GPU, then call
    /// [`ClientMemory::copy_pictures`].
    pub(super) signal: Option<vk::SemaphoreSubmitInfo<'static>>,
}

impl ClientMemory {
    /// Allocates the ring. Does not wait for the GPU.
    pub(super) fn new(device: &Device, kind: MemoryKind, array: DrawnArray, depth: usize) -> Result<Self> {
        // Shaders read whole words.
        let size = 4 * array.words();
        Self::make(device, kind, size, depth).map_err(|error| match error.is_out_of_memory() {
            true => Error::Unsupported(format!(
                "no memory for a ring of {depth} slots of {size} bytes each: send a smaller array, or ask for a shorter ring ({error})"
            )),
            false => error,
        })
    }

    fn make(device: &Device, kind: MemoryKind, size: u64, depth: usize) -> Result<Self> {
        Ok(match kind {
            MemoryKind::Cuda => Self::Cuda(CudaMemory {
                ready: ExportedSemaphore::new(device.sharing()?, vk::SemaphoreType::TIMELINE)?,
                free: ExportedSemaphore::new(device.sharing()?, vk::SemaphoreType::TIMELINE)?,
                slots: (0..depth)
                    .map(|_| Ok(ExportedBuffer::new(device.sharing()?, size, SLOT_USAGE)?))
                    .collect::<Result<_>>()?,
                allocations: BTreeMap::new(),
                imports: BTreeMap::new(),
                drawn: None,
            }),
            MemoryKind::Host => {
                let stride = size.next_multiple_of(SLOT_ALIGNMENT);
                let (label, location) = ("a client's slot", MemoryLocation::CpuToGpu);
                let desc = BufferDesc { label, size, usage: SLOT_USAGE, location };
                Self::Host(HostMemory {
                    file: sealed_memory("wavefield slots", stride * depth as u64)?,
                    size,
                    stride,
                    allocations: BTreeMap::new(),
                    buffers: (0..depth).map(|_| Buffer::new(device, &desc)).collect::<Result<_>>()?,
                    copied: 0,
                    pictures: None,
                })
            }
        })
    }

    /// Fills the memory that the client will write with [`frame_stamp::BLANK`], for `--verify`.
    pub(super) fn blank(&self, engine: &mut Engine) -> Result<()> {
        let Self::Host(memory) = self else {
            return engine.observers.blank(&mut engine.work, &self.slots(), self.owner());
        };
        let blank = [frame_stamp::BLANK.to_ne_bytes(); SLOT_ALIGNMENT as usize / 4];
        let end = memory.stride * memory.buffers.len() as u64;
        for at in (0..end).step_by(SLOT_ALIGNMENT as usize) {
            memory.file.write_all_at(blank.as_flattened(), at).map_err(|error| out_of_memory(end, error))?;
        }
        Ok(())
    }

    pub(super) fn slots(&self) -> Vec<Source> {
        match self {
            Self::Cuda(memory) => memory.slots.iter().map(|slot| slot.raw().into()).collect(),
            Self::Host(memory) => memory.buffers.iter().map(|buffer| buffer.raw().into()).collect(),
        }
    }

    /// Returns the slots' places and descriptors. With memory `cuda`, `ready` and `free` follow the slots.
    pub(super) fn export(&self) -> Result<(Vec<MemoryPlace>, Vec<OwnedFd>)> {
        match self {
            Self::Cuda(memory) => {
                let place = |(fd, slot): (usize, &ExportedBuffer)| MemoryPlace {
                    fd: fd as u32,
                    offset: 0,
                    bytes: slot.size(),
                    allocation_bytes: slot.allocation_size(),
                };
                let places = memory.slots.iter().enumerate().map(place).collect();
                let slots = memory.slots.iter().map(memory_descriptor);
                let timelines = [&memory.ready, &memory.free].into_iter().map(timeline_descriptor);
                Ok((places, slots.chain(timelines).collect::<Result<_>>()?))
            }
            Self::Host(memory) => {
                let slots = memory.buffers.len() as u64;
                let allocation_bytes = memory.stride * slots;
                let bytes = memory.size;
                let place =
                    |slot| MemoryPlace { fd: 0, offset: slot * memory.stride, bytes, allocation_bytes };
                Ok(((0..slots).map(place).collect(), vec![copy_of(&memory.file)?]))
            }
        }
    }

    /// Describes the slots for a client that imports them with Vulkan; `None` with memory `host`.
    pub(super) fn for_vulkan(&self) -> Option<VulkanMemory> {
        let Self::Cuda(memory) = self else { return None };
        Some(VulkanMemory {
            handle_type: "OPAQUE_FD".into(),
            dedicated: true,
            buffer_usage: SLOT_USAGE.as_raw(),
            buffer_flags: 0,
            memory_type: memory.slots.first()?.memory_type(),
        })
    }

    pub(super) fn allocate(
        &mut self,
        device: &Device,
        id: u64,
        bytes: u64,
    ) -> Result<(MemoryPlace, OwnedFd)> {
        let place = |allocation_bytes| MemoryPlace { fd: 0, offset: 0, bytes, allocation_bytes };
        match self {
            Self::Cuda(memory) => {
                // Round up to whole words, as in `new`. The client may use the extra bytes.
                let words = bytes.next_multiple_of(4);
                let buffer = ExportedBuffer::new(device.sharing()?, words, SLOT_USAGE)?;
                let made = (place(buffer.allocation_size()), memory_descriptor(&buffer)?);
                memory.allocations.insert(id, buffer);
                Ok(made)
            }
            Self::Host(memory) => {
                let file = sealed_memory("wavefield allocation", bytes)?;
                let made = (place(bytes), copy_of(&file)?);
                memory.allocations.insert(id, file);
                Ok(made)
            }
        }
    }

    /// Stores an imported buffer. With memory `host`, there are no imports.
    pub(super) fn keep(&mut self, id: u64, buffer: CudaBuffer) {
        if let Self::Cuda(memory) = self {
            memory.imports.insert(id, buffer);
        }
    }

    /// Frees an allocation or an import. The GPU must be done with it.
    pub(super) fn release(&mut self, id: u64) {
        match self {
            Self::Cuda(memory) => drop((memory.allocations.remove(&id), memory.imports.remove(&id))),
            Self::Host(memory) => drop(memory.allocations.remove(&id)),
        }
    }

    /// Prepares a frame for its first draw, and returns its buffer and offset. A frame in `host` memory is
    /// copied from the memfd, not mapped: a client that changes it during the copy spoils only its own
    /// picture.
    pub(super) fn prepare(&mut self, origin: Origin) -> Result<(vk::Buffer, u64)> {
        match self {
            Self::Cuda(memory) => match origin {
                Origin::Slot(slot) => Ok((memory.slots[slot].raw(), 0)),
                Origin::Allocation { id, offset } => {
                    let buffer = memory.allocations.get(&id).map(ExportedBuffer::raw);
                    let buffer = buffer.or_else(|| memory.imports.get(&id).map(CudaBuffer::vulkan));
                    Ok((buffer.ok_or_else(|| gone(id))?, offset))
                }
            },
            Self::Host(memory) => {
                let (file, from) = match origin {
                    Origin::Slot(slot) => (&memory.file, slot as u64 * memory.stride),
                    Origin::Allocation { id, offset } => {
                        (memory.allocations.get(&id).ok_or_else(|| gone(id))?, offset)
                    }
                };
                // No more frames are in flight than there are buffers, so the frame that used this buffer
                // before is done.
                let next = memory.copied % memory.buffers.len();
                memory.copied += 1;
                let buffer = &mut memory.buffers[next];
                let raw = buffer.raw();
                // Sealed memory cannot shrink, so the read finds all bytes. If a page cannot be allocated,
                // only this frame is incomplete.
                let _ = file.read_exact_at(buffer.bytes_mut()?, from);
                Ok((raw, 0))
            }
        }
    }

    pub(super) fn drawn(&self) -> Option<&ExportedSemaphore> {
        let Self::Cuda(memory) = self else { return None };
        memory.drawn.as_ref()
    }

    /// Returns a descriptor of the `drawn` timeline. The first call creates the timeline, with its counter at
    /// `value`.
    pub(super) fn timeline(&mut self, device: &Device, value: u64) -> Result<OwnedFd> {
        let Self::Cuda(CudaMemory { drawn, .. }) = self else {
            return Err(Error::Unsupported(
                "with memory `host` the answer says that pictures are there".into(),
            ));
        };
        let made = match drawn.take() {
            Some(made) => made,
            None => {
                let made = ExportedSemaphore::new(device.sharing()?, vk::SemaphoreType::TIMELINE)?;
                // SAFETY: nothing has signalled the new timeline, and later renders signal greater values.
                unsafe { made.signal_from_host(value) }?;
                made
            }
        };
        timeline_descriptor(drawn.insert(made))
    }

    /// Returns where to draw the pictures. With memory `cuda`, [`RenderTarget::signal`] sets `drawn` to
    /// `value`.
    pub(super) fn target(&mut self, device: &Device, render: &Render, value: u64) -> Result<RenderTarget> {
        match self {
            Self::Cuda(memory) => match (memory.allocations.get(&render.allocation), &memory.drawn) {
                (Some(buffer), Some(drawn)) => Ok(RenderTarget {
                    into: buffer.raw(),
                    places: render.offsets.iter().map(|(&kind, &offset)| (kind, offset)).collect(),
                    signal: Some(drawn.submit_info(value)),
                }),
                (_, None) => Err(Error::Unsupported("ask for the `timeline` first".into())),
                _ => Err(gone(render.allocation)),
            },
            Self::Host(memory) => {
                // Put the kinds one after another, however far apart they are in the client's memory.
                let mut size = 0;
                let place = |&kind: &PictureKind| {
                    let at = size;
                    size = (at + render.bytes(kind).unwrap_or(0)).next_multiple_of(16);
                    (kind, at)
                };
                let places = render.offsets.keys().map(place).collect();
                let (label, usage) = ("pictures", vk::BufferUsageFlags::TRANSFER_DST);
                let desc = BufferDesc { label, size, usage, location: MemoryLocation::GpuToCpu };
                // Drop an old buffer of another size before the new one is made.
                let buffer = match memory.pictures.take().filter(|buffer| buffer.size() == size) {
                    Some(buffer) => buffer,
                    None => Buffer::new(device, &desc)?,
                };
                let into = memory.pictures.insert(buffer).raw();
                Ok(RenderTarget { into, places, signal: None })
            }
        }
    }

    /// With memory `host`, copies pictures to the allocation. The GPU must be done with them.
    pub(super) fn copy_pictures(&self, render: &Render, places: &[PicturePlace]) -> Result<()> {
        let Self::Host(memory) = self else { return Ok(()) };
        let (Some(buffer), Some(file)) = (&memory.pictures, memory.allocations.get(&render.allocation))
        else {
            return Err(gone(render.allocation));
        };
        for &(kind, offset) in places {
            let size = render.bytes(kind).unwrap_or(0);
            let bytes = &buffer.bytes()?[offset as usize..(offset + size) as usize];
            let into = render.offsets.get(&kind).copied().unwrap_or_default();
            file.write_all_at(bytes, into).map_err(|error| out_of_memory(size, error))?;
        }
        Ok(())
    }

    pub(super) fn owner(&self) -> Owner {
        match self {
            Self::Cuda(_) => Owner::External,
            Self::Host(_) => Owner::Queue,
        }
    }
}

/// Returns a descriptor of the buffer's memory. On Linux, Vulkan exports nothing else.
fn memory_descriptor(buffer: &ExportedBuffer) -> Result<OwnedFd> {
    match buffer.export()? {
        MemoryHandle::OpaqueFd(fd) => Ok(fd.into()),
        other => Err(Error::Unsupported(format!("{} cannot travel to another process", other.name()))),
    }
}

fn timeline_descriptor(timeline: &ExportedSemaphore) -> Result<OwnedFd> {
    match timeline.export()? {
        SemaphoreHandle::TimelineFd(fd) => Ok(fd.into()),
        other => Err(Error::Unsupported(format!("{} cannot travel to another process", other.name()))),
    }
}

/// Creates a memfd of a fixed size. If a client could shrink it, a process that reads a mapping past the new
/// end would be killed (`SIGBUS`).
fn sealed_memory(name: &str, bytes: u64) -> Result<File> {
    let make = || {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, bytes)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file.into())
    };
    make().map_err(|error: Errno| out_of_memory(bytes, error.into()))
}

pub(super) fn sealed_copy(name: &str, bytes: &[u8]) -> Result<OwnedFd> {
    let size = bytes.len() as u64;
    let file = sealed_memory(name, size)?;
    file.write_all_at(bytes, 0).map_err(|error| out_of_memory(size, error))?;
    Ok(file.into())
}

fn copy_of(file: &File) -> Result<OwnedFd> {
    let copy = file.try_clone().map_err(|error| no_memory("shared memory to send", error));
    copy.map(OwnedFd::from)
}

fn out_of_memory(bytes: u64, error: std::io::Error) -> Error {
    no_memory(&format!("shared memory of {bytes} bytes"), error)
}

fn gone(allocation: u64) -> Error {
    Error::Unsupported(format!("allocation {allocation} is gone"))
}

fn no_memory(what: &str, error: std::io::Error) -> Error {
    let advice = match Errno::from_io_error(&error) {
        Some(Errno::MFILE | Errno::NFILE) => {
            "; no file descriptor is left: release what is not needed, or start the renderer with a higher `ulimit -n`"
        }
        _ => "",
    };
    Error::Unsupported(format!("no {what}: {error}{advice}"))
}
