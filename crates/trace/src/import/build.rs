//! Lines → events, tasks and a header.

use super::line::{self, Context, Line, Who};
use super::{ImportOptions, Imported};
use crate::export::MARK;
use crate::{Capabilities, Capability, Header, Recording, TaskInfo, TraceError};
use schedlab_model::{CpuId, EventKind, Nice, Ns, Policy, SchedEvent, TaskId, Topology, Waker};
use std::collections::BTreeMap;

/// Names longer than this are cut (the kernel's limit is 15 bytes; others exist).
const COMM_MAX: usize = 64;

pub(super) struct Builder {
    options: ImportOptions,
    ids: BTreeMap<u32, TaskId>,
    tasks: Vec<TaskInfo>,
    events: Vec<SchedEvent>,
    /// `sched_wakeup` events, used only where no `sched_waking` was recorded.
    wakeups: Vec<SchedEvent>,
    ignored: BTreeMap<String, u64>,
    first: Option<Ns>,
    last: Ns,
    cpus: u32,
    has: Has,
    /// What schedlab itself wrote into the text about its recording.
    marks: Marks,
    /// Process and name of threads, from a process list.
    processes: BTreeMap<u32, (u32, String)>,
}

/// The contents of `schedlab:` marks (`export/rows.rs` writes them).
#[derive(Default)]
struct Marks {
    hz: Option<u32>,
    sees: Option<Capabilities>,
    /// CPUs whose next softirq wakeup was found to be a task's own doing.
    inline: std::collections::BTreeSet<u32>,
}

#[derive(Default)]
struct Has {
    switch: bool,
    waking: bool,
    flags: bool,
    migrate: bool,
    fork: bool,
    exit: bool,
    syscalls: bool,
}

impl Builder {
    pub(super) fn new(options: ImportOptions) -> Builder {
        Builder {
            options,
            ids: BTreeMap::new(),
            tasks: Vec::new(),
            events: Vec::new(),
            wakeups: Vec::new(),
            ignored: BTreeMap::new(),
            first: None,
            last: Ns::ZERO,
            cpus: 0,
            has: Has::default(),
            marks: Marks::default(),
            processes: BTreeMap::new(),
        }
    }

    pub(super) fn line(&mut self, text: &str) -> Result<(), String> {
        if let Some((cpu, count)) = lost_of_ftrace(text) {
            self.cpus = self.cpus.max(cpu.saturating_add(1));
            self.events.push(SchedEvent { at: self.last, cpu: CpuId(cpu), kind: EventKind::Lost { count } });
            return Ok(());
        }
        match line::split(text)? {
            Some(line) => self.event(&line),
            None => Ok(()),
        }
    }

    /// One event, from a line of text or from a trace that was decoded into the same shape.
    pub(super) fn event(&mut self, line: &Line) -> Result<(), String> {
        self.first = Some(self.first.map_or(line.at, |first| first.min(line.at)));
        self.last = self.last.max(line.at);
        self.cpus = self.cpus.max(line.cpu + 1);
        self.has.flags |= line.context != Context::NotShown;
        match line.event {
            "sched_switch" => self.switch(line)?,
            "sched_waking" => {
                self.has.waking = true;
                let event = self.wake(line)?;
                self.events.push(event);
            }
            "sched_wakeup" => {
                let event = self.wake(line)?;
                self.wakeups.push(event);
            }
            "sched_wakeup_new" => self.new_task(line)?,
            "sched_migrate_task" => self.migrate(line)?,
            "sched_process_fork" => self.fork(line)?,
            "sched_process_exit" => {
                self.has.exit = true;
                let who = subject(line)?;
                self.simple(line, who, |task| EventKind::Exit { task });
            }
            "sched_process_exec" => {
                let tid = line::number(line.fields, " pid=").ok_or_else(|| bad(line, "`pid=N`"))?;
                self.simple(line, Who { tid, ..running(line) }, |task| EventKind::Exec { task });
            }
            "PERF_RECORD_LOST" => {
                let count = line.fields.split_whitespace().filter_map(|w| w.parse().ok()).next().unwrap_or(1);
                self.push(line, EventKind::Lost { count });
            }
            "raw_syscalls:sys_enter" | "sys_enter" => {
                let number = line::number(line.fields, "NR ").ok_or_else(|| bad(line, "`NR N (…)`"))?;
                self.has.syscalls = true;
                self.simple(line, running(line), |task| EventKind::SyscallEnter { task, number });
            }
            "raw_syscalls:sys_exit" | "sys_exit" => {
                self.simple(line, running(line), |task| EventKind::SyscallExit { task });
            }
            "tracing_mark_write" | "print" if line.fields.starts_with(MARK) => self.mark(line)?,
            other => *self.ignored.entry(other.to_owned()).or_default() += 1,
        }
        Ok(())
    }

