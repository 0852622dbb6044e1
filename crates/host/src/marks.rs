//! What happens on the CPUs between an expiry and the thread that it should wake: switches,
//! wakeups, interrupts and softirqs, from perf tracepoints. The recorder leaves interrupts out,
//! since they would cost every recording; this is for the one question of who was to blame.

use crate::HostError;
use crate::record::raw::{Comm, Record, Records, comm_text, u32_at, u64_at};
use crate::sys::perf::{Target, What};
use crate::sys::{Event, Ring};
use crate::tracefs::{Field, PseudoFs};
use perf_event_open_sys::bindings as abi;
use schedlab_model::{CpuId, CpuSet};
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// Bytes of each CPU's ring: 50 ms of the busiest CPU that was seen (half a million records a
/// second).
const RING: usize = 16 << 20;
/// Marks that are kept of each CPU at most.
const MOST: usize = 2_000_000;

/// Interrupts of the architecture that have an entry and an exit tracepoint. (That of irq_work may
/// not be sampled: recording a sample raises it.)
const VECTORS: [(&str, &str); 5] = [
    ("local_timer", "local timer"),
    ("reschedule", "reschedule"),
    ("call_function", "function call"),
    ("call_function_single", "function call"),
    ("x86_platform_ipi", "platform"),
];

/// Names of the softirqs, by number (`include/linux/interrupt.h`, unchanged since Linux 3.0).
const SOFTIRQS: [&str; 10] =
    ["hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu"];

/// Something that happened on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at: u64,
    /// What.
    pub kind: MarkKind,
}

/// What happened. Thread 0 is the idle task; priorities are the kernel's: −1 deadline, 0 … 98
/// real-time (a smaller number goes first), 100 … 139 fair, 120 being nice 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkKind {
    /// Another thread runs.
    Switch {
        /// Who ran; `None`: it left no trace.
        prev: Option<u32>,
        /// Who runs now.
        next: u32,
        /// Its priority, when it is known.
        next_prio: Option<i32>,
    },
    /// A thread is being woken.
    Waking {
        /// Which.
        tid: u32,
    },
    /// An interrupt begins; the number is an index of [`Marks::interrupts`].
    IrqEntry(u16),
    /// The innermost interrupt ends.
    IrqExit,
    /// A softirq begins; the number is an index of [`Marks::softirq`].
    SoftirqEntry(u16),
    /// It ends.
    SoftirqExit,
    /// The kernel had no room for some records here.
    Lost,
}

/// What was seen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    /// By CPU, ascending in time.
    pub cpus: BTreeMap<CpuId, Vec<Mark>>,
    /// Names of threads.
    pub names: BTreeMap<u32, String>,
    /// Names of interrupts.
    pub interrupts: Vec<String>,
}

impl Marks {
    /// The name of a thread.
    pub fn name(&self, tid: u32) -> String {
        match self.names.get(&tid) {
            _ if tid == 0 => "idle".to_owned(),
            Some(name) => name.clone(),
            None => format!("thread {tid}"),
        }
    }

    /// The name of a softirq.
    pub fn softirq(number: u16) -> String {
        SOFTIRQS
            .get(usize::from(number))
            .map_or_else(|| format!("softirq {number}"), |name| (*name).to_owned())
    }
}

/// Where the fields of one tracepoint stand.
#[derive(Clone, Debug)]
enum Layout {
    Switch { prev: [Field; 2], next: [Field; 2], next_prio: Field },
    Waking { tid: Field, comm: Field },
    Irq { number: Field, name: Field },
    Entry(u16),
    Exit,
    Softirq { number: Field },
    SoftirqExit,
}

/// Follows the CPUs. [`drain`](Tracer::drain) it every 50 ms or so.
pub struct Tracer {
    cpus: Vec<Cpu>,
    layouts: Vec<Layout>,
    /// Names of interrupts: those of the architecture first, then those of devices.
    interrupts: Vec<String>,
    devices: BTreeMap<i64, u16>,
    names: BTreeMap<u32, Comm>,
    keep: u64,
}

/// One CPU's ring and what was read out of it.
struct Cpu {
    cpu: CpuId,
    ring: Ring,
    /// They write into the ring as long as they are open.
    others: Vec<Event>,
    /// perf's id of an event → index of its layout, sorted.
    ids: Vec<(u64, usize)>,
    marks: VecDeque<Mark>,
    current: Option<u32>,
    last_at: u64,
}

