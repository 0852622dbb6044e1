//! Perfetto's trace format: `TracePacket`s with the process tree and, per CPU, `FtraceEventBundle`s
//! with the events of `sched`. Field numbers are those of Perfetto's published schema (package
//! `perfetto` 0.59 of PyPI, with which the output is checked). Steal and throttling go into `print`
//! events, as text behind `schedlab:`.

use super::Exported;
use super::proto::Message;
use super::rows::{Context, MARK, Named, Row, What, rows};
use crate::{Recording, TaskInfo};
use schedlab_model::PrevState;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Field numbers of the messages that are used, shared with the importer.
pub(crate) mod field {
    pub(crate) const PACKET: u32 = 1;
    pub(crate) const FTRACE_EVENTS: u32 = 1;
    pub(crate) const PROCESS_TREE: u32 = 2;
    pub(crate) const TIMESTAMP: u32 = 8;
    pub(crate) const SEQUENCE_ID: u32 = 10;
    pub(crate) const COMPRESSED: u32 = 50;
    pub(crate) const BUNDLE_CPU: u32 = 1;
    pub(crate) const BUNDLE_EVENT: u32 = 2;
    pub(crate) const BUNDLE_LOST: u32 = 3;
    pub(crate) const BUNDLE_COMPACT: u32 = 4;
    pub(crate) const EVENT_TIME: u32 = 1;
    pub(crate) const EVENT_PID: u32 = 2;
    pub(crate) const EVENT_PRINT: u32 = 3;
    pub(crate) const EVENT_SWITCH: u32 = 4;
    pub(crate) const EVENT_FLAGS: u32 = 5;
    pub(crate) const EVENT_WAKEUP: u32 = 17;
    pub(crate) const EVENT_WAKING: u32 = 20;
    pub(crate) const EVENT_WAKEUP_NEW: u32 = 114;
    pub(crate) const EVENT_EXEC: u32 = 237;
    pub(crate) const EVENT_EXIT: u32 = 238;
    pub(crate) const EVENT_FORK: u32 = 239;
    pub(crate) const EVENT_MIGRATE: u32 = 491;
    /// `common_flags` of an event: inside a hardware interrupt, inside a softirq.
    pub(crate) const FLAG_HARDIRQ: u64 = 0x08;
    pub(crate) const FLAG_SOFTIRQ: u64 = 0x10;
}
use field::*;

/// Events of one bundle; Perfetto's own are a page of the kernel's ring, of about as many.
const BUNDLE: usize = 512;
/// Any number: all packets come from one writer.
const WRITER: u64 = 1;

#[derive(Default)]
struct Bundle {
    events: Message,
    count: usize,
    first: u64,
    lost: bool,
}

/// Writes a trace that ui.perfetto.dev and `trace_processor` open. Times are those of the
/// recording's clock.
///
/// # Errors
/// What the writer says.
pub fn perfetto(recording: &Recording, out: &mut dyn Write) -> io::Result<Exported> {
    let mut bundles: Vec<Bundle> = Vec::new();
    bundles.resize_with(recording.header.topology.cpus(), Bundle::default);
    let mut tree = Message::default();
    tree.int(TIMESTAMP, recording.header.clock_start_ns)
        .message(PROCESS_TREE, &process_tree(recording));
    packet(out, &mut tree)?;
    let (mut calls, mut blocked, mut losses) = (0u64, 0u64, 0u64);
    let mut exported = rows(recording, &mut |row| {
        let bundle = &mut bundles[row.cpu as usize];
        match row.what {
            What::SyscallEnter(_) | What::SyscallExit(_) => {
                calls += 1;
                return Ok(());
            }
            What::Lost(_) => {
                // The flag says that something is missing before the bundle's first event.
                losses += 1;
                flush(out, row.cpu, bundle)?;
                bundle.lost = true;
            }
            What::Switch { state: PrevState::Blocked, .. } => blocked += 1,
            _ => {}
        }
        if bundle.count == 0 {
            bundle.first = row.at;
        }
        bundle.events.message(BUNDLE_EVENT, &event(&row));
        bundle.count += 1;
        if bundle.count == BUNDLE { flush(out, row.cpu, bundle) } else { Ok(()) }
    })?;
    for (cpu, bundle) in bundles.iter_mut().enumerate() {
        flush(out, cpu as u32, bundle)?;
    }
    if calls > 0 {
        exported.left_out.insert("system calls", calls);
    }
    if losses > 0 {
        exported.notes.push(format!("{losses} losses are flagged in their bundles"));
    }
    if blocked > 0 {
        exported
            .notes
            .push(format!("{blocked} tasks blocked in an unknown state; written as sleeping (S)"));
    }
    Ok(exported)
}

