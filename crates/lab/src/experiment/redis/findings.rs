//! What the rounds of `redis-batch` show: the bottleneck, the limit on the real-time class, which
//! milder setting does as well, and why the columns differ.

use super::super::client_kind::ClientKind;
use super::super::figures::{Collected, Unit};
use super::super::testbed::Testbed;
use super::super::waits::{LIMIT, Overtaken};
use super::rows::{
    BATCH_SHARE, CLIENT, CLIENT_STALL, ClientRounds, FOREIGN, LAG, MAX, MEAN, P99, SERVER_SHARE,
    STALL, THROUGHPUT,
};
use schedlab_model::Ns;
use schedlab_scheduler::linux::KernelRelease;

/// A client above this part of its CPUs may limit the throughput.
const BUSY: f64 = 0.8;
/// A server above this part of what other programs leave of its CPU, with no batch job on it,
/// limits the throughput.
const FULL: f64 = 0.95;
/// Requests that leave at most this much late, in nanoseconds, are on time.
const LATE: f64 = 50_000.0;
/// A client whose own mean is below this part of the mean time of a request does not measure much
/// of it.
const UNSEEN: f64 = 0.75;

/// Returns whether a server with `share` of a CPU, of which other programs had `foreign`, never
/// lets it idle.
pub(super) fn never_idle(share: f64, foreign: f64) -> bool {
    share >= FULL * (1.0 - foreign)
}

/// Adds whether the client or the server limits the throughput.
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
            "{kind}: in {} requests left late by more than half of p99: much of p99 is the \
             client's own delay",
            late.join(", ")
        ));
    }
    if busy.is_empty() {
        let server = here.median("dedicated", SERVER_SHARE).filter(|_| kind.closed());
        let server = server.map_or_else(String::new, |share| {
            let foreign = here.median("dedicated", FOREIGN).unwrap_or_default();
            let limits = if never_idle(share, foreign) {
                "Redis limits"
            } else {
                "neither does Redis limit"
            };
            let show = |share| Unit::Share.show(share);
            format!(
                "; {limits}: {} of its CPU in the row dedicated, other programs {}",
                show(share),
                show(foreign)
            )
        });
        findings.push(format!(
            "{kind}: the client is not the bottleneck: {most} of its CPUs at most{lag}{server}"
        ));
    } else {
        doubts.push(format!(
            "{kind}: the client used up to {most} of its CPUs ({}): there the client, not Redis, \
             may limit the throughput{lag}",
            busy.join(", ")
        ));
    }
}

/// Returns the limit on the real-time class in a kernel of this release: its name in a finding, and
/// what it does.
pub(super) fn limit_of(release: &str) -> (&'static str, &'static str) {
    match release.parse().is_ok_and(KernelRelease::has_fair_server) {
        true => (
            "fair server, 50 ms",
            "of each second the fair server gives that much to tasks that a real-time task \
             starves, up to the tick after",
        ),
        false => (
            "real-time throttling, 50 ms",
            "of each second sched_rt_runtime_us leaves that much to others, up to the tick after",
        ),
    }
}

/// Returns the rows in whose recordings the limit on the real-time class acts: fair tasks run on
/// the CPU for which a real-time thread of Redis waits.
pub(super) fn limited(
    kind: ClientKind,
    heard: &ClientRounds,
    rows: &[&str],
    (name, what): (&str, &str),
) -> Vec<String> {
    let here = &heard.figures;
    let told = |row: &&str| {
        let rounds = heard.overtaken.iter().filter(|(of, _)| of == row);
        let met: Vec<Vec<&Overtaken>> = rounds.map(|(_, waits)| turns(waits)).collect();
        let all: Vec<&Overtaken> = met.iter().flatten().copied().collect();
        let longest = all.iter().max_by_key(|wait| wait.fair)?;
        let show = |time: Ns| Unit::Time.show(time.0 as f64);
        let apart = met
            .iter()
            .flat_map(|waits| waits.windows(2).map(|two| (two[1].at - two[0].at).0 as f64));
        let apart = schedlab_stats::median(&apart.collect::<Vec<_>>());
        let apart = apart.map_or_else(String::new, |apart| {
            format!(", {} from one to the next", Unit::Time.show(apart))
        });
        let median = schedlab_stats::median(
            &all.iter().map(|wait| wait.waited.0 as f64).collect::<Vec<_>>(),
        );
        Some(format!(
            "{kind}, {row}: {name}: in {} of {} rounds Redis was runnable and a fair task had its \
             CPU, {} times for {} \
             (median){apart}; in the longest wait, {}, {} had the CPU for {}: {what}. The row's \
             maximum is {}, and sysbench has {} \
             of the CPU instead of nothing",
            met.iter().filter(|waits| !waits.is_empty()).count(),
            met.len(),
            all.len(),
            Unit::Time.show(median.unwrap_or_default()),
            show(longest.waited),
            longest.most.0,
            show(longest.most.1),
            here.median(row, MAX).map_or_else(|| "unknown".to_owned(), |max| Unit::Time.show(max)),
            Unit::Share.show(here.median(row, BATCH_SHARE).unwrap_or_default())
        ))
    };
    rows.iter().filter_map(told).collect()
}