impl Tracer {
    /// Begins to follow `cpus`; of each the marks of the last `keep` nanoseconds are kept.
    ///
    /// # Errors
    /// No tracefs or no perf tracepoints here (they need root, or CAP_PERFMON and a readable
    /// tracefs).
    pub fn start(cpus: &CpuSet, keep_ns: u64) -> Result<Tracer, HostError> {
        let fs = PseudoFs::tracefs().map_err(HostError::io("opening tracefs"))?;
        let mut points = vec![switch(&fs)?, waking(&fs)?];
        let mut interrupts = Vec::new();
        for (point, name) in VECTORS {
            let ends = |end: &str| {
                fs.tracepoint(&format!("irq_vectors/{point}_{end}")).map(|point| point.id)
            };
            if let (Ok(entry), Ok(exit)) = (ends("entry"), ends("exit")) {
                points.push((entry, Layout::Entry(interrupts.len() as u16)));
                points.push((exit, Layout::Exit));
                interrupts.push(name.to_owned());
            }
        }
        points.extend(device_irqs(&fs).unwrap_or_default());
        let (ids, layouts): (Vec<u64>, Vec<Layout>) = points.into_iter().unzip();
        let open = |cpu| {
            Cpu::open(cpu, &ids).map_err(HostError::io(format!("opening perf events on {cpu}")))
        };
        let cpus = cpus.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let (devices, names) = (BTreeMap::new(), BTreeMap::new());
        Ok(Tracer { cpus, layouts, interrupts, devices, names, keep: keep_ns })
    }

    /// Reads the rings, and forgets what is too old.
    pub fn drain(&mut self) {
        let mut bytes = Vec::new();
        for index in 0..self.cpus.len() {
            bytes.clear();
            self.cpus[index].ring.drain(&mut bytes);
            let mut records = Records::new(&bytes);
            for record in &mut records {
                self.record(index, record);
            }
            let cpu = &mut self.cpus[index];
            if records.broken() {
                cpu.lost();
            }
            let oldest = cpu.last_at.saturating_sub(self.keep);
            while cpu.marks.front().is_some_and(|mark| mark.at < oldest) || cpu.marks.len() > MOST {
                cpu.marks.pop_front();
            }
        }
    }

    /// Ends it; what was seen last.
    pub fn finish(mut self) -> Marks {
        for cpu in &self.cpus {
            // Closing them ends them too; nothing more is wanted even where this fails.
            let _ = cpu.others.iter().try_for_each(Event::disable);
        }
        self.drain();
        Marks {
            cpus: self.cpus.into_iter().map(|cpu| (cpu.cpu, cpu.marks.into())).collect(),
            names: self.names.iter().map(|(tid, comm)| (*tid, comm_text(comm))).collect(),
            interrupts: self.interrupts,
        }
    }

    fn record(&mut self, index: usize, record: Record<'_>) {
        let cpu = &mut self.cpus[index];
        let mark = match record.kind {
            abi::PERF_RECORD_SAMPLE => {
                let (id, at, size) =
                    (u64_at(record.body, 0), u64_at(record.body, 8), u32_at(record.body, 16));
                let (Some(id), Some(at), Some(size)) = (id, at, size) else { return };
                let Some(raw) = record.body.get(20..20 + size as usize) else { return };
                cpu.last_at = at;
                let layout =
                    cpu.ids.binary_search_by_key(&id, |&(id, _)| id).map(|found| cpu.ids[found].1);
                let kind = layout.ok().and_then(|layout| self.sample(layout, raw));
                kind.map(|kind| Mark { at, kind })
            }
            abi::PERF_RECORD_SWITCH_CPU_WIDE => {
                let out = u32::from(record.misc) & abi::PERF_RECORD_MISC_SWITCH_OUT;
                let (next, at) = (u32_at(record.body, 12), u64_at(record.body, 16));
                match (out, next, at) {
                    // The switch itself was seen.
                    (0, Some(next), Some(at)) if cpu.current != Some(next) => {
                        cpu.last_at = at;
                        Some(Mark {
                            at,
                            kind: MarkKind::Switch { prev: None, next, next_prio: None },
                        })
                    }
                    _ => None,
                }
            }
            abi::PERF_RECORD_LOST => return cpu.lost(),
            _ => None,
        };
        let cpu = &mut self.cpus[index];
        if let Some(Mark { kind: MarkKind::Switch { next, .. }, .. }) = mark {
            cpu.current = Some(next);
        }
        cpu.marks.extend(mark);
    }

