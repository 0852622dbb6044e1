//! Recording in which the kernel decides: it keeps each task's state and the sums, and tells of a
//! stretch only where a rule may mean it (`bpf/sums.h`). Records are kept as they come, packed, and
//! become events only when they are asked for.
//!
//! Nothing wakes the recorder: it looks every [`POLL`]. Of each record it looks at its kind alone;
//! what is created, ends, gets a name or changes its group is handled at once, because `/proc` can
//! be asked only as long as a task lives.

use super::bpf::{self, Decoder, KernelSums, TOLD, Told, kind_of};
use super::kept::{KeptEvents, KeptTasks};
use super::open::{self, Summing};
use super::pack::{Pack, Packer, Packs};
use super::raw::{RawEvent, RawKind};
use super::tasks::{Hint, Tasks};
use super::{CpuSource, Priority, RecordEnd, RecordRequest, RecordStart, clock};
use crate::facts::{GroupFacts, MachineFacts, RecordingCapabilities, TaskFacts};
use crate::sys::huge_pages::NoHugePages;
use crate::{HostError, proc, sched_ext};
use rustix::time::ClockId;
use schedlab_model::{CpuId, Ns, TaskId};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use super::bpf::{BUCKETS, ClassSums, Watch, bucket, bucket_bound};
pub use super::kept::KeptEvents as Kept;

/// Time between two looks at the rings.
const POLL: Duration = Duration::from_millis(100);

/// Bytes of each CPU's ring: 131,072 records, which are so many in [`POLL`].
const RING: usize = 4 << 20;

/// A pack is closed after this time, so that it can be dropped when it is too old.
const CLOSED_AFTER: u64 = 500_000_000;

/// Before a look began by so much, every record is in its ring.
const STILL: u64 = 1_000_000;

/// A kind of stretch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stretch {
    /// It waited for a CPU.
    Wait,
    /// It ran.
    Run,
    /// It was blocked.
    Block,
}

impl Stretch {
    fn numbered(number: u16) -> Option<Stretch> {
        match number {
            1 => Some(Stretch::Wait),
            2 => Some(Stretch::Run),
            3 => Some(Stretch::Block),
            _ => None,
        }
    }
}

/// A stretch that is longer than a bound of its task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongStretch {
    /// Whose.
    pub task: TaskId,
    /// What it did.
    pub did: Stretch,
    /// Since when, in the time of the recording.
    pub from: Ns,
    /// Until when.
    pub to: Ns,
    /// For how long a limit held it up.
    pub throttled: Ns,
}

/// Hears what the kernel tells.
pub trait InKernelSink {
    /// Comes first, once.
    ///
    /// # Errors
    /// An error here or in `round` ends the recording with [`HostError::Sink`].
    fn start(&mut self, start: &RecordStart) -> io::Result<()>;
    /// A group, parents first.
    fn group(&mut self, group: &GroupFacts);
    /// A task that is new or has changed. Returns what is counted and told of it from now on.
    fn task(&mut self, task: &TaskFacts) -> Watch;
    /// A task ended.
    fn ended(&mut self, task: TaskId, at: Ns);
    /// A stretch is longer than a bound.
    fn stretch(&mut self, stretch: &LongStretch);
    /// Comes after each look.
    ///
    /// # Errors
    /// As for `start`.
    fn round(&mut self, view: &View<'_>) -> io::Result<()>;
    /// Comes last: nothing is recorded any more.
    fn over(&mut self, view: &View<'_>);
}

/// What can be asked after each look.
pub struct View<'a> {
    /// Until when everything is known, in the time of the recording.
    pub now: Ns,
    /// Events so far.
    pub events: u64,
    /// Events for which the kernel had no room.
    pub lost: u64,
    state: &'a State,
    sums: &'a KernelSums,
}

impl View<'_> {
    /// Returns for how many classes there are sums.
    pub fn classes(&self) -> usize {
        self.sums.classes()
    }

    /// Returns the number of waits and the CPU time of a class: where neither has changed, nothing
    /// has.
    pub fn mark(&self, class: usize) -> (u64, Ns) {
        self.sums.mark(class)
    }

    /// Returns the sums of a class.
    pub fn sums(&self, class: usize) -> ClassSums {
        self.sums.read(class)
    }

    /// Makes room for other culprits of a class that has no tasks.
    pub fn forget_culprits(&self, class: usize) {
        self.sums.forget_culprits(class);
    }

    /// Returns what a thread does now, and since when.
    pub fn doing(&self, tid: u32) -> Option<(Stretch, Ns)> {
        let (what, since) = self.sums.state(tid)?;
        Some((Stretch::numbered(what)?, Ns(since.saturating_sub(self.state.origin))))
    }

