//! Second stage: what each object holds and how its account closes, who reads it and who writes it,
//! and which threads share the work of their process.

use crate::facts::{Facts, Kind, Operation};
use schedlab_model::{Ns, ObjectId, ObjectInfo, ObjectKind, TaskId};
use schedlab_trace::Recording;
use std::collections::{BTreeMap, BTreeSet};

/// A futex on which glibc's and Go's mutexes wait has this value: locked, with waiters (glibc 2.36,
/// nptl/lowlevellock.h; Go 1.22, runtime/lock_futex.go).
const LOCKED_WITH_WAITERS: u32 = 2;

/// Which tasks exchange what.
#[derive(Clone, Debug)]
pub struct Graph {
    /// By [`ObjectId`] of the recording; the exits of children come behind.
    pub objects: Vec<Object>,
    /// By task: the object of its exit, where a task waits for that.
    pub exits: BTreeMap<TaskId, ObjectId>,
    /// By task: the object of the messages of which only the wakeup is known.
    pub wakeups: BTreeMap<TaskId, ObjectId>,
    /// By task: the process whose threads share their work, where they do.
    pub shared: Vec<Option<u32>>,
}

/// What the recording says of one object.
#[derive(Clone, Debug, Default)]
pub struct Object {
    /// Tasks that took something out.
    pub readers: BTreeMap<TaskId, Reads>,
    /// Tasks that put something in, with how much.
    pub writers: BTreeMap<TaskId, u64>,
    /// It is a futex.
    pub futex: bool,
    /// A futex that guards something.
    pub lock: bool,
    /// What is sent at once is taken at once: several tasks read it, or datagrams are sent to it.
    pub messages: bool,
    /// Datagrams are sent to it.
    pub datagrams: bool,
    /// In it at the start of the recording: the least for which no receive comes before its bytes.
    pub at_start: u64,
    /// In it at the end.
    pub at_end: u64,
    /// The most that was in it, where a sender had to wait for room.
    pub full_at: Option<u64>,
    /// Receives that ended where a message ended, by time.
    pub whole: BTreeSet<(Ns, TaskId)>,
}

/// What a task took out of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Reads {
    /// How often.
    pub times: u64,
    /// How much in all.
    pub amount: u64,
}

impl Object {
    /// Notes that a task took so much out.
    fn taken(&mut self, by: TaskId, amount: u64) {
        let reads = self.readers.entry(by).or_default();
        reads.times += 1;
        reads.amount = reads.amount.saturating_add(amount);
    }

    /// Notes that a task put so much in.
    fn given(&mut self, by: TaskId, amount: u64) {
        let given = self.writers.entry(by).or_default();
        *given = given.saturating_add(amount);
    }

    /// Returns the tasks that exchange something here; some of them twice.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.readers.keys().chain(self.writers.keys()).copied()
    }

    /// Returns whether a recorded task sends to it.
    pub fn has_sender(&self) -> bool {
        !self.writers.is_empty()
    }
}

/// Something that came into an object or went out of it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Ns,
    /// A send may have been there so early.
    earliest: Ns,
    amount: i64,
    task: TaskId,
}

