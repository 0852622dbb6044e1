//! The versions that can be asked for by name.

use super::{Linux, cfs, eevdf, tunables};
use crate::registry::Entry;
use crate::{CellLocks, Knob, Knobs, Locks, Scheduler};

/// The knobs of `linux-6.1`.
pub fn knobs_6_1() -> Vec<Knob> {
    tunables::knobs(&tunables::V6_1)
}

/// `linux-6.1`: CFS with RT throttling, as in 5.15 … 6.5.
pub fn build_6_1<L: Locks>(cpus: usize, knobs: &Knobs) -> Box<dyn Scheduler> {
    Box::new(Linux::<L, cfs::Cfs>::new(tunables::V6_1, cpus, knobs))
}

/// The knobs of `linux-6.12`.
pub fn knobs_6_12() -> Vec<Knob> {
    tunables::knobs(&tunables::V6_12)
}

/// `linux-6.12`: EEVDF with delayed dequeue, and the fair server.
pub fn build_6_12<L: Locks>(cpus: usize, knobs: &Knobs) -> Box<dyn Scheduler> {
    Box::new(Linux::<L, eevdf::Eevdf>::new(tunables::V6_12, cpus, knobs))
}

/// The knobs of `linux-6.18`.
pub fn knobs_6_18() -> Vec<Knob> {
    tunables::knobs(&tunables::V6_18)
}

/// `linux-6.18`: EEVDF with the protection rules of 6.17 and later.
pub fn build_6_18<L: Locks>(cpus: usize, knobs: &Knobs) -> Box<dyn Scheduler> {
    Box::new(Linux::<L, eevdf::Eevdf>::new(tunables::V6_18, cpus, knobs))
}

/// `linux-7.2`: as `linux-6.18`, but slices end by a timer of their own (HRTICK).
pub(crate) const LINUX_7_2: Entry = Entry {
    name: "linux-7.2",
    summary: "EEVDF whose slices end by a timer (HRTICK) instead of at a tick (Linux 7.2)",
    knobs: || tunables::knobs(&tunables::V7_2),
    build: |cpus, knobs| Box::new(Linux::<CellLocks, eevdf::Eevdf>::new(tunables::V7_2, cpus, knobs)),
};
