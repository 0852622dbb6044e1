//! Decoded events → the events, tasks and header of a recording.
//!
//! Whatever the source, this decides which task a number represents, which task woke another, which
//! of `sched_waking` and `sched_wakeup` counts, and what the source was able to see.

use super::collect::{Collector, Settled};
use super::event::{Context, Event, Name, Running, Stamp, Who};
use super::shown::{Has, Marks, is_of_vcpu};
use super::tids::Tids;
use super::{ImportOptions, Purpose, Summary};
use crate::{Capabilities, Capability, Header, TaskInfo, TraceError};
use schedlab_model::{
    CpuId, EventKind, MAX_CPUS, Nice, Ns, Policy, PrevState, SchedEvent, TaskId, Topology, Waker,
};
use std::collections::{BTreeMap, BTreeSet};

/// Names longer than this are cut (the kernel's limit is 15 bytes; other systems have longer ones).
const COMM_MAX: usize = 64;

/// Scheduling events of a text after which what it has shown of itself counts as all that it shows:
/// its header is behind, and its lines have the same columns (a choice: a few pages).
const BEGINNING: u32 = 1_000;
/// Backends of texts.
const TEXTS: [&str; 4] = ["perf-script", "ftrace", "lttng", "perf-timehist"];

/// A task as the stream shows it.
#[derive(Default)]
struct Seen {
    /// A `sched_waking` of it has come, and it has not run since: its `sched_wakeup` says nothing
    /// new.
    waking: bool,
    /// It was named by an event, and not only as the task that was running.
    named: bool,
}

/// The task on a CPU, as the switches tell it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnCpu {
    Unknown,
    Idle,
    Task(TaskId),
}

pub(super) struct Builder<'o> {
    options: ImportOptions,
    ids: Tids,
    tasks: Vec<TaskInfo>,
    seen: Vec<Seen>,
    on_cpu: Vec<OnCpu>,
    collector: Collector<'o>,
    summary: Summary,
    cpus: u32,
    has: Has,
    marks: Marks,
    /// What the source says about the machine.
    pub(super) source: Source,
    /// Process and name of threads, from a process list.
    processes: BTreeMap<u32, (u32, String)>,
    /// Threads that entered or left a guest of KVM.
    vcpus: BTreeSet<u32>,
    /// The column of the running task is none of thread ids of this machine: a switch named another
    /// task. `perf script -F comm,pid` has process ids there, perf in a container the ids of its
    /// namespace.
    foreign_ids: bool,
    /// Scheduling events so far, up to [`BEGINNING`].
    begun: u32,
}

/// What a source says about itself, beside its events.
#[derive(Default)]
pub(super) struct Source {
    /// `perf-script`, `ftrace`, `perfetto`, `perf-data`, `lttng`.
    pub(super) backend: &'static str,
    /// Which clock the times are of.
    pub(super) clock: &'static str,
    /// The kernel's release.
    pub(super) kernel: String,
    pub(super) hostname: String,
    /// The command that recorded, such as `perf record -a -e sched:*`.
    pub(super) command: String,
    /// The recorder was told to record one program only.
    pub(super) own_only: bool,
}

