//! Two `yes` on one CPU: which share each gets, in turns of which length.

use super::figures::{Collected, Figure, Sheet, Unit};
use super::measurement::{Measurement, record_measurement, time_of};
use super::model::MachineModel;
use super::plan::{ExperimentError, ExperimentKind, ExperimentObserver, ExperimentPlan, chosen};
use super::result::ExperimentResult;
use super::rounds::{Rounds, in_turns};
use super::testbed::{Testbed, scheduling};
use super::window::{RecordedWindow, usual_turn};
use schedlab_model::{Ns, Policy};
use schedlab_scheduler::linux::KernelRelease;
use schedlab_trace::analysis::TaskSummary;

/// New tasks are placed a little behind the others, so that the first turns differ.
const WARM_UP: Ns = Ns::from_ms(300);

const SHARE: Figure = Figure { name: "share of yes-1", unit: Unit::Share };
const TURN: Figure = Figure { name: "usual turn of yes-1", unit: Unit::Time };
const OTHER_TURN: Figure = Figure { name: "usual turn of yes-2", unit: Unit::Time };
const SWITCHES: Figure = Figure { name: "switches", unit: Unit::PerSecond };
const FOREIGN: Figure = Figure { name: "foreign work", unit: Unit::Share };
const FIGURES: [Figure; 5] = [SHARE, TURN, OTHER_TURN, SWITCHES, FOREIGN];

/// A row: how the second `yes` is scheduled.
struct Row {
    name: &'static str,
    policy: Policy,
    nice: i8,
    /// The same for the simulator.
    model: &'static str,
}

const ROWS: [Row; 5] = [
    Row { name: "as it is", policy: Policy::Other, nice: 0, model: "" },
    Row { name: "nice 5", policy: Policy::Other, nice: 5, model: "nice = 5" },
    Row { name: "nice 19", policy: Policy::Other, nice: 19, model: "nice = 19" },
    Row { name: "SCHED_IDLE", policy: Policy::Idle, nice: 0, model: "policy = \"idle\"" },
    Row { name: "SCHED_BATCH", policy: Policy::Batch, nice: 0, model: "policy = \"batch\"" },
];

pub(super) fn run(
    testbed: &mut Testbed<'_>,
    plan: &ExperimentPlan,
    observer: &mut dyn ExperimentObserver,
) -> Result<ExperimentResult, ExperimentError> {
    let rows = chosen(&ROWS, |row| row.name, plan)?;
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    let all = rows.len() * plan.rounds;
    observer.plan(ExperimentKind::TwoHogs, all, time_of(all, plan.time + WARM_UP));
    let rounds = in_turns(testbed, plan, observer, &names, &mut |turn, here| {
        let row = rows[turn.row];
        let (seen, pids) = measure(testbed, row, plan.time)?;
        add_values(here, row.name, &seen, pids.map(|pid| seen.process(pid)));
        here.add(row.name, FOREIGN, Some(seen.foreign(testbed.cpu, &pids)));
        Ok(seen)
    })?;
    let mut simulated = Collected::default();
    for row in &rows {
        let seen = simulate(&rounds.model, row)?;
        let named = |name: &'static str| seen.sum(|info| info.comm == name);
        add_values(&mut simulated, row.name, &seen, ["yes-1", "yes-2"].map(named));
    }
    Ok(result(testbed, plan, &names, rounds, &simulated))
}

/// Measures one round of a row. Returns the window and the process ids.
fn measure(
    testbed: &Testbed<'_>,
    row: &Row,
    time: Ns,
) -> Result<(RecordedWindow, [u32; 2]), ExperimentError> {
    let first = testbed.start(&["yes"], scheduling(Policy::Other, 0))?;
    let second = testbed.start(&["yes"], scheduling(row.policy, row.nice))?;
    let measurement =
        Measurement { begin: &mut || Ok(()), warm_up: WARM_UP, time, over: &|| false };
    let seen = record_measurement(testbed, ExperimentKind::TwoHogs, measurement)?;
    Ok((seen, [first.pid(), second.pid()]))
}

fn add_values(
    into: &mut Collected,
    row: &str,
    seen: &RecordedWindow,
    [first, second]: [TaskSummary; 2],
) {
    let both = first.run.0 + second.run.0;
    into.add(row, SHARE, (both > 0).then(|| first.run.0 as f64 / both as f64));
    into.add(row, TURN, usual_turn(&first));
    into.add(row, OTHER_TURN, usual_turn(&second));
    let seconds = seen.summary.window.0 as f64 / 1e9;
    into.add(row, SWITCHES, Some((first.switches + second.switches) as f64 / seconds.max(1e-9)));
}

