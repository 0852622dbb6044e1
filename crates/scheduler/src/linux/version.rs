//! Kernel versions as data: defaults, features, and which rules hold since when.
//!
//! | preset | kernels | fair class | defaults of one CPU (spec §0.3, §4.2, §5.2) | RT |
//! |---|---|---|---|---|
//! | `linux-2.6.24` | 2.6.24 … 2.6.27 | CFS | latency 20, min 4, wakeup 10 ms; full sleeper credit; child first | no throttling, no push and pull |
//! | `linux-2.6.32` | 2.6.32 | CFS | 5, 1, 1 ms; half credit | throttling with borrowing, push and pull |
//! | `linux-3.0` | ≈2.6.37 … 5.12 | CFS | 6, 0.75, 1 ms | the same |
//! | `linux-6.1` | 5.15 … 6.5 | CFS | 6, 0.75, 1 ms; ALT_PERIOD, BASE_SLICE | throttling without borrowing; SCHED_DEADLINE |
//! | `linux-6.6` | 6.6 … 6.11 | EEVDF | slice 0.75 ms | the same |
//! | `linux-6.12` | 6.12 … 6.16 | EEVDF, delayed dequeue | slice 0.70 ms | fair server |
//! | `linux-6.18` | 6.17, 6.18 | EEVDF, `vprot` | slice 0.70 ms | fair server |
//! | `linux-7.2` | 7.2 | EEVDF, HRTICK | slice 0.70 ms | fair server |

use crate::linux::fair::weights;
use schedlab_model::Ns;

/// What makes one kernel version. A further version is a further constant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    /// CFS: `latency_ns` before scaling; 0 for EEVDF.
    pub(super) latency: Ns,
    /// CFS: `min_granularity_ns` before scaling; EEVDF: `base_slice_ns` before scaling.
    pub(super) granularity: Ns,
    /// CFS: `wakeup_granularity_ns` before scaling.
    pub(super) wakeup_granularity: Ns,
    /// Fair tasks are picked by EEVDF.
    pub(super) eevdf: bool,
    /// Version of the rules as `major * 1000 + minor` (6012, 6018, 7002); 2.6.x as 2600 + x.
    pub(super) rules: u32,
    /// RT throttling of the root (2.6.25 to 6.11); the fair server replaces it.
    pub(super) rt_throttling: bool,
    /// Default of `sched_rt_runtime_us`.
    pub(super) rt_runtime_us: i64,
    /// Features of this version with their defaults.
    pub(super) features: &'static [(Feature, bool)],
}

/// `/sys/kernel/debug/sched/features`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(clippy::upper_case_acronyms, non_camel_case_types)]
pub(super) enum Feature {
    GENTLE_FAIR_SLEEPERS,
    START_DEBIT,
    NEXT_BUDDY,
    LAST_BUDDY,
    WAKEUP_PREEMPTION,
    ALT_PERIOD,
    BASE_SLICE,
    HRTICK,
    DOUBLE_TICK,
    RT_RUNTIME_SHARE,
    PLACE_LAG,
    PLACE_DEADLINE_INITIAL,
    PLACE_REL_DEADLINE,
    RUN_TO_PARITY,
    PREEMPT_SHORT,
    DELAY_DEQUEUE,
    DELAY_ZERO,
    HRTICK_DL,
}

