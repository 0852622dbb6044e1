//! Recordings: the file format (`.slt`), repair, import, analyses, and the conversion of a
//! recording into a workload.
//!
//! A [`Recording`] is a [`Header`] (machine, capabilities, tasks and groups), a list of
//! [`SchedEvent`](schedlab_model::SchedEvent)s and, beside them, the [`Facts`] of what tasks
//! exchanged. A recorder pushes events into a [`Writer`]; everything else opens a [`Recording`].
//! The layout of the file is in `docs/recording-format.md`.
#![forbid(unsafe_code)]

pub mod analysis;
mod blocks;
mod error;
pub mod export;
mod facts;
pub mod flat;
mod format;
pub mod guests;
mod header;
pub mod import;
mod incident;
mod index;
pub mod owner;
mod packed;
mod part;
mod reader;
mod repair;
pub mod replay;
mod sched_ext;
pub mod schedstat;
pub mod siblings;
mod writer;

pub use blocks::{Block, Blocks, Part};
pub use error::TraceError;
pub use facts::{FactLoss, Facts, PackedFacts, renumber_fact};
pub use format::{FORMAT_MAJOR, FORMAT_MINOR};
pub use header::{Capabilities, Capability, CpuTime, GroupInfo, Header, TaskInfo, Totals};
pub use incident::Incident;
pub use index::{Index, IndexEntry};
pub use packed::{Packed, renumber};
pub use reader::{ReadLimits, Recording};
pub use repair::{Repairs, too_much_lost};
pub use writer::{Writer, save};
