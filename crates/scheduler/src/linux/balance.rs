//! Load balancing, the deed: when CPUs look for work elsewhere, and how tasks move.
//!
//! Four occasions: a CPU runs out of work (newidle), its periodic balance is due at a tick, a busy
//! CPU's tick finds that idle CPUs should balance (NOHZ kick), and a task that runs must be pushed
//! off (active balance). Idle CPUs have no ticks: the kick is a timer of the machine, set to the
//! first tick edge at which a busy CPU would kick. Tasks are taken under the lock of the source and
//! put under the lock of the target, one after the other: never two run queues at once.
//!
//! | rule | where the real system has it | here | test |
//! |---|---|---|---|
//! | interval per domain: doubled while balanced up to twice the span's weight in ms, × 16 when busy, −1 tick | `get_sd_balance_interval`, `load_balance` | modelled | `three_hogs_on_two_cpus_get_two_thirds_each` |
//! | due at the next tick when the last fair task that is not SCHED_IDLE leaves SCHED_IDLE ones behind; they are no reason for × 16 | `dequeue_entities`, `get_sd_balance_interval` (6.12, 7.2; since 5.6) | modelled | `a_cpu_left_to_idle_work_balances_early` |
//! | least recently run first; not running, pinned or throttled ones | `detach_tasks`, `can_migrate_task` | modelled; delayed tasks are never moved | `affinity_is_kept_and_nothing_is_lost` |
//! | a task that may not go is last for the next attempt; the running one is looked at too | `detach_tasks` (6.1.192, 6.12.117, 7.2.13) | modelled | `a_pinned_task_is_looked_at_once` |
//! | cache hot for 0.5 ms, and buddies, until `cache_nice_tries` failures | `task_hot` | modelled; not between threads of a core | `hot_tasks_stay_at_first` |
//! | too large a load moves after failures | `shr_bound` | modelled | `three_hogs_on_two_cpus_get_two_thirds_each` |
//! | 6.14+: tasks that would not be eligible wait for a failure | `task_is_ineligible_on_dst_cpu` | modelled | no test of its own |
//! | pinned tasks: another CPU of the group, another source, a flag for the domain above | `LBF_*_PINNED` | modelled | `pinned_tasks_do_not_stop_balance` |
//! | newidle: from near to far, stops at the first pulled task, one task | `sched_balance_newidle` | modelled; its cost is a knob, not measured | `an_idle_cpu_takes_waiting_work` |
//! | NOHZ: one idle CPU balances for all | `nohz_balancer_kick` | simplified: a timer at tick edges, 1 tick late at most when the reason appears after it was set | `an_idle_cpu_takes_waiting_work` |
//! | active balance after `cache_nice_tries + 2` failures | `active_load_balance_cpu_stop` | modelled; the stopper task takes no time | `a_hog_leaves_the_cpu_of_a_fifo_hog` |
//! | RT time lowers the capacity of a CPU | `check_cpu_capacity` | modelled | same |
//! | NUMA balancing by page faults | `task_numa_*` | omitted | – |
//! | one NUMA domain balance at a time in the machine | `SD_SERIALIZE` | omitted: balancing takes no time | – |

pub(super) mod domains;
mod imbalance;
mod newidle_odds;
mod nohz_kick;
pub(super) mod packing;
pub(super) mod placement;

use crate::linux::balance::domains::{Domain, Level, Link};
use crate::linux::balance::imbalance::{Amount, Ask, Idle};
use crate::linux::balance::newidle_odds::NewidleOdds;
use crate::linux::core::rq::{Class, Entity, EntityId, NONE, ROOT, Rq};
use crate::linux::core::smp::{self, Smp};
use crate::linux::fair::pelt::Moment;
use crate::linux::fair::{self, FairRules};
use crate::linux::{Env, Linux};
use crate::{Cmd, Cx, Lock, Locks, Wake, WakeKind};
use schedlab_model::{CpuId, CpuSet, TaskId, Waker};
use std::sync::atomic::Ordering::Relaxed;

pub(super) use nohz_kick::KICK;

/// With only pinned tasks the interval may grow to this.
const MAX_PINNED_INTERVAL: u64 = 512;
/// Longest interval: a tenth of a second for each CPU.
pub(super) const LONGEST_PER_CPU: u64 = 100_000_000;

