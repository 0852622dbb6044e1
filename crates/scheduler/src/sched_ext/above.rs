//! Real-time and deadline tasks, which run above the class of sched_ext: each CPU keeps those that
//! wait for it, and takes its next task there before the scheduler in BPF is asked. Deadline tasks
//! have the budgets of the deadline class of the Linux models ([`Cbs`]).
//!
//! | rule | real place | here | test |
//! |---|---|---|---|
//! | FIFO and RR by priority, RR with slices of 100 ms in ticks | `task_tick_rt` | modelled | `round_robin_has_slices_above_a_scheduler_in_bpf` |
//! | deadline tasks: earliest deadline first, budgets end by a timer (7.x) or at ticks | kernel/sched/deadline.c | modelled; which tasks are admitted is not asked | `deadline_tasks_have_budgets_above_a_scheduler_in_bpf` |
//! | which CPU a waking, preempted or leaving task takes | `find_lowest_rq`, `find_later_rq`, `pull_rt_task` | simplified: the CPU with the least urgent task | `levels_above_a_scheduler_in_bpf` |
//! | `cpu_release` when a task above takes the CPU, `cpu_acquire` when the class looks there again | `switch_class`, `balance_one` | modelled | `a_scheduler_is_told_of_a_cpu_that_is_taken_and_a_profile_runs_programs` |
//! | inherited priorities, SCHED_FLAG_RECLAIM | | omitted | |

use super::kernel::{Kernel, Step};
use super::ops::Op;
use crate::linux::Cbs;
use crate::{Cmd, Prev, Timer};
use schedlab_model::{CpuId, Ns, Policy, TaskId};
use std::cmp::Reverse;

/// The level of deadline tasks; real-time priorities are 1 to 99.
const DEADLINE: u8 = 100;

/// Shortest timer for the end of a budget (`hrtick_start`).
const HRTICK_LEAST: u64 = 10_000;

/// The more urgent, the greater: the level, and among deadline tasks the earlier deadline.
type Rank = (u8, Reverse<i64>);

/// Of a CPU without such tasks.
const NOTHING: Rank = (0, Reverse(0));

/// What is above the class.
#[derive(Debug, Default)]
pub(super) struct Above {
    cpus: Vec<AboveCpu>,
    tasks: Vec<AboveTask>,
    /// Ticks of a slice of round robin (`RR_TIMESLICE`, 100 ms).
    slice: u64,
}

#[derive(Debug, Default)]
struct AboveCpu {
    running: Option<usize>,
    /// Its time since then is not charged yet.
    since: u64,
    /// Those that wait, the next first.
    waiting: Vec<usize>,
    /// The class does not have the CPU.
    held: bool,
    /// The running task gave way, or its slice is over.
    yielded: bool,
    /// `cpu_release` came last, not `cpu_acquire`.
    released: bool,
}

#[derive(Debug, Default)]
struct AboveTask {
    /// 0: it belongs to the class.
    level: u8,
    /// Ticks that are left of its slice; `None`: it has no slices.
    left: Option<u64>,
    /// Budget and deadline of a deadline task.
    server: Option<Box<Cbs>>,
    /// It wants a CPU, and waits for its next period.
    parked: bool,
}

/// The level of a policy; 0: that of the class, or below.
pub(super) fn level(policy: Policy) -> u8 {
    match policy {
        Policy::Deadline { .. } => DEADLINE,
        policy => policy.rt_priority(),
    }
}

impl Above {
    pub(super) fn new(cpus: usize, tasks: usize, hz: u32) -> Above {
        Above {
            cpus: (0..cpus).map(|_| AboveCpu::default()).collect(),
            tasks: (0..tasks).map(|_| AboveTask::default()).collect(),
            slice: (u64::from(hz) / 10).max(1),
        }
    }

    /// Notes the policy of a task.
    pub(super) fn set(&mut self, t: usize, policy: Policy) {
        self.tasks[t] = AboveTask {
            level: level(policy),
            left: matches!(policy, Policy::Rr(_)).then_some(self.slice),
            server: Cbs::for_policy(policy).map(Box::new),
            parked: false,
        };
    }

    /// Whether a task is above the class.
    pub(super) fn has(&self, t: usize) -> bool {
        self.tasks[t].level > 0
    }

    /// Whether the CPU is with a task above the class.
    pub(super) fn holds(&self, cpu: usize) -> bool {
        self.cpus[cpu].held
    }

