//! Three tables as CSV (RFC 4180, UTF-8, a heading line): `events.csv`, `tasks.csv`, `waits.csv`.

use super::Exported;
use crate::analysis::Summary;
use crate::format::tasks_of;
use crate::{NewFile, Recording, TraceError};
use schedlab_model::text::csv_field;
use schedlab_model::{EventKind, EventSink, Ns, PrevState, TaskId, Waker};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

/// Writes the tables into `folder`, which is made when it is missing. Each file is written beside its place
/// first; only when all three are whole they are put there.
///
/// # Errors
/// The folder or a file cannot be written, or the recording cannot tell waiting from sleeping.
pub fn csv(recording: &Recording, folder: &Path) -> Result<Exported, TraceError> {
    let mut summary =
        Summary::new(recording.header.tasks.len(), recording.header.topology.cpus(), Ns::ZERO).keep_waits();
    <Summary as crate::analysis::Analysis>::check(&recording.header)?;
    recording.events.iter().for_each(|event| summary.event(event));
    summary.finish(recording.duration);
    let made = |path: &Path, source| TraceError::File { path: path.to_owned(), source };
    let existed = folder.is_dir();
    std::fs::create_dir_all(folder).map_err(|source| made(folder, source))?;
    type Table<'a> = &'a dyn Fn(&mut dyn Write) -> io::Result<()>;
    let tables: [(&str, Table<'_>); 3] = [
        ("events.csv", &|out| events(recording, out)),
        ("tasks.csv", &|out| tasks(recording, &summary, out)),
        ("waits.csv", &|out| waits(recording, &summary, out)),
    ];
    let place = |name: &str| folder.join(name);
    let write_all = || -> Result<(), TraceError> {
        let mut whole = Vec::new();
        for (name, table) in tables {
            let failed = |source| made(&place(name), source);
            let mut out =
                io::BufWriter::with_capacity(1 << 18, NewFile::create(&place(name)).map_err(failed)?);
            table(&mut out).map_err(failed)?;
            whole.push((name, out.into_inner().map_err(|error| failed(error.into_error()))?));
        }
        for (name, file) in whole {
            file.commit().map_err(|source| made(&place(name), source))?;
        }
        Ok(())
    };
    let written = write_all();
    if written.is_err() && !existed {
        // Best effort: the error that matters is the first.
        let _ = std::fs::remove_dir(folder);
    }
    written?;
    let count = |f: fn(&EventKind) -> bool| recording.events.iter().filter(|e| f(&e.kind)).count() as u64;
    Ok(Exported {
        switches: count(|kind| matches!(kind, EventKind::Switch { .. })),
        wakes: count(|kind| matches!(kind, EventKind::Wake { .. })),
        ..Exported::default()
    })
}

fn events(recording: &Recording, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "at_ns,cpu,event,task,tid,comm,state,next_task,next_tid,next_comm,by,detail")?;
    let header = &recording.header;
    let who = |task: Option<TaskId>| match task {
        None => ",,".to_owned(),
        Some(task) => {
            let info = &header.tasks[task.index()];
            format!("{},{},{}", task.0, info.tid, csv_field(&info.comm))
        }
    };
    for event in &recording.events {
        let [task, _] = tasks_of(&event.kind);
        let (mut state, mut next, mut by, mut detail) = ("", None, String::new(), String::new());
        let name = match event.kind {
            EventKind::Switch { prev_state, next: to, .. } => {
                (state, next) = (state_name(prev_state), to);
                "switch"
            }
            EventKind::Wake { waker, .. } => {
                by = waker_name(waker);
                "wake"
            }
            EventKind::New { parent, .. } => {
                by = parent.map(|parent| format!("task:{}", parent.0)).unwrap_or_default();
                "new"
            }
            EventKind::Exec { .. } => "exec",
            EventKind::Exit { .. } => "exit",
            EventKind::Migrate { from, to, .. } => {
                detail = format!("{}>{}", from.0, to.0);
                "migrate"
            }
            EventKind::Throttle { .. } => "throttle",
            EventKind::Unthrottle { .. } => "unthrottle",
            EventKind::Steal { ns } => {
                detail = ns.0.to_string();
                "steal"
            }
            EventKind::Regroup { group, .. } => {
                let path = header.groups.get(group.index()).map_or("/", |group| group.spec.name.as_str());
                detail = csv_field(path);
                "regroup"
            }
            EventKind::Lost { count } => {
                detail = count.to_string();
                "lost"
            }
            EventKind::SyscallEnter { number, .. } => {
                detail = number.to_string();
                "syscall-enter"
            }
            EventKind::SyscallExit { .. } => "syscall-exit",
            _ => "other",
        };
        let (task, next) = (who(task), who(next));
        writeln!(out, "{},{},{name},{task},{state},{next},{by},{detail}", event.at.0, event.cpu.0)?;
    }
    Ok(())
}

fn state_name(state: PrevState) -> &'static str {
    match state {
        PrevState::Runnable => "runnable",
        PrevState::RunnableInKernel => "runnable-in-kernel",
        PrevState::Sleeping => "sleeping",
        PrevState::DiskSleep => "disk-sleep",
        PrevState::Stopped => "stopped",
        PrevState::Dead => "dead",
        PrevState::Blocked => "blocked",
        PrevState::Unknown => "unknown",
    }
}

fn waker_name(waker: Waker) -> String {
    match waker {
        Waker::Task(by) => format!("task:{}", by.0),
        Waker::InlineSoftirq(by) => format!("inline-softirq:{}", by.0),
        Waker::SoftIrq => "softirq".to_owned(),
        Waker::HardIrq => "hardirq".to_owned(),
        Waker::Unknown => "unknown".to_owned(),
    }
}

fn tasks(recording: &Recording, summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let mut head = "task,tid,pid,comm,policy,nice,affinity,cgroup,kernel,attributes_known,run_ns,slept_ns,\
                    throttled_ns,switches,preemptions,migrations,wakeups,activations"
        .to_owned();
    for name in ["wake_latency", "preempt_wait", "response"] {
        for stat in ["count", "p50_ns", "p99_ns", "max_ns"] {
            let _ = write!(head, ",{name}_{stat}");
        }
    }
    writeln!(out, "{head}")?;
    for (index, info) in recording.header.tasks.iter().enumerate() {
        let got = &summary.tasks[index];
        let group = recording.header.groups.get(info.group.index()).map_or("/", |g| g.spec.name.as_str());
        write!(
            out,
            "{index},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            info.tid,
            info.pid,
            csv_field(&info.comm),
            info.policy,
            info.nice.get(),
            csv_field(&info.affinity.to_string()),
            csv_field(group),
            info.kernel,
            info.known,
            got.run.0,
            got.slept.0,
            got.throttled.0,
            got.switches,
            got.preemptions,
            got.migrations,
            got.wakeups,
            got.activations
        )?;
        for of in [&got.wake_latency, &got.preempt_wait, &got.response] {
            write!(out, ",{},{},{},{}", of.count(), of.p50().0, of.p99().0, of.max().0)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn waits(recording: &Recording, summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "began_ns,ended_ns,wait_ns,cpu,task,tid,comm,why")?;
    for wait in summary.waits() {
        let info = recording.task(wait.task);
        let why = if wait.preempted { "preempted" } else { "woken" };
        let (tid, comm) = (info.tid, csv_field(&info.comm));
        let ended = wait.ended.0;
        writeln!(
            out,
            "{},{ended},{},{},{},{tid},{comm},{why}",
            wait.began.0, wait.wait.0, wait.cpu.0, wait.task.0
        )?;
    }
    Ok(())
}
