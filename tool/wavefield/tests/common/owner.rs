//! A client with memory of its own that the renderer imports: on the stand-in for a GPU, or with CUDA on a
//! real one.
//!
//! On the stand-in the client needs no CUDA: memory and timelines are files in memory, see
//! `tests/stand_in/src/shared.rs`.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use rustix::fs::MemfdFlags;
use vulkan_cuda::handle::{Operand, SemaphoreHandle};
use vulkan_cuda::{CudaAllocation, DeviceUuid, ImportedSemaphore};
use wavefield_gpu::cuda::{Cuda, Stream, load_driver};
use wavefield_serve::protocol::{FromClient, FromServer};

use super::example::client::Memory;
use super::renderer::{Client, PATIENCE, Renderer};

/// The smallest chunk that CUDA allocates on an H200. The stand-in uses the same size.
pub const CHUNK: u64 = 2 << 20;
/// The bytes before the contents of a memory file of the stand-in.
const HEADER: u64 = 4096;

/// Where the client's memory comes from.
pub enum Owner {
    StandIn,
    Cuda(Box<Gpu>),
}

/// CUDA in this process, with the client's timelines.
pub struct Gpu {
    ready: ImportedSemaphore,
    free: ImportedSemaphore,
    stream: Stream,
    /// The stream that only waits.
    waiting: Stream,
    context: Cuda,
}

impl Gpu {
    fn new(client: &Client) -> Self {
        let uuid = DeviceUuid::parse(&client.welcome.device.uuid).unwrap();
        let driver = load_driver().unwrap();
        let devices = driver.devices().unwrap();
        let found = devices.iter().find(|device| device.uuid == uuid);
        let device = found.unwrap_or_else(|| panic!("{uuid} is not among {devices:?}")).clone();
        let context = Cuda::primary(driver, &device).unwrap();
        let timeline = |index: Option<u32>| {
            let fd = client.descriptors[index.unwrap() as usize].try_clone().unwrap();
            ImportedSemaphore::import(&context, SemaphoreHandle::TimelineFd(fd.into())).unwrap()
        };
        let stream = || Stream::new(&context).unwrap();
        Self {
            ready: timeline(client.welcome.ready),
            free: timeline(client.welcome.free),
            stream: stream(),
            waiting: stream(),
            context,
        }
    }
}

impl Owner {
    /// Connects a client to `renderer`.
    pub fn of(renderer: &Renderer) -> (Self, Client) {
        let client = renderer.client(Memory::Cuda);
        let owner = match renderer.stand_in {
            Some(_) => Self::StandIn,
            None => Self::Cuda(Box::new(Gpu::new(&client))),
        };
        (owner, client)
    }

