//! A client of `wavefield serve`: another process fills the field, in the renderer's own memory.
//!
//! ```sh
//! cargo run --release -p wavefield -- serve &
//! cargo run --release -p wavefield --example client                    # CUDA writes the slots, nothing is copied
//! cargo run --release -p wavefield --example client -- --memory host   # without CUDA: shared memory, which the renderer copies
//! cargo run --release -p wavefield --example client -- --grid 300x200  # a mesh as large as this program likes
//! cargo run --release -p wavefield --example client -- --memory host --image   # the wave's heights, as an image
//! ```
//!
//! `docs/protocol.md` says what all of this means. In short: say hello and what there is to draw, take the descriptors, and then for each frame
//! wait for `free`, write the slot, signal `ready`.

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("`wavefield serve` exists on Linux only");
}

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    client::run(&clap::Parser::parse())
}

#[cfg(target_os = "linux")]
pub mod client {
    use std::collections::BTreeMap;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    use anyhow::{Context as _, Result, bail};
    use ash::vk;
    use clap::{Parser, ValueEnum};
    use rustix::fs::SealFlags;
    use vulkan_cuda::handle::{MemoryHandle, Operand, SemaphoreHandle};
    use vulkan_cuda::{DeviceUuid, ImportedSemaphore, MappedMemory};
    use wavefield_gpu::cuda::{Cuda, Event, Kernel, KernelSource, Signature, Stream, load_driver};
    use wavefield_handoff::contents::array::{ArrayKind, Number};
    use wavefield_handoff::contents::wave::{self, Grid, WaveShape};
    use wavefield_run::{FrameTimes, write_png};
    use wavefield_serve::default_path;
    use wavefield_serve::protocol::{
        ArrayDescription, FromClient, FromServer, Hello, MemoryKind, VERSION, Welcome,
    };
    use wavefield_serve::socket::{Connection, Received};

    /// Fills the field of a running `wavefield serve` with the wave.
    #[derive(Clone, Debug, Default, Parser)]
    pub struct Arguments {
        /// Where the renderer listens [default: where it listens by default].
        #[arg(long)]
        pub socket: Option<PathBuf>,
        /// Which memory to ask for.
        #[arg(long, value_enum, default_value = "cuda")]
        pub memory: Memory,
        /// How many frames to make.
        #[arg(long, default_value_t = 1000)]
        pub frames: u64,
        /// The ring to ask for [default: the renderer's].
        #[arg(long)]
        pub ring: Option<u32>,
        /// Columns and rows of the field [default: the renderer's].
        #[arg(long, value_name = "COLSxROWS", value_parser = grid_of)]
        pub grid: Option<Grid>,
        /// Draw the heights as an image: only with memory `host`, since the kernel writes vertices.
        #[arg(long, requires = "grid")]
        pub image: bool,
        /// Run this kernel, with the signature of tool/handoff/kernels/README.md, instead of the wave.
        #[arg(long, value_name = "FILE.ptx[:ENTRY]")]
        pub kernel: Option<String>,
        /// Write the renderer's picture of the last frame here.
        #[arg(long, value_name = "FILE.png")]
        pub snapshot: Option<PathBuf>,
    }

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
    pub enum Memory {
        #[default]
        Cuda,
        Host,
    }

    fn grid_of(text: &str) -> Result<Grid> {
        let (cols, rows) = text.split_once('x').context("a grid is COLSxROWS, 512x512 say")?;
        Ok(Grid { cols: cols.parse()?, rows: rows.parse()? })
    }

    impl Arguments {
        /// What to draw; `None`: a mesh of the renderer's own grid.
        fn array(&self) -> Option<ArrayDescription> {
            let Grid { cols, rows } = self.grid?;
            let (rows, cols) = (rows.into(), cols.into());
            let (kind, shape) = match self.image {
                true => (ArrayKind::Image, vec![rows, cols]),
                false => (ArrayKind::Mesh, vec![rows, cols, 4]),
            };
            Some(ArrayDescription {
                kind,
                shape,
                dtype: Number::F32,
                more: Vec::new(),
                columns: 0,
                parts: BTreeMap::new(),
            })
        }
    }

    pub fn run(arguments: &Arguments) -> Result<()> {
        if arguments.image && arguments.memory == Memory::Cuda {
            bail!("--image needs --memory host: the CUDA kernel writes vertices");
        }
        let (connection, welcome, descriptors) = connect(arguments)?;
        println!(
            "{} on {}: {:?} of {:?}, a ring of {}",
            welcome.server, welcome.device.name, welcome.array.kind, welcome.array.shape, welcome.ring
        );
        let mut times = FrameTimes::default();
        let began = Instant::now();
        match arguments.memory {
            Memory::Cuda => cuda(&connection, &welcome, descriptors, arguments, &mut times)?,
            Memory::Host => host(&connection, &welcome, descriptors, arguments, &mut times)?,
        }
        times.finish(Duration::ZERO);
        println!(
            "{} frames in {:.2} s, from one to the next: median {:?}, p99 {:?}",
            arguments.frames,
            began.elapsed().as_secs_f64(),
            times.quantile(0.5),
            times.quantile(0.99)
        );
        if let Some(path) = &arguments.snapshot {
            snapshot(&connection, arguments.frames, path)?;
        }
        connection.send(&FromClient::Bye, &[]).ok(); // A closed connection says the same.
        Ok(())
    }

