//! A recording as an rt-app workload: what its tasks wanted, for a machine on which schedlab is
//! not.
//!
//! The replay's programs become phases: CPU time `runtime`, absolute times one timer of the thread,
//! messages semaphores (they keep what is posted before a task waits, as the replay's channels do;
//! rt-app has them since May 2026).

use schedlab_model::{
    Amount, CpuId, CpuSet, Ns, Op, Policy, SourceKind, Start, TaskId, TaskSpec, Workload,
};
use schedlab_trace::replay::{END, ReplayOptions, replay};
use schedlab_trace::{Recording, TraceError};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A JSON object whose entries keep their order: rt-app carries out the events of a phase as they
/// stand in the file.
#[derive(Default)]
struct Object(Vec<String>);

impl Object {
    fn insert(&mut self, key: &str, value: impl std::fmt::Display) {
        self.0.push(format!("{}: {value}", json!(key)));
    }
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{{ {} }}", self.0.join(", "))
    }
}

/// A workload for rt-app.
#[derive(Clone, Debug)]
pub struct Exported {
    /// The file.
    pub json: String,
    /// Tasks in it, helpers that stand for the outside world included.
    pub tasks: usize,
    /// What was left out or simplified, one line each.
    pub notes: Vec<String>,
}

/// Returns the rt-app workload of a recording.
///
/// # Errors
/// A recording that cannot be replayed.
pub fn export(recording: &Recording) -> Result<Exported, TraceError> {
    let mut notes = BTreeSet::new();
    let mut options = ReplayOptions::default();
    let mut found = replay(recording, &options);
    let selects = |workload: &Workload| {
        workload.tasks.iter().any(|task| task.program.ops.contains(&Op::Select))
    };
    if found.as_ref().map_or(true, |found| selects(&found.workload)) {
        options.without_wakes = true;
        found = replay(recording, &options);
        notes.insert(
            "which task woke which is left out: tasks begin each activation when they did in the \
             recording"
                .to_owned(),
        );
    }
    let found = found?;
    notes.insert("times are rounded to microseconds".to_owned());
    let mut writer = Writer {
        workload: &found.workload,
        cpus: found.topology.cpus(),
        names: Vec::new(),
        semaphores: semaphores(&found.workload),
        notes,
    };
    writer.names =
        found.workload.tasks.iter().enumerate().map(|(id, task)| name(&task.name, id)).collect();
    let mut tasks = Vec::new();
    let idle = |task: &TaskSpec| matches!(task.start, Start::At(at) | Start::AsleepUntil(at) if at > found.duration);
    let (still, moving): (Vec<usize>, Vec<usize>) =
        (0..found.workload.tasks.len()).partition(|&id| idle(&found.workload.tasks[id]));
    if !still.is_empty() {
        writer.notes.insert(format!(
            "{} tasks that did nothing in the recording are left out",
            still.len()
        ));
    }
    for id in moving {
        tasks.push(format!("    {}: {}", json!(writer.names[id]), writer.task(id)));
    }
    for (id, source) in found.workload.sources.iter().enumerate() {
        if let SourceKind::Recorded { at } = &source.kind {
            tasks.push(format!("    \"outside-{id}\": {}", writer.source(at, source.into.index())));
        }
    }
    let count = tasks.len();
    let seconds = found.duration.0.div_ceil(1_000_000_000).max(1);
    let json = format!(
        "{{\n  \"tasks\": {{\n{}\n  }},\n  \"global\": {{ \"duration\": {seconds}, \"calibration\": \"CPU0\", \"default_policy\": \
         \"SCHED_OTHER\", \"pi_enabled\": false }}\n}}\n",
        tasks.join(",\n")
    );
    Ok(Exported { json, tasks: count, notes: writer.notes.into_iter().collect() })
}

/// A name that rt-app takes, of which there is one.
fn name(comm: &str, id: usize) -> String {
    let plain: String = comm
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' })
        .collect();
    format!("{plain}-{id}")
}

struct Writer<'w> {
    workload: &'w Workload,
    cpus: usize,
    names: Vec<String>,
    /// By channel. A semaphore of rt-app is known by its name, and threads of one name have
    /// channels of their own.
    semaphores: Vec<String>,
    notes: BTreeSet<String>,
}

/// The name of a semaphore for each channel, of which there is one.
fn semaphores(workload: &Workload) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let name = |(index, channel): (usize, &schedlab_model::ChannelSpec)| {
        let plain = channel.name.replace(char::is_whitespace, "_");
        if seen.insert(plain.clone()) { plain } else { format!("{plain}-{index}") }
    };
    workload.channels.iter().enumerate().map(name).collect()
}

