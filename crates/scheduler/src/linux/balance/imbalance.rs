//! Load balancing, the decision: which group of CPUs has too much, and how much should move here.
//!
//! Nothing is changed here; `balance` acts. Groups are compared in ring order starting with the
//! balancing CPU's own one, CPUs in ascending number; the first of equals is taken, except where a
//! rule says otherwise.
//!
//! | rule | where the real system has it | here | test |
//! |---|---|---|---|
//! | classes has-spare, fully-busy, imbalanced, overloaded | `group_classify` | modelled (no misfit, no asym packing) | `hogs_beyond_the_cpus_overload_a_group` |
//! | busiest group: highest class, then load / fewest idle | `update_sd_pick_busiest` | modelled | `the_fuller_group_is_busiest` |
//! | only overloaded groups have an average; of busy ones the last is taken since 6.5, the first before | `update_sg_lb_stats`, `update_sd_pick_busiest` (6.1.192, 6.12.117, 7.2.13) | modelled | no test of its own |
//! | overloaded: 117 % of the local average, above the total average | `find_busiest_group` | modelled | `a_small_difference_is_left_alone` |
//! | siblings preferred: difference of more than 1 task | same; per core since 6.6 | modelled | `siblings_share_tasks` |
//! | how much: tasks, use or load | `calculate_imbalance` | modelled | `half_the_difference_moves` |
//! | busiest CPU of the group; by use tasks that wait count since 6.5 | `find_busiest_queue`, `cpu_util_cfs_boost` | modelled | same, `tasks_go_where_a_real_kernel_put_them` |
//! | a group is as large as it is when CPUs with pinned tasks are left out | `group_weight`, `sgc->capacity` | modelled | `a_group_stays_as_large_as_it_is` |
//! | who balances: first idle CPU of the group, idle cores first (6.6+), else the first CPU | `should_we_balance` | modelled | `only_one_cpu_of_a_group_balances` |
//! | length of searches for idle CPUs from the use of the LLC | `update_idle_cpu_scan` (5.19+) | modelled | `searches_shorten_with_the_square_of_use` |
//! | small NUMA imbalance allowed | `adjust_numa_imbalance` | modelled | `nodes_keep_small_differences` |
//! | fault: groups are compared by mean load, idle CPUs or not | from 2.6.38 on | `defects.GROUP_IMBALANCE`: a condition more | `d3_12_group_imbalance` |
//! | SMT-only groups beside single threads (`group_smt_balance`, 6.6+), energy, misfit, asym packing | – | omitted | – |

use crate::linux::balance::domains::{Domain, Domains, Group, Level};
use crate::linux::balance::placement::Kind;
use crate::linux::core::cpu_summary::{Averages, CpuSummary};
use crate::linux::fair::pelt::{Moment, SCALE};
use schedlab_model::{CpuId, CpuSet, Ns};

/// Why a CPU balances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) enum Idle {
    /// It has work: periodic balance at a tick.
    No,
    /// It is idle: balance on behalf of idle CPUs.
    Yes,
    /// It is about to become idle.
    New,
}

/// What should move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) enum Amount {
    /// So many tasks.
    Tasks(u64),
    /// Tasks with so much use, in 1/1024 of a CPU.
    Util(u64),
    /// Tasks with so much load.
    Load(u64),
}

