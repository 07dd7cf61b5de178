//! Another CUDA library, with its own stream and its own memory manager, takes a shared slot and gives it back: the seven
//! steps of ArrayFire's guide to interoperability with CUDA.
//!
//! The library here is a stand-in, written below. `04_another_library/with_arrayfire.rs` has the same steps with ArrayFire
//! itself, behind the feature `arrayfire`: its types are checked, and it was never run, because ArrayFire's own libraries
//! could not be had.
//!
//! ```sh
//! cargo run --example 04_another_library
//! AF_PATH=/opt/arrayfire cargo run --example 04_another_library --features arrayfire
//! ```

pub mod common;
#[cfg(feature = "arrayfire")]
#[path = "04_another_library/with_arrayfire.rs"]
mod with_arrayfire;

use std::ffi::c_void;
use std::sync::Arc;

use ash::vk;
use common::{Gpu, Outcome};
use wavefield::Result;
use wavefield::cuda::{Context, DeviceMemory, Kernel, KernelSource, Stream};
use wavefield::interop::ownership::Owner;
use wavefield::interop::{SharedBuffer, SharedTimeline};
use wavefield::vulkan::read_buffer;

fn main() -> std::process::ExitCode {
    common::exit(run())
}

/// Lends a slot to the library, and checks what it made of it.
pub fn run() -> Result<Outcome> {
    let mut gpu = match Gpu::open()? {
        Ok(gpu) => gpu,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let (cols, rows, frame) = (64, 4, 3);
    let size = u64::from(cols * rows) * 16;
    let slot = SharedBuffer::new(&gpu.device, &gpu.context, size, vk::BufferUsageFlags::TRANSFER_SRC)?;
    // Whose turn it is, on the GPU: 1, we have written; 2, the library has.
    let turn = SharedTimeline::new(&gpu.device, &gpu.context)?;
    let kernel = gpu.count()?;
    let library = Library::new(&gpu.context, size)?;

    // SAFETY: the documented signature, 16 bytes a vertex, and nobody else is there yet.
    unsafe { kernel.launch(&gpu.stream, slot.cuda(), cols, rows, frame, 0.0) }?;
    // 1. Finish what is pending. Our stream says so, and the library's stream waits for it: the CPU need not.
    turn.cuda_signal(&gpu.stream, 1)?;
    turn.cuda_wait(&library.stream, 1)?;
    // 2. Wrap the pointer. The borrow says that the slot stays ours: the library's memory manager must not free it.
    let mut array = Array { pointer: slot.cuda(), words: (size / 4) as u32, _owner: &slot };
    // 3. Work.
    library.increment(&mut array)?;
    // 4. Evaluate, and synchronize *its* stream; ours knows nothing of it. The signal comes before, to be in order.
    turn.cuda_signal(&library.stream, 2)?;
    library.stream.synchronize()?;
    // 5. Hand back: the wrapper ends here, where it is used for the last time, and the memory stays.
    // 6. Go on, behind the library's work.
    turn.cuda_wait(&gpu.stream, 2)?;
    gpu.stream.synchronize()?;
    let bytes = read_buffer(&mut gpu.queue, slot.vulkan(), size, Owner::External)?;
    common::check("what the library made", &bytes, |index| common::counted(frame, index) + 1)?;
    println!("another library added 1 to {} words in place, and Vulkan read them", size / 4);
    // 7. Free what is yours: the library its stream and scratch memory, we the slot, both idle by now.
    drop(library);
    drop((turn, slot));
    #[cfg(feature = "arrayfire")]
    with_arrayfire::run(&mut gpu)?;
    Ok(Outcome::Done)
}

/// Memory that the library works on and does not own.
struct Array<'a> {
    pointer: u64,
    words: u32,
    _owner: &'a SharedBuffer,
}

/// The stand-in: everything that it uses is its own, except the array.
struct Library {
    stream: Stream,
    kernel: Kernel,
    scratch: DeviceMemory,
}

impl Library {
    /// `bytes` of scratch memory: arrays have just that size.
    fn new(context: &Arc<Context>, bytes: u64) -> Result<Self> {
        let ptx = include_str!("common/increment.ptx").into();
        let (name, entry) = ("increment.ptx".into(), "increment".into());
        let kernel = Kernel::load(context, &KernelSource { name, ptx, entry, cubin: None })?;
        let scratch = DeviceMemory::new(context, bytes)?;
        Ok(Self { stream: Stream::new(context)?, kernel, scratch })
    }

    /// Adds 1 to each word, by way of the scratch memory; returns before it is done, as such libraries do.
    fn increment(&self, array: &mut Array<'_>) -> Result<()> {
        // SAFETY: the array has the scratch memory's size, and who wraps it keeps others out until the stream is done.
        unsafe { self.scratch.copy_from(&self.stream, array.pointer) }?;
        let (mut from, mut words) = (self.scratch.pointer(), array.words);
        let mut arguments: [*mut c_void; 3] =
            [(&raw mut array.pointer).cast(), (&raw mut from).cast(), (&raw mut words).cast()];
        // SAFETY: the kernel's three parameters; both memories have that many words.
        unsafe { self.kernel.launch_with(&self.stream, words.div_ceil(256), 256, &mut arguments) }
    }
}
