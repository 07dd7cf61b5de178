use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;

use wavefield_gpu::{Error, Result};

pub fn default_path() -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| is_own(folder));
    folder.unwrap_or_else(shared_folder).join("wavefield.sock")
}

/// After `su`, XDG_RUNTIME_DIR is another user's; a container or cron may have no such folder.
fn is_own(folder: &Path) -> bool {
    let own = rustix::process::getuid().as_raw();
    let is_own = |found: rustix::fs::Stat| {
        rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir() && found.st_uid == own
    };
    folder.is_absolute() && rustix::fs::stat(folder).is_ok_and(is_own)
}

pub(super) fn shared_folder() -> PathBuf {
    format!("/tmp/wavefield-{}", rustix::process::getuid().as_raw()).into()
}

pub(super) fn make_shared_folder() -> Result<()> {
    let folder = shared_folder();
    let made = match rustix::fs::mkdir(&folder, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => check_folder(&folder),
        Err(error) => Err(error.into()),
    };
    made.map_err(|source| Error::Io { action: "make", path: folder, source })
}

/// Fails unless only this user can write to `folder`: in `/tmp`, another user may have made it.
pub(super) fn check_folder(folder: &Path) -> std::io::Result<()> {
    let found = rustix::fs::lstat(folder)?;
    let is_folder = rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir();
    if !is_folder || found.st_uid != rustix::process::getuid().as_raw() || found.st_mode & 0o077 != 0 {
        let reason = format!(
            "{} exists, but is not a folder that only you can use: remove it, set XDG_RUNTIME_DIR, or use --socket",
            folder.display()
        );
        return Err(std::io::Error::other(reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_a_folder_of_this_user_is_for_sockets() {
        let folder = tempfile::tempdir().unwrap();
        assert!(is_own(folder.path()));
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        for other in ["", ".", "/no/such/folder", file.to_str().unwrap()] {
            assert!(!is_own(Path::new(other)), "{other}");
        }
        // Only root can give a folder away, and only for others is the root folder another user's.
        let other = match std::os::unix::fs::chown(folder.path(), Some(4711), None) {
            Ok(()) => folder.path(),
            Err(_) => Path::new("/"),
        };
        assert!(!is_own(other), "{}", other.display());
    }

    #[test]
    fn a_folder_of_ones_own_is_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let set = |mode| std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(mode)).unwrap();
        for (mode, fine) in [(0o700, true), (0o755, false), (0o777, false), (0o1777, false), (0o770, false)] {
            set(mode);
            assert_eq!(check_folder(&inner).is_ok(), fine, "{mode:o}");
        }
        set(0o700);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&inner, &link).unwrap();
        assert!(check_folder(&link).unwrap_err().to_string().contains("not a folder that only you can use"));
        assert!(check_folder(&folder.path().join("missing")).is_err());
    }
}
