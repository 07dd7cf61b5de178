//! Every semaphore handle that CUDA imports: one row each, with what its waits and signals need.

use ash::vk;
use cudarc::driver::sys;
use cudarc::driver::sys::CUexternalSemaphoreHandleType as Type;

use super::form::Payload;
use super::{Fd, Form, KmtHandle, Matching, Member, NtHandle, NvSciObject, ObjectName, Operand};
use crate::Result;

/// The two kinds of Vulkan semaphore ([`VkSemaphoreType`]). Both are exported as the same handle types, so CUDA must
/// be told which kind a handle stands for.
///
/// # Examples
/// ```
/// use vulkan_cuda::handle::{ExportType, SemaphoreKind};
///
/// assert_eq!(SemaphoreKind::Timeline.words(), "timeline semaphore");
/// assert_eq!(SemaphoreKind::Timeline.vulkan(), ash::vk::SemaphoreType::TIMELINE);
/// // CUDA does not import timelines as KMT handles.
/// assert!(!ExportType::OpaqueWin32Kmt.carries(SemaphoreKind::Timeline));
/// ```
///
/// [`VkSemaphoreType`]: https://registry.khronos.org/vulkan/specs/latest/man/html/VkSemaphoreType.html
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SemaphoreKind {
    /// A 64-bit counter that only grows.
    Timeline,
    /// Signalled or not.
    Binary,
}

impl SemaphoreKind {
    /// Returns Vulkan's constant: [`VkSemaphoreType`].
    ///
    /// [`VkSemaphoreType`]: https://registry.khronos.org/vulkan/specs/latest/man/html/VkSemaphoreType.html
    pub const fn vulkan(self) -> vk::SemaphoreType {
        match self {
            Self::Timeline => vk::SemaphoreType::TIMELINE,
            Self::Binary => vk::SemaphoreType::BINARY,
        }
    }

    /// Returns its name in error messages, without an article. See the [example](SemaphoreKind#examples).
    pub const fn words(self) -> &'static str {
        match self {
            Self::Timeline => "timeline semaphore",
            Self::Binary => "binary semaphore",
        }
    }
}

/// A semaphore, fence or mutex of another API, in a form that CUDA can import. It owns its handle, except for KMT
/// handles and NvSci objects: see [`crate::handle`].
///
/// # Examples
///
/// Every row of the table can be inspected on every system:
///
/// ```
/// use vulkan_cuda::handle::{ObjectName, Operand, SemaphoreHandle};
///
/// let handle = SemaphoreHandle::TimelineWin32Name(ObjectName::new("Local\\ready").unwrap());
/// let facts = handle.facts();
/// assert_eq!((facts.name, facts.operand), ("TIMELINE_SEMAPHORE_WIN32", Operand::Value));
/// assert_eq!(handle.descriptor().type_, facts.cuda);
/// ```
///
/// [`ImportedSemaphore::import`](crate::ImportedSemaphore::import) imports one.
#[derive(Debug)]
pub enum SemaphoreHandle {
    /// A binary semaphore as Vulkan's `OPAQUE_FD`.
    OpaqueFd(Fd),
    /// A binary semaphore as Vulkan's `OPAQUE_WIN32`.
    OpaqueWin32(NtHandle),
    /// The same, by the name in `VkExportSemaphoreWin32HandleInfoKHR`.
    OpaqueWin32Name(ObjectName),
    /// A binary semaphore as Vulkan's `OPAQUE_WIN32_KMT`.
    OpaqueWin32Kmt(KmtHandle),
    /// An `ID3D12Fence`, from `ID3D12Device::CreateSharedHandle`.
    D3d12Fence(NtHandle),
    /// The same, by name.
    D3d12FenceName(ObjectName),
    /// An `ID3D11Fence`, from `ID3D11Fence::CreateSharedHandle`.
    D3d11Fence(NtHandle),
    /// The same, by name.
    D3d11FenceName(ObjectName),
    /// An `NvSciSyncObj`.
    NvSciSync(NvSciObject),
    /// An `IDXGIKeyedMutex`, from `IDXGIResource1::CreateSharedHandle`.
    KeyedMutex(NtHandle),
    /// The same, by name.
    KeyedMutexName(ObjectName),
    /// An `IDXGIKeyedMutex`, from `IDXGIResource::GetSharedHandle`.
    KeyedMutexKmt(KmtHandle),
    /// A timeline semaphore as Vulkan's `OPAQUE_FD`.
    TimelineFd(Fd),
    /// A timeline semaphore as Vulkan's `OPAQUE_WIN32`.
    TimelineWin32(NtHandle),
    /// The same, by name.
    TimelineWin32Name(ObjectName),
}

