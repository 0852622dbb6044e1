//! What the rounds say: who limited, who met the fair server, which milder setting does as well, and why the columns differ.

use super::{
    BATCH_SHARE, CLIENT, CLIENT_STALL, ClientKind, Collected, FOREIGN, Heard, LAG, LIMIT, MAX, MEAN,
    Overtaken, P99, SERVER_SHARE, STALL, Stage, THROUGHPUT, Unit,
};
use schedlab_model::Ns;

/// A client above this part of its CPUs may be what limits the throughput.
const BUSY: f64 = 0.8;
/// A server above this part of what strangers leave of its CPU, with that CPU for itself, is what limits.
const FULL: f64 = 0.95;
/// Requests that leave no later than this, in nanoseconds, are on time.
const LATE: f64 = 50_000.0;
/// A client's own mean below this part of the mean time of a request leaves much of it out.
const UNSEEN: f64 = 0.75;

/// Whether a server with `share` of a CPU, of which strangers had `foreign`, never lets it idle.
pub(super) fn never_idle(share: f64, foreign: f64) -> bool {
    share >= FULL * (1.0 - foreign)
}

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
        let server = here.median("dedicated", SERVER_SHARE).filter(|_| kind.closed());
        let server = server.map_or_else(String::new, |share| {
            let foreign = here.median("dedicated", FOREIGN).unwrap_or_default();
            let who = if never_idle(share, foreign) { "Redis limits" } else { "neither does Redis limit" };
            let show = |share| Unit::Share.show(share);
            format!("; {who}: {} of its CPU in the row dedicated, strangers {}", show(share), show(foreign))
        });
        findings.push(format!(
            "{kind}: the client is not the bottleneck: {most} of its CPUs at most{lag}{server}"
        ));
    } else {
        doubts.push(format!(
            "{kind}: the client used up to {most} of its CPUs ({}): there it, not Redis, may limit the throughput{lag}",
            busy.join(", ")
        ));
    }
}

/// What limits the real-time class in a kernel of this release: its name in a finding, and what it is.
pub(super) fn limit_of(release: &str) -> (&'static str, &'static str) {
    let word = schedlab_study::compare::kernel_scheduler(release).map_or("", |(name, _)| name);
    match word {
        "linux-6.12" | "linux-6.18" | "linux-7.2" => (
            "fair server, 50 ms",
            "of each second the fair server gives that much to tasks that a real-time task starves, up to the tick after",
        ),
        _ => (
            "real-time throttling, 50 ms",
            "of each second sched_rt_runtime_us leaves that much to others, up to the tick after",
        ),
    }
}

