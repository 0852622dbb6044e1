//! Reads recordings: whole, cut off, or refused with one message that says what is wrong.

use crate::blocks::{Block, Blocks, Part};
use crate::facts::{self, Facts, Layout};
use crate::format::{self, Decoded, OPTIONAL, RECORD, kind};
use crate::import::Purpose;
use crate::repair::Scan;
use crate::writer::Tables;
use crate::{Header, Repairs, TaskInfo, Totals, TraceError};
use schedlab_model::{EventKind, MAX_CPUS, Ns, ObjectId, ObjectInfo, SchedEvent};
use std::io::Read;
use std::path::Path;

/// A recording in memory: repaired, in order of time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recording {
    /// Machine, tasks, groups, capabilities.
    pub header: Header,
    /// What happened, in non-decreasing time.
    pub events: Vec<SchedEvent>,
    /// What tasks exchanged meanwhile, where the recorder kept it.
    pub facts: Facts,
    /// Length of the recording.
    pub duration: Ns,
    /// What had to be repaired on the way in.
    pub repairs: Repairs,
}

/// Longest recording: 11 days. Sums of times cannot overflow below it.
pub(crate) const LONGEST: Ns = Ns(1_000_000_000_000_000);

/// What a reader is willing to hold in memory. A file that claims more is refused before anything
/// is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadLimits {
    /// Events, 40 bytes each in memory; and as many facts, 64 bytes each.
    pub events: u64,
    /// Bytes of one block after decompression.
    pub block_bytes: u32,
    /// Tasks; and as many objects of facts.
    pub tasks: usize,
}

impl Default for ReadLimits {
    /// 50 million events (2 GB), blocks of 64 MiB, 4 million tasks.
    fn default() -> ReadLimits {
        ReadLimits { events: 50_000_000, block_bytes: 64 << 20, tasks: 4 << 20 }
    }
}

impl Recording {
    /// Reads the file at `path`: a recording, or a trace of any other kind that
    /// [`import`](crate::import) reads, with its usual options.
    pub fn open(path: impl AsRef<Path>) -> Result<Recording, TraceError> {
        Recording::open_limited(path.as_ref(), None, Purpose::Any)
    }

    /// As [`Recording::open`], for a purpose that a trace of another tool may not be good for: then
    /// it is refused at its beginning.
    ///
    /// # Errors
    /// As for [`Recording::open`]; what the trace lacks.
    pub fn open_for(path: impl AsRef<Path>, purpose: Purpose) -> Result<Recording, TraceError> {
        Recording::open_limited(path.as_ref(), None, purpose)
    }

