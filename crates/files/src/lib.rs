//! Every file that schedlab writes, and every input that it must not write over.
//!
//! schedlab often runs as root and writes where it is told, also into folders that other users can
//! change. Two rules hold for every writer, because all of them go through this crate
//! (`cargo xtask tidy` finds the others):
//!
//! * **Nothing that root writes can be used against root.** A path is opened folder by folder
//!   ([`Folder`]); each link on the way is held open while it is judged, and another user's link
//!   leads only to what that user owns. A file is made with a random name and O_EXCL in the folder
//!   that is held open, and is renamed within it ([`NewFile`]). From a file that was there it takes
//!   the permission bits alone, and only when the file belongs to this user.
//! * **No file is lost.** What was there stays until the new file is whole; a file that the program
//!   reads is never replaced ([`open`] notes it, [`claim`] and [`NewFile`] ask); only files that
//!   this run made are removed.
#![forbid(unsafe_code)]

mod create;
mod folder;
mod inputs;
mod links;
mod new_file;
mod refused;

pub use create::{
    create_again, create_new, make_folder, remove_folder, remove_if, spare_folders, unnamed,
};
pub use folder::Folder;
pub use inputs::{
    FileId, begin_work, claim, claim_stdout, note_input, open, read, read_named, read_to_string,
};
pub use new_file::{NewFile, STDOUT, is_part_of};
pub use refused::Refused;
/// A folder with a random name that is removed with its value.
pub use tempfile::TempDir;
