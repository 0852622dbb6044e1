//! Facts as records of 36 bytes, column by column (docs/recording-format.md).

use crate::format::{NOBODY, TOGETHER, gather, scatter};
use schedlab_model::{CpuId, Fact, FactKind, Limit, Ns, ObjectId, Outcome, TaskId, Transfer};
use std::collections::HashMap;

/// Bytes of a record.
pub(crate) const RECORD: usize = 36;
const WORDS: usize = RECORD / 4;
/// No object.
const NOTHING: u32 = u32::MAX;

/// Bits of a transfer's flags above its outcome.
const PARTIAL: u8 = 0x10;
const LIMITED: u8 = 0x20;
const PEEK: u8 = 0x40;
const BY_KERNEL: u8 = 0x80;
/// Where a [`Limit`] begins in the flags of other kinds.
const LIMIT: u8 = 4;

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
#[derive(Default)]
struct Places(HashMap<(u32, u8), u64>);

impl Places {
    /// The place behind a transfer if nothing is missing before it.
    fn likely(&self, kind: u8, transfer: &Transfer) -> u64 {
        let before = self.0.get(&(transfer.object.0, kind)).copied().unwrap_or_default();
        before.wrapping_add(if transfer.peek { 0 } else { u64::from(transfer.bytes) })
    }

    fn set(&mut self, kind: u8, transfer: &Transfer) {
        if let Some(place) = transfer.place {
            self.0.insert((transfer.object.0, kind), place);
        }
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

/// The facts as records: `at` is the difference to the record before, to `first` in the first one.
pub(crate) fn encode(facts: &[Fact], first: u64) -> Vec<u8> {
    let mut out = vec![0; facts.len() * RECORD];
    let mut words = [[0; TOGETHER]; WORDS];
    let (mut before, mut places) = (first, Places::default());
    for (part, together) in facts.chunks(TOGETHER).enumerate() {
        for (row, fact) in together.iter().enumerate() {
            let Row { kind, flags, object, count, value, other } = stored(&fact.kind, &mut places);
            let at = fact.at.0.wrapping_sub(before);
            before = fact.at.0;
            let [low, high] = (fact.cpu.0 as u16).to_le_bytes();
            let head = u32::from_le_bytes([kind, flags, low, high]);
            let (at_high, value_high) = ((at >> 32) as u32, (value >> 32) as u32);
            let record = [
                at as u32,
                at_high,
                head,
                id(fact.task),
                object,
                count,
                value as u32,
                value_high,
                other,
            ];
            for (column, word) in words.iter_mut().zip(record) {
                column[row] = word;
            }
        }
        for (word, column) in words.iter().enumerate() {
            scatter(&column[..together.len()], facts.len(), word * 4, part * TOGETHER, &mut out);
        }
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
        FactKind::Send(ref transfer) => moved(1, transfer, places),
        FactKind::Receive(ref transfer) => moved(2, transfer, places),
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
pub(crate) fn decode(bytes: &[u8], first: u64, out: &mut Vec<Fact>) -> Result<u64, String> {
    let rows = bytes.len() / RECORD;
    out.reserve(rows);
    let mut words = [[0; TOGETHER]; WORDS];
    let (mut before, mut skipped, mut places) = (first, 0, Places::default());
    for from in (0..rows).step_by(TOGETHER) {
        let count = TOGETHER.min(rows - from);
        for (word, to) in words.iter_mut().enumerate() {
            gather(bytes, rows, word * 4, from, &mut to[..count]);
        }
        for i in 0..count {
            let [at, at_high, head, task, object, count, value, value_high, other] =
                words.map(|word| word[i]);
            before = before.wrapping_add(u64::from(at) | u64::from(at_high) << 32);
            let [kind, flags, low, high] = head.to_le_bytes();
            let value = u64::from(value) | u64::from(value_high) << 32;
            let row = Row { kind, flags, object, count, value, other };
            let kind =
                read(row, &mut places).map_err(|what| format!("fact {}: {what}", from + i))?;
            let Some(kind) = kind else {
                skipped += 1;
                continue;
            };
            let task = (task != NOBODY).then_some(TaskId(task));
            if task.is_none() && !matches!(kind, FactKind::Lost { .. }) {
                return Err(format!("fact {}: it has no task", from + i));
            }
            let cpu = CpuId(u32::from(u16::from_le_bytes([low, high])));
            out.push(Fact { at: Ns(before), cpu, task, kind });
        }
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
        other => Err(format!("unknown kind of limit {other}")),
    };
    let (object, other) = (ObjectId(row.object), ObjectId(row.other));
    let maybe = |object: u32| (object != NOTHING).then_some(ObjectId(object));
    let task = (row.other != NOBODY).then_some(TaskId(row.other));
    Ok(Some(match row.kind {
        1 => FactKind::Send(transfer(&row, outcome()?, places)),
        2 => FactKind::Receive(transfer(&row, outcome()?, places)),
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
