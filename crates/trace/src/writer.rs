//! Writes recordings.

use crate::facts;
use crate::format::{self, BlockHeader, kind};
use crate::index::{self, IndexEntry};
use crate::{CpuTime, GroupInfo, Header, Packed, Recording, TaskInfo, Totals, TraceError};
use schedlab_files::NewFile;
use schedlab_model::{
    EventKind, EventSink, Fact, GroupId, Ns, ObjectId, ObjectInfo, SchedEvent, SchedExt, TaskId,
};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

/// Events of a full block: 384 KiB before compression, so that little is lost when a recording is
/// cut off.
const BLOCK_EVENTS: usize = 16 * 1024;

/// Tasks, groups and objects that were added or changed after the header was written.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Tables {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tasks: Vec<(TaskId, TaskInfo)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<(GroupId, GroupInfo)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) objects: Vec<(ObjectId, ObjectInfo)>,
}

/// Writes a recording: the header, then events as they come, then the end mark. The same calls give
/// the same bytes.
///
/// As an [`EventSink`] it cannot report errors at once; the first one is kept and returned by
/// [`finish`](Writer::finish).
pub struct Writer<W: Write> {
    out: W,
    level: i32,
    pending: Vec<SchedEvent>,
    pending_facts: Vec<Fact>,
    tables: Tables,
    known_tasks: usize,
    known_groups: usize,
    known_objects: usize,
    totals: Totals,
    error: Option<TraceError>,
    /// Bytes written so far.
    offset: u64,
    index: Vec<IndexEntry>,
    /// The file may not become longer than this.
    limit: u64,
    full: bool,
}

impl<W: Write> Writer<W> {
    /// Writes the header. Compression level 3 costs the recorder about 30 ns an event.
    pub fn new(out: W, header: &Header) -> Result<Writer<W>, TraceError> {
        Writer::with_level(out, header, 3)
    }

    /// As [`Writer::new`] with a zstd level from 1 (fast) to 19 (small).
    pub fn with_level(out: W, header: &Header, level: i32) -> Result<Writer<W>, TraceError> {
        let mut writer = Writer {
            out,
            level: level.clamp(1, 19),
            pending: Vec::with_capacity(BLOCK_EVENTS),
            pending_facts: Vec::new(),
            tables: Tables::default(),
            known_tasks: header.tasks.len(),
            known_groups: header.groups.len(),
            known_objects: 0,
            totals: Totals::default(),
            error: None,
            offset: 0,
            index: Vec::new(),
            limit: u64::MAX,
            full: false,
        };
        let mut start = [0; format::FILE_HEADER];
        start[..8].copy_from_slice(&format::MAGIC);
        start[8..10].copy_from_slice(&format::FORMAT_MAJOR.to_le_bytes());
        start[10..12].copy_from_slice(&format::FORMAT_MINOR.to_le_bytes());
        writer.bytes(&start)?;
        let json =
            serde_json::to_vec(header).map_err(|e| TraceError::Header { what: e.to_string() })?;
        writer.block(BlockHeader { kind: kind::HEADER, ..BlockHeader::default() }, &json)?;
        Ok(writer)
    }

    /// Keeps the file at or below `bytes`, its end mark and index included: the block that would
    /// not fit and everything after it are left out, and [`Writer::is_full`] says so.
    pub fn limit(&mut self, bytes: u64) {
        self.limit = bytes;
    }

    /// Notes in the end mark where the machine's CPU time went.
    pub fn set_cpu_time(&mut self, cpu_time: CpuTime) {
        self.totals.cpu_time = Some(cpu_time);
    }

    /// Notes in the end mark what the kernel's sched_ext class is at the end.
    pub fn set_sched_ext(&mut self, at_end: Option<SchedExt>) {
        self.totals.sched_ext = at_end;
    }

