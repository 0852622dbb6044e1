//! Wakeups and the decision of a CPU: `select_task_rq_scx`, `enqueue_task_scx`, `balance_one`,
//! `put_prev_task_scx`, `set_next_task_scx`, `dequeue_task_scx` (kernel/sched/ext.c).

use super::kernel::{Direct, Kernel, Step};
use super::ops::{self, Op, enq};
use crate::WakeKind;

/// `WF_FORK`, `WF_TTWU`, `WF_SYNC`.
const FORK: u64 = 4;
const TTWU: u64 = 8;
const SYNC: u64 = 16;

impl Kernel {
    /// `try_to_wake_up`, or the first wakeup of a new task.
    pub(super) fn wake(&mut self, t: usize, kind: WakeKind, sync: bool) -> Step {
        let (prev, mask) = (self.tasks[t].cpu, self.tasks[t].mask);
        let mut flags = enq::NOCLOCK;
        flags |= match kind {
            WakeKind::New => enq::INITIAL[self.rules.bits()],
            _ => enq::WAKEUP,
        };
        let migrates = kind == WakeKind::Migrated;
        let mut chosen = prev;
        if mask.count_ones() > 1 && !migrates {
            let how = if kind == WakeKind::New { FORK } else { TTWU };
            chosen = self.select(t, prev, how | if sync { SYNC } else { 0 })?;
            // A new task's flags do not say so (`wake_up_new_task`).
            if kind != WakeKind::New {
                flags |= enq::CPU_SELECTED;
            }
        }
        if !self.allowed(t, chosen) || !self.cpus[chosen].online {
            chosen = self.fallback(t, if migrates { self.tasks[t].goes_to } else { prev });
        }
        if chosen != prev && kind != WakeKind::New {
            flags |= enq::MIGRATED[self.rules.bits()];
        }
        // `activate_task` of a task that is on its way.
        if migrates {
            flags = enq::MIGRATED[self.rules.bits()];
        }
        self.set_cpu(t, chosen);
        self.set_queued(t, true);
        self.waits(t);
        self.show_flags(t);
        // It was runnable on its way, too (`task_on_rq_migrating`).
        if !migrates {
            self.op(Op::Runnable, self.vm.cpu, &[self.tasks[t].addr, flags])?;
        }
        self.do_enqueue(t, flags)?;
        // `wakeup_preempt`: an idle CPU looks for work; a task of this class never preempts so.
        if self.is_idle(chosen) {
            self.resched(chosen);
        }
        self.run_deferred(chosen)
    }

    fn select(&mut self, t: usize, prev: usize, wake: u64) -> Step<usize> {
        let addr = self.tasks[t].addr;
        let chosen = if self.has(Op::SelectCpu) {
            self.direct = Direct::Of(t);
            let answer = self.op(Op::SelectCpu, self.vm.cpu, &[addr, prev as u64, wake]);
            self.direct = Direct::No;
            let cpu = answer? as i32;
            if usize::try_from(cpu).is_ok_and(|cpu| cpu < self.cpus.len()) {
                cpu as usize
            } else {
                self.error(format_args!("invalid CPU {cpu} from ops.select_cpu()"));
                prev
            }
        } else {
            let cpu = self.select_default(t, prev, wake, u64::MAX, 0);
            if cpu >= 0 {
                self.set_slice(t, ops::SLICE_DFL);
                self.tasks[t].direct = Some((ops::dsq::LOCAL, 0));
            }
            if cpu >= 0 { cpu as usize } else { prev }
        };
        self.set(addr, self.layout.selected, chosen as u64);
        Ok(chosen)
    }

    /// `select_fallback_rq`, as far as it matters: where it was, else any allowed CPU.
    fn fallback(&self, t: usize, prev: usize) -> usize {
        let good = |cpu: &usize| self.allowed(t, *cpu) && self.cpus[*cpu].online;
        let all = std::iter::once(prev).chain(0..self.cpus.len());
        all.into_iter().find(good).unwrap_or(prev)
    }

    /// `dequeue_task_scx`
    pub(super) fn dequeue(&mut self, t: usize, running: bool, flags: u64) -> Step {
        if !self.tasks[t].queued {
            return Ok(());
        }
        let (addr, cpu) = (self.tasks[t].addr, self.tasks[t].cpu);
        self.ops_dequeue(t, flags)?;
        if running {
            self.charge(cpu);
            self.op(Op::Stopping, cpu, &[addr, 0])?;
        }
        self.op(Op::Quiescent, cpu, &[addr, flags])?;
        self.set_queued(t, false);
        self.show_flags(t);
        self.forget(t);
        Ok(())
    }

