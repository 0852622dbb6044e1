//! What [`probe`](crate::probe) found, in words: for each limit its consequence and the one command
//! that lifts it.

mod settings;

use crate::capabilities::Capabilities;
use crate::facts::Backend;
use crate::privileges::{RECORDING_NEEDS, RECORDING_SETCAP};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the JSON.
pub const SCHEMA: &str = "schedlab-doctor/1";

/// The JSON of `doctor`: what works on this machine, and what does not.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct DoctorOutput<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// What can be recorded and run here, and what kind of kernel it is, in two sentences.
    pub answer: &'a str,
    /// What was found.
    pub capabilities: &'a Capabilities,
    /// What follows from it, one fact for each subject.
    pub facts: &'a [Fact],
}

/// One line of `schedlab doctor`.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Fact {
    /// What was looked at.
    pub what: String,
    /// Whether it is there.
    pub state: String,
    /// How much it matters.
    pub level: Level,
    /// What follows from it for recordings, replay or measurements.
    pub consequence: String,
    /// The command that lifts the limit, to be run as root; `None`: there is no limit, or nothing
    /// lifts it.
    pub lift: Option<String>,
}

/// How much a fact matters.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// As it should be.
    Good,
    /// Good to know when reading results.
    Note,
    /// Something works worse than it could.
    Limit,
    /// Something does not work.
    Missing,
}

/// All facts, grouped by subject: recording, the kernel's scheduler, the machine.
pub fn facts(found: &Capabilities) -> Vec<Fact> {
    let mut facts = recording(found);
    facts.extend(scheduler(found));
    facts.extend(realtime(found));
    facts.extend(machine(found));
    facts.extend(settings::facts(found));
    facts
}

/// Returns the answer in two sentences: what can be recorded and run here, and what kind of kernel
/// it is.
pub fn answer(found: &Capabilities, facts: &[Fact]) -> String {
    let best = found.backends.iter().find(|(_, works)| works.is_ok()).map(|(backend, _)| *backend);
    let records = match best {
        Some(Backend::Bpf | Backend::Tracepoints) => "Everything can be recorded here",
        Some(Backend::Switches) => "Only run times can be recorded here, not wakeups: no replay",
        Some(Backend::OwnTasks) => "Only your own tasks can be recorded here: no replay",
        None => "Nothing can be recorded here; scenarios can be compared",
    };
    let runs = match found.rt_priority_max {
        0 => ", and threads cannot be run under another scheduler",
        _ => ", and threads can be run under another scheduler",
    };
    let lifted =
        facts.iter().filter(|fact| fact.level > Level::Note && fact.lift.is_some()).count();
    let lifted = match lifted {
        0 => String::new(),
        1 => " (one limit below can be lifted)".to_owned(),
        many => format!(" ({many} limits below can be lifted)"),
    };
    let preempt = found
        .machine
        .knobs
        .iter()
        .find(|(name, _)| name == "preempt")
        .and_then(|(_, text)| Some(text.split_once('(')?.1.split_once(')')?.0.to_owned()));
    let kernel = &found.machine.kernel;
    let kind = match (found.machine.is_realtime(), preempt) {
        (true, _) => format!("Linux {kernel} is a real-time kernel (PREEMPT_RT)"),
        (false, Some(model)) => {
            format!("Linux {kernel} is not a real-time kernel (preemption: {model})")
        }
        (false, None) => format!("Linux {kernel} is not a real-time kernel"),
    };
    format!("{records}{runs}{lifted}. {kind}.")
}

fn fact(
    level: Level,
    what: &str,
    state: impl Into<String>,
    consequence: &str,
    lift: Option<&str>,
) -> Fact {
    let (what, consequence) = (what.to_owned(), consequence.to_owned());
    Fact { what, state: state.into(), level, consequence, lift: lift.map(str::to_owned) }
}

/// Gives the program what tracepoints need where tracefs is mounted for root alone.
const TRACEFS_SETCAP: &str = "setcap cap_perfmon,cap_dac_read_search+ep \"$(command -v schedlab)\"";

/// Gives the program all that recording has use for: the scheduler's settings in debugfs and large
/// rings too.
const SETCAP: &str = "setcap cap_bpf,cap_perfmon,cap_sys_admin,cap_sys_nice,cap_ipc_lock+ep \
                      \"$(command -v schedlab)\"";

