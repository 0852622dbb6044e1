//! The workload on real threads: a player's process under `schedlab attach`, recorded by our
//! recorder.

use crate::cases::{self, Case};
use crate::player;
use libtest_mimic::Failed;
use schedlab_host::{RecordRequest, RecordUntil, threads};
use schedlab_lab::record::{RecordPlan, record};
use schedlab_model::{CpuId, CpuSet, EventKind, Ns, SchedEvent, Start, TaskId};
use schedlab_trace::Recording;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The managed CPU.
const CPU: CpuId = CpuId(0);
/// In a recording of a player, all tasks sleep this long before time 0.
const GAP: Ns = Ns::from_ms(50);

/// Why real threads cannot be managed here.
pub(crate) fn missing() -> Option<&'static str> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let why = if !rustix::process::geteuid().is_root() { "needs root" } else { "needs two CPUs" };
    (!rustix::process::geteuid().is_root() || cpus < 2).then_some(why)
}

/// A player, and the schedlab that manages it.
struct Stage {
    folder: PathBuf,
    player: Child,
    attached: Child,
}

impl Stage {
    fn new(case: &Case, scheduler: &str) -> Stage {
        Stage::with(case, scheduler, &[])
    }

    fn with(case: &Case, scheduler: &str, more: &[&str]) -> Stage {
        let folder = schedlab_testing::temp_dir()
            .join(format!("schedlab-conformance-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let file = folder.join("workload.json");
        std::fs::write(&file, serde_json::to_string(&case.workload()).expect("JSON"))
            .expect("writable");
        let mut player = Command::new(std::env::current_exe().expect("this program"));
        player.arg(player::COMMAND).arg(&file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut player = player.spawn().expect("this program");
        let mut line = String::new();
        BufReader::new(player.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("it speaks");
        let pid = player.id().to_string();
        let mut attached = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        attached.args(["attach", "--scheduler", scheduler, "--cpus", "0", "--pid", &pid, "--json"]);
        attached.args(more);
        for declared in case.declared() {
            attached.args(["--task", &declared]);
        }
        attached.env("SCHEDLAB_RUN_DIR", folder.join("run")).stdin(Stdio::null());
        let attached = attached.stdout(Stdio::piped()).spawn().expect("the program can be started");
        let stage = Stage { folder, player, attached };
        stage.wait("every thread is managed", || {
            threads::of_process(stage.player.id())
                .into_iter()
                .all(|tid| threads::fifo_priority(tid).is_ok_and(|priority| priority.is_some()))
        });
        stage
    }

    /// A minute is no measure of speed: only a program that hangs takes that long.
    fn wait(&self, what: &str, done: impl Fn() -> bool) {
        for _ in 0..12_000 {
            if done() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("this never happened: {what}");
    }

    fn go(&mut self) {
        self.player.stdin.take().expect("piped").write_all(b"go\n").expect("it reads");
    }

    /// When all is over: what `attach` printed.
    fn end(mut self) -> serde_json::Value {
        assert!(self.player.wait().expect("a child of this test").success(), "the player failed");
        let mut text = String::new();
        let mut out = self.attached.stdout.take().expect("piped");
        std::io::Read::read_to_string(&mut out, &mut text).expect("it prints");
        self.attached.wait().expect("a child of this test");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for child in [&mut self.player, &mut self.attached] {
            // Both have ended when the test went well. The guardian gives everything back.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What came of a workload on real threads.
pub(crate) struct Played {
    /// The events of its tasks, numbered as in the workload, from its time 0 on; or what went
    /// wrong.
    pub(crate) events: Result<Vec<SchedEvent>, Failed>,
    /// For how long the CPU was kept from them by what no driver can hold off: foreign real-time
    /// threads, a hypervisor.
    pub(crate) others: Ns,
    /// Times that the driver gave the CPU away. (It has no need to in an undisturbed run, which is
    /// shorter than the period.)
    pub(crate) yield_windows: u64,
}

/// Plays `case` under `scheduler`.
pub(crate) fn run(case: &Case, scheduler: &str) -> Result<Played, Failed> {
    let mut stage = Stage::new(case, scheduler);
    let mut request = RecordRequest::new(RecordUntil::Stopped);
    request.recorder_cpu = Some(CpuId(1));
    let output = stage.folder.join("run.slt");
    let plan = RecordPlan {
        request,
        output: output.clone(),
        fresh: false,
        note: String::new(),
        max_bytes: None,
        ring: None,
        until: None,
        after: Ns::ZERO,
        goes_on: false,
    };
    let (begun, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let (stage_ref, plan, begun, ended) = (&mut stage, &plan, &begun, &ended);
    std::thread::scope(|scope| {
        let recorder = scope.spawn(move || {
            let stop = || {
                begun.store(true, Ordering::Release);
                ended.load(Ordering::Acquire)
            };
            record(plan, &mut (), &stop)
        });
        while !begun.load(Ordering::Acquire) && !recorder.is_finished() {
            std::thread::sleep(Duration::from_millis(2));
        }
        stage_ref.go();
        let played = stage_ref.player.wait();
        ended.store(true, Ordering::Release);
        played.expect("a child of this test");
        recorder.join().expect("it does not panic")
    })?;
    let recording = Recording::open(&output)?;
    let (pid, agents) = (stage.player.id(), stage.attached.id());
    let report = stage.end();
    let yield_windows = report["counts"]["gifts"].as_u64().unwrap_or(0);
    let others = others(&recording, pid, agents);
    Ok(Played { events: events(case, &recording, pid, &report), others, yield_windows })
}

/// The time on the managed CPU, while a thread of the player `pid` wanted it, of threads that are
/// neither of the player nor of the process with the agents, and in a real-time class (or unknown:
/// gone before the recorder could ask); and stolen time. On the other CPUs, too, for who hears
/// there of wakeups and exits tells the agent (but unknown ones are ordinary tasks there).
fn others(recording: &Recording, pid: u32, agents: u32) -> Ns {
    let tasks = &recording.header.tasks;
    let foreign = |task: TaskId, cpu: CpuId| {
        let info = &tasks[task.index()];
        let real_time = info.known && !info.policy.is_fair();
        info.pid != pid && info.pid != agents && (real_time || !info.known && cpu == CPU)
    };
    let mut wants = std::collections::BTreeSet::new();
    let (mut since, mut sum): (BTreeMap<CpuId, Ns>, Ns) = (BTreeMap::new(), Ns::ZERO);
    for event in &recording.events {
        match event.kind {
            EventKind::Wake { task, .. } | EventKind::New { task, .. }
                if tasks[task.index()].pid == pid =>
            {
                wants.insert(task);
            }
            EventKind::Steal { ns } if !wants.is_empty() => sum += ns,
            EventKind::Switch { prev, prev_state, next } => {
                for (task, on) in [(prev, prev_state.is_runnable() == Some(true)), (next, true)] {
                    let Some(task) = task.filter(|task| tasks[task.index()].pid == pid) else {
                        continue;
                    };
                    if on {
                        wants.insert(task)
                    } else {
                        wants.remove(&task)
                    };
                }
                sum += since
                    .remove(&event.cpu)
                    .map_or(Ns::ZERO, |since| event.at.saturating_sub(since));
                if next.is_some_and(|next| foreign(next, event.cpu)) && !wants.is_empty() {
                    since.insert(event.cpu, event.at);
                }
            }
            _ => {}
        }
    }
    sum
}

fn events(
    case: &Case,
    recording: &Recording,
    pid: u32,
    report: &serde_json::Value,
) -> Result<Vec<SchedEvent>, Failed> {
    let counts = &report["counts"];
    for count in ["starved", "changed_by_others", "refused"] {
        if counts[count] != 0 {
            return Err(format!("{count}: {report}").into());
        }
    }
    // Those that were born on the way were managed too, beside the player's own thread.
    let managed = report["threads"].as_array().map_or(0, Vec::len);
    if managed != case.names().len() + 1 {
        return Err(format!("{managed} threads were managed: {report}").into());
    }
    of_tasks(case, recording, pid)
}

/// Who is who, by name; a thread that another one made may still have that one's name in the
/// recording.
fn numbers(case: &Case, recording: &Recording, pid: u32) -> BTreeMap<TaskId, TaskId> {
    let names = case.names();
    let tasks = recording.header.tasks.iter().enumerate().filter(|(_, info)| info.pid == pid);
    let named = tasks.filter_map(|(index, info)| {
        let number = names.iter().position(|name| *name == info.comm)?;
        Some((TaskId::from(index), TaskId::from(number)))
    });
    let mut numbers: BTreeMap<TaskId, TaskId> = named.collect();
    let spawned = case.workload().tasks.iter().position(|task| task.start == Start::Spawned);
    for event in &recording.events {
        if let (EventKind::New { task, parent: Some(parent) }, Some(spawned)) =
            (event.kind, spawned)
            && numbers.contains_key(&parent)
        {
            numbers.insert(task, TaskId::from(spawned));
        }
    }
    numbers
}

fn of_tasks(case: &Case, recording: &Recording, pid: u32) -> Result<Vec<SchedEvent>, Failed> {
    let names = case.names();
    let numbers = numbers(case, recording, pid);
    let number = |task: TaskId| numbers.get(&task).copied();
    let mut events = Vec::new();
    let (mut last, mut begun) = (None, false);
    for event in &recording.events {
        let kind = match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                let (prev, next) = (prev.and_then(number), next.and_then(number));
                if prev.is_none() && next.is_none() {
                    continue;
                }
                if next.is_some() && event.cpu != CPU {
                    return Err(format!(
                        "{} runs on CPU {}",
                        names[next.map_or(0, TaskId::index)],
                        event.cpu.0
                    )
                    .into());
                }
                EventKind::Switch { prev, prev_state, next }
            }
            EventKind::Wake { task, waker } => match number(task) {
                Some(task) => EventKind::Wake { task, waker },
                None => continue,
            },
            EventKind::New { task, .. } => match number(task) {
                Some(task) => EventKind::New { task, parent: None },
                None => continue,
            },
            EventKind::Lost { count } => return Err(format!("{count} events were lost").into()),
            _ => continue,
        };
        begun |= last.is_some_and(|last| event.at.saturating_sub(last) > GAP);
        last = Some(event.at);
        if begun {
            events.push(SchedEvent { kind, ..*event });
        }
    }
    Ok(events)
}

/// A hog under first in first out, and one that waits: it is given back to the kernel after
/// `--starve-after`.
pub(crate) fn starved() -> Result<(), Failed> {
    let mut stage = Stage::with(&cases::STARVED, "fifo-per-cpu", &["--starve-after", "50ms"]);
    stage.go();
    let report = stage.end();
    match report["counts"]["starved"].as_u64() {
        Some(1..) => Ok(()),
        _ => Err(format!("nobody was released: {report}").into()),
    }
}

/// Another program sends a managed thread to another CPU: it has its own policy there, and stays
/// where it was sent.
pub(crate) fn sent_away() -> Result<(), Failed> {
    let mut stage = Stage::new(&cases::STARVED, "rr:slice_ns=5ms");
    let tids = threads::of_process(stage.player.id());
    let hog =
        tids.into_iter().find(|tid| threads::identity(*tid).is_some_and(|one| one.comm == "h"));
    let hog = hog.ok_or("the hog has a name")?;
    stage.go();
    std::thread::sleep(Duration::from_millis(150));
    let there = CpuSet::single(CpuId(1));
    threads::set_affinity(hog, &there)?;
    stage
        .wait("it is as before", || threads::scheduling(hog).is_ok_and(|now| now.policy.is_fair()));
    let (affinity, report) = (threads::affinity(hog)?, stage.end());
    if affinity != there || report["counts"]["changed_by_others"] != 1 {
        return Err(format!("on {affinity}: {report}").into());
    }
    Ok(())
}
