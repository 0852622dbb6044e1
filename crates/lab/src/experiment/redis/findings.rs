//! What the rounds say: who limited, who met the fair server, which milder setting does as well, and why the columns differ.

use super::{
    BATCH_SHARE, CLIENT, CLIENT_STALL, CONNECTIONS, ClientKind, Collected, FAIR_SERVER, LAG, MAX, P50, P99,
    STALL, Stage, THROUGHPUT, TURN, Unit,
};
use schedlab_measure::stats;

/// A client above this part of its CPUs may be what limits the throughput.
const BUSY: f64 = 0.8;
/// Requests that leave no later than this, in nanoseconds, are on time.
const LATE: f64 = 50_000.0;
/// A median below this part of the mean time of a request leaves much of it out (a closed loop's times lie close together).
const UNSEEN: f64 = 0.75;

/// Whether the client or the server was what limits.
pub(super) fn bottleneck(
    kind: ClientKind,
    here: &Collected,
    rows: &[&str],
    findings: &mut Vec<String>,
    doubts: &mut Vec<String>,
) {
    let used = |row: &&&str| here.median(row, CLIENT).is_some_and(|share| share > BUSY);
    let busy: Vec<&str> = rows.iter().filter(used).copied().collect();
    let most = rows.iter().filter_map(|row| here.median(row, CLIENT)).fold(0.0, f64::max);
    let lag = rows.iter().filter_map(|row| here.median(row, LAG)).reduce(f64::max);
    let lag = lag.map_or_else(String::new, |lag| {
        format!("; 99 % of its requests left at most {} late", Unit::Time.show(lag))
    });
    let most = Unit::Share.show(most);
    let late = |row: &&&str| {
        let (lag, p99) = (here.median(row, LAG), here.median(row, P99));
        lag.zip(p99).is_some_and(|(lag, p99)| lag > LATE && lag > p99 / 2.0)
    };
    let late: Vec<&str> = rows.iter().filter(late).copied().collect();
    if !late.is_empty() {
        doubts.push(format!(
            "{kind}: in {} requests left late by more than half of p99: much of that is the client's own",
            late.join(", ")
        ));
    }
    if busy.is_empty() {
        findings.push(format!("{kind}: the client is not the bottleneck: {most} of its CPUs at most{lag}"));
    } else {
        doubts.push(format!(
            "{kind}: the client used up to {most} of its CPUs ({}): there it, not Redis, may limit the throughput{lag}",
            busy.join(", ")
        ));
    }
}

/// Names the fair server where it was met.
pub(super) fn fair_server(kind: ClientKind, here: &Collected, findings: &mut Vec<String>) {
    for row in ["redis FIFO", "redis RR"] {
        let (stalls, turns) = (here.of(row, STALL), here.of(row, TURN));
        let met =
            stalls.iter().zip(turns).filter(|(stall, turn)| **stall > FAIR_SERVER && **turn > FAIR_SERVER);
        let met: Vec<f64> = met.map(|(stall, _)| *stall).collect();
        let (Some(stall), Some(share)) = (stats::median(&met), here.median(row, BATCH_SHARE)) else {
            continue;
        };
        findings.push(format!(
            "{kind}, {row}: in {} of {} rounds Redis waited {} in one piece while sysbench ran: the fair server, 50 ms of \
             each second for tasks that a real-time task starves, ended at a tick. It is the maximum of this row ({}), and \
             why sysbench has {} instead of nothing",
            met.len(),
            stalls.len(),
            Unit::Time.show(stall),
            Unit::Time.show(here.median(row, MAX).unwrap_or_default()),
            Unit::Share.show(share)
        ));
    }
}

/// A real-time client without a pause meets the fair server of its own CPU.
pub(super) fn client_stalls(kind: ClientKind, here: &Collected, rows: &[&str], doubts: &mut Vec<String>) {
    for row in rows {
        let stalls = here.of(row, CLIENT_STALL);
        let met = stalls.iter().filter(|stall| **stall > FAIR_SERVER).count();
        if met > 0 {
            doubts.push(format!(
                "{kind}, {row}: in {met} of {} rounds the client itself waited for its CPU for 40 ms or more (a busy SCHED_FIFO \
                 client meets the fair server too): that maximum says nothing of Redis",
                stalls.len()
            ));
        }
    }
}

