//! Where the time between an expiry and the thread that it woke went: every nanosecond to one
//! cause.
//!
//! The stretch is cut at every mark of its CPU, and each piece is laid to the innermost thing that
//! went on: an interrupt, a softirq, the idle task, another thread, or the thread itself. What
//! another thread's time means depends on when it was: before the wakeup the timer was late; after
//! it the thread stood in the run queue, behind one that goes first (preempted), behind its like
//! (run queue), or, where the scheduler picked one that may not go first, because it was throttled.
//! The pieces are disjoint and cover the stretch, so the budget adds up to the whole.

use super::Broke;
use schedlab_host::marks::{Mark, MarkKind, Marks};
use schedlab_model::{CpuId, Ns, Policy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A choice of a lower thread or of idling can be throttling from this length on; shorter ones come
/// about between a wakeup from elsewhere and its arrival in the queue. (A choice, not a
/// measurement.)
const THROTTLED_FROM: u64 = 100_000;

/// Real-time throttling and the fair server act on real-time threads that had most of a second
/// before (defaults: 950 ms, `sched_rt_runtime_us` and `fair_server/cpuN/runtime`). Where those had
/// less than this part of the allowed time, a real-time thread that is passed over was not held
/// back by either.
const USED_UP: f64 = 0.9;
/// The period of both, nanoseconds (`sched_rt_period_us`).
const PERIOD: u64 = 1_000_000_000;

/// Why time passed.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// An interrupt handler ran; `who` is its name.
    Irq,
    /// A softirq ran, in an interrupt or a thread; `who` is its name.
    Softirq,
    /// `who` ran, which goes first: a higher priority, or real-time against fair.
    Preempted,
    /// `who` ran, which does not go first: its turn (fair, or equal priority), or it was in a
    /// section of the kernel that cannot be preempted.
    RunQueue,
    /// The CPU was idle: it left an idle state, or the interrupt itself was late (a hypervisor).
    IdleExit,
    /// The scheduler chose a lower thread or idling although this thread was ready, for 100 us or
    /// longer: real-time throttling, a fair server, a group's or a deadline budget.
    Throttled,
    /// The timer waited for its slack (fair policies).
    TimerSlack,
    /// `who` ran and the wakeup had not come: interrupts were off, or the timer (a hypervisor) or
    /// the waker was late.
    LateWakeup,
    /// The thread itself, from its switch-in until it read the clock.
    Own,
    /// The thread itself: at its expiry it still ran, and had not gone to sleep.
    StillRan,
    /// Records were lost, or (with `who`) the wakeup left no trace.
    Unknown,
}

impl Cause {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Cause::Irq => "interrupt",
            Cause::Softirq => "softirq",
            Cause::Preempted => "preempted by",
            Cause::RunQueue => "run-queue wait behind",
            Cause::IdleExit => "idle exit",
            Cause::Throttled => "throttled, meanwhile",
            Cause::TimerSlack => "timer slack",
            Cause::LateWakeup => "late wakeup, meanwhile",
            Cause::Own => "return to user space",
            Cause::StillRan => "the thread itself, which still ran when it was due",
            Cause::Unknown => "unknown",
        }
    }
}

/// A part of a budget.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct BudgetPart {
    /// Why the time passed.
    pub cause: Cause,
    /// Which interrupt, softirq or thread; empty where there is none to name.
    pub who: String,
    /// Thread id of a thread.
    pub tid: Option<u32>,
    /// Length of the part.
    pub ns: u64,
}

/// Where the time went.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Budget {
    /// Thread id of the late thread.
    pub tid: u32,
    /// The CPU on which it ran at last.
    pub cpu: CpuId,
    /// From the expiry to its reading the clock.
    pub total_ns: u64,
    /// Time from the expiry to the wakeup; `None`: the wakeup was not seen.
    pub woken_after_ns: Option<u64>,
    /// Largest first. They add up to `total_ns`.
    pub parts: Vec<BudgetPart>,
}

impl Budget {
    /// The part of the whole, 0 … 1.
    pub fn share(&self, part: &BudgetPart) -> f64 {
        part.ns as f64 / self.total_ns.max(1) as f64
    }

