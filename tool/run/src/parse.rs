use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ash::vk;
use clap::builder::{PathBufValueParser, TypedValueParser};
#[cfg(target_os = "linux")]
use vulkan_cuda::DeviceUuid;
use vulkan_cuda::Ring;

use super::Batching;
use wavefield_draw::Camera;
use wavefield_handoff::contents::wave::Grid;

pub fn named(endings: &'static [&'static str]) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(move |path| {
        let ending = path.extension();
        match ending.is_none_or(|ending| endings.iter().any(|one| ending.eq_ignore_ascii_case(one))) {
            true => Ok(path),
            false => Err(format!("the file name must end with .{}", endings.join(" or ."))),
        }
    })
}

/// Parses files separated by commas. A name that is not Unicode is one file.
pub fn files() -> impl TypedValueParser<Value = Vec<PathBuf>> {
    PathBufValueParser::new().try_map(|path| {
        let Some(text) = path.to_str() else { return Ok(vec![path]) };
        let files: Vec<PathBuf> = text.split(',').map(PathBuf::from).collect();
        match files.iter().any(|file| file.as_os_str().is_empty()) {
            true => Err("a file name is missing before or after a comma"),
            false => Ok(files),
        }
    })
}

/// Parses an IP address with a port, or a port alone, which means that port of 127.0.0.1.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let port = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    text.parse()
        .or_else(|_| text.parse().map(port))
        .map_err(|_| format!("`{text}` is neither a port nor an IP address with a port, like 127.0.0.1:8090"))
}

#[cfg(target_os = "linux")]
pub fn uuid(text: &str) -> Result<DeviceUuid, String> {
    DeviceUuid::parse(text).ok_or_else(|| format!("`{text}` is not a UUID: 32 hexadecimal digits"))
}

/// Parses digits only. Returns `u64::MAX` for larger numbers, which is too large for every option.
fn digits(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Accepts whole numbers from `least` to `most`, both included.
pub fn whole(least: u64, most: u64) -> impl TypedValueParser<Value = u64> {
    move |text: &str| {
        let number = digits(text).filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| match most {
            u64::MAX => format!("`{text}` is not a whole number from {least} on"),
            most => format!("`{text}` is not a whole number from {least} to {most}"),
        })
    }
}

pub fn parameter(text: &str) -> Result<(String, f32), String> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    match value.parse::<f32>() {
        Ok(value) if !name.is_empty() && value.is_finite() => Ok((name.to_owned(), value)),
        _ => Err(format!("`{text}` is not a name and a number with a = between, like amplitude=0.5")),
    }
}

pub fn name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the name is empty: give one, or leave the option out".into()),
        _ => Ok(text.to_owned()),
    }
}

fn pair(text: &str) -> Result<(u64, u64), String> {
    let pair = text.split_once(['x', 'X']).and_then(|(a, b)| Some((digits(a)?, digits(b)?)));
    pair.ok_or_else(|| format!("`{text}` is not two whole numbers with an x between, like 1280x720"))
}

pub fn grid(text: &str) -> Result<Grid, String> {
    let (cols, rows) = pair(text)?;
    if cols < 2 || rows < 2 {
        return Err(format!(
            "a field of {text} has no surface: it needs at least 2 vertices in each direction"
        ));
    }
    // `maxStorageBufferRange` has 32 bits, so a buffer of 16-byte vertices holds fewer than 2^28.
    match (u32::try_from(cols), u32::try_from(rows)) {
        (Ok(cols), Ok(rows)) if u64::from(cols) * u64::from(rows) <= 1 << 28 => Ok(Grid { cols, rows }),
        _ => Err(format!("a field of {text} has more than 2^28 vertices: the largest square is 16384x16384")),
    }
}

pub fn size(text: &str) -> Result<vk::Extent2D, String> {
    let (width, height) = pair(text)?;
    if width == 0 || height == 0 {
        return Err(format!("a picture of {text} has no pixels"));
    }
    match (u32::try_from(width), u32::try_from(height)) {
        (Ok(width), Ok(height)) => Ok(vk::Extent2D { width, height }),
        _ => Err(format!("a picture of {text} is larger than any device can draw")),
    }
}

pub fn ring(text: &str) -> Result<Ring, String> {
    let depth = digits(text).and_then(|depth| Ring::new(u32::try_from(depth).ok()?));
    depth.ok_or_else(|| format!("`{text}` is not a whole number from 1 to {}", vulkan_cuda::ring::MAX_DEPTH))
}

pub fn batching(text: &str) -> Result<Batching, String> {
    match text {
        "auto" => Ok(Batching::default()),
        text => batch(text).map(Batching::Fixed).map_err(|error| format!("{error}, nor `auto`")),
    }
}

fn number(text: &str, range: RangeInclusive<f64>, what: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("`{text}` is not a number {what}"))
}

pub fn milliseconds(text: &str) -> Result<Duration, String> {
    let number = number(text, 0.0..=60_000.0, "of milliseconds from 0 to 60000")?;
    Ok(Duration::from_secs_f64(number * 1e-3))
}

pub fn batch(text: &str) -> Result<u32, String> {
    ring(text).map(|ring| ring.depth() as u32)
}

/// Parses draws per second; 0 is no limit.
#[cfg(target_os = "linux")]
pub fn pace(text: &str) -> Result<f64, String> {
    let pace = text.parse().ok().filter(|pace| *pace == 0.0 || (1.0..=10_000.0).contains(pace));
    pace.ok_or_else(|| format!("`{text}` is neither 0 nor a number from 1 to 10000"))
}

pub fn factor(text: &str) -> Result<f64, String> {
    number(text, f64::MIN_POSITIVE..=f64::MAX, "above 0")
}

pub fn speed(text: &str) -> Result<f64, String> {
    number(text, -1000.0..=1000.0, "between -1000 and 1000")
}

pub fn camera(text: &str) -> Result<Camera, String> {
    let numbers: Option<Vec<f32>> = text.split(',').map(|number| number.parse().ok()).collect();
    let Some(&[azimuth, elevation, distance, x, y, z]) = numbers.as_deref() else {
        return Err(format!("`{text}` is not six numbers with commas between, like 0.58,0.52,3.3,0,-0.2,0"));
    };
    Camera::new(azimuth, elevation, distance, [x, y, z])
}

pub fn timeout(text: &str) -> Result<Duration, String> {
    number(text, 0.1..=86_400.0, "of seconds from 0.1 to 86400").map(Duration::from_secs_f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_in_words() {
        for (text, part) in [
            ("", "two whole numbers"),
            ("12", "two whole numbers"),
            ("-1x5", "two whole numbers"),
            ("1x5", "no surface"),
            ("99999x99999", "2^28"),
            ("99999999999x2", "2^28"),
            ("99999999999999999999999x2", "2^28"),
            ("+5x5", "two whole numbers"),
        ] {
            let error = grid(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(grid("2x2"), Ok(Grid { cols: 2, rows: 2 }));
        assert!(size("0x7").unwrap_err().contains("no pixels"));
        for text in ["0", "33", "three", "-1", "+1", "99999999999"] {
            assert!(ring(text).unwrap_err().contains("1 to 32"));
        }
        for text in ["nan", "inf", "fast"] {
            assert!(speed(text).is_err());
        }
        for text in ["", "a", "=1", "a=", "a=high", "a=nan", "a=1e99", "a=1=2"] {
            assert!(parameter(text).unwrap_err().contains("amplitude=0.5"), "{text}");
        }
        assert_eq!(parameter("a=-1.5"), Ok(("a".into(), -1.5)));
    }
}
