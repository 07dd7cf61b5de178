//! `libcuda` with one device that works. Its streams are threads and its kernels are loops.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use ash::vk;
use cudarc::driver::sys::{
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, CUDA_MEMCPY2D,
    CUDA_RESOURCE_DESC, CUarray_format, CUmemAllocationProp, CUmemorytype,
};
use half::f16;

use crate::os as libc;
use crate::script::{self, alive};
use crate::shared::{self, Exported};
use crate::vulkan::DeviceFns;

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const INVALID_DEVICE: u32 = 101;
const INVALID_PTX: u32 = 218;
const NOT_FOUND: u32 = 500;
const NOT_READY: u32 = 600;
const ILLEGAL_ADDRESS: u32 = 700;
const NOT_SUPPORTED: u32 = 801;
const LAUNCH_FAILED: u32 = 719;

/// The fault that broke the context, or 0. Every later call returns it.
static FAULT: AtomicU32 = AtomicU32::new(0);

fn is_fault(code: u32) -> bool {
    matches!(code, ILLEGAL_ADDRESS | LAUNCH_FAILED)
}

/// A call that gives something back has failed, so the program cannot give back the rest in order.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether the program can still give everything back in the right order.
pub(crate) fn takes_everything_back() -> bool {
    FAULT.load(Ordering::SeqCst) == 0 && !REFUSED.load(Ordering::SeqCst)
}

/// Every function calls this first.
fn enter(name: &'static str) -> Result<(), u32> {
    let answer = allowed(name);
    let gives_back = ["Destroy", "Free", "Unmap", "cuCtxSetCurrent"].iter().any(|part| name.contains(part));
    if answer.is_err() && gives_back {
        REFUSED.store(true, Ordering::SeqCst);
    }
    answer
}

fn allowed(name: &'static str) -> Result<(), u32> {
    if let Some(code) = script::call(name) {
        let code = code as u32;
        if is_fault(code) {
            FAULT.store(code, Ordering::SeqCst);
            // A broken context runs nothing more, and the caller may then free what a job here still writes.
            // So wait for the jobs.
            for _ in 0..20_000 {
                if RUNNING.load(Ordering::SeqCst) == 0 {
                    break;
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        return Err(code);
    }
    match FAULT.load(Ordering::SeqCst) {
        0 => Ok(()),
        code => Err(code),
    }
}

unsafe fn load_module(module: *mut *mut c_void, image: *const c_void) -> Result<(), u32> {
    let ptx = CStr::from_ptr(image.cast()).to_string_lossy().into_owned();
    // Only a compiler sees what is wrong with `tool/handoff/kernels/test/broken.ptx`, so it is recognised by
    // its name. A byte-order mark before the first directive or comment is no PTX.
    let starts = ptx.trim_start().starts_with(['.', '/']);
    if !starts || !ptx.contains(".version") || ptx.contains(".entry broken(") {
        return Err(INVALID_PTX);
    }
    *module = handle(ptx);
    alive("module", 1);
    Ok(())
}

/// Exported C functions that return a code.
macro_rules! exports {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $body:block)*) => {$(
        #[allow(non_snake_case)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            let run = || -> Result<(), u32> { enter(stringify!($name))?; $body };
            run().err().unwrap_or(0)
        }
    )*};
}

type Job = Box<dyn FnOnce() -> Result<(), u32> + Send>;

/// The number of unfinished jobs of all streams.
static RUNNING: AtomicU64 = AtomicU64::new(0);

/// A queue of jobs. A thread does them in order.
struct Stream {
    jobs: mpsc::Sender<Job>,
    left: Arc<AtomicU64>,
    capturing: AtomicBool,
}

impl Stream {
    fn new() -> Self {
        let (jobs, todo) = mpsc::channel::<Job>();
        let left = Arc::new(AtomicU64::new(0));
        let counter = left.clone();
        std::thread::spawn(move || {
            for job in todo {
                // After a fault, no job runs any more.
                if FAULT.load(Ordering::SeqCst) == 0
                    && let Err(code) = job()
                {
                    FAULT.store(code, Ordering::SeqCst);
                }
                counter.fetch_sub(1, Ordering::SeqCst);
                RUNNING.fetch_sub(1, Ordering::SeqCst);
            }
        });
        Self { jobs, left, capturing: AtomicBool::new(false) }
    }

    fn push(&self, job: impl FnOnce() -> Result<(), u32> + Send + 'static) -> Result<(), u32> {
        self.left.fetch_add(1, Ordering::SeqCst);
        RUNNING.fetch_add(1, Ordering::SeqCst);
        self.jobs.send(Box::new(job)).map_err(|_| LAUNCH_FAILED)
    }
}

#[derive(Clone, Copy)]
struct Address(u64);

impl Address {
    /// An address that a call was given. A driver refuses null at once.
    fn of(address: u64) -> Result<Self, u32> {
        if address == 0 { Err(INVALID_VALUE) } else { Ok(Self(address)) }
    }

    fn bytes(self, size: u64) -> &'static mut [u8] {
        // SAFETY: as on a GPU, the caller promises that it has `size` bytes at this address.
        unsafe { std::slice::from_raw_parts_mut(self.0 as *mut u8, size as usize) }
    }
}

/// An allocation, with what is needed to free it.
enum Allocation {
    Own(Vec<u8>),
    /// Page-locked memory of the CPU.
    Host(Vec<u8>),
    Mapped(DeviceFns, vk::DeviceMemory),
}

static ALLOCATIONS: LazyLock<Mutex<HashMap<u64, Allocation>>> = LazyLock::new(Default::default);

fn allocations() -> std::sync::MutexGuard<'static, HashMap<u64, Allocation>> {
    ALLOCATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn free(pointer: u64) -> Result<(), u32> {
    let allocation = allocations().remove(&pointer);
    // As the real driver does, this waits for the jobs that still use the memory.
    let wait = || {
        while RUNNING.load(Ordering::SeqCst) > 0 && FAULT.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    };
    match allocation {
        Some(Allocation::Own(memory)) => {
            wait();
            script::give_memory(memory.len() as u64);
        }
        Some(Allocation::Host(memory)) => {
            wait();
            drop(memory);
        }
        Some(Allocation::Mapped(device, memory)) => device.unmap(memory),
        None => return Err(INVALID_VALUE),
    }
    Ok(())
}

/// A mipmapped array.
struct Mipmap {
    levels: Vec<Level>,
    base: u64,
}

/// One level of a mipmapped array. An array with layers or a depth, or without a height, has no texels here.
#[derive(Clone, Copy, Default)]
struct Level {
    address: u64,
    pitch: u64,
    row_bytes: u64,
    rows: u64,
}

impl Level {
    fn row(&self, row: u64, bytes: u64) -> &'static mut [u8] {
        Address(self.address + row * self.pitch).bytes(bytes)
    }
}

/// The levels of an array from `base` on, and their total size in bytes. The layout is that of llvmpipe's
/// images (its function `llvmpipe_texture_layout`): blocks of 4x4 texels, with rows and levels that start at
/// multiples of 64 bytes. Vulkan reports the layout of images with linear tiling only. If this layout were
/// wrong, the tests that compare pictures would fail.
fn levels(desc: &CUDA_ARRAY3D_DESCRIPTOR, count: u32, base: u64) -> (Vec<Level>, u64) {
    use CUarray_format::*;
    let channel = match desc.Format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
        _ => 4,
    };
    if desc.Height == 0 || desc.Depth > 0 {
        return (vec![Level::default(); count as usize], 64);
    }
    let texel = channel * u64::from(desc.NumChannels);
    let half = |size: usize, level: u32| (size as u64 >> level).max(1);
    let mut size = 0;
    let level = |level: u32| {
        let (cols, rows) = (half(desc.Width, level), half(desc.Height, level));
        let pitch = (cols.next_multiple_of(4) * texel).next_multiple_of(64);
        let address = base + size;
        size += pitch * rows.next_multiple_of(4);
        Level { address, pitch, row_bytes: cols * texel, rows }
    };
    ((0..count).map(level).collect(), size)
}

