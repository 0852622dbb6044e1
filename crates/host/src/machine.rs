//! The machine and its kernel: topology, tick, and the scheduler's settings.

use crate::facts::MachineFacts;
use crate::proc::{default_slice, value};
use crate::tracefs::PseudoFs;
use rustix::time::{ClockId, clock_getres};
use schedlab_model::{CpuId, CpuPlace, CpuSet, MAX_CPUS, Ns, Topology};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Reads everything that is readable; what is not is left out.
pub fn machine() -> MachineFacts {
    let uname = rustix::system::uname();
    let cpuinfo = read("/proc/cpuinfo");
    let online = cpu_list("/sys/devices/system/cpu/online").unwrap_or_else(|| CpuSet::first(1));
    let stolen = crate::proc::steal().iter().any(|&(_, ns)| ns > 0);
    let field =
        |key| value(&cpuinfo, key).map(|text| text.trim_start_matches([':', ' ', '\t']).to_owned());
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    MachineFacts {
        kernel: uname.release().to_string_lossy().into_owned(),
        version: uname.version().to_string_lossy().into_owned(),
        arch: uname.machine().to_string_lossy().into_owned(),
        model: field("model name").unwrap_or_default(),
        hz: tick_hz(),
        topology: topology(&online),
        online,
        memory_mib: value(&read("/proc/meminfo"), "MemTotal:")
            .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
            .map_or(0, |kib| kib / 1024),
        virtual_machine: stolen || flags.split(' ').any(|flag| flag == "hypervisor"),
        boot_id: read("/proc/sys/kernel/random/boot_id").trim().to_owned(),
        knobs: knobs(&online),
    }
}

/// Returns whether the CPUs are emulated instruction by instruction: QEMU's TCG names itself in the
/// hypervisor's leaf of CPUID (0x40000000, target/i386/cpu.c). Always false on other architectures,
/// where there is no such word.
pub fn is_emulated() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // Where there is no hypervisor this leaf is that of the CPU's highest basic one: no text.
        let leaf = std::arch::x86_64::__cpuid(0x4000_0000);
        let text: Vec<u8> =
            [leaf.ebx, leaf.ecx, leaf.edx].iter().flat_map(|word| word.to_le_bytes()).collect();
        text == b"TCGTCGTCGTCG"
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Ticks a second. The coarse clock advances once per tick, so its resolution is the tick's length.
pub(crate) fn tick_hz() -> u32 {
    let tick = clock_getres(ClockId::MonotonicCoarse);
    let ns = u32::try_from(tick.tv_nsec).unwrap_or(0).max(1);
    (1_000_000_000 + ns / 2) / ns
}

pub(crate) fn cpu_list(path: &str) -> Option<CpuSet> {
    read(path).trim().parse().ok()
}

/// Places by `/sys/devices/system/cpu`. CPUs that are off line sit where the last one before them
/// sits.
fn topology(online: &CpuSet) -> Topology {
    let count = online.iter().last().map_or(1, |last| last.index() + 1).min(MAX_CPUS);
    let mut sockets = Numbering::default();
    let mut llcs = Numbering::default();
    let mut cores = Numbering::default();
    let nodes = nodes(count);
    let mut places: Vec<CpuPlace> = Vec::with_capacity(count);
    for (cpu, &node) in nodes.iter().enumerate() {
        let base = format!("/sys/devices/system/cpu/cpu{cpu}");
        if !online.contains(CpuId::from(cpu)) {
            let before =
                places.last().copied().unwrap_or(CpuPlace { socket: 0, node: 0, llc: 0, core: 0 });
            // No thread of another core: which one is its own the system does not say.
            places.push(CpuPlace { core: cores.number(&format!("of {cpu}")), ..before });
            continue;
        }
        let package = read(format!("{base}/topology/physical_package_id"));
        let siblings = read(format!("{base}/topology/thread_siblings_list"));
        let core = if siblings.trim().is_empty() { cpu.to_string() } else { siblings };
        places.push(CpuPlace {
            socket: sockets.number(&package),
            node,
            llc: llcs.number(&last_level_cache(&base).unwrap_or_else(|| package.clone())),
            core: cores.number(&core),
        });
    }
    Topology::from_places(places)
}

/// Gives equal texts equal numbers, from 0 in the order of their first use.
#[derive(Default)]
struct Numbering(Vec<String>);

impl Numbering {
    fn number(&mut self, text: &str) -> u32 {
        let at = self.0.iter().position(|known| known == text).unwrap_or_else(|| {
            self.0.push(text.to_owned());
            self.0.len() - 1
        });
        at as u32
    }
}

/// The CPUs that share this CPU's highest-level cache, as text.
fn last_level_cache(base: &str) -> Option<String> {
    let mut best: Option<(u32, String)> = None;
    for index in 0..8 {
        let cache = format!("{base}/cache/index{index}");
        let Ok(level) = read(format!("{cache}/level")).trim().parse::<u32>() else { continue };
        let shared = read(format!("{cache}/shared_cpu_list"));
        if best.as_ref().is_none_or(|(highest, _)| level > *highest) {
            best = Some((level, shared));
        }
    }
    best.map(|(level, shared)| format!("{level}:{}", shared.trim()))
}

