//! The tests of the guests.

use super::kernels::Kernel;
use super::machine::{Clock, Machine};
use super::store::Store;
use super::{conformance, drivers, foreign, messages, objects, switches};
use anyhow::{Context, Result};
use std::path::Path;

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    pub(super) good: bool,
    pub(super) text: String,
}

/// What the host looks at in the folder of a test after the boot.
pub(super) type Judge = fn(&Path) -> Result<Vec<Verdict>>;

/// Makes what a test needs beside the usual root of a guest: an archive.
pub(super) type More = fn(&Store, &Kernel) -> Result<Vec<u8>>;

/// A script that runs inside (`guest-lab/guest/tests/NAME.sh`), and what is asked about it.
pub(super) struct Test {
    pub(super) name: &'static str,
    /// The script is that of another test, with this before it.
    pub(super) script_of: Option<(&'static str, &'static str)>,
    pub(super) about: &'static str,
    pub(super) machine: Machine,
    /// Kernels that it is for; empty: all.
    pub(super) kernels: &'static [&'static str],
    /// Seconds of the guest's time before it is ended.
    pub(super) limit_s: u32,
    /// One of the short set that CI runs.
    pub(super) short: bool,
    /// Booted twice: console and files must be equal.
    pub(super) twice: bool,
    pub(super) judge: Option<Judge>,
    /// Such a test boots alone.
    pub(super) more: Option<More>,
    /// It needs a program with the feature `sched-ext`.
    pub(super) sched_ext: bool,
}

impl Test {
    /// The script.
    pub(super) fn script(&self, tree: &Path) -> Result<String> {
        let (before, name) = self.script_of.unwrap_or(("", self.name));
        let path = tree.join(format!("guest-lab/guest/tests/{name}.sh"));
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(before.to_owned() + &text)
    }
}

/// The shell and what it starts would go before managed threads: they stay on CPU 0.
const UNDER_SCHED_EXT: &str = "# Under the sched_ext driver.\n\
                               driver='--driver sched-ext' policy=7 any=f free='taskset f'\n\
                               confine_shell 1\n";

/// What most tests are.
const USUAL: Test = Test {
    name: "",
    script_of: None,
    about: "",
    machine: Machine::usual(Clock::Host),
    kernels: &[],
    limit_s: 120,
    short: false,
    twice: false,
    judge: None,
    more: None,
    sched_ext: false,
};

