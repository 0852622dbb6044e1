//! The layout of a recording file: constants, block headers, and the 24-byte records.
//!
//! `docs/recording-format.md` is the description for people who write a reader of their own.

use crate::reader::Ids;
use schedlab_model::{CpuId, EventKind, GroupId, Ns, PrevState, SchedEvent, TaskId, Waker};

/// First bytes of every recording. The line ends and the byte above 127 show a transfer in text
/// mode.
pub(crate) const MAGIC: [u8; 8] = *b"\x89SLT\r\n\x1a\n";
/// A reader refuses a higher major version.
pub const FORMAT_MAJOR: u16 = 1;
/// A reader accepts a higher minor version: unknown fields, records and optional blocks are
/// skipped.
pub const FORMAT_MINOR: u16 = 9;
/// Magic, major, minor, four bytes of zero.
pub(crate) const FILE_HEADER: usize = 16;
/// Bytes of a block's header.
pub(crate) const BLOCK_HEADER: usize = 44;
/// Bytes of an event record.
pub(crate) const RECORD: usize = 24;
/// "SLB1" at the start of each block.
const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"SLB1");
/// Blocks with this bit may be skipped by a reader that does not know their kind.
pub(crate) const OPTIONAL: u32 = 0x8000_0000;
/// No task (idle), no parent, no waker.
pub(crate) const NOBODY: u32 = u32::MAX;

/// What a block holds.
pub(crate) mod kind {
    /// The [`Header`](crate::Header) as JSON; always the first block.
    pub(crate) const HEADER: u32 = 1;
    /// Event records.
    pub(crate) const EVENTS: u32 = 2;
    /// Tasks and groups that were added or changed since, as JSON.
    pub(crate) const TABLES: u32 = 3;
    /// The [`Totals`](crate::Totals) as JSON; always the last block.
    pub(crate) const END: u32 = 4;
    /// Where the blocks before it stand, and which times they hold. A reader may do without.
    pub(crate) const INDEX: u32 = super::OPTIONAL | 5;
    /// What tasks exchanged: records of facts in the order of time, as versions 1.4 and 1.5 wrote
    /// them. A reader may do without.
    pub(crate) const FACTS_BY_TIME: u32 = super::OPTIONAL | 6;
    /// The same CPU by CPU.
    pub(crate) const FACTS: u32 = super::OPTIONAL | 7;

    /// Returns whether the times of its block's header are those of what is in it.
    pub(crate) fn is_timed(kind: u32) -> bool {
        matches!(kind, EVENTS | FACTS_BY_TIME | FACTS)
    }
}

/// The header of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BlockHeader {
    pub(crate) kind: u32,
    /// Bytes that follow the header.
    pub(crate) stored: u32,
    /// Bytes after decompression.
    pub(crate) raw: u32,
    /// Event records (0 in other blocks).
    pub(crate) records: u32,
    /// Earliest event time.
    pub(crate) first: u64,
    /// Latest event time.
    pub(crate) last: u64,
    /// CRC-32 of the stored bytes.
    pub(crate) crc: u32,
}

impl BlockHeader {
    pub(crate) fn encode(&self) -> [u8; BLOCK_HEADER] {
        let mut out = [0; BLOCK_HEADER];
        let words = [BLOCK_MAGIC, self.kind, self.stored, self.raw, self.records, self.crc];
        for (i, word) in words.iter().enumerate() {
            out[i * 4..i * 4 + 4].copy_from_slice(&word.to_le_bytes());
        }
        out[24..32].copy_from_slice(&self.first.to_le_bytes());
        out[32..40].copy_from_slice(&self.last.to_le_bytes());
        let check = crc32fast::hash(&out[..40]);
        out[40..].copy_from_slice(&check.to_le_bytes());
        out
    }

    /// The header, or what is wrong with it.
    pub(crate) fn decode(bytes: &[u8; BLOCK_HEADER]) -> Result<BlockHeader, &'static str> {
        let word =
            |i: usize| u32::from_le_bytes(bytes[i * 4..i * 4 + 4].try_into().expect("4 bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if word(0) != BLOCK_MAGIC {
            return Err("it does not begin with the mark of a block");
        }
        if word(10) != crc32fast::hash(&bytes[..40]) {
            return Err("the checksum of its header is wrong");
        }
        Ok(BlockHeader {
            kind: word(1),
            stored: word(2),
            raw: word(3),
            records: word(4),
            crc: word(5),
            first: long(24),
            last: long(32),
        })
    }
}

