//! A task that mostly waits: `nc -l` beside `yes`. When it is scheduled and descheduled, in which
//! system call it waits, and what an input line costs.

use super::figures::{Collected, Figure, Sheet, Unit};
use super::measurement::{Measurement, now_ns, record_measurement, time_of};
use super::model::MachineModel;
use super::plan::{ExperimentError, ExperimentKind, ExperimentObserver, ExperimentPlan, chosen};
use super::result::{Asleep, ExperimentResult, StreamLine};
use super::rounds::{Rounds, in_turns};
use super::testbed::{Testbed, listens, scheduling};
use super::window::RecordedWindow;
use schedlab_host::program::{Program, Running};
use schedlab_host::threads;
use schedlab_model::{CpuSet, Ns, Policy};
use schedlab_stats::Random;
use schedlab_trace::analysis::follow::Followed;
use schedlab_trace::analysis::stream::{Stream, StreamEntry, What};
use schedlab_trace::analysis::{Scope, syscalls};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Mean time between two lines.
const GAP: Duration = Duration::from_millis(10);
/// How long no client connects: `nc` must not run meanwhile.
const SILENCE: Duration = Duration::from_millis(300);
/// Lines of the stream that are kept.
const STREAM: usize = 24;

const PER_LINE: Figure = Figure { name: "CPU time per line", unit: Unit::Time };
const WAKES: Figure = Figure { name: "scheduled per line", unit: Unit::Count };
const P50: Figure = Figure { name: "wait p50", unit: Unit::Time };
const P90: Figure = Figure { name: "wait p90", unit: Unit::Time };
const P99: Figure = Figure { name: "wait p99", unit: Unit::Time };
const MAX: Figure = Figure { name: "wait max", unit: Unit::Time };
const SILENT: Figure = Figure { name: "scheduled without a client", unit: Unit::Count };
const FIGURES: [Figure; 7] = [SILENT, PER_LINE, WAKES, P50, P90, P99, MAX];

struct Row {
    name: &'static str,
    /// How `yes` is scheduled; `None`: there is none.
    beside: Option<Policy>,
}

const ROWS: [Row; 3] = [
    Row { name: "beside yes", beside: Some(Policy::Other) },
    Row { name: "beside idle yes", beside: Some(Policy::Idle) },
    Row { name: "alone", beside: None },
];

/// One round.
struct Round {
    window: RecordedWindow,
    pid: u32,
    lines: u64,
    connected: Ns,
    asleep: Vec<Asleep>,
}

pub(super) fn run(
    testbed: &mut Testbed<'_>,
    plan: &ExperimentPlan,
    observer: &mut dyn ExperimentObserver,
) -> Result<ExperimentResult, ExperimentError> {
    let rows = chosen(&ROWS, |row| row.name, plan)?;
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    let (mut asleep, mut stream) = (Vec::new(), Vec::new());
    let all = rows.len() * plan.rounds;
    observer.plan(ExperimentKind::Sleeper, all, time_of(all, plan.time));
    let rounds = in_turns(testbed, plan, observer, &names, &mut |turn, here| {
        let row = rows[turn.row];
        let round = measure(testbed, row, plan.time, turn.seed)?;
        add_values(here, row.name, &round);
        if (turn.row, turn.round) == (0, 0) {
            stream = stream_of(&round);
            asleep.clone_from(&round.asleep);
        }
        Ok(round.window)
    })?;
    let Rounds { here, model, doubts } = rounds;
    let mut simulated = Collected::default();
    for row in &rows {
        if let Some(cost) = here.median(row.name, PER_LINE) {
            let seen = simulate(&model, row, cost)?;
            add_waits(&mut simulated, row.name, &seen.sum(|info| info.comm == "nc"));
        }
    }
    let of_model = |row: &str, figure: &str| {
        simulated.median(row, *FIGURES.iter().find(|known| known.name == figure)?)
    };
    let lines = here.lines(
        &names,
        &FIGURES,
        "beside yes",
        &|_, figure| published(figure),
        &of_model,
        plan.seed,
    );
    Ok(ExperimentResult {
        name: ExperimentKind::Sleeper,
        title: "A task that sleeps beside one that never does: nc -l, and yes".to_owned(),
        conditions: vec![conditions(plan), model.about.clone()],
        sheets: vec![Sheet {
            title: "`nc -l` on one CPU; the row says what runs beside it. Waits: from the wakeup \
                    to running"
                .to_owned(),
            source: "published: that a task which waits is not scheduled; no times \
                 (docs/sources/experiments.md)"
                .to_owned(),
            lines,
        }],
        findings: findings(&here, &asleep),
        stream,
        asleep,
        reasons: REASONS.map(str::to_owned).to_vec(),
        doubts,
        given_back: Default::default(),
    })
}