    /// Returns what is written to.
    pub fn out_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Whether the limit was reached: the recording ends with the last block that fits.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.offset
    }

    /// Adds a task that the header did not know; the id for its events.
    pub fn add_task(&mut self, info: TaskInfo) -> TaskId {
        let id = TaskId::from(self.known_tasks);
        self.known_tasks += 1;
        self.tables.tasks.push((id, info));
        id
    }

    /// Replaces what is known about a task (a new name, policy or group).
    pub fn update_task(&mut self, id: TaskId, info: TaskInfo) {
        self.tables.tasks.push((id, info));
    }

    /// Adds a control group that the header did not know.
    pub fn add_group(&mut self, info: GroupInfo) -> GroupId {
        let id = GroupId::from(self.known_groups);
        self.known_groups += 1;
        self.tables.groups.push((id, info));
        id
    }

    /// Adds an object that facts will name.
    pub fn add_object(&mut self, info: ObjectInfo) -> ObjectId {
        let id = ObjectId::from(self.known_objects);
        self.known_objects += 1;
        self.tables.objects.push((id, info));
        id
    }

    /// Replaces what is known about an object.
    pub fn update_object(&mut self, id: ObjectId, info: ObjectInfo) {
        self.tables.objects.push((id, info));
    }

    /// Adds a fact. Its objects were added before; a task that was never added gets an entry
    /// without a name.
    pub fn fact(&mut self, fact: &Fact) {
        if self.full {
            return;
        }
        let mut named = *fact;
        named.each_task(&mut |task| self.know(*task));
        self.pending_facts.push(*fact);
        if self.pending_facts.len() == BLOCK_EVENTS
            && let Err(error) = self.write_pending()
        {
            self.error.get_or_insert(error);
        }
    }

    /// Gives a task that was never added an entry without a name.
    fn know(&mut self, task: TaskId) {
        while task.index() >= self.known_tasks {
            self.add_task(TaskInfo::unknown(0, 0, "?"));
        }
    }

    /// Writes what is still pending as blocks of their own, so that a later crash cannot lose it.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.write_pending()?;
        self.out.flush().map_err(|source| TraceError::Io { doing: "write", source })
    }

    /// Writes the rest and the end mark. `duration` is the length of the recording (the end of the
    /// last event if it is shorter than that).
    pub fn finish(mut self, duration: Ns) -> Result<W, TraceError> {
        self.flush()?;
        if !self.full {
            self.totals.duration = self.totals.duration.max(duration);
        }
        self.totals.index = Some(self.offset);
        let index = index::encode(&self.index);
        self.block(BlockHeader { kind: kind::INDEX, ..BlockHeader::default() }, &index)?;
        let json = serde_json::to_vec(&self.totals)
            .map_err(|e| TraceError::Header { what: e.to_string() })?;
        self.block(BlockHeader { kind: kind::END, ..BlockHeader::default() }, &json)?;
        self.out.flush().map_err(|source| TraceError::Io { doing: "write", source })?;
        Ok(self.out)
    }

    fn write_pending(&mut self) -> Result<(), TraceError> {
        if self.full {
            return Ok(());
        }
        let Tables { tasks, groups, objects } = &self.tables;
        if !tasks.is_empty() || !groups.is_empty() || !objects.is_empty() {
            let tables = std::mem::take(&mut self.tables);
            let json = serde_json::to_vec(&tables)
                .map_err(|e| TraceError::Header { what: e.to_string() })?;
            self.block(BlockHeader { kind: kind::TABLES, ..BlockHeader::default() }, &json)?;
        }
        self.write_events()?;
        self.write_facts()
    }

    fn write_events(&mut self) -> Result<(), TraceError> {
        if self.pending.is_empty() || self.full {
            return Ok(());
        }
        let times = self.pending.iter().map(|e| e.at.0);
        let (first, last) =
            times.fold((u64::MAX, 0), |(low, high), at| (low.min(at), high.max(at)));
        let raw = format::encode_events(&self.pending, first);
        let records = self.pending.len() as u32;
        let header =
            BlockHeader { kind: kind::EVENTS, records, first, last, ..BlockHeader::default() };
        self.block(header, &raw)?;
        if !self.full {
            self.count_pending(Ns(last));
        }
        self.pending.clear();
        Ok(())
    }

    fn write_facts(&mut self) -> Result<(), TraceError> {
        if self.pending_facts.is_empty() || self.full {
            return Ok(());
        }
        let times = self.pending_facts.iter().map(|fact| fact.at.0);
        let (first, last) =
            times.fold((u64::MAX, 0), |(low, high), at| (low.min(at), high.max(at)));
        let raw = facts::encode(&self.pending_facts, first);
        // Readers before 1.4 add up the records of all blocks: theirs are events.
        let header = BlockHeader { kind: kind::FACTS, first, last, ..BlockHeader::default() };
        self.block(header, &raw)?;
        if !self.full {
            self.totals.facts += self.pending_facts.len() as u64;
            let lost = self.pending_facts.iter().map(facts::lost).fold(0, u64::saturating_add);
            self.totals.facts_lost = self.totals.facts_lost.saturating_add(lost);
            self.totals.duration = self.totals.duration.max(Ns(last));
        }
        self.pending_facts.clear();
        Ok(())
    }

    /// The totals are those of the events that are in the file.
    fn count_pending(&mut self, last: Ns) {
        self.totals.events += self.pending.len() as u64;
        self.totals.duration = self.totals.duration.max(last);
        for event in &self.pending {
            if let EventKind::Lost { count } = event.kind {
                self.totals.lost = self.totals.lost.saturating_add(count);
            }
        }
    }

    /// Writes events that were packed elsewhere as a block of their own. The header names every
    /// task that they name.
    pub fn append(&mut self, packed: &Packed) -> Result<(), TraceError> {
        self.write_pending()?;
        if self.full {
            return Ok(());
        }
        let (stored, raw) = packed.stored();
        let (first, last) = (packed.first().0, packed.last().0);
        let records = packed.events() as u32;
        let header = BlockHeader {
            kind: kind::EVENTS,
            raw: raw as u32,
            records,
            first,
            last,
            ..BlockHeader::default()
        };
        self.stored_block(header, stored)?;
        if !self.full {
            self.totals.events += u64::from(records);
            self.totals.duration = self.totals.duration.max(packed.last());
            self.totals.lost = self.totals.lost.saturating_add(packed.lost());
        }
        Ok(())
    }

    fn block(&mut self, header: BlockHeader, raw: &[u8]) -> Result<(), TraceError> {
        let stored = zstd::bulk::compress(raw, self.level)
            .map_err(|source| TraceError::Io { doing: "write", source })?;
        self.stored_block(BlockHeader { raw: raw.len() as u32, ..header }, &stored)
    }

    fn stored_block(&mut self, header: BlockHeader, stored: &[u8]) -> Result<(), TraceError> {
        let header =
            BlockHeader { stored: stored.len() as u32, crc: crc32fast::hash(stored), ..header };
        let data = kind::is_timed(header.kind) || header.kind == kind::TABLES;
        if data && self.offset + stored.len() as u64 + self.room_at_the_end() > self.limit {
            self.full = true;
            return Ok(());
        }
        let BlockHeader { kind, records, first, last, .. } = header;
        self.index.push(IndexEntry {
            offset: self.offset,
            kind,
            records,
            first: Ns(first),
            last: Ns(last),
        });
        self.bytes(&header.encode())?;
        self.bytes(stored)
    }

    /// An upper bound of what index and end mark will take, with this block in the index.
    fn room_at_the_end(&self) -> u64 {
        const END: u64 = 1024;
        (self.index.len() as u64 + 1) * index::ENTRY as u64 + 2 * format::BLOCK_HEADER as u64 + END
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        self.offset += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|source| TraceError::Io { doing: "write", source })
    }
}

