//! Third stage, part two: threads that wait for many objects at once. What a thread does between
//! taking one item and the next belongs to that item; each object has a coroutine, and a thread
//! that runs takes up those that can go on.

use crate::batches;
use crate::facts::{Kind, Operation};
use crate::pairing::Pairing;
use crate::prices;
use crate::steps::Steps;
use schedlab_model::{Act, Coroutine, CoroutineStep, Executor, Ns, ObjectId, Step, TaskId};
use schedlab_trace::Facts as Recorded;
use std::collections::{BTreeMap, BTreeSet};

/// The coroutine of timers, and of what belongs to no object.
const TIMERS: usize = 0;

/// One operation of one of the executor's threads.
#[derive(Clone, Copy)]
pub(crate) struct Deed {
    pub(crate) thread: TaskId,
    pub(crate) operation: Operation,
}

/// Returns the operations of threads that share their work, in order of time: that they wait for
/// each other is no waiting, what they exchange with others is.
pub(crate) fn merged(steps: &Steps<'_>, threads: &[TaskId]) -> Vec<Deed> {
    let mut all: Vec<Deed> = Vec::new();
    for &thread in threads {
        let begin = steps.lives.begin(steps.facts, thread).len();
        let own = &steps.facts.tasks[thread.index()].operations[begin..];
        let kept = |(number, operation): (usize, &Operation)| match operation.kind {
            Kind::FutexWait { .. } | Kind::Woken
                if threads.len() > 1 && is_for_work(&own[number + 1..]) =>
            {
                silent(operation)
            }
            _ => *operation,
        };
        let own = own.iter().enumerate().map(kept);
        all.extend(own.map(|operation| Deed { thread, operation }));
    }
    all.sort_by_key(|deed| deed.operation.at);
    if threads.len() == 1 {
        let datagrams = |object: ObjectId| steps.graph.objects[object.index()].datagrams;
        return batches::answered_one_by_one(all, &datagrams);
    }
    let outside = |object: Option<&ObjectId>| {
        let object = object.and_then(|object| steps.graph.objects.get(object.index()));
        object.is_some_and(|object| {
            object.readers.keys().chain(object.writers.keys()).any(|task| !threads.contains(task))
        })
    };
    for Deed { thread, operation } in &mut all {
        let kept = match operation.kind {
            Kind::Select { .. } => operation.slept.is_some(),
            Kind::Receive(..) | Kind::Send(..) | Kind::Nothing(_) | Kind::Spawn(_) => true,
            Kind::FutexWait { futex, .. } | Kind::FutexWake(futex, _) => outside(Some(&futex)),
            Kind::Woken => outside(steps.graph.wakeups.get(thread)),
            Kind::Wake(wakee) => !threads.contains(&wakee),
            Kind::Sleep(_) | Kind::Unknown | Kind::Child(_) | Kind::Silent => false,
        };
        if !kept {
            *operation = silent(operation);
        }
    }
    all
}

/// Returns a step that goes on in its activation and is the first of nothing.
fn plain(step: Step) -> CoroutineStep {
    CoroutineStep { step, later: false, looked: false, after_others: false, first: 0 }
}

/// Returns the operation as CPU time that others see nothing of.
fn silent(operation: &Operation) -> Operation {
    let before = operation.cost();
    Operation { kind: Kind::Silent, before, after: Ns::ZERO, slept: None, ..*operation }
}

/// Returns whether a thread that shares its work waited for work, as idle threads of a pool do:
/// behind the wait it looks or reads. A wait before it sends was for a part of the answer.
fn is_for_work(behind: &[Operation]) -> bool {
    let next = behind.iter().find(|done| {
        use Kind::{Nothing, Receive, Select, Send};
        matches!(done.kind, Receive(..) | Nothing(_) | Select { .. } | Send(..))
    });
    next.is_none_or(|done| !matches!(done.kind, Kind::Send(..)))
}

