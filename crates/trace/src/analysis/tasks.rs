//! The [`Summary`] as a table.

use super::show::{Cell, Column, Entry, Found, Layout, Output, Table, column};
use super::{By, Keys, Scope, Summary, TaskSummary};
use crate::Recording;
use schedlab_model::{CpuId, EventSink, Ns, TaskId};
use std::io;

/// The list's entry.
pub(crate) const ENTRY: Entry = Entry::finding::<Summary>(
    "tasks",
    "CPU time, waits, responses and switches of every task",
    find,
);

const COLUMNS: &[Column] = &[
    column("task", "task"),
    column("threads", "threads").rank(9),
    column("run_ns", "run"),
    column("share", "CPU share").rank(1),
    column("switches", "switches").rank(6),
    column("latency_p50_ns", "latency p50").rank(3),
    column("latency_p50_interval_ns", "latency p50 interval").rank(8),
    column("latency_p99_ns", "latency p99").rank(1),
    column("latency_p99_interval_ns", "latency p99 interval").rank(3),
    column("latency_max_ns", "latency max").rank(2),
    column("preemptions", "preempted").rank(6),
    column("preempt_wait_max_ns", "preempted max").rank(4),
    column("activations", "activations").rank(8),
    column("response_p99_ns", "response p99").rank(3),
    column("response_p99_interval_ns", "response p99 interval").rank(5),
    column("migrations", "migrations").rank(7),
    column("throttled_ns", "throttled").rank(4),
    column("slept_ns", "slept").rank(9),
    column("wakeups", "wakeups").rank(8),
    column("unknown_wakes", "unknown wakeups").rank(9),
];

const CPUS: &[Column] = &[
    column("cpu", "CPU"),
    column("busy", "busy"),
    column("idle", "idle"),
    column("unknown", "unknown"),
    column("stolen_ns", "stolen"),
    column("switches", "switches"),
];

fn find<'a>(recording: &'a Recording, scope: &'a Scope) -> Found<'a> {
    let header = &recording.header;
    let summary = Summary::new(header.tasks.len(), header.topology.cpus(), scope.from);
    let mut summary = summary.without_run_lengths();
    scope.events(recording).iter().for_each(|event| summary.event(event));
    summary.finish(scope.end(recording));
    let keys = Keys::new(header, scope.by.unwrap_or(By::Name));
    let mut lines = vec![(0, TaskSummary::default()); keys.len()];
    let tasks = std::mem::take(&mut summary.tasks).into_iter().enumerate();
    for (index, task) in tasks.filter(|(i, _)| scope.task(TaskId::from(*i))) {
        let (threads, line) = &mut lines[keys.line(TaskId::from(index))];
        *threads += 1;
        match *threads {
            1 => *line = task,
            _ => line.merge(&task),
        }
    }
    let mut order: Vec<usize> =
        (0..lines.len()).filter(|&line| lines[line].1.switches > 0).collect();
    order.sort_by_key(|&line| std::cmp::Reverse(lines[line].1.run));
    keys.server_first(scope, &mut order, |line| *line);
    // Several questions about each follow.
    lines.iter_mut().for_each(|(_, task)| task.settle());
    Box::new(move |out| {
        show_tasks(&lines, &order, (&keys, summary.window), out)?;
        show_cpus(&summary, scope, out)
    })
}

/// Shows a line of a table for each of `lines`, in this order.
fn show_tasks(
    lines: &[(u64, TaskSummary)],
    order: &[usize],
    (keys, window): (&Keys, Ns),
    out: &mut dyn Output,
) -> io::Result<()> {
    let title = "What every task got";
    out.table(&Table { key: "tasks", title, columns: COLUMNS, layout: Layout::Table })?;
    for &line in order {
        let (threads, task) = &lines[line];
        let some = |count: u64, cell| if count > 0 { cell } else { Cell::None };
        let (latency, wait) = (&task.wake_latency, &task.preempt_wait);
        out.row(&[
            Cell::label(&keys.labels[line]),
            Cell::Count(*threads),
            Cell::Time(task.run),
            Cell::part(task.run, window),
            Cell::Count(task.switches),
            some(latency.count(), Cell::Time(latency.p50())),
            Cell::interval(latency, 500_000),
            some(latency.count(), Cell::Time(latency.p99())),
            Cell::interval(latency, 990_000),
            some(latency.count(), Cell::Time(latency.max())),
            Cell::Count(task.preemptions),
            some(wait.count(), Cell::Time(wait.max())),
            Cell::Count(task.activations),
            some(task.activations, Cell::Time(task.response.p99())),
            Cell::interval(&task.response, 990_000),
            Cell::Count(task.migrations),
            some(task.throttled.0, Cell::Time(task.throttled)),
            Cell::Time(task.slept),
            Cell::Count(task.wakeups),
            Cell::Count(task.unknown_wakes),
        ])?;
    }
    Ok(())
}

/// Shows the CPUs.
fn show_cpus(summary: &Summary, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    out.table(&Table {
        key: "cpus",
        title: "What every CPU did",
        columns: CPUS,
        layout: Layout::Table,
    })?;
    for (index, cpu) in summary.cpus.iter().enumerate().filter(|(i, _)| scope.on(CpuId::from(*i))) {
        let part = |time: Ns| Cell::part(time, summary.window);
        out.row(&[
            Cell::Cpu(CpuId::from(index)),
            part(cpu.busy),
            part(cpu.idle),
            part(cpu.unknown),
            Cell::Time(cpu.stolen),
            Cell::Count(cpu.switches),
        ])?;
    }
    Ok(())
}
