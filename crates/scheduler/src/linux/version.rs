//! Kernel versions as data: defaults, features, and which rules hold since when.
//!
//! | preset | kernels | fair class | defaults of one CPU (kernel/sched_fair.c, since 3.3 kernel/sched/fair.c) | RT |
//! |---|---|---|---|---|
//! | `linux-2.6.24` | 2.6.24 … 2.6.27 | CFS | latency 20, min 4, wakeup 10 ms; full sleeper credit; child first | no throttling, no push and pull |
//! | `linux-2.6.32` | 2.6.32 | CFS | 5, 1, 1 ms; half credit | throttling with borrowing, push and pull |
//! | `linux-3.0` | ≈2.6.37 … 3.1 | CFS | 6, 0.75, 1 ms | the same |
//! | `linux-3.10` | 3.2 … 3.15 | CFS, `cpu.max` whose slices expire | the same | the same |
//! | `linux-4.9` | 3.16 … 4.17 | CFS, `cpu.max` | the same | the same; SCHED_DEADLINE |
//! | `linux-4.19` | 4.18 … 5.3 | CFS, `cpu.max` whose slices expire | the same | the same |
//! | `linux-5.10` | 5.4 … 5.12 | CFS, `cpu.max` | the same | throttling without borrowing (5.10) |
//! | `linux-6.1` | 5.15 … 6.5 | CFS | 6, 0.75, 1 ms; ALT_PERIOD, BASE_SLICE | throttling without borrowing; SCHED_DEADLINE |
//! | `linux-6.6` | 6.6 … 6.11 | EEVDF | slice 0.75 ms | the same |
//! | `linux-6.12` | 6.12 … 6.16 | EEVDF, delayed dequeue | slice 0.70 ms | fair server |
//! | `linux-6.18` | 6.17, 6.18 | EEVDF, `vprot` | slice 0.70 ms | fair server |
//! | `linux-7.2` | 7.2 | EEVDF, HRTICK | slice 0.70 ms | fair server |

mod rules;

use super::release::KernelRelease;
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
    /// Rules of the kernel up to this release hold.
    pub(super) release: KernelRelease,
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
    /// The name of its knob.
    const fn name(self) -> &'static str {
        use Feature::*;
        match self {
            GENTLE_FAIR_SLEEPERS => "features.GENTLE_FAIR_SLEEPERS",
            START_DEBIT => "features.START_DEBIT",
            NEXT_BUDDY => "features.NEXT_BUDDY",
            LAST_BUDDY => "features.LAST_BUDDY",
            WAKEUP_PREEMPTION => "features.WAKEUP_PREEMPTION",
            ALT_PERIOD => "features.ALT_PERIOD",
            BASE_SLICE => "features.BASE_SLICE",
            HRTICK => "features.HRTICK",
            HRTICK_DL => "features.HRTICK_DL",
            DOUBLE_TICK => "features.DOUBLE_TICK",
            RT_RUNTIME_SHARE => "features.RT_RUNTIME_SHARE",
            PLACE_LAG => "features.PLACE_LAG",
            PLACE_DEADLINE_INITIAL => "features.PLACE_DEADLINE_INITIAL",
            PLACE_REL_DEADLINE => "features.PLACE_REL_DEADLINE",
            RUN_TO_PARITY => "features.RUN_TO_PARITY",
            PREEMPT_SHORT => "features.PREEMPT_SHORT",
            DELAY_DEQUEUE => "features.DELAY_DEQUEUE",
            DELAY_ZERO => "features.DELAY_ZERO",
        }
    }
    /// What it does when it is on.
    pub(super) const fn doc(self) -> &'static str {
        use Feature::*;
        match self {
            GENTLE_FAIR_SLEEPERS => "a sleeper is credited half a latency, not a whole one",
            START_DEBIT => "a new task starts one slice behind",
            NEXT_BUDDY => "the task woken last is preferred even if it did not preempt",
            LAST_BUDDY => "a task preempted by a wakeup is preferred afterwards",
            WAKEUP_PREEMPTION => "a wakeup may preempt",
            ALT_PERIOD => "the period counts all tasks of the CPU, not those of the queue",
            BASE_SLICE => "a slice is at least min_granularity_ns",
            HRTICK => "slices end by a timer of their own, not at a tick",
            HRTICK_DL => "budgets of deadline tasks end by a timer of their own, not at a tick",
            DOUBLE_TICK => "with HRTICK, ticks check the slice too",
            RT_RUNTIME_SHARE => "a CPU may borrow RT run time from the others",
            PLACE_LAG => "a task keeps its lag over a sleep",
            PLACE_DEADLINE_INITIAL => "a new task starts with half a slice",
            PLACE_REL_DEADLINE => "a moved task keeps its relative deadline",
            RUN_TO_PARITY => "a task runs protected until its request is served",
            PREEMPT_SHORT => "a shorter slice breaks the protection",
            DELAY_DEQUEUE => "a task that blocks with negative lag stays queued",
            DELAY_ZERO => "a delayed task leaves with no positive lag",
        }
    }
}

