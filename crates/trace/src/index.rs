//! The block index: where each block of a recording is and which times it holds, so that a part of
//! a long recording can be read without the rest.
//!
//! The writer puts it before the end mark. A recording without one (older, or cut off) gets the
//! same index from a walk over its block headers, which reads 44 bytes of each block.

use crate::format::{self, BLOCK_HEADER, BlockHeader, FILE_HEADER, kind};
use crate::import::Purpose;
use crate::{ReadLimits, Recording, Totals, TraceError};
use schedlab_model::{Ns, TaskId};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes of an entry.
pub(crate) const ENTRY: usize = 32;

/// The end mark is found from behind within this many bytes.
const END_WITHIN: u64 = 4096;

/// One block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    /// Where its header begins, in bytes from the start of the file.
    pub offset: u64,
    /// What it holds, as in its header (docs/recording-format.md).
    pub kind: u32,
    /// Event records in it.
    pub records: u32,
    /// Earliest event time.
    pub first: Ns,
    /// Latest event time.
    pub last: Ns,
}

/// The blocks of a recording, in the order of the file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Index {
    /// One entry for each block before the index.
    pub blocks: Vec<IndexEntry>,
    /// What the end mark says; `None` when the recording is cut off.
    pub totals: Option<Totals>,
    /// Whether the file carried the index (else it was made from the block headers).
    pub stored: bool,
}

