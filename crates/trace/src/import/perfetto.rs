//! Perfetto traces → events.
//!
//! The sched events of the data source `linux.ftrace` are read, plain (`FtraceEvent`) or compact
//! (`CompactSched`: columns of time differences, next tasks and interned names; the task that ran
//! before is the next task of the CPU's switch before, and that task is also the waker). Bundles
//! are per CPU, so everything is collected, put in order of time, and only then handed on.
//! Compressed packets are unfolded. Packets of other sources are skipped.

mod raw;

use super::build::Builder;
use super::container::{bomb, unfolded_max};
use super::event::{Context, Event, Name, Running, Stamp, Who};
use super::states::{self, KernelVersion};
use crate::TraceError;
use crate::export::MARK;
use crate::export::perfetto::field;
use crate::export::proto::{Fields, Value};
use raw::{Kind, Named, Raw, context, kind, text};
use schedlab_model::{MAX_CPUS, Ns};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// Most bytes that the compressed packets of a trace may unfold to.
const UNFOLDED_MAX: u64 = 4 << 30;
/// Compressed packets inside each other that are unfolded.
const DEPTH_MAX: u32 = 4;
/// `system_info` of a packet (protos/perfetto/trace/trace_packet.proto), which has the `utsname`.
const SYSTEM_INFO: u32 = 45;
/// `zstd_compressed_packets`; `compressed_packets` is zlib.
const ZSTD_COMPRESSED: u32 = 133;
/// `previous_packet_dropped`: packets of this one's sequence are missing before it. The first of a
/// sequence has it, too.
const PREVIOUS_DROPPED: u32 = 42;
/// `errors` of an `FtraceEventBundle`: a page of the kernel's ring that could not be read, with its
/// time (field 1).
const BUNDLE_ERROR: u32 = 8;
/// `machine_id`: other machines than the one that ran the tracing service.
const MACHINE_ID: u32 = 98;

#[derive(Default)]
struct Found {
    raw: Vec<Raw>,
    /// Of each CPU: the time of what was read of it last.
    last: BTreeMap<u32, u64>,
    /// Thread → process and name.
    threads: BTreeMap<u32, (u32, String)>,
    processes: BTreeMap<u32, String>,
    ignored: BTreeMap<String, u64>,
    /// Machines whose events there are; 0 is the one of the tracing service.
    machines: BTreeMap<u32, u64>,
    /// The machine whose events are read; `None`: any.
    wanted: Option<u32>,
    kernel: String,
    /// Machines and their sequences of packets of which one with events was read.
    sequences: BTreeSet<(u32, u32)>,
    /// How many fields of the trace are no packets, and the first: its byte and number.
    odd: u64,
    first_odd: Option<(usize, u32)>,
    /// Events whose fields could not be read.
    damaged: u64,
    /// Switches that were there twice.
    twice: u64,
    /// Bytes of compressed packets, and what they unfold to.
    folded: u64,
    unfolded: u64,
    /// Compressed packets inside of which the present one is.
    depth: u32,
}

/// Whether `head`, the beginning of a file, looks like a Perfetto trace: a packet of a plausible
/// field.
pub(super) fn is_perfetto(head: &[u8]) -> bool {
    // Text of ftrace may begin with an empty line, whose byte is the same; what follows it tells.
    if head.first() != Some(&0x0a) || head.len() < 3 {
        return false;
    }
    let text = |byte: &u8| (0x20..0x7f).contains(byte) || matches!(byte, b'\n' | b'\t' | b'\r');
    !head[..head.len().min(256)].iter().all(text)
}

/// Reads a Perfetto trace into `builder`. It is refused when it is damaged, with the place.
pub(super) fn read(bytes: &[u8], builder: &mut Builder<'_>) -> Result<(), TraceError> {
    builder.source.backend = "perfetto";
    builder.source.clock = "as recorded by Perfetto";
    let mut found = Found { wanted: builder.options().machine, ..Found::default() };
    found.packets(bytes).map_err(|(offset, what)| {
        TraceError::Option(format!("the Perfetto trace is damaged at byte {offset}: {what}"))
    })?;
    found.check_machines()?;
    found.feed_all(builder)
}

