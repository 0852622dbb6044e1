//! What else happened on the CPUs meanwhile: `/proc/stat` and `/proc/interrupts`, before and after.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;

/// What one CPU did during a run. Times have the resolution of the kernel's clock tick (usually 10
/// ms).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct CpuUse {
    /// Number of the CPU.
    pub cpu: u32,
    /// Time in user, system, nice, irq and softirq, nanoseconds.
    pub busy_ns: u64,
    /// CPU time of the measuring threads and their wakers there.
    pub own_ns: u64,
    /// `busy_ns` without `own_ns`: other programs' (a load that schedlab itself made counts as
    /// this).
    pub foreign_ns: u64,
    /// Time that the hypervisor gave to other machines.
    pub steal_ns: u64,
    /// Interrupts of all kinds.
    pub interrupts: u64,
}

/// The counters of all CPUs at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// Busy and stolen clock ticks.
    ticks: BTreeMap<u32, (u64, u64)>,
    interrupts: BTreeMap<u32, u64>,
}

impl Account {
    /// Now. What cannot be read is missing.
    pub(crate) fn now() -> Account {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Account::parse(&read("/proc/stat"), &read("/proc/interrupts"))
    }

    fn parse(stat: &str, interrupts: &str) -> Account {
        let mut account = Account { ticks: BTreeMap::new(), interrupts: columns(interrupts) };
        for line in stat.lines() {
            let mut words = line.split_whitespace();
            let cpu = words.next().and_then(|w| w.strip_prefix("cpu")).and_then(|w| w.parse().ok());
            let Some(cpu) = cpu else { continue };
            let values: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            let at = |index: usize| values.get(index).copied().unwrap_or(0);
            // user nice system idle iowait irq softirq steal; guest time is in user already.
            account.ticks.insert(cpu, (at(0) + at(1) + at(2) + at(5) + at(6), at(7)));
        }
        account
    }

    /// What the CPUs in `own` did since `self`; `own` says how much of that CPU time was this
    /// program's.
    pub(crate) fn until(&self, after: &Account, own: &BTreeMap<u32, u64>) -> Vec<CpuUse> {
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        let of = |counters: &Account, cpu| counters.ticks.get(&cpu).copied().unwrap_or_default();
        let interrupts =
            |counters: &Account, cpu| counters.interrupts.get(&cpu).copied().unwrap_or(0);
        let uses = own.iter().map(|(&cpu, &own_ns)| {
            let (before, after_ticks) = (of(self, cpu), of(after, cpu));
            let busy_ns = after_ticks.0.saturating_sub(before.0) * tick;
            CpuUse {
                cpu,
                busy_ns,
                own_ns,
                foreign_ns: busy_ns.saturating_sub(own_ns),
                steal_ns: after_ticks.1.saturating_sub(before.1) * tick,
                interrupts: interrupts(after, cpu).saturating_sub(interrupts(self, cpu)),
            }
        });
        uses.collect()
    }
}

/// Sums of the columns of `/proc/interrupts`, by CPU.
fn columns(text: &str) -> BTreeMap<u32, u64> {
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default().split_whitespace();
    let cpus: Vec<u32> = head.filter_map(|word| word.strip_prefix("CPU")?.parse().ok()).collect();
    let mut sums: BTreeMap<u32, u64> = cpus.iter().map(|&cpu| (cpu, 0)).collect();
    for line in lines {
        let counts: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .map_while(|word| word.parse().ok())
            .take(cpus.len())
            .collect();
        // ERR and MIS have one number for the whole machine.
        if counts.len() == cpus.len() {
            cpus.iter()
                .zip(counts)
                .for_each(|(cpu, count)| *sums.entry(*cpu).or_default() += count);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let before = Account::parse(
            "cpu  9 9 9 9\ncpu0 10 1 2 500 3 4 5 6 0 0\ncpu3 0 0 0 0\n",
            "      CPU0  CPU3\n 0:  5  7 timer\nERR: 3\nLOC: 10 20 Local timer\n",
        );
        let after = Account::parse(
            "cpu0 20 2 4 900 3 5 6 9 7 0\ncpu3 1 0 0 0\nintr 5\n",
            "      CPU0  CPU3\n 0:  6  7 timer\nERR: 4\nLOC: 30 25 Local timer\n",
        );
        let uses = before.until(&after, &BTreeMap::from([(0, 40_000_000), (3, 20_000_000)]));
        // 10 + 1 + 2 + 1 + 1 = 15 ticks of 10 ms.
        let first = CpuUse {
            cpu: 0,
            busy_ns: 150_000_000,
            own_ns: 40_000_000,
            foreign_ns: 110_000_000,
            steal_ns: 30_000_000,
            interrupts: 21,
        };
        assert_eq!(uses[0], first);
        assert_eq!((uses[1].busy_ns, uses[1].foreign_ns, uses[1].interrupts), (10_000_000, 0, 5));
    }

    #[test]
    fn nonsense_is_nothing() {
        let account = Account::parse("cpu\ncpux 1\n\n", "");
        assert!(account.ticks.is_empty() && account.interrupts.is_empty());
    }
}
