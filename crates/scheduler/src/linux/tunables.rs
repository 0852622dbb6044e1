//! The knobs of a version, resolved for one machine.

use crate::linux::dl::admission;
use crate::linux::dl::cbs::BW_SHIFT;
use crate::linux::knobs::{self, Setup, Versioned, balance};
use crate::linux::version::{Feature, Version};
use crate::{FlagKnob, Knobs, NumberKnob, TimeKnob};
use schedlab_model::Ns;

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
    pub(super) rr_slice_ms: u64,
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
        let unscaled = Setup { version, factor: 1 };
        let scaling = knobs.get_for(&knobs::TUNABLE_SCALING, &unscaled);
        let setup = Setup { version, factor: factor(&version, cpus, scaling) };
        let time = |knob: &Versioned<TimeKnob<Setup>>| knobs.get_for(knob, &setup).0;
        let number = |knob: &Versioned<NumberKnob<Setup>>| knobs.get_for(knob, &setup) as u64;
        let mut features = 0;
        for (feature, _) in version.features {
            features |= u64::from(knobs.get_for(feature, &setup)) << *feature as u8;
        }
        let (latency, min_granularity) = (time(&knobs::LATENCY), time(&knobs::MIN_GRANULARITY));
        let server_period = knobs.get_for(&knobs::FAIR_SERVER_PERIOD, &setup);
        Tunables {
            version,
            latency,
            min_granularity,
            idle_min_granularity: time(&knobs::IDLE_MIN_GRANULARITY),
            wakeup_granularity: time(&knobs::WAKEUP_GRANULARITY),
            nr_latency: version
                .tasks_of_a_period()
                .unwrap_or_else(|| latency.div_ceil(min_granularity) as u32),
            base_slice: time(&knobs::BASE_SLICE) as u32,
            base_slice_unscaled: version.granularity.0,
            child_runs_first: knobs.get_for(&knobs::CHILD_RUNS_FIRST, &setup),
            rr_slice_ms: number(&knobs::RR_TIMESLICE),
            rt_period: number(&knobs::RT_PERIOD) * 1_000,
            rt_runtime: match knobs.get_for(&knobs::RT_RUNTIME, &setup) {
                us if us < 0 => u64::MAX,
                us => us as u64 * 1_000,
            },
            dl_period_min: number(&knobs::DEADLINE_PERIOD_MIN) * 1_000,
            dl_period_max: number(&knobs::DEADLINE_PERIOD_MAX) * 1_000,
            dl_reclaim: knobs.get_for(&knobs::DL_RECLAIM, &setup),
            fair_server_runtime: if version.has_fair_server() {
                knobs.get_for(&knobs::FAIR_SERVER_RUNTIME, &setup).min(server_period)
            } else {
                Ns::ZERO
            },
            fair_server_period: server_period,
            smp: SmpTunables::new(&setup, knobs),
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

/// The knobs of balancing, placement, bandwidth and autogroup, resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct SmpTunables {
    /// `migration_cost_ns`: a task that ran this recently is cache hot, ns; `u64::MAX` = always.
    pub(super) migration_cost: u64,
    /// Tasks looked at in one balancing pass.
    pub(super) nr_migrate: u32,
    /// Estimated cost of balancing one domain when a CPU becomes idle, ns.
    pub(super) newidle_cost: u64,
    /// Run time that a CPU takes out of a group's pool at a time, ns.
    pub(super) bandwidth_slice: u64,
    /// Sessions are groups.
    pub(super) autogroup: bool,
    pub(super) sis_util: bool,
    pub(super) wa_idle: bool,
    pub(super) wa_weight: bool,
    pub(super) wa_bias: bool,
    pub(super) cache_hot_buddy: bool,
    pub(super) ni_random: bool,
    /// Balancing above the caches compares mean loads only.
    pub(super) group_imbalance: bool,
    /// No balance between nodes.
    pub(super) missing_domains: bool,
    /// Which tasks are put on a CPU that is busy and has room: the bits of
    /// [`packing`](crate::linux::balance::packing).
    pub(super) vcpu_pack: u8,
}

impl SmpTunables {
    /// Resolves the knobs.
    pub(super) fn new(setup: &Setup, knobs: &Knobs) -> SmpTunables {
        let on = |knob: &Versioned<FlagKnob<Setup>>| knobs.get_for(knob, setup);
        SmpTunables {
            migration_cost: knobs.get_for(&balance::MIGRATION_COST, setup).0,
            nr_migrate: knobs.get_for(&balance::NR_MIGRATE, setup) as u32,
            newidle_cost: knobs.get_for(&balance::NEWIDLE_COST, setup).0,
            bandwidth_slice: knobs.get_for(&balance::BANDWIDTH_SLICE, setup) as u64 * 1000,
            autogroup: on(&balance::AUTOGROUP),
            sis_util: on(&balance::SIS_UTIL),
            wa_idle: on(&balance::WA_IDLE),
            wa_weight: on(&balance::WA_WEIGHT),
            wa_bias: on(&balance::WA_BIAS),
            cache_hot_buddy: on(&balance::CACHE_HOT_BUDDY),
            ni_random: on(&balance::NI_RANDOM),
            group_imbalance: on(&balance::GROUP_IMBALANCE),
            missing_domains: on(&balance::MISSING_DOMAINS),
            vcpu_pack: knobs.get_for(&balance::VCPU_PACK, setup) as u8,
        }
    }
}

/// By how much the defaults grow with the number of CPUs (of 8 at most since 2.6.33,
/// `get_update_sysctl_factor`).
fn factor(version: &Version, cpus: usize, scaling: i64) -> u64 {
    if !version.scaling_counts_eight_cpus() {
        return 1 + u64::from(cpus.max(1).ilog2());
    }
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

    /// `sysctl_sched_*` and `get_update_sysctl_factor` (kernel/sched_fair.c 2.6.24 to 3.0,
    /// kernel/sched/fair.c 6.1 and 6.6): latency, least slice (or request) and wakeup granularity
    /// by version and CPUs.
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
        assert_eq!(
            [1, 2, 4, 8, 32].map(slice),
            [750_000, 1_500_000, 2_250_000, 3_000_000, 3_000_000]
        );
    }

    /// docs/sources/linux-facts.md, A5.
    #[test]
    fn factors_follow_the_logarithm_up_to_8_cpus() {
        let factors: Vec<u64> =
            [1, 2, 3, 4, 5, 6, 7, 8, 32].iter().map(|&cpus| factor(&V6_1, cpus, 1)).collect();
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