impl Found {
    /// All packets of a trace, or of a compressed part of one. The error has the byte at which it
    /// is.
    fn packets(&mut self, bytes: &[u8]) -> Result<(), (usize, String)> {
        let mut trace = Fields(bytes);
        loop {
            let offset = bytes.len() - trace.0.len();
            let at = |what: String| (offset, what);
            match trace.next().map_err(at)? {
                None => return Ok(()),
                Some((field::PACKET, value)) => {
                    value.bytes().and_then(|packet| self.packet(packet)).map_err(at)?;
                }
                Some((number, _)) => {
                    self.odd += 1;
                    self.first_odd.get_or_insert((offset, number));
                }
            }
        }
    }

    fn packet(&mut self, packet: &[u8]) -> Result<(), String> {
        let (mut machine, mut sequence, mut dropped) = (0, 0, false);
        let mut parts: Vec<(u32, &[u8])> = Vec::new();
        Fields(packet).each(|number, value| {
            match number {
                MACHINE_ID => machine = value.int()? as u32,
                field::SEQUENCE_ID => sequence = value.int()?,
                PREVIOUS_DROPPED => dropped = value.int()? != 0,
                field::FTRACE_EVENTS
                | field::PROCESS_TREE
                | field::COMPRESSED
                | ZSTD_COMPRESSED
                | SYSTEM_INFO => {
                    parts.push((number, value.bytes()?));
                }
                _ => {}
            }
            Ok(())
        })?;
        for (number, part) in parts {
            match number {
                field::COMPRESSED => {
                    self.unfold(part.len(), flate2::bufread::ZlibDecoder::new(part), "zlib")?;
                }
                ZSTD_COMPRESSED => {
                    let decoder = zstd::stream::read::Decoder::with_buffer(part);
                    let decoder = decoder.map_err(|error| format!("its zstd packets: {error}"))?;
                    self.unfold(part.len(), decoder, "zstd")?;
                }
                _ if self.wanted.is_some_and(|wanted| wanted != machine) => {}
                field::FTRACE_EVENTS => {
                    *self.machines.entry(machine).or_default() += 1;
                    // Ids of sequences are those of a machine's own service.
                    let begins = self.sequences.insert((machine, sequence as u32));
                    let start = self.raw.len();
                    self.bundle(part)?;
                    if dropped && !begins {
                        self.packets_are_missing(start);
                    }
                }
                field::PROCESS_TREE => self.tree(part)?,
                _ => self.system(part)?,
            }
        }
        Ok(())
    }

    /// Compressed packets are a trace of their own.
    fn unfold(&mut self, folded: usize, decoder: impl Read, what: &str) -> Result<(), String> {
        let mut bytes = Vec::new();
        self.folded += folded as u64;
        let most = unfolded_max(self.folded).min(UNFOLDED_MAX);
        let left = most.saturating_sub(self.unfolded);
        let read = decoder.take(left + 1).read_to_end(&mut bytes);
        read.map_err(|error| format!("its {what} packets cannot be unfolded: {error}"))?;
        if bytes.len() as u64 > left {
            return Err(match most {
                UNFOLDED_MAX => {
                    format!("its compressed packets unfold to more than {UNFOLDED_MAX} bytes")
                }
                _ => format!("its compressed packets: {}", bomb(most, self.folded)),
            });
        }
        self.unfolded += bytes.len() as u64;
        if self.depth == DEPTH_MAX {
            return Err(format!("packets are compressed more than {DEPTH_MAX} times"));
        }
        self.depth += 1;
        let read = self.packets(&bytes);
        self.depth -= 1;
        read.map_err(|(offset, error)| format!("byte {offset} of its {what} packets: {error}"))
    }

    /// Events of several machines have clocks and ids of their own.
    fn check_machines(&self) -> Result<(), TraceError> {
        let names = || self.machines.keys().map(u32::to_string).collect::<Vec<_>>().join(", ");
        match self.wanted {
            Some(wanted) if !self.machines.is_empty() && !self.machines.contains_key(&wanted) => {
                Err(TraceError::Option(format!(
                    "the trace has no machine {wanted}; it has {}",
                    names()
                )))
            }
            None if self.machines.len() > 1 => Err(TraceError::Option(format!(
                "the trace has scheduling events of {} machines ({}), each with CPUs, clocks and \
                 thread ids of its own: choose \
                 one with --machine N",
                self.machines.len(),
                names()
            ))),
            _ => Ok(()),
        }
    }

    /// `SystemInfo`: the kernel's release is field 3 of its `utsname` (field 1).
    fn system(&mut self, info: &[u8]) -> Result<(), String> {
        Fields(info).each(|number, value| match number {
            1 => Fields(value.bytes()?).each(|inner, value| {
                if inner == 3 {
                    self.kernel = text(value.bytes()?).into_owned();
                }
                Ok(())
            }),
            _ => Ok(()),
        })
    }

