//! One measurement of `redis-batch`: server, batch job and client, recorded.

use super::super::client::{Amount, Client, ClientFigures, PORT, WARM_UP};
use super::super::client_kind::ClientKind;
use super::super::figures::Collected;
use super::super::measurement::{Measurement, record_measurement};
use super::super::plan::{ExperimentError, ExperimentKind};
use super::super::testbed::{Networks, Testbed, listens, scheduling};
use super::super::waits::Overtaken;
use super::super::window::RecordedWindow;
use super::rows::{
    BATCH, BATCH_SHARE, CLIENT, CLIENT_STALL, FOREIGN, LAG, MAX, MEAN, OTHER, OVERTAKEN, P50, P95,
    P99, P99_9, Row, SERVER_SHARE, STALL, THROUGHPUT, TURN, longest,
};
use schedlab_host::program::{Program, Running};
use schedlab_host::threads::Scheduling;
use schedlab_model::{CpuSet, Ns, Policy};
use std::cell::RefCell;
use std::time::Duration;

/// What is the same in all rounds.
pub(super) struct RoundSetup {
    pub(super) networks: Networks,
    /// Events of sysbench in a second of CPU time.
    pub(super) events: f64,
    pub(super) amount: Amount,
}

/// The figures of one measurement from the recorder.
pub(super) struct RecordedFigures {
    server: f64,
    batch: Option<f64>,
    client: f64,
    stall: Option<f64>,
    /// The waits of a real-time server in which fair tasks ran.
    pub(super) overtaken: Option<Vec<Overtaken>>,
    turn: Option<f64>,
    foreign: f64,
    client_stall: f64,
}

/// Measures `sysbench` alone. Returns its events in a second of CPU time.
pub(super) fn sysbench_alone(testbed: &Testbed<'_>) -> Result<f64, ExperimentError> {
    let words = "sysbench cpu --threads=1 --time=1 run".split(' ');
    let program =
        Program { cpus: Some(CpuSet::single(testbed.cpu)), piped: true, ..Program::new(words) };
    let what = program.command.join(" ");
    let running = RefCell::new(None);
    let window = record_measurement(
        testbed,
        ExperimentKind::RedisBatch,
        Measurement {
            begin: &mut || {
                *running.borrow_mut() =
                    Some(testbed.launch(program.clone(), scheduling(OTHER, 0))?);
                Ok(())
            },
            warm_up: Ns::ZERO,
            time: Ns::from_s(10),
            over: &|| {
                running
                    .borrow_mut()
                    .as_mut()
                    .is_some_and(|one: &mut Running| !matches!(one.ended(), Ok(None)))
            },
        },
    )?;
    let running = running.into_inner().ok_or(ExperimentError::Interrupted)?;
    let pid = running.pid();
    let text = testbed.finish(running, &what)?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("total number of events:"));
    let events =
        line.and_then(|count| count.trim().parse::<f64>().ok()).filter(|count| *count > 0.0);
    let used = window.process(pid).run.0 as f64 / 1e9;
    let rate = events.map(|events| events / used).filter(|rate| rate.is_finite());
    rate.ok_or_else(|| ExperimentError::Program {
        what,
        happened: "does not say how many events it made".to_owned(),
    })
}

/// Starts what runs beside the server.
fn start_batch(testbed: &Testbed<'_>, row: &Row) -> Result<Running, ExperimentError> {
    match row.batch {
        Some((policy, nice)) => {
            let words = ["sysbench", "cpu", "--threads=1", "--time=0", "run"];
            testbed.start(&words, scheduling(policy, nice))
        }
        // A CPU that sleeps wakes late, which must not make a dedicated CPU look worse than a
        // shared one.
        None => testbed.start(&["yes"], scheduling(Policy::Idle, 0)),
    }
}

