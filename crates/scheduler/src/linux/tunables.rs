//! Versions as data, and the knobs of a version resolved for one machine.

use super::smp_tunables::{self, SmpTunables};
use crate::{Knob, KnobKind, Knobs};
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
    /// Version of the EEVDF rules as `major * 1000 + minor` (6012, 6018, 7002); 0 for CFS.
    pub(super) rules: u32,
    /// RT throttling of the root (until 6.11); the fair server replaces it.
    pub(super) rt_throttling: bool,
    /// It has SCHED_DEADLINE (3.14 and later).
    pub(super) deadline: bool,
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
    const fn knob(self) -> (&'static str, &'static str) {
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
            HRTICK_DL => ("features.HRTICK_DL", "budgets of deadline tasks end by a timer of their own, not at a tick"),
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

/// CFS as of 5.15 … 6.5.
pub(super) const V6_1: Version = Version {
    latency: Ns(6_000_000),
    granularity: Ns(750_000),
    wakeup_granularity: Ns(1_000_000),
    eevdf: false,
    rules: 0,
    rt_throttling: true,
    deadline: true,
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

/// EEVDF as of late 6.12.y (base slice 0.70 ms; up to 6.14 it was 0.75 ms) to 6.16.
pub(super) const V6_12: Version = Version {
    latency: Ns(0),
    granularity: Ns(700_000),
    wakeup_granularity: Ns(0),
    eevdf: true,
    rules: 6012,
    rt_throttling: false,
    deadline: true,
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

/// The largest settable time of the fair class's tunables (the kernel's own limit).
const MAX_SLICE: Ns = Ns::from_s(1);

/// The knobs that a scheduler of this version has.
pub(super) fn knobs(version: &Version) -> Vec<Knob> {
    let time = |name, default, doc| Knob { name, kind: KnobKind::Time(Ns(100_000), MAX_SLICE), default, doc };
    let mut knobs = vec![Knob {
        name: "tunable_scaling",
        kind: KnobKind::Number(0, 2),
        default: "1",
        doc: "defaults grow with the CPUs (8 at most): 0 not at all, 1 as 1 + log2, 2 in proportion",
    }];
    if version.eevdf {
        knobs.push(time("base_slice_ns", "by version, times the scaling factor", "the default request"));
    } else {
        knobs.extend([
            time(
                "latency_ns",
                "6ms times the scaling factor",
                "the period in which each runnable task runs once",
            ),
            time("min_granularity_ns", "0.75ms times the scaling factor", "the least slice"),
            time("idle_min_granularity_ns", "0.75ms", "the least slice of SCHED_IDLE beside other tasks"),
            time(
                "wakeup_granularity_ns",
                "1ms times the scaling factor",
                "how far behind a wakee must be to preempt",
            ),
            Knob {
                name: "child_runs_first",
                kind: KnobKind::Flag,
                default: "off",
                doc: "a new task runs before its parent goes on",
            },
        ]);
    }
    rt_knobs(version, &mut knobs);
    // CFS only: since EEVDF nothing sets the buddies that it looks at (NEXT_BUDDY is off and not modelled).
    knobs.extend(
        smp_tunables::knobs().into_iter().filter(|k| !version.eevdf || k.name != "features.CACHE_HOT_BUDDY"),
    );
    knobs.extend(version.features.iter().map(|&(feature, default)| {
        let (name, doc) = feature.knob();
        Knob { name, kind: KnobKind::Flag, default: if default { "on" } else { "off" }, doc }
    }));
    knobs
}

/// The knobs of the RT class, and of what protects the others from it.
fn rt_knobs(version: &Version, knobs: &mut Vec<Knob>) {
    knobs.push(Knob {
        name: "sched_rr_timeslice_ms",
        kind: KnobKind::Number(1, 10_000),
        default: "100",
        doc: "slice of SCHED_RR in milliseconds",
    });
    if version.rt_throttling {
        knobs.extend([
            Knob {
                name: "sched_rt_period_us",
                kind: KnobKind::Number(1, i32::MAX as i64),
                default: "1000000",
                doc: "period of RT throttling in microseconds",
            },
            Knob {
                name: "sched_rt_runtime_us",
                kind: KnobKind::Number(-1, i32::MAX as i64),
                default: "950000",
                doc: "run time of RT tasks in each period in microseconds, and the admission limit of \
                      SCHED_DEADLINE; -1 = no limit",
            },
        ]);
    }
    if version.deadline {
        deadline_knobs(knobs);
    }
    if !version.rt_throttling {
        let period = KnobKind::Time(Ns::from_us(100), Ns::from_us(1 << 22));
        knobs.extend([
            Knob {
                name: "fair_server_runtime_ns",
                kind: KnobKind::Time(Ns::ZERO, Ns::from_us(1 << 22)),
                default: "50ms",
                doc: "debugfs fair_server/cpuN/runtime: CPU time kept for fair tasks in each period (at most the \
                      period); 0 = none",
            },
            Knob {
                name: "fair_server_period_ns",
                kind: period,
                default: "1s",
                doc: "debugfs fair_server/cpuN/period",
            },
            Knob {
                name: "sched_rt_runtime_us",
                kind: KnobKind::Number(-1, i32::MAX as i64),
                default: if version.rt_runtime_us == 1_000_000 { "1000000" } else { "950000" },
                doc: "since 6.12 only the admission limit of SCHED_DEADLINE (-1 = none): FIFO and RR tasks do not \
                      feel it",
            },
            Knob {
                name: "sched_rt_period_us",
                kind: KnobKind::Number(1, i32::MAX as i64),
                default: "1000000",
                doc: "the period that sched_rt_runtime_us refers to",
            },
        ]);
    }
}

/// The knobs of the deadline class.
fn deadline_knobs(knobs: &mut Vec<Knob>) {
    let period = |name, default, doc| Knob { name, kind: KnobKind::Number(1, i32::MAX as i64), default, doc };
    knobs.extend([
        period(
            "sched_deadline_period_min_us",
            "100",
            "the shortest PERIOD of a SCHED_DEADLINE task in microseconds",
        ),
        period(
            "sched_deadline_period_max_us",
            "4194304",
            "the longest PERIOD of a SCHED_DEADLINE task in microseconds",
        ),
        Knob {
            name: "dl_reclaim",
            kind: KnobKind::Flag,
            default: "off",
            doc: "SCHED_FLAG_RECLAIM on every SCHED_DEADLINE task (a flag of each task in the real system): unused \
                  bandwidth of others stretches its budget (GRUB)",
        },
    ]);
}

/// The knobs of a version, resolved for a machine.
#[derive(Clone, Debug)]
pub(super) struct Tunables {
    /// The version.
    pub(super) version: Version,
    /// CFS period, ns.
    pub(super) latency: u64,
    /// CFS least slice, ns.
    pub(super) min_granularity: u64,
    /// CFS least slice of SCHED_IDLE tasks beside others, ns.
    pub(super) idle_min_granularity: u64,
    /// CFS wakeup granularity, ns.
    pub(super) wakeup_granularity: u64,
    /// CFS: with more tasks than this the period grows (`latency / min_granularity`, rounded up).
    pub(super) nr_latency: u32,
    /// EEVDF default request, ns, scaled.
    pub(super) base_slice: u64,
    /// EEVDF default request before scaling, ns.
    pub(super) base_slice_unscaled: u64,
    /// CFS: a child goes before its parent.
    pub(super) child_runs_first: bool,
    /// Slice of SCHED_RR, ns.
    pub(super) rr_slice: u64,
    /// Period of RT throttling, ns.
    pub(super) rt_period: u64,
    /// RT run time in each period, ns; `u64::MAX` = no limit.
    pub(super) rt_runtime: u64,
    /// Shortest and longest period of a deadline task, ns.
    pub(super) dl_period_min: u64,
    pub(super) dl_period_max: u64,
    /// Deadline tasks take what others reserved and do not use.
    pub(super) dl_reclaim: bool,
    /// Budget of the fair server; 0 = off.
    pub(super) fair_server_runtime: Ns,
    /// Period of the fair server.
    pub(super) fair_server_period: Ns,
    /// Balancing, placement, bandwidth and autogroup.
    pub(super) smp: SmpTunables,
    features: u64,
}

impl Tunables {
    /// Resolves the knobs for a machine with `cpus` CPUs.
    pub(super) fn new(version: Version, cpus: usize, knobs: &Knobs) -> Tunables {
        let factor = factor(cpus, knobs.number("tunable_scaling", 1));
        let time = |name: &str, default: u64| knobs.time(name, Ns(default)).0;
        let latency = time("latency_ns", version.latency.0 * factor);
        let min_granularity = time("min_granularity_ns", version.granularity.0 * factor);
        let mut features = 0;
        for &(feature, default) in version.features {
            features |= u64::from(knobs.flag(feature.knob().0, default)) << feature as u8;
        }
        Tunables {
            version,
            latency,
            min_granularity,
            idle_min_granularity: time("idle_min_granularity_ns", 750_000),
            wakeup_granularity: time("wakeup_granularity_ns", version.wakeup_granularity.0 * factor),
            nr_latency: latency.div_ceil(min_granularity) as u32,
            base_slice: time("base_slice_ns", version.granularity.0 * factor),
            base_slice_unscaled: version.granularity.0,
            child_runs_first: knobs.flag("child_runs_first", false),
            rr_slice: knobs.number("sched_rr_timeslice_ms", 100) as u64 * 1_000_000,
            rt_period: knobs.number("sched_rt_period_us", 1_000_000) as u64 * 1_000,
            rt_runtime: match knobs.number("sched_rt_runtime_us", version.rt_runtime_us) {
                us if us < 0 => u64::MAX,
                us => us as u64 * 1_000,
            },
            dl_period_min: knobs.number("sched_deadline_period_min_us", 100) as u64 * 1_000,
            dl_period_max: knobs.number("sched_deadline_period_max_us", 1 << 22) as u64 * 1_000,
            dl_reclaim: knobs.flag("dl_reclaim", false),
            fair_server_runtime: if version.rt_throttling {
                Ns::ZERO
            } else {
                let period = knobs.time("fair_server_period_ns", Ns::from_s(1));
                knobs.time("fair_server_runtime_ns", Ns::from_ms(50)).min(period)
            },
            fair_server_period: knobs.time("fair_server_period_ns", Ns::from_s(1)),
            smp: SmpTunables::new(knobs),
            features,
        }
    }

    /// A running fair task is put back before the classes are asked in turn (until 6.11).
    pub(super) const fn puts_back_first(&self) -> bool {
        self.version.rules < 6012
    }

    /// The fair servers count among what deadline tasks reserve. Inferred for 7.x from its limit of 1,000,000 us in
    /// 1,000,000; 6.12 admits 95 % to tasks alone (G20).
    pub(super) const fn counts_fair_server(&self) -> bool {
        self.version.rules >= 7002
    }

    /// The part of a CPU that deadline tasks may have, 20-bit fixed point.
    pub(super) fn dl_most(&self) -> u64 {
        super::dl::admission::most(self).unwrap_or(1 << super::dl::cbs::BW_SHIFT)
    }

    /// Bandwidth takes whole queues off, not task by task (until 6.17).
    pub(super) const fn throttles_queues(&self) -> bool {
        self.version.rules < 6018
    }

    /// HRTICK is set when a task is switched in, not again when `schedule` lets the running one go on (oracle
    /// 7.2.13: two equal hogs fall into whole ticks; with three the running one is never picked again).
    pub(super) const fn hrtick_at_switch(&self) -> bool {
        self.version.rules >= 7002
    }

    /// A delayed wakee is placed by a fresh V. Inferred from the oracle 7.2.13 (38 of 45 scenarios inside, without
    /// it 34), not read in the source.
    pub(super) const fn charges_at_delayed_wake(&self) -> bool {
        self.version.rules >= 7002
    }

    /// Whether a feature is on.
    #[inline]
    pub(super) const fn has(&self, feature: Feature) -> bool {
        self.features >> feature as u8 & 1 != 0
    }
}

/// By how much the defaults grow with the number of CPUs (counted up to 8).
fn factor(cpus: usize, scaling: i64) -> u64 {
    let cpus = cpus.clamp(1, 8) as u64;
    match scaling {
        0 => 1,
        1 => 1 + u64::from(cpus.ilog2()),
        _ => cpus,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec §10.3-5.
    #[test]
    fn factors_follow_the_logarithm_up_to_8_cpus() {
        let factors: Vec<u64> = [1, 2, 3, 4, 5, 6, 7, 8, 32].iter().map(|&cpus| factor(cpus, 1)).collect();
        assert_eq!(factors, [1, 2, 2, 3, 3, 3, 3, 4, 4]);
        let eight = Tunables::new(V6_1, 8, &Knobs::default());
        assert_eq!((eight.latency, eight.min_granularity), (24_000_000, 3_000_000));
        assert_eq!((eight.wakeup_granularity, eight.nr_latency), (4_000_000, 8));
        assert_eq!(eight.idle_min_granularity, 750_000);
        let one = Tunables::new(V6_1, 1, &Knobs::default());
        assert_eq!(
            (one.latency, one.min_granularity, one.wakeup_granularity),
            (6_000_000, 750_000, 1_000_000)
        );
    }
}
