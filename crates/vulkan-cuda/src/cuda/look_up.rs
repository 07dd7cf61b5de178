//! Looks up functions of `libcuda`, once, without a panic where one is missing.

use cudarc::driver::sys::culib;

/// Makes functions of a table: each has its name, its arguments, and the symbols under which libraries have it, the newest first.
/// Behind `?` are those that only some runs need.
macro_rules! functions {
    (
        $($name:ident($($argument:ident: $type:ty),*) = $symbols:expr;)*
        ? $($extra:ident($($extra_argument:ident: $extra_type:ty),*) = $extra_symbols:expr;)*
    ) => {
        static FUNCTIONS: std::sync::OnceLock<Functions> = std::sync::OnceLock::new();

        #[allow(non_snake_case)] // Fields are called as CUDA's functions are.
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> Code,)*
            $($extra: Option<unsafe extern "C" fn($($extra_type),*) -> Code>,)*
        }

        /// Looks all of them up, once; the name of the first that the library lacks.
        ///
        /// # Safety
        /// The library must be there: see [`is_culib_present`].
        pub unsafe fn look_up() -> Result<(), &'static str> {
            if FUNCTIONS.get().is_some() {
                return Ok(());
            }
            // SAFETY: the library is there; these symbols are functions of these types in every version of it.
            let functions = unsafe {
                Functions {
                    $($name: find(&$symbols).ok_or(stringify!($name))?,)*
                    $($extra: find(&$extra_symbols),)*
                }
            };
            // Where another thread was faster, it found the same.
            let _ = FUNCTIONS.set(functions);
            Ok(())
        }

        /// Whether the library has an optional function.
        pub fn has(name: &str) -> bool {
            let Some(functions) = FUNCTIONS.get() else { return false };
            match name {
                $(stringify!($extra) => functions.$extra.is_some(),)*
                _ => false,
            }
        }

        $(
            /// # Safety
            /// What the manual asks of a caller.
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
            /// What the manual asks of a caller. Without the function it answers `CUDA_ERROR_NOT_FOUND`: see [`has`].
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

pub(super) use functions;

/// The first of some symbols that the library has.
///
/// # Safety
/// The library must be there, and `F` be the symbols' type.
pub(super) unsafe fn find<F: Copy>(symbols: &[&str]) -> Option<F> {
    // SAFETY: the caller's promise.
    symbols.iter().find_map(|symbol| unsafe { culib().get(symbol.as_bytes()) }.ok().map(|found| *found))
}
