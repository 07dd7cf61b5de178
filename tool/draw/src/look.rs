//! How values become colours, and what is written beside the picture.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How the numbers between the limits are spread over the colour map. Heights are always linear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Norm {
    #[default]
    Linear,
    Log,
    /// Linear around 0, logarithmic beyond [`Look::linthresh`].
    Symlog,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Look {
    pub norm: Norm,
    /// Up to this size, `symlog` is linear. 0 stands for a thousandth of the larger limit.
    pub linthresh: f32,
    /// Whether the colour map is turned around.
    pub invert: bool,
    /// Whether saved pictures have a colour bar. A window has it in any case.
    pub colorbar: bool,
    /// What the values are, for example with their unit.
    pub label: Label,
    pub axes: bool,
    /// The numbers at the low and the high end of x, y and z. `None`: the array's own.
    #[serde(skip_serializing)]
    pub extent: Option<[[f64; 2]; 3]>,
    /// The low and the high end of x, y and z of points and meshes, in the array's units.
    #[serde(rename = "box", skip_serializing)]
    pub corners: Option<[[f32; 2]; 3]>,
}

/// As matplotlib's `SymmetricalLogTransform` with the base 10 and `linscale` 1: the size of the linear part, in decades.
const LINEAR: f64 = 1.0 / 0.9;

impl Look {
    /// Returns the numbers with which shaders map a number to the colour map, for `parts/globals.wgsl`: what to multiply it by,
    /// then, after the norm's function, the start and the factor; and the norm's number.
    pub(super) fn norm_numbers(&self, limits: [f32; 2]) -> [f32; 4] {
        let [low, high] = self.ends(limits);
        let before = match self.norm {
            Norm::Linear => 1.0,
            // So that neither end is too large or too small for 32-bit floats.
            Norm::Log => (f64::from(limits[0]) * f64::from(limits[1])).sqrt().recip(),
            Norm::Symlog => self.threshold(limits).recip(),
        };
        let start = self.curve(low * before);
        let factor = (self.curve(high * before) - start).recip() as f32;
        [before as f32, start as f32, factor.clamp(f32::MIN, f32::MAX), f32::from(self.norm as u8)]
    }

    /// Returns where a number lies on the colour map: 0 to 1 between the limits.
    pub fn place(&self, limits: [f32; 2], number: f64) -> f64 {
        let before = if self.norm == Norm::Symlog { self.threshold(limits).recip() } else { 1.0 };
        let [low, high] = self.ends(limits).map(|end| self.curve(end * before));
        (self.curve(number * before) - low) / (high - low)
    }

    /// Returns the limit at the start of the colour map, and the one at its end.
    pub fn ends(&self, limits: [f32; 2]) -> [f64; 2] {
        let [low, high] = limits.map(f64::from);
        if self.invert { [high, low] } else { [low, high] }
    }

    pub fn threshold(&self, limits: [f32; 2]) -> f64 {
        let given = f64::from(self.linthresh);
        if given > 0.0 { given } else { 1e-3 * f64::from(limits[0].abs().max(limits[1].abs())) }
    }

    fn curve(&self, number: f64) -> f64 {
        match self.norm {
            Norm::Linear => number,
            Norm::Log => number.log2(),
            Norm::Symlog if number.abs() <= 1.0 => number * LINEAR,
            Norm::Symlog => number.signum() * (LINEAR + number.abs().log10()),
        }
    }

    /// Returns why these limits do not suit the norm.
    pub fn check(&self, limits: [f32; 2]) -> Result<(), String> {
        let [low, high] = limits;
        if self.norm == Norm::Log
            && !(low > 0.0 && high > 0.0 && limits.iter().all(|end| end.recip().is_normal()))
        {
            return Err(format!("the norm `log` needs limits above 0, not {low} and {high}"));
        }
        let [before, start, factor, _] = self.norm_numbers(limits);
        match before.is_normal() && start.is_finite() && factor.is_normal() {
            true => Ok(()),
            false => Err(format!("limits {low} and {high} are too close or too far apart for this norm")),
        }
    }
}