/// Events as records: `at` is the difference to the record before (to the block's `first` for the
/// first one), and the bytes stand column by column, which halves the compressed size.
pub(crate) fn encode_events(events: &[SchedEvent], first: u64) -> Vec<u8> {
    let mut out = vec![0; events.len() * RECORD];
    let mut words = [[0; TOGETHER]; RECORD / 4];
    let mut before = first;
    for (part, together) in events.chunks(TOGETHER).enumerate() {
        for (row, event) in together.iter().enumerate() {
            let record = encode_event(event, before);
            before = event.at.0;
            for (column, word) in words.iter_mut().zip(record) {
                column[row] = word;
            }
        }
        for (word, column) in words.iter().enumerate() {
            scatter(&column[..together.len()], events.len(), word * 4, part * TOGETHER, &mut out);
        }
    }
    out
}

/// Writes the bytes of words into four columns from `column` on, from row `from` on: the reverse of
/// [`gather`]. Row by row every byte would be a block's length from the one before it, all in one
/// set of the nearest cache.
pub(crate) fn scatter(words: &[u32], rows: usize, column: usize, from: usize, out: &mut [u8]) {
    for byte in 0..4 {
        let to = &mut out[(column + byte) * rows + from..][..words.len()];
        for (to, word) in to.iter_mut().zip(words) {
            *to = (word >> (8 * byte)) as u8;
        }
    }
}

/// Records that are encoded or decoded together: their words fit into the nearest cache.
pub(crate) const TOGETHER: usize = 512;

/// What the events of a block are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Decoded {
    /// Records of an unknown kind: left out.
    pub(crate) skipped: u64,
    /// Earliest and latest time; `None` when there is no event.
    pub(crate) times: Option<(u64, u64)>,
    /// None is earlier than the one before it, and no two that follow one another are equal.
    pub(crate) in_order: bool,
    /// How many CPUs, tasks and groups there must be for the ids in them.
    pub(crate) needs: Ids,
}

/// Appends the events of a block to `out`.
pub(crate) fn decode_events(
    bytes: &[u8],
    first: u64,
    out: &mut Vec<SchedEvent>,
) -> Result<Decoded, String> {
    let rows = bytes.len() / RECORD;
    out.reserve(rows);
    let mut words = [[0; TOGETHER]; RECORD / 4];
    let (mut before, mut skipped) = (first, 0);
    let (mut earliest, mut latest) = (u64::MAX, 0);
    let (mut in_order, mut needs, begin) = (true, Needs::default(), out.len());
    for from in (0..rows).step_by(TOGETHER) {
        let count = TOGETHER.min(rows - from);
        for (word, to) in words.iter_mut().enumerate() {
            gather(bytes, rows, word * 4, from, &mut to[..count]);
        }
        let [low, high, head, a, b, c] = &words;
        for i in 0..count {
            let at = before.wrapping_add(u64::from(low[i]) | u64::from(high[i]) << 32);
            before = at;
            let event = decode_event(head[i], [a[i], b[i], c[i]], at, &mut needs);
            let Some(event) = event.map_err(|what| format!("record {}: {what}", from + i))? else {
                skipped += 1;
                continue;
            };
            in_order &= at > latest || at == latest && out[begin..].last() != Some(&event);
            (earliest, latest) = (earliest.min(at), latest.max(at));
            out.push(event);
        }
    }
    let times = (earliest <= latest).then_some((earliest, latest));
    Ok(Decoded { skipped, times, in_order, needs: needs.ids() })
}

/// The 32-bit words whose bytes stand in four columns from `column` on, from row `from` on. Word by
/// word the compiler can use wide registers; gathering whole records took three times as long.
pub(crate) fn gather(bytes: &[u8], rows: usize, column: usize, from: usize, to: &mut [u32]) {
    let of = |i: usize| &bytes[(column + i) * rows + from..][..to.len()];
    let (a, b, c, d) = (of(0), of(1), of(2), of(3));
    for (i, word) in to.iter_mut().enumerate() {
        *word = u32::from_le_bytes([a[i], b[i], c[i], d[i]]);
    }
}

