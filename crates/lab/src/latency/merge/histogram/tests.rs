use super::super::{Difference, ResultFile, differences, merge, parse};
use super::*;
use std::path::{Path, PathBuf};

const TIMERLAT: &str = include_str!("../../../../../trace/tests/field/rtla-timerlat-hist.txt");
const THREADS: &str = include_str!("../../../../../trace/tests/field/cyclictest-hist.txt");
const USER: &str = include_str!("../../../../../../fuzz/corpus/histogram/rtla-timerlat-user.txt");
const OSNOISE: &str = include_str!("../../../../../../fuzz/corpus/histogram/rtla-osnoise.txt");
const STATED: &str = include_str!("../../../../../../fuzz/corpus/histogram/cyclictest-threads.txt");

fn plain(text: &str) -> Matrix {
    parse(text, "x", None).unwrap()
}

fn samples<'a>(matrix: &'a Matrix, system: &str) -> &'a Samples {
    &matrix.cells.iter().find(|cell| cell.system == system).unwrap().rounds[0].samples
}

/// `rtla timerlat hist`: one row for the threads, one for the interrupt (field3,
/// rtla-timerlat-hist: before, a name; now its values).
#[test]
fn timerlat_gives_a_row_for_the_threads_and_one_for_the_interrupt() {
    let matrix = plain(TIMERLAT);
    let names: Vec<&str> = matrix.systems.iter().map(|system| system.name.as_str()).collect();
    assert_eq!(names, ["x", "x irq"]);
    let (threads, irq) = (samples(&matrix, "x"), samples(&matrix, "x irq"));
    assert_eq!((threads.count(), irq.count()), (12_000, 12_000));
    // rtla cuts to whole microseconds: half of one is added. Both CPUs together.
    assert_eq!((threads.max(), irq.max()), (141_500, 9_500));
    let near = |ns: u64, us: f64| (ns as f64 / 1000.0 - us - 0.5).abs() < 0.01;
    assert!(near(threads.quantile(0.5), 2.0) && near(threads.quantile(0.99), 5.0));
    assert!(near(threads.quantile(0.999), 17.0), "{}", threads.quantile(0.999));
    assert_eq!(matrix.cells[0].rounds[0].elapsed, Ns::from_s(6));
    assert_eq!(matrix.cells[0].policy, Policy::Fifo(95));
    let doubts = matrix.doubts().join("\n");
    assert!(doubts.contains("does not state the threads' policy: fifo:95"), "{doubts}");
    assert!(doubts.contains("x irq: from the timer's expiry to its interrupt handler"), "{doubts}");
    // A policy that is given needs no assumption.
    let given = parse(TIMERLAT, "x", Some(Policy::Rr(7))).unwrap();
    assert_eq!(given.cells[0].policy, Policy::Rr(7));
    assert!(!given.doubts().join("\n").contains("does not state"));
}

/// Each CPU by itself has the values that rtla prints for it.
#[test]
fn each_column_of_timerlat_has_its_own_values() {
    let mut table = Table::new("Index   IRQ-000   Thr-000   IRQ-001   Thr-001").unwrap();
    table.fill(TIMERLAT.lines().skip(4)).unwrap();
    let of = |column: usize| {
        let mut samples = Samples::default();
        table.columns[column].add_to(&mut samples, 1000, 1).unwrap();
        let us = [0.5, 0.99, 0.999].map(|q| samples.quantile(q) / 1000);
        (samples.count(), us, table.columns[column].max.unwrap())
    };
    assert_eq!(of(1), (6000, [3, 5, 17], 58));
    assert_eq!(of(3), (6000, [2, 5, 9], 141));
    assert_eq!((of(0).2, of(2).2), (9, 9));
}

#[test]
fn what_lies_above_the_histogram_is_counted_and_said() {
    let matrix = plain(USER);
    let names: Vec<&str> = matrix.systems.iter().map(|system| system.name.as_str()).collect();
    assert_eq!(names, ["x", "x irq", "x user"]);
    assert_eq!(samples(&matrix, "x user").max(), 304_500);
    assert_eq!(samples(&matrix, "x").count(), 2000);
    let doubts = matrix.doubts().join("\n");
    assert!(doubts.contains("x user: 1 of 2000 samples lie above its histogram"), "{doubts}");
    let cut = USER.replace("max:          1       300       304\n", "");
    assert!(parse(&cut, "x", None).unwrap_err().contains("no maximum"));
}

