//! The text of LTTng's kernel events, as babeltrace 1 prints it with `--clock-seconds`.

use super::Exported;
use super::rows::{Named, Row, What, rows};
use crate::Recording;
use schedlab_model::PrevState;
use std::io::{self, Write};

/// Writes `[SECONDS.NS] (+DELTA) HOST EVENT: { cpu_id = N }, { FIELDS }`. LTTng's events do not
/// show interrupts, so which task woke another is lost; steal, throttling and system calls are left
/// out and counted. Losses are babeltrace's warnings.
///
/// # Errors
/// What the writer says.
pub fn lttng(recording: &Recording, out: &mut dyn Write) -> io::Result<Exported> {
    let host: String = recording
        .header
        .machine
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .collect();
    let host = if host.is_empty() { "localhost" } else { &host };
    let (mut last, mut left_out, mut quoted, mut blocked) = (0u64, 0u64, 0u64, 0u64);
    let mut exported = rows(recording, &mut |row| {
        let Row { at, cpu, .. } = &row;
        let stamp = |at: u64| format!("{}.{:09}", at / 1_000_000_000, at % 1_000_000_000);
        if let What::Lost(count) = row.what {
            return writeln!(
                out,
                "[warning] Tracer discarded {count} events between [{0}] and [{0}] in trace UUID \
                 0, at path: \"kernel\", within \
                 stream id 0, at relative path: \"channel0_{cpu}\".",
                stamp(*at)
            );
        }
        let Some((event, fields)) = event(&row) else {
            let known = matches!(&row.what, What::Mark(text) if text == "end" || text.starts_with("begin "));
            left_out += u64::from(!known);
            return Ok(());
        };
        quoted += u64::from(fields.contains('\u{2019}'));
        blocked += u64::from(matches!(row.what, What::Switch { state: PrevState::Blocked, .. }));
        let delta = at.saturating_sub(std::mem::replace(&mut last, *at));
        writeln!(
            out,
            "[{}] (+{}) {host} {event}: {{ cpu_id = {cpu} }}, {{ {fields} }}",
            stamp(*at),
            stamp(delta)
        )
    })?;
    if left_out > 0 {
        exported.left_out.insert("system calls, steal, throttling and marks", left_out);
    }
    if exported.wakes > 0 {
        exported.notes.push("LTTng's events do not show which task woke which".to_owned());
    }
    if quoted > 0 {
        exported.notes.push(format!(
            "{quoted} events name a task with a double quote; it is written as \u{2019}"
        ));
    }
    super::text::note_blocked(&mut exported, blocked);
    Ok(exported)
}

/// The event's name and its fields; `None`: LTTng has none like it.
fn event(row: &Row<'_>) -> Option<(&'static str, String)> {
    let named = |before: &str, task: &Named<'_>| {
        let comm = task.comm.replace('"', "\u{2019}");
        // lttng-modules writes the kernel's priority less 100.
        format!(
            "{before}comm = \"{comm}\", {before}tid = {}, {before}prio = {}",
            task.tid,
            task.prio - 100
        )
    };
    Some(match &row.what {
        What::Switch { prev, state, next } => (
            "sched_switch",
            format!(
                "{}, prev_state = {}, {}",
                named("prev_", prev),
                bits(*state),
                named("next_", next)
            ),
        ),
        What::Waking { task, target } => {
            ("sched_waking", format!("{}, target_cpu = {target}", named("", task)))
        }
        What::Fork { child } => (
            "sched_process_fork",
            format!("{}, {}", named("parent_", &row.running), named("child_", child)),
        ),
        What::Exec => (
            "sched_process_exec",
            format!(
                "filename = \"{}\", tid = {1}, old_tid = {1}",
                row.running.comm.replace('"', "\u{2019}"),
                row.running.tid
            ),
        ),
        What::Exit => ("sched_process_exit", named("", &row.running)),
        What::Migrate { task, from, to } => (
            "sched_migrate_task",
            format!("{}, orig_cpu = {from}, dest_cpu = {to}", named("", task)),
        ),
        What::Lost(_) | What::SyscallEnter(_) | What::SyscallExit(_) | What::Mark(_) => {
            return None;
        }
    })
}

/// The bits of kernels from 4.14 on (include/linux/sched.h).
const fn bits(state: PrevState) -> u32 {
    match state {
        PrevState::Runnable => 0,
        PrevState::RunnableInKernel => 0x100,
        PrevState::Sleeping | PrevState::Blocked => 1,
        PrevState::DiskSleep => 2,
        PrevState::Stopped => 4,
        PrevState::Dead => 0x10,
        PrevState::Unknown => 0x200,
    }
}
