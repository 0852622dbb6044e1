//! What is refused before anything is written, and why.

use std::io;
use std::path::PathBuf;

/// Why a path is not written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Another user's link in a folder like /tmp.
    #[error(
        "{} is a link of user {owner} in a folder that every user can write, so it may lead \
         anywhere: remove it, or name the file \
         that is meant", .link.display()
    )]
    Planted {
        /// The link.
        link: PathBuf,
        /// User number of its owner.
        owner: u32,
    },
    /// A link of another user to what does not belong to that user.
    #[error(
        "{} is a link of user {owner} to what belongs to another user: name the file or folder \
         that is meant", .link.display()
    )]
    Foreign {
        /// The link.
        link: PathBuf,
        /// User number of its owner.
        owner: u32,
    },
    /// A pipe or socket of another user.
    #[error("{} is a pipe or socket of user {owner}, which would read all: name a file of your own", .path.display())]
    Pipe {
        /// The pipe.
        path: PathBuf,
        /// User number of its owner.
        owner: u32,
    },
    /// Something else came to the path between two looks.
    #[error("{} was exchanged while it was opened: choose a folder that only you can write", .0.display())]
    Exchanged(PathBuf),
    /// The file is also an input.
    #[error("the output {} is also the input {}: give the output a name of its own", .output.display(), .input.display())]
    Input {
        /// The output as it was named.
        output: PathBuf,
        /// The input as it was named.
        input: PathBuf,
    },
    /// A folder on the way can be changed by other users.
    #[error("the folder {} {fault}: use one in which only you and root can make and rename entries", .folder.display())]
    Changeable {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        fault: &'static str,
    },
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, refused)
    }
}