/// Measures one round of a row with one client.
pub(super) fn measure(
    testbed: &Testbed<'_>,
    setup: &RoundSetup,
    row: &Row,
    kind: ClientKind,
    seed: u64,
) -> Result<(RecordedWindow, RecordedFigures, ClientFigures), ExperimentError> {
    let server = start_server(testbed, setup, scheduling(row.server, 0))?;
    let batch = start_batch(testbed, row)?;
    testbed.pause(Duration::from_millis(150))?;
    let own = kind != ClientKind::RedisBenchmark;
    let start = || Client::start(testbed, &setup.networks, kind, setup.amount, seed);
    // schedlab's own client connects first and begins when it is told to. redis-benchmark counts
    // from its first request.
    let client = RefCell::new(if own { Some(start()?) } else { None });
    let measurement = Measurement {
        begin: &mut || {
            let mut client = client.borrow_mut();
            match client.as_mut() {
                Some(client) => client.go(),
                None => start().map(|started| *client = Some(started)),
            }
        },
        warm_up: if own { WARM_UP } else { Ns::ZERO },
        time: if own { setup.amount.time } else { Ns(setup.amount.time.0.saturating_mul(8)) },
        over: &|| client.borrow_mut().as_mut().is_some_and(Client::ended),
    };
    let window = record_measurement(testbed, ExperimentKind::RedisBatch, measurement)?;
    let client = client.into_inner().ok_or(ExperimentError::Interrupted)?;
    let pids = (server.pid(), batch.pid(), client.pid());
    let recorded = recorded_figures(testbed, &window, pids, row);
    let figures = client.finish(testbed)?;
    Ok((window, recorded, figures))
}

fn start_server(
    testbed: &Testbed<'_>,
    setup: &RoundSetup,
    how: Scheduling,
) -> Result<Running, ExperimentError> {
    let port = PORT.to_string();
    let words = [
        "redis-server",
        "--port",
        &port,
        "--bind",
        "0.0.0.0",
        "--protected-mode",
        "no",
        "--save",
        "",
        "--appendonly",
        "no",
        "--daemonize",
        "no",
        "--dir",
        "/",
    ];
    let program = Program {
        cpus: Some(CpuSet::single(testbed.cpu)),
        network: setup.networks.server,
        ..Program::new(words)
    };
    let mut server = testbed.launch(program, how)?;
    let pid = server.pid();
    testbed.wait("redis-server", || listens(pid, PORT) || !matches!(server.ended(), Ok(None)))?;
    match server.ended() {
        Ok(None) => Ok(server),
        _ => Err(ExperimentError::Program {
            what: "redis-server".to_owned(),
            happened: "ended at once: start it by hand to see why".to_owned(),
        }),
    }
}

fn recorded_figures(
    testbed: &Testbed<'_>,
    window: &RecordedWindow,
    (server, batch, client): (u32, u32, u32),
    row: &Row,
) -> RecordedFigures {
    let real = row.batch.is_some();
    let (redis, work, load) =
        (window.process(server), window.process(batch), window.process(client));
    let waits = window.waits(server);
    RecordedFigures {
        server: window.share(redis.run),
        batch: real.then(|| window.share(work.run)),
        client: window.share(load.run) / testbed.others.count().max(1) as f64,
        stall: (redis.switches > 0).then_some(waits.longest.0 as f64),
        overtaken: (!row.server.is_fair()).then_some(waits.overtaken),
        turn: real.then(|| work.run_length.max().0 as f64),
        foreign: window.foreign(testbed.cpu, &[server, batch, client]),
        client_stall: window.waits(client).longest.0 as f64,
    }
}

/// Adds the figures of one measurement of `row`; `events` are those of sysbench in a second of CPU
/// time.
pub(super) fn add_values(
    into: &mut Collected,
    row: &str,
    seen: &RecordedFigures,
    outcome: &ClientFigures,
    events: f64,
) {
    let mut add = |figure, value: Option<f64>| into.add(row, figure, value);
    add(THROUGHPUT, Some(outcome.throughput));
    add(P50, Some(outcome.p50));
    add(MEAN, Some(outcome.mean));
    add(P95, Some(outcome.p95));
    add(P99, Some(outcome.p99));
    add(P99_9, outcome.p99_9);
    add(MAX, Some(outcome.max));
    add(LAG, outcome.lag_p99);
    add(SERVER_SHARE, Some(seen.server));
    add(BATCH_SHARE, seen.batch);
    add(BATCH, seen.batch.map(|share| share * events));
    add(STALL, seen.stall);
    add(OVERTAKEN, seen.overtaken.as_deref().map(longest));
    add(TURN, seen.turn);
    add(CLIENT, Some(seen.client));
    add(CLIENT_STALL, Some(seen.client_stall));
    add(FOREIGN, Some(seen.foreign));
}
