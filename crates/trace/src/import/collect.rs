//! Events on their way into a recording: the first ones are held back until it is clear what kind
//! of stream they are, the rest goes on as it comes.
//!
//! Two things are decided by the held events: at which time the recording begins, and whether the
//! stream has the events of one program only (`perf record` without `-a`), where the switches *to*
//! its threads are missing.

use crate::TraceError;
use schedlab_model::{CpuId, EventKind, Ns, PrevState, SchedEvent, TaskId};
use std::collections::BTreeSet;

/// Events that are held back. Half a second of a busy machine.
const HELD: usize = 16 * 1024;

/// So many events may be older than the one before them on their CPU.
const BACKWARDS_FREE: u64 = 8;
/// Beyond those, one of so many.
const BACKWARDS_ONE_OF: u64 = 8;

/// A program's own events break at least one pair of switches of so many: those to its threads from
/// others are missing.
const OWN_ONE_OF: u32 = 16;

/// Receives the events of a recording: relative times, in the order of the source.
pub(super) trait Take {
    /// Some events.
    fn take(&mut self, events: &mut Vec<SchedEvent>) -> Result<(), TraceError>;
}

impl Take for Vec<SchedEvent> {
    fn take(&mut self, events: &mut Vec<SchedEvent>) -> Result<(), TraceError> {
        self.append(events);
        Ok(())
    }
}

/// An event with its time on the source's clock, and the task that the source says was running.
#[derive(Clone, Copy)]
struct Held {
    event: SchedEvent,
    running: Option<TaskId>,
}

pub(super) struct Collector<'o> {
    out: &'o mut dyn Take,
    held: Vec<Held>,
    /// Ready to be taken.
    ready: Vec<SchedEvent>,
    /// Known when the held events are gone on.
    start: Option<Ns>,
    /// Times that marks set, beside those of events.
    window: Option<(Ns, Ns)>,
    end: Option<End>,
    latest: Ns,
    /// Time of the last event of each CPU.
    last: Vec<Ns>,
    /// Events that are older than the one before them of the same CPU.
    backwards: u64,
    own: Option<OwnOnly>,
}

/// The end of what is wanted of a stream.
struct End {
    /// Since the start of the recording.
    at: Ns,
    /// Which CPUs had an event behind it.
    passed: Vec<bool>,
    /// Events behind it.
    events: usize,
}

/// What is known of a stream when it ends.
pub(super) struct Settled {
    /// The source's clock at time 0 of the recording.
    pub(super) start: Ns,
    pub(super) duration: Ns,
    pub(super) own_only: bool,
}

