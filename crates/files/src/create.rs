//! New files and folders with a name of their own.

use crate::folder::{End, Walk, end};
use crate::new_file::part_file;
use crate::{FileId, Folder, inputs};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Makes a file for reading and appending, with the mode 0600, where nothing is yet.
///
/// # Errors
/// What the system says ([`AlreadyExists`](io::ErrorKind::AlreadyExists) for whatever is there), or
/// [`Refused`](crate::Refused).
pub fn create_new(path: &Path) -> io::Result<File> {
    let (Some(name), Some(folder)) = (path.file_name(), path.parent()) else {
        return Err(Errno::ISDIR.into());
    };
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
    let file = File::from(Folder::open(folder)?.open_at(name, flags, 0o600)?);
    inputs::note_made(&file)?;
    Ok(file)
}

/// Makes a file as [`create_new`] does, with `bytes` in it, which are on the disk before it
/// replaces the file that is there.
///
/// # Errors
/// What the system says, or [`Refused`](crate::Refused); the file that was there is untouched.
pub fn create_again(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let (Some(name), Some(folder)) = (path.file_name(), path.parent()) else {
        return Err(Errno::ISDIR.into());
    };
    let folder = Folder::open(folder)?;
    let (part, mut file) = part_file(&folder, name, OFlags::RDWR | OFlags::APPEND, 0o600)?;
    inputs::note_made(&file)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    let put = written.and_then(|()| Ok(rustix::fs::renameat(&folder, &part, &folder, name)?));
    match put {
        Ok(()) => Ok(file),
        Err(error) => {
            let _ = remove_entry(&folder, &part, FileId::from_file(&file)?);
            Err(error)
        }
    }
}

/// Makes a folder and those that lead to it. Returns whether it was missing.
///
/// # Errors
/// What the system says, or [`Refused`](crate::Refused).
pub fn make_folder(path: &Path) -> io::Result<bool> {
    let mut walk = Walk::making(Mode::from_raw_mode(0o777));
    walk.folder(path)?;
    Ok(walk.made)
}

/// Removes an empty folder; a link is not followed.
///
/// # Errors
/// What the system says.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    let (Some(name), Some(folder)) = (path.file_name(), path.parent()) else {
        return Err(Errno::INVAL.into());
    };
    Ok(rustix::fs::unlinkat(&Folder::open(folder)?, name, AtFlags::REMOVEDIR)?)
}

/// Removes the file at `path` if it is `id`, and no file that another program put there. Returns
/// whether it was.
///
/// # Errors
/// What the system says.
pub fn remove_if(path: &Path, id: FileId) -> io::Result<bool> {
    let End::Name(folder, name) = end(path)? else { return Ok(false) };
    remove_entry(&folder, &name, id)
}

pub(crate) fn remove_entry(folder: &Folder, name: &OsStr, id: FileId) -> io::Result<bool> {
    if folder.entry(name)?.is_none() {
        return Ok(false);
    }
    let held = File::from(folder.open_at(name, OFlags::PATH, 0)?);
    if FileId::from_file(&held)? != id {
        return Ok(false);
    }
    rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
    Ok(true)
}

/// Makes a folder with a random name in each place where a file may go whose own place is full: the
/// folder for temporary files, /var/tmp, and memory (/dev/shm). A folder is made when it is asked
/// for; those that cannot be made are left out.
pub fn spare_folders() -> impl Iterator<Item = TempDir> {
    let places = [std::env::temp_dir(), PathBuf::from("/var/tmp"), PathBuf::from("/dev/shm")];
    places.into_iter().filter_map(|place| TempDir::with_prefix_in("schedlab-", place).ok())
}

/// Returns a file without a name, in the folder for temporary files, for reading and writing.
///
/// # Errors
/// What the system says.
pub fn unnamed() -> io::Result<File> {
    tempfile::tempfile()
}
