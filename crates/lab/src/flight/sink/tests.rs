use super::*;
use schedlab_model::{CpuId, PrevState, TaskId, Waker};
use schedlab_trace::{Recording, TaskInfo};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};

const REDIS: TaskId = TaskId(0);
const BATCH: TaskId = TaskId(1);

fn config(rules: &str) -> FlightConfig {
    toml::from_str(rules).unwrap()
}

/// What a test looks at.
struct Seen {
    lines: Mutex<Vec<FlightLine>>,
    signals: FlightSignals,
}

impl Seen {
    fn new() -> Seen {
        Seen { lines: Mutex::new(Vec::new()), signals: FlightSignals::default() }
    }

    fn events(&self) -> Vec<What> {
        self.lines.lock().unwrap().iter().map(|line| line.event).collect()
    }
}

/// Runs `play` on a sink that knows redis and batch; returns what is to be written.
fn with_sink(
    (config, file): (FlightConfig, &Path),
    seen: &Seen,
    play: impl FnOnce(&mut FlightSink<'_>, &Receiver<Job>),
) -> Vec<Job> {
    let (jobs, to_write) = sync_channel(8);
    let log = |line: FlightLine| seen.lines.lock().unwrap().push(line);
    let outside = Outside { file, jobs, log: &log, signals: &seen.signals, disk: &|| 0 };
    let (meters, _registry) = Meters::new(&config);
    let mut sink = FlightSink::new(config, Some(meters), Way::Here(String::new()), outside);
    for (id, name) in [(REDIS, "redis-server"), (BATCH, "batch")] {
        let info = TaskInfo::unknown(id.0 + 10, id.0 + 10, name);
        sink.stops.task(id, &info, false);
        sink.flight.task(id, info.clone());
        sink.live.meet(id, info);
    }
    play(&mut sink, &to_write);
    sink.end();
    drop(sink);
    to_write.into_iter().collect()
}

/// Batch runs; redis is woken at `at` and runs after `wait`, for 1 ms.
fn waits(sink: &mut FlightSink<'_>, at: Ns, wait: Ns) {
    let switch = |at, prev, prev_state, next| {
        let kind = EventKind::Switch { prev: Some(prev), prev_state, next: Some(next) };
        SchedEvent { at, cpu: CpuId(0), kind }
    };
    let ran = at.saturating_add(wait);
    let kind = EventKind::Wake { task: REDIS, waker: Waker::HardIrq };
    sink.event(&SchedEvent { at, cpu: CpuId(0), kind });
    sink.event(&switch(ran, BATCH, PrevState::RunnableInKernel, REDIS));
    let ends = ran.saturating_add(Ns::from_ms(1));
    sink.event(&switch(ends, REDIS, PrevState::Sleeping, BATCH));
    sink.flush().unwrap();
}

#[test]
fn an_incident_becomes_a_recording_and_at_most_holds() {
    let rules = "after = '100ms'\n[[rule]]\nname = 'slow'\nwhen = 'redis-server wait > 10ms'\n\
                 at-most = '1/10s'";
    let seen = Seen::new();
    let jobs = with_sink((config(rules), Path::new("x")), &seen, |sink, _| {
        for ms in (0..30_000).step_by(50) {
            // Every second one of 20 ms; the others take 1 ms.
            let wait = if ms % 1000 == 500 { 20 } else { 1 };
            waits(sink, Ns::from_ms(ms), Ns::from_ms(wait));
        }
    });
    // At 0.5, 10.5 and 20.5 s.
    assert_eq!(jobs.len(), 3);
    assert!(jobs.iter().all(|job| job.rule == "slow" && job.max_total == 1 << 30));
    let incidents = seen.events().iter().filter(|what| **what == What::Incident).count();
    let suppressed = seen.events().iter().filter(|what| **what == What::Suppressed).count();
    // A line for each time that at-most is reached, not for each incident.
    assert_eq!((incidents, suppressed), (3, 3));
    let path = schedlab_testing::temp_dir()
        .join(format!("schedlab-flight-sink-{}.slt", std::process::id()));
    let second = jobs.into_iter().nth(1).unwrap();
    let recorded = second.snapshot.write(&path, true).unwrap();
    let recording = Recording::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(recorded.kept.unwrap().duration.0 / 1_000_000_000, 10);
    let incident = recording.header.incident().unwrap();
    assert_eq!((&*incident.task, incident.length_ns), ("redis-server", Some(20_000_000)));
    // The time after it is in the recording, too.
    let end = incident.from_ns + 20_000_000;
    assert!(recording.duration.0 >= end + 80_000_000, "{} {end}", recording.duration);
    // And so is all of `ring` before it, of which the time after it takes nothing.
    assert!(end > 9_900_000_000, "{end}");
    assert_eq!(incident.before_ns, 0);
}

#[test]
fn a_percentile_counts_from_enough_waits_on_and_points_to_the_longest() {
    let rules = "[[rule]]\nname = 'p99'\nwhen = 'redis-server wait p90 > 5ms over 10s'\n";
    let play = |waits_of: fn(u64) -> u64, count: u64| {
        let seen = Seen::new();
        let jobs = with_sink((config(rules), Path::new("x")), &seen, |sink, _| {
            for n in 0..count {
                waits(sink, Ns::from_ms(n * 100), Ns::from_ms(waits_of(n)));
            }
            waits(sink, Ns::from_s(30), Ns::from_ms(1));
        });
        (jobs.len(), seen.lines.into_inner().unwrap())
    };
    // A fifth of the waits is long.
    let (jobs, lines) = play(|n| if n % 5 == 4 { 6 + n / 5 } else { 1 }, 20);
    assert_eq!(jobs, 1, "{lines:?}");
    let incident = lines[0].incident.clone().unwrap();
    assert_eq!(incident.condition, "redis-server wait p90 > 5.00ms over 10.0s");
    assert!(incident.length_ns.unwrap() >= 7_000_000, "{incident:?}");
    // A twentieth is.
    assert_eq!(play(|n| if n % 20 == 19 { 20 } else { 1 }, 40).0, 0);
    // Nine waits have no 90th percentile but their longest.
    assert_eq!(play(|_| 20, 8).0, 0);
}

#[test]
fn a_file_that_is_read_again_replaces_the_rules_or_leaves_them() {
    let file =
        schedlab_testing::temp_dir().join(format!("schedlab-flight-{}.toml", std::process::id()));
    let rule = |name: &str, ms: u32| {
        format!(
            "[[rule]]\nname = '{name}'\nwhen = 'redis-server wait > {ms}ms'\nat-most = '9/1s'\n"
        )
    };
    let seen = Seen::new();
    let jobs = with_sink((config(&rule("old", 10)), &file), &seen, |sink, _| {
        let again = |sink: &mut FlightSink<'_>, text: &str| {
            std::fs::write(&file, text).unwrap();
            seen.signals.reload.store(true, Ordering::Relaxed);
            sink.flush().unwrap();
        };
        waits(sink, Ns::from_ms(0), Ns::from_ms(20));
        again(sink, "[[rule]]\nname = 'x'\nwhen = 'nonsense'");
        waits(sink, Ns::from_s(2), Ns::from_ms(20));
        again(sink, &format!("ring = '3s'\n{}", rule("new", 30)));
        // What was caught before is not lost; from now on the new rule holds.
        waits(sink, Ns::from_s(4), Ns::from_ms(20));
        waits(sink, Ns::from_s(6), Ns::from_ms(40));
    });
    std::fs::remove_file(&file).unwrap();
    let rules: Vec<&str> = jobs.iter().map(|job| job.rule.as_str()).collect();
    assert_eq!(rules, ["old", "old", "new"]);
    let events = seen.events();
    assert!(events.contains(&What::NotReloaded) && events.contains(&What::Reloaded));
    let lines = seen.lines.into_inner().unwrap();
    let reloaded = lines.iter().find(|line| line.event == What::Reloaded).unwrap();
    assert!(reloaded.message.contains("a restart is needed for ring"), "{}", reloaded.message);
    let wrong = lines.iter().find(|line| line.event == What::NotReloaded).unwrap();
    assert!(wrong.message.contains("line 3"), "{}", wrong.message);
}

#[test]
fn what_is_under_way_at_the_end_is_written() {
    let rules = "[[rule]]\nname = 'slow'\nwhen = 'redis-server wait > 10ms'\nrun = ['true']";
    let seen = Seen::new();
    let jobs = with_sink((config(rules), Path::new("x")), &seen, |sink, to_write| {
        waits(sink, Ns::from_ms(10), Ns::from_ms(20));
        assert!(to_write.try_recv().is_err(), "the time after it is not over");
    });
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].run.as_deref(), Some(&["true".to_owned()][..]));
}
