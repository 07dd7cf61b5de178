//! Reads the names, the parameters and the required block sizes of the kernels in PTX text.
//!
//! The driver does not check arguments. If there are too few, it reads past their end. If a type is wrong,
//! the kernel gets garbage. So the parameters are checked before the first launch, by the grammar of the
//! [manual].
//!
//! [manual]: https://docs.nvidia.com/cuda/parallel-thread-execution/#kernel-and-function-directives-entry

/// The parameters that a kernel is launched with: see `tool/handoff/kernels/README.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// Writes vertices, like `kernels/wave.cu`.
    Field,
    /// Paints a texture, like `paint` in `kernels/texture.cu`.
    Texture,
}

impl Signature {
    /// Returns the forms of each parameter's type, and the parameters in CUDA C++.
    fn row(self) -> ([&'static [&'static str]; 5], &'static str) {
        match self {
            Self::Field => (
                [POINTER, U32, U32, U64, F64],
                "(float4 *vertices, unsigned cols, unsigned rows, unsigned long long frame, double time)",
            ),
            Self::Texture => (
                [U64, U32, U32, U64, F64],
                "(unsigned long long surface, unsigned width, unsigned height, unsigned long long frame, double time)",
            ),
        }
    }

    /// Checks that an entry has these parameters, and then a structure of `floats` floats unless that is 0.
    pub(super) fn check(self, ptx: &str, entry: &str, floats: usize) -> Result<(), String> {
        let code = PtxCode::of(ptx);
        let found = code.entry(entry).ok_or_else(|| no_entry(&code.entries(), entry))?.parameters();
        let (types, words) = self.row();
        let structure = (floats > 0).then(|| format!(".b8[{}]", 4 * floats));
        let (first, rest) = found.split_at(types.len().min(found.len()));
        let fits = |(found, forms): (&String, &[&str])| forms.contains(&found.as_str());
        if first.len() == types.len() && first.iter().zip(types).all(fits) && rest.iter().eq(&structure) {
            return Ok(());
        }
        let usual = types.map(|forms| forms[0].to_owned()).into_iter().chain(structure);
        let expected = usual.collect::<Vec<_>>().join(", ");
        let found = listed(found.into_iter());
        let words = match floats {
            0 => words.to_owned(),
            1 => format!("{words}, and a structure of 1 float for its line of //!PARAM"),
            floats => format!("{words}, and a structure of {floats} floats for its lines of //!PARAM"),
        };
        Err(format!(
            "the parameters of entry `{}` are wrong: expected ({expected}), which is {words}; found ({found}); see \
             tool/handoff/kernels/README.md",
            short(entry)
        ))
    }
}

// How compilers write each kind of parameter, the usual form first. `.b64` gives only the size.
const POINTER: &[&str] =
    &[".u64", ".s64", ".b64", ".b8[8]", ".u64 .ptr", ".b64 .ptr", ".u64 .ptr .global", ".b64 .ptr .global"];
const U32: &[&str] = &[".u32", ".s32", ".b32", ".b8[4]"];
const U64: &[&str] = &[".u64", ".s64", ".b64", ".b8[8]"];
const F64: &[&str] = &[".f64", ".b64", ".b8[8]"];

/// Extracts the type: `.b8[12]` from `.param .align 4 .b8 name[12]`, or for example `.u64 .ptr .global`.
fn parameter(declaration: &str) -> String {
    let (declaration, count) = match declaration.split_once('[') {
        Some((declaration, count)) => (declaration, count.split(']').next()),
        None => (declaration, None),
    };
    // PTX needs no space between two of these words, as in `.param.u64`.
    let declaration = declaration.replace('.', " .");
    let mut words: Vec<_> = declaration.split_whitespace().filter(|word| word.starts_with('.')).collect();
    words.retain(|word| !matches!(*word, ".param" | ".reg" | ".align"));
    let words = words.join(" ");
    count.map_or(words.clone(), |count| format!("{words}[{}]", count.trim()))
}

/// PTX without its comments and strings.
pub(super) struct PtxCode(String);

impl PtxCode {
    pub(super) fn of(ptx: &str) -> Self {
        let mut code = String::with_capacity(ptx.len());
        let mut rest = ptx;
        while let Some(at) = rest.find(['/', '"']) {
            let (before, from) = rest.split_at(at);
            code.push_str(before);
            // A comment or string becomes a space, so that the words around it stay separate.
            let end = match from.as_bytes() {
                [b'/', b'/', ..] => from.find('\n'),
                [b'/', b'*', ..] => from[2..].find("*/").map(|at| at + 4),
                [b'"', ..] => from[1..].find(['"', '\n']).map(|at| at + 2),
                _ => Some(1),
            };
            code.push(' ');
            rest = &from[end.unwrap_or(from.len())..];
        }
        code.push_str(rest);
        Self(code)
    }

