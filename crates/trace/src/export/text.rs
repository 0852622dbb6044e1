//! The text of ftrace, trace-cmd and systrace, and that of `perf script`.

use super::Exported;
use super::rows::{Context, MARK, Named, Row, What, rows};
use crate::Recording;
use schedlab_model::PrevState;
use std::io::{self, Write};

/// How a text of ftrace's family differs from the others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Ftrace,
    TraceCmd,
    Systrace,
}

/// Writes the text that `/sys/kernel/tracing/trace` shows, with times in nanoseconds. Steal,
/// throttling and whose system call a softirq ran in are written as `trace_marker` lines that begin
/// with `schedlab:`.
///
/// # Errors
/// What the writer says.
pub fn ftrace(recording: &Recording, out: &mut dyn Write) -> io::Result<Exported> {
    writeln!(out, "# tracer: nop")?;
    writeln!(out, "#")?;
    writeln!(out, "#           TASK-PID     CPU#  flags  TIMESTAMP  FUNCTION")?;
    lines(recording, Dialect::Ftrace, out)
}

/// Writes what `trace-cmd report -t` prints: switches in the words of its plugin, times in
/// nanoseconds.
///
/// # Errors
/// What the writer says.
pub fn trace_cmd(recording: &Recording, out: &mut dyn Write) -> io::Result<Exported> {
    writeln!(out, "cpus={}", recording.header.topology.cpus())?;
    lines(recording, Dialect::TraceCmd, out)
}

/// Writes a page of systrace (atrace): ftrace's text with the processes of threads, in an element
/// that viewers look for.
///
/// # Errors
/// What the writer says.
pub fn systrace(recording: &Recording, out: &mut dyn Write) -> io::Result<Exported> {
    writeln!(
        out,
        "<!DOCTYPE html>\n<html>\n<head><meta charset=\"utf-8\"><title>schedlab</title></head>\n\
         <body>"
    )?;
    writeln!(out, "<script class=\"trace-data\" type=\"application/text\">")?;
    writeln!(out, "# tracer: nop\n#")?;
    writeln!(out, "#           TASK-PID    TGID   CPU#  flags  TIMESTAMP  FUNCTION")?;
    let exported = lines(recording, Dialect::Systrace, out)?;
    writeln!(out, "</script>\n</body>\n</html>")?;
    Ok(exported)
}

fn lines(recording: &Recording, dialect: Dialect, out: &mut dyn Write) -> io::Result<Exported> {
    let (mut blocked, mut renamed) = (0u64, 0u64);
    let mut exported = rows(recording, &mut |mut row| {
        if let What::Lost(count) = row.what {
            return match dialect {
                Dialect::TraceCmd => writeln!(out, "CPU:{} [{count} EVENTS DROPPED]", row.cpu),
                _ => writeln!(out, "CPU:{} [LOST {count} EVENTS]", row.cpu),
            };
        }
        if dialect == Dialect::Systrace {
            renamed += u64::from(without_markup(&mut row));
        }
        let Row { at, cpu, running, context, .. } = &row;
        let comm = if running.tid == 0 { "<idle>" } else { &*running.comm };
        write!(out, "{comm:>16}-{:<7} ", running.tid)?;
        if dialect == Dialect::Systrace {
            match running.pid {
                0 => write!(out, "(-------) ")?,
                pid => write!(out, "({pid:>7}) ")?,
            }
        }
        write!(out, "[{cpu:03}] ")?;
        match context {
            Context::NotShown => {}
            Context::Task => write!(out, "d..2. ")?,
            Context::SoftIrq => write!(out, "d.s2. ")?,
            Context::HardIrq => write!(out, "d.h2. ")?,
        }
        write!(out, "{}.{:09}: ", at / 1_000_000_000, at % 1_000_000_000)?;
        blocked += u64::from(is_blocked(&row.what));
        match &row.what {
            What::Switch { prev, state, next } if dialect == Dialect::TraceCmd => {
                writeln!(
                    out,
                    "sched_switch:         {} {} ==> {}",
                    short(prev),
                    letter(*state),
                    short(next)
                )
            }
            _ => fields(&row, out),
        }
    })?;
    note_blocked(&mut exported, blocked);
    if renamed > 0 {
        exported.notes.push(format!(
            "{renamed} events name a task with `</`, which would end the page; it is written as \
             `<|`"
        ));
    }
    Ok(exported)
}

/// trace-cmd's words for a task.
fn short(task: &Named<'_>) -> String {
    format!("{}:{} [{}]", task.comm, task.tid, task.prio)
}