    pub fn chunks(&self, sizes: &[u64]) -> Chunks<'_> {
        match self {
            Self::StandIn => Chunks::of_files(
                sizes.iter().map(|&size| (named("wavefield-stand-in-memory", size), size)).collect(),
            ),
            Self::Cuda(gpu) => {
                let memory = CudaAllocation::in_chunks(&gpu.context, sizes).unwrap();
                assert_eq!(memory.chunks(), sizes, "whole granules");
                let export = |(index, &size)| (memory.export(index).unwrap().into(), size);
                let files = sizes.iter().enumerate().map(export).collect();
                Chunks { files, memory: Some((gpu, memory)) }
            }
        }
    }

    /// Signals `ready` with `value`.
    pub fn ready(&self, client: &Client, value: u64) {
        match self {
            Self::StandIn => {
                let file = &client.descriptors[client.welcome.ready.unwrap() as usize];
                assert_eq!(rustix::io::pwrite(file, &value.to_ne_bytes(), 0), Ok(8));
            }
            // SAFETY: the semaphore lives as long as the stream; the values rise.
            Self::Cuda(gpu) => unsafe { gpu.ready.signal(&gpu.stream, Operand::Value(value)) }.unwrap(),
        }
    }

    /// Waits until `free` has reached `value`.
    pub fn wait_for_free(&self, client: &Client, value: u64) {
        let until = Instant::now() + PATIENCE;
        if let Self::Cuda(gpu) = self {
            // SAFETY: as above.
            unsafe { gpu.free.wait(&gpu.waiting, Operand::Value(value)) }.unwrap();
        }
        let reached = || match self {
            Self::StandIn => {
                let file = &client.descriptors[client.welcome.free.unwrap() as usize];
                let mut bytes = [0; 8];
                rustix::io::pread(file, &mut bytes, 8) == Ok(8) && u64::from_ne_bytes(bytes) >= value
            }
            Self::Cuda(gpu) => gpu.waiting.is_idle().unwrap(),
        };
        while !reached() {
            assert!(Instant::now() < until, "`free` did not reach {value}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Shows a frame from an allocation, and waits until the renderer shows it.
    pub fn show(&self, client: &mut Client, frame: u64, allocation: u64, offset: u64) {
        client.say(&FromClient::Show { frame, allocation, offset });
        self.ready(client, frame + 1);
        wait_for_shown(client, frame);
    }
}

/// Waits until the renderer shows frame `frame`.
pub fn wait_for_shown(client: &mut Client, frame: u64) {
    let until = Instant::now() + PATIENCE;
    while client.state().frame_shown != Some(frame) {
        assert!(Instant::now() < until, "{:?}", client.state());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Memory in consecutive chunks.
pub struct Chunks<'a> {
    /// For each chunk a descriptor, and the size that the client states for it.
    pub files: Vec<(OwnedFd, u64)>,
    /// The allocation, if it is CUDA's.
    memory: Option<(&'a Gpu, Arc<CudaAllocation>)>,
}

impl Chunks<'_> {
    pub fn of_files(files: Vec<(OwnedFd, u64)>) -> Self {
        Self { files, memory: None }
    }

    /// States another size for a chunk.
    pub fn saying(mut self, chunk: usize, size: u64) -> Self {
        self.files[chunk].1 = size;
        self
    }

    pub fn write(&self, bytes: &[u8], offset: u64) {
        if let Some((gpu, memory)) = &self.memory {
            gpu.context.bind().unwrap();
            let (to, from) = (memory.pointer() + offset, bytes.as_ptr().cast());
            // SAFETY: the memory is mapped and long enough; the bytes are borrowed until the stream is done.
            unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, bytes.len(), gpu.stream.raw()) }.result().unwrap();
            return gpu.stream.synchronize().unwrap();
        }
        let mut begin = 0;
        for (file, size) in &self.files {
            let (from, to) = (offset.max(begin), (offset + bytes.len() as u64).min(begin + size));
            if from < to {
                let part = &bytes[(from - offset) as usize..(to - offset) as usize];
                assert_eq!(rustix::io::pwrite(file, part, HEADER + from - begin), Ok(part.len()));
            }
            begin += size;
        }
    }

    /// Sends the request to import the chunks.
    pub fn send(&self, client: &Client) {
        let chunks = self.files.iter().map(|&(_, size)| size).collect();
        let files: Vec<_> = self.files.iter().map(|(file, _)| file.as_fd()).collect();
        client.connection.send(&FromClient::Import { chunks }, &files).unwrap();
    }

    /// Imports the chunks. Returns the id of the allocation.
    pub fn import(&self, client: &mut Client, renderer: &Renderer) -> u64 {
        self.send(client);
        match client.answer().0 {
            FromServer::Imported { id, bytes } => {
                assert_eq!(bytes, self.files.iter().map(|(_, size)| size).sum::<u64>());
                id
            }
            other => panic!("{other:?}: {}", renderer.notes()),
        }
    }

    /// Sends an import that must fail. Returns the reason.
    pub fn refusal(&self, client: &mut Client) -> String {
        self.send(client);
        match client.answer().0 {
            FromServer::Failed { request, reason } if request == "import" => reason,
            other => panic!("{other:?}"),
        }
    }
}

/// A memory file of the stand-in with this name.
pub fn named(name: &str, size: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, HEADER + size).unwrap();
    file
}

/// A descriptor of a file that is not memory.
pub fn plain_file() -> OwnedFd {
    File::open("/proc/self/exe").unwrap().into()
}