struct Imported<T> {
    what: T,
    fd: c_int,
}

impl<T> Imported<T> {
    /// Closes the descriptor, as the driver does with one that it imported.
    fn close(self) -> T {
        // SAFETY: the import made the descriptor ours.
        if unsafe { libc::close(self.fd) } != 0 {
            script::offence(format!("descriptor {} was closed although CUDA owned it", self.fd));
        }
        self.what
    }
}

type ImportedMemory = Imported<(DeviceFns, vk::DeviceMemory, u64)>;
type ImportedSemaphore = Imported<shared::Imported>;
type Event = Arc<Mutex<Mark>>;

/// What an event marks: the last `cuEventRecord` only.
#[derive(Default)]
struct Mark {
    /// How many times it was recorded.
    records: u64,
    /// When the stream reached the last one.
    reached: Option<Instant>,
}

/// Makes a handle that owns `value`.
fn handle<T>(value: T) -> *mut c_void {
    Box::into_raw(Box::new(value)).cast()
}

unsafe fn look<'a, T>(handle: *mut c_void) -> Result<&'a T, u32> {
    handle.cast::<T>().as_ref().ok_or(INVALID_VALUE)
}

/// The context that is current on this thread: [`CONTEXT`] times one more than its device's number, or one of
/// `cuCtxCreate_v4`.
fn current() -> usize {
    CURRENT.get()
}

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The primary context of the first device. Contexts are numbers, because nothing looks into them.
const CONTEXT: usize = 0x10;

/// The stream of this handle. Null is the default stream of the current context.
unsafe fn stream_of<'a>(handle: *mut c_void) -> Result<&'a Stream, u32> {
    static DEFAULTS: Mutex<BTreeMap<usize, &'static Stream>> = Mutex::new(BTreeMap::new());
    if !handle.is_null() {
        return look::<Stream>(handle);
    }
    let mut defaults = DEFAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(defaults.entry(current()).or_insert_with(|| Box::leak(Box::new(Stream::new()))))
}

unsafe fn take<T>(handle: *mut c_void) -> Result<T, u32> {
    if handle.is_null() { Err(INVALID_VALUE) } else { Ok(*Box::from_raw(handle.cast::<T>())) }
}

/// How many devices there are. Only the first can be used; the others are for lists of devices.
fn devices() -> c_int {
    script::number("STAND_IN_CUDA_DEVICES").map_or(1, |count| count as c_int)
}

fn uuid_of(device: c_int) -> [u8; 16] {
    let mut uuid = crate::vulkan::first_uuid();
    uuid[15] ^= device as u8;
    uuid
}

