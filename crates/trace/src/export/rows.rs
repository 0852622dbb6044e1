//! One walk over a recording for all exports.

use super::Exported;
use crate::{Capability, Recording, TaskInfo};
use schedlab_model::{CpuId, EventKind, Policy, PrevState, SchedEvent, TaskId, Waker};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The mark of lines that only schedlab understands, written the way a program writes
/// `trace_marker`.
pub(crate) const MARK: &str = "schedlab: ";

/// A task as trace formats name it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Named<'a> {
    pub(super) comm: Cow<'a, str>,
    pub(super) tid: u32,
    /// Process id; 0 for the idle task.
    pub(super) pid: u32,
    pub(super) prio: i32,
}

impl<'a> Row<'a> {
    /// Every task that the row names.
    pub(super) fn named(&mut self) -> impl Iterator<Item = &mut Named<'a>> {
        let (one, other) = match &mut self.what {
            What::Switch { prev, next, .. } => (Some(prev), Some(next)),
            What::Waking { task, .. } | What::Migrate { task, .. } => (Some(task), None),
            What::Fork { child } => (Some(child), None),
            _ => (None, None),
        };
        std::iter::once(&mut self.running).chain(one).chain(other)
    }
}

/// In which context the event happened, where the recording knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Context {
    NotShown,
    Task,
    SoftIrq,
    HardIrq,
}

/// One event with its surroundings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row<'a> {
    /// On the recording's clock, nanoseconds.
    pub(super) at: u64,
    pub(super) cpu: u32,
    /// Who was running.
    pub(super) running: Named<'a>,
    pub(super) context: Context,
    pub(super) what: What<'a>,
}

/// What Linux's own events can say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What<'a> {
    Switch {
        prev: Named<'a>,
        state: PrevState,
        next: Named<'a>,
    },
    Waking {
        task: Named<'a>,
        target: u32,
    },
    Fork {
        child: Named<'a>,
    },
    Exec,
    Exit,
    Migrate {
        task: Named<'a>,
        from: u32,
        to: u32,
    },
    Lost(u64),
    SyscallEnter(u32),
    SyscallExit(u32),
    /// Everything else, as text behind [`MARK`].
    Mark(String),
}

const IDLE: Named<'static> = Named { comm: Cow::Borrowed("swapper"), tid: 0, pid: 0, prio: 120 };

/// The kernel's internal priority.
fn prio(task: &TaskInfo) -> i32 {
    match task.policy {
        Policy::Fifo(priority) | Policy::Rr(priority) => 99 - i32::from(priority),
        Policy::Deadline { .. } => -1,
        _ => 120 + i32::from(task.nice.get()),
    }
}

/// Control characters would break lines.
fn clean(name: &str) -> Cow<'_, str> {
    if name.chars().any(char::is_control) {
        Cow::Owned(name.chars().map(|c| if c.is_control() { '?' } else { c }).collect())
    } else {
        Cow::Borrowed(name)
    }
}

struct Walk<'a> {
    names: Vec<Named<'a>>,
    /// Who runs on each CPU.
    current: Vec<Option<TaskId>>,
    /// Where each task ran last.
    last_cpu: Vec<u32>,
    /// The system call that each task is in.
    call: BTreeMap<TaskId, u32>,
    context: bool,
    start: u64,
    exported: Exported,
}

/// Calls `each` for every event in order. What no trace format can say is counted.
pub(super) fn rows<'a>(
    recording: &'a Recording,
    each: &mut dyn FnMut(Row<'a>) -> std::io::Result<()>,
) -> std::io::Result<Exported> {
    let header = &recording.header;
    let name = |task: &'a TaskInfo| Named {
        comm: clean(&task.comm),
        tid: task.tid,
        pid: task.pid,
        prio: prio(task),
    };
    let mut walk = Walk {
        names: header.tasks.iter().map(name).collect(),
        current: first_tasks(recording),
        last_cpu: vec![0; header.tasks.len()],
        call: BTreeMap::new(),
        context: header.capabilities.has(Capability::IrqContext),
        start: header.clock_start_ns,
        exported: Exported::default(),
    };
    let capabilities: Vec<&str> = header.capabilities.0.iter().map(String::as_str).collect();
    let begin = format!(
        "begin cpus={} hz={} sees={}",
        header.topology.cpus(),
        header.hz,
        capabilities.join(",")
    );
    each(walk.mark(0, begin))?;
    for event in &recording.events {
        walk.event(event, each)?;
    }
    each(walk.mark(recording.duration.0, "end".to_owned()))?;
    Ok(walk.exported)
}

