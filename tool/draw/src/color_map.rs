use clap::ValueEnum;

/// Maps a value from 0 to 1 to a colour. All maps are perceptually uniform, and readable if printed in grey.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
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
}

impl ColorMap {
    pub fn texels(self, count: usize) -> Vec<[u8; 4]> {
        let gradient = match self {
            Self::Viridis => colorous::VIRIDIS,
            Self::Plasma => colorous::PLASMA,
            Self::Magma => colorous::MAGMA,
            Self::Inferno => colorous::INFERNO,
            Self::Cividis => colorous::CIVIDIS,
        };
        (0..count)
            .map(|index| {
                let color = gradient.eval_rational(index, count);
                [color.r, color.g, color.b, 255]
            })
            .collect()
    }

    pub fn next(self) -> Self {
        let all = Self::value_variants();
        all[(self as usize + 1) % all.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_map_gets_lighter_from_end_to_end() {
        let mut map = ColorMap::default();
        for _ in 0..5 {
            let texels = map.texels(256);
            let light =
                |t: &[u8; 4]| 0.2126 * f32::from(t[0]) + 0.7152 * f32::from(t[1]) + 0.0722 * f32::from(t[2]);
            assert_eq!(texels.len(), 256);
            assert!(light(&texels[255]) > light(&texels[0]) + 100.0, "{map:?}");
            map = map.next();
        }
        assert_eq!(map, ColorMap::default());
    }
}
