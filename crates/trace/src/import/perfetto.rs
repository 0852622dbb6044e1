//! Perfetto traces → the same events as the text of ftrace.
//!
//! The sched events of the data source `linux.ftrace` are read, plain (`FtraceEvent`) or compact
//! (`CompactSched`: columns of time differences, next tasks and interned names; who ran before is the next task of
//! the CPU's switch before, and that task is also the waker). Bundles are per CPU, so everything is collected, put
//! in order of time, and only then handed on. Packets of other sources are skipped.

use super::build::Builder;
use super::line::{Context, Line};
use super::{ImportOptions, Imported};
use crate::TraceError;
use crate::export::perfetto::field;
use crate::export::proto::{Fields, Value};
use schedlab_model::{MAX_CPUS, Ns};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// One event before it is put in order.
struct Raw<'a> {
    at: u64,
    cpu: u32,
    /// Who ran, where the event says so.
    by: Option<u32>,
    context: Context,
    kind: Kind<'a>,
}

enum Kind<'a> {
    /// Name and fields as ftrace prints them.
    Text { event: &'static str, fields: String },
    /// A switch of the compact form: whoever ran before.
    Compact { tid: u32, prio: i64, comm: Cow<'a, str>, state: i64 },
    /// Events of this CPU are missing before this one.
    Lost,
}

#[derive(Default)]
struct Found<'a> {
    raw: Vec<Raw<'a>>,
    /// Thread → process and name.
    threads: BTreeMap<u32, (u32, String)>,
    processes: BTreeMap<u32, String>,
    ignored: BTreeMap<String, u64>,
}

/// Whether `head`, the beginning of a file, looks like a Perfetto trace: a packet of a plausible field.
pub(super) fn is_perfetto(head: &[u8]) -> bool {
    // Text of ftrace may begin with an empty line, whose byte is the same; what follows it tells.
    if head.first() != Some(&0x0a) || head.len() < 3 {
        return false;
    }
    let text = |byte: &u8| (0x20..0x7f).contains(byte) || matches!(byte, b'\n' | b'\t' | b'\r');
    !head[..head.len().min(256)].iter().all(text)
}

/// Reads a Perfetto trace. It is refused when its packets are compressed or damaged, with the place.
///
/// # Errors
/// [`TraceError::Option`] with the byte at which something is wrong, or when it has no switches.
pub fn perfetto(bytes: &[u8], options: ImportOptions) -> Result<Imported, TraceError> {
    let mut found = Found::default();
    let mut trace = Fields(bytes);
    loop {
        let offset = bytes.len() - trace.0.len();
        let fail = |what: String| {
            TraceError::Option(format!("the Perfetto trace is damaged at byte {offset}: {what}"))
        };
        match trace.next().map_err(fail)? {
            None => break,
            Some((field::PACKET, value)) => {
                value.bytes().and_then(|packet| found.packet(packet)).map_err(fail)?;
            }
            Some(_) => {}
        }
    }
    found.finish(options)
}

impl<'a> Found<'a> {
    fn packet(&mut self, packet: &'a [u8]) -> Result<(), String> {
        Fields(packet).each(|number, value| match number {
            field::FTRACE_EVENTS => self.bundle(value.bytes()?),
            field::PROCESS_TREE => self.tree(value.bytes()?),
            field::COMPRESSED => {
                Err("its packets are compressed; `traceconv decompress_packets IN OUT` writes a \
                                      trace that can be read"
                    .to_owned())
            }
            _ => Ok(()),
        })
    }

