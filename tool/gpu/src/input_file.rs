use std::fs::OpenOptions;
use std::io::{self, Read};
use std::path::Path;

use crate::{Error, Result};

/// Reads a regular file of at most `most` bytes. Refuses other files, because reading a FIFO may never end.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let read = || -> io::Result<Vec<u8>> {
        // Check before opening, because opening a device can have side effects.
        let found = std::fs::metadata(path)?;
        if found.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !found.is_file() {
            let words = "it is not a regular file: copy its contents to a regular file, and name that file";
            return Err(io::Error::other(words));
        }
        let mut options = OpenOptions::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            // Do not block if a FIFO has replaced the file since the check, or if a file in `/proc` has no
            // data.
            options.custom_flags(libc::O_NONBLOCK);
        }
        let mut bytes = Vec::new();
        // Limit the read, because the file may be too large, or grow while it is read.
        options.read(true).open(path)?.take(most + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > most {
            true => Err(io::Error::other(format!("it has more than {most} bytes, too many for such a file"))),
            false => Ok(bytes),
        }
    };
    read().map_err(|source| Error::Io { action: "read", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        let text = read(&path, 4).unwrap_err().to_string();
        assert!(text.contains("a.txt") && text.contains("more than 4 bytes"), "{text}");
    }

    #[test]
    fn what_is_no_regular_file_is_not_read() {
        let text = read(Path::new("."), 5).unwrap_err().to_string();
        assert!(text.contains("cannot read .") && text.contains("directory"), "{text}");
        #[cfg(unix)]
        for path in ["/dev/zero", "/dev/null"] {
            let text = read(Path::new(path), 5).unwrap_err().to_string();
            assert!(text.contains(path) && text.contains("regular file"), "{text}");
        }
    }
}
