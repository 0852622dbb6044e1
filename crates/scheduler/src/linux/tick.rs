//! CPUs without ticks (`nohz_full=`).
//!
//! # Fidelity
//! | rule | kernel/sched/core.c | here |
//! |---|---|---|
//! | no tick beside one task; beside FIFO tasks of any number; beside one RR task | `sched_can_stop_tick` (4.6 and later) | modelled |
//! | before: no tick beside one task | `sched_can_stop_tick` (3.10) | modelled |
//! | deadline tasks keep it, queued or throttled | `rq->dl.dl_nr_running` | modelled |
//! | a task whose group has a limit keeps it (88c56cfeaec4, 6.6) | `cfs_task_bw_constrained` | modelled |
//! | the tick goes at the first tick after the second task left | `tick_nohz_irq_exit` | simplified: at once, one tick fewer |
//! | once a second the tick's work is done, elsewhere since 4.17 | `sched_tick_remote`, before `scheduler_tick_max_deferment` | modelled, at every `hz`-th edge of the CPU; costs nothing there |
//! | such a CPU does not balance for others, and kicks none | `find_new_ilb`, `sched_balance_trigger` | modelled: `balance::nohz_kick` |

use super::core::rq::{Class, EntityId, NONE, Rq};
use super::{Env, fair};
use crate::Cx;
use schedlab_model::{CpuId, Policy};

/// Whether the edge of `cpu` that is now is the one of its second that comes although the tick is
/// off.
pub(super) fn is_remote(cx: &Cx<'_>, cpu: CpuId) -> bool {
    cx.world.ticks_until(cpu, cx.now).is_multiple_of(u64::from(cx.world.hz))
}

/// In how many edges the next of these comes.
pub(super) fn remote_due(cx: &Cx<'_>, cpu: CpuId) -> u64 {
    let hz = u64::from(cx.world.hz.max(1));
    hz - cx.world.ticks_until(cpu, cx.now) % hz
}

/// Whether the tick of this CPU may be off now.
pub(super) fn may_stop(env: Env<'_>, rq: &Rq) -> bool {
    if rq.dl_here > 0 {
        return false;
    }
    if !env.t.version.tick_looks_at_policies() {
        return rq.nr_running < 2;
    }
    if rq.rt_nr > 0 {
        let turns = |id: &EntityId| matches!(rq.entity(*id).policy, Policy::Rr(_));
        return rq.rt.waiting().filter(turns).count() < 2;
    }
    if rq.nr_running > 1 {
        return false;
    }
    let limited = || {
        let running = rq.curr != NONE && rq.entity(rq.curr).class == Class::Fair;
        running && fair::bandwidth::is_limited(rq, rq.curr)
    };
    !(env.t.version.limits_keep_the_tick() && limited())
}