    /// Changes what is counted and told of a thread.
    pub fn watch(&self, tid: u32, watch: &Watch) {
        self.sums.watch(tid, watch, false);
    }

    /// Returns a copy of what is kept.
    pub fn kept(&self) -> KeptEvents {
        self.state.kept(self.now)
    }
}

/// An open recorder.
pub struct InKernel {
    machine: MachineFacts,
    summing: Summing,
}

impl InKernel {
    /// Opens it.
    ///
    /// # Errors
    /// BPF programs cannot be run here.
    pub fn open(request: &RecordRequest) -> Result<InKernel, HostError> {
        let machine = crate::machine::machine();
        let request = RecordRequest { ring_bytes: RING, ..request.clone() };
        let summing = open::open_summing(&request, &machine)?;
        Ok(InKernel { machine, summing })
    }

    /// Returns what it knows.
    pub fn capabilities(&self) -> &RecordingCapabilities {
        &self.summing.capabilities
    }

    /// Returns for how many classes there are sums.
    pub fn classes(&self) -> usize {
        self.summing.sums.classes()
    }

    /// Records until the time is over or `stop` returns true. The last `keep` is kept, in at most
    /// `memory` bytes.
    ///
    /// # Errors
    /// As [`record`](super::record()).
    pub fn run(
        self,
        request: &RecordRequest,
        (keep, memory): (Ns, usize),
        sink: &mut dyn InKernelSink,
        stop: &dyn Fn() -> bool,
    ) -> Result<RecordEnd, HostError> {
        let _small_pages = NoHugePages::hold();
        let InKernel { machine, summing: Summing { capabilities, mut rings, sums } } = self;
        let cpus = machine.topology.cpus();
        let cpu_before = clock(ClockId::ThreadCPUTime);
        let mut tasks = Tasks::new(proc::in_first_pid_namespace());
        tasks.scan(None);
        // All rings have the same programs.
        for ring in &mut rings {
            ring.enable().map_err(HostError::io("starting the recording"))?;
        }
        rings.iter_mut().for_each(|ring| _ = ring.drain_records(|_| ()));
        let monotonic_ns = clock(ClockId::Monotonic);
        let (unix_ns, busy_before) = (super::unix_time(monotonic_ns), proc::busy());
        // Those that were created meanwhile.
        tasks.scan(None);
        tasks.find_vcpus(None);
        let virtual_machine = machine.virtual_machine;
        let online = machine.online;
        let start = RecordStart {
            machine,
            capabilities,
            monotonic_ns,
            unix_ns,
            ring_bytes: rings.iter().map(CpuSource::ring_bytes).min().unwrap_or(0),
            cost_ns_per_switch: None,
            sched_ext: sched_ext::here(),
        };
        sink.start(&start).map_err(HostError::Sink)?;
        let _priority = Priority::raise(&super::recorder_cpus(request, &online));
        super::give_up(request, false)?;
        tasks.look_again(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let mut state = State::new(monotonic_ns, cpus, tasks, (keep, memory), virtual_machine);
        state.tell(&sums, sink, None);
        let end_at = request.duration.map(|duration| monotonic_ns.saturating_add(duration.0));
        let now = loop {
            std::thread::sleep(POLL);
            let now = clock(ClockId::Monotonic);
            if end_at.is_some_and(|end| now >= end) || stop() {
                break end_at.map_or(now, |end| end.min(now));
            }
            state.round(&mut rings, now, (&sums, sink));
            sink.round(&state.view(now, &sums)).map_err(HostError::Sink)?;
        };
        let busy = Ns(proc::busy().saturating_sub(busy_before));
        for ring in &mut rings {
            ring.disable().map_err(HostError::io("ending the recording"))?;
        }
        state.round(&mut rings, now, (&sums, sink));
        state.look_at_noted(u64::MAX, &sums, sink);
        sink.over(&state.view(now, &sums));
        Ok(state.end(now, busy, cpu_before))
    }
}

/// The records of one CPU.
struct Cpu {
    packer: Packer,
    decoder: Decoder,
    packs: Packs,
}

/// What is looked at when it comes.
enum Noted {
    Event(RawEvent),
    Told(Told),
}

impl Noted {
    fn at(&self) -> u64 {
        match self {
            Noted::Event(event) => event.at,
            Noted::Told(told) => told.at,
        }
    }
}

struct State {
    origin: u64,
    cpus: Vec<Cpu>,
    tasks: Tasks,
    kept: KeptTasks,
    groups: Vec<GroupFacts>,
    keep: u64,
    memory: usize,
    bytes: usize,
    short: bool,
    /// What a hypervisor took: `None` on a machine of its own.
    steal: Option<Vec<(CpuId, u64)>>,
    stolen: VecDeque<super::kept::Stolen>,
    stolen_all: Ns,
    closed: u64,
    noted: Vec<Noted>,
    events: u64,
    lost: u64,
    /// All tasks that are there were told of.
    began: bool,
}

impl State {
    fn new(
        origin: u64,
        cpus: usize,
        tasks: Tasks,
        (keep, memory): (Ns, usize),
        virtual_machine: bool,
    ) -> State {
        let cpu =
            |_| Cpu { packer: Packer::new(), decoder: Decoder::default(), packs: Packs::new() };
        State {
            origin,
            cpus: (0..cpus).map(cpu).collect(),
            tasks,
            kept: KeptTasks::default(),
            groups: Vec::new(),
            keep: keep.0,
            memory,
            bytes: 0,
            short: false,
            steal: virtual_machine.then(proc::steal),
            stolen: VecDeque::new(),
            stolen_all: Ns::ZERO,
            closed: origin,
            noted: Vec::new(),
            events: 0,
            lost: 0,
            began: false,
        }
    }

