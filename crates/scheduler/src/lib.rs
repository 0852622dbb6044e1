//! The [`Scheduler`] trait and every scheduler.
//!
//! A scheduler is kernel-shaped: the *driver* (simulator, native benchmark, live agent) asks, the
//! scheduler answers. It keeps its own run queues behind its own [`Lock`]s, reads tasks and CPUs
//! through the views in [`Cx`], and asks for things to happen by pushing [`Cmd`]s, which the driver
//! carries out, in order, after the call returns. The same object therefore runs in all three
//! drivers.
//!
//! To add one: a file with a type that implements [`Scheduler`], and one line in [`registry`].
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod agent;
mod api;
mod cx;
pub mod decision_core;
mod forward;
mod knobs;
pub mod linux;
pub mod linux_pre_cfs;
mod locks;
pub mod registry;
pub mod sched_ext;
pub mod simple;
mod tournament_tree;
mod view;
pub mod xen;

pub use api::{
    Change, Cmd, Needs, Pick, Prev, Rejection, Request, Scheduler, Standing, Timer, Wake, WakeKind,
};
pub use cx::{Cx, Out, Work};
pub use knobs::{
    FlagKnob, Knob, KnobDefault, KnobError, KnobKind, KnobValue, Knobs, NumberKnob, Row,
    SchedulerList, SchedulerSpec, Steps, TimeKnob, Times, Typed, Word, WordKnob, rows,
};
pub(crate) use knobs::{exact_time, words};
pub use locks::{CellLock, CellLocks, Dense, Lock, Locks, OnLine};
pub use tournament_tree::TournamentTree;
pub use view::{CpuView, GroupView, Relaxed64, Runnable, TaskView, World};