fn conditions(plan: &ExperimentPlan) -> String {
    format!(
        "{} rounds of {}, rows in random order (seed {}); a line of 6 bytes every {} ms on \
         average (exponential), the \
         first after {} ms",
        plan.rounds,
        plan.time,
        plan.seed,
        GAP.as_millis(),
        SILENCE.as_millis()
    )
}

/// Why the simulated column differs.
const REASONS: [&str; 2] = [
    "simulated: a client on another CPU sends a line every 10 ms on average, and nc then runs as \
     long as a line cost here; the \
     way of the packet through the kernel is in that cost, not in its wait",
    "wait: the simulator's wakeup across CPUs is the median that `calibrate` found, the same each \
     time; here it is an interrupt \
     between processors, which takes longer now and then on a virtual machine, by an exit to the \
     host",
];

/// Returns what was published: a task that waits for a connection is not scheduled at all
/// (docs/sources/experiments.md, section 1).
fn published(figure: &str) -> Option<f64> {
    (figure == SILENT.name).then_some(0.0)
}

fn measure(
    testbed: &Testbed<'_>,
    row: &Row,
    time: Ns,
    seed: u64,
) -> Result<Round, ExperimentError> {
    let port = free_port()?;
    let words = ["nc", "-l", "127.0.0.1", &port.to_string()].map(str::to_owned);
    let program =
        Program { cpus: Some(CpuSet::single(testbed.cpu)), piped: true, ..Program::new(words) };
    let mut nc = testbed.launch(program, scheduling(Policy::Other, 0))?;
    // `nc` reads its standard input too: this end stays open and sends nothing.
    let _silent = nc.stdin();
    let beside = |policy: Policy| testbed.start(&["yes"], scheduling(policy, 0));
    let _beside: Option<Running> = row.beside.map(beside).transpose()?;
    let pid = nc.pid();
    testbed.wait("nc -l", || listens(pid, port))?;
    let (begin, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (sender, asleep_before) = (
        LineSender { port, pid, time, seed, cpus: testbed.others },
        state(pid, "before a connection"),
    );
    let (window, sent) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| sender.send(&begin, &over));
        let measurement = Measurement {
            begin: &mut || {
                begin.store(true, Ordering::Relaxed);
                Ok(())
            },
            warm_up: Ns::ZERO,
            time: Ns(time.0 + SILENCE.as_nanos() as u64 + 50_000_000),
            over: &|| sending.is_finished(),
        };
        let window = record_measurement(testbed, ExperimentKind::Sleeper, measurement);
        over.store(true, Ordering::Relaxed);
        (window, sending.join())
    });
    let window = window?;
    let failed = |happened: String| ExperimentError::Program { what: "nc -l".to_owned(), happened };
    let sent = sent.map_err(|_| failed("lost its client, whose thread panicked".to_owned()))?;
    let sent = sent.map_err(|error| failed(format!("does not take lines: {error}")))?;
    let connected = Ns(sent.connected_ns.saturating_sub(window.recording.header.clock_start_ns));
    Ok(Round {
        window,
        pid,
        lines: sent.lines,
        connected,
        asleep: vec![asleep_before, sent.asleep],
    })
}

/// Returns a port that was free a moment ago.
fn free_port() -> Result<u16, ExperimentError> {
    let bound =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound
        .map(|address| address.port())
        .map_err(|error| ExperimentError::Input(format!("no free port: {error}")))
}

fn state(pid: u32, when: &'static str) -> Asleep {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let stat = read("stat");
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    let call = read("syscall").split_whitespace().next().and_then(|word| word.parse::<u32>().ok());
    Asleep {
        when,
        state: state.unwrap_or("?").to_owned(),
        wchan: read("wchan").trim().to_owned(),
        call: call.map_or_else(
            || "unknown (needs root)".to_owned(),
            |call| syscalls::name(call).into_owned(),
        ),
    }
}

/// The client of `nc`.
struct LineSender {
    port: u16,
    pid: u32,
    time: Ns,
    seed: u64,
    cpus: CpuSet,
}

struct Sent {
    lines: u64,
    connected_ns: u64,
    asleep: Asleep,
}

impl LineSender {
    /// Connects after a silence, and sends a line now and then.
    fn send(&self, begin: &AtomicBool, over: &AtomicBool) -> std::io::Result<Sent> {
        threads::set_affinity(0, &self.cpus)?;
        while !begin.load(Ordering::Relaxed) && !over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(SILENCE);
        let connected_ns = now_ns();
        let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)))?;
        stream.set_nodelay(true)?;
        let (began, mut due, mut lines) = (Instant::now(), Duration::ZERO, 0);
        let mut random = Random::new(self.seed);
        let mut asleep = None;
        loop {
            due += GAP.mul_f64(-(1.0 - random.unit()).ln());
            if due.as_nanos() as u64 >= self.time.0 || over.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(due.saturating_sub(began.elapsed()));
            if lines == 3 {
                asleep = Some(state(self.pid, "between two lines"));
            }
            stream.write_all(b"hello\n")?;
            lines += 1;
        }
        Ok(Sent {
            lines,
            connected_ns,
            asleep: asleep.unwrap_or_else(|| state(self.pid, "between two lines")),
        })
    }
}