impl Writer<'_> {
    fn task(&mut self, id: usize) -> Object {
        let spec = &self.workload.tasks[id];
        let mut task = Object::default();
        let begin = match spec.start {
            Start::At(at) | Start::AsleepUntil(at) => at,
            Start::Spawned => {
                task.insert("instance", json!(0));
                Ns::ZERO
            }
        };
        self.attributes(spec, &mut task);
        if micros(begin.0) > 0 {
            task.insert("delay", json!(micros(begin.0)));
        }
        task.insert("loop", json!(1));
        let ops = &spec.program.ops;
        let endless = spec.program.repeat_from.map_or(ops.len(), |from| from as usize);
        let mut clock = begin.0;
        let mut phases = Object::default();
        for (phase, ops, times) in [("once", &ops[..endless], 1), ("again", &ops[endless..], -1)] {
            let mut events = Object::default();
            events.insert("loop", json!(times));
            for op in ops {
                self.event(op, &mut events, &mut clock);
            }
            if events.0.len() > 1 {
                phases.insert(phase, events);
            }
        }
        if phases.0.is_empty() {
            phases.insert("once", json!({ "loop": 1, "sleep0": 0 }));
        }
        task.insert("phases", phases);
        task
    }

    fn attributes(&mut self, spec: &TaskSpec, task: &mut Object) {
        let (policy, priority) = match spec.policy {
            Policy::Other => ("SCHED_OTHER", i64::from(spec.nice.get())),
            Policy::Batch => ("SCHED_BATCH", i64::from(spec.nice.get())),
            Policy::Idle => ("SCHED_IDLE", 0),
            Policy::Fifo(priority) => ("SCHED_FIFO", i64::from(priority)),
            Policy::Rr(priority) => ("SCHED_RR", i64::from(priority)),
            Policy::Deadline { runtime, deadline, period } => {
                for (key, value) in
                    [("dl-runtime", runtime), ("dl-deadline", deadline), ("dl-period", period)]
                {
                    task.insert(key, json!(micros(value.0)));
                }
                ("SCHED_DEADLINE", 0)
            }
        };
        task.insert("policy", json!(policy));
        if !matches!(spec.policy, Policy::Deadline { .. }) {
            task.insert("priority", json!(priority));
        }
        let all = CpuSet::first(self.cpus);
        let allowed: Vec<u32> =
            spec.affinity.iter().filter(|cpu| all.contains(*cpu)).map(|CpuId(cpu)| cpu).collect();
        if !allowed.is_empty() && allowed.len() < self.cpus {
            task.insert("cpus", json!(allowed));
        }
        let group =
            &self.workload.groups.get(spec.group.index()).map_or("/", |group| group.name.as_str());
        if *group != "/" {
            task.insert("taskgroup", json!(group));
        }
    }

    /// Adds what an operation becomes. `clock` is the time of the thread's timer.
    fn event(&mut self, op: &Op, events: &mut Object, clock: &mut u64) {
        let mut add = |event: &str, value: Value| {
            let key = format!("{event}{}", events.0.len());
            events.insert(&key, value);
        };
        let semaphore = |channel: usize| json!(self.semaphores[channel]);
        match *op {
            Op::Run(Amount::Fixed(length)) | Op::Kernel { length: Amount::Fixed(length), .. } => {
                add("runtime", json!(micros(length.0)));
            }
            Op::Sleep(Amount::Fixed(length)) => add("sleep", json!(micros(length.0))),
            Op::SleepUntil(at) => {
                // Absolute timers of rt-app go on from their last expiry (src/rt-app.c,
                // rtapp_timer).
                let period = micros(at.0).saturating_sub(micros(*clock));
                *clock = at.0.max(*clock);
                add("timer", json!({ "ref": "unique", "period": period, "mode": "absolute" }));
            }
            Op::NextPeriod { period, .. } => {
                add(
                    "timer",
                    json!({ "ref": "unique", "period": micros(period.0), "mode": "absolute" }),
                );
            }
            // A task whose recorded work is done ends; in a replay it waits for what never comes.
            Op::Receive(channel) if self.workload.channels[channel.index()].name == END => {}
            Op::Receive(channel) | Op::ReceiveAll(channel) => {
                add("sem_wait", semaphore(channel.index()))
            }
            Op::ReceiveCount { channel, count } => {
                (0..count).for_each(|_| add("sem_wait", semaphore(channel.index())));
            }
            Op::Send { channel, count } => {
                (0..count).for_each(|_| add("sem_post", semaphore(channel.index())));
            }
            Op::Device { channel, count, .. } => {
                self.notes.insert(
                    "a device answers at once: rt-app has none that works while its thread goes on"
                        .to_owned(),
                );
                (0..count).for_each(|_| add("sem_post", semaphore(channel.index())));
            }
            Op::Spawn(TaskId(child)) => add("fork", json!(self.names[child as usize])),
            Op::Yield => add("yield", json!("")),
            Op::Exit => {}
            ref other => {
                let word = format!("{other:?}");
                let word = word.split([' ', '(']).next().unwrap_or_default();
                self.notes.insert(format!("left out: {word}"));
            }
        }
    }

    /// A thread that posts what came from outside, when it came.
    fn source(&mut self, at: &[Ns], channel: usize) -> Object {
        self.notes.insert(
            "what came from outside comes from the threads `outside-N`, which need some CPU time \
             themselves"
                .to_owned(),
        );
        let mut events = Object::default();
        events.insert("loop", json!(1));
        let mut clock = 0;
        for at in at {
            self.event(&Op::SleepUntil(*at), &mut events, &mut clock);
            let send = Op::Send { channel: channel.into(), count: 1 };
            self.event(&send, &mut events, &mut clock);
        }
        let (mut task, mut phases) = (Object::default(), Object::default());
        phases.insert("once", events);
        task.insert("policy", "\"SCHED_FIFO\"");
        task.insert("priority", 99);
        task.insert("loop", 1);
        task.insert("phases", phases);
        task
    }
}

/// Microseconds, rounded.
const fn micros(ns: u64) -> u64 {
    (ns + 500) / 1_000
}