pub(crate) fn encode(blocks: &[IndexEntry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(blocks.len() * ENTRY);
    for block in blocks {
        out.extend(block.offset.to_le_bytes());
        out.extend(block.first.0.to_le_bytes());
        out.extend(block.last.0.to_le_bytes());
        out.extend(block.records.to_le_bytes());
        out.extend(block.kind.to_le_bytes());
    }
    out
}

fn decode(bytes: &[u8]) -> Option<Vec<IndexEntry>> {
    if !bytes.len().is_multiple_of(ENTRY) {
        return None;
    }
    let entry = |row: &[u8]| {
        let long = |at: usize| Some(u64::from_le_bytes(row.get(at..at + 8)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_le_bytes(row.get(at..at + 4)?.try_into().ok()?));
        let (first, last) = (Ns(long(8)?), Ns(long(16)?));
        Some(IndexEntry { offset: long(0)?, first, last, records: word(24)?, kind: word(28)? })
    };
    bytes.chunks_exact(ENTRY).map(entry).collect()
}

impl Index {
    /// The index of the recording at `path`, as the file carries it, or else from its block
    /// headers.
    ///
    /// # Errors
    /// The file cannot be read, or it is no recording.
    pub fn open(path: impl AsRef<Path>) -> Result<Index, TraceError> {
        let (mut input, length) = opened(path.as_ref())?;
        match stored(&mut input, length) {
            Some(index) => Ok(index),
            None => Index::of_headers(path),
        }
    }

    /// The index of the recording at `path` from its block headers, whether or not the file carries
    /// one: what a reader of the blocks will see.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of_headers(path: impl AsRef<Path>) -> Result<Index, TraceError> {
        let path = path.as_ref();
        let (mut input, length) = opened(path)?;
        walk(&mut input, length)
            .map_err(|source| TraceError::File { path: path.to_owned(), source })
    }

    /// Whether no block of events claims times before the end of the one before it.
    pub fn is_in_order(&self) -> bool {
        let mut latest = Ns::ZERO;
        self.blocks.iter().filter(|block| block.kind == kind::EVENTS).all(|block| {
            let follows = block.first >= latest;
            latest = latest.max(block.last);
            follows
        })
    }

    /// Returns the events in all blocks.
    pub fn events(&self) -> u64 {
        let blocks = self.blocks.iter().filter(|block| block.kind == kind::EVENTS);
        blocks.map(|block| u64::from(block.records)).sum()
    }
}

impl Recording {
    /// Reads the events from `from` to `to` (both included) of the recording at `path`, with the
    /// whole task table; the blocks of other times are skipped without being decompressed. Times
    /// stay those of the whole recording. What the tasks did before `from` is not known to the
    /// result.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn open_between(path: impl AsRef<Path>, from: Ns, to: Ns) -> Result<Recording, TraceError> {
        let path = path.as_ref();
        let wanted = |block: &IndexEntry| block.last >= from && block.first <= to;
        let mut recording = Recording::open_blocks(path, &Index::open(path)?, wanted)?;
        recording.events.retain(|event| (from..=to).contains(&event.at));
        recording.facts.list.retain(|fact| (from..=to).contains(&fact.at));
        Ok(recording)
    }

    /// Reads the recording or trace at `path` up to `end`, with the whole task table of a
    /// recording: blocks of later times are skipped without being decompressed, and a trace of
    /// another tool is read no further than where it can have no earlier events. (A recording that
    /// comes through a pipe is read to its end, block by block.) The length stays that of the whole
    /// where the file tells it.
    ///
    /// # Errors
    /// As [`Recording::open`]; damage behind `end` is not seen.
    pub fn open_up_to(path: impl AsRef<Path>, end: Ns) -> Result<Recording, TraceError> {
        Recording::open_up_to_for(path, end, Purpose::Any)
    }

    /// As [`Recording::open_up_to`], for a purpose; see [`Recording::open_for`].
    ///
    /// # Errors
    /// As for both.
    pub fn open_up_to_for(
        path: impl AsRef<Path>,
        end: Ns,
        purpose: Purpose,
    ) -> Result<Recording, TraceError> {
        let path = path.as_ref();
        let is_file = std::fs::metadata(path).is_ok_and(|data| data.is_file());
        let mut recording = match is_file && !crate::import::is_foreign(path) {
            true => {
                Recording::open_blocks(path, &Index::of_headers(path)?, |block| block.first <= end)
            }
            false => Recording::open_limited(path, Some(end), purpose),
        }?;
        recording.events.truncate(recording.events.partition_point(|event| event.at <= end));
        recording.facts.list.truncate(recording.facts.list.partition_point(|fact| fact.at <= end));
        Ok(recording)
    }

    /// Leaves out the tasks that no event and no fact names, and returns their names; the others
    /// have new numbers, in their order. A part of a recording has the tasks of the whole, of which
    /// most may do nothing in it.
    pub fn leave_out_idle_tasks(&mut self) -> Vec<String> {
        let mut named = vec![false; self.header.tasks.len()];
        for event in &self.events {
            format::tasks_of(&event.kind)
                .into_iter()
                .flatten()
                .for_each(|task| named[task.index()] = true);
        }
        for fact in &mut self.facts.list {
            fact.each_task(&mut |task| named[task.index()] = true);
        }
        let mut next = 0;
        let place = |is_named: &bool| {
            next += u32::from(*is_named);
            TaskId(next.saturating_sub(1))
        };
        let places: Vec<TaskId> = named.iter().map(place).collect();
        let all = std::mem::take(&mut self.header.tasks);
        let (there, idle): (Vec<_>, Vec<_>) =
            all.into_iter().zip(&named).partition(|(_, named)| **named);
        self.header.tasks = there.into_iter().map(|(task, _)| task).collect();
        for event in &mut self.events {
            format::each_task(&mut event.kind, &mut |task| *task = places[task.index()]);
        }
        for fact in &mut self.facts.list {
            fact.each_task(&mut |task| *task = places[task.index()]);
        }
        idle.into_iter().map(|(task, _)| task.comm).collect()
    }

    /// Reads the recording at `path` without its events. With the index [of the
    /// headers](Index::of_headers) it knows every task that a reader of the whole will meet; one
    /// that the file carries may leave tables out.
    ///
    /// # Errors
    /// As [`Recording::open`]; damage in the events is not seen.
    pub fn about(path: impl AsRef<Path>, index: &Index) -> Result<Recording, TraceError> {
        Recording::open_blocks(path.as_ref(), index, |_| false)
    }

    /// Reads those blocks of events and facts that are wanted, and all others.
    fn open_blocks(
        path: &Path,
        index: &Index,
        wanted: impl Fn(&IndexEntry) -> bool,
    ) -> Result<Recording, TraceError> {
        let (mut input, length) = opened(path)?;
        let ends =
            index.blocks.iter().skip(1).map(|block| block.offset).chain([index_end(index, length)]);
        let mut parts: Vec<(u64, u64)> = vec![(0, FILE_HEADER as u64)];
        for (block, end) in index.blocks.iter().zip(ends) {
            if (!kind::is_timed(block.kind) || wanted(block)) && end > block.offset {
                parts.push((block.offset, end));
            }
        }
        if index.totals.is_some() {
            parts.push((end_mark(&mut input, length).map_or(length, |(offset, _)| offset), length));
        }
        Recording::read_limited(Parts { input, parts, next: 0, left: 0 }, ReadLimits::default())
    }
}