/// One CPU's view of its domains.
#[derive(Debug, Default)]
pub(super) struct Balancer {
    levels: Vec<DomainBalance>,
}

/// One CPU's view of one of its domains.
#[derive(Clone, Copy, Debug)]
struct DomainBalance {
    /// Last periodic balance, ns; negative before the start.
    last: i64,
    interval_ms: u64,
    failed: u32,
    odds: NewidleOdds,
}

impl DomainBalance {
    /// When the balance is due, ns, if it comes `interval` after the last one.
    fn due(&self, interval: u64) -> u64 {
        (self.last + interval as i64).max(0) as u64
    }
}

/// When a CPU balanced a domain last before the start, ns: at most the first interval of a busy CPU
/// ago.
fn before_the_start(phase: u64, level: u32, domain: &Domain) -> i64 {
    let interval = domain.min_interval.0 * domain.busy_factor;
    -((phase.rotate_left(16 * level) % interval.max(1)) as i64)
}

/// One attempt to balance one domain.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    domain: &'a Domain,
    link: Link,
    to: CpuId,
    idle: Idle,
    failed: u32,
}

/// What came out of looking at one CPU's tasks.
#[derive(Debug, Default)]
struct Detached {
    entities: Vec<Entity>,
    /// No task may move to the target.
    all_pinned: bool,
    /// Some may not.
    some_pinned: bool,
    /// Another CPU of the target's group to which one of those may move.
    instead: Option<CpuId>,
}

impl<L: Locks, F: FairRules> Linux<L, F> {
    /// The periodic balance of a busy CPU, at a tick.
    pub(super) fn balance_at_tick(&self, cx: &Cx<'_>, cpu: CpuId) {
        let Some(smp) = self.smp.get() else { return };
        let due = smp.next_balance[cpu.index()].load(Relaxed);
        if cx.now.0 >= due && !smp.summary.idle(cpu) {
            self.rebalance(cx, smp, cpu, cx.now.0);
        }
    }

    /// When the periodic balance is due, ns; `u64::MAX` = never.
    #[inline]
    pub(super) fn balance_at(&self, cpu: CpuId) -> u64 {
        self.smp.get().map_or(u64::MAX, |smp| smp.next_balance[cpu.index()].load(Relaxed))
    }

    /// Balances every domain of `cpu` that is due at the tick `now`, ns.
    fn rebalance(&self, cx: &Cx<'_>, smp: &Smp, cpu: CpuId, now: u64) {
        self.report_all(cx, smp, cpu);
        let idle_now = || if smp.summary.idle(cpu) { Idle::Yes } else { Idle::No };
        let mut idle = idle_now();
        let mut next = now + 60_000_000_000;
        for level in 0..smp.domains.of_cpu[cpu.index()].len() {
            let state = self.level(cx, smp, cpu, level);
            if now as i64 >= state.last + self.interval(cx, smp, cpu, level, idle, &state) as i64 {
                if self.balance_level(cx, smp, cpu, level, idle) {
                    idle = idle_now();
                }
                self.balancers[cpu.index()].lock().levels[level].last = now as i64;
            }
            let state = self.level(cx, smp, cpu, level);
            next = next.min(state.due(self.interval(cx, smp, cpu, level, idle, &state)));
        }
        smp.next_balance[cpu.index()].store(next, Relaxed);
    }

    fn level(&self, cx: &Cx<'_>, smp: &Smp, cpu: CpuId, level: usize) -> DomainBalance {
        let mut balancer = self.balancers[cpu.index()].lock();
        if balancer.levels.is_empty() {
            let phase = cx.cpu(cpu).balance_phase;
            let fresh = |(level, (d, _)): (usize, (&Domain, Link))| DomainBalance {
                last: before_the_start(phase, level as u32, d),
                interval_ms: d.weight,
                failed: 0,
                odds: NewidleOdds::default(),
            };
            balancer.levels = smp.domains.chain(cpu).enumerate().map(fresh).collect();
        }
        balancer.levels[level]
    }

