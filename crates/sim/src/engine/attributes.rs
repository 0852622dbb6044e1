//! A task changes its own nice value, the CPUs on which it may run, or its program.

use super::program::Flow;
use super::setup::within_groups;
use super::state::Cause;
use super::{Engine, Step};
use schedlab_model::{CpuSet, EventSink, Nice, TaskId};
use schedlab_scheduler::Change;

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// `setpriority` by `t`, which runs on `cpu` (`set_user_nice`: nothing happens when the value
    /// is the same).
    pub(super) fn set_nice(&mut self, cpu: usize, t: usize, nice: Nice) -> Step<Flow> {
        self.begin_change(t);
        let view = &mut self.world.tasks[t];
        if std::mem::replace(&mut view.nice, nice) != nice {
            let change = Change::Attributes(TaskId::from(t));
            self.input.scheduler.changed(&self.cx(cpu), change);
            self.after_call(cpu, Cause::Other)?;
        }
        Ok(self.after_own_call(cpu))
    }

    /// `sched_setaffinity` by `t`, which runs on `cpu`. Where that is not among the CPUs, the
    /// scheduler asks for the task to be taken off.
    pub(super) fn set_cpus(&mut self, cpu: usize, t: usize, asked: CpuSet) -> Step<Flow> {
        self.begin_change(t);
        let (machine, workload) = (self.input.machine, self.input.workload);
        let (mask, _) = within_groups(&workload.tasks[t], asked, workload, machine);
        if !mask.is_empty() && self.world.tasks[t].affinity != mask {
            self.world.tasks[t].affinity = mask;
            self.tasks[t].set_allowed(&mask, &self.world.all_cpus());
            self.output.conservation.set_mask(t, &mask);
            let change = Change::Affinity(TaskId::from(t));
            self.input.scheduler.changed(&self.cx(cpu), change);
            self.after_call(cpu, Cause::Other)?;
        }
        Ok(self.after_own_call(cpu))
    }

    /// `execve` by `t`, which runs on `cpu`: the scheduler may ask for it to be taken off first.
    pub(super) fn exec(&mut self, cpu: usize, t: usize) -> Step<Flow> {
        self.begin_change(t);
        let change = Change::Executes(TaskId::from(t));
        self.input.scheduler.changed(&self.cx(cpu), change);
        self.after_call(cpu, Cause::Other)?;
        Ok(self.after_own_call(cpu))
    }

    fn begin_change(&mut self, t: usize) {
        let task = &mut self.tasks[t];
        task.pc += 1;
        task.fresh = false;
    }
}