    fn view<'a>(&'a self, now: u64, sums: &'a KernelSums) -> View<'a> {
        let now = Ns(now.saturating_sub(self.origin));
        View { now, events: self.events, lost: self.lost, state: self, sums }
    }

    fn end(&self, now: u64, busy: Ns, cpu_before: u64) -> RecordEnd {
        RecordEnd {
            duration: Ns(now.saturating_sub(self.origin)),
            events: self.events,
            lost: self.lost,
            facts: 0,
            facts_lost: 0,
            recorder_cpu: Ns(clock(ClockId::ThreadCPUTime).saturating_sub(cpu_before)),
            stolen: self.stolen_all,
            busy,
            sched_ext: sched_ext::here(),
            exit: None,
            command_pid: None,
        }
    }

    /// Takes what is in the rings.
    fn round(
        &mut self,
        rings: &mut [bpf::BpfRing],
        now: u64,
        (sums, sink): (&KernelSums, &mut dyn InKernelSink),
    ) {
        for ring in rings {
            let Some(cpu) = self.cpus.get_mut(ring.cpu()) else { continue };
            let (noted, bytes, origin) = (&mut self.noted, &mut self.bytes, self.origin);
            let mut events = 0;
            let Cpu { packer, decoder, packs } = cpu;
            let lost = ring.drain_records(|words| {
                if words[0] < origin {
                    return;
                }
                match kind_of(words) {
                    // Switches, wakeups and migrations are kept, and that is all. The system call
                    // in which a task blocks is an event of its own.
                    1 => events += u64::from(words[3] >> 32 != 0),
                    2 | 6 => {}
                    TOLD => return noted.push(Noted::Told(Told::read(words))),
                    _ => noted.extend(decoder.record(words).map(Noted::Event)),
                }
                events += 1;
                if let Some(pack) = packer.push(words) {
                    keep(pack, packs, bytes);
                }
            });
            self.events += events;
            if lost > 0 {
                self.lost += lost;
                if let Some(pack) = packer.lost(lost) {
                    keep(pack, packs, bytes);
                }
            }
        }
        self.look_at_noted(now.saturating_sub(STILL), sums, sink);
        self.see_steal(now);
        self.tasks.forget(Ns(now.saturating_sub(self.origin)));
        if now.saturating_sub(self.closed) >= CLOSED_AFTER {
            self.closed = now;
            self.drop_old(now.saturating_sub(self.keep));
        }
    }

    /// In the order of time, as far as nothing older can come: what is younger waits for the next
    /// look.
    fn look_at_noted(&mut self, until: u64, sums: &KernelSums, sink: &mut dyn InKernelSink) {
        let mut noted = std::mem::take(&mut self.noted);
        // Of each CPU they are in order.
        noted.sort_by_key(Noted::at);
        self.noted = noted.split_off(noted.partition_point(|one| one.at() <= until));
        for one in noted {
            match one {
                Noted::Event(event) => self.happened(event, sums, sink),
                Noted::Told(told) => self.told(&told, sums, sink),
            }
        }
    }

