//! What this kernel, this machine and these permissions allow. Probing tries things instead of
//! guessing from versions; it changes nothing.

use crate::cgroup::Controller;
use crate::facts::{Backend, MachineFacts, MessageHooks};
use crate::proc::{in_first_pid_namespace, value};
use crate::record::bpf::probe as probe_bpf;
use crate::record::calibrate::{Calibration, calibrate};
use crate::record::tracepoints::probe as probe_tracepoints;
use crate::surroundings::{Surroundings, surroundings};
use crate::sys::Event;
use crate::sys::perf::{Target, What};
use crate::tracefs::PseudoFs;
use schedlab_model::{CpuSet, Ns, SchedExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// What was found. An `Err` text is what the kernel answered.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Capabilities {
    /// The machine and its settings.
    pub machine: MachineFacts,
    /// Whether each way to record works, best first.
    pub backends: Vec<(Backend, Result<(), String>)>,
    /// How messages would be recorded (backend `bpf`).
    pub messages: Result<MessageHooks, String>,
    /// Capabilities of this process that matter, of `CAP_…`.
    pub caps: Caps,
    /// `kernel.perf_event_paranoid`; higher allows less. `None`: no perf events.
    pub perf_event_paranoid: Option<i32>,
    /// Ids and layouts of tracepoints can be read.
    pub tracefs: Result<(), String>,
    /// Scheduler settings in debugfs can be read.
    pub debugfs_sched: Result<(), String>,
    /// Clock sources that the kernel can use.
    pub clocksources: Vec<String>,
    /// `fair_server/cpu0/runtime` and `period` of debugfs, where they exist and can be read.
    pub fair_server: Option<(Ns, Ns)>,
    /// Preemption levels that tracing adds (needed to attribute softirqs); `None`: not measured.
    pub trace_levels: Option<i64>,
    /// CPUs on which events of the idle task were seen to be recorded.
    pub idle_traced: CpuSet,
    /// Type information for BPF programs is there.
    pub btf: bool,
    /// Where groups of CPU time live: `v1 PATH`, `v2 PATH`, or `none`.
    pub cgroup_cpu: String,
    /// Real-time tasks in a control group need a budget of their own (`CONFIG_RT_GROUP_SCHED`).
    pub rt_group_sched: bool,
    /// The kernel can load schedulers (`CONFIG_SCHED_CLASS_EXT`).
    pub sched_ext: bool,
    /// What it says of them; `None`: it cannot load any.
    pub sched_ext_state: Option<SchedExt>,
    /// Thread ids here are those of tracepoints.
    pub first_pid_namespace: bool,
    /// Highest real-time priority that this process may take (RLIMIT_RTPRIO; 99 with CAP_SYS_NICE).
    pub rt_priority_max: u8,
    /// Locked memory that this process may use for rings, in KiB; `None`: as much as it likes.
    pub ring_kib: Option<u64>,
    /// Runnable tasks over the last minute, in hundredths (`/proc/loadavg`).
    pub load_percent: u64,
    /// Part of all CPU time since boot that a hypervisor took away, in thousandths.
    pub steal_permille: u64,
    /// Idle states, lockdown, own groups.
    pub surroundings: Surroundings,
}

/// Linux capabilities of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Caps {
    /// CAP_SYS_ADMIN (21).
    pub sys_admin: bool,
    /// CAP_SYS_NICE (23).
    pub sys_nice: bool,
    /// CAP_IPC_LOCK (14).
    pub ipc_lock: bool,
    /// CAP_PERFMON (38).
    pub perfmon: bool,
    /// CAP_BPF (39).
    pub bpf: bool,
}

const CLOCKSOURCES: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

/// Whether the kernel tells its types.
pub(crate) fn has_btf() -> bool {
    Path::new("/sys/kernel/btf/vmlinux").exists()
}

impl Caps {
    /// Those of this process.
    pub(crate) fn own() -> Caps {
        Caps::of_status(&read("/proc/self/status"))
    }