impl Graph {
    /// Returns which tasks exchange what.
    pub fn from_facts(facts: &Facts, recording: &Recording) -> Graph {
        let of_kind = |info: &ObjectInfo| Object {
            datagrams: matches!(info.kind, ObjectKind::Udp | ObjectKind::UnixDatagram),
            ..Object::default()
        };
        let mut objects: Vec<Object> = facts.objects.iter().map(of_kind).collect();
        let (mut exits, mut wakeups) = (BTreeMap::new(), BTreeMap::new());
        for operation in facts.tasks.iter().flat_map(|task| &task.operations) {
            let (of, task) = match operation.kind {
                Kind::Child(child) => (&mut exits, child),
                Kind::Wake(wakee) => (&mut wakeups, wakee),
                _ => continue,
            };
            of.entry(task).or_insert_with(|| {
                objects.push(Object::default());
                ObjectId::from(objects.len() - 1)
            });
        }
        let made = (exits, wakeups);
        let mut entries = vec![Vec::new(); objects.len()];
        for (number, task) in facts.tasks.iter().enumerate() {
            let id = TaskId::from(number);
            for operation in &task.operations {
                note(&mut objects, &mut entries, &made, id, operation);
            }
            if let (true, Some(exit)) = (task.ended(), made.0.get(&id)) {
                let at = task.operations.last().map_or(Ns::ZERO, |last| last.at);
                objects[exit.index()].given(id, 1);
                entries[exit.index()].push(Entry { at, earliest: at, amount: 1, task: id });
            }
        }
        find_locks(&mut objects, facts);
        for (object, entries) in objects.iter_mut().zip(&mut entries) {
            entries.sort_by_key(|entry| entry.at);
            object.messages = object.datagrams || !object.futex && object.readers.len() > 1;
            if object.lock {
                continue;
            }
            object.account(entries);
        }
        let shared = shared(facts, recording, &objects);
        let (exits, wakeups) = made;
        Graph { objects, exits, wakeups, shared }
    }

    /// Returns the tasks, those together that share their work, in the order of their first ids.
    pub fn groups(&self) -> impl Iterator<Item = Vec<TaskId>> {
        let mut groups: Vec<Vec<TaskId>> = Vec::new();
        let mut of_process = BTreeMap::new();
        for (number, process) in self.shared.iter().enumerate() {
            let place = match process {
                Some(process) => *of_process.entry(*process).or_insert(groups.len()),
                None => groups.len(),
            };
            if place == groups.len() {
                groups.push(Vec::new());
            }
            groups[place].push(number.into());
        }
        groups.into_iter()
    }
}

/// Notes what an operation did to its object.
fn note(
    objects: &mut [Object],
    entries: &mut [Vec<Entry>],
    (exits, wakeups): &(BTreeMap<TaskId, ObjectId>, BTreeMap<TaskId, ObjectId>),
    task: TaskId,
    operation: &Operation,
) {
    let at = operation.at;
    // Where it woke its receiver the bytes were there; else somewhere between its begin and its
    // end.
    let earliest = operation.woke.map_or(operation.began, |woke| woke.min(at));
    let entry = |amount: i64| Entry { at, earliest, amount, task };
    match operation.kind {
        Kind::Receive(object, amount) => {
            objects[object.index()].taken(task, amount);
            entries[object.index()].push(entry(-(amount as i64)));
        }
        Kind::Send(object, amount) => {
            objects[object.index()].given(task, amount);
            entries[object.index()].push(entry(amount as i64));
            if operation.slept.is_some() {
                objects[object.index()].full_at = Some(0);
            }
        }
        Kind::FutexWait { futex, .. } => {
            objects[futex.index()].futex = true;
            objects[futex.index()].taken(task, 1);
            entries[futex.index()].push(entry(-1));
        }
        Kind::FutexWake(futex, woken) => {
            objects[futex.index()].futex = true;
            objects[futex.index()].given(task, woken.into());
            entries[futex.index()].push(entry(woken.into()));
        }
        Kind::Child(child) => {
            if let Some(exit) = exits.get(&child) {
                objects[exit.index()].taken(task, 1);
                entries[exit.index()].push(entry(-1));
            }
        }
        Kind::Woken => {
            if let Some(wakeup) = wakeups.get(&task) {
                objects[wakeup.index()].taken(task, 1);
                entries[wakeup.index()].push(entry(-1));
            }
        }
        Kind::Wake(wakee) => {
            if let Some(wakeup) = wakeups.get(&wakee) {
                objects[wakeup.index()].given(task, 1);
                entries[wakeup.index()].push(Entry { earliest: at, ..entry(1) });
            }
        }
        _ => {}
    }
}