/// The words of a record: its time, its kind, detail and CPU, and three more.
#[inline]
fn encode_event(event: &SchedEvent, before: u64) -> [u32; RECORD / 4] {
    let (kind, detail, [a, b, c]) = parts(&event.kind);
    let at = event.at.0.wrapping_sub(before);
    let [low, high] = (event.cpu.0 as u16).to_le_bytes();
    [at as u32, (at >> 32) as u32, u32::from_le_bytes([kind, detail, low, high]), a, b, c]
}

fn id(task: Option<TaskId>) -> u32 {
    task.map_or(NOBODY, |t| t.0)
}

/// Kind, detail and three words of an event.
fn parts(kind: &EventKind) -> (u8, u8, [u32; 3]) {
    let split = |n: u64| [n as u32, (n >> 32) as u32, 0];
    match *kind {
        EventKind::Switch { prev, prev_state, next } => {
            (1, state_code(prev_state), [id(prev), id(next), 0])
        }
        EventKind::Wake { task, waker } => {
            let (code, by) = match waker {
                Waker::Unknown => (0, None),
                Waker::Task(by) => (1, Some(by)),
                Waker::InlineSoftirq(by) => (2, Some(by)),
                Waker::SoftIrq => (3, None),
                Waker::HardIrq => (4, None),
            };
            (2, code, [task.0, id(by), 0])
        }
        EventKind::New { task, parent } => (3, 0, [task.0, id(parent), 0]),
        EventKind::Exec { task } => (4, 0, [task.0, 0, 0]),
        EventKind::Exit { task } => (5, 0, [task.0, 0, 0]),
        EventKind::Migrate { task, from, to } => (6, 0, [task.0, from.0, to.0]),
        EventKind::Throttle { task } => (7, 0, [task.0, 0, 0]),
        EventKind::Unthrottle { task } => (8, 0, [task.0, 0, 0]),
        EventKind::Steal { ns } => (9, 0, split(ns.0)),
        EventKind::Regroup { task, group } => (10, 0, [task.0, group.0, 0]),
        EventKind::Lost { count } => (11, 0, split(count)),
        EventKind::SyscallEnter { task, number } => (12, 0, [task.0, number, 0]),
        EventKind::SyscallExit { task } => (13, 0, [task.0, 0, 0]),
        // `EventKind` is non-exhaustive for other crates' sake; a new kind needs a number here and
        // in the document. Writing it as "unknown" would lose it silently.
        ref other => unreachable!("no record kind for {other:?}"),
    }
}

const STATES: [PrevState; 8] = [
    PrevState::Unknown,
    PrevState::Runnable,
    PrevState::RunnableInKernel,
    PrevState::Sleeping,
    PrevState::DiskSleep,
    PrevState::Stopped,
    PrevState::Dead,
    PrevState::Blocked,
];

fn state_code(state: PrevState) -> u8 {
    STATES.iter().position(|&s| s == state).unwrap_or(0) as u8
}

/// How many CPUs, tasks and groups there must be for the ids that were seen so far.
#[derive(Clone, Copy, Default)]
struct Needs {
    cpus: u64,
    /// The number of no task needs none: it wraps.
    tasks: u32,
    groups: u64,
}

impl Needs {
    fn cpu(&mut self, cpu: u32) -> CpuId {
        self.cpus = self.cpus.max(u64::from(cpu) + 1);
        CpuId(cpu)
    }

    fn task(&mut self, task: u32) -> Option<TaskId> {
        self.tasks = self.tasks.max(task.wrapping_add(1));
        (task != NOBODY).then_some(TaskId(task))
    }

    fn some(&mut self, task: u32) -> Result<TaskId, String> {
        self.task(task).ok_or_else(|| "an event without its task".to_owned())
    }

    fn group(&mut self, group: u32) -> GroupId {
        self.groups = self.groups.max(u64::from(group) + 1);
        GroupId(group)
    }

    fn ids(self) -> Ids {
        Ids { cpus: self.cpus as usize, tasks: self.tasks as usize, groups: self.groups as usize }
    }
}

