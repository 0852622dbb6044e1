//! Third stage, part one: an operation as a step of a program.

use crate::facts::{Facts, Kind, Operation, TaskFacts};
use crate::graph::Graph;
use schedlab_model::{Act, Arrival, Limit, Ns, ObjectId, Step, TaskId};
use std::collections::BTreeSet;

/// What is needed to make steps, and what they bring about beside themselves.
pub(crate) struct Steps<'a> {
    pub(crate) facts: &'a Facts,
    pub(crate) graph: &'a Graph,
    /// What came from outside the recorded tasks.
    pub(crate) arrivals: Vec<Arrival>,
    /// Sends of event loops that belong to the work of another connection.
    pub(crate) on_behalf: u64,
    /// Waits without a fact that end at their recorded time, because nothing recorded ended them.
    pub(crate) unexplained: u64,
}

impl Steps<'_> {
    /// Returns the operation as a step of the task.
    pub(crate) fn step(&mut self, task: TaskId, operation: &Operation) -> Step {
        self.step_after(task, operation, None)
    }

    /// Returns the operation as a step of the task. `woken`: what came from outside ended the look
    /// before it, then.
    pub(crate) fn step_after(
        &mut self,
        task: TaskId,
        operation: &Operation,
        woken: Option<Ns>,
    ) -> Step {
        let act = self.act(task, operation, woken);
        let (mut before, mut after) = (operation.before, operation.after);
        if let (Act::Send { .. }, Some(woke), None) = (act, operation.woke, operation.slept) {
            // What it sent was there when it woke its receiver, not when the call returned.
            let late = operation.at.saturating_sub(woke).min(before);
            (before, after) = (before - late, after + late);
        }
        Step { before, act, after }
    }

    fn act(&mut self, task: TaskId, operation: &Operation, woken: Option<Ns>) -> Act {
        let slept = operation.slept;
        match operation.kind {
            Kind::Receive(object, amount) => {
                if !self.graph.objects[object.index()].has_sender() {
                    let at = slept.map_or(woken.unwrap_or(operation.began), |slept| slept.until);
                    self.arrivals.push(Arrival { at, object, amount });
                }
                let whole = &self.graph.objects[object.index()].whole;
                Act::Receive { object, amount, whole: whole.contains(&(operation.at, task)) }
            }
            Kind::Send(object, amount) => Act::Send { object, amount },
            Kind::FutexWait { futex, .. } => {
                let object = &self.graph.objects[futex.index()];
                match slept {
                    _ if object.lock || object.has_sender() => one(futex),
                    Some(slept) => Act::Sleep(slept.length),
                    None => Act::Nothing,
                }
            }
            Kind::FutexWake(object, woken) => Act::Send { object, amount: woken.into() },
            Kind::Child(child) => {
                self.graph.exits.get(&child).map_or(Act::Nothing, |&exit| one(exit))
            }
            Kind::Woken => {
                self.graph.wakeups.get(&task).map_or(Act::Nothing, |&wakeup| one(wakeup))
            }
            Kind::Wake(wakee) => match self.graph.wakeups.get(&wakee) {
                Some(&object) => Act::Send { object, amount: 1 },
                None => Act::Nothing,
            },
            Kind::Spawn(child) => {
                let created = self.facts.tasks[child.index()].created;
                if created.is_some_and(|(_, parent)| parent == Some(task)) {
                    Act::Spawn(child)
                } else {
                    Act::Nothing
                }
            }
            Kind::Sleep(Limit::At(at)) if slept.is_some() => Act::SleepUntil(at),
            Kind::Sleep(_) => slept.map_or(Act::Nothing, |slept| Act::Sleep(slept.length)),
            Kind::Unknown => match slept {
                Some(slept) if slept.device => Act::Device(slept.length),
                // The outside world ended it, at its time.
                Some(slept) => {
                    self.unexplained += 1;
                    Act::SleepUntil(slept.until)
                }
                None => Act::Nothing,
            },
            Kind::Nothing(_) | Kind::Select { .. } | Kind::Silent => Act::Nothing,
        }
    }

    /// Returns what is to be added to the objects that were read here whenever a program begins
    /// again: what was in flight at the start less what was in flight at the end. The reader that
    /// took most out of an object answers for it.
    pub(crate) fn balance(
        &self,
        read: &BTreeSet<ObjectId>,
        threads: &[TaskId],
    ) -> Vec<(ObjectId, i64)> {
        let answers = |object: ObjectId| {
            let readers = &self.graph.objects[object.index()].readers;
            let most = readers.iter().max_by_key(|(task, count)| (**count, **task));
            most.is_some_and(|(task, _)| threads.contains(task))
        };
        read.iter()
            .copied()
            .filter_map(|object| {
                let state = &self.graph.objects[object.index()];
                let change = state.at_start as i64 - state.at_end as i64;
                (change != 0 && state.has_sender() && !state.lock && answers(object))
                    .then_some((object, change))
            })
            .collect()
    }
}

/// Takes one token.
fn one(object: ObjectId) -> Act {
    Act::Receive { object, amount: 1, whole: false }
}

/// Returns the steps of a thread that waits for one thing at a time, and the objects that it reads.
pub(crate) fn sequence(
    steps: &mut Steps<'_>,
    task: TaskId,
    of: &TaskFacts,
) -> (Vec<Step>, BTreeSet<ObjectId>) {
    let mut all = Vec::with_capacity(of.operations.len() + 1);
    let mut read = BTreeSet::new();
    let mut carried = Ns::ZERO;
    let mut waits_for_others = false;
    for operation in &of.operations {
        let mut step = steps.step(task, operation);
        step.before += std::mem::take(&mut carried);
        match step.act {
            Act::Nothing => {
                carried = step.before + step.after;
                continue;
            }
            Act::Receive { object, .. } => {
                read.insert(object);
                waits_for_others = true;
            }
            _ => {}
        }
        all.push(step);
    }
    let rest = carried + of.rest;
    if rest > Ns::ZERO {
        all.push(Step { before: rest, act: Act::Nothing, after: Ns::ZERO });
    }
    if of.asleep_since.is_some() && !waits_for_others {
        // What it waited for did not come in the recording.
        let act = Act::SleepUntil(steps.facts.duration);
        all.push(Step { before: Ns::ZERO, act, after: Ns::ZERO });
    }
    (all, read)
}
