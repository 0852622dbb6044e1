//! `schedule`: takes the running task off its CPU and chooses who runs, class by class.

use crate::linux::core::rq::{self, Class, EntityId, NONE, Rq};
use crate::linux::core::smp;
use crate::linux::core::smp::Smp;
use crate::linux::fair::bandwidth;
use crate::linux::fair::{self, Dequeue, Enqueue, FairRules};
use crate::linux::{Env, Linux, dl, rt};
use crate::{Cx, Lock, Locks, Pick, Prev};
use schedlab_model::{CpuId, TaskId};

impl<L: Locks, F: FairRules> Linux<L, F> {
    /// Chooses, and switches the queues over to the choice, or to `forced` (which is [`NONE`] for
    /// idle). Gives the choice and who runs from now on.
    ///
    /// The fair class alone is asked when no other task has anything to run; else class by class,
    /// and the fair server's tasks go before RT ones. CFS puts the running task back before it asks
    /// several classes; since EEVDF a running fair task competes where it is.
    fn choose(&self, env: Env<'_>, rq: &mut Rq, forced: Option<EntityId>) -> (EntityId, EntityId) {
        let prev = rq.curr;
        let mut fair_prev = rq.curr_of(Class::Fair);
        if let Some(prev) = fair_prev {
            bandwidth::before_choice::<F>(env, rq, prev);
        }
        let fair_only =
            (prev == NONE || fair_prev.is_some()) && rq.nr_running == rq.queue(rq::ROOT).h_nr;
        if prev == NONE {
            rq.count_idle();
        } else if fair_prev.is_none() {
            match rq.entity(prev).class {
                Class::Deadline => dl::update_curr(env, rq),
                _ => rt::update_curr(env, rq),
            }
        } else if !fair_only && self.t.version.puts_back_first() {
            fair_prev.take().into_iter().for_each(|prev| fair::put_prev::<F>(env, rq, prev));
        }
        let urgent = if fair_only { None } else { urgent(rq) };
        let mut picked = urgent.or_else(|| fair::pick::<F>(env, rq)).unwrap_or(NONE);
        while picked != NONE
            && rq.entity(picked).class == Class::Fair
            && bandwidth::into_limbo::<F>(env, rq, picked)
        {
            self.track(rq, picked);
            picked = fair::pick::<F>(env, rq).unwrap_or(NONE);
        }
        if picked == NONE && !fair_only {
            // The fair server wanted to go first, but its tasks were all about to leave, or have no
            // run time.
            picked = urgent_now(rq).unwrap_or(NONE);
        }
        let next = forced.unwrap_or(picked);
        let fair_next = (next != NONE && rq.entity(next).class == Class::Fair).then_some(next);
        fair::change::<F>(env, rq, fair_prev, fair_next);
        if next == NONE {
            rq.idle_since = rq.clock;
        } else if fair_next.is_none() {
            match rq.entity(next).class {
                Class::Deadline => dl::set_next(rq, next),
                _ => rt::set_next(rq, next),
            }
            if fair_prev.is_some() {
                rq.fair_gave_way(env);
            }
        }
        (picked, next)
    }

    /// `schedule`.
    #[inline(always)]
    pub(in crate::linux) fn reschedule(
        &self,
        cx: &Cx<'_>,
        smp: Option<&Smp>,
        cpu: CpuId,
        prev: Option<TaskId>,
        why: Prev,
    ) -> Pick {
        if matches!(why, Prev::Idle | Prev::Runnable | Prev::Blocked) {
            let env = &self.env(cx);
            let mut rq = self.rqs[cpu.index()].lock();
            if self.is_plain(env, &rq) {
                let pick = self.reschedule_plain(env, smp, &mut rq, why);
                drop(rq);
                return if pick.task.is_none() && self.newidle(cx, cpu) {
                    self.choose_again(cx, cpu)
                } else {
                    pick
                };
            }
        }
        self.reschedule_by_class(cx, cpu, prev, why, None)
    }

    /// The same where not all is [`plain`](super::plain), and `schedule_forced`. Apart, so that its
    /// needs do not burden what is.
    #[inline(never)]
    pub(in crate::linux) fn reschedule_by_class(
        &self,
        cx: &Cx<'_>,
        cpu: CpuId,
        prev: Option<TaskId>,
        why: Prev,
        forced: Option<Option<TaskId>>,
    ) -> Pick {
        let replay = forced.is_some();
        // An RT or deadline task that leaves may make room for better ones than this CPU has; they
        // are fetched without its lock.
        let pick = self.locked(cpu, |rq| {
            self.begin(cx, rq, prev, why);
            let fetch = !replay && self.wants_rt(rq, rq.curr, why);
            (!fetch).then(|| self.finish(cx, rq, why, forced))
        });
        let pick = pick.unwrap_or_else(|| {
            self.pull_dl(cx, cpu);
            self.pull_rt(cx, cpu);
            self.locked(cpu, |rq| self.finish(cx, rq, why, None))
        });
        if pick.task.is_none() && !replay && self.newidle(cx, cpu) {
            return self.choose_again(cx, cpu);
        }
        match pick.task.map(|task| cx.task(task).policy) {
            Some(policy) if replay || policy.is_fair() => {}
            Some(policy) if policy.is_realtime() => self.push_rt(cx, cpu),
            Some(_) => self.push_dl(cx, cpu),
            None => {}
        }
        pick
    }

