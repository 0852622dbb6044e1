//! The presets against the shipped oracle files: what was reached must stay reached.

use super::*;
use std::path::Path;

fn records(file: &str) -> Vec<Record> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../oracles/linux").join(file);
    let records = data::read(&path).expect("a shipped file");
    assert_eq!(records.len(), 45);
    records
}

/// Scenarios with the right shares, and with the right mean waits too, of 45; one run each.
fn inside(file: &str) -> (usize, usize) {
    let options = OracleArgs::default();
    let judgements: Vec<Judgement> = records(file)
        .iter()
        .map(|record| {
            run_one(record, &Preset::for_record(record, None).expect("a preset"), &options)
                .expect("a run")
        })
        .collect();
    let shares = judgements.iter().filter(|judgement| judgement.shares_inside()).count();
    (shares, judgements.iter().filter(|judgement| judgement.inside()).count())
}

/// Equal choices among all, per ten thousand.
fn equal(file: &str) -> u64 {
    let mut sum = Replayed::default();
    for record in records(file) {
        sum.add(
            replay_one(&record, &Preset::for_record(&record, None).expect("a preset"))
                .expect("a replay"),
        );
    }
    (sum.switches - sum.different.len() as u64) * 10_000 / sum.switches
}

#[test]
fn runs_stay_as_near_to_the_kernels_as_they_were() {
    // 43 of 45 is where the kernel itself is when it starts at another phase of the tick (95 %
    // are 42.75).
    for file in ["6.1.192", "6.1.192.knobs8cpu", "6.12.95", "6.12.95.knobs8cpu"] {
        let (shares, both) = inside(&format!("{file}.jsonl.zst"));
        assert!(
            shares >= 43 && both >= 41,
            "{file}: shares {shares}, shares and waits {both} of 45"
        );
    }
}

/// 85 % (39) is the aim; what is missing are ties, and kernel threads that the model does not have.
#[test]
fn runs_of_7_2_stay_as_near_as_they_were() {
    let (shares, both) = inside("7.2.13.jsonl.zst");
    assert!(shares >= 45 && both >= 40, "shares {shares}, shares and waits {both} of 45");
}

/// Slices that end by a timer make ties of less than a microsecond all the time (ten equal hogs:
/// one choice in three is equal); what counts is how few differ by more.
#[test]
fn replayed_choices_of_7_2_stay_as_equal_as_they_were() {
    let mut sum = Replayed::default();
    for record in records("7.2.13.jsonl.zst") {
        sum.add(
            replay_one(&record, &Preset::for_record(&record, None).expect("a preset"))
                .expect("a replay"),
        );
    }
    let far = sum.beyond(20_000) as f64 / sum.switches as f64;
    assert!(
        sum.equal() > 0.895 && far < 0.016,
        "{} equal, {far} differ by more than 20 us",
        sum.equal()
    );
}

#[test]
fn replayed_choices_stay_as_equal_as_they_were() {
    for (file, least) in [
        ("6.1.192", 9940),
        ("6.1.192.knobs8cpu", 9950),
        ("6.12.95", 9840),
        ("6.12.95.knobs8cpu", 9900),
    ] {
        let part = equal(&format!("{file}.jsonl.zst"));
        assert!(part >= least, "{file}: {part} of 10000 choices are equal, {least} were");
    }
}

/// The figures come from the rules: with one of them off, the replay is far worse. Both kinds of
/// error count: switches to another task, and reschedules that would have switched where the kernel
/// did not.
#[test]
fn a_wrong_rule_is_seen() {
    let records = records("6.12.95.jsonl.zst");
    let errors = |scheduler: &str| {
        let mut sum = Replayed::default();
        for record in &records {
            sum.add(
                replay_one(record, &Preset::for_record(record, Some(scheduler)).expect("a preset"))
                    .expect("a replay"),
            );
        }
        (sum.different.len() + sum.uncalled.len()) as f64 / sum.switches as f64
    };
    let right = errors("linux-6.12");
    for wrong in ["features.RUN_TO_PARITY=off", "features.DELAY_DEQUEUE=off", "base_slice_ns=3ms"] {
        let errors = errors(&format!("linux-6.12:{wrong}"));
        assert!(errors > right + 0.02, "{wrong}: {errors} against {right}");
    }
}

#[test]
fn damaged_files_are_refused_by_name() {
    let dir = schedlab_testing::temp_dir().join(format!("schedlab-oracle-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary directory");
    for (name, bytes, says) in [
        ("empty.jsonl", &b""[..], "holds no scenario"),
        ("text.jsonl", b"hello\n", "line 1"),
        ("binary.jsonl", b"\xff\xfe\x00", "not text"),
        ("cut.jsonl.zst", b"\x28\xb5\x2f\xfd\x00", "zstd"),
    ] {
        let path = dir.join(name);
        std::fs::write(&path, bytes).expect("a temporary file");
        let error = format!("{:#}", data::read(&path).expect_err(name));
        assert!(error.contains(name) && error.contains(says), "{error}");
    }
    let missing = format!("{:#}", data::read(&dir.join("nowhere")).expect_err("missing"));
    assert!(missing.contains("cannot be read"), "{missing}");
    std::fs::remove_dir_all(&dir).expect("removed");
}
