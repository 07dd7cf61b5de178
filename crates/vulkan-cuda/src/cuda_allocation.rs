//! CUDA's half of [`crate::cuda_memory`].

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, transmute};
use std::sync::Arc;

use cudarc::driver::sys;
use cudarc::driver::sys::CUdevice_attribute::{
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED as DESCRIPTORS,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED as CHOSEN_ADDRESSES,
};

use crate::cuda::{Cuda, CudaInfo, api};
use crate::handle::Fd;
use crate::{Error, Result};

/// Device memory that CUDA allocated, in this process or another, mapped at consecutive addresses, and
/// exportable. Owns the mappings, CUDA's references to the memory, and the reserved addresses.
pub struct CudaAllocation {
    // Dropped in this order: mappings, CUDA's references to the memory, the reserved addresses.
    mappings: Vec<Addresses>,
    chunks: Vec<Chunk>,
    reserved: Addresses,
}

impl CudaAllocation {
    /// Allocates `size` bytes, rounded up to CUDA's granularity (2 MiB on an H200). The contents are
    /// undefined.
    ///
    /// # Errors
    /// Fails if `size` is 0, if the device or the system cannot export such memory, or if memory has run out.
    pub fn new(cuda: &Cuda, size: u64) -> Result<Arc<Self>> {
        Self::in_chunks(cuda, &[size])
    }

    /// Allocates several chunks at consecutive addresses, each rounded up to CUDA's granularity.
    pub fn in_chunks(cuda: &Cuda, sizes: &[u64]) -> Result<Arc<Self>> {
        let (props, _, rounded) = exportable(cuda, sizes)?;
        let chunks = rounded.into_iter().map(|size| Chunk::new(cuda, size, &props));
        Self::map(cuda, chunks.collect::<Result<_>>()?, &props)
    }

    /// Maps memory from another process, given a descriptor and a size in bytes for each chunk. You still own
    /// the descriptors.
    ///
    /// # Errors
    /// Fails if `chunks` is empty, or if a size is not exactly the chunk's. Also fails if a descriptor stands
    /// for memory that is not CUDA's, is on another GPU, or is compressed (which Vulkan could not detect).
    pub fn import(cuda: &Cuda, chunks: &[(Fd, u64)]) -> Result<Arc<Self>> {
        let sizes: Vec<_> = chunks.iter().map(|&(_, size)| size).collect();
        let (props, granularity, rounded) = exportable(cuda, &sizes)?;
        if rounded != sizes {
            return Err(Error::Rule(format!(
                "chunks of {sizes:?} bytes cannot be CUDA's: each is a multiple of {granularity} bytes"
            )));
        }
        let import = |(index, (fd, size)): (usize, &(Fd, u64))| {
            let chunk = Chunk::import(cuda, fd, *size, &props);
            chunk.and_then(|chunk| chunk.with_size(granularity)).map_err(|error| match error {
                Error::Rule(text) => Error::Rule(format!("chunk {index} of {}: {text}", chunks.len())),
                // Returns any other error of the driver unchanged, such as out of memory.
                error => error,
            })
        };
        let imported = chunks.iter().enumerate().map(import).collect::<Result<_>>()?;
        Self::map(cuda, imported, &props)
    }