    fn sample(&mut self, layout: usize, raw: &[u8]) -> Option<MarkKind> {
        let tid = |field: Field| field.number(raw).map(|n| n as u32);
        Some(match self.layouts[layout].clone() {
            Layout::Switch { prev, next, next_prio } => {
                let (prev, prev_comm) = (tid(prev[0])?, prev[1].comm(raw)?);
                let (next, next_comm) = (tid(next[0])?, next[1].comm(raw)?);
                self.names.insert(prev, prev_comm);
                self.names.insert(next, next_comm);
                let next_prio = next_prio.number(raw).map(|n| n as i32);
                MarkKind::Switch { prev: Some(prev), next, next_prio }
            }
            Layout::Waking { tid: wakee, comm } => {
                let wakee = tid(wakee)?;
                self.names.insert(wakee, comm.comm(raw)?);
                MarkKind::Waking { tid: wakee }
            }
            Layout::Irq { number, name } => {
                MarkKind::IrqEntry(self.device(number.number(raw)?, name, raw))
            }
            Layout::Entry(index) => MarkKind::IrqEntry(index),
            Layout::Exit => MarkKind::IrqExit,
            Layout::Softirq { number } => MarkKind::SoftirqEntry(number.number(raw)? as u16),
            Layout::SoftirqExit => MarkKind::SoftirqExit,
        })
    }

    /// The index of a device's interrupt; its name comes with the first record.
    fn device(&mut self, number: i64, name: Field, raw: &[u8]) -> u16 {
        if let Some(&index) = self.devices.get(&number) {
            return index;
        }
        // A dynamic array: the low half is where it begins, the high half how long it is.
        let place = name.number(raw).unwrap_or(0);
        let (from, length) = ((place & 0xffff) as usize, (place >> 16 & 0xffff) as usize);
        let text = raw.get(from..from + length).unwrap_or_default();
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let index = self.interrupts.len() as u16;
        self.interrupts
            .push(format!("irq {number} {}", String::from_utf8_lossy(text)).trim().to_owned());
        self.devices.insert(number, index);
        index
    }
}

impl Cpu {
    fn open(cpu: CpuId, points: &[u64]) -> io::Result<Cpu> {
        let target = Target::Cpu(cpu.0 as i32);
        let (first, rest) = points.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let ring = Ring::map(Event::open(What::Tracepoint(*first), target)?, RING)?;
        let (mut ids, mut others) = (vec![(ring.event.id()?, 0)], Vec::new());
        for (index, id) in rest.iter().enumerate() {
            let event = Event::open(What::Tracepoint(*id), target)?;
            event.write_into(&ring)?;
            ids.push((event.id()?, index + 1));
            others.push(event);
        }
        // Some tasks may leave no trace of their own; then the next one tells of the switch.
        let switches = Event::open(What::Switches, target)?;
        switches.write_into(&ring)?;
        others.push(switches);
        ids.sort_unstable();
        ring.event.enable()?;
        others.iter().try_for_each(Event::enable)?;
        Ok(Cpu { cpu, ring, others, ids, marks: VecDeque::new(), current: None, last_at: 0 })
    }

    fn lost(&mut self) {
        self.current = None;
        self.marks.push_back(Mark { at: self.last_at, kind: MarkKind::Lost });
    }
}

fn switch(fs: &PseudoFs) -> Result<(u64, Layout), HostError> {
    let p = fs.tracepoint("sched/sched_switch")?;
    let (prev, next) = (
        [p.field("prev_pid")?, p.field("prev_comm")?],
        [p.field("next_pid")?, p.field("next_comm")?],
    );
    Ok((p.id, Layout::Switch { prev, next, next_prio: p.field("next_prio")? }))
}

fn waking(fs: &PseudoFs) -> Result<(u64, Layout), HostError> {
    let p = fs.tracepoint("sched/sched_waking")?;
    Ok((p.id, Layout::Waking { tid: p.field("pid")?, comm: p.field("comm")? }))
}

/// Interrupts of devices and softirqs; a kernel without these tracepoints has its time in "unknown"
/// instead.
fn device_irqs(fs: &PseudoFs) -> Result<Vec<(u64, Layout)>, HostError> {
    let (entry, exit) =
        (fs.tracepoint("irq/irq_handler_entry")?, fs.tracepoint("irq/irq_handler_exit")?);
    let (soft, soft_exit) =
        (fs.tracepoint("irq/softirq_entry")?, fs.tracepoint("irq/softirq_exit")?);
    Ok(vec![
        (entry.id, Layout::Irq { number: entry.field("irq")?, name: entry.field("name")? }),
        (exit.id, Layout::Exit),
        (soft.id, Layout::Softirq { number: soft.field("vec")? }),
        (soft_exit.id, Layout::SoftirqExit),
    ])
}
