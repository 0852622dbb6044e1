//! GRUB: who asked for it (SCHED_FLAG_RECLAIM) may use, beyond its budget, bandwidth that others
//! have reserved and do not use. Its budget is charged more slowly: by the part of the CPU that is
//! active or kept for others.
//!
//! | rule | real place (4.13 and later) | here | test |
//! |---|---|---|---|
//! | a task that sleeps stays active until its 0-lag time | `task_non_contending`, `inactive_task_timer` | modelled | `grub_of_the_kernel_document` |
//! | charge: `max(own bandwidth, Umax − Uinact − Uextra)`, over Umax | `grub_reclaim` | modelled | `grub_of_the_kernel_document` |
//! | fault: Uextra is wrong with root domains and the fair server, too much is reclaimed | 6.12 to 6.16 (LKML 2025-04-28) | omitted: `Scheduler::remarks` names it | `what_kernels_do_otherwise_is_said` |
//! | Uextra: what no task of the machine has reserved, per CPU | `__dl_update` | modelled: from the tasks at the start of the run | |

use super::cbs::{BW_SHIFT, ratio};
use super::{Due, server, server_mut, wait_until};
use crate::linux::Env;
use crate::linux::core::rq::{EntityId, Rq};
use schedlab_model::Policy;

/// Bandwidth on one CPU, 20-bit fixed point.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::linux) struct Bandwidth {
    /// Of all tasks that belong to it.
    attached: u64,
    /// Of those among them that are active.
    active: u64,
    /// Of all tasks of the machine, by CPU: known when it was first needed.
    machine: Option<u64>,
}

/// The task belongs to this CPU from now on.
pub(in crate::linux) fn attach(rq: &mut Rq, id: EntityId) {
    let Some(cbs) = rq.entity(id).dl.as_deref() else { return };
    let (bandwidth, active) = (cbs.bandwidth(), cbs.active);
    rq.dl.bandwidth.attached += bandwidth;
    rq.dl.bandwidth.active += if active { bandwidth } else { 0 };
}

/// It does not any more.
pub(in crate::linux) fn detach(rq: &mut Rq, id: EntityId) {
    let Some(cbs) = rq.entity(id).dl.as_deref() else { return };
    let (bandwidth, active) = (cbs.bandwidth(), cbs.active);
    rq.dl.bandwidth.attached -= bandwidth;
    rq.dl.bandwidth.active -= if active { bandwidth } else { 0 };
}

/// The task wants the CPU: it is active.
pub(super) fn contends(rq: &mut Rq, id: EntityId) {
    let cbs = server_mut(rq, id);
    let (bandwidth, waits) = (cbs.bandwidth(), cbs.zero_lag.take());
    let was = std::mem::replace(&mut cbs.active, true);
    if let Some(at) = waits {
        rq.dl.timers.retain(|timer| *timer != (at, id, Due::ZeroLag));
    }
    if !was {
        rq.dl.bandwidth.active += bandwidth;
    }
}

/// The task sleeps: it is active until its 0-lag time.
pub(super) fn sleeps(env: Env<'_>, rq: &mut Rq, id: EntityId) {
    if !env.t.dl_reclaim {
        return;
    }
    let at = server(rq, id).zero_lag_time();
    if at <= rq.clock as i64 {
        return lag_is_gone(rq, id);
    }
    let at = wait_until(env, rq, id, at, Due::ZeroLag);
    server_mut(rq, id).zero_lag = Some(at);
}

/// The 0-lag time of a sleeper has come.
pub(super) fn lag_is_gone(rq: &mut Rq, id: EntityId) {
    let cbs = server_mut(rq, id);
    cbs.zero_lag = None;
    let (bandwidth, was) = (cbs.bandwidth(), std::mem::replace(&mut cbs.active, false));
    rq.dl.bandwidth.active -= if was { bandwidth } else { 0 };
}

/// The part of a CPU, of Umax, by which the budget of `id` is charged.
fn rate(env: Env<'_>, rq: &Rq, id: EntityId) -> u64 {
    let most = env.t.dl_most();
    let reserved = rq.dl.bandwidth.machine.unwrap_or(0);
    let extra = most.saturating_sub(reserved);
    let idle = rq.dl.bandwidth.attached - rq.dl.bandwidth.active + extra;
    let own = server(rq, id).bandwidth();
    let charged = if idle + own > most { own } else { most - idle };
    (charged << BW_SHIFT) / most.max(1)
}

/// What running for `delta` takes from the budget.
pub(super) fn cost(env: Env<'_>, rq: &mut Rq, id: EntityId, delta: u64) -> u64 {
    if !env.t.dl_reclaim {
        return delta;
    }
    if rq.dl.bandwidth.machine.is_none() {
        rq.dl.bandwidth.machine = Some(reserved(env) / env.cx.world.cpus.len() as u64);
    }
    ((u128::from(delta) * u128::from(rate(env, rq, id))) >> BW_SHIFT) as u64
}

/// Bandwidth of all tasks of the machine.
fn reserved(env: Env<'_>) -> u64 {
    let tasks = env.cx.world.tasks.iter();
    tasks
        .map(|task| match task.policy {
            Policy::Deadline { runtime, period, .. } => ratio(runtime.0, period.0),
            _ => 0,
        })
        .sum()
}

/// For how long `id` may run before its budget is used up; never too long.
pub(super) fn time_left(env: Env<'_>, rq: &Rq, id: EntityId) -> u64 {
    let left = server(rq, id).left.max(0) as u64;
    if !env.t.dl_reclaim || rq.dl.bandwidth.machine.is_none() {
        return left;
    }
    let time = (u128::from(left) << BW_SHIFT) / u128::from(rate(env, rq, id).max(1));
    u64::try_from(time).unwrap_or(u64::MAX)
}
