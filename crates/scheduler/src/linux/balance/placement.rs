//! Which CPU a fair task is queued on when it wakes or is created.
//!
//! A wakeup first chooses between the waker's CPU and the task's last one (`wake_affine`), then
//! looks for an idle CPU near the chosen one (`select_idle_sibling`). A new task walks down the
//! domains to the idlest CPU. Ties: CPUs are scanned in ascending number starting after the target
//! (wakeup), groups in ring order starting with the own one (fork); the first of equals wins, of
//! idle CPUs the one that became idle last.
//!
//! | rule | where the real system has it | here | test |
//! |---|---|---|---|
//! | a waker with many partners does not pull its wakees | `wake_wide` | modelled | `many_to_many_partners_do_not_pull` |
//! | waker's CPU or last CPU | `wake_affine_idle`, `wake_affine_weight` | modelled | `waker_and_wakee_meet_where_section_4_7_says` |
//! | target, last, recently used CPU if idle | `select_idle_sibling` | modelled | same |
//! | idle thread of the last CPU's core, idle core, idle CPU | `select_idle_smt/_core/_cpu` | modelled | `idle_cores_come_first` |
//! | the search is cut short in a busy LLC | `SIS_UTIL` (5.19+) | modelled | `a_busy_cache_is_not_searched` |
//! | the load of a task that wakes is what it was when it fell asleep | `task_h_load`, `wake_affine_weight` | modelled | `tasks_go_where_a_real_kernel_put_them` |
//! | a new task has used its parent's CPU recently, and wakes as its parent did | `wake_up_new_task`, `dup_task_struct` | modelled | `a_new_task_has_its_parents_past` |
//! | CPUs with only SCHED_IDLE tasks count as idle | 5.4+ | modelled | `cpu_summary` |
//! | but not for a SCHED_IDLE task | `choose_sched_idle_rq`, 7.1+ (commit fd54d81c2c0e) | modelled | `a_sched_idle_task_prefers_a_cpu_that_idles` |
//! | new tasks: idlest group, idlest CPU, level by level | `find_idlest_cpu` | modelled | `forks_spread_over_sockets` |
//! | from an isolated CPU: a wakee stays, a new task stays with its parent; where it may not, the first allowed CPU of the node, then of all | `select_task_rq_fair` without domains, `select_fallback_rq` | modelled | `isolated_cpus_keep_their_tasks` |
//! | a task that executes another program goes to the idlest CPU, as a new one does, without its own load | `sched_exec`, `find_idlest_cpu` with `cpu_load_without`, `idle_cpu_without` | modelled | `tasks_go_where_a_real_kernel_put_them` |
//! | clusters, energy-aware placement, core scheduling, unequal capacity, depth of idle states | – | omitted | – |
//! | remote wakeups by wake list and IPI | `TTWU_QUEUE` | the driver's business | – |

use crate::linux::balance::domains::{Domain, Domains, Group, Level, Link, wrap};
use crate::linux::balance::packing::Estimates;
use crate::linux::core::cpu_summary::CpuSummary;
use crate::linux::fair::pelt::SCALE;
use crate::linux::tunables::SmpTunables;
use schedlab_model::{CpuId, CpuSet, Ns, WORDS};

/// Remembered by each task for placement.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, packed(4))]
pub(in crate::linux) struct Partners {
    /// A CPU that it ran on before the last one; `u32::MAX` = none.
    pub(in crate::linux) recent_cpu: u32,
    /// The task that it woke last; `u32::MAX` = none.
    last_wakee: u32,
    /// How often it woke another task than the time before; halved every second.
    flips: u32,
    /// When `flips` was halved last.
    halved: Ns,
}

