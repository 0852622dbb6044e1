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
    let seeds = |jobs| {
        let ran = compare(fair, &["--scheduler", "linux-7.2", "--seeds", "4", "--jobs", jobs]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout
    };
    assert_eq!(seeds("1"), seeds("2"));
    assert_eq!(seeds("2"), seeds("2"));
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
    assert!(ran.code == 2 && ran.stderr.contains("--kernel-btf FILE names"), "{}", ran.stderr);
    // It has a user half of its own, which schedlab does not run.
    let ran = schedlab(&["confirm", "--scheduler", FAIR, "--", "true"]);
    assert!(ran.code == 2 && ran.stderr.contains("sched-ext-gate.sh"), "{}", ran.stderr);
}

#[test]
fn show_simulates_a_scenario_under_an_object() {
    let words = ["show", "two-hogs", "--scheduler", FAIR, "--kernel-btf", KERNEL, "--slices"];
    let ran = schedlab(&words);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    // Slices of 20 ms end at ticks of 4 ms.
    assert!(ran.stdout.contains("24.0ms"), "{}", ran.stdout);
    let ran = schedlab(&["show", "two-hogs", "--kernel-btf", KERNEL, "--slices"]);
    assert!(ran.code == 2 && ran.stderr.contains("no scheduler in BPF"), "{}", ran.stderr);
}

#[test]
fn tune_searches_options_of_an_object_and_objects() {
    let tune = |space: &[&str], scheduler: &[&str]| {
        let words = ["tune", "two-hogs", "--goal", "yes run p50 < 6ms", "--for", "2s"];
        let more = ["--seeds", "1", "--kernel-btf", KERNEL, "--json"];
        let space: Vec<&str> = space.iter().flat_map(|one| ["--space", one]).collect();
        schedlab(&[&words[..], &more, scheduler, &space].concat())
    };
    let ran = tune(&["slice_ns=2ms,20ms"], &["--scheduler", FAIR]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("scheduler slice_ns=2ms"), "{}", ran.stdout);
    let both = format!("scheduler={FAIR}?slice_ns=1ms,fifo=true,linux-7.2");
    let ran = tune(&[&both], &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("?slice_ns=1ms,fifo=true\""), "{}", ran.stdout);
    for (space, said) in
        [("slice=1ms,2ms", "it has no option `slice`"), ("slice_ns", "says no bounds")]
    {
        let ran = tune(&[space], &["--scheduler", FAIR]);
        assert!(ran.code == 2 && ran.stderr.contains(said), "{space}: {}", ran.stderr);
    }
}

