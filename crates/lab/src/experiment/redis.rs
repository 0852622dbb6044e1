//! A Redis server and `sysbench cpu` on one CPU, loaded by the article's client and by our own.

mod findings;
mod predicted;

use super::client::{Amount, Client, ClientKind, Outcome, PORT, WARM_UP};
use super::figures::{Collected, Figure, Sheet, Unit};
use super::model::Model;
use super::rounds::in_turns;
use super::sleeper::listens;
use super::stage::{Stage, Wires, scheduling};
use super::waits::{LIMIT, Overtaken, waits};
use super::watching::{Scene, Seen, pieces, watch};
use super::{Experiment, ExperimentError, Options, Watch, Which, chosen};
use findings::{bottleneck, client_stalls, limit_of, limited, little, milder, never_idle, why};
use predicted::Prediction;
use schedlab_host::program::{Program, Running};
use schedlab_host::threads::Scheduling;
use schedlab_model::{CpuSet, Ns, Policy};
use std::cell::RefCell;
use std::time::Duration;

const THROUGHPUT: Figure = Figure { name: "requests", unit: Unit::PerSecond };
const P50: Figure = Figure { name: "p50", unit: Unit::Time };
/// For Little's law; not printed.
const MEAN: Figure = Figure { name: "mean", unit: Unit::Time };
const P95: Figure = Figure { name: "p95", unit: Unit::Time };
const P99: Figure = Figure { name: "p99", unit: Unit::Time };
const P99_9: Figure = Figure { name: "p99.9", unit: Unit::Time };
const MAX: Figure = Figure { name: "max", unit: Unit::Time };
const BATCH: Figure = Figure { name: "sysbench", unit: Unit::PerSecond };
const SERVER_SHARE: Figure = Figure { name: "CPU of redis", unit: Unit::Share };
const BATCH_SHARE: Figure = Figure { name: "CPU of sysbench", unit: Unit::Share };
const STALL: Figure = Figure { name: "redis waited at most", unit: Unit::Time };
const OVERTAKEN: Figure = Figure { name: "a fair task went first for", unit: Unit::Time };
const TURN: Figure = Figure { name: "longest turn of sysbench", unit: Unit::Time };
const CLIENT: Figure = Figure { name: "CPU of the client", unit: Unit::Share };
const CLIENT_STALL: Figure = Figure { name: "client waited at most", unit: Unit::Time };
const LAG: Figure = Figure { name: "sent late p99", unit: Unit::Time };
const FOREIGN: Figure = Figure { name: "foreign work", unit: Unit::Share };
const FIGURES: [Figure; 16] = [
    THROUGHPUT,
    P50,
    P95,
    P99,
    P99_9,
    MAX,
    BATCH,
    SERVER_SHARE,
    BATCH_SHARE,
    STALL,
    OVERTAKEN,
    TURN,
    CLIENT,
    CLIENT_STALL,
    LAG,
    FOREIGN,
];

/// Why the simulator may not meet the fair server.
const MISSED: &str = "redis FIFO, simulated: every request has the same way there, so that Redis runs dry now and then, \
                      sysbench does not starve, and the fair server is not met where it is met here";
/// A row: how server and batch work are scheduled.
struct Row {
    name: &'static str,
    server: Policy,
    /// Policy and nice value of sysbench; `None`: there is none, but something that keeps the CPU awake.
    batch: Option<(Policy, i8)>,
    /// The same for the simulator.
    model: &'static str,
}

const OTHER: Policy = Policy::Other;
const ROWS: [Row; 7] = [
    Row { name: "dedicated", server: OTHER, batch: None, model: "sysbench off" },
    Row { name: "shared", server: OTHER, batch: Some((OTHER, 0)), model: "" },
    Row {
        name: "redis FIFO",
        server: Policy::Fifo(1),
        batch: Some((OTHER, 0)),
        model: "redis-server policy=fifo:1",
    },
    Row {
        name: "redis RR",
        server: Policy::Rr(1),
        batch: Some((OTHER, 0)),
        model: "redis-server policy=rr:1",
    },
    Row {
        name: "batch SCHED_IDLE",
        server: OTHER,
        batch: Some((Policy::Idle, 0)),
        model: "sysbench policy=idle",
    },
    Row { name: "batch nice 19", server: OTHER, batch: Some((OTHER, 19)), model: "sysbench nice=19" },
    Row {
        name: "batch SCHED_BATCH",
        server: OTHER,
        batch: Some((Policy::Batch, 0)),
        model: "sysbench policy=batch",
    },
];