/// Who ran on each CPU before its first switch.
fn first_tasks(recording: &Recording) -> Vec<Option<TaskId>> {
    let mut first: Vec<Option<Option<TaskId>>> = vec![None; recording.header.topology.cpus()];
    for event in &recording.events {
        if let EventKind::Switch { prev, .. } = event.kind {
            first[event.cpu.index()].get_or_insert(prev);
        }
    }
    first.into_iter().map(Option::flatten).collect()
}

impl<'a> Walk<'a> {
    fn name(&self, task: Option<TaskId>) -> Named<'a> {
        task.map_or(IDLE, |task| self.names[task.index()].clone())
    }

    fn mark(&self, at: u64, text: String) -> Row<'a> {
        let at = self.start.saturating_add(at);
        Row { at, cpu: 0, running: IDLE, context: Context::NotShown, what: What::Mark(text) }
    }

    fn event(
        &mut self,
        event: &SchedEvent,
        each: &mut dyn FnMut(Row<'a>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let cpu = event.cpu;
        let mut running = self.current[cpu.index()];
        let mut context = if self.context { Context::Task } else { Context::NotShown };
        let mut mark = None;
        let what = match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                self.switch(cpu, prev, prev_state, next)
            }
            EventKind::Wake { task, waker } => {
                (running, context, mark) = self.waker(waker, running);
                self.exported.wakes += 1;
                What::Waking { task: self.name(Some(task)), target: self.last_cpu[task.index()] }
            }
            EventKind::New { task, parent } => {
                running = parent;
                What::Fork { child: self.name(Some(task)) }
            }
            EventKind::Exec { task } => {
                running = Some(task);
                What::Exec
            }
            EventKind::Exit { task } => {
                running = Some(task);
                What::Exit
            }
            EventKind::Migrate { task, from, to } => {
                What::Migrate { task: self.name(Some(task)), from: from.0, to: to.0 }
            }
            EventKind::Throttle { task } => {
                What::Mark(format!("throttle pid={}", self.name(Some(task)).tid))
            }
            EventKind::Unthrottle { task } => {
                What::Mark(format!("unthrottle pid={}", self.name(Some(task)).tid))
            }
            EventKind::Steal { ns } => What::Mark(format!("steal ns={}", ns.0)),
            EventKind::Lost { count } => What::Lost(count),
            EventKind::SyscallEnter { task, number } => {
                running = Some(task);
                self.call.insert(task, number);
                What::SyscallEnter(number)
            }
            EventKind::SyscallExit { task } => {
                running = Some(task);
                What::SyscallExit(self.call.remove(&task).unwrap_or(0))
            }
            _ => return self.leave_out(event),
        };
        let at = self.start.saturating_add(event.at.0);
        let running = self.name(running);
        if let Some(text) = mark {
            let what = What::Mark(text);
            each(Row {
                at,
                cpu: cpu.0,
                running: running.clone(),
                context: Context::NotShown,
                what,
            })?;
        }
        each(Row { at, cpu: cpu.0, running, context, what })
    }

    fn switch(
        &mut self,
        cpu: CpuId,
        prev: Option<TaskId>,
        state: PrevState,
        next: Option<TaskId>,
    ) -> What<'a> {
        self.exported.switches += 1;
        self.current[cpu.index()] = next;
        if let Some(next) = next {
            self.last_cpu[next.index()] = cpu.0;
        }
        What::Switch { prev: self.name(prev), state, next: self.name(next) }
    }

    /// Who is shown as running at a wakeup, in which context, and the mark before it.
    fn waker(
        &self,
        waker: Waker,
        running: Option<TaskId>,
    ) -> (Option<TaskId>, Context, Option<String>) {
        match waker {
            Waker::Task(by) => (Some(by), Context::Task, None),
            // Linux shows the softirq; on whose behalf it ran is schedlab's own finding.
            Waker::InlineSoftirq(by) => {
                (Some(by), Context::SoftIrq, Some("inline-softirq".to_owned()))
            }
            Waker::SoftIrq => (running, Context::SoftIrq, None),
            Waker::HardIrq => (running, Context::HardIrq, None),
            _ => (running, Context::NotShown, None),
        }
    }

    fn leave_out(&mut self, event: &SchedEvent) -> std::io::Result<()> {
        let name = match event.kind {
            EventKind::Regroup { .. } => "regroup",
            _ => "other",
        };
        *self.exported.left_out.entry(name).or_default() += 1;
        Ok(())
    }
}
