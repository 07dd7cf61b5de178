//! Every semaphore handle that CUDA imports: one row each, with what its waits and signals need.

use ash::vk;
use cudarc::driver::sys;
use cudarc::driver::sys::CUexternalSemaphoreHandleType as Type;

use super::raw::{Form, Member};
use super::{Fd, KmtHandle, NtHandle, NvSciObject, Operand};
use crate::Result;

/// The two kinds of Vulkan semaphore (`VkSemaphoreType`). Both are exported as the same handle types, so CUDA must be
/// told which kind a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SemaphoreKind {
    /// A 64-bit counter that only grows.
    Timeline,
    /// Signalled or not.
    Binary,
}

impl SemaphoreKind {
    /// Returns Vulkan's constant.
    pub const fn vulkan(self) -> vk::SemaphoreType {
        match self {
            Self::Timeline => vk::SemaphoreType::TIMELINE,
            Self::Binary => vk::SemaphoreType::BINARY,
        }
    }

    /// Returns its name in error messages, without an article.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Timeline => "timeline semaphore",
            Self::Binary => "binary semaphore",
        }
    }
}

/// A semaphore, fence or mutex of another API, in a form that CUDA can import. It owns its handle, except for KMT handles and
/// NvSci objects: see [`crate::handle`].
///
/// [`ImportedSemaphore::import`](crate::ImportedSemaphore::import) imports one.
#[derive(Debug)]
pub enum SemaphoreHandle {
    /// A binary semaphore as Vulkan's `OPAQUE_FD`.
    OpaqueFd(Fd),
    /// A binary semaphore as Vulkan's `OPAQUE_WIN32`. A name is that of `VkExportSemaphoreWin32HandleInfoKHR`.
    OpaqueWin32(NtHandle),
    /// A binary semaphore as Vulkan's `OPAQUE_WIN32_KMT`.
    OpaqueWin32Kmt(KmtHandle),
    /// An `ID3D12Fence`, from `ID3D12Device::CreateSharedHandle`.
    D3d12Fence(NtHandle),
    /// An `ID3D11Fence`, from `ID3D11Fence::CreateSharedHandle`.
    D3d11Fence(NtHandle),
    /// An `NvSciSyncObj`.
    NvSciSync(NvSciObject),
    /// An `IDXGIKeyedMutex`, from `IDXGIResource1::CreateSharedHandle`.
    KeyedMutex(NtHandle),
    /// An `IDXGIKeyedMutex`, from `IDXGIResource::GetSharedHandle`.
    KeyedMutexKmt(KmtHandle),
    /// A timeline semaphore as Vulkan's `OPAQUE_FD`.
    TimelineFd(Fd),
    /// A timeline semaphore as Vulkan's `OPAQUE_WIN32`.
    TimelineWin32(NtHandle),
}

impl SemaphoreHandle {
    /// The name in CUDA's manual, its constant, the form, what goes into the descriptor's union, and what waits and signals
    /// need.
    #[rustfmt::skip] // A table.
    fn row(&self) -> (&'static str, Type, Form, Member, Operand) {
        use Type::*;
        match self {
            Self::OpaqueFd(fd)        => ("OPAQUE_FD",                CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD,                Form::Fd,  fd.member(), Operand::Nothing),
            Self::OpaqueWin32(nt)     => ("OPAQUE_WIN32",             CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32,             Form::Nt,  nt.member(), Operand::Nothing),
            Self::OpaqueWin32Kmt(kmt) => ("OPAQUE_WIN32_KMT",         CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32_KMT,         Form::Kmt, Member::Pointer(kmt.pointer()), Operand::Nothing),
            Self::D3d12Fence(nt)      => ("D3D12_FENCE",              CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE,              Form::Nt,  nt.member(), Operand::Value),
            Self::D3d11Fence(nt)      => ("D3D11_FENCE",              CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_FENCE,              Form::Nt,  nt.member(), Operand::Value),
            Self::NvSciSync(object)   => ("NVSCISYNC",                CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_NVSCISYNC,                Form::NvSci, Member::Pointer(object.pointer()), Operand::Fence),
            Self::KeyedMutex(nt)      => ("D3D11_KEYED_MUTEX",        CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX,        Form::Nt,  nt.member(), Operand::Key),
            Self::KeyedMutexKmt(kmt)  => ("D3D11_KEYED_MUTEX_KMT",    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX_KMT,    Form::Kmt, Member::Pointer(kmt.pointer()), Operand::Key),
            Self::TimelineFd(fd)      => ("TIMELINE_SEMAPHORE_FD",    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,    Form::Fd,  fd.member(), Operand::Value),
            Self::TimelineWin32(nt)   => ("TIMELINE_SEMAPHORE_WIN32", CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32, Form::Nt,  nt.member(), Operand::Value),
        }
    }