impl<'o> Builder<'o> {
    /// Returns a builder whose events go to `collector`.
    pub(super) fn new(options: ImportOptions, collector: Collector<'o>) -> Builder<'o> {
        Builder {
            options,
            ids: Tids::default(),
            tasks: Vec::new(),
            seen: Vec::new(),
            on_cpu: Vec::new(),
            collector,
            summary: Summary::default(),
            cpus: 0,
            has: Has::default(),
            marks: Marks::default(),
            source: Source::default(),
            processes: BTreeMap::new(),
            vcpus: BTreeSet::new(),
            foreign_ids: false,
            begun: 0,
        }
    }

    pub(super) fn options(&self) -> &ImportOptions {
        &self.options
    }

    /// What is told about the import, beside the recording.
    pub(super) fn summary(&mut self) -> &mut Summary {
        &mut self.summary
    }

    /// The machine has at least so many CPUs.
    pub(super) fn at_least_cpus(&mut self, cpus: u32) {
        self.cpus = self.cpus.max(cpus.min(MAX_CPUS as u32));
    }

    /// What a process list says about a thread; used for threads that events name, whatever their
    /// order.
    pub(super) fn describe(&mut self, tid: u32, pid: u32, comm: &str) {
        self.processes.insert(tid, (pid, comm.chars().take(COMM_MAX).collect()));
    }

    /// Events of a CPU are missing since the last one that was seen of it.
    pub(super) fn lost_since_last(&mut self, cpu: u32, count: u64) -> Result<(), TraceError> {
        if cpu as usize >= MAX_CPUS {
            return Ok(());
        }
        let at = self.collector.last_on(cpu);
        self.lost(at, cpu, count)
    }

    /// Returns whether nothing that is still to be read is wanted.
    pub(super) fn is_over(&self) -> bool {
        self.collector.is_over(self.cpus)
    }

    fn lost(&mut self, at: Ns, cpu: u32, count: u64) -> Result<(), TraceError> {
        if self.collector.is_past(at, cpu) {
            return Ok(());
        }
        self.at_least_cpus(cpu + 1);
        *self.slot(cpu) = OnCpu::Unknown;
        self.summary.lose(cpu, count, at);
        self.collector
            .push(SchedEvent { at, cpu: CpuId(cpu), kind: EventKind::Lost { count } }, None)
    }

    /// One event.
    pub(super) fn event(&mut self, stamp: &Stamp<'_>, event: &Event<'_>) -> Result<(), TraceError> {
        match *event {
            // What is left out changes nothing: not the window, not the CPUs, not the tasks.
            Event::Other(name) => {
                if is_of_vcpu(name) {
                    self.vcpus.extend(stamp.running.tid.filter(|_| !self.foreign_ids));
                }
                self.summary.ignore(name);
                return Ok(());
            }
            _ if self.collector.is_past(stamp.at, stamp.cpu) => return Ok(()),
            Event::Mark(text) => return self.mark(stamp, text),
            _ => {}
        }
        self.at_least_cpus(stamp.cpu + 1);
        self.has.flags |= stamp.context != Context::NotShown;
        self.summary.end_of_loss(stamp.cpu, stamp.at);
        if self.begun < BEGINNING {
            self.begun += 1;
            if self.begun == BEGINNING {
                self.check_purpose()?;
            }
        }
        match *event {
            Event::Switch { prev, state, next } => self.switch(stamp, prev, state, next),
            Event::Waking(who) => self.wake(stamp, who, true),
            Event::Wakeup(who) => self.wake(stamp, who, false),
            Event::WakeupNew(who) => self.new_task(stamp, who),
            Event::Migrate { task, from, to } => {
                self.has.migrate = true;
                self.at_least_cpus(from.max(to) + 1);
                let (from, to) = (CpuId(from), CpuId(to));
                self.of_task(stamp, task, |task| EventKind::Migrate { task, from, to })
            }
            Event::Fork { child } => self.fork(stamp, child),
            Event::Exit(who) => {
                self.has.exit = true;
                self.of_task(stamp, who, |task| EventKind::Exit { task })
            }
            Event::Exec { tid } => {
                let who = Who { comm: stamp.running.comm, tid, prio: None };
                self.of_task(stamp, who, |task| EventKind::Exec { task })
            }
            Event::SyscallEnter { number } => {
                self.has.syscalls = true;
                self.of_running(stamp, |task| EventKind::SyscallEnter { task, number })
            }
            Event::SyscallExit => self.of_running(stamp, |task| EventKind::SyscallExit { task }),
            Event::Lost { count } => self.lost(stamp.at, stamp.cpu, count),
            Event::Mark(_) | Event::Other(_) => Ok(()),
        }
    }

    /// Refuses a text whose beginning shows that it cannot be replayed. (Binary traces have both in
    /// each event, and the kernel's name anywhere.)
    fn check_purpose(&self) -> Result<(), TraceError> {
        if self.options.purpose == Purpose::Any || !TEXTS.contains(&self.source.backend) {
            return Ok(());
        }
        let wakers = [Capability::Waker, Capability::IrqContext];
        let shows = |capability| match &self.marks.sees {
            Some(sees) => sees.has(capability),
            None => self.has.flags || self.options.current_is_waker,
        };
        let missing: Vec<&str> = wakers
            .into_iter()
            .filter(|capability| !shows(*capability))
            .map(Capability::name)
            .collect();
        if !missing.is_empty() {
            let backend = self.source.backend.to_owned();
            return Err(TraceError::Lacks { analysis: crate::replay::NAME, missing, backend });
        }
        if self.options.purpose == Purpose::ReplayOfKernel && self.source.kernel.is_empty() {
            return Err(TraceError::NoKernel);
        }
        Ok(())
    }

    /// A mark of schedlab's own. Unknown ones come from a later version and are counted as left
    /// out.
    fn mark(&mut self, stamp: &Stamp<'_>, text: &str) -> Result<(), TraceError> {
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        let value =
            |key: &str| rest.split(' ').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        let number =
            |key: &str| value(key).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        let who = Who { comm: Name::default(), tid: number("pid") as u32, prio: None };
        match name {
            "begin" => {
                let cpus = number("cpus");
                if cpus > MAX_CPUS as u64 {
                    let what = format!(
                        "the text claims {cpus} CPUs; {MAX_CPUS} are the most that are supported"
                    );
                    return Err(TraceError::Option(what));
                }
                self.at_least_cpus(cpus as u32);
                self.marks.hz = Some(number("hz") as u32);
                let sees =
                    value("sees").unwrap_or_default().split(',').filter(|name| !name.is_empty());
                self.marks.sees = Some(Capabilities(sees.map(str::to_owned).collect()));
                self.collector.window(stamp.at)
            }
            "end" => self.collector.window(stamp.at),
            "inline-softirq" => {
                self.marks.inline.insert(stamp.cpu);
                Ok(())
            }
            "throttle" => self.of_task(stamp, who, |task| EventKind::Throttle { task }),
            "unthrottle" => self.of_task(stamp, who, |task| EventKind::Unthrottle { task }),
            "steal" => self.push(stamp, EventKind::Steal { ns: Ns(number("ns")) }, None),
            "lost" => self.lost(stamp.at, stamp.cpu, number("count")),
            other => {
                self.summary.ignore(&format!("{}{other}", crate::export::MARK));
                Ok(())
            }
        }
    }

    fn push(
        &mut self,
        stamp: &Stamp<'_>,
        kind: EventKind,
        running: Option<TaskId>,
    ) -> Result<(), TraceError> {
        self.at_least_cpus(stamp.cpu + 1);
        self.collector.push(SchedEvent { at: stamp.at, cpu: CpuId(stamp.cpu), kind }, running)
    }

    fn of_task(
        &mut self,
        stamp: &Stamp<'_>,
        who: Who<'_>,
        kind: impl Fn(TaskId) -> EventKind,
    ) -> Result<(), TraceError> {
        let running = self.running(stamp);
        match self.task(who) {
            Some(task) => self.push(stamp, kind(task), running),
            None => Ok(()),
        }
    }

    fn of_running(
        &mut self,
        stamp: &Stamp<'_>,
        kind: impl Fn(TaskId) -> EventKind,
    ) -> Result<(), TraceError> {
        match self.running(stamp) {
            Some(task) => self.push(stamp, kind(task), Some(task)),
            None => Ok(()),
        }
    }

    fn slot(&mut self, cpu: u32) -> &mut OnCpu {
        let cpu = cpu as usize;
        if cpu >= self.on_cpu.len() {
            self.on_cpu.resize(cpu + 1, OnCpu::Unknown);
        }
        &mut self.on_cpu[cpu]
    }

    /// The id of a task that an event names; `None` for the idle task.
    fn task(&mut self, who: Who<'_>) -> Option<TaskId> {
        if who.tid == 0 {
            return None;
        }
        let id = match self.ids.get(who.tid) {
            Some(id) => id,
            None => self.fresh(who.tid),
        };
        self.seen[id.index()].named = true;
        let info = &mut self.tasks[id.index()];
        rename(info, who.comm);
        if let Some(prio) = who.prio {
            (info.policy, info.nice) = policy_of(prio);
        }
        Some(id)
    }

    fn fresh(&mut self, tid: u32) -> TaskId {
        let id = TaskId::from(self.tasks.len());
        self.tasks.push(TaskInfo::unknown(tid, tid, "?"));
        self.seen.push(Seen::default());
        self.ids.insert(tid, id);
        id
    }

    /// The task that was running. Switches decide where a source's own word cannot be right: perf
    /// prints -1 for a task that is gone, and the numbers of another pid namespace for threads of a
    /// container.
    fn running(&mut self, stamp: &Stamp<'_>) -> Option<TaskId> {
        let Running { comm, tid, pid } = stamp.running;
        let on_cpu = *self.slot(stamp.cpu);
        let by_switch = match on_cpu {
            OnCpu::Task(task) => Some(task),
            OnCpu::Idle | OnCpu::Unknown => None,
        };
        let Some(tid) = tid.filter(|_| !self.foreign_ids) else { return by_switch };
        if tid == 0 {
            return None;
        }
        let is_called = |tasks: &[TaskInfo], task: TaskId| comm.is(&tasks[task.index()].comm);
        if let Some(known) = self.ids.get(tid)
            && (self.seen[known.index()].named || by_switch.is_none())
        {
            let other = by_switch.filter(|&task| task != known);
            // The number is another task's: it comes from a pid namespace.
            let foreign = other
                .is_some_and(|task| is_called(&self.tasks, task) && !is_called(&self.tasks, known));
            let task = if foreign { other.unwrap_or(known) } else { known };
            if let (Some(pid), false) = (pid, foreign) {
                self.tasks[task.index()].pid = pid;
            }
            return Some(task);
        }
        if let Some(task) = by_switch.filter(|&task| is_called(&self.tasks, task)) {
            return Some(task);
        }
        let id = match self.ids.get(tid) {
            Some(id) => id,
            None => self.fresh(tid),
        };
        let info = &mut self.tasks[id.index()];
        rename(info, comm);
        info.pid = pid.unwrap_or(info.pid);
        Some(id)
    }

    fn switch(
        &mut self,
        stamp: &Stamp<'_>,
        prev: Who<'_>,
        state: PrevState,
        next: Who<'_>,
    ) -> Result<(), TraceError> {
        self.has.switch = true;
        self.has.blocked |= state == PrevState::Blocked;
        self.foreign_ids |= stamp.running.tid.is_some_and(|tid| tid != prev.tid);
        let (prev_id, next_id) = (self.task(prev), self.task(next));
        if let (Some(task), Some(pid)) =
            (prev_id, stamp.running.pid.filter(|_| stamp.running.tid == Some(prev.tid)))
        {
            self.tasks[task.index()].pid = pid;
        }
        for task in [prev_id, next_id].into_iter().flatten() {
            self.seen[task.index()].waking = false;
        }
        *self.slot(stamp.cpu) = next_id.map_or(OnCpu::Idle, OnCpu::Task);
        self.push(
            stamp,
            EventKind::Switch { prev: prev_id, prev_state: state, next: next_id },
            prev_id,
        )?;
        if state == PrevState::Dead {
            // The kernel may give the number to a new task.
            self.ids.remove(prev.tid);
        }
        Ok(())
    }

    fn wake(&mut self, stamp: &Stamp<'_>, who: Who<'_>, waking: bool) -> Result<(), TraceError> {
        let running = self.running(stamp);
        let waker = self.waker(stamp, running);
        let Some(task) = self.task(who) else { return Ok(()) };
        let seen = &mut self.seen[task.index()];
        // `sched_wakeup` follows `sched_waking` where both are recorded; the first of them counts.
        if !waking && seen.waking {
            seen.waking = false;
            return Ok(());
        }
        seen.waking = waking;
        self.has.wakes = true;
        self.push(stamp, EventKind::Wake { task, waker }, running)
    }

    fn waker(&mut self, stamp: &Stamp<'_>, running: Option<TaskId>) -> Waker {
        match (stamp.context, running) {
            (Context::SoftIrq, Some(task)) if self.marks.inline.remove(&stamp.cpu) => {
                Waker::InlineSoftirq(task)
            }
            (Context::HardIrq, _) => Waker::HardIrq,
            (Context::SoftIrq, _) => Waker::SoftIrq,
            (_, None) if stamp.running.tid.is_none() => Waker::Unknown,
            // Only interrupts wake tasks while a CPU idles.
            (_, None) => Waker::HardIrq,
            (Context::Task, Some(task)) => Waker::Task(task),
            (Context::NotShown, Some(task)) if self.options.current_is_waker => Waker::Task(task),
            (Context::NotShown, Some(_)) => Waker::Unknown,
        }
    }

    fn new_task(&mut self, stamp: &Stamp<'_>, who: Who<'_>) -> Result<(), TraceError> {
        let parent = self.running(stamp);
        let known = self.ids.get(who.tid).is_some_and(|task| self.seen[task.index()].named);
        match self.task(who) {
            Some(task) if !(known && self.has.fork) => {
                self.push(stamp, EventKind::New { task, parent }, parent)
            }
            _ => Ok(()),
        }
    }

    fn fork(&mut self, stamp: &Stamp<'_>, child: Who<'_>) -> Result<(), TraceError> {
        self.has.fork = true;
        let parent = self.running(stamp);
        // A number that is used again names a new task.
        self.ids.remove(child.tid);
        match self.task(child) {
            Some(task) => self.push(stamp, EventKind::New { task, parent }, parent),
            None => Ok(()),
        }
    }

    /// Ends the stream and returns the header of the recording, and what was told about the import.
    pub(super) fn finish(mut self) -> Result<(Header, Ns, Summary), TraceError> {
        if !self.has.switch {
            return Err(self.no_switches());
        }
        let own_only = self.source.own_only;
        let Settled { start, duration, own_only } = self.collector.finish(own_only)?;
        for task in &mut self.tasks {
            task.vcpu = self.vcpus.contains(&task.tid);
            if let Some((pid, comm)) = self.processes.get(&task.tid) {
                task.pid = *pid;
                if task.comm == "?" {
                    task.comm.clone_from(comm);
                }
            }
        }
        if own_only {
            self.summary.note(
                "The events are those of one program: what else ran on the machine, and when CPUs \
                 idled, is unknown \
                 (record with `perf record -a` for the whole machine, without -F and -c, which \
                 record some events only).",
            );
        }
        let capabilities = self.capabilities(own_only);
        let mut note = format!("Imported from {}.", self.source.backend);
        if self.options.current_is_waker {
            note += " The task that was running counts as the waker, also where an interrupt woke.";
        }
        let header = Header {
            backend: self.source.backend.to_owned(),
            kernel: self.source.kernel,
            machine: self.source.hostname,
            hz: self.marks.hz.unwrap_or(0),
            topology: Topology::flat(self.cpus.max(1) as usize),
            clock: self.source.clock.to_owned(),
            clock_start_ns: start.0,
            capabilities,
            note,
            tasks: self.tasks,
            ..Header::default()
        };
        self.summary.losses_from(start);
        Ok((header, duration, self.summary))
    }

    fn capabilities(&mut self, own_only: bool) -> Capabilities {
        let has = &self.has;
        if let Some(mut sees) = self.marks.sees.take() {
            // Perfetto traces do not carry system calls.
            let calls = [Capability::Syscalls.name(), Capability::BlockingSyscalls.name()];
            sees.0.retain(|name| has.syscalls || !calls.contains(&name.as_str()));
            return sees;
        }
        let with = |there: bool, list: &'static [Capability]| if there { list } else { &[] };
        let wakers = has.wakes && (has.flags || self.options.current_is_waker);
        let lists = [
            with(true, &[Capability::Preempted]),
            with(!has.blocked, &[Capability::PrevState]),
            with(!own_only, &[Capability::AllTasks]),
            // Another program's wakeups of this one were not recorded.
            with(has.wakes && !own_only, &[Capability::WakeTimes]),
            with(wakers && !own_only, &[Capability::Waker, Capability::IrqContext]),
            with(has.migrate, &[Capability::Migrations]),
            with(has.fork && has.exit, &[Capability::Lifecycle]),
            with(has.syscalls, &[Capability::Syscalls]),
        ];
        Capabilities::from_list(lists.into_iter().flatten().copied())
    }

    fn no_switches(&self) -> TraceError {
        let (what, record) = match self.source.backend {
            "perfetto" => (
                "trace",
                "record with the data source linux.ftrace and ftrace_events sched/sched_switch, \
                 sched/sched_waking",
            ),
            "ftrace" => (
                "text",
                "record with `trace-cmd record -e sched_switch -e sched_waking -- COMMAND` and \
                 pass the output of \
                 `trace-cmd report`",
            ),
            "lttng" => ("text", "enable the kernel events sched_switch and sched_waking"),
            "perf-data" => (
                "file",
                "record with `perf record -a -e sched:sched_switch,sched:sched_waking -- COMMAND`",
            ),
            _ => (
                "text",
                "record with `perf record -a -e sched:sched_switch,sched:sched_waking -- COMMAND` \
                 and pass the output \
                 of `perf script`",
            ),
        };
        let first = self.summary.odd.first.first().or(self.summary.damaged.first.first());
        let odd = first.map_or(String::new(), |odd| format!(" (line {}: {})", odd.line, odd.why));
        TraceError::Option(format!("the {what} has no sched_switch events{odd}: {record}"))
    }
}

/// A task is called so now, as far as the source knows.
#[inline]
fn rename(task: &mut TaskInfo, comm: Name<'_>) {
    if comm.is_told() && !comm.is(&task.comm) {
        task.comm = comm.text().chars().take(COMM_MAX).collect();
    }
}

/// The kernel's internal priority: 100 to 139 are nice -20 to 19, below are the real-time classes.
/// FIFO and RR look alike here, and so do the parameters of deadline tasks (-1), which become the
/// highest FIFO.
fn policy_of(prio: i32) -> (Policy, Nice) {
    match prio {
        100..=139 => (Policy::Other, Nice::new((prio - 120) as i8).unwrap_or_default()),
        0..=98 => (Policy::Fifo((99 - prio) as u8), Nice::ZERO),
        -1 => (Policy::Fifo(99), Nice::ZERO),
        _ => (Policy::Other, Nice::ZERO),
    }
}