/// All tests, in the order in which they run.
pub(super) const TESTS: &[Test] = &[
    Test {
        name: "doctor",
        about: "every way to record works for root, advice is for this kernel, and huge pages \
                stay away",
        short: true,
        ..USUAL
    },
    Test {
        name: "record",
        about: "recordings by each way hold the switches that the kernel's own trace holds",
        limit_s: 240,
        short: true,
        judge: Some(switches::judge),
        ..USUAL
    },
    Test {
        name: "attach",
        about: "threads and a command's children under a scheduler on three CPUs, at each level \
                of perf_event_paranoid",
        machine: Machine::usual(Clock::Virtual),
        short: true,
        ..USUAL
    },
    Test {
        name: "way-back",
        about: "kill -9 of the owner, then of everything, leaves no changed thread",
        short: true,
        ..USUAL
    },
    Test {
        name: "ext",
        about: "a thread with SCHED_EXT has it again after attach, and after kill -9 of everything",
        kernels: &["7.2", "7.2-rt"],
        ..USUAL
    },
    Test {
        name: "foreign",
        about: "one of the kernel's example schedulers for sched_ext, recorded, blamed and gated \
                against the kernel's own",
        machine: Machine::usual(Clock::Virtual),
        kernels: &["7.2"],
        limit_s: 300,
        more: Some(foreign::archive),
        ..USUAL
    },
    Test {
        name: "sched-ext",
        about: "the sched_ext driver: shares, children, nice, affinity, hotplug, fair load \
                beside, one scheduler at a time, the log repeats",
        machine: Machine::usual(Clock::Virtual),
        kernels: &["7.2"],
        limit_s: 600,
        sched_ext: true,
        ..USUAL
    },
    Test {
        name: "sched-ext-death",
        about: "the sched_ext driver is killed or stopped: its threads go on without a gap and \
                have their policy again",
        machine: Machine::usual(Clock::Virtual),
        kernels: &["7.2"],
        limit_s: 900,
        sched_ext: true,
        ..USUAL
    },
    Test {
        name: "sched-ext-without",
        about: "a kernel without sched_ext: the driver is refused with the reason",
        machine: Machine::usual(Clock::Virtual),
        kernels: &["6.1", "6.12"],
        sched_ext: true,
        ..USUAL
    },
    Test {
        name: "latency",
        about: "the cause of a late wakeup is named rightly from the first second on",
        limit_s: 240,
        ..USUAL
    },
    Test {
        name: super::matrix::TEST,
        about: "latency idle and loaded on the standard kernel and its PREEMPT_RT pair, to be \
                merged into one table",
        kernels: &["6.12", "6.12-rt", "7.2", "7.2-rt"],
        limit_s: 400,
        ..USUAL
    },
    Test {
        name: "backends",
        about: "which ways to record work: as root and as a user, at each perf_event_paranoid, \
                contained, locked down",
        machine: Machine { arguments: "lsm=lockdown", ..Machine::usual(Clock::Host) },
        limit_s: 400,
        ..USUAL
    },
    Test {
        name: "agents",
        about: "schedulers on two and three CPUs: shares, migrations, affinity, hotplug, cpusets, \
                kill -9, and the log repeats",
        machine: Machine::usual(Clock::Virtual),
        limit_s: 450,
        ..USUAL
    },
    Test {
        name: "kernel-rules",
        about: "rules that the simulator has: cpu.max, throttling in the kernel (6.18), SCHED_IDLE \
                and placement (7.1)",
        machine: Machine::usual(Clock::Virtual),
        kernels: &["5.10", "6.1", "6.12", "6.12-rt", "7.2"],
        limit_s: 300,
        ..USUAL
    },
    Test {
        name: "conformance",
        about: "order, turns, preemption, affinity of threads on two and three CPUs, for six \
                schedulers, by the kernel's own trace",
        machine: Machine::usual(Clock::Virtual),
        limit_s: 400,
        judge: Some(conformance::judge),
        ..USUAL
    },
    Test {
        name: "sched-ext-conformance",
        script_of: Some((UNDER_SCHED_EXT, "conformance")),
        about: "the questions of `conformance` under the sched_ext driver: every stay of a thread \
                on a CPU is a turn",
        machine: Machine::usual(Clock::Virtual),
        kernels: &["7.2"],
        limit_s: 900,
        judge: Some(conformance::judge_sched_ext),
        sched_ext: true,
        ..USUAL
    },
    Test {
        name: "sched-ext-limits",
        about: "the sched_ext driver ends or is refused by name: the kernel's watchdog, no BTF, \
                lockdown",
        machine: Machine { arguments: "lsm=lockdown", ..Machine::usual(Clock::Virtual) },
        kernels: &["7.2"],
        limit_s: 300,
        sched_ext: true,
        ..USUAL
    },
    Test {
        name: "sched-ext-confirm",
        about: "confirm with both drivers: rounds of each, predicted behind its own costs",
        machine: Machine::usual(Clock::Virtual),
        kernels: &["7.2"],
        limit_s: 500,
        sched_ext: true,
        ..USUAL
    },
    Test {
        name: "sched-ext-twice",
        about: "two boots under a virtual clock give the same run by the sched_ext driver, its \
                log and the kernel's trace, bit by bit",
        machine: Machine::usual(Clock::Virtual),
        kernels: &["7.2"],
        twice: true,
        sched_ext: true,
        ..USUAL
    },
    Test {
        name: "drivers",
        about: "the same load in the simulator, under elevation and under sched_ext: shares, \
                turns, orders; what a hand-over costs",
        machine: Machine::usual(Clock::Virtual),
        kernels: &["7.2"],
        limit_s: 400,
        judge: Some(drivers::judge),
        sched_ext: true,
        ..USUAL
    },
    Test {
        name: "messages",
        about: "what the facts of messages cost and lose: the same load with and without them",
        machine: Machine { cpus: 1, ..Machine::usual(Clock::Virtual) },
        kernels: messages::KERNELS,
        limit_s: 240,
        judge: Some(messages::judge),
        ..USUAL
    },
    Test {
        name: "sched-ext-objects",
        about: "the same sched_ext objects (the kernel's samples, some of scx) in the kernel and in \
                the simulator: shares, turns, waits on one CPU",
        machine: Machine { cpus: 1, ..Machine::usual(Clock::Virtual) },
        kernels: &["7.2"],
        limit_s: 900,
        judge: Some(objects::judge_one),
        more: Some(objects::one),
        ..USUAL
    },
    Test {
        name: "sched-ext-objects-4",
        script_of: Some(("", "sched-ext-objects")),
        about: "the same on four CPUs, with the choice of idle ones",
        machine: Machine::usual(Clock::Virtual),
        kernels: &["7.2"],
        limit_s: 900,
        judge: Some(objects::judge_four),
        more: Some(objects::four),
        ..USUAL
    },
    Test {
        name: "sched-ext-objects-smt",
        script_of: Some(("", "sched-ext-objects")),
        about: "the same on two cores of two hardware threads",
        machine: Machine { threads: 2, ..Machine::usual(Clock::Virtual) },
        kernels: &["7.2"],
        limit_s: 900,
        judge: Some(objects::judge_smt),
        more: Some(objects::smt),
        ..USUAL
    },
    Test {
        name: "same-twice",
        about: "two boots under a virtual clock give the same recording, bit by bit",
        machine: Machine::usual(Clock::Virtual),
        kernels: &["6.1"],
        short: true,
        twice: true,
        ..USUAL
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_has_a_name_of_its_own_and_says_what_it_looks_at() {
        for (at, test) in TESTS.iter().enumerate() {
            let script = test.script(&crate::root()).unwrap();
            assert!(script.starts_with("# ") && !test.about.is_empty(), "{}", test.name);
            assert!(
                script.contains("check ") || test.judge.is_some(),
                "{} asks nothing",
                test.name
            );
            assert!(TESTS[..at].iter().all(|other| other.name != test.name), "{}", test.name);
        }
        assert!(TESTS.iter().any(|test| test.short && test.twice));
    }
}