impl Feature {
    /// The knob's name and what it does.
    pub(super) const fn knob(self) -> (&'static str, &'static str) {
        use Feature::*;
        match self {
            GENTLE_FAIR_SLEEPERS => {
                ("features.GENTLE_FAIR_SLEEPERS", "a sleeper is credited half a latency, not a whole one")
            }
            START_DEBIT => ("features.START_DEBIT", "a new task starts one slice behind"),
            NEXT_BUDDY => {
                ("features.NEXT_BUDDY", "the task woken last is preferred even if it did not preempt")
            }
            LAST_BUDDY => ("features.LAST_BUDDY", "a task preempted by a wakeup is preferred afterwards"),
            WAKEUP_PREEMPTION => ("features.WAKEUP_PREEMPTION", "a wakeup may preempt"),
            ALT_PERIOD => {
                ("features.ALT_PERIOD", "the period counts all tasks of the CPU, not those of the queue")
            }
            BASE_SLICE => ("features.BASE_SLICE", "a slice is at least min_granularity_ns"),
            HRTICK => ("features.HRTICK", "slices end by a timer of their own, not at a tick"),
            HRTICK_DL => {
                ("features.HRTICK_DL", "budgets of deadline tasks end by a timer of their own, not at a tick")
            }
            DOUBLE_TICK => ("features.DOUBLE_TICK", "with HRTICK, ticks check the slice too"),
            RT_RUNTIME_SHARE => ("features.RT_RUNTIME_SHARE", "a CPU may borrow RT run time from the others"),
            PLACE_LAG => ("features.PLACE_LAG", "a task keeps its lag over a sleep"),
            PLACE_DEADLINE_INITIAL => {
                ("features.PLACE_DEADLINE_INITIAL", "a new task starts with half a slice")
            }
            PLACE_REL_DEADLINE => ("features.PLACE_REL_DEADLINE", "a moved task keeps its relative deadline"),
            RUN_TO_PARITY => ("features.RUN_TO_PARITY", "a task runs protected until its request is served"),
            PREEMPT_SHORT => ("features.PREEMPT_SHORT", "a shorter slice breaks the protection"),
            DELAY_DEQUEUE => ("features.DELAY_DEQUEUE", "a task that blocks with negative lag stays queued"),
            DELAY_ZERO => ("features.DELAY_ZERO", "a delayed task leaves with no positive lag"),
        }
    }
}

/// CFS as of 2.6.24 … 2.6.27.
pub(super) const V2_6_24: Version = Version {
    latency: Ns(20_000_000),
    granularity: Ns(4_000_000),
    wakeup_granularity: Ns(10_000_000),
    eevdf: false,
    rules: 2624,
    rt_throttling: false,
    rt_runtime_us: -1,
    features: &[(Feature::START_DEBIT, true), (Feature::WAKEUP_PREEMPTION, true), (Feature::HRTICK, false)],
};

/// CFS as of 2.6.32.
pub(super) const V2_6_32: Version = Version {
    latency: Ns(5_000_000),
    granularity: Ns(1_000_000),
    wakeup_granularity: Ns(1_000_000),
    rules: 2632,
    rt_throttling: true,
    rt_runtime_us: 950_000,
    features: &[
        (Feature::GENTLE_FAIR_SLEEPERS, true),
        (Feature::START_DEBIT, true),
        (Feature::NEXT_BUDDY, false),
        (Feature::LAST_BUDDY, true),
        (Feature::WAKEUP_PREEMPTION, true),
        (Feature::HRTICK, false),
        (Feature::DOUBLE_TICK, false),
        (Feature::RT_RUNTIME_SHARE, true),
    ],
    ..V2_6_24
};

/// CFS as of about 2.6.37 … 5.12 (read in 3.0.27).
pub(super) const V3_0: Version =
    Version { latency: Ns(6_000_000), granularity: Ns(750_000), rules: 3000, ..V2_6_32 };

/// CFS as of 5.15 … 6.5.
pub(super) const V6_1: Version = Version {
    latency: Ns(6_000_000),
    granularity: Ns(750_000),
    wakeup_granularity: Ns(1_000_000),
    eevdf: false,
    rules: 6001,
    rt_throttling: true,
    rt_runtime_us: 950_000,
    features: &[
        (Feature::GENTLE_FAIR_SLEEPERS, true),
        (Feature::START_DEBIT, true),
        (Feature::NEXT_BUDDY, false),
        (Feature::LAST_BUDDY, true),
        (Feature::WAKEUP_PREEMPTION, true),
        (Feature::ALT_PERIOD, true),
        (Feature::BASE_SLICE, true),
        (Feature::HRTICK, false),
        (Feature::HRTICK_DL, false),
        (Feature::DOUBLE_TICK, false),
        (Feature::RT_RUNTIME_SHARE, false),
    ],
};

/// Features of EEVDF since 6.12.
const EEVDF: &[(Feature, bool)] = &[
    (Feature::PLACE_LAG, true),
    (Feature::PLACE_DEADLINE_INITIAL, true),
    (Feature::PLACE_REL_DEADLINE, true),
    (Feature::RUN_TO_PARITY, true),
    (Feature::PREEMPT_SHORT, true),
    (Feature::DELAY_DEQUEUE, true),
    (Feature::DELAY_ZERO, true),
    (Feature::WAKEUP_PREEMPTION, true),
    (Feature::HRTICK, false),
    (Feature::HRTICK_DL, false),
];

