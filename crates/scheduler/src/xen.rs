//! The schedulers of the Xen hypervisor: Credit and Credit2, and the small ones: null, RTDS and
//! ARINC 653.
//!
//! A task is a vCPU (a *unit* in Xen's words), a group is a domain; `weight` is 1 … 65535 (default
//! 256) and `cap_percent` is in per cent of one pCPU; Credit and Credit2 alone know either. The
//! core of Xen below all (when a unit may be decided upon, what migration means, that a slice timer
//! starts with each decision) is the driver's part of the contract.
//!
//! Releases differ in a few rules: the knob `version` says from which release they are taken.

mod arinc653;
mod common;
pub(crate) mod cpupools;
mod credit;
mod credit2;
mod null;
mod one_lock;
mod release;
mod rtds;

pub use arinc653::ENTRY as ARINC653;
pub use null::ENTRY as NULL;
pub use rtds::ENTRY as RTDS;

use crate::registry::{Entry, Family, XenScheduler};
use crate::{CellLocks, Knobs, Needs, rows};
use one_lock::OneLock;
use release::{VERSION, XenRelease};
use schedlab_model::Ns;

/// The knobs do not depend on the release: where a default does, its text says so.
const ANY: XenRelease = XenRelease::V4_20;

/// Scheduler parameters of a cpupool, as `xl sched-credit -s` and `xl sched-credit2 -s` print them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolParameters {
    /// Credit: the time slice.
    pub tslice: Option<Ns>,
    /// Shortest run before preemption; 0 = off.
    pub ratelimit: Ns,
    /// Credit: how long a unit counts as cache hot; 0 = off.
    pub migration_delay: Option<Ns>,
}

impl PoolParameters {
    /// Returns those of a pool under Credit.
    pub fn of_credit(knobs: &Knobs) -> PoolParameters {
        let release = knobs.get(&VERSION);
        PoolParameters {
            tslice: Some(knobs.get_for(&credit::settings::TSLICE, &release)),
            ratelimit: knobs.get_for(&credit::settings::RATELIMIT, &release),
            migration_delay: Some(knobs.get_for(&credit::settings::MIGRATION_DELAY, &release)),
        }
    }
    /// Returns those of a pool under Credit2.
    pub fn of_credit2(knobs: &Knobs) -> PoolParameters {
        let ratelimit = knobs.get_for(&common::RATELIMIT, &knobs.get(&VERSION));
        PoolParameters { tslice: None, ratelimit, migration_delay: None }
    }
}

/// What they need of the driver.
fn needs() -> Needs {
    Needs { wakeups: true, exact_slices: true, saved: true, own_marks: true, ..Needs::default() }
}

/// `xen-credit`: Credit, the default until Xen 4.11.
pub(crate) const CREDIT: Entry = Entry {
    name: "xen-credit",
    summary: "Xen's Credit (4.12 to 4.22): 30 ms slices, BOOST, weights, caps",
    family: Family::Xen(XenScheduler::Credit),
    proposed_live: false,
    knobs: || [rows(&[&VERSION], &()), rows(credit::settings::KNOBS, &ANY)].concat(),
    build: |cpus, knobs| {
        let rules = credit::Credit::new(knobs.get(&VERSION), cpus, knobs);
        Box::new(OneLock::<CellLocks, _>::new(rules))
    },
};

/// `xen-credit2`: Credit2, the default since Xen 4.12.
pub(crate) const CREDIT2: Entry = Entry {
    name: "xen-credit2",
    summary: "Xen's Credit2 (4.12 to 4.22; the default since 4.12)",
    family: Family::Xen(XenScheduler::Credit2),
    proposed_live: false,
    knobs: || [rows(&[&VERSION], &()), rows(credit2::KNOBS, &ANY)].concat(),
    build: |cpus, knobs| {
        let rules = credit2::Credit2::new(knobs.get(&VERSION), cpus, knobs);
        Box::new(OneLock::<CellLocks, _>::new(rules))
    },
};