impl Partners {
    /// Of a new task.
    pub(in crate::linux) fn new() -> Partners {
        Partners { last_wakee: u32::MAX, recent_cpu: u32::MAX, ..Partners::default() }
    }
    /// Of a new task whose parent, which has these, is on `cpu`: `dup_task_struct` copies them, and
    /// `wake_up_new_task` notes the CPU.
    pub(in crate::linux) fn of_child(&self, cpu: CpuId) -> Partners {
        Partners { recent_cpu: cpu.0, ..*self }
    }
    /// This task wakes `wakee` at `now`. Gives how often it changed its partner lately.
    pub(in crate::linux) fn woke(&mut self, wakee: u32, now: Ns) -> u32 {
        if now > self.halved + Ns::from_s(1) {
            self.flips >>= 1;
            self.halved = now;
        }
        if self.last_wakee != wakee {
            self.last_wakee = wakee;
            self.flips = self.flips.saturating_add(1);
        }
        self.flips
    }
    /// How often it changed its partner lately.
    pub(in crate::linux) fn flips(&self) -> u32 {
        self.flips
    }
}

/// Where the decision is made and what may be read for it.
#[derive(Clone, Copy)]
pub(in crate::linux) struct Placement<'a> {
    pub(in crate::linux) summary: &'a CpuSummary,
    pub(in crate::linux) domains: &'a Domains,
    pub(in crate::linux) estimates: &'a Estimates,
    pub(in crate::linux) now: Ns,
    /// Where the task may run, online CPUs only; not empty.
    pub(in crate::linux) allowed: &'a CpuSet,
    /// Whether a CPU with only SCHED_IDLE tasks counts as idle for the task.
    pub(in crate::linux) beside_idle: bool,
    /// A task that runs, and is not counted where it does.
    pub(in crate::linux) without: Option<Own>,
    pub(in crate::linux) t: &'a SmpTunables,
}

/// What a running task adds to the averages of its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) struct Own {
    pub(in crate::linux) cpu: CpuId,
    pub(in crate::linux) load: u64,
    pub(in crate::linux) util: u64,
    pub(in crate::linux) runnable: u64,
}

/// A wakeup that looks for a CPU.
#[derive(Clone, Copy, Debug)]
pub(in crate::linux) struct Wakeup {
    /// The CPU on which the waker runs.
    pub(in crate::linux) this: CpuId,
    /// Where the wakee ran last.
    pub(in crate::linux) prev: CpuId,
    /// Average load of the wakee.
    pub(in crate::linux) load: u64,
    /// What it uses of a CPU on average, 0 to 1024; 0 where it is not asked for.
    pub(in crate::linux) util: u64,
    /// The wakee's `recent_cpu`.
    pub(in crate::linux) recent: u32,
    /// The wakee's flips.
    pub(in crate::linux) flips: u32,
    /// The waker, when a task's doing.
    pub(in crate::linux) waker: Option<WakerFacts>,
    /// The waker is about to block.
    pub(in crate::linux) sync: bool,
}

/// The task that wakes.
#[derive(Clone, Copy, Debug)]
pub(in crate::linux) struct WakerFacts {
    pub(in crate::linux) flips: u32,
    /// Average load.
    pub(in crate::linux) load: u64,
}

/// What came of a wakeup's look for a CPU.
#[derive(Clone, Copy, Debug)]
pub(in crate::linux) struct Choice {
    pub(in crate::linux) cpu: CpuId,
    /// Target and last CPU were busy, so the wakee's `recent_cpu` was looked at; its last CPU takes
    /// that place (`select_idle_sibling` since 5.17).
    pub(in crate::linux) asked_recent: bool,
}