    /// Time between two balances of a domain, in ns.
    fn interval(
        &self,
        cx: &Cx<'_>,
        smp: &Smp,
        cpu: CpuId,
        level: usize,
        idle: Idle,
        state: &DomainBalance,
    ) -> u64 {
        let tick = cx.world.tick_ns.0;
        let busy = idle != Idle::Yes && !smp.summary.only_idle_tasks(cpu);
        let domain = &smp.domains.all[smp.domains.of_cpu[cpu.index()][level].domain];
        let factor = if busy { domain.busy_factor } else { 1 };
        let ticks = (state.interval_ms * factor * 1_000_000).div_ceil(tick) - u64::from(busy);
        ticks.clamp(1, smp.longest_interval) * tick
    }

    /// A CPU is about to become idle: looks for a task, near first. Gives whether there is
    /// something to run.
    pub(super) fn newidle(&self, cx: &Cx<'_>, cpu: CpuId) -> bool {
        let Some(smp) = self.smp.get() else { return false };
        if !cx.cpu(cpu).online {
            return false;
        }
        let levels = smp.domains.of_cpu[cpu.index()].len();
        let mut pulled = false;
        let mut cost = self.t.smp.newidle_cost;
        let affordable = smp.avg_idle[cpu.index()].load(Relaxed);
        if smp.summary.any_crowded() && affordable >= cost {
            self.report_all(cx, smp, cpu);
        }
        for level in 0..levels {
            if !smp.summary.any_crowded() || affordable < cost {
                break;
            }
            if self.t.smp.ni_random && self.dice_against(cx, smp, cpu, level) {
                continue;
            }
            cost += self.t.smp.newidle_cost;
            pulled = self.balance_level(cx, smp, cpu, level, Idle::New);
            if self.t.smp.ni_random {
                self.balancers[cpu.index()].lock().levels[level].odds.add(pulled);
            }
            if pulled {
                break;
            }
        }
        let next = (0..levels).map(|level| {
            let state = self.level(cx, smp, cpu, level);
            state.due(self.interval(cx, smp, cpu, level, Idle::Yes, &state))
        });
        let next = next.min().unwrap_or(u64::MAX);
        let due = &smp.next_balance[cpu.index()];
        if next < due.load(Relaxed) {
            due.fetch_min(next, Relaxed);
        }
        pulled
    }

    /// NI_RANDOM: a CPU that found nothing the last times rarely looks again.
    fn dice_against(&self, cx: &Cx<'_>, smp: &Smp, cpu: CpuId, level: usize) -> bool {
        let against = !self.level(cx, smp, cpu, level).odds.dice(cx.rand());
        if against {
            self.balancers[cpu.index()].lock().levels[level].odds.add(false);
        }
        against
    }

    /// Tries to balance one domain towards `cpu`. Gives whether tasks moved.
    fn balance_level(&self, cx: &Cx<'_>, smp: &Smp, cpu: CpuId, level: usize, idle: Idle) -> bool {
        let link = smp.domains.of_cpu[cpu.index()][level];
        let domain = &smp.domains.all[link.domain];
        let failed = self.level(cx, smp, cpu, level).failed;
        let attempt = Attempt { domain, link, to: cpu, idle, failed };
        let part;
        let online = if smp.all_online() {
            &domain.span
        } else {
            part = smp.online().and(&domain.span);
            &part
        };
        let mut fewer: Option<CpuSet> = None;
        let pinned_below = |group: usize| smp.pinned(link.domain, group);
        let again = smp.summary.asked_before(cx.now);
        loop {
            let ask = Ask {
                summary: &smp.summary,
                domains: &smp.domains,
                domain,
                local: link.local,
                cpu,
                idle,
                now: cx.now,
                again,
                cpus: fewer.as_ref().unwrap_or(online),
                online,
                pinned_below: &pinned_below,
                by_core: self.t.version.balances_by_core(),
                mean_only: self.t.smp.group_imbalance,
            };
            let found = if ask.is_ours() { ask.busiest() } else { None };
            let Some((from, amount)) = found else {
                self.settle_level(smp, cpu, level, idle, false);
                return false;
            };
            let mut moved = 0;
            let mut all_pinned = false;
            if smp.summary.nr_running(from) > 1 {
                let some_pinned;
                (moved, all_pinned, some_pinned) = self.pull(cx, smp, &attempt, from, amount);
                if some_pinned {
                    smp.set_pinned(cpu, level, true);
                }
            }
            if moved > 0 {
                self.succeeded(smp, cpu, level);
                return true;
            }
            if all_pinned {
                let cpus = fewer.get_or_insert(*online);
                cpus.remove(from);
                if !cpus.is_within(&domain.groups[link.local].cpus) {
                    continue;
                }
                self.settle_level(smp, cpu, level, idle, true);
                return false;
            }
            return self.failed(cx, smp, &attempt, level, from, amount);
        }
    }

