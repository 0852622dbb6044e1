//! The run directory: where journals and status files are.

use crate::LiveError;
use schedlab_files::{Folder, Refused};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folder with the journals of everything that this user manages on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// Returns `$SCHEDLAB_RUN_DIR`; else `/run/schedlab` for root, `$XDG_RUNTIME_DIR/schedlab`, or
    /// `/tmp/schedlab-UID`.
    ///
    /// # Errors
    /// See [`RunDir::at`].
    pub fn standard() -> Result<RunDir, LiveError> {
        if let Some(path) = std::env::var_os("SCHEDLAB_RUN_DIR") {
            return RunDir::at(Path::new(&path));
        }
        let uid = rustix::process::geteuid();
        if uid.is_root() {
            return RunDir::at(Path::new("/run/schedlab"));
        }
        match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(path) => RunDir::at(&Path::new(&path).join("schedlab")),
            None => RunDir::at(Path::new(&format!("/tmp/schedlab-{}", uid.as_raw()))),
        }
    }

    /// Returns the folder `path`, made when it is missing (mode 0700).
    ///
    /// # Errors
    /// When it is a link, belongs to another user or can be written by others, or when others can
    /// exchange a folder above it: a process that can write a journal could make root change any
    /// thread.
    pub fn at(path: &Path) -> Result<RunDir, LiveError> {
        if let Err(error) = Folder::trusted(path) {
            return Err(match error.get_ref().and_then(|inner| inner.downcast_ref::<Refused>()) {
                Some(Refused::Changeable { folder, fault }) => {
                    LiveError::RunDir { path: folder.clone(), fault }
                }
                _ => LiveError::io(format!("cannot make the folder {}", path.display()))(error),
            });
        }
        let data = fs::symlink_metadata(path).map_err(LiveError::io(path.display().to_string()))?;
        let fault = if !data.is_dir() {
            Some("is not a folder")
        } else if data.uid() != rustix::process::geteuid().as_raw() {
            Some("belongs to another user")
        } else if data.mode() & 0o022 != 0 {
            Some("can be written by others")
        } else {
            None
        };
        match fault {
            Some(fault) => Err(LiveError::RunDir { path: path.to_owned(), fault }),
            None => Ok(RunDir(path.to_owned())),
        }
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the journals, in order of their names.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn journals(&self) -> Result<Vec<PathBuf>, LiveError> {
        let entries = fs::read_dir(&self.0).map_err(LiveError::io(self.0.display().to_string()))?;
        let mut found: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "journal"))
            .collect();
        found.sort();
        Ok(found)
    }
}