/// Finds the futexes that guard something: a task both waits and wakes there, or every wait expects
/// the value of a mutex whose holder knows of its waiters. Neither is recorded as such; the others
/// carry events.
fn find_locks(objects: &mut [Object], facts: &Facts) {
    let mut others = BTreeSet::new();
    let mut waited = BTreeSet::new();
    for operation in facts.tasks.iter().flat_map(|task| &task.operations) {
        if let Kind::FutexWait { futex, expected } = operation.kind {
            waited.insert(futex);
            if expected != LOCKED_WITH_WAITERS {
                others.insert(futex);
            }
        }
    }
    for (number, object) in objects.iter_mut().enumerate().filter(|(_, object)| object.futex) {
        let id = ObjectId::from(number);
        let both = object.readers.keys().any(|reader| object.writers.contains_key(reader));
        object.lock = both || (waited.contains(&id) && !others.contains(&id));
    }
}

impl Object {
    /// Closes the account: what was in it at the start and at the end, and how full it was.
    fn account(&mut self, entries: &[Entry]) {
        let sends: Vec<&Entry> = entries.iter().filter(|entry| entry.amount > 0).collect();
        let (mut next, mut balance, mut start, mut fullest) = (0, 0i64, 0i64, 0i64);
        for entry in entries {
            if entry.amount > 0 {
                // Those that a receive needed earlier have been counted.
                while next < sends.len() && sends[next].at <= entry.at {
                    balance += sends[next].amount;
                    next += 1;
                }
            } else {
                balance += entry.amount;
                while balance < 0 && next < sends.len() && sends[next].earliest <= entry.at {
                    balance += sends[next].amount;
                    next += 1;
                }
                if balance < 0 {
                    start -= balance;
                    balance = 0;
                }
            }
            fullest = fullest.max(balance);
        }
        self.at_start = start.unsigned_abs();
        self.at_end = balance.unsigned_abs();
        self.full_at = self.full_at.map(|_| fullest.unsigned_abs());
        if self.messages {
            self.find_whole(entries);
        }
    }

    /// Finds the receives that ended where a message ended.
    fn find_whole(&mut self, entries: &[Entry]) {
        let mut sent = self.at_start as i64;
        let mut ends = BTreeSet::from([sent]);
        for entry in entries.iter().filter(|entry| entry.amount > 0) {
            sent += entry.amount;
            ends.insert(sent);
        }
        let mut taken = 0;
        for entry in entries.iter().filter(|entry| entry.amount < 0) {
            taken -= entry.amount;
            if ends.contains(&taken) {
                self.whole.insert((entry.at, entry.task));
            }
        }
    }
}

/// Finds the threads that share the work of their process: one of its threads waits for many
/// objects, and an object is read by several. Those are the threads that wait for many objects and
/// the readers of such an object; the others do what they do by themselves.
fn shared(facts: &Facts, recording: &Recording, objects: &[Object]) -> Vec<Option<u32>> {
    let process = |task: TaskId| recording.header.tasks[task.index()].pid;
    let selects = |task: TaskId| {
        let own = &facts.tasks[task.index()].operations;
        own.iter().any(|operation| matches!(operation.kind, Kind::Select { .. }))
    };
    let selecting: BTreeSet<TaskId> =
        (0..facts.tasks.len()).map(TaskId::from).filter(|&task| selects(task)).collect();
    let waiting: BTreeSet<u32> = selecting.iter().map(|&task| process(task)).collect();
    let mut common = BTreeSet::new();
    let mut members = BTreeSet::new();
    for object in objects.iter().filter(|object| !object.futex) {
        let mut readers: BTreeMap<u32, Vec<TaskId>> = BTreeMap::new();
        for &reader in object.readers.keys() {
            readers.entry(process(reader)).or_default().push(reader);
        }
        for (pid, readers) in readers {
            if readers.len() > 1 && waiting.contains(&pid) {
                common.insert(pid);
                members.extend(readers);
            }
        }
    }
    members.extend(selecting.into_iter().filter(|&task| common.contains(&process(task))));
    let of = |number: usize| {
        let task = TaskId::from(number);
        members.contains(&task).then(|| process(task))
    };
    (0..facts.tasks.len()).map(of).collect()
}
