//! The flight recorder: the last seconds, packed in memory, written when it ends.

use super::{snapshot::replaces, stop_conditions::Caught};
use schedlab_files::{FileId, NewFile};
use schedlab_model::{
    EventKind, EventSink, Fact, Ns, ObjectId, ObjectInfo, ObjectKind, SchedEvent, TaskId,
};
use schedlab_trace::{
    CpuTime, GroupInfo, Header, Packed, PackedFacts, TaskInfo, TraceError, Writer, renumber,
    renumber_fact,
};
use std::collections::{BTreeMap, VecDeque};
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

/// Events that are packed together, at most.
const PACK: usize = 16 * 1024;

/// Memory for the packed events, in bytes. What does not fit is dropped from the oldest end, and
/// the result says so.
pub(crate) const MEMORY: usize = 256 << 20;

/// A task, and when it ended.
#[derive(Clone)]
struct Known {
    info: TaskInfo,
    ended: Option<Ns>,
}

/// An object, and when a fact named it last.
#[derive(Clone)]
struct Named {
    info: ObjectInfo,
    at: Ns,
}

/// The events and facts of the last `keep`, packed. A copy shares what is packed.
#[derive(Clone)]
pub(crate) struct FlightRecorder {
    keep: Ns,
    memory: usize,
    pending: Vec<SchedEvent>,
    packs: VecDeque<Arc<Packed>>,
    pending_facts: Vec<Fact>,
    fact_packs: VecDeque<Arc<PackedFacts>>,
    objects: BTreeMap<ObjectId, Named>,
    bytes: usize,
    tasks: BTreeMap<TaskId, Known>,
    groups: Vec<GroupInfo>,
    /// Whether events younger than `keep` were dropped for want of memory.
    short: bool,
}

impl FlightRecorder {
    pub(crate) fn new(keep: Ns, memory: usize) -> FlightRecorder {
        FlightRecorder {
            keep,
            memory,
            pending: Vec::with_capacity(PACK),
            packs: VecDeque::new(),
            pending_facts: Vec::new(),
            fact_packs: VecDeque::new(),
            objects: BTreeMap::new(),
            bytes: 0,
            tasks: BTreeMap::new(),
            groups: Vec::new(),
            short: false,
        }
    }

    pub(crate) fn group(&mut self, info: GroupInfo) {
        self.groups.push(info);
    }

    pub(crate) fn task(&mut self, id: TaskId, info: TaskInfo) {
        self.tasks.insert(id, Known { info, ended: None });
    }

    pub(crate) fn event(&mut self, event: &SchedEvent) -> Result<(), TraceError> {
        if let EventKind::Exit { task } = event.kind
            && let Some(known) = self.tasks.get_mut(&task)
        {
            known.ended = Some(event.at);
        }
        self.pending.push(*event);
        if self.pending.len() == PACK { self.pack() } else { Ok(()) }
    }

    pub(crate) fn object(&mut self, id: ObjectId, info: ObjectInfo) {
        let at = self.pending_facts.last().map_or(Ns::ZERO, |fact| fact.at);
        let at = self.objects.get(&id).map_or(at, |known| known.at);
        self.objects.insert(id, Named { info, at });
    }

    pub(crate) fn fact(&mut self, fact: &Fact) -> Result<(), TraceError> {
        let mut kind = fact.kind;
        kind.each_object(&mut |id| {
            if let Some(known) = self.objects.get_mut(id) {
                known.at = fact.at;
            }
        });
        self.pending_facts.push(*fact);
        if self.pending_facts.len() == PACK { self.pack() } else { Ok(()) }
    }

    /// Notes that a part of what was to be kept is missing already.
    pub(crate) fn is_short(&mut self) {
        self.short = true;
    }

