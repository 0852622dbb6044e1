//! Which tasks exchange what: which task sends to which, over what, how much and how long it lay
//! there; and the requests that servers answered, from arrival to answer. All of it from recorded
//! facts.

mod requests;
mod stream;
mod times;
mod unseen;

use super::answer::{counted, name};
use super::show::{Cell, Column, Entry, Layout, Output, Table, column};
use super::{Analysis, By, Durations, Keys, Scope};
use crate::{Capability, Facts, Header, Recording};
pub use requests::Request;
use requests::{Requests, Served};
use schedlab_model::{
    Fact, FactKind, Ns, ObjectId, ObjectInfo, ObjectKind, Outcome, TaskId, Transfer,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io;
use stream::{Moved, Stream};
pub use times::RequestTimes;
pub use unseen::Unseen;

/// The list's entry.
pub(crate) const ENTRY: Entry = Entry::new::<Messages>(
    "messages",
    "Which task sends to which, and the requests that servers answered",
    show,
);

/// A line of [`Keys`], or a task that is not in the recording.
pub type End = Option<usize>;

/// What went from one line to another over one kind of object.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    /// Objects over which it went.
    pub objects: BTreeSet<ObjectId>,
    /// Sends that were received; of a futex, wakeups.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Most bytes that lay in one of the objects.
    pub longest_queue: u64,
    /// From the send to the receive, where both are known.
    pub queued: Durations,
}

/// Which task sends to which, and which answers.
#[derive(Clone, Debug)]
pub struct Messages {
    scope: Scope,
    /// Who is in which line.
    pub keys: Keys,
    /// By sender, receiver and what it went over.
    pub pairs: BTreeMap<(End, End, String), Pair>,
    /// The requests that servers answered.
    requests: Requests,
    /// What each object is called.
    over: HashMap<ObjectId, String>,
    streams: HashMap<ObjectId, Stream>,
    /// Wakeups of a futex that no waiting task has shown yet: when, and by which line.
    woken: HashMap<ObjectId, VecDeque<(Ns, usize)>>,
}

impl Analysis for Messages {
    const NAME: &'static str = "the list of messages";
    const NEEDS: &'static [Capability] = &[Capability::Messages];
}

impl Messages {
    /// Looks at the facts of `recording`.
    pub fn from_recording(recording: &Recording, scope: &Scope, by: By) -> Messages {
        let facts = &recording.facts;
        let mut found = Messages {
            scope: scope.clone(),
            keys: Keys::new(&recording.header, by),
            pairs: BTreeMap::new(),
            requests: Requests::new(facts),
            over: HashMap::new(),
            streams: HashMap::new(),
            woken: HashMap::new(),
        };
        for fact in facts.between(Ns::ZERO, scope.to) {
            found.fact(facts, fact);
        }
        found.finish(facts);
        found
    }

