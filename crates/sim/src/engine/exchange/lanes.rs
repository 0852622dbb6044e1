//! The threads of an executor.

use super::super::program::Flow;
use super::super::state::Waits;
use super::super::{Engine, Step};
use super::Exchanges;
use super::objects::{Done, flow};
use schedlab_model::{
    Act, CoroutineStep, EventSink, ExecutorId, FactKind, Holds, Limit, Ns, Outcome, Waker,
};
use std::collections::VecDeque;

/// What a thread of an executor does.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) mode: Mode,
    pub(super) executor: u32,
    /// Coroutines that it took and whose turn is not over.
    batch: VecDeque<u32>,
    /// The first coroutine of the batch did nothing yet in this turn.
    first_step: bool,
    /// The receives and sends of this activation.
    made: [u32; 2],
    /// What its look found.
    found: u32,
    /// Its last send was the first of this activation.
    first_send: bool,
    /// CPU time after the sleep of the present look.
    after_sleep: Ns,
    /// It sleeps, and is woken when something is ready.
    asleep: bool,
}

/// Where a lane is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Mode {
    /// It looks what is ready.
    #[default]
    Look,
    /// It found nothing, and has paid for the way into its sleep.
    Falling,
    /// It found something, and has paid for the look.
    Looked,
    /// It serves the first coroutine of its batch.
    Serving,
    /// An operation of this coroutine takes effect, or waits.
    Acting(u32),
    /// An operation of this coroutine has taken effect.
    Acted(u32),
}