    fn tree(&mut self, tree: &[u8]) -> Result<(), String> {
        Fields(tree).each(|number, value| {
            let (mut a, mut b, mut name) = (0, None, String::new());
            if !matches!(number, 1 | 2) {
                return Ok(());
            }
            let name_field = if number == 1 { 3 } else { 2 };
            Fields(value.bytes()?).each(|inner, value| {
                match inner {
                    1 => a = value.int()? as u32,
                    3 if number == 2 => b = Some(value.int()? as u32),
                    _ if inner == name_field && name.is_empty() => {
                        name = text(value.bytes()?).into_owned()
                    }
                    _ => {}
                }
                Ok(())
            })?;
            if number == 1 {
                // A command line's first word may be a path; the kernel's name of the task is its
                // end.
                let short = name.rsplit('/').next().unwrap_or_default().to_owned();
                self.processes.insert(a, short);
            } else {
                self.threads.insert(a, (b.unwrap_or(a), name));
            }
            Ok(())
        })
    }

    /// Events are missing before those from `start` on, of any CPU: one sequence has the bundles of
    /// all.
    fn packets_are_missing(&mut self, start: usize) {
        let Some(at) = self.raw[start..].iter().map(|raw| raw.at).min() else { return };
        let after: BTreeSet<u32> = self.raw[start..].iter().map(|raw| raw.cpu).collect();
        self.raw.splice(start..start, self.last.keys().map(|cpu| Raw::lost(at, *cpu)));
        self.last
            .iter_mut()
            .filter(|(cpu, _)| !after.contains(cpu))
            .for_each(|(_, last)| *last = at);
    }

    fn bundle(&mut self, bundle: &[u8]) -> Result<(), String> {
        let (mut cpu, mut lost) = (0, false);
        let mut parts: Vec<(u32, &[u8])> = Vec::new();
        Fields(bundle).each(|number, value| {
            match number {
                field::BUNDLE_CPU => cpu = value.int()?,
                field::BUNDLE_LOST => lost |= value.int()? != 0,
                BUNDLE_ERROR => lost = true,
                field::BUNDLE_EVENT | field::BUNDLE_COMPACT => parts.push((number, value.bytes()?)),
                _ => {}
            }
            Ok(())
        })?;
        if cpu >= MAX_CPUS as u64 {
            return Err(format!(
                "CPU {cpu} is above {}, the highest that is supported",
                MAX_CPUS - 1
            ));
        }
        let start = self.raw.len();
        for (number, part) in parts {
            match number {
                field::BUNDLE_EVENT => lost |= !self.event(cpu as u32, part)?,
                _ => self.compact(cpu as u32, part)?,
            }
        }
        // Exports of schedlab say how many were lost, by a mark.
        let counted = |raw: &Raw| matches!(&raw.kind, Kind::Print(text) if text.starts_with("schedlab: lost "));
        if lost && !self.raw[start..].iter().any(counted) {
            let first = self.raw[start..].iter().map(|raw| raw.at).min();
            // A bundle that has nothing else says that events are missing behind those before it.
            let before = self.last.get(&(cpu as u32)).copied();
            if let Some(at) = first.or(before) {
                self.raw.insert(start, Raw::lost(at, cpu as u32));
            }
        }
        if let Some(last) = self.raw[start..].last() {
            self.last.insert(cpu as u32, last.at);
        }
        Ok(())
    }

    /// Whether it could be read: an event without its time is damaged.
    fn event(&mut self, cpu: u32, event: &[u8]) -> Result<bool, String> {
        let (mut at, mut by, mut flags, mut inner) = (None, None, None, None);
        Fields(event).each(|number, value| {
            match number {
                field::EVENT_TIME => at = Some(value.int()?),
                field::EVENT_PID => by = Some(value.int()? as u32),
                field::EVENT_FLAGS => flags = Some(value.int()?),
                _ if matches!(value, Value::Bytes(_)) => inner = Some((number, value.bytes()?)),
                _ => {}
            }
            Ok(())
        })?;
        let Some((number, inner)) = inner else { return Ok(true) };
        match (kind(number, inner)?, at) {
            (Some(kind), Some(at)) => {
                self.raw.push(Raw { at, cpu, by, context: context(flags), kind })
            }
            (Some(_), None) => {
                self.damaged += 1;
                return Ok(false);
            }
            (None, _) => *self.ignored.entry(format!("ftrace event {number}")).or_default() += 1,
        }
        Ok(true)
    }

