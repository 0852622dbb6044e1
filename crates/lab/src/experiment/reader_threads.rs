//! The program of the SMP paper on the live kernel: 2 … 1024 threads of one process read 4 MB fifty
//! times, on all CPUs (Taniguchi, Ishikawa, Hiraki; docs/sources/linux-facts.md, section 5.1).

use super::client::READY;
use super::figures::{Collected, Figure, Sheet, Unit};
use super::measurement::{Measurement, record_measurement, time_of};
use super::model::MachineModel;
use super::plan::{ExperimentError, ExperimentKind, ExperimentObserver, ExperimentPlan};
use super::result::ExperimentResult;
use super::rounds::{Rounds, in_turns};
use super::testbed::{Testbed, scheduling};
use super::window::RecordedWindow;
use schedlab_host::program::{Program, Running};
use schedlab_measure::readers::{BYTES, READS, ReadersReport};
use schedlab_model::{EventKind, Ns, Policy};
use schedlab_study::decision_cost::{DecisionCostOptions, DecisionCostResult, evaluate, paper_us};
use schedlab_trace::analysis::TaskSummary;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

/// Greatest length of a round.
const LONGEST: Ns = Ns::from_s(300);

const TOTAL: Figure = Figure { name: "create to join", unit: Unit::Seconds };
const QUEUE: Figure = Figure { name: "run-queue time of a thread", unit: Unit::Time };
const SWITCHES: Figure = Figure { name: "switches of a thread", unit: Unit::Count };
const READ: Figure = Figure { name: "CPU time of a read", unit: Unit::Time };
const CREATE: Figure = Figure { name: "CPU time of a creation", unit: Unit::Time };
const STANDARD: Figure = Figure { name: "a decision of linux-2.4", unit: Unit::Time };
const CONSTANT: Figure = Figure { name: "a decision of linux-2.4-o1", unit: Unit::Time };
/// Name of the simulated thread that creates the others.
const CREATOR: &str = "creator";
const FIGURES: [Figure; 7] = [TOTAL, QUEUE, SWITCHES, READ, CREATE, STANDARD, CONSTANT];

/// One run of the program.
struct Round {
    report: ReadersReport,
    window: RecordedWindow,
    pid: u32,
}

pub(super) fn run(
    testbed: &mut Testbed<'_>,
    plan: &ExperimentPlan,
    observer: &mut dyn ExperimentObserver,
) -> Result<ExperimentResult, ExperimentError> {
    if !plan.only.is_empty() {
        return Err(ExperimentError::Input(
            "--only: the rows of this experiment are its numbers of threads (--tasks)".to_owned(),
        ));
    }
    let names: Vec<String> =
        plan.tasks.iter().map(|threads| format!("{threads} threads")).collect();
    let all = names.len() * plan.rounds;
    observer.plan(ExperimentKind::Smp, all, about(testbed, plan)?);
    let rows: Vec<&str> = names.iter().map(String::as_str).collect();
    let rounds = in_turns(testbed, plan, observer, &rows, &mut |turn, here| {
        let (name, threads) = (rows[turn.row], plan.tasks[turn.row]);
        let Round { report, window, pid } = measure(testbed, threads)?;
        let of = f64::from(threads);
        here.add(name, TOTAL, Some(report.elapsed_ns as f64 / 1e9));
        let reading = report.cpu_ns.saturating_sub(report.creating_ns);
        here.add(name, READ, Some(reading as f64 / of / f64::from(READS)));
        here.add(name, CREATE, Some(report.creating_ns as f64 / of));
        add_waits(here, name, &window.created_by(pid), of);
        Ok(window)
    })?;
    observer.step("the model", all.saturating_sub(1), all);
    let mut simulated = Collected::default();
    for (name, threads) in rows.iter().zip(&plan.tasks) {
        let median = |figure| rounds.here.median(name, figure);
        if let (Some(read_ns), Some(create_ns)) = (median(READ), median(CREATE)) {
            simulate(&mut simulated, &rounds.model, name, *threads, (read_ns, create_ns))?;
        }
    }
    let cpus = testbed.machine.online.count();
    let priced = evaluate(&priced(&plan.tasks, cpus), &|_, _| {})?;
    Ok(result(plan, &rows, rounds, (&simulated, &priced), cpus))
}