    /// A mark of schedlab's own. Unknown ones come from a later version and are counted as left out.
    fn mark(&mut self, line: &Line) -> Result<(), String> {
        let (name, rest) =
            line.fields[MARK.len()..].split_once(' ').unwrap_or((&line.fields[MARK.len()..], ""));
        let value = |key: &str| rest.split(' ').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        let number = |key: &str| {
            let number = value(key).and_then(|text| text.parse::<u64>().ok());
            number.ok_or_else(|| bad(line, &format!("`{MARK}{name} {key}=N`")))
        };
        let tid = || number("pid").map(|tid| Who { comm: "", tid: tid as u32, prio: None });
        match name {
            "begin" => {
                let cpus = number("cpus")?;
                if cpus > schedlab_model::MAX_CPUS as u64 {
                    return Err(format!("{cpus} CPUs are more than {}", schedlab_model::MAX_CPUS));
                }
                self.cpus = self.cpus.max(cpus as u32);
                self.marks.hz = Some(number("hz")? as u32);
                let sees = value("sees").unwrap_or_default().split(',').filter(|name| !name.is_empty());
                self.marks.sees = Some(Capabilities(sees.map(str::to_owned).collect()));
            }
            "end" => {}
            "inline-softirq" => drop(self.marks.inline.insert(line.cpu)),
            "throttle" => self.simple(line, tid()?, |task| EventKind::Throttle { task }),
            "unthrottle" => self.simple(line, tid()?, |task| EventKind::Unthrottle { task }),
            "steal" => self.push(line, EventKind::Steal { ns: Ns(number("ns")?) }),
            "lost" => self.push(line, EventKind::Lost { count: number("count")? }),
            other => *self.ignored.entry(format!("{MARK}{other}")).or_default() += 1,
        }
        Ok(())
    }

    fn push(&mut self, line: &Line, kind: EventKind) {
        self.events.push(SchedEvent { at: line.at, cpu: CpuId(line.cpu), kind });
    }

    fn simple(&mut self, line: &Line, who: Who, kind: impl Fn(TaskId) -> EventKind) {
        if let Some(task) = self.task(who) {
            self.push(line, kind(task));
        }
    }

    /// The id of a task; `None` for the idle task.
    fn task(&mut self, who: Who) -> Option<TaskId> {
        if who.tid == 0 {
            return None;
        }
        let id = match self.ids.get(&who.tid) {
            Some(&id) => id,
            None => self.fresh(who),
        };
        let info = &mut self.tasks[id.index()];
        if !who.comm.is_empty() && who.comm != "<...>" && info.comm != who.comm {
            info.comm = who.comm.chars().take(COMM_MAX).collect();
        }
        if let Some(prio) = who.prio {
            (info.policy, info.nice) = policy_of(prio);
        }
        Some(id)
    }

    fn fresh(&mut self, who: Who) -> TaskId {
        let id = TaskId::from(self.tasks.len());
        self.tasks.push(TaskInfo::unknown(who.tid, who.tid, "?"));
        self.ids.insert(who.tid, id);
        id
    }

    /// What a process list says about a thread; used for threads that events name, whatever their order.
    pub(super) fn describe(&mut self, tid: u32, pid: u32, comm: &str) {
        self.processes.insert(tid, (pid, comm.chars().take(COMM_MAX).collect()));
    }

