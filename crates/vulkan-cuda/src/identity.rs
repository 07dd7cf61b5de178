//! By what a device is known in both APIs: its UUID, and on Windows its LUID.

use std::fmt;

/// The 16 bytes by which both APIs know a device.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct DeviceUuid(pub [u8; 16]);

impl fmt::Display for DeviceUuid {
    /// As `nvidia-smi` prints it, without the `GPU-` in front.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl DeviceUuid {
    /// Reads what `Display` writes: hexadecimal with or without dashes, `GPU-` or `MIG-` in front, any case.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let text = text.strip_prefix("gpu-").or(text.strip_prefix("mig-")).unwrap_or(&text);
        let digits: Vec<u8> = text
            .chars()
            .filter(|&c| c != '-')
            .map(|c| c.to_digit(16).map(|digit| digit as u8))
            .collect::<Option<_>>()?;
        let mut uuid = [0; 16];
        if digits.len() != 32 {
            return None;
        }
        for (byte, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Some(Self(uuid))
    }
}

/// The number by which Windows knows an adapter, until the next restart, and which of its nodes is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Luid {
    /// The 8 bytes of a Windows `LUID`.
    pub bytes: [u8; 8],
    /// One bit: the node, of adapters that are linked to be one.
    pub node_mask: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_read_as_they_are_written() {
        let uuid = DeviceUuid(std::array::from_fn(|i| (i * 17) as u8));
        let text = uuid.to_string();
        assert_eq!(text, "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(DeviceUuid::parse(&text), Some(uuid));
        assert_eq!(DeviceUuid::parse(&format!("GPU-{}", text.to_uppercase())), Some(uuid));
        assert_eq!(DeviceUuid::parse("0011"), None);
        assert_eq!(DeviceUuid::parse("zz112233-4455-6677-8899-aabbccddeeff"), None);
    }
}
