//! Looks up the functions of `libcuda` once. A missing function is an error, not a panic.

use std::sync::OnceLock;

pub use libloading::Library;

use crate::Error;

/// CUDA's driver, after it was loaded. It stays open until the process ends.
pub static LIBRARY: OnceLock<Library> = OnceLock::new();

/// Generates functions that call CUDA's driver from a table. This crate and the program in its repository
/// each have a table. Each row has the name and the arguments of a function, and its symbols in the library,
/// the newest first.
#[doc(hidden)]
#[macro_export]
macro_rules! cuda_functions {
    ($($name:ident($($argument:ident: $type:ty),*) = $symbols:expr;)*) => {
        pub(super) static FUNCTIONS: std::sync::OnceLock<Functions> = std::sync::OnceLock::new();

        #[allow(non_snake_case)] // Fields have the names of CUDA's functions.
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($type),*) -> Code,)*
        }

        impl Functions {
            /// Looks up all functions. The error names the first function that the library lacks.
            ///
            /// # Safety
            /// `library` must be CUDA's driver. The functions may be called only while it is open.
            pub unsafe fn of(library: &$crate::cuda::look_up::Library) -> $crate::Result<Self> {
                // SAFETY: in every version of the driver, these symbols are functions of these types.
                unsafe {
                    Ok(Self {
                        $($name: $crate::cuda::look_up::find(library, &$symbols).ok_or_else(|| $crate::cuda::look_up::lacks(stringify!($name)))?,)*
                    })
                }
            }
        }

        /// Looks up all functions of CUDA's driver, once.
        pub fn look_up() -> $crate::Result<()> {
            if let (None, Some(library)) = (FUNCTIONS.get(), $crate::cuda::look_up::LIBRARY.get()) {
                // SAFETY: `LIBRARY` is CUDA's driver, and stays open. (`set` may fail: another thread has
                // then stored the same functions.)
                let _ = FUNCTIONS.set(unsafe { Functions::of(library) }?);
            }
            Ok(())
        }

        $(
            /// # Safety
            /// The caller must do what CUDA's manual requires for this function.
            #[allow(non_snake_case, clippy::too_many_arguments)] // As in CUDA.
            pub unsafe fn $name($($argument: $type),*) -> Code {
                match FUNCTIONS.get() {
                    // SAFETY: the caller's promise.
                    Some(functions) => unsafe { (functions.$name)($($argument),*) },
                    None => Code::NOT_INITIALIZED,
                }
            }
        )*
    };
}

/// Returns the first of `symbols` that the library has.
///
/// # Safety
/// `F` must be the type of all these symbols, or `usize`, for the address.
pub unsafe fn find<F: Copy>(library: &Library, symbols: &[&str]) -> Option<F> {
    // SAFETY: the caller's promise.
    symbols.iter().find_map(|symbol| unsafe { library.get(symbol.as_bytes()) }.ok().map(|found| *found))
}

pub fn lacks(name: &str) -> Error {
    Error::Driver {
        reason: format!("it lacks {name}"),
        hint: "update NVIDIA's driver to 460 (CUDA 11.2) or later",
    }
}