    /// Returns the requests that were answered in the scope, by all tasks.
    pub fn requests(&self) -> impl Iterator<Item = Request<'_>> {
        self.requests.all().filter(|request| self.scope.at(request.answered))
    }

    /// Returns how many requests each task answered.
    pub fn answered(&self) -> BTreeMap<TaskId, u64> {
        self.requests.by_task()
    }

    fn fact(&mut self, facts: &Facts, fact: &Fact) {
        let Some(task) = fact.task else { return };
        let line = self.keys.line(task);
        match fact.kind {
            FactKind::Send(ref moved) if moved.bytes > 0 => {
                let stream = self.streams.entry(moved.object).or_default();
                let late = stream.send(fact.at, line, moved);
                let known = stream.is_late(moved);
                self.counted(facts, fact.at, moved.object, late);
                self.requests.sent(fact.at, task, moved.object, known);
            }
            FactKind::Receive(ref moved) if moved.bytes > 0 && !moved.peek => {
                self.received(facts, fact.at, line, moved);
                self.requests.received(fact.at, moved.object);
            }
            FactKind::FutexWake { futex, woken, .. } if woken > 0 => {
                let waiting = self.woken.entry(futex).or_default();
                // More than this wait at no futex of a program that works.
                const MOST: usize = 4096;
                let room = MOST.saturating_sub(waiting.len()).min(woken as usize);
                waiting.extend(std::iter::repeat_n((fact.at, line), room));
            }
            FactKind::FutexWait { futex, outcome: Outcome::Done, .. } => {
                if let Some((at, by)) = self.woken.get_mut(&futex).and_then(VecDeque::pop_front) {
                    let moved = Moved {
                        from: Some(by),
                        to: Some(line),
                        bytes: 0,
                        queued: Some(fact.at.saturating_sub(at)),
                    };
                    self.counted(facts, fact.at, futex, vec![moved]);
                }
            }
            _ => {}
        }
    }

    fn received(&mut self, facts: &Facts, at: Ns, line: usize, moved: &Transfer) {
        let stream = self.streams.entry(moved.object).or_default();
        let done = stream.receive(at, line, moved);
        self.counted(facts, at, moved.object, done);
    }

    /// Puts messages that went over `object` into their pairs, when they are in the scope.
    fn counted(&mut self, facts: &Facts, at: Ns, object: ObjectId, done: Vec<Moved>) {
        for Moved { from, to, bytes, queued } in done {
            if !self.scope.at(at) {
                continue;
            }
            let over = self
                .over
                .entry(object)
                .or_insert_with(|| over(facts, facts.object(object)))
                .clone();
            let pair = self.pairs.entry((from, to, over)).or_default();
            pair.objects.insert(object);
            pair.messages += 1;
            pair.bytes += bytes;
            pair.longest_queue = pair
                .longest_queue
                .max(self.streams.get(&object).map_or(0, |stream| stream.longest));
            if let Some(queued) = queued {
                pair.queued.add(queued);
            }
        }
    }

    /// What no task of the recording received went out of it.
    fn finish(&mut self, facts: &Facts) {
        let mut rest: Vec<_> =
            self.streams.iter_mut().map(|(object, stream)| (*object, stream.rest())).collect();
        rest.sort_by_key(|(object, _)| *object);
        for (object, done) in rest {
            for (at, moved) in done {
                self.counted(facts, at, object, vec![moved]);
            }
        }
    }

    /// Whether a pair has a task of the scope.
    fn shown(&self, from: End, to: End, tasks: &[bool]) -> bool {
        [from, to].into_iter().flatten().any(|line| tasks[line])
    }

    /// By line: whether one of its tasks is in the scope.
    fn lines(&self, header: &Header) -> Vec<bool> {
        let mut lines = vec![false; self.keys.len()];
        for task in (0..header.tasks.len()).map(TaskId::from) {
            lines[self.keys.line(task)] |= self.scope.task(task);
        }
        lines
    }
}

/// What a message went over, for people: the server's port, a path, the kind of object.
fn over(facts: &Facts, object: &ObjectInfo) -> String {
    match (requests::service(facts, object), object.kind) {
        (Some(service), _) => service,
        (None, ObjectKind::Futex | ObjectKind::SharedFutex) => "futex".to_owned(),
        (None, ObjectKind::Udp) if !object.to.is_empty() => format!("UDP {}", object.to),
        (None, kind) => kind.word().to_owned(),
    }
}

const PAIRS: &[Column] = &[
    column("from", "from").rank(1),
    column("to", "to").rank(1),
    column("over", "over").rank(1),
    column("objects", "objects"),
    column("messages", "messages").rank(3),
    column("per_second", "a second").rank(2),
    column("bytes", "bytes").rank(4),
    column("bytes_each", "bytes each").rank(4),
    column("longest_queue_bytes", "longest queue, bytes"),
    column("queued_p50_ns", "until received, p50").rank(4),
    column("queued_p99_ns", "p99").rank(4),
];

const REQUESTS: &[Column] = &[
    column("server", "server").rank(1),
    column("over", "over").rank(1),
    column("connections", "connections"),
    column("requests", "requests").rank(3),
    column("per_second", "a second").rank(2),
    column("p50_ns", "p50").rank(2),
    column("p90_ns", "p90").rank(4),
    column("p99_ns", "p99").rank(2),
    column("p99_interval_ns", "p99 interval").rank(6),
    column("max_ns", "max").rank(4),
    column("waiting_share", "waiting for a CPU").rank(2),
    column("waiting_share_p99", "of the slowest 1 %").rank(3),
    column("unseen_clients", "clients elsewhere"),
];

fn show(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    let found = Messages::from_recording(recording, scope, scope.by.unwrap_or(By::Name));
    let served = found.requests.served(recording, scope, &found.keys);
    out.answer(&answer(recording, scope, &found, &served))?;
    let title = "Requests, from their arrival to the first byte of the answer";
    out.table(&Table { key: "requests", title, columns: REQUESTS, layout: Layout::Table })?;
    for row in &served {
        request_row(recording, scope, &found.keys, row, out)?;
    }
    let title = "Which task sends to which";
    out.table(&Table { key: "pairs", title, columns: PAIRS, layout: Layout::Table })?;
    let tasks = found.lines(&recording.header);
    let mut rows: Vec<_> =
        found.pairs.iter().filter(|((from, to, _), _)| found.shown(*from, *to, &tasks)).collect();
    rows.sort_by_key(|(key, pair)| (std::cmp::Reverse(pair.messages), *key));
    // A few pairs carry nearly everything; the rest is asked for.
    const FEW: usize = 20;
    let shown = scope.top.unwrap_or(FEW);
    for ((from, to, over), pair) in rows.iter().take(shown) {
        pair_row(recording, scope, &found.keys, (*from, *to, over), pair, out)?;
    }
    if rows.len() > shown {
        out.note(&format!("{} more pairs: `--top {}` shows all", rows.len() - shown, rows.len()))?;
    }
    notes(recording, scope, out)
}

