//! Every scheduler by name. A new one is a file of its own and one line in [`all`].

use crate::{Knob, KnobError, Knobs, Scheduler, SchedulerSpec};
use schedlab_model::text::nearest;

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
    pub build: fn(cpus: usize, knobs: &Knobs) -> Box<dyn Scheduler + Send>,
}

impl Entry {
    /// What it asks of its driver, which policies it refuses and what in it was fitted, in words, one line each.
    pub fn capabilities(&self) -> Vec<String> {
        let scheduler = (self.build)(1, &Knobs::default());
        let needs = match scheduler.needs().words() {
            words if words.is_empty() => "nothing".to_owned(),
            words => words.join(", "),
        };
        let [deadline, fifo, rr, batch, idle] = ["deadline:1ms/10ms/10ms", "fifo:1", "rr:1", "batch", "idle"]
            .map(|text| {
                let policy = text.parse().ok()?;
                scheduler
                    .refuses(policy)
                    .map(|why| format!("{} ({why})", text.split(':').next().unwrap_or(text)))
            });
        let refused: Vec<String> = [deadline, fifo, rr, batch, idle].into_iter().flatten().collect();
        let refused = if refused.is_empty() { "none".to_owned() } else { refused.join("; ") };
        let mut lines = vec![format!("asks of its driver: {needs}"), format!("policies refused: {refused}")];
        lines.extend(scheduler.fitted().into_iter().map(|what| format!("fitted: {what}")));
        lines
    }
}

/// Every scheduler, in the order in which `schedlab list schedulers` prints them.
pub fn all() -> &'static [Entry] {
    const ALL: &[Entry] = &[
        Entry {
            name: "linux-2.4",
            summary: "goodness on one list behind one lock (Linux 2.4)",
            knobs: crate::linux_pre_cfs::knobs_2_4,
            build: crate::linux_pre_cfs::build_2_4::<crate::CellLocks>,
        },
        Entry {
            name: "linux-2.4-mq",
            summary: "the 2.4 decision from per-CPU lists (multi-queue patch of 2001)",
            knobs: crate::linux_pre_cfs::knobs_mq,
            build: crate::linux_pre_cfs::build_mq::<crate::CellLocks>,
        },
        Entry {
            name: "linux-2.4-o1",
            summary: "the O(1) patch on 2.4 (early 2002): 10 to 300 ms slices",
            knobs: crate::linux_pre_cfs::knobs_o1,
            build: crate::linux_pre_cfs::build_2_4_o1::<crate::CellLocks>,
        },
        Entry {
            name: "linux-2.6.0",
            summary: "the first O(1) of 2.6 (2.6.0 to 2.6.7): 10 to 200 ms slices, sleep credit by bonus",
            knobs: crate::linux_pre_cfs::knobs_o1,
            build: crate::linux_pre_cfs::build_2_6_0::<crate::CellLocks>,
        },
        Entry {
            name: "linux-2.6.22",
            summary: "the last O(1) (2.6.8 to 2.6.22): 5 to 800 ms slices, interactivity",
            knobs: crate::linux_pre_cfs::knobs_o1,
            build: crate::linux_pre_cfs::build_2_6_22::<crate::CellLocks>,
        },
        crate::linux::PRESETS[0],
        crate::linux::PRESETS[1],
        crate::linux::PRESETS[2],
        crate::linux::PRESETS[3],
        crate::linux::PRESETS[4],
        crate::linux::PRESETS[5],
        crate::linux::PRESETS[6],
        crate::linux::PRESETS[7],
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
        crate::xen::NULL,
        crate::xen::RTDS,
        crate::xen::ARINC653,
        crate::agent::FIFO_PER_CPU,
        crate::agent::FIFO_CENTRALIZED,
        crate::agent::SHINJUKU,
        crate::agent::FILTER,
        crate::agent::LAYERS,
        crate::agent::SEARCH,
        crate::simple::EDF,
        crate::simple::RR,
    ];
    const { assert!(crate::linux::PRESETS.len() == 8, "every preset of Linux is listed above") };
    ALL
}

/// Makes the scheduler that `spec` names, for a machine with `cpus` CPUs.
pub fn build(spec: &SchedulerSpec, cpus: usize) -> Result<Box<dyn Scheduler>, KnobError> {
    Ok(build_to_send(spec, cpus)?)
}

/// As [`build`], for a driver whose threads hand it from one to the other, under a lock.
///
/// # Errors
/// As [`build`].
pub fn build_to_send(spec: &SchedulerSpec, cpus: usize) -> Result<Box<dyn Scheduler + Send>, KnobError> {
    if !spec.pools.is_empty() {
        return crate::xen::cpupools::build(spec, cpus);
    }
    let entry = find(&spec.name)?;
    let knobs = Knobs::check(spec, &(entry.knobs)())?;
    Ok((entry.build)(cpus, &knobs))
}

/// Checks the name and the knobs of a scheduler, and the pools behind it.
///
/// # Errors
/// No such scheduler or knob, a value out of bounds, or pools that cannot be.
pub fn check(spec: &SchedulerSpec) -> Result<(), KnobError> {
    crate::xen::cpupools::check(spec)?;
    Knobs::check(spec, &(find(&spec.name)?.knobs)()).map(drop)
}

/// The entry called `name`.
pub fn find(name: &str) -> Result<&'static Entry, KnobError> {
    all().iter().find(|entry| entry.name == name).ok_or_else(|| KnobError::UnknownScheduler {
        name: name.to_owned(),
        nearest: nearest(name, all().iter().map(|entry| entry.name)),
    })
}