fn packet(out: &mut dyn Write, content: &mut Message) -> io::Result<()> {
    content.int(SEQUENCE_ID, WRITER);
    let mut trace = Message::default();
    trace.message(PACKET, content);
    out.write_all(&trace.0)
}

fn flush(out: &mut dyn Write, cpu: u32, bundle: &mut Bundle) -> io::Result<()> {
    if bundle.count == 0 {
        return Ok(());
    }
    let mut content = Message::default();
    content.int(BUNDLE_CPU, cpu.into());
    if bundle.lost {
        content.int(BUNDLE_LOST, 1);
    }
    content.0.extend_from_slice(&bundle.events.0);
    let mut whole = Message::default();
    whole.int(TIMESTAMP, bundle.first).message(FTRACE_EVENTS, &content);
    *bundle = Bundle::default();
    packet(out, &mut whole)
}

fn process_tree(recording: &Recording) -> Message {
    let mut processes: BTreeMap<u32, &TaskInfo> = BTreeMap::new();
    for task in &recording.header.tasks {
        // The main thread's name is the process's name, wherever the recording has it.
        let entry = processes.entry(task.pid).or_insert(task);
        if task.tid == task.pid {
            *entry = task;
        }
    }
    let mut tree = Message::default();
    for (pid, task) in &processes {
        let mut process = Message::default();
        process.int(1, u64::from(*pid)).bytes(3, task.comm.as_bytes()).int(9, 1);
        if task.kernel {
            process.int(8, 1);
        }
        tree.message(1, &process);
    }
    for task in &recording.header.tasks {
        let mut thread = Message::default();
        thread.int(1, task.tid.into()).bytes(2, task.comm.as_bytes()).int(3, task.pid.into());
        tree.message(2, &thread);
    }
    tree
}

fn event(row: &Row<'_>) -> Message {
    let mut event = Message::default();
    event.int(EVENT_TIME, row.at).int(EVENT_PID, row.running.tid.into());
    match row.context {
        Context::NotShown => {}
        Context::Task => drop(event.int(EVENT_FLAGS, 0)),
        Context::SoftIrq => drop(event.int(EVENT_FLAGS, FLAG_SOFTIRQ)),
        Context::HardIrq => drop(event.int(EVENT_FLAGS, FLAG_HARDIRQ)),
    }
    let mut inner = Message::default();
    let number = match &row.what {
        What::Switch { prev, state, next } => {
            named(&mut inner, prev).signed(4, state_bits(*state));
            inner
                .bytes(5, next.comm.as_bytes())
                .int(6, next.tid.into())
                .signed(7, next.prio.into());
            EVENT_SWITCH
        }
        What::Waking { task, target } => {
            named(&mut inner, task).int(4, 1).int(5, (*target).into());
            EVENT_WAKING
        }
        What::Fork { child } => {
            inner.bytes(1, row.running.comm.as_bytes()).int(2, row.running.tid.into());
            inner.bytes(3, child.comm.as_bytes()).int(4, child.tid.into());
            EVENT_FORK
        }
        What::Exec => {
            let tid = row.running.tid.into();
            inner.bytes(1, row.running.comm.as_bytes()).int(2, tid).int(3, tid);
            EVENT_EXEC
        }
        What::Exit => {
            let Named { comm, tid, prio, .. } = &row.running;
            inner.bytes(1, comm.as_bytes()).int(2, (*tid).into()).signed(4, (*prio).into());
            EVENT_EXIT
        }
        What::Migrate { task, from, to } => {
            named(&mut inner, task).int(4, (*from).into()).int(5, (*to).into());
            EVENT_MIGRATE
        }
        What::Mark(text) => {
            inner.bytes(2, format!("{MARK}{text}").as_bytes());
            EVENT_PRINT
        }
        What::Lost(count) => {
            inner.bytes(2, format!("{MARK}lost count={count}").as_bytes());
            EVENT_PRINT
        }
        What::SyscallEnter(_) | What::SyscallExit(_) => return event,
    };
    event.message(number, &inner);
    event
}

fn named<'m>(message: &'m mut Message, task: &Named<'_>) -> &'m mut Message {
    message.bytes(1, task.comm.as_bytes()).int(2, task.tid.into()).signed(3, task.prio.into())
}

/// The kernel's bits of a task state as `sched_switch` reports them (Linux 4.14 and later): 0
/// runnable, 1 S, 2 D, 4 T, 16 dead, 256 preempted in the kernel. An unknown state is a bit of its
/// own that no kernel sets.
pub(crate) fn state_bits(state: PrevState) -> i64 {
    match state {
        PrevState::Runnable => 0,
        PrevState::RunnableInKernel => 0x100,
        PrevState::Sleeping | PrevState::Blocked => 1,
        PrevState::DiskSleep => 2,
        PrevState::Stopped => 4,
        PrevState::Dead => 0x10,
        PrevState::Unknown => 0x4000_0000,
    }
}
