//! Every task: what it is, and what it got.

use super::{CGROUP, COMM, ColumnDef, Kind, Rows, TASK, TID, TableDef, Value};
use super::{cgroup, column, names};
use crate::analysis::{Durations, Summary};
use crate::{Recording, TraceError};
use schedlab_model::TaskId;

/// The table of tasks.
pub const TASKS: TableDef = TableDef {
    name: "tasks",
    doc: "One task that occurs in the recording: its attributes, and what it got.",
    columns: COLUMNS,
};

const COLUMNS: &[ColumnDef] = &[
    TASK,
    TID,
    column("pid", Kind::Int, "Process id (thread group)."),
    COMM,
    column(
        "policy",
        Kind::Text,
        "Policy, such as `other`, `batch`, `idle`, `fifo:10`; `ext` where a sched_ext scheduler \
         had the task.",
    ),
    column("nice", Kind::Int, "Nice value, -20 to 19."),
    column("affinity", Kind::Text, "CPUs that it may use, such as `0-3`."),
    CGROUP,
    column("kernel", Kind::Bool, "Whether it is a thread of the kernel."),
    column(
        "attributes_known",
        Kind::Bool,
        "Whether policy, nice, affinity and group were read from the kernel; else they are \
         defaults.",
    ),
    column("run_ns", Kind::Int, "CPU time, without stolen time."),
    column("slept_ns", Kind::Int, "Time for which it slept."),
    column("throttled_ns", Kind::Int, "Time for which a limit held it back."),
    column("switches", Kind::Int, "Times it was put on a CPU."),
    column("preemptions", Kind::Int, "Times it was taken off a CPU although it could go on."),
    column("migrations", Kind::Int, "Moves to another CPU's run queue."),
    column("wakeups", Kind::Int, "Times it woke or was created."),
    column("activations", Kind::Int, "Activations (wakeup to the next block) that ended."),
    column("wake_latency_count", Kind::Int, "Waits from wakeup to running."),
    column("wake_latency_p50_ns", Kind::Int, "Their median."),
    column("wake_latency_p99_ns", Kind::Int, "Their 99th percentile."),
    column("wake_latency_max_ns", Kind::Int, "The longest."),
    column("preempt_wait_count", Kind::Int, "Waits from a preemption to running again."),
    column("preempt_wait_p50_ns", Kind::Int, "Their median."),
    column("preempt_wait_p99_ns", Kind::Int, "Their 99th percentile."),
    column("preempt_wait_max_ns", Kind::Int, "The longest."),
    column("response_count", Kind::Int, "Responses: wakeup to the next block."),
    column("response_p50_ns", Kind::Int, "Their median."),
    column("response_p99_ns", Kind::Int, "Their 99th percentile."),
    column("response_max_ns", Kind::Int, "The longest."),
];

/// Hands on every task.
///
/// # Errors
/// The recording cannot tell waiting from sleeping.
pub fn tasks(recording: &Recording, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let summary = Summary::from_recording(recording)?;
    for (index, (info, got)) in recording.header.tasks.iter().zip(&summary.tasks).enumerate() {
        let [task, tid, comm] = names(recording, Some(TaskId::from(index)));
        let (policy, affinity) = (recording.header.policy_of(info), info.affinity.to_string());
        let ([w1, w2, w3, w4], [p1, p2, p3, p4], [r1, r2, r3, r4]) =
            (four(&got.wake_latency), four(&got.preempt_wait), four(&got.response));
        let row = [
            task,
            tid,
            Value::count(info.pid),
            comm,
            Value::Text(&policy),
            Value::count(info.nice.get()),
            Value::Text(&affinity),
            cgroup(recording, TaskId::from(index)),
            Value::Bool(info.kernel),
            Value::Bool(info.known),
            Value::time(got.run),
            Value::time(got.slept),
            Value::time(got.throttled),
            Value::count(got.switches),
            Value::count(got.preemptions),
            Value::count(got.migrations),
            Value::count(got.wakeups),
            Value::count(got.activations),
            w1,
            w2,
            w3,
            w4,
            p1,
            p2,
            p3,
            p4,
            r1,
            r2,
            r3,
            r4,
        ];
        if rows(&row).is_break() {
            break;
        }
    }
    Ok(())
}

fn four(of: &Durations) -> [Value<'static>; 4] {
    [Value::count(of.count()), Value::time(of.p50()), Value::time(of.p99()), Value::time(of.max())]
}