fn nodes(count: usize) -> Vec<u32> {
    let mut nodes = vec![0; count];
    for node in 0..64 {
        let Some(cpus) = cpu_list(&format!("/sys/devices/system/node/node{node}/cpulist")) else {
            continue;
        };
        cpus.iter().filter(|cpu| cpu.index() < count).for_each(|cpu| nodes[cpu.index()] = node);
    }
    nodes
}

/// Files below /proc/sys/kernel that decide scheduling.
const SYSCTLS: [&str; 12] = [
    "sched_rt_runtime_us",
    "sched_rt_period_us",
    "sched_rr_timeslice_ms",
    "sched_autogroup_enabled",
    "sched_cfs_bandwidth_slice_us",
    "sched_child_runs_first",
    "sched_deadline_period_max_us",
    "sched_deadline_period_min_us",
    "sched_energy_aware",
    "sched_util_clamp_min",
    "sched_util_clamp_max",
    "timer_migration",
];

/// Files of debugfs `sched/`, which lockdown or permissions may hide. Up to Linux 5.12 they were
/// sysctls (CONFIG_SCHED_DEBUG), `features` the file `sched_features` of debugfs.
const DEBUG: [&str; 9] = [
    "base_slice_ns",
    "latency_ns",
    "min_granularity_ns",
    "wakeup_granularity_ns",
    "migration_cost_ns",
    "nr_migrate",
    "tunable_scaling",
    "features",
    "preempt",
];

/// Boot options that decide scheduling and show nowhere else.
const BOOT: [&str; 1] = ["sched_vcpu_pack"];

/// What `/proc/cmdline` says about an option; the last word counts.
fn boot_option<'a>(line: &'a str, name: &str) -> &'a str {
    let words = line.split_whitespace().take_while(|word| *word != "--");
    words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('=')).last().unwrap_or("")
}

