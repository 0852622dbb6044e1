//! Tier 2: perf tracepoints, one ring per CPU. Ids and layouts come from tracefs; the context of a
//! wakeup from the record's own flags and from marker events on the same ring.
//!
//! **Who woke?** `sched_waking` runs in the waker's context, and its `common_flags` say whether
//! that is a task, a softirq or a hard interrupt. A softirq is one of two things. At the *exit of
//! an interrupt* it is the outside world that merely borrows the current task's time. *Inside a
//! task's system call* (a send over loopback runs the receive side when bottom halves are switched
//! on again) it is that task's own doing. `softirq_entry` tells them apart by its
//! `common_preempt_count`: the inline path enters with one level still held, the exit of an
//! interrupt with exactly what the interrupted code held, which is none in user space. What the
//! interrupted code can hold too is settled by the end of an interrupt handler right before
//! ([`EXIT_WINDOW_NS`], nothing else recorded in between, and the same number of levels). ksoftirqd
//! and the idle task are always the outside. (The recording holds levels of its own, which are
//! measured first.)
//!
//! **Tasks that leave no trace.** There are machines on which whatever happens while certain tasks
//! run is not recorded (see [`Calibration`](super::calibrate::Calibration)). When the calibration
//! did not see the idle task of every CPU, context-switch records are taken along: their "in"
//! records, written by the next task, tell who began to run. Wakeups from within such a task stay
//! unseen; the capabilities name the idle CPUs.

use super::calibrate::{PREEMPT_LEVELS, calibrate, softirq_threads};
use super::raw::{Comm, Context, RawEvent, RawKind, Record, Records, u32_at, u64_at};
use super::switches::UNKNOWN_PRIO;
use crate::HostError;
use crate::sys::perf::{Target, What};
use crate::sys::{Event, Ring};
use crate::tracefs::{Field, PseudoFs, Tracepoint};
use perf_event_open_sys::bindings as abi;
use schedlab_model::{CpuSet, PrevState};

/// A softirq that begins this soon after the end of an interrupt handler on the same CPU counts as
/// that interrupt's. Between the two stand only a few hundred instructions; 5 us leaves room for a
/// hypervisor.
pub(crate) const EXIT_WINDOW_NS: u64 = 5_000;

const FLAG_HARDIRQ: i64 = 0x08;
const FLAG_SOFTIRQ: i64 = 0x10;

/// The tracepoints that mark the end of an interrupt handler. Those that do not exist are left out.
/// (`irq_work_exit` may not be sampled: recording a sample raises that interrupt.)
const MARKERS: [&str; 7] = [
    "irq/irq_handler_exit",
    "irq_vectors/local_timer_exit",
    "irq_vectors/call_function_exit",
    "irq_vectors/call_function_single_exit",
    "irq_vectors/reschedule_exit",
    "irq_vectors/x86_platform_ipi_exit",
    "ipi/ipi_exit",
];

/// The start of every raw record.
#[derive(Clone, Copy, Debug)]
struct Common {
    flags: Field,
    preempt_count: Field,
    pid: Field,
}

#[derive(Clone, Debug)]
enum Layout {
    Switch { prev: [Field; 2], state: Field, next: [Field; 2], next_prio: Field },
    Waking { common: Common, tid: Field, comm: Field },
    New { common: Common, tid: Field, comm: Field },
    Migrate { tid: Field, from: Field, to: Field },
    Exec { tid: Field },
    Exit { tid: Field },
    Attach { tid: Field },
    Softirq { common: Common },
    IrqExit { common: Common },
}

/// The events of this machine, ready to be opened on each CPU.
#[derive(Clone, Debug)]
pub(crate) struct Tracepoints {
    points: Vec<(u64, Layout)>,
    states: StateBits,
    /// Preemption levels that recording itself adds to `common_preempt_count`.
    own_levels: i64,
    /// The threads that serve softirqs in place of interrupts, sorted.
    softirq_threads: Vec<u32>,
    /// How softirq wakeups are attributed; goes into the header.
    pub(crate) wake_rule: &'static str,
    /// CPUs whose idle task is known to be traced.
    pub(crate) idle_seen: CpuSet,
    /// Some tasks may leave no trace of their own.
    take_switches: bool,
}