/// CFS as of 2.6.24 … 2.6.27.
pub(super) const V2_6_24: Version = Version {
    latency: Ns(20_000_000),
    granularity: Ns(4_000_000),
    wakeup_granularity: Ns(10_000_000),
    release: KernelRelease::new(2, 6, 24),
    rt_throttling: false,
    rt_runtime_us: -1,
    features: &[
        (Feature::START_DEBIT, true),
        (Feature::WAKEUP_PREEMPTION, true),
        (Feature::HRTICK, false),
    ],
};

/// Features of CFS from 2.6.32 to 5.12; `share` is the default of RT_RUNTIME_SHARE.
const fn cfs(share: bool) -> [(Feature, bool); 8] {
    [
        (Feature::GENTLE_FAIR_SLEEPERS, true),
        (Feature::START_DEBIT, true),
        (Feature::NEXT_BUDDY, false),
        (Feature::LAST_BUDDY, true),
        (Feature::WAKEUP_PREEMPTION, true),
        (Feature::HRTICK, false),
        (Feature::DOUBLE_TICK, false),
        (Feature::RT_RUNTIME_SHARE, share),
    ]
}

/// CFS as of 2.6.32.
pub(super) const V2_6_32: Version = Version {
    latency: Ns(5_000_000),
    granularity: Ns(1_000_000),
    wakeup_granularity: Ns(1_000_000),
    release: KernelRelease::new(2, 6, 32),
    rt_throttling: true,
    rt_runtime_us: 950_000,
    features: &cfs(true),
};

/// CFS as of about 2.6.37 … 3.1 (read in 3.0.27).
pub(super) const V3_0: Version = Version {
    latency: Ns(6_000_000),
    granularity: Ns(750_000),
    release: KernelRelease::new(3, 0, 0),
    ..V2_6_32
};

/// CFS as of 3.2 … 3.15: `cpu.max`, by its old names `cpu.cfs_quota_us` and `cpu.cfs_period_us`.
pub(super) const V3_10: Version = Version { release: KernelRelease::new(3, 10, 0), ..V3_0 };

/// CFS as of 3.16 … 4.17.
pub(super) const V4_9: Version = Version { release: KernelRelease::new(4, 9, 0), ..V3_0 };

/// CFS as of 4.18 … 5.3.
pub(super) const V4_19: Version = Version { release: KernelRelease::new(4, 19, 0), ..V3_0 };

/// CFS as of 5.4 … 5.12.
pub(super) const V5_10: Version = Version {
    release: KernelRelease::new(5, 10, 0),
    // "sched/rt: Disable RT_RUNTIME_SHARE by default" (5.10).
    features: &cfs(false),
    ..V3_0
};

/// CFS as of 5.15 … 6.5.
pub(super) const V6_1: Version = Version {
    latency: Ns(6_000_000),
    granularity: Ns(750_000),
    wakeup_granularity: Ns(1_000_000),
    release: KernelRelease::new(6, 1, 0),
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
    release: KernelRelease::new(6, 6, 0),
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
    release: KernelRelease::new(6, 12, 0),
    rt_throttling: false,
    rt_runtime_us: 950_000,
    features: EEVDF,
};

/// EEVDF as of 6.17 and 6.18.
pub(super) const V6_18: Version = Version { release: KernelRelease::new(6, 18, 0), ..V6_12 };

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
pub(super) const V7_2: Version = Version {
    release: KernelRelease::new(7, 2, 0),
    rt_runtime_us: 1_000_000,
    features: EEVDF_7,
    ..V6_18
};

impl Version {
    /// Returns the default of a feature; `None` when the version does not have it.
    pub(super) fn default_of(&self, feature: Feature) -> Option<bool> {
        self.features.iter().find(|(known, _)| *known == feature).map(|(_, default)| *default)
    }
    /// Returns whether its `kernel/sched/features.h` lists the feature.
    pub(super) fn has_feature(&self, feature: Feature) -> bool {
        self.default_of(feature).is_some()
    }
    /// Returns the name of the knob of a feature.
    pub(super) fn feature_name(&self, feature: Feature) -> &'static str {
        match feature {
            Feature::WAKEUP_PREEMPTION if !self.wakeup_preemption_by_its_long_name() => {
                "features.WAKEUP_PREEMPT"
            }
            feature => feature.name(),
        }
    }
}
