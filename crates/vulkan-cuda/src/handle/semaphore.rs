//! The ten kinds of semaphore handle that CUDA imports, with one table row each.

use cudarc::driver::sys;
use cudarc::driver::sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st__bindgen_ty_1 as Union;
use cudarc::driver::sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st__bindgen_ty_1__bindgen_ty_1 as Win32;
use cudarc::driver::sys::CUexternalSemaphoreHandleType as Type;

use super::raw::{Form, Words};
use super::{BorrowedHandle, Fd, NtHandle};

/// A handle to a semaphore, fence or mutex of another API, for
/// [`ImportedSemaphore`](crate::ImportedSemaphore).
#[derive(Debug)]
pub enum SemaphoreHandle {
    /// A binary semaphore as Vulkan's `OPAQUE_FD`.
    OpaqueFd(Fd),
    /// A binary semaphore as Vulkan's `OPAQUE_WIN32`. If given by name, the name is that in
    /// `VkExportSemaphoreWin32HandleInfoKHR`.
    OpaqueWin32(NtHandle),
    /// A binary semaphore as Vulkan's `OPAQUE_WIN32_KMT`.
    OpaqueWin32Kmt(BorrowedHandle),
    /// An `ID3D12Fence`, from `ID3D12Device::CreateSharedHandle`.
    D3d12Fence(NtHandle),
    /// An `ID3D11Fence`, from `ID3D11Fence::CreateSharedHandle`.
    D3d11Fence(NtHandle),
    /// An `NvSciSyncObj`.
    NvSciSync(BorrowedHandle),
    /// An `IDXGIKeyedMutex`, from `IDXGIResource1::CreateSharedHandle`.
    KeyedMutex(NtHandle),
    /// An `IDXGIKeyedMutex`, from `IDXGIResource::GetSharedHandle`.
    KeyedMutexKmt(BorrowedHandle),
    /// A timeline semaphore as Vulkan's `OPAQUE_FD`.
    TimelineFd(Fd),
    /// A timeline semaphore as Vulkan's `OPAQUE_WIN32`.
    TimelineWin32(NtHandle),
}

impl SemaphoreHandle {
    /// Returns the name in CUDA's manual, CUDA's constant, the form, the content of the descriptor's union,
    /// and a description of the operand.
    #[rustfmt::skip] // A table.
    pub(crate) fn row(&self) -> (&'static str, Type, Form, Words, &'static str) {
        use Type::*;
        match self {
            Self::OpaqueFd(fd)        => ("OPAQUE_FD",                CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD,                Form::FD,  fd.words(), NOTHING),
            Self::OpaqueWin32(nt)     => ("OPAQUE_WIN32",             CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32,             Form::NT,  nt.words(), NOTHING),
            Self::OpaqueWin32Kmt(kmt) => ("OPAQUE_WIN32_KMT",         CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32_KMT,         Form::KMT, kmt.words(), NOTHING),
            Self::D3d12Fence(nt)      => ("D3D12_FENCE",              CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE,              Form::NT,  nt.words(), VALUE),
            Self::D3d11Fence(nt)      => ("D3D11_FENCE",              CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_FENCE,              Form::NT,  nt.words(), VALUE),
            Self::NvSciSync(object)   => ("NVSCISYNC",                CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_NVSCISYNC,                Form::NVSCI, object.words(), FENCE),
            Self::KeyedMutex(nt)      => ("D3D11_KEYED_MUTEX",        CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX,        Form::NT,  nt.words(), KEY),
            Self::KeyedMutexKmt(kmt)  => ("D3D11_KEYED_MUTEX_KMT",    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX_KMT,    Form::KMT, kmt.words(), KEY),
            Self::TimelineFd(fd)      => ("TIMELINE_SEMAPHORE_FD",    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,    Form::FD,  fd.words(), VALUE),
            Self::TimelineWin32(nt)   => ("TIMELINE_SEMAPHORE_WIN32", CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32, Form::NT,  nt.words(), VALUE),
        }
    }

