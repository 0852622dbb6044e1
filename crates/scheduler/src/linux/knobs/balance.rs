//! Knobs of balancing, placement, bandwidth and autogroup.

use super::{Setup, Versioned, always, only};
use crate::linux::version::Version;
use crate::{FlagKnob, KnobDefault, NumberKnob, Row, TimeKnob, Times};
use schedlab_model::Ns;

/// Where the kernel declares its features.
const FEATURES: &str = "kernel/sched/features.h";
/// Who described the faults that can be switched on. No kernel has such switches.
const LOZI: &str = "Lozi and others, The Linux Scheduler: a Decade of Wasted Cores (EuroSys 2016)";

pub(in crate::linux) const ALL: &[&dyn Row<Setup>] = &[
    &MIGRATION_COST,
    &NR_MIGRATE,
    &NEWIDLE_COST,
    &BANDWIDTH_SLICE,
    &AUTOGROUP,
    &SIS_UTIL,
    &WA_IDLE,
    &WA_WEIGHT,
    &WA_BIAS,
    &CACHE_HOT_BUDDY,
    &GROUP_IMBALANCE,
    &MISSING_DOMAINS,
    &VCPU_PACK,
    &NI_RANDOM,
];

pub(in crate::linux) const MIGRATION_COST: Versioned<TimeKnob<Setup>> = always(TimeKnob {
    name: "migration_cost_ns",
    allowed: Times::between(Ns::ZERO, Ns::from_s(1)),
    default: KnobDefault::Is(Ns::from_us(500)),
    doc: "a task that ran this recently is cache hot and is not moved at first",
    source: "kernel/sched/fair.c, sysctl_sched_migration_cost",
});

pub(in crate::linux) const NR_MIGRATE: Versioned<NumberKnob<Setup>> = always(NumberKnob {
    name: "nr_migrate",
    unit: "tasks",
    allowed: (1, 1 << 20),
    default: KnobDefault::Is(32),
    doc: "tasks looked at in one balancing pass (8 on PREEMPT_RT)",
    source: "kernel/sched/core.c, sysctl_sched_nr_migrate",
});

pub(in crate::linux) const NEWIDLE_COST: Versioned<TimeKnob<Setup>> = only(
    Version::has_newidle_cost,
    TimeKnob {
        name: "max_newidle_lb_cost",
        allowed: Times::between(Ns::ZERO, Ns::from_ms(1)),
        default: KnobDefault::Is(Ns::ZERO),
        doc: "a CPU that is idle for less than this on average does not look for work when it \
              becomes idle; the real \
              system measures it for each domain",
        source: "kernel/sched/fair.c, max_newidle_lb_cost of a domain, 3.12",
    },
);

pub(in crate::linux) const BANDWIDTH_SLICE: Versioned<NumberKnob<Setup>> = only(
    Version::has_bandwidth,
    NumberKnob {
        name: "sched_cfs_bandwidth_slice_us",
        unit: "us",
        allowed: (1, 1_000_000),
        default: KnobDefault::Is(5_000),
        doc: "run time that a CPU takes out of the pool of a group with cpu.max at a time",
        source: "kernel/sched/fair.c, sysctl_sched_cfs_bandwidth_slice, 3.2",
    },
);

pub(in crate::linux) const AUTOGROUP: Versioned<FlagKnob<Setup>> = only(
    Version::has_autogroup,
    FlagKnob {
        name: "sched_autogroup_enabled",
        default: KnobDefault::By(|setup| setup.version.has_autogroup()),
        doc: "groups marked as autogroup (one per session) exist; off: their tasks belong to the \
              parent",
        source: "kernel/sched/autogroup.c, sysctl_sched_autogroup_enabled, 2.6.38",
    },
);

pub(in crate::linux) const SIS_UTIL: Versioned<FlagKnob<Setup>> = only(
    Version::searches_by_utilisation,
    FlagKnob {
        name: "features.SIS_UTIL",
        default: KnobDefault::By(|setup| setup.version.searches_by_utilisation()),
        doc: "the search for an idle CPU at wakeup is shorter in a busy last-level cache",
        source: FEATURES,
    },
);

pub(in crate::linux) const WA_IDLE: Versioned<FlagKnob<Setup>> = wake_affine(
    "features.WA_IDLE",
    "a wakee goes to its waker's CPU if that is idle (interrupts), or alone and about to sleep",
);

pub(in crate::linux) const WA_WEIGHT: Versioned<FlagKnob<Setup>> = wake_affine(
    "features.WA_WEIGHT",
    "a wakee goes to its waker's CPU if that has less load than its last one",
);

pub(in crate::linux) const WA_BIAS: Versioned<FlagKnob<Setup>> =
    wake_affine("features.WA_BIAS", "the comparison of loads favours the waker's CPU a little");

/// A part of the choice between the waker's CPU and the last one. Versions before 4.14 have it too,
/// without a switch.
const fn wake_affine(name: &'static str, doc: &'static str) -> Versioned<FlagKnob<Setup>> {
    let default = KnobDefault::Is(true);
    only(Version::has_wake_affine_features, FlagKnob { name, default, doc, source: FEATURES })
}

pub(in crate::linux) const CACHE_HOT_BUDDY: Versioned<FlagKnob<Setup>> = only(
    Version::buddies_are_cache_hot,
    FlagKnob {
        name: "features.CACHE_HOT_BUDDY",
        default: KnobDefault::Is(true),
        doc: "a task that is about to run next is cache hot",
        source: FEATURES,
    },
);

pub(in crate::linux) const GROUP_IMBALANCE: Versioned<FlagKnob<Setup>> = always(FlagKnob {
    name: "defects.GROUP_IMBALANCE",
    default: KnobDefault::Is(false),
    doc: "between caches and nodes only the mean load counts, not idle CPUs: one heavy task hides \
          idle CPUs beside it \
          (a fault of 2.6.38 and later)",
    source: LOZI,
});

pub(in crate::linux) const MISSING_DOMAINS: Versioned<FlagKnob<Setup>> = always(FlagKnob {
    name: "defects.MISSING_DOMAINS",
    default: KnobDefault::Is(false),
    doc: "no balance between nodes, as after a CPU was taken off and brought back (a fault of 3.19)",
    source: LOZI,
});

pub(in crate::linux) const VCPU_PACK: Versioned<NumberKnob<Setup>> = only(
    Version::may_pack_vcpus,
    NumberKnob {
        name: "sched_vcpu_pack",
        unit: "bits",
        allowed: (0, 15),
        default: KnobDefault::Is(0),
        doc: "tasks are kept together on CPUs that are busy and have room; the sum of 1 (wakeups \
              by an idle CPU's \
              interrupts stay there), 2 (wakees of a waker that is about to sleep go to it), 4 \
              (others to any busy CPU \
              with room) and 8 (new tasks stay with their parent)",
        source: "boot option of some cloud guests' kernels, not of upstream; machine code of \
                 6.18.44",
    },
);

pub(in crate::linux) const NI_RANDOM: Versioned<FlagKnob<Setup>> = only(
    Version::may_have_newidle_odds,
    FlagKnob {
        name: "features.NI_RANDOM",
        default: KnobDefault::Is(false),
        doc: "a CPU that becomes idle looks for work as often, by dice, as it found some before",
        source: "kernel/sched/features.h of later 6.12.y and 6.18.y, not of 6.12.0 and 6.18.0",
    },
);
