//! A Xen host in the words of `xl` and `xenalyze`, as a user meets it.

use super::{Folder, schedlab};

/// A hog with a cap of half a pCPU alone on one, another one pinned to the second: golden vector G3
/// of the Credit scheduler (runs 60 ms, is parked 60 ms).
const CAPPED: &str = r#"
title = "A capped hog"
schedulers = ["xen-credit", "xen-credit2"]
duration = "1200ms"
baseline = "cap 50"
[machine]
cpus = 2
hz = 100
cost = { timer_late_ns = "1ns" }
[[group]]
name = "/web"
cap = 50
cpus = "0"
[[task]]
name = "hog"
group = "/web"
program = "hog"
[[group]]
name = "/batch"
weight = 512
[[task]]
name = "sleeper"
group = "/batch"
cpus = "1"
prefer = "1"
program = ["run 2ms", "sleep 8ms"]
[[variant]]
name = "free"
set = "/web cap=0"
"#;

#[test]
fn xl_prints_what_xen_prints() {
    let folder = Folder::new("xen-xl");
    let file = folder.write("capped.toml", CAPPED);
    let ran = schedlab(&["show", &file, "--scheduler", "xen-credit:tslice=10ms", "--xl"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let want = "\
# xl sched-credit
Cpupool Pool-0: tslice=10ms ratelimit=1000us migration-delay=0us
Name                                ID Weight  Cap
web                                  1    256   50
batch                                2    512    0

# xl vcpu-list
Name                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)
web                                  1     0     0   ---       0.6  0 / all
batch                                2     0     1   -b-       0.2  1 / 1
";
    assert_eq!(ran.stdout, want);
    let ran = schedlab(&["show", &file, "--scheduler", "xen-credit2", "--variant", "free", "--xl"]);
    let head: Vec<&str> = ran.stdout.lines().take(4).collect();
    let want = [
        "# xl sched-credit2",
        "Cpupool Pool-0: ratelimit=1000us",
        "Name                                ID Weight  Cap",
        "web                                  1    256    0",
    ];
    assert_eq!(head, want, "{ran:?}");
    assert!(
        ran.stdout.contains(
            "web                                  1     0     0   r--       1.2  0 / all"
        ),
        "{ran:?}"
    );
}

#[test]
fn xenalyze_sums_up_the_run_states() {
    let folder = Folder::new("xen-xenalyze");
    let file = folder.write("capped.toml", CAPPED);
    let ran = schedlab(&["show", &file, "--scheduler", "xen-credit", "--xenalyze"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    // G3: ten times 60 ms on its pCPU, ten times 60 ms parked.
    let want = "\
# xenalyze --summary: capped (cap 50) under xen-credit, seed 1, 1.20s
# state: times, total, mean {5%|50%|95%} of a stay, in ns (xenalyze: cycles)
|-- Domain 1 (web) --|
 -- v0 -- hog
  Runstates:
";
    assert!(ran.stdout.starts_with(want), "{}", ran.stdout);
    let line = |start: &str| {
        let found = ran.stdout.lines().find(|line| line.trim_start().starts_with(start));
        let words = found.unwrap_or_default().split_whitespace();
        words.take(4).collect::<Vec<_>>().join(" ")
    };
    assert!(line("running:").starts_with("running: 10 0.60s 6000000"), "{}", ran.stdout);
    assert!(line("offline:").starts_with("offline: 10 0.60s 5999999"), "{}", ran.stdout);
    assert!(line("[0]:") == "[0]: 10 0.60s", "{}", ran.stdout);
    let sleeper = ran.stdout.split("|-- Domain 2 (batch) --|").nth(1).unwrap();
    assert!(sleeper.contains("running:      120     0.24s   2000000"), "{sleeper}");
    assert!(sleeper.contains("blocked:      120     0.96s   8000000"), "{sleeper}");
    assert!(!sleeper.contains("offline"), "{sleeper}");
}

#[test]
fn domains_with_kernels_show_their_vcpus() {
    let ran = schedlab(&["show", "xen-ping", "--xl", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let host: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(host["schema"], "schedlab-xen/1");
    let domains = host["domains"].as_array().unwrap();
    assert_eq!(
        (&domains[0]["name"], domains[0]["vcpus"].as_array().unwrap().len()),
        (&"dom0".into(), 4)
    );
    // A vCPU is in one state at any time.
    for vcpu in domains.iter().flat_map(|domain| domain["vcpus"].as_array().unwrap()) {
        let states = ["running", "runnable", "blocked", "offline"];
        let total = |name: &str| vcpu["runstates"][name]["total_ns"].as_u64().unwrap();
        let sum: u64 = states.iter().map(|name| total(name)).sum();
        assert!(sum <= 20_000_000_000 && sum > 19_990_000_000, "{vcpu}");
        assert_eq!(total("runnable"), total("wake") + total("preempt"));
    }
}

#[test]
fn what_is_no_xen_host_is_refused() {
    let folder = Folder::new("xen-refused");
    let file = folder.write("capped.toml", CAPPED);
    for (arguments, says) in [
        (vec!["show", "two-hogs", "--xl"], "--scheduler xen-credit"),
        (vec!["show", &file, "--scheduler", "linux-6.1", "--xl"], "linux-6.1"),
        (vec!["show", &file, "--xl", "--latency"], "exclude other analyses"),
        (vec!["show", &file, "--xl", "--from", "1s"], "--from"),
        (vec!["show", &file, "--variant", "nobody", "--xl"], "cap 50, free"),
        (vec!["show", &file, "--variant", "nobody", "--latency"], "cap 50, free"),
    ] {
        let ran = schedlab(&arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{arguments:?}: {}", ran.stderr);
    }
}
