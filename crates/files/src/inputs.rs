//! What this process reads, and what it is going to write over: the two never meet.

use crate::folder::{End, end};
use crate::{Refused, STDOUT};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

/// A file, whatever its names are. The time of birth tells it from a later one with the same number.
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
    pub fn of(file: &File) -> io::Result<FileId> {
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

/// Opens an input. From here on this process writes over it no more.
///
/// # Errors
/// What the system says, or [`Refused::Input`] when it is an output ([`claim`]).
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    note_input(&file, path)?;
    Ok(file)
}

/// Reads a whole input; see [`open`].
///
/// # Errors
/// As [`open`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a whole input that is text; see [`open`].
///
/// # Errors
/// As [`open`].
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
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

/// Says that the file at `path` is going to be replaced, before the work is done. An input that is opened later and is this file is
/// refused, as is an output that is an input already.
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
        Some(input) => Err(Refused::Input { output: output.to_owned(), input: input.clone() }.into()),
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

/// Forgets a file that has no name any more, so that what is noted does not grow with the number of files that were written.
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
