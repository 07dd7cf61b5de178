//! Compiles CUDA C++ to PTX with [NVRTC](https://docs.nvidia.com/cuda/nvrtc/index.html), without a GPU.

use std::error::Error as _;
use std::ffi::{CStr, CString, OsString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;

use crate::{Error, Result};

/// The oldest architecture that NVRTC 13 supports. A driver can compile the PTX for any newer GPU.
const TARGET: &CStr = c"--gpu-architecture=compute_75";

/// In order of preference. 12 is before 13, because a driver loads PTX only up to its own CUDA version.
const NAMES: &[&str] = if cfg!(windows) {
    &["nvrtc64_120_0.dll", "nvrtc64_130_0.dll", "nvrtc64_112_0.dll"]
} else {
    &["libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so.11.2", "libnvrtc.so"]
};

const HINT: &str = if cfg!(windows) {
    "install the CUDA toolkit, or `pip install nvidia-cuda-nvrtc-cu12` and put the folder of its DLL into PATH; or compile the \
     file to PTX yourself (tool/handoff/kernels/README.md)"
} else {
    "install the CUDA toolkit, or `pip install nvidia-cuda-nvrtc-cu12` and put the folder of its library into LD_LIBRARY_PATH; \
     or compile the file to PTX yourself (tool/handoff/kernels/README.md)"
};

/// The names of the C headers that NVRTC lacks. One text serves as all of them, [`STANDARD_TEXT`].
const STANDARD: &str = "assert float limits math stddef stdint stdio stdlib string";
const HEADERS: &str = "CUDA's come with a toolkit (set CUDA_HOME to its folder), or with pip beside NVRTC: nvidia-cuda-runtime-cu12 has \
     cuda_runtime.h and cuda_fp16.h, nvidia-cuda-cccl-cu12 has cooperative_groups.h's and cuda/std (for <limits> and other \
     headers of C++); for CUDA 13 without -cu12";
const STANDARD_TEXT: &str = concat!(include_str!("nvrtc_standard.h"), "\0");

type NvrtcCode = c_int;
/// `NVRTC_ERROR_COMPILATION`: the log describes an error in the source.
const COMPILATION: NvrtcCode = 6;

type Program = *mut std::ffi::c_void;
type Get = unsafe extern "C" fn(Program, *mut c_char) -> NvrtcCode;
type GetSize = unsafe extern "C" fn(Program, *mut usize) -> NvrtcCode;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> NvrtcCode;

struct Nvrtc {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> NvrtcCode,
    error_string: unsafe extern "C" fn(NvrtcCode) -> *const c_char,
    create: Create,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> NvrtcCode,
    destroy: unsafe extern "C" fn(*mut Program) -> NvrtcCode,
    log: (GetSize, Get),
    ptx: (GetSize, Get),
    file: PathBuf,
    _library: Library,
}

/// Compiles the CUDA C++ `source` of the file `path`. Returns the PTX and the compiler's log. Searches for
/// headers in the file's folder, then among CUDA's headers.
///
/// # Errors
/// Fails if NVRTC is not installed or the source has errors, which the compiler's log gives by file and line.
pub(super) fn compile(path: &Path, source: &[u8]) -> Result<(String, String)> {
    static NVRTC: OnceLock<Nvrtc> = OnceLock::new();
    let nvrtc = match NVRTC.get() {
        Some(nvrtc) => nvrtc,
        // Another thread may be faster. Then its library is used, and this one is closed.
        None => {
            let opened = Nvrtc::open()?;
            NVRTC.get_or_init(|| opened)
        }
    };
    let name = path.display().to_string();
    nvrtc.compile(path, source).map_err(|problem| Error::Kernel { kernel: name, problem })
}

/// Returns `folder` in each place where a CUDA toolkit may be: the system does not search there.
fn toolkits(folder: &str) -> Vec<PathBuf> {
    let roots = ["CUDA_HOME", "CUDA_PATH"].map(std::env::var_os).into_iter().flatten();
    let usual = cfg!(unix).then(|| OsString::from("/usr/local/cuda"));
    let roots = roots.filter(|root| !root.is_empty()).chain(usual);
    roots.map(|root| Path::new(&root).join(folder)).collect()
}

/// Returns the folders of CUDA's headers: near the NVRTC in `lib`, otherwise in a toolkit or the system.
fn headers(lib: &Path) -> Vec<PathBuf> {
    // A toolkit, conda and CUDA 13 wheels have the first folder, CUDA 12 wheels the second, Debian the last.
    let near = ["../include", "../../cuda_runtime/include"].map(|place| lib.join(place));
    let main = near.into_iter().chain(toolkits("include")).chain(["/usr/include".into()]);
    // If the system's search found the library, its folder is unknown and `lib` is relative.
    let main = main.filter(|folder| folder.is_absolute() && folder.join("cuda_runtime.h").exists()).take(1);
    let more =
        ["cuda_cccl", "cuda_nvcc", "curand"].map(|wheel| lib.join("../..").join(wheel).join("include"));
    let all = main.flat_map(|main| [main.join("cccl"), main]).chain(more);
    all.filter(|folder| folder.is_absolute() && folder.is_dir()).collect()
}

impl Nvrtc {
    fn open() -> Result<Self> {
        let missing = |reason| Error::Missing { what: "NVRTC, which compiles .cu files", reason, hint: HINT };
        let folders = toolkits(if cfg!(windows) { "bin" } else { "lib64" });
        // Search this path here, not in the system's loader: the library's folder then leads to its headers.
        let path =
            std::env::var_os(if cfg!(windows) { "PATH" } else { "LD_LIBRARY_PATH" }).unwrap_or_default();
        let places = std::env::split_paths(&path).chain([PathBuf::new()]).chain(folders.iter().cloned());
        let mut files = places.flat_map(|folder| NAMES.iter().map(move |name| folder.join(name)));
        // SAFETY: this runs the initialisers of NVIDIA's compiler, or of the user's replacement for it.
        let opened = files.find_map(|file| Some((unsafe { Library::new(&file) }.ok()?, file)));
        let (library, file) = opened.ok_or_else(|| {
            let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
            let (names, more) = (NAMES.join(", "), folders.join(" or "));
            missing(match more.is_empty() {
                true => format!("the system finds none of {names}"),
                false => format!("the system finds none of {names}, and none is in {more}"),
            })
        })?;
        // SAFETY: a library of this name is NVRTC.
        unsafe { Self::look_up(library, file) }
            .map_err(|error| missing(error.source().map_or_else(|| error.to_string(), ToString::to_string)))
    }

    /// # Safety
    /// The library must be NVRTC.
    unsafe fn look_up(library: Library, file: PathBuf) -> Result<Self, libloading::Error> {
        // SAFETY: the library is NVRTC (the caller's promise), whose functions have these types in every
        // version. They are kept with the library, so none outlives it.
        unsafe {
            Ok(Self {
                version: *library.get(b"nvrtcVersion\0")?,
                error_string: *library.get(b"nvrtcGetErrorString\0")?,
                create: *library.get(b"nvrtcCreateProgram\0")?,
                compile: *library.get(b"nvrtcCompileProgram\0")?,
                destroy: *library.get(b"nvrtcDestroyProgram\0")?,
                log: (*library.get(b"nvrtcGetProgramLogSize\0")?, *library.get(b"nvrtcGetProgramLog\0")?),
                ptx: (*library.get(b"nvrtcGetPTXSize\0")?, *library.get(b"nvrtcGetPTX\0")?),
                file,
                _library: library,
            })
        }
    }

    fn name(&self) -> String {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two integers.
        match unsafe { (self.version)(&mut major, &mut minor) } {
            0 => format!("NVRTC {major}.{minor}"),
            _ => "NVRTC".into(),
        }
    }

    fn check(&self, call: &str, code: NvrtcCode) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: takes any code, and returns a static string or null.
        let text = unsafe { (self.error_string)(code) };
        let text = match text.is_null() {
            true => "unknown".into(),
            // SAFETY: a static, terminated string.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy(),
        };
        Err(format!("{call} of {} failed: {text} ({code})", self.name()))
    }

    fn compile(&self, path: &Path, source: &[u8]) -> Result<(String, String), String> {
        let text =
            |text: &[u8], what: &str| CString::new(text).map_err(|_| format!("{what} has a zero byte"));
        let name = text(path.display().to_string().as_bytes(), "its name")?;
        let source = text(source, "it")?;
        let standard = STANDARD.split(' ').flat_map(|name| [format!("{name}.h\0"), format!("c{name}\0")]);
        let standard: Vec<_> = standard.collect();
        let names: Vec<_> = standard.iter().map(|name| name.as_ptr().cast()).collect();
        let texts = vec![STANDARD_TEXT.as_ptr().cast(); names.len()];
        // The parent of a name without a folder is empty.
        let own = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut folders = headers(self.file.parent().unwrap_or(own));
        folders.insert(0, own.into());
        let include =
            |folder: &PathBuf| text(format!("--include-path={}", folder.display()).as_bytes(), "its folder");
        let includes = folders.iter().map(include).collect::<Result<Vec<_>, _>>()?;
        let options =
            [TARGET, c"--std=c++17"].into_iter().chain(includes.iter().map(|option| option.as_c_str()));
        let options: Vec<_> = options.map(CStr::as_ptr).collect();

        let mut raw = std::ptr::null_mut();
        let count = names.len() as c_int;
        // SAFETY: all texts are terminated and copied; `texts` and `names` have `count` elements.
        let code = unsafe {
            (self.create)(&mut raw, source.as_ptr(), name.as_ptr(), count, texts.as_ptr(), names.as_ptr())
        };
        self.check("nvrtcCreateProgram", code)?;
        let program = Open { raw, nvrtc: self };

        // SAFETY: a live program; `options` has the given length and outlives the call.
        let code = unsafe { (self.compile)(program.raw, options.len() as c_int, options.as_ptr()) };
        let log = program.text("nvrtcGetProgramLog", self.log).map(|log| log.trim().to_owned());
        if code == COMPILATION
            && let Ok(log) = &log
        {
            let hint = if log.contains("open source file") {
                format!("\nHeaders are in {folders:?}. {HEADERS}")
            } else {
                String::new()
            };
            return Err(format!("{} cannot compile it:\n{log}{hint}", self.name()));
        }
        self.check("nvrtcCompileProgram", code)?;
        Ok((program.text("nvrtcGetPTX", self.ptx)?, log?))
    }
}

struct Open<'a> {
    raw: Program,
    nvrtc: &'a Nvrtc,
}

impl Open<'_> {
    fn text(&self, call: &str, (size_of, get): (GetSize, Get)) -> Result<String, String> {
        let mut size = 0;
        // SAFETY: a live program; writes one number.
        self.nvrtc.check(call, unsafe { size_of(self.raw, &mut size) })?;
        let mut bytes = vec![0u8; size];
        // SAFETY: a live program, and room for `size` bytes.
        self.nvrtc.check(call, unsafe { get(self.raw, bytes.as_mut_ptr().cast()) })?;
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once. The call fails only if there is no such program.
        unsafe { (self.nvrtc.destroy)(&mut self.raw) };
    }
}
