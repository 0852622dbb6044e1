//! The scenarios among the public cases of `docs/sources/field-cases.md`: what people asked on
//! mailing lists and in issues, with the right answers. Each file of `tests/field` is one case.

use schedlab_model::Ns;
use schedlab_study::StudyError;
use schedlab_study::compare::{Options, compare_scenario};
use schedlab_study::result::Study;
use schedlab_study::scenario;

fn text(file: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/field/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn compare(file: &str, options: &Options) -> Result<Study, StudyError> {
    let scenario = scenario::parse(file, file, &text(file)).unwrap();
    compare_scenario(&scenario, options, &|_, _| ())
}

/// One run of each row, of this length.
fn short(duration: Ns) -> Options {
    Options { duration: Some(duration), repetitions: Some(1), ..Options::default() }
}

/// The median of a metric of a subject in the row of a scheduler and a variant.
#[track_caller]
fn value(study: &Study, row: (&str, &str), subject: &str, metric: &str) -> f64 {
    let (scheduler, variant) = row;
    let mut rows = study.rows.iter();
    let row = rows.find(|row| row.scheduler == scheduler && row.variant == variant).unwrap();
    let subject = row.subjects.iter().find(|found| found.name == subject).unwrap();
    let cell = subject.cells.iter().find(|cell| cell.metric.to_string() == metric).unwrap();
    cell.value.median
}

/// Checks that every expectation of the case holds.
#[track_caller]
fn all_hold(study: &Study) {
    assert!(!study.expectations.is_empty());
    for expectation in &study.expectations {
        assert!(expectation.holds, "{expectation:?}");
    }
}

/// dl-admission-8: eight tasks of 94 % on eight CPUs. 6.6 admits 752 of 760 %; 6.12.95 was measured
/// to do so, too, and by the rule it does not: the note says both; 7.2 has 100 % with servers of
/// 5 %.
#[test]
fn dl_admission_8() {
    let study = compare("dl-admission-8.toml", &short(Ns::from_ms(100))).unwrap();
    let refused = |note: &&String| {
        note.contains("one more: not admitted")
            && note.contains("768.00 %")
            && note.contains("EBUSY")
    };
    assert_eq!(study.notes.iter().filter(refused).count(), 3, "{:?}", study.notes);
    let said = |name: &str| {
        let row = study.rows.iter().find(|row| row.scheduler == name).unwrap();
        row.notes.iter().any(|note| note.contains("720.00 % are admitted (J. Lelli"))
    };
    assert_eq!(["linux-6.6", "linux-6.12", "linux-7.2"].map(said), [false, true, false]);
}

/// grub-misses: by the algorithm no task misses; the kernels 6.12 to 6.16 do, which the row says.
#[test]
fn grub_misses() {
    let study = compare("grub-misses.toml", &short(Ns::from_s(5))).unwrap();
    all_hold(&study);
    for row in &study.rows {
        let said = row.notes.iter().any(|note| note.contains("LKML 2025-04-28"));
        assert_eq!(said, row.scheduler == "linux-6.12:dl_reclaim=on", "{}", row.scheduler);
    }
}

/// isolcpus-first-core: 16 vCPU threads on 16 isolated CPUs have a sixteenth of one each.
#[test]
fn isolcpus_first_core() {
    let study = compare("isolcpus-first-core.toml", &short(Ns::from_s(1))).unwrap();
    for scheduler in ["linux-6.1", "linux-6.12"] {
        // With `start`, the parent of the others, 17 share CPU 3.
        let fair = value(&study, (scheduler, "as it is"), "vcpu", "share");
        assert!((fair - 16.0 / 17.0).abs() < 0.02, "{scheduler}: {fair}");
        let fifo = value(&study, (scheduler, "fifo"), "vcpu", "share");
        assert!(fifo > 15.0, "{scheduler}: {fifo}");
    }
}

/// kubepods-weight-64: weight 100 beside 2500 leaves the system 3.85 % of 64 CPUs, 2.5 CPUs.
#[test]
fn kubepods_weight_64() {
    let study = compare("kubepods-weight-64.toml", &short(Ns::from_ms(400)));
    let study = study.unwrap();
    let row = &study.rows[0];
    let share = |name: &str| {
        let subject = row.subjects.iter().find(|subject| subject.name == name).unwrap();
        subject.cells.iter().find(|cell| cell.metric.to_string() == "share").unwrap().value.median
    };
    let names: Vec<&str> = row.subjects.iter().map(|subject| subject.name.as_str()).collect();
    let system = names.iter().find(|name| name.starts_with("sys")).expect("the system's tasks");
    assert!((1.5..3.5).contains(&share(system)), "{names:?}: {}", share(system));
}

/// lag-cyclictest-80: 808 tasks on 80 CPUs run through (how fast is measured elsewhere).
#[test]
fn lag_cyclictest_80() {
    let text = text("lag-cyclictest-80.toml").replace("warmup = \"100ms\"", "");
    let scenario = scenario::parse("lag", "lag.toml", &text).unwrap();
    let study = compare_scenario(&scenario, &short(Ns::from_ms(4)), &|_, _| ()).unwrap();
    assert_eq!(study.rows.len(), 2);
}

/// rt-throttle-hits-high-prio: RT throttling takes the whole class off the CPU for 50 ms of each
/// second. `latency` has it in it, as cyclictest has; `response` had it before.
#[test]
fn rt_throttle_hits_high_prio() {
    let study = compare("rt-throttle-hits-high-prio.toml", &short(Ns::from_s(6))).unwrap();
    all_hold(&study);
    let worst = value(&study, ("linux-6.1", "as it is"), "ctl", "latency max");
    assert!((45e6..52e6).contains(&worst), "{worst}");
    let worst = value(&study, ("linux-6.1", "logger off"), "ctl", "latency max");
    assert!(worst < 1e5, "{worst}");
}

/// throttle-holding-lock: a throttled reader holds a lock of the kernel; before 6.18 the writer
/// waits for the next period.
#[test]
fn throttle_holding_lock() {
    let study = compare("throttle-holding-lock.toml", &Options::default()).unwrap();
    all_hold(&study);
    for (scheduler, held) in
        [("linux-6.1", true), ("linux-6.12", true), ("linux-6.18", false), ("linux-7.2", false)]
    {
        let p99 = value(&study, (scheduler, "as it is"), "writer", "response p99");
        assert_eq!(p99 > 50e6, held, "{scheduler}: {p99}");
    }
}