    fn of_status(status: &str) -> Caps {
        let mask =
            value(status, "CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
        let has = |bit: u32| mask >> bit & 1 == 1;
        let sys_admin = has(21);
        Caps {
            sys_admin,
            sys_nice: has(23),
            ipc_lock: has(14),
            perfmon: sys_admin || has(38),
            bpf: sys_admin || has(39),
        }
    }
}

const CONTAINED: &str = "inside a PID namespace: run schedlab outside the container";

/// Looks. Takes some milliseconds (a thread sleeps shortly on each CPU).
pub fn probe() -> Capabilities {
    let machine = crate::machine::machine();
    let caps = Caps::own();
    let tracefs = PseudoFs::tracefs();
    let debugfs = PseudoFs::detached("debugfs");
    let tracepoints = match &tracefs {
        Ok(fs) => probe_tracepoints(fs).map_err(|error| error.to_string()),
        Err(error) => Err(format!("tracefs: {error}")),
    };
    let calibration = match (&tracefs, &tracepoints) {
        (Ok(fs), Ok(())) => calibrate(fs, &machine.online).ok(),
        _ => None,
    };
    let calibration =
        calibration.unwrap_or(Calibration { own_levels: None, idle_seen: CpuSet::EMPTY });
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let switches =
        |target| Event::open(What::Switches, target).map(drop).map_err(|error| error.to_string());
    let first_pid_namespace = in_first_pid_namespace();
    let tracepoints = match tracepoints {
        Ok(()) if !first_pid_namespace => Err(CONTAINED.to_owned()),
        other => other,
    };
    let bpf = if first_pid_namespace {
        probe_bpf(&machine.online).map_err(|error| error.to_string())
    } else {
        Err(CONTAINED.to_owned())
    };
    let controller = Controller::find();
    let sched_ext_state = crate::sched_ext::here();
    Capabilities {
        backends: vec![
            (Backend::Bpf, bpf.clone().map(drop)),
            (Backend::Tracepoints, tracepoints),
            (Backend::Switches, switches(Target::Cpu(0))),
            (Backend::OwnTasks, switches(Target::Tree { pid: own, cpu: 0 })),
        ],
        messages: bpf.and_then(|messages| messages),
        perf_event_paranoid: number("/proc/sys/kernel/perf_event_paranoid"),
        tracefs: tracefs.map(drop).map_err(|error| error.to_string()),
        debugfs_sched: match &debugfs {
            Ok(fs) => fs.read("sched/features").map(drop).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        },
        clocksources: read(CLOCKSOURCES).split_whitespace().map(str::to_owned).collect(),
        fair_server: debugfs.as_ref().ok().and_then(fair_server),
        trace_levels: calibration.own_levels,
        idle_traced: calibration.idle_seen,
        btf: has_btf(),
        rt_group_sched: match &controller {
            Controller::V1(root) => root.join("cpu.rt_runtime_us").exists(),
            _ => false,
        },
        cgroup_cpu: place_of_groups(&controller),
        sched_ext: sched_ext_state.is_some(),
        sched_ext_state,
        first_pid_namespace,
        rt_priority_max: if caps.sys_nice { 99 } else { rt_limit() },
        ring_kib: (!caps.ipc_lock)
            .then(|| number("/proc/sys/kernel/perf_event_mlock_kb").unwrap_or(516)),
        load_percent: load_percent(&read("/proc/loadavg")),
        steal_permille: steal_permille(&read("/proc/stat")),
        surroundings: surroundings(),
        caps,
        machine,
    }
}

/// Reads how long the fair server of CPU 0 may run, and in which period.
fn fair_server(debugfs: &PseudoFs) -> Option<(Ns, Ns)> {
    let setting = |file: &str| debugfs.read(file).ok()?.trim().parse().ok().map(Ns);
    setting("sched/fair_server/cpu0/runtime").zip(setting("sched/fair_server/cpu0/period"))
}

/// Says where groups of CPU time live, as [`Capabilities::cgroup_cpu`] has it.
fn place_of_groups(controller: &Controller) -> String {
    match controller {
        Controller::V1(root) => format!("v1 {}", root.display()),
        Controller::V2(root) => format!("v2 {}", root.display()),
        Controller::Absent => "none".to_owned(),
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn number<T: std::str::FromStr>(path: &str) -> Option<T> {
    read(path).trim().parse().ok()
}

fn rt_limit() -> u8 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Rtprio);
    limit.current.map_or(99, |most| most.min(99) as u8)
}

/// "0.67 0.69 0.41 2/90 123" → 67.
fn load_percent(text: &str) -> u64 {
    let minute = text.split(' ').next().unwrap_or_default();
    let (whole, hundredths) = minute.split_once('.').unwrap_or((minute, "0"));
    whole.parse::<u64>().unwrap_or(0) * 100 + hundredths.parse::<u64>().unwrap_or(0)
}

/// The eighth number of the first line of /proc/stat against the sum of all (guest time is part of
/// user).
fn steal_permille(text: &str) -> u64 {
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
    match (ticks.get(7), ticks.iter().sum()) {
        (Some(steal), sum @ 1..) => steal * 1000 / sum,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_capabilities_and_counters() {
        let root = Caps::of_status("CapEff:\t000001fffeffffff\n");
        assert!(root.sys_admin && root.perfmon && root.bpf && root.sys_nice && root.ipc_lock);
        assert_eq!(Caps::of_status("CapEff:\t0000000000000000\n"), Caps::default());
        assert!(Caps::of_status("CapEff:\t0000004000000000\n").perfmon);
        assert_eq!(load_percent("1.07 0.69 0.41 2/90 123\n"), 107);
        assert_eq!(steal_permille("cpu 100 0 100 700 0 0 0 100 0 0\ncpu0 1\n"), 100);
        assert_eq!(steal_permille(""), 0);
    }

    #[test]
    fn probing_works_for_every_user() {
        let found = probe();
        assert_eq!(found.backends.len(), Backend::ALL.len());
        assert!(found.machine.hz > 0);
    }
}