/// What is kept while the coroutines of an executor are put together.
struct Weaver<'a> {
    recorded: &'a Recorded,
    executor: Executor,
    /// By object that is read: its coroutine.
    of_object: BTreeMap<ObjectId, usize>,
    /// The objects that are read at all.
    read: BTreeSet<ObjectId>,
    /// By connection (the object that is read): the number of its last operation.
    last_use: BTreeMap<ObjectId, u64>,
    /// Coroutines that begin by themselves and whose connections are all over, the last one behind.
    over: Vec<usize>,
    /// By coroutine: the objects that it reads.
    reads: Vec<BTreeSet<ObjectId>>,
    /// By thread: the coroutine whose work it does.
    current: BTreeMap<TaskId, usize>,
    /// By thread: steps since its last look that belong to no object yet.
    pending: BTreeMap<TaskId, Vec<Step>>,
    /// Threads that have looked at their objects.
    has_looked: BTreeSet<TaskId>,
    /// By thread: its last look ended with its time.
    by_timer: BTreeMap<TaskId, bool>,
    /// Looks so far, and the one in which each coroutine had its last step.
    look: u64,
    last_look: Vec<u64>,
    /// The coroutine of the last step, the number of that step, and by coroutine that of its last
    /// one.
    last: usize,
    number: u64,
    touched: Vec<u64>,
    /// By coroutine: it looked at its object and found nothing.
    looked: BTreeSet<usize>,
    /// The receives and sends of this activation.
    made: [u32; 2],
    /// What its look found.
    found: u32,
    /// By look that slept, and by one that did not: the messages of the activation that it ended,
    /// and what it found.
    looked_with: [Vec<(u32, u32)>; 2],
    last_timer: Ns,
    /// By thread: the wakeup that ended its last look, where that one slept.
    woken: BTreeMap<TaskId, Ns>,
    /// The objects in which requests come to the loop.
    requests: BTreeSet<ObjectId>,
    /// What was read and is not acted on.
    pairing: Pairing,
    /// Sends for another connection than their own.
    on_behalf: u64,
}

/// Returns the executor of threads with these operations.
pub(crate) fn executor(
    steps: &mut Steps<'_>,
    recorded: &Recorded,
    name: &str,
    threads: &[TaskId],
    deeds: &[Deed],
) -> Executor {
    let mut read = BTreeSet::new();
    for deed in deeds {
        if let Kind::Receive(object, _) = deed.operation.kind {
            read.insert(object);
        }
    }
    let requests = steps.requests.intersection(&read).copied().collect();
    let born = threads.iter().map(|task| steps.facts.tasks[task.index()].born());
    let since = born.min().unwrap_or_default();
    let lives = |task: &TaskId| steps.facts.tasks[task.index()].life(steps.facts.duration);
    let ended = |task: &TaskId| steps.facts.tasks[task.index()].ended();
    let life = threads.iter().map(lives).max().filter(|_| threads.iter().all(ended));
    let mut weaver = Weaver {
        recorded,
        executor: Executor { name: name.to_owned(), since, life, ..Executor::default() },
        of_object: BTreeMap::new(),
        last_use: last_uses(recorded, &read, deeds),
        over: Vec::new(),
        read,
        reads: Vec::new(),
        current: BTreeMap::new(),
        pending: BTreeMap::new(),
        has_looked: BTreeSet::new(),
        by_timer: BTreeMap::new(),
        look: 0,
        last_look: Vec::new(),
        last: TIMERS,
        number: 0,
        touched: Vec::new(),
        looked: BTreeSet::new(),
        made: [0; 2],
        found: 0,
        looked_with: Default::default(),
        last_timer: since,
        woken: BTreeMap::new(),
        requests,
        pairing: Pairing::default(),
        on_behalf: 0,
    };
    weaver.add();
    let caused = if threads.len() == 1 { read_between_looks(deeds) } else { BTreeMap::new() };
    let mut now_read: Option<&BTreeSet<ObjectId>> = None;
    for (number, deed) in deeds.iter().enumerate() {
        weaver.number += 1;
        if let Kind::Select { ready, timed_out } = deed.operation.kind {
            now_read = caused.get(&number);
            weaver.looks(deed, (ready, timed_out));
        } else {
            weaver.takes(steps, deed, now_read);
            weaver.closes(&deed.operation);
        }
    }
    steps.on_behalf += weaver.on_behalf;
    let mut executor = weaver.executor;
    let again = |object: &ObjectId| {
        let object = &steps.graph.objects[object.index()];
        threads.iter().any(|&thread| steps.lives.come_again(object, thread))
    };
    share_balance(&mut executor.coroutines, &weaver.reads, steps.balance(threads), &again);
    executor.prices = prices::of_executor(&executor.coroutines);
    prices::of_looks(&mut executor, &weaver.looked_with);
    executor
}

