//! Rules of the kernel in the built program: isolated CPUs, throttling in the kernel, what a limit
//! does to a latency, and what `perf sched timehist` prints.

use super::{Folder, schedlab};

/// The value of a cell of a row in the JSON of `compare`.
fn cell(study: &serde_json::Value, row: usize, subject: &str, metric: &str) -> f64 {
    let subjects = study["rows"][row]["subjects"].as_array().expect("subjects");
    let subject = subjects.iter().find(|found| found["name"] == subject).expect("the subject");
    let cells = subject["cells"].as_array().expect("cells");
    let cell = cells.iter().find(|cell| cell["metric"] == metric).expect("the metric");
    cell["value"]["median"].as_f64().expect("a number")
}

fn compare(arguments: &[&str]) -> serde_json::Value {
    let ran = schedlab(&[&["compare"], arguments, &["--json"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    serde_json::from_str(&ran.stdout).expect("JSON")
}

/// "What if CPU 1 were isolated?", of a recording of two CPUs: what may run everywhere keeps off
/// it.
#[test]
fn isolated_cpus_are_a_variant_of_a_recording() {
    let recording = "recordings/compile.slt";
    let variant = ["--variant", "isolated: machine isolcpus=1", "--seeds", "1"];
    let study = compare(&[&[recording][..], &variant].concat());
    let [before, after] = [0, 1].map(|row| cell(&study, row, "cc1", "share"));
    assert!(before > 1.5 && after < 1.0, "{before} {after}");
    let refused = schedlab(&["compare", recording, "--variant", "machine isolcpus=0-63"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("isolcpus: CPU 2 does not exist"), "{refused:?}");
}

/// "What if CPU 1 had no ticks?": a task that is alone there is not held up by them any more, and
/// takes less CPU time for the same work, which is no loss.
#[test]
fn cpus_without_ticks_are_a_variant() {
    let folder = Folder::new("nohz-full");
    let text = "schedulers = [\"linux-6.12\"]\nduration = \"2s\"\n[machine]\ncpus = 2\nhz = 1000\n\
                [machine.cost]\ntick_ns = \"100us\"\n[[task]]\nname = \"alone\"\ncpus = \"1\"\n\
                program = [\"every 20ms\", \"run 10ms\"]\n";
    let path = folder.write("s.toml", text);
    let variant = ["--variant", "quiet: machine nohz_full=1"];
    let study = compare(&[&[path.as_str()][..], &variant].concat());
    let [before, after] = [0, 1].map(|row| cell(&study, row, "alone", "response p50"));
    assert!((before - 11.1e6).abs() < 0.1e6 && after == 10e6, "{before} {after}");
    let outcome = study["verdict"]["outcome"].as_str().expect("a verdict");
    assert!(!outcome.contains("worse"), "{outcome}");
    let refused = schedlab(&["compare", &path, "--scheduler", "linux-3.0", variant[0], variant[1]]);
    assert!(refused.stderr.contains("nohz_full"), "{refused:?}");
}

/// A partition is a variant of a group; it needs CPUs of its own.
#[test]
fn partitions_are_a_variant_of_a_group() {
    let folder = Folder::new("partition");
    let text = "schedulers = [\"linux-6.12\"]\nduration = \"1s\"\n[machine]\ncpus = 4\n\
                [[group]]\nname = \"/rt\"\ncpus = \"2-3\"\n\
                [[task]]\nname = \"inside\"\ncount = 2\ngroup = \"/rt\"\nprogram = \"hog\"\n\
                [[task]]\nname = \"outside\"\ncount = 4\nprogram = \"hog\"\n";
    let path = folder.write("s.toml", text);
    let study = compare(&[&path, "--variant", "alone: /rt partition=isolated"]);
    let share = |row, name| cell(&study, row, name, "share");
    assert!(share(0, "outside") > 2.2, "{}", share(0, "outside"));
    // The two inside share CPU 2: no load is balanced there.
    let alone = (share(1, "inside"), share(1, "outside"));
    assert!((alone.0 - 1.0).abs() < 0.02 && (alone.1 - 2.0).abs() < 0.02, "{alone:?}");
    // With partition=root it is.
    let study = compare(&[&path, "--variant", "alone: /rt partition=root"]);
    let share = |row, name| cell(&study, row, name, "share");
    let alone = (share(1, "inside"), share(1, "outside"));
    assert!((alone.0 - 2.0).abs() < 0.02 && (alone.1 - 2.0).abs() < 0.02, "{alone:?}");
    for (variant, part) in [
        ("/rt partition=off", "use member (the default), root"),
        ("machine nohz_full=0-3", "leaves no CPU for the kernel's own work"),
        ("machine isolcpus=0-3", "leaves no CPU"),
        ("machine isolcpus=9", "CPU 9 does not exist"),
    ] {
        let ran = schedlab(&["compare", &path, "--variant", variant]);
        assert!(ran.code == 2 && ran.stderr.contains(part), "{variant}: {ran:?}");
    }
}

/// The old latency has a name of its own in `[[expect]]`.
#[test]
fn a_latency_without_its_limit_has_a_name() {
    let folder = Folder::new("queue-latency");
    let text = "schedulers = [\"linux-6.1\"]\nduration = \"3s\"\n[machine]\ncpus = 1\nhz = 1000\n\
                [[task]]\nname = \"ctl\"\npolicy = \"fifo:80\"\n\
                program = [\"every 1ms\", \"run 50us\"]\n\
                [[task]]\nname = \"logger\"\npolicy = \"fifo:10\"\nprogram = \"hog\"\n\
                [[expect]]\nmetric = \"latency max\"\ntask = \"ctl\"\nis = \"45ms..52ms\"\n\
                [[expect]]\nmetric = \"queue-latency max\"\ntask = \"ctl\"\nis = \"< 10us\"\n";
    let path = folder.write("s.toml", text);
    let ran = schedlab(&["compare", &path]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

/// A text of `perf sched timehist` is shown; a replay of it is refused with what is missing.
#[test]
fn the_text_of_timehist_is_shown() {
    let file = "crates/trace/tests/field/perf-sched-timehist.txt";
    let ran = schedlab(&["show", file]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("hog") && ran.stdout.contains("pool-2"), "{ran:?}");
    let ran = schedlab(&["compare", file]);
    assert!(ran.code == 2 && ran.stderr.contains("waker"), "{ran:?}");
}