/// Each CPU has a fair server of its own.
const NO_FAIR_SERVER: &str =
    "sh -c 'for f in /sys/kernel/debug/sched/fair_server/cpu*/runtime; do echo 0 > $f; done'";

fn recording(found: &Capabilities) -> Vec<Fact> {
    let mut facts = backends(found);
    facts.push(match &found.messages {
        Ok(hooks) => {
            let consequence = "recordings hold what tasks exchange (sockets, pipes, futexes, \
                               timers): `show --messages`; the recorder \
                               looks at the return of each system call of the machine";
            fact(Level::Good, "recording messages", hooks.words(), consequence, None)
        }
        Err(why) => {
            let consequence = "recordings hold no messages: `show --messages` refuses, and who \
                               waits for what is inferred from wakeups";
            fact(Level::Limit, "recording messages", why.as_str(), consequence, None)
        }
    });
    facts.push(rights(found));
    let works = |backend| found.backends.iter().any(|(b, works)| *b == backend && works.is_ok());
    if works(Backend::Tracepoints) {
        facts.extend(trace_quality(found));
    }
    if let Some(paranoid) = found.perf_event_paranoid
        && !found.caps.perfmon
    {
        let level = if paranoid > 0 { Level::Limit } else { Level::Good };
        let lift = (paranoid > 0).then_some("sysctl kernel.perf_event_paranoid=-1");
        let consequence = "above 0, an ordinary user records own tasks only";
        facts.push(fact(
            level,
            "kernel.perf_event_paranoid",
            paranoid.to_string(),
            consequence,
            lift,
        ));
    }
    if let Some(kib) = found.ring_kib {
        let consequence = "rings above this are refused; small rings lose events under load (lost \
                           events are counted)";
        facts.push(fact(
            Level::Limit,
            "memory for rings",
            format!("{kib} KiB a CPU"),
            consequence,
            Some(SETCAP),
        ));
    }
    facts
}

/// Which ways to record work here.
fn backends(found: &Capabilities) -> Vec<Fact> {
    let mut facts = Vec::new();
    for (backend, works) in &found.backends {
        let (good, bad) = match backend {
            Backend::Bpf => (
                "recordings hold switches, wakeups with their wakers, migrations and task \
                 lifetimes; about 0.3 us a \
                 switch on the recorded CPU; tasks can be chosen in the kernel (--pid, --cgroup)",
                "recording costs more; with tracepoints nothing else is lost",
            ),
            Backend::Tracepoints => (
                "the fallback that sees as much as BPF; about 1.2 us a switch on the recorded CPU",
                "without BPF either, recordings cannot say when a task was woken, nor by which: \
                 no run-queue latency after \
                 wakeups, no replay",
            ),
            Backend::Switches => (
                "the fallback sees who ran where and for how long, on the whole machine",
                "without tracepoints only a command's own tasks, or processes of your own, can be \
                 recorded",
            ),
            Backend::OwnTasks => (
                "a command's own tasks, or processes of your own (--pid), can be recorded without \
                 any privilege",
                "not even own tasks can be recorded",
            ),
        };
        let what = format!("recording by {}", backend.name());
        facts.push(match works {
            Ok(()) => fact(Level::Good, &what, "works", good, None),
            Err(error) if *backend == Backend::OwnTasks => {
                let lift = "sysctl kernel.perf_event_paranoid=2";
                fact(Level::Missing, &what, error.as_str(), bad, Some(lift))
            }
            Err(error) => {
                // Who has the rights already needs another kernel, not other rights.
                let rightless = !found.caps.perfmon || *backend == Backend::Bpf && !found.caps.bpf;
                let lift = match backend {
                    // Where tracefs is mounted: without it only CAP_SYS_ADMIN opens it.
                    Backend::Tracepoints => TRACEFS_SETCAP,
                    _ => RECORDING_SETCAP,
                };
                let lift = (found.first_pid_namespace && rightless).then_some(lift);
                fact(Level::Missing, &what, error.as_str(), bad, lift)
            }
        });
    }
    facts
}

/// What recording needs, and whether it is there.
fn rights(found: &Capabilities) -> Fact {
    let missing = match (found.caps.bpf, found.caps.perfmon) {
        (true, true) => {
            return fact(Level::Good, "rights to record", "there", RECORDING_NEEDS, None);
        }
        (false, true) => "no CAP_BPF",
        (true, false) => "no CAP_PERFMON",
        (false, false) => "neither CAP_BPF nor CAP_PERFMON",
    };
    fact(Level::Note, "rights to record", missing, RECORDING_NEEDS, Some(RECORDING_SETCAP))
}