impl Tracepoints {
    /// Reads the ids and layouts. An error names the first tracepoint that is needed and missing.
    pub(crate) fn read(fs: &PseudoFs, cpus: &CpuSet) -> Result<Tracepoints, HostError> {
        let switch = fs.tracepoint("sched/sched_switch")?;
        let mut points = vec![
            (switch.id, switch_layout(&switch)?),
            named(fs, "sched/sched_waking", |p| {
                Ok(Layout::Waking {
                    common: common(p)?,
                    tid: p.field("pid")?,
                    comm: p.field("comm")?,
                })
            })?,
            named(fs, "sched/sched_wakeup_new", |p| {
                Ok(Layout::New { common: common(p)?, tid: p.field("pid")?, comm: p.field("comm")? })
            })?,
            named(fs, "sched/sched_migrate_task", |p| {
                let (from, to) = (p.field("orig_cpu")?, p.field("dest_cpu")?);
                Ok(Layout::Migrate { tid: p.field("pid")?, from, to })
            })?,
            named(fs, "sched/sched_process_exec", |p| Ok(Layout::Exec { tid: p.field("pid")? }))?,
            named(fs, "sched/sched_process_exit", |p| Ok(Layout::Exit { tid: p.field("pid")? }))?,
        ];
        points.extend(
            named(fs, "cgroup/cgroup_attach_task", |p| Ok(Layout::Attach { tid: p.field("pid")? }))
                .ok(),
        );
        let calibration = calibrate(fs, cpus)?;
        let softirq = calibration.own_levels.and_then(|_| {
            named(fs, "irq/softirq_entry", |p| Ok(Layout::Softirq { common: common(p)? })).ok()
        });
        let wake_rule =
            if softirq.is_some() { "softirq-entry+preempt-count+irq-exit" } else { "none" };
        points.extend(softirq);
        points.extend(MARKERS.iter().filter_map(|name| {
            named(fs, name, |p| Ok(Layout::IrqExit { common: common(p)? })).ok()
        }));
        Ok(Tracepoints {
            points,
            states: StateBits::parse(&switch.print),
            own_levels: calibration.own_levels.unwrap_or(0),
            softirq_threads: softirq_threads(),
            wake_rule,
            idle_seen: calibration.idle_seen,
            take_switches: cpus.iter().any(|cpu| !calibration.idle_seen.contains(cpu)),
        })
    }

    /// Opens all events of one CPU into one ring.
    pub(crate) fn open(&self, cpu: u32, ring_bytes: usize) -> std::io::Result<CpuRecorder> {
        let open = |id| Event::open(What::Tracepoint(id), Target::Cpu(cpu as i32));
        let mut ids = Vec::new();
        let mut others = Vec::new();
        let (first, rest) = self.points.split_first().expect("sched_switch is always there");
        let ring = Ring::map(open(first.0)?, ring_bytes)?;
        ids.push((ring.event.id()?, 0));
        for (index, (id, _)) in rest.iter().enumerate() {
            let event = open(*id)?;
            event.write_into(&ring)?;
            ids.push((event.id()?, index + 1));
            others.push(event);
        }
        ids.sort_unstable();
        if self.take_switches {
            let event = Event::open(What::Switches, Target::Cpu(cpu as i32))?;
            event.write_into(&ring)?;
            others.push(event);
        }
        Ok(CpuRecorder {
            ring,
            others,
            decoder: Decoder::new(self.clone(), ids),
            bytes: Vec::new(),
        })
    }
}

/// Whether the tracepoints that are needed exist and may be opened.
pub(crate) fn probe(fs: &PseudoFs) -> Result<(), HostError> {
    let id = fs.tracepoint("sched/sched_switch")?.id;
    let opened = Event::open(What::Tracepoint(id), Target::Cpu(0));
    opened.map(drop).map_err(HostError::io("opening sched_switch on CPU 0"))
}

fn named(
    fs: &PseudoFs,
    name: &str,
    layout: impl FnOnce(&Tracepoint) -> Result<Layout, HostError>,
) -> Result<(u64, Layout), HostError> {
    let point = fs.tracepoint(name)?;
    Ok((point.id, layout(&point)?))
}

fn common(point: &Tracepoint) -> Result<Common, HostError> {
    Ok(Common {
        flags: point.field("common_flags")?,
        preempt_count: point.field("common_preempt_count")?,
        pid: point.field("common_pid")?,
    })
}

fn switch_layout(p: &Tracepoint) -> Result<Layout, HostError> {
    Ok(Layout::Switch {
        prev: [p.field("prev_pid")?, p.field("prev_comm")?],
        state: p.field("prev_state")?,
        next: [p.field("next_pid")?, p.field("next_comm")?],
        next_prio: p.field("next_prio")?,
    })
}

/// Which bit of `prev_state` means what; read from the tracepoint's print format, since it has
/// changed between kernels.
#[derive(Clone, PartialEq, Eq, Debug)]
struct StateBits {
    letters: Vec<(i64, char)>,
    /// "Preempted in the kernel": the bit above the highest reported state.
    preempted: i64,
}

