//! Which tasks live again when the programs begin again. A task that has not ended repeats what it
//! did, from its birth if that was recorded. One that ended lives again when the task that created
//! it repeats that; where that one is not recorded, or has ended for good, it lives once. What
//! lived for more than half of the recording repeats what it did until its life is over, if it is
//! an event loop or takes what others send.

use crate::facts::{Facts, Kind, Operation, TaskFacts};
use crate::graph::{Graph, Object};
use schedlab_model::{Ns, ObjectId, TaskId};
use std::collections::BTreeSet;

/// Which tasks live again, and with whose rounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lives {
    /// By task: the task with whose rounds it lives again, which may be itself; `None`: it lives
    /// once.
    with: Vec<Option<TaskId>>,
    /// By task: whether it is a thread of an executor.
    serves: Vec<bool>,
    /// By task: how many of its operations it did once, before it first looked at many objects.
    begins: Vec<usize>,
    /// By task: whether it ended, and does one thing after the other until its life is over.
    plays_on: Vec<bool>,
    /// By task: whether it did once what it did.
    once: Vec<bool>,
    /// By task: whether it and all with which it exchanges something wait at the end of the
    /// recording for something that none of them sends.
    quiet: Vec<bool>,
}

impl Lives {
    /// Returns which tasks live again.
    pub fn from_facts(facts: &Facts, graph: &Graph) -> Lives {
        let count = facts.tasks.len();
        let (mut serves, mut begins) = (vec![false; count], vec![0; count]);
        for threads in graph.groups().filter(|threads| attend(facts, graph, threads)) {
            threads.iter().for_each(|task| serves[task.index()] = true);
            if let [task] = threads[..] {
                begins[task.index()] = begin_of(&facts.tasks[task.index()]);
            }
        }
        let plays_on: Vec<bool> = (0..count)
            .map(|number| !serves[number] && plays_on(facts, graph, number.into()))
            .collect();
        let by_itself = |task: TaskId| {
            let number = task.index();
            !facts.tasks[number].ended() || serves[number] || plays_on[number]
        };
        let once: Vec<bool> =
            (0..count).map(|number| !serves[number] && did_once(facts, number)).collect();
        let with = |number: usize| {
            let mut task = TaskId::from(number);
            // No task is its own ancestor; a file that says so is left after as many steps as there
            // are tasks.
            for _ in 0..count {
                if once[task.index()] {
                    return None;
                }
                if by_itself(task) {
                    return Some(task);
                }
                task = facts.tasks[task.index()].creator?;
            }
            None
        };
        let with = (0..count).map(with).collect();
        let stirs = |number: usize| {
            serves[number] || plays_on[number] || {
                let task = &facts.tasks[number];
                !task.ended() && task.asleep_since.is_none() && !task.operations.is_empty()
            }
        };
        let quiet = quiet(facts, graph, &stirs);
        Lives { with, serves, begins, plays_on, once, quiet }
    }

    /// Returns whether the task lives again.
    pub fn again(&self, task: TaskId) -> bool {
        self.with[task.index()].is_some()
    }

    /// Returns whether the task is a thread of an executor.
    pub fn serves(&self, task: TaskId) -> bool {
        self.serves[task.index()]
    }

    /// Returns what the task did once, before it first looked at many objects: no round repeats it.
    pub fn begin<'a>(&self, facts: &'a Facts, task: TaskId) -> &'a [Operation] {
        &facts.tasks[task.index()].operations[..self.begins[task.index()]]
    }

    /// Returns whether the task ended, and does one thing after the other until its life is over.
    pub fn plays_on(&self, task: TaskId) -> bool {
        self.plays_on[task.index()]
    }

    /// Returns whether the task is stopped at the end of the recording, or sleeps there in its
    /// first wait since its birth: nothing shows that it does again what it did until then.
    pub fn did_once(&self, task: TaskId) -> bool {
        self.once[task.index()]
    }

    /// Returns whether the task and all with which it exchanges something wait at the end of the
    /// recording for something that none of them sends: no round begins before that.
    pub fn is_quiet(&self, task: TaskId) -> bool {
        self.quiet[task.index()]
    }

    /// Returns whether what comes into the object comes at its time in each round of `reader`: from
    /// another task that lives again, or from outside.
    pub fn come_again(&self, object: &Object, reader: TaskId) -> bool {
        let mut writers = object.writers.keys();
        object.lock
            || !object.has_sender()
            || writers.any(|&writer| writer != reader && self.again(writer))
    }

    /// Returns the task with whose rounds it lives again.
    pub fn round_of(&self, task: TaskId) -> Option<TaskId> {
        self.with[task.index()]
    }
}

/// Returns whether the task lived for more than half of a recording of this length.
fn lived_long(task: &TaskFacts, duration: Ns) -> bool {
    task.life(duration).0 > duration.0 / 2
}

/// Returns whether nothing shows that a task does again what it did: at the end of the recording it
/// is stopped, or sleeps in its first wait since its birth (those for devices aside) and has taken
/// nothing from others before; or it sleeps for more than half of the recording, and has created
/// what is still there, or was for as long.
fn did_once(facts: &Facts, number: usize) -> bool {
    let task = &facts.tasks[number];
    let waited = |done: &Operation| done.slept.is_some_and(|slept| !slept.device);
    let takes = |done: &Operation| {
        use Kind::{Child, FutexWait, Receive};
        matches!(done.kind, Receive(..) | FutexWait { .. } | Child(_))
    };
    let first = || {
        let mut operations = task.operations.iter();
        task.created.is_some() && !operations.any(|done| waited(done) || takes(done))
    };
    let lives = |done: &Operation| match done.kind {
        Kind::Spawn(child) => {
            let child = &facts.tasks[child.index()];
            !child.ended() || lived_long(child, facts.duration)
        }
        _ => false,
    };
    let long = |since: Ns| since.0 < facts.duration.0 / 2 && task.operations.iter().any(lives);
    !task.ended() && (task.stopped || task.asleep_since.is_some_and(|since| long(since) || first()))
}

