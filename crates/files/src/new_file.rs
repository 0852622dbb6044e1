//! A file that appears whole or not at all.

use crate::create::remove_entry;
use crate::folder::{End, end};
use crate::{FileId, Folder, Refused, inputs, links};
use rustix::fs::{AtFlags, FileType, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The path that means standard output.
pub const STDOUT: &str = "-";

/// Longest name of a file (NAME_MAX, include/uapi/linux/limits.h, Linux 6.12).
const NAME_MAX: usize = 255;
/// Hexadecimal digits of a random name: 64 bits.
const RANDOM_DIGITS: usize = 16;
/// Random names that are tried: one of 64 random bits is taken only when something answers every
/// name with a file.
const NAMES: u32 = 8;

/// A file that is written beside its place and renamed over it by [`commit`](NewFile::commit):
/// until then the file that was there is untouched, however the program ends. Dropped before, it
/// leaves nothing. A terminal, a pipe or a device cannot be replaced and is written at once, as is
/// standard output ([`STDOUT`]).
///
/// The folder is held open; the new file has a random name in it and is made with O_EXCL and
/// O_NOFOLLOW. It gets the permission bits (not setuid, setgid and sticky) and the group of the old
/// file when that belongs to this user; beside another user's it is private.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    place: FilePlacement,
    /// The path that is written now.
    path: PathBuf,
    keep: bool,
}

#[derive(Debug)]
enum FilePlacement {
    /// The file is written where it is.
    AtOnce,
    /// It was made at its place, where nothing was; dropped, it goes.
    New { folder: Folder, name: OsString },
    /// It is beside its place.
    Beside { folder: Folder, part: OsString, name: OsString, replaces: bool },
}

impl NewFile {
    /// Returns an empty file beside `path`.
    ///
    /// # Errors
    /// What the system says: no such folder, no permission, no space. Or [`Refused`].
    pub fn create(path: &Path) -> io::Result<NewFile> {
        if path == Path::new(STDOUT) {
            let out = io::stdout().as_fd().try_clone_to_owned()?;
            return Ok(NewFile::at_once(File::from(out), path));
        }
        match end(path)? {
            End::Folder(_) => Err(Errno::ISDIR.into()),
            End::Held(held) => NewFile::held(held, path),
            End::Name(folder, name) => match folder.entry(&name)? {
                Some(old) if FileType::from_raw_mode(old.st_mode) != FileType::RegularFile => {
                    NewFile::special(&folder, &name, path)
                }
                old => NewFile::beside(folder, name, old, path),
            },
        }
    }