    /// What is told of a task must be known before it is used.
    fn happened(&mut self, event: RawEvent, sums: &KernelSums, sink: &mut dyn InKernelSink) {
        let at = Ns(event.at.saturating_sub(self.origin));
        let task = |tasks: &mut Tasks, tid| tasks.find_or_add(tid, Hint::default());
        match event.kind {
            RawKind::New { tid, parent, comm } => {
                let parent = task(&mut self.tasks, parent);
                self.tasks.created(tid, Hint { comm, priority: None, parent });
                self.tell(sums, sink, Some((tid, event.at)));
            }
            RawKind::Comm { tid, comm } => {
                if let Some(id) = task(&mut self.tasks, tid) {
                    self.tasks.named(id, &comm);
                }
            }
            RawKind::Regroup { tid } => {
                let id = task(&mut self.tasks, tid);
                if let Some(group) = id.and_then(|id| self.tasks.regroup(id)) {
                    self.tell(sums, sink, None);
                    self.kept.moved(tid, event.at, group);
                }
            }
            RawKind::Exit { tid } => {
                let Some(id) = task(&mut self.tasks, tid) else { return };
                self.tell(sums, sink, None);
                self.tasks.ended(id, at);
                self.kept.ended(tid, event.at);
                sink.ended(id, at);
            }
            _ => {}
        }
        self.tell(sums, sink, None);
    }

    fn told(&mut self, told: &Told, sums: &KernelSums, sink: &mut dyn InKernelSink) {
        let Some(task) = self.tasks.find_or_add(told.tid, Hint::default()) else { return };
        self.tell(sums, sink, None);
        let Some(did) = Stretch::numbered(told.what) else {
            // Met for the first time by the kernel: what is known of it is said again.
            self.tasks.look_again(told.tid);
            return self.tell(sums, sink, None);
        };
        let time = |at: u64| Ns(at.saturating_sub(self.origin));
        let (from, to, throttled) = (time(told.since), time(told.at), Ns(told.throttled));
        sink.stretch(&LongStretch { task, did, from, to, throttled });
    }

    /// Hands on what is new of tasks and groups, and says in the kernel what is counted of them.
    fn tell(&mut self, sums: &KernelSums, sink: &mut dyn InKernelSink, born: Option<(u32, u64)>) {
        if !self.tasks.has_fresh() {
            return;
        }
        let fresh = self.tasks.fresh();
        for group in self.tasks.fresh_groups() {
            sink.group(group);
            self.groups.push(group.clone());
        }
        for task in fresh {
            let watch = sink.task(&task);
            sums.watch(task.tid, &watch, !self.began);
            let born = born.filter(|(tid, _)| *tid == task.tid).map(|(_, at)| at);
            self.kept.told(&task, born);
        }
        self.began = true;
    }

    fn see_steal(&mut self, now: u64) {
        let Some(before) = &mut self.steal else { return };
        let steal = proc::steal();
        for (&(cpu, after), &(other, before)) in steal.iter().zip(&*before) {
            if cpu == other && after > before {
                let ns = Ns(after - before);
                self.stolen_all = self.stolen_all.saturating_add(ns);
                self.stolen.push_back((now, cpu, ns));
                self.events += 1;
            }
        }
        *before = steal;
    }

    /// Closes the packs, and drops those before `oldest` and those for which there is no room.
    fn drop_old(&mut self, oldest: u64) {
        for Cpu { packer, packs, .. } in &mut self.cpus {
            if let Some(pack) = packer.close() {
                keep(pack, packs, &mut self.bytes);
            }
            while let Some(pack) = packs.pop_front_if(|pack| pack.last() < oldest) {
                self.bytes -= pack.bytes();
            }
        }
        while self.bytes > self.memory {
            let first = |cpu: &&mut Cpu| cpu.packs.front().map_or(u64::MAX, |pack| pack.last());
            let Some(cpu) = self.cpus.iter_mut().min_by_key(first) else { break };
            let Some(pack) = cpu.packs.pop_front() else { break };
            self.bytes -= pack.bytes();
            self.short = true;
        }
        while self.stolen.front().is_some_and(|(at, ..)| *at < oldest) {
            self.stolen.pop_front();
        }
        self.kept.begin_at(oldest);
    }

    /// Returns a copy; what is not packed yet is packed for it.
    fn kept(&self, now: Ns) -> KeptEvents {
        let packs = |cpu: &Cpu| {
            let mut packs = cpu.packs.clone();
            packs.extend(cpu.packer.so_far().map(Arc::new));
            packs
        };
        KeptEvents {
            origin: self.origin,
            end: self.origin.saturating_add(now.0),
            packs: self.cpus.iter().map(packs).collect(),
            tasks: self.kept.clone(),
            groups: self.groups.clone(),
            stolen: self.stolen.iter().copied().collect(),
            short: self.short,
        }
    }
}

fn keep(pack: Pack, packs: &mut Packs, bytes: &mut usize) {
    *bytes += pack.bytes();
    packs.push_back(Arc::new(pack));
}
