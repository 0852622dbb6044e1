//! Runs real threads under a schedlab scheduler inside the kernel's own class for schedulers,
//! sched_ext (Linux 6.12 and later).
//!
//! A small BPF scheduler (`bpf/ext.bpf.c`) holds every managed thread that wants a CPU, and tells a
//! ring of events what happens. The agent, a thread of this process, drives the same decision core
//! as the elevation driver ([`schedlab_live::logged_core`]) and sends threads to CPUs by a system
//! call with a batch of decisions. Only the threads of named processes, and those that they make,
//! are managed: they get policy SCHED_EXT, by way of the [`Keeper`](schedlab_live::Keeper)'s
//! journal.
//!
//! | | elevation | sched_ext |
//! |---|---|---|
//! | place of the managed threads | above every fair thread | below every fair thread |
//! | kernels | all | 6.12 and later with CONFIG_SCHED_CLASS_EXT and BTF |
//! | what runs on a managed CPU when the agent falls silent | the thread that was raised; the guardian ends the agent | the oldest waiting thread, by the kernel |
//! | what restores policies | journal, guardian, second guardian, `restore` | the same; the kernel unloads the scheduler by itself |
//! | yields (sched_yield) | not seen | a step of the core |
//! | a thread that waits for its turn | sleeps in SCHED_FIFO 1 | sleeps in a queue of the kernel |
//!
//! Without the feature `libbpf` the parts that need no kernel are built, for their tests.
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "libbpf"), allow(dead_code, reason = "the driver's loop needs libbpf"))]

#[cfg(feature = "libbpf")]
mod agent;
mod error;
pub mod fair_load;
#[cfg(feature = "libbpf")]
mod fair_watch;
#[cfg(feature = "libbpf")]
mod kernel;
mod state;
#[cfg(feature = "libbpf")]
mod supervisor;
mod wire;

pub use error::ExtError;
#[cfg(feature = "libbpf")]
pub use supervisor::manage;