#[test]
fn a_profile_sets_up_what_the_user_half_would() {
    let folder = Folder::new("bpf-profile");
    let file = |name: &str, text: &str| {
        let path = folder.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = "scheduler = \"fair\"\n[options]\nslice_ns = \"4ms\"\nfifo = \"smt\"\n\
                \"ops.flags\" = \"SCX_OPS_ENQ_EXITING | SCX_OPS_OF_LATER_KERNELS\"\n";
    let good = file("good.toml", good);
    let ran = compare(&format!("{FAIR}?profile={good}"), &["--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let plain = compare(&format!("{FAIR}?slice_ns=4ms"), &["--json"]);
    let hash = |ran: &Ran| {
        let study: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        study["rows"]
            .as_array()
            .expect("rows")
            .iter()
            .map(|row| row["event_hashes"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(hash(&ran), hash(&plain));
    let said = "not-played = \"it moves load between caches\"\n";
    let half = file("half.toml", &format!("scheduler = \"fair\"\n{said}"));
    let ran = compare(&format!("{FAIR}?profile={half}"), &["--json"]);
    let said = "its user half is not played: it moves load between caches";
    assert!(ran.code == 0 && ran.stdout.contains(said), "{} {}", ran.stdout, ran.stderr);
    let ran = compare(&format!("{FAIR}?profile={good}"), &["--json"]);
    // What is chosen goes before the profile.
    let chosen = compare(&format!("{FAIR}?profile={good},slice_ns=20ms"), &["--json"]);
    assert_eq!(chosen.code, 0, "{}", chosen.stderr);
    assert_ne!(ran.stdout, chosen.stdout);
    for (name, text, said) in [
        ("other.toml", "scheduler = \"simple\"\n", "is for the scheduler `simple`"),
        ("bad.toml", "scheduler = \"fair\"\nslice = 1\n", "line 2: unknown field `slice`"),
        ("none.toml", "scheduler = \"fair\"\n[options]\nslice = 1\n", "no option `slice`"),
        ("word.toml", "scheduler = \"fair\"\n[options]\nslice_ns = \"soon\"\n", "is no number"),
        (
            "call.toml",
            "scheduler = \"fair\"\n[[call]]\nprogram = \"enable\"\n",
            "there is no such `syscall` program",
        ),
    ] {
        let path = file(name, text);
        let ran = compare(&format!("{FAIR}?profile={path}"), &[]);
        assert!(ran.code == 2 && ran.stderr.contains(said), "{name}: {}", ran.stderr);
    }
}

/// Four hogs of nice 0 and four of nice 5 on four CPUs: who gets a CPU next depends on whether all
/// CPUs decide at once. On one CPU nothing does.
#[test]
fn what_depends_on_timing_is_said_with_its_range() {
    let folder = Folder::new("bpf-timing");
    let scenario = |name: &str, cpus: u32| {
        let text = format!(
            "schedulers = [\"linux-7.2\"]\nduration = \"3s\"\nrepetitions = 3\n\
             [machine]\ncpus = {cpus}\n\
             [[task]]\nname = \"usual\"\ncount = {cpus}\nprogram = \"hog\"\n\
             [[task]]\nname = \"nice\"\ncount = {cpus}\nnice = 5\nprogram = \"hog\"\n"
        );
        let path = folder.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (one, four) = (scenario("one.toml", 1), scenario("four.toml", 4));
    let rows = |path: &str, more: &[&str]| {
        let words = ["compare", path, "--scheduler", "linux-7.2", "--scheduler", FAIR];
        schedlab(&[&words[..], &["--kernel-btf", KERNEL], more].concat())
    };
    let ran = rows(&four, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("depends on timing"), "{}", ran.stdout);
    let ran = rows(&four, &["--json"]);
    let study: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert!(study["rows"][0].get("timing").is_none(), "{}", study["rows"][0]);
    let timing = study["rows"][1]["timing"].as_array().expect("what depends on timing");
    let share = timing.iter().find(|one| one["subject"] == "usual" && one["metric"] == "share");
    let share = share.unwrap_or_else(|| panic!("{timing:?}"));
    let ends = ["low", "high"].map(|end| share[end].as_f64().expect("a number"));
    assert!(ends[0] < ends[1], "{ends:?}");
    // A gate within the range cannot be judged; one beyond it can.
    let middle = format!("usual share > {:.2}%", 50.0 * (ends[0] + ends[1]));
    let ran = rows(&four, &["--fail-if", &middle]);
    assert_eq!(ran.code, 3, "{} {}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("it depends on timing ("), "{}", ran.stdout);
    let ran = rows(&four, &["--fail-if", "usual share > 399%"]);
    assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
    // Two seeds say nothing of how much seeds change.
    let ran = rows(&four, &["--seeds", "2"]);
    assert!(!ran.stdout.contains("depends on timing"), "{}", ran.stdout);
    let ran = rows(&one, &[]);
    assert!(ran.code == 0 && !ran.stdout.contains("depends on timing"), "{}", ran.stdout);
}

/// No machine runs this scheduler: the reason is named.
#[test]
fn a_scheduler_that_does_not_run_has_no_snapshot() {
    let ran = schedlab(&["bpf", "snapshot", "scx_of_no_machine"]);
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    let said =
        ["sched_ext", "needs root", "lockdown", "no scheduler `scx_of_no_machine` runs here"];
    assert!(said.iter().any(|words| ran.stderr.contains(words)), "{}", ran.stderr);
}

/// Two faults as changes of a scheduler bring them: a slice ten times as long, and a wakeup that is
/// lost now and then.
#[test]
fn a_gate_finds_a_planted_regression() {
    let folder = Folder::new("bpf-gate");
    let scenario = "schedulers = [\"linux-7.2\"]\nduration = \"3s\"\nrepetitions = 3\n\
                    [machine]\ncpus = 2\n\
                    [[task]]\nname = \"hog\"\ncount = 4\nprogram = \"hog\"\n\
                    [[task]]\nname = \"sleeper\"\ncount = 4\n\
                    program = [\"run uniform 100us..1ms\", \"sleep exp 20ms\"]\n";
    std::fs::write(folder.0.join("mine.toml"), scenario).unwrap();
    let gate = |new: &str| {
        let new = format!("bpf:bpf/sim/{new}");
        let old = format!("{FAIR}?slice_ns=2ms");
        let words = ["ci", "run", folder.0.to_str().unwrap(), "--kernel-btf", KERNEL];
        let gate = ["--fail-if", "sleeper latency p90 > +20%"];
        schedlab(&[&words[..], &["--scheduler", &new, "--against", &old], &gate].concat())
    };
    let same = gate("fair.bpf.o?slice_ns=2000us");
    assert_eq!(same.code, 0, "{} {}", same.stdout, same.stderr);
    let slow = gate("fair.bpf.o?slice_ns=20ms");
    assert_eq!(slow.code, 1, "{} {}", slow.stdout, slow.stderr);
    let lost = gate("faults.bpf.o?fault=4");
    assert_eq!(lost.code, 2, "{} {}", lost.stdout, lost.stderr);
    let why = lost.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in ["No file could be compared under", "mine.toml: ", "runnable task stall"] {
        assert!(why.contains(said), "{said}: {}", lost.stdout);
    }
    let lost = compare("bpf:bpf/sim/faults.bpf.o?fault=4", &[]);
    assert!(lost.code == 2 && lost.stderr.contains("runnable task stall"), "{}", lost.stderr);
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