/// The file and its length.
fn opened(path: &Path) -> Result<(File, u64), TraceError> {
    let file = |source| TraceError::File { path: path.to_owned(), source };
    let input = schedlab_files::open(path).map_err(file)?;
    let length = input.metadata().map_err(file)?.len();
    Ok((input, length))
}

/// Where the last block of the index ends.
fn index_end(index: &Index, length: u64) -> u64 {
    index.totals.as_ref().and_then(|totals| totals.index).unwrap_or(length)
}

/// Reads some parts of a file as if the others were not there.
struct Parts {
    input: File,
    parts: Vec<(u64, u64)>,
    next: usize,
    left: u64,
}

impl Read for Parts {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 {
            let Some(&(from, to)) = self.parts.get(self.next) else { return Ok(0) };
            self.input.seek(SeekFrom::Start(from))?;
            (self.left, self.next) = (to - from, self.next + 1);
        }
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = self.input.read(&mut buffer[..most])?;
        self.left = if got == 0 { 0 } else { self.left - got as u64 };
        Ok(got)
    }
}

/// The index that the file carries; `None` when there is none or anything about it is odd.
fn stored(input: &mut File, length: u64) -> Option<Index> {
    let (_, totals) = end_mark(input, length)?;
    let at = totals.index?;
    let (header, raw) = block(input, at)?;
    let blocks = decode(&raw).filter(|_| header.kind == kind::INDEX)?;
    let in_order = blocks.windows(2).all(|pair| pair[0].offset < pair[1].offset);
    let inside = blocks.iter().all(|block| (FILE_HEADER as u64..at).contains(&block.offset));
    (in_order && inside).then_some(Index { blocks, totals: Some(totals), stored: true })
}

/// The end mark, which ends where the file ends, and where it begins.
fn end_mark(input: &mut File, length: u64) -> Option<(u64, Totals)> {
    let from = length.saturating_sub(END_WITHIN);
    let mut tail = Vec::new();
    input.seek(SeekFrom::Start(from)).ok()?;
    input.take(END_WITHIN).read_to_end(&mut tail).ok()?;
    for at in (0..tail.len().checked_sub(BLOCK_HEADER)? + 1).rev() {
        let header = BlockHeader::decode(tail[at..at + BLOCK_HEADER].try_into().ok()?);
        let Ok(header) = header else { continue };
        if header.kind == kind::END && at + BLOCK_HEADER + header.stored as usize == tail.len() {
            let (_, raw) = block(input, from + at as u64)?;
            return Some((from + at as u64, serde_json::from_slice(&raw).ok()?));
        }
    }
    None
}

/// Reads one whole block.
fn block(input: &mut File, offset: u64) -> Option<(BlockHeader, Vec<u8>)> {
    let mut bytes = [0; BLOCK_HEADER];
    input.seek(SeekFrom::Start(offset)).ok()?;
    input.read_exact(&mut bytes).ok()?;
    let header = BlockHeader::decode(&bytes).ok()?;
    let most = ReadLimits::default().block_bytes;
    if header.stored > most || header.raw > most {
        return None;
    }
    let mut stored = Vec::new();
    input.take(u64::from(header.stored)).read_to_end(&mut stored).ok()?;
    if stored.len() != header.stored as usize || crc32fast::hash(&stored) != header.crc {
        return None;
    }
    Some((header, zstd::bulk::decompress(&stored, header.raw as usize).ok()?))
}

/// From block to block as far as whole ones go. Whatever is wrong with the file is said by the
/// reader.
fn walk(input: &mut File, length: u64) -> io::Result<Index> {
    let mut index = Index::default();
    let mut offset = FILE_HEADER as u64;
    while offset + BLOCK_HEADER as u64 <= length {
        let mut bytes = [0; BLOCK_HEADER];
        input.seek(SeekFrom::Start(offset))?;
        input.read_exact(&mut bytes)?;
        let Ok(header) = BlockHeader::decode(&bytes) else { break };
        let end = offset + BLOCK_HEADER as u64 + u64::from(header.stored);
        if end > length {
            break;
        }
        match header.kind {
            kind::END => {
                let totals = block(input, offset)
                    .and_then(|(_, raw)| serde_json::from_slice::<Totals>(&raw).ok());
                index.totals = totals.map(|totals| Totals { index: Some(offset), ..totals });
                break;
            }
            kind::INDEX => {}
            kind => {
                let (first, last) = (Ns(header.first), Ns(header.last));
                index.blocks.push(IndexEntry {
                    offset,
                    kind,
                    records: header.records,
                    first,
                    last,
                });
            }
        }
        offset = end;
    }
    Ok(index)
}