    /// Says hello, and takes what the renderer hands out.
    pub fn connect(arguments: &Arguments) -> Result<(Connection, Welcome, Vec<OwnedFd>)> {
        let path = arguments.socket.clone().unwrap_or_else(default_path);
        // Checks who listens: anybody can make a folder and a socket in /tmp.
        let connection = Connection::connect(&path)
            .with_context(|| format!("no renderer at {}: start `wavefield serve`", path.display()))?;
        let hello = FromClient::Hello(Hello {
            protocol: VERSION,
            client: concat!("the Rust example ", env!("CARGO_PKG_VERSION")).into(),
            memory: match arguments.memory {
                Memory::Cuda => MemoryKind::Cuda,
                Memory::Host => MemoryKind::Host,
            },
            ring: arguments.ring,
            array: arguments.array().map(serde_json::to_value).transpose()?,
        });
        // Refused at once, perhaps; then the reason is there to be read, whatever sending says.
        let sent = connection.send(&hello, &[]);
        match receive(&connection, Duration::from_secs(10))? {
            Some((FromServer::Welcome(welcome), descriptors)) => Ok((connection, *welcome, descriptors)),
            Some((FromServer::Refused { reason, .. }, _)) => bail!("the renderer refused: {reason}"),
            other => bail!("no welcome within 10 s, but {other:?} ({sent:?})"),
        }
    }

    /// The renderer's next message, if one comes in time.
    pub fn receive(
        connection: &Connection,
        patience: Duration,
    ) -> Result<Option<(FromServer, Vec<OwnedFd>)>> {
        match connection.receive_within(patience) {
            Received::Nothing => Ok(None),
            Received::Packet(packet, descriptors) => {
                Ok(Some((serde_json::from_slice(&packet).context("a message of the renderer")?, descriptors)))
            }
            Received::TooLong => bail!("a message of the renderer is too long"),
            Received::Closed => bail!("the renderer is gone"),
        }
    }

    /// The same; what the renderer says against us is an error, and parameters are of no interest here.
    fn news(connection: &Connection, patience: Duration) -> Result<Option<FromServer>> {
        match receive(connection, patience)?.map(|(message, _)| message) {
            Some(FromServer::Error { reason, .. }) => bail!("the renderer says: {reason}"),
            message => Ok(message),
        }
    }

    /// Writes the picture of the last of `frames`, once that is shown.
    fn snapshot(connection: &Connection, frames: u64, path: &Path) -> Result<()> {
        connection.send(&FromClient::Snapshot { after: frames.checked_sub(1), size: None }, &[])?;
        let (FromServer::Picture { width, height, bytes, .. }, descriptors) =
            receive(connection, Duration::from_secs(10))?.context("the renderer does not answer")?
        else {
            bail!("no picture");
        };
        let mut pixels = vec![0; bytes as usize];
        let file =
            std::fs::File::from(descriptors.into_iter().next().context("a picture without its memory")?);
        file.read_exact_at(&mut pixels, 0)?;
        Ok(write_png(path, vk::Extent2D { width, height }, &pixels, &[])?)
    }

    /// Of a mesh or an image.
    fn grid(welcome: &Welcome) -> Grid {
        Grid { cols: welcome.array.shape[1] as u32, rows: welcome.array.shape[0] as u32 }
    }

