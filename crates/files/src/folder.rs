//! A folder that is held open: what happens in it happens there, whatever becomes of the path that
//! led to it.

use crate::{Refused, links};
use rustix::fs::{AtFlags, CWD, FileType, FsWord, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// Links that a path may lead through (MAXSYMLINKS, include/linux/namei.h, Linux 6.12).
const LINKS_MAX: u32 = 40;
/// The file system of processes (PROC_SUPER_MAGIC, include/uapi/linux/magic.h, Linux 6.12).
const PROC: FsWord = 0x9fa0;
/// Holds an object without the right to read or write it.
const HOLD: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A folder that is held open.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

/// Where a path ends.
pub(crate) enum End {
    /// At a folder.
    Folder(Folder),
    /// At a name in a folder: no link and no folder; there may be nothing.
    Name(Folder, OsString),
    /// At an open file of a process, which may have no name (/proc/self/fd/4). It is held, not yet
    /// open for writing.
    Held(OwnedFd),
}

impl Folder {
    /// Opens a folder. Links on the way are followed as [`Refused`] says.
    ///
    /// # Errors
    /// What the system says, or [`Refused`].
    pub fn open(path: &Path) -> io::Result<Folder> {
        let named = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        // Most paths have no link: the kernel (5.6 and later) opens them in one call. It says no
        // for any other reason, too, and the walk finds which.
        let flags = HOLD | OFlags::DIRECTORY;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        if let Ok(fd) = rustix::fs::openat2(CWD, named, flags, Mode::empty(), resolve) {
            return Ok(Folder { fd, path: path.to_owned() });
        }
        Walk::default().folder(path)
    }

    /// Opens a folder that no other user can exchange: every folder on the way belongs to root or
    /// to this user and cannot be written by others, unless it is sticky, and no link on the way is
    /// another user's. What is missing is made with the mode 0700.
    ///
    /// # Errors
    /// What the system says, or [`Refused::Changeable`].
    pub fn trusted(path: &Path) -> io::Result<Folder> {
        let path = std::path::absolute(path)?;
        Walk { trusted: true, ..Walk::making(Mode::RWXU) }.folder(&path)
    }

    /// Returns the path by which the folder was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(&self.fd)?)
    }

    /// Returns what is known of an entry, of a link itself; `None`: there is nothing.
    pub(crate) fn entry(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn open_at(&self, name: &OsStr, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
        Ok(rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(mode))?)
    }

    fn is_proc(&self) -> bool {
        rustix::fs::fstatfs(&self.fd).is_ok_and(|system| system.f_type == PROC)
    }

    fn root() -> io::Result<Folder> {
        let fd = rustix::fs::openat(CWD, "/", HOLD | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Folder { fd, path: PathBuf::from("/") })
    }

    fn here() -> io::Result<Folder> {
        let fd = rustix::fs::openat(CWD, ".", HOLD | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Folder { fd, path: PathBuf::new() })
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns where `path` ends.
pub(crate) fn end(path: &Path) -> io::Result<End> {
    let (Some(name), Some(folder)) = (path.file_name(), path.parent()) else {
        return Walk::default().folder(path).map(End::Folder);
    };
    // `x/` and `x/.` name a folder.
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.ends_with(b"/") || bytes.ends_with(b"/.") {
        return Folder::open(path).map(End::Folder);
    }
    let folder = Folder::open(folder)?;
    Walk::default().entry(folder, name)
}

/// A walk along a path, folder by folder.
#[derive(Default)]
pub(crate) struct Walk {
    /// Links that were followed.
    links: u32,
    /// Folders that are missing are made, with this mode.
    make: Option<Mode>,
    /// Whether each folder must be one that other users cannot change.
    trusted: bool,
    /// Whether the last folder was made.
    pub(crate) made: bool,
}

impl Walk {
    /// Returns a walk that makes the folders that are missing.
    pub(crate) fn making(mode: Mode) -> Walk {
        Walk { make: Some(mode), ..Walk::default() }
    }

    /// Walks to a folder.
    pub(crate) fn folder(&mut self, path: &Path) -> io::Result<Folder> {
        match self.walk(Folder::here()?, path)? {
            End::Folder(folder) => Ok(folder),
            End::Name(folder, name) => {
                // For what is missing and what is no folder, the system's own words.
                folder.open_at(&name, OFlags::PATH | OFlags::DIRECTORY, 0)?;
                Err(Errno::NOTDIR.into())
            }
            End::Held(_) => Err(Errno::NOTDIR.into()),
        }
    }

    fn walk(&mut self, from: Folder, path: &Path) -> io::Result<End> {
        let mut at = from;
        let mut parts = path.components().peekable();
        while let Some(part) = parts.next() {
            let last = parts.peek().is_none();
            match part {
                Component::Prefix(_) | Component::CurDir => {}
                Component::RootDir => at = self.enter(Folder::root()?)?,
                Component::ParentDir => {
                    let fd =
                        rustix::fs::openat(&at, "..", HOLD | OFlags::DIRECTORY, Mode::empty())?;
                    at = self.enter(Folder { fd, path: at.path.join("..") })?;
                }
                Component::Normal(name) => match self.entry(at, name)? {
                    End::Folder(folder) => at = folder,
                    end if last => return Ok(end),
                    End::Name(folder, name) => {
                        folder.open_at(&name, OFlags::PATH | OFlags::DIRECTORY, 0)?;
                        return Err(Errno::NOTDIR.into());
                    }
                    End::Held(_) => return Err(Errno::NOTDIR.into()),
                },
            }
        }
        Ok(End::Folder(at))
    }

    fn enter(&self, folder: Folder) -> io::Result<Folder> {
        if self.trusted
            && let Some(fault) = links::fault(&folder.stat()?)
        {
            return Err(Refused::Changeable { folder: folder.path, fault }.into());
        }
        Ok(folder)
    }

    /// Returns where `name` in `folder` leads: a link is followed, a folder opened.
    fn entry(&mut self, folder: Folder, name: &OsStr) -> io::Result<End> {
        let held = match rustix::fs::openat(&folder, name, HOLD, Mode::empty()) {
            Err(Errno::NOENT) if self.make.is_some() => self.make(&folder, name)?,
            Err(Errno::NOENT) => return Ok(End::Name(folder, name.to_owned())),
            held => held?,
        };
        let (stat, path) = (rustix::fs::fstat(&held)?, folder.path.join(name));
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.enter(Folder { fd: held, path }).map(End::Folder),
            FileType::Symlink => self.link(folder, name, &held, &stat, &path),
            _ => Ok(End::Name(folder, name.to_owned())),
        }
    }

    fn make(&mut self, folder: &Folder, name: &OsStr) -> io::Result<OwnedFd> {
        let mode = self.make.unwrap_or(Mode::empty());
        match rustix::fs::mkdirat(folder, name, mode) {
            Ok(()) => self.made = true,
            // Another program was faster.
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(rustix::fs::openat(folder, name, HOLD, Mode::empty())?)
    }

    fn link(
        &mut self,
        folder: Folder,
        name: &OsStr,
        held: &OwnedFd,
        link: &Stat,
        path: &Path,
    ) -> io::Result<End> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let must_match = links::follows(path, link, &folder.stat()?)?;
        if self.trusted && must_match {
            let fault = "is reached by a link of another user";
            return Err(Refused::Changeable { folder: path.to_owned(), fault }.into());
        }
        if folder.is_proc() {
            return self.of_process(&folder, name, link, path);
        }
        let text = PathBuf::from(OsString::from_vec(
            rustix::fs::readlinkat(held, "", Vec::new())?.into_bytes(),
        ));
        let end = self.walk(folder, &text)?;
        if must_match {
            let target = match &end {
                End::Folder(folder) => folder.stat()?,
                End::Name(folder, name) => match folder.entry(name)? {
                    Some(stat) => stat,
                    None => folder.stat()?,
                },
                End::Held(fd) => rustix::fs::fstat(fd)?,
            };
            links::leads_to_its_own(path, link.st_uid, target.st_uid)?;
        }
        Ok(end)
    }

    /// A link that the kernel made of a process's open file or folder; its text need not be a path.
    /// `self` leads to this process.
    fn of_process(
        &self,
        folder: &Folder,
        name: &OsStr,
        link: &Stat,
        path: &Path,
    ) -> io::Result<End> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let held = rustix::fs::openat(folder, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&held)?;
        if name != "self" && name != "thread-self" && !links::ours_or_root(link.st_uid) {
            links::leads_to_its_own(path, link.st_uid, stat.st_uid)?;
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                self.enter(Folder { fd: held, path: path.to_owned() }).map(End::Folder)
            }
            _ => Ok(End::Held(held)),
        }
    }
}
