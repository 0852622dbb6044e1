//! Reads recordings: whole, cut off, or refused with one message that says what is wrong.

use crate::format::{self, BLOCK_HEADER, BlockHeader, FILE_HEADER, OPTIONAL, RECORD, kind};
use crate::writer::Tables;
use crate::{Header, Repairs, TaskInfo, Totals, TraceError};
use schedlab_model::{EventKind, MAX_CPUS, Ns, SchedEvent};
use std::io::Read;
use std::path::Path;

/// A recording in memory: repaired, in order of time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recording {
    /// Machine, tasks, groups, capabilities.
    pub header: Header,
    /// What happened, in non-decreasing time.
    pub events: Vec<SchedEvent>,
    /// Length of the recording.
    pub duration: Ns,
    /// What had to be mended on the way in.
    pub repairs: Repairs,
}

/// Longest recording: 11 days. Sums of times cannot overflow below it.
const LONGEST: Ns = Ns(1_000_000_000_000_000);

/// What a reader is willing to hold in memory. A file that claims more is refused before anything is
/// allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadLimits {
    /// Events; 40 bytes each in memory.
    pub events: u64,
    /// Bytes of one block after decompression.
    pub block_bytes: u32,
    /// Tasks.
    pub tasks: usize,
}

impl Default for ReadLimits {
    /// 50 million events (2 GB), blocks of 64 MiB, 4 million tasks.
    fn default() -> ReadLimits {
        ReadLimits { events: 50_000_000, block_bytes: 64 << 20, tasks: 4 << 20 }
    }
}

impl Recording {
    /// Reads the file at `path`.
    pub fn open(path: impl AsRef<Path>) -> Result<Recording, TraceError> {
        let path = path.as_ref();
        let file =
            std::fs::File::open(path).map_err(|source| TraceError::File { path: path.to_owned(), source })?;
        Recording::read(std::io::BufReader::with_capacity(1 << 20, file)).map_err(|error| match error {
            // A directory opens but does not read.
            TraceError::Io { source, .. } => TraceError::File { path: path.to_owned(), source },
            other => other,
        })
    }

    /// Reads a recording with the usual [`ReadLimits`].
    pub fn read(input: impl Read) -> Result<Recording, TraceError> {
        Recording::read_limited(input, ReadLimits::default())
    }

    /// Reads a recording.
    pub fn read_limited(input: impl Read, limits: ReadLimits) -> Result<Recording, TraceError> {
        let mut reader = Reader { input, offset: 0, block: 0, limits };
        let mut recording = reader.whole()?;
        recording.check()?;
        crate::repair::repair(&mut recording);
        Ok(recording)
    }

    /// A recording from parts that did not come out of a file (an import, a simulation): checked and repaired
    /// in the same way.
    pub fn from_parts(
        header: Header,
        events: Vec<SchedEvent>,
        duration: Ns,
    ) -> Result<Recording, TraceError> {
        let mut recording = Recording { header, events, duration, repairs: Repairs::default() };
        recording.check()?;
        crate::repair::repair(&mut recording);
        Ok(recording)
    }

    /// Every id of every event must exist, so that later code may index without asking.
    fn check(&self) -> Result<(), TraceError> {
        let (cpus, tasks) = (self.header.topology.cpus(), self.header.tasks.len());
        let groups = self.header.groups.len().max(1);
        let bad = |what: String| Err(TraceError::Header { what });
        // One pass over all events, for both of what is asked of them.
        let (mut latest, mut unknown) = (self.duration, None);
        let known = |event: &SchedEvent| {
            let migrates = match event.kind {
                EventKind::Migrate { from, to, .. } => from.index() < cpus && to.index() < cpus,
                EventKind::Regroup { group, .. } => group.index() < groups,
                _ => true,
            };
            let known = |t: &schedlab_model::TaskId| t.index() < tasks;
            event.cpu.index() < cpus && migrates && format::tasks_of(&event.kind).iter().flatten().all(known)
        };
        for (at, event) in self.events.iter().enumerate() {
            latest = latest.max(event.at);
            if unknown.is_none() && !known(event) {
                unknown = Some(at);
            }
        }
        if latest > LONGEST {
            return bad(format!("it claims to be {latest} long (at most {LONGEST} is possible)"));
        }
        if cpus == 0 || cpus > MAX_CPUS {
            return bad(format!("it describes a machine with {cpus} CPUs (1 to {MAX_CPUS} are possible)"));
        }
        for (i, group) in self.header.groups.iter().enumerate() {
            let parent = group.spec.parent.map(|p| p.index());
            if (i == 0) != parent.is_none() || parent.is_some_and(|p| p >= i) {
                return bad(format!("group {i} (`{}`) has no parent before it", group.spec.name));
            }
        }
        if let Some(task) = self.header.tasks.iter().find(|t| t.group.index() >= groups) {
            return bad(format!("task `{}` is in {}, which is not listed", task.comm, task.group));
        }
        match unknown {
            None => Ok(()),
            Some(at) => bad(format!(
                "event {at} ({:?}) names a CPU, task or group that the header ({cpus} CPUs, {tasks} tasks, \
                 {groups} groups) does not have",
                self.events[at]
            )),
        }
    }
}