    fn switch(&mut self, line: &Line) -> Result<(), String> {
        self.has.switch = true;
        let (prev, prev_state, next) = line::switch(line.fields)?;
        let (prev_id, next) = (self.task(prev), self.task(next));
        self.push(line, EventKind::Switch { prev: prev_id, prev_state, next });
        if prev_state == schedlab_model::PrevState::Dead {
            // The kernel may give the number to a new task.
            self.ids.remove(&prev.tid);
        }
        Ok(())
    }

    fn wake(&mut self, line: &Line) -> Result<SchedEvent, String> {
        let who = subject(line)?;
        let waker = self.waker(line);
        let task = self.task(who).ok_or_else(|| bad(line, "a task other than pid 0"))?;
        Ok(SchedEvent { at: line.at, cpu: CpuId(line.cpu), kind: EventKind::Wake { task, waker } })
    }

    fn waker(&mut self, line: &Line) -> Waker {
        let current = self.task(running(line));
        match (line.context, current) {
            (Context::SoftIrq, Some(task)) if self.marks.inline.remove(&line.cpu) => {
                Waker::InlineSoftirq(task)
            }
            (Context::HardIrq, _) => Waker::HardIrq,
            (Context::SoftIrq, _) => Waker::SoftIrq,
            // Nothing but interrupts wakes anybody while a CPU idles.
            (_, None) => Waker::HardIrq,
            (Context::Task, Some(task)) => Waker::Task(task),
            (Context::NotShown, Some(task)) if self.options.current_is_waker => Waker::Task(task),
            (Context::NotShown, Some(_)) => Waker::Unknown,
        }
    }

    fn new_task(&mut self, line: &Line) -> Result<(), String> {
        let who = subject(line)?;
        let parent = self.task(running(line));
        let known = self.ids.contains_key(&who.tid);
        if let Some(task) = self.task(who)
            && !(known && self.has.fork)
        {
            self.push(line, EventKind::New { task, parent });
        }
        Ok(())
    }

    fn migrate(&mut self, line: &Line) -> Result<(), String> {
        self.has.migrate = true;
        let who = subject(line)?;
        let cpu = |key| line::number(line.fields, key).filter(|&n| (n as usize) < schedlab_model::MAX_CPUS);
        let (Some(from), Some(to)) = (cpu(" orig_cpu="), cpu(" dest_cpu=")) else {
            return Err(bad(line, "`orig_cpu=N dest_cpu=N`"));
        };
        self.cpus = self.cpus.max(from + 1).max(to + 1);
        let (from, to) = (CpuId(from), CpuId(to));
        self.simple(line, who, |task| EventKind::Migrate { task, from, to });
        Ok(())
    }

    fn fork(&mut self, line: &Line) -> Result<(), String> {
        self.has.fork = true;
        let error = || bad(line, "`comm=C pid=N child_comm=C child_pid=N`");
        let comm = line::between(line.fields, " child_comm=", " child_pid=").ok_or_else(error)?;
        let tid = line::number(line.fields, " child_pid=").ok_or_else(error)?;
        let parent = self.task(running(line));
        // A number that is used again names a new task.
        self.ids.remove(&tid);
        self.simple(line, Who { comm, tid, prio: None }, |task| EventKind::New { task, parent });
        Ok(())
    }