/// The question: what should move to `cpu` within one domain.
#[derive(Clone, Copy)]
pub(in crate::linux) struct Ask<'a> {
    pub(in crate::linux) summary: &'a CpuSummary,
    pub(in crate::linux) domains: &'a Domains,
    pub(in crate::linux) domain: &'a Domain,
    /// Index of the CPU's own group.
    pub(in crate::linux) local: usize,
    pub(in crate::linux) cpu: CpuId,
    pub(in crate::linux) idle: Idle,
    pub(in crate::linux) now: Ns,
    /// Another CPU asked at this very time: what each average comes to is kept for the next one.
    pub(in crate::linux) again: bool,
    /// CPUs to be considered: online, and not found to hold only pinned tasks.
    pub(in crate::linux) cpus: &'a CpuSet,
    /// Those of the domain that are online: a group stays as large as it is (`group_weight`,
    /// `sgc->capacity`) when a part of it is not considered.
    pub(in crate::linux) online: &'a CpuSet,
    /// The domain below reported that affinity prevented balance inside this group.
    pub(in crate::linux) pinned_below: &'a dyn Fn(usize) -> bool,
    /// The rules of 6.6 and later, which look at cores.
    pub(in crate::linux) by_core: bool,
    /// The fault that only mean loads count above the caches.
    pub(in crate::linux) mean_only: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stats {
    kind: Kind,
    cpus: u64,
    cores: u64,
    capacity: u64,
    load: u64,
    util: u64,
    runnable: u64,
    /// Tasks of all classes.
    tasks: u64,
    /// Fair tasks.
    fair: u64,
    idle: u64,
    average: u64,
}