    fn tree(&mut self, tree: &'a [u8]) -> Result<(), String> {
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
                    _ if inner == name_field && name.is_empty() => name = text(value.bytes()?).into_owned(),
                    _ => {}
                }
                Ok(())
            })?;
            if number == 1 {
                // A command line's first word may be a path; the kernel's name of the task is its end.
                let short = name.rsplit('/').next().unwrap_or_default().to_owned();
                self.processes.insert(a, short);
            } else {
                self.threads.insert(a, (b.unwrap_or(a), name));
            }
            Ok(())
        })
    }

    fn bundle(&mut self, bundle: &'a [u8]) -> Result<(), String> {
        let (mut cpu, mut lost) = (0, false);
        let mut parts: Vec<(u32, &'a [u8])> = Vec::new();
        Fields(bundle).each(|number, value| {
            match number {
                field::BUNDLE_CPU => cpu = value.int()?,
                field::BUNDLE_LOST => lost = value.int()? != 0,
                field::BUNDLE_EVENT | field::BUNDLE_COMPACT => parts.push((number, value.bytes()?)),
                _ => {}
            }
            Ok(())
        })?;
        if cpu >= MAX_CPUS as u64 {
            return Err(format!("CPU {cpu} is above {}, the highest that is supported", MAX_CPUS - 1));
        }
        let start = self.raw.len();
        for (number, part) in parts {
            match number {
                field::BUNDLE_EVENT => self.event(cpu as u32, part)?,
                _ => self.compact(cpu as u32, part)?,
            }
        }
        // Exports of schedlab say how many were lost, by a mark.
        let counted = |raw: &Raw<'_>| matches!(&raw.kind, Kind::Text { event: "print", fields } if fields.starts_with("schedlab: lost "));
        if lost && !self.raw[start..].iter().any(counted) {
            let at = self.raw[start..].iter().map(|raw| raw.at).min();
            if let Some(at) = at {
                let lost =
                    Raw { at, cpu: cpu as u32, by: Some(0), context: Context::NotShown, kind: Kind::Lost };
                self.raw.insert(start, lost);
            }
        }
        Ok(())
    }

    fn event(&mut self, cpu: u32, event: &'a [u8]) -> Result<(), String> {
        let (mut at, mut by, mut flags, mut inner) = (0, None, None, None);
        Fields(event).each(|number, value| {
            match number {
                field::EVENT_TIME => at = value.int()?,
                field::EVENT_PID => by = Some(value.int()? as u32),
                field::EVENT_FLAGS => flags = Some(value.int()?),
                _ if matches!(value, Value::Bytes(_)) => inner = Some((number, value.bytes()?)),
                _ => {}
            }
            Ok(())
        })?;
        let Some((number, inner)) = inner else { return Ok(()) };
        let Some((event, fields)) = as_text(number, inner)? else {
            *self.ignored.entry(format!("ftrace event {number}")).or_default() += 1;
            return Ok(());
        };
        let kind = Kind::Text { event, fields };
        self.raw.push(Raw { at, cpu, by, context: context(flags), kind });
        Ok(())
    }

    fn compact(&mut self, cpu: u32, compact: &'a [u8]) -> Result<(), String> {
        let mut names: Vec<Cow<'a, str>> = Vec::new();
        let mut columns: [Vec<u64>; 13] = Default::default();
        Fields(compact).each(|number, value| {
            match number {
                5 => names.push(text(value.bytes()?)),
                1..=12 => value.numbers(&mut columns[number as usize])?,
                _ => {}
            }
            Ok(())
        })?;
        let [_, switch, state, next, prio, _, comm, waking, woken, target, wake_prio, wake_comm, flags] =
            columns;
        let name = |index: u64| {
            let found = usize::try_from(index).ok().and_then(|index| names.get(index));
            found.cloned().ok_or_else(|| format!("name {index} of {} in a compact bundle", names.len()))
        };
        let same = |what: &str, length: usize, columns: &[usize]| {
            if columns.iter().all(|&column| column == length) {
                return Ok(());
            }
            Err(format!("the columns of compact {what} have different lengths ({length}, {columns:?})"))
        };
        same("switches", switch.len(), &[state.len(), next.len(), prio.len(), comm.len()])?;
        same("wakings", waking.len(), &[woken.len(), target.len(), wake_prio.len(), wake_comm.len()])?;
        let mut at = 0u64;
        for i in 0..waking.len() {
            at = at.wrapping_add(waking[i]);
            let comm = name(wake_comm[i])?;
            let (tid, prio, target) = (woken[i] as u32, wake_prio[i] as i64, target[i]);
            let fields = format!("comm={comm} pid={tid} prio={prio} target_cpu={target}");
            let kind = Kind::Text { event: "sched_waking", fields };
            // Before version 38 of Perfetto the flags were not kept.
            let context = context(flags.get(i).copied());
            self.raw.push(Raw { at, cpu, by: None, context, kind });
        }
        let mut at = 0u64;
        for i in 0..switch.len() {
            at = at.wrapping_add(switch[i]);
            let (tid, prio, state) = (next[i] as u32, prio[i] as i64, state[i] as i64);
            let kind = Kind::Compact { tid, prio, comm: name(comm[i])?, state };
            self.raw.push(Raw { at, cpu, by: None, context: Context::NotShown, kind });
        }
        Ok(())
    }

    fn finish(mut self, options: ImportOptions) -> Result<Imported, TraceError> {
        let misordered = self.misordered();
        self.raw.sort_by_key(|raw| raw.at);
        let mut builder = Builder::new(options);
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
        // Who runs on each CPU: thread, priority and name; `None` while unknown.
        let mut current: Vec<Option<(u32, i64, String)>> = vec![None; MAX_CPUS];
        for raw in &self.raw {
            feed(&mut builder, &mut current[raw.cpu as usize], raw).map_err(TraceError::Option)?;
        }
        let mut imported = builder.finish("perfetto", "as recorded by Perfetto")?;
        imported.recording.repairs.misordered += misordered;
        for (name, count) in self.ignored {
            *imported.ignored.entry(name).or_default() += count;
        }
        Ok(imported)
    }

    /// Events of one CPU and one encoding that stand before an earlier one.
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

/// Hands one event on as if it were a line of text; `current` is who runs on its CPU.
fn feed(
    builder: &mut Builder,
    current: &mut Option<(u32, i64, String)>,
    raw: &Raw<'_>,
) -> Result<(), String> {
    let known = current.as_ref();
    let (tid, comm) = match raw.by {
        // The name of the current task is not in the event; the switch before had it.
        Some(tid) => (tid, known.filter(|known| known.0 == tid).map_or("", |known| known.2.as_str())),
        None => known.map_or((0, ""), |known| (known.0, known.2.as_str())),
    };
    let context = match (&raw.kind, raw.by, known) {
        // Nobody knows who ran: the task shown is a placeholder.
        (Kind::Text { .. }, None, None) if raw.context == Context::Task => Context::NotShown,
        _ => raw.context,
    };
    let at = Ns(raw.at);
    let line = |event, fields| Line { comm, tid, cpu: raw.cpu, at, context, event, fields };
    match &raw.kind {
        Kind::Lost => {
            builder.event(&line("PERF_RECORD_LOST", "lost 1"))?;
            *current = None;
        }
        Kind::Text { event, fields } => {
            builder.event(&line(event, fields))?;
            if *event == "sched_switch"
                && let Some((_, _, next)) = Some(super::line::switch(fields)?)
            {
                *current = Some((next.tid, next.prio.unwrap_or(120).into(), next.comm.to_owned()));
            }
        }
        Kind::Compact { tid: next, prio, comm: name, state } => {
            let (prev, prev_prio, prev_comm) = match known {
                Some(known) => known.clone(),
                None => {
                    // The first switch of a CPU does not say who ran before it.
                    builder.event(&line("PERF_RECORD_LOST", "lost 1"))?;
                    (0, 120, "swapper".to_owned())
                }
            };
            let state = if prev == 0 { "R" } else { letters(*state) };
            let fields = switch_fields(&prev_comm, prev, prev_prio, state, name, *next, *prio);
            builder.event(&line("sched_switch", &fields))?;
            *current = Some((*next, *prio, name.to_string()));
        }
    }
    Ok(())
}

fn switch_fields(
    prev_comm: &str,
    prev: u32,
    prev_prio: i64,
    state: &str,
    comm: &str,
    next: u32,
    prio: i64,
) -> String {
    format!(
        "prev_comm={prev_comm} prev_pid={prev} prev_prio={prev_prio} prev_state={state} ==> next_comm={comm} \
         next_pid={next} next_prio={prio}"
    )
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn context(flags: Option<u64>) -> Context {
    match flags {
        None => Context::NotShown,
        Some(flags) if flags & field::FLAG_HARDIRQ != 0 => Context::HardIrq,
        Some(flags) if flags & field::FLAG_SOFTIRQ != 0 => Context::SoftIrq,
        Some(_) => Context::Task,
    }
}

/// Bits of a task state as `sched_switch` reports them (Linux 4.14 and later) → the kernel's letters.
fn letters(state: i64) -> &'static str {
    match state {
        0 => "R",
        bits if bits & 0x100 != 0 => "R+",
        bits if bits & 0x30 != 0 => "X",
        bits if bits & 2 != 0 => "D",
        bits if bits & 0x0c != 0 => "T",
        bits if bits & 0x80 != 0 => "I",
        bits if bits & 0x41 != 0 => "S",
        _ => "?",
    }
}

/// An event in the words of ftrace's text; `None` for one that says nothing about the schedule.
fn as_text(number: u32, inner: &[u8]) -> Result<Option<(&'static str, String)>, String> {
    let (mut ints, mut texts) = ([0i64; 8], [const { Cow::Borrowed("") }; 8]);
    Fields(inner).each(|number, value| {
        let at = number as usize;
        match value {
            Value::Int(value) if at < ints.len() => ints[at] = value as i64,
            Value::Bytes(bytes) if at < texts.len() => texts[at] = text(bytes),
            _ => {}
        }
        Ok(())
    })?;
    let tid = |at: usize| ints[at] as u32;
    let subject = || format!("comm={} pid={} prio={}", texts[1], tid(2), ints[3]);
    let waking = || format!("{} target_cpu={}", subject(), ints[5]);
    Ok(Some(match number {
        field::EVENT_SWITCH => (
            "sched_switch",
            switch_fields(&texts[1], tid(2), ints[3], letters(ints[4]), &texts[5], tid(6), ints[7]),
        ),
        field::EVENT_WAKING => ("sched_waking", waking()),
        field::EVENT_WAKEUP => ("sched_wakeup", waking()),
        field::EVENT_WAKEUP_NEW => ("sched_wakeup_new", waking()),
        field::EVENT_EXEC => {
            ("sched_process_exec", format!("filename={} pid={} old_pid={}", texts[1], tid(2), tid(3)))
        }
        field::EVENT_EXIT => {
            ("sched_process_exit", format!("comm={} pid={} prio={}", texts[1], tid(2), ints[4]))
        }
        field::EVENT_FORK => (
            "sched_process_fork",
            format!("comm={} pid={} child_comm={} child_pid={}", texts[1], tid(2), texts[3], tid(4)),
        ),
        field::EVENT_MIGRATE => (
            "sched_migrate_task",
            format!("{} orig_cpu={} dest_cpu={}", subject(), ints[4] as u32, ints[5] as u32),
        ),
        field::EVENT_PRINT => ("print", texts[2].trim_end().to_owned()),
        _ => return Ok(None),
    }))
}