    fn compact(&mut self, cpu: u32, compact: &[u8]) -> Result<(), String> {
        let mut names: Vec<Cow<'_, str>> = Vec::new();
        let mut columns: [Vec<u64>; 13] = Default::default();
        Fields(compact).each(|number, value| {
            match number {
                5 => names.push(text(value.bytes()?)),
                1..=12 => value.numbers(&mut columns[number as usize])?,
                _ => {}
            }
            Ok(())
        })?;
        let [
            _,
            switch,
            state,
            next,
            prio,
            _,
            comm,
            waking,
            woken,
            target,
            wake_prio,
            wake_comm,
            flags,
        ] = columns;
        let name = |index: u64| {
            let found = usize::try_from(index).ok().and_then(|index| names.get(index));
            let missing = || format!("name {index} of {} in a compact bundle", names.len());
            found.map(|name| name.clone().into_owned()).ok_or_else(missing)
        };
        let same = |what: &str, length: usize, columns: &[usize]| {
            if columns.iter().all(|&column| column == length) {
                return Ok(());
            }
            Err(format!(
                "the columns of compact {what} have different lengths ({length}, {columns:?})"
            ))
        };
        same("switches", switch.len(), &[state.len(), next.len(), prio.len(), comm.len()])?;
        same(
            "wakings",
            waking.len(),
            &[woken.len(), target.len(), wake_prio.len(), wake_comm.len()],
        )?;
        let mut at = 0u64;
        for i in 0..waking.len() {
            at = at.wrapping_add(waking[i]);
            let task = Named {
                comm: name(wake_comm[i])?,
                tid: woken[i] as u32,
                prio: wake_prio[i] as i64,
            };
            // Before version 38 of Perfetto the flags were not kept.
            let context = context(flags.get(i).copied());
            self.raw.push(Raw { at, cpu, by: None, context, kind: Kind::Waking(task) });
        }
        let mut at = 0u64;
        for i in 0..switch.len() {
            at = at.wrapping_add(switch[i]);
            let next = Named { comm: name(comm[i])?, tid: next[i] as u32, prio: prio[i] as i64 };
            let kind = Kind::Compact { state: state[i] as i64, next };
            self.raw.push(Raw { at, cpu, by: None, context: Context::NotShown, kind });
        }
        Ok(())
    }

    fn feed_all(mut self, builder: &mut Builder<'_>) -> Result<(), TraceError> {
        self.tell(builder)?;
        self.raw.sort_by_key(|raw| raw.at);
        self.drop_twice();
        builder.summary().duplicates += self.twice;
        for (tid, (pid, name)) in &self.threads {
            let process = self.processes.get(pid).filter(|_| tid == pid);
            let name = if name.is_empty() { process.map_or("?", String::as_str) } else { name };
            builder.describe(*tid, *pid, name);
        }
        for (pid, name) in &self.processes {
            if !self.threads.contains_key(pid) && !name.is_empty() {
                builder.describe(*pid, *pid, name);
            }
        }
        let mut feed = Feed {
            current: (0..MAX_CPUS).map(|_| None).collect(),
            kernel: builder.options().kernel.or(self.kernel.parse().ok()),
            by_version: false,
        };
        for raw in self.raw {
            feed.one(builder, raw)?;
        }
        if feed.by_version && feed.kernel.is_none() {
            builder.summary().note(
                "The trace does not name the kernel; task states were read as those of 4.14 and \
                 later (--kernel VERSION reads \
                 older ones).",
            );
        }
        builder.source.kernel = self.kernel;
        for (name, count) in self.ignored {
            builder.summary().ignore_many(&name, count);
        }
        Ok(())
    }

    /// What is wrong with the trace.
    fn tell(&self, builder: &mut Builder<'_>) -> Result<(), TraceError> {
        builder.summary().misordered += self.misordered();
        if let Some((offset, number)) = self.first_odd {
            let why = format!(
                "field {number} at byte {offset} is no packet, and the first of {} such fields",
                self.odd
            );
            if builder.options().strict {
                return Err(TraceError::Option(format!("the Perfetto trace is damaged: {why}")));
            }
            builder.summary().odd_line(0, "", &why);
            builder.summary().odd.count = self.odd;
        }
        if self.damaged > 0 {
            builder.summary().damage(0, "", "the event has no time");
            builder.summary().damaged.count = self.damaged;
        }
        Ok(())
    }

