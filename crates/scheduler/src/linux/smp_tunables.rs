//! Knobs of balancing, placement, bandwidth and autogroup.

use crate::linux::version::Version;
use crate::{Knob, KnobKind, Knobs};
use schedlab_model::Ns;

/// Resolved.
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
    /// Which tasks are put on a CPU that is busy and has room: the bits of [`packing`](crate::linux::balance::packing).
    pub(super) vcpu_pack: u8,
}

const FEATURES: [(&str, &str); 5] = [
    ("features.SIS_UTIL", "the search for an idle CPU at wakeup is shorter in a busy last-level cache"),
    (
        "features.WA_IDLE",
        "a wakee goes to its waker's CPU if that is idle (interrupts), or alone and about to sleep",
    ),
    ("features.WA_WEIGHT", "a wakee goes to its waker's CPU if that has less load than its last one"),
    ("features.WA_BIAS", "the comparison of loads favours the waker's CPU a little"),
    ("features.CACHE_HOT_BUDDY", "a task that is about to run next is cache hot"),
];

/// Faults that real kernels had (Lozi and others, EuroSys 2016), to be switched on. No kernel has such switches.
const DEFECTS: [(&str, &str); 2] = [
    (
        "defects.GROUP_IMBALANCE",
        "between caches and nodes only the mean load counts, not idle CPUs: one heavy task hides idle CPUs beside it \
         (a fault of 2.6.38 and later; EuroSys 2016)",
    ),
    (
        "defects.MISSING_DOMAINS",
        "no balance between nodes, as after a CPU was taken off and brought back (a fault of 3.19; EuroSys 2016)",
    ),
];

/// Whether a version has a knob of this file.
pub(super) fn exists(version: &Version, name: &str) -> bool {
    match name {
        "max_newidle_lb_cost" => version.has_newidle_cost(),
        "sched_cfs_bandwidth_slice_us" => version.has_bandwidth(),
        "sched_autogroup_enabled" => version.has_autogroup(),
        "features.SIS_UTIL" => version.searches_by_utilisation(),
        "features.WA_IDLE" | "features.WA_WEIGHT" | "features.WA_BIAS" => version.has_wake_affine_features(),
        "features.CACHE_HOT_BUDDY" => version.buddies_are_cache_hot(),
        "features.NI_RANDOM" => version.may_have_newidle_odds(),
        "sched_vcpu_pack" => version.may_pack_vcpus(),
        _ => true,
    }
}

/// The knobs.
pub(super) fn knobs() -> Vec<Knob> {
    let mut knobs = vec![
        Knob {
            name: "migration_cost_ns",
            kind: KnobKind::Time(Ns::ZERO, Ns::from_s(1)),
            default: "500us",
            doc: "a task that ran this recently is cache hot and is not moved at first",
        },
        Knob {
            name: "nr_migrate",
            kind: KnobKind::Number(1, 1 << 20),
            default: "32",
            doc: "tasks looked at in one balancing pass (8 on PREEMPT_RT)",
        },
        Knob {
            name: "max_newidle_lb_cost",
            kind: KnobKind::Time(Ns::ZERO, Ns::from_ms(1)),
            default: "0ns",
            doc: "a CPU that is idle for less than this on average does not look for work when it becomes idle; \
                  the real system measures it for each domain",
        },
        Knob {
            name: "sched_cfs_bandwidth_slice_us",
            kind: KnobKind::Number(1, 1_000_000),
            default: "5000",
            doc: "run time in microseconds that a CPU takes out of the pool of a group with cpu.max at a time",
        },
        Knob {
            name: "sched_autogroup_enabled",
            kind: KnobKind::Flag,
            default: "on",
            doc: "groups marked as autogroup (one per session) exist; off: their tasks belong to the parent",
        },
    ];
    knobs.extend(FEATURES.map(|(name, doc)| Knob { name, kind: KnobKind::Flag, default: "on", doc }));
    knobs.extend(DEFECTS.map(|(name, doc)| Knob { name, kind: KnobKind::Flag, default: "off", doc }));
    knobs.push(Knob {
        name: "sched_vcpu_pack",
        kind: KnobKind::Number(0, 15),
        default: "0",
        doc: "boot option of some cloud guests' kernels, not of upstream: tasks are kept together on CPUs that are busy and have \
              room; the sum of 1 (wakeups by an idle CPU's interrupts stay there), 2 (wakees of a waker that is about to sleep \
              go to it), 4 (others to any busy CPU with room) and 8 (new tasks stay with their parent)",
    });
    knobs.push(Knob {
        name: "features.NI_RANDOM",
        kind: KnobKind::Flag,
        default: "off",
        doc: "a CPU that becomes idle looks for work as often, by dice, as it found some before (in later 6.12.y and \
              6.18.y, not in 6.12.0 and 6.18.0)",
    });
    knobs
}

impl SmpTunables {
    /// Resolves the knobs.
    pub(super) fn new(version: &Version, knobs: &Knobs) -> SmpTunables {
        let on = |name: &str| knobs.flag(name, true);
        SmpTunables {
            migration_cost: knobs.time("migration_cost_ns", Ns::from_us(500)).0,
            nr_migrate: knobs.number("nr_migrate", 32) as u32,
            newidle_cost: knobs.time("max_newidle_lb_cost", Ns::ZERO).0,
            bandwidth_slice: knobs.number("sched_cfs_bandwidth_slice_us", 5000) as u64 * 1000,
            autogroup: version.has_autogroup() && on("sched_autogroup_enabled"),
            sis_util: exists(version, "features.SIS_UTIL") && on("features.SIS_UTIL"),
            wa_idle: on("features.WA_IDLE"),
            wa_weight: on("features.WA_WEIGHT"),
            wa_bias: on("features.WA_BIAS"),
            cache_hot_buddy: on("features.CACHE_HOT_BUDDY"),
            ni_random: knobs.flag("features.NI_RANDOM", false),
            group_imbalance: knobs.flag("defects.GROUP_IMBALANCE", false),
            missing_domains: knobs.flag("defects.MISSING_DOMAINS", false),
            vcpu_pack: knobs.number("sched_vcpu_pack", 0) as u8,
        }
    }
}