/// Returns how long all rounds take, about: from a first run with few threads, which is not
/// counted.
fn about(testbed: &Testbed<'_>, plan: &ExperimentPlan) -> Result<Ns, ExperimentError> {
    let few = plan.tasks.iter().copied().min().unwrap_or(1);
    let report = measure(testbed, few)?.report;
    let thread = report.cpu_ns / u64::from(few.max(1));
    let threads: u64 = plan.tasks.iter().map(|threads| u64::from(*threads)).sum();
    let work = thread.saturating_mul(threads) / testbed.machine.online.count().max(1) as u64;
    let round = Ns(work) + time_of(plan.tasks.len(), Ns::ZERO);
    Ok(Ns(round.0.saturating_mul(plan.rounds as u64)))
}

fn priced(tasks: &[u32], cpus: usize) -> DecisionCostOptions {
    let variants = vec!["default".to_owned()];
    DecisionCostOptions {
        tasks: tasks.to_vec(),
        cpus: vec![cpus],
        variants,
        costs: "p3-xeon-700".to_owned(),
        jobs: 0,
        hot: false,
    }
}

/// Runs the program in a process of its own, on all CPUs.
fn measure(testbed: &Testbed<'_>, threads: u32) -> Result<Round, ExperimentError> {
    let words = ["helper", "readers", "--threads", &threads.to_string()].map(str::to_owned);
    let program = Program { piped: true, ..testbed.own(&words) };
    let what = program.command.join(" ");
    let odd = |happened: String| ExperimentError::Program { what: what.clone(), happened };
    let mut running = testbed.launch(program, scheduling(Policy::Other, 0))?;
    let pid = running.pid();
    let (input, out) = (running.stdin(), running.stdout());
    let (Some(mut input), Some(out)) = (input, out) else {
        return Err(odd("has no pipes".to_owned()));
    };
    let mut out = BufReader::new(out);
    let mut line = String::new();
    if out.read_line(&mut line).is_err() || line != READY {
        return Err(odd("did not come up".to_owned()));
    }
    let running = RefCell::new(running);
    let measurement = Measurement {
        begin: &mut || {
            input.write_all(b"go\n").map_err(|error| odd(format!("does not listen: {error}")))
        },
        warm_up: Ns::ZERO,
        time: LONGEST,
        over: &|| !matches!(running.borrow_mut().ended(), Ok(None)),
    };
    let window = record_measurement(testbed, ExperimentKind::Smp, measurement)?;
    let mut text = String::new();
    end(running.into_inner(), &odd)?;
    out.read_to_string(&mut text).map_err(|error| odd(error.to_string()))?;
    let report =
        serde_json::from_str(&text).map_err(|error| odd(format!("says something odd: {error}")))?;
    Ok(Round { report, window, pid })
}

/// Waits for the end of the program, which has ended already or used up its time.
fn end(
    mut running: Running,
    odd: &dyn Fn(String) -> ExperimentError,
) -> Result<(), ExperimentError> {
    let until = Instant::now() + Duration::from_secs(1);
    loop {
        match running.ended() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(odd(format!("ended with {status}"))),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
            _ => return Err(odd(format!("did not end within {LONGEST}"))),
        }
    }
}

fn add_waits(into: &mut Collected, row: &str, all: &TaskSummary, threads: f64) {
    let waited = all.wake_latency.sum().0 + all.preempt_wait.sum().0;
    into.add(row, QUEUE, Some(waited as f64 / threads));
    into.add(row, SWITCHES, Some(all.switches as f64 / threads));
}