    /// Returns the kind's name in CUDA's manual, without `CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_`.
    pub fn name(&self) -> &'static str {
        self.row().0
    }

    /// Returns the descriptor that `cuImportExternalSemaphore` takes. It is valid while the handle lives.
    pub fn descriptor(&self) -> sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
        let (_, type_, _, (handle, name), _) = self.row();
        let handle = Union { win32: Win32 { handle, name } };
        sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC { type_, handle, flags: 0, reserved: [0; 16] }
    }

    /// Ends the ownership of the handle after a successful import: gives up a file descriptor, which CUDA
    /// owns now, or closes an NT handle.
    pub(crate) fn imported(self) {
        if let Self::OpaqueFd(fd) | Self::TimelineFd(fd) = self {
            fd.give_up();
        }
    }
}

const NOTHING: &str = "no value";
const VALUE: &str = "a fence value";
const KEY: &str = "a key";
const FENCE: &str = "an NvSciSyncFence";

/// The operand of a wait or a signal of an imported semaphore. Each kind of semaphore takes one variant.
#[derive(Clone, Copy, Debug)]
pub enum Operand {
    /// For a binary semaphore: no value. A wait also resets the semaphore, so each signal has one wait.
    Binary,
    /// For a timeline or a Direct3D fence. A wait ends when the counter has reached this value.
    Value(u64),
    /// For an `IDXGIKeyedMutex`. A wait acquires the mutex with `key`, and a signal releases it with `key`.
    Key {
        /// The key. A wait ends only when the mutex was last released with the same key.
        key: u64,
        /// The limit of a wait in milliseconds; `INFINITE` (`u32::MAX`) means no limit. A signal ignores it.
        timeout_ms: u32,
    },
    /// For an `NvSciSyncObj`: an `NvSciSyncFence`, which a signal writes and a wait reads.
    Fence(BorrowedHandle),
}

