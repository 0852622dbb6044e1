//! What happens at one object.

use super::super::program::Flow;
use super::super::state::{TaskState, Waits};
use super::super::{Engine, Step};
use super::Exchanges;
use schedlab_model::{
    EventSink, FactKind, Holds, Limit, Ns, ObjectId, ObjectSpec, Outcome, TaskId, Transfer, Waker,
};
use std::collections::VecDeque;

/// The state of one object.
#[derive(Debug)]
pub(super) struct Object {
    /// Bytes or tokens in it. Less than nothing when a balance took what is still to come.
    have: i64,
    /// What is left of each message of a queue.
    messages: VecDeque<i64>,
    /// Tasks that wait to receive.
    readers: VecDeque<u32>,
    /// Coroutines that wait to receive: executor and number.
    pub(super) parked: Vec<(u32, u32)>,
    /// Tasks that wait for room.
    senders: VecDeque<u32>,
    /// When the oldest message came that has no answer yet.
    asked_at: Option<u64>,
}

impl Object {
    pub(super) fn new(spec: &ObjectSpec) -> Object {
        let have = i64::try_from(spec.initial).unwrap_or(i64::MAX);
        let mut messages = VecDeque::new();
        if spec.holds == Holds::Queue && have > 0 {
            messages.push_back(have);
        }
        Object {
            have,
            messages,
            readers: VecDeque::new(),
            parked: Vec::new(),
            senders: VecDeque::new(),
            asked_at: None,
        }
    }
}

/// What became of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Done {
    /// It took effect.
    Yes,
    /// Its way into the kernel has to be paid for first.
    Owes,
    /// The task waits, and tries again when it is woken.
    Waits(Waits),
}