    /// The recording. `backend` and `clock` describe where it comes from.
    pub(super) fn finish(mut self, backend: &str, clock: &str) -> Result<Imported, TraceError> {
        if !self.has.switch {
            return Err(TraceError::Option(format!(
                "the {} has no sched_switch events: {}",
                if backend == "perfetto" { "trace" } else { "text" },
                if backend == "perfetto" {
                    "record with the data source linux.ftrace and ftrace_events sched/sched_switch, \
                     sched/sched_waking"
                } else {
                    "record with `perf record -a -e sched:sched_switch,sched:sched_waking -- COMMAND` and pass the \
                     output of `perf script`"
                }
            )));
        }
        if !self.has.waking {
            self.events.append(&mut self.wakeups);
        }
        let first = self.first.unwrap_or_default();
        for event in &mut self.events {
            event.at = event.at.saturating_sub(first);
        }
        for task in &mut self.tasks {
            if let Some((pid, comm)) = self.processes.get(&task.tid) {
                task.pid = *pid;
                if task.comm == "?" {
                    task.comm.clone_from(comm);
                }
            }
        }
        let wakes = self.events.iter().any(|e| matches!(e.kind, EventKind::Wake { .. }));
        let with = |there: bool, list: &[Capability]| if there { list.to_vec() } else { Vec::new() };
        let capabilities = [
            vec![Capability::Preempted, Capability::PrevState, Capability::AllTasks],
            with(wakes, &[Capability::WakeTimes]),
            with(wakes && self.has.flags, &[Capability::Waker, Capability::IrqContext]),
            with(wakes && self.options.current_is_waker, &[Capability::Waker, Capability::IrqContext]),
            with(self.has.migrate, &[Capability::Migrations]),
            with(self.has.fork && self.has.exit, &[Capability::Lifecycle]),
            with(self.has.syscalls, &[Capability::Syscalls]),
        ];
        let mut capabilities = Capabilities::of(capabilities.into_iter().flatten());
        if let Some(mut sees) = self.marks.sees.take() {
            // Perfetto traces do not carry system calls.
            let calls = [Capability::Syscalls.name(), Capability::BlockingSyscalls.name()];
            sees.0.retain(|name| self.has.syscalls || !calls.contains(&name.as_str()));
            capabilities = sees;
        }
        let note = if self.options.current_is_waker {
            "Imported. The task that was running is taken for the waker, interrupts included."
        } else {
            "Imported."
        };
        let header = Header {
            backend: backend.to_owned(),
            hz: self.marks.hz.unwrap_or(0),
            topology: Topology::flat(self.cpus.max(1) as usize),
            clock: clock.to_owned(),
            clock_start_ns: first.0,
            capabilities,
            note: note.to_owned(),
            tasks: self.tasks,
            ..Header::default()
        };
        let duration = self.last.saturating_sub(first);
        let recording = Recording::from_parts(header, self.events, duration)?;
        Ok(Imported { recording, ignored: self.ignored })
    }
}

/// The task that was running when the event was written.
fn running<'a>(line: &Line<'a>) -> Who<'a> {
    Who { comm: line.comm, tid: line.tid, prio: None }
}

fn subject<'a>(line: &Line<'a>) -> Result<Who<'a>, String> {
    line::subject(line.fields).ok_or_else(|| bad(line, "`comm=C pid=N prio=N …` or `C:N [N] …`"))
}

fn bad(line: &Line, expected: &str) -> String {
    format!("fields of {} not understood: `{}`; expected {expected}", line.event, line.fields)
}

/// `CPU:3 [LOST 234 EVENTS]`, as ftrace prints it.
fn lost_of_ftrace(text: &str) -> Option<(u32, u64)> {
    let rest = text.trim().strip_prefix("CPU:")?;
    let (cpu, rest) = rest.split_once(" [LOST ")?;
    let cpu = cpu.trim().parse().ok().filter(|&cpu: &u32| (cpu as usize) < schedlab_model::MAX_CPUS)?;
    Some((cpu, rest.split_whitespace().next()?.parse().unwrap_or(1)))
}

/// The kernel's internal priority: 100 … 139 are nice −20 … 19, below are the real-time classes. FIFO and RR
/// look alike here, and so do the parameters of deadline tasks (−1), which become the highest FIFO.
fn policy_of(prio: i32) -> (Policy, Nice) {
    match prio {
        100..=139 => (Policy::Other, Nice::new((prio - 120) as i8).unwrap_or_default()),
        0..=98 => (Policy::Fifo((99 - prio) as u8), Nice::ZERO),
        -1 => (Policy::Fifo(99), Nice::ZERO),
        _ => (Policy::Other, Nice::ZERO),
    }
}
