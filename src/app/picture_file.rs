//! PNG files, written whole or not at all.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use ash::vk;
use tempfile::{Builder, NamedTempFile};

use crate::{Error, Result};

/// Tries whether `path` can be written, before minutes are spent on what goes there. Leaves nothing behind.
pub fn check_writable(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Err(cannot_write(path, std::io::Error::from(std::io::ErrorKind::IsADirectory)));
    }
    beside(path).map(drop)
}

/// Writes 8-bit sRGB pixels, four bytes each, row by row from the top.
///
/// The file appears under its name only once it is complete: it is written beside it first, then renamed.
pub fn write_png(path: &Path, extent: vk::Extent2D, rgba: &[u8]) -> Result<()> {
    let failed = |error| cannot_write(path, error);
    let mut file = beside(path)?;
    encode(file.as_file_mut(), extent, rgba).map_err(|error| match error {
        png::EncodingError::IoError(source) => failed(source),
        other => failed(std::io::Error::other(other)),
    })?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn encode(file: &mut File, extent: vk::Extent2D, rgba: &[u8]) -> Result<(), png::EncodingError> {
    let mut buffered = BufWriter::new(file);
    let mut encoder = png::Encoder::new(&mut buffered, extent.width, extent.height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_source_srgb(png::SrgbRenderingIntent::Perceptual);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(rgba)?;
    writer.finish()?;
    buffered.flush()?;
    Ok(())
}

/// Reads an 8-bit RGBA PNG: its size and its pixels.
///
/// # Errors
/// A file that cannot be read, is not a PNG, or has another pixel format.
pub fn read_png(path: &Path) -> Result<(vk::Extent2D, Vec<u8>)> {
    let failed = |source| Error::Io { action: "read", path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let decode = |error: png::DecodingError| failed(std::io::Error::other(error));
    let mut reader = png::Decoder::new(BufReader::new(file)).read_info().map_err(decode)?;
    let size = reader.output_buffer_size().unwrap_or(0);
    let mut pixels = vec![0; size];
    let info = reader.next_frame(&mut pixels).map_err(decode)?;
    if (info.color_type, info.bit_depth) != (png::ColorType::Rgba, png::BitDepth::Eight) {
        return Err(failed(std::io::Error::other("not 8-bit RGBA")));
    }
    Ok((vk::Extent2D { width: info.width, height: info.height }, pixels))
}

/// A new file in the same folder, so that the rename stays within one file system. Removed unless it is persisted.
fn beside(path: &Path) -> Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut builder = Builder::new();
    builder.prefix(".wavefield-").suffix(".png.part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // What a new file usually gets; the process's umask still applies.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder).map_err(|error| cannot_write(path, error))
}

fn cannot_write(path: &Path, source: std::io::Error) -> Error {
    Error::Io { action: "write", path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: vk::Extent2D = vk::Extent2D { width: 3, height: 2 };

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        let pixels: Vec<u8> = (0..24).collect();
        write_png(&path, SIZE, &pixels).unwrap();
        assert_eq!(read_png(&path).unwrap(), (SIZE, pixels));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        std::fs::write(&path, "old").unwrap();
        assert!(write_png(&path, SIZE, &[0; 5]).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_unwritable_place_is_known_beforehand() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check_writable(&folder.path().join("no/such/folder.png")).is_err());
        let text = check_writable(folder.path()).unwrap_err().to_string();
        assert!(text.contains("cannot write") && text.contains("directory"), "{text}");
        assert!(check_writable(&folder.path().join("fine.png")).is_ok());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