impl Weaver<'_> {
    /// Adds a coroutine.
    fn add(&mut self) -> usize {
        self.executor.coroutines.push(Coroutine::default());
        self.reads.push(BTreeSet::new());
        self.last_look.push(0);
        self.touched.push(0);
        self.executor.coroutines.len() - 1
    }

    /// Returns the coroutine of an object, and makes it the one whose work the thread does.
    fn take_up(&mut self, thread: TaskId, object: ObjectId) -> usize {
        let coroutine = match self.of_object.get(&object) {
            Some(&coroutine) => coroutine,
            None => {
                let coroutine = self.add();
                self.of_object.insert(object, coroutine);
                coroutine
            }
        };
        self.current.insert(thread, coroutine);
        coroutine
    }

    /// A thread looked at its objects.
    fn looks(&mut self, deed: &Deed, (ready, timed_out): (u32, bool)) {
        let Deed { thread, operation } = *deed;
        self.look += 1;
        let [receives, sends] = std::mem::take(&mut self.made);
        self.looked_with[usize::from(operation.slept.is_none())].push((receives + sends, ready));
        self.found = ready;
        let rest = self.pending.remove(&thread).unwrap_or_default();
        let to = if self.by_timer.get(&thread) == Some(&true) { TIMERS } else { self.last };
        let timed = !self.executor.coroutines[TIMERS].steps.is_empty();
        if to != TIMERS || timed {
            self.executor.coroutines[to].steps.extend(rest.into_iter().map(plain));
        }
        let timer = timed_out && operation.slept.is_some();
        self.by_timer.insert(thread, timer);
        match operation.slept {
            Some(slept) => {
                self.executor.looks_asleep.push((operation.before, operation.after));
                self.woken.insert(thread, slept.until);
            }
            None => {
                self.executor.looks_awake.push(operation.cost());
                self.woken.remove(&thread);
            }
        }
        self.has_looked.insert(thread);
        self.current.insert(thread, TIMERS);
        if timer {
            let gap = operation.at.saturating_sub(self.last_timer);
            self.last_timer = operation.at;
            let step = Step::new(Ns::ZERO, Act::SleepUntil(gap), Ns::ZERO);
            self.executor.coroutines[TIMERS]
                .steps
                .push(CoroutineStep { later: true, ..plain(step) });
            self.last_look[TIMERS] = self.look;
        }
    }

    /// Returns the coroutine to which an operation belongs.
    fn owner(&mut self, deed: &Deed, now_read: Option<&BTreeSet<ObjectId>>) -> usize {
        let thread = deed.thread;
        let current = self.current.get(&thread).copied().unwrap_or(TIMERS);
        match deed.operation.kind {
            Kind::Receive(object, _) | Kind::Nothing(object) if self.read.contains(&object) => {
                if matches!(deed.operation.kind, Kind::Receive(..)) {
                    self.pairing.read(object);
                } else if current == TIMERS && self.by_timer.get(&thread) == Some(&true) {
                    // It found nothing: what it does now it does because its time was over.
                    return TIMERS;
                }
                self.take_up(thread, object)
            }
            Kind::Send(object, _) => {
                let back = self.recorded.objects.get(object.index()).and_then(|info| info.peer);
                let Some(back) = back.filter(|back| self.read.contains(back)) else {
                    return current;
                };
                // All that the look found was read, and this connection was not among it: another
                // one caused the message. So did the request that waits, where it is the first one
                // over a connection that the loop has opened for it.
                let caused_by_other = now_read.is_some_and(|read| !read.contains(&back))
                    || self
                        .pairing
                        .before_first(back)
                        .is_some_and(|oldest| oldest != back && self.requests.contains(&oldest));
                if current != TIMERS && caused_by_other {
                    self.on_behalf += 1;
                    let cause = self.pairing.cause(back, self.look);
                    return cause.map_or(current, |cause| self.take_up(thread, cause));
                }
                self.pairing.answered(back);
                // A loop that opens one connection after the other has so many at once as are open.
                if !self.of_object.contains_key(&back)
                    && let Some(coroutine) = self.over.pop()
                {
                    self.of_object.insert(back, coroutine);
                }
                self.take_up(thread, back)
            }
            _ => current,
        }
    }

    /// Where the operation was the last one of its connection, the next that the loop opens goes on
    /// in the coroutine, if that is one that begins by itself.
    fn closes(&mut self, operation: &Operation) {
        let Some(object) = connection(self.recorded, &self.read, operation) else { return };
        let Some(&coroutine) = self.of_object.get(&object) else { return };
        let steps = &self.executor.coroutines[coroutine].steps;
        let begins =
            steps.first().is_some_and(|first| !matches!(first.step.act, Act::Receive { .. }));
        if begins && self.last_use.get(&object) == Some(&self.number) {
            self.over.push(coroutine);
        }
    }

    /// Counts a receive or send. Returns for the first one of its kind in the activation its number
    /// for the price, else 0.
    fn first(&mut self, step: &Step) -> u32 {
        let (kind, number) = match step.act {
            Act::Receive { .. } => (0, self.found),
            Act::Send { .. } => (1, self.made[0]),
            _ => return 0,
        };
        self.made[kind] += 1;
        if self.made[kind] == 1 { number.max(1) } else { 0 }
    }

    /// A thread did something between its looks.
    fn takes(&mut self, steps: &mut Steps<'_>, deed: &Deed, now_read: Option<&BTreeSet<ObjectId>>) {
        let Deed { thread, operation } = *deed;
        let owner = self.owner(deed, now_read);
        if matches!(operation.kind, Kind::Nothing(_)) {
            self.looked.insert(owner);
        }
        let mut step = steps.step_after(thread, &operation, self.woken.get(&thread).copied());
        if let (Act::SleepUntil(_), Some(slept)) = (step.act, operation.slept) {
            // The times of an executor's timer count from one to the next; what it waits for in its
            // work lasts as long as it did.
            step.act = Act::Sleep(slept.length);
        }
        if let Act::Receive { object, .. } = step.act {
            self.reads[owner].insert(object);
        }
        let first = self.first(&step);
        if owner == TIMERS {
            self.pending.entry(thread).or_default().push(step);
            return;
        }
        let later = self.last_look[owner] != self.look;
        let after_others = !later && self.last != owner && self.touched[owner] + 1 != self.number;
        let looked = !matches!(operation.kind, Kind::Nothing(_)) && self.looked.remove(&owner);
        let pending = self.pending.remove(&thread).unwrap_or_default();
        // What a look found was there before all that follows the look. Without one, or where the
        // thread slept for it, the message may be what the steps before it brought about.
        let found = self.has_looked.contains(&thread) && operation.slept.is_none();
        let (silent, loud): (Vec<Step>, Vec<Step>) =
            pending.into_iter().partition(|step| found && step.act == Act::Nothing);
        let before: Ns =
            silent.iter().map(|step| step.before + step.after).fold(step.before, |a, b| a + b);
        let list = &mut self.executor.coroutines[owner].steps;
        let own =
            CoroutineStep { step: Step { before, ..step }, later, looked, after_others, first };
        if found {
            list.push(own);
            list.extend(loud.into_iter().map(plain));
        } else {
            list.extend(loud.into_iter().map(plain));
            list.push(own);
        }
        self.last_look[owner] = self.look;
        self.last = owner;
        self.touched[owner] = self.number;
    }
}

