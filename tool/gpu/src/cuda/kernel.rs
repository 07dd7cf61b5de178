use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};

use cudarc::driver::sys;

use super::api;
use super::cubin::Cubin;
use super::jit_log::JitLog;
use super::owned::{AutoDestroy, call_in};
use super::parameters::{self, KernelParameters};
use super::ptx::{self, PtxCode, Signature};
use super::{Cuda, Driver, Stream, is_sticky, nvrtc};
use crate::{Error, Result, input_file};

/// The maximum size of a kernel file, in bytes.
pub const MAX_PTX: u64 = 16 << 20;

#[derive(Clone, Debug, PartialEq)]
pub struct KernelSource {
    /// The file, or a description, for error messages.
    pub name: String,
    pub ptx: String,
    pub entry: String,
    /// Machine code that [`super::cubin::link`] made from `ptx` for the GPU in use.
    pub cubin: Option<Cubin>,
    /// The name for `--kernel`, if the kernel comes with the program.
    pub built_in: Option<&'static str>,
}

impl KernelSource {
    pub fn new(name: &str, ptx: &str, entry: &str) -> Self {
        Self { name: name.into(), ptx: ptx.into(), entry: entry.into(), cubin: None, built_in: None }
    }

    /// Reads the kernel that `--kernel` names, as `FILE.ptx[:ENTRY]` or `FILE.cu[:ENTRY]`.
    pub fn from_argument(argument: &str) -> Result<Self> {
        if argument.is_empty() || argument.starts_with(':') {
            return Err(Error::Usage(format!("--kernel `{argument}` names no file")));
        }
        if argument.ends_with(':') {
            return Err(Error::Usage(format!("--kernel `{argument}` names no entry after the colon")));
        }
        let (path, entry) = Self::split_argument(argument);
        Self::from_file(&path, entry.as_deref())
    }

    /// Reads PTX, or compiles CUDA C++ (`.cu`) with NVRTC. Without `entry`, the file must have one entry.
    pub fn from_file(path: &Path, entry: Option<&str>) -> Result<Self> {
        let name = path.display().to_string();
        let problem = |problem| Error::Kernel { kernel: name.clone(), problem };
        let is_cuda = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("cu"));
        let kind = if is_cuda { "CUDA C++" } else { "PTX" };
        let (mut ptx, source) = text_of(input_file::read(path, MAX_PTX)?)
            .map_err(|what| problem(format!("it is {what}, so it cannot be {kind}")))?;
        if is_cuda {
            // Check the `//!PARAM` lines before compiling, so that errors have the line numbers of the file.
            KernelParameters::of(&ptx).map_err(problem)?;
            let (compiled, log) = nvrtc::compile(path, &source)?;
            if !log.is_empty() {
                crate::note!("note: {log}");
            }
            ptx = parameters::declarations(&ptx) + &compiled;
        }
        let entry = ptx::choose(&ptx, entry).map_err(problem)?;
        Ok(Self { name, ptx, entry, cubin: None, built_in: None })
    }

    /// Splits `FILE:ENTRY` at a colon after the last dot and path separator, so that `C:\…` stays whole.
    pub fn split_argument(argument: &str) -> (PathBuf, Option<String>) {
        match argument.rsplit_once(':') {
            Some((path, entry))
                if !path.is_empty() && !entry.is_empty() && !entry.contains(['/', '\\', '.']) =>
            {
                (Path::new(path).into(), Some(entry.into()))
            }
            _ => (Path::new(argument).into(), None),
        }
    }

    /// Returns the PTX, with `?` for each non-ASCII character: compilers refuse those even in comments.
    ///
    /// # Errors
    /// Fails for a control character: the driver takes text that begins like ELF (0x7f) for machine code.
    pub fn text(&self) -> Result<CString> {
        let byte = |c: char| match c {
            _ if !c.is_ascii() => Ok(b'?'),
            _ if c.is_ascii_control() && !c.is_ascii_whitespace() => Err(c),
            _ => Ok(c as u8),
        };
        let ascii: Vec<u8> = self.ptx.chars().map(byte).collect::<Result<_, char>>().map_err(|c| {
            self.problem(format!("it has the control character 0x{:02x}: is this PTX text?", u32::from(c)))
        })?;
        CString::new(ascii).map_err(|error| self.problem(error.to_string()))
    }

    pub fn entry_name(&self) -> Result<CString> {
        CString::new(&*self.entry).map_err(|_| self.problem("its entry has a zero byte"))
    }

    /// Parses the `//!PARAM` lines, which apply to every entry in the file.
    pub fn parameters(&self) -> Result<KernelParameters> {
        KernelParameters::of(&self.ptx).map_err(|problem| self.problem(problem))
    }

    pub fn check_signature(&self, signature: Signature) -> Result<()> {
        signature
            .check(&self.ptx, &self.entry, self.parameters()?.len())
            .map_err(|problem| self.problem(problem))
    }

    /// Adds the compiler's log to `error`. If the PTX may be for another GPU or driver, also names both.
    pub(super) fn refused(&self, context: &Cuda, error: impl Into<Error>, log: &JitLog) -> Error {
        let error = error.into();
        // 209 is NO_BINARY_FOR_GPU, 218 is INVALID_PTX, 222 is UNSUPPORTED_PTX_VERSION.
        if !matches!(error, Error::Cuda { code: 209 | 218 | 222, .. }) {
            return self.problem(log.after(error));
        }
        let (gpu, driver) =
            (context.info(), Driver::load_without_cudarc().map_or("?".into(), Driver::version));
        let (made, (major, minor)) = (ptx::made_for(&self.ptx), gpu.compute_capability);
        let here = format!("{}, which is sm_{major}{minor}, has a driver for CUDA {driver}", gpu.name);
        self.problem(format!(
            "{}\n{made}; {here}, so at most compute_{major}{minor} works here",
            log.after(error)
        ))
    }

    pub fn problem(&self, problem: impl Into<String>) -> Error {
        Error::Kernel { kernel: self.name.clone(), problem: problem.into() }
    }
}

