use clap::ValueEnum;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use wavefield_gpu::report::word;

/// The number of colours of a table.
const COLORS: usize = 256;

/// Maps a value from 0 to 1 to a colour. In messages it is its name, or `#` and the colours in hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[expect(clippy::large_enum_variant, reason = "a table has no owner, so that parameters can be copied")]
pub enum ColorMap {
    /// Violet, green, yellow.
    #[default]
    Viridis,
    /// Blue, magenta, yellow.
    Plasma,
    /// Black, purple, cream.
    Magma,
    /// Black, red, yellow.
    Inferno,
    /// Blue to yellow; made for colour-blind readers.
    Cividis,
    /// Black to white.
    Gray,
    /// All hues, for details; it is not uniform.
    Turbo,
    /// Diverging: blue, grey, red.
    Coolwarm,
    /// Diverging: red, white, blue.
    #[value(name = "RdBu")]
    RdBu,
    /// Cyclic: white, blue, black, red, white.
    Twilight,
    /// A client's own.
    #[value(skip)]
    Own([[u8; 3]; COLORS]),
}

/// matplotlib's tables times 255, rounded: a line for each, its name and its colours. `turbo` is Anton Mikhailov's
/// (Google, Apache-2.0), `coolwarm` Kenneth Moreland's, `RdBu` Cynthia Brewer's (colorbrewer.org, Apache-2.0),
/// `twilight` Bastian Bechtold's (CC0).
const TABLES: &str = include_str!("color_maps.txt");

impl ColorMap {
    /// Reads a map as messages have it.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix('#') {
            Some(digits) => table(digits).map(Self::Own),
            None => Self::from_str(text, false).ok(),
        }
    }

    /// Returns the name that the user reads.
    pub fn name(self) -> String {
        if let Self::Own(_) = self { "own".into() } else { word(self) }
    }

    /// Returns the colours as RGBA.
    pub fn texels(self) -> [[u8; 4]; COLORS] {
        let gradient = match self {
            Self::Viridis => colorous::VIRIDIS,
            Self::Plasma => colorous::PLASMA,
            Self::Magma => colorous::MAGMA,
            Self::Inferno => colorous::INFERNO,
            Self::Cividis => colorous::CIVIDIS,
            Self::Gray => return std::array::from_fn(|level| [level as u8, level as u8, level as u8, 255]),
            Self::Own(colors) => return colors.map(|[r, g, b]| [r, g, b, 255]),
            Self::Turbo | Self::Coolwarm | Self::RdBu | Self::Twilight => {
                let mut tables = TABLES.lines().filter_map(|line| line.split_once(' '));
                let digits = tables.find(|(name, _)| *name == word(self)).map(|(_, digits)| digits);
                return digits
                    .and_then(table)
                    .map_or_else(|| Self::Gray.texels(), |own| Self::Own(own).texels());
            }
        };
        std::array::from_fn(|index| {
            let color = gradient.eval_rational(index, COLORS);
            [color.r, color.g, color.b, 255]
        })
    }

    /// Returns the map after this one. `own` comes last, if there is one.
    pub fn next(self, own: Option<Self>) -> Self {
        let all = Self::value_variants();
        let index = all.iter().position(|map| *map == self);
        index.and_then(|index| all.get(index + 1).copied().or(own)).unwrap_or_default()
    }
}

fn table(digits: &str) -> Option<[[u8; 3]; COLORS]> {
    if digits.len() != 6 * COLORS || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap_or_default();
    Some(std::array::from_fn(|color| [0, 2, 4].map(|part| byte(6 * color + part))))
}

impl Serialize for ColorMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self::Own(colors) = self else { return serializer.serialize_str(&word(*self)) };
        let digits: String = colors.iter().flatten().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&format!("#{digits}"))
    }
}

impl<'de> Deserialize<'de> for ColorMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("an unknown colour map"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_uniform_map_gets_lighter_from_end_to_end() {
        let mut map = ColorMap::default();
        for _ in 0..6 {
            let texels = map.texels();
            let light =
                |t: &[u8; 4]| 0.2126 * f32::from(t[0]) + 0.7152 * f32::from(t[1]) + 0.0722 * f32::from(t[2]);
            assert!(light(&texels[255]) > light(&texels[0]) + 100.0, "{map:?}");
            map = map.next(None);
        }
    }

    #[test]
    fn the_key_goes_through_all_maps_and_the_own_one() {
        let own = ColorMap::Own([[1, 2, 3]; COLORS]);
        let (mut map, mut names) = (ColorMap::default(), Vec::new());
        for _ in 0..=ColorMap::value_variants().len() {
            names.push(map.name());
            map = map.next(Some(own));
        }
        assert_eq!(names[8..], ["RdBu", "twilight", "own"]);
        assert_eq!((map, own.next(None)), (ColorMap::default(), ColorMap::default()));
    }

    #[test]
    fn tables_are_matplotlibs() {
        let ends = |name| ColorMap::parse(name).map(|map| (map.texels()[0], map.texels()[255]));
        assert_eq!(ends("turbo"), Some(([48, 18, 59, 255], [122, 4, 3, 255])));
        assert_eq!(ends("coolwarm"), Some(([59, 76, 192, 255], [180, 4, 38, 255])));
        assert_eq!(ends("RdBu"), Some(([103, 0, 31, 255], [5, 48, 97, 255])));
        assert_eq!(ends("twilight"), Some(([226, 217, 226, 255], [226, 217, 226, 255])));
    }

    #[test]
    fn a_message_has_a_name_or_all_colours() {
        let own = ColorMap::Own(std::array::from_fn(|level| [level as u8, 0, 255]));
        for map in [own, ColorMap::RdBu, ColorMap::Viridis] {
            let text = serde_json::to_string(&map).unwrap();
            assert_eq!(serde_json::from_str::<ColorMap>(&text).unwrap(), map, "{text}");
        }
        let digits = "0".repeat(1536);
        for wrong in ["jet", "own", "#", &digits, &format!("#{digits}0"), &format!("#{}é", &digits[2..])] {
            assert_eq!(ColorMap::parse(wrong), None, "{wrong}");
        }
    }
}
