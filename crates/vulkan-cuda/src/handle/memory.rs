//! Every memory handle that CUDA imports: one row each.

use cudarc::driver::sys;
use cudarc::driver::sys::CUexternalMemoryHandleType as Type;

use super::form::Payload;
use super::{Fd, Form, KmtHandle, Matching, Member, NtHandle, NvSciObject, ObjectName};
use crate::Result;

/// Memory of another API, in a form that CUDA can import. It owns its handle, except for KMT handles and NvSci
/// objects: see [`crate::handle`].
///
/// # Examples
///
/// Every row of the table can be inspected on every system:
///
/// ```
/// use vulkan_cuda::handle::{Form, MemoryHandle, ObjectName};
///
/// let handle = MemoryHandle::D3d12ResourceName(ObjectName::new("Local\\picture").unwrap());
/// let facts = handle.facts();
/// assert_eq!((facts.name, facts.form), ("D3D12_RESOURCE", Form::Name));
/// let desc = handle.descriptor(1 << 20, false);
/// assert_eq!((desc.size, desc.flags), (1 << 20, 1)); // a Direct3D resource is always dedicated
/// ```
///
/// [`MappedMemory::import`](crate::MappedMemory::import) imports one.
#[derive(Debug)]
pub enum MemoryHandle {
    /// Vulkan's `OPAQUE_FD`.
    OpaqueFd(Fd),
    /// Vulkan's `OPAQUE_WIN32`.
    OpaqueWin32(NtHandle),
    /// The same, by the name in `VkExportMemoryWin32HandleInfoKHR`.
    OpaqueWin32Name(ObjectName),
    /// Vulkan's `OPAQUE_WIN32_KMT`.
    OpaqueWin32Kmt(KmtHandle),
    /// An `ID3D12Heap`, from `ID3D12Device::CreateSharedHandle`.
    D3d12Heap(NtHandle),
    /// The same, by name.
    D3d12HeapName(ObjectName),
    /// A committed `ID3D12Resource`, from `ID3D12Device::CreateSharedHandle`.
    D3d12Resource(NtHandle),
    /// The same, by name.
    D3d12ResourceName(ObjectName),
    /// An `ID3D11Resource`, from `IDXGIResource1::CreateSharedHandle`.
    D3d11Resource(NtHandle),
    /// The same, by name.
    D3d11ResourceName(ObjectName),
    /// An `ID3D11Resource`, from `IDXGIResource::GetSharedHandle`.
    D3d11ResourceKmt(KmtHandle),
    /// An `NvSciBufObj`.
    NvSciBuf(NvSciObject),
}

/// When CUDA is told that one resource has the allocation for itself (`CUDA_EXTERNAL_MEMORY_DEDICATED`,
/// [`cuImportExternalMemory`]).
///
/// [`cuImportExternalMemory`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dedicated {
    /// If the exporter allocated it with `VkMemoryDedicatedAllocateInfo`.
    AsAllocated,
    /// Always. CUDA requires the flag for resources of Direct3D, each of which has its own allocation.
    Always,
}

/// A row of the table: what CUDA must know about a kind of memory handle. Returned by [`MemoryHandle::facts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFacts {
    /// The name in CUDA's manual, without `CU_EXTERNAL_MEMORY_HANDLE_TYPE_`.
    pub name: &'static str,
    /// CUDA's constant for the kind.
    pub cuda: Type,
    /// The form, which decides who closes the handle and where it exists.
    pub form: Form,
    /// What the handle writes into the descriptor's union.
    pub member: Member,
    /// When the descriptor has the flag `CUDA_EXTERNAL_MEMORY_DEDICATED`.
    pub dedicated: Dedicated,
    /// How the exporter's device and CUDA's are matched.
    pub matching: Matching,
}

fn row<P: Payload>(
    name: &'static str,
    cuda: Type,
    payload: &P,
    dedicated: Dedicated,
    matching: Matching,
) -> MemoryFacts {
    MemoryFacts { name, cuda, form: P::FORM, member: payload.member(), dedicated, matching }
}