/// Returns how many operations a thread did before its first look, if it was born in the recording.
/// Of one that was there before, nothing tells whether it had looked already.
fn begin_of(task: &TaskFacts) -> usize {
    let looks = |done: &Operation| matches!(done.kind, Kind::Select { .. });
    let first = task.operations.iter().position(looks).filter(|_| task.created.is_some());
    first.unwrap_or_default()
}

/// Returns whether a task that ended did what it did over and over: it lived long, took what others
/// sent, and created no task that would live again with it.
fn plays_on(facts: &Facts, graph: &Graph, task: TaskId) -> bool {
    let of = &facts.tasks[task.index()];
    let takes = |object: &Object| {
        !object.lock
            && object.readers.contains_key(&task)
            && object.writers.keys().any(|writer| *writer != task)
    };
    let creates = || of.operations.iter().any(|done| matches!(done.kind, Kind::Spawn(_)));
    of.ended() && lived_long(of, facts.duration) && !creates() && graph.objects.iter().any(takes)
}

/// Returns by task whether neither it nor any task that it exchanges something with, directly or
/// through others, `stirs` at the end of the recording, nothing is under way between them, and that
/// has been so for longer than they ever paused before: what began their exchange came from
/// elsewhere.
fn quiet(facts: &Facts, graph: &Graph, stirs: &dyn Fn(usize) -> bool) -> Vec<bool> {
    let circle = circles(graph, facts.tasks.len());
    let mut loud = vec![false; circle.len()];
    for object in graph.objects.iter().filter(|object| !object.lock && object.at_end > 0) {
        object.tasks().for_each(|task| loud[circle[task.index()]] = true);
    }
    let mut times: Vec<Vec<Ns>> = vec![Vec::new(); circle.len()];
    for (number, task) in facts.tasks.iter().enumerate() {
        loud[circle[number]] |= stirs(number);
        let of = &mut times[circle[number]];
        of.extend(task.operations.iter().map(|done| done.at).chain(task.asleep_since));
    }
    let paused = |times: &mut Vec<Ns>| {
        times.sort_unstable();
        let longest = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max();
        let last = times.last().map(|last| facts.duration.saturating_sub(*last));
        last > longest
    };
    for (times, loud) in times.iter_mut().zip(&mut loud).filter(|(_, loud)| !**loud) {
        *loud = !paused(times);
    }
    circle.iter().map(|&of| !loud[of]).collect()
}

/// Returns by task the first of those that exchange something with it, directly or through others.
fn circles(graph: &Graph, count: usize) -> Vec<usize> {
    let mut circle: Vec<usize> = (0..count).collect();
    fn first(circle: &mut [usize], mut task: usize) -> usize {
        while circle[task] != task {
            circle[task] = circle[circle[task]];
            task = circle[task];
        }
        task
    }
    for object in &graph.objects {
        let mut tasks = object.tasks().map(TaskId::index);
        let Some(one) = tasks.next() else { continue };
        for other in tasks {
            let (one, other) = (first(&mut circle, one), first(&mut circle, other));
            circle[one.max(other)] = one.min(other);
        }
    }
    (0..count).map(|task| first(&mut circle, task)).collect()
}

/// Returns whether threads that share their work are an executor: one of them waits for many
/// objects. Threads that have all ended are none, and each of them plays what it did in its order:
/// what they did is all that there was to do. Where one of them lived for more than half of the
/// recording, that cannot be known: no recording holds two such lives. Then they are an executor
/// for as long as they lived, as a client is that asks for so many seconds.
pub(crate) fn attend(facts: &Facts, graph: &Graph, threads: &[TaskId]) -> bool {
    let of = |task: &TaskId| &facts.tasks[task.index()];
    let looks = |task: &TaskId| {
        of(task).operations.iter().any(|operation| matches!(operation.kind, Kind::Select { .. }))
    };
    let goes_on = |task: &TaskId| !of(task).ended() || lived_long(of(task), facts.duration);
    let many = threads.len() > 1 || threads.iter().any(|task| waits_for_many(of(task), graph));
    many && threads.iter().any(looks) && threads.iter().any(goes_on)
}

/// Returns whether a thread that looks at objects waits for more than one thing there. One that
/// reads from its only connection, and waits at futexes more often than it looks, does one thing
/// after the other: what it waits for there comes at its place between its messages. How many
/// datagrams a look finds is no property of the thread.
fn waits_for_many(task: &TaskFacts, graph: &Graph) -> bool {
    let (mut looks, mut waits, mut timed) = (0u64, 0u64, false);
    let mut read = BTreeSet::new();
    for done in &task.operations {
        match done.kind {
            Kind::Select { timed_out, .. } => {
                looks += 1;
                timed |= timed_out;
            }
            Kind::FutexWait { .. } => waits += 1,
            Kind::Receive(object, _) => {
                read.insert(object);
            }
            _ => {}
        }
    }
    let datagrams = |object: &ObjectId| graph.objects[object.index()].datagrams;
    timed || read.len() != 1 || read.iter().any(datagrams) || waits <= looks
}
