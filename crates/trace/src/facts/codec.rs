//! Facts as records of 36 bytes, column by column (docs/recording-format.md).

use crate::format::{NOBODY, gather, scatter};
use schedlab_model::{CpuId, Fact, FactKind, Limit, Ns, ObjectId, Outcome, TaskId, Transfer};
use std::collections::HashMap;

/// Bytes of a record.
pub(crate) const RECORD: usize = 36;
const WORDS: usize = RECORD / 4;
/// The word of kind, flags and CPU.
const HEAD: usize = 2;
/// No object.
const NOTHING: u32 = u32::MAX;
/// Kinds of transfers.
const SEND: u8 = 1;
const RECEIVE: u8 = 2;

/// Bits of a transfer's flags above its outcome.
const PARTIAL: u8 = 0x10;
const LIMITED: u8 = 0x20;
const PEEK: u8 = 0x40;
const BY_KERNEL: u8 = 0x80;
/// Where a [`Limit`] begins in the flags of other kinds.
const LIMIT: u8 = 4;
/// Nanoseconds of the unit in which epoll and poll are told how long to wait.
const MILLISECOND: u64 = 1_000_000;

/// How the records of a block are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// All of them in the order of the facts (format 1.4 and 1.5).
    ByTime,
    /// The CPUs of the facts in their order; the rest of the records CPU by CPU, so that what CPUs
    /// do at once is apart (from format 1.6 on).
    ByCpu,
}

/// A fact as it is stored: its flags are outcome and, above it, the limit or the manner of a
/// transfer.
#[derive(Clone, Copy, Default)]
struct Row {
    kind: u8,
    flags: u8,
    object: u32,
    count: u32,
    value: u64,
    other: u32,
}

/// Places of the block so far, by object and direction: what the next fact's place is likely to be.
struct Places {
    last: HashMap<(u32, u8), u64>,
    layout: Layout,
}

impl Places {
    fn new(layout: Layout) -> Places {
        Places { last: HashMap::new(), layout }
    }

    /// The place behind a transfer if nothing is missing before it. The first one of a direction
    /// is near the last one of the other (not in a block by time).
    fn likely(&self, kind: u8, transfer: &Transfer) -> u64 {
        let of = |kind: u8| self.last.get(&(transfer.object.0, kind)).copied();
        let other = || of(SEND + RECEIVE - kind).filter(|_| self.layout == Layout::ByCpu);
        let before = of(kind).or_else(other).unwrap_or_default();
        before.wrapping_add(if transfer.peek { 0 } else { u64::from(transfer.bytes) })
    }

    fn set(&mut self, kind: u8, transfer: &Transfer) {
        if let Some(place) = transfer.place {
            self.last.insert((transfer.object.0, kind), place);
        }
    }
}

/// Where the records of each CPU stand in a block, and the time of the one before.
struct Rows {
    /// By CPU: its next row, and the time of the record before.
    next: Vec<(usize, u64)>,
    layout: Layout,
}

impl Rows {
    /// For facts on these CPUs, in their order, from the time `first` on.
    fn new(cpus: impl Iterator<Item = u16>, first: u64, layout: Layout) -> Rows {
        let mut counts: Vec<usize> = Vec::new();
        for cpu in cpus {
            let row = row_of(cpu, layout);
            if row >= counts.len() {
                counts.resize(row + 1, 0);
            }
            counts[row] += 1;
        }
        let begin = |from: &mut usize, count: usize| {
            let row = *from;
            *from += count;
            Some((row, first))
        };
        Rows { next: counts.into_iter().scan(0, begin).collect(), layout }
    }

    /// Returns the row of the next fact of this CPU, and the time before it, to be replaced.
    fn take(&mut self, cpu: u16) -> (usize, &mut u64) {
        let (row, before) = &mut self.next[row_of(cpu, self.layout)];
        *row += 1;
        (*row - 1, before)
    }
}

fn row_of(cpu: u16, layout: Layout) -> usize {
    match layout {
        Layout::ByTime => 0,
        Layout::ByCpu => usize::from(cpu),
    }
}

/// Small differences of both signs are small numbers.
fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64 >> 63) as u64)
}

fn unzigzag(code: u64) -> u64 {
    (code >> 1) ^ (code & 1).wrapping_neg()
}

fn id(task: Option<TaskId>) -> u32 {
    task.map_or(NOBODY, |task| task.0)
}