/// Returns a wait for each turn that the limit gave to fair tasks, in order. Several threads of
/// Redis may wait through one turn, some of them from long before: the shortest wait tells when the
/// turn was.
fn turns(waits: &[Overtaken]) -> Vec<&Overtaken> {
    let mut met: Vec<&Overtaken> = waits.iter().filter(|wait| wait.fair >= LIMIT).collect();
    met.sort_by_key(|wait| (wait.waited, wait.at));
    let mut turns: Vec<&Overtaken> = Vec::new();
    for wait in met {
        let apart =
            |one: &&Overtaken| one.at + one.waited <= wait.at || wait.at + wait.waited <= one.at;
        if turns.iter().all(apart) {
            turns.push(wait);
        }
    }
    turns.sort_by_key(|wait| wait.at);
    turns
}

/// Adds a doubt where the limit stopped the client: a real-time client without a pause is limited
/// on its own CPU.
pub(super) fn client_stalls(
    kind: ClientKind,
    here: &Collected,
    rows: &[&str],
    doubts: &mut Vec<String>,
) {
    for row in rows {
        let stalls = here.values(row, CLIENT_STALL);
        let met = stalls.iter().filter(|stall| **stall >= LIMIT.0 as f64).count();
        if met > 0 {
            doubts.push(format!(
                "{kind}, {row}: in {met} of {} rounds the client itself waited for its CPU for 40 \
                 ms or more (a busy SCHED_FIFO \
                 client meets the fair server too): that maximum says nothing about Redis",
                stalls.len()
            ));
        }
    }
}

/// Adds whether SCHED_IDLE or nice 19 for the batch job does what FIFO for Redis does.
pub(super) fn milder(kind: ClientKind, here: &Collected, findings: &mut Vec<String>) {
    for row in ["batch SCHED_IDLE", "batch nice 19"] {
        let (milder, fifo) = (here.values(row, P99), here.values("redis FIFO", P99));
        let Some(change) = schedlab_stats::difference(fifo, milder, 1) else { continue };
        let show = |value: f64| Unit::Time.show(value);
        let word = if change.told_apart { "differs from" } else { "cannot be told apart from" };
        findings.push(format!(
            "{kind}, {row}: p99 {} {word} that of redis FIFO, {} (difference {} to {}); the \
             longest wait of Redis is {} \
             against {}",
            show(schedlab_stats::median(milder).unwrap_or_default()),
            show(schedlab_stats::median(fifo).unwrap_or_default()),
            show(change.low),
            show(change.high),
            show(here.median(row, STALL).unwrap_or_default()),
            show(here.median("redis FIFO", STALL).unwrap_or_default())
        ));
    }
}

/// Returns the rows in which the client does not measure the whole time of its requests. In a
/// closed loop the connections are the rate times the mean time of a request (Little, Operations
/// Research 9, 1961); a client whose own mean is much less does not count the time that a request
/// or an answer waits in the client.
pub(super) fn little(
    (kind, connections): (ClientKind, usize),
    here: &Collected,
    rows: &[&str],
) -> Option<String> {
    let told = |row: &&str| {
        let (rate, mean) = (here.median(row, THROUGHPUT)?, here.median(row, MEAN)?);
        let whole = connections as f64 / rate * 1e9;
        (rate > 0.0 && mean < whole * UNSEEN)
            .then(|| format!("{row} {} of {}", Unit::Time.show(mean), Unit::Time.show(whole)))
    };
    let told: Vec<String> = rows.iter().filter_map(told).collect();
    (!told.is_empty()).then(|| {
        format!(
            "{kind}, times: {connections} connections over the requests a second are the mean \
             time of a request, of which the \
             client's own clock measures a part ({}); for the rest the request waits in the \
             client. The simulator counts all of it",
            told.join(", ")
        )
    })
}

