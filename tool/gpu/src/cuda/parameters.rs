//! The parameters that a kernel's source declares: numbers that can change from one frame to the next.
//!
//! Each is declared on its own line, anywhere in the source, in a form like that of mpv's shaders:
//!
//! ```text
//! //!PARAM amplitude float 0 2 1 "×"
//! ```
//!
//! The kernel's last argument is then a structure with one float per parameter: see
//! `tool/handoff/kernels/README.md`.

use std::ffi::c_void;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

pub const MAX_PARAMETERS: usize = 16;
/// The maximum length of a name, in bytes.
const MAX_NAME: usize = 40;
/// The maximum length of a unit, in characters.
const MAX_UNIT: usize = 16;

#[derive(Clone, Debug, PartialEq)]
pub struct KernelParameter {
    /// A C identifier.
    pub name: String,
    pub min: f32,
    /// Not below `min`.
    pub max: f32,
    pub default: f32,
    /// Shown after the number; may be empty.
    pub unit: String,
}

impl KernelParameter {
    /// Returns the nearest allowed value, or the default for NaN.
    fn clamp(&self, value: f32) -> f32 {
        if value.is_nan() { self.default } else { value.clamp(self.min, self.max) }
    }

    fn of(text: &str) -> Result<Self, String> {
        let (numbers, unit) = match text.split_once('"') {
            None => (text, String::new()),
            Some((numbers, rest)) => (numbers, unit(rest)?),
        };
        let words: Vec<_> = numbers.split_whitespace().collect();
        let [name, kind, min, max, default] = words[..] else {
            return Err(format!(
                "found {} words instead of five and an optional unit in quotes: {FORM}",
                words.len()
            ));
        };
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !begins || name.len() > MAX_NAME || name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        {
            return Err(format!(
                "{} is not a valid name: use letters, digits and _, no digit first, at most {MAX_NAME} in all",
                quoted(name)
            ));
        }
        let about = |problem: String| format!("{name}: {problem}");
        if kind != "float" {
            return Err(about(format!("its type is {}, but only float is supported", quoted(kind))));
        }
        let number = |what: &str, text: &str| match text.parse::<f32>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err(about(format!("its {what} {} is not a finite number", quoted(text)))),
        };
        let (min, max) = (number("minimum", min)?, number("maximum", max)?);
        let default = number("default", default)?;
        if min > max {
            return Err(about(format!("its minimum {min} is above its maximum {max}")));
        }
        if !(min..=max).contains(&default) {
            return Err(about(format!("its default {default} is not between {min} and {max}")));
        }
        Ok(Self { name: name.into(), min, max, default, unit })
    }
}

/// Formats as in `amplitude (0 to 2 ×, default 1)`.
impl fmt::Display for KernelParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, min, max, default, unit } = self;
        let space = if unit.is_empty() { "" } else { " " };
        write!(f, "{name} ({min} to {max}{space}{unit}, default {default})")
    }
}

const FORM: &str = "//!PARAM name float min max default \"unit\"";

/// Parses the unit after its opening quote.
fn unit(text: &str) -> Result<String, String> {
    let Some((unit, after)) = text.split_once('"') else {
        return Err("the unit's closing quote is missing".into());
    };
    if !after.trim().is_empty() {
        return Err(format!("{} after the unit: {FORM}", quoted(after.trim())));
    }
    if unit.chars().count() > MAX_UNIT || unit.contains(char::is_control) {
        return Err(format!(
            "the unit {} has more than {MAX_UNIT} characters or invisible ones",
            quoted(unit)
        ));
    }
    Ok(unit.to_owned())
}

fn quoted(text: &str) -> String {
    format!("`{}`", text.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect::<String>())
}

/// Returns, for each `//!PARAM` line, its number (from 1) and the text after `//!PARAM`.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter_map(|(number, line)| {
        let rest = line.trim_start().strip_prefix("//!PARAM")?;
        (rest.is_empty() || rest.starts_with(char::is_whitespace)).then_some((number, rest))
    })
}