impl Placement<'_> {
    /// The CPU for a wakeup.
    #[cfg(test)]
    pub(in crate::linux) fn wake(&self, wakeup: &Wakeup) -> CpuId {
        self.choose(wakeup).cpu
    }

    /// The CPU for a wakeup, and how it was found.
    pub(in crate::linux) fn choose(&self, wakeup: &Wakeup) -> Choice {
        if let Some(cpu) = self.packed_wakee(wakeup) {
            return Choice { cpu, asked_recent: false };
        }
        let mut target = wakeup.prev;
        if wakeup.this != wakeup.prev && self.allowed.contains(wakeup.this) && !self.wide(wakeup) {
            let affine =
                self.domains.chain(wakeup.this).find(|(d, _)| d.span.contains(wakeup.prev));
            if let Some((domain, _)) = affine {
                target = self.affine(domain, wakeup);
            }
        }
        let (cpu, asked_recent) = match self.idle_target(wakeup, target) {
            Some(cpu) => (cpu, false),
            None => (self.idle_sibling(wakeup, target), true),
        };
        Choice { cpu: self.nearest(cpu), asked_recent }
    }

    /// Both partners change their partners often: keep them apart.
    fn wide(&self, wakeup: &Wakeup) -> bool {
        let factor = self.domains.llc[wakeup.this.index()].count() as u64;
        let waker = wakeup.waker.map_or(0, |w| w.flips);
        let (more, less) = (u64::from(waker.max(wakeup.flips)), u64::from(waker.min(wakeup.flips)));
        less >= factor && more >= less * factor
    }

    /// The waker's CPU or the last one, before looking for an idle one.
    fn affine(&self, domain: &Domain, wakeup: &Wakeup) -> CpuId {
        let (this, prev) = (wakeup.this, wakeup.prev);
        if self.t.wa_idle && self.summary.idle(this) && self.domains.share_cache(this, prev) {
            return if self.summary.idle(prev) { prev } else { this };
        }
        if self.t.wa_idle && wakeup.sync && self.summary.awake(this) == 1 {
            return this;
        }
        if (self.t.wa_idle && self.summary.idle(prev)) || !self.t.wa_weight {
            return prev;
        }
        let mut here = self.summary.load(this, self.now);
        if wakeup.sync {
            let waker = wakeup.waker.map_or(0, |w| w.load);
            if waker > here {
                return this;
            }
            here -= waker;
        }
        let capacity = |cpu| self.summary.capacity(cpu, self.now);
        let (ours, theirs) =
            if self.t.wa_bias { (100, 100 + (domain.imbalance_pct - 100) / 2) } else { (1, 1) };
        let here = (here + wakeup.load) * ours * capacity(prev);
        // The kernel's is signed: the wakee may weigh more than what is there.
        let there = self.summary.load(prev, self.now) as i64 - wakeup.load as i64;
        let there = there * (theirs * capacity(this)) as i64 + i64::from(wakeup.sync);
        if (here as i64) < there { this } else { prev }
    }

    /// Whether a CPU is idle, as far as the wakee sees, and it may go there.
    fn takes(&self, cpu: CpuId) -> bool {
        let summary = self.summary;
        self.allowed.contains(cpu)
            && if self.beside_idle { summary.takes_wakee(cpu) } else { summary.idle(cpu) }
    }

    /// `target`, or the last CPU behind the same cache, if idle.
    fn idle_target(&self, wakeup: &Wakeup, target: CpuId) -> Option<CpuId> {
        let prev = wakeup.prev;
        if self.takes(target) {
            return Some(target);
        }
        let near = prev != target && self.domains.share_cache(prev, target);
        (near && self.takes(prev)).then_some(prev)
    }

    /// An idle CPU behind the cache of `target`, which is busy, or `target`.
    fn idle_sibling(&self, wakeup: &Wakeup, target: CpuId) -> CpuId {
        let (summary, domains, prev) = (self.summary, self.domains, wakeup.prev);
        let near = |cpu: CpuId| cpu != target && domains.share_cache(cpu, target);
        let takes = |cpu: CpuId| self.takes(cpu);
        let recent = CpuId(wakeup.recent);
        if wakeup.recent != u32::MAX && recent != prev && near(recent) && takes(recent) {
            return recent;
        }
        let llc = domains.llc_id[target.index()];
        let idle_core = domains.has_smt && summary.idle_core(llc);
        if domains.has_smt && !idle_core && domains.share_cache(prev, target) {
            let found = domains.smt[prev.index()].iter().find(|&cpu| cpu != prev && takes(cpu));
            if let Some(cpu) = found {
                return cpu;
            }
        }
        self.search(target, llc, idle_core).unwrap_or(target)
    }

    /// It has tasks, all of them SCHED_IDLE, and the task may go there.
    fn shares(&self, cpu: CpuId) -> bool {
        self.beside_idle && self.summary.only_idle_tasks(cpu)
    }

    /// An idle CPU behind the target's cache, the next one after the target, as far as the search
    /// may go.
    fn search(&self, target: CpuId, llc: u32, idle_core: bool) -> Option<CpuId> {
        let limit = if self.t.sis_util { self.summary.scan(llc) as usize } else { usize::MAX };
        if limit == 0 {
            return None;
        }
        let near = &self.domains.llc[target.index()];
        if idle_core {
            return self.search_core(target, llc, near.and(self.allowed));
        }
        let takers = self.summary.takers(self.beside_idle);
        if takers.none() {
            return None;
        }
        let from = target.index() + 1;
        let mut looked = 0;
        for step in 0..=WORDS {
            let number = (from / 64 + step) % WORDS;
            // The first word from the target on; at the end what is before it there.
            let part = match step {
                0 => u64::MAX << (from % 64),
                WORDS => !(u64::MAX << (from % 64)),
                _ => u64::MAX,
            };
            let word = near.word(number) & self.allowed.word(number) & part;
            let takers = word & takers.in_word(number);
            if takers != 0 {
                // How many CPUs a scan would have looked at.
                looked += (word & (takers ^ (takers - 1))).count_ones() as usize;
                return (looked <= limit)
                    .then(|| CpuId(64 * number as u32 + takers.trailing_zeros()));
            }
            looked += word.count_ones() as usize;
            if looked > limit {
                return None;
            }
        }
        None
    }

    /// The next idle core after the target, else an idle thread.
    fn search_core(&self, target: CpuId, llc: u32, mut left: CpuSet) -> Option<CpuId> {
        let mut fallback = None;
        for cpu in wrap(&left, target.0 + 1) {
            if !left.contains(cpu) {
                continue;
            }
            if self.whole_core(cpu, &mut fallback) {
                return Some(cpu);
            }
            self.domains.smt[cpu.index()].iter().for_each(|thread| left.remove(thread));
        }
        self.summary.set_idle_core(llc, false);
        fallback
    }

    /// Whether all threads of `cpu`'s core are idle; if not, remembers one that could be used.
    fn whole_core(&self, cpu: CpuId, fallback: &mut Option<CpuId>) -> bool {
        let mut whole = true;
        for thread in self.domains.smt[cpu.index()].iter() {
            if self.summary.idle(thread) {
                if fallback.is_none() && self.allowed.contains(thread) {
                    *fallback = Some(thread);
                }
                continue;
            }
            whole = false;
            let usable = self.shares(thread) && self.allowed.contains(thread);
            if fallback.is_none() && usable {
                *fallback = Some(thread);
            }
            if fallback.is_some() {
                break;
            }
        }
        whole
    }

    /// The CPU for a new task that is created on `this`.
    pub(in crate::linux) fn fork(&self, this: CpuId) -> CpuId {
        if self.packs_child(this) { this } else { self.idlest(this) }
    }

    /// The idlest CPU, seen from `this`.
    pub(in crate::linux) fn idlest(&self, this: CpuId) -> CpuId {
        let mut cpu = this;
        let mut level = self.domains.of_cpu[this.index()].len();
        let top = self.domains.of_cpu[this.index()].last();
        if top.is_none_or(|link| self.domains.all[link.domain].span.and(self.allowed).is_empty()) {
            return self.nearest(this);
        }
        while level > 0 {
            let link = self.domains.of_cpu[cpu.index()][level - 1];
            let domain = &self.domains.all[link.domain];
            let chosen = self.idlest_group(domain, link.local);
            let next = chosen.map_or(cpu, |group| self.idlest_cpu(&domain.groups[group], cpu));
            if chosen.is_none() || next == cpu {
                level -= 1;
                continue;
            }
            cpu = next;
            // The next domain down that is smaller than this one, seen from the new CPU.
            let smaller = |l: &&Link| self.domains.all[l.domain].weight < domain.weight;
            level = self.domains.of_cpu[cpu.index()].iter().filter(smaller).count();
        }
        self.nearest(cpu)
    }

    /// `cpu` if it is allowed, else an allowed CPU: behind the same cache if possible, lowest
    /// number first.
    pub(in crate::linux) fn nearest(&self, cpu: CpuId) -> CpuId {
        if self.allowed.contains(cpu) {
            return cpu;
        }
        if self.domains.of_cpu[cpu.index()].is_empty() {
            return self.fallback(cpu);
        }
        let mut near =
            self.domains.chain(cpu).filter_map(|(d, _)| d.span.and(self.allowed).lowest());
        near.next().or_else(|| self.allowed.lowest()).unwrap_or(cpu)
    }

    /// Where a task goes that may not stay on `cpu`, which is in no domain: the first allowed CPU
    /// of its node, else the first of all (`select_fallback_rq`).
    fn fallback(&self, cpu: CpuId) -> CpuId {
        let node = &self.domains.nodes[cpu.index()];
        let near = node.and(self.allowed).lowest();
        near.or_else(|| self.allowed.lowest()).unwrap_or(cpu)
    }

    /// The group to put a new task into; `None`: the own one. `local` is where the walk is.
    fn idlest_group(&self, domain: &Domain, local: usize) -> Option<usize> {
        let (own, best) = if !domain.singles.is_empty() && self.without.is_none() {
            self.idlest_single(domain, local)
        } else {
            self.idlest_of_all(domain, local)
        };
        let (index, there) = best?;
        let Some(own) = own else { return Some(index) };
        if own.kind != there.kind {
            return (own.kind > there.kind).then_some(index);
        }
        let go = if own.kind == Kind::Spare {
            let difference = there.idle.saturating_sub(own.idle);
            // A small difference between nodes is left alone, counting the new task.
            let slack = domain.imb_numa_nr > 0 && own.tasks < domain.imb_numa_nr && difference <= 2;
            !slack && own.idle < there.idle
        } else {
            let margin = SCALE * (domain.imbalance_pct - 100) / 100;
            let far = domain.level == Level::Numa && there.average + margin >= own.average;
            !far && there.average < own.average + margin
                && 100 * own.average > domain.imbalance_pct * there.average
        };
        go.then_some(index)
    }

    /// The own group, if the task may go there, and the idlest of the others.
    fn idlest_of_all(
        &self,
        domain: &Domain,
        local: usize,
    ) -> (Option<GroupFacts>, Option<(usize, GroupFacts)>) {
        let mut own: Option<GroupFacts> = None;
        let mut best: Option<(usize, GroupFacts)> = None;
        for index in (local..domain.groups.len()).chain(0..local) {
            let group = &domain.groups[index];
            if !group.meets(self.allowed) {
                continue;
            }
            let facts = self.group_facts(domain, group);
            if index == local {
                own = Some(facts);
            } else if best.as_ref().is_none_or(|(_, b)| facts.idler_than(b)) {
                best = Some((index, facts));
            }
        }
        (own, best)
    }

    /// The same where every group is a single CPU: their ranks are compared, most of which are
    /// known.
    fn idlest_single(
        &self,
        domain: &Domain,
        local: usize,
    ) -> (Option<GroupFacts>, Option<(usize, GroupFacts)>) {
        let everywhere = domain.span.is_within(self.allowed);
        let mut best = (u64::MAX, usize::MAX);
        let mut look = |first: usize, cpus: &[CpuId]| {
            for (index, &cpu) in cpus.iter().enumerate() {
                if everywhere || self.allowed.contains(cpu) {
                    let rank = self.summary.rank(cpu, self.now, domain.imbalance_pct);
                    if rank < best.0 {
                        best = (rank, first + index);
                    }
                }
            }
        };
        look(local + 1, &domain.singles[local + 1..]);
        look(0, &domain.singles[..local]);
        let groups = &domain.groups;
        let facts = |index: usize| self.group_facts(domain, &groups[index]);
        let own = groups[local].meets(self.allowed).then(|| facts(local));
        (own, groups.get(best.1).map(|_| (best.1, facts(best.1))))
    }

    fn group_facts(&self, domain: &Domain, group: &Group) -> GroupFacts {
        let mut facts = GroupFacts::default();
        let (mut load, mut capacity, mut weight, mut runnable) = (0, 0, 0, 0);
        group.for_each_within(&group.cpus, |cpu| {
            let averages = self.summary.averages(cpu, self.now);
            load += averages.load;
            facts.util += averages.util;
            runnable += averages.runnable;
            capacity += averages.capacity;
            weight += 1;
            facts.tasks += self.summary.nr_running(cpu);
            facts.idle += u64::from(self.summary.idle(cpu));
            if let Some(own) = self.without.filter(|own| own.cpu == cpu) {
                load -= own.load.min(averages.load);
                facts.util -= own.util.min(averages.util);
                runnable -= own.runnable.min(averages.runnable);
                facts.tasks -= 1;
                facts.idle += u64::from(self.summary.nr_running(cpu) == 1);
            }
        });
        facts.kind = Kind::classify(
            facts.tasks,
            weight,
            capacity,
            facts.util,
            runnable,
            domain.imbalance_pct,
        );
        facts.average = load * SCALE / capacity.max(1);
        facts
    }

    /// The idlest allowed CPU of a group: one with only SCHED_IDLE tasks, the one that became idle
    /// last, or the least loaded.
    fn idlest_cpu(&self, group: &Group, this: CpuId) -> CpuId {
        let mut idle: Option<(Ns, CpuId)> = None;
        let mut least = (u64::MAX, this);
        for cpu in group.within(self.allowed) {
            if self.shares(cpu) {
                return cpu;
            }
            if self.summary.idle(cpu) {
                let since = self.summary.idle_since(cpu);
                if idle.is_none_or(|(latest, _)| since > latest) {
                    idle = Some((since, cpu));
                }
            } else if idle.is_none() {
                let load = self.summary.load(cpu, self.now);
                if load < least.0 {
                    least = (load, cpu);
                }
            }
        }
        idle.map_or(least.1, |(_, cpu)| cpu)
    }
}

