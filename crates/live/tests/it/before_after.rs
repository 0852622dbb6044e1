//! Whatever a keeper did, all that the kernel shows of a thread's scheduling is as before: every
//! file of `/proc/PID` that has to do with it.

use super::{Folder, Target};
use libtest_mimic::Failed;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use schedlab_host::threads::{self, Scheduling};
use schedlab_live::Keeper;
use schedlab_live::journal::{Confined, Setting};
use schedlab_model::{CpuSet, Nice, Ns, Policy};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// How many random threads: each starts a keeper with its two guardians.
const CASES: u32 = 24;

fn keeper(folder: &Folder) -> Keeper {
    Keeper::start(&super::options(folder.run_dir())).expect("a keeper")
}

/// All that the kernel shows. Counters and times are left out: they go on.
pub(crate) fn everything(pid: u32) -> BTreeMap<String, String> {
    let read = |file: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/{file}"))
            .unwrap_or_else(|error| error.to_string())
    };
    let mut all = BTreeMap::new();
    for file in ["timerslack_ns", "oom_score_adj", "autogroup", "cgroup", "cpuset", "limits"] {
        all.insert(file.to_owned(), read(file));
    }
    // SigQ counts the signals of all processes of the user; memory comes and goes with the page
    // cache, and is counted for each CPU by itself.
    let counts = [
        "voluntary_ctxt_switches",
        "nonvoluntary_ctxt_switches",
        "State",
        "x86_Thread",
        "SigQ",
        "VmRSS",
        "VmHWM",
        "Rss",
    ];
    for line in
        read("status").lines().filter(|line| !counts.iter().any(|name| line.starts_with(name)))
    {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        all.insert(format!("status {name}"), value.trim().to_owned());
    }
    let settings = [
        "policy",
        "prio",
        "se.slice",
        "se.load.weight",
        "uclamp.",
        "effective uclamp",
        "ext.enabled",
        "dl.",
    ];
    for line in
        read("sched").lines().filter(|line| settings.iter().any(|name| line.starts_with(name)))
    {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        all.insert(format!("sched {}", name.trim()), value.trim().to_owned());
    }
    // Priority, nice value, real-time priority and policy: fields 18, 19, 40 and 41 of the file.
    let stat = read("stat");
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    for (name, at) in [("priority", 15), ("nice", 16), ("rt_priority", 37), ("policy", 38)] {
        all.insert(format!("stat {name}"), fields.get(at).copied().unwrap_or("none").to_owned());
    }
    all.insert("sched_getattr".to_owned(), format!("{:?}", threads::scheduling(pid)));
    all.insert("sched_getaffinity".to_owned(), format!("{:?}", threads::affinity(pid)));
    all.insert("ioprio".to_owned(), said(Command::new("ionice").args(["-p", &pid.to_string()])));
    all
}

/// What a tool of util-linux prints; nothing where there is none.
fn said(command: &mut Command) -> String {
    command.output().map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// Returns whether the kernel clamps utilisation (CONFIG_UCLAMP_TASK), and uclampset(1) of
/// util-linux is there.
fn has_clamps() -> bool {
    let sched = std::fs::read_to_string("/proc/self/sched").unwrap_or_default();
    sched.contains("uclamp.min") && Command::new("uclampset").arg("--version").output().is_ok()
}

/// How a thread is before.
#[derive(Clone, Debug)]
struct Thread {
    policy: u8,
    nice: i8,
    reset_on_fork: bool,
    slice_us: Option<u64>,
    slack: u64,
    io_class: u8,
    pinned: bool,
    /// Clamps of utilisation, where the kernel has them.
    clamps: Option<(u16, u16)>,
}

fn thread() -> impl Strategy<Value = Thread> {
    let slice = prop::option::of(200_u64..20_000);
    let clamps = prop::option::of((0_u16..512, 512_u16..=1024));
    (0_u8..5, -5_i8..20, any::<bool>(), slice, 1_u64..2_000_000, 0_u8..4, any::<bool>(), clamps)
        .prop_map(|(policy, nice, reset_on_fork, slice_us, slack, io_class, pinned, clamps)| {
            Thread { policy, nice, reset_on_fork, slice_us, slack, io_class, pinned, clamps }
        })
}

#[derive(Clone, Debug)]
enum Step {
    Fifo(u8),
    Band,
    Window,
    Idle,
    Batch,
    Nice,
    Slice,
    Confine,
    Within,
    Stop,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        (1_u8..4).prop_map(Step::Fifo),
        Just(Step::Band),
        Just(Step::Window),
        Just(Step::Idle),
        Just(Step::Batch),
        Just(Step::Nice),
        Just(Step::Slice),
        Just(Step::Confine),
        Just(Step::Within),
        Just(Step::Stop),
    ];
    prop::collection::vec(one, 1..6)
}