    /// As [`Recording::open`]; with an end without the blocks or events of later times, where they
    /// can be told early.
    pub(crate) fn open_limited(
        path: &Path,
        until: Option<Ns>,
        purpose: Purpose,
    ) -> Result<Recording, TraceError> {
        let file = schedlab_files::open(path)
            .map_err(|source| TraceError::File { path: path.to_owned(), source })?;
        let mut input = std::io::BufReader::with_capacity(1 << 20, file);
        let read = match is_foreign(&mut input) {
            Ok(false) => {
                let limits = ReadLimits::default();
                let wanted = |part: &Result<Part, TraceError>| {
                    until.is_none_or(|end| !part.as_ref().is_ok_and(|part| part.is_behind(end)))
                };
                Recording::of_blocks(Blocks::new(input, limits).filter(wanted), limits)
            }
            Ok(true) => {
                let options = crate::import::ImportOptions { until, purpose, ..Default::default() };
                crate::import::read(input, options).map(|imported| imported.recording)
            }
            Err(error) => Err(error),
        };
        read.map_err(|error| match error {
            // A folder opens but does not read.
            TraceError::Io { .. } if path.is_dir() => {
                TraceError::Option(crate::import::formats::folder(path))
            }
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
        Recording::of_blocks(Blocks::new(input, limits), limits)
    }

    /// Puts a recording together from the blocks of its file: what
    /// [`read_limited`](Recording::read_limited) does, for those who read the blocks elsewhere (on
    /// another thread, say).
    pub fn of_blocks(
        blocks: impl Iterator<Item = Result<Part, TraceError>>,
        limits: ReadLimits,
    ) -> Result<Recording, TraceError> {
        let mut scan = Scan::default();
        let mut recording = assemble(blocks, limits, &mut scan)?;
        let misordered = recording.facts.sort();
        recording.repairs.misordered = recording.repairs.misordered.saturating_add(misordered);
        recording.facts.check(&recording.header)?;
        recording.header.name_processes();
        match scan.finish() {
            Some(mends) if !mends.are_tangled() => {
                recording.check_header(recording.duration)?;
                mends.apply(&mut recording);
            }
            _ => {
                recording.check()?;
                crate::repair::repair(&mut recording);
            }
        }
        Ok(recording)
    }

    /// A recording from parts that did not come out of a file (an import, a simulation): checked
    /// and repaired in the same way.
    pub fn from_parts(
        mut header: Header,
        events: Vec<SchedEvent>,
        duration: Ns,
    ) -> Result<Recording, TraceError> {
        header.escape();
        header.name_processes();
        let mut recording = Recording { header, events, duration, ..Recording::default() };
        recording.check()?;
        crate::repair::repair(&mut recording);
        Ok(recording)
    }

    /// The same, repaired until a further repair finds nothing: what is written of it is read back
    /// as it is.
    #[must_use]
    pub fn settled(mut self) -> Recording {
        crate::repair::settle(&mut self);
        self
    }

    /// Every id of every event must exist, so that later code may index without asking.
    fn check(&self) -> Result<(), TraceError> {
        let latest = self.events.iter().map(|event| event.at).max().unwrap_or(Ns::ZERO);
        self.check_header(latest.max(self.duration))?;
        let ids = Ids::from_header(&self.header);
        match self.events.iter().position(|event| !ids.known(event)) {
            None => Ok(()),
            Some(at) => Err(TraceError::Header {
                what: format!(
                    "event {at} ({:?}) names a CPU, task or group that the header ({} CPUs, {} \
                     tasks, {} groups) does not have",
                    self.events[at], ids.cpus, ids.tasks, ids.groups
                ),
            }),
        }
    }

    /// What must hold whatever the events are; `latest` is the end.
    pub(crate) fn check_header(&self, latest: Ns) -> Result<(), TraceError> {
        let Ids { cpus, groups, .. } = Ids::from_header(&self.header);
        let bad = |what: String| Err(TraceError::Header { what });
        if latest > LONGEST {
            return bad(format!("it claims to be {latest} long (at most {LONGEST} is possible)"));
        }
        if cpus == 0 || cpus > MAX_CPUS {
            return bad(format!(
                "it describes a machine with {cpus} CPUs (1 to {MAX_CPUS} are possible)"
            ));
        }
        for (i, group) in self.header.groups.iter().enumerate() {
            let parent = group.spec.parent.map(|p| p.index());
            if (i == 0) != parent.is_none() || parent.is_some_and(|p| p >= i) {
                return bad(format!("group {i} (`{}`) has no parent before it", group.spec.name));
            }
        }
        match self.header.tasks.iter().find(|t| t.group.index() >= groups) {
            None => Ok(()),
            Some(task) => {
                bad(format!("task `{}` is in {}, which is not listed", task.comm, task.group))
            }
        }
    }
}

/// Whether an input is something else than a recording, and not empty.
pub(crate) fn is_foreign(input: &mut impl std::io::BufRead) -> Result<bool, TraceError> {
    let head = input.fill_buf().map_err(|source| TraceError::Io { doing: "read", source })?;
    let known = head.len().min(format::MAGIC.len());
    Ok(known > 0 && head[..known] != format::MAGIC[..known])
}

/// The ids that a header knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ids {
    pub(crate) cpus: usize,
    pub(crate) tasks: usize,
    pub(crate) groups: usize,
}

impl Ids {
    pub(crate) fn from_header(header: &Header) -> Ids {
        Ids {
            cpus: header.topology.cpus(),
            tasks: header.tasks.len(),
            groups: header.groups.len().max(1),
        }
    }

    /// So many that those of `event` are among them.
    #[inline]
    pub(crate) fn raise(&mut self, event: &SchedEvent) {
        self.cpus = self.cpus.max(event.cpu.index() + 1);
        match event.kind {
            EventKind::Migrate { from, to, .. } => {
                self.cpus = self.cpus.max(from.index().max(to.index()) + 1)
            }
            EventKind::Regroup { group, .. } => self.groups = self.groups.max(group.index() + 1),
            _ => {}
        }
        for task in format::tasks_of(&event.kind).into_iter().flatten() {
            self.tasks = self.tasks.max(task.index() + 1);
        }
    }