/// Changes names that a browser takes for the end of the trace; whether there was one.
fn without_markup(row: &mut Row<'_>) -> bool {
    let mut changed = false;
    for task in row.named() {
        if task.comm.contains("</") {
            task.comm = task.comm.replace("</", "<|").into();
            changed = true;
        }
    }
    changed
}

/// Writes what `perf script -F comm,tid,cpu,time,event,trace --ns` prints. It shows no interrupt
/// context, so which task woke which is lost; steal and throttling are left out and counted.
///
/// # Errors
/// What the writer says.
pub fn perf_script(recording: &Recording, out: &mut dyn Write) -> io::Result<Exported> {
    let (mut blocked, mut marks) = (0u64, 0u64);
    let mut exported = rows(recording, &mut |row| {
        if let What::Mark(text) = &row.what {
            marks +=
                u64::from(text != "inline-softirq" && text != "end" && !text.starts_with("begin "));
            return Ok(());
        }
        let Row { at, cpu, running, .. } = &row;
        write!(out, "{:>16} {:>6} [{cpu:03}] ", running.comm, running.tid)?;
        write!(out, "{}.{:09}: ", at / 1_000_000_000, at % 1_000_000_000)?;
        match row.what {
            What::Lost(count) => return writeln!(out, "PERF_RECORD_LOST lost {count}"),
            What::SyscallEnter(_) | What::SyscallExit(_) => write!(out, "raw_syscalls:")?,
            _ => write!(out, "sched:")?,
        }
        blocked += u64::from(is_blocked(&row.what));
        fields(&row, out)
    })?;
    if marks > 0 {
        exported.left_out.insert("steal and throttling", marks);
    }
    note_blocked(&mut exported, blocked);
    if exported.wakes > 0 {
        exported
            .notes
            .push("the text of `perf script` does not show which task woke which".to_owned());
    }
    Ok(exported)
}

fn is_blocked(what: &What<'_>) -> bool {
    matches!(what, What::Switch { state: PrevState::Blocked, .. })
}

pub(super) fn note_blocked(exported: &mut Exported, blocked: u64) {
    if blocked > 0 {
        exported.notes.push(format!(
            "{blocked} tasks blocked in a state that the recorder could not see; written as S \
             (sleeping)"
        ));
    }
}

fn fields(row: &Row<'_>, out: &mut dyn Write) -> io::Result<()> {
    match &row.what {
        What::Switch { prev, state, next } => writeln!(
            out,
            "sched_switch: prev_comm={} prev_pid={} prev_prio={} prev_state={} ==> next_comm={} \
             next_pid={} \
             next_prio={}",
            prev.comm,
            prev.tid,
            prev.prio,
            letter(*state),
            next.comm,
            next.tid,
            next.prio
        ),
        What::Waking { task, target } => {
            writeln!(out, "sched_waking: {} target_cpu={target:03}", subject(task))
        }
        What::Fork { child } => writeln!(
            out,
            "sched_process_fork: comm={} pid={} child_comm={} child_pid={}",
            row.running.comm, row.running.tid, child.comm, child.tid
        ),
        What::Exec => writeln!(
            out,
            "sched_process_exec: filename={} pid={} old_pid={}",
            row.running.comm, row.running.tid, row.running.tid
        ),
        What::Exit => writeln!(out, "sched_process_exit: {}", subject(&row.running)),
        What::Migrate { task, from, to } => {
            writeln!(out, "sched_migrate_task: {} orig_cpu={from} dest_cpu={to}", subject(task))
        }
        What::SyscallEnter(number) => writeln!(out, "sys_enter: NR {number} ()"),
        What::SyscallExit(number) => writeln!(out, "sys_exit: NR {number} = 0"),
        What::Mark(text) => writeln!(out, "tracing_mark_write: {MARK}{text}"),
        What::Lost(_) => Ok(()),
    }
}

fn subject(task: &Named<'_>) -> String {
    format!("comm={} pid={} prio={}", task.comm, task.tid, task.prio)
}

/// The kernel's letter. A task that blocked in an unknown state is written as sleeping.
fn letter(state: PrevState) -> &'static str {
    match state {
        PrevState::Runnable => "R",
        PrevState::RunnableInKernel => "R+",
        PrevState::Sleeping | PrevState::Blocked => "S",
        PrevState::DiskSleep => "D",
        PrevState::Stopped => "T",
        PrevState::Dead => "X",
        PrevState::Unknown => "?",
    }
}