    /// Returns an empty file for what grows for a long time and is useful in part: at `path` itself
    /// where nothing was, so that it is there when the program is killed; otherwise as
    /// [`create`](NewFile::create).
    ///
    /// # Errors
    /// As [`create`](NewFile::create).
    pub fn growing(path: &Path) -> io::Result<NewFile> {
        if path == Path::new(STDOUT) {
            return NewFile::create(path);
        }
        match end(path)? {
            End::Name(folder, name) if folder.entry(&name)?.is_none() => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                let file = File::from(folder.open_at(&name, flags, 0o666)?);
                inputs::note_made(&file)?;
                Ok(NewFile {
                    file,
                    place: FilePlacement::New { folder, name },
                    path: path.to_owned(),
                    keep: false,
                })
            }
            _ => NewFile::create(path),
        }
    }

    /// Returns an empty file beside `path` that becomes it only if nothing is there, then too.
    ///
    /// # Errors
    /// As [`create`](NewFile::create), and [`AlreadyExists`](io::ErrorKind::AlreadyExists).
    pub fn fresh(path: &Path) -> io::Result<NewFile> {
        let mut file = NewFile::create(path)?;
        match &mut file.place {
            FilePlacement::Beside { folder, name, replaces, .. }
                if folder.entry(name)?.is_none() =>
            {
                *replaces = false;
                Ok(file)
            }
            _ => Err(Errno::EXIST.into()),
        }
    }

    fn at_once(file: File, path: &Path) -> NewFile {
        NewFile { file, place: FilePlacement::AtOnce, path: path.to_owned(), keep: false }
    }

    /// An open file of this or another process: nothing can be put beside it.
    fn held(held: OwnedFd, path: &Path) -> io::Result<NewFile> {
        let held = File::from(held);
        inputs::refuse(&held, path)?;
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOCTTY;
        let link = format!("/proc/self/fd/{}", held.as_raw_fd());
        let file = File::from(rustix::fs::open(link, flags, rustix::fs::Mode::empty())?);
        inputs::note_made(&file)?;
        Ok(NewFile::at_once(file, path))
    }

    /// A device, or a pipe of this user. Only root makes devices; whether this user may write one
    /// is the system's to say.
    fn special(folder: &Folder, name: &OsStr, path: &Path) -> io::Result<NewFile> {
        let allowed = |stat: &Stat| match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice | FileType::BlockDevice => Ok(()),
            FileType::Fifo | FileType::Socket if links::ours_or_root(stat.st_uid) => Ok(()),
            FileType::Fifo | FileType::Socket => {
                Err(Refused::Pipe { path: path.to_owned(), owner: stat.st_uid })
            }
            _ => Err(Refused::Exchanged(path.to_owned())),
        };
        // Asked before, because opening a pipe waits for its reader, and after, because it is what
        // was opened that counts.
        folder.entry(name)?.as_ref().map_or(Ok(()), allowed)?;
        let file = folder.open_at(name, OFlags::WRONLY, 0)?;
        allowed(&rustix::fs::fstat(&file)?)?;
        Ok(NewFile::at_once(File::from(file), path))
    }

    fn beside(
        folder: Folder,
        name: OsString,
        old: Option<Stat>,
        path: &Path,
    ) -> io::Result<NewFile> {
        if old.is_some() {
            held(&folder, &name)?.map_or(Ok(()), |old| inputs::refuse(&old, path))?;
        }
        // What replaces a file gets its mode once it is known to be no other user's.
        let mode = if old.is_some() { 0o600 } else { 0o666 };
        let (part, file) = part_file(&folder, &name, OFlags::WRONLY, mode)?;
        inputs::note_made(&file)?;
        let path = folder.path().join(&part);
        let place = FilePlacement::Beside { folder, part, name, replaces: true };
        let new = NewFile { file, place, path, keep: false };
        if let Some(old) = old.filter(|old| old.st_uid == rustix::process::geteuid().as_raw()) {
            give_mode(&new.file, &old)?;
        }
        Ok(new)
    }

    /// Returns the path that is written now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the identity of the file, which it keeps at its place.
    ///
    /// # Errors
    /// What the system says.
    pub fn id(&self) -> io::Result<FileId> {
        FileId::from_file(&self.file)
    }

    /// Returns whether another path than that of the place is written now.
    pub fn is_beside(&self) -> bool {
        matches!(self.place, FilePlacement::Beside { .. })
    }

    /// Returns whether this is a file that is read again by its path: no pipe, terminal or device.
    pub fn can_be_read_back(&self) -> bool {
        !matches!(self.place, FilePlacement::AtOnce)
    }

    /// Leaves what is written where it is, also without [`commit`](NewFile::commit).
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Puts the file at its place. The data is on the disk before the name is, so that a machine
    /// that fails has one of the two.
    ///
    /// # Errors
    /// What the system says; the file that was there is untouched.
    pub fn commit(self) -> io::Result<()> {
        if let FilePlacement::Beside { .. } = self.place {
            self.file.sync_data()?;
        }
        self.put()
    }

    /// As [`commit`](NewFile::commit), without waiting for the disk: for what counts only as long
    /// as the machine runs.
    ///
    /// # Errors
    /// As [`commit`](NewFile::commit).
    pub fn put(mut self) -> io::Result<()> {
        match &self.place {
            FilePlacement::Beside { folder, part, name, replaces: true } => {
                let old = held(folder, name)?;
                old.as_ref()
                    .map_or(Ok(()), |old| inputs::refuse(old, &folder.path().join(name)))?;
                rustix::fs::renameat(folder, part, folder, name)?;
                old.iter().for_each(inputs::forget);
            }
            FilePlacement::Beside { folder, part, name, replaces: false } => {
                put_new(folder, part, name)?
            }
            FilePlacement::AtOnce | FilePlacement::New { .. } => {}
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
        if self.keep {
            return;
        }
        // Best effort: the error that matters is the one before. Another user may have put a file
        // of that name there meanwhile.
        let _ = match (&self.place, self.id()) {
            (FilePlacement::New { folder, name }, Ok(id)) => remove_entry(folder, name, id),
            (FilePlacement::Beside { folder, part, .. }, Ok(id)) => remove_entry(folder, part, id),
            _ => Ok(false),
        };
        inputs::forget(&self.file);
    }
}