    /// CUDA in this process writes the renderer's memory; the two GPU timelines hand frames over.
    fn cuda(
        connection: &Connection,
        welcome: &Welcome,
        descriptors: Vec<OwnedFd>,
        arguments: &Arguments,
        times: &mut FrameTimes,
    ) -> Result<()> {
        // The same GPU as the renderer's: only the UUID says which that is.
        let uuid = DeviceUuid::parse(&welcome.device.uuid).context("the renderer's UUID is none")?;
        let driver = load_driver()?;
        let device = driver.devices()?.into_iter().find(|device| device.uuid == uuid).with_context(|| {
            format!("CUDA does not see {} ({uuid}): look at CUDA_VISIBLE_DEVICES", welcome.device.name)
        })?;
        let context = Cuda::primary(driver, &device)?;

        // ANCHOR: import
        // Each descriptor becomes an import, which owns it from then on.
        let mut descriptors: Vec<_> = descriptors.into_iter().map(Some).collect();
        let mut take = |index: u32| {
            descriptors.get_mut(index as usize).and_then(Option::take).context("a descriptor is missing")
        };
        let slots = welcome.slots.iter().map(|slot| {
            let fd = MemoryHandle::OpaqueFd(take(slot.fd)?.into());
            // SAFETY: the renderer says what it allocated, and that each slot is an allocation of its own
            // (docs/protocol.md).
            Ok(unsafe { MappedMemory::import(&context, fd, slot.allocation_bytes, slot.bytes) }?)
        });
        let slots = slots.collect::<Result<Vec<_>>>()?;
        let mut timeline = |index: Option<u32>| -> Result<_> {
            let fd = take(index.context("no semaphores")?)?;
            Ok(ImportedSemaphore::import(&context, SemaphoreHandle::TimelineFd(fd.into()))?)
        };
        let (ready, free) = (timeline(welcome.ready)?, timeline(welcome.free)?);
        // ANCHOR_END: import
        let source = match &arguments.kernel {
            Some(argument) => KernelSource::from_argument(argument)?,
            None => wavefield_handoff::contents::built_in::wave(),
        };
        source.check_signature(Signature::Field)?;
        let kernel = Kernel::load(&context, &source)?;
        let (stream, rescue) = (Stream::new(&context)?, Stream::new(&context)?);
        let done = slots.iter().map(|_| Ok(Event::new(&context)?)).collect::<Result<Vec<_>>>()?;

        let Grid { cols, rows } = grid(welcome);
        let ring = u64::from(welcome.ring);
        let mut last = None;
        let mut frame_by_frame = || {
            for frame in 0..arguments.frames + ring {
                let slot = (frame % ring) as usize;
                if frame >= ring {
                    // Not more than a ring ahead of the GPU: whatever a stream holds, it cannot be taken
                    // back.
                    while !done[slot].is_done()? {
                        news(connection, Duration::from_micros(100))?;
                    }
                    let now = Instant::now();
                    if let Some(last) = last.replace(now) {
                        times.add(now - last);
                    }
                }
                if frame >= arguments.frames {
                    continue; // The rest only has to end.
                }
                if let Some(value) = (frame + 1).checked_sub(ring).filter(|&value| value > 0) {
                    // SAFETY: (and of the signal) the semaphores live until the stream is idle, below.
                    unsafe { free.wait(&stream, Operand::Value(value)) }?;
                }
                let time = frame as f64 * welcome.frame_seconds;
                // SAFETY: the slot has 16 bytes a vertex, and the renderer reads it only between `ready` and
                // `free`.
                unsafe { kernel.launch(&stream, slots[slot].pointer(), [cols, rows], frame, time, &[]) }?;
                // SAFETY: as above; the values rise.
                unsafe { ready.signal(&stream, Operand::Value(frame + 1)) }?;
                done[slot].record(&stream)?;
            }
            Ok(())
        };
        let outcome = frame_by_frame();
        if outcome.is_err() {
            // The renderer will not signal any more: let our own stream go, or nothing here could be freed.
            // SAFETY: as above; nobody else signals it any more.
            unsafe { free.signal(&rescue, Operand::Value(arguments.frames)) }.ok();
        }
        stream.synchronize()?;
        outcome
    }

    /// Shared memory and messages, for machines without CUDA.
    fn host(
        connection: &Connection,
        welcome: &Welcome,
        descriptors: Vec<OwnedFd>,
        arguments: &Arguments,
        times: &mut FrameTimes,
    ) -> Result<()> {
        // Whoever maps memory that is cut short later is ended by SIGBUS. (Here it is written, not mapped.)
        for file in &descriptors {
            if !rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
                bail!("the renderer's memory is not sealed, so it could be cut short: that is no wavefield");
            }
        }
        let (grid, ring) = (grid(welcome), u64::from(welcome.ring));
        let mut vertices = Vec::with_capacity(grid.count() as usize);
        // Frames whose slot the renderer has copied.
        let mut freed = 0;
        let mut last = Instant::now();
        for frame in 0..arguments.frames {
            let phase = wave::phase(frame as f64 * welcome.frame_seconds) as f32;
            vertices.clear();
            for row in 0..grid.rows {
                vertices.extend(
                    (0..grid.cols).map(|col| wave::vertex(grid, col, row, phase, WaveShape::default())),
                );
            }
            while frame >= freed + ring {
                if let Some(FromServer::Free { frame }) = news(connection, Duration::from_millis(100))? {
                    freed = frame + 1;
                }
            }
            let slot = &welcome.slots[(frame % ring) as usize];
            let file = descriptors.get(slot.fd as usize).context("a descriptor is missing")?;
            let values: Vec<f32> = vertices.iter().map(|vertex| vertex.w).collect();
            let bytes: &[u8] =
                if arguments.image { bytemuck::cast_slice(&values) } else { bytemuck::cast_slice(&vertices) };
            let mut written = 0;
            while written < bytes.len() {
                written += rustix::io::pwrite(file, &bytes[written..], slot.offset + written as u64)?;
            }
            connection.send(&FromClient::Ready { frame }, &[])?;
            let now = Instant::now();
            times.add(now - last);
            last = now;
        }
        while freed < arguments.frames {
            if let Some(FromServer::Free { frame }) = news(connection, Duration::from_millis(100))? {
                freed = frame + 1;
            }
        }
        Ok(())
    }
}