/// What the article printed: requests/s, p50, p95, p99, max in ms, sysbench events/s.
const ARTICLE: [(&str, [f64; 6]); 3] = [
    ("dedicated", [271_785.0, 0.111, 0.143, 0.183, 16.047, 2830.0]),
    ("shared", [119_452.0, 0.111, 0.143, 11.175, 16.215, 1580.0]),
    ("redis FIFO", [271_878.0, 0.111, 0.143, 0.159, 2.631, 5.0]),
];

fn article(row: &str, figure: &str) -> Option<f64> {
    let (_, values) = ARTICLE.iter().find(|(name, _)| *name == row)?;
    let at = ["requests", "p50", "p95", "p99", "max", "sysbench"].iter().position(|name| *name == figure)?;
    let ms = (1..=4).contains(&at);
    Some(values[at] * if ms { 1e6 } else { 1.0 })
}

/// What stays the same over all rounds.
struct Setting {
    wires: Wires,
    /// Events of sysbench in a second of CPU time.
    events: f64,
    amount: Amount,
}

pub(super) fn run(
    stage: &mut Stage<'_>,
    options: &Options,
    watching: &mut dyn Watch,
) -> Result<Experiment, ExperimentError> {
    let rows = chosen(&ROWS, |row| row.name, options)?;
    let wires = stage.networks(options.network)?;
    let all = rows.len() * options.rounds * options.clients.len();
    watching.plan(Which::RedisBatch, all, pieces(all, options.time + WARM_UP));
    watching.step("sysbench alone", 0, all);
    let events = alone(stage)?;
    let mut setting = Setting {
        wires,
        events,
        amount: Amount { connections: options.connections, time: options.time, requests: 20_000 },
    };
    if options.clients.contains(&ClientKind::RedisBenchmark) {
        let (_, _, seen) = measure(stage, &setting, &ROWS[0], ClientKind::RedisBenchmark, 0)?;
        // About the time that was asked for on a CPU of its own, twice that on a shared one.
        let wanted = seen.throughput * options.time.0 as f64 / 1e9;
        setting.amount.requests = (wanted as u64).clamp(1000, 50_000_000);
    }
    let mut here: Vec<Heard> = options.clients.iter().map(|_| Heard::default()).collect();
    let mut doubts = Vec::new();
    let each: Vec<(&Row, usize)> =
        rows.iter().flat_map(|row| (0..options.clients.len()).map(|client| (*row, client))).collect();
    let names: Vec<String> =
        each.iter().map(|(row, client)| format!("{}, {}", row.name, options.clients[*client])).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let rounds = in_turns(stage, options, watching, &names, &mut |turn, _| {
        let (row, client) = each[turn.row];
        let (seen, recorded, outcome) = measure(stage, &setting, row, options.clients[client], turn.seed)?;
        note(&mut here[client].figures, row.name, &recorded, &outcome, setting.events);
        here[client].overtaken.extend(recorded.overtaken.into_iter().map(|waits| (row.name, waits)));
        let unanswered = outcome.doubts.iter().filter(|doubt| !judged_here(doubt));
        doubts.extend(unanswered.map(|doubt| format!("{}: {doubt}", names[turn.row])));
        Ok(seen)
    })?;
    doubts.dedup();
    doubts.extend(rounds.doubts);
    result(stage, options, &rows, &here, &rounds.model, (doubts, setting.events))
}

/// Whether a doubt of the client is about itself: [`bottleneck`] judges that over all rounds.
fn judged_here(doubt: &str) -> bool {
    doubt.contains("bottleneck") || doubt.contains("the client's own")
}

