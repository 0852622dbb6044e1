//! The end of a run: last accounts, invariants, and the tasks that wait for ever.

use super::state::{TaskState, Waits};
use super::{Engine, Step};
use crate::{Outcome, Stuck, WaitsFor};
use schedlab_model::{ChannelId, EventSink, ExecutorId, LockId, Ns, ObjectId, Start, TaskId};
use schedlab_scheduler::Work;

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    pub(crate) fn finish(mut self) -> Step<Outcome> {
        self.settle();
        self.output.metrics.to = Ns(self.clock.now);
        self.check_conservation()?;
        let over = self.is_over();
        let stuck = if over { self.stuck() } else { Vec::new() };
        Ok(Outcome {
            metrics: self.output.metrics,
            event_hash: self.output.events.hash.finish(),
            events: self.output.events.events,
            ended: Ns(if over { self.output.events.last } else { self.clock.now }),
            stuck,
            work: Work::ALL.map(|work| self.out.work(work)),
        })
    }

    /// Checks that every nanosecond of every CPU and every task has been counted once.
    fn check_conservation(&self) -> Step {
        let elapsed = self.output.metrics.elapsed();
        let mut busy = Ns::ZERO;
        let mut not_idle = Ns::ZERO;
        for (i, cpu) in self.output.metrics.cpus.iter().enumerate() {
            let sum = cpu.busy_ns + cpu.overhead_ns + cpu.idle_ns + cpu.steal_ns;
            if sum != elapsed {
                return self.internal(format!(
                    "cpu{i}: busy + overhead + idle + steal = {sum}, elapsed {elapsed}"
                ));
            }
            busy += cpu.busy_ns;
            not_idle += cpu.busy_ns + cpu.overhead_ns;
        }
        let (mut work, mut ran) = (Ns::ZERO, Ns::ZERO);
        for (i, task) in self.output.metrics.tasks.iter().enumerate() {
            let sum =
                task.cpu_ns + task.stolen_ns + task.wait_ns + task.throttled_ns + task.sleep_ns;
            if sum != task.lifetime_ns {
                return self.internal(format!(
                    "task{i}: parts add up to {sum}, lifetime {}",
                    task.lifetime_ns
                ));
            }
            work += task.work_ns;
            ran += task.cpu_ns;
        }
        if work != busy || ran > not_idle {
            return self.internal(format!(
                "programs advanced {work}, CPUs were busy {busy}; tasks ran {ran}"
            ));
        }
        Ok(())
    }

    /// Ends the run when the last task has exited, if that is asked for.
    pub(super) fn ends_with_last(&mut self) {
        if !self.input.options.end_with_tasks {
            return;
        }
        let waits_to_be_spawned = |t: usize| self.input.workload.tasks[t].start == Start::Spawned;
        let over = self.tasks.iter().enumerate().all(|(t, task)| match task.state {
            TaskState::Dead => true,
            TaskState::Absent => waits_to_be_spawned(t),
            _ => false,
        });
        if over {
            self.clock.end = self.clock.end.min(self.clock.now);
        }
    }

    /// Returns whether no task is runnable and nothing is pending.
    fn is_over(&self) -> bool {
        let alive =
            |state| !matches!(state, TaskState::Blocked | TaskState::Absent | TaskState::Dead);
        let pending = self.due.layout.outside().any(|slot| self.due.slots.is_armed(slot));
        !pending && !self.tasks.iter().any(|task| alive(task.state))
    }

    /// Returns the tasks that wait for ever, and what for.
    fn stuck(&self) -> Vec<Stuck> {
        let blocked = (0..self.tasks.len()).filter(|&t| self.tasks[t].state == TaskState::Blocked);
        blocked
            .filter_map(|t| {
                let waits_for = match self.tasks[t].waits {
                    Waits::Channel(channel) => WaitsFor::Receive(ChannelId(channel)),
                    Waits::Select => {
                        let branches = &self.input.workload.tasks[t].program.branches;
                        WaitsFor::Receive(
                            branches.first().map_or(ChannelId(0), |branch| branch.channel),
                        )
                    }
                    Waits::Room(channel) => WaitsFor::Room(ChannelId(channel)),
                    Waits::Lock(lock) => WaitsFor::Lock(
                        LockId(lock),
                        self.traffic.locks[lock as usize].owner.map(TaskId),
                    ),
                    Waits::Object(object) => WaitsFor::Object(ObjectId(object)),
                    Waits::Executor(executor) => WaitsFor::Executor(ExecutorId(executor)),
                    Waits::Timer | Waits::Nothing | Waits::Interrupts => return None,
                };
                Some(Stuck { task: t.into(), waits_for })
            })
            .collect()
    }
}