impl StateBits {
    fn parse(print: &str) -> StateBits {
        let mut letters: Vec<(i64, char)> = print
            .split('{')
            .skip(1)
            .filter_map(|part| {
                let (bits, rest) = part.split('}').next()?.split_once(',')?;
                let bits = bits.trim();
                let bits = match bits.strip_prefix("0x") {
                    Some(hex) => i64::from_str_radix(hex, 16).ok()?,
                    None => bits.parse().ok()?,
                };
                Some((bits, rest.trim().trim_matches('"').chars().next()?))
            })
            .collect();
        if letters.is_empty() {
            // Linux 4.14 and later, should the print format ever lose its table.
            letters = [
                (1, 'S'),
                (2, 'D'),
                (4, 'T'),
                (8, 't'),
                (16, 'X'),
                (32, 'Z'),
                (64, 'P'),
                (128, 'I'),
            ]
            .into();
        }
        let highest = letters.iter().map(|&(bits, _)| bits).max().unwrap_or(128);
        StateBits { letters, preempted: highest << 1 }
    }

    fn state(&self, value: i64) -> PrevState {
        if value == 0 {
            return PrevState::Runnable;
        }
        if value & self.preempted != 0 {
            return PrevState::RunnableInKernel;
        }
        match self.letters.iter().find(|&&(bits, _)| value & bits != 0).map(|&(_, letter)| letter) {
            Some('S' | 'I' | 'P') => PrevState::Sleeping,
            Some('D') => PrevState::DiskSleep,
            Some('T' | 't') => PrevState::Stopped,
            Some('X' | 'Z' | 'x') => PrevState::Dead,
            _ => PrevState::Blocked,
        }
    }
}

/// The ring of one CPU with its events and the state of its decoder.
pub(crate) struct CpuRecorder {
    ring: Ring,
    others: Vec<Event>,
    decoder: Decoder,
    bytes: Vec<u8>,
}

impl super::CpuSource for CpuRecorder {
    fn enable(&mut self) -> std::io::Result<()> {
        // Switches first: a wakeup whose switch went unseen would look like a long wait. Wakeups
        // last: the first should find its context known.
        self.ring.event.enable()?;
        self.others.iter().rev().try_for_each(Event::enable)
    }

    fn disable(&mut self) -> std::io::Result<()> {
        self.others.iter().try_for_each(Event::disable)?;
        self.ring.event.disable()
    }

    fn drain(&mut self, out: &mut std::collections::VecDeque<RawEvent>) {
        self.bytes.clear();
        self.ring.drain(&mut self.bytes);
        let mut records = Records::new(&self.bytes);
        for record in &mut records {
            out.extend(self.decoder.record(record));
        }
        if records.broken() {
            out.extend(self.decoder.lost(1));
        }
    }

    fn ring_bytes(&self) -> usize {
        self.ring.size()
    }
}

/// Turns the records of one CPU, which are in time order, into events.
struct Decoder {
    points: Tracepoints,
    /// perf's id of an event → index in `points`, sorted.
    ids: Vec<(u64, usize)>,
    last_at: u64,
    /// When the last interrupt handler ended, and how many levels the interrupted code held.
    last_irq_exit: Option<(u64, i64)>,
    softirq: Softirq,
    /// Who runs, as far as the records tell.
    current: Option<u32>,
    /// The last sample was a switch: its context-switch record comes next.
    switched: bool,
}

/// What the softirq that runs now, or ran last, is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Softirq {
    Outside,
    Inline,
    Unknown,
}

impl Decoder {
    fn new(points: Tracepoints, ids: Vec<(u64, usize)>) -> Decoder {
        Decoder {
            points,
            ids,
            last_at: 0,
            last_irq_exit: None,
            softirq: Softirq::Unknown,
            current: None,
            switched: false,
        }
    }

    /// Records vanished before now: what the markers said last no longer holds.
    fn lost(&mut self, count: u64) -> Option<RawEvent> {
        self.last_irq_exit = None;
        self.softirq = Softirq::Unknown;
        self.current = None;
        Some(RawEvent { at: self.last_at, kind: RawKind::Lost { count } })
    }

    fn record(&mut self, record: Record<'_>) -> Option<RawEvent> {
        match record.kind {
            abi::PERF_RECORD_SAMPLE => {
                let id = u64_at(record.body, 0)?;
                let at = u64_at(record.body, 8)?;
                let length = u32_at(record.body, 16)? as usize;
                let raw = record.body.get(20..20 + length)?;
                let index = self.ids[self.ids.binary_search_by_key(&id, |&(id, _)| id).ok()?].1;
                self.last_at = at;
                let kind = self.sample(at, index, raw);
                self.switched = false;
                if let Some(RawKind::Switch { next, .. }) = kind {
                    (self.current, self.switched) = (Some(next), true);
                }
                if kind.is_some() {
                    // Whatever happened since the interrupt, a softirq from here on is not its own.
                    self.last_irq_exit = None;
                }
                kind.map(|kind| RawEvent { at, kind })
            }
            abi::PERF_RECORD_SWITCH_CPU_WIDE => self.unseen_switch(record),
            abi::PERF_RECORD_LOST => self.lost(u64_at(record.body, 8)?),
            _ => None,
        }
    }

