//! Links PTX into machine code for one GPU with the driver's own linker, so no CUDA toolkit is needed.
//!
//! The driver trusts the sizes stored in machine code, so only the linker can create a [`Cubin`]:
//!
//! ```compile_fail,E0423
//! use wavefield_gpu::cuda::cubin::Cubin;
//! fn forged(bytes: &[u8]) -> Cubin {
//!     Cubin(bytes.into())
//! }
//! ```

use std::sync::Arc;

use cudarc::driver::sys::CUjitInputType;

use super::api;
use super::jit_log::JitLog;
use super::owned::AutoDestroy;
use super::{Cuda, KernelSource};
use crate::Result;

#[derive(Clone, Debug, PartialEq)]
pub struct Cubin(Arc<[u8]>);

impl Cubin {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

pub fn link(context: &Cuda, source: &KernelSource) -> Result<Cubin> {
    let ptx = source.text()?;
    let mut log = JitLog::new();
    let (count, options, values) = log.options();
    // SAFETY: `options` and `values` have `count` elements; `log` outlives the linker.
    let create = |linker| unsafe { api::cuLinkCreate(count, options, values, linker) };
    let linker = AutoDestroy::new(context, "cuLinkCreate", create)?;

    let bytes = ptx.as_bytes_with_nul();
    // SAFETY: the linker only reads the text, which is terminated and outlives the call; no options.
    let code = unsafe {
        api::cuLinkAddData(
            linker.raw,
            CUjitInputType::CU_JIT_INPUT_PTX,
            bytes.as_ptr().cast_mut().cast(),
            bytes.len(),
            c"kernel.ptx".as_ptr(),
            0,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    let (mut cubin, mut size) = (std::ptr::null_mut(), 0);
    let linked = context.check("cuLinkAddData", code).and_then(|()| {
        // SAFETY: a live linker, which owns the result.
        let code = unsafe { api::cuLinkComplete(linker.raw, &mut cubin, &mut size) };
        context.check("cuLinkComplete", code)
    });
    linked.map_err(|error| source.refused(context, error, &log))?;
    // SAFETY: the linker returned `size` bytes, which live until it is destroyed.
    Ok(Cubin(unsafe { std::slice::from_raw_parts(cubin.cast::<u8>(), size) }.into()))
}