/// Whether SCHED_IDLE for the batch job does what FIFO does for Redis.
pub(super) fn milder(kind: ClientKind, here: &Collected, findings: &mut Vec<String>) {
    for row in ["batch SCHED_IDLE", "batch nice 19"] {
        let (ours, fifo) = (here.of(row, P99), here.of("redis FIFO", P99));
        let Some(change) = stats::difference(fifo, ours, 1) else { continue };
        let show = |value: f64| Unit::Time.show(value);
        let word = if change.told_apart { "differs from" } else { "cannot be told apart from" };
        findings.push(format!(
            "{kind}, {row}: p99 {} {word} that of redis FIFO, {} (difference {} to {}); the longest wait of Redis is {} \
             against {}",
            show(stats::median(ours).unwrap_or_default()),
            show(stats::median(fifo).unwrap_or_default()),
            show(change.low),
            show(change.high),
            show(here.median(row, STALL).unwrap_or_default()),
            show(here.median("redis FIFO", STALL).unwrap_or_default())
        ));
    }
}

/// A closed loop's requests in flight are its rate times their time (Little 1961). A client that counts much less than that
/// does not count the time that a request or an answer waits in the client itself.
pub(super) fn little(kind: ClientKind, here: &Collected, rows: &[&str]) -> Option<String> {
    let told = |row: &&str| {
        let (rate, p50) = (here.median(row, THROUGHPUT)?, here.median(row, P50)?);
        let whole = CONNECTIONS as f64 / rate * 1e9;
        (rate > 0.0 && p50 < whole * UNSEEN)
            .then(|| format!("{row} {} of {}", Unit::Time.show(p50), Unit::Time.show(whole)))
    };
    let told: Vec<String> = rows.iter().filter_map(told).collect();
    (!told.is_empty()).then(|| {
        format!(
            "{kind}, p50: {CONNECTIONS} connections over the requests a second are the mean time of a request, of which the \
             client's own clock sees a part ({}); the rest it waits in the client. The simulator counts all of it",
            told.join(", ")
        )
    })
}

pub(super) fn why(stage: &Stage<'_>) -> Vec<String> {
    let machine = &stage.machine;
    let tick = 1000 / machine.hz.max(1);
    let mut all = vec![
        "another CPU and another network than the article's: compare rows with rows, not requests with requests".to_owned(),
    ];
    if crate::compare::kernel_scheduler(&machine.kernel).is_ok_and(|(name, _)| name != "linux-6.1") {
        all.push(format!(
            "shared p99: 11 ms in the article (CFS: turns of 12 to 16 ms), about a tick of {tick} ms here (EEVDF: a slice ends \
             at the first tick after it)"
        ));
    }
    if matches!(
        crate::compare::kernel_scheduler(&machine.kernel),
        Ok(("linux-6.12" | "linux-6.18" | "linux-7.2", _))
    ) {
        all.push(
            "redis FIFO: 5 sysbench events in the article (RT throttling, lifted by sched_rt_runtime_us=999990), 5 % of the \
             CPU here: since Linux 6.12 the fair server decides, and that knob changes nothing"
                .to_owned(),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fair_server_is_named_only_where_both_saw_it() {
        let mut here = Collected::default();
        for stall in [53.8e6, 54.1e6, 2e6] {
            here.add("redis FIFO", STALL, Some(stall));
            here.add("redis FIFO", TURN, Some(stall));
            here.add("redis FIFO", BATCH_SHARE, Some(0.05));
            here.add("redis RR", STALL, Some(stall));
            here.add("redis RR", TURN, Some(4e6));
            here.add("redis RR", BATCH_SHARE, Some(0.05));
        }
        let mut findings = Vec::new();
        fair_server(ClientKind::Closed, &here, &mut findings);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].contains("2 of 3") && findings[0].contains("fair server"), "{findings:?}");
    }

    #[test]
    fn what_the_client_does_not_count_is_told() {
        let mut here = Collected::default();
        here.add("dedicated", THROUGHPUT, Some(64_000.0));
        here.add("dedicated", P50, Some(250_000.0));
        here.add("shared", THROUGHPUT, Some(32_000.0));
        here.add("shared", P50, Some(990_000.0));
        let told = little(ClientKind::Closed, &here, &["dedicated", "shared"]).unwrap();
        assert!(told.contains("dedicated 250.0us of 500.0us") && !told.contains("shared"), "{told}");
        assert_eq!(little(ClientKind::Closed, &here, &["shared"]), None);
    }
}