impl MemoryHandle {
    /// Returns its row of the table. See the [example](MemoryHandle#examples).
    #[rustfmt::skip] // A table.
    pub fn facts(&self) -> MemoryFacts {
        use Type::*;
        use Dedicated::{Always, AsAllocated};
        use Matching::{Luid, LuidElseUuid, Uuid};
        match self {
            Self::OpaqueFd(fd)            => row("OPAQUE_FD",          CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,          fd,   AsAllocated, Uuid),
            Self::OpaqueWin32(nt)         => row("OPAQUE_WIN32",       CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32,       nt,   AsAllocated, LuidElseUuid),
            Self::OpaqueWin32Name(name)   => row("OPAQUE_WIN32",       CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32,       name, AsAllocated, LuidElseUuid),
            Self::OpaqueWin32Kmt(kmt)     => row("OPAQUE_WIN32_KMT",   CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_KMT,   kmt,  AsAllocated, LuidElseUuid),
            Self::D3d12Heap(nt)           => row("D3D12_HEAP",         CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP,         nt,   AsAllocated, Luid),
            Self::D3d12HeapName(name)     => row("D3D12_HEAP",         CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP,         name, AsAllocated, Luid),
            Self::D3d12Resource(nt)       => row("D3D12_RESOURCE",     CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE,     nt,   Always,      Luid),
            Self::D3d12ResourceName(name) => row("D3D12_RESOURCE",     CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE,     name, Always,      Luid),
            Self::D3d11Resource(nt)       => row("D3D11_RESOURCE",     CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE,     nt,   Always,      Luid),
            Self::D3d11ResourceName(name) => row("D3D11_RESOURCE",     CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE,     name, Always,      Luid),
            Self::D3d11ResourceKmt(kmt)   => row("D3D11_RESOURCE_KMT", CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE_KMT, kmt,  Always,      Luid),
            Self::NvSciBuf(object)        => row("NVSCIBUF",           CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF,           object, AsAllocated, Uuid),
        }
    }

    /// Returns the descriptor that [`cuImportExternalMemory`] takes, for an allocation of `size` bytes. `dedicated`
    /// tells whether the allocation was made for one resource. The descriptor is valid while the handle lives. See
    /// the [example](MemoryHandle#examples).
    ///
    /// [`cuImportExternalMemory`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
    pub fn descriptor(&self, size: u64, dedicated: bool) -> sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
        let facts = self.facts();
        let dedicated = match facts.dedicated {
            Dedicated::AsAllocated => dedicated,
            Dedicated::Always => true,
        };
        sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: facts.cuda,
            handle: facts.member.memory(),
            size,
            flags: if dedicated { sys::CUDA_EXTERNAL_MEMORY_DEDICATED } else { 0 },
            reserved: [0; 16],
        }
    }

    /// Fails if this system has no such handles.
    pub(crate) fn exists_here(&self) -> Result<()> {
        let facts = self.facts();
        facts.form.exists_here(facts.name)
    }

    /// Ends the handle after a successful import: see [`Form::imported`].
    pub(crate) fn imported(self) {
        self.facts().form.imported(self);
    }
}

