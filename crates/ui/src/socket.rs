//! A socket of the file system instead of a port: other users of the machine cannot even connect.

use crate::UiError;
use rustix::fs::{Mode, chmod};
use rustix::process::geteuid;
use schedlab_http::{Listener, SocketFile};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Listens at `path`, in a folder that only this user may enter: between its making and the change
/// of its mode another user could connect otherwise.
pub(crate) fn listen(path: &Path) -> Result<Listener, UiError> {
    let failed = |why: String| UiError::Socket { path: path.to_owned(), why };
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return Err(failed("it is no path of a file".to_owned())),
    };
    let data = std::fs::metadata(folder).map_err(|error| failed(format!("its folder: {error}")))?;
    if data.uid() != geteuid().as_raw() || data.mode() & 0o077 != 0 {
        return Err(failed(format!(
            "its folder {} can be entered by others: take one of mode 0700 that is yours, such as \
             $XDG_RUNTIME_DIR",
            schedlab_model::text::shown(&folder.display().to_string())
        )));
    }
    remove_old(path).map_err(&failed)?;
    let file = SocketFile::bind(path).map_err(|error| failed(error.to_string()))?;
    chmod(path, Mode::RUSR | Mode::WUSR).map_err(|error| failed(error.to_string()))?;
    Ok(Listener::Socket(file))
}

/// Removes a socket at which no program listens any more. Any other file stays.
fn remove_old(path: &Path) -> Result<(), String> {
    let data = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        data => data.map_err(|error| error.to_string())?,
    };
    if !data.file_type().is_socket() {
        return Err("there is a file of this name, which is no socket".to_owned());
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err("another program listens there".to_owned()),
        Err(_) => std::fs::remove_file(path).map_err(|error| error.to_string()),
    }
}