    /// Tasks moved: shortest interval, no failures.
    fn succeeded(&self, smp: &Smp, cpu: CpuId, level: usize) {
        let domain = &smp.domains.all[smp.domains.of_cpu[cpu.index()][level].domain];
        let mut balancer = self.balancers[cpu.index()].lock();
        balancer.levels[level].failed = 0;
        balancer.levels[level].interval_ms = domain.min_interval.0 / 1_000_000;
    }

    /// Nothing to do here: the interval grows.
    fn settle_level(&self, smp: &Smp, cpu: CpuId, level: usize, idle: Idle, pinned: bool) {
        let domain = &smp.domains.all[smp.domains.of_cpu[cpu.index()][level].domain];
        let mut balancer = self.balancers[cpu.index()].lock();
        let state = &mut balancer.levels[level];
        state.failed = 0;
        if !pinned {
            smp.set_pinned(cpu, level, false);
        }
        let longest = domain.max_interval.0 / 1_000_000;
        if idle != Idle::New
            && (state.interval_ms < longest || pinned && state.interval_ms < MAX_PINNED_INTERVAL)
        {
            state.interval_ms *= 2;
        }
    }

    /// There was too much elsewhere, and nothing moved. Gives whether a running task is on its way
    /// instead.
    fn failed(
        &self,
        cx: &Cx<'_>,
        smp: &Smp,
        attempt: &Attempt<'_>,
        level: usize,
        from: CpuId,
        amount: Amount,
    ) -> bool {
        let failed = {
            let mut balancer = self.balancers[attempt.to.index()].lock();
            let state = &mut balancer.levels[level];
            state.failed += u32::from(attempt.idle != Idle::New);
            state.interval_ms = attempt.domain.min_interval.0 / 1_000_000;
            state.failed
        };
        let stuck =
            matches!(amount, Amount::Tasks(_)) && failed > attempt.domain.cache_nice_tries + 2;
        let (there, here) =
            (smp.summary.capacity(from, cx.now), smp.summary.capacity(attempt.to, cx.now));
        let pressed = attempt.idle != Idle::No
            && smp.summary.fair(from) == 1
            && there * attempt.domain.imbalance_pct < here * 100;
        if !(stuck || pressed) {
            return false;
        }
        self.push_running(cx, from, attempt.to, level)
    }

    /// Active balance: the least recently run task of `from` that may run on `to` goes there, the
    /// running one included.
    fn push_running(&self, cx: &Cx<'_>, from: CpuId, to: CpuId, level: usize) -> bool {
        let env = &self.env(cx);
        let running = self.rqs[from.index()].lock().curr_of(Class::Fair).is_some();
        if !running {
            return false;
        }
        let moved = self.locked(from, |rq| {
            rq.touch::<F>(env, false);
            let movable =
                |rq: &Rq, id: &EntityId| cx.task(TaskId(rq.entity(*id).task)).affinity.contains(to);
            if !movable(rq, &rq.curr) || rq.pushed != NONE {
                return None;
            }
            let candidates = looked_at(env, rq);
            let mut ids = candidates.iter().map(|&(_, id)| id);
            let found = ids.find(|id| *id != rq.curr && movable(rq, id));
            rq.candidates = candidates;
            match found {
                Some(id) => Some(self.detach(env, rq, id)),
                None => {
                    rq.push_away(rq.entity(rq.curr).task, to);
                    cx.push(Cmd::Displace(TaskId(rq.entity(rq.curr).task)));
                    None
                }
            }
        });
        if let Some(entity) = moved {
            cx.push(Cmd::TickDue(from));
            self.attach_all(cx, to, vec![entity], false);
        }
        self.balancers[to.index()].lock().levels[level].failed = 0;
        true
    }

