//! Third stage, part one: an operation as a step of a program.

use crate::facts::{Facts, Kind, Operation, TaskFacts};
use crate::graph::Graph;
use crate::lives::Lives;
use crate::recorder;
use schedlab_model::{Act, Arrival, Limit, Ns, ObjectId, Script, Step, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// What is needed to make steps, and what they bring about beside themselves.
pub(crate) struct Steps<'a> {
    pub(crate) facts: &'a Facts,
    pub(crate) graph: &'a Graph,
    pub(crate) lives: &'a Lives,
    /// By task: what objects get when its program begins again.
    pub(crate) balances: BTreeMap<TaskId, Vec<(ObjectId, i64)>>,
    /// By thread of the recorder: what it does before each of its sleeps.
    pub(crate) drains: BTreeMap<TaskId, Step>,
    /// The objects in which requests come.
    pub(crate) requests: BTreeSet<ObjectId>,
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
        let woke = matches!(act, Act::Send { .. }) && operation.woke.is_some();
        Step { before, act, after, woke }
    }

    fn act(&mut self, task: TaskId, operation: &Operation, woken: Option<Ns>) -> Act {
        let slept = operation.slept;
        // Times of a task that was born in the recording count from its birth.
        let born = self.facts.tasks[task.index()].born();
        let until = |at: Ns| Act::SleepUntil(at.saturating_sub(born));
        match operation.kind {
            Kind::Receive(object, amount) => {
                if !self.graph.objects[object.index()].has_sender() {
                    let at = slept.map_or(woken.unwrap_or(operation.began), |slept| slept.until);
                    self.arrivals.push(Arrival { at, object, amount });
                }
                let of = &self.graph.objects[object.index()];
                let whole = of.datagrams || of.whole.contains(&(operation.at, task));
                Act::Receive { object, amount, whole }
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
            // One that had ended before is not waited for.
            Kind::Child(child) => {
                let exit = self.graph.exits.get(&child);
                let ended = self.facts.tasks[child.index()].ended();
                exit.filter(|_| ended).map_or(Act::Nothing, |&exit| one(exit))
            }
            Kind::Woken => {
                self.graph.wakeups.get(&task).map_or(Act::Nothing, |&wakeup| one(wakeup))
            }
            Kind::Wake(wakee) => match self.graph.wakeups.get(&wakee) {
                Some(&object) => Act::Send { object, amount: 1 },
                None => Act::Nothing,
            },
            Kind::Spawn(child) => {
                let mine = self.facts.tasks[child.index()].creator == Some(task);
                if mine { Act::Spawn(child) } else { Act::Nothing }
            }
            Kind::Sleep(Limit::At(at)) if slept.is_some() => until(at),
            Kind::Sleep(_) => slept.map_or(Act::Nothing, |slept| Act::Sleep(slept.length)),
            Kind::Unknown => match slept {
                Some(slept) if slept.device => Act::Device(slept.length),
                // The outside world ended it, at its time.
                Some(slept) => {
                    self.unexplained += 1;
                    until(slept.until)
                }
                None => Act::Nothing,
            },
            // Of a sequence; an executor waits for what is next.
            Kind::Select { timed_out: true, .. } => {
                slept.map_or(Act::Nothing, |slept| Act::Sleep(slept.length))
            }
            Kind::Nothing(_) | Kind::Select { .. } | Kind::Silent => Act::Nothing,
        }
    }

    /// Returns what is to be added to objects (or taken off) whenever the program of these threads
    /// begins again.
    pub(crate) fn balance(&self, threads: &[TaskId]) -> Vec<(ObjectId, i64)> {
        threads.iter().filter_map(|task| self.balances.get(task)).flatten().copied().collect()
    }
}