/// Returns the lines that declare parameters, to keep with the PTX, because compilers drop comments.
pub(super) fn declarations(text: &str) -> String {
    lines(text).map(|(_, rest)| format!("//!PARAM{rest}\n")).collect()
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelParameters(Arc<[KernelParameter]>);

impl KernelParameters {
    pub fn of(text: &str) -> Result<Self, String> {
        let mut found: Vec<KernelParameter> = Vec::new();
        for (number, rest) in lines(text) {
            let wrong = |problem: String| format!("line {number}, //!PARAM: {problem}");
            let parameter = KernelParameter::of(rest).map_err(wrong)?;
            if found.iter().any(|other| other.name == parameter.name) {
                return Err(wrong(format!("{} is declared twice", parameter.name)));
            }
            if found.len() == MAX_PARAMETERS {
                return Err(wrong(format!("more than {MAX_PARAMETERS} parameters")));
            }
            found.push(parameter);
        }
        Ok(Self(found.into()))
    }

    /// Clamps the given values to their ranges, and uses defaults for missing values.
    pub fn values(&self, given: &[f32]) -> KernelValues {
        let mut values = KernelValues { count: self.len(), ..KernelValues::default() };
        for (index, (value, parameter)) in values.numbers.iter_mut().zip(self.iter()).enumerate() {
            *value = given.get(index).map_or(parameter.default, |&given| parameter.clamp(given));
        }
        values
    }

    /// Takes over another kernel's values: `had` has those of `others`. Each parameter gets the value of the
    /// same name, clamped to its own range, or its default.
    pub fn carry(&self, others: &KernelParameters, had: &[f32]) -> KernelValues {
        let value = |parameter: &KernelParameter| {
            let named = others.iter().zip(had).find(|(other, _)| other.name == parameter.name);
            named.map_or(parameter.default, |(_, &value)| value)
        };
        self.values(&self.iter().map(value).collect::<Vec<_>>())
    }

    /// Returns the values `now`, changed by the names and values of `given`. If a name occurs twice, the last
    /// value wins. Fails for an unknown name, and for a value out of range. `kernel` is for the error.
    pub fn choose<'a>(
        &self,
        kernel: &str,
        now: &[f32],
        given: impl IntoIterator<Item = (&'a str, f32)>,
    ) -> Result<KernelValues, String> {
        let mut values = self.values(now);
        for (name, value) in given {
            let named = self.iter().zip(&mut values.numbers).find(|(parameter, _)| parameter.name == name);
            let Some((parameter, number)) = named else {
                let has = if self.is_empty() {
                    "it has none (tool/handoff/kernels/README.md)".into()
                } else {
                    format!("it has {self}")
                };
                return Err(format!("{kernel} has no parameter {}: {has}", quoted(name)));
            };
            if !(parameter.min..=parameter.max).contains(&value) {
                return Err(format!("{name} cannot be {value}: {kernel} has {self}"));
            }
            *number = value;
        }
        Ok(values)
    }
}

impl Deref for KernelParameters {
    type Target = [KernelParameter];

    fn deref(&self) -> &[KernelParameter] {
        &self.0
    }
}

impl fmt::Display for KernelParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.iter().map(KernelParameter::to_string).collect();
        f.write_str(&all.join(", "))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KernelValues {
    count: usize,
    /// Always of the full length, so that a launch never reads past the end.
    numbers: [f32; MAX_PARAMETERS],
}

impl KernelValues {
    /// Returns the argument pointer for a launch. A kernel without parameters does not read it.
    pub fn pointer(&mut self) -> *mut c_void {
        (&raw mut self.numbers).cast()
    }
}

impl Deref for KernelValues {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.numbers[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(text: &str) -> KernelParameters {
        KernelParameters::of(text).unwrap()
    }

    const TWO: &str = "// A wave.\n  //!PARAM amplitude float 0 2 1 \"×\"\r\n//!PARAM _f2 float -1e1 .5 0\n";

    #[test]
    fn lines_are_read_in_their_order_wherever_they_are() {
        let two = parameters(TWO);
        let parameter = |name: &str, min, max, default, unit: &str| KernelParameter {
            name: name.into(),
            min,
            max,
            default,
            unit: unit.into(),
        };
        assert_eq!(
            two[..],
            [parameter("amplitude", 0.0, 2.0, 1.0, "×"), parameter("_f2", -10.0, 0.5, 0.0, "")]
        );
        assert_eq!(two.to_string(), "amplitude (0 to 2 ×, default 1), _f2 (-10 to 0.5, default 0)");
        for none in ["", ".version 6.0", "//!PARAMETER x", "// !PARAM x", "x //!PARAM x float 0 1 0"] {
            assert!(parameters(none).is_empty(), "{none}");
        }
        // A range may have a single value.
        assert_eq!(parameters("//!PARAM a float 1 1 1\"\"")[0].unit, "");
    }

    #[test]
    fn a_wrong_line_is_named_and_what_is_wrong_with_it() {
        for (line, part) in [
            ("//!PARAM", "found 0 words instead of five"),
            ("//!PARAM a float 0 1", "4 words"),
            ("//!PARAM a float 0 1 1 m", "6 words"),
            ("//!PARAM 2a float 0 1 1", "`2a` is not a valid name"),
            ("//!PARAM a-b float 0 1 1", "`a-b` is not a valid name"),
            ("//!PARAM é float 0 1 1", "`é` is not a valid name"),
            ("//!PARAM a double 0 1 1", "a: its type is `double`, but only float is supported"),
            ("//!PARAM a float zero 1 1", "a: its minimum `zero` is not a finite number"),
            ("//!PARAM a float 0 inf 1", "a: its maximum `inf`"),
            ("//!PARAM a float 0 1e99 1", "a: its maximum `1e99`"),
            ("//!PARAM a float 0 1 NaN", "a: its default `NaN`"),
            ("//!PARAM a float 2 1 1", "a: its minimum 2 is above its maximum 1"),
            ("//!PARAM a float 0 1 1.5", "a: its default 1.5 is not between 0 and 1"),
            ("//!PARAM a float 0 1 1 \"m", "closing quote"),
            ("//!PARAM a float 0 1 1 \"m\" // metres", "`// metres` after the unit"),
            ("//!PARAM a float 0 1 1 \"seventeen letters\"", "more than 16 characters"),
            ("//!PARAM a float 0 1 1 \"\x1b[2J\"", "invisible"),
            ("//!PARAM amplitude float 0 1 1", "amplitude is declared twice"),
        ] {
            let words = KernelParameters::of(&format!("{TWO}\n{line}\n")).unwrap_err();
            assert!(words.starts_with("line 5, //!PARAM: ") && words.contains(part), "{words}");
        }
        let long = format!("//!PARAM {} float 0 1 1", "a".repeat(1 << 20));
        assert!(KernelParameters::of(&long).unwrap_err().len() < 200);

        let many = |count| (0..count).map(|i| format!("//!PARAM p{i} float 0 1 1\n")).collect::<String>();
        assert_eq!(parameters(&many(MAX_PARAMETERS)).len(), MAX_PARAMETERS);
        let words = KernelParameters::of(&many(MAX_PARAMETERS + 1)).unwrap_err();
        assert!(words.starts_with("line 17") && words.contains("more than 16"), "{words}");
    }

    #[test]
    fn values_are_complete_and_in_their_ranges() {
        let two = parameters(TWO);
        assert_eq!(two.values(&[])[..], [1.0, 0.0]);
        assert_eq!(two.values(&[0.25])[..], [0.25, 0.0]);
        assert_eq!(two.values(&[7.0, -7.0, 3.0])[..], [2.0, -7.0]);
        assert_eq!(two.values(&[f32::NAN, f32::NEG_INFINITY])[..], [1.0, -10.0]);
        assert!(KernelParameters::default().values(&[1.0]).is_empty());
    }

    #[test]
    fn values_are_carried_by_name() {
        let before = parameters(
            "//!PARAM gone float 0 9 9\n//!PARAM _f2 float 0 1 0\n//!PARAM amplitude float 0 9 1\n",
        );
        let two = parameters(TWO);
        assert_eq!(two.carry(&before, &[9.0, 0.25, 1.5])[..], [1.5, 0.25]);
        assert_eq!(two.carry(&before, &[9.0, 1.0, 9.0])[..], [2.0, 0.5]);
        assert_eq!(two.carry(&KernelParameters::default(), &[])[..], [1.0, 0.0]);
    }

    #[test]
    fn a_wrong_name_or_value_is_answered_with_what_there_is() {
        let two = parameters(TWO);
        let choose = |given: &[(&str, f32)]| two.choose("k.ptx", &[1.5, -1.0], given.iter().copied());
        assert_eq!(choose(&[]).unwrap()[..], [1.5, -1.0]);
        assert_eq!(choose(&[("_f2", -3.0), ("_f2", 0.5)]).unwrap()[..], [1.5, 0.5]);
        for (name, value, part) in [
            ("height", 1.0, "k.ptx has no parameter `height`: it has amplitude (0 to 2 ×, default 1), _f2"),
            ("amplitude", 2.5, "amplitude cannot be 2.5: k.ptx has amplitude (0 to 2"),
            ("_f2", f32::NAN, "_f2 cannot be NaN"),
        ] {
            let words = choose(&[("amplitude", 0.0), (name, value)]).unwrap_err();
            assert!(words.starts_with(part), "{words}");
        }
        let none = KernelParameters::default().choose("k.ptx", &[], [("a", 1.0)]).unwrap_err();
        assert!(none.contains("k.ptx has no parameter `a`: it has none"), "{none}");
    }
}