impl Thread {
    fn set(&self, target: &Target) {
        let pid = target.pid();
        let wanted = Scheduling {
            policy: [Policy::Other, Policy::Batch, Policy::Idle, Policy::Fifo(2), Policy::Rr(3)]
                [usize::from(self.policy)],
            nice: Nice::new(self.nice).expect("valid"),
            slice: self.slice_us.map(Ns::from_us).filter(|_| self.policy < 2),
            reset_on_fork: self.reset_on_fork,
            ext: false,
        };
        threads::set_timer_slack(pid, Ns(self.slack)).expect("root");
        threads::set_scheduling(pid, &wanted).expect("root");
        if let Some((min, max)) = self.clamps.filter(|_| has_clamps()) {
            let (min, max, pid) = (min.to_string(), max.to_string(), pid.to_string());
            said(Command::new("uclampset").args(["-m", &min, "-M", &max, "-p", &pid]));
        }
        if self.pinned {
            threads::set_affinity(pid, &super::one_cpu(pid)).expect("of this test");
        }
        if self.io_class > 0 {
            said(Command::new("ionice").args([
                "-c",
                &self.io_class.to_string(),
                "-p",
                &pid.to_string(),
            ]));
        }
    }
}

fn carry_out(keeper: &mut Keeper, target: &Target, steps: &[Step]) {
    let thread = Keeper::target(target.pid()).expect("it lives");
    let now = || threads::scheduling(thread.tid).expect("it lives");
    let band = Setting::FifoBand(1, 3);
    keeper.adopt_process(&thread, band, None).expect("noted");
    for step in steps {
        match step {
            Step::Fifo(priority) => {
                keeper.schedule(&thread, &now().with_policy(Policy::Fifo(*priority)))
            }
            Step::Band | Step::Window => {
                keeper.declare(&thread, band).expect("noted");
                let (policy, reset_on_fork) = if matches!(step, Step::Band) {
                    (Policy::Fifo(1), true)
                } else {
                    (Policy::Idle, true)
                };
                keeper.apply(
                    &thread,
                    &Scheduling { slice: None, reset_on_fork, ..now().with_policy(policy) },
                )
            }
            Step::Idle => keeper
                .schedule(&thread, &Scheduling { slice: None, ..now().with_policy(Policy::Idle) }),
            Step::Batch => keeper.schedule(&thread, &now().with_policy(Policy::Batch)),
            Step::Nice => keeper
                .schedule(&thread, &Scheduling { nice: Nice::new(19).expect("valid"), ..now() }),
            Step::Slice => {
                let wanted = Scheduling {
                    slice: Some(Ns::from_us(100)),
                    ..now().with_policy(Policy::Other)
                };
                keeper.schedule(&thread, &wanted)
            }
            Step::Confine => keeper.confine(&thread, &super::one_cpu(thread.tid)),
            Step::Within => {
                let affinity = threads::affinity(thread.tid).expect("it lives");
                let within = Confined { cpus: affinity, one_of: true };
                keeper
                    .confine_within(
                        &thread,
                        (affinity, affinity),
                        within,
                        &super::one_cpu(thread.tid),
                    )
                    .map(drop)
            }
            Step::Stop => keeper.stop(&thread).map(drop),
        }
        .expect("root");
    }
}