    /// Of the wakeup `broke`, whose thread has `policy` and timer slack `slack`. `rt_runtime`: what
    /// real-time threads may have of each second (`sched_rt_runtime_us`); `None`: no limit.
    pub fn of_wakeup(
        broke: &Broke,
        policy: Policy,
        slack: Ns,
        rt_runtime: Option<Ns>,
        marks: &Marks,
    ) -> Budget {
        let (due, ran) = (broke.due_ns, broke.ran_ns.max(broke.due_ns));
        let within = |mark: &&Mark| (due..=ran).contains(&mark.at);
        let switched_in =
            |mark: &Mark| matches!(mark.kind, MarkKind::Switch { next, .. } if next == broke.tid);
        let last_in = |list: &Vec<Mark>| {
            list.iter().filter(within).rev().find(|mark| switched_in(mark)).map(|m| m.at)
        };
        let cpu = marks.cpus.iter().filter_map(|(cpu, list)| Some((last_in(list)?, *cpu))).max();
        let cpu = cpu.map_or(broke.cpu, |(_, cpu)| cpu);
        let waking =
            |mark: &&Mark| matches!(mark.kind, MarkKind::Waking { tid } if tid == broke.tid);
        let woken = marks
            .cpus
            .values()
            .filter_map(|list| Some(list.iter().filter(within).find(waking)?.at))
            .min();
        let slack_until = if policy.is_fair() { due.saturating_add(slack.0) } else { due };
        let none = Vec::new();
        let list = marks.cpus.get(&cpu).unwrap_or(&none);
        let slept = list.iter().any(|mark| within(&mark) && switched_in(mark));
        let mut state = CpuState {
            tid: broke.tid,
            prio: priority(policy),
            woken,
            slack_until,
            current: None,
            picked: false,
            entered: !slept && woken.is_some(),
            may_be_throttled: may_be_throttled(policy, rt_runtime, list, due),
            irqs: Vec::new(),
            softirqs: Vec::new(),
            prios: priorities(list),
            sums: BTreeMap::new(),
        };
        let mut at = due;
        state.current = list.iter().find_map(|mark| match mark.kind {
            // The task that left the CPU first after the expiry had it then, unless an earlier
            // switch says more.
            MarkKind::Switch { prev, .. } if mark.at >= due => prev,
            _ => None,
        });
        for mark in list {
            if mark.at > ran {
                break;
            }
            if mark.at > at {
                state.spend(at, mark.at);
                at = mark.at;
            }
            state.step(mark, due);
        }
        state.spend(at, ran);
        let mut parts: Vec<BudgetPart> =
            state.sums.into_iter().map(|((cause, who), ns)| part(cause, who, ns, marks)).collect();
        parts.sort_by(|a, b| b.ns.cmp(&a.ns).then(a.cause.cmp(&b.cause)));
        let woken_after_ns = woken.map(|woken| woken - due);
        Budget { tid: broke.tid, cpu, total_ns: ran - due, woken_after_ns, parts }
    }

    /// The verdict: who is to blame, in a sentence.
    pub fn blame(&self) -> String {
        let Some(first) = self.parts.first() else {
            return "The wakeup was on time.".to_owned();
        };
        format!(
            "{:.0} % of {} are laid to: {} {}",
            self.share(first) * 100.0,
            Ns(self.total_ns),
            first.cause.words(),
            first.called()
        )
        .trim_end()
        .to_owned()
            + "."
    }
}

impl BudgetPart {
    /// `name (tid)`, or the interrupt's name.
    pub fn called(&self) -> String {
        match self.tid {
            Some(tid) => format!("{} ({tid})", self.who),
            None => self.who.clone(),
        }
    }
}

fn part(cause: Cause, who: Who, ns: u64, marks: &Marks) -> BudgetPart {
    let (who, tid) = match who {
        Who::Nobody => (String::new(), None),
        Who::Interrupt(index) => {
            (marks.interrupts.get(usize::from(index)).cloned().unwrap_or_default(), None)
        }
        Who::Softirq(number) => (Marks::softirq(number), None),
        Who::Thread(tid) => (marks.name(tid), Some(tid)),
    };
    BudgetPart { cause, who, tid, ns }
}

/// The kernel's number for a policy: a smaller one goes first.
fn priority(policy: Policy) -> i32 {
    match policy {
        Policy::Deadline { .. } => -1,
        Policy::Fifo(priority) | Policy::Rr(priority) => 99 - i32::from(priority),
        _ => FAIR,
    }
}