/// Returns the connection of an operation: the object of it that the executor reads.
fn connection(
    recorded: &Recorded,
    read: &BTreeSet<ObjectId>,
    operation: &Operation,
) -> Option<ObjectId> {
    let object = match operation.kind {
        Kind::Receive(object, _) | Kind::Nothing(object) => Some(object),
        Kind::Send(object, _) => recorded.objects.get(object.index()).and_then(|info| info.peer),
        _ => None,
    };
    object.filter(|object| read.contains(object))
}

/// Returns by connection the number of its last operation; the first of all has number 1.
fn last_uses(
    recorded: &Recorded,
    read: &BTreeSet<ObjectId>,
    deeds: &[Deed],
) -> BTreeMap<ObjectId, u64> {
    let used = deeds.iter().zip(1..);
    used.filter_map(|(deed, number)| Some((connection(recorded, read, &deed.operation)?, number)))
        .collect()
}

/// Gives what objects are to have more or less to the coroutine that reads them; what none reads,
/// to the first that does anything. What came from one that lives once is there in later rounds
/// only of a coroutine that waits for other things, too: nothing would hold up one that finds all
/// that it waits for there each time. `again`: whether what comes into an object comes again.
fn share_balance(
    coroutines: &mut [Coroutine],
    reads: &[BTreeSet<ObjectId>],
    balance: Vec<(ObjectId, i64)>,
    again: &dyn Fn(&ObjectId) -> bool,
) {
    for (object, change) in balance {
        let reader = reads.iter().position(|read| read.contains(&object));
        let first = || coroutines.iter().position(|coroutine| !coroutine.steps.is_empty());
        let place = if again(&object) {
            reader.or_else(first)
        } else {
            reader.filter(|&place| reads[place].iter().any(again))
        };
        if let Some(place) = place {
            coroutines[place].balance.push((object, change));
        }
    }
}