    /// A running task is to go on elsewhere, where its affinity lets it: the stopper's thread takes
    /// the CPU from it, and its way from queue to queue is not told (`migration_cpu_stop`,
    /// `move_queued_task`).
    pub(super) fn takes_off(&mut self, t: usize) -> Step {
        if !self.tasks[t].queued {
            return Ok(());
        }
        let (addr, cpu) = (self.tasks[t].addr, self.tasks[t].cpu);
        self.charge(cpu);
        self.op(Op::Stopping, cpu, &[addr, 1])?;
        let switches = self.get(addr, self.layout.nivcsw) + 1;
        self.set(addr, self.layout.nivcsw, switches);
        self.set_queued(t, false);
        self.show_flags(t);
        self.forget(t);
        self.cpus[cpu].stopped = true;
        Ok(())
    }

    /// An attribute changes: the task is taken away, changed and given back (`sched_change`).
    /// `flags`: those of the core.
    pub(super) fn change(
        &mut self,
        t: usize,
        flags: u64,
        change: impl FnOnce(&mut Kernel) -> Step,
    ) -> Step {
        let (cpu, queued) = (self.tasks[t].cpu, self.tasks[t].queued);
        let running = self.runs_on(cpu) == Some(t);
        if queued {
            self.dequeue(t, running, enq::DEQ_CHANGE | flags)?;
        }
        change(self)?;
        if !queued {
            return Ok(());
        }
        self.set_queued(t, true);
        self.show_flags(t);
        let addr = self.tasks[t].addr;
        self.op(Op::Runnable, cpu, &[addr, flags])?;
        if running {
            self.tasks[t].exec_start = self.vm.now;
            self.op(Op::Running, cpu, &[addr])?;
            return Ok(());
        }
        if !self.allowed(t, cpu) || !self.cpus[cpu].online {
            let to = self.fallback(t, self.tasks[t].goes_to);
            self.set_cpu(t, to);
        }
        self.do_enqueue(t, flags)?;
        self.run_deferred(self.tasks[t].cpu)
    }

    /// `balance_one` and the pick after it.
    pub(super) fn pick(&mut self, cpu: usize, prev: Option<usize>) -> Step<Option<usize>> {
        self.cpus[cpu].balancing = true;
        let kept = self.balance(cpu, prev);
        if self.queues[cpu].tasks.len() > 1 && self.has_immed(cpu) {
            self.cpus[cpu].reenqueue_immed = true;
        }
        self.cpus[cpu].balancing = false;
        let next = match kept? {
            Some(prev) => Some(prev),
            None => self.queues[cpu].tasks.front().copied(),
        };
        if let Some(t) = next
            && self.slice(t) == 0
        {
            self.set_slice(t, ops::SLICE_DFL);
        }
        Ok(next)
    }

    /// Returns `prev` when it goes on; else the local queue has what there is.
    fn balance(&mut self, cpu: usize, prev: Option<usize>) -> Step<Option<usize>> {
        // A task that has just blocked is named to `dispatch` too.
        let addr = prev.map_or(0, |t| self.tasks[t].addr);
        // The stopper's thread ran in between.
        let addr = if std::mem::take(&mut self.cpus[cpu].stopped) { 0 } else { addr };
        let prev = prev.filter(|t| self.tasks[*t].queued);
        let goes_on = |kernel: &Kernel| prev.is_some_and(|t| kernel.slice(t) > 0);
        if goes_on(self) {
            return Ok(prev);
        }
        let global = self.global();
        if !self.queues[cpu].tasks.is_empty() || self.consume(global, cpu, 0)? {
            return Ok(None);
        }
        if self.has(Op::Dispatch) {
            for round in 1..=ops::MAX_LOOPS {
                (self.dispatched, self.dispatch_cpu) = (0, cpu);
                let before = self.locked.replace(cpu);
                let result = self.op(Op::Dispatch, cpu, &[cpu as u64, addr]);
                self.locked = before;
                result?;
                self.flush()?;
                if goes_on(self) {
                    return Ok(prev);
                }
                if !self.queues[cpu].tasks.is_empty() || self.consume(global, cpu, 0)? {
                    return Ok(None);
                }
                if self.dispatched == 0 {
                    break;
                }
                if round == ops::MAX_LOOPS {
                    self.resched(cpu);
                }
            }
        }
        let keep_last = self.flags & ops::flag::ENQ_LAST == 0;
        Ok(prev.filter(|_| keep_last))
    }

