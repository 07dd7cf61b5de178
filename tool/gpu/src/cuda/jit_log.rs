use std::ffi::c_void;

use cudarc::driver::sys::CUjit_option;

use crate::Error;

pub(super) struct JitLog {
    text: Vec<u8>,
    options: [CUjit_option; 2],
    values: [*mut c_void; 2],
}

impl JitLog {
    pub(super) fn new() -> Self {
        let mut text = vec![0u8; 16 * 1024];
        let options =
            [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The API takes the size as an integer that is cast to a pointer.
        let values = [text.as_mut_ptr().cast::<c_void>(), text.len() as *mut c_void];
        Self { text, options, values }
    }

    /// Returns the number of options, the options and their values. The log is written to `self`, which must
    /// outlive the compilation or the linker.
    pub(super) fn options(&mut self) -> (u32, *mut CUjit_option, *mut *mut c_void) {
        (self.options.len() as u32, self.options.as_mut_ptr(), self.values.as_mut_ptr())
    }

    pub(super) fn after(&self, answer: impl Into<Error>) -> String {
        let log = String::from_utf8_lossy(&self.text);
        format!("{}\n{}", answer.into(), log.trim_end_matches('\0').trim()).trim().to_owned()
    }
}