/// Simulates a row: one thread creates all others, each after the CPU time that a creation took
/// here, and each reads as long as here.
fn simulate(
    into: &mut Collected,
    model: &MachineModel,
    name: &str,
    threads: u32,
    (read_ns, create_ns): (f64, f64),
) -> Result<(), ExperimentError> {
    let [work, create] =
        [read_ns * f64::from(READS), create_ns].map(|ns| ns.round().max(1.0) as u64);
    // More than all threads can take on one CPU.
    let longest =
        Ns((work + create).saturating_mul(u64::from(threads)).saturating_mul(2) + 1_000_000_000);
    let creations: Vec<String> = (0..threads)
        .map(|thread| format!("\"run {create}ns\", \"spawn reader-{thread}\""))
        .collect();
    let mut text =
        format!("[[task]]\nname = \"{CREATOR}\"\nprogram = [{}, \"exit\"]\n", creations.join(", "));
    for thread in 0..threads {
        text += &format!(
            "[[task]]\nname = \"reader-{thread}\"\nstart = \"spawned\"\n\
             program = [\"run {work}ns\", \"exit\"]\n"
        );
    }
    let seen = model.run(&format!("duration = \"{}ns\"", longest.0), &text)?;
    let exits =
        seen.recording.events.iter().filter(|event| matches!(event.kind, EventKind::Exit { .. }));
    let last = exits.map(|event| event.at).max();
    into.add(name, TOTAL, last.map(|at| at.0 as f64 / 1e9));
    add_waits(into, name, &seen.sum(|task| task.comm != CREATOR), f64::from(threads));
    Ok(())
}

fn result(
    plan: &ExperimentPlan,
    rows: &[&str],
    rounds: Rounds,
    (simulated, priced): (&Collected, &DecisionCostResult),
    cpus: usize,
) -> ExperimentResult {
    let Rounds { here, model, doubts } = rounds;
    let threads_of = |row: &str| row.split(' ').next().and_then(|word| word.parse::<u32>().ok());
    let scheduler = |figure: &str| figure.strip_prefix("a decision of ").map(str::to_owned);
    let published = |row: &str, figure: &str| {
        let scheduler = scheduler(figure).filter(|_| threads_of(row) == Some(1024))?;
        paper_us(&scheduler, cpus).map(|us| us * 1e3)
    };
    let of_model = |row: &str, figure: &str| match scheduler(figure) {
        None => simulated.median(row, *FIGURES.iter().find(|known| known.name == figure)?),
        Some(scheduler) => {
            let same = |one: &&schedlab_study::decision_cost::DecisionCostRow| {
                one.scheduler == scheduler && Some(one.tasks) == threads_of(row)
            };
            priced.rows.iter().find(same).map(|one| one.cost_us * 1e3)
        }
    };
    let base = rows.first().copied().unwrap_or_default();
    let lines = here.lines(rows, &FIGURES, base, &published, &of_model, plan.seed);
    ExperimentResult {
        name: ExperimentKind::Smp,
        title: format!("Threads of one process read {} MB {READS} times, on all CPUs", BYTES >> 20),
        conditions: vec![
            format!(
                "{} rounds, rows in random order (seed {}); all threads read the same memory",
                plan.rounds, plan.seed
            ),
            model.about.clone(),
            "simulated: a thread that creates the others, all with the CPU time measured here; a \
             decision: `bench model` with the \
             cost preset p3-xeon-700, whose memory prices are FITTED to the paper's Table 1"
                .to_owned(),
        ],
        sheets: vec![Sheet {
            title: "From the first pthread_create to the last pthread_join; run-queue time from \
                    the recorder"
                .to_owned(),
            source: "published: the SMP paper's Table 1 (cost of schedule(), 1024 threads, Linux \
                     2.4.17, P-III Xeon)"
                .to_owned(),
            lines,
        }],
        stream: Vec::new(),
        asleep: Vec::new(),
        findings: findings(&here, rows),
        reasons: vec![
            "create to join, run-queue time: other work and the recorder take CPU time on this \
             machine, none in the simulator"
                .to_owned(),
            "a decision costs microseconds to milliseconds in the paper's kernel and is too short \
             to be seen in these totals: the \
             scheduler of this kernel searches a tree, not a list of all threads"
                .to_owned(),
        ],
        doubts,
        given_back: Default::default(),
    }
}

/// Returns whether the CPU time of a read grows with the number of threads.
fn findings(here: &Collected, rows: &[&str]) -> Vec<String> {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Vec::new() };
    let read = |row: &str| here.median(row, READ);
    let (Some(few), Some(many)) = (read(first), read(last).filter(|_| rows.len() > 1)) else {
        return Vec::new();
    };
    let change = schedlab_stats::difference(here.values(first, READ), here.values(last, READ), 1);
    let apart = change.is_some_and(|change| change.told_apart);
    vec![format!(
        "a read costs {} of CPU with {first} and {} with {last}: {}",
        Unit::Time.show(few),
        Unit::Time.show(many),
        if apart { "told apart over the rounds" } else { "cannot be told apart" }
    )]
}