struct Reader<R> {
    input: R,
    offset: u64,
    block: u64,
    limits: ReadLimits,
}

/// One step of the reader.
enum Next {
    Block(BlockHeader, Vec<u8>),
    /// The input ended here, `bytes` after the last whole block.
    End {
        bytes: u64,
    },
}

impl<R: Read> Reader<R> {
    fn whole(&mut self) -> Result<Recording, TraceError> {
        self.file_header()?;
        let mut recording = Recording { header: self.header()?, ..Recording::default() };
        let mut totals = None;
        loop {
            let start = self.offset;
            self.block += 1;
            match self.next()? {
                Next::End { bytes } if totals.is_none() => {
                    recording.repairs.cut_off = true;
                    recording.repairs.bytes_dropped = bytes;
                    break;
                }
                Next::End { bytes: 0 } => break,
                Next::Block(..) | Next::End { .. } if totals.is_some() => {
                    return Err(self.damaged(start, "there are bytes after the end of the recording"));
                }
                Next::Block(header, raw) => totals = self.take(&mut recording, header, raw, start)?,
                Next::End { .. } => break,
            }
        }
        // Until now it is the time of the last event.
        recording.duration = recording.duration.max(totals.unwrap_or_default().duration);
        Ok(recording)
    }

    /// Puts one block into the recording; the totals when it is the last.
    fn take(
        &self,
        recording: &mut Recording,
        header: BlockHeader,
        raw: Vec<u8>,
        start: u64,
    ) -> Result<Option<Totals>, TraceError> {
        match header.kind {
            kind::EVENTS => {
                let before = recording.events.len() as u64;
                if before + u64::from(header.records) > self.limits.events {
                    let what = format!("it has more than {} events", self.limits.events);
                    return Err(TraceError::TooLarge { what });
                }
                if u64::from(header.records) * RECORD as u64 != raw.len() as u64 {
                    return Err(self.damaged(start, "its length does not fit its number of records"));
                }
                let decoded = format::decode_events(&raw, header.first, &mut recording.events)
                    .map_err(|what| self.damaged(start, &what))?;
                recording.repairs.skipped_records += decoded.skipped;
                let (earliest, latest) = decoded.times.unwrap_or((header.first, header.last));
                recording.duration = recording.duration.max(Ns(decoded.times.map_or(0, |times| times.1)));
                if earliest < header.first || latest > header.last {
                    return Err(self.damaged(start, "it has events outside of the times that it claims"));
                }
            }
            kind::TABLES => {
                let tables: Tables = self.json(&raw, start)?;
                self.merge(&mut recording.header, tables, start)?;
            }
            kind::END => return self.json(&raw, start).map(Some),
            kind::HEADER => return Err(self.damaged(start, "it is a second header")),
            kind::INDEX => {}
            optional if optional & OPTIONAL != 0 => recording.repairs.skipped_blocks += 1,
            unknown => {
                let what = format!("its kind {unknown} is not known and may not be skipped");
                return Err(self.damaged(start, &what));
            }
        }
        Ok(None)
    }

    fn merge(&self, header: &mut Header, tables: Tables, start: u64) -> Result<(), TraceError> {
        for (id, info) in tables.groups {
            match id.index().cmp(&header.groups.len()) {
                std::cmp::Ordering::Less => header.groups[id.index()] = info,
                std::cmp::Ordering::Equal => header.groups.push(info),
                std::cmp::Ordering::Greater => return Err(self.damaged(start, "it skips a group number")),
            }
        }
        for (id, info) in tables.tasks {
            match id.index().cmp(&header.tasks.len()) {
                std::cmp::Ordering::Less => header.tasks[id.index()] = info,
                std::cmp::Ordering::Equal if id.index() < self.limits.tasks => header.tasks.push(info),
                std::cmp::Ordering::Equal => {
                    let what = format!("it has more than {} tasks", self.limits.tasks);
                    return Err(TraceError::TooLarge { what });
                }
                std::cmp::Ordering::Greater => return Err(self.damaged(start, "it skips a task number")),
            }
        }
        Ok(())
    }

