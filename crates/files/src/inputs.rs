//! What this process reads, and what it is going to write over: the two never meet.

use crate::folder::{End, end};
use crate::{Refused, STDOUT};
use rustix::fs::{FileType, Mode, OFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

/// A file, whatever its names are. The time of birth tells it from a later one with the same
/// number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileId {
    device: u64,
    inode: u64,
    born: Option<Duration>,
}

impl FileId {
    /// Returns the identity of an open file.
    ///
    /// # Errors
    /// What the system says.
    pub fn from_file(file: &File) -> io::Result<FileId> {
        Ok(FileId::from(&file.metadata()?))
    }
}

impl From<&Metadata> for FileId {
    fn from(data: &Metadata) -> FileId {
        // Not every file system knows it.
        let born = data.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        FileId { device: data.dev(), inode: data.ino(), born }
    }
}

/// The regular files that this process has to do with.
struct Seen {
    /// Inputs, as they were named.
    inputs: BTreeMap<FileId, PathBuf>,
    /// Files that are going to be replaced.
    outputs: BTreeMap<FileId, PathBuf>,
    /// Files that this process made: what it wrote it may read, and replace.
    made: BTreeSet<FileId>,
}

static SEEN: Mutex<Seen> =
    Mutex::new(Seen { inputs: BTreeMap::new(), outputs: BTreeMap::new(), made: BTreeSet::new() });

fn seen() -> MutexGuard<'static, Seen> {
    SEEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Forgets what earlier work of this process read. A command does one thing; a session of a library
/// does one after the other, and may write over what an earlier call read, but not over what the
/// same call reads.
pub fn begin_work() {
    seen().inputs.clear();
}

/// Opens an input. From here on this process writes over it no more, until [`begin_work`].
///
/// # Errors
/// What the system says, or [`Refused::Input`] when it is an output ([`claim`]).
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    note_input(&file, path)?;
    Ok(file)
}

/// Opens an input that is a regular file; see [`open`]. A stranger's scenario may name `/dev/zero`,
/// which has no end, or a pipe, whose opening waits for a writer: opening here neither waits nor
/// has an effect on a device.
fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let kind = match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => {
            note_input(&file, path)?;
            return Ok(file);
        }
        FileType::Directory => return Err(io::Error::from(io::ErrorKind::IsADirectory)),
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        _ => "device",
    };
    let only =
        format!("it is a {kind}, and only a regular file is read: write its content to a file");
    Err(io::Error::new(io::ErrorKind::InvalidInput, only))
}

/// Reads a whole input, a regular file of at most `max` bytes; see [`open`].
///
/// # Errors
/// As [`open`]; what is no regular file, by its kind; a larger file, by the limit, also one that
/// grows meanwhile.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    read_whole(open_regular(path)?, max)
}

/// Reads a whole input that the user named on the command line: as [`read`], or a pipe, such as
/// `<(schedlab generate)`, whose writer is waited for.
///
/// # Errors
/// As [`read`].
pub fn read_named(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let is_pipe = std::fs::metadata(path)?.file_type().is_fifo();
    read_whole(if is_pipe { open(path)? } else { open_regular(path)? }, max)
}

fn read_whole(file: File, max: u64) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    let mut bytes = Vec::with_capacity(size.min(max) as usize + 1);
    if size <= max {
        file.take(max + 1).read_to_end(&mut bytes)?;
    }
    if size > max || bytes.len() as u64 > max {
        let large = format!("it has more than the {max} bytes that are read of such a file");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, large));
    }
    Ok(bytes)
}

/// Reads a whole input that is text in UTF-8; see [`read`].
///
/// # Errors
/// As [`read`]; what is no UTF-8, by the place.
pub fn read_to_string(path: &Path, max: u64) -> io::Result<String> {
    String::from_utf8(read(path, max)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(io::ErrorKind::InvalidData, format!("it is no text in UTF-8 (byte {at})"))
    })
}