    fn map(cuda: &Cuda, chunks: Vec<Chunk>, props: &sys::CUmemAllocationProp) -> Result<Arc<Self>> {
        let reserved = Addresses::reserve(cuda, chunks.iter().map(|chunk| chunk.size).sum())?;
        // From here on `Drop` cleans up, in the order of the fields.
        let mut made = Self { mappings: Vec::new(), chunks, reserved };
        let mut pointer = made.pointer();
        for chunk in &made.chunks {
            made.mappings.push(Addresses::map(pointer, chunk, chunk.size)?);
            pointer += chunk.size;
        }
        let access = sys::CUmemAccessDesc {
            location: props.location,
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the whole range is mapped. There is one description, which names the memory's device.
        let code = unsafe { api::cuMemSetAccess(made.pointer(), made.size() as usize, &access, 1) };
        cuda.check("cuMemSetAccess", code)?;
        Ok(Arc::new(made))
    }

    /// Returns the first chunk's address in CUDA's address space. It is valid while `self` lives.
    pub fn pointer(&self) -> sys::CUdeviceptr {
        self.reserved.pointer
    }

    /// Returns the total size of all chunks in bytes, which may be more than requested.
    pub fn size(&self) -> u64 {
        self.reserved.size
    }

    /// Returns each chunk's size in bytes, which an importer must specify (`VkMemoryAllocateInfo`).
    pub fn chunks(&self) -> Vec<u64> {
        self.chunks.iter().map(|chunk| chunk.size).collect()
    }

    /// Exports the chunk with the index `chunk` as a new descriptor, which you own and which keeps the
    /// chunk's memory alive. Fails if there is no such chunk.
    pub fn export(&self, chunk: usize) -> Result<Fd> {
        let Some(Chunk { handle, cuda, .. }) = self.chunks.get(chunk) else {
            return Err(Error::Rule(format!(
                "there is no chunk {chunk} in memory of {} chunks",
                self.chunks.len()
            )));
        };
        let mut fd: c_int = -1;
        cuda.bind()?;
        // SAFETY: a live handle to memory that was created for this kind of export. Writes one descriptor.
        let code = unsafe { api::cuMemExportToShareableHandle((&raw mut fd).cast(), *handle, POSIX, 0) };
        cuda.check("cuMemExportToShareableHandle", code)?;
        // SAFETY: the call made a new descriptor, which nothing else owns.
        Ok(unsafe { Fd::from_raw(fd) })
    }

    /// Returns the context that the memory was allocated or imported in.
    pub fn cuda(&self) -> &Cuda {
        &self.reserved.cuda
    }
}

const POSIX: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Returns the properties of memory that can be exported as a descriptor, its granularity in bytes, and the
/// chunks' sizes, each rounded up to the granularity. Fails if the device cannot export such memory, or if
/// the sizes are empty, contain 0 or are too large.
fn exportable(cuda: &Cuda, sizes: &[u64]) -> Result<(sys::CUmemAllocationProp, u64, Vec<u64>)> {
    if sizes.is_empty() || sizes.contains(&0) {
        return Err(Error::Rule("an allocation has at least one chunk, and no chunk has 0 bytes".into()));
    }
    let CudaInfo { name, ordinal, .. } = cuda.info();
    let device = CudaInfo::device(*ordinal, name)?;
    for (what, attribute) in [
        ("cannot map memory at a chosen address", CHOSEN_ADDRESSES),
        ("exports none of its memory as a file descriptor", DESCRIPTORS),
    ] {
        let mut has = 0;
        // SAFETY: writes one integer.
        let code = unsafe { api::cuDeviceGetAttribute(&mut has, attribute, device) };
        cuda.check("cuDeviceGetAttribute", code)?;
        // Windows would need another handle type, which this crate does not support here.
        if has == 0 || cfg!(not(unix)) {
            return Err(Error::DeviceLacks(format!("CUDA {what} on {name} ({})", std::env::consts::OS)));
        }
    }
    let props = sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: POSIX,
        location: on_device(device),
        win32HandleMetaData: std::ptr::null_mut(),
        // Uncompressed, because Vulkan cannot detect compression.
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    };
    let minimum = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    let mut granularity = 0;
    cuda.bind()?;
    // SAFETY: writes one number; the description is read before the call returns.
    let code = unsafe { api::cuMemGetAllocationGranularity(&mut granularity, &props, minimum) };
    cuda.check("cuMemGetAllocationGranularity", code)?;
    let granularity = granularity as u64;
    Ok((props, granularity, round_up(sizes, granularity)?))
}

