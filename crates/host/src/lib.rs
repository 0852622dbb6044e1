//! Everything of schedlab that touches Linux: what this machine allows, what its scheduler does.
//!
//! [`record`](record()) hands out the same [`SchedEvent`](schedlab_model::SchedEvent)s that the
//! simulator produces, with the facts of machine, tasks and groups beside them. It knows no file
//! format. This is the only crate with `unsafe`; all of it is in the private module `sys`.

mod capabilities;
mod cgroup;
pub mod doctor;
mod error;
mod facts;
pub mod follow;
pub mod loaded;
mod machine;
pub mod marks;
mod pods;
pub mod presence;
pub mod privileges;
mod proc;
pub mod program;
mod record;
pub mod sched_ext;
mod surroundings;
mod sys;
pub mod threads;
mod tracefs;
mod vcpus;

pub use capabilities::{Capabilities, Caps, probe};
pub use cgroup::cpu_groups_of;
pub use error::HostError;
pub use facts::{
    Backend, FactSource, GroupFacts, MachineFacts, MessageHooks, RecordingCapabilities, TaskFacts,
    is_realtime,
};
pub use machine::{is_emulated, machine, rt_runtime};
pub use pods::{PodFacts, pod};
pub use proc::stolen;
#[doc(hidden)]
pub use record::bpf::made_up;
pub use record::child::Command as OwnCommand;
pub use record::in_kernel;
pub use record::{
    Messages, Preparing, RecordEnd, RecordFilter, RecordRequest, RecordSink, RecordStart,
    RecordUntil, record,
};
pub use surroundings::{IdleState, Surroundings};
pub use sys::cache::flush;
pub use sys::cycles::{Rate, now as cycles};
pub use sys::fork::{Worker, begins_on, die_with_us, inherits};
pub use sys::huge_pages::NoHugePages;
pub use sys::locks::{Mcs, McsToken, RawLock, Spin, SpinGuard, Tas, Ticket};
pub use sys::signal::StopSignal;