    fn file_header(&mut self) -> Result<(), TraceError> {
        let mut start = [0; FILE_HEADER];
        let got = self.fill(&mut start)?;
        if got == 0 {
            return Err(TraceError::Empty);
        }
        let magic = got.min(8);
        if start[..magic] != format::MAGIC[..magic] {
            let found = format!("{:?}", String::from_utf8_lossy(&start[..magic]));
            return Err(TraceError::Foreign { found });
        }
        if got < FILE_HEADER {
            return Err(TraceError::NoHeader { bytes: got as u64 });
        }
        let major = u16::from_le_bytes([start[8], start[9]]);
        if major > format::FORMAT_MAJOR {
            return Err(TraceError::Newer { found: major, known: format::FORMAT_MAJOR });
        }
        if major == 0 {
            return Err(self.damaged(8, "format version 0 was never written"));
        }
        Ok(())
    }

    fn header(&mut self) -> Result<Header, TraceError> {
        let start = self.offset;
        match self.next()? {
            Next::End { .. } => Err(TraceError::NoHeader { bytes: self.offset }),
            Next::Block(block, raw) if block.kind == kind::HEADER => {
                let header: Header = self.json(&raw, start)?;
                match header.tasks.len() {
                    tasks if tasks > self.limits.tasks => {
                        Err(TraceError::TooLarge { what: format!("its header lists {tasks} tasks") })
                    }
                    _ => Ok(header),
                }
            }
            Next::Block(..) => Err(self.damaged(start, "the first block is not the header")),
        }
    }

    fn next(&mut self) -> Result<Next, TraceError> {
        let start = self.offset;
        let mut bytes = [0; BLOCK_HEADER];
        let got = self.fill(&mut bytes)?;
        if got < BLOCK_HEADER {
            return Ok(Next::End { bytes: got as u64 });
        }
        let header = BlockHeader::decode(&bytes).map_err(|what| self.damaged(start, what))?;
        if header.raw > self.limits.block_bytes || header.stored > self.limits.block_bytes {
            let what = format!("block {} claims {} bytes", self.block, header.raw.max(header.stored));
            return Err(TraceError::TooLarge { what });
        }
        // Read in pieces: a false length must not make us allocate more than the file has.
        let mut stored = Vec::new();
        let wanted = u64::from(header.stored);
        let read = self.input.by_ref().take(wanted).read_to_end(&mut stored);
        read.map_err(|source| TraceError::Io { doing: "read", source })?;
        self.offset += stored.len() as u64;
        if (stored.len() as u64) < wanted {
            return Ok(Next::End { bytes: self.offset - start });
        }
        if crc32fast::hash(&stored) != header.crc {
            return Err(self.damaged(start, "its checksum is wrong"));
        }
        let raw = zstd::bulk::decompress(&stored, header.raw as usize)
            .map_err(|error| self.damaged(start, &format!("it does not decompress ({error})")))?;
        if raw.len() != header.raw as usize {
            return Err(self.damaged(start, "it decompresses to another length than it claims"));
        }
        Ok(Next::Block(header, raw))
    }

    /// Fills `buffer` as far as the input goes.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, TraceError> {
        let mut got = 0;
        while got < buffer.len() {
            match self.input.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(TraceError::Io { doing: "read", source }),
            }
        }
        self.offset += got as u64;
        Ok(got)
    }

    fn json<T: serde::de::DeserializeOwned>(&self, raw: &[u8], start: u64) -> Result<T, TraceError> {
        serde_json::from_slice(raw).map_err(|error| self.damaged(start, &format!("its JSON: {error}")))
    }

    fn damaged(&self, offset: u64, what: &str) -> TraceError {
        TraceError::Damaged { block: self.block, offset, what: what.to_owned() }
    }
}

impl Recording {
    /// The task table entry of `task`.
    pub fn task(&self, task: schedlab_model::TaskId) -> &TaskInfo {
        &self.header.tasks[task.index()]
    }
}
