//! The kernel's `sched_features` as a recorder reads them where debugfs is closed: a number with a
//! bit for each.

/// Name of the number in a recording's header.
pub(super) const MASK: &str = "debug.sysctl_sched_features";

/// The features of Linux 6.17 and 6.18 in the order of their bits (kernel/sched/features.h).
/// NI_RANDOM came with a later 6.18.y; a kernel without it has one bit less.
const LINUX_6_18: [&str; 27] = [
    "PLACE_LAG",
    "PLACE_DEADLINE_INITIAL",
    "PLACE_REL_DEADLINE",
    "RUN_TO_PARITY",
    "PREEMPT_SHORT",
    "NEXT_BUDDY",
    "PICK_BUDDY",
    "CACHE_HOT_BUDDY",
    "DELAY_DEQUEUE",
    "DELAY_ZERO",
    "WAKEUP_PREEMPTION",
    "HRTICK",
    "HRTICK_DL",
    "NONTASK_CAPACITY",
    "TTWU_QUEUE",
    "SIS_UTIL",
    "WARN_DOUBLE_CLOCK",
    "RT_PUSH_IPI",
    "RT_RUNTIME_SHARE",
    "LB_MIN",
    "ATTACH_AGE_LOAD",
    "WA_IDLE",
    "WA_WEIGHT",
    "WA_BIAS",
    "UTIL_EST",
    "LATENCY_WARN",
    "NI_RANDOM",
];

/// What the schedulers model of them; the others are left out without a word, as no model has them.
const MODELLED: [&str; 14] = [
    "features.PLACE_LAG",
    "features.PLACE_DEADLINE_INITIAL",
    "features.PLACE_REL_DEADLINE",
    "features.RUN_TO_PARITY",
    "features.PREEMPT_SHORT",
    "features.DELAY_DEQUEUE",
    "features.DELAY_ZERO",
    "features.WAKEUP_PREEMPTION",
    "features.HRTICK",
    "features.SIS_UTIL",
    "features.WA_IDLE",
    "features.WA_WEIGHT",
    "features.WA_BIAS",
    "features.NI_RANDOM",
];

/// The modelled features by the name of their knob, on or off; nothing for a kernel whose bits are
/// not known here.
pub(super) fn of_mask(kernel: &str, mask: &str) -> Vec<(&'static str, &'static str)> {
    let known = kernel.starts_with("6.17.") || kernel.starts_with("6.18.");
    let Some(mask) =
        mask.trim().parse::<u64>().ok().filter(|mask| known && *mask < 1 << LINUX_6_18.len())
    else {
        return Vec::new();
    };
    let on = |knob: &&str| {
        let bit = LINUX_6_18.iter().position(|name| knob.strip_prefix("features.") == Some(name));
        bit.is_some_and(|bit| mask >> bit & 1 != 0)
    };
    MODELLED.iter().map(|knob| (*knob, if on(knob) { "on" } else { "off" })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_the_shipped_recordings() {
        let features = of_mask("6.18.44", "99674079");
        let off: Vec<&str> =
            features.iter().filter(|(_, value)| *value == "off").map(|(name, _)| *name).collect();
        assert_eq!(off, ["features.HRTICK"]);
        assert!(features.contains(&("features.NI_RANDOM", "on")));
        assert!(of_mask("6.18.2", "32565215").contains(&("features.NI_RANDOM", "off")));
    }

    #[test]
    fn unknown_kernels_and_numbers_say_nothing() {
        for (kernel, mask) in [
            ("6.12.95", "99674079"),
            ("6.18.44", ""),
            ("6.18.44", "x"),
            ("6.18.44", "999999999999"),
        ] {
            assert!(of_mask(kernel, mask).is_empty(), "{kernel} {mask}");
        }
    }
}
