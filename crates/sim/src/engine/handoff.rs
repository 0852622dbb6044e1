//! Threads that hand their work to each other: see [`Handoff`].

use super::state::{Since, TaskState, Waits};
use super::{Engine, Step};
use crate::rng::{Entity, Stream};
use schedlab_model::{EventSink, Handoff, Waker, Workload};

/// No such thread.
const NONE: u32 = u32::MAX;

/// All of a run.
#[derive(Debug)]
pub(super) struct Handoffs<'a> {
    /// By task: its number among the threads that may hand over; [`NONE`]: it is none of them.
    numbers: Vec<u32>,
    /// By that number: the task, and its runtime.
    threads: Vec<(u32, u32)>,
    runtimes: Vec<(&'a Handoff, Stream)>,
}

impl<'a> Handoffs<'a> {
    /// `None` when no thread of the workload hands its work over.
    pub(super) fn new(workload: &'a Workload, seed: u64) -> Option<Handoffs<'a>> {
        if workload.handoffs.is_empty() {
            return None;
        }
        let mut numbers = vec![NONE; workload.tasks.len()];
        let mut threads = Vec::new();
        for (runtime, handoff) in workload.handoffs.iter().enumerate() {
            for thread in &handoff.threads {
                numbers[thread.index()] = threads.len() as u32;
                threads.push((thread.0, runtime as u32));
            }
        }
        // The streams of the runtimes come behind those of the tasks.
        let first = workload.tasks.len();
        let stream = |i: usize| Stream::new(seed, Entity::Task, first + i, 2);
        let runtimes =
            workload.handoffs.iter().enumerate().map(|(i, handoff)| (handoff, stream(i)));
        Some(Handoffs { numbers, threads, runtimes: runtimes.collect() })
    }

    /// How many threads may hand over.
    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// The number of a task among them.
    fn number(&self, t: usize) -> Option<usize> {
        let number = self.numbers[t];
        (number != NONE).then_some(number as usize)
    }
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// `t` was switched out. While it waits for a CPU its work may go on in another thread.
    pub(super) fn lost_its_cpu(&mut self, t: usize) {
        let Some(handoffs) = &mut self.features.handoffs else { return };
        let Some(number) = handoffs.number(t) else { return };
        let task = &self.tasks[t];
        let (handoff, stream) = &mut handoffs.runtimes[handoffs.threads[number].1 as usize];
        let waits = matches!(task.state, TaskState::Ready | TaskState::Running)
            && task.since == Since::Preemption;
        if !waits || stream.below(1_000) >= u64::from(handoff.permille) {
            return;
        }
        let after = stream.draw(&handoff.after, 0);
        self.due.slots.arm(self.due.layout.handoff(number), self.clock.now.saturating_add(after));
    }

    /// `t` runs again: its work stays with it.
    pub(super) fn has_a_cpu(&mut self, t: usize) {
        if let Some(number) =
            self.features.handoffs.as_ref().and_then(|handoffs| handoffs.number(t))
        {
            self.due.slots.disarm(self.due.layout.handoff(number));
        }
    }

    /// The thread has waited for long enough: a parked one goes on with its work, if there is one.
    pub(super) fn hand_over(&mut self, number: usize) -> Step {
        let Some(handoffs) = &mut self.features.handoffs else { return Ok(()) };
        let (thread, runtime) = handoffs.threads[number];
        let (handoff, stream) = &mut handoffs.runtimes[runtime as usize];
        let (t, parked) = (thread as usize, handoff.parked.index());
        let waiting = Waits::Channel(parked as u32);
        // Who rests has nothing but its way to the parking place left.
        let at_rest = self.extras[t].program.receives_only(handoff.parked);
        let waiters = &self.traffic.channels[parked].waiters;
        let ready = |other: u32| {
            let other = &self.tasks[other as usize];
            other.state == TaskState::Blocked && other.waits == waiting
        };
        // Who parked last is woken first, as in most runtimes: its stack is warm.
        let Some(at) = waiters
            .iter()
            .rposition(|(other, _)| handoff.threads.iter().any(|t| t.0 == *other) && ready(*other))
        else {
            return Ok(());
        };
        if at_rest || self.tasks[t].state != TaskState::Ready {
            return Ok(());
        }
        let rest = stream.draw(&handoff.rest, 1);
        let other =
            self.traffic.channels[parked].waiters.remove(at).map_or(t, |(other, _)| other as usize);
        if let Ok([from, to]) = self.tasks.get_disjoint_mut([t, other]) {
            from.swap_programs(to);
            from.left = rest;
        }
        if let Ok([from, to]) = self.extras.get_disjoint_mut([t, other]) {
            from.swap_programs(to);
        }
        if let Some(exchange) = &mut self.features.exchange {
            exchange.swap(t, other);
        }
        self.wake_from_outside(other, Waker::HardIrq)
    }
}