impl Exchanges<'_> {
    /// Returns how much a receive would take now; `None`: it has to wait.
    pub(super) fn available(&self, object: usize, amount: u64, whole: bool) -> Option<i64> {
        let state = &self.objects[object];
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        match self.spec.objects[object].holds {
            Holds::Queue => {
                let first = *state.messages.front()?;
                Some(if whole { first } else { amount.min(first) })
            }
            _ => (state.have >= amount).then_some(amount),
        }
    }

    /// Takes so much, and notes in `woken` which sender has room now and which reader finds the
    /// rest.
    pub(super) fn take(&mut self, object: usize, amount: i64) {
        let state = &mut self.objects[object];
        state.have -= amount;
        if let Some(first) = state.messages.front_mut() {
            *first -= amount;
            if *first <= 0 {
                state.messages.pop_front();
            }
        }
        let room = self.spec.objects[object].room;
        if room.is_some_and(|room| state.have <= i64::try_from(room.resume_at).unwrap_or(i64::MAX))
            && let Some(sender) = state.senders.pop_front()
        {
            self.woken.push(sender);
        }
        if self.objects[object].have > 0 {
            self.offer(object);
        }
    }

    /// Puts so much in, and notes whose wait ends.
    pub(super) fn put(&mut self, object: usize, amount: i64) {
        let state = &mut self.objects[object];
        match self.spec.objects[object].holds {
            Holds::Lock { .. } if state.readers.is_empty() && state.parked.is_empty() => return,
            Holds::Lock { .. } => state.have = 1,
            Holds::Queue if amount > 0 => {
                state.have += amount;
                state.messages.push_back(amount);
            }
            _ => state.have += amount,
        }
        self.offer(object);
    }

    /// Tells those that wait at the object what is there: every coroutine that can go on, and the
    /// first task.
    fn offer(&mut self, object: usize) {
        let mut at = 0;
        while let Some(&(executor, coroutine)) = self.objects[object].parked.get(at) {
            if self.can_go_on(executor, coroutine) {
                self.objects[object].parked.swap_remove(at);
                self.make_ready(executor, coroutine);
            } else {
                at += 1;
            }
        }
        let Some(&reader) = self.objects[object].readers.front() else { return };
        let enough = match self.wanted_by(reader as usize) {
            Some((wanted, amount, whole)) if wanted == object => {
                self.available(object, amount, whole).is_some()
            }
            _ => true,
        };
        if enough {
            self.objects[object].readers.pop_front();
            self.woken.push(reader);
        }
    }

    /// Adds what a script or a coroutine is to add when it begins again.
    pub(super) fn balance(&mut self, balance: &[(ObjectId, i64)]) {
        for &(object, amount) in balance {
            let state = &mut self.objects[object.index()];
            if self.spec.objects[object.index()].holds == Holds::Queue && amount > 0 {
                state.messages.push_back(amount);
            }
            state.have += amount;
            self.offer(object.index());
        }
    }
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Task `t` receives at the object.
    pub(super) fn receive_at(
        &mut self,
        cpu: usize,
        t: usize,
        object: ObjectId,
        amount: u64,
        whole: bool,
    ) -> Step<Done> {
        let object = object.index();
        let Some(exchange) = &mut self.features.exchange else { return Ok(Done::Yes) };
        let lock = matches!(exchange.spec.objects[object].holds, Holds::Lock { .. });
        let mut found = exchange.available(object, amount, whole);
        if found.is_none() && lock && !self.may_be_held(&[t as u32], object) {
            found = Some(0);
        }
        match found {
            Some(amount) => {
                let Some(exchange) = &mut self.features.exchange else { return Ok(Done::Yes) };
                exchange.take(object, if lock { exchange.objects[object].have } else { amount });
                self.output.metrics.objects[object].receives += 1;
                self.tasks[t].exit_paid = false;
                self.tell(cpu, t, object, false, amount);
                self.wake_noted(cpu, t, object)?;
                Ok(Done::Yes)
            }
            None if self.pay_exit(t) => Ok(Done::Owes),
            None => {
                if let Some(exchange) = &mut self.features.exchange {
                    exchange.objects[object].readers.push_back(t as u32);
                }
                Ok(Done::Waits(Waits::Object(object as u32)))
            }
        }
    }

    /// Task `t` sends to the object.
    pub(super) fn send_to(
        &mut self,
        cpu: usize,
        t: usize,
        object: ObjectId,
        amount: u64,
    ) -> Step<Done> {
        let object = object.index();
        let signed = i64::try_from(amount).unwrap_or(i64::MAX);
        let Some(exchange) = &self.features.exchange else { return Ok(Done::Yes) };
        let state = &exchange.objects[object];
        let full = exchange.spec.objects[object].room.is_some_and(|room| {
            state.have > 0
                && state.have.saturating_add(signed)
                    > i64::try_from(room.capacity).unwrap_or(i64::MAX)
        });
        if full {
            if self.pay_exit(t) {
                return Ok(Done::Owes);
            }
            if let Some(exchange) = &mut self.features.exchange {
                exchange.objects[object].senders.push_back(t as u32);
            }
            return Ok(Done::Waits(Waits::Object(object as u32)));
        }
        self.answer(object, signed);
        self.tasks[t].exit_paid = false;
        self.tell(cpu, t, object, true, signed);
        if let Some(exchange) = &mut self.features.exchange {
            exchange.put(object, signed);
            if !exchange.woken.is_empty() {
                exchange.note_wakeup(t);
            }
        }
        self.wake_noted(cpu, t, object)?;
        Ok(Done::Yes)
    }

    /// Hands the fact of an operation on.
    fn tell(&mut self, cpu: usize, t: usize, object: usize, sends: bool, amount: i64) {
        let Some(exchange) = &self.features.exchange else { return };
        let lock = matches!(exchange.spec.objects[object].holds, Holds::Lock { .. });
        let (futex, bytes) = (ObjectId::from(object), u32::try_from(amount).unwrap_or(u32::MAX));
        let kind = match (lock, sends) {
            (false, true) => FactKind::Send(Transfer::done(futex, bytes)),
            (false, false) => FactKind::Receive(Transfer::done(futex, bytes)),
            // The kernel sees the holder of a futex only where another task waits.
            (true, true) => {
                let woken = u32::from(!exchange.objects[object].readers.is_empty());
                FactKind::FutexWake { futex, asked: 1, woken, requeue: None }
            }
            (true, false) => FactKind::FutexWait {
                futex,
                expected: 2,
                until: Limit::None,
                outcome: Outcome::Done,
            },
        };
        self.output.events.tell(self.clock.now, cpu, t, kind);
    }

    /// Counts a message: as a request, or as the answer to one.
    fn answer(&mut self, object: usize, amount: i64) {
        let now = self.clock.now;
        let Some(exchange) = &mut self.features.exchange else { return };
        let metrics = &mut self.output.metrics.objects;
        metrics[object].messages += 1;
        metrics[object].amount += amount.unsigned_abs();
        if exchange.spec.objects[object].answered_in.is_some() {
            exchange.objects[object].asked_at.get_or_insert(now);
        }
        for &request in &exchange.answers[object] {
            if let Some(asked) = exchange.objects[request as usize].asked_at.take() {
                metrics[request as usize].response.record(Ns(now - asked));
            }
        }
    }

    /// Wakes those whose wait an operation of `t` at `object` has ended.
    pub(super) fn wake_noted(&mut self, cpu: usize, t: usize, object: usize) -> Step {
        let sync = self.features.exchange.as_ref().is_some_and(|e| e.spec.objects[object].sync);
        self.wake_all(cpu, Waker::Task(TaskId::from(t)), sync)
    }

    /// Wakes those whose wait has ended.
    pub(super) fn wake_all(&mut self, cpu: usize, waker: Waker, sync: bool) -> Step {
        let Some(exchange) = &mut self.features.exchange else { return Ok(()) };
        if exchange.woken.is_empty() {
            return Ok(());
        }
        let mut woken = std::mem::take(&mut exchange.woken);
        for &other in &woken {
            if !FREE && matches!(waker, Waker::Task(_)) {
                self.steal(cpu, self.input.costs.wake_call_ns.0);
            }
            self.wake(other as usize, cpu, waker, sync)?;
        }
        woken.clear();
        if let Some(exchange) = &mut self.features.exchange {
            exchange.woken = woken;
        }
        Ok(())
    }

    /// Wakes those whose wait an interrupt has ended.
    pub(super) fn interrupt_noted(&mut self, waker: Waker) -> Step {
        let Some(exchange) = &mut self.features.exchange else { return Ok(()) };
        let mut woken = std::mem::take(&mut exchange.woken);
        for &task in &woken {
            self.wake_from_outside(task as usize, waker)?;
        }
        woken.clear();
        if let Some(exchange) = &mut self.features.exchange {
            exchange.woken = woken;
        }
        Ok(())
    }

    /// Arms the next arrival from outside.
    pub(super) fn arm_arrival(&mut self) {
        let Some(exchange) = &self.features.exchange else { return };
        if let Some(next) = exchange.spec.arrivals.get(exchange.arrival) {
            let at = next.at.0.max(self.clock.now);
            self.due.slots.arm(self.due.layout.arrival(), at);
        }
    }

    /// What is due comes from outside.
    pub(in super::super) fn comes_from_outside(&mut self) -> Step {
        let Some(exchange) = &mut self.features.exchange else { return Ok(()) };
        let Some(&next) = exchange.spec.arrivals.get(exchange.arrival) else { return Ok(()) };
        exchange.arrival += 1;
        let amount = i64::try_from(next.amount).unwrap_or(i64::MAX);
        self.answer(next.object.index(), amount);
        if let Some(exchange) = &mut self.features.exchange {
            exchange.put(next.object.index(), amount);
        }
        self.interrupt_noted(Waker::SoftIrq)?;
        self.arm_arrival();
        Ok(())
    }

    /// Returns whether a task may hold the lock: one that wakes there and is awake, other than
    /// these.
    fn may_be_held(&self, besides: &[u32], lock: usize) -> bool {
        let Some(exchange) = &self.features.exchange else { return false };
        let Holds::Lock { wakers } = &exchange.spec.objects[lock].holds else { return true };
        wakers.iter().any(|waker| !besides.contains(&waker.0) && self.is_awake(waker.index()))
    }

    /// Returns whether a coroutine of the executor finds the lock free.
    pub(super) fn is_free_for(&self, executor: u32, lock: usize) -> bool {
        let Some(exchange) = &self.features.exchange else { return false };
        !self.may_be_held(&exchange.executors[executor as usize].lanes, lock)
    }

    fn is_awake(&self, t: usize) -> bool {
        matches!(self.tasks[t].state, TaskState::Ready | TaskState::Running | TaskState::Moving)
    }

    /// Task `t` falls asleep or ends: locks that it alone may have held are free.
    pub(in super::super) fn lets_go(&mut self, cpu: usize, t: usize) -> Step {
        let Some(exchange) = &self.features.exchange else { return Ok(()) };
        for at in 0..exchange.locks_of[t].len() {
            let Some(exchange) = &self.features.exchange else { return Ok(()) };
            let lock = exchange.locks_of[t][at] as usize;
            let first = exchange.objects[lock].readers.front().copied();
            // The task itself may be the one that has just begun to wait there.
            let reader = first.filter(|&first| first as usize != t);
            let free = match (reader, exchange.objects[lock].parked.first()) {
                (Some(first), _) => !self.may_be_held(&[first], lock),
                (None, Some(&(executor, _))) => self.is_free_for(executor, lock),
                (None, None) => false,
            };
            if !free {
                continue;
            }
            if let Some(exchange) = &mut self.features.exchange {
                exchange.put(lock, 1);
            }
            self.wake_noted(cpu, t, lock)?;
        }
        Ok(())
    }
}

/// What follows an operation.
pub(super) fn flow(done: Done, follows: Flow) -> Flow {
    match done {
        Done::Yes => follows,
        Done::Owes => Flow::Cpu,
        Done::Waits(waits) => Flow::Block(waits),
    }
}