impl<W: Write> EventSink for Writer<W> {
    /// Events that name a task which was never added get a task without a name: an event is never
    /// dropped.
    fn event(&mut self, event: &SchedEvent) {
        if self.full {
            return;
        }
        format::tasks_of(&event.kind).into_iter().flatten().for_each(|task| self.know(task));
        self.pending.push(*event);
        if self.pending.len() == BLOCK_EVENTS
            && let Err(error) = self.write_pending()
        {
            self.error.get_or_insert(error);
        }
    }
}

/// Writes a whole recording to `path`. An existing file is replaced only when everything is
/// written.
pub fn save(recording: &Recording, path: &Path) -> Result<(), TraceError> {
    let file_error = |source| TraceError::File { path: path.to_owned(), source };
    let out = std::io::BufWriter::new(NewFile::create(path).map_err(file_error)?);
    let header = Header { repairs: recording.repairs.clone(), ..recording.header.clone() };
    let mut writer = Writer::with_level(out, &header, 19)?;
    for object in &recording.facts.objects {
        writer.add_object(object.clone());
    }
    recording.events.iter().for_each(|event| writer.event(event));
    recording.facts.list.iter().for_each(|fact| writer.fact(fact));
    let out = writer.finish(recording.duration)?;
    out.into_inner().map_err(|error| file_error(error.into_error()))?.commit().map_err(file_error)
}