    /// Whether all of `others` are among them.
    pub(crate) fn hold(&self, others: Ids) -> bool {
        others.cpus <= self.cpus && others.tasks <= self.tasks && others.groups <= self.groups
    }

    /// Whether all ids of an event are among them.
    fn known(&self, event: &SchedEvent) -> bool {
        let mut needs = Ids::default();
        needs.raise(event);
        self.hold(needs)
    }
}

/// What becomes of the events of a recording that is read.
pub(crate) trait Keep {
    /// The events of one block. The header names every task that they may name.
    fn events(&mut self, recording: &mut Recording, events: &[SchedEvent], decoded: Decoded);

    /// Whether the recording is to have its facts.
    fn wants_facts(&self) -> bool {
        false
    }
}

/// A recording as it is put together.
struct Assembly<'a> {
    recording: Recording,
    limits: ReadLimits,
    /// Event records so far.
    records: u64,
    /// Records of facts so far.
    facts: u64,
    keep: &'a mut dyn Keep,
}

/// Reads `blocks` and gives `keep` the events of each. The recording is neither checked nor
/// repaired.
pub(crate) fn assemble(
    mut blocks: impl Iterator<Item = Result<Part, TraceError>>,
    limits: ReadLimits,
    keep: &mut dyn Keep,
) -> Result<Recording, TraceError> {
    let mut header = header(blocks.next().unwrap_or(Err(TraceError::Empty))?, limits)?;
    let repairs = std::mem::take(&mut header.repairs);
    let recording = Recording { header, repairs, ..Recording::default() };
    let mut assembly = Assembly { recording, limits, records: 0, facts: 0, keep };
    let mut totals = None;
    for part in blocks {
        match part? {
            Part::End { bytes, .. } if totals.is_none() => {
                assembly.recording.repairs.cut_off = true;
                assembly.recording.repairs.bytes_dropped = bytes;
            }
            Part::End { bytes: 0, .. } => {}
            Part::End { start, number, .. } => {
                return Err(TraceError::Damaged {
                    block: number,
                    offset: start,
                    what: BEHIND_END.to_owned(),
                });
            }
            Part::Block(block) if totals.is_some() => return Err(block.damaged(BEHIND_END)),
            Part::Block(block) => totals = assembly.take(&block)?,
        }
    }
    let mut recording = assembly.recording;
    // Until now it is the time of the last event.
    let totals: Totals = totals.unwrap_or_default();
    recording.duration = recording.duration.max(totals.duration);
    if let Some(mut at_end) = totals.sched_ext {
        crate::header::escape_sched_ext(&mut at_end);
        recording.header.sched_ext_end = Some(at_end);
    }
    Ok(recording)
}

const BEHIND_END: &str = "there are bytes after the end of the recording";

fn header(first: Part, limits: ReadLimits) -> Result<Header, TraceError> {
    match first {
        Part::End { start, bytes, .. } => Err(TraceError::NoHeader { bytes: start + bytes }),
        Part::Block(block) if block.header.kind == kind::HEADER => {
            let mut header: Header = block.json()?;
            header.escape();
            match header.tasks.len() {
                tasks if tasks > limits.tasks => {
                    Err(TraceError::TooLarge { what: format!("its header lists {tasks} tasks") })
                }
                _ => Ok(header),
            }
        }
        Part::Block(block) => Err(block.damaged("the first block is not the header")),
    }
}