/// The event, `None` for a kind that this version does not know. `head` is kind, detail and CPU.
#[inline(always)]
fn decode_event(
    head: u32,
    words: [u32; 3],
    at: u64,
    needs: &mut Needs,
) -> Result<Option<SchedEvent>, String> {
    let [kind, detail, low, high] = head.to_le_bytes();
    let cpu = needs.cpu(u32::from(u16::from_le_bytes([low, high])));
    let kind = match kind {
        // The two that make up nearly all of a recording.
        1 => {
            let state = STATES.get(detail as usize);
            let prev_state = *state.ok_or_else(|| format!("unknown task state {detail}"))?;
            EventKind::Switch { prev: needs.task(words[0]), prev_state, next: needs.task(words[1]) }
        }
        2 => {
            let task = needs.some(words[0])?;
            let waker = match detail {
                0 => Waker::Unknown,
                1 => Waker::Task(needs.some(words[1])?),
                2 => Waker::InlineSoftirq(needs.some(words[1])?),
                3 => Waker::SoftIrq,
                4 => Waker::HardIrq,
                _ => return Err(format!("unknown kind of waker {detail}")),
            };
            EventKind::Wake { task, waker }
        }
        rare => match decode_rare(rare, words, needs)? {
            Some(kind) => kind,
            None => return Ok(None),
        },
    };
    Ok(Some(SchedEvent { at: Ns(at), cpu, kind }))
}

fn decode_rare(kind: u8, words: [u32; 3], needs: &mut Needs) -> Result<Option<EventKind>, String> {
    let joined = u64::from(words[0]) | u64::from(words[1]) << 32;
    Ok(Some(match kind {
        3 => EventKind::New { task: needs.some(words[0])?, parent: needs.task(words[1]) },
        4 => EventKind::Exec { task: needs.some(words[0])? },
        5 => EventKind::Exit { task: needs.some(words[0])? },
        6 => EventKind::Migrate {
            task: needs.some(words[0])?,
            from: needs.cpu(words[1]),
            to: needs.cpu(words[2]),
        },
        7 => EventKind::Throttle { task: needs.some(words[0])? },
        8 => EventKind::Unthrottle { task: needs.some(words[0])? },
        9 => EventKind::Steal { ns: Ns(joined) },
        10 => EventKind::Regroup { task: needs.some(words[0])?, group: needs.group(words[1]) },
        11 => EventKind::Lost { count: joined },
        12 => EventKind::SyscallEnter { task: needs.some(words[0])?, number: words[1] },
        13 => EventKind::SyscallExit { task: needs.some(words[0])? },
        _ => return Ok(None),
    }))
}

/// Every task that an event names.
#[inline]
pub(crate) fn tasks_of(kind: &EventKind) -> [Option<TaskId>; 2] {
    match *kind {
        EventKind::Switch { prev, next, .. } => [prev, next],
        EventKind::Wake { task, waker } => [Some(task), waker.task()],
        EventKind::New { task, parent } => [Some(task), parent],
        EventKind::Exec { task }
        | EventKind::Exit { task }
        | EventKind::Migrate { task, .. }
        | EventKind::Throttle { task }
        | EventKind::Unthrottle { task }
        | EventKind::Regroup { task, .. }
        | EventKind::SyscallEnter { task, .. }
        | EventKind::SyscallExit { task } => [Some(task), None],
        _ => [None, None],
    }
}

/// Calls `change` with every task that an event names.
#[inline]
pub(crate) fn each_task(kind: &mut EventKind, change: &mut impl FnMut(&mut TaskId)) {
    match kind {
        EventKind::Switch { prev, next, .. } => prev.iter_mut().chain(next).for_each(change),
        EventKind::Wake { task, waker } => {
            change(task);
            if let Waker::Task(by) | Waker::InlineSoftirq(by) = waker {
                change(by);
            }
        }
        EventKind::New { task, parent } => {
            change(task);
            parent.iter_mut().for_each(change);
        }
        EventKind::Exec { task }
        | EventKind::Exit { task }
        | EventKind::Migrate { task, .. }
        | EventKind::Throttle { task }
        | EventKind::Unthrottle { task }
        | EventKind::Regroup { task, .. }
        | EventKind::SyscallEnter { task, .. }
        | EventKind::SyscallExit { task } => change(task),
        _ => {}
    }
}
