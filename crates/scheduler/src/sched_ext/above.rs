//! Real-time and deadline tasks, which run above the class of sched_ext: each CPU keeps those that
//! wait for it, and takes its next task there before the scheduler in BPF is asked.
//!
//! Simplified: round robin has no slices, deadline tasks are one level above real time without
//! budgets or order by deadline. `cpu_release` is called when a task
//! above takes the CPU, `cpu_acquire` when the class looks for a task there again.

use super::kernel::{Kernel, Step};
use super::ops::Op;
use crate::{Cmd, Prev};
use schedlab_model::{CpuId, Policy, TaskId};

/// The level of deadline tasks; real-time priorities are 1 to 99.
const DEADLINE: u8 = 100;

/// What is above the class.
#[derive(Debug, Default)]
pub(super) struct Above {
    cpus: Vec<AboveCpu>,
    /// By task; 0: it belongs to the class.
    level: Vec<u8>,
}

#[derive(Debug, Default)]
struct AboveCpu {
    running: Option<usize>,
    /// Those that wait, the next first.
    waiting: Vec<usize>,
    /// The class does not have the CPU.
    held: bool,
    /// The running task gave way.
    yielded: bool,
    /// `cpu_release` came last, not `cpu_acquire`.
    released: bool,
}

/// The level of a policy; 0: that of the class, or below.
pub(super) fn level(policy: Policy) -> u8 {
    match policy {
        Policy::Deadline { .. } => DEADLINE,
        policy => policy.rt_priority(),
    }
}

impl Above {
    pub(super) fn new(cpus: usize, tasks: usize) -> Above {
        Above { cpus: (0..cpus).map(|_| AboveCpu::default()).collect(), level: vec![0; tasks] }
    }

    /// Notes the policy of a task.
    pub(super) fn set(&mut self, t: usize, policy: Policy) {
        self.level[t] = level(policy);
    }

    /// Whether a task is above the class.
    pub(super) fn has(&self, t: usize) -> bool {
        self.level[t] > 0
    }

    /// Whether the CPU is with a task above the class.
    pub(super) fn holds(&self, cpu: usize) -> bool {
        self.cpus[cpu].held
    }

    fn level_on(&self, cpu: usize) -> u8 {
        self.cpus[cpu].running.map_or(0, |t| self.level[t])
    }

    /// Whether a deadline task is on a CPU.
    pub(super) fn has_deadline(&self, cpu: usize) -> bool {
        self.claimed(cpu) == DEADLINE
    }

    /// The task above the class leaves its CPU to the class, and is not queued yet.
    pub(super) fn set_aside(&mut self, cpu: usize) -> Option<usize> {
        self.cpus[cpu].running.take()
    }

    /// Queues it before those of its level.
    pub(super) fn put_first(&mut self, cpu: usize, t: usize) {
        self.queue(cpu, t, true);
    }

    /// The level of the most urgent task that is on a CPU.
    fn claimed(&self, cpu: usize) -> u8 {
        let first = self.cpus[cpu].waiting.first().map_or(0, |t| self.level[*t]);
        self.level_on(cpu).max(first)
    }

    /// Puts a task before those of its level that wait, or behind them.
    fn queue(&mut self, cpu: usize, t: usize, first: bool) {
        let (level, levels) = (self.level[t], &self.level);
        let waiting = &mut self.cpus[cpu].waiting;
        let at = waiting.partition_point(|other| match first {
            true => levels[*other] > level,
            false => levels[*other] >= level,
        });
        waiting.insert(at, t);
    }

    /// A waiting task waits no more.
    pub(super) fn leave(&mut self, t: usize) {
        self.cpus.iter_mut().for_each(|cpu| cpu.waiting.retain(|other| *other != t));
    }

    pub(super) fn yielded(&mut self, cpu: usize) {
        self.cpus[cpu].yielded = true;
    }
}

impl Kernel {
    /// A task above the class wakes, or is preempted (then it is the first of its level): it goes
    /// where it was if it may run there at once, else to the CPU with the least level, if that is
    /// below its own (`select_task_rq_rt`, `find_lowest_rq`, `push_rt_task`).
    pub(super) fn place(&mut self, t: usize, first: bool) {
        let (prev, level) = (self.tasks[t].cpu, self.above.level[t]);
        let good = |cpu: &usize| self.allowed(t, *cpu) && self.cpus[*cpu].online;
        let below = |cpu: &usize| self.above.claimed(*cpu) < level;
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
        if self.above.level_on(cpu) < level {
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
        if let Some(next) = self.decide_served(cpu, prev, why)? {
            return Ok(next);
        }
        let own = prev.filter(|t| self.above.has(*t));
        let level = |t: Option<usize>| t.map_or(0, |t| self.above.level[t]);
        let first = self.above.cpus[cpu].waiting.first().copied();
        let yields = std::mem::take(&mut self.above.cpus[cpu].yielded);
        let keeps = level(first) < level(own) || level(first) == level(own) && !yields;
        if let Some(t) = own.filter(|_| why == Prev::Runnable && keeps) {
            return Ok(Some(t));
        }
        self.above.cpus[cpu].running = None;
        if yields && why == Prev::Runnable {
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
        if let Some(t) = own.filter(|_| why == Prev::Runnable && !yields) {
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
        let most =
            here.reduce(|a, b| if self.above.level[b] > self.above.level[a] { b } else { a });
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
        let reason = REASONS[usize::from(self.above.level[next] == DEADLINE)];
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