/// `cyclictest -q -h 8`: read with a policy, which it does not state (field3, cyclictest-hist).
#[test]
fn a_histogram_of_cyclictest_is_read() {
    let error = parse(THREADS, "x", None).unwrap_err();
    assert!(error.contains("--policy fifo:PRIORITY"), "{error}");
    let matrix = parse(THREADS, "x", Some(Policy::Fifo(80))).unwrap();
    let all = samples(&matrix, "x");
    assert_eq!((all.count(), all.max(), all.above(9_000)), (20_000, 112_500, 2));
    assert_eq!([0.5, 0.99].map(|q| all.quantile(q) / 1000), [4, 5]);
    let doubts = matrix.doubts().join("\n");
    assert!(doubts.contains("2 of 20000 samples lie above"), "{doubts}");
    assert!(doubts.contains("microseconds (cyclictest without -N)"), "{doubts}");
}

#[test]
fn the_policy_is_that_of_the_threads_lines_and_a_sum_over_threads_is_no_thread() {
    let matrix = parse(STATED, "x", Some(Policy::Other)).unwrap();
    assert_eq!(matrix.cells[0].policy, Policy::Fifo(80));
    assert_eq!(samples(&matrix, "x").count(), 5000 + 3333);
    assert_eq!(samples(&matrix, "x").max(), 12_500);
}

fn with_policy(name: &str, path: &Path) -> ResultFile {
    ResultFile {
        name: Some(name.to_owned()),
        path: path.to_owned(),
        policy: Some(Policy::Fifo(80)),
    }
}

/// Threads are compared with threads; the interrupt's latency and osnoise with nothing else.
#[test]
fn only_equal_quantities_are_compared() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = |file: &str| -> PathBuf { root.join(file) };
    let matrix = merge(&[
        with_policy("cyclictest", &path("crates/trace/tests/field/cyclictest-hist.txt")),
        with_policy("timerlat", &path("crates/trace/tests/field/rtla-timerlat-hist.txt")),
        with_policy("noise", &path("fuzz/corpus/histogram/rtla-osnoise.txt")),
    ])
    .unwrap();
    let found: Vec<Difference> = differences(&matrix);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().all(|one| one.system == "timerlat"));
    // Two files of one name are two rounds, and what each leaves open is said once.
    let file = path("crates/trace/tests/field/rtla-timerlat-hist.txt");
    let twice = merge(&[with_policy("a", &file), with_policy("a", &file)]).unwrap();
    assert_eq!((twice.systems.len(), twice.cells[0].rounds.len()), (2, 2));
}

#[test]
fn an_osnoise_histogram_is_called_no_wakeup_latency() {
    let matrix = plain(OSNOISE);
    assert_eq!((matrix.systems.len(), matrix.cells[0].policy), (1, Policy::Other));
    assert_eq!((samples(&matrix, "x").count(), samples(&matrix, "x").max()), (1035, 40_500));
    let doubts = matrix.doubts().join("\n");
    assert!(doubts.contains("no wakeup latency"), "{doubts}");
}

/// Buckets wider than a unit (`-b`) and nanoseconds (`-n`).
#[test]
fn wide_buckets_and_nanoseconds_are_read() {
    let text = "# RTLA timerlat histogram\n# Time unit is nanoseconds (ns)\n\
                # Duration:   1 02:03:04\nIndex   Thr-000\n0     7\n100   2\n300   1\nover:  0\n\
                count: 10\nmax: 340\n";
    let matrix = plain(text);
    let all = samples(&matrix, "x");
    assert_eq!((all.min(), all.max(), all.count()), (50, 340, 10));
    assert_eq!(matrix.cells[0].rounds[0].elapsed, Ns::from_s(((24 + 2) * 60 + 3) * 60 + 4));
    assert!(matrix.doubts().join("\n").contains("buckets are 100ns wide"));
}

#[test]
fn a_text_that_is_cut_or_damaged_is_refused_with_the_place() {
    let head = "# RTLA timerlat histogram\n# Time unit is microseconds (us)\n";
    let cut = |text: &str, at: &str| text[..text.find(at).unwrap()].to_owned();
    for (text, expected) in [
        (cut(TIMERLAT, "over:"), "whole text"),
        (head.to_owned(), "no names"),
        ("# RTLA timerlat histogram\nIndex Thr-000\nover: 0\n".to_owned(), "time unit"),
        (format!("{head}Index Foo-000\nover: 0\n"), "'Foo-000'"),
        (format!("{head}Index Thr-000\n1 2 3\nover: 0\n"), "2 values for 1 columns"),
        (format!("{head}Index Thr-000\n1 x\nover: 0\n"), "'x' is no number"),
        (format!("{head}Index Thr-000\nover: 0\n"), "no samples"),
        (format!("{TIMERLAT}{TIMERLAT}"), "2 histograms"),
        (cut(THREADS, "# Min"), "# Min Latencies:"),
        (cut(THREADS, "# Histogram Overflows"), "# Histogram Overflows:"),
        (THREADS.replace("000003 004210\t003980", "000003 004210"), "no row of 2 threads"),
        (THREADS.replace("00061 00112", "00061 oops"), "# Max Latencies:"),
    ] {
        let error = parse(&text, "x", Some(Policy::Other)).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}