fn trace_quality(found: &Capabilities) -> Vec<Fact> {
    let blind: Vec<String> = found
        .machine
        .online
        .iter()
        .filter(|cpu| !found.idle_traced.contains(*cpu))
        .map(|cpu| cpu.0.to_string())
        .collect();
    let idle = if blind.is_empty() {
        fact(
            Level::Good,
            "events on idle CPUs",
            "recorded",
            "every wakeup by an interrupt is seen",
            None,
        )
    } else {
        fact(
            Level::Limit,
            "events on idle CPUs",
            format!("not seen on CPU {}", blind.join(", ")),
            "a wakeup by an interrupt that hits such a CPU idle may be missing (context-switch \
             records fill in who \
             ran); a CPU that was busy just now cannot be checked: ask again on a quiet machine, \
             and keep measured \
             tasks off CPUs where it persists",
            None,
        )
    };
    let softirq = match found.trace_levels {
        Some(levels) => fact(
            Level::Good,
            "wakeups through softirqs",
            format!("attributed (tracing holds {levels} preemption level(s))"),
            "a loopback send names its sender as the waker; interrupts count as the outside world",
            None,
        ),
        None => fact(
            Level::Limit,
            "wakeups through softirqs",
            "not attributed",
            "closed loops over loopback look like outside arrivals: replay will not see them as \
             loops",
            None,
        ),
    };
    vec![idle, softirq]
}

fn scheduler(found: &Capabilities) -> Vec<Fact> {
    let knob =
        |name: &str| found.machine.knobs.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let mut facts = vec![match &found.debugfs_sched {
        Ok(()) => fact(
            Level::Good,
            "scheduler settings in debugfs",
            "readable",
            "the header carries them",
            None,
        ),
        Err(error) => fact(
            Level::Limit,
            "scheduler settings in debugfs",
            error.as_str(),
            "base slice, features, preemption model and fair server are unknown to recordings; \
             the scheduler's \
             defaults are assumed. (Kernel lockdown, the usual reason for root, goes away only \
             with a boot without it)",
            (!found.caps.sys_admin).then_some(SETCAP),
        ),
    }];
    facts.push(match found.fair_server {
        Some((runtime, period)) => fact(
            Level::Note,
            "fair server",
            format!("{runtime} in {period}"),
            "real-time tasks that never sleep leave this much to the fair policies",
            Some(NO_FAIR_SERVER),
        ),
        None => fact(
            Level::Note,
            "fair server",
            "not readable",
            "Linux 6.12 and later has one (50 ms in each second by default) whatever \
             sched_rt_runtime_us says; \
             older kernels have none",
            None,
        ),
    });
    if let Some(on) = knob("sched_autogroup_enabled") {
        let state = if on == "1" { "on" } else { "off" };
        let lift = (on == "1").then_some("sysctl kernel.sched_autogroup_enabled=0");
        let consequence = "when on, each session is a group of its own: nice values mean nothing \
                           between sessions";
        facts.push(fact(Level::Note, "autogroup", state, consequence, lift));
    }
    facts.push(sched_ext(found));
    facts.push(fact(
        if found.cgroup_cpu == "none" { Level::Note } else { Level::Good },
        "control groups for CPU time",
        found.cgroup_cpu.as_str(),
        "weights and cpu.max of each task's group are in recordings when there is a CPU controller",
        None,
    ));
    facts
}

/// Whether schedulers can be loaded into this kernel, and which one is.
fn sched_ext(found: &Capabilities) -> Fact {
    let state = match crate::sched_ext::usable(found) {
        Ok(state) => state,
        Err(why) => {
            let consequence = "no scheduler can be loaded into the kernel; those of schedlab run \
                               without it, by real-time priorities";
            return fact(Level::Note, "sched_ext", format!("no: {why}"), consequence, None);
        }
    };
    let kernel = &found.machine.kernel;
    match state.scheduler() {
        None => fact(
            Level::Good,
            "sched_ext",
            format!("yes ({kernel}), active: none"),
            "schedulers can be loaded into the kernel; the header of a recording names the one \
             that is active",
            None,
        ),
        Some(name) => fact(
            Level::Note,
            "sched_ext",
            format!("yes ({kernel}), active: {name}"),
            "recordings are of this scheduler, not of the kernel's own, and no second one can be \
             loaded beside it",
            None,
        ),
    }
}

