//! The knobs of Credit, with Xen's names, bounds and defaults.

use super::super::common::{self, SMT_POWER_SAVINGS};
use super::super::release::XenRelease;
use super::MS;
use crate::{FlagKnob, KnobDefault, Knobs, Row, TimeKnob, Times, WordKnob, words};
use schedlab_model::Ns;

const US: Ns = Ns::from_us(1);
pub(in crate::xen) const TSLICE: TimeKnob<XenRelease> = TimeKnob {
    name: "tslice",
    allowed: Times::steps(Ns::from_ms(1), Ns::from_ms(1), Ns::from_s(1)),
    default: KnobDefault::Is(Ns::from_ms(30)),
    doc: "time slice and accounting period (xl -s -t, boot sched_credit_tslice_ms)",
    source: "xen/common/sched/credit.c, CSCHED_DEFAULT_TSLICE_MS",
};
pub(in crate::xen) const RATELIMIT: TimeKnob<XenRelease> =
    TimeKnob { allowed: common::RATELIMIT.allowed.at_most(&TSLICE), ..common::RATELIMIT };
pub(in crate::xen) const MIGRATION_DELAY: TimeKnob<XenRelease> = TimeKnob {
    name: "migration_delay",
    allowed: Times::steps_or_off(US, US, Ns::from_ms(100)),
    default: KnobDefault::Is(Ns::ZERO),
    doc: "cache-hot time, 0 = off (xl -s -m, boot vcpu_migration_delay)",
    source: "xen/common/sched/credit.c, vcpu_migration_delay_us",
};
const TICKLE_ONE_IDLE_CPU: FlagKnob<XenRelease> = FlagKnob {
    name: "tickle_one_idle_cpu",
    default: KnobDefault::Is(true),
    doc: "wake one idle pCPU, not all suitable ones (boot tickle_one_idle_cpu)",
    source: "xen/common/sched/credit.c, opt_tickle_one_idle",
};
words! {
    /// Which run time is charged.
    enum Accounting {
        /// What ran, to the credit.
        Accurate = "accurate",
        /// A whole tick to the unit that runs at the tick.
        Sampled = "sampled",
    }
}
const ACCOUNTING_KNOB: WordKnob<Accounting, XenRelease> = WordKnob {
    name: "accounting",
    default: KnobDefault::Is(Accounting::Accurate),
    doc: "sampled: as until 2010, a tick charges a whole tick to the unit that runs then (no \
          parameter of Xen)",
    source: "xen/common/sched_credit.c until 2010",
};
const LOAD_BALANCE_RATELIMIT: TimeKnob<XenRelease> = TimeKnob {
    name: "load_balance_ratelimit",
    allowed: Times::steps_or_off(US, US, Ns::from_s(1)),
    default: KnobDefault::InWords(
        |release| if release.credit_limits_stealing() { Ns::from_ms(1) } else { Ns::ZERO },
        |_| "1ms (0 before 4.18)".to_owned(),
    ),
    doc: "shortest time between two steals of a pCPU, 0 = off (boot load-balance-ratelimit, 4.18 \
          and later)",
    source: "xen/common/sched/credit.c, load_balance_ratelimit_us, 4.18",
};

/// All of them.
pub(in crate::xen) const KNOBS: &[&dyn Row<XenRelease>] = &[
    &TSLICE,
    &RATELIMIT,
    &MIGRATION_DELAY,
    &TICKLE_ONE_IDLE_CPU,
    &SMT_POWER_SAVINGS,
    &ACCOUNTING_KNOB,
    &LOAD_BALANCE_RATELIMIT,
];

/// The tunables, as `xl sched-credit -s` and the boot parameters name them.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) release: XenRelease,
    pub(super) tslice: i64,
    pub(super) ratelimit: i64,
    pub(super) migrate_delay: i64,
    pub(super) load_balance_ratelimit: i64,
    pub(super) tickle_one: bool,
    pub(super) pack: bool,
    /// Charge a whole tick to the vCPU that runs at the tick, and to no other.
    pub(super) sampled: bool,
}

impl Settings {
    /// Resolves the knobs.
    pub(super) fn new(release: XenRelease, knobs: &Knobs) -> Settings {
        let time = |knob: &TimeKnob<XenRelease>| knobs.get_for(knob, &release).0 as i64;
        Settings {
            release,
            tslice: time(&TSLICE),
            ratelimit: time(&RATELIMIT),
            migrate_delay: time(&MIGRATION_DELAY),
            load_balance_ratelimit: time(&LOAD_BALANCE_RATELIMIT),
            tickle_one: knobs.get_for(&TICKLE_ONE_IDLE_CPU, &release),
            pack: knobs.get_for(&SMT_POWER_SAVINGS, &release),
            sampled: knobs.get_for(&ACCOUNTING_KNOB, &release) == Accounting::Sampled,
        }
    }
    /// Tick period, ns: a third of the slice, in whole microseconds.
    pub(super) fn tick(&self) -> i64 {
        let ms = self.tslice / MS;
        let ticks = if ms < 3 { 1 } else { 3 };
        ms * 1000 / ticks * 1000
    }
    /// Credits per slice: 10 per ms.
    pub(super) fn per_slice(&self) -> i64 {
        10 * (self.tslice / MS)
    }
}