/// Returns by task what is to be added to objects whenever its program begins again: what the tasks
/// that live again took out less what they put in. With all of them that is what was in flight at
/// the start of the recording less what was in flight at its end; where a writer lives once, its
/// messages are there at the begin of each later round (of an executor:
/// `executors::share_balance`). The program answers for an object in whose
/// rounds that reader lives which took from it most often, of those that live again; without such a
/// reader that of a writer, where an object takes a limited amount.
pub(crate) fn balances(
    facts: &Facts,
    graph: &Graph,
    lives: &Lives,
) -> BTreeMap<TaskId, Vec<(ObjectId, i64)>> {
    let mut once = BTreeMap::new();
    for operation in (0..facts.tasks.len()).flat_map(|task| lives.begin(facts, task.into())) {
        let (object, more) = match operation.kind {
            Kind::Receive(object, amount) => (object, -i128::from(amount)),
            Kind::Send(object, amount) => (object, i128::from(amount)),
            Kind::FutexWait { futex, .. } => (futex, -1),
            Kind::FutexWake(futex, woken) => (futex, i128::from(woken)),
            _ => continue,
        };
        *once.entry(object.index()).or_insert(0) += more;
    }
    let mut all: BTreeMap<TaskId, Vec<(ObjectId, i64)>> = BTreeMap::new();
    for (number, object) in graph.objects.iter().enumerate() {
        if object.lock || !object.has_sender() {
            continue;
        }
        let readers = object.readers.iter().filter(|(task, _)| lives.again(**task));
        let writers = object.writers.iter().filter(|(task, _)| lives.again(**task));
        let taken: i128 = readers.clone().map(|(_, reads)| i128::from(reads.amount)).sum();
        let given: i128 = writers.clone().map(|(_, amount)| i128::from(*amount)).sum();
        let most = readers.max_by_key(|(task, reads)| (reads.times, **task)).map(|(task, _)| *task);
        let first = writers.map(|(task, _)| *task).next().filter(|_| object.full_at.is_some());
        let answers = most.or(first).and_then(|task| lives.round_of(task));
        // What is done once is in no later round.
        let once = once.get(&number).copied().unwrap_or_default();
        let change = i64::try_from(taken - given + once).unwrap_or_default();
        if let Some(task) = answers.filter(|_| change != 0) {
            all.entry(task).or_default().push((number.into(), change));
        }
    }
    all
}

/// Returns operations of a task as steps, and the CPU time behind the last one.
pub(crate) fn played(
    steps: &mut Steps<'_>,
    task: TaskId,
    operations: &[Operation],
) -> (Vec<Step>, Ns) {
    let mut all = Vec::with_capacity(operations.len() + 2);
    let mut carried = Ns::ZERO;
    for operation in operations {
        let mut step = steps.step(task, operation);
        if let Some(drain) = steps.drains.get(&task).filter(|_| recorder::drains_before(operation))
        {
            all.push(Step { before: std::mem::take(&mut carried), ..*drain });
            step.before = Ns::ZERO;
        }
        step.before += std::mem::take(&mut carried);
        if step.act == Act::Nothing {
            carried = step.before + step.after;
        } else {
            all.push(step);
        }
    }
    (all, carried)
}

/// Takes one token.
fn one(object: ObjectId) -> Act {
    Act::Receive { object, amount: 1, whole: false }
}

/// Returns the script of a thread that waits for one thing at a time, without what it does when it
/// ends. The rounds of one that was born in the recording are as long as its life in it: it begins
/// again at its birth, and the time before that is in none of them.
pub(crate) fn sequence(steps: &mut Steps<'_>, task: TaskId, of: &TaskFacts) -> Script {
    let (graph, lives) = (steps.graph, steps.lives);
    let (mut all, carried) = played(steps, task, &of.operations);
    let comes_again = |object: ObjectId| lives.come_again(&graph.objects[object.index()], task);
    let waits_for_others = all
        .iter()
        .any(|step| matches!(step.act, Act::Receive { object, .. } if comes_again(object)));
    let rest = carried + of.rest;
    if rest > Ns::ZERO {
        all.push(Step::new(rest, Act::Nothing, Ns::ZERO));
    }
    // Rounds that cost nothing are not to follow each other at once.
    let costs = all.iter().any(|step| step.before + step.after > Ns::ZERO);
    let born = if costs { of.born() } else { Ns::ZERO };
    let round = steps.facts.duration.saturating_sub(born);
    if lives.did_once(task) {
        let waits = Step::new(Ns::ZERO, Act::SleepUntil(round), Ns::ZERO);
        let repeat_from = u32::try_from(all.len()).ok();
        all.push(waits);
        return Script { steps: all, repeat_from, round, ..Script::default() };
    }
    let only_spins = !costs && !all.is_empty();
    let waits_for_more = of.asleep_since.is_some() && (!waits_for_others || lives.is_quiet(task));
    if !of.ended() && (waits_for_more || (!waits_for_others && only_spins)) {
        // What it waited for did not come in the recording.
        let act = Act::SleepUntil(round);
        all.push(Step::new(Ns::ZERO, act, Ns::ZERO));
    }
    let life = (lives.plays_on(task) && costs).then(|| of.life(steps.facts.duration));
    let repeat_from = (!of.ended() || life.is_some()).then_some(0);
    Script { steps: all, repeat_from, round, life, ..Script::default() }
}