/// Names the limit on the real-time class where the recordings show it: fair tasks on the CPU for which a real-time thread of
/// Redis waited.
pub(super) fn limited(
    kind: ClientKind,
    heard: &Heard,
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
        let apart = met.iter().flat_map(|waits| waits.windows(2).map(|two| (two[1].at - two[0].at).0 as f64));
        let apart = schedlab_stats::median(&apart.collect::<Vec<_>>());
        let apart = apart
            .map_or_else(String::new, |apart| format!(", {} from one to the next", Unit::Time.show(apart)));
        let median = schedlab_stats::median(&all.iter().map(|wait| wait.waited.0 as f64).collect::<Vec<_>>());
        Some(format!(
            "{kind}, {row}: {name}: in {} of {} rounds Redis was runnable and a fair task had its CPU, {} times for {} \
             (median){apart}; in the longest wait, {}, {} had the CPU for {}: {what}. The row's maximum is {}, and sysbench has {} \
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

/// A wait for each turn that the limit gave to fair tasks, in order. Several threads of Redis may have waited through one turn, and
/// one that waited for the others too began long before it: the shortest wait says when it was.
fn turns(waits: &[Overtaken]) -> Vec<&Overtaken> {
    let mut met: Vec<&Overtaken> = waits.iter().filter(|wait| wait.fair >= LIMIT).collect();
    met.sort_by_key(|wait| (wait.waited, wait.at));
    let mut turns: Vec<&Overtaken> = Vec::new();
    for wait in met {
        let apart = |one: &&Overtaken| one.at + one.waited <= wait.at || wait.at + wait.waited <= one.at;
        if turns.iter().all(apart) {
            turns.push(wait);
        }
    }
    turns.sort_by_key(|wait| wait.at);
    turns
}

/// A real-time client without a pause meets the fair server of its own CPU.
pub(super) fn client_stalls(kind: ClientKind, here: &Collected, rows: &[&str], doubts: &mut Vec<String>) {
    for row in rows {
        let stalls = here.of(row, CLIENT_STALL);
        let met = stalls.iter().filter(|stall| **stall >= LIMIT.0 as f64).count();
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
        let Some(change) = schedlab_stats::difference(fifo, ours, 1) else { continue };
        let show = |value: f64| Unit::Time.show(value);
        let word = if change.told_apart { "differs from" } else { "cannot be told apart from" };
        findings.push(format!(
            "{kind}, {row}: p99 {} {word} that of redis FIFO, {} (difference {} to {}); the longest wait of Redis is {} \
             against {}",
            show(schedlab_stats::median(ours).unwrap_or_default()),
            show(schedlab_stats::median(fifo).unwrap_or_default()),
            show(change.low),
            show(change.high),
            show(here.median(row, STALL).unwrap_or_default()),
            show(here.median("redis FIFO", STALL).unwrap_or_default())
        ));
    }
}

/// A closed loop's requests in flight are its rate times their mean time (Little 1961). A client whose own mean is much less than
/// that does not count the time that a request or an answer waits in the client itself.
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
            "{kind}, times: {connections} connections over the requests a second are the mean time of a request, of which the \
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
    if schedlab_study::compare::kernel_scheduler(&machine.kernel).is_ok_and(|(name, _)| name != "linux-6.1") {
        all.push(format!(
            "shared p99: 11 ms in the article (CFS: turns of 12 to 16 ms), about a tick of {tick} ms here (EEVDF: a slice ends \
             at the first tick after it)"
        ));
    }
    if matches!(
        schedlab_study::compare::kernel_scheduler(&machine.kernel),
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
    use super::super::P50;
    use super::*;

    fn wait(at_ms: u64, fair_ms: u64) -> Overtaken {
        let ms = Ns::from_ms;
        let most = ("sysbench".to_owned(), ms(fair_ms));
        Overtaken { at: ms(at_ms), waited: ms(fair_ms + 1), fair: ms(fair_ms), most }
    }

    #[test]
    fn the_fair_server_is_named_where_fair_tasks_ran_in_a_wait() {
        let mut heard = Heard::default();
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
        let mut heard = Heard::default();
        heard.overtaken.push(("redis FIFO", waits.to_vec()));
        let told = limited(ClientKind::Bitcount, &heard, &["redis FIFO"], limit_of("6.18.44"));
        assert!(
            told[0].contains("2 times for") && told[0].contains(", 1.04s from one to the next"),
            "{told:?}"
        );
    }

    #[test]
    fn who_limits_is_said_of_the_client_and_of_the_server() {
        let said_beside = |client: f64, server: f64, strangers: f64| {
            let (mut here, mut findings, mut doubts) = (Collected::default(), Vec::new(), Vec::new());
            here.add("dedicated", CLIENT, Some(client));
            here.add("dedicated", SERVER_SHARE, Some(server));
            here.add("dedicated", FOREIGN, Some(strangers));
            bottleneck(ClientKind::Bitcount, &here, &["dedicated"], &mut findings, &mut doubts);
            (findings.concat(), doubts.concat())
        };
        let said = |client: f64, server: f64| said_beside(client, server, 0.0);
        let (found, doubted) = said(0.3, 0.998);
        assert!(found.contains("not the bottleneck") && found.contains("; Redis limits: 99.8%"), "{found}");
        assert_eq!(doubted, "");
        assert!(said(0.3, 0.7).0.contains("neither does Redis limit: 70.0%"));
        let strangers = said_beside(0.3, 0.7, 0.28).0;
        assert!(
            strangers.contains("; Redis limits: 70.0%") && strangers.contains("strangers 28.0%"),
            "{strangers}"
        );
        assert!(said(0.93, 0.998).1.contains("there it, not Redis"), "a busy client is doubted");
    }

    #[test]
    fn what_the_client_does_not_count_is_told() {
        let mut here = Collected::default();
        here.add("dedicated", THROUGHPUT, Some(64_000.0));
        here.add("dedicated", MEAN, Some(250_000.0));
        // Half of the requests are fast and others wait for a turn of the batch job: the mean has that, a median had not.
        here.add("shared", THROUGHPUT, Some(32_000.0));
        here.add("shared", P50, Some(400_000.0));
        here.add("shared", MEAN, Some(990_000.0));
        let told = little((ClientKind::Closed, 32), &here, &["dedicated", "shared"]).unwrap();
        assert!(told.contains("dedicated 250.0us of 500.0us") && !told.contains("shared"), "{told}");
        assert_eq!(little((ClientKind::Closed, 32), &here, &["shared"]), None);
    }
}