    /// The decision for a CPU. Returns who runs next.
    pub(super) fn decide(&mut self, cpu: usize, prev: Option<usize>) -> Step<Option<usize>> {
        self.charge(cpu);
        let next = self.pick(cpu, prev)?;
        if next == prev {
            if prev.is_none() {
                self.set_idle(cpu, true);
            }
            return Ok(next);
        }
        if let Some(next) = next {
            self.ops_dequeue(next, enq::DEQ_EXEC)?;
            self.unlink(next);
            self.set_cpu(next, cpu);
            // A decision that a tick asked for reads the clock after the tick did: at the next
            // tick but four the slice of 20 ms has something left, and it lasts for six at 250 Hz.
            let late = u64::from(self.cpus[cpu].ticked == self.vm.now && self.vm.now > 0);
            self.tasks[next].exec_start = self.vm.now + late;
        }
        match prev {
            // It is given back when its context is saved: until then other CPUs do not see it.
            Some(prev) if self.tasks[prev].queued => {
                self.cpus[cpu].switching = Some((prev, next));
            }
            prev => self.enter(cpu, prev, next)?,
        }
        Ok(next)
    }

    /// The rest of a decision, once the context of the previous task is saved.
    pub(super) fn finish(&mut self, cpu: usize) -> Step {
        let Some((prev, next)) = self.cpus[cpu].switching else { return Ok(()) };
        if self.tasks[prev].queued && self.tasks[prev].alive {
            self.put_prev(cpu, prev, next.is_none())?;
        }
        self.cpus[cpu].switching = None;
        self.enter(cpu, Some(prev), next)?;
        if self.queues[cpu].tasks.front().is_some() && next.is_none() {
            self.resched(cpu);
        }
        self.run_deferred(cpu)
    }

    /// `put_prev_task_scx` of a task that is still runnable.
    pub(super) fn put_prev(&mut self, cpu: usize, prev: usize, idles: bool) -> Step {
        let addr = self.tasks[prev].addr;
        self.op(Op::Stopping, cpu, &[addr, 1])?;
        self.waits(prev);
        let switches = self.get(addr, self.layout.nivcsw) + 1;
        self.set(addr, self.layout.nivcsw, switches);
        if self.slice(prev) > 0 {
            return match self.tasks[prev].immed {
                true => self.do_enqueue(prev, enq::REENQ),
                false => self.dispatch_enqueue(cpu, prev, enq::HEAD),
            };
        }
        self.do_enqueue(prev, if idles { enq::LAST } else { 0 })
    }

    /// `set_next_task_scx`, and the callbacks between idle and busy.
    fn enter(&mut self, cpu: usize, prev: Option<usize>, next: Option<usize>) -> Step {
        let rq = self.rqs + self.rq_stride * cpu as u64;
        self.cpus[cpu].curr = next;
        let curr = self.curr_addr(cpu);
        self.set(rq, self.layout.rq_curr, curr);
        let was_idle = prev.is_none() && !self.above.holds(cpu);
        if was_idle || next.is_none() {
            let idle = next.is_none();
            if self.rules.idle_topology {
                self.set_idle(cpu, idle);
            }
            self.op(Op::UpdateIdle, cpu, &[cpu as u64, u64::from(idle)])?;
            if !self.rules.idle_topology {
                self.set_idle(cpu, idle);
            }
        }
        if let Some(prev) = prev {
            self.set(self.tasks[prev].addr, self.layout.on_cpu, 0);
        }
        if let Some(next) = next {
            self.set(self.tasks[next].addr, self.layout.on_cpu, 1);
            self.show_flags(next);
            self.op(Op::Running, cpu, &[self.tasks[next].addr])?;
            self.cpus[cpu].tickless = self.slice(next) == ops::SLICE_INF;
        }
        Ok(())
    }

    /// A tick edge of a CPU.
    pub(super) fn tick(&mut self, cpu: usize) -> Step {
        if self.cpus[cpu].switching.is_some() {
            return Ok(());
        }
        self.tick_above(cpu);
        let Some(t) = self.cpus[cpu].curr else { return Ok(()) };
        self.cpus[cpu].ticked = self.vm.now;
        self.charge(cpu);
        self.op(Op::Tick, cpu, &[self.tasks[t].addr])?;
        if self.slice(t) == 0 {
            self.resched(cpu);
        }
        Ok(())
    }

    /// `yield_task_scx`
    pub(super) fn yielded(&mut self, t: usize) -> Step {
        if self.has(Op::Yield) {
            self.op(Op::Yield, self.tasks[t].cpu, &[self.tasks[t].addr, 0])?;
        } else {
            self.set_slice(t, 0);
        }
        Ok(())
    }

    /// The kicks that programs asked for on `cpu` (`kick_cpus_irq_workfn`).
    pub(super) fn send_kicks(&mut self, cpu: usize) {
        let [all, if_idle, preempt] = std::mem::take(&mut self.cpus[cpu].kicks);
        for target in 0..self.cpus.len() {
            let bit = 1u64 << target;
            if all & bit != 0 {
                if preempt & bit != 0
                    && let Some(t) = self.runs_on(target)
                {
                    self.set_slice(t, 0);
                }
                self.resched(target);
            } else if if_idle & bit != 0 && self.is_idle(target) {
                self.resched(target);
            }
        }
    }
}