    /// Returns the kernels that are defined, not just declared.
    pub(super) fn entries(&self) -> Vec<PtxEntry<'_>> {
        self.0.split(".entry").skip(1).filter_map(PtxEntry::of).collect()
    }

    pub(super) fn entry(&self, name: &str) -> Option<PtxEntry<'_>> {
        self.entries().into_iter().find(|entry| entry.name == name)
    }
}

#[derive(Clone, Copy)]
pub(super) struct PtxEntry<'a> {
    pub(super) name: &'a str,
    parameters: &'a str,
    directives: &'a str,
}

impl<'a> PtxEntry<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let text = text.strip_prefix(char::is_whitespace)?.trim_start();
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '$' | '%'));
        let (name, rest) = text.split_at(end.unwrap_or(text.len()));
        let head = rest.split('{').next().unwrap_or_default();
        let (parameters, directives) = match head.trim_start().strip_prefix('(') {
            Some(list) => list.split_once(')').unwrap_or((list, "")),
            None => ("", head),
        };
        // `.pragma "…";` is a directive. Any other semicolon ends a declaration.
        let mut ended = directives.split(';');
        ended.next_back();
        let declared = ended.any(|directive| !directive.contains(".pragma"));
        (!name.is_empty() && !declared).then_some(Self { name, parameters, directives })
    }

    fn parameters(&self) -> Vec<String> {
        let list = self.parameters.trim();
        if list.is_empty() { Vec::new() } else { list.split(',').map(parameter).collect() }
    }

    /// Returns the block size that the entry requires (`.reqntid`), if any.
    pub(super) fn block(&self) -> Option<[u32; 3]> {
        let (_, numbers) = self.directives.split_once(".reqntid")?;
        let numbers = numbers.split('.').next()?.split(',').map(|number| number.trim().parse().ok());
        let numbers = numbers.collect::<Option<Vec<u32>>>()?;
        let at = |index: usize| numbers.get(index).copied().unwrap_or(1);
        Some([at(0), at(1), at(2)])
    }
}

/// Returns the name of the entry to use: `name` if the PTX has it, or without `name` that of the only entry.
pub(super) fn choose(ptx: &str, name: Option<&str>) -> Result<String, String> {
    let code = PtxCode::of(ptx);
    let entries = code.entries();
    match (name, entries.as_slice()) {
        (None, [entry]) => Ok(entry.name.into()),
        (Some(name), entries) if entries.iter().any(|entry| entry.name == name) => Ok(name.into()),
        (None, [_, ..]) => Err(format!(
            "it has several entries, name one as FILE:ENTRY: {}",
            listed(entries.iter().map(|entry| entry.name.to_owned()))
        )),
        (name, entries) => Err(no_entry(entries, name.unwrap_or_default())),
    }
}

/// Describes the PTX's version and target, as in `It is PTX 8.8 for sm_120a`.
pub(super) fn made_for(ptx: &str) -> String {
    let code = PtxCode::of(ptx).0;
    let after = |directive| code.split_once(directive).map_or("", |(_, rest)| rest.trim_start());
    let word =
        |directive| short(after(directive).split([',', ' ', '\t', '\r', '\n']).next().unwrap_or_default());
    format!("It is PTX {} for {}", word(".version"), word(".target"))
}

