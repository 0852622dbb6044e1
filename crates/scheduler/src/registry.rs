//! Every scheduler by name. A new one is a file of its own and one line in [`all`].

mod family;

pub use family::{Family, XenScheduler};

use crate::sched_ext;
use crate::{Knob, KnobError, Knobs, Scheduler, SchedulerSpec};
use schedlab_model::text::nearest;

/// One scheduler that can be asked for by name.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Name, such as `linux-6.18`.
    pub name: &'static str,
    /// One line: what it is and when it was used.
    pub summary: &'static str,
    /// The system that it models.
    pub family: Family,
    /// Whether it is proposed for real threads of which schedlab knows nothing: it needs to be told
    /// nothing about them. (What it asks of its driver is `Scheduler::needs`.)
    pub proposed_live: bool,
    /// Its knobs.
    pub knobs: fn() -> Vec<Knob>,
    /// Makes one for a machine with this many CPUs, with the simulator's locks.
    pub build: fn(cpus: usize, knobs: &Knobs) -> Box<dyn Scheduler + Send>,
}

impl Entry {
    /// What it asks of its driver, which policies it refuses and what in it was fitted, in words,
    /// one line each.
    pub fn capabilities(&self) -> Vec<String> {
        let scheduler = (self.build)(1, &Knobs::default());
        let needs = match scheduler.needs().words() {
            words if words.is_empty() => "nothing".to_owned(),
            words => words.join(", "),
        };
        let [deadline, fifo, rr, batch, idle] =
            ["deadline:1ms/10ms/10ms", "fifo:1", "rr:1", "batch", "idle"].map(|text| {
                let policy = text.parse().ok()?;
                scheduler
                    .refuses(policy)
                    .map(|why| format!("{} ({why})", text.split(':').next().unwrap_or(text)))
            });
        let refused: Vec<String> =
            [deadline, fifo, rr, batch, idle].into_iter().flatten().collect();
        let refused = if refused.is_empty() { "none".to_owned() } else { refused.join("; ") };
        let mut lines =
            vec![format!("asks of its driver: {needs}"), format!("policies refused: {refused}")];
        lines.extend(scheduler.fitted().into_iter().map(|what| format!("fitted: {what}")));
        lines
    }
}

/// Every scheduler, in the order in which `schedlab list schedulers` prints them.
pub fn all() -> &'static [Entry] {
    const ALL: &[Entry] = &[
        crate::linux_pre_cfs::V2_4,
        crate::linux_pre_cfs::V2_4_MQ,
        crate::linux_pre_cfs::V2_4_O1,
        crate::linux_pre_cfs::V2_6_0,
        crate::linux_pre_cfs::V2_6_22,
        crate::linux::presets::V2_6_24,
        crate::linux::presets::V2_6_32,
        crate::linux::presets::V3_0,
        crate::linux::presets::V3_10,
        crate::linux::presets::V4_9,
        crate::linux::presets::V4_19,
        crate::linux::presets::V5_10,
        crate::linux::presets::V6_1,
        crate::linux::presets::V6_6,
        crate::linux::presets::V6_12,
        crate::linux::presets::V6_18,
        crate::linux::presets::V7_2,
        crate::xen::CREDIT,
        crate::xen::CREDIT2,
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
pub fn build_to_send(
    spec: &SchedulerSpec,
    cpus: usize,
) -> Result<Box<dyn Scheduler + Send>, KnobError> {
    if sched_ext::is_object(&spec.name) {
        return Ok(Box::new(sched_ext::build(spec)?));
    }
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
    if sched_ext::is_object(&spec.name) {
        return sched_ext::check(spec);
    }
    crate::xen::cpupools::check(spec)?;
    Knobs::check(spec, &(find(&spec.name)?.knobs)()).map(drop)
}

/// The entry called `name`.
pub fn find(name: &str) -> Result<&'static Entry, KnobError> {
    if sched_ext::is_object(name) {
        return Ok(&sched_ext::ENTRY);
    }
    all().iter().find(|entry| entry.name == name).ok_or_else(|| KnobError::UnknownScheduler {
        name: name.to_owned(),
        nearest: nearest(name, all().iter().map(|entry| entry.name)),
    })
}
