//! Changes to the scheduling of running threads, each of which can be taken back.
//!
//! The principal type is the [`Keeper`]: every change goes through it. It writes down what was
//! before ([`journal`]), only then makes the change, and has a [`guardian`] beside it, a process of
//! its own that restores everything when the keeper's process dies or hangs. When both are gone,
//! [`restore`] does the same from the journal.
//!
//! ```text
//!   keeper ──entry, synced──► journal ◄──reads── guardian ──(owner dead or silent)──► restore
//!      │                                            ▲
//!      └── then the change      heartbeats ─────────┘
//! ```
#![forbid(unsafe_code)]

pub mod actuators;
pub mod claims;
pub mod detach;
pub mod driver;
pub mod elevation;
mod error;
pub mod guardian;
mod held;
pub mod journal;
mod keeper;
pub mod logged_core;
mod memory;
mod reserve;
pub mod restore;
mod run_dir;

pub mod status;
pub mod status_file;
pub mod verify;

pub use error::LiveError;
pub use held::{LeftBehind, left_behind};
pub use keeper::{Keeper, KeeperOptions};
pub use run_dir::RunDir;
