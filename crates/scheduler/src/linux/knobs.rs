//! The knobs of Linux. Each is declared once, with the versions that have it.

pub(super) mod balance;

use super::version::{Feature, Version};
use crate::{
    FlagKnob, Knob, KnobDefault, Knobs, NumberKnob, Row, TimeKnob, Times, Typed, exact_time,
};
use schedlab_model::Ns;

/// What defaults depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) version: Version,
    /// By how much the defaults of the fair class grow with the CPUs.
    pub(super) factor: u64,
}

impl Setup {
    /// The text of a default that grows with the CPUs.
    fn scaled(&self, base: Ns) -> String {
        let by = if self.version.scaling_counts_eight_cpus() {
            "the scaling factor"
        } else {
            "1 + log2 of the CPUs"
        };
        format!("{} times {by}", exact_time(base))
    }
    /// A default that grows with the CPUs, up to 200 ms as long as it counts all of them
    /// (`update_sysctl` of 2.6.32).
    fn scaled_period(&self, base: Ns) -> Ns {
        let scaled = Ns(base.0 * self.factor);
        if self.version.scaling_counts_eight_cpus() { scaled } else { scaled.min(Ns::from_ms(200)) }
    }
}

/// A knob that some versions have.
pub(super) struct Versioned<K> {
    knob: K,
    has: fn(&Version) -> bool,
    /// Its name as a sysctl, before it became a file of debugfs.
    sysctl: Option<&'static str>,
}

/// A knob that every version has.
const fn always<K>(knob: K) -> Versioned<K> {
    only(|_| true, knob)
}

/// A knob of the versions that pass a test.
const fn only<K>(has: fn(&Version) -> bool, knob: K) -> Versioned<K> {
    Versioned { knob, has, sysctl: None }
}

/// A knob of CFS, which was a sysctl of another name up to 5.12.
const fn of_cfs<K>(sysctl: &'static str, knob: K) -> Versioned<K> {
    Versioned { knob, has: |version| !version.release.has_eevdf(), sysctl: Some(sysctl) }
}

impl<K> Versioned<K> {
    fn old_name(&self, version: &Version) -> Option<&'static str> {
        self.sysctl.filter(|_| !version.tunables_in_debugfs())
    }
}

impl<K: Row<Setup>> Row<Setup> for Versioned<K> {
    fn row(&self, setup: &Setup) -> Option<Knob> {
        let row = self.knob.row(setup).filter(|_| (self.has)(&setup.version))?;
        Some(Knob { name: self.old_name(&setup.version).unwrap_or(row.name), ..row })
    }
}

impl<K: Typed<Setup>> Typed<Setup> for Versioned<K> {
    type Value = K::Value;
    fn read(&self, knobs: &Knobs, setup: &Setup) -> K::Value {
        match self.old_name(&setup.version) {
            Some(name) => self.knob.read_as(name, knobs, setup),
            None => self.knob.read(knobs, setup),
        }
    }
    fn read_as(&self, name: &str, knobs: &Knobs, setup: &Setup) -> K::Value {
        self.knob.read_as(name, knobs, setup)
    }
}

/// Returns the knobs that a scheduler of this version has.
pub(super) fn rows(version: &Version) -> Vec<Knob> {
    let setup = Setup { version: *version, factor: 1 };
    let mut rows = crate::rows(ALL, &setup);
    rows.extend(crate::rows(balance::ALL, &setup));
    rows.extend(version.features.iter().filter_map(|(feature, _)| feature.row(&setup)));
    rows
}

const ALL: &[&dyn Row<Setup>] = &[
    &TUNABLE_SCALING,
    &BASE_SLICE,
    &LATENCY,
    &MIN_GRANULARITY,
    &IDLE_MIN_GRANULARITY,
    &WAKEUP_GRANULARITY,
    &CHILD_RUNS_FIRST,
    &RR_TIMESLICE,
    &DEADLINE_PERIOD_MIN,
    &DEADLINE_PERIOD_MAX,
    &DL_RECLAIM,
    &FAIR_SERVER_RUNTIME,
    &FAIR_SERVER_PERIOD,
    &RT_PERIOD,
    &RT_RUNTIME,
];

/// What the kernel allows for times of the fair class (`min_sched_granularity_ns`,
/// `max_sched_granularity_ns`).
const FAIR_TIMES: Times = Times::between(Ns::from_us(100), Ns::from_s(1));