/// A row of the table: what CUDA must know about a kind of semaphore handle. Returned by [`SemaphoreHandle::facts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SemaphoreFacts {
    /// The name in CUDA's manual, without `CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_`.
    pub name: &'static str,
    /// CUDA's constant for the kind.
    pub cuda: Type,
    /// The form, which decides who closes the handle and where it exists.
    pub form: Form,
    /// What the handle writes into the descriptor's union.
    pub member: Member,
    /// What its waits and signals need.
    pub operand: Operand,
    /// How the exporter's device and CUDA's are matched.
    pub matching: Matching,
}

fn row<P: Payload>(
    name: &'static str,
    cuda: Type,
    payload: &P,
    operand: Operand,
    matching: Matching,
) -> SemaphoreFacts {
    SemaphoreFacts { name, cuda, form: P::FORM, member: payload.member(), operand, matching }
}

impl SemaphoreHandle {
    /// Returns its row of the table. See the [example](SemaphoreHandle#examples).
    #[rustfmt::skip] // A table.
    pub fn facts(&self) -> SemaphoreFacts {
        use Type::*;
        use Operand::{Fence, Key, Nothing, Value};
        use Matching::{Luid, LuidElseUuid, Uuid};
        match self {
            Self::OpaqueFd(fd)            => row("OPAQUE_FD",                CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD,                fd,   Nothing, Uuid),
            Self::OpaqueWin32(nt)         => row("OPAQUE_WIN32",             CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32,             nt,   Nothing, LuidElseUuid),
            Self::OpaqueWin32Name(name)   => row("OPAQUE_WIN32",             CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32,             name, Nothing, LuidElseUuid),
            Self::OpaqueWin32Kmt(kmt)     => row("OPAQUE_WIN32_KMT",         CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32_KMT,         kmt,  Nothing, LuidElseUuid),
            Self::D3d12Fence(nt)          => row("D3D12_FENCE",              CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE,              nt,   Value,   Luid),
            Self::D3d12FenceName(name)    => row("D3D12_FENCE",              CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE,              name, Value,   Luid),
            Self::D3d11Fence(nt)          => row("D3D11_FENCE",              CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_FENCE,              nt,   Value,   Luid),
            Self::D3d11FenceName(name)    => row("D3D11_FENCE",              CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_FENCE,              name, Value,   Luid),
            Self::NvSciSync(object)       => row("NVSCISYNC",                CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_NVSCISYNC,                object, Fence, Uuid),
            Self::KeyedMutex(nt)          => row("D3D11_KEYED_MUTEX",        CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX,        nt,   Key,     Luid),
            Self::KeyedMutexName(name)    => row("D3D11_KEYED_MUTEX",        CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX,        name, Key,     Luid),
            Self::KeyedMutexKmt(kmt)      => row("D3D11_KEYED_MUTEX_KMT",    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX_KMT,    kmt,  Key,     Luid),
            Self::TimelineFd(fd)          => row("TIMELINE_SEMAPHORE_FD",    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,    fd,   Value,   Uuid),
            Self::TimelineWin32(nt)       => row("TIMELINE_SEMAPHORE_WIN32", CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32, nt,   Value,   LuidElseUuid),
            Self::TimelineWin32Name(name) => row("TIMELINE_SEMAPHORE_WIN32", CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32, name, Value,   LuidElseUuid),
        }
    }

    /// Returns the descriptor that [`cuImportExternalSemaphore`] takes. It is valid while the handle lives. See the
    /// [example](SemaphoreHandle#examples).
    ///
    /// [`cuImportExternalSemaphore`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
    pub fn descriptor(&self) -> sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
        let facts = self.facts();
        sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
            type_: facts.cuda,
            handle: facts.member.semaphore(),
            flags: 0,
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

#[cfg(test)]
mod tests {
    use std::mem::{align_of, offset_of, size_of};

