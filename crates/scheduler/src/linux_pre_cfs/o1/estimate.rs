//! The estimate of interactivity: who sleeps much gets a better priority and may stay active.

use super::version::Era;
use super::{O1, Record, Rq};
use crate::{Cx, Locks, Wake, WakeKind};
use schedlab_model::{TaskId, Waker};

const NS_PER_S: u64 = 1_000_000_000;
/// Full credit for the time on the run queue after a wakeup by an interrupt, in 128ths.
const FULL: i64 = 128;
/// After a wakeup by a task: about 30 %.
const THIRD: i64 = 38;

impl<L: Locks> O1<L> {
    pub(super) fn effective_prio(&self, record: &Record) -> i64 {
        if record.rt.flag() {
            return 99 - record.rt.get();
        }
        let bonus = self.version.bonus(record.sleep_avg.get());
        (record.static_prio.get() - (bonus - 5)).clamp(100, 139)
    }

    pub(super) fn interactive(&self, record: &Record) -> bool {
        let nice = record.static_prio.get() - 120;
        record.prio.get() <= record.static_prio.get() - self.version.delta(nice)
    }

    /// Whether the expired array has waited too long for interactive tasks to stay.
    pub(super) fn starving(&self, cx: &Cx<'_>, rq: &Rq, record: &Record) -> bool {
        if self.version.era == Era::Late26 && record.static_prio.get() > rq.best_expired_prio {
            return true;
        }
        if rq.expired_timestamp == 0 {
            return false;
        }
        let waited = cx.now.0 - rq.expired_timestamp;
        let nr = rq.nr_running as u64;
        match self.version.era {
            Era::Backport => waited >= 2 * NS_PER_S * nr + cx.world.tick_ns.0,
            Era::Early26 => waited >= self.version.max_sleep * nr + cx.world.tick_ns.0,
            Era::Late26 => waited > NS_PER_S * nr,
        }
    }

    /// In how many ticks an interactive task is put behind its equals; 0 = now, `u64::MAX` = never.
    pub(super) fn chop_due(&self, cx: &Cx<'_>, record: &Record) -> u64 {
        if !self.version.is_26() || !self.interactive(record) {
            return u64::MAX;
        }
        let bonus = self.version.bonus(record.sleep_avg.get());
        let granularity =
            super::version::granularity(bonus, i64::from(cx.world.hz), self.rqs.len());
        let (left, full) = (record.slice.get(), self.fresh_slice(cx, record));
        let used = full - left;
        if used % granularity == 0 && left >= granularity && used > 0 {
            return 0;
        }
        (granularity - used.rem_euclid(granularity)) as u64
    }

    /// A tick on the CPU costs a tick of the average (backport).
    pub(super) fn charge_run_ticks(&self, cx: &Cx<'_>, record: &Record, ticks: i64) {
        if self.version.era == Era::Backport {
            let tick = cx.world.tick_ns.0 as i64;
            record.sleep_avg.set((record.sleep_avg.get() - ticks * tick).max(0));
        }
    }

    /// What a run costs the average, at its end (2.6).
    pub(super) fn charge_run(&self, cx: &Cx<'_>, record: &Record) {
        if self.version.is_26() {
            let ran =
                (cx.now.0 as i64 - record.timestamp.get()).clamp(0, self.version.max_sleep as i64);
            // 2.6.0 divides for tasks with much interactive credit only.
            let late = self.version.era == Era::Late26;
            let cost =
                if late { ran / self.version.bonus(record.sleep_avg.get()).max(1) } else { ran };
            record.sleep_avg.set((record.sleep_avg.get() - cost).max(0));
        }
    }

    /// What a sleep earns, at the wakeup.
    pub(super) fn credit_sleep(&self, cx: &Cx<'_>, record: &Record, wake: Wake) {
        let now = cx.now.0 as i64;
        let max = self.version.max_sleep as i64;
        if wake.kind == WakeKind::Wake && !record.rt.flag() {
            let slept = (now - record.timestamp.get()).max(0);
            let avg = record.sleep_avg.get();
            let outside = matches!(wake.waker, Waker::HardIrq | Waker::SoftIrq | Waker::Unknown);
            match self.version.era {
                Era::Backport => {
                    // Counted in ticks.
                    let tick = cx.world.tick_ns.0 as i64;
                    record.sleep_avg.set((avg + slept / tick * tick).min(max));
                }
                Era::Late26 if record.batch.flag() => {}
                Era::Early26 => {
                    let delta = self.version.delta(record.static_prio.get() - 120);
                    let ceiling = max * (5 + delta + 1) / 10 - cx.world.tick_ns.0 as i64;
                    if slept > ceiling {
                        record.sleep_avg.set(max - max / 10);
                    } else {
                        let scaled = slept * (10 - self.version.bonus(avg)).max(1);
                        record.sleep_avg.set((avg + scaled).min(max));
                    }
                    record.wait_credit.set(if outside { FULL } else { THIRD });
                }
                Era::Late26 => {
                    let delta = self.version.delta(record.static_prio.get() - 120);
                    let ceiling = max * (5 + delta + 1) / 10 - cx.world.tick_ns.0 as i64;
                    let long = slept > ceiling;
                    if long && avg < ceiling {
                        record.sleep_avg.set(ceiling);
                    } else if !long {
                        record.sleep_avg.set((avg + slept).min(max));
                    }
                    record.wait_credit.set(match (long, outside) {
                        (true, _) => 0,
                        (_, true) => FULL,
                        (_, false) => THIRD,
                    });
                }
            }
        }
        record.timestamp.set(now);
    }

    /// Pays, once, for the time on the run queue; true when something was paid.
    pub(super) fn pay_wait(&self, cx: &Cx<'_>, task: TaskId) -> bool {
        let record = self.record(cx, task);
        let share = record.wait_credit.get();
        if share == 0 || record.rt.flag() {
            return false;
        }
        record.wait_credit.set(0);
        let waited = (cx.now.0 as i64 - record.timestamp.get()).max(0);
        let avg = record.sleep_avg.get() + waited * share / 128;
        record.sleep_avg.set(avg.min(self.version.max_sleep as i64));
        true
    }

    /// What a child starts with: 95 % of its parent's bonus (2.6), of its average (backport).
    pub(super) fn inherited(&self, parent: &Record) -> i64 {
        let avg = parent.sleep_avg.get();
        match self.version.era {
            Era::Backport => avg * 95 / 100,
            Era::Early26 | Era::Late26 => {
                let bonus = self.version.bonus(avg) * 95 / 100;
                bonus * self.version.max_sleep as i64 / 10
            }
        }
    }
}