impl Ask<'_> {
    /// Whether this CPU is the one of its group that balances.
    pub(in crate::linux) fn is_ours(&self) -> bool {
        if self.idle == Idle::New {
            return true;
        }
        let mut group = self.domain.groups[self.local].cpus.and(self.cpus);
        let whole = group;
        let mut idle_thread = None;
        for cpu in whole.iter() {
            if !group.contains(cpu) || !self.summary.idle(cpu) {
                continue;
            }
            let threads = &self.domains.smt[cpu.index()];
            let core_idle = threads.iter().all(|thread| self.summary.idle(thread));
            if self.by_core && self.domain.level != Level::Smt && !core_idle {
                idle_thread = idle_thread.or(Some(cpu));
                threads.iter().for_each(|thread| group.remove(thread));
                continue;
            }
            return cpu == self.cpu;
        }
        match idle_thread {
            Some(cpu) => cpu == self.cpu,
            None => whole.lowest() == Some(self.cpu),
        }
    }

    /// The busiest CPU and what should move from it; `None` = balanced.
    pub(in crate::linux) fn busiest(&self) -> Option<(CpuId, Amount)> {
        // A CPU that becomes idle and shares a cache with the others compares numbers of tasks and
        // of idle CPUs: its own group has room, and how long searches may be is not noted.
        let by_count = self.idle == Idle::New && self.domain.level <= Level::Mc;
        let (group, amount) = self.busiest_group(by_count)?;
        let from = self.busiest_cpu(group, amount)?;
        (from != self.cpu).then_some((from, amount))
    }

    /// How many tasks and CPUs there are in a group, as if it had room.
    #[inline]
    fn counts(&self, group: &Group) -> Stats {
        let mut stats = Stats { cores: group.cores, ..Stats::default() };
        group.for_each_within(self.cpus, |cpu| {
            let (tasks, fair, idle) = self.summary.counts(cpu);
            stats.cpus += 1;
            stats.tasks += tasks;
            stats.fair += fair;
            stats.idle += u64::from(idle);
        });
        stats
    }

    /// No CPU of the domain that is online is left out.
    #[inline]
    fn is_whole(&self) -> bool {
        std::ptr::eq(self.cpus, self.online) || self.cpus == self.online
    }

    /// What there is in a group; `remote` is its index when it is not the own one. `by_count`: a
    /// group with fewer tasks than CPUs has room, and no average of it is asked for.
    #[inline(always)]
    fn stats(&self, group: &Group, remote: Option<usize>, by_count: bool, now: Moment) -> Stats {
        match group.only() {
            Some(cpu) if self.cpus.contains(cpu) => self.stats_of_one(cpu, remote, by_count, now),
            _ => self.stats_of_many(group, remote, by_count, now),
        }
    }

    /// The same of a group that is one CPU, as on large machines most are. That CPU is considered,
    /// so nothing of the group is left out.
    #[inline(always)]
    fn stats_of_one(
        &self,
        cpu: CpuId,
        remote: Option<usize>,
        by_count: bool,
        now: Moment,
    ) -> Stats {
        let (tasks, fair, idle) = self.summary.counts(cpu);
        let mut stats =
            Stats { cpus: 1, cores: 1, tasks, fair, idle: u64::from(idle), ..Stats::default() };
        if by_count && tasks < 1 {
            stats.capacity = self.summary.capacity(cpu, self.now);
        } else {
            let averages = self.averages(cpu, now);
            (stats.load, stats.util) = (averages.load, averages.util);
            (stats.runnable, stats.capacity) = (averages.runnable, averages.capacity);
        }
        self.classify(&mut stats, remote);
        stats
    }

    #[inline(always)]
    fn averages(&self, cpu: CpuId, now: Moment) -> Averages {
        if self.again {
            self.summary.averages(cpu, self.now)
        } else {
            self.summary.averages_once(cpu, now)
        }
    }

    #[inline(never)]
    fn stats_of_many(
        &self,
        group: &Group,
        remote: Option<usize>,
        by_count: bool,
        now: Moment,
    ) -> Stats {
        let mut stats = self.counts(group);
        let has_room = by_count && stats.tasks < stats.cpus;
        group.for_each_within(self.cpus, |cpu| {
            if has_room {
                stats.capacity += self.summary.capacity(cpu, self.now);
                return;
            }
            let averages = self.averages(cpu, now);
            stats.load += averages.load;
            stats.util += averages.util;
            stats.runnable += averages.runnable;
            stats.capacity += averages.capacity;
        });
        if !self.is_whole() {
            group.for_each_within(&self.online.without(self.cpus), |cpu| {
                stats.cpus += 1;
                stats.capacity += self.summary.capacity(cpu, self.now);
            });
        }
        self.classify(&mut stats, remote);
        stats
    }

    /// Works out kind and average from the rest.
    #[inline(always)]
    fn classify(&self, stats: &mut Stats, remote: Option<usize>) {
        stats.capacity = stats.capacity.max(1);
        let pct = self.domain.imbalance_pct;
        stats.kind = Kind::classify(
            stats.tasks,
            stats.cpus,
            stats.capacity,
            stats.util,
            stats.runnable,
            pct,
        );
        if stats.kind < Kind::Overloaded && remote.is_some_and(|index| (self.pinned_below)(index)) {
            stats.kind = Kind::Imbalanced;
        }
        if stats.kind == Kind::Overloaded {
            stats.average = stats.load * SCALE / stats.capacity;
        }
    }

    /// Whether `new` is busier than `old`.
    fn busier(&self, new: &Stats, old: &Stats) -> bool {
        if new.fair == 0 || new.kind != old.kind {
            return new.fair > 0 && new.kind > old.kind;
        }
        match new.kind {
            Kind::Overloaded => new.average > old.average,
            // Neither has an average: the first one stays, since 6.5 only if it is a core of
            // several threads.
            Kind::Busy => self.by_core && old.cpus == old.cores,
            Kind::Imbalanced => false,
            Kind::Spare => new.idle < old.idle || (new.idle == old.idle && new.tasks > old.tasks),
        }
    }

    /// `by_count`: see [`stats`](Self::stats).
    fn busiest_group(&self, by_count: bool) -> Option<(usize, Amount)> {
        let two = by_count && self.domain.groups.len() == 2;
        match two.then(|| self.other_of_two()).flatten() {
            Some(found) => found,
            None => self.busiest_of_all(by_count),
        }
    }

    /// The same by all that is known of all groups.
    fn busiest_of_all(&self, by_count: bool) -> Option<(usize, Amount)> {
        let (groups, now) = (&self.domain.groups, Moment::new(self.now));
        let mut local = self.stats(&groups[self.local], None, by_count, now);
        let by_count = by_count && local.tasks < local.cpus;
        let (mut load, mut util, mut capacity) = (local.load, local.util, local.capacity);
        let mut busiest: Option<(usize, Stats)> = None;
        for index in (self.local + 1..groups.len()).chain(0..self.local) {
            let stats = self.stats(&groups[index], Some(index), by_count, now);
            (load, util, capacity) =
                (load + stats.load, util + stats.util, capacity + stats.capacity);
            if stats.fair > 0 && busiest.as_ref().is_none_or(|(_, old)| self.busier(&stats, old)) {
                busiest = Some((index, stats));
            }
        }
        self.note_use(util);
        let (index, there) = busiest?;
        let average = load * SCALE / capacity;
        let mean = |stats: &Stats| stats.load * SCALE / stats.capacity;
        if self.mean_only && self.domain.level > Level::Mc && mean(&there) <= mean(&local) {
            return None;
        }
        if !self.worth_it(&mut local, &there, average) {
            return None;
        }
        self.amount(&mut local, &there, average).map(|amount| (index, amount))
    }

    /// What [`busiest_group`](Self::busiest_group) gives where there is one other group and this
    /// one has room, if the numbers of tasks say it whatever the averages are. `None`: they do not.
    fn other_of_two(&self) -> Option<Option<(usize, Amount)>> {
        let (groups, other) = (&self.domain.groups, 1 - self.local);
        let (mut local, there) = (self.counts(&groups[self.local]), self.counts(&groups[other]));
        if local.tasks >= local.cpus || !self.is_whole() || (self.pinned_below)(other) {
            return None;
        }
        if there.fair == 0 {
            return Some(None);
        }
        // Worth it as if it had room, so also if it has none.
        if self.worth_it(&mut local, &there, 0) {
            return Some(self.amount(&mut local, &there, 0).map(|amount| (other, amount)));
        }
        // Averages could say that it is overloaded only where tasks outnumber CPUs.
        (there.tasks <= there.cpus).then_some(None)
    }

    /// Remembers how far a search for an idle CPU of this LLC may go.
    fn note_use(&self, util: u64) {
        let llc = self.domains.llc[self.cpu.index()].count() as u64;
        if self.idle == Idle::New || self.domain.weight != llc || self.domain.level > Level::Mc {
            return;
        }
        let cpus = scan_length(util, llc, self.domain.imbalance_pct);
        self.summary.set_scan(self.domains.llc_id[self.cpu.index()], cpus as u32);
    }

    /// Difference in tasks between siblings, counted per core since 6.6; 0 when there is nothing to
    /// do.
    fn sibling_difference(&self, local: &Stats, there: &Stats) -> u64 {
        if !self.by_core || there.cores == local.cores {
            return there.tasks.saturating_sub(local.tasks);
        }
        let more = (local.cores * there.tasks).saturating_sub(there.cores * local.tasks);
        let cores = local.cores + there.cores;
        let difference = (2 * more + cores) / cores;
        if difference <= 1 && local.tasks == 0 && there.tasks > 1 { 2 } else { difference }
    }

    fn worth_it(&self, local: &mut Stats, there: &Stats, average: u64) -> bool {
        if there.kind == Kind::Imbalanced {
            return true;
        }
        if local.kind > there.kind {
            return false;
        }
        if local.kind == Kind::Overloaded {
            return local.average < there.average
                && local.average < average
                && 100 * there.average > self.domain.imbalance_pct * local.average;
        }
        let siblings = self.domain.prefer_sibling && !(self.by_core && self.idle == Idle::No);
        if siblings && local.kind == Kind::Spare && self.sibling_difference(local, there) > 1 {
            return true;
        }
        let little = self.idle == Idle::No
            || (there.cpus > 1 && local.idle <= there.idle + 1)
            || there.fair == 1;
        there.kind == Kind::Overloaded || !little
    }

    fn amount(&self, local: &mut Stats, there: &Stats, average: u64) -> Option<Amount> {
        if there.kind == Kind::Imbalanced {
            return Some(Amount::Tasks(1));
        }
        if local.kind == Kind::Spare {
            if there.kind > Kind::Busy && self.domain.level > Level::Mc {
                let room = local.capacity.saturating_sub(local.util);
                if room == 0 {
                    return (self.idle != Idle::No).then_some(Amount::Tasks(1));
                }
                return Some(Amount::Util(room));
            }
            let mut difference = if there.cpus == 1 || self.domain.prefer_sibling {
                self.sibling_difference(local, there)
            } else {
                local.idle.saturating_sub(there.idle)
            };
            if self.domain.level == Level::Numa
                && local.tasks < self.domain.imb_numa_nr
                && difference <= NUMA_DIFFERENCE
            {
                difference = 0;
            }
            return (difference > 1).then_some(Amount::Tasks(difference / 2));
        }
        if local.kind < Kind::Overloaded {
            local.average = local.load * SCALE / local.capacity;
            if local.average >= there.average || local.average >= average {
                return None;
            }
        }
        // Both are unsigned in the kernel: where the busiest group is below the average (it has the
        // highest class, not the highest load), its difference wraps, and the local one alone says
        // how much moves.
        let above = there.average.wrapping_sub(average).wrapping_mul(there.capacity);
        let below = average.wrapping_sub(local.average).wrapping_mul(local.capacity);
        let load = above.min(below) / SCALE;
        (load > 0).then_some(Amount::Load(load))
    }

    fn busiest_cpu(&self, group: usize, amount: Amount) -> Option<CpuId> {
        if let (Some(cpu), Amount::Tasks(_)) = (self.domain.groups[group].only(), amount) {
            return (self.cpus.contains(cpu) && self.summary.fair(cpu) > 0).then_some(cpu);
        }
        let mut best: Option<(CpuId, u64, u64)> = None;
        for cpu in self.domain.groups[group].within(self.cpus) {
            let tasks = self.summary.fair(cpu);
            if tasks == 0 {
                continue;
            }
            let capacity = self.summary.capacity(cpu, self.now);
            let value = match amount {
                Amount::Tasks(_) => tasks,
                Amount::Util(_) if tasks <= 1 => continue,
                // Since 6.5 tasks that wait count (`cpu_util_cfs_boost`), up to a whole CPU.
                Amount::Util(_) if self.by_core => {
                    let averages = self.summary.signals(cpu, self.now);
                    averages.util_avg().max(averages.runnable_avg()).min(SCALE)
                }
                Amount::Util(_) => self.summary.signals(cpu, self.now).util_avg(),
                Amount::Load(limit) => {
                    let load = self.summary.load(cpu, self.now);
                    let free = capacity * self.domain.imbalance_pct >= SCALE * 100;
                    if tasks == 1 && load > limit && free {
                        continue;
                    }
                    load
                }
            };
            // Loads are compared relative to the capacity.
            let more = best.is_none_or(|(_, old, room)| match amount {
                Amount::Load(_) => value * room > old * capacity,
                _ => value > old,
            });
            if value > 0 && more {
                best = Some((cpu, value, capacity));
            }
        }
        best.map(|(cpu, ..)| cpu)
    }
}

/// A difference between nodes that is left alone while the node has few tasks.
const NUMA_DIFFERENCE: u64 = 2;

/// How many of `llc` CPUs a search for an idle one may look at when together they use `util`.
fn scan_length(util: u64, llc: u64, pct: u64) -> u64 {
    let use_of_one = util / llc;
    let square = (use_of_one * use_of_one * pct * pct / (10_000 * SCALE)).min(SCALE);
    (SCALE - square) * llc / SCALE
}

#[cfg(test)]
mod tests;