pub(super) const TUNABLE_SCALING: Versioned<NumberKnob<Setup>> = only(
    Version::scaling_counts_eight_cpus,
    NumberKnob {
        name: "tunable_scaling",
        unit: "",
        allowed: (0, 2),
        default: KnobDefault::Is(1),
        doc: "defaults grow with the CPUs (8 at most): 0 not at all, 1 as 1 + log2, 2 in proportion",
        source: "kernel/sched/fair.c, sysctl_sched_tunable_scaling, 2.6.33",
    },
);

pub(super) const BASE_SLICE: Versioned<TimeKnob<Setup>> = only(
    |version| version.release.has_eevdf(),
    TimeKnob {
        name: "base_slice_ns",
        allowed: FAIR_TIMES,
        default: KnobDefault::InWords(
            |setup| Ns(setup.version.granularity.0 * setup.factor),
            |setup| setup.scaled(setup.version.granularity),
        ),
        doc: "the default request",
        source: "kernel/sched/fair.c, sysctl_sched_base_slice, 6.6; 0.70 ms since 6.15 and in \
                 late 6.12.y",
    },
);

pub(super) const LATENCY: Versioned<TimeKnob<Setup>> = of_cfs(
    "sched_latency_ns",
    TimeKnob {
        name: "latency_ns",
        allowed: FAIR_TIMES,
        default: KnobDefault::InWords(
            |setup| setup.scaled_period(setup.version.latency),
            |setup| setup.scaled(setup.version.latency),
        ),
        doc: "the period in which each runnable task runs once",
        source: "kernel/sched/fair.c, sysctl_sched_latency",
    },
);

pub(super) const MIN_GRANULARITY: Versioned<TimeKnob<Setup>> = of_cfs(
    "sched_min_granularity_ns",
    TimeKnob {
        name: "min_granularity_ns",
        allowed: FAIR_TIMES,
        default: KnobDefault::InWords(
            |setup| setup.scaled_period(setup.version.granularity),
            |setup| setup.scaled(setup.version.granularity),
        ),
        doc: "the least slice",
        source: "kernel/sched/fair.c, sysctl_sched_min_granularity",
    },
);

pub(super) const IDLE_MIN_GRANULARITY: Versioned<TimeKnob<Setup>> = only(
    |version| version.has_feature(Feature::BASE_SLICE),
    TimeKnob {
        name: "idle_min_granularity_ns",
        allowed: FAIR_TIMES,
        default: KnobDefault::Is(Ns::from_us(750)),
        doc: "the least slice of SCHED_IDLE beside other tasks",
        source: "kernel/sched/fair.c, sysctl_sched_idle_min_granularity, 5.15",
    },
);

pub(super) const WAKEUP_GRANULARITY: Versioned<TimeKnob<Setup>> = of_cfs(
    "sched_wakeup_granularity_ns",
    TimeKnob {
        name: "wakeup_granularity_ns",
        allowed: FAIR_TIMES,
        default: KnobDefault::InWords(
            |setup| Ns(setup.version.wakeup_granularity.0 * setup.factor),
            |setup| setup.scaled(setup.version.wakeup_granularity),
        ),
        doc: "how far behind a wakee must be to preempt",
        source: "kernel/sched/fair.c, sysctl_sched_wakeup_granularity",
    },
);

pub(super) const CHILD_RUNS_FIRST: Versioned<FlagKnob<Setup>> = of_cfs(
    "sched_child_runs_first",
    FlagKnob {
        name: "child_runs_first",
        default: KnobDefault::By(|setup| !setup.version.parent_runs_first()),
        doc: "a new task runs before its parent goes on",
        source: "kernel/sched/fair.c, sysctl_sched_child_runs_first",
    },
);

pub(super) const RR_TIMESLICE: Versioned<NumberKnob<Setup>> = only(
    Version::rr_slice_can_be_set,
    NumberKnob {
        name: "sched_rr_timeslice_ms",
        unit: "ms",
        allowed: (1, 10_000),
        default: KnobDefault::Is(100),
        doc: "slice of SCHED_RR, rounded up to whole ticks",
        source: "kernel/sched/rt.c, sched_rr_timeslice, 3.9",
    },
);

pub(super) const DEADLINE_PERIOD_MIN: Versioned<NumberKnob<Setup>> = only(
    Version::has_deadline,
    NumberKnob {
        name: "sched_deadline_period_min_us",
        unit: "us",
        allowed: (1, i32::MAX as i64),
        default: KnobDefault::Is(100),
        doc: "the shortest PERIOD of a SCHED_DEADLINE task",
        source: "kernel/sched/deadline.c, sysctl_sched_dl_period_min",
    },
);

