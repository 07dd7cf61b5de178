//! `libnvrtc`: a compiler that does not understand CUDA C++. It returns the PTX of `flat` or `level` of `tool/handoff/kernels/test`. The word
//! `mistake` in a source is an error, and `unused` is a warning. As in NVRTC, a byte-order mark is an error, a header that is not
//! found is one, and what looks like UTF-16 is an empty source.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::{LazyLock, Mutex};

use crate::script::{self, alive};

const INVALID_PROGRAM: c_int = 4;
const COMPILATION: c_int = 6;

/// A program that was created and not yet destroyed.
#[derive(Default)]
struct Program {
    name: String,
    source: String,
    /// The names of the headers that came with the source.
    headers: Vec<String>,
    log: Vec<u8>,
    ptx: Vec<u8>,
}

/// The programs. A handle is not a pointer, but an index here plus one.
static PROGRAMS: LazyLock<Mutex<Vec<Option<Program>>>> = LazyLock::new(Default::default);

/// Does `work` with a program, unless the script makes this call fail.
fn with(call: &'static str, program: *mut c_void, work: impl FnOnce(&mut Program) -> c_int) -> c_int {
    if let Some(code) = script::call(call) {
        return code;
    }
    let mut programs = PROGRAMS.lock().unwrap();
    let place = (program as usize).checked_sub(1).and_then(|index| programs.get_mut(index));
    place.and_then(Option::as_mut).map_or(INVALID_PROGRAM, work)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int {
    (*major, *minor) = (12, 0);
    script::call("nvrtcVersion").unwrap_or(0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetErrorString(code: c_int) -> *const c_char {
    let text = match code {
        INVALID_PROGRAM => c"NVRTC_ERROR_INVALID_PROGRAM",
        COMPILATION => c"NVRTC_ERROR_COMPILATION",
        _ => c"NVRTC_ERROR of the stand-in",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCreateProgram(
    program: *mut *mut c_void,
    source: *const c_char,
    name: *const c_char,
    headers: c_int,
    _texts: *const *const c_char,
    names: *const *const c_char,
) -> c_int {
    if let Some(code) = script::call("nvrtcCreateProgram") {
        return code;
    }
    let text = |text| CStr::from_ptr(text).to_string_lossy().into_owned();
    let mut programs = PROGRAMS.lock().unwrap();
    let headers = (0..headers as usize).map(|index| text(*names.add(index))).collect();
    programs.push(Some(Program { name: text(name), source: text(source), headers, ..Program::default() }));
    *program = programs.len() as *mut c_void;
    alive("NVRTC program", 1);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcDestroyProgram(program: *mut *mut c_void) -> c_int {
    let mut destroyed = None;
    let code = with("nvrtcDestroyProgram", *program, |program| {
        destroyed = Some(std::mem::take(program));
        0
    });
    if destroyed.is_some() {
        PROGRAMS.lock().unwrap()[*program as usize - 1] = None;
        alive("NVRTC program", -1);
    }
    code
}

/// PTX without its comments, as a compiler drops the `//!PARAM` lines.
fn without_declarations(ptx: &str) -> Vec<u8> {
    ptx.lines()
        .filter(|line| !line.starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect::<String>()
        .into()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCompileProgram(
    program: *mut c_void,
    count: c_int,
    options: *const *const c_char,
) -> c_int {
    with("nvrtcCompileProgram", program, |program| {
        let options = std::slice::from_raw_parts(options, count as usize);
        let options: Vec<_> =
            options.iter().map(|option| CStr::from_ptr(*option).to_string_lossy()).collect();
        if !options.iter().any(|option| option.starts_with("--gpu-architecture=compute_")) {
            script::offence(format!("NVRTC was not told what to compile for: {options:?}"));
        }
        let line = |word| program.source.lines().position(|line| line.contains(word)).map(|line| line + 1);
        if let Some(line) = line("mistake") {
            let name = &program.name;
            program.log = format!("{name}({line}): error: identifier \"mistake\" is undefined\n").into();
            return COMPILATION;
        }
        if program.source.starts_with(['\u{feff}', '\u{fffd}']) {
            program.log = format!("{}(1): error: unrecognized token\n", program.name).into();
            return COMPILATION;
        }
        let include =
            |line: &str| Some(line.strip_prefix("#include ")?.trim_matches(['<', '>', '"']).to_owned());
        let paths = || options.iter().filter_map(|option| option.strip_prefix("--include-path="));
        let is_found = |header: &String| {
            program.headers.contains(header) || paths().any(|path| Path::new(path).join(header).exists())
        };
        if let Some(header) = program.source.lines().filter_map(include).find(|header| !is_found(header)) {
            program.log = format!("catastrophic error: cannot open source file \"{header}\"\n").into();
            return COMPILATION;
        }
        if let Some(line) = line("unused") {
            program.log =
                format!("{}({line}): warning #177-D: \"unused\" is not used\n", program.name).into();
        }
        program.ptx = without_declarations(match line("void level(") {
            Some(_) => include_str!("../../../tool/handoff/kernels/test/level.ptx"),
            None => include_str!("../../../tool/handoff/kernels/test/flat.ptx"),
        });
        0
    })
}

/// The functions that return a text, and its size with the terminator.
macro_rules! texts {
    ($($size:ident, $get:ident = $field:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $size(program: *mut c_void, size: *mut usize) -> c_int {
            with(stringify!($size), program, |program| {
                *size = program.$field.len() + 1;
                0
            })
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(program: *mut c_void, text: *mut c_char) -> c_int {
            with(stringify!($get), program, |program| {
                let place = std::slice::from_raw_parts_mut(text.cast::<u8>(), program.$field.len() + 1);
                place[..program.$field.len()].copy_from_slice(&program.$field);
                place[program.$field.len()] = 0;
                0
            })
        }
    )*};
}

texts! {
    nvrtcGetProgramLogSize, nvrtcGetProgramLog = log;
    nvrtcGetPTXSize, nvrtcGetPTX = ptx;
}