fn end<'a>(keys: &'a Keys, line: End) -> Cell<'a> {
    line.map_or(Cell::Text("<elsewhere>"), |line| Cell::label(&keys.labels[line]))
}

/// How often a second, in thousandths.
fn rate(count: u64, window: Ns) -> Cell<'static> {
    match window.0 {
        0 => Cell::None,
        ns => Cell::Milli((u128::from(count) * 1_000_000_000_000 / u128::from(ns)) as u64),
    }
}

fn pair_row(
    recording: &Recording,
    scope: &Scope,
    keys: &Keys,
    (from, to, over): (End, End, &str),
    pair: &Pair,
    out: &mut dyn Output,
) -> io::Result<()> {
    let bytes = |value: u64| if pair.bytes > 0 { Cell::Count(value) } else { Cell::None };
    let queued = |time: Ns| if pair.queued.count() > 0 { Cell::Time(time) } else { Cell::None };
    out.row(&[
        end(keys, from),
        end(keys, to),
        Cell::Text(over),
        Cell::Count(pair.objects.len() as u64),
        Cell::Count(pair.messages),
        rate(pair.messages, scope.length(recording)),
        bytes(pair.bytes),
        bytes(pair.bytes / pair.messages.max(1)),
        bytes(pair.longest_queue),
        queued(pair.queued.p50()),
        queued(pair.queued.p99()),
    ])
}

fn request_row(
    recording: &Recording,
    scope: &Scope,
    keys: &Keys,
    row: &Served,
    out: &mut dyn Output,
) -> io::Result<()> {
    out.row(&[
        Cell::label(&keys.labels[row.line]),
        Cell::Text(&row.over),
        Cell::Count(row.connections),
        Cell::Count(row.latency.count()),
        rate(row.latency.count(), scope.length(recording)),
        Cell::Time(row.latency.p50()),
        Cell::Time(row.latency.quantile(900_000)),
        Cell::Time(row.latency.p99()),
        Cell::interval(&row.latency, 990_000),
        Cell::Time(row.latency.max()),
        Cell::part(row.waiting, row.latency.sum()),
        Cell::part(row.slowest_waiting, row.slowest),
        Cell::Count(row.unseen_clients),
    ])
}

/// The server that answered most, and what its slowest requests waited for; else the pair that
/// exchanged most.
fn answer(recording: &Recording, scope: &Scope, found: &Messages, served: &[Served]) -> String {
    let window = scope.length(recording);
    if let Some(most) = served.iter().max_by_key(|row| row.latency.count()) {
        let who = name(&recording.header, &found.keys.labels[most.line]);
        let share = |part: Ns, whole: Ns| 100.0 * part.0 as f64 / (whole.0.max(1)) as f64;
        return format!(
            "{who} answered {} over {} in {window}: half of them within {}, 99 % within {}. {:.0} \
             % of that time {who} waited \
             for a CPU; of the slowest 1 %, {:.0} %.",
            counted(most.latency.count(), "request"),
            most.over,
            most.latency.p50(),
            most.latency.p99(),
            share(most.waiting, most.latency.sum()),
            share(most.slowest_waiting, most.slowest),
        );
    }
    let end = |line: End| {
        line.map_or("a task elsewhere".to_owned(), |line| {
            name(&recording.header, &found.keys.labels[line])
        })
    };
    match found.pairs.iter().max_by_key(|(_, pair)| pair.messages) {
        Some(((from, to, over), pair)) => format!(
            "No request with an answer was seen. {} sent most: {} to {} over {over}.",
            end(*from),
            counted(pair.messages, "message"),
            end(*to)
        ),
        None => "No task sent anything that another one received.".to_owned(),
    }
}

/// What a reader must know, and what the recording shows signs of that it cannot see.
fn notes(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    for sentence in Unseen::of(recording, scope).sentences(&recording.header) {
        out.note(&sentence)?;
    }
    if let Some(sentence) = recording.facts.without_addresses() {
        out.note(&sentence)?;
    }
    out.note(
        "`<elsewhere>`: another machine, or a task that was not recorded. A request begins with \
         the first bytes that arrive on a \
         connection after an answer (with clients elsewhere: when the server reads them), and \
         ends with the first bytes of the answer; \
         requests that are sent together are one. Shared memory, spinning and locks without \
         contention are not seen",
    )
}