/// Returns the description of a device's memory. From 13.2 on, CUDA's headers have the number in a union without a
/// name, so the field has another path in cudarc. The structure itself is the same: a kind and a number.
fn on_device(device: sys::CUdevice) -> sys::CUmemLocation {
    let kind = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as c_int;
    // SAFETY: two integers, of which the first is a value of its enum.
    unsafe { transmute::<[c_int; 2], sys::CUmemLocation>([kind, device]) }
}

/// Rounds each size up to a multiple of the granularity. Fails if the sum does not fit in the address space.
fn round_up(sizes: &[u64], granularity: u64) -> Result<Vec<u64>> {
    let round = |size: &u64| size.checked_next_multiple_of(granularity.max(1));
    let fits = |sizes: &Vec<u64>| {
        let sum = sizes.iter().try_fold(0, |sum: u64, &size| sum.checked_add(size));
        sum.is_some_and(|sum| usize::try_from(sum).is_ok())
    };
    let rounded: Option<Vec<_>> = sizes.iter().map(round).collect();
    let too_large = || Error::Rule(format!("chunks of {sizes:?} bytes exceed the address space"));
    rounded.filter(fits).ok_or_else(too_large)
}

/// A reserved range of CUDA's addresses, or a mapping of memory in such a range. Undone when it is dropped.
struct Addresses {
    pointer: sys::CUdeviceptr,
    size: u64,
    /// The name of the call that undoes the reservation or the mapping, and the call.
    undo: (&'static str, unsafe fn(sys::CUdeviceptr, usize) -> api::Code),
    cuda: Cuda,
}

impl Addresses {
    fn reserve(cuda: &Cuda, size: u64) -> Result<Self> {
        let mut pointer = 0;
        // SAFETY: writes one address. The size is a multiple of the granularity. CUDA chooses the address.
        let code = unsafe { api::cuMemAddressReserve(&mut pointer, size as usize, 0, 0, 0) };
        cuda.check("cuMemAddressReserve", code)?;
        Ok(Self { pointer, size, undo: ("cuMemAddressFree", api::cuMemAddressFree), cuda: cuda.clone() })
    }

    /// Maps the first `size` bytes of the chunk. `pointer` must lie in a reserved range, with room for them.
    fn map(pointer: sys::CUdeviceptr, chunk: &Chunk, size: u64) -> Result<Self> {
        // SAFETY: a live handle, whose size CUDA checks, and reserved addresses where nothing is mapped yet.
        let code = unsafe { api::cuMemMap(pointer, size as usize, 0, chunk.handle, 0) };
        chunk.cuda.check("cuMemMap", code)?;
        Ok(Self { pointer, size, undo: ("cuMemUnmap", api::cuMemUnmap), cuda: chunk.cuda.clone() })
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        let (call, undo) = self.undo;
        // SAFETY: reserved or mapped above, and undone once. The owners drop mappings before their reserved
        // range. Code that launches work on a mapping promises that the GPU has finished.
        self.cuda.cleanup(call, || unsafe { undo(self.pointer, self.size as usize) });
    }
}

/// CUDA's reference to the memory of one chunk.
struct Chunk {
    handle: sys::CUmemGenericAllocationHandle,
    size: u64,
    cuda: Cuda,
}

impl Chunk {
    fn new(cuda: &Cuda, size: u64, props: &sys::CUmemAllocationProp) -> Result<Self> {
        let mut handle = 0;
        // SAFETY: writes one handle; the description is read before the call returns.
        let code = unsafe { api::cuMemCreate(&mut handle, size as usize, props, 0) };
        cuda.check("cuMemCreate", code)?;
        Ok(Self { handle, size, cuda: cuda.clone() })
    }

