//! The seven steps with ArrayFire itself, as <https://arrayfire.org/docs/interop_cuda.htm> has them: type-checked, never run.
//!
//! Unlike the stand-in it does not work in place, and its wrapper takes the memory's ownership unless it is told otherwise.

use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use af_cuda_interop::set_device_native_id;
use arrayfire as af;
use ash::vk;
use wavefield::cuda::{Kernel, KernelSource};
use wavefield::interop::SharedBuffer;
use wavefield::interop::ownership::Owner;
use wavefield::vulkan::read_buffer;
use wavefield::{Error, Result};

use super::common::{self, Gpu};

/// Lends a slot to ArrayFire, and checks what was made of it.
pub fn run(gpu: &mut Gpu) -> Result<()> {
    // The crate's functions return no errors: they call a handler, and go on with a null handle if it returns. So it does
    // not return; unlike a panic, what it begins here prints nothing.
    af::register_error_handler(af::Callback::new(|code| {
        if code != af::AfError::SUCCESS {
            resume_unwind(Box::new(format!("{code}: {}", af::get_last_error())));
        }
    }));
    // What is dropped on the way is never used again, so no broken invariant can be seen.
    catch_unwind(AssertUnwindSafe(|| lend(gpu))).unwrap_or_else(|words| Err(failed(words.as_ref())))
}

fn lend(gpu: &mut Gpu) -> Result<()> {
    let (cols, rows, frame) = (64, 4, 3);
    let mut words: u32 = cols * rows * 4;
    let size = u64::from(words) * 4;
    let slot = SharedBuffer::new(&gpu.device, &gpu.context, size, vk::BufferUsageFlags::TRANSFER_SRC)?;
    let count = gpu.count()?;
    let (name, entry) = ("increment.ptx".into(), "increment".into());
    let ptx = include_str!("../common/increment.ptx").into();
    let increment = Kernel::load(&gpu.context, &KernelSource { name, ptx, entry, cubin: None })?;
    // ArrayFire counts devices in an order of its own; CUDA's number names the one that Vulkan draws on.
    af::set_backend(af::Backend::CUDA);
    set_device_native_id(gpu.context.info().ordinal);
    let device = af::get_device();

    // SAFETY: the documented signature, 16 bytes a vertex, and nobody else is there yet.
    unsafe { count.launch(&gpu.stream, slot.cuda(), cols, rows, frame, 0.0) }?;
    // 1. Finish what is pending: ArrayFire's stream knows nothing of ours.
    gpu.stream.synchronize()?;
    // 2. Wrap the pointer. With that ArrayFire would free the memory one day; the lock keeps it from that, and stays.
    let array =
        af::Array::new_from_device_ptr(slot.cuda() as *mut u32, af::Dim4::new(&[words.into(), 1, 1, 1]));
    array.lock();
    // 3. Work. The sum is an expression so far, and will be memory of ArrayFire's own.
    let sum = af::add(&array, &1_u32, false);
    // 4. Evaluate, and synchronize its stream.
    sum.eval();
    af::sync(device);
    // 5. Obtain the pointer, which locks that memory, too: ArrayFire does not use it for something else meanwhile.
    // SAFETY: the array is evaluated, so there is memory; it lives until it is unlocked below.
    let (mut to, mut from) = (slot.cuda(), unsafe { sum.device_ptr() } as u64);
    // 6. Go on: the next kernel of ours reads the sum, and writes the slot.
    let mut arguments: [*mut c_void; 3] =
        [(&raw mut to).cast(), (&raw mut from).cast(), (&raw mut words).cast()];
    // SAFETY: the kernel's three parameters; both memories have that many words, and ArrayFire is done with them.
    let launched = unsafe { increment.launch_with(&gpu.stream, words.div_ceil(256), 256, &mut arguments) };
    let done = launched.and_then(|()| gpu.stream.synchronize());
    // 7. Free what is yours. The sum's memory is ArrayFire's again; the slot is ours, so its wrapper ends locked, and before it.
    sum.unlock();
    drop((sum, array));
    done?;
    let bytes = read_buffer(&mut gpu.queue, slot.vulkan(), size, Owner::External)?;
    common::check("what ArrayFire made", &bytes, |index| common::counted(frame, index) + 2)?;
    println!("ArrayFire added 1 to {words} words, a kernel another 1, and Vulkan read them");
    Ok(())
}

/// What the handler said, or what the crate panicked with.
fn failed(words: &(dyn Any + Send)) -> Error {
    let text = words.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| words.downcast_ref::<&str>().copied()).unwrap_or("no words");
    Error::Unsupported(format!("ArrayFire: {text}"))
}