exports! {
    fn cuInit(_flags: c_uint) { Ok(()) }
    fn cuDriverGetVersion(version: *mut c_int) {
        *version = script::number("STAND_IN_CUDA_VERSION").unwrap_or(12_000) as c_int;
        Ok(())
    }
    fn cuDeviceGetCount(count: *mut c_int) { *count = devices(); Ok(()) }
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        *device = ordinal;
        if (0..devices()).contains(&ordinal) { Ok(()) } else { Err(INVALID_DEVICE) }
    }
    // The first two devices reach each other.
    fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) {
        *can = c_int::from(device != peer && device.max(peer) == 1);
        if device.max(peer) < devices() { Ok(()) } else { Err(INVALID_DEVICE) }
    }
    fn cuDeviceGetName(name: *mut c_char, size: c_int, _device: c_int) {
        let bytes = std::slice::from_raw_parts_mut(name.cast::<u8>(), size as usize);
        let text = c"Stand-in GPU".to_bytes_with_nul();
        bytes[..text.len()].copy_from_slice(text);
        Ok(())
    }
    // 115: CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED.
    fn cuDeviceGetAttribute(value: *mut c_int, which: c_int, _device: c_int) { *value = c_int::from(which != 115); Ok(()) }
    fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) { *uuid = uuid_of(device); Ok(()) }
    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) { *uuid = uuid_of(device); Ok(()) }

    // Without a number in `STAND_IN_LUID`, the driver's answer on Linux.
    fn cuDeviceGetLuid(luid: *mut [u8; 8], node_mask: *mut c_uint, device: c_int) {
        let first = script::number("STAND_IN_LUID").ok_or(NOT_SUPPORTED)?;
        (*luid, *node_mask) = ((first + device as u64).to_le_bytes(), 1);
        Ok(())
    }

    fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) {
        *context = std::ptr::without_provenance_mut(CONTEXT * (device as usize + 1));
        alive("primary context", 1);
        Ok(())
    }
    fn cuDevicePrimaryCtxRelease_v2(_device: c_int) { alive("primary context", -1); Ok(()) }
    // Another context of the first device.
    fn cuCtxCreate_v4(context: *mut *mut c_void, _params: *const c_void, _flags: c_uint, _device: c_int) {
        static MADE: AtomicUsize = AtomicUsize::new(1);
        *context = std::ptr::without_provenance_mut(CONTEXT / 2 + CONTEXT * MADE.fetch_add(1, Ordering::SeqCst));
        CURRENT.set((*context).addr());
        alive("context", 1);
        Ok(())
    }
    fn cuCtxDestroy_v2(_context: *mut c_void) { alive("context", -1); Ok(()) }
    fn cuCtxSetCurrent(context: *mut c_void) { CURRENT.set(context.addr()); Ok(()) }
    // The second device's context counts as one of the first, which alone can be used.
    fn cuCtxGetDevice(device: *mut c_int) { *device = 0; Ok(()) }
    fn cuCtxGetCurrent(context: *mut *mut c_void) {
        *context = std::ptr::without_provenance_mut(current());
        Ok(())
    }
    fn cuCtxSynchronize() {
        while RUNNING.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
        match FAULT.load(Ordering::SeqCst) {
            0 => Ok(()),
            code => Err(code),
        }
    }

    fn cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) {
        *stream = handle(Stream::new());
        alive("stream", 1);
        Ok(())
    }
    fn cuStreamDestroy_v2(stream: *mut c_void) {
        take::<Stream>(stream)?;
        alive("stream", -1);
        Ok(())
    }
    fn cuStreamSynchronize(stream: *mut c_void) {
        let stream = stream_of(stream)?;
        while stream.left.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
        match FAULT.load(Ordering::SeqCst) {
            0 => Ok(()),
            code => Err(code),
        }
    }
    fn cuStreamQuery(stream: *mut c_void) {
        match stream_of(stream)?.left.load(Ordering::SeqCst) {
            0 => Ok(()),
            _ => Err(NOT_READY),
        }
    }
    // Only the state: nothing is captured here.
    fn cuStreamBeginCapture_v2(stream: *mut c_void, _mode: c_uint) {
        stream_of(stream)?.capturing.store(true, Ordering::SeqCst);
        Ok(())
    }
    fn cuStreamIsCapturing(stream: *mut c_void, status: *mut c_uint) {
        *status = stream_of(stream)?.capturing.load(Ordering::SeqCst).into();
        Ok(())
    }
    fn cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) {
        stream_of(stream)?.capturing.store(false, Ordering::SeqCst);
        *graph = std::ptr::null_mut();
        Ok(())
    }
    fn cuStreamWriteValue32_v2(stream: *mut c_void, pointer: u64, value: c_uint, _flags: c_uint) {
        let word = Address(pointer);
        stream_of(stream)?.push(move || {
            let word = word;
            word.bytes(4).copy_from_slice(&value.to_ne_bytes());
            Ok(())
        })
    }

    fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) {
        *event = handle(Event::default());
        alive("event", 1);
        Ok(())
    }
    fn cuEventDestroy_v2(event: *mut c_void) {
        take::<Event>(event)?;
        alive("event", -1);
        Ok(())
    }
    fn cuEventRecord(event: *mut c_void, stream: *mut c_void) {
        let event = look::<Event>(event)?.clone();
        let number = {
            let mut mark = event.lock().map_err(|_| LAUNCH_FAILED)?;
            *mark = Mark { records: mark.records + 1, reached: None };
            mark.records
        };
        stream_of(stream)?.push(move || {
            let mut mark = event.lock().map_err(|_| LAUNCH_FAILED)?;
            if mark.records == number {
                mark.reached = Some(Instant::now());
            }
            Ok(())
        })
    }
    // An event that was never recorded is done.
    fn cuEventQuery(event: *mut c_void) {
        let mark = look::<Event>(event)?.lock().map_err(|_| LAUNCH_FAILED)?;
        if mark.records == 0 || mark.reached.is_some() { Ok(()) } else { Err(NOT_READY) }
    }
    fn cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) {
        let event = look::<Event>(event)?.clone();
        let number = event.lock().map_err(|_| LAUNCH_FAILED)?.records;
        stream_of(stream)?.push(move || {
            loop {
                let mark = event.lock().map_err(|_| LAUNCH_FAILED)?;
                // A later record comes after this one.
                if number == 0 || mark.records > number || mark.reached.is_some() {
                    return Ok(());
                }
                drop(mark);
                std::thread::sleep(Duration::from_micros(50));
            }
        })
    }
    fn cuEventElapsedTime(milliseconds: *mut f32, start: *mut c_void, end: *mut c_void) {
        let at = |event: &Event| event.lock().ok().and_then(|mark| mark.reached).ok_or(NOT_READY);
        let (start, end) = (at(look::<Event>(start)?)?, at(look::<Event>(end)?)?);
        *milliseconds = end.saturating_duration_since(start).as_secs_f32() * 1e3;
        Ok(())
    }

    fn cuModuleLoadDataEx(
        module: *mut *mut c_void, image: *const c_void, _count: c_uint, _options: *mut c_void, _values: *mut c_void
    ) {
        load_module(module, image)
    }
    // cudarc calls this one.
    fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) { load_module(module, image) }
    fn cuModuleUnload(module: *mut c_void) {
        take::<String>(module)?;
        alive("module", -1);
        Ok(())
    }
    fn cuModuleGetFunction(function: *mut *mut c_void, module: *mut c_void, name: *const c_char) {
        let name = CStr::from_ptr(name).to_string_lossy();
        if !look::<String>(module)?.contains(&format!(".entry {name}(")) {
            return Err(NOT_FOUND);
        }
        // A function is not a pointer here, but the kernel's number and its head.
        let kernel = match &*name {
            "stamp" => STAMP,
            "frame_stamp" => FRAME_STAMP,
            "flat" => FLAT,
            "level" => LEVEL,
            "colour" => COLOUR,
            "spin" => SPIN,
            "trap_kernel" => TRAP,
            "illegal" => ILLEGAL,
            "late" => LATE,
            "wave" => WAVE,
            "paint" => PAINT,
            "reduce" => REDUCE,
            "texture_stamp" => TEXTURE_STAMP,
            "pattern" => PATTERN,
            "pattern_texels" => PATTERN_TEXELS,
            "check_pattern" => CHECK_PATTERN,
            "check_pattern_texels" => CHECK_PATTERN_TEXELS,
            "fill" => FILL,
            "invert" => INVERT,
            "look" => LOOK,
            "first_wave" => FIRST_WAVE,
            "swell" => SWELL,
            "squares" => SQUARES,
            "write_words" => WRITE_WORDS,
            // Their tests look at the calls, not at what is written.
            "ocean" | "pond" | "ripples" | "swarm" | "answer" | "surface_read" | "surface_write" => NOTHING,
            unknown => {
                eprintln!(
                    "stand-in: it has no kernel `{unknown}`. To add it, follow `write_words` through \
                     tests/stand_in/src/cuda.rs: its name, its number, its arguments, its code"
                );
                return Err(NOT_FOUND);
            }
        };
        let head = Head::of(look::<String>(module)?, &name);
        *function = (kernel | (head.pack() << KERNEL_BITS)) as *mut c_void;
        Ok(())
    }
    fn cuFuncGetAttribute(value: *mut c_int, which: c_int, function: *mut c_void) {
        let head = Head::unpack(function as usize >> KERNEL_BITS);
        *value = match which {
            // CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
            0 => head.most,
            // CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
            3 => head.local,
            _ => return Err(INVALID_VALUE),
        } as c_int;
        Ok(())
    }
    fn cuLaunchHostFunc(
        stream: *mut c_void, function: unsafe extern "C" fn(*mut c_void), argument: *mut c_void
    ) {
        let argument = argument as usize;
        stream_of(stream)?.push(move || {
            // SAFETY: the caller's promise.
            unsafe { function(argument as *mut c_void) };
            Ok(())
        })
    }
    fn cuLaunchKernel(
        function: *mut c_void, bx: c_uint, _by: c_uint, _bz: c_uint, tx: c_uint, _ty: c_uint, _tz: c_uint,
        _shared: c_uint, stream: *mut c_void, arguments: *mut *mut c_void, _extra: *mut c_void
    ) {
        let head = Head::unpack(function as usize >> KERNEL_BITS);
        if !head.takes(tx) {
            return Err(INVALID_VALUE);
        }
        let values = head.values(arguments.cast());
        let kernel = kernel_of(function);
        if kernel == NOTHING {
            return stream_of(stream)?.push(|| Ok(()));
        }
        let argument = |index: usize| *arguments.add(index);
        let out = Address(*argument(0).cast::<u64>());
        if kernel == REDUCE {
            let (from, to) = (*look::<Level>(out.0 as *mut _)?, *look::<Level>(*argument(1).cast())?);
            return stream_of(stream)?.push(move || reduce(from, to));
        }
        if kernel == FILL || kernel == WRITE_WORDS {
            let (words, frame): (u32, u32) = (*argument(1).cast(), *argument(2).cast());
            let late: u64 = if kernel == WRITE_WORDS { *argument(3).cast() } else { 0 };
            if u64::from(bx) * u64::from(tx) < u64::from(words) {
                script::offence(format!("{} threads were launched for {words} words", u64::from(bx) * u64::from(tx)));
            }
            return stream_of(stream)?.push(move || fill(out, words, frame, late));
        }
        if kernel == FIRST_WAVE {
            let (count, frame, late): (u32, u32, u64) = (*argument(1).cast(), *argument(2).cast(), *argument(3).cast());
            if bx * tx < count {
                script::offence(format!("{} threads were launched for {count} vertices", bx * tx));
            }
            return stream_of(stream)?.push(move || first_wave(out, count, frame, late));
        }
        if [SWELL, SQUARES].contains(&kernel) {
            let (cols, rows, frame): (u32, u32, u32) = (*argument(1).cast(), *argument(2).cast(), *argument(3).cast());
            return stream_of(stream)?.push(move || example(kernel, out, [cols, rows, frame]));
        }
        if kernel == INVERT {
            let words: u32 = *argument(1).cast();
            return stream_of(stream)?.push(move || {
                let words = out.bytes(4 * u64::from(words));
                words.iter_mut().for_each(|byte| *byte = !*byte);
                Ok(())
            });
        }
        if kernel == LOOK {
            let (level, sums) = (*look::<Level>(out.0 as *mut _)?, Address(*argument(3).cast::<u64>()));
            let (cols, rows): (u32, u32) = (*argument(1).cast(), *argument(2).cast());
            return stream_of(stream)?.push(move || {
                let (row_of, mut add) = (|y: u32| level.row(y.into(), level.row_bytes), [0; 3]);
                for (x, y) in (0..rows).flat_map(|y| (0..cols).map(move |x| (x, y))) {
                    let red = u64::from(row_of(y)[4 * x as usize]);
                    add = [add[0] + red, add[1] + red * u64::from(x), add[2] + red * u64::from(y)];
                }
                count(sums, add)
            });
        }
        let arguments = match kernel {
            STAMP => Arguments::default(),
            _ => Arguments {
                cols: *argument(1).cast(),
                rows: *argument(2).cast(),
                frame: *argument(3).cast(),
                time: *argument(4).cast(),
                values,
            },
        };
        let (threads, wanted) = (u64::from(bx) * u64::from(tx), u64::from(arguments.cols) * u64::from(arguments.rows));
        if threads < wanted {
            script::offence(format!("{threads} threads were launched for {wanted} vertices or texels"));
        }
        stream_of(stream)?.push(move || run(kernel, out, arguments))
    }

    fn cuLinkCreate_v2(_count: c_uint, _options: *mut c_void, _values: *mut c_void, state: *mut *mut c_void) {
        *state = handle(Vec::<u8>::new());
        alive("linker", 1);
        Ok(())
    }
    fn cuLinkAddData_v2(
        state: *mut c_void, _kind: c_int, data: *mut c_void, size: usize, _name: *const c_char, _count: c_uint,
        _options: *mut c_void, _values: *mut c_void
    ) {
        look::<Vec<u8>>(state)?;
        *state.cast::<Vec<u8>>() = Address(data as u64).bytes(size as u64).to_vec();
        Ok(())
    }
    // The machine code is the PTX itself, so that a module can be made from it.
    fn cuLinkComplete(state: *mut c_void, cubin: *mut *const c_void, size: *mut usize) {
        let code = look::<Vec<u8>>(state)?;
        (*cubin, *size) = (code.as_ptr().cast(), code.len());
        Ok(())
    }
    fn cuLinkDestroy(state: *mut c_void) {
        take::<Vec<u8>>(state)?;
        alive("linker", -1);
        Ok(())
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        *total = script::memory_size() as usize;
        *free = *total - script::memory_used() as usize;
        Ok(())
    }
    fn cuMemAlloc_v2(pointer: *mut u64, size: usize) {
        if !script::take_memory(size as u64) {
            return Err(OUT_OF_MEMORY);
        }
        let memory = vec![0u8; size];
        *pointer = memory.as_ptr() as u64;
        allocations().insert(*pointer, Allocation::Own(memory));
        alive("CUDA memory", 1);
        Ok(())
    }
    fn cuMemFree_v2(pointer: u64) {
        free(pointer)?;
        alive("CUDA memory", -1);
        Ok(())
    }
    fn cuMemHostAlloc(pointer: *mut *mut c_void, size: usize, _flags: c_uint) {
        let mut memory = vec![0u8; size];
        *pointer = memory.as_mut_ptr().cast();
        allocations().insert(*pointer as u64, Allocation::Host(memory));
        alive("page-locked memory", 1);
        Ok(())
    }
    fn cuMemFreeHost(pointer: *mut c_void) {
        free(pointer as u64)?;
        alive("page-locked memory", -1);
        Ok(())
    }
    fn cuMemsetD32Async(target: u64, value: c_uint, count: usize, stream: *mut c_void) {
        let target = Address::of(target)?;
        stream_of(stream)?.push(move || {
            let target = target;
            target.bytes(count as u64 * 4).chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&value.to_ne_bytes()));
            Ok(())
        })
    }
    fn cuMemsetD8Async(target: u64, value: u8, count: usize, stream: *mut c_void) {
        let target = Address::of(target)?;
        stream_of(stream)?.push(move || {
            let target = target;
            target.bytes(count as u64).fill(value);
            Ok(())
        })
    }
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, stream: *mut c_void) {
        let (to, from) = (Address::of(to)?, Address::of(from)?);
        stream_of(stream)?.push(move || {
            let (to, from) = (to, from);
            to.bytes(size as u64).copy_from_slice(from.bytes(size as u64));
            Ok(())
        })
    }
    // Slow, as between two GPUs without a link: so a reader who does not wait for it is found.
    fn cuMemcpyPeerAsync(
        to: u64, _to_context: *mut c_void, from: u64, _from_context: *mut c_void, size: usize, stream: *mut c_void
    ) {
        let (to, from) = (Address::of(to)?, Address::of(from)?);
        stream_of(stream)?.push(move || {
            let (to, from) = (to, from);
            std::thread::sleep(Duration::from_millis(60));
            to.bytes(size as u64).copy_from_slice(from.bytes(size as u64));
            Ok(())
        })
    }
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, size: usize, stream: *mut c_void) {
        let (to, from) = (Address::of(to as u64)?, Address::of(from)?);
        stream_of(stream)?.push(move || {
            let (to, from) = (to, from);
            to.bytes(size as u64).copy_from_slice(from.bytes(size as u64));
            Ok(())
        })
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, size: usize, stream: *mut c_void) {
        // CUDA reads pageable memory before the call returns.
        let bytes = Address(from as u64).bytes(size as u64).to_vec();
        let to = Address::of(to)?;
        stream_of(stream)?.push(move || {
            let to = to;
            to.bytes(bytes.len() as u64).copy_from_slice(&bytes);
            Ok(())
        })
    }

    fn cuExternalMemoryGetMappedMipmappedArray(
        mipmap: *mut *mut c_void, memory: *mut c_void, desc: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC
    ) {
        let (device, raw, _) = look::<ImportedMemory>(memory)?.what;
        let base = device.map(raw).ok_or(LAUNCH_FAILED)?;
        allocations().insert(base, Allocation::Mapped(device, raw));
        let (levels, _) = levels(&(*desc).arrayDesc, (*desc).numLevels, base);
        *mipmap = handle(Mipmap { levels, base });
        alive("mipmapped array", 1);
        Ok(())
    }
    fn cuMipmappedArrayCreate(mipmap: *mut *mut c_void, desc: *const CUDA_ARRAY3D_DESCRIPTOR, count: c_uint) {
        let (_, size) = levels(&*desc, count, 0);
        if !script::take_memory(size) {
            return Err(OUT_OF_MEMORY);
        }
        let memory = vec![0u8; size as usize];
        let base = memory.as_ptr() as u64;
        allocations().insert(base, Allocation::Own(memory));
        let (levels, _) = levels(&*desc, count, base);
        *mipmap = handle(Mipmap { levels, base });
        alive("mipmapped array", 1);
        Ok(())
    }
    fn cuMipmappedArrayGetLevel(array: *mut *mut c_void, mipmap: *mut c_void, level: c_uint) {
        let level = look::<Mipmap>(mipmap)?.levels.get(level as usize).ok_or(INVALID_VALUE)?;
        // An array is a pointer to its level, and a surface object is one too.
        *array = std::ptr::from_ref(level).cast_mut().cast();
        Ok(())
    }
    fn cuMipmappedArrayDestroy(mipmap: *mut c_void) {
        free(take::<Mipmap>(mipmap)?.base)?;
        alive("mipmapped array", -1);
        Ok(())
    }
    fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: *mut c_void) {
        let copy = &*copy;
        let (row_bytes, rows) = (copy.WidthInBytes as u64, copy.Height as u64);
        let plain = |address, pitch| Level { address, pitch, row_bytes, rows };
        let from = match copy.srcMemoryType {
            CUmemorytype::CU_MEMORYTYPE_ARRAY => *look::<Level>(copy.srcArray.cast())?,
            CUmemorytype::CU_MEMORYTYPE_HOST => plain(copy.srcHost as u64, copy.srcPitch as u64),
            _ => plain(copy.srcDevice, copy.srcPitch as u64),
        };
        let to = match copy.dstMemoryType {
            CUmemorytype::CU_MEMORYTYPE_ARRAY => *look::<Level>(copy.dstArray.cast())?,
            CUmemorytype::CU_MEMORYTYPE_DEVICE => plain(copy.dstDevice, copy.dstPitch as u64),
            _ => plain(copy.dstHost as u64, copy.dstPitch as u64),
        };
        if row_bytes > from.row_bytes.min(to.row_bytes) || rows > from.rows.min(to.rows) {
            return Err(INVALID_VALUE);
        }
        // CUDA reads pageable memory before the call returns.
        let staged = (copy.srcMemoryType == CUmemorytype::CU_MEMORYTYPE_HOST)
            .then(|| (0..rows).map(|row| from.row(row, row_bytes).to_vec()).collect::<Vec<_>>());
        stream_of(stream)?.push(move || {
            let (from, to) = (from, to);
            for row in 0..rows {
                let bytes = staged.as_ref().map_or_else(|| &*from.row(row, row_bytes), |rows| &rows[row as usize]);
                to.row(row, row_bytes).copy_from_slice(bytes);
            }
            Ok(())
        })
    }
    fn cuSurfObjectCreate(object: *mut u64, desc: *const CUDA_RESOURCE_DESC) {
        *object = (*desc).res.array.hArray as u64;
        alive("surface object", 1);
        Ok(())
    }
    fn cuSurfObjectDestroy(_object: u64) { alive("surface object", -1); Ok(()) }

    fn cuImportExternalMemory(memory: *mut *mut c_void, desc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC) {
        let fd = (*desc).handle.fd;
        let Some(Exported::Memory(device, raw, size)) = shared::find(fd) else { return Err(INVALID_VALUE) };
        if (*desc).size != size {
            script::offence(format!("{} bytes were imported of an allocation of {size}", (*desc).size));
        }
        device.imported(raw, 1);
        *memory = handle(ImportedMemory { what: (device, raw, size), fd });
        alive("external memory", 1);
        Ok(())
    }
    fn cuExternalMemoryGetMappedBuffer(
        pointer: *mut u64, memory: *mut c_void, desc: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC
    ) {
        let (device, raw, size) = &look::<ImportedMemory>(memory)?.what;
        if (*desc).offset + (*desc).size > *size {
            return Err(INVALID_VALUE);
        }
        let address = device.map(*raw).ok_or(LAUNCH_FAILED)? + (*desc).offset;
        allocations().insert(address, Allocation::Mapped(*device, *raw));
        *pointer = address;
        alive("CUDA memory", 1);
        Ok(())
    }
    fn cuDestroyExternalMemory(memory: *mut c_void) {
        let (device, raw, _) = take::<ImportedMemory>(memory)?.close();
        let mapped = allocations().values().any(|a| matches!(a, Allocation::Mapped(_, memory) if *memory == raw));
        if mapped && takes_everything_back() {
            script::offence("external memory was destroyed while it was mapped".into());
        }
        device.imported(raw, -1);
        alive("external memory", -1);
        Ok(())
    }
    fn cuImportExternalSemaphore(semaphore: *mut *mut c_void, desc: *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC) {
        let fd = (*desc).handle.fd;
        let what = shared::Imported::new(fd).ok_or(INVALID_VALUE)?;
        *semaphore = handle(ImportedSemaphore { what, fd });
        alive("external semaphore", 1);
        Ok(())
    }
    fn cuDestroyExternalSemaphore(semaphore: *mut c_void) {
        take::<ImportedSemaphore>(semaphore)?.close();
        alive("external semaphore", -1);
        Ok(())
    }
    fn cuSignalExternalSemaphoresAsync(
        semaphores: *const *mut c_void, params: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, _count: c_uint,
        stream: *mut c_void
    ) {
        let semaphore = look::<ImportedSemaphore>(*semaphores)?.what.clone();
        let value = semaphore.to_signal((*params).params.fence.value);
        stream_of(stream)?.push(move || {
            semaphore.signal(value);
            Ok(())
        })
    }
    fn cuWaitExternalSemaphoresAsync(
        semaphores: *const *mut c_void, params: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, _count: c_uint,
        stream: *mut c_void
    ) {
        let semaphore = look::<ImportedSemaphore>(*semaphores)?.what.clone();
        let value = semaphore.to_wait((*params).params.fence.value);
        stream_of(stream)?.push(move || {
            while !semaphore.wait(value) && FAULT.load(Ordering::SeqCst) == 0 {}
            Ok(())
        })
    }
}