    /// First half of `schedule`: the clock, and the running task comes off the queue if it does not
    /// go on.
    fn begin(&self, cx: &Cx<'_>, rq: &mut Rq, prev: Option<TaskId>, why: Prev) {
        let env = &self.env(cx);
        // What is asked for meanwhile is answered by this very choice.
        rq.need_resched = true;
        rq.touch_unless_skipped::<F>(env);
        if !self.t.version.hrtick_at_switch() {
            fair::clear_hrtick(env, rq);
        }
        let curr = rq.curr;
        debug_assert!(
            prev.is_none() || prev == rq.curr_task(),
            "the driver and {} disagree on who runs",
            rq.cpu
        );
        if curr != NONE {
            match why {
                Prev::Idle | Prev::Runnable => {}
                Prev::Blocked => {
                    self.estimate(rq, curr, cx.now);
                    self.dequeue(env, rq, curr, Dequeue::Sleep);
                }
                Prev::Exited => self.dequeue(env, rq, curr, Dequeue::Exit),
                // Its load leaves with it, once it is known where it goes.
                Prev::Migrating => self.take_off(env, rq, curr, Dequeue::Save),
            }
        }
    }

    /// Second half: the choice.
    fn finish(&self, cx: &Cx<'_>, rq: &mut Rq, why: Prev, forced: Option<Option<TaskId>>) -> Pick {
        let env = &self.env(cx);
        let curr = rq.curr;
        let forced = forced.map(|task| self.forced(env, rq, task));
        let (picked, next) = self.choose(env, rq, forced);
        let picked = (picked != NONE).then(|| TaskId(rq.entity(picked).task));
        rq.curr = next;
        if !self.t.version.hrtick_at_switch() {
            fair::set_hrtick::<F>(env, rq);
        } else if next == NONE {
            fair::clear_hrtick(env, rq);
        } else if next != curr {
            fair::set_hrtick::<F>(env, rq);
        }
        if next != NONE && rq.entity(next).class == Class::Deadline {
            fair::clear_hrtick(env, rq);
            dl::set_hrtick(env, rq);
        }
        rq.need_resched = false;
        rq.wall = cx.now;
        if why != Prev::Migrating {
            rq.pushed = rq::NONE;
        }
        // Off the root queue its signals were brought up to date when it was dequeued.
        if curr != next
            && curr != NONE
            && (rq.entity(curr).on_rq || rq.entity(curr).queue != rq::ROOT)
        {
            self.track(rq, curr);
        }
        self.track(rq, next);
        if next != NONE {
            rq.stamp(next);
        }
        if why == Prev::Exited && curr != NONE {
            smp::detach(rq, curr);
            self.index.clear(TaskId(rq.take(curr).task));
        }
        self.publish_estimate(rq);
        Pick { task: picked, slice_ns: None, note: 0 }
    }

    /// The CPU had nothing to run, but found something elsewhere.
    #[inline(never)]
    fn choose_again(&self, cx: &Cx<'_>, cpu: CpuId) -> Pick {
        let env = &self.env(cx);
        self.locked(cpu, |rq| {
            rq.need_resched = true;
            rq.touch::<F>(env, false);
            let (_, next) = self.choose(env, rq, None);
            rq.curr = next;
            rq.need_resched = false;
            if next != NONE {
                self.track(rq, next);
                rq.stamp(next);
            }
            self.publish_estimate(rq);
            Pick { task: rq.curr_task(), slice_ns: None, note: 0 }
        })
    }

    /// The entity of a task that is forced to run on this CPU: it is woken if it is not queued.
    fn forced(&self, env: Env<'_>, rq: &mut Rq, task: Option<TaskId>) -> EntityId {
        match task.and_then(|task| self.index.get(task)) {
            Some((cpu, id)) if cpu == rq.cpu => {
                if !rq.entity(id).on_rq {
                    self.enqueue(env, rq, id, Enqueue::Wake);
                } else if rq.entity(id).delayed {
                    fair::wake_delayed::<F>(env, rq, id);
                }
                id
            }
            _ => NONE,
        }
    }
}

/// The deadline or RT task to run, unless the fair server's tasks go first.
#[inline]
fn urgent(rq: &Rq) -> Option<EntityId> {
    if rq.fair_server.queued() && !dl::before_server(rq) { None } else { urgent_now(rq) }
}

/// The deadline or RT task to run.
#[inline]
fn urgent_now(rq: &Rq) -> Option<EntityId> {
    match rq.dl.first() {
        Some((_, id)) => Some(id),
        None if rt::runnable(rq) => rt::pick(rq),
        None => None,
    }
}
