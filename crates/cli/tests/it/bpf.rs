//! Schedulers in BPF: `bpf inspect`, and `compare` and `ci run` with an object.

use super::{Folder, Ran, schedlab};

const KERNEL: &str = "bpf/sim/kernel.bpf.o";
const FAIR: &str = "bpf:bpf/sim/fair.bpf.o";

fn compare(scheduler: &str, more: &[&str]) -> Ran {
    let words = ["compare", "two-hogs", "--for", "2s", "--kernel-btf", KERNEL, "--scheduler"];
    schedlab(&[&words[..], &[scheduler], more].concat())
}

#[test]
fn an_object_is_inspected() {
    let ran = schedlab(&["bpf", "inspect", "bpf/sim/fair.bpf.o", "--kernel-btf", KERNEL]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for line in [
        "fair: struct sched_ext_ops, ",
        "ops.timeout_ms = 0x1388",
        "counts                 per-CPU array: key 4, value 8, at most 2",
        "slice_ns               u64 = 20000000  (.rodata)",
        "offset                 s32[4]  (.rodata)",
        "scx_bpf_dispatch___old",
        "It can run: nothing that it reaches is missing.",
    ] {
        assert!(ran.stdout.contains(line), "{line}: {}", ran.stdout);
    }
    let ran = schedlab(&["bpf", "inspect", "bpf/sim/missing.bpf.o", "--kernel-btf", KERNEL]);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(ran.stdout.contains("bpf_obj_new_impl (ops.dispatch)"), "{}", ran.stdout);
    assert!(ran.stdout.contains("It cannot run: ops.dispatch() reaches"), "{}", ran.stdout);
    let ran = schedlab(&["bpf", "inspect", "Cargo.toml"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("Cargo.toml: it is no BPF object"), "{}", ran.stderr);
}

#[test]
fn an_object_is_compared_with_a_kernels_own_scheduler() {
    let fair = "bpf:bpf/sim/fair.bpf.o?slice_ns=5ms";
    let ran = compare(fair, &["--scheduler", "linux-7.2", "--json", "--jobs", "2"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let study: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let text = study.to_string();
    assert!(text.contains(fair) && text.contains("linux-7.2"), "{text}");
    assert!(text.contains("run by a model of sched_ext with the rules of Linux 6.13"), "{text}");
    let again = compare(fair, &["--scheduler", "linux-7.2", "--json", "--jobs", "1"]);
    assert_eq!(ran.stdout, again.stdout, "the same bytes on one thread and on two");
}

#[test]
fn an_object_in_a_scenario_and_in_a_corpus() {
    let folder = Folder::new("bpf-corpus");
    let scenario = "schedulers = [\"bpf:bpf/sim/fair.bpf.o\"]\nduration = \"1s\"\n\
                    [machine]\ncpus = 2\n[[task]]\nname = \"hog\"\ncount = 3\nprogram = \"hog\"\n";
    let path = folder.0.join("mine.toml");
    std::fs::write(&path, scenario).unwrap();
    let path = path.to_str().unwrap();
    let ran = schedlab(&["compare", path, "--kernel-btf", KERNEL]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let ran = schedlab(&["compare", path]);
    assert!(ran.code == 2 && ran.stderr.contains("--kernel-btf FILE names"), "{}", ran.stderr);
    // Three hogs have two CPUs, whichever scheduler divides them.
    for (gate, code) in [("hog share < 100%", 0), ("hog share < 300%", 1)] {
        let pair = ["--scheduler", "bpf:bpf/sim/central.bpf.o", "--against", FAIR];
        let corpus = ["ci", "run", folder.0.to_str().unwrap(), "--kernel-btf", KERNEL];
        let ran = schedlab(&[&corpus[..], &pair, &["--fail-if", gate]].concat());
        assert_eq!(ran.code, code, "{gate}: {} {}", ran.stdout, ran.stderr);
    }
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    for (scheduler, said) in [
        ("bpf:nowhere.o", "bpf:nowhere.o: No such file"),
        ("bpf:", "write the file, as in bpf:./mine.bpf.o"),
        ("bpf:Cargo.toml", "bpf:Cargo.toml: it is no BPF object"),
        ("bpf:bpf/sim/fair.bpf.o?slice=1", "it has no option `slice`"),
        ("bpf:bpf/sim/fair.bpf.o?fifo=7", "must be from 0 to"),
        ("bpf:bpf/sim/faults.bpf.o?fault=1", "faults.bpf.c:"),
        ("bpf:bpf/sim/missing.bpf.o", "reaches bpf_obj_new_impl"),
        ("linux-7.2", "--kernel-btf: no scheduler in BPF is compared"),
    ] {
        let ran = compare(scheduler, &[]);
        assert!(ran.code == 2 && ran.stderr.contains(said), "{scheduler}: {}", ran.stderr);
    }
    let other = ["compare", "two-hogs", "--scheduler", "bpf:bpf/sim/fair.bpf.o", "--kernel-btf"];
    let ran = schedlab(&[&other[..], &["bpf/sched.bpf.o"]].concat());
    assert!(ran.code == 2 && ran.stderr.contains("built without sched_ext"), "{}", ran.stderr);
    let ran = schedlab(&["show", "two-hogs", "--scheduler", "bpf:bpf/sim/fair.bpf.o", "--blame"]);
    assert!(ran.code == 2 && ran.stderr.contains("runs no schedulers in BPF"), "{}", ran.stderr);
}

/// A recording has real-time threads of the kernel (migration/0), which run above the object.
#[test]
fn an_object_is_compared_over_a_recording() {
    let ran = schedlab(&[
        "compare",
        "recordings/redis-other-other-closed8.slt",
        "--scheduler",
        "bpf:bpf/sim/fair.bpf.o",
        "--kernel-btf",
        "bpf/sim/kernel.bpf.o",
        "--seeds",
        "2",
        "--json",
    ]);
    assert!([0, 3].contains(&ran.code), "{ran:?}");
    let study: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let row = study["rows"].as_array().expect("rows").last().expect("a row");
    assert_eq!(row["scheduler"], "bpf:bpf/sim/fair.bpf.o");
    let share = |name: &str| {
        let subjects = row["subjects"].as_array().expect("subjects");
        let subject = subjects.iter().find(|one| one["name"] == name).expect("the subject");
        let cells = subject["cells"].as_array().expect("cells");
        let cell = cells.iter().find(|cell| cell["metric"] == "share").expect("a share");
        cell["value"]["median"].as_f64().expect("a number")
    };
    assert!(share("redis-server") > 0.1 && share("sysbench") > 0.1, "{row}");
}