fn no_entry(entries: &[PtxEntry<'_>], name: &str) -> String {
    match entries {
        [] => "no .entry in it: is this PTX text? CUDA C++ has a `__global__` function, and its file's name ends with .cu".into(),
        entries => {
            let entries = listed(entries.iter().map(|entry| entry.name.to_owned()));
            let mangled =
                if entries.contains("_Z") { "; extern \"C\" keeps a name as it is written" } else { "" };
            format!("it has no entry `{}`; it has: {entries}{mangled}", short(name))
        }
    }
}

fn listed(items: impl ExactSizeIterator<Item = String>) -> String {
    const FEW: usize = 8;
    let count = items.len();
    let few = items.take(FEW).map(|item| short(&item)).collect::<Vec<_>>().join(", ");
    if count > FEW { format!("{few}, … ({count} in all)") } else { few }
}

/// Truncates a word of the file, and removes control characters, which could affect the terminal.
fn short(name: &str) -> String {
    const LONG: usize = 100;
    let mut letters = name.chars().filter(|c| !c.is_control());
    let mut short: String = letters.by_ref().take(LONG).collect();
    if letters.next().is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(signature: Signature, parameters: &str) -> Result<(), String> {
        signature.check(&format!(".version 8.8\n.visible .entry k({parameters})\n{{ ret; }}"), "k", 0)
    }

    fn names(ptx: &str) -> Vec<String> {
        PtxCode::of(ptx).entries().iter().map(|entry| entry.name.to_owned()).collect()
    }

    /// NVRTC 11.8, 12.9 and 13, clang 14 and 19, and Numba write the first form.
    #[test]
    fn every_compiler_s_form_of_the_signature_is_taken() {
        for parameters in [
            "\n\t.param .u64 k_param_0,\n\t.param .u32 k_param_1,\n\t.param .u32 k_param_2,\n\t.param .u64 k_param_3,\n\t\
             .param .f64 k_param_4\n",
            // Newer versions of LLVM mark pointers, and some write only the size. Triton and Rust use LLVM.
            ".param .u64 .ptr .align 1 k_param_0, .param .u32 k_param_1, .param .u32 k_param_2, .param .u64 k_param_3, \
             .param .f64 k_param_4",
            ".param .u64 .ptr .global .align 16 a, .param .b32 b, .param .b32 c, .param .b64 d, .param .b64 e",
            ".param .b64 .ptr .global a, .param .s32 b, .param .s32 c, .param .s64 d, .param .f64 e",
            // The pointer in a structure.
            ".param .align 8 .b8 a[8], .param .u32 b, .param .u32 c, .param .align 8 .b8 d [ 8 ], .param .f64 e",
            // Written by hand: aligned, without spaces, with comments. Then an old form.
            ".param .align 8 .u64 a,.param.u32 b,.param.u32 c/* , .param .u32 no */,.param .u64 d, // .param .u32 no\n.param .f64 e",
            ".reg .u64 a, .reg .u32 b, .reg .u32 c, .reg .u64 d, .reg .f64 e",
        ] {
            check(Signature::Field, parameters).unwrap();
        }
        for ptx in [
            include_str!("../../../../kernels/wave.ptx"),
            include_str!("../../../handoff/kernels/frame_stamp.ptx"),
            include_str!("../../../handoff/kernels/test/flat.ptx"),
        ] {
            let entry = choose(ptx, None).unwrap();
            let floats = if entry == "wave" { 2 } else { 0 };
            Signature::Field.check(ptx, &entry, floats).unwrap();
        }
        Signature::Texture.check(include_str!("../../../handoff/kernels/texture.ptx"), "paint", 0).unwrap();
    }

    #[test]
    fn what_differs_in_number_order_size_or_kind_is_not() {
        let whole = [".param .u64 a", ".param .u32 b", ".param .u32 c", ".param .u64 d", ".param .f64 e"];
        let with = |index: usize, parameter| {
            let mut changed = whole;
            changed[index] = parameter;
            check(Signature::Field, &changed.join(", "))
        };
        check(Signature::Field, &whole.join(", ")).unwrap();
        for (index, parameter, found) in [
            (0, ".param .u32 a", "found (.u32, .u32,"),
            (0, ".param .u64 .ptr .shared .align 4 a", "found (.u64 .ptr .shared,"),
            (0, ".param .f64 a", "found (.f64,"),
            (0, ".param .align 16 .b8 a[16]", "found (.b8[16],"),
            (0, ".param .texref a", "found (.texref,"),
            (1, ".param .u16 b", ".u16, .u32"),
            (1, ".param .f32 b", ".f32, .u32"),
            (1, ".param .u64 b", "(.u64, .u64, .u32"),
            (3, ".param .u64 .ptr .align 1 d", ".u64 .ptr, .f64)"),
            (3, ".param .f64 d", ".f64, .f64)"),
            (4, ".param .f32 e", ".f32)"),
            (4, ".param .u64 e", ".u64, .u64)"),
            (4, ".param .b32 e[2]", ".b32[2])"),
            (4, "", "found (.u64, .u32, .u32, .u64, )"),
        ] {
            let words = with(index, parameter).unwrap_err();
            assert!(
                words.contains(found) && words.contains("expected (.u64, .u32, .u32, .u64, .f64)"),
                "{words}"
            );
        }
        for count in [0, 1, 4, 6, 1000] {
            let parameters: Vec<_> =
                whole.iter().chain([&".param .u64 f"; 995]).take(count).copied().collect();
            let words = check(Signature::Field, &parameters.join(",")).unwrap_err();
            assert!(words.len() < 400, "{words}");
        }
        // A texture's kernel has a number where a field's has a pointer. If a compiler marks a pointer, the
        // check uses that.
        let pointer =
            ".param .u64 .ptr .align 1 a, .param .u32 b, .param .u32 c, .param .u64 d, .param .f64 e";
        assert!(check(Signature::Texture, pointer).unwrap_err().contains("unsigned long long surface"));
    }

    #[test]
    fn an_error_cannot_play_with_the_terminal() {
        let words = check(Signature::Field, ".param .u\x1b[2J32 a, .param .b8 b[\n4\u{9b}]").unwrap_err();
        assert!(words.contains("found (.u[2J32 a], .b8[4])"), "{words}");
    }

    /// NVRTC, clang and nvcc write a structure of floats that is passed by value like this.
    #[test]
    fn lines_of_param_ask_for_a_structure_behind_the_others() {
        let five = ".param .u64 a, .param .u32 b, .param .u32 c, .param .u64 d, .param .f64 e";
        let check = |floats, rest: &str| {
            let ptx = format!(".entry k({five}{rest}) {{ ret; }}");
            Signature::Field.check(&ptx, "k", floats)
        };
        check(0, "").unwrap();
        check(1, ", .param .align 4 .b8 f[4]").unwrap();
        check(3, ",\n\t.param .align 4 .b8 k_param_5[12]\n").unwrap();
        for (floats, rest, parts) in [
            (2, "", [".f64, .b8[8]), which is", "a structure of 2 floats for its lines of //!PARAM; found"]),
            (1, "", [".f64, .b8[4]), which is", "a structure of 1 float for its line of //!PARAM; found"]),
            (0, ", .param .align 4 .b8 f[8]", ["expected (.u64, .u32, .u32, .u64, .f64), which", ".b8[8])"]),
            (2, ", .param .align 4 .b8 f[12]", [".b8[8]), which", ".b8[12])"]),
            (2, ", .param .f32 f, .param .f32 g", [".b8[8]), which", ".f32, .f32)"]),
            (2, ", .param .align 4 .b8 f[8], .param .u32 g", [".b8[8]), which", ".b8[8], .u32)"]),
        ] {
            let words = check(floats, rest).unwrap_err();
            assert!(parts.iter().all(|part| words.contains(part)), "{words}");
        }
    }

    #[test]
    fn entries_are_found_and_what_looks_like_one_is_not() {
        let ptx = "// .entry no\n.file 1 \"/x/ .entry no(\"\n.visible .entry one(\n.param .u64 p)\n{ ret; }\n/* .entry no\n */\
                   .weak .entry\n\ttwo // @two\n( )\n.maxntid 8\n.pragma \"nounroll\";\n{ ret; }\n.entry $three$_ { }\n\
                   .extern .entry no(.param .u64 p);\n.func (.param .b32 r) no(.param .b64 p) { call .entrypoint; }\n.entry last";
        assert_eq!(names(ptx), ["one", "two", "$three$_", "last"]);
        for none in ["", "hello", "/", "\"", "/*", ".entry", ".entry (", ".entry\n", "\u{e9}.entry\u{e9}"] {
            assert_eq!(names(none), Vec::<String>::new(), "{none}");
        }
        assert_eq!(choose(ptx, Some("two")).unwrap(), "two");
        assert!(choose(ptx, None).unwrap_err().ends_with("one, two, $three$_, last"));
        assert!(choose(ptx, Some("")).unwrap_err().starts_with("it has no entry ``; it has: one"));
        assert!(choose("hello", None).unwrap_err().contains("no .entry"));
        assert!(Signature::Field.check(ptx, "four", 0).unwrap_err().contains("no entry `four`; it has: one"));
        // The last one has no parameter list at all.
        let code = PtxCode::of(ptx);
        let parameters = |name| code.entry(name).unwrap().parameters().len();
        assert_eq!((parameters("one"), parameters("two"), parameters("$three$_")), (1, 0, 0));
    }

    #[test]
    fn many_entries_are_counted() {
        let ptx: String = (0..100_000).map(|index| format!(".entry k{index}() {{}}\n")).collect();
        let words = choose(&ptx, None).unwrap_err();
        assert!(words.contains("k0, k1") && words.ends_with("k7, … (100000 in all)"), "{words}");
        let long = format!(".entry {}() {{}} .entry b() {{}}", "a".repeat(1 << 20));
        assert!(choose(&long, None).unwrap_err().len() < 300);
    }

    #[test]
    fn the_block_that_a_kernel_demands_is_read() {
        let block = |directives: &str| {
            let text = format!(".entry k(.param .u64 p)\n{directives}\n{{ .reqntid 7 }}");
            PtxCode::of(&text).entry("k").unwrap().block()
        };
        assert_eq!(block(""), None);
        assert_eq!(block(".maxntid 64, 1, 1\n.minnctapersm 4"), None);
        // Triton writes one number; CUDA 13 writes three, among other directives, for `__block_size__`.
        assert_eq!(block(".reqntid 128"), Some([128, 1, 1]));
        assert_eq!(
            block(".blocksareclusters\n.reqntid 64, 1, 1\n.reqnctapercluster 1, 1, 1"),
            Some([64, 1, 1])
        );
        assert_eq!(block(".reqntid 16,16 // .reqntid 4\n.minnctapersm 1 .pragma \"x\";"), Some([16, 16, 1]));
        assert_eq!(block(".reqntid many"), None);
    }
}
