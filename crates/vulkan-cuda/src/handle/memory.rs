//! The eight kinds of memory handle that CUDA imports, with one table row each.

use cudarc::driver::sys;
use cudarc::driver::sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 as Union;
use cudarc::driver::sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1__bindgen_ty_1 as Win32;
use cudarc::driver::sys::CUexternalMemoryHandleType as Type;

use super::raw::{Form, Words};
use super::{BorrowedHandle, Fd, NtHandle};

/// A handle to memory of another API, for [`MappedMemory::import`](crate::MappedMemory::import).
#[derive(Debug)]
pub enum MemoryHandle {
    /// Vulkan's `OPAQUE_FD`.
    OpaqueFd(Fd),
    /// Vulkan's `OPAQUE_WIN32`. If given by name, the name is that in `VkExportMemoryWin32HandleInfoKHR`.
    OpaqueWin32(NtHandle),
    /// Vulkan's `OPAQUE_WIN32_KMT`.
    OpaqueWin32Kmt(BorrowedHandle),
    /// An `ID3D12Heap`, from `ID3D12Device::CreateSharedHandle`.
    D3d12Heap(NtHandle),
    /// A committed `ID3D12Resource`, from `ID3D12Device::CreateSharedHandle`.
    D3d12Resource(NtHandle),
    /// An `ID3D11Resource`, from `IDXGIResource1::CreateSharedHandle`.
    D3d11Resource(NtHandle),
    /// An `ID3D11Resource`, from `IDXGIResource::GetSharedHandle`.
    D3d11ResourceKmt(BorrowedHandle),
    /// An `NvSciBufObj`.
    NvSciBuf(BorrowedHandle),
}

impl MemoryHandle {
    /// Returns the name in CUDA's manual, CUDA's constant, the form, the content of the descriptor's union,
    /// and whether the allocation is always dedicated. (A Direct3D resource has its own allocation.)
    #[rustfmt::skip] // A table.
    pub(crate) fn row(&self) -> (&'static str, Type, Form, Words, bool) {
        use Type::*;
        match self {
            Self::OpaqueFd(fd)          => ("OPAQUE_FD",          CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,          Form::FD,  fd.words(),  false),
            Self::OpaqueWin32(nt)       => ("OPAQUE_WIN32",       CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32,       Form::NT,  nt.words(),  false),
            Self::OpaqueWin32Kmt(kmt)   => ("OPAQUE_WIN32_KMT",   CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_KMT,   Form::KMT, kmt.words(), false),
            Self::D3d12Heap(nt)         => ("D3D12_HEAP",         CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP,         Form::NT,  nt.words(),  false),
            Self::D3d12Resource(nt)     => ("D3D12_RESOURCE",     CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE,     Form::NT,  nt.words(),  true),
            Self::D3d11Resource(nt)     => ("D3D11_RESOURCE",     CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE,     Form::NT,  nt.words(),  true),
            Self::D3d11ResourceKmt(kmt) => ("D3D11_RESOURCE_KMT", CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE_KMT, Form::KMT, kmt.words(), true),
            Self::NvSciBuf(object)      => ("NVSCIBUF",           CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF,           Form::NVSCI, object.words(), false),
        }
    }

    /// Returns the kind's name in CUDA's manual, without `CU_EXTERNAL_MEMORY_HANDLE_TYPE_`.
    pub fn name(&self) -> &'static str {
        self.row().0
    }

    /// Returns the descriptor for `cuImportExternalMemory` of an allocation of `size` bytes, valid while the
    /// handle lives. `dedicated` means an allocation for one resource (`VkMemoryDedicatedAllocateInfo`).
    pub fn descriptor(&self, size: u64, dedicated: bool) -> sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
        let (_, type_, _, (handle, name), always) = self.row();
        sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_,
            handle: Union { win32: Win32 { handle, name } },
            size,
            flags: if dedicated || always { sys::CUDA_EXTERNAL_MEMORY_DEDICATED } else { 0 },
            reserved: [0; 16],
        }
    }

    /// Ends the ownership of the handle after a successful import: gives up a file descriptor, which CUDA
    /// owns now, or closes an NT handle.
    pub(crate) fn imported(self) {
        if let Self::OpaqueFd(fd) = self {
            fd.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{align_of, offset_of, size_of};

    use super::super::raw::tests::{assert_documented, borrowed, fd, named, nt};
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
        // SAFETY: (all) fields of the structure at their offsets in `cuda.h`; `win32` is all of the union's
        // 16 bytes.
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

    /// `cuda.h` of CUDA 10 to 13 on 64-bit systems, by hand: type, 4 bytes of padding, a union of 16 bytes,
    /// size, flags, 16 reserved integers, 4 bytes of padding.
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

    /// Compares each variant with `cuda.h` and the manual of `cuImportExternalMemory`: the type's number, the
    /// two words of the union (handle, name), and the flags for an allocation that is not dedicated and for
    /// one that is.
    #[test]
    fn every_variant_is_described_as_the_manual_says() {
        fn row<H>((handle, union): (H, [u64; 2]), make: fn(H) -> MemoryHandle) -> (MemoryHandle, [u64; 2]) {
            (make(handle), union)
        }
        for ((handle, union), kind, flags, form) in [
            (row(fd(), MemoryHandle::OpaqueFd), 1, [0, 1], Form::FD),
            (row(nt(), MemoryHandle::OpaqueWin32), 2, [0, 1], Form::NT),
            (row(named(), MemoryHandle::OpaqueWin32), 2, [0, 1], Form::NT),
            (row(borrowed(), MemoryHandle::OpaqueWin32Kmt), 3, [0, 1], Form::KMT),
            (row(nt(), MemoryHandle::D3d12Heap), 4, [0, 1], Form::NT),
            (row(named(), MemoryHandle::D3d12Heap), 4, [0, 1], Form::NT),
            (row(nt(), MemoryHandle::D3d12Resource), 5, [1, 1], Form::NT),
            (row(named(), MemoryHandle::D3d12Resource), 5, [1, 1], Form::NT),
            (row(nt(), MemoryHandle::D3d11Resource), 6, [1, 1], Form::NT),
            (row(named(), MemoryHandle::D3d11Resource), 6, [1, 1], Form::NT),
            (row(borrowed(), MemoryHandle::D3d11ResourceKmt), 7, [1, 1], Form::KMT),
            (row(borrowed(), MemoryHandle::NvSciBuf), 8, [0, 1], Form::NVSCI),
        ] {
            let name = handle.name();
            assert_documented(&handle);
            assert_eq!(handle.row().2, form, "{name}");
            for (dedicated, flags) in [false, true].into_iter().zip(flags) {
                let desc = bytes(&handle.descriptor(0x1_0000_2000, dedicated));
                assert_eq!(desc.kind, kind, "{}", name);
                assert_eq!(desc.union, union, "{}", name);
                assert_eq!(desc.size, 0x1_0000_2000, "{}", name);
                assert_eq!(desc.flags, flags, "{} dedicated: {dedicated}", name);
                assert_eq!(desc.reserved, [0; 16], "{}", name);
            }
        }
    }

    /// The descriptor stays open after a successful import, because CUDA closes it. It is closed after a
    /// failed import, because it is still ours then.
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
        let handle = || MemoryHandle::OpaqueFd(OwnedFd::from(file.reopen().unwrap()).into());
        let number = |handle: &MemoryHandle| match handle {
            MemoryHandle::OpaqueFd(fd) => fd.number() as u64,
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
