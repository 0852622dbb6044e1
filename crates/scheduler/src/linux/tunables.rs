//! The knobs of a version, resolved for one machine.

use crate::linux::dl::admission;
use crate::linux::dl::cbs::BW_SHIFT;
use crate::linux::smp_tunables::{self, SmpTunables};
use crate::linux::version::{Feature, Version};
use crate::{Knob, KnobKind, Knobs};
use schedlab_model::Ns;

/// Up to 2.6.32 scaling stops here, ns.
const OLD_LIMIT: u64 = 200_000_000;

/// The largest settable time of the fair class's tunables (the kernel's own limit).
const MAX_SLICE: Ns = Ns::from_s(1);

/// The knobs that a scheduler of this version has.
pub(super) fn knobs(version: &Version) -> Vec<Knob> {
    let mut knobs = fair_knobs(version);
    rt_knobs(version, &mut knobs);
    knobs.extend(smp_tunables::knobs().into_iter().filter(|knob| smp_tunables::exists(version, knob.name)));
    knobs.extend(version.features.iter().map(|&(feature, default)| {
        let doc = feature.knob().1;
        let default = if default { "on" } else { "off" };
        Knob { name: version.feature_name(feature), kind: KnobKind::Flag, default, doc }
    }));
    knobs
}

/// The knobs of CFS or EEVDF.
fn fair_knobs(version: &Version) -> Vec<Knob> {
    let time = |name, default, doc| Knob { name, kind: KnobKind::Time(Ns(100_000), MAX_SLICE), default, doc };
    let mut knobs = Vec::new();
    if version.scaling_counts_eight_cpus() {
        knobs.push(Knob {
            name: "tunable_scaling",
            kind: KnobKind::Number(0, 2),
            default: "1",
            doc: "defaults grow with the CPUs (8 at most): 0 not at all, 1 as 1 + log2, 2 in proportion",
        });
    }
    if version.eevdf {
        knobs.push(time("base_slice_ns", "by version, times the scaling factor", "the default request"));
        return knobs;
    }
    let (latency, least, wakeup) = match version.latency {
        Ns(20_000_000) => (
            "20ms times 1 + log2 of the CPUs",
            "4ms times 1 + log2 of the CPUs",
            "10ms times 1 + log2 of the CPUs",
        ),
        Ns(5_000_000) => (
            "5ms times 1 + log2 of the CPUs",
            "1ms times 1 + log2 of the CPUs",
            "1ms times 1 + log2 of the CPUs",
        ),
        _ => (
            "6ms times the scaling factor",
            "0.75ms times the scaling factor",
            "1ms times the scaling factor",
        ),
    };
    knobs.extend([
        time(
            version.named("sched_latency_ns", "latency_ns"),
            latency,
            "the period in which each runnable task runs once",
        ),
        time(version.named("sched_min_granularity_ns", "min_granularity_ns"), least, "the least slice"),
    ]);
    if version.has_feature(Feature::BASE_SLICE) {
        knobs.push(time(
            "idle_min_granularity_ns",
            "0.75ms",
            "the least slice of SCHED_IDLE beside other tasks",
        ));
    }
    knobs.extend([
        time(
            version.named("sched_wakeup_granularity_ns", "wakeup_granularity_ns"),
            wakeup,
            "how far behind a wakee must be to preempt",
        ),
        Knob {
            name: version.named("sched_child_runs_first", "child_runs_first"),
            kind: KnobKind::Flag,
            default: if !version.parent_runs_first() { "on" } else { "off" },
            doc: "a new task runs before its parent goes on",
        },
    ]);
    knobs
}

/// The knobs of the RT class, and of what protects the others from it.
fn rt_knobs(version: &Version, knobs: &mut Vec<Knob>) {
    if version.rr_slice_can_be_set() {
        knobs.push(rr_knob());
    }
    if version.has_deadline() {
        deadline_knobs(knobs);
    }
    if version.rt_throttling {
        knobs.extend(throttling_knobs(version));
    }
    if version.has_fair_server() {
        knobs.extend(fair_server_knobs(version));
    }
}

fn rr_knob() -> Knob {
    Knob {
        name: "sched_rr_timeslice_ms",
        kind: KnobKind::Number(1, 10_000),
        default: "100",
        doc: "slice of SCHED_RR in milliseconds",
    }
}

fn throttling_knobs(version: &Version) -> [Knob; 2] {
    [
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
            doc: if version.has_deadline() {
                "run time of RT tasks in each period in microseconds, and the admission limit of SCHED_DEADLINE; -1 \
                 = no limit"
            } else {
                "run time of RT tasks in each period in microseconds; -1 = no limit"
            },
        },
    ]
}