fn add_values(into: &mut Collected, row: &str, round: &Round) {
    let task = round.window.process(round.pid);
    let lines = round.lines.max(1) as f64;
    into.add(row, PER_LINE, Some(task.run.0 as f64 / lines));
    into.add(row, WAKES, Some(task.switches as f64 / lines));
    add_waits(into, row, &task);
    let mut early = 0;
    each(round, |line| {
        early += u64::from(line.at < round.connected && matches!(line.what, What::Scheduled(_)))
    });
    into.add(row, SILENT, Some(early as f64));
}

fn add_waits(into: &mut Collected, row: &str, task: &schedlab_trace::analysis::TaskSummary) {
    let latency = &task.wake_latency;
    for (figure, quantile) in [(P50, 500_000), (P90, 900_000), (P99, 990_000)] {
        let needed = schedlab_stats::samples_needed(f64::from(quantile) / 1e6);
        into.add(
            row,
            figure,
            (latency.count() >= needed).then(|| latency.quantile(quantile).0 as f64),
        );
    }
    into.add(row, MAX, (latency.count() > 0).then(|| latency.max().0 as f64));
}

/// Calls `found` for every line of the stream that is about the sleeper.
fn each(round: &Round, mut found: impl FnMut(&StreamEntry)) {
    let tasks = &round.window.recording.header.tasks;
    let stream = Stream::new(&round.window.recording.header, |line: &StreamEntry| {
        if tasks.get(line.task.index()).is_some_and(|info| info.pid == round.pid) {
            found(line);
        }
    });
    let _ = Followed::over(&round.window.recording, &Scope::default(), stream);
}

/// Returns the first lines from the connection on.
fn stream_of(round: &Round) -> Vec<StreamLine> {
    let mut lines = Vec::new();
    each(round, |line| {
        if lines.len() < STREAM && line.at >= round.connected {
            let what = match line.what {
                What::Scheduled(Some((waited, true))) => {
                    format!("scheduled    after {waited}, preempted before")
                }
                What::Scheduled(Some((waited, false))) => {
                    format!("scheduled    {waited} after its wakeup")
                }
                What::Scheduled(None) => "scheduled".to_owned(),
                What::Descheduled { ran, state, .. } => {
                    let ran = ran.map_or_else(String::new, |ran| format!("after {ran}, "));
                    format!("descheduled  {ran}{}", format!("{state:?}").to_lowercase())
                }
            };
            lines.push(StreamLine { at_ns: line.at.0, cpu: line.cpu.0, what });
        }
    });
    lines
}

/// Simulates a row. As in the experiment the client is on another CPU: its wakeups are interrupts
/// between processors.
fn simulate(
    model: &MachineModel,
    row: &Row,
    cost_ns: f64,
) -> Result<RecordedWindow, ExperimentError> {
    let beside = match row.beside {
        None => String::new(),
        Some(policy) => {
            format!(
                "[[task]]\nname = \"yes\"\ncpus = \"0\"\npolicy = \"{policy}\"\nprogram = \"hog\"\n"
            )
        }
    };
    let text = format!(
        "{beside}[[task]]\nname = \"nc\"\ncpus = \"0\"\n\
         program = [\"receive line\", \"run {}ns\"]\n\
         [[task]]\nname = \"client\"\ncpus = \"1\"\nprogram = [\"sleep exp {}ms\", \"send line\"]\n",
        cost_ns.round() as u64,
        GAP.as_millis()
    );
    model.run("duration = \"60s\"\nchannels = [\"line\"]", &text)
}

fn findings(here: &Collected, asleep: &[Asleep]) -> Vec<String> {
    let mut all: Vec<String> = asleep
        .iter()
        .map(|one| {
            format!(
                "{}: state {}, in the system call {} ({})",
                one.when, one.state, one.call, one.wchan
            )
        })
        .collect();
    if let Some(silent) = here.median("beside yes", SILENT) {
        all.push(format!(
            "while no client connects, nc is scheduled {silent:.0} times: a task that waits costs \
             nothing"
        ));
    }
    if let (Some(cost), Some(wait)) =
        (here.median("beside yes", PER_LINE), here.median("beside yes", P50))
    {
        all.push(format!(
            "a line costs {} of CPU; beside a hog nc waits {} in the median: a task that sleeps \
             has a claim to the CPU when it wakes",
            Unit::Time.show(cost),
            Unit::Time.show(wait)
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeping_thread_says_where() {
        let asleep = state(std::process::id(), "now");
        assert!(matches!(asleep.state.as_str(), "S" | "R"), "{asleep:?}");
    }
}