/// Memory from `cuMemCreate`, or imported.
struct Physical {
    fd: c_int,
    size: u64,
    /// Whether the memory was imported. The process that created it counts its bytes.
    imported: bool,
}

/// The mapped ranges: their sizes in bytes, by address.
static MAPPED: LazyLock<Mutex<HashMap<u64, u64>>> = LazyLock::new(Default::default);

fn mapped() -> std::sync::MutexGuard<'static, HashMap<u64, u64>> {
    MAPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The granularity of an H200.
const GRANULARITY: usize = 2 << 20;

/// CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
const POSIX: u32 = 1;

/// Maps `fd`, or nothing if it is -1, at a reserved address. The mapping has no access yet.
unsafe fn map_fixed(address: u64, size: usize, fd: c_int) -> Result<(), u32> {
    let (flags, offset) = match fd {
        -1 => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, 0),
        _ => (libc::MAP_SHARED, shared::HEADER as libc::off_t),
    };
    let at = libc::mmap(address as *mut c_void, size, libc::PROT_NONE, flags | libc::MAP_FIXED, fd, offset);
    if at == libc::MAP_FAILED { Err(OUT_OF_MEMORY) } else { Ok(()) }
}

exports! {
    fn cuMemGetAllocationGranularity(granularity: *mut usize, _prop: *const CUmemAllocationProp, _option: c_uint) {
        *granularity = GRANULARITY;
        Ok(())
    }
    fn cuMemAddressReserve(pointer: *mut u64, size: usize, _alignment: usize, _address: u64, _flags: u64) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let at = libc::mmap(std::ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0);
        if size == 0 || !size.is_multiple_of(GRANULARITY) || at == libc::MAP_FAILED {
            return Err(INVALID_VALUE);
        }
        *pointer = at as u64;
        alive("address range", 1);
        Ok(())
    }
    fn cuMemAddressFree(pointer: u64, size: usize) {
        if mapped().keys().any(|address| (pointer..pointer + size as u64).contains(address)) {
            if takes_everything_back() {
                script::offence("addresses were freed while memory was mapped there".into());
            }
            return Err(INVALID_VALUE);
        }
        libc::munmap(pointer as *mut c_void, size);
        alive("address range", -1);
        Ok(())
    }
    fn cuMemCreate(out: *mut u64, size: usize, prop: *const CUmemAllocationProp, _flags: u64) {
        let prop = &*prop;
        if size == 0 || !size.is_multiple_of(GRANULARITY) || prop.requestedHandleTypes.0 != POSIX || prop.location.id != 0 {
            return Err(INVALID_VALUE);
        }
        if !script::take_memory(size as u64) {
            return Err(OUT_OF_MEMORY);
        }
        let fd = shared::create_memory(size as u64).ok_or(OUT_OF_MEMORY)?;
        *out = handle(Physical { fd, size: size as u64, imported: false }) as u64;
        alive("memory of CUDA's", 1);
        Ok(())
    }
    fn cuMemRelease(handle: u64) {
        let Physical { fd, size, imported } = take(handle as *mut c_void)?;
        shared::release_memory(fd);
        script::give_memory(if imported { 0 } else { size });
        alive("memory of CUDA's", -1);
        Ok(())
    }
    fn cuMemMap(pointer: u64, size: usize, offset: usize, handle: u64, _flags: u64) {
        let physical = look::<Physical>(handle as *mut c_void)?;
        let fits = size.is_multiple_of(GRANULARITY) && size as u64 <= physical.size;
        if offset != 0 || !fits || mapped().contains_key(&pointer) {
            return Err(INVALID_VALUE);
        }
        map_fixed(pointer, size, physical.fd)?;
        mapped().insert(pointer, size as u64);
        alive("mapping", 1);
        Ok(())
    }
    fn cuMemUnmap(pointer: u64, size: usize) {
        if mapped().remove(&pointer) != Some(size as u64) {
            return Err(INVALID_VALUE);
        }
        map_fixed(pointer, size, -1)?;
        alive("mapping", -1);
        Ok(())
    }
    fn cuMemSetAccess(pointer: u64, size: usize, _descs: *const c_void, _count: usize) {
        let inside = |(address, bytes): (&u64, &u64)| {
            (pointer..pointer + size as u64).contains(address).then_some(*bytes)
        };
        if mapped().iter().filter_map(inside).sum::<u64>() != size as u64 {
            return Err(INVALID_VALUE);
        }
        match libc::mprotect(pointer as *mut c_void, size, libc::PROT_READ | libc::PROT_WRITE) {
            0 => Ok(()),
            _ => Err(INVALID_VALUE),
        }
    }
    fn cuMemExportToShareableHandle(out: *mut c_int, handle: u64, kind: c_uint, _flags: u64) {
        let physical = look::<Physical>(handle as *mut c_void)?;
        if kind != POSIX {
            return Err(INVALID_VALUE);
        }
        *out = libc::fcntl(physical.fd, libc::F_DUPFD_CLOEXEC, 0);
        Ok(())
    }
    fn cuMemImportFromShareableHandle(out: *mut u64, shareable: *mut c_void, kind: c_uint) {
        if kind != POSIX {
            return Err(INVALID_VALUE);
        }
        let (fd, size) = shared::import_memory(shareable as usize as c_int).ok_or(INVALID_VALUE)?;
        *out = handle(Physical { fd, size, imported: true }) as u64;
        alive("memory of CUDA's", 1);
        Ok(())
    }
    fn cuMemGetAllocationPropertiesFromHandle(prop: *mut CUmemAllocationProp, handle: u64) {
        let physical = look::<Physical>(handle as *mut c_void)?;
        (*prop).location.id = shared::is_named(physical.fd, "another-gpu").into();
        if shared::is_named(physical.fd, "another-kind") {
            // A number of a newer driver, which the enum lacks.
            (&raw mut (*prop).location.type_).cast::<u32>().write(77);
        }
        (*prop).allocFlags.compressionType = shared::is_named(physical.fd, "compressed").into();
        Ok(())
    }
}