fn simulate(model: &MachineModel, row: &Row) -> Result<RecordedWindow, ExperimentError> {
    let text = format!(
        "[[task]]\nname = \"yes-1\"\ncpus = \"0\"\nprogram = \"hog\"\n\
         [[task]]\nname = \"yes-2\"\ncpus = \"0\"\nprogram = \"hog\"\n{}\n",
        row.model
    );
    model.run("duration = \"20s\"\nwarmup = \"1s\"", &text)
}

/// Returns what was published of two `yes` on Linux 6.2 with 32 CPUs (docs/sources/experiments.md,
/// section 1).
fn published(row: &str, figure: &str) -> Option<f64> {
    match (row, figure) {
        ("as it is", "share of yes-1") => Some(0.5),
        ("as it is", "usual turn of yes-1" | "usual turn of yes-2") => Some(16e6),
        _ => None,
    }
}

fn result(
    testbed: &Testbed<'_>,
    plan: &ExperimentPlan,
    names: &[&str],
    rounds: Rounds,
    simulated: &Collected,
) -> ExperimentResult {
    let Rounds { here, model, doubts } = rounds;
    let lines = here.lines(
        names,
        &FIGURES,
        "as it is",
        &published,
        &|row, figure| simulated.median(row, *FIGURES.iter().find(|known| known.name == figure)?),
        plan.seed,
    );
    ExperimentResult {
        name: ExperimentKind::TwoHogs,
        title: "Two hogs share one CPU: yes >/dev/null, twice".to_owned(),
        conditions: vec![
            format!(
                "{} rounds of {}, rows in random order (seed {})",
                plan.rounds, plan.time, plan.seed
            ),
            model.about.clone(),
        ],
        sheets: vec![Sheet {
            title: "Two `yes` on one CPU; the row says how the second one is scheduled".to_owned(),
            source: "published: Linux 6.2 (CFS), 32 CPUs, HZ=250 (docs/sources/experiments.md)"
                .to_owned(),
            lines,
        }],
        stream: Vec::new(),
        asleep: Vec::new(),
        findings: findings(testbed, &here, names),
        reasons: reasons(testbed),
        doubts,
        given_back: Default::default(),
    }
}

fn findings(testbed: &Testbed<'_>, here: &Collected, rows: &[&str]) -> Vec<String> {
    let tick = 1e9 / f64::from(testbed.machine.hz.max(1));
    let mut all = Vec::new();
    if let Some(turn) = here.median("as it is", TURN) {
        let ticks = turn / tick;
        all.push(format!(
            "a turn lasts {}, {ticks:.1} ticks of {}: only a tick ends a turn",
            Unit::Time.show(turn),
            Unit::Time.show(tick)
        ));
    }
    // Weights of nice values: sched_prio_to_weight in kernel/sched/core.c, and WEIGHT_IDLEPRIO.
    for (row, weight) in
        [("nice 5", 335.0), ("nice 19", 15.0), ("SCHED_IDLE", 3.0), ("SCHED_BATCH", 1024.0)]
    {
        if let Some(share) = here.median(row, SHARE).filter(|_| rows.contains(&row)) {
            let due = 1024.0 / (1024.0 + weight);
            all.push(format!(
                "{row}: yes-1 gets {}; the weights 1024 and {weight} give {}",
                Unit::Share.show(share),
                Unit::Share.show(due)
            ));
        }
    }
    all
}

fn reasons(testbed: &Testbed<'_>) -> Vec<String> {
    let release = &testbed.machine.kernel;
    let eevdf = release.parse().is_ok_and(KernelRelease::has_eevdf);
    if eevdf {
        let text = format!(
            "16 ms published, {} ms here: CFS gave each of two tasks half of 24 ms (8 CPUs or \
             more), and the tick after \
             12 ms is the one at 16 ms; Linux {release} has EEVDF, whose slice of about 3 ms ends \
             at the first tick after it",
            1000 / testbed.machine.hz.max(1)
        );
        return vec![text];
    }
    vec![format!(
        "Linux {release} has CFS as the published kernel; the length of a turn scales with the \
         CPUs up to 8, and this machine \
         has {}",
        testbed.machine.online.count()
    )]
}
