//! Looks up functions of `libcuda`, once, and without a panic if one is missing.

use std::sync::OnceLock;

pub use libloading::Library;

use crate::Error;

/// CUDA's driver, once it is loaded. It stays open until the process ends.
pub static LIBRARY: OnceLock<Library> = OnceLock::new();

/// Generates functions from a table, for this crate and for the program in its repository. Each row has the
/// name, the arguments, and the symbols of a function, the newest first. Functions after `?` are optional.
#[doc(hidden)]
#[macro_export]
macro_rules! cuda_functions {
    (
        $($name:ident($($argument:ident: $type:ty),*) = $symbols:expr;)*
        ? $($extra:ident($($extra_argument:ident: $extra_type:ty),*) = $extra_symbols:expr;)*
    ) => {
        static FUNCTIONS: std::sync::OnceLock<Functions> = std::sync::OnceLock::new();

        #[allow(non_snake_case)] // Fields have the names of CUDA's functions.
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($type),*) -> Code,)*
            $($extra: Option<unsafe extern "C" fn($($extra_type),*) -> Code>,)*
        }

        impl Functions {
            /// Looks up all functions. The error names the first that the library lacks.
            ///
            /// # Safety
            /// `library` must be CUDA's driver. The functions may be called only while it is open.
            pub unsafe fn of(library: &$crate::cuda::look_up::Library) -> $crate::Result<Self> {
                // SAFETY: these symbols are functions of these types in every version of the driver.
                unsafe {
                    Ok(Self {
                        $($name: $crate::cuda::look_up::find(library, &$symbols).ok_or_else(|| $crate::cuda::look_up::lacks(stringify!($name)))?,)*
                        $($extra: $crate::cuda::look_up::find(library, &$extra_symbols),)*
                    })
                }
            }
        }

        /// Looks up all functions of CUDA's driver, once.
        pub fn look_up() -> $crate::Result<()> {
            if let (None, Some(library)) = (FUNCTIONS.get(), $crate::cuda::look_up::LIBRARY.get()) {
                // SAFETY: CUDA's driver, which stays open. A faster thread has found the same functions.
                let _ = FUNCTIONS.set(unsafe { Functions::of(library) }?);
            }
            Ok(())
        }

        pub fn functions() -> Option<&'static Functions> {
            FUNCTIONS.get()
        }

        $(
            /// # Safety
            /// What the manual requires of a caller.
            #[allow(non_snake_case, clippy::too_many_arguments)] // As in CUDA.
            pub unsafe fn $name($($argument: $type),*) -> Code {
                match FUNCTIONS.get() {
                    // SAFETY: the caller's promise.
                    Some(functions) => unsafe { (functions.$name)($($argument),*) },
                    None => Code::NOT_INITIALIZED,
                }
            }
        )*

        $(
            /// # Safety
            /// What the manual requires of a caller. Returns `CUDA_ERROR_NOT_FOUND` without the function.
            #[allow(non_snake_case)] // As in CUDA.
            pub unsafe fn $extra($($extra_argument: $extra_type),*) -> Code {
                match FUNCTIONS.get().and_then(|functions| functions.$extra) {
                    // SAFETY: the caller's promise.
                    Some(function) => unsafe { function($($extra_argument),*) },
                    None => Code::NOT_FOUND,
                }
            }
        )*
    };
}

/// Returns the first of `symbols` that the library has.
///
/// # Safety
/// `F` must be the symbols' type.
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