    /// Returns the kind's name in CUDA's manual, without `CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_`.
    pub fn name(&self) -> &'static str {
        self.row().0
    }

    pub(crate) fn operand(&self) -> Operand {
        self.row().4
    }

    /// Returns the descriptor that `cuImportExternalSemaphore` takes. It is valid while the handle lives.
    pub fn descriptor(&self) -> sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
        let (_, type_, _, member, _) = self.row();
        // SAFETY: the union of a semaphore's descriptor.
        let handle = unsafe { member.union() };
        sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC { type_, handle, flags: 0, reserved: [0; 16] }
    }

    /// Fails if this system has no such handles.
    pub(crate) fn exists_here(&self) -> Result<()> {
        let (name, _, form, ..) = self.row();
        form.exists_here(name)
    }

    /// Ends the handle after a successful import: a descriptor is CUDA's now, and what else is ours is closed.
    pub(crate) fn imported(self) {
        if let Self::OpaqueFd(fd) | Self::TimelineFd(fd) = self {
            fd.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{align_of, offset_of, size_of};

    use super::super::raw::tests::{BARE, assert_documented, fd, kmt, named, nt, sci};
    use super::super::{Signal, Wait};
    use super::*;

    type Desc = sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;
    type WaitParams = sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;
    type SignalParams = sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;

    /// `cuda.h` of CUDA 11.2 to 13 on 64-bit systems, by hand. A descriptor: type, 4 bytes of padding, a union of 16 bytes,
    /// flags, 16 reserved integers, 4 bytes of padding. Parameters: 72 bytes of operands, flags, 16 reserved integers, 4
    /// bytes of padding.
    #[test]
    fn the_structures_are_those_of_cuda_h() {
        assert_eq!((size_of::<Desc>(), align_of::<Desc>()), (96, 8));
        let desc = [
            offset_of!(Desc, type_),
            offset_of!(Desc, handle),
            offset_of!(Desc, flags),
            offset_of!(Desc, reserved),
        ];
        assert_eq!(desc, [0, 8, 24, 28]);
        assert_eq!((size_of::<WaitParams>(), size_of::<SignalParams>()), (144, 144));
        let wait = [
            offset_of!(WaitParams, params.fence.value),
            offset_of!(WaitParams, params.nvSciSync),
            offset_of!(WaitParams, params.keyedMutex.key),
            offset_of!(WaitParams, params.keyedMutex.timeoutMs),
            offset_of!(WaitParams, params.reserved),
            offset_of!(WaitParams, flags),
            offset_of!(WaitParams, reserved),
        ];
        assert_eq!(wait, [0, 8, 16, 24, 32, 72, 76]);
        let signal = [
            offset_of!(SignalParams, params.fence.value),
            offset_of!(SignalParams, params.nvSciSync),
            offset_of!(SignalParams, params.keyedMutex.key),
            offset_of!(SignalParams, params.reserved),
            offset_of!(SignalParams, flags),
            offset_of!(SignalParams, reserved),
        ];
        assert_eq!(signal, [0, 8, 16, 24, 72, 76]);
    }

    /// Compares each variant with `cuda.h` and the manual of `cuImportExternalSemaphore`: the type's number and the
    /// two words of the union (handle, name).
    #[test]
    fn every_variant_is_described_as_the_manual_says() {
        fn row<H>(
            (handle, union): (H, [u64; 2]),
            make: fn(H) -> SemaphoreHandle,
        ) -> (SemaphoreHandle, [u64; 2]) {
            (make(handle), union)
        }
        use Operand::{Fence, Key, Nothing, Value};
        for ((handle, union), kind, form, operand) in [
            (row(fd(), SemaphoreHandle::OpaqueFd), 1, Form::Fd, Nothing),
            (row(nt(), SemaphoreHandle::OpaqueWin32), 2, Form::Nt, Nothing),
            (row(named(), SemaphoreHandle::OpaqueWin32), 2, Form::Nt, Nothing),
            (row(kmt(), SemaphoreHandle::OpaqueWin32Kmt), 3, Form::Kmt, Nothing),
            (row(nt(), SemaphoreHandle::D3d12Fence), 4, Form::Nt, Value),
            (row(named(), SemaphoreHandle::D3d12Fence), 4, Form::Nt, Value),
            (row(nt(), SemaphoreHandle::D3d11Fence), 5, Form::Nt, Value),
            (row(named(), SemaphoreHandle::D3d11Fence), 5, Form::Nt, Value),
            (row(sci(), SemaphoreHandle::NvSciSync), 6, Form::NvSci, Fence),
            (row(nt(), SemaphoreHandle::KeyedMutex), 7, Form::Nt, Key),
            (row(named(), SemaphoreHandle::KeyedMutex), 7, Form::Nt, Key),
            (row(kmt(), SemaphoreHandle::KeyedMutexKmt), 8, Form::Kmt, Key),
            (row(fd(), SemaphoreHandle::TimelineFd), 9, Form::Fd, Value),
            (row(nt(), SemaphoreHandle::TimelineWin32), 10, Form::Nt, Value),
            (row(named(), SemaphoreHandle::TimelineWin32), 10, Form::Nt, Value),
        ] {
            let name = handle.name();
            assert_documented(&handle);
            assert_eq!((handle.row().2, handle.operand()), (form, operand), "{name}");
            let desc = handle.descriptor();
            let base = (&raw const desc).cast::<u8>();
            // SAFETY: fields of the structure at their offsets in `cuda.h`; `Member::union` has written all of the
            // union's 16 bytes.
            unsafe {
                assert_eq!(base.cast::<u32>().read(), kind, "{}", name);
                assert_eq!(base.add(8).cast::<[u64; 2]>().read(), union, "{}", name);
                // Flags are "reserved for the future" and zero.
                assert_eq!(base.add(24).cast::<[u32; 17]>().read(), [0; 17], "{}", name);
            }
        }
    }

    /// The places of `fence.value`, `nvSciSync.fence`, `keyedMutex.key`, `keyedMutex.timeoutMs` (waits only) and `flags`.
    /// Everything else must be zero.
    const PLACES: [(usize, usize); 5] = [(0, 8), (8, 8), (16, 8), (24, 4), (72, 4)];

    fn values<T>(params: &T) -> [u64; 5] {
        assert_eq!(size_of::<T>(), 144);
        let base = (&raw const *params).cast::<u8>();
        let mut used = [false; 144];
        let values = PLACES.map(|(offset, size)| {
            used[offset..offset + size].fill(true);
            // SAFETY: within the 144 bytes, all of which `params()` has zeroed first.
            let bytes = unsafe { std::slice::from_raw_parts(base.add(offset), size) };
            bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
        });
        for (offset, _) in used.iter().enumerate().filter(|(_, used)| !**used) {
            // SAFETY: as above.
            assert_eq!(unsafe { base.add(offset).read() }, 0, "byte {offset}");
        }
        values
    }

    #[test]
    fn waits_and_signals_say_what_the_manual_asks() {
        let pointer = BARE.addr() as u64;
        let fence = sci().0;
        let (big, key) = (0xfedc_ba98_7654_3210, 0x1111_2222_3333_4444);
        for (wait, operand, expected) in [
            (Wait::Binary, Operand::Nothing, [0; 5]),
            (Wait::Value(big), Operand::Value, [big, 0, 0, 0, 0]),
            (Wait::Key { key, timeout_ms: 250 }, Operand::Key, [0, 0, key, 250, 0]),
            (Wait::Key { key, timeout_ms: u32::MAX }, Operand::Key, [0, 0, key, 0xffff_ffff, 0]),
            (Wait::Fence(fence), Operand::Fence, [0, pointer, 0, 0, 0]),
        ] {
            assert_eq!((wait.operand(), values(&wait.params())), (operand, expected), "{wait:?}");
        }
        for (signal, operand, expected) in [
            (Signal::Binary, Operand::Nothing, [0; 5]),
            (Signal::Value(big), Operand::Value, [big, 0, 0, 0, 0]),
            (Signal::Key(key), Operand::Key, [0, 0, key, 0, 0]),
            (Signal::Fence(fence), Operand::Fence, [0, pointer, 0, 0, 0]),
        ] {
            assert_eq!((signal.operand(), values(&signal.params())), (operand, expected), "{signal:?}");
        }
    }

    #[test]
    fn a_wrong_operand_is_an_error_that_says_both() {
        assert!(Operand::Value.check(Wait::Value(1).operand(), "wait for", "a").is_ok());
        let given = Wait::Key { key: 1, timeout_ms: 0 }.operand();
        let text = Operand::Value.check(given, "wait for", "D3D12_FENCE").unwrap_err().to_string();
        assert_eq!(text, "to wait for D3D12_FENCE takes a fence value, but a key was given");
    }
}