/// The two functions that work even after a fault.
macro_rules! texts {
    ($(fn $name:ident = $text:expr;)*) => {$(
        #[allow(non_snake_case)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(code: u32, text: *mut *const c_char) -> u32 {
            let known: Option<(&CStr, &CStr)> = words(code);
            let (Some(known), None) = (known, script::call(stringify!($name))) else {
                *text = std::ptr::null();
                return INVALID_VALUE;
            };
            let pick: fn((&'static CStr, &'static CStr)) -> &'static CStr = $text;
            *text = pick(known).as_ptr();
            0
        }
    )*};
}

texts! {
    fn cuGetErrorName = |(name, _)| name;
    fn cuGetErrorString = |(_, text)| text;
}

fn words(code: u32) -> Option<(&'static CStr, &'static CStr)> {
    Some(match code {
        1 => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
        2 => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        3 => (c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
        100 => (c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
        101 => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
        218 => (c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed"),
        222 => (
            c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            c"the provided PTX was compiled with an unsupported toolchain.",
        ),
        304 => (c"CUDA_ERROR_OPERATING_SYSTEM", c"OS call failed or operation not supported on this OS"),
        500 => (c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
        600 => (c"CUDA_ERROR_NOT_READY", c"device not ready"),
        700 => (c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
        719 => (c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
        801 => (c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
        802 => (c"CUDA_ERROR_SYSTEM_NOT_READY", c"system not yet initialized"),
        999 => (c"CUDA_ERROR_UNKNOWN", c"unknown error"),
        _ => return None,
    })
}

/// What a kernel's PTX declares about its parameters, with `.maxntid` and `.reqntid` about its blocks, and
/// about local memory.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    /// The number of parameters.
    pub(crate) parameters: usize,
    /// The number of floats in the last parameter, if that is a structure.
    floats: usize,
    most: usize,
    exactly: bool,
    /// The bytes of the `.local` array at the start of the body.
    local: usize,
}

/// The most floats that such a structure may have.
const FLOATS: usize = 16;

impl Head {
    pub(crate) fn of(ptx: &str, entry: &str) -> Self {
        let kernel = ptx.split_once(&format!(".entry {entry}(")).map_or("", |(_, rest)| rest);
        let kernel = kernel.split(".entry").next().unwrap_or_default();
        let (head, body) = kernel.split_once('{').unwrap_or_default();
        let depot = body.split_once(".local .align").and_then(|(_, array)| array.split_once('['));
        let local = depot.and_then(|(_, size)| size.split(']').next()?.parse().ok()).unwrap_or(0);
        let (list, head) = head.split_once(')').unwrap_or((head, ""));
        let structure = list.rsplit(',').next().filter(|last| last.contains(".align 4 .b8"));
        let bytes =
            structure.and_then(|last| last.split_once('[')?.1.split(']').next()?.parse::<usize>().ok());
        let threads = |directive: &str| -> Option<usize> {
            let numbers = head.split_once(directive)?.1.trim_start();
            let end = numbers.find(|c: char| !c.is_ascii_digit() && !matches!(c, ',' | ' '));
            let numbers = numbers[..end.unwrap_or(numbers.len())].trim().split(',');
            numbers.map(|number| number.trim().parse::<usize>().ok()).product()
        };
        let (most, exactly) = match (threads(".reqntid"), threads(".maxntid")) {
            (Some(most), _) => (most, true),
            (None, most) => (most.unwrap_or(1024), false),
        };
        let parameters = list.matches(".param").count();
        Self { parameters, floats: bytes.unwrap_or(0) / 4, most, exactly, local }
    }

    pub(crate) fn takes(self, threads: c_uint) -> bool {
        let threads = threads as usize;
        threads == self.most || threads < self.most && !self.exactly
    }

    /// Reads the structure that is the last argument, and notes its values in the journal.
    pub(crate) unsafe fn values(self, arguments: *const *const c_void) -> [f32; FLOATS] {
        let mut values = [0.0; FLOATS];
        if (1..=FLOATS).contains(&self.floats) {
            let structure = (*arguments.add(self.parameters - 1)).cast::<f32>();
            values[..self.floats].copy_from_slice(std::slice::from_raw_parts(structure, self.floats));
            script::values(&values[..self.floats]);
        }
        values
    }

    pub(crate) fn pack(self) -> usize {
        let most = self.most.min(0x7fff);
        (self.local << 32)
            | (most << 17)
            | (usize::from(self.exactly) << 16)
            | (self.floats << 8)
            | self.parameters
    }

    pub(crate) fn unpack(bits: usize) -> Self {
        Self {
            parameters: bits & 0xff,
            floats: bits >> 8 & 0xff,
            exactly: bits >> 16 & 1 == 1,
            most: bits >> 17 & 0x7fff,
            local: bits >> 32,
        }
    }
}

/// The number of bits of a function that hold the kernel's number. The higher bits hold its [`Head`].
const KERNEL_BITS: u32 = 8;

fn kernel_of(function: *mut c_void) -> usize {
    function as usize & ((1 << KERNEL_BITS) - 1)
}

/// A kernel that the stand-in does not know. It does nothing, because its signature is unknown too.
const NOTHING: usize = 0;
const WAVE: usize = 1;
const STAMP: usize = 2;
const FLAT: usize = 3;
const SPIN: usize = 4;
const TRAP: usize = 5;
const ILLEGAL: usize = 6;
const FRAME_STAMP: usize = 7;
const LATE: usize = 8;
const PAINT: usize = 9;
const REDUCE: usize = 10;
const TEXTURE_STAMP: usize = 11;
const PATTERN: usize = 12;
const PATTERN_TEXELS: usize = 13;
const FILL: usize = 14;
const LEVEL: usize = 15;
const COLOUR: usize = 16;
const INVERT: usize = 17;
const CHECK_PATTERN: usize = 18;
const CHECK_PATTERN_TEXELS: usize = 19;
const LOOK: usize = 20;
const FIRST_WAVE: usize = 21;
const SWELL: usize = 22;
const SQUARES: usize = 23;
const WRITE_WORDS: usize = 24;

/// The arguments of every kernel except [`STAMP`], [`REDUCE`], [`FILL`], [`INVERT`], [`LOOK`],
/// [`FIRST_WAVE`], [`SWELL`], [`SQUARES`] and [`WRITE_WORDS`].
#[derive(Clone, Copy, Default)]
struct Arguments {
    cols: u32,
    rows: u32,
    frame: u64,
    time: f64,
    /// The values of the kernel's parameters, if it has any.
    values: [f32; FLOATS],
}

/// Makes a kernel as slow as the test asks for.
fn take_time() {
    if let Some(ms) = script::number("STAND_IN_KERNEL_MS") {
        std::thread::sleep(Duration::from_millis(ms));
    }
}

/// Runs a kernel of `kernels/`, `tool/handoff/kernels/test` or `examples/wgpu`.
fn run(kernel: usize, out: Address, arguments: Arguments) -> Result<(), u32> {
    let Arguments { cols, rows, frame, time, values } = arguments;
    let [first, second] = [values[0], values[1]].map(f64::from);
    take_time();
    match kernel {
        SPIN => loop {
            std::thread::sleep(Duration::from_millis(10));
        },
        TRAP => return Err(LAUNCH_FAILED),
        ILLEGAL => return Err(ILLEGAL_ADDRESS),
        LATE if frame < 20 => return Ok(()),
        LATE => return Err(LAUNCH_FAILED),
        STAMP => {
            static START: LazyLock<Instant> = LazyLock::new(Instant::now);
            let now = START.elapsed().as_nanos() as u64;
            out.bytes(8).copy_from_slice(&now.to_ne_bytes());
            return Ok(());
        }
        PATTERN => {
            let words = out.bytes(u64::from(cols) * u64::from(rows) * 16);
            for (place, word) in words.chunks_exact_mut(4).enumerate() {
                word.copy_from_slice(&pattern(place as u32, frame).to_ne_bytes());
            }
            return Ok(());
        }
        CHECK_PATTERN => {
            let words = out.bytes(u64::from(cols) * u64::from(rows) * 16).chunks_exact(4);
            let wrong = words
                .enumerate()
                .filter(|(place, word)| **word != pattern(*place as u32, frame).to_ne_bytes());
            // The time is the address of the counters.
            return count(Address(time.to_bits()), [u64::from(cols * rows * 4), wrong.count() as u64]);
        }
        CHECK_PATTERN_TEXELS => {
            // SAFETY: a surface object is a pointer to its level.
            let level = *unsafe { look::<Level>(out.0 as *mut _) }?;
            let texels = (0..rows).flat_map(|row| (0..cols).flat_map(move |col| level.texel(col, row)));
            let wrong = texels
                .enumerate()
                .filter(|(place, half)| half.to_bits() != pattern(*place as u32, frame) as u16);
            return count(Address(time.to_bits()), [u64::from(cols * rows * 4), wrong.count() as u64]);
        }
        PAINT | TEXTURE_STAMP | PATTERN_TEXELS => {
            // SAFETY: a surface object is a pointer to its level.
            let level = *unsafe { look::<Level>(out.0 as *mut _) }?;
            for (col, row) in (0..rows).flat_map(|row| (0..cols).map(move |col| (col, row))) {
                let texel = match kernel {
                    PAINT => paint(cols, rows, col, row, time),
                    PATTERN_TEXELS => std::array::from_fn(|channel| {
                        f16::from_bits(pattern(4 * (row * cols + col) + channel as u32, frame) as u16)
                    }),
                    _ => stamped(level.texel(col, row), frame),
                };
                level.set_texel(col, row, texel);
            }
            return Ok(());
        }
        _ => {}
    }
    let vertices = out.bytes(u64::from(cols) * u64::from(rows) * 16);
    for (index, vertex) in vertices.chunks_exact_mut(16).enumerate() {
        let (col, row) = (index as u32 % cols, index as u32 / cols);
        if kernel == FRAME_STAMP {
            let w: [u8; 4] = [vertex[12], vertex[13], vertex[14], vertex[15]];
            let w = u32::from_ne_bytes(w) & !0xfff | (frame + 1) as u32 & 0xfff;
            vertex[12..].copy_from_slice(&w.to_ne_bytes());
            continue;
        }
        let (x, z) = (
            2.0 * f64::from(col) / f64::from(cols - 1) - 1.0,
            2.0 * f64::from(row) / f64::from(rows - 1) - 1.0,
        );
        let (y, w) = match kernel {
            FLAT => (0.0, 0.5),
            LEVEL => (first, second),
            COLOUR => (0.0, 0.05 + 0.3 * (frame % 4) as f64),
            _ => {
                let sum = wave(second * x, second * z, time);
                (0.3 * first * sum, 0.5 + 0.5 * sum)
            }
        };
        for (bytes, value) in vertex.chunks_exact_mut(4).zip([x, y, z, w]) {
            bytes.copy_from_slice(&(value as f32).to_ne_bytes());
        }
    }
    Ok(())
}

/// The formula of `kernels/wave.cu`.
fn wave(x: f64, z: f64, time: f64) -> f64 {
    let turn = (time / 20.0).rem_euclid(1.0);
    let sine = |turns: f64| (std::f64::consts::TAU * turns).sin();
    0.46 * sine(0.55 * x + 0.30 * z - 3.0 * turn)
        + 0.26 * sine(-0.40 * x + 0.75 * z - 4.0 * turn)
        + 0.14 * sine(1.10 * x + 0.90 * z - 7.0 * turn)
        + 0.14 * sine(2.25 * x.hypot(z) - 8.0 * turn)
}

/// Four half floats.
type Texel = [f16; 4];

impl Level {
    fn texel(&self, col: u32, row: u32) -> Texel {
        let texel = &self.row(u64::from(row), self.row_bytes)[8 * col as usize..][..8];
        std::array::from_fn(|index| f16::from_ne_bytes([texel[2 * index], texel[2 * index + 1]]))
    }

    fn set_texel(&self, col: u32, row: u32, texel: Texel) {
        let place = &mut self.row(u64::from(row), self.row_bytes)[8 * col as usize..][..8];
        place
            .chunks_exact_mut(2)
            .zip(texel)
            .for_each(|(place, half)| place.copy_from_slice(&half.to_ne_bytes()));
    }
}

/// The formula of `paint` in `tool/handoff/kernels/texture.cu`.
fn paint(cols: u32, rows: u32, col: u32, row: u32, time: f64) -> Texel {
    const TAU: f64 = std::f64::consts::TAU;
    let turn = (time / 20.0).rem_euclid(1.0);
    let (u, v) = ((f64::from(col) + 0.5) / f64::from(cols), (f64::from(row) + 0.5) / f64::from(rows));
    let waves =
        [(0.40, 2.0, 1.0, 3.0), (0.28, -1.0, 3.0, 4.0), (0.18, 5.0, 2.0, 7.0), (0.14, 3.0, -4.0, -5.0)];
    let (mut sum, mut across, mut along) = (0.0, 0.0, 0.0);
    for (weight, waves_u, waves_v, speed) in waves {
        let angle: f64 = TAU * (waves_u * u + waves_v * v - speed * turn);
        sum += weight * angle.sin();
        across += TAU * weight * waves_u * angle.cos();
        along += TAU * weight * waves_v * angle.cos();
    }
    let steep = (7.0 * across / f64::from(cols)).hypot(7.0 * along / f64::from(rows)).max(0.004);
    let line = (1.5 - (7.0 * sum - (7.0 * sum).round()).abs() / steep).clamp(0.0, 1.0);
    [0.5 + 0.5 * sum, 0.06 * across, 0.06 * along, line].map(f16::from_f64)
}

/// The formula of `examples/wgpu/src/pattern.ptx`.
fn pattern(place: u32, frame: u64) -> u32 {
    (place ^ place >> 16 ^ (frame as u32).wrapping_mul(0x9e37_79b1)).wrapping_mul(0x85eb_ca77)
}

/// Adds to the counters of a kernel.
fn count<const N: usize>(counters: Address, add: [u64; N]) -> Result<(), u32> {
    for (counter, add) in counters.bytes(8 * N as u64).as_chunks_mut().0.iter_mut().zip(add) {
        *counter = (u64::from_ne_bytes(*counter) + add).to_ne_bytes();
    }
    Ok(())
}

/// The formula of `crates/vulkan-cuda/examples/fill/fill.ptx` and `examples/hand_offs.ptx`. The clock has
/// 1 GHz.
fn fill(out: Address, words: u32, frame: u32, late: u64) -> Result<(), u32> {
    std::thread::sleep(Duration::from_nanos(late));
    for (index, word) in (0..words).zip(out.bytes(4 * u64::from(words)).chunks_exact_mut(4)) {
        word.copy_from_slice(&(index ^ frame.wrapping_mul(0x9e37_79b1)).to_ne_bytes());
    }
    Ok(())
}

/// The formula of `examples/first_frame.ptx`. The clock has 1 GHz.
fn first_wave(out: Address, count: u32, frame: u32, late: u64) -> Result<(), u32> {
    take_time();
    std::thread::sleep(Duration::from_nanos(late));
    for (index, vertex) in (0..count).zip(out.bytes(16 * u64::from(count)).chunks_exact_mut(16)) {
        let t = 2.0 * f64::from(index) / f64::from(count);
        let y = 0.7 * (std::f64::consts::TAU * (t - 0.0125 * f64::from(frame))).sin();
        for (bytes, value) in vertex.chunks_exact_mut(4).zip([t - 1.0, y, 0.0, f64::from(frame)]) {
            bytes.copy_from_slice(&(value as f32).to_ne_bytes());
        }
    }
    Ok(())
}

/// The formulas of `examples/bevy` and `examples/eframe`.
fn example(kernel: usize, out: Address, [cols, rows, frame]: [u32; 3]) -> Result<(), u32> {
    take_time();
    let size = if kernel == SQUARES { 4 } else { 24 };
    for (index, element) in
        (0..cols * rows).zip(out.bytes(size as u64 * u64::from(cols * rows)).chunks_exact_mut(size))
    {
        let (col, row) = (index % cols, index / cols);
        if kernel == SQUARES {
            let (x, mixed) = (col + frame, (col + frame) ^ row);
            element.copy_from_slice(&[mixed, mixed + frame, x, 255].map(|channel| channel as u8));
            continue;
        }
        let phase = col * 4 + row * 2 + frame * 3;
        let (t, sign) = ((phase % 256) as f32, if phase % 512 < 256 { 1.0 } else { -1.0 });
        let slope = sign * (256.0 - 2.0 * t) / 256.0;
        let [x, z] = [(col, cols), (row, rows)].map(|(at, count)| (at as f32 - (count / 2) as f32) / 64.0);
        let words = [x, sign * t * (256.0 - t) / 65536.0, z, -slope, 1.0, -slope / 2.0];
        element.copy_from_slice(&words.map(f32::to_ne_bytes).concat());
    }
    Ok(())
}

/// The formula of `texture_stamp`.
fn stamped(texel: Texel, frame: u64) -> Texel {
    let mut stamp = frame.wrapping_add(1);
    texel.map(|half| {
        let exponent = match half.to_bits() & 0x7c00 {
            0 => 0x0400,
            0x7c00 => 0x7800,
            normal => normal,
        };
        let part = stamp as u16 & 7;
        stamp >>= 3;
        f16::from_bits(half.to_bits() & 0x83f8 | exponent | part)
    })
}

/// The formula of `reduce`.
fn reduce(from: Level, to: Level) -> Result<(), u32> {
    take_time();
    let size = |level: &Level| (level.row_bytes as u32 / 8, level.rows as u32);
    let ((from_cols, from_rows), (cols, rows)) = (size(&from), size(&to));
    for (col, row) in (0..rows).flat_map(|row| (0..cols).map(move |col| (col, row))) {
        let (right, below) = ((2 * col + 1).min(from_cols - 1), (2 * row + 1).min(from_rows - 1));
        let four = [(2 * col, 2 * row), (right, 2 * row), (2 * col, below), (right, below)];
        let four = four.map(|(col, row)| from.texel(col, row));
        let mean = |channel: usize| 0.25 * four.iter().map(|texel| texel[channel].to_f32()).sum::<f32>();
        to.set_texel(col, row, std::array::from_fn(|channel| f16::from_f32(mean(channel))));
    }
    Ok(())
}