fn realtime(found: &Capabilities) -> Vec<Fact> {
    let knob =
        |name: &str| found.machine.knobs.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let mut facts = Vec::new();
    if let Some(runtime) = knob("sched_rt_runtime_us") {
        let period = knob("sched_rt_period_us").unwrap_or("1000000");
        let limit = runtime != "-1";
        let lift = limit.then_some("sysctl kernel.sched_rt_runtime_us=-1");
        let consequence = "up to Linux 6.11 real-time tasks of a CPU are stopped beyond this; \
                           later kernels use the \
                           fair server instead";
        facts.push(fact(
            Level::Note,
            "real-time throttling",
            format!("{runtime} of {period} us"),
            consequence,
            lift,
        ));
    }
    if found.rt_group_sched {
        let consequence = "FIFO and RR are refused (EPERM) inside a new control group until \
                           cpu.rt_runtime_us is set \
                           there, and then limited hard";
        facts.push(fact(Level::Note, "RT_GROUP_SCHED", "on", consequence, None));
    }
    let rt = found.rt_priority_max;
    facts.push(fact(
        if rt > 0 { Level::Good } else { Level::Limit },
        "real-time policies",
        if rt > 0 { format!("up to priority {rt}") } else { "not allowed".to_owned() },
        "needed to run load clients and real-time variants for comparison; recording itself does \
         not need it",
        (rt == 0).then_some(SETCAP),
    ));
    facts
}

/// When slices end, by `sched/features`.
fn hrtick(features: Option<&str>) -> &'static str {
    let has =
        |name: &str| features.is_some_and(|text| text.split_whitespace().any(|word| word == name));
    if has("HRTICK") {
        "HRTICK is on: slices of fair tasks end by a timer of their own"
    } else if has("NO_HRTICK") {
        "HRTICK is off: no slice ends between two ticks"
    } else {
        "whether HRTICK is on cannot be read here; without it no slice ends between two ticks"
    }
}

/// Settings of a steady machine: the good state, what another one costs, how to get it.
const STEADY: [(&str, &str, &str, &str); 3] = [
    (
        "governor",
        "performance",
        "a CPU that changes its speed changes every CPU demand",
        "cpupower frequency-set -g performance",
    ),
    (
        "smt",
        "off",
        "two threads of a core slow each other down, which no scheduler model knows",
        "sh -c 'echo off > /sys/devices/system/cpu/smt/control'",
    ),
    (
        "clocksource",
        "tsc",
        "reading the time is slow: recording costs more",
        "sh -c 'echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource'",
    ),
];

/// Takes the advice to read the time stamp counter back where the kernel cannot.
fn no_tsc_where_there_is_none(facts: &mut [Fact], found: &Capabilities) {
    let clock =
        facts.iter_mut().find(|fact| fact.what == "clocksource" && fact.level != Level::Good);
    if let Some(clock) = clock.filter(|_| !found.clocksources.iter().any(|name| name == "tsc")) {
        let there = found.clocksources.join(", ");
        clock.consequence += &format!("; the kernel found no usable tsc here (available: {there})");
        clock.lift = None;
    }
}