    use super::super::form::tests::{BARE, assert_documented, fd, kmt, nt, sci};
    use super::super::{NvSciFence, Signal, Wait};
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
        let bare = BARE.addr() as u64;
        let named = |make: fn(ObjectName) -> SemaphoreHandle| {
            let name = ObjectName::new("Local\\semaphore").unwrap();
            let Member::Name(text) = name.member() else { unreachable!() };
            (make(name), [0, text.addr() as u64])
        };
        let by_nt = |make: fn(NtHandle) -> SemaphoreHandle| {
            let (handle, raw) = nt();
            (make(handle), [raw.addr() as u64, 0])
        };
        let by_fd = |make: fn(Fd) -> SemaphoreHandle| {
            let fd = fd();
            let Member::Fd(raw) = fd.member() else { unreachable!() };
            (make(fd), [raw as u64, 0])
        };
        use Matching::{Luid, LuidElseUuid, Uuid};
        use Operand::{Fence, Key, Nothing, Value};
        type Expected = ((SemaphoreHandle, [u64; 2]), u32, Form, Operand, Matching);
        let all: [Expected; 15] = [
            (by_fd(SemaphoreHandle::OpaqueFd), 1, Form::Fd, Nothing, Uuid),
            (by_nt(SemaphoreHandle::OpaqueWin32), 2, Form::Nt, Nothing, LuidElseUuid),
            (named(SemaphoreHandle::OpaqueWin32Name), 2, Form::Name, Nothing, LuidElseUuid),
            ((SemaphoreHandle::OpaqueWin32Kmt(kmt()), [bare, 0]), 3, Form::Kmt, Nothing, LuidElseUuid),
            (by_nt(SemaphoreHandle::D3d12Fence), 4, Form::Nt, Value, Luid),
            (named(SemaphoreHandle::D3d12FenceName), 4, Form::Name, Value, Luid),
            (by_nt(SemaphoreHandle::D3d11Fence), 5, Form::Nt, Value, Luid),
            (named(SemaphoreHandle::D3d11FenceName), 5, Form::Name, Value, Luid),
            ((SemaphoreHandle::NvSciSync(sci()), [bare, 0]), 6, Form::NvSci, Fence, Uuid),
            (by_nt(SemaphoreHandle::KeyedMutex), 7, Form::Nt, Key, Luid),
            (named(SemaphoreHandle::KeyedMutexName), 7, Form::Name, Key, Luid),
            ((SemaphoreHandle::KeyedMutexKmt(kmt()), [bare, 0]), 8, Form::Kmt, Key, Luid),
            (by_fd(SemaphoreHandle::TimelineFd), 9, Form::Fd, Value, Uuid),
            (by_nt(SemaphoreHandle::TimelineWin32), 10, Form::Nt, Value, LuidElseUuid),
            (named(SemaphoreHandle::TimelineWin32Name), 10, Form::Name, Value, LuidElseUuid),
        ];
        for ((handle, union), kind, form, operand, matching) in all {
            let facts = handle.facts();
            assert_documented(&handle);
            assert_eq!(
                (facts.form, facts.operand, facts.matching),
                (form, operand, matching),
                "{}",
                facts.name
            );
            let desc = handle.descriptor();
            let base = (&raw const desc).cast::<u8>();
            // SAFETY: fields of the structure at their offsets in `cuda.h`; the union's 16 bytes are all written by
            // `Member::semaphore`.
            unsafe {
                assert_eq!(base.cast::<u32>().read(), kind, "{}", facts.name);
                assert_eq!(base.add(8).cast::<[u64; 2]>().read(), union, "{}", facts.name);
                // Flags are "reserved for the future" and zero.
                assert_eq!(base.add(24).cast::<[u32; 17]>().read(), [0; 17], "{}", facts.name);
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
        // SAFETY: only written into parameters.
        let fence = unsafe { NvSciFence::from_raw(BARE) }.unwrap();
        let (big, key) = (0xfedc_ba98_7654_3210, 0x1111_2222_3333_4444);
        for (wait, operand, expected) in [
            (Wait::Binary, Operand::Nothing, [0; 5]),
            (Wait::Value(big), Operand::Value, [big, 0, 0, 0, 0]),
            (Wait::Key { key, timeout_ms: 250 }, Operand::Key, [0, 0, key, 250, 0]),
            (Wait::Key { key, timeout_ms: u32::MAX }, Operand::Key, [0, 0, key, 0xffff_ffff, 0]),
            (Wait::Fence { fence, skip_memory_sync: false }, Operand::Fence, [0, pointer, 0, 0, 0]),
            (Wait::Fence { fence, skip_memory_sync: true }, Operand::Fence, [0, pointer, 0, 0, 2]),
        ] {
            assert_eq!((wait.operand(), values(&wait.params())), (operand, expected), "{wait:?}");
        }
        for (signal, operand, expected) in [
            (Signal::Binary, Operand::Nothing, [0; 5]),
            (Signal::Value(big), Operand::Value, [big, 0, 0, 0, 0]),
            (Signal::Key(key), Operand::Key, [0, 0, key, 0, 0]),
            (Signal::Fence { fence, skip_memory_sync: false }, Operand::Fence, [0, pointer, 0, 0, 0]),
            (Signal::Fence { fence, skip_memory_sync: true }, Operand::Fence, [0, pointer, 0, 0, 1]),
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
