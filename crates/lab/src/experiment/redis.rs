//! A Redis server and `sysbench cpu` on one CPU, loaded by `redis-benchmark` as published and by
//! schedlab's own client.

mod findings;
mod measure;
mod predicted;
mod rows;

use super::client::{Amount, WARM_UP};
use super::client_kind::ClientKind;
use super::figures::Sheet;
use super::measurement::time_of;
use super::model::MachineModel;
use super::plan::{ExperimentError, ExperimentKind, ExperimentObserver, ExperimentPlan, chosen};
use super::result::ExperimentResult;
use super::rounds::in_turns;
use super::testbed::Testbed;
use super::waits::LIMIT;
use findings::{bottleneck, client_stalls, limit_of, limited, little, milder, why};
use measure::{RoundSetup, add_values, measure, sysbench_alone};
use predicted::Prediction;
use rows::{ClientRounds, FIGURES, OVERTAKEN, ROWS, Row};

/// Why the fair server may not act in the simulator.
const MISSED: &str = "redis FIFO, simulated: every request takes the same time to the server, so \
                      that Redis sleeps now and then, \
                      sysbench does not starve, and the fair server does not act, as it does here";
pub(super) fn run(
    testbed: &mut Testbed<'_>,
    plan: &ExperimentPlan,
    observer: &mut dyn ExperimentObserver,
) -> Result<ExperimentResult, ExperimentError> {
    let rows = chosen(&ROWS, |row| row.name, plan)?;
    let networks = testbed.networks(plan.network)?;
    let all = rows.len() * plan.rounds * plan.clients.len();
    observer.plan(ExperimentKind::RedisBatch, all, time_of(all, plan.time + WARM_UP));
    observer.step("sysbench alone", 0, all);
    let events = sysbench_alone(testbed)?;
    let mut setup = RoundSetup {
        networks,
        events,
        amount: Amount { connections: plan.connections, time: plan.time, requests: 20_000 },
    };
    if plan.clients.contains(&ClientKind::RedisBenchmark) {
        let (_, _, figures) = measure(testbed, &setup, &ROWS[0], ClientKind::RedisBenchmark, 0)?;
        // So many requests take about the time of the plan on a CPU of its own, and twice that on a
        // shared one.
        let wanted = figures.throughput * plan.time.0 as f64 / 1e9;
        setup.amount.requests = (wanted as u64).clamp(1000, 50_000_000);
    }
    let mut here: Vec<ClientRounds> =
        plan.clients.iter().map(|_| ClientRounds::default()).collect();
    let mut doubts = Vec::new();
    let each: Vec<(&Row, usize)> =
        rows.iter().flat_map(|row| (0..plan.clients.len()).map(|client| (*row, client))).collect();
    let names: Vec<String> = each
        .iter()
        .map(|(row, client)| format!("{}, {}", row.name, plan.clients[*client]))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let rounds = in_turns(testbed, plan, observer, &names, &mut |turn, _| {
        let (row, client) = each[turn.row];
        let (window, recorded, figures) =
            measure(testbed, &setup, row, plan.clients[client], turn.seed)?;
        add_values(&mut here[client].figures, row.name, &recorded, &figures, setup.events);
        here[client]
            .overtaken
            .extend(recorded.overtaken.into_iter().map(|waits| (row.name, waits)));
        let unanswered = figures.doubts.iter().filter(|doubt| !judged_here(doubt));
        doubts.extend(unanswered.map(|doubt| format!("{}: {doubt}", names[turn.row])));
        Ok(window)
    })?;
    doubts.dedup();
    doubts.extend(rounds.doubts);
    result(testbed, plan, &rows, &here, &rounds.model, (doubts, setup.events))
}

/// Returns whether a doubt of the client is about the client itself, which [`bottleneck`] judges
/// over all rounds.
fn judged_here(doubt: &str) -> bool {
    doubt.contains("bottleneck") || doubt.contains("the client's own")
}