fn machine(found: &Capabilities) -> Vec<Fact> {
    let machine = &found.machine;
    let knob = |name: &str| machine.knobs.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let mut facts = vec![fact(
        Level::Note,
        "kernel",
        format!("{} {}, HZ={}", machine.kernel, machine.version, machine.hz),
        hrtick(knob("features")),
        None,
    )];
    if machine.virtual_machine {
        let state = format!(
            "yes; {}.{} % of all CPU time stolen",
            found.steal_permille / 10,
            found.steal_permille % 10
        );
        let consequence =
            "the hypervisor takes CPUs away: the largest latencies are its, not the scheduler's";
        facts.push(fact(Level::Note, "virtual machine", state, consequence, None));
    }
    let busy = found.load_percent * 10 > machine.online.count() as u64 * 300;
    facts.push(fact(
        if busy { Level::Limit } else { Level::Good },
        "load",
        format!(
            "{}.{:02} runnable over {} CPUs",
            found.load_percent / 100,
            found.load_percent % 100,
            machine.online.count()
        ),
        "other work takes part in every recording and disturbs every measurement",
        None,
    ));
    for (name, good, consequence, lift) in STEADY {
        if let Some(state) = knob(name) {
            let fine = state == good || (name == "smt" && state.starts_with("not"));
            let level = if fine { Level::Good } else { Level::Limit };
            facts.push(fact(level, name, state, consequence, (!fine).then_some(lift)));
        }
    }
    no_tsc_where_there_is_none(&mut facts, found);
    let isolated = knob("isolated_cpus");
    facts.push(fact(
        Level::Note,
        "isolated CPUs",
        isolated.unwrap_or("none"),
        "isolated CPUs are left out of load balancing: tasks run there only by affinity",
        None,
    ));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuSet, Ns};

    fn find<'a>(facts: &'a [Fact], what: &str) -> &'a Fact {
        facts
            .iter()
            .find(|fact| fact.what == what)
            .unwrap_or_else(|| panic!("no fact about {what}"))
    }

    #[test]
    fn every_limit_has_a_consequence() {
        for fact in facts(&crate::probe()) {
            assert!(!fact.consequence.is_empty() && !fact.state.is_empty(), "{fact:?}");
        }
    }

    #[test]
    fn an_ordinary_user_is_told_what_helps() {
        let mut found = crate::probe();
        let refused = || Err("Permission denied (os error 13)".to_owned());
        found.backends = vec![
            (Backend::Tracepoints, refused()),
            (Backend::Switches, refused()),
            (Backend::OwnTasks, Ok(())),
        ];
        found.first_pid_namespace = true;
        found.caps = crate::capabilities::Caps::default();
        found.perf_event_paranoid = Some(2);
        found.rt_priority_max = 0;
        let facts = facts(&found);
        let tracepoints = find(&facts, "recording by tracepoints");
        assert_eq!(tracepoints.level, Level::Missing);
        assert!(tracepoints.lift.as_deref().unwrap().contains("cap_perfmon"));
        assert_eq!(find(&facts, "recording by own").level, Level::Good);
        let paranoid = find(&facts, "kernel.perf_event_paranoid");
        assert_eq!(paranoid.lift.as_deref(), Some("sysctl kernel.perf_event_paranoid=-1"));
        assert_eq!(find(&facts, "real-time policies").level, Level::Limit);
    }

    #[test]
    fn advice_is_for_this_machine() {
        let mut found = crate::probe();
        found.backends = vec![(Backend::Bpf, Err("needs Linux 5.18".to_owned()))];
        found.first_pid_namespace = true;
        (found.caps.perfmon, found.caps.bpf) = (true, true);
        found.fair_server = Some((Ns::from_ms(50), Ns::from_s(1)));
        found.machine.knobs =
            [("clocksource", "hpet"), ("features", "PLACE_LAG HRTICK NO_HRTICK_DL")]
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .to_vec();
        found.clocksources = vec!["hpet".to_owned(), "acpi_pm".to_owned()];
        let those = facts(&found);
        assert_eq!(find(&those, "recording by bpf").lift, None, "root needs no setcap");
        assert!(find(&those, "fair server").lift.as_deref().unwrap().contains("cpu*"));
        assert!(find(&those, "kernel").consequence.starts_with("HRTICK is on"));
        let clock = find(&those, "clocksource");
        assert!(clock.lift.is_none() && clock.consequence.contains("hpet, acpi_pm"), "{clock:?}");
        found.clocksources.push("tsc".to_owned());
        assert!(find(&facts(&found), "clocksource").lift.as_deref().unwrap().contains("tsc"));
        assert!(
            hrtick(Some("NO_HRTICK")).contains("is off") && hrtick(None).contains("cannot be read")
        );
    }

    #[test]
    fn blind_idle_cpus_are_named() {
        let mut found = crate::probe();
        found.backends = vec![(Backend::Tracepoints, Ok(()))];
        found.machine.online = "0-2".parse().unwrap();
        found.idle_traced = "0".parse().unwrap();
        let facts_then = facts(&found);
        let idle = find(&facts_then, "events on idle CPUs");
        assert_eq!((idle.level, idle.state.as_str()), (Level::Limit, "not seen on CPU 1, 2"));
        found.idle_traced = CpuSet::ALL;
        assert_eq!(find(&facts(&found), "events on idle CPUs").level, Level::Good);
    }
}
