//! Two `yes` on one CPU: who gets how much, in which pieces?

use super::figures::{Collected, Figure, Sheet, Unit};
use super::model::Model;
use super::rounds::{Rounds, in_turns};
use super::stage::{Stage, scheduling};
use super::watching::{Scene, Seen, pieces, usual_turn, watch};
use super::{Experiment, ExperimentError, Options, Watch, Which, chosen};
use schedlab_model::{Ns, Policy};
use schedlab_trace::analysis::TaskSummary;

/// New tasks are placed a little behind the others: the first turns differ.
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
    /// The same in a scenario.
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
    stage: &mut Stage<'_>,
    options: &Options,
    watching: &mut dyn Watch,
) -> Result<Experiment, ExperimentError> {
    let rows = chosen(&ROWS, |row| row.name, options)?;
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    let all = rows.len() * options.rounds;
    watching.plan(Which::TwoHogs, all, pieces(all, options.time + WARM_UP));
    let rounds = in_turns(stage, options, watching, &names, &mut |turn, here| {
        let row = rows[turn.row];
        let (seen, pids) = measure(stage, row, options.time)?;
        note(here, row.name, &seen, pids.map(|pid| seen.process(pid)));
        here.add(row.name, FOREIGN, Some(seen.foreign(stage.cpu, &pids)));
        Ok(seen)
    })?;
    let mut simulated = Collected::default();
    for row in &rows {
        let seen = simulate(&rounds.model, row)?;
        let named = |name: &'static str| seen.sum(|info| info.comm == name);
        note(&mut simulated, row.name, &seen, ["yes-1", "yes-2"].map(named));
    }
    Ok(result(stage, options, &names, rounds, &simulated))
}

/// One round of one row: two `yes`, recorded.
fn measure(stage: &Stage<'_>, row: &Row, time: Ns) -> Result<(Seen, [u32; 2]), ExperimentError> {
    let first = stage.start(&["yes"], scheduling(Policy::Other, 0))?;
    let second = stage.start(&["yes"], scheduling(row.policy, row.nice))?;
    let scene = Scene { begin: &mut || Ok(()), warm_up: WARM_UP, time, over: &|| false };
    let seen = watch(stage, Which::TwoHogs, scene)?;
    Ok((seen, [first.pid(), second.pid()]))
}

fn note(into: &mut Collected, row: &str, seen: &Seen, [first, second]: [TaskSummary; 2]) {
    let both = first.run.0 + second.run.0;
    into.add(row, SHARE, (both > 0).then(|| first.run.0 as f64 / both as f64));
    into.add(row, TURN, usual_turn(&first));
    into.add(row, OTHER_TURN, usual_turn(&second));
    let seconds = seen.summary.window.0 as f64 / 1e9;
    into.add(row, SWITCHES, Some((first.switches + second.switches) as f64 / seconds.max(1e-9)));
}

fn simulate(model: &Model, row: &Row) -> Result<Seen, ExperimentError> {
    let text = format!(
        "[[task]]\nname = \"yes-1\"\ncpus = \"0\"\nprogram = \"hog\"\n\
         [[task]]\nname = \"yes-2\"\ncpus = \"0\"\nprogram = \"hog\"\n{}\n",
        row.model
    );
    model.run("duration = \"20s\"\nwarmup = \"1s\"", &text)
}

/// What the article says of two `yes` on Linux 6.2 with 32 CPUs.
fn article(row: &str, figure: &str) -> Option<f64> {
    match (row, figure) {
        ("as it is", "share of yes-1") => Some(0.5),
        ("as it is", "usual turn of yes-1" | "usual turn of yes-2") => Some(16e6),
        _ => None,
    }
}

fn result(
    stage: &Stage<'_>,
    options: &Options,
    names: &[&str],
    rounds: Rounds,
    simulated: &Collected,
) -> Experiment {
    let Rounds { here, model, doubts } = rounds;
    let lines = here.lines(
        names,
        &FIGURES,
        "as it is",
        &article,
        &|row, figure| simulated.median(row, *FIGURES.iter().find(|known| known.name == figure)?),
        options.seed,
    );
    Experiment {
        name: Which::TwoHogs,
        title: "Two hogs share one CPU: yes >/dev/null, twice".to_owned(),
        conditions: vec![
            format!(
                "{} rounds of {}, rows in random order (seed {})",
                options.rounds, options.time, options.seed
            ),
            model.about.clone(),
        ],
        sheets: vec![Sheet {
            title: "Two `yes` on one CPU; the row says how the second one is scheduled".to_owned(),
            source: "article: Linux 6.2 (CFS), 32 CPUs, HZ=250".to_owned(),
            lines,
        }],
        stream: Vec::new(),
        asleep: Vec::new(),
        findings: findings(stage, &here, names),
        reasons: reasons(stage),
        doubts,
        given_back: Default::default(),
    }
}

fn findings(stage: &Stage<'_>, here: &Collected, rows: &[&str]) -> Vec<String> {
    let tick = 1e9 / f64::from(stage.machine.hz.max(1));
    let mut all = Vec::new();
    if let Some(turn) = here.median("as it is", TURN) {
        let ticks = turn / tick;
        all.push(format!(
            "a turn lasts {}, {ticks:.1} ticks of {}: only a tick ends it",
            Unit::Time.show(turn),
            Unit::Time.show(tick)
        ));
    }
    // Weights of nice values as the kernel has them (sched_prio_to_weight).
    for (row, weight) in [("nice 5", 335.0), ("nice 19", 15.0), ("SCHED_IDLE", 3.0), ("SCHED_BATCH", 1024.0)]
    {
        if let Some(share) = here.median(row, SHARE).filter(|_| rows.contains(&row)) {
            let due = 1024.0 / (1024.0 + weight);
            all.push(format!(
                "{row}: the first one gets {}; the weights 1024 and {weight} say {}",
                Unit::Share.show(share),
                Unit::Share.show(due)
            ));
        }
    }
    all
}

fn reasons(stage: &Stage<'_>) -> Vec<String> {
    let release = &stage.machine.kernel;
    let eevdf = schedlab_study::compare::kernel_scheduler(release).is_ok_and(|(name, _)| name != "linux-6.1");
    if eevdf {
        let text = format!(
            "16 ms in the article, {} ms here: CFS gave each of two tasks half of 24 ms (8 CPUs or more), and the tick after \
             12 ms is the one at 16 ms; Linux {release} has EEVDF, whose slice of about 3 ms ends at the first tick after it",
            1000 / stage.machine.hz.max(1)
        );
        return vec![text];
    }
    vec![format!(
        "Linux {release} has CFS as the article's kernel; the length of a turn scales with the CPUs up to 8, and this machine \
         has {}",
        stage.machine.online.count()
    )]
}