impl Assembly<'_> {
    /// Puts one block into the recording; the totals when it is the last.
    fn take(&mut self, block: &Block) -> Result<Option<Totals>, TraceError> {
        match block.header.kind {
            kind::EVENTS => self.events(block)?,
            kind::TABLES => self.merge(block)?,
            kind::END => return block.json().map(Some),
            kind::HEADER => return Err(block.damaged("it is a second header")),
            kind::INDEX => {}
            kind::FACTS_BY_TIME => self.facts(block, Layout::ByTime)?,
            kind::FACTS => self.facts(block, Layout::ByCpu)?,
            optional if optional & OPTIONAL != 0 => self.recording.repairs.skipped_blocks += 1,
            unknown => {
                let what = format!("its kind {unknown} is not known and may not be skipped");
                return Err(block.damaged(&what));
            }
        }
        Ok(None)
    }

    fn events(&mut self, block: &Block) -> Result<(), TraceError> {
        let (header, recording) = (&block.header, &mut self.recording);
        self.records += u64::from(header.records);
        if self.records > self.limits.events {
            let what = format!("it has more than {} events", self.limits.events);
            return Err(TraceError::TooLarge { what });
        }
        if u64::from(header.records) * RECORD as u64 != block.raw.len() as u64 {
            return Err(block.damaged("its length does not fit its number of records"));
        }
        let (events, decoded) = block.events()?;
        self.keep.events(recording, events, decoded);
        recording.repairs.skipped_records += decoded.skipped;
        let (earliest, latest) = decoded.times.unwrap_or((header.first, header.last));
        recording.duration = recording.duration.max(Ns(decoded.times.map_or(0, |times| times.1)));
        if earliest < header.first || latest > header.last {
            return Err(block.damaged("it has events outside of the times that it claims"));
        }
        Ok(())
    }

    fn facts(&mut self, block: &Block, layout: Layout) -> Result<(), TraceError> {
        if !self.keep.wants_facts() {
            return Ok(());
        }
        if !block.raw.len().is_multiple_of(facts::RECORD) {
            return Err(block.damaged("its length is not that of whole records"));
        }
        self.facts += (block.raw.len() / facts::RECORD) as u64;
        if self.facts > self.limits.events {
            let what = format!("it has more than {} facts", self.limits.events);
            return Err(TraceError::TooLarge { what });
        }
        let recording = &mut self.recording;
        let from = recording.facts.list.len();
        let list = &mut recording.facts.list;
        let skipped = facts::decode(&block.raw, block.header.first, layout, list)
            .map_err(|what| block.damaged(&what))?;
        recording.repairs.skipped_records += skipped;
        let times = block.header.first..=block.header.last;
        match recording.facts.list[from..].iter().all(|fact| times.contains(&fact.at.0)) {
            true => Ok(()),
            false => Err(block.damaged("it has facts outside of the times that it claims")),
        }
    }

    fn objects(
        &mut self,
        block: &Block,
        objects: Vec<(ObjectId, ObjectInfo)>,
    ) -> Result<(), TraceError> {
        if !self.keep.wants_facts() {
            return Ok(());
        }
        let known = &mut self.recording.facts.objects;
        for (id, mut info) in objects {
            facts::escape_object(&mut info);
            match id.index().cmp(&known.len()) {
                std::cmp::Ordering::Less => known[id.index()] = info,
                std::cmp::Ordering::Equal if id.index() < self.limits.tasks => known.push(info),
                std::cmp::Ordering::Equal => {
                    let what = format!("it has more than {} objects", self.limits.tasks);
                    return Err(TraceError::TooLarge { what });
                }
                std::cmp::Ordering::Greater => {
                    return Err(block.damaged("it skips an object number"));
                }
            }
        }
        Ok(())
    }

    fn merge(&mut self, block: &Block) -> Result<(), TraceError> {
        let tables: Tables = block.json()?;
        self.objects(block, tables.objects)?;
        let header = &mut self.recording.header;
        for (id, mut info) in tables.groups {
            info.escape();
            match id.index().cmp(&header.groups.len()) {
                std::cmp::Ordering::Less => header.groups[id.index()] = info,
                std::cmp::Ordering::Equal => header.groups.push(info),
                std::cmp::Ordering::Greater => return Err(block.damaged("it skips a group number")),
            }
        }
        for (id, mut info) in tables.tasks {
            info.escape();
            match id.index().cmp(&header.tasks.len()) {
                std::cmp::Ordering::Less => header.tasks[id.index()] = info,
                std::cmp::Ordering::Equal if id.index() < self.limits.tasks => {
                    header.tasks.push(info)
                }
                std::cmp::Ordering::Equal => {
                    let what = format!("it has more than {} tasks", self.limits.tasks);
                    return Err(TraceError::TooLarge { what });
                }
                std::cmp::Ordering::Greater => return Err(block.damaged("it skips a task number")),
            }
        }
        Ok(())
    }
}

/// Looks at the events while they are still in the processor's caches.
impl Keep for Scan {
    fn events(&mut self, recording: &mut Recording, events: &[SchedEvent], decoded: Decoded) {
        self.block(&recording.header, events, decoded);
        let from = recording.events.len();
        if !self.is_hard() {
            for (place, event) in events.iter().enumerate() {
                self.event(from + place, event);
            }
        }
        recording.events.extend_from_slice(events);
    }

    fn wants_facts(&self) -> bool {
        true
    }
}

impl Recording {
    /// The task table entry of `task`.
    pub fn task(&self, task: schedlab_model::TaskId) -> &TaskInfo {
        &self.header.tasks[task.index()]
    }
}