impl<'o> Collector<'o> {
    /// `until`: the end of what is wanted.
    pub(super) fn new(out: &'o mut dyn Take, until: Option<Ns>) -> Collector<'o> {
        Collector {
            end: until.map(|at| End { at, passed: Vec::new(), events: 0 }),
            out,
            held: Vec::new(),
            ready: Vec::with_capacity(HELD),
            start: None,
            window: None,
            latest: Ns::ZERO,
            last: Vec::new(),
            backwards: 0,
            own: None,
        }
    }

    /// The time of the last event of a CPU; of all CPUs where there was none.
    pub(super) fn last_on(&self, cpu: u32) -> Ns {
        self.last.get(cpu as usize).copied().filter(|at| *at > Ns::ZERO).unwrap_or(self.latest)
    }

    /// The recording lasts from or until `at` at least.
    pub(super) fn window(&mut self, at: Ns) -> Result<(), TraceError> {
        let (from, to) = self.window.unwrap_or((at, at));
        self.window = Some((from.min(at), to.max(at)));
        Ok(())
    }

    /// Returns whether what happened then is behind the end of what is wanted. A source asks before
    /// it makes anything of an event.
    pub(super) fn is_past(&mut self, at: Ns, cpu: u32) -> bool {
        let (Some(start), Some(end)) = (self.start, &mut self.end) else { return false };
        if at.saturating_sub(start) <= end.at {
            return false;
        }
        let cpu = cpu as usize;
        if cpu >= end.passed.len() {
            end.passed.resize(cpu + 1, false);
        }
        end.passed[cpu] = true;
        end.events += 1;
        true
    }

    /// Returns whether a source of so many CPUs can have nothing more that is wanted: each of them
    /// had an event behind the end, and the events of a CPU are in order but for some, as many of
    /// which as are held back at the start may have come late.
    pub(super) fn is_over(&self, cpus: u32) -> bool {
        self.end.as_ref().is_some_and(|end| {
            end.events >= HELD
                && end.passed.iter().filter(|passed| **passed).count() >= cpus as usize
        })
    }

    /// An event; `running` is the task that the source says was running.
    pub(super) fn push(
        &mut self,
        event: SchedEvent,
        running: Option<TaskId>,
    ) -> Result<(), TraceError> {
        self.latest = self.latest.max(event.at);
        let cpu = event.cpu.index();
        if cpu >= self.last.len() {
            self.last.resize(cpu + 1, Ns::ZERO);
        }
        self.backwards += u64::from(event.at < self.last[cpu]);
        self.last[cpu] = event.at;
        let held = Held { event, running };
        if self.start.is_some() {
            return self.pass(held);
        }
        self.held.push(held);
        if self.held.len() == HELD { self.settle(false) } else { Ok(()) }
    }

    /// Decides what the held events are, and lets them go on.
    fn settle(&mut self, own_only: bool) -> Result<(), TraceError> {
        let held = std::mem::take(&mut self.held);
        // No tracer writes the events of a CPU out of order, except for a few from interrupts.
        if self.backwards > BACKWARDS_FREE && self.backwards * BACKWARDS_ONE_OF > held.len() as u64
        {
            return Err(TraceError::Option(format!(
                "at {} of the first {} events the time of their CPU goes back: these are times \
                 since the line before \
                 (`perf script --deltatime`), or lines in another order; pass them with their \
                 times and in their order",
                self.backwards,
                held.len()
            )));
        }
        let first = held.iter().map(|held| held.event.at).min().unwrap_or_default();
        self.start = Some(self.window.map_or(first, |(from, _)| from.min(first)));
        if own_only || is_own_only(&held) {
            self.own = Some(OwnOnly::new(&held));
        }
        held.into_iter().try_for_each(|held| self.pass(held))
    }

    fn pass(&mut self, held: Held) -> Result<(), TraceError> {
        let start = self.start.unwrap_or_default();
        let Held { mut event, running } = held;
        // An event from before the start (the source is not in order) keeps its place; the reader
        // counts it as misordered.
        event.at = event.at.saturating_sub(start);
        match &mut self.own {
            None => self.ready.push(event),
            Some(own) => own.event(event, running, &mut self.ready),
        }
        if self.ready.len() >= HELD { self.out.take(&mut self.ready) } else { Ok(()) }
    }

    /// Ends the stream. `own_only`: the source says that it has the events of one program.
    pub(super) fn finish(&mut self, own_only: bool) -> Result<Settled, TraceError> {
        if self.start.is_none() {
            self.settle(own_only)?;
        }
        self.out.take(&mut self.ready)?;
        let start = self.start.unwrap_or_default();
        let passed =
            self.end.as_ref().filter(|end| end.events > 0).map(|end| start.saturating_add(end.at));
        let end = self.window.map_or(self.latest, |(_, to)| to.max(self.latest));
        let end = passed.map_or(end, |passed| passed.max(end));
        Ok(Settled { start, duration: end.saturating_sub(start), own_only: self.own.is_some() })
    }
}

/// Whether a stream has the events of one program only: it never shows the idle task leaving a CPU,
/// and many switches leave a task that no switch had brought.
fn is_own_only(held: &[Held]) -> bool {
    let mut next_on: Vec<Option<Option<TaskId>>> = Vec::new();
    let (mut whole, mut broken) = (0u32, 0u32);
    for Held { event, .. } in held {
        let cpu = event.cpu.index();
        if cpu >= next_on.len() {
            next_on.resize(cpu + 1, None);
        }
        match event.kind {
            // The idle task belongs to no program.
            EventKind::Switch { prev: None, .. } => return false,
            EventKind::Switch { prev, next, .. } => {
                match next_on[cpu] {
                    Some(there) if there == prev => whole += 1,
                    Some(_) => broken += 1,
                    None => {}
                }
                next_on[cpu] = Some(next);
            }
            EventKind::Lost { .. } => next_on[cpu] = None,
            _ => {}
        }
    }
    // A stream of all tasks has no broken pair, except for lost or damaged lines.
    broken > 0 && broken >= whole / OWN_ONE_OF
}

/// Puts in what a stream of one program's events lacks: that a thread of it runs is known from its
/// events, and what a CPU does between them is unknown.
struct OwnOnly {
    /// The program's threads: they were running when events were written.
    threads: BTreeSet<TaskId>,
    on_cpu: Vec<Option<TaskId>>,
}

impl OwnOnly {
    fn new(held: &[Held]) -> OwnOnly {
        OwnOnly {
            threads: held.iter().filter_map(|held| held.running).collect(),
            on_cpu: Vec::new(),
        }
    }

    fn event(&mut self, event: SchedEvent, running: Option<TaskId>, out: &mut Vec<SchedEvent>) {
        let (at, cpu) = (event.at, event.cpu);
        if cpu.index() >= self.on_cpu.len() {
            self.on_cpu.resize(cpu.index() + 1, None);
        }
        if let Some(task) = running
            && self.on_cpu[cpu.index()] != Some(task)
        {
            self.threads.insert(task);
            self.runs(at, cpu, task, out);
        }
        out.push(event);
        match event.kind {
            EventKind::Switch { next: Some(next), .. } if self.threads.contains(&next) => {
                self.on_cpu[cpu.index()] = Some(next);
            }
            EventKind::Switch { .. } | EventKind::Lost { .. } => {
                self.on_cpu[cpu.index()] = None;
                // No event of this CPU is known to be lost; none is recorded until a thread of the
                // program runs there again.
                if matches!(event.kind, EventKind::Switch { .. }) {
                    out.push(SchedEvent { at, cpu, kind: EventKind::Lost { count: 0 } });
                }
            }
            _ => {}
        }
    }

    fn runs(&mut self, at: Ns, cpu: CpuId, task: TaskId, out: &mut Vec<SchedEvent>) {
        let kind =
            EventKind::Switch { prev: None, prev_state: PrevState::Runnable, next: Some(task) };
        out.push(SchedEvent { at, cpu, kind });
        self.on_cpu[cpu.index()] = Some(task);
    }
}