    /// Returns the bytes in use for events and facts.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Packs the pending events and drops those that are too old.
    pub(crate) fn pack(&mut self) -> Result<(), TraceError> {
        let now = self
            .pending
            .last()
            .map(|event| event.at)
            .max(self.pending_facts.last().map(|fact| fact.at));
        if let Some(pack) = Packed::pack(&self.pending)? {
            self.bytes += pack.bytes();
            self.packs.push_back(Arc::new(pack));
        }
        self.pending.clear();
        if let Some(pack) = PackedFacts::pack(&self.pending_facts)? {
            self.bytes += pack.bytes();
            self.fact_packs.push_back(Arc::new(pack));
        }
        self.pending_facts.clear();
        let Some(now) = now else { return Ok(()) };
        while self.drop_oldest(now.saturating_sub(self.keep)) {}
        let begin = self.packs.front().map_or(now, |pack| pack.first());
        let begin = self.fact_packs.front().map_or(begin, |pack| pack.first().min(begin));
        self.objects.retain(|_, known| known.at >= begin);
        // A task that ended before the oldest event is named by none of them; its last switch
        // follows its end.
        let margin = Ns::from_ms(1000);
        self.tasks.retain(|_, known| {
            known.ended.is_none_or(|ended| ended.saturating_add(margin) >= begin)
        });
        Ok(())
    }

    /// Drops the oldest pack when it is too old, or too much for the memory. Returns whether it
    /// did.
    fn drop_oldest(&mut self, oldest: Ns) -> bool {
        let (events, facts) = (
            self.packs.front().map(|pack| pack.last()),
            self.fact_packs.front().map(|pack| pack.last()),
        );
        let (Some(last), of_events) = (match (events, facts) {
            (Some(events), Some(facts)) => (Some(events.min(facts)), events <= facts),
            (events, facts) => (events.or(facts), events.is_some()),
        }) else {
            return false;
        };
        let too_much = self.bytes > self.memory && self.packs.len() + self.fact_packs.len() > 1;
        if last >= oldest && !too_much {
            return false;
        }
        self.short |= last >= oldest;
        let dropped = match of_events {
            true => self.packs.pop_front().map_or(0, |pack| pack.bytes()),
            false => self.fact_packs.pop_front().map_or(0, |pack| pack.bytes()),
        };
        self.bytes -= dropped;
        true
    }

    /// Writes the facts that are kept into a file whose time 0 is `begin`; tasks have the numbers
    /// that its events gave them.
    fn write_facts<W: std::io::Write>(
        &self,
        writer: &mut Writer<W>,
        begin: Ns,
        tasks: &mut BTreeMap<TaskId, TaskId>,
    ) -> Result<(), TraceError> {
        let (mut facts, mut objects) = (Vec::new(), BTreeMap::new());
        for pack in &self.fact_packs {
            facts.clear();
            pack.unpack(&mut facts)?;
            for fact in facts.iter().filter(|fact| fact.at >= begin) {
                let mut new_objects = Vec::new();
                let mut fact = renumber_fact(
                    fact,
                    |id| *tasks.entry(id).or_insert_with(|| writer.add_task(self.task_info(id))),
                    |id| {
                        let next = ObjectId::from(objects.len());
                        *objects.entry(id).or_insert_with(|| {
                            new_objects.push(id);
                            next
                        })
                    },
                );
                for id in new_objects {
                    writer.add_object(self.object_info(id));
                }
                fact.at = fact.at.saturating_sub(begin);
                fact.kind.shift(begin);
                writer.fact(&fact);
            }
        }
        for (id, new) in &objects {
            // Only now the numbers of all objects are known.
            let mut info = self.object_info(*id);
            if let Some(peer) = self.objects.get(id).and_then(|known| known.info.peer) {
                info.peer = objects.get(&peer).copied();
                writer.update_object(*new, info);
            }
        }
        Ok(())
    }

    fn task_info(&self, id: TaskId) -> TaskInfo {
        self.tasks.get(&id).map_or_else(|| TaskInfo::unknown(0, 0, "?"), |known| known.info.clone())
    }

    /// What is known of an object, but for its peer's number.
    fn object_info(&self, id: ObjectId) -> ObjectInfo {
        let unknown = || ObjectInfo::of_kind(ObjectKind::Other);
        let info = self.objects.get(&id).map_or_else(unknown, |known| known.info.clone());
        ObjectInfo { peer: None, ..info }
    }

