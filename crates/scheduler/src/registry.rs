//! Every scheduler by name. A new one is a file of its own and one line in [`all`].

use crate::knobs::nearest;
use crate::{Knob, KnobError, Knobs, Scheduler, SchedulerSpec};

/// One scheduler that can be asked for by name.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Name, such as `linux-6.18`.
    pub name: &'static str,
    /// One line: what it is and when it was used.
    pub summary: &'static str,
    /// Its knobs.
    pub knobs: fn() -> Vec<Knob>,
    /// Makes one for a machine with this many CPUs, with the simulator's locks.
    pub build: fn(cpus: usize, knobs: &Knobs) -> Box<dyn Scheduler>,
}

/// Every scheduler, in the order in which `schedlab list schedulers` prints them.
pub fn all() -> &'static [Entry] {
    &[
        Entry {
            name: "linux-2.4",
            summary: "goodness on one list behind one lock (Linux 2.4)",
            knobs: crate::linux_old::knobs_2_4,
            build: crate::linux_old::build_2_4::<crate::CellLocks>,
        },
        Entry {
            name: "linux-2.4-mq",
            summary: "the 2.4 decision from per-CPU lists (multi-queue patch of 2001)",
            knobs: crate::linux_old::knobs_mq,
            build: crate::linux_old::build_mq::<crate::CellLocks>,
        },
        Entry {
            name: "linux-2.4-o1",
            summary: "the O(1) patch on 2.4 (early 2002): 10 to 300 ms slices",
            knobs: crate::linux_old::knobs_o1,
            build: crate::linux_old::build_2_4_o1::<crate::CellLocks>,
        },
        Entry {
            name: "linux-2.6.22",
            summary: "the last O(1) (2.6.8 to 2.6.22): 5 to 800 ms slices, interactivity",
            knobs: crate::linux_old::knobs_o1,
            build: crate::linux_old::build_2_6_22::<crate::CellLocks>,
        },
        Entry {
            name: "linux-6.1",
            summary: "CFS with RT throttling (Linux 5.15 to 6.5)",
            knobs: crate::linux::knobs_6_1,
            build: crate::linux::build_6_1::<crate::CellLocks>,
        },
        Entry {
            name: "linux-6.12",
            summary: "EEVDF with delayed dequeue and the fair server (Linux 6.12 to 6.16)",
            knobs: crate::linux::knobs_6_12,
            build: crate::linux::build_6_12::<crate::CellLocks>,
        },
        Entry {
            name: "linux-6.18",
            summary: "EEVDF with the slice protection of Linux 6.17 and 6.18",
            knobs: crate::linux::knobs_6_18,
            build: crate::linux::build_6_18::<crate::CellLocks>,
        },
        crate::linux::LINUX_7_2,
        Entry {
            name: "xen-credit",
            summary: "Xen's Credit (4.12 to 4.22): 30 ms slices, BOOST, weights, caps",
            knobs: crate::xen::credit_knobs,
            build: crate::xen::build_credit::<crate::CellLocks>,
        },
        Entry {
            name: "xen-credit2",
            summary: "Xen's Credit2 (4.12 to 4.22; the default since 4.12)",
            knobs: crate::xen::credit2_knobs,
            build: crate::xen::build_credit2::<crate::CellLocks>,
        },
        crate::agent::FIFO_PER_CPU,
        crate::agent::FIFO_CENTRALIZED,
        crate::agent::SHINJUKU,
        crate::agent::FILTER,
        crate::agent::LAYERS,
        crate::agent::SEARCH,
        crate::simple::EDF,
        crate::simple::RR,
    ]
}

/// Makes the scheduler that `spec` names, for a machine with `cpus` CPUs.
pub fn build(spec: &SchedulerSpec, cpus: usize) -> Result<Box<dyn Scheduler>, KnobError> {
    let entry = find(&spec.name)?;
    let knobs = Knobs::check(spec, &(entry.knobs)())?;
    Ok((entry.build)(cpus, &knobs))
}

/// The entry called `name`.
pub fn find(name: &str) -> Result<&'static Entry, KnobError> {
    all().iter().find(|entry| entry.name == name).ok_or_else(|| KnobError::UnknownScheduler {
        name: name.to_owned(),
        nearest: nearest(name, all().iter().map(|entry| entry.name)),
    })
}
