//! The UUID by which both APIs identify a device.

use std::fmt;

/// A device's UUID, as both APIs report it (`VkPhysicalDeviceIDProperties::deviceUUID`, `cuDeviceGetUuid`).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct DeviceUuid(pub [u8; 16]);

impl fmt::Display for DeviceUuid {
    /// Writes the UUID as `nvidia-smi` does, without the prefix `GPU-`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", u128::from_be_bytes(self.0));
        write!(f, "{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

impl fmt::Debug for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl DeviceUuid {
    /// Parses a UUID in the format of `Display`. Dashes are optional, a prefix `GPU-` or `MIG-` is skipped,
    /// and upper case is accepted. Returns `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let text = text.strip_prefix("gpu-").or(text.strip_prefix("mig-")).unwrap_or(&text);
        let digits = text.replace('-', "");
        // Checked here, because `from_str_radix` would also accept a sign.
        let valid = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u128::from_str_radix(&digits, 16).ok().filter(|_| valid)?;
        Some(Self(number.to_be_bytes()))
    }
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