/// Decodes UTF-8, UTF-16 with a byte-order mark, or Latin-1. Also returns the bytes for NVRTC.
fn text_of(bytes: Vec<u8>) -> Result<(String, Vec<u8>), &'static str> {
    let utf16 = |pairs: &[u8], word: fn([u8; 2]) -> u16| {
        let words: Vec<_> = pairs.as_chunks().0.iter().map(|pair| word(*pair)).collect();
        String::from_utf16(&words).map(|text| (text.clone(), text.into())).map_err(|_| "broken UTF-16")
    };
    match bytes.as_slice() {
        [] => Err("empty"),
        [0x7f, b'E', b'L', b'F', ..] | [0x50, 0xed, 0x55, 0xba, ..] => {
            Err("machine code (a cubin or fatbin)")
        }
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        bytes => {
            let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            // Drop a C string's terminator.
            let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
            let latin_1 = |_| bytes.iter().copied().map(char::from).collect();
            Ok((std::str::from_utf8(bytes).map_or_else(latin_1, String::from), bytes.into()))
        }
    }
}

pub struct Kernel {
    name: String,
    pub parameters: KernelParameters,
    /// The number of threads in a block.
    pub block: u32,
    function: sys::CUfunction,
    module: AutoDestroy<sys::CUmodule>,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for Kernel {}

/// The number of threads in a block, unless the kernel requires another number or allows only fewer.
const BLOCK: u32 = 256;

pub fn blocks(count: u64, block: u32) -> u32 {
    count.div_ceil(u64::from(block)) as u32
}

impl Kernel {
    pub fn load(context: &Cuda, source: &KernelSource) -> Result<Self> {
        let _span = tracing::trace_span!("PTX").entered();
        context.bind()?;
        let ptx = source.text()?;
        let entry = source.entry_name()?;

        // The driver distinguishes PTX from machine code by the first bytes.
        let image = source.cubin.as_ref();
        let image = image.map_or(ptx.as_ptr().cast::<c_void>(), |cubin| cubin.bytes().as_ptr().cast());

        let mut log = JitLog::new();
        let (count, options, values) = log.options();
        // SAFETY: the text is terminated, machine code contains its own length, `options` and `values` have
        // `count` elements, and `log` outlives the call.
        let load = |module| unsafe { api::cuModuleLoadDataEx(module, image, count, options, values) };
        let module = AutoDestroy::new(context, "cuModuleLoadDataEx", load)
            .map_err(|error| source.refused(context, error, &log))?;
        let mut function = std::ptr::null_mut();
        // SAFETY: a loaded module and a terminated name.
        let code = unsafe { api::cuModuleGetFunction(&mut function, module.raw, entry.as_ptr()) };
        context
            .check("cuModuleGetFunction", code)
            .map_err(|error| source.problem(format!("entry `{}`: {}", source.entry, Error::from(error))))?;
        // Parse the `//!PARAM` lines only now: for text that is not PTX, the compiler's error is better.
        let parameters = source.parameters()?;
        let mut kernel = Self { name: source.name.clone(), parameters, block: BLOCK, function, module };
        kernel.block = match PtxCode::of(&source.ptx).entry(&source.entry).and_then(|entry| entry.block()) {
            Some([threads, 1, 1]) if threads > 0 => threads,
            Some([x, y, z]) => {
                return Err(source.problem(format!(
                    "entry `{}` requires blocks of {x}x{y}x{z} threads (.reqntid), but it is launched with one-dimensional blocks",
                    source.entry
                )));
            }
            None => {
                // `__launch_bounds__` and the number of registers may allow fewer threads in a block.
                let most =
                    kernel.attribute(sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
                most.clamp(1, BLOCK)
            }
        };
        Ok(kernel)
    }

    /// Returns the bytes of local memory that each thread needs for large arrays and spilled registers.
    pub fn local_bytes(&self) -> Result<u32> {
        self.attribute(sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
    }

    fn attribute(&self, which: sys::CUfunction_attribute) -> Result<u32> {
        let mut value = 0;
        // SAFETY: a function of a loaded module; writes one integer.
        let ask = || unsafe { api::cuFuncGetAttribute(&mut value, which, self.function) };
        call_in(&self.module.context, "cuFuncGetAttribute", ask)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Enqueues one thread per vertex or texel, with the arguments of [`Signature`]: `(target, unsigned cols,
    /// unsigned rows, unsigned long long frame, double time)` and the structure of parameters, if any.
    ///
    /// # Safety
    /// The kernel must have that signature, and `stream` must belong to its context. `target` must be memory
    /// of that context with 16 bytes for each of `cols * rows` vertices, or a surface of that many texels.
    /// Nothing else may use `target` until the kernel is done.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        mut target: u64,
        [mut cols, mut rows]: [u32; 2],
        mut frame: u64,
        mut time: f64,
        values: &[f32],
    ) -> Result<()> {
        let count = u64::from(cols) * u64::from(rows);
        let mut values = self.parameters.values(values);
        let mut arguments: [*mut c_void; 6] = [
            (&raw mut target).cast(),
            (&raw mut cols).cast(),
            (&raw mut rows).cast(),
            (&raw mut frame).cast(),
            (&raw mut time).cast(),
            values.pointer(),
        ];
        // SAFETY: the arguments are locals, in the signature's order and types. The caller promises that the
        // kernel has this signature, and a `target` that it may write.
        unsafe { self.launch_with(stream, blocks(count, self.block), self.block, &mut arguments) }
    }

    /// Enqueues a one-dimensional launch of any signature.
    ///
    /// # Safety
    /// `stream` must belong to the kernel's context. `arguments` must point to a value of the right type for
    /// each of the kernel's parameters. All memory accesses of the kernel must be valid and free of races.
    pub unsafe fn launch_with(
        &self,
        stream: &Stream,
        blocks: u32,
        threads: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let context = &self.module.context;
        context.bind()?;
        let (function, arguments) = (self.function, arguments.as_mut_ptr());
        let none = std::ptr::null_mut();
        // SAFETY: the function's module is alive, and the arguments are copied before the call returns. The
        // rest is the caller's promise.
        let code = unsafe {
            api::cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream.raw(), arguments, none)
        };
        context.check("cuLaunchKernel", code).map_err(|error| match Error::from(error) {
            // A sticky error may come from an earlier kernel, so do not blame this one.
            error @ Error::Cuda { code, .. } if !is_sticky(code) => {
                Error::Kernel { kernel: self.name.clone(), problem: error.to_string() }
            }
            error => error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_is_a_file_and_maybe_an_entry() {
        let split = |text| {
            let (path, entry) = KernelSource::split_argument(text);
            (path.display().to_string(), entry)
        };
        assert_eq!(split("a.ptx"), ("a.ptx".into(), None));
        assert_eq!(split("dir/a.ptx:wave"), ("dir/a.ptx".into(), Some("wave".into())));
        assert_eq!(split("C:\\kernels\\a.ptx"), ("C:\\kernels\\a.ptx".into(), None));
        assert_eq!(split("a:b/c.ptx"), ("a:b/c.ptx".into(), None));
    }

    #[test]
    fn a_bad_file_says_what_is_wrong() {
        let error = KernelSource::from_argument("/no/such/file.ptx").unwrap_err().to_string();
        assert!(error.contains("cannot read /no/such/file.ptx"), "{error}");
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let error = KernelSource::from_argument(here).unwrap_err().to_string();
        assert!(error.contains("no .entry"), "{error}");
        let wave = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/wave.ptx:nothing");
        let error = KernelSource::from_argument(wave).unwrap_err().to_string();
        assert!(error.contains("no entry `nothing`") && error.contains("wave"), "{error}");
    }

    #[test]
    fn compilers_get_ascii() {
        let ptx = "//!PARAM a float 0 1 1 \"°\"\n.version 6.0 // é\n";
        let source = KernelSource::new("toy", ptx, "toy");
        let text = source.text().unwrap();
        assert_eq!(text.to_str(), Ok("//!PARAM a float 0 1 1 \"?\"\n.version 6.0 // ?\n"));
        assert_eq!(source.parameters().unwrap()[0].unit, "°");
        // The driver would take the second one for machine code.
        for (ptx, character) in [("a\0b", "0x00"), ("\x7fELF\x02.version 6.0", "0x7f"), ("\x1b[2J", "0x1b")] {
            let words = KernelSource { ptx: ptx.into(), ..source.clone() }.text().unwrap_err().to_string();
            assert!(words.contains(character) && words.contains("is this PTX text?"), "{words}");
        }
    }
}