/// The facts as records, CPU by CPU: `at` is the difference to the record of the CPU before, to
/// `first` in its first one.
pub(crate) fn encode(facts: &[Fact], first: u64) -> Vec<u8> {
    let (count, layout) = (facts.len(), Layout::ByCpu);
    let mut words = vec![0; count * WORDS];
    let mut places = Places::new(layout);
    let mut rows = Rows::new(facts.iter().map(|fact| fact.cpu.0 as u16), first, layout);
    for (number, fact) in facts.iter().enumerate() {
        let Row { kind, flags, object, count: n, value, other } = stored(&fact.kind, &mut places);
        let (row, before) = rows.take(fact.cpu.0 as u16);
        let at = fact.at.0.wrapping_sub(*before);
        *before = fact.at.0;
        let [at_high, value_high] = [at, value].map(|long| (long >> 32) as u32);
        let (at, value) = (at as u32, value as u32);
        let head = u32::from(u16::from_le_bytes([kind, flags]));
        let record = [at, at_high, head, id(fact.task), object, n, value, value_high, other];
        for (word, column) in record.into_iter().zip(words.chunks_exact_mut(count)) {
            column[row] |= word;
        }
        words[HEAD * count + number] |= fact.cpu.0 << 16;
    }
    let mut out = vec![0; count * RECORD];
    for (word, column) in words.chunks_exact(count.max(1)).enumerate() {
        scatter(column, count, word * 4, 0, &mut out);
    }
    out
}

fn code(outcome: Outcome) -> u8 {
    Outcome::ALL.iter().position(|&other| other == outcome).unwrap_or_default() as u8
}

/// A limit as flags and a value.
fn limited(limit: Limit) -> (u8, u64) {
    let (kind, value) = match limit {
        Limit::None => (0, 0),
        Limit::For(ns) if ns.0.is_multiple_of(MILLISECOND) => (4, ns.0 / MILLISECOND),
        Limit::For(ns) => (1, ns.0),
        Limit::At(ns) => (2, ns.0),
        Limit::Unknown => (3, 0),
    };
    (kind << LIMIT, value)
}

fn stored(kind: &FactKind, places: &mut Places) -> Row {
    let row = |kind: u8, object: ObjectId| Row {
        kind,
        object: object.0,
        other: NOTHING,
        ..Row::default()
    };
    let bare = |kind: u8| row(kind, ObjectId(NOTHING));
    let waits = |row: Row, until: Limit, outcome: Outcome| {
        let (bits, value) = limited(until);
        Row { flags: bits | code(outcome), value, ..row }
    };
    match *kind {
        FactKind::Send(ref transfer) => moved(SEND, transfer, places),
        FactKind::Receive(ref transfer) => moved(RECEIVE, transfer, places),
        FactKind::Select { selector, ready, until, outcome } => {
            let of = row(3, selector.unwrap_or(ObjectId(NOTHING)));
            waits(Row { count: ready, ..of }, until, outcome)
        }
        FactKind::Watch { selector, object, watched, events } => {
            Row { flags: u8::from(watched), count: events, other: object.0, ..row(4, selector) }
        }
        FactKind::FutexWait { futex, expected, until, outcome } => {
            waits(Row { count: expected, ..row(5, futex) }, until, outcome)
        }
        FactKind::FutexWake { futex, asked, woken, requeue } => {
            let other = requeue.map_or(NOTHING, |object| object.0);
            Row { count: woken, value: u64::from(asked), other, ..row(6, futex) }
        }
        FactKind::Sleep { until, outcome } => waits(bare(7), until, outcome),
        FactKind::Arm { timer, first, every } => {
            let (low, high) = (every.0 as u32, (every.0 >> 32) as u32);
            waits(Row { count: low, other: high, ..row(8, timer) }, first, Outcome::Done)
        }
        FactKind::Open { object } => row(9, object),
        FactKind::Close { object } => row(10, object),
        FactKind::Accept { listener, object } => Row { other: object.0, ..row(11, listener) },
        FactKind::Connect { object, outcome } => Row { flags: code(outcome), ..row(12, object) },
        FactKind::Signal { from, number } => Row { count: number, other: id(from), ..bare(13) },
        FactKind::Child { child } => Row { other: id(child), ..bare(14) },
        FactKind::Preempted { call } => Row { count: call, ..bare(15) },
        FactKind::Lost { count } => Row { value: count, ..bare(16) },
        // `FactKind` is non-exhaustive for other crates' sake: a new kind needs a number here and
        // in the document.
        ref other => unreachable!("no record kind for {other:?}"),
    }
}

fn moved(kind: u8, transfer: &Transfer, places: &mut Places) -> Row {
    let unlikely = |place: u64| zigzag(place.wrapping_sub(places.likely(kind, transfer)));
    let value = transfer.place.map_or(0, |place| unlikely(place).saturating_add(1));
    places.set(kind, transfer);
    let bits = [
        (transfer.partial, PARTIAL),
        (transfer.limited, LIMITED),
        (transfer.peek, PEEK),
        (transfer.by_kernel, BY_KERNEL),
    ];
    let flags = bits
        .iter()
        .fold(code(transfer.outcome), |flags, (set, bit)| flags | if *set { *bit } else { 0 });
    Row { kind, flags, object: transfer.object.0, count: transfer.bytes, value, other: NOTHING }
}