fn knobs(online: &CpuSet) -> Vec<(String, String)> {
    let mut knobs = Vec::new();
    let mut add = |name: &str, text: &str| {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if !text.is_empty() {
            knobs.push((name.to_owned(), text));
        }
    };
    for name in SYSCTLS {
        add(name, &read(format!("/proc/sys/kernel/{name}")));
    }
    if let Ok(debugfs) = PseudoFs::detached("debugfs") {
        for name in DEBUG {
            add(name, &debug_setting(name, |path| debugfs.read(path).ok(), &|path| read(path)));
        }
        for cpu in online.iter().take(1) {
            for name in ["runtime", "period"] {
                let text = debugfs
                    .read(&format!("sched/fair_server/cpu{}/{name}", cpu.0))
                    .unwrap_or_default();
                add(&format!("fair_server_{name}_ns"), &text);
            }
        }
        let debug = debugfs.read("sched/debug").unwrap_or_default();
        let own_files: Vec<String> = DEBUG.iter().map(|name| (*name).to_owned()).collect();
        for (name, text) in debug_settings(&debug) {
            // Lockdown hides the files of single settings, but not this summary.
            if !own_files.contains(&name) || debugfs.read(&format!("sched/{name}")).is_err() {
                add(&name, &text);
            }
        }
    }
    let boot = read("/proc/cmdline");
    for name in BOOT {
        add(name, boot_option(&boot, name));
    }
    if let Some(slice) = default_slice() {
        add("slice_of_a_new_task_ns", &slice.to_string());
    }
    for (name, path) in [
        ("isolated_cpus", "/sys/devices/system/cpu/isolated"),
        ("nohz_full", "/sys/devices/system/cpu/nohz_full"),
        ("smt", "/sys/devices/system/cpu/smt/control"),
        ("governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        ("idle_governor", "/sys/devices/system/cpu/cpuidle/current_governor"),
        ("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ] {
        add(name, &read(path));
    }
    let of_cpu = |cpu: CpuId| format!("/sys/devices/system/cpu/cpu{}/cpu_capacity", cpu.0);
    add(UNEQUAL, &unequal(online, |cpu| read(of_cpu(cpu))));
    knobs
}

/// Name of the setting that says how fast CPUs are that are not equally fast.
const UNEQUAL: &str = "cpu_capacity";

/// CPUs by their capacity, where they differ: "446 on 0-3, 1024 on 4-7"
/// (`drivers/base/arch_topology.c`: 1024 is the fastest; on arm64 and riscv). Empty where all are
/// alike, and where the kernel does not say so.
fn unequal(online: &CpuSet, file: impl Fn(CpuId) -> String) -> String {
    let mut by_capacity: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for cpu in online.iter() {
        let Ok(capacity) = file(cpu).trim().parse() else { return String::new() };
        by_capacity.entry(capacity).or_insert(CpuSet::EMPTY).insert(cpu);
    }
    if by_capacity.len() < 2 {
        return String::new();
    }
    let parts = by_capacity.iter().map(|(capacity, cpus)| format!("{capacity} on {cpus}"));
    parts.collect::<Vec<_>>().join(", ")
}

/// A setting of [`DEBUG`], wherever this kernel has it: `debugfs` reads below debugfs, `file` a
/// whole path (empty: there is none).
fn debug_setting(
    name: &str,
    debugfs: impl Fn(&str) -> Option<String>,
    file: &dyn Fn(String) -> String,
) -> String {
    let older = || match name {
        "features" => debugfs("sched_features").unwrap_or_default(),
        _ => file(format!("/proc/sys/kernel/sched_{name}")),
    };
    debugfs(&format!("sched/{name}")).unwrap_or_else(older)
}

/// What real-time threads may have of each second (`sched_rt_runtime_us`, scaled to its period);
/// `None`: no limit.
pub fn rt_runtime() -> Option<Ns> {
    let of = |name: &str| read(format!("/proc/sys/kernel/{name}")).trim().parse::<i64>().ok();
    let (runtime, period) =
        (of("sched_rt_runtime_us")?, of("sched_rt_period_us").filter(|period| *period > 0)?);
    (runtime >= 0 && runtime < period)
        .then(|| Ns((runtime as u128 * 1_000_000_000 / period as u128) as u64))
}

/// The settings that `sched/debug` prints at its top, under the names of their own files:
/// `.sysctl_sched_base_slice : 1.400000` (milliseconds) is `base_slice_ns`.
fn debug_settings(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| {
            let (name, value) = line.trim().strip_prefix(".sysctl_sched_")?.split_once(':')?;
            let (name, value) = (name.trim(), value.trim());
            match name {
                "features" => Some(("features_bits".to_owned(), value.to_owned())),
                "tunable_scaling" => Some((name.to_owned(), value.split(' ').next()?.to_owned())),
                _ => Some((format!("{name}_ns"), milliseconds(value)?.to_string())),
            }
        })
        .collect()
}

/// "1.400000" → 1,400,000 ns.
fn milliseconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    let part = part.get(..6).filter(|part| part.len() == 6)?;
    Some(whole.parse::<u64>().ok()? * 1_000_000 + part.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_plausible() {
        let facts = machine();
        assert!([100, 250, 300, 1000].contains(&facts.hz), "{}", facts.hz);
        assert!(facts.topology.cpus() >= facts.online.count());
        assert!(!facts.kernel.is_empty());
        assert!(facts.memory_mib > 16);
    }

    #[test]
    fn a_cpu_that_is_off_line_is_beside_no_other() {
        let last = *machine().online.iter().collect::<Vec<_>>().last().expect("this runs");
        let only = topology(&CpuSet::single(last));
        assert_eq!(only.siblings(last), [], "{only:?}");
    }

    #[test]
    fn unequal_cpus_are_told_by_their_capacity() {
        let of = |little: u32| {
            let cpus = CpuSet::first(6);
            unequal(&cpus, |cpu| format!("{}\n", if cpu.0 < little { 446 } else { 1024 }))
        };
        assert_eq!(of(4), "446 on 0-3, 1024 on 4-5");
        assert_eq!((of(0), of(6)), (String::new(), String::new()), "all are alike");
        assert_eq!(
            unequal(&CpuSet::first(2), |_| String::new()),
            "",
            "the kernel has no such file"
        );
    }

    #[test]
    fn reads_boot_options() {
        let line =
            "quiet sched_vcpu_pack=3 sched_vcpu_packs=7 sched_vcpu_pack=15 -- sched_vcpu_pack=1";
        assert_eq!(boot_option(line, "sched_vcpu_pack"), "15");
        assert_eq!(boot_option("quiet", "sched_vcpu_pack"), "");
    }

    #[test]
    fn settings_are_found_where_older_kernels_have_them() {
        // As of 5.10: no folder sched/ in debugfs.
        let debugfs = |path: &str| {
            (path == "sched_features").then(|| "GENTLE_FAIR_SLEEPERS NO_HRTICK".to_owned())
        };
        let file = |path: String| {
            if path == "/proc/sys/kernel/sched_latency_ns" {
                "18000000\n".to_owned()
            } else {
                String::new()
            }
        };
        assert_eq!(debug_setting("latency_ns", debugfs, &file), "18000000\n");
        assert_eq!(debug_setting("features", debugfs, &file), "GENTLE_FAIR_SLEEPERS NO_HRTICK");
        assert_eq!(debug_setting("preempt", debugfs, &file), "");
        // Since 5.13 the files of debugfs count.
        let debugfs = |path: &str| (path == "sched/latency_ns").then(|| "24000000".to_owned());
        assert_eq!(debug_setting("latency_ns", debugfs, &file), "24000000");
    }

    #[test]
    fn reads_the_settings_of_sched_debug() {
        let text =
            "Sched Debug Version: v0.11\nsysctl_sched\n  .sysctl_sched_base_slice            : \
             1.400000
  .sysctl_sched_features              : 99674079\n  .sysctl_sched_tunable_scaling       : 1 \
  (logarithmic)\n";
        let expected =
            [("base_slice_ns", "1400000"), ("features_bits", "99674079"), ("tunable_scaling", "1")];
        assert_eq!(
            debug_settings(text),
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert_eq!(milliseconds("24.000001"), Some(24_000_001));
        assert_eq!(milliseconds("24"), None);
    }
}