pub(crate) fn all_as_before() -> Result<(), Failed> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED all_as_before: needs root");
        return Ok(());
    }
    if !has_clamps() {
        eprintln!(
            "SKIPPED clamps of utilisation: this kernel has none (CONFIG_UCLAMP_TASK), or \
             uclampset(1) is missing"
        );
    }
    let mut runner = TestRunner::new_with_rng(
        Config { cases: CASES, failure_persistence: None, ..Config::default() },
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let tested = runner.run(&(thread(), steps()), |(thread, steps)| {
        let (folder, target) = (Folder::new("property"), Target::start());
        // A program that is not there yet has other memory.
        super::wait("it sleeps", || threads::is_asleep(target.pid()));
        thread.set(&target);
        let before = everything(target.pid());
        let mut keeper = keeper(&folder);
        carry_out(&mut keeper, &target, &steps);
        let report = keeper.finish().expect("a readable journal");
        prop_assert!(report.complete(), "{:?}", report);
        super::wait("it sleeps again", || threads::is_asleep(target.pid()));
        let after = everything(target.pid());
        for (name, value) in &before {
            prop_assert_eq!(Some(value), after.get(name), "{}", name);
        }
        Ok(())
    });
    tested.map_err(|error| error.to_string().into())
}

/// A thread without an affinity of its own, in a cpuset that grows after it was given back.
pub(crate) fn follows_its_cpuset() -> Result<(), Failed> {
    let allowed = threads::affinity(0)?;
    let root = Path::new("/sys/fs/cgroup/cpuset");
    let path = root.join(format!("schedlab-test-{}", std::process::id()));
    if allowed.count() < 2 || std::fs::create_dir(&path).is_err() {
        println!(
            "skipped: a_thread_that_followed_its_cpuset_follows_it_again (needs root, two CPUs, \
             cpusets of version 1)"
        );
        return Ok(());
    }
    let write = |file: &str, text: &str| std::fs::write(path.join(file), text);
    let mems = std::fs::read_to_string(root.join("cpuset.mems"))?;
    let first = CpuSet::single(allowed.lowest().expect("one"));
    write("cpuset.mems", mems.trim())?;
    let tried = ["alone", "all"].map(|how| -> Result<bool, Failed> {
        let (folder, target) = (Folder::new("cpuset"), Target::start());
        write("cpuset.cpus", &(if how == "alone" { first } else { allowed }).to_string())?;
        write("cgroup.procs", &target.pid().to_string())?;
        let mut keeper = keeper(&folder);
        keeper.confine(&Keeper::target(target.pid())?, &first)?;
        keeper.finish()?;
        let back = threads::affinity(target.pid())?;
        write("cpuset.cpus", &first.to_string())?;
        write("cpuset.cpus", &allowed.to_string())?;
        Ok(back == (if how == "alone" { first } else { allowed })
            && threads::affinity(target.pid())? == allowed)
    });
    for _ in 0..1_000 {
        if std::fs::remove_dir(&path).is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    for follows in tried {
        assert!(follows?);
    }
    Ok(())
}

/// `cpu.idle` takes a group's weight with it.
pub(crate) fn weight_of_a_group() -> Result<(), Failed> {
    let path =
        Path::new("/sys/fs/cgroup/cpu").join(format!("schedlab-test-{}", std::process::id()));
    if std::fs::create_dir(&path).is_err() || !path.join("cpu.idle").exists() {
        let _ = std::fs::remove_dir(&path);
        println!(
            "skipped: a_group_that_was_idle_has_its_weight_again (needs root, version 1 of the \
             control groups, Linux 5.15)"
        );
        return Ok(());
    }
    std::fs::write(path.join("cpu.shares"), "512")?;
    let folder = Folder::new("weight");
    let mut keeper = keeper(&folder);
    let made = keeper.write_group(&path.join("cpu.idle"), "1");
    let report = keeper.finish()?;
    let read =
        |file: &str| std::fs::read_to_string(path.join(file)).map(|text| text.trim().to_owned());
    let found = [read("cpu.idle")?, read("cpu.shares")?];
    std::fs::remove_dir(&path)?;
    made?;
    assert_eq!(found, ["0", "512"], "{report:?}");
    Ok(())
}