fn result(
    testbed: &Testbed<'_>,
    plan: &ExperimentPlan,
    rows: &[&Row],
    here: &[ClientRounds],
    model: &MachineModel,
    (mut doubts, events): (Vec<String>, f64),
) -> Result<ExperimentResult, ExperimentError> {
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    let (mut sheets, mut findings, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
    let mut conditions = conditions(plan, events, model);
    let mut missed = Vec::new();
    for (kind, heard) in plan.clients.iter().zip(here) {
        let collected = &heard.figures;
        let prediction = Prediction::simulate(model, (*kind, plan.connections), collected, rows)?;
        let published_value = |row: &str, figure: &str| {
            rows::published(row, figure).filter(|_| kind.as_published(plan.connections))
        };
        let simulated = |row: &str, figure: &str| prediction.value(row, figure);
        let met = |fair: f64| fair >= LIMIT.0 as f64;
        if collected.median("redis FIFO", OVERTAKEN).is_some_and(met)
            && prediction.value("redis FIFO", OVERTAKEN.name).is_some_and(|fair| !met(fair))
        {
            missed.push(format!("{kind}, {MISSED}"));
        }
        let (title, source) = titles(*kind);
        sheets.push(Sheet {
            title: format!("client {kind}, {title}"),
            source: source.to_owned(),
            lines: collected.lines(
                &names,
                &FIGURES,
                base(&names),
                &published_value,
                &simulated,
                plan.seed,
            ),
        });
        conditions.extend(prediction.about.iter().map(|text| format!("{kind}: {text}")));
        bottleneck(*kind, collected, &names, &mut findings, &mut doubts);
        findings.extend(limited(*kind, heard, &names, limit_of(&testbed.machine.kernel)));
        client_stalls(*kind, collected, &names, &mut doubts);
        milder(*kind, collected, &mut findings);
        reasons.extend(
            kind.closed().then(|| little((*kind, plan.connections), collected, &names)).flatten(),
        );
        doubts.extend(collected.warnings().into_iter().map(|warning| format!("{kind}: {warning}")));
    }
    reasons.extend(why(testbed));
    reasons.extend(missed);
    Ok(ExperimentResult {
        name: ExperimentKind::RedisBatch,
        title: "A Redis server and a batch job on one CPU".to_owned(),
        conditions,
        sheets,
        stream: Vec::new(),
        asleep: Vec::new(),
        findings,
        reasons,
        doubts,
        given_back: Default::default(),
    })
}

/// Returns the conditions that hold for all clients.
fn conditions(plan: &ExperimentPlan, events: f64, model: &MachineModel) -> Vec<String> {
    vec![
        format!(
            "{} rounds of {}, rows and clients in random order (seed {}); a new server in each \
             measurement; {} connections",
            plan.rounds, plan.time, plan.seed, plan.connections
        ),
        format!(
            "sysbench: its CPU time times {events:.0} events in a second of CPU time, measured \
             alone first"
        ),
        "dedicated: beside a SCHED_IDLE spinner, so that the CPU does not sleep; no sysctl is \
         changed"
            .to_owned(),
        model.about.clone(),
    ]
}

/// Returns what a client does, and what was published with it.
fn titles(kind: ClientKind) -> (&'static str, &'static str) {
    match kind {
        ClientKind::Open(_) => {
            ("GET, times from the intended send", "published: nothing (a closed loop only)")
        }
        ClientKind::Bitcount => {
            ("BITCOUNT of a key of 128 KiB, closed loop", "published: nothing (GET only)")
        }
        ClientKind::RedisBenchmark | ClientKind::Closed => (
            "GET, closed loop",
            "published: redis-benchmark -c 32 -t get --threads, Linux 6.2, 32 CPUs, client on \
             another host (docs/sources/experiments.md)",
        ),
    }
}

/// Returns the row that the others are compared with.
fn base<'a>(names: &[&'a str]) -> &'a str {
    let shared = names.iter().find(|name| **name == "shared");
    shared.or(names.first()).copied().unwrap_or_default()
}