pub(super) const DEADLINE_PERIOD_MAX: Versioned<NumberKnob<Setup>> = only(
    Version::has_deadline,
    NumberKnob {
        name: "sched_deadline_period_max_us",
        unit: "us",
        allowed: (1, i32::MAX as i64),
        default: KnobDefault::Is(1 << 22),
        doc: "the longest PERIOD of a SCHED_DEADLINE task",
        source: "kernel/sched/deadline.c, sysctl_sched_dl_period_max",
    },
);

pub(super) const DL_RECLAIM: Versioned<FlagKnob<Setup>> = only(
    Version::has_deadline,
    FlagKnob {
        name: "dl_reclaim",
        default: KnobDefault::Is(false),
        doc: "SCHED_FLAG_RECLAIM on every SCHED_DEADLINE task (a flag of each task in the real \
              system): unused \
              bandwidth of others stretches its budget (GRUB)",
        source: "kernel/sched/deadline.c, grub_reclaim; Documentation/scheduler/sched-deadline.rst",
    },
);

pub(super) const FAIR_SERVER_RUNTIME: Versioned<TimeKnob<Setup>> = only(
    Version::has_fair_server,
    TimeKnob {
        name: "fair_server_runtime_ns",
        allowed: Times::between(Ns::ZERO, Ns::from_us(1 << 22)),
        default: KnobDefault::Is(Ns::from_ms(50)),
        doc: "CPU time kept for fair tasks in each period (at most the period); 0 = none",
        source: "kernel/sched/debug.c, debugfs fair_server/cpuN/runtime, 6.12",
    },
);

pub(super) const FAIR_SERVER_PERIOD: Versioned<TimeKnob<Setup>> = only(
    Version::has_fair_server,
    TimeKnob {
        name: "fair_server_period_ns",
        allowed: Times::between(Ns::from_us(100), Ns::from_us(1 << 22)),
        default: KnobDefault::Is(Ns::from_s(1)),
        doc: "the period of the fair server",
        source: "kernel/sched/debug.c, debugfs fair_server/cpuN/period, 6.12",
    },
);

pub(super) const RT_PERIOD: Versioned<NumberKnob<Setup>> = only(
    |version| version.rt_throttling || version.has_fair_server(),
    NumberKnob {
        name: "sched_rt_period_us",
        unit: "us",
        allowed: (1, i32::MAX as i64),
        default: KnobDefault::Is(1_000_000),
        doc: "the period that sched_rt_runtime_us refers to",
        source: "kernel/sched/rt.c, sysctl_sched_rt_period, 2.6.25",
    },
);

pub(super) const RT_RUNTIME: Versioned<NumberKnob<Setup>> = only(
    |version| version.rt_throttling || version.has_fair_server(),
    NumberKnob {
        name: "sched_rt_runtime_us",
        unit: "us",
        allowed: (-1, i32::MAX as i64),
        default: KnobDefault::By(|setup| setup.version.rt_runtime_us),
        doc: "up to 6.11 the run time of RT tasks in each period; since 3.14 also the limit of \
              what SCHED_DEADLINE may \
              reserve, since 6.12 nothing else: FIFO and RR tasks do not feel it then; -1 = no \
              limit",
        source: "kernel/sched/rt.c, sysctl_sched_rt_runtime, 2.6.25; \"Remove default bandwidth \
                 control\", 6.12",
    },
);

/// A feature is a knob of the versions that list it.
impl Row<Setup> for Feature {
    fn row(&self, setup: &Setup) -> Option<Knob> {
        let default = KnobDefault::Is(setup.version.default_of(*self)?);
        let (name, doc) = (setup.version.feature_name(*self), self.doc());
        FlagKnob::<Setup> { name, default, doc, source: "kernel/sched/features.h" }.row(setup)
    }
}

impl Typed<Setup> for Feature {
    type Value = bool;
    fn read(&self, knobs: &Knobs, setup: &Setup) -> bool {
        self.read_as(setup.version.feature_name(*self), knobs, setup)
    }
    /// Off in a version that does not list it.
    fn read_as(&self, name: &str, knobs: &Knobs, setup: &Setup) -> bool {
        let default = setup.version.default_of(*self);
        default.is_some_and(|default| {
            let knob = FlagKnob::<Setup> {
                name: "",
                default: KnobDefault::Is(default),
                doc: "",
                source: "",
            };
            knob.read_as(name, knobs, setup)
        })
    }
}