fn fair_server_knobs(version: &Version) -> [Knob; 4] {
    [
        Knob {
            name: "fair_server_runtime_ns",
            kind: KnobKind::Time(Ns::ZERO, Ns::from_us(1 << 22)),
            default: "50ms",
            doc: "debugfs fair_server/cpuN/runtime: CPU time kept for fair tasks in each period (at most the \
                  period); 0 = none",
        },
        Knob {
            name: "fair_server_period_ns",
            kind: KnobKind::Time(Ns::from_us(100), Ns::from_us(1 << 22)),
            default: "1s",
            doc: "debugfs fair_server/cpuN/period",
        },
        Knob {
            name: "sched_rt_runtime_us",
            kind: KnobKind::Number(-1, i32::MAX as i64),
            default: if version.rt_runtime_us == 1_000_000 { "1000000" } else { "950000" },
            doc: "since 6.12 only the admission limit of SCHED_DEADLINE (-1 = none): FIFO and RR tasks do not feel \
                  it",
        },
        Knob {
            name: "sched_rt_period_us",
            kind: KnobKind::Number(1, i32::MAX as i64),
            default: "1000000",
            doc: "the period that sched_rt_runtime_us refers to",
        },
    ]
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
    pub(super) base_slice: u32,
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
        let factor = if version.scaling_counts_eight_cpus() {
            factor(cpus, knobs.number("tunable_scaling", 1))
        } else {
            1 + u64::from(cpus.max(1).ilog2())
        };
        let time = |name: &str, default: u64| knobs.time(name, Ns(default)).0;
        // The old scaling stops at 200 ms; it does not look at the wakeup granularity.
        let scaled = |ns: Ns| {
            if version.scaling_counts_eight_cpus() { ns.0 * factor } else { (ns.0 * factor).min(OLD_LIMIT) }
        };
        let latency = time(version.named("sched_latency_ns", "latency_ns"), scaled(version.latency));
        let least = version.named("sched_min_granularity_ns", "min_granularity_ns");
        let min_granularity = time(least, scaled(version.granularity));
        let wakeup = version.named("sched_wakeup_granularity_ns", "wakeup_granularity_ns");
        let first = version.named("sched_child_runs_first", "child_runs_first");
        let mut features = 0;
        for &(feature, default) in version.features {
            features |= u64::from(knobs.flag(version.feature_name(feature), default)) << feature as u8;
        }
        let nr_latency = version.tasks_of_a_period();
        Tunables {
            version,
            latency,
            min_granularity,
            idle_min_granularity: time("idle_min_granularity_ns", 750_000),
            wakeup_granularity: time(wakeup, version.wakeup_granularity.0 * factor),
            nr_latency: nr_latency.unwrap_or(latency.div_ceil(min_granularity) as u32),
            base_slice: time("base_slice_ns", version.granularity.0 * factor) as u32,
            base_slice_unscaled: version.granularity.0,
            child_runs_first: knobs.flag(first, !version.parent_runs_first()),
            rr_slice: knobs.number("sched_rr_timeslice_ms", 100) as u64 * 1_000_000,
            rt_period: knobs.number("sched_rt_period_us", 1_000_000) as u64 * 1_000,
            rt_runtime: match knobs.number("sched_rt_runtime_us", version.rt_runtime_us) {
                us if us < 0 => u64::MAX,
                us => us as u64 * 1_000,
            },
            dl_period_min: knobs.number("sched_deadline_period_min_us", 100) as u64 * 1_000,
            dl_period_max: knobs.number("sched_deadline_period_max_us", 1 << 22) as u64 * 1_000,
            dl_reclaim: knobs.flag("dl_reclaim", false),
            fair_server_runtime: if !version.has_fair_server() {
                Ns::ZERO
            } else {
                let period = knobs.time("fair_server_period_ns", Ns::from_s(1));
                knobs.time("fair_server_runtime_ns", Ns::from_ms(50)).min(period)
            },
            fair_server_period: knobs.time("fair_server_period_ns", Ns::from_s(1)),
            smp: SmpTunables::new(&version, knobs),
            features,
        }
    }

    /// The part of a CPU that deadline tasks may have, 20-bit fixed point.
    pub(super) fn dl_most(&self) -> u64 {
        admission::most(self).unwrap_or(1 << BW_SHIFT)
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
    use crate::linux::version::{V2_6_24, V2_6_32, V3_0, V6_1, V6_6};

    /// Spec §4.2 and §5.2: latency, least slice (or request) and wakeup granularity by version and CPUs.
    #[test]
    fn defaults_of_every_version() {
        let of = |version, cpus| {
            let t = Tunables::new(version, cpus, &Knobs::default());
            [t.latency, t.min_granularity, t.wakeup_granularity].map(|ns| ns as f64 / 1e6)
        };
        // 32 CPUs: 1 + log2 is 6 up to 2.6.32, and 4 since.
        assert_eq!(
            [1, 8, 32].map(|cpus| of(V2_6_24, cpus)),
            [[20.0, 4.0, 10.0], [80.0, 16.0, 40.0], [120.0, 24.0, 60.0]]
        );
        assert_eq!(
            [1, 4, 32].map(|cpus| of(V2_6_32, cpus)),
            [[5.0, 1.0, 1.0], [15.0, 3.0, 3.0], [30.0, 6.0, 6.0]]
        );
        assert_eq!(
            [1, 8, 32].map(|cpus| of(V3_0, cpus)),
            [[6.0, 0.75, 1.0], [24.0, 3.0, 4.0], [24.0, 3.0, 4.0]]
        );
        assert_eq!(of(V3_0, 8), of(V6_1, 8));
        let slice = |cpus| Tunables::new(V6_6, cpus, &Knobs::default()).base_slice;
        assert_eq!([1, 2, 4, 8, 32].map(slice), [750_000, 1_500_000, 2_250_000, 3_000_000, 3_000_000]);
    }

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