    /// Moves what may and should move from `from` to the attempt's CPU. Gives how many moved, and
    /// whether all or some were pinned.
    fn pull(
        &self,
        cx: &Cx<'_>,
        smp: &Smp,
        attempt: &Attempt<'_>,
        from: CpuId,
        amount: Amount,
    ) -> (usize, bool, bool) {
        let env = &self.env(cx);
        let mut left = match amount {
            Amount::Tasks(n) | Amount::Util(n) | Amount::Load(n) => n as i64,
        };
        let (mut total, mut some_pinned) = (0, false);
        let mut to = attempt.to;
        // A CPU that becomes idle takes for itself only.
        let own = &attempt.domain.groups[attempt.link.local].cpus;
        let mut group = match attempt.idle {
            Idle::New => CpuSet::EMPTY,
            _ => own.and(&smp.online()),
        };
        loop {
            let target = Attempt { to, ..*attempt };
            let detached = {
                let rq = &mut *self.rqs[from.index()].lock();
                rq.touch::<F>(env, false);
                let detached = self.detach_some(env, rq, &target, &group, amount, &mut left);
                // Fair tasks that stay look from outside as they did.
                if !(detached.entities.is_empty() && rq.looks_fair()) {
                    self.publish(rq);
                }
                detached
            };
            let moved = detached.entities.len();
            total += moved;
            some_pinned |= detached.some_pinned;
            if moved > 0 {
                cx.push(Cmd::TickDue(from));
                self.attach_all(cx, to, detached.entities, attempt.idle == Idle::New);
            }
            match detached.instead {
                Some(other) if left > 0 && attempt.idle != Idle::New => {
                    group.remove(to);
                    to = other;
                }
                _ => return (total, detached.all_pinned && total == 0, some_pinned && left > 0),
            }
        }
    }

    /// Takes tasks off a queue until `left` is used up.
    fn detach_some(
        &self,
        env: Env<'_>,
        rq: &mut Rq,
        attempt: &Attempt<'_>,
        group: &CpuSet,
        amount: Amount,
        left: &mut i64,
    ) -> Detached {
        let mut out = Detached { all_pinned: true, ..Detached::default() };
        if rq.nr_running <= 1 {
            return Detached::default();
        }
        let looked = self.t.smp.nr_migrate.min(rq.nr_running);
        let candidates = looked_at(env, rq);
        for (seen, &(_, id)) in candidates.iter().enumerate() {
            let alone = attempt.idle != Idle::No && rq.nr_running <= 1;
            if alone || seen as u32 >= looked || *left <= 0 {
                out.all_pinned &= !alone;
                break;
            }
            let Some(costs) = self.leaves(env, rq, id, attempt, group, amount, &mut out) else {
                // Next time others come first (`list_move` in `detach_tasks`).
                rq.stamp(id);
                continue;
            };
            if !matches!(amount, Amount::Tasks(_)) && costs >> attempt.failed.min(63) > *left {
                rq.stamp(id);
                continue;
            }
            *left -= costs;
            out.entities.push(self.detach(env, rq, id));
            if attempt.idle == Idle::New {
                break;
            }
        }
        rq.candidates = candidates;
        out
    }

    /// How much of the amount a task is that may move; notes what affinity prevents.
    #[expect(clippy::too_many_arguments, reason = "the state of one look at a queue")]
    fn leaves(
        &self,
        env: Env<'_>,
        rq: &mut Rq,
        id: EntityId,
        attempt: &Attempt<'_>,
        group: &CpuSet,
        amount: Amount,
        out: &mut Detached,
    ) -> Option<i64> {
        if self.waits_for_failure(rq, id, attempt) {
            return None;
        }
        let affinity = &env.cx.task(TaskId(rq.entity(id).task)).affinity;
        if !affinity.contains(attempt.to) {
            out.some_pinned = true;
            if attempt.idle != Idle::New {
                out.instead = out.instead.or_else(|| affinity.and(group).lowest());
            }
            return None;
        }
        // The running task is among those that are looked at.
        out.all_pinned = false;
        (id != rq.curr && self.is_cold(rq, id, attempt)).then(|| self.costs(rq, id, amount))
    }