    /// Whether ticks of a CPU matter to what runs there.
    pub(super) fn wants_ticks(&self, cpu: usize) -> bool {
        let running = self.cpus[cpu].running.map(|t| &self.tasks[t]);
        running.is_some_and(|task| task.left.is_some() || task.server.is_some())
    }

    fn rank(&self, t: usize) -> Rank {
        let task = &self.tasks[t];
        (task.level, Reverse(task.server.as_deref().map_or(0, |server| server.until)))
    }

    fn rank_on(&self, cpu: usize) -> Rank {
        self.cpus[cpu].running.map_or(NOTHING, |t| self.rank(t))
    }

    fn is_throttled(&self, t: usize) -> bool {
        self.tasks[t].server.as_deref().is_some_and(|server| server.throttled)
    }

    /// Whether a deadline task is on a CPU.
    pub(super) fn has_deadline(&self, cpu: usize) -> bool {
        self.claimed(cpu).0 == DEADLINE
    }

    /// The task above the class leaves its CPU to the class, and is not queued yet.
    pub(super) fn set_aside(&mut self, cpu: usize) -> Option<usize> {
        self.cpus[cpu].running.take()
    }

    /// Queues it before those of its level.
    pub(super) fn put_first(&mut self, cpu: usize, t: usize) {
        self.queue(cpu, t, true);
    }

    /// The rank of the most urgent task that is on a CPU.
    fn claimed(&self, cpu: usize) -> Rank {
        let first = self.cpus[cpu].waiting.first().map_or(NOTHING, |t| self.rank(*t));
        self.rank_on(cpu).max(first)
    }

    /// Puts a task before those of its rank that wait, or behind them.
    fn queue(&mut self, cpu: usize, t: usize, first: bool) {
        let rank = self.rank(t);
        let at = self.cpus[cpu].waiting.partition_point(|other| match first {
            true => self.rank(*other) > rank,
            false => self.rank(*other) >= rank,
        });
        self.cpus[cpu].waiting.insert(at, t);
    }

    /// A waiting task waits no more.
    fn leave(&mut self, t: usize) {
        self.cpus.iter_mut().for_each(|cpu| cpu.waiting.retain(|other| *other != t));
    }

    /// The running task gives way, or what is left of its budget away.
    pub(super) fn yielded(&mut self, t: usize, cpu: usize) {
        match self.tasks[t].server.as_deref_mut() {
            Some(server) => server.yielded = true,
            None => self.cpus[cpu].yielded = true,
        }
    }
}

impl Kernel {
    /// A task above the class wakes, or has come from another CPU (`moved`).
    pub(super) fn wake_above(&mut self, t: usize, moved: bool) {
        let now = self.vm.now as i64;
        if let Some(server) = self.above.tasks[t].server.as_deref_mut() {
            let was = server.throttled;
            if !moved {
                server.wake(now);
            }
            if server.throttled {
                let next = server.next_period();
                if !was {
                    self.arm_above(t, next as u64);
                }
                return self.park(t);
            }
        }
        self.place(t, false);
    }

    /// A deadline task wants a CPU, and has to wait for its next period.
    fn park(&mut self, t: usize) {
        self.above.tasks[t].parked = true;
        self.cmds.push(Cmd::Throttled(TaskId::from(t)));
    }

    /// A task that waits no longer wants a CPU.
    pub(super) fn leave_above(&mut self, t: usize) {
        self.above.leave(t);
        if std::mem::take(&mut self.above.tasks[t].parked) {
            self.cmds.push(Cmd::Unthrottled(TaskId::from(t)));
        }
    }

    fn arm_above(&mut self, t: usize, at: u64) {
        self.cmds.push(Cmd::Arm(Timer::Task(TaskId::from(t)), Ns(at)));
    }

    /// The budget of a running deadline task ends by a timer (HRTICK_DL, on since 7.x).
    fn arm_budget(&mut self, t: usize) {
        if let Some(server) = self.above.tasks[t].server.as_deref().filter(|_| self.rules.server) {
            let left = (server.left.max(0) as u64).max(HRTICK_LEAST);
            self.arm_above(t, self.vm.now + left);
        }
    }

    /// Charges the deadline task that runs on a CPU; one whose budget is used up waits for its next
    /// period.
    fn charge_above(&mut self, cpu: usize) {
        let now = self.vm.now;
        let Some(t) = self.above.cpus[cpu].running else { return };
        let ran = now - std::mem::replace(&mut self.above.cpus[cpu].since, now);
        let Some(server) = self.above.tasks[t].server.as_deref_mut() else { return };
        if server.throttled || ran == 0 && !server.yielded || !server.spend(ran) {
            return;
        }
        let next = server.next_period();
        if next < now as i64 {
            server.replenish(now as i64);
            self.arm_budget(t);
        } else {
            server.throttled = true;
            self.arm_above(t, next as u64);
        }
        self.resched(cpu);
    }