/// A text of at most [`Label::MOST`] bytes without control characters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Label {
    bytes: [u8; Self::MOST],
    length: u8,
}

impl Label {
    pub const MOST: usize = 100;

    pub fn new(text: &str) -> Result<Self, String> {
        if text.len() > Self::MOST {
            return Err(format!("a label of {} bytes is longer than {}", text.len(), Self::MOST));
        }
        if text.chars().any(char::is_control) {
            return Err(format!("the label {text:?} has a control character, such as the end of a line"));
        }
        let mut bytes = [0; Self::MOST];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes, length: text.len() as u8 })
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl Default for Label {
    fn default() -> Self {
        Self { bytes: [0; Self::MOST], length: 0 }
    }
}

impl std::fmt::Debug for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.text().fmt(f)
    }
}

impl Serialize for Label {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

impl<'de> Deserialize<'de> for Label {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What shaders compute, in double precision.
    fn shaded(look: &Look, limits: [f32; 2], number: f64) -> f64 {
        let [before, start, factor, _] = look.norm_numbers(limits).map(f64::from);
        (look.curve(number * before) - start) * factor
    }

    #[test]
    fn norms_are_matplotlibs() {
        let look = |norm, linthresh| Look { norm, linthresh, ..Look::default() };
        // LogNorm and SymLogNorm(linthresh, base=10) of matplotlib 3.11.
        for (look, limits, number, want) in [
            (look(Norm::Linear, 0.0), [-2.0, 2.0], 1.0, 0.75),
            (look(Norm::Log, 0.0), [0.01, 100.0], 1.0, 0.5),
            (look(Norm::Log, 0.0), [1e-30, 1e30], 1e15, 0.75),
            (look(Norm::Log, 0.0), [100.0, 1.0], 10.0, 0.5),
            (look(Norm::Symlog, 0.1), [-100.0, 1000.0], 0.05, 0.506_024_096_385_542_2),
            (look(Norm::Symlog, 0.1), [-100.0, 1000.0], -20.0, 0.075_791_928_181_014_07),
        ] {
            let placed = look.place(limits, number);
            assert!((shaded(&look, limits, number) - want).abs() < 1e-5, "{look:?}: {number}");
            assert!((placed - want).abs() < 1e-7, "{look:?}: {placed}");
            let inverted = Look { invert: true, ..look };
            assert!((shaded(&inverted, limits, number) - (1.0 - want)).abs() < 1e-5, "{look:?}");
        }
        assert_eq!(look(Norm::Symlog, 0.0).threshold([-4.0, 2.0]), 0.004);
        assert_eq!(Look::default().norm_numbers([0.0, 1.0]), [1.0, 0.0, 1.0, 0.0]);
    }

    #[test]
    fn limits_that_a_norm_cannot_take_are_refused() {
        for (norm, limits, words) in [
            (Norm::Log, [0.0, 1.0], "above 0"),
            (Norm::Log, [1.0, -1.0], "above 0"),
            (Norm::Log, [1e-42, 1.0], "above 0"),
        ] {
            let look = Look { norm, ..Look::default() };
            assert!(look.check(limits).unwrap_err().contains(words), "{norm:?} {limits:?}");
        }
        let symlog = Look { norm: Norm::Symlog, linthresh: 1e-45, ..Look::default() };
        assert!(symlog.check([0.0, 1.0]).is_err());
        assert!(Look { norm: Norm::Symlog, ..Look::default() }.check([0.0, 1e-30]).is_ok());
    }

    #[test]
    fn a_label_is_short_and_has_one_line() {
        assert_eq!(Label::new("Druck / µPa").unwrap().text(), "Druck / µPa");
        assert!(Label::new(&"x".repeat(101)).unwrap_err().contains("101 bytes"));
        assert!(Label::new("a\u{1b}[2J").unwrap_err().contains("control"));
    }
}
