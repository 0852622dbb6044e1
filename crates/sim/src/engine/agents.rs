//! What delegation (`crate::delegation`) reads and changes of an engine: agents take CPU time, and
//! ask CPUs to decide.

use super::slots::OfCpu;
use super::state::{Cause, TaskState};
use super::{Engine, Step};
use schedlab_model::{CpuId, EventSink, Ns, TaskId, Topology};
use schedlab_scheduler::Cx;
use std::cell::Cell;

/// A spinning agent's CPU owes this much work: longer than any run lasts.
const FOR_EVER: u64 = 1 << 60;

impl<'a, S: EventSink> Engine<'a, S, false> {
    /// Makes the scheduler write in `call_cost` what its calls take on their CPU.
    pub(crate) fn set_call_cost(&mut self, call_cost: &'a Cell<u64>) {
        self.features.call_cost = Some(call_cost);
    }

    pub(crate) fn time(&self) -> u64 {
        self.clock.now
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.input.machine.topology
    }

    /// Returns the context of a call on `cpu`.
    pub(crate) fn context(&self, cpu: usize) -> Cx<'_> {
        self.cx(cpu)
    }

    /// Asks for a decision of `cpu` when the instant is drained, or its switch is done.
    pub(crate) fn ask_cpu(&mut self, cpu: usize) {
        self.request(cpu, Cause::Other, None);
    }

    /// Returns the task that is on `cpu` or on its way there.
    pub(crate) fn occupant(&self, cpu: usize) -> Option<TaskId> {
        self.cpus[cpu].current
    }

    /// An agent works on `cpu` for `ns`; the task there waits.
    pub(crate) fn occupy(&mut self, cpu: usize, ns: u64) {
        self.account(cpu);
        self.output.conservation.set_idle(cpu, false);
        self.steal(cpu, ns);
    }

    /// The agent of `cpu` is done.
    pub(crate) fn vacate(&mut self, cpu: usize) {
        let c = &self.cpus[cpu];
        if c.current.is_none() && c.switching.is_none() {
            self.output.conservation.set_idle(cpu, true);
        }
    }

    /// Makes the agent of `cpu` spin there for ever, or no longer.
    pub(crate) fn spin(&mut self, cpu: usize, on: bool) {
        self.account(cpu);
        self.cpus[cpu].debt = if on { FOR_EVER } else { 0 };
        self.output.conservation.set_idle(cpu, !on);
    }

    /// Returns when a switch that is under way on `cpu` is over; now when there is none.
    pub(crate) fn free_at(&self, cpu: usize) -> u64 {
        let switch = self.cpus[cpu].switching.and_then(|_| self.due.slots.cpu_at(cpu, OfCpu::Work));
        switch.unwrap_or(self.clock.now)
    }

    /// Returns the CPU time of a task up to now.
    pub(crate) fn run_time(&self, task: TaskId) -> Ns {
        let view = &self.world.tasks[task.index()];
        let running =
            view.on_cpu().map_or(Ns::ZERO, |_| Ns(self.clock.now).saturating_sub(view.entered()));
        view.ran() + running
    }

    /// Notes that the scheduler behind the agents throttled a task, or let it go.
    pub(crate) fn set_throttled(&mut self, task: TaskId, throttled: bool) -> Step {
        if throttled {
            self.features.by_agents.insert(task);
        } else {
            self.features.by_agents.remove(&task);
        }
        self.throttle(self.tasks[task.index()].home as usize, task, throttled)
    }

    /// Throttles tasks again that ran although the agents had throttled them, and wait now.
    pub(crate) fn throttle_again(&mut self) -> Step {
        let waits = |task: &&TaskId| {
            let record = &self.tasks[task.index()];
            record.state == TaskState::Ready && !record.throttled
        };
        let again: Vec<TaskId> = self.features.by_agents.iter().filter(waits).copied().collect();
        for task in again {
            self.throttle(self.tasks[task.index()].home as usize, task, true)?;
        }
        Ok(())
    }

    /// Lets all throttled tasks go: the agents are gone.
    pub(crate) fn let_all_go(&mut self) -> Step {
        for task in std::mem::take(&mut self.features.by_agents) {
            self.throttle(self.tasks[task.index()].home as usize, task, false)?;
        }
        Ok(())
    }

    /// Makes a call of the scheduler on `cpu`, and carries out what it asks for.
    pub(crate) fn call_scheduler(&mut self, cpu: usize, f: impl FnOnce(&Cx<'_>)) -> Step {
        f(&self.cx(cpu));
        self.after_call(cpu, Cause::Other)
    }

    /// Asks all CPUs for a decision.
    pub(crate) fn ask_all(&mut self) {
        (0..self.cpus.len()).for_each(|cpu| self.ask_cpu(CpuId(cpu as u32).index()));
    }

    /// Returns the error for an invariant of delegation that does not hold.
    pub(crate) fn broken<T>(&self, what: String) -> Step<T> {
        self.internal(what)
    }
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Lets `task` go if the agents had throttled it: a transaction that was under way then still
    /// puts it on `cpu`, because the kernel knows nothing of their limits. They take it off again.
    pub(super) fn runs_all_the_same(&mut self, cpu: usize, task: TaskId) -> Step {
        if self.features.by_agents.contains(&task) {
            self.throttle(cpu, task, false)
        } else {
            Ok(())
        }
    }
}