/// EEVDF as of 6.6 … 6.11.
pub(super) const V6_6: Version = Version {
    granularity: Ns(750_000),
    rules: 6006,
    rt_throttling: true,
    features: &[
        (Feature::PLACE_LAG, true),
        (Feature::PLACE_DEADLINE_INITIAL, true),
        (Feature::RUN_TO_PARITY, true),
        (Feature::WAKEUP_PREEMPTION, true),
        (Feature::HRTICK, false),
        (Feature::HRTICK_DL, false),
        (Feature::RT_RUNTIME_SHARE, false),
    ],
    ..V6_12
};

/// EEVDF as of late 6.12.y (base slice 0.70 ms; up to 6.14 it was 0.75 ms) to 6.16.
pub(super) const V6_12: Version = Version {
    latency: Ns(0),
    granularity: Ns(700_000),
    wakeup_granularity: Ns(0),
    eevdf: true,
    rules: 6012,
    rt_throttling: false,
    rt_runtime_us: 950_000,
    features: EEVDF,
};

/// EEVDF as of 6.17 and 6.18.
pub(super) const V6_18: Version = Version { rules: 6018, ..V6_12 };

/// Features of EEVDF since 7.x: as before, and slices end by a timer.
const EEVDF_7: &[(Feature, bool)] = &[
    (Feature::PLACE_LAG, true),
    (Feature::PLACE_DEADLINE_INITIAL, true),
    (Feature::PLACE_REL_DEADLINE, true),
    (Feature::RUN_TO_PARITY, true),
    (Feature::PREEMPT_SHORT, true),
    (Feature::DELAY_DEQUEUE, true),
    (Feature::DELAY_ZERO, true),
    (Feature::WAKEUP_PREEMPTION, true),
    (Feature::HRTICK, true),
    (Feature::HRTICK_DL, true),
];

/// EEVDF as of 7.2 (settings read back from Debian's 7.2.13).
pub(super) const V7_2: Version =
    Version { rules: 7002, rt_runtime_us: 1_000_000, features: EEVDF_7, ..V6_18 };