/// Returns whether `path` is what a [`NewFile`] for `place` was written to when its program was
/// killed.
pub fn is_part_of(path: &Path, place: &Path) -> bool {
    let bytes =
        |path: &Path| path.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
    let (name, place_name) = (bytes(path), bytes(place));
    let random = name.strip_prefix(&place_name[..]).and_then(|rest| rest.strip_prefix(b"."));
    let random = random.and_then(|rest| rest.strip_suffix(b".part"));
    path.parent() == place.parent()
        && random.is_some_and(|random| {
            random.len() == RANDOM_DIGITS && random.iter().all(u8::is_ascii_hexdigit)
        })
}

/// Returns an entry, which is held and not opened; `None`: there is nothing.
fn held(folder: &Folder, name: &OsStr) -> io::Result<Option<File>> {
    match folder.open_at(name, OFlags::PATH, 0) {
        Ok(held) => Ok(Some(File::from(held))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Fills `random` with what the kernel's generator has, ready or not: a name that another file has
/// is refused and another is tried, so it keeps no secret. A machine that has just begun may take
/// ten seconds until its generator is ready, and who waits for it spins
/// (`try_to_generate_entropy`, drivers/char/random.c, Linux 6.12): a thread of a real-time priority
/// is ended for that by RLIMIT_RTTIME.
fn fill_at_once(
    random: &mut [u8],
    mut get: impl FnMut(&mut [u8], GetRandomFlags) -> rustix::io::Result<usize>,
) -> rustix::io::Result<usize> {
    match get(random, GetRandomFlags::INSECURE) {
        // Before Linux 5.6.
        Err(Errno::INVAL) => get(random, GetRandomFlags::empty()),
        done => done,
    }
}

/// Makes a file with a random name that begins with `name`.
pub(crate) fn part_file(
    folder: &Folder,
    name: &OsStr,
    flags: OFlags,
    mode: u32,
) -> io::Result<(OsString, File)> {
    for _ in 0..NAMES {
        let mut random = [0; 8];
        fill_at_once(&mut random, |into, how| rustix::rand::getrandom(into, how))?;
        let end = format!(".{:0RANDOM_DIGITS$x}.part", u64::from_ne_bytes(random));
        let begin = &name.as_bytes()[..name.len().min(NAME_MAX - end.len())];
        let mut part = OsStr::from_bytes(begin).to_owned();
        part.push(end);
        match folder.open_at(&part, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Ok(file) => return Ok((part, File::from(file))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EXIST.into())
}

/// Gives `file` the permission bits of the old file, and its group: where the group cannot be
/// given, its bits are those of all users.
fn give_mode(file: &File, old: &Stat) -> io::Result<()> {
    let mut mode = old.st_mode & 0o777;
    let same = file.metadata()?.gid() == old.st_gid;
    let group = rustix::fs::Gid::from_raw(old.st_gid);
    if !same && rustix::fs::fchown(file, None, Some(group)).is_err() {
        mode = mode & !0o070 | (mode & 0o007) << 3 & mode;
    }
    file.set_permissions(Permissions::from_mode(mode))
}

/// Renames where nothing is. File systems that cannot refuse by themselves (EINVAL) get a second
/// name and lose the first.
fn put_new(folder: &Folder, part: &OsStr, name: &OsStr) -> io::Result<()> {
    match rustix::fs::renameat_with(folder, part, folder, name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(folder, part, folder, name, AtFlags::empty())?;
            Ok(rustix::fs::unlinkat(folder, part, AtFlags::empty())?)
        }
        renamed => Ok(renamed?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_not_wait_for_the_random_generator() {
        let mut asked = Vec::new();
        let mut kernel = |knows: GetRandomFlags| {
            asked.clear();
            let done = fill_at_once(&mut [0; 8], |into, how| {
                asked.push(how);
                if knows.contains(how) { Ok(into.len()) } else { Err(Errno::INVAL) }
            });
            (done, asked.clone())
        };
        let (insecure, none) = (GetRandomFlags::INSECURE, GetRandomFlags::empty());
        assert_eq!(kernel(insecure), (Ok(8), vec![insecure]));
        assert_eq!(kernel(none), (Ok(8), vec![insecure, none]), "before Linux 5.6");
    }
}