/// Notes that an open file, such as standard input, is an input; see [`open`].
///
/// # Errors
/// As [`open`].
pub fn note_input(file: impl AsFd, path: &Path) -> io::Result<()> {
    let Some(id) = regular(&File::from(file.as_fd().try_clone_to_owned()?))? else { return Ok(()) };
    let mut seen = seen();
    if let Some(output) = seen.outputs.get(&id) {
        return Err(Refused::Input { output: output.clone(), input: path.to_owned() }.into());
    }
    if !seen.made.contains(&id) {
        seen.inputs.insert(id, path.to_owned());
    }
    Ok(())
}

/// Says that the file at `path` is going to be replaced, before the work is done. An input that is
/// opened later and is this file is refused, as is an output that is an input already.
///
/// # Errors
/// What the system says, or [`Refused`].
pub fn claim(path: &Path) -> io::Result<()> {
    let held = match end(path)? {
        End::Name(folder, name) if folder.entry(&name)?.is_some() => {
            folder.open_at(&name, rustix::fs::OFlags::PATH, 0)?
        }
        End::Held(held) => held,
        End::Name(..) | End::Folder(_) => return Ok(()),
    };
    claim_open(held, path)
}

/// As [`claim`], for the file that standard output goes to.
///
/// # Errors
/// As [`claim`].
pub fn claim_stdout() -> io::Result<()> {
    claim_open(io::stdout().as_fd().try_clone_to_owned()?, Path::new(STDOUT))
}

fn claim_open(held: OwnedFd, path: &Path) -> io::Result<()> {
    let Some(id) = regular(&File::from(held))? else { return Ok(()) };
    let mut seen = seen();
    refuse_input(&seen, &id, path)?;
    seen.outputs.insert(id, path.to_owned());
    Ok(())
}

/// Refuses to write over an input.
pub(crate) fn refuse(held: &File, path: &Path) -> io::Result<()> {
    regular(held)?.map_or(Ok(()), |id| refuse_input(&seen(), &id, path))
}

fn refuse_input(seen: &Seen, id: &FileId, output: &Path) -> io::Result<()> {
    match seen.inputs.get(id) {
        Some(input) => {
            Err(Refused::Input { output: output.to_owned(), input: input.clone() }.into())
        }
        None => Ok(()),
    }
}

/// Notes a file that this process made.
pub(crate) fn note_made(file: &File) -> io::Result<()> {
    if let Some(id) = regular(file)? {
        seen().made.insert(id);
    }
    Ok(())
}

/// Forgets a file that has no name any more, so that what is noted does not grow with the number of
/// files that were written.
pub(crate) fn forget(file: &File) {
    let Ok(data) = file.metadata() else { return };
    if data.nlink() == 0 {
        let (mut seen, id) = (seen(), FileId::from(&data));
        seen.made.remove(&id);
        seen.outputs.remove(&id);
        seen.inputs.remove(&id);
    }
}

fn regular(file: &File) -> io::Result<Option<FileId>> {
    let data = file.metadata()?;
    Ok(data.is_file().then(|| FileId::from(&data)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read_and_only_so_much_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        std::fs::write(&file, b"12345").unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RWXU).unwrap();
        assert_eq!(read(&file, 5).unwrap(), b"12345");
        let said = |path: &Path, max| read(path, max).unwrap_err().to_string();
        assert_eq!(said(&file, 4), "it has more than the 4 bytes that are read of such a file");
        assert!(said(&pipe, 5).starts_with("it is a pipe, and only a regular file is read"));
        assert!(said(Path::new("/dev/zero"), 5).starts_with("it is a device"));
        assert_eq!(read(folder.path(), 5).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        // The size of a file of /proc is said to be 0: what is there counts.
        assert!(
            said(Path::new("/proc/self/status"), 20).starts_with("it has more than the 20 bytes")
        );
        std::fs::write(&file, b"a\xff").unwrap();
        assert_eq!(
            read_to_string(&file, 5).unwrap_err().to_string(),
            "it is no text in UTF-8 (byte 1)"
        );
    }
}