/// All rounds with one client.
#[derive(Default)]
struct Heard {
    figures: Collected,
    /// A round of a row whose server is a real-time task: its waits in which fair tasks ran.
    overtaken: Vec<(&'static str, Vec<Overtaken>)>,
}

/// What the recorder saw in one measurement.
struct Recorded {
    server: f64,
    batch: Option<f64>,
    client: f64,
    stall: Option<f64>,
    /// Of a real-time server.
    overtaken: Option<Vec<Overtaken>>,
    turn: Option<f64>,
    foreign: f64,
    client_stall: f64,
}

/// `sysbench` alone: its events in a second of CPU time.
fn alone(stage: &Stage<'_>) -> Result<f64, ExperimentError> {
    let words = "sysbench cpu --threads=1 --time=1 run".split(' ');
    let program = Program { cpus: Some(CpuSet::single(stage.cpu)), piped: true, ..Program::new(words) };
    let what = program.command.join(" ");
    let running = RefCell::new(None);
    let seen = watch(
        stage,
        Which::RedisBatch,
        Scene {
            begin: &mut || {
                *running.borrow_mut() = Some(stage.launch(program.clone(), scheduling(OTHER, 0))?);
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
    let text = stage.finish(running, &what)?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("total number of events:"));
    let events = line.and_then(|count| count.trim().parse::<f64>().ok()).filter(|count| *count > 0.0);
    let used = seen.process(pid).run.0 as f64 / 1e9;
    let rate = events.map(|events| events / used).filter(|rate| rate.is_finite());
    rate.ok_or_else(|| ExperimentError::Program {
        what,
        happened: "does not say how many events it made".to_owned(),
    })
}

/// What runs beside the server.
fn neighbour(stage: &Stage<'_>, row: &Row) -> Result<Running, ExperimentError> {
    match row.batch {
        Some((policy, nice)) => {
            let words = ["sysbench", "cpu", "--threads=1", "--time=0", "run"];
            stage.start(&words, scheduling(policy, nice))
        }
        // A CPU that sleeps wakes late: a dedicated one must not look worse than a shared one for that.
        None => stage.start(&["yes"], scheduling(Policy::Idle, 0)),
    }
}

fn measure(
    stage: &Stage<'_>,
    setting: &Setting,
    row: &Row,
    kind: ClientKind,
    seed: u64,
) -> Result<(Seen, Recorded, Outcome), ExperimentError> {
    let server = server(stage, setting, scheduling(row.server, 0))?;
    let batch = neighbour(stage, row)?;
    stage.pause(Duration::from_millis(150))?;
    let ours = kind != ClientKind::RedisBenchmark;
    let start = || Client::start(stage, &setting.wires, kind, setting.amount, seed);
    // Our own connects first and begins when it is told to. redis-benchmark counts from its first request.
    let client = RefCell::new(if ours { Some(start()?) } else { None });
    let scene = Scene {
        begin: &mut || {
            let mut client = client.borrow_mut();
            match client.as_mut() {
                Some(client) => client.go(),
                None => start().map(|started| *client = Some(started)),
            }
        },
        warm_up: if ours { WARM_UP } else { Ns::ZERO },
        time: if ours { setting.amount.time } else { Ns(setting.amount.time.0.saturating_mul(8)) },
        over: &|| client.borrow_mut().as_mut().is_some_and(Client::ended),
    };
    let seen = watch(stage, Which::RedisBatch, scene)?;
    let client = client.into_inner().ok_or(ExperimentError::Interrupted)?;
    let pids = (server.pid(), batch.pid(), client.pid());
    let recorded = recorded(stage, &seen, pids, row);
    let outcome = client.finish(stage)?;
    Ok((seen, recorded, outcome))
}

fn server(stage: &Stage<'_>, setting: &Setting, how: Scheduling) -> Result<Running, ExperimentError> {
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
        cpus: Some(CpuSet::single(stage.cpu)),
        network: setting.wires.server,
        ..Program::new(words)
    };
    let mut server = stage.launch(program, how)?;
    let pid = server.pid();
    stage.wait("redis-server", || listens(pid, PORT) || !matches!(server.ended(), Ok(None)))?;
    match server.ended() {
        Ok(None) => Ok(server),
        _ => Err(ExperimentError::Program {
            what: "redis-server".to_owned(),
            happened: "ended at once: start it by hand to see why".to_owned(),
        }),
    }
}

fn recorded(stage: &Stage<'_>, seen: &Seen, (server, batch, client): (u32, u32, u32), row: &Row) -> Recorded {
    let real = row.batch.is_some();
    let (redis, work, load) = (seen.process(server), seen.process(batch), seen.process(client));
    let waits = seen.waits(server);
    Recorded {
        server: seen.share(redis.run),
        batch: real.then(|| seen.share(work.run)),
        client: seen.share(load.run) / stage.others.count().max(1) as f64,
        stall: (redis.switches > 0).then_some(waits.longest.0 as f64),
        overtaken: (!row.server.is_fair()).then_some(waits.overtaken),
        turn: real.then(|| work.run_length.max().0 as f64),
        foreign: seen.foreign(stage.cpu, &[server, batch, client]),
        client_stall: seen.waits(client).longest.0 as f64,
    }
}

fn note(into: &mut Collected, row: &str, seen: &Recorded, outcome: &Outcome, events: f64) {
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

/// The longest time in one wait for which fair tasks had the CPU.
fn longest(waits: &[Overtaken]) -> f64 {
    waits.iter().map(|wait| wait.fair).max().unwrap_or_default().0 as f64
}

fn result(
    stage: &Stage<'_>,
    options: &Options,
    rows: &[&Row],
    here: &[Heard],
    model: &Model,
    (mut doubts, events): (Vec<String>, f64),
) -> Result<Experiment, ExperimentError> {
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    let (mut sheets, mut findings, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
    let mut conditions = vec![
        format!(
            "{} rounds of {}, rows and clients in random order (seed {}); a new server in each; {} connections",
            options.rounds, options.time, options.seed, options.connections
        ),
        format!(
            "sysbench: its CPU time times {events:.0} events in a second of CPU time, measured alone first"
        ),
        "dedicated: beside a SCHED_IDLE spinner, so that the CPU does not sleep; no sysctl is changed"
            .to_owned(),
        model.about.clone(),
    ];
    let mut missed = Vec::new();
    for (kind, heard) in options.clients.iter().zip(here) {
        let collected = &heard.figures;
        let prediction = Prediction::of(model, (*kind, options.connections), collected, rows)?;
        let published =
            |row: &str, figure: &str| article(row, figure).filter(|_| kind.as_published(options.connections));
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
            lines: collected.lines(&names, &FIGURES, base(&names), &published, &simulated, options.seed),
        });
        conditions.extend(prediction.about.iter().map(|text| format!("{kind}: {text}")));
        bottleneck(*kind, collected, &names, &mut findings, &mut doubts);
        findings.extend(limited(*kind, heard, &names, limit_of(&stage.machine.kernel)));
        client_stalls(*kind, collected, &names, &mut doubts);
        milder(*kind, collected, &mut findings);
        reasons
            .extend(kind.closed().then(|| little((*kind, options.connections), collected, &names)).flatten());
        doubts.extend(collected.warnings().into_iter().map(|warning| format!("{kind}: {warning}")));
    }
    reasons.extend(why(stage));
    reasons.extend(missed);
    Ok(Experiment {
        name: Which::RedisBatch,
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

/// What a client does, and what the article has to say of it.
fn titles(kind: ClientKind) -> (&'static str, &'static str) {
    match kind {
        ClientKind::Open(_) => {
            ("GET, times from the intended send", "article: nothing (it has a closed loop only)")
        }
        ClientKind::Bitcount => {
            ("BITCOUNT of a key of 128 KiB, closed loop", "article: nothing (it asks with GET only)")
        }
        ClientKind::RedisBenchmark | ClientKind::Closed => (
            "GET, closed loop",
            "article: redis-benchmark -c 32 -t get --threads, Linux 6.2, 32 CPUs, another host",
        ),
    }
}

/// What the other rows are compared with.
fn base<'a>(names: &[&'a str]) -> &'a str {
    let shared = names.iter().find(|name| **name == "shared");
    shared.or(names.first()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_article_is_in_nanoseconds() {
        assert_eq!(article("shared", "p99"), Some(11_175_000.0));
        assert_eq!(article("redis FIFO", "sysbench"), Some(5.0));
        assert_eq!((article("batch nice 19", "p99"), article("shared", "p99.9")), (None, None));
    }
}