impl Exchanges<'_> {
    /// Returns the next step of a coroutine; `None`: it has none at all.
    fn next_step(&self, executor: u32, coroutine: u32) -> Option<CoroutineStep> {
        let at = self.executors[executor as usize].coroutines[coroutine as usize].at;
        let steps = &self.spec.executors[executor as usize].coroutines[coroutine as usize].steps;
        steps.get(at as usize).copied()
    }

    /// Returns whether what the coroutine waits for is there.
    pub(super) fn can_go_on(&self, executor: u32, coroutine: u32) -> bool {
        match self.next_step(executor, coroutine).map(|step| step.step.act) {
            Some(Act::Receive { object, amount, whole }) => {
                self.available(object.index(), amount, whole).is_some()
            }
            Some(_) => true,
            None => false,
        }
    }

    /// Returns the lock for which the coroutine waits.
    fn waits_at_lock(&self, executor: u32, coroutine: u32) -> Option<usize> {
        let Act::Receive { object, .. } = self.next_step(executor, coroutine)?.step.act else {
            return None;
        };
        let lock = matches!(self.spec.objects[object.index()].holds, Holds::Lock { .. });
        (lock && !self.can_go_on(executor, coroutine)).then_some(object.index())
    }

    /// The coroutine can go on: a lane that sleeps is woken for it.
    pub(super) fn make_ready(&mut self, executor: u32, coroutine: u32) {
        let state = &mut self.executors[executor as usize];
        let entry = &mut state.coroutines[coroutine as usize];
        if !std::mem::replace(&mut entry.ready, true) {
            state.ready.push_back(coroutine);
        }
        let sleeper = state.lanes.iter().copied().find(|&lane| self.lanes[lane as usize].asleep);
        if let Some(lane) = sleeper {
            self.lanes[lane as usize].asleep = false;
            self.woken.push(lane);
        }
    }

    /// The coroutine's turn is over: it waits for what it needs, or is ready again. Returns when
    /// its timer is due.
    fn park(&mut self, executor: u32, coroutine: u32, now: u64) -> Option<u64> {
        match self.next_step(executor, coroutine)?.step.act {
            Act::Receive { object, .. } if !self.can_go_on(executor, coroutine) => {
                self.objects[object.index()].parked.push((executor, coroutine));
                None
            }
            Act::SleepUntil(gap) => {
                // Of an executor: so long after the timer before.
                let state = &mut self.executors[executor as usize];
                state.timer_at = state.timer_at.saturating_add(gap.0).max(now + 1);
                Some(state.timer_at)
            }
            _ => {
                self.make_ready(executor, coroutine);
                None
            }
        }
    }

    /// Goes on to the coroutine's next step.
    fn go_past(&mut self, executor: u32, coroutine: u32) {
        let spec = &self.spec.executors[executor as usize].coroutines[coroutine as usize];
        let entry = &mut self.executors[executor as usize].coroutines[coroutine as usize];
        entry.at += 1;
        if entry.at as usize == spec.steps.len() {
            entry.at = 0;
            self.balance(&spec.balance);
        }
    }

    /// Returns whether the lane has attended for as long as it is to.
    fn life_is_over(&self, t: usize, now: u64) -> bool {
        let life = self.spec.executors[self.lanes[t].executor as usize].life;
        life.is_some_and(|life| now >= self.players[t].origin().saturating_add(life.0))
    }

    /// Hands what is ready to the lane: all of it where it is the only one.
    fn hand_out(&mut self, t: usize) {
        let executor = &mut self.executors[self.lanes[t].executor as usize];
        let lane = &mut self.lanes[t];
        (lane.made, lane.first_step) = ([0; 2], true);
        let count = if executor.lanes.len() == 1 { executor.ready.len() } else { 1 };
        lane.found = count.min(executor.ready.len()) as u32;
        for coroutine in executor.ready.drain(..count.min(executor.ready.len())) {
            executor.coroutines[coroutine as usize].ready = false;
            lane.batch.push_back(coroutine);
        }
    }

    /// Returns what the next look of lane `t` costs, before its sleep (or all of it) and after, but
    /// for what it finds.
    fn look(&mut self, t: usize, executor: u32, asleep: bool) -> (Ns, Ns) {
        let spec = &self.spec.executors[executor as usize];
        let [receives, sends] = self.lanes[t].made;
        let behind = Ns(spec.prices.look_behind.0.saturating_mul((receives + sends).into()));
        let next = &mut self.executors[executor as usize].looks[usize::from(asleep)];
        let turn = |next: &mut u32, count: usize| {
            let at = *next as usize % count;
            *next = (at + 1) as u32;
            at
        };
        if !asleep && !spec.looks_awake.is_empty() {
            return (behind + spec.looks_awake[turn(next, spec.looks_awake.len())], Ns::ZERO);
        }
        match spec.looks_asleep.len() {
            0 => (behind, Ns::ZERO),
            count => {
                let (before, after) = spec.looks_asleep[turn(next, count)];
                (behind + before, after)
            }
        }
    }

    /// Returns what it costs to find what is ready now.
    fn finds(&self, executor: u32) -> Ns {
        let state = &self.executors[executor as usize];
        let found = if state.lanes.len() == 1 { state.ready.len() } else { 1 };
        let each = self.spec.executors[executor as usize].prices.look_found;
        Ns(each.0.saturating_mul(found as u64))
    }

    /// Ends the turn of the first coroutine of the batch, or puts it behind the others.
    fn next_of_batch(&mut self, t: usize, comes_again: bool) {
        let lane = &mut self.lanes[t];
        if let Some(coroutine) = lane.batch.pop_front()
            && comes_again
        {
            lane.batch.push_back(coroutine);
        }
        lane.first_step = true;
    }

    /// Returns the CPU time before a step: more when it became the first of its kind in its
    /// activation, less when it was.
    fn before(&mut self, t: usize, step: &CoroutineStep) -> Ns {
        let spec = &self.spec.executors[self.lanes[t].executor as usize];
        let lane = &mut self.lanes[t];
        let (kind, price, number) = match step.step.act {
            Act::Receive { .. } => (0, spec.prices.first_receive, lane.found),
            Act::Send { .. } => (1, spec.prices.first_send, lane.made[0]),
            _ => return step.step.before,
        };
        lane.made[kind] += 1;
        let first = lane.made[kind] == 1;
        lane.first_send = first && kind == 1;
        let now = if first { price.of(number.max(1)) } else { 0 };
        let recorded = if step.first > 0 { price.of(step.first) } else { 0 };
        Ns(step.step.before.0.saturating_add_signed(now.saturating_sub(recorded)))
    }
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Lets every coroutine wait for what it needs first.
    pub(in super::super) fn start_exchanges(&mut self) {
        let Some(exchange) = &self.features.exchange else { return };
        let spec = exchange.spec;
        for (number, executor) in spec.executors.iter().enumerate() {
            for coroutine in 0..executor.coroutines.len() {
                self.rest(number as u32, coroutine as u32);
            }
        }
        // No lane exists yet that could sleep.
        if let Some(exchange) = &mut self.features.exchange {
            exchange.woken.clear();
        }
        self.arm_arrival();
    }

    /// The coroutine waits for what it needs. A lock that none holds it has at once.
    fn rest(&mut self, executor: u32, coroutine: u32) {
        let now = self.clock.now;
        let Some(exchange) = &mut self.features.exchange else { return };
        if let Some(at) = exchange.park(executor, coroutine, now) {
            self.due.slots.arm(self.due.layout.executor(executor as usize), at);
        }
        let Some(exchange) = &self.features.exchange else { return };
        if let Some(lock) = exchange.waits_at_lock(executor, coroutine)
            && self.is_free_for(executor, lock)
            && let Some(exchange) = &mut self.features.exchange
        {
            exchange.put(lock, 1);
        }
    }

    /// The timer of an executor fires: its timer coroutine, the first, is ready.
    pub(in super::super) fn executor_timer(&mut self, executor: usize) -> Step {
        let Some(exchange) = &mut self.features.exchange else { return Ok(()) };
        exchange.make_ready(executor as u32, 0);
        self.interrupt_noted(Waker::HardIrq)
    }

    /// One part of what a lane does, or its end.
    pub(in super::super) fn attend(
        &mut self,
        cpu: usize,
        t: usize,
        executor: ExecutorId,
    ) -> Step<Flow> {
        let Some(exchange) = &mut self.features.exchange else { return Ok(Flow::Exit) };
        exchange.lanes[t].executor = executor.0;
        if exchange.lanes[t].mode == Mode::Look && exchange.life_is_over(t, self.clock.now) {
            self.tasks[t].pc += 1;
            return Ok(Flow::Next);
        }
        self.lane(cpu, t, executor)
    }

    /// One part of what a lane does.
    fn lane(&mut self, cpu: usize, t: usize, executor: ExecutorId) -> Step<Flow> {
        let Some(exchange) = &mut self.features.exchange else { return Ok(Flow::Exit) };
        let number = executor.0;
        let idle = exchange.executors[executor.index()].ready.is_empty();
        match exchange.lanes[t].mode {
            Mode::Look => {
                let (before, after) = exchange.look(t, number, idle);
                exchange.lanes[t].after_sleep = after;
                exchange.lanes[t].mode = if idle { Mode::Falling } else { Mode::Looked };
                let finds = if idle { Ns::ZERO } else { exchange.finds(number) };
                Ok(self.runs(t, before + finds))
            }
            Mode::Falling if idle => {
                if self.pay_exit(t) {
                    return Ok(Flow::Cpu);
                }
                if let Some(exchange) = &mut self.features.exchange {
                    exchange.lanes[t].asleep = true;
                }
                Ok(Flow::Block(Waits::Executor(number)))
            }
            Mode::Falling => {
                exchange.lanes[t].mode = Mode::Looked;
                let after = exchange.lanes[t].after_sleep + exchange.finds(number);
                self.tasks[t].exit_paid = false;
                Ok(self.runs(t, after))
            }
            Mode::Looked => {
                exchange.hand_out(t);
                exchange.lanes[t].mode = Mode::Serving;
                let ready = exchange.lanes[t].batch.len() as u32;
                let (selector, until, outcome) = (None, Limit::None, Outcome::Done);
                let kind = FactKind::Select { selector, ready, until, outcome };
                self.output.events.tell(self.clock.now, cpu, t, kind);
                Ok(Flow::Next)
            }
            Mode::Serving => self.serve_coroutine(cpu, t, number),
            Mode::Acting(coroutine) => {
                let Some(step) = exchange.next_step(number, coroutine) else {
                    return Ok(Flow::Exit);
                };
                let timer = matches!(step.step.act, Act::SleepUntil(_));
                let done = if timer { Done::Yes } else { self.act(cpu, t, step.step.act, 0)? };
                if matches!(done, Done::Yes | Done::Waits(Waits::Timer))
                    && let Some(exchange) = &mut self.features.exchange
                {
                    exchange.lanes[t].mode = Mode::Acted(coroutine);
                }
                Ok(flow(done, self.after_own_call(cpu)))
            }
            Mode::Acted(coroutine) => {
                let step = exchange.next_step(number, coroutine);
                exchange.go_past(number, coroutine);
                exchange.lanes[t].mode = Mode::Serving;
                let wake = exchange.spec.executors[executor.index()].prices.wake;
                let now = wake[usize::from(exchange.lanes[t].first_send)];
                let price = |step: &CoroutineStep| [wake[usize::from(step.first > 0)], now];
                let after = step.map_or(Ns::ZERO, |step| self.after(t, &step.step, price(&step)));
                self.wake_all(cpu, Waker::Task(t.into()), false)?;
                Ok(self.runs(t, after))
            }
        }
    }

    /// Begins the next step of the batch's first coroutine, or ends its turn.
    fn serve_coroutine(&mut self, cpu: usize, t: usize, executor: u32) -> Step<Flow> {
        let Some(exchange) = &mut self.features.exchange else { return Ok(Flow::Exit) };
        let lane = &mut exchange.lanes[t];
        let Some(&coroutine) = lane.batch.front() else {
            lane.mode = Mode::Look;
            return Ok(Flow::Next);
        };
        let (first, several) = (lane.first_step, lane.batch.len() > 1);
        let Some(step) = exchange.next_step(executor, coroutine) else {
            exchange.next_of_batch(t, false);
            return Ok(Flow::Next);
        };
        let timer = matches!(step.step.act, Act::SleepUntil(_));
        let there = exchange.can_go_on(executor, coroutine) && (first || !timer);
        if !there || (!first && step.later && !step.looked) {
            exchange.next_of_batch(t, false);
            self.rest(executor, coroutine);
            self.wake_all(cpu, Waker::Task(t.into()), false)?;
            return Ok(Flow::Next);
        }
        if !first && step.after_others && several {
            exchange.next_of_batch(t, true);
            return Ok(Flow::Next);
        }
        exchange.lanes[t].first_step = false;
        exchange.lanes[t].mode = Mode::Acting(coroutine);
        let before = exchange.before(t, &step);
        let before = exchange.without_debt(t, before);
        Ok(self.runs(t, before))
    }
}