    /// A compact switch says only to which task: the same one once more, at the same time, is none.
    fn drop_twice(&mut self) {
        let mut last: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        let before = self.raw.len();
        self.raw.retain(|raw| match &raw.kind {
            Kind::Compact { next, .. } => {
                last.insert(raw.cpu, (raw.at, next.tid)) != Some((raw.at, next.tid))
            }
            _ => true,
        });
        self.twice = (before - self.raw.len()) as u64;
    }

    /// Events of one CPU and one encoding that come before an earlier one.
    fn misordered(&self) -> u64 {
        let mut latest: BTreeMap<(u32, bool, bool), u64> = BTreeMap::new();
        let mut count = 0;
        for raw in &self.raw {
            let compact = matches!(raw.kind, Kind::Compact { .. });
            let plain = raw.by.is_some();
            let latest = latest.entry((raw.cpu, compact, plain)).or_default();
            count += u64::from(raw.at < *latest);
            *latest = raw.at.max(*latest);
        }
        count
    }
}

/// Hands events on, with the task that runs on each CPU; `None` while that is unknown.
struct Feed {
    current: Vec<Option<Named>>,
    kernel: Option<KernelVersion>,
    by_version: bool,
}

impl Feed {
    fn one(&mut self, builder: &mut Builder<'_>, raw: Raw) -> Result<(), TraceError> {
        let current = self.current[raw.cpu as usize].take();
        let known = current.as_ref();
        let running =
            match raw.by {
                // The name of the current task is not in the event; the switch before had it.
                Some(tid) => {
                    let comm = known
                        .filter(|known| known.tid == tid)
                        .map_or(Name::default(), |known| known.comm.as_str().into());
                    Running { comm, tid: Some(tid), pid: None }
                }
                None => known.map_or(Running { tid: Some(0), ..Running::default() }, |known| {
                    Running { comm: known.comm.as_str().into(), tid: Some(known.tid), pid: None }
                }),
            };
        let is_switch = matches!(raw.kind, Kind::Switch { .. } | Kind::Compact { .. });
        let context = match (raw.by, known) {
            // The task that ran is unknown: the one shown is a placeholder.
            (None, None) if raw.context == Context::Task && !is_switch => Context::NotShown,
            _ => raw.context,
        };
        let stamp = Stamp { at: Ns(raw.at), cpu: raw.cpu, running, context };
        let event = match &raw.kind {
            Kind::Switch { prev, state, next } => {
                let state = self.state(*state);
                Event::Switch { prev: prev.who(), state, next: next.who() }
            }
            Kind::Compact { state, next } => {
                if known.is_none() {
                    // The first switch of a CPU does not say what ran before it.
                    builder.event(&stamp, &Event::Lost { count: 0 })?;
                }
                let idle = Who { comm: "swapper".into(), tid: 0, prio: Some(120) };
                let prev = known.map_or(idle, Named::who);
                let state = if prev.tid == 0 { 0 } else { *state };
                Event::Switch { prev, state: self.state(state), next: next.who() }
            }
            Kind::Waking(task) => Event::Waking(task.who()),
            Kind::Wakeup(task) => Event::Wakeup(task.who()),
            Kind::WakeupNew(task) => Event::WakeupNew(task.who()),
            Kind::Exec(tid) => Event::Exec { tid: *tid },
            Kind::Exit(task) => Event::Exit(task.who()),
            Kind::Fork(child) => Event::Fork { child: Who { prio: None, ..child.who() } },
            Kind::Migrate { task, from, to } => {
                Event::Migrate { task: task.who(), from: *from, to: *to }
            }
            Kind::Print(text) => text.strip_prefix(MARK).map_or(Event::Other("print"), Event::Mark),
            Kind::Lost => Event::Lost { count: 1 },
        };
        builder.event(&stamp, &event)?;
        let lost = matches!(raw.kind, Kind::Lost);
        self.current[raw.cpu as usize] = match raw.kind {
            Kind::Switch { next, .. } | Kind::Compact { next, .. } => Some(next),
            _ if lost => None,
            _ => current,
        };
        Ok(())
    }

    fn state(&mut self, bits: i64) -> schedlab_model::PrevState {
        self.by_version |= states::depends_on_version(bits as u64);
        states::from_bits(bits as u64, self.kernel)
    }
}