    /// The timer of a deadline task: its budget ends, or its next period begins.
    pub(super) fn above_due(&mut self, t: usize) {
        if !self.above.is_throttled(t) {
            let cpu = self.tasks[t].cpu;
            if self.above.cpus[cpu].running == Some(t) {
                self.charge_above(cpu);
                if !self.above.is_throttled(t) {
                    self.arm_budget(t);
                }
            }
            return;
        }
        let now = self.vm.now as i64;
        if let Some(server) = self.above.tasks[t].server.as_deref_mut() {
            server.replenish(now);
        }
        if std::mem::take(&mut self.above.tasks[t].parked) {
            self.cmds.push(Cmd::Unthrottled(TaskId::from(t)));
            self.place(t, false);
        }
    }

    /// A tick of a CPU that is with a task above the class (`task_tick_rt`, `task_tick_dl`).
    pub(super) fn tick_above(&mut self, cpu: usize) {
        let Some(t) = self.above.cpus[cpu].running else { return };
        self.charge_above(cpu);
        let whole = self.above.slice;
        let task = &mut self.above.tasks[t];
        let (level, Some(left)) = (task.level, task.left.as_mut()) else { return };
        *left -= 1;
        if *left > 0 {
            return;
        }
        *left = whole;
        let others = &self.above.cpus[cpu].waiting;
        if others.iter().any(|other| self.above.tasks[*other].level == level) {
            self.above.cpus[cpu].yielded = true;
            self.resched(cpu);
        }
    }

    /// A task above the class wakes, or is preempted (then it is the first of its level): it goes
    /// where it was if it may run there at once, else to the CPU with the least level, if that is
    /// below its own (`select_task_rq_rt`, `find_lowest_rq`, `push_rt_task`).
    pub(super) fn place(&mut self, t: usize, first: bool) {
        let (prev, rank) = (self.tasks[t].cpu, self.above.rank(t));
        let good = |cpu: &usize| self.allowed(t, *cpu) && self.cpus[*cpu].online;
        let below = |cpu: &usize| self.above.claimed(*cpu) < rank;
        let least = |cpu: &usize| (self.above.claimed(*cpu), !self.is_idle(*cpu), *cpu);
        let stays = Some(prev).filter(good);
        let moves = || (0..self.cpus.len()).filter(good).filter(below).min_by_key(least);
        let cpu = stays.filter(below).or_else(moves).or(stays);
        let cpu = cpu.or_else(|| (0..self.cpus.len()).find(good)).unwrap_or(prev);
        self.set_cpu(t, cpu);
        self.above.queue(cpu, t, first);
        // It takes an idle CPU at once: a wakeup in this instant finds that busy.
        if self.is_idle(cpu) {
            self.claim(cpu);
        }
        if self.above.rank_on(cpu) < rank {
            self.resched(cpu);
        }
    }

    /// Who runs next on a CPU, over all classes. A task of the class that does not go on was
    /// dequeued.
    pub(super) fn decide_all(
        &mut self,
        cpu: usize,
        prev: Option<usize>,
        why: Prev,
    ) -> Step<Option<usize>> {
        let own = prev.filter(|t| self.above.has(*t));
        self.charge_above(cpu);
        let throttled = own.is_some_and(|t| self.above.is_throttled(t));
        let goes_on = why == Prev::Runnable && !throttled;
        if let Some(t) = own.filter(|_| why == Prev::Runnable && throttled) {
            self.park(t);
        }
        if let Some(next) = self.decide_served(cpu, prev, goes_on)? {
            return Ok(next);
        }
        let yields = std::mem::take(&mut self.above.cpus[cpu].yielded);
        let rank = |t: Option<usize>| t.map_or(NOTHING, |t| self.above.rank(t));
        let first = self.above.cpus[cpu].waiting.first().copied();
        let keeps = rank(first) < rank(own) || rank(first) == rank(own) && !yields;
        if let Some(t) = own.filter(|_| goes_on && keeps) {
            return Ok(Some(t));
        }
        self.above.cpus[cpu].running = None;
        if yields && goes_on {
            own.into_iter().for_each(|t| self.above.queue(cpu, t, false));
        } else if own.is_some() && first.is_none() {
            self.pull(cpu);
        }
        if self.above.cpus[cpu].waiting.is_empty() {
            return self.decide_below(cpu, prev.filter(|_| own.is_none()));
        }
        let next = self.above.cpus[cpu].waiting.remove(0);
        if !self.above.cpus[cpu].held {
            self.hold(cpu, prev.filter(|_| own.is_none()))?;
            self.release(cpu, next)?;
        }
        self.above.cpus[cpu].running = Some(next);
        self.above.cpus[cpu].since = self.vm.now;
        self.arm_budget(next);
        if let Some(t) = own.filter(|_| goes_on && !yields) {
            self.place(t, true);
        }
        Ok(Some(next))
    }