    /// A task that begins to run where no tracepoint said so: the thread that ran before leaves no
    /// trace.
    fn unseen_switch(&mut self, record: Record<'_>) -> Option<RawEvent> {
        let (out, prev) =
            (u32::from(record.misc) & abi::PERF_RECORD_MISC_SWITCH_OUT, u32_at(record.body, 4)?);
        let (next, at) = (u32_at(record.body, 12)?, u64_at(record.body, 16)?);
        if out != 0 || self.current == Some(next) {
            return None;
        }
        // A task that is nearly gone has no number any more: the tracepoint has just told who it
        // is.
        if next == u32::MAX || next == 0 && self.switched {
            return None;
        }
        self.current = Some(next);
        self.last_irq_exit = None;
        let prev_state = if prev == 0 { PrevState::Runnable } else { PrevState::Unknown };
        let (none, next_prio) = ([0; 16], UNKNOWN_PRIO);
        let kind =
            RawKind::Switch { prev, prev_comm: none, prev_state, next, next_comm: none, next_prio };
        Some(RawEvent { at, kind })
    }

    fn sample(&mut self, at: u64, index: usize, raw: &[u8]) -> Option<RawKind> {
        let tid = |field: Field| field.number(raw).map(|n| n as u32);
        match &self.points.points[index].1 {
            Layout::Switch { prev, state, next, next_prio } => Some(RawKind::Switch {
                prev: tid(prev[0])?,
                prev_comm: prev[1].comm(raw)?,
                prev_state: self.points.states.state(state.number(raw)?),
                next: tid(next[0])?,
                next_comm: next[1].comm(raw)?,
                next_prio: next_prio.number(raw)? as i32,
            }),
            Layout::Waking { common, tid: wakee, comm } => {
                let (wakee, comm) = (tid(*wakee)?, comm.comm(raw)?);
                let context = self.context(*common, raw)?;
                Some(RawKind::Wake { tid: wakee, comm, context })
            }
            Layout::New { common, tid: child, comm } => Some(RawKind::New {
                tid: tid(*child)?,
                parent: tid(common.pid)?,
                comm: comm.comm(raw)?,
            }),
            Layout::Migrate { tid: task, from, to } => {
                Some(RawKind::Migrate { tid: tid(*task)?, from: tid(*from)?, to: tid(*to)? })
            }
            Layout::Exec { tid: task } => Some(RawKind::Exec { tid: tid(*task)? }),
            Layout::Exit { tid: task } => Some(RawKind::Exit { tid: tid(*task)? }),
            Layout::Attach { tid: task } => Some(RawKind::Regroup { tid: tid(*task)? }),
            Layout::Softirq { common } => {
                let (current, levels) = (tid(common.pid)?, common.preempt_count.number(raw)?);
                self.softirq = self.origin(at, current, levels & PREEMPT_LEVELS);
                None
            }
            Layout::IrqExit { common } => {
                self.last_irq_exit = Some((at, common.preempt_count.number(raw)? & PREEMPT_LEVELS));
                None
            }
        }
    }

    fn origin(&self, at: u64, current: u32, levels: i64) -> Softirq {
        // Levels that the interrupted code did not hold were taken by a task on its way into the
        // softirq.
        let of_irq =
            |(exit, held): (u64, i64)| at.saturating_sub(exit) < EXIT_WINDOW_NS && held == levels;
        let thread = current == 0 || self.points.softirq_threads.binary_search(&current).is_ok();
        if thread || levels <= self.points.own_levels || self.last_irq_exit.is_some_and(of_irq) {
            Softirq::Outside
        } else {
            Softirq::Inline
        }
    }

    fn context(&self, common: Common, raw: &[u8]) -> Option<Context> {
        let flags = common.flags.number(raw)?;
        let current = common.pid.number(raw)? as u32;
        Some(if flags & FLAG_HARDIRQ != 0 {
            Context::HardIrq
        } else if flags & FLAG_SOFTIRQ != 0 {
            match self.softirq {
                Softirq::Outside => Context::SoftIrq,
                Softirq::Inline => Context::Inline(current),
                Softirq::Unknown => Context::Unknown,
            }
        } else if current == 0 {
            // The idle task does nothing of its own: it runs what interrupts left behind.
            Context::HardIrq
        } else {
            Context::Task(current)
        })
    }
}

/// The name of a thread that perf gives as text.
pub(crate) fn comm_from(text: &[u8]) -> Comm {
    let mut comm = [0; 16];
    let length = text.iter().position(|&b| b == 0).unwrap_or(text.len()).min(15);
    comm[..length].copy_from_slice(&text[..length]);
    comm
}

#[cfg(test)]
mod tests;