    /// How much of the amount a task is.
    fn costs(&self, rq: &mut Rq, id: EntityId, amount: Amount) -> i64 {
        let now = rq.wall;
        let entity = rq.entity_mut(id);
        let weight = entity.load.weight();
        let pelt = entity.signal.at(Moment::new(now));
        let (load, util) = (pelt.load_avg(weight), pelt.util_avg());
        match amount {
            Amount::Tasks(_) => 1,
            Amount::Util(_) => util as i64,
            Amount::Load(_) => smp::load_at_root(rq, id, load).max(1) as i64,
        }
    }

    /// A task that would not be eligible there moves after a failure only.
    fn waits_for_failure(&self, rq: &Rq, id: EntityId, attempt: &Attempt<'_>) -> bool {
        let busy = || self.smp.get().is_some_and(|smp| smp.summary.fair(attempt.to) > 0);
        self.t.version.ineligible_tasks_move_later()
            && attempt.failed == 0
            && busy()
            && !F::eligible(rq, id)
    }

    /// Whether this waiting task has left the caches, or does not have to.
    fn is_cold(&self, rq: &Rq, id: EntityId, attempt: &Attempt<'_>) -> bool {
        let entity = rq.entity(id);
        if attempt.failed > attempt.domain.cache_nice_tries
            || entity.idle
            || attempt.domain.level == Level::Smt
        {
            return true;
        }
        let queue = rq.queue(entity.queue);
        let buddy = queue.next == id || queue.last == id;
        let there = self.smp.get().is_some_and(|smp| smp.summary.nr_running(attempt.to) > 0);
        let hot = rq.clock.saturating_sub(entity.exec_start) < self.t.smp.migration_cost;
        !(hot || (self.t.smp.cache_hot_buddy && there && buddy))
    }

    /// Takes a waiting task out of this CPU.
    pub(super) fn detach(&self, env: Env<'_>, rq: &mut Rq, id: EntityId) -> Entity {
        self.leave(env, rq, id);
        if rq.entity(id).class == Class::Fair {
            F::depart(env, rq, id);
        }
        rq.take(id)
    }

    /// Puts tasks onto a CPU, the last one first. `quiet`: it chooses afterwards anyway.
    pub(super) fn attach_all(&self, cx: &Cx<'_>, to: CpuId, entities: Vec<Entity>, quiet: bool) {
        let env = &self.env(cx);
        let wake = Wake { kind: WakeKind::Migrated, sync: false, waker: Waker::Unknown };
        let moved: Vec<TaskId> = entities.iter().rev().map(|e| TaskId(e.task)).collect();
        self.locked(to, |rq| {
            rq.touch::<F>(env, false);
            for entity in entities.into_iter().rev() {
                let id = self.rehome(env, rq, entity);
                if quiet {
                    self.enqueue(env, rq, id, fair::Enqueue::Restore);
                } else {
                    self.activate(env, rq, id, wake);
                }
            }
        });
        moved.into_iter().for_each(|task| cx.push(Cmd::Moved(task, to)));
        cx.push(Cmd::TickDue(to));
    }
}

/// The fair tasks of a queue that balancing looks at, the running one among them, least recently
/// run first, each with its stamp. The list goes back to [`Rq::candidates`] after use: a CPU that
/// becomes idle asks for it, which is too often for an allocation.
fn looked_at(env: Env<'_>, rq: &mut Rq) -> Vec<(u32, EntityId)> {
    let mut found = std::mem::take(&mut rq.candidates);
    found.clear();
    // How many there are; where groups have limits, at most.
    let root = rq.queue(ROOT);
    let all = if env.pools.is_none() { root.h_nr - rq.delayed } else { u32::MAX };
    for (id, e) in rq.entities.iter().enumerate() {
        let takes = e.on_rq
            && e.task != NONE
            && e.class == Class::Fair
            && !e.delayed
            && !rq.is_throttled(e.queue);
        if takes {
            found.push((e.stamp, id as EntityId));
            if found.len() == all as usize {
                break;
            }
        }
    }
    found.sort_unstable();
    found
}