    /// A CPU that a task above the class leaves takes the most urgent one that waits elsewhere
    /// (`pull_rt_task`).
    fn pull(&mut self, cpu: usize) {
        let waiting = self.above.cpus.iter().flat_map(|of| of.waiting.iter().copied());
        let here = waiting.filter(|t| self.allowed(*t, cpu));
        // Of equal ones the first.
        let most = here.reduce(|a, b| if self.above.rank(b) > self.above.rank(a) { b } else { a });
        if let Some(t) = most {
            self.above.leave(t);
            self.set_cpu(t, cpu);
            self.above.queue(cpu, t, false);
        }
    }

    /// The class has the CPU, or gets it back.
    pub(super) fn decide_below(&mut self, cpu: usize, prev: Option<usize>) -> Step<Option<usize>> {
        if std::mem::take(&mut self.above.cpus[cpu].released) {
            let before = self.locked.replace(cpu);
            let result = self.op(Op::CpuAcquire, cpu, &[cpu as u64, 0]);
            self.locked = before;
            result?;
        }
        let next = self.decide(cpu, prev)?;
        if std::mem::take(&mut self.above.cpus[cpu].held) && next.is_none() {
            self.op(Op::UpdateIdle, cpu, &[cpu as u64, 1])?;
        }
        Ok(next)
    }

    /// A higher class takes the CPU from `prev`, or from the idle task (`put_prev_task_scx`).
    fn hold(&mut self, cpu: usize, prev: Option<usize>) -> Step {
        self.charge(cpu);
        match prev {
            Some(t) => {
                if self.tasks[t].queued {
                    self.put_prev(cpu, t, false)?;
                }
                self.set(self.tasks[t].addr, self.layout.on_cpu, 0);
            }
            None => {
                self.set_idle(cpu, false);
                self.op(Op::UpdateIdle, cpu, &[cpu as u64, 0])?;
            }
        }
        self.gave_way(cpu);
        self.cpus[cpu].curr = None;
        self.above.cpus[cpu].held = true;
        if self.has_immed(cpu) {
            self.cpus[cpu].reenqueue_immed = true;
        }
        let (rq, curr) = (self.rqs + self.rq_stride * cpu as u64, self.curr_addr(cpu));
        self.set(rq, self.layout.rq_curr, curr);
        self.run_deferred(cpu)
    }

    /// Tells the scheduler that `next`, a task above the class, takes a CPU (`switch_class`).
    fn release(&mut self, cpu: usize, next: usize) -> Step {
        /// `SCX_CPU_PREEMPT_RT` and `SCX_CPU_PREEMPT_DL`.
        const REASONS: [u64; 2] = [0, 1];
        self.above.cpus[cpu].released = true;
        if !self.has(Op::CpuRelease) {
            return Ok(());
        }
        let (args, layout) = (self.args, self.layout);
        let reason = REASONS[usize::from(self.above.tasks[next].level == DEADLINE)];
        self.set(args, layout.release_reason, reason);
        self.set(args, layout.release_task, self.tasks[next].addr);
        let before = self.locked.replace(cpu);
        let result = self.op(Op::CpuRelease, cpu, &[cpu as u64, args]);
        self.locked = before;
        result?;
        self.run_deferred(cpu)
    }

    /// Where a task above the class may run has changed, or its CPU has gone.
    pub(super) fn place_anew(&mut self, t: usize) {
        let cpu = self.tasks[t].cpu;
        if self.allowed(t, cpu) && self.cpus[cpu].online {
            return;
        }
        if self.above.cpus[cpu].running == Some(t) {
            self.cmds.push(Cmd::Displace(TaskId::from(t)));
        } else if self.above.cpus[cpu].waiting.contains(&t) {
            self.above.leave(t);
            self.place(t, false);
        }
    }

    /// The tasks above the class that are on a CPU.
    pub(super) fn all_above(&self, cpu: CpuId) -> Vec<usize> {
        let of = &self.above.cpus[cpu.index()];
        of.waiting.iter().copied().chain(of.running).collect()
    }
}