#[cfg(unix)]
impl From<std::os::fd::OwnedFd> for MemoryHandle {
    fn from(fd: std::os::fd::OwnedFd) -> Self {
        Self::OpaqueFd(fd.into())
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{align_of, offset_of, size_of};

    use super::super::form::tests::{BARE, assert_documented, fd, kmt, nt, sci};
    use super::*;

    type Desc = sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC;

    /// The 104 bytes of a descriptor as C sees them, padding left out.
    struct Bytes {
        kind: u32,
        union: [u64; 2],
        size: u64,
        flags: u32,
        reserved: [u32; 16],
    }

    fn bytes(desc: &Desc) -> Bytes {
        let base = (&raw const *desc).cast::<u8>();
        // SAFETY: (all) fields of the structure at their offsets in `cuda.h`; the union's 16 bytes are all written by
        // `Member::memory`.
        unsafe {
            Bytes {
                kind: base.cast::<u32>().read(),
                union: base.add(8).cast::<[u64; 2]>().read(),
                size: base.add(24).cast::<u64>().read(),
                flags: base.add(32).cast::<u32>().read(),
                reserved: base.add(36).cast::<[u32; 16]>().read(),
            }
        }
    }

    /// `cuda.h` of CUDA 10 to 13 on 64-bit systems, by hand: type, 4 bytes of padding, a union of 16 bytes, size, flags,
    /// 16 reserved integers, 4 bytes of padding.
    #[test]
    fn the_structure_is_that_of_cuda_h() {
        assert_eq!((size_of::<Desc>(), align_of::<Desc>()), (104, 8));
        let offsets = [
            offset_of!(Desc, type_),
            offset_of!(Desc, handle),
            offset_of!(Desc, size),
            offset_of!(Desc, flags),
            offset_of!(Desc, reserved),
        ];
        assert_eq!(offsets, [0, 8, 24, 32, 36]);
    }

    fn low32(fd: &Fd) -> u64 {
        match fd.member() {
            Member::Fd(fd) => fd as u64,
            other => panic!("{other:?}"),
        }
    }

    /// Compares each variant with `cuda.h` and the manual of `cuImportExternalMemory`: the type's number, the two
    /// words of the union (handle, name), and the flags for an allocation that is not dedicated and for one that is.
    #[test]
    fn every_variant_is_described_as_the_manual_says() {
        let bare = BARE.addr() as u64;
        let name = || ObjectName::new("Local\\memory").unwrap();
        let named = |make: fn(ObjectName) -> MemoryHandle| {
            let name = name();
            let Member::Name(text) = name.member() else { unreachable!() };
            (make(name), [0, text.addr() as u64])
        };
        let by_nt = |make: fn(NtHandle) -> MemoryHandle| {
            let (handle, raw) = nt();
            (make(handle), [raw.addr() as u64, 0])
        };
        let fd = fd();
        let number = low32(&fd);
        use Matching::{Luid, LuidElseUuid, Uuid};
        type Expected = ((MemoryHandle, [u64; 2]), u32, [u32; 2], Form, Matching);
        let all: [Expected; 12] = [
            ((MemoryHandle::OpaqueFd(fd), [number, 0]), 1, [0, 1], Form::Fd, Uuid),
            (by_nt(MemoryHandle::OpaqueWin32), 2, [0, 1], Form::Nt, LuidElseUuid),
            (named(MemoryHandle::OpaqueWin32Name), 2, [0, 1], Form::Name, LuidElseUuid),
            ((MemoryHandle::OpaqueWin32Kmt(kmt()), [bare, 0]), 3, [0, 1], Form::Kmt, LuidElseUuid),
            (by_nt(MemoryHandle::D3d12Heap), 4, [0, 1], Form::Nt, Luid),
            (named(MemoryHandle::D3d12HeapName), 4, [0, 1], Form::Name, Luid),
            (by_nt(MemoryHandle::D3d12Resource), 5, [1, 1], Form::Nt, Luid),
            (named(MemoryHandle::D3d12ResourceName), 5, [1, 1], Form::Name, Luid),
            (by_nt(MemoryHandle::D3d11Resource), 6, [1, 1], Form::Nt, Luid),
            (named(MemoryHandle::D3d11ResourceName), 6, [1, 1], Form::Name, Luid),
            ((MemoryHandle::D3d11ResourceKmt(kmt()), [bare, 0]), 7, [1, 1], Form::Kmt, Luid),
            ((MemoryHandle::NvSciBuf(sci()), [bare, 0]), 8, [0, 1], Form::NvSci, Uuid),
        ];
        for ((handle, union), kind, flags, form, matching) in all {
            let facts = handle.facts();
            assert_documented(&handle);
            assert_eq!((facts.form, facts.matching), (form, matching), "{}", facts.name);
            for (dedicated, flags) in [false, true].into_iter().zip(flags) {
                let desc = bytes(&handle.descriptor(0x1_0000_2000, dedicated));
                assert_eq!(desc.kind, kind, "{}", facts.name);
                assert_eq!(desc.union, union, "{}", facts.name);
                assert_eq!(desc.size, 0x1_0000_2000, "{}", facts.name);
                assert_eq!(desc.flags, flags, "{} dedicated: {dedicated}", facts.name);
                assert_eq!(desc.reserved, [0; 16], "{}", facts.name);
            }
        }
    }

    /// The descriptor stays open after a successful import, because CUDA closes it. It is closed after a failed import,
    /// because it is still ours then.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_descriptor_is_given_up_only_after_success() {
        use std::os::fd::{FromRawFd, OwnedFd};

        // A file of our own: meanwhile other tests open and close descriptors, and reuse the numbers.
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = |number: u64| {
            let link = std::fs::read_link(format!("/proc/self/fd/{number}"));
            link.is_ok_and(|path| path == file.path().canonicalize().unwrap())
        };
        let handle = || MemoryHandle::from(OwnedFd::from(file.reopen().unwrap()));
        let number = |handle: &MemoryHandle| match handle {
            MemoryHandle::OpaqueFd(fd) => low32(fd),
            other => panic!("{other:?}"),
        };
        let failed = handle();
        let raw = number(&failed);
        assert!(open(raw));
        drop(failed);
        assert!(!open(raw));
        let succeeded = handle();
        let raw = number(&succeeded);
        succeeded.imported();
        assert!(open(raw));
        // SAFETY: open, and the test stands for CUDA here.
        drop(unsafe { OwnedFd::from_raw_fd(raw as i32) });
        assert!(!open(raw));
    }
}