    /// Writes the events and facts that are kept: times begin with the oldest event within `keep`,
    /// tasks are numbered anew, and `caught` is in the header, in those times. Returns what is in
    /// the file, and whether memory was short. When it fails, all is kept, to be written elsewhere.
    pub(crate) fn write(
        &mut self,
        destination: &Destination<'_>,
        header: &Header,
        end: Ns,
        cpu_time: Option<CpuTime>,
        caught: Option<&Caught>,
    ) -> Result<Written, TraceError> {
        self.pack()?;
        let (path, mut header) = (destination.path, header.clone());
        let oldest = end.saturating_sub(self.keep);
        let mut events = Vec::new();
        let file = |source| TraceError::File { path: path.to_owned(), source };
        let create = || destination.create().map(BufWriter::new).map_err(file);
        let mut writer: Option<(Writer<BufWriter<NewFile>>, Ns)> = None;
        let (mut new_ids, mut count) = (BTreeMap::new(), 0);
        header.groups.clone_from(&self.groups);
        for pack in &self.packs {
            events.clear();
            pack.unpack(&mut events)?;
            for event in events.iter().filter(|event| event.at >= oldest) {
                if writer.is_none() {
                    header.clock_start_ns += event.at.0;
                    caught.iter().for_each(|caught| header.set_incident(&caught.since(event.at)));
                    writer = Some((Writer::new(create()?, &header)?, event.at));
                }
                let Some((writer, begin)) = &mut writer else { continue };
                let mut event = renumber(event, |id| {
                    *new_ids.entry(id).or_insert_with(|| writer.add_task(self.task_info(id)))
                });
                event.at = event.at.saturating_sub(*begin);
                writer.event(&event);
                count += 1;
            }
        }
        let (mut writer, begin) = match writer {
            Some(writer) => writer,
            None => (Writer::new(create()?, &header)?, end),
        };
        self.write_facts(&mut writer, begin, &mut new_ids)?;
        cpu_time.into_iter().for_each(|time| writer.set_cpu_time(time));
        let out = writer.finish(end.saturating_sub(begin))?;
        let out = out.into_inner().map_err(|error| file(error.into_error()))?;
        let id = out.id().map_err(file)?;
        if count > 0 || !replaces(path) {
            out.commit().map_err(file)?;
        }
        Ok(Written {
            begin,
            events: count,
            tasks: new_ids.len(),
            duration: end.saturating_sub(begin),
            short: self.short,
            id,
        })
    }
}

/// Where it is written.
pub(crate) struct Destination<'a> {
    pub(crate) path: &'a Path,
    /// Whether nothing may be there.
    pub(crate) fresh: bool,
}

impl Destination<'_> {
    fn create(&self) -> std::io::Result<NewFile> {
        if self.fresh { NewFile::fresh(self.path) } else { NewFile::create(self.path) }
    }
}