/// Which rules hold. Boundaries as in the specification; those it marks as remembered may be off by a release.
impl Version {
    /// The scaling factor counts 8 CPUs at most (since 2.6.33), and can be chosen.
    pub(super) const fn caps_scaling(&self) -> bool {
        self.rules >= 2633
    }
    /// How many tasks share a period of `latency`, after which it grows by `latency / 5` each (2.6.24 … 2.6.36);
    /// `None`: as many as fit by `min_granularity`, which it grows by.
    pub(super) const fn tasks_of_a_period(&self) -> Option<u32> {
        if self.rules < 2637 { Some(5) } else { None }
    }
    /// The wakeup granularity is scaled by the weight of the wakee, before by that of the running task.
    pub(super) const fn scales_by_wakee(&self) -> bool {
        self.rules >= 2630
    }
    /// The tick also looks at how far the running task leads.
    pub(super) const fn checks_lead(&self) -> bool {
        self.rules >= 2631
    }
    /// A task that wakes and should have preempted is preferred (the `next` buddy).
    pub(super) const fn has_buddies(&self) -> bool {
        self.rules >= 2628
    }
    /// `sched_yield` lets the second task go first; before, it only charges.
    pub(super) const fn yield_skips(&self) -> bool {
        self.rules >= 2639
    }
    /// SCHED_IDLE tasks are preempted by any other wakeup.
    pub(super) const fn idle_gives_way(&self) -> bool {
        self.rules >= 2629
    }
    /// Weight of SCHED_IDLE.
    pub(super) const fn idle_weight(&self) -> u64 {
        if self.rules < 2629 { 2 } else { weights::IDLE }
    }
    /// RT tasks are pushed and pulled over CPUs.
    pub(super) const fn pushes_rt(&self) -> bool {
        self.rules >= 2626
    }
    /// It has SCHED_DEADLINE.
    pub(super) const fn has_deadline(&self) -> bool {
        self.rules >= 3014
    }
    /// It has `cpu.max` (CFS bandwidth control).
    pub(super) const fn has_bandwidth(&self) -> bool {
        self.rules >= 3002
    }
    /// It has `cpu.idle` of groups.
    pub(super) const fn has_idle_groups(&self) -> bool {
        self.rules >= 5015
    }
    /// Sessions may be groups.
    pub(super) const fn has_autogroup(&self) -> bool {
        self.rules >= 2638
    }
    /// Tasks of SCHED_OTHER may ask for a slice.
    pub(super) const fn has_custom_slices(&self) -> bool {
        self.rules >= 6012
    }
    /// The fair server protects fair tasks from RT ones.
    pub(super) const fn has_fair_server(&self) -> bool {
        self.rules >= 6012
    }
    /// A running fair task is put back before the classes are asked in turn.
    pub(super) const fn puts_back_first(&self) -> bool {
        self.rules < 6012
    }
    /// A wakeup over a SCHED_IDLE task ends its protection.
    pub(super) const fn idle_loses_protection(&self) -> bool {
        self.rules >= 6012
    }
    /// Yield forfeits the rest of the request; before, the deadline moved by one request.
    pub(super) const fn yield_forfeits(&self) -> bool {
        self.rules >= 6012
    }
    /// Bandwidth takes whole queues off, not task by task.
    pub(super) const fn throttles_queues(&self) -> bool {
        self.rules < 6018
    }
    /// HRTICK is set when a task is switched in, or when others come; `schedule` does not clear it, and does not set
    /// it again when the running task goes on (7.1, "sched: Optimize hrtimer handling"; oracle 7.2.13: two equal hogs
    /// fall into whole ticks). Only idle clears it. Up to 7.3, which sets it again.
    pub(super) const fn hrtick_at_switch(&self) -> bool {
        self.rules >= 7001
    }
    /// A fair task asks lazily for a reschedule, and only a hard request lets `schedule` reuse the clock of the wakeup:
    /// lazy and full preemption are all that is left from 7.0 on, and lazy is the default.
    pub(super) const fn preempts_lazily(&self) -> bool {
        self.rules >= 7000
    }
    /// Saved lag is bounded by the longest request in the queue and a tick, before by two own requests or a tick
    /// (6.19).
    pub(super) const fn bounds_lag_by_longest(&self) -> bool {
        self.rules >= 6019
    }
    /// The lag of a delayed task is saved when it blocks; at its wakeup it is not below that (7.1, "Prevent negative
    /// lag increase during delayed dequeue").
    pub(super) const fn keeps_delayed_lag(&self) -> bool {
        self.rules >= 7001
    }
    /// A wakeup that asks who should run takes delayed entities off that should (7.1, "Fix wakeup_preempt_fair() vs
    /// delayed dequeue").
    pub(super) const fn wakeup_takes_delayed_off(&self) -> bool {
        self.rules >= 7001
    }
    /// A delayed wakee is placed by a fresh V. Inferred from the oracle 7.2.13 (40 of 45 scenarios inside and 90.0 % of
    /// the replayed choices equal, without it 34 and 87.9 %), not read in the source.
    pub(super) const fn charges_at_delayed_wake(&self) -> bool {
        self.rules >= 7002
    }
    /// The short way through the common case knows these rules.
    pub(super) const fn has_plain_way(&self) -> bool {
        self.rules < 6019
    }
    /// The fair servers count among what deadline tasks reserve. Inferred for 7.x from its limit of 1,000,000 us in
    /// 1,000,000; 6.12 admits 95 % to tasks alone (G20).
    pub(super) const fn counts_fair_server(&self) -> bool {
        self.rules >= 7002
    }
    /// The name of a tunable of CFS: a sysctl up to 5.12, a file of debugfs since.
    pub(super) const fn named(&self, sysctl: &'static str, debugfs: &'static str) -> &'static str {
        if self.rules < 5013 { sysctl } else { debugfs }
    }
    /// Its sched_feature of this name.
    pub(super) fn feature_name(&self, feature: Feature) -> &'static str {
        match feature {
            Feature::WAKEUP_PREEMPTION if self.rules < 3003 => "features.WAKEUP_PREEMPT",
            feature => feature.knob().0,
        }
    }
}
