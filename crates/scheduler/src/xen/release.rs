//! Releases of Xen as far as rules differ.
//!
//! Read in `xen/common/sched/credit.c`, `credit2.c` and `core.c` of RELEASE-4.20.0 (before 4.14
//! `xen/common/sched_credit.c` and so on), with the tags 4.4, 4.7, 4.8, 4.10 … 4.15 and 4.17 … 4.22
//! for what changed when.

use crate::{KnobDefault, WordKnob, words};

words! {
    /// The Xen release whose rules hold. Between two of these nothing changed that is modelled, but
    /// for the release that a predicate names.
    #[derive(PartialOrd, Ord)]
    pub(super) enum XenRelease {
        /// Credit2 became the default in this one.
        V4_12 = "4.12",
        /// 4.15.
        V4_15 = "4.15",
        /// 4.17.
        V4_17 = "4.17",
        /// 4.20.
        V4_20 = "4.20",
        /// 4.22.
        V4_22 = "4.22",
    }
}

/// The knob of the schedulers whose rules changed.
pub(super) const VERSION: WordKnob<XenRelease> = WordKnob {
    name: "version",
    default: KnobDefault::Is(XenRelease::V4_20),
    doc: "the Xen release whose rules hold",
    source: "tags of xen-project/xen",
};

impl XenRelease {
    /// Credit: a preempted unit moves to an idle pCPU that its own mask allows (`__runq_tickle`;
    /// until 4.12).
    pub(super) fn credit_kicks_away(self) -> bool {
        self <= XenRelease::V4_12
    }
    /// Credit: a unit that is unparked is boosted (`csched_acct`; until 4.12).
    pub(super) fn credit_boosts_after_unpark(self) -> bool {
        self <= XenRelease::V4_12
    }
    /// Credit: a pCPU steals once per rate limit only, and no unit that yielded
    /// (`csched_load_balance`, `csched_runq_steal`; since 4.18).
    pub(super) fn credit_limits_stealing(self) -> bool {
        self >= XenRelease::V4_20
    }
    /// Credit2: at most 16 pCPUs share a run queue (`max_cpus_runqueue`; since 4.14).
    pub(super) fn credit2_limits_queues(self) -> bool {
        self >= XenRelease::V4_15
    }
    /// Credit2: a slice looks at the unit that is switched out (`csched2_runtime`; since 4.21).
    pub(super) fn credit2_slice_sees_previous(self) -> bool {
        self >= XenRelease::V4_22
    }
    /// ARINC 653: frames begin at whole frames, however late the decision comes
    /// (`a653sched_do_schedule`; since 4.21).
    pub(super) fn arinc653_keeps_frames(self) -> bool {
        self >= XenRelease::V4_22
    }
}
