//! The words that every part of schedlab speaks: time, ids, CPU sets, topology, policies, workloads
//! and the [`SchedEvent`] stream.
//!
//! Simulator, recorder and live agent emit the same [`SchedEvent`]s into an [`EventSink`];
//! schedulers see the same [`TaskId`]s and [`CpuId`]s; a recording and a written scenario both
//! become a [`Workload`]. Nothing here reads a clock, does I/O, or uses floating point for time.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod cpu_roles;
mod cpuset;
mod event;
mod exchange;
mod fact;
mod ids;
mod own_threads;
mod policy;
mod program;
pub mod random;
mod sched_ext;
pub mod text;
mod time;
mod topology;
mod workload;

pub use cpu_roles::CpuRoles;
pub use cpuset::{CpuSet, CpuSetError, MAX_CPUS, WORDS};
pub use event::{EventKind, EventSink, PrevState, SchedEvent, Waker};
pub use exchange::{
    Act, Arrival, Coroutine, CoroutineStep, Exchange, Executor, Holds, ObjectSpec, Price, Prices,
    Room, Script, Step,
};
pub use fact::{Fact, FactKind, Limit, ObjectInfo, ObjectKind, Outcome, Transfer};
pub use ids::{
    ChannelId, CpuId, ExecutorId, GroupId, LockId, ObjectId, ScriptId, SourceId, TaskId,
};
pub use own_threads::OwnThread;
pub use policy::{Nice, Policy, PolicyError};
pub use program::{Amount, Branch, Draw, Op, Program, Section};
pub use sched_ext::SchedExt;
pub use time::{Ns, NsError};
pub use topology::{CpuPlace, FULL_SPEED, LEAST_SMT_YIELD, Topology};
pub use workload::{
    Bandwidth, ChannelSpec, GroupSpec, Handoff, Partition, SourceKind, SourceSpec, Start, TaskSpec,
    Workload, WorkloadError,
};