/// Appends the facts of a block to `out`. Returns how many records were of an unknown kind, and
/// left out.
pub(crate) fn decode(
    bytes: &[u8],
    first: u64,
    layout: Layout,
    out: &mut Vec<Fact>,
) -> Result<u64, String> {
    let count = bytes.len() / RECORD;
    out.reserve(count);
    let mut words = vec![0; count * WORDS];
    for (word, column) in words.chunks_exact_mut(count.max(1)).enumerate() {
        gather(bytes, count, word * 4, 0, column);
    }
    let column = |word: usize| &words[word * count..][..count];
    let cpus = || column(HEAD).iter().map(|head| (head >> 16) as u16);
    let mut rows = Rows::new(cpus(), first, layout);
    let (mut skipped, mut places) = (0, Places::new(layout));
    for (number, cpu) in cpus().enumerate() {
        let (row, before) = rows.take(cpu);
        let [at, at_high, head, task, object, n, value, value_high, other] =
            std::array::from_fn(|word| column(word)[row]);
        *before = before.wrapping_add(u64::from(at) | u64::from(at_high) << 32);
        let at = Ns(*before);
        let [kind, flags, ..] = head.to_le_bytes();
        let value = u64::from(value) | u64::from(value_high) << 32;
        let row = Row { kind, flags, object, count: n, value, other };
        let kind = read(row, &mut places).map_err(|what| format!("fact {number}: {what}"))?;
        let Some(kind) = kind else {
            skipped += 1;
            continue;
        };
        let task = (task != NOBODY).then_some(TaskId(task));
        if task.is_none() && !matches!(kind, FactKind::Lost { .. }) {
            return Err(format!("fact {number}: it has no task"));
        }
        out.push(Fact { at, cpu: CpuId(u32::from(cpu)), task, kind });
    }
    Ok(skipped)
}

/// The fact of a record; `None` for a kind that this version does not know.
fn read(row: Row, places: &mut Places) -> Result<Option<FactKind>, String> {
    let outcome = || {
        let found = Outcome::ALL.get(usize::from(row.flags & 0xf)).copied();
        found.ok_or_else(|| format!("unknown outcome {}", row.flags & 0xf))
    };
    let until = || match row.flags >> LIMIT {
        0 => Ok(Limit::None),
        1 => Ok(Limit::For(Ns(row.value))),
        2 => Ok(Limit::At(Ns(row.value))),
        3 => Ok(Limit::Unknown),
        4 => Ok(Limit::For(Ns(row.value.saturating_mul(MILLISECOND)))),
        other => Err(format!("unknown kind of limit {other}")),
    };
    let (object, other) = (ObjectId(row.object), ObjectId(row.other));
    let maybe = |object: u32| (object != NOTHING).then_some(ObjectId(object));
    let task = (row.other != NOBODY).then_some(TaskId(row.other));
    Ok(Some(match row.kind {
        SEND => FactKind::Send(transfer(&row, outcome()?, places)),
        RECEIVE => FactKind::Receive(transfer(&row, outcome()?, places)),
        3 => FactKind::Select {
            selector: maybe(row.object),
            ready: row.count,
            until: until()?,
            outcome: outcome()?,
        },
        4 => FactKind::Watch {
            selector: object,
            object: other,
            watched: row.flags & 1 != 0,
            events: row.count,
        },
        5 => FactKind::FutexWait {
            futex: object,
            expected: row.count,
            until: until()?,
            outcome: outcome()?,
        },
        6 => FactKind::FutexWake {
            futex: object,
            asked: u32::try_from(row.value).unwrap_or(u32::MAX),
            woken: row.count,
            requeue: maybe(row.other),
        },
        7 => FactKind::Sleep { until: until()?, outcome: outcome()? },
        8 => {
            let every = Ns(u64::from(row.count) | u64::from(row.other) << 32);
            FactKind::Arm { timer: object, first: until()?, every }
        }
        9 => FactKind::Open { object },
        10 => FactKind::Close { object },
        11 => FactKind::Accept { listener: object, object: other },
        12 => FactKind::Connect { object, outcome: outcome()? },
        13 => FactKind::Signal { from: task, number: row.count },
        14 => FactKind::Child { child: task },
        15 => FactKind::Preempted { call: row.count },
        16 => FactKind::Lost { count: row.value },
        _ => return Ok(None),
    }))
}

fn transfer(row: &Row, outcome: Outcome, places: &mut Places) -> Transfer {
    let has = |bit: u8| row.flags & bit != 0;
    let mut transfer = Transfer {
        outcome,
        partial: has(PARTIAL),
        limited: has(LIMITED),
        peek: has(PEEK),
        by_kernel: has(BY_KERNEL),
        ..Transfer::done(ObjectId(row.object), row.count)
    };
    if let Some(code) = row.value.checked_sub(1) {
        transfer.place = Some(places.likely(row.kind, &transfer).wrapping_add(unzigzag(code)));
        places.set(row.kind, &transfer);
    }
    transfer
}