/// Returns why the columns differ on this machine.
pub(super) fn why(testbed: &Testbed<'_>) -> Vec<String> {
    let machine = &testbed.machine;
    let tick = 1000 / machine.hz.max(1);
    let mut all = vec![
        "another CPU and another network than the published ones: compare rows with rows, not \
         requests with requests"
            .to_owned(),
    ];
    let kernel = machine.kernel.parse::<KernelRelease>();
    if kernel.as_ref().is_ok_and(|release| release.has_eevdf()) {
        all.push(format!(
            "shared p99: 11 ms published (CFS: turns of 12 to 16 ms), about a tick of {tick} ms \
             here (EEVDF: a slice ends \
             at the first tick after it)"
        ));
    }
    if kernel.is_ok_and(KernelRelease::has_fair_server) {
        all.push(
            "redis FIFO: 5 sysbench events published (RT throttling, lifted by \
             sched_rt_runtime_us=999990), 5 % of the \
             CPU here: since Linux 6.12 the fair server decides, and that knob changes nothing"
                .to_owned(),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::rows::P50;
    use super::*;

    fn wait(at_ms: u64, fair_ms: u64) -> Overtaken {
        let ms = Ns::from_ms;
        let most = ("sysbench".to_owned(), ms(fair_ms));
        Overtaken { at: ms(at_ms), waited: ms(fair_ms + 1), fair: ms(fair_ms), most }
    }

    #[test]
    fn the_fair_server_is_named_where_fair_tasks_ran_in_a_wait() {
        let mut heard = ClientRounds::default();
        for (row, waits) in [
            ("redis FIFO", vec![wait(100, 54), wait(400, 2), wait(1100, 53)]),
            ("redis FIFO", vec![wait(10, 3)]),
            ("redis RR", vec![wait(10, 4)]),
        ] {
            heard.figures.add(row, BATCH_SHARE, Some(0.05));
            heard.figures.add(row, MAX, Some(54.5e6));
            // A long wait and a long turn of the batch job that did not meet are no proof.
            heard.figures.add(row, STALL, Some(60e6));
            heard.overtaken.push((row, waits));
        }
        let rows = ["shared", "redis FIFO", "redis RR"];
        let told = limited(ClientKind::Bitcount, &heard, &rows, limit_of("6.18.44"));
        assert_eq!(told.len(), 1, "{told:?}");
        let begins = "bitcount, redis FIFO: fair server, 50 ms: in 1 of 2 rounds ";
        assert!(told[0].starts_with(begins), "{told:?}");
        for part in [
            "2 times for 54.50ms",
            "1.00s from one",
            "55.00ms, sysbench had the CPU for 54.00ms",
            "is 54.50ms",
            "5.0%",
        ] {
            assert!(told[0].contains(part), "{part}: {told:?}");
        }
        let old = limited(ClientKind::Bitcount, &heard, &rows, limit_of("6.1.0-23"));
        assert!(old[0].contains(": real-time throttling, 50 ms: "), "{old:?}");
    }

    #[test]
    fn threads_that_wait_through_one_turn_of_fair_tasks_count_it_once() {
        // Waits come in the order of their ends; a thread behind the others waits from long before.
        let long = Overtaken { at: Ns::from_ms(200), waited: Ns::from_ms(1900), ..wait(0, 108) };
        let waits = [wait(950, 52), wait(1990, 53), long.clone()];
        assert_eq!(turns(&waits), [&waits[0], &waits[1]]);
        assert_eq!(turns(&[wait(950, 3), long.clone()]), [&long]);
        let mut heard = ClientRounds::default();
        heard.overtaken.push(("redis FIFO", waits.to_vec()));
        let told = limited(ClientKind::Bitcount, &heard, &["redis FIFO"], limit_of("6.18.44"));
        assert!(
            told[0].contains("2 times for") && told[0].contains(", 1.04s from one to the next"),
            "{told:?}"
        );
    }

    #[test]
    fn the_bottleneck_is_the_client_or_the_server() {
        let said_beside = |client: f64, server: f64, foreign: f64| {
            let (mut here, mut findings, mut doubts) =
                (Collected::default(), Vec::new(), Vec::new());
            here.add("dedicated", CLIENT, Some(client));
            here.add("dedicated", SERVER_SHARE, Some(server));
            here.add("dedicated", FOREIGN, Some(foreign));
            bottleneck(ClientKind::Bitcount, &here, &["dedicated"], &mut findings, &mut doubts);
            (findings.concat(), doubts.concat())
        };
        let said = |client: f64, server: f64| said_beside(client, server, 0.0);
        let (found, doubted) = said(0.3, 0.998);
        assert!(
            found.contains("not the bottleneck") && found.contains("; Redis limits: 99.8%"),
            "{found}"
        );
        assert_eq!(doubted, "");
        assert!(said(0.3, 0.7).0.contains("neither does Redis limit: 70.0%"));
        let disturbed = said_beside(0.3, 0.7, 0.28).0;
        assert!(
            disturbed.contains("; Redis limits: 70.0%")
                && disturbed.contains("other programs 28.0%"),
            "{disturbed}"
        );
        assert!(
            said(0.93, 0.998).1.contains("there the client, not Redis"),
            "a busy client is a doubt"
        );
    }

    #[test]
    fn time_that_the_client_does_not_count_is_named() {
        let mut here = Collected::default();
        here.add("dedicated", THROUGHPUT, Some(64_000.0));
        here.add("dedicated", MEAN, Some(250_000.0));
        // Half of the requests are fast and others wait for a turn of the batch job: the mean has
        // that, a median had not.
        here.add("shared", THROUGHPUT, Some(32_000.0));
        here.add("shared", P50, Some(400_000.0));
        here.add("shared", MEAN, Some(990_000.0));
        let told = little((ClientKind::Closed, 32), &here, &["dedicated", "shared"]).unwrap();
        assert!(
            told.contains("dedicated 250.0us of 500.0us") && !told.contains("shared"),
            "{told}"
        );
        assert_eq!(little((ClientKind::Closed, 32), &here, &["shared"]), None);
    }
}