/// Returns by look (its number among the operations) what was read before the next one, where that
/// is all that it found: then a send to an object that is not among it was caused by one that is.
fn read_between_looks(deeds: &[Deed]) -> BTreeMap<usize, BTreeSet<ObjectId>> {
    let mut all = BTreeMap::new();
    let mut open: Option<(usize, u32)> = None;
    let mut read = BTreeSet::new();
    for (number, deed) in deeds.iter().enumerate() {
        match deed.operation.kind {
            Kind::Select { ready, .. } => {
                let read = std::mem::take(&mut read);
                if let Some((look, found)) = open.filter(|(_, found)| *found > 0)
                    && found as usize <= read.len()
                {
                    all.insert(look, read);
                }
                open = Some((number, ready));
            }
            Kind::Receive(object, _) | Kind::Nothing(object) => {
                read.insert(object);
            }
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first waits for 1, from one that lives once, and for 2; the second for 3 alone, from one
    /// that lives once.
    #[test]
    fn what_one_that_lives_once_sent_is_there_again_beside_other_waits() {
        let object = ObjectId::from;
        let step = CoroutineStep {
            step: Step::new(Ns::ZERO, Act::Nothing, Ns::ZERO),
            later: false,
            looked: false,
            after_others: false,
            first: 0,
        };
        let coroutine = Coroutine { steps: vec![step], ..Coroutine::default() };
        let mut coroutines = vec![coroutine; 2];
        let reads = [BTreeSet::from([1usize, 2].map(object)), BTreeSet::from([object(3usize)])];
        let balance =
            vec![(object(1usize), 438), (object(3), 10), (object(4), 1), (object(2), -64)];
        let again = |of: &ObjectId| *of == object(2) || *of == object(4);
        share_balance(&mut coroutines, &reads, balance, &again);
        let first = vec![(object(1usize), 438), (object(4), 1), (object(2), -64)];
        assert_eq!((&coroutines[0].balance, &coroutines[1].balance), (&first, &Vec::new()));
    }
}
