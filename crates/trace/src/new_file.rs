//! A file that appears whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The path that means standard output.
pub const STDOUT: &str = "-";

/// A file that is written beside its place and renamed over it by [`commit`](NewFile::commit): until then the file that was
/// there is untouched, however the program ends. Dropped before, it leaves nothing. A terminal, a pipe or a device cannot be
/// replaced and is written at once, as is standard output ([`STDOUT`]).
#[derive(Debug)]
pub struct NewFile {
    file: File,
    /// The file that is written, unless it is already at its place.
    part: Option<PathBuf>,
    place: PathBuf,
    /// Whether a file at its place goes when this is dropped.
    drop_place: bool,
    keep: bool,
}

impl NewFile {
    /// Returns an empty file beside `path`.
    ///
    /// # Errors
    /// What the system says: no such folder, no permission, no space.
    pub fn create(path: &Path) -> io::Result<NewFile> {
        let at_once =
            |file| NewFile { file, part: None, place: path.to_owned(), drop_place: false, keep: false };
        if path == Path::new(STDOUT) {
            return Ok(at_once(File::from(io::stdout().as_fd().try_clone_to_owned()?)));
        }
        if fs::metadata(path).is_ok_and(|data| !data.is_file() && !data.is_dir()) {
            return File::options().write(true).open(path).map(at_once);
        }
        // An open file of this or another process (/proc/self/fd/4, which may have no name): nothing can be put beside it.
        if fs::canonicalize(path.parent().unwrap_or(path)).is_ok_and(|folder| folder.starts_with("/proc")) {
            return File::options().write(true).truncate(true).open(path).map(at_once);
        }
        let place = target(path)?;
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = place.with_file_name(name);
        let file = File::create(&part)?;
        if let Ok(before) = fs::metadata(&place) {
            // Best effort: a file of another owner may have a mode that this user cannot give.
            let _ = file.set_permissions(before.permissions());
        }
        Ok(NewFile { file, part: Some(part), place, drop_place: false, keep: false })
    }

    /// Returns an empty file for what grows for a long time and is useful in part: at `path` itself where nothing was, so that it
    /// is there when the program is killed; otherwise as [`create`](NewFile::create).
    ///
    /// # Errors
    /// As [`create`](NewFile::create).
    pub fn growing(path: &Path) -> io::Result<NewFile> {
        if path == Path::new(STDOUT) {
            return NewFile::create(path);
        }
        match File::options().write(true).create_new(true).open(path) {
            Ok(file) => {
                Ok(NewFile { file, part: None, place: path.to_owned(), drop_place: true, keep: false })
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => NewFile::create(path),
            Err(error) => Err(error),
        }
    }

    /// Returns the path that is written now.
    pub fn path(&self) -> &Path {
        self.part.as_deref().unwrap_or(&self.place)
    }

    /// Leaves what is written where it is, also without [`commit`](NewFile::commit).
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Puts the file at its place. The data is on the disk before the name is, so that a machine that fails has one of the two.
    ///
    /// # Errors
    /// What the system says; the file that was there is untouched.
    pub fn commit(mut self) -> io::Result<()> {
        if let Some(part) = &self.part {
            self.file.sync_data()?;
            fs::rename(part, &self.place)?;
        }
        self.keep = true;
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.keep && (self.part.is_some() || self.drop_place) {
            // Best effort: the error that matters is the one before.
            let _ = fs::remove_file(self.path());
        }
    }
}

/// Returns where a file at `path` is written: a link stays, and the file that it names is replaced.
fn target(path: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(path) {
        Ok(data) if data.is_symlink() => fs::canonicalize(path),
        _ => Ok(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("schedlab-new-file-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn what_was_there_stays_until_the_new_file_is_whole() {
        let folder = folder("stays");
        let path = folder.join("x");
        for create in [NewFile::create, NewFile::growing] {
            fs::write(&path, "before").unwrap();
            let mut dropped = create(&path).unwrap();
            dropped.write_all(b"half").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"before");
            drop(dropped);
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
            assert_eq!(fs::read(&path).unwrap(), b"before");
            let mut whole = create(&path).unwrap();
            whole.write_all(b"after").unwrap();
            whole.commit().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"after");
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_growing_file_is_at_its_place_where_nothing_was() {
        let folder = folder("grows");
        let path = folder.join("x");
        drop(NewFile::growing(&path).unwrap());
        assert!(!path.exists(), "an empty one goes");
        let mut file = NewFile::growing(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"half");
        file.keep();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"half");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn links_and_devices_stay() {
        let folder = folder("link");
        let (file, link) = (folder.join("file"), folder.join("link"));
        fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut new = NewFile::create(&link).unwrap();
        new.write_all(b"after").unwrap();
        new.commit().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"after");
        let mut null = NewFile::create(Path::new("/dev/null")).unwrap();
        null.write_all(b"gone").unwrap();
        null.commit().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        fs::remove_dir_all(&folder).unwrap();
    }
}