/// How loaded a group of CPUs is; ordered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(in crate::linux) enum Kind {
    /// Some CPU could take a task.
    #[default]
    Spare,
    /// Every CPU is used, no task waits for long.
    Busy,
    /// Affinity prevented balance in the domain below.
    Imbalanced,
    /// More tasks than CPUs.
    Overloaded,
}

impl Kind {
    /// Classifies `tasks` tasks on `cpus` CPUs.
    pub(in crate::linux) fn classify(
        tasks: u64,
        cpus: u64,
        capacity: u64,
        util: u64,
        runnable: u64,
        pct: u64,
    ) -> Kind {
        let pressed = capacity * 100 < util * pct;
        let crowded = capacity * pct < runnable * 100;
        if tasks > cpus && (pressed || crowded) {
            Kind::Overloaded
        } else if tasks < cpus || (!crowded && capacity * 100 > util * pct) {
            Kind::Spare
        } else {
            Kind::Busy
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct GroupFacts {
    kind: Kind,
    tasks: u64,
    idle: u64,
    util: u64,
    average: u64,
}

impl GroupFacts {
    fn idler_than(&self, other: &GroupFacts) -> bool {
        if self.kind != other.kind {
            return self.kind < other.kind;
        }
        match self.kind {
            Kind::Spare => {
                self.idle > other.idle || (self.idle == other.idle && self.util < other.util)
            }
            _ => self.average < other.average,
        }
    }
}

#[cfg(test)]
pub(in crate::linux) mod tests;
