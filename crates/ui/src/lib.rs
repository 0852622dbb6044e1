//! The workbench (`schedlab ui`): a server on loopback, or at a socket of the file system, for a
//! browser of this machine.
//!
//! What it answers is the library's ([`schedlab_study`]): an overview of an input, its schedule,
//! and questions, which are answered as `schedlab compare` answers them. What may ask is decided in
//! [`guard`]: every request needs this server's host, no other origin, and a random token. A page
//! names no path: it names inputs by numbers that the server gave them.
#![forbid(unsafe_code)]

mod answer;
mod api;
mod assets;
mod cache;
mod guard;
mod inputs;
mod live;
mod questions;
mod search;
mod server;
mod socket;

use schedlab_scheduler::SchedulerSpec;
use schedlab_study::StudyError;
use schedlab_study::page::Origin;
use std::io;
use std::path::PathBuf;

pub use live::Live;
pub use server::Workbench;

/// What a workbench is started with.
#[derive(Clone, Debug, Default)]
pub struct WorkbenchOptions {
    /// Recordings, scenarios, scenarios of the gallery by name, or folders of recordings.
    pub inputs: Vec<String>,
    /// The server that questions are about at first.
    pub serve: Option<String>,
    /// Schedulers that a page may ask for beside those of the registry.
    pub schedulers: Vec<SchedulerSpec>,
    /// The types of the kernel for which those in BPF are.
    pub kernel_btf: Option<PathBuf>,
    /// The port on loopback; 0: any that is free.
    pub port: u16,
    /// A socket of the file system instead of a port.
    pub socket: Option<PathBuf>,
    /// What pages say of this program and machine.
    pub origin: Origin,
}

/// Why there is no workbench.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UiError {
    /// The port cannot be had.
    #[error(
        "--port {port}: cannot be listened on ({reason}); choose another one, or leave the option \
         out for any that is free"
    )]
    Port {
        /// The port.
        port: u16,
        /// What the system said.
        reason: String,
    },
    /// The socket cannot be had, or others could reach it.
    #[error("--socket {}: {why}", schedlab_model::text::shown(&.path.display().to_string()))]
    Socket {
        /// Its path.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The system gives no thread that serves.
    #[error("the page's server: {0}")]
    Server(io::Error),
    /// The system gives no random numbers for the token.
    #[error("a token for the page: {0}")]
    Random(io::Error),
    /// An input that cannot be used.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// A folder that cannot be read.
    #[error("{}: {source}", schedlab_model::text::shown(&.path.display().to_string()))]
    Input {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder without a recording.
    #[error(
        "{}: there is no recording in it; `schedlab record -o FILE.slt` makes a recording",
        schedlab_model::text::shown(&.0.display().to_string())
    )]
    Empty(PathBuf),
}