    /// Imports a descriptor from another process. Does not check `size`: see [`Chunk::with_size`].
    fn import(cuda: &Cuda, fd: &Fd, size: u64, like: &sys::CUmemAllocationProp) -> Result<Self> {
        let (mut handle, mut props) = (0, MaybeUninit::new(*like));
        cuda.bind()?;
        // SAFETY: writes one handle. The pointer's value is the descriptor, which the call does not close.
        let code = unsafe {
            api::cuMemImportFromShareableHandle(&mut handle, fd.number() as usize as *mut c_void, POSIX)
        };
        cuda.check("cuMemImportFromShareableHandle", code)?;
        // From here on, `Drop` releases the handle.
        let chunk = Self { handle, size, cuda: cuda.clone() };
        // SAFETY: a live handle; writes one description.
        let code = unsafe { api::cuMemGetAllocationPropertiesFromHandle(props.as_mut_ptr(), handle) };
        cuda.check("cuMemGetAllocationPropertiesFromHandle", code)?;
        // Read field by field: a newer driver may write a value that the Rust enums of the structure lack.
        // SAFETY: all are initialised: `props` began as a copy of `like`. Any number is valid.
        let read = |props: *const sys::CUmemAllocationProp| unsafe {
            (
                (&raw const (*props).location).cast::<[c_int; 2]>().read(), // as in `on_device`
                (&raw const (*props).allocFlags.compressionType).read(),
            )
        };
        let (place, compression) = read(props.as_ptr());
        if place != read(like).0 {
            return Err(Error::Rule(format!("its memory is not on {}", cuda.info().name)));
        }
        if compression != 0 {
            let text =
                "its memory is compressed, which Vulkan would not know: allocate it without compression";
            return Err(Error::Rule(text.into()));
        }
        Ok(chunk)
    }

    /// Checks that the memory has exactly `self.size` bytes. CUDA has no call that returns the size, but it
    /// refuses to map more bytes than the memory has.
    fn with_size(self, granularity: u64) -> Result<Self> {
        let (size, more) = (self.size, self.size.saturating_add(granularity));
        let room = Addresses::reserve(&self.cuda, more)?;
        // A lack of memory, or a fault, says nothing about the size. Any other error means that the size is
        // wrong: the manual names no code for a wrong size (an H200 with driver 580.159.04 reports 801).
        let other_reason = |error: &Error| error.is_out_of_memory() || self.cuda.has_faulted();
        match Addresses::map(room.pointer, &self, size) {
            Ok(_) => {}
            Err(error) if other_reason(&error) => return Err(error),
            Err(error) => return Err(Error::Rule(format!("it does not have {size} bytes: {error}"))),
        }
        match Addresses::map(room.pointer, &self, more) {
            Ok(_) => Err(Error::Rule(format!("it has more than {size} bytes: pass its whole size"))),
            Err(error) if other_reason(&error) => Err(error),
            Err(_) => Ok(self),
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: created or imported above, released once.
        self.cuda.cleanup("cuMemRelease", || unsafe { api::cuMemRelease(self.handle) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_whole_granules() {
        assert_eq!(round_up(&[1, 2 << 20, (2 << 20) + 1], 2 << 20).unwrap(), [2 << 20, 2 << 20, 4 << 20]);
        for sizes in [&[u64::MAX][..], &[1 << 63, 1 << 63]] {
            let text = round_up(sizes, 2 << 20).unwrap_err().to_string();
            assert!(text.contains("the address space") && text.contains(&format!("{sizes:?}")), "{text}");
        }
    }

    #[test]
    fn everything_may_change_threads() {
        fn owned<T: Send + Sync + 'static>() {}
        owned::<Arc<CudaAllocation>>();
    }

    #[test]
    fn memory_of_no_bytes_never_reaches_the_driver() {
        let ours = crate::cuda::tests::unreal(1);
        for sizes in [&[][..], &[0], &[4096, 0]] {
            let error = CudaAllocation::in_chunks(&ours.0, sizes).err().unwrap();
            assert!(error.to_string().contains("0 bytes"), "{error}");
        }
        let error = CudaAllocation::import(&ours.0, &[]).err().unwrap();
        assert!(error.to_string().contains("at least one chunk"), "{error}");
    }
}