/// What is in the file.
pub(crate) struct Written {
    /// The recorder's time at the file's time 0.
    pub(crate) begin: Ns,
    pub(crate) events: u64,
    pub(crate) tasks: usize,
    pub(crate) duration: Ns,
    pub(crate) short: bool,
    pub(crate) id: FileId,
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, PrevState};
    use schedlab_trace::Recording;

    fn switch(us: u64, prev: u32, next: u32) -> SchedEvent {
        let (prev, next) = (Some(TaskId(prev)), Some(TaskId(next)));
        let kind = EventKind::Switch { prev, prev_state: PrevState::Sleeping, next };
        SchedEvent { at: Ns::from_us(us), cpu: CpuId(0), kind }
    }

    /// A million short-lived tasks: memory stays what the last second needs.
    #[test]
    fn memory_is_that_of_the_last_second() {
        let mut flight = FlightRecorder::new(Ns::from_ms(1000), MEMORY);
        for id in 0..200_000u32 {
            flight.task(TaskId(id), TaskInfo::unknown(id + 1, id + 1, "short"));
            let at = u64::from(id) * 100;
            flight.event(&switch(at, id.saturating_sub(1), id)).unwrap();
            let exit = EventKind::Exit { task: TaskId(id) };
            flight
                .event(&SchedEvent { at: Ns::from_us(at + 50), cpu: CpuId(0), kind: exit })
                .unwrap();
        }
        assert!(flight.tasks.len() < 40_000, "{} tasks", flight.tasks.len());
        assert!(flight.bytes() < 400_000, "{} bytes", flight.bytes());
        let path = schedlab_testing::temp_dir()
            .join(format!("schedlab-flight-{}.slt", std::process::id()));
        let end = Ns::from_us(20_000_000);
        let caught = Caught {
            condition: "any task ran > 0ns".to_owned(),
            measure: super::super::stop_conditions::StretchKind::Run,
            task: ("short".to_owned(), 1),
            from: Ns::from_us(19_500_000),
            length: None,
        };
        let header = Header { clock_start_ns: 7, ..Header::default() };
        let written = flight
            .write(
                &Destination { path: &path, fresh: true },
                &header,
                end,
                Some(CpuTime::default()),
                Some(&caught),
            )
            .unwrap();
        let recording = Recording::open(&path).unwrap();
        assert!(recording.repairs.is_clean(), "{}", recording.repairs);
        assert_eq!(recording.events.len() as u64, written.events);
        assert_eq!((written.events, written.duration), (20_000, Ns::from_ms(1000)));
        assert_eq!(recording.duration, Ns::from_ms(1000));
        assert_eq!(recording.header.clock_start_ns, 7 + 19_000_000_000);
        assert_eq!(recording.header.tasks.len(), 10_001);
        assert_eq!(recording.header.tasks[1].tid, 190_001);
        let incident = recording.header.incident().unwrap();
        assert_eq!((incident.from(), &*incident.did), (Ns::from_ms(500), "ran"));
        assert!(!written.short);
        std::fs::remove_file(path).unwrap();
    }

    /// Facts are kept as long as the events, with their tasks and objects numbered anew.
    #[test]
    fn facts_are_those_of_the_last_second() {
        use schedlab_model::{FactKind, Limit, Transfer};
        let mut flight = FlightRecorder::new(Ns::from_ms(1000), MEMORY);
        for id in 0..40_000u32 {
            let at = Ns::from_us(u64::from(id) * 100);
            flight.task(TaskId(id % 4), TaskInfo::unknown(id % 4 + 1, 1, "t"));
            // A connection of two directions for each message.
            for (object, peer) in [(2 * id, 2 * id + 1), (2 * id + 1, 2 * id)] {
                let info = ObjectInfo {
                    peer: Some(ObjectId(peer)),
                    ..ObjectInfo::of_kind(ObjectKind::Tcp)
                };
                flight.object(ObjectId(object), info);
            }
            flight.event(&switch(u64::from(id) * 100, id % 4, (id + 1) % 4)).unwrap();
            let mut fact = |task: u32, kind| {
                flight.fact(&Fact { at, cpu: CpuId(0), task: Some(TaskId(task)), kind }).unwrap();
            };
            fact(id % 4, FactKind::Send(Transfer::done(ObjectId(2 * id), id)));
            fact(id % 4, FactKind::Send(Transfer::done(ObjectId(2 * id + 1), 1)));
            let until = Limit::At(at.saturating_add(Ns(7)));
            fact(3, FactKind::Sleep { until, outcome: schedlab_model::Outcome::Done });
        }
        assert!(flight.objects.len() < 60_000, "{} objects", flight.objects.len());
        let path = schedlab_testing::temp_dir()
            .join(format!("schedlab-flight-facts-{}.slt", std::process::id()));
        let end = Ns::from_us(4_000_000);
        let destination = Destination { path: &path, fresh: true };
        flight.write(&destination, &Header::default(), end, None, None).unwrap();
        let recording = Recording::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert!(recording.repairs.is_clean(), "{}", recording.repairs);
        let facts = &recording.facts;
        assert_eq!((facts.list.len(), facts.objects.len()), (30_000, 20_000));
        let FactKind::Send(first) = facts.list[0].kind else { panic!("{:?}", facts.list[0]) };
        assert_eq!((facts.list[0].at, first.bytes), (Ns::ZERO, 30_000));
        assert_eq!(facts.object(first.object).peer, Some(ObjectId(1)));
        let FactKind::Sleep { until, .. } = facts.list[5].kind else {
            panic!("{:?}", facts.list[5])
        };
        assert_eq!(until, Limit::At(Ns(100_007)));
    }

    #[test]
    fn memory_has_a_limit() {
        let mut flight = FlightRecorder::new(Ns::from_ms(3_600_000), 200_000);
        flight.task(TaskId(0), TaskInfo::unknown(1, 1, "a"));
        let mut at = 0u64;
        for us in 0..400_000u64 {
            at += (us * 7919 + us * us * 104_729) % 60_000;
            flight.event(&switch(at, 0, 0)).unwrap();
        }
        assert!(flight.bytes() <= 200_000, "{}", flight.bytes());
        assert!(flight.short);
    }
}