impl Operand {
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Binary => NOTHING,
            Self::Value(_) => VALUE,
            Self::Key { .. } => KEY,
            Self::Fence(_) => FENCE,
        }
    }

    /// Returns the parameters that `cuWaitExternalSemaphoresAsync` takes.
    pub fn wait_params(self) -> sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS {
        // SAFETY: a C structure of integers and pointers, for which all zeros mean "nothing requested".
        let mut params: sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS = unsafe { std::mem::zeroed() };
        match self {
            Self::Binary => {}
            Self::Value(value) => params.params.fence.value = value,
            Self::Key { key, timeout_ms } => {
                params.params.keyedMutex.key = key;
                params.params.keyedMutex.timeoutMs = timeout_ms;
            }
            Self::Fence(fence) => params.params.nvSciSync.fence = fence.0.as_ptr(),
        }
        params
    }

    /// Returns the parameters that `cuSignalExternalSemaphoresAsync` takes.
    pub fn signal_params(self) -> sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS {
        // SAFETY: a C structure of integers and pointers, for which all zeros mean "nothing requested".
        let mut params: sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS = unsafe { std::mem::zeroed() };
        match self {
            Self::Binary => {}
            Self::Value(value) => params.params.fence.value = value,
            Self::Key { key, .. } => params.params.keyedMutex.key = key,
            Self::Fence(fence) => params.params.nvSciSync.fence = fence.0.as_ptr(),
        }
        params
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{align_of, offset_of, size_of};

    use super::super::raw::tests::{BARE, assert_documented, borrowed, fd, named, nt};
    use super::*;

    type Desc = sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;
    type WaitParams = sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;
    type SignalParams = sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;

    /// `cuda.h` of CUDA 11.2 to 13 on 64-bit systems, by hand. A descriptor: type, 4 bytes of padding, a
    /// union of 16 bytes, flags, 16 reserved integers, 4 bytes of padding. Parameters: 72 bytes of operands,
    /// flags, 16 reserved integers, 4 bytes of padding.
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

    /// Compares each variant with `cuda.h` and the manual of `cuImportExternalSemaphore`: the type's number
    /// and the two words of the union (handle, name).
    #[test]
    fn every_variant_is_described_as_the_manual_says() {
        fn row<H>(
            (handle, union): (H, [u64; 2]),
            make: fn(H) -> SemaphoreHandle,
        ) -> (SemaphoreHandle, [u64; 2]) {
            (make(handle), union)
        }
        for ((handle, union), kind, form, operand) in [
            (row(fd(), SemaphoreHandle::OpaqueFd), 1, Form::FD, NOTHING),
            (row(nt(), SemaphoreHandle::OpaqueWin32), 2, Form::NT, NOTHING),
            (row(named(), SemaphoreHandle::OpaqueWin32), 2, Form::NT, NOTHING),
            (row(borrowed(), SemaphoreHandle::OpaqueWin32Kmt), 3, Form::KMT, NOTHING),
            (row(nt(), SemaphoreHandle::D3d12Fence), 4, Form::NT, VALUE),
            (row(named(), SemaphoreHandle::D3d12Fence), 4, Form::NT, VALUE),
            (row(nt(), SemaphoreHandle::D3d11Fence), 5, Form::NT, VALUE),
            (row(named(), SemaphoreHandle::D3d11Fence), 5, Form::NT, VALUE),
            (row(borrowed(), SemaphoreHandle::NvSciSync), 6, Form::NVSCI, FENCE),
            (row(nt(), SemaphoreHandle::KeyedMutex), 7, Form::NT, KEY),
            (row(named(), SemaphoreHandle::KeyedMutex), 7, Form::NT, KEY),
            (row(borrowed(), SemaphoreHandle::KeyedMutexKmt), 8, Form::KMT, KEY),
            (row(fd(), SemaphoreHandle::TimelineFd), 9, Form::FD, VALUE),
            (row(nt(), SemaphoreHandle::TimelineWin32), 10, Form::NT, VALUE),
            (row(named(), SemaphoreHandle::TimelineWin32), 10, Form::NT, VALUE),
        ] {
            let name = handle.name();
            assert_documented(&handle);
            assert_eq!((handle.row().2, handle.row().4), (form, operand), "{name}");
            let desc = handle.descriptor();
            let base = (&raw const desc).cast::<u8>();
            // SAFETY: fields of the structure at their offsets in `cuda.h`; `win32` has written all of the
            // union's 16 bytes.
            unsafe {
                assert_eq!(base.cast::<u32>().read(), kind, "{}", name);
                assert_eq!(base.add(8).cast::<[u64; 2]>().read(), union, "{}", name);
                // Flags are "reserved for the future" and zero.
                assert_eq!(base.add(24).cast::<[u32; 17]>().read(), [0; 17], "{}", name);
            }
        }
    }

    /// The places of `fence.value`, `nvSciSync.fence`, `keyedMutex.key`, `keyedMutex.timeoutMs` (waits only)
    /// and `flags`. Everything else must be zero.
    const PLACES: [(usize, usize); 5] = [(0, 8), (8, 8), (16, 8), (24, 4), (72, 4)];

    fn values<T>(params: &T) -> [u64; 5] {
        assert_eq!(size_of::<T>(), 144);
        let base = (&raw const *params).cast::<u8>();
        let mut used = [false; 144];
        let values = PLACES.map(|(offset, size)| {
            used[offset..offset + size].fill(true);
            // SAFETY: within the 144 bytes, all of which were zeroed first.
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
        let fence = borrowed().0;
        let (big, key) = (0xfedc_ba98_7654_3210, 0x1111_2222_3333_4444);
        for (operand, takes, wait, signal) in [
            (Operand::Binary, NOTHING, [0; 5], [0; 5]),
            (Operand::Value(big), VALUE, [big, 0, 0, 0, 0], [big, 0, 0, 0, 0]),
            (Operand::Key { key, timeout_ms: 250 }, KEY, [0, 0, key, 250, 0], [0, 0, key, 0, 0]),
            (Operand::Key { key, timeout_ms: u32::MAX }, KEY, [0, 0, key, 0xffff_ffff, 0], [0, 0, key, 0, 0]),
            (Operand::Fence(fence), FENCE, [0, pointer, 0, 0, 0], [0, pointer, 0, 0, 0]),
        ] {
            assert_eq!(operand.words(), takes);
            assert_eq!(values(&operand.wait_params()), wait, "{operand:?}");
            assert_eq!(values(&operand.signal_params()), signal, "{operand:?}");
        }
    }
}
