//! The system calls that need `unsafe`, each behind a safe function. Nothing outside this module
//! uses it.
#![allow(unsafe_code)]

pub(crate) mod bpf;
pub(crate) mod cache;
pub(crate) mod cycles;
pub(crate) mod fork;
pub(crate) mod hold;
pub(crate) mod huge_pages;
pub(crate) mod launch;
pub(crate) mod locks;
pub(crate) mod perf;
pub(crate) mod sched;
pub(crate) mod shared;
pub(crate) mod signal;

pub(crate) use perf::{Event, Ring};
pub(crate) use shared::Shared;