/// Whether a limit can hold back a thread of `policy` that is due at `due`. Limits of groups and of
/// deadline threads act at any time, those of real-time threads only after these have run for long.
fn may_be_throttled(policy: Policy, rt_runtime: Option<Ns>, list: &[Mark], due: u64) -> bool {
    let (Policy::Fifo(_) | Policy::Rr(_)) = policy else { return true };
    let Some(allowed) = rt_runtime else { return false };
    let from = due.saturating_sub(PERIOD);
    let (mut ran, mut since) = (0, None::<u64>);
    for mark in list.iter().take_while(|mark| mark.at <= due) {
        let MarkKind::Switch { next, next_prio, .. } = mark.kind else { continue };
        ran += since.map_or(0, |since| mark.at.saturating_sub(since.max(from)));
        since = next_prio.filter(|prio| next != 0 && (0..100).contains(prio)).map(|_| mark.at);
    }
    ran += since.map_or(0, |since| due.saturating_sub(since.max(from)));
    ran as f64 >= allowed.0 as f64 * USED_UP
}

/// Nice 0. All fair threads count as equal: nice values weigh, they give no right to go first.
const FAIR: i32 = 120;

/// The last priority that each thread was seen with.
fn priorities(list: &[Mark]) -> BTreeMap<u32, i32> {
    let seen = list.iter().filter_map(|mark| match mark.kind {
        MarkKind::Switch { next, next_prio: Some(prio), .. } => Some((next, prio)),
        _ => None,
    });
    seen.collect()
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Who {
    Nobody,
    Interrupt(u16),
    Softirq(u16),
    Thread(u32),
}

/// What goes on at a moment.
struct CpuState {
    tid: u32,
    prio: i32,
    woken: Option<u64>,
    slack_until: u64,
    current: Option<u32>,
    /// The scheduler chose `current` after the wakeup.
    picked: bool,
    /// The thread was switched in after its expiry, or never left the CPU and was woken there.
    entered: bool,
    /// A limit may hold the thread back.
    may_be_throttled: bool,
    irqs: Vec<u16>,
    softirqs: Vec<u16>,
    prios: BTreeMap<u32, i32>,
    sums: BTreeMap<(Cause, Who), u64>,
}

impl CpuState {
    fn step(&mut self, mark: &Mark, due: u64) {
        match mark.kind {
            MarkKind::Switch { next, .. } => {
                self.current = Some(next);
                self.entered |= mark.at >= due && next == self.tid;
                self.picked = mark.at >= due && self.woken.is_some_and(|woken| mark.at >= woken);
                // Nothing is switched inside interrupts: an end that is missing was lost.
                self.irqs.clear();
                self.softirqs.clear();
            }
            MarkKind::Waking { .. } => {}
            MarkKind::IrqEntry(index) => self.irqs.push(index),
            MarkKind::IrqExit => drop(self.irqs.pop()),
            MarkKind::SoftirqEntry(number) => self.softirqs.push(number),
            MarkKind::SoftirqExit => drop(self.softirqs.pop()),
            MarkKind::Lost => {
                self.current = None;
                self.irqs.clear();
                self.softirqs.clear();
            }
        }
    }

    /// Lays the time from `from` to `to`, in which nothing changed, to its cause.
    fn spend(&mut self, from: u64, to: u64) {
        let edges = [self.slack_until, self.woken.unwrap_or(from)];
        let mut cuts: Vec<u64> =
            edges.into_iter().filter(|edge| (from + 1..to).contains(edge)).collect();
        cuts.sort_unstable();
        cuts.push(to);
        let mut at = from;
        for cut in cuts {
            let cause = self.cause(at, to - from);
            *self.sums.entry(cause).or_default() += cut - at;
            at = cut;
        }
        self.sums.retain(|_, ns| *ns > 0);
    }

    fn cause(&self, at: u64, long: u64) -> (Cause, Who) {
        if let Some(&index) = self.irqs.last() {
            return (Cause::Irq, Who::Interrupt(index));
        }
        if let Some(&number) = self.softirqs.last() {
            return (Cause::Softirq, Who::Softirq(number));
        }
        let Some(current) = self.current else { return (Cause::Unknown, Who::Nobody) };
        if current == self.tid {
            return (if self.entered { Cause::Own } else { Cause::StillRan }, Who::Nobody);
        }
        if self.woken.is_none_or(|woken| at < woken) && at < self.slack_until {
            return (Cause::TimerSlack, Who::Nobody);
        }
        let passed_over = self.picked && self.may_be_throttled && long >= THROTTLED_FROM;
        if current == 0 {
            return (if passed_over { Cause::Throttled } else { Cause::IdleExit }, Who::Nobody);
        }
        let who = Who::Thread(current);
        match self.woken {
            // The wakeup left no trace: whether the thread was in the queue is not known.
            None => (Cause::Unknown, who),
            Some(woken) if at < woken => (Cause::LateWakeup, who),
            Some(_) => match self.prios.get(&current).map(|prio| (*prio).min(FAIR)) {
                Some(prio) if prio < self.prio && !(prio >= 100 && self.prio >= 100) => {
                    (Cause::Preempted, who)
                }
                Some(prio) if prio >= 100 && self.prio < 100 && passed_over => {
                    (Cause::Throttled, who)
                }
                _ => (Cause::RunQueue, who),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ME: u32 = 7;
    /// A real-time thread that ran since 0 has used it up when one is due ([`broke`]).
    const LIMIT: Option<Ns> = Some(Ns(900_000));

    fn broke(late: u64) -> Broke {
        Broke { thread: 0, tid: ME, cpu: CpuId(0), due_ns: 1_000_000, ran_ns: 1_000_000 + late }
    }

    fn marks(list: &[(u64, MarkKind)]) -> Marks {
        let list = list.iter().map(|&(at, kind)| Mark { at, kind }).collect();
        let names = [(8, "hog"), (9, "mate")].map(|(tid, name)| (tid, name.to_owned())).into();
        Marks { cpus: [(CpuId(0), list)].into(), names, interrupts: vec!["local timer".to_owned()] }
    }

    fn switch(prev: u32, next: u32, prio: i32) -> MarkKind {
        MarkKind::Switch { prev: Some(prev), next, next_prio: Some(prio) }
    }

    fn parts(budget: &Budget) -> Vec<(Cause, &str, u64)> {
        assert_eq!(budget.parts.iter().map(|part| part.ns).sum::<u64>(), budget.total_ns);
        budget.parts.iter().map(|part| (part.cause, part.who.as_str(), part.ns)).collect()
    }

    const WAKING: MarkKind = MarkKind::Waking { tid: ME };

    #[test]
    fn a_hog_above_is_blamed_by_name() {
        let seen = marks(&[
            (500_000, switch(0, 8, 39)),
            (1_001_000, MarkKind::IrqEntry(0)),
            (1_003_000, WAKING),
            (1_004_000, MarkKind::IrqExit),
            (5_900_000, switch(8, ME, 49)),
        ]);
        let budget = Budget::of_wakeup(&broke(5_000_000), Policy::Fifo(50), Ns::ZERO, LIMIT, &seen);
        let expected = [
            (Cause::Preempted, "hog", 4_896_000),
            (Cause::Own, "", 100_000),
            (Cause::Irq, "local timer", 3_000),
            (Cause::LateWakeup, "hog", 1_000),
        ];
        assert_eq!(parts(&budget), expected);
        assert_eq!(budget.blame(), "98 % of 5.00ms are laid to: preempted by hog (8).");
        assert_eq!(budget.woken_after_ns, Some(3_000));
    }

    #[test]
    fn what_another_thread_means_depends_on_right_and_choice() {
        let of = |prio: i32, policy: &str, picked: bool| {
            // Without a choice after the wakeup it ran already.
            let at = if picked { 1_002_000 } else { 900_000 };
            let mut list = vec![
                (0, switch(0, 9, 49)),
                (at, switch(9, 8, prio)),
                (1_001_000, WAKING),
                (2_000_000, switch(8, ME, 50)),
            ];
            list.sort_by_key(|(at, _)| *at);
            Budget::of_wakeup(
                &broke(1_000_000),
                policy.parse().unwrap(),
                Ns::ZERO,
                LIMIT,
                &marks(&list),
            )
            .parts[0]
                .cause
        };
        assert_eq!(of(120, "other", true), Cause::RunQueue);
        assert_eq!(of(110, "other", true), Cause::RunQueue);
        assert_eq!(of(80, "other", true), Cause::Preempted);
        assert_eq!(of(120, "fifo:50", true), Cause::Throttled);
        assert_eq!(of(120, "fifo:50", false), Cause::RunQueue);
        assert_eq!(of(10, "fifo:50", true), Cause::Preempted);
        assert_eq!(of(-1, "fifo:50", false), Cause::Preempted);
        assert_eq!(of(49, "fifo:50", false), Cause::RunQueue);
    }

    #[test]
    fn idle_slack_and_loss() {
        let idle = marks(&[(1_060_000, WAKING), (1_080_000, switch(0, ME, 120))]);
        let budget =
            Budget::of_wakeup(&broke(100_000), Policy::Other, Ns::from_us(50), LIMIT, &idle);
        let expected = [
            (Cause::TimerSlack, "", 50_000),
            (Cause::IdleExit, "", 30_000),
            (Cause::Own, "", 20_000),
        ];
        assert_eq!(parts(&budget), expected);
        let lost = marks(&[(900_000, switch(0, 8, 120)), (1_010_000, MarkKind::Lost)]);
        let budget = Budget::of_wakeup(&broke(100_000), Policy::Fifo(1), Ns::ZERO, LIMIT, &lost);
        assert_eq!(parts(&budget), [(Cause::Unknown, "", 90_000), (Cause::Unknown, "hog", 10_000)]);
        // Idle although the thread was ready.
        let budget = [(0, switch(8, 9, 50)), (1_000_000, WAKING), (1_100_000, switch(9, 0, 120))];
        let budget =
            Budget::of_wakeup(&broke(950_000), Policy::Fifo(1), Ns::ZERO, LIMIT, &marks(&budget));
        assert_eq!(parts(&budget)[0], (Cause::Throttled, "", 850_000));
        assert_eq!(
            parts(&Budget::of_wakeup(&broke(0), Policy::Other, Ns::ZERO, LIMIT, &Marks::default())),
            []
        );
    }

    #[test]
    fn a_limit_that_is_not_used_up_is_no_cause() {
        let list =
            [(900_000, switch(0, 9, 50)), (1_000_000, WAKING), (1_100_000, switch(9, 0, 120))];
        let of = |limit| {
            Budget::of_wakeup(&broke(950_000), Policy::Fifo(80), Ns::ZERO, limit, &marks(&list))
                .parts[0]
                .cause
        };
        assert_eq!(of(LIMIT), Cause::IdleExit, "100 us of real-time threads before");
        assert_eq!(of(None), Cause::IdleExit, "no limit at all");
        assert_eq!(of(Some(Ns(100_000))), Cause::Throttled);
    }

    #[test]
    fn a_thread_that_still_ran_did_not_return_to_user_space() {
        // It was due while it ran; it went to sleep late, and was woken at once.
        let list =
            [(2_600_000, switch(ME, 0, 120)), (2_630_000, WAKING), (2_660_000, switch(0, ME, 19))];
        let budget =
            Budget::of_wakeup(&broke(1_680_000), Policy::Fifo(80), Ns::ZERO, LIMIT, &marks(&list));
        let expected = [
            (Cause::StillRan, "", 1_600_000),
            (Cause::IdleExit, "", 60_000),
            (Cause::Own, "", 20_000),
        ];
        assert_eq!(parts(&budget), expected);
        assert_eq!(
            budget.blame(),
            "95 % of 1.68ms are laid to: the thread itself, which still ran when it was due."
        );
    }

    fn kind() -> impl Strategy<Value = MarkKind> {
        prop_oneof![
            (proptest::option::of(0u32..10), 0u32..10, proptest::option::of(-1i32..140))
                .prop_map(|(prev, next, next_prio)| MarkKind::Switch { prev, next, next_prio }),
            (5u32..9).prop_map(|tid| MarkKind::Waking { tid }),
            (0u16..3).prop_map(MarkKind::IrqEntry),
            Just(MarkKind::IrqExit),
            (0u16..12).prop_map(MarkKind::SoftirqEntry),
            Just(MarkKind::SoftirqExit),
            Just(MarkKind::Lost),
        ]
    }

    proptest! {
        /// Whatever was recorded, every nanosecond is laid to a thread, once.
        #[test]
        fn a_budget_adds_up(mut list in proptest::collection::vec((0u64..3_000_000, kind()), 0..60),
                            late in 0u64..2_000_000, slack in 0u64..100_000, fair: bool) {
            list.sort_by_key(|(at, _)| *at);
            let policy = if fair { Policy::Other } else { Policy::Fifo(50) };
            let budget = Budget::of_wakeup(&broke(late), policy, Ns(slack), LIMIT, &marks(&list));
            prop_assert_eq!(budget.parts.iter().map(|part| part.ns).sum::<u64>(), late);
            prop_assert!(budget.parts.iter().all(|part| part.ns > 0));
        }
    }
}
