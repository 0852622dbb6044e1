//! A thread that plays a script.

use super::super::program::Flow;
use super::super::state::{TaskState, Waits};
use super::super::{Engine, Step};
use super::Exchanges;
use super::lanes::{Lane, Mode};
use super::objects::{Done, flow};
use schedlab_model::{Act, EventSink, FactKind, Limit, Ns, Outcome, ScriptId, TaskId};

/// After so long it is looked again whether an ended task has given up its context. Chosen: a
/// context switch takes about this long.
const UNTIL_GONE: u64 = 1_000;

/// Where a task is in its script.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Player {
    script: Option<ScriptId>,
    at: u32,
    part: Part,
    round: u64,
    /// When the first round began.
    origin: u64,
    /// Events and facts that it has taken as a recorder.
    drained: u64,
    /// Its last send ended a wait.
    woke: bool,
    /// CPU time that it has had and that was not to be paid: its next operation costs less.
    debt: Ns,
    /// How many lives more it has to play: it was to begin while it still lived.
    again: u32,
}

impl Player {
    /// Returns when its task was created.
    pub(super) fn origin(&self) -> u64 {
        self.origin
    }

    /// Returns when its round began, for absolute times.
    fn base(&self, round: Ns) -> u64 {
        self.origin.saturating_add(round.0.saturating_mul(self.round))
    }
}

/// The parts of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Part {
    /// CPU time before it takes effect.
    #[default]
    Before,
    /// It takes effect, or waits.
    Act,
    /// CPU time after it.
    After,
}

impl Exchanges<'_> {
    /// The task is created: it begins from the start, and its times count from now.
    pub(in super::super) fn begin(&mut self, t: usize, now: u64) {
        let again = self.players[t].again;
        self.players[t] = Player { origin: now, again, ..Player::default() };
        self.lanes[t] = Lane::default();
    }

    /// A task that lives is to live once more behind that.
    fn begin_later(&mut self, t: usize) {
        let player = &mut self.players[t];
        player.again = player.again.saturating_add(1);
    }

    /// Returns whether the task is to live once more, and takes that life.
    fn lives_again(&mut self, t: usize) -> bool {
        let again = &mut self.players[t].again;
        let lives = *again > 0;
        *again -= u32::from(lives);
        lives
    }

    /// Returns the CPU time after an operation, with the price of the wait that it ended now in
    /// place of that of the one that it ended when it was recorded.
    fn with_wakeup(&mut self, t: usize, step: &schedlab_model::Step, price: [Ns; 2]) -> Ns {
        let player = &mut self.players[t];
        let of = |woke: bool, price: Ns| if woke { price } else { Ns::ZERO };
        let [recorded, now] = price;
        let less = of(step.woke, recorded);
        let after = step.after + of(std::mem::take(&mut player.woke), now);
        player.debt += less.saturating_sub(after);
        after.saturating_sub(less)
    }

    /// Notes that a send of `t` ended a wait.
    pub(super) fn note_wakeup(&mut self, t: usize) {
        self.players[t].woke = true;
    }

    /// Returns the CPU time before an operation, less what was paid too much.
    pub(super) fn without_debt(&mut self, t: usize, before: Ns) -> Ns {
        let debt = &mut self.players[t].debt;
        let less = before.min(*debt);
        *debt -= less;
        before - less
    }

    /// Returns what the blocked task `t` wants to receive: object, amount, whether a whole message.
    pub(super) fn wanted_by(&self, t: usize) -> Option<(usize, u64, bool)> {
        let act = match self.lanes[t].mode {
            Mode::Acting(coroutine) => {
                let (executor, state) = (self.lanes[t].executor, coroutine as usize);
                let spec = &self.spec.executors[executor as usize].coroutines[state];
                let at = self.executors[executor as usize].coroutines[state].at;
                spec.steps[at as usize].step.act
            }
            _ => {
                let player = &self.players[t];
                let script = self.spec.scripts.get(player.script?.index())?;
                script.steps.get(player.at as usize)?.act
            }
        };
        match act {
            Act::Receive { object, amount, whole } => Some((object.index(), amount, whole)),
            _ => None,
        }
    }
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// One part of an operation of the script.
    pub(in super::super) fn play(&mut self, cpu: usize, t: usize, script: ScriptId) -> Step<Flow> {
        let Some(exchange) = &mut self.features.exchange else { return Ok(Flow::Exit) };
        let spec = &exchange.spec.scripts[script.index()];
        let player = &mut exchange.players[t];
        player.script = Some(script);
        let over = spec.life.is_some_and(|life| {
            player.part == Part::Before && self.clock.now >= player.origin.saturating_add(life.0)
        });
        let Some(&step) = spec.steps.get(player.at as usize).filter(|_| !over) else {
            let Some(from) = spec.repeat_from.filter(|_| !over) else {
                let (origin, drained) = (player.origin, player.drained);
                // One life behind the other, where it was to begin again meanwhile.
                if exchange.lives_again(t) {
                    exchange.begin(t, self.clock.now);
                } else {
                    exchange.players[t] = Player { origin, drained, ..Player::default() };
                    self.tasks[t].pc += 1;
                }
                return Ok(Flow::Next);
            };
            (player.at, player.round) = (from, player.round + 1);
            exchange.balance(&spec.balance);
            self.wake_all(cpu, schedlab_model::Waker::Task(t.into()), false)?;
            return Ok(self.after_own_call(cpu));
        };
        match player.part {
            Part::Before => {
                player.part = Part::Act;
                let before = exchange.without_debt(t, step.before);
                Ok(self.runs(t, before))
            }
            Part::Act => {
                let base = player.base(spec.round);
                let done = self.act(cpu, t, step.act, base)?;
                // What sleeps on a timer or a device has done its operation when it wakes.
                let timed = matches!(done, Done::Waits(Waits::Timer));
                if (done == Done::Yes || timed)
                    && let Some(exchange) = &mut self.features.exchange
                {
                    exchange.players[t].part = Part::After;
                }
                Ok(flow(done, self.after_own_call(cpu)))
            }
            Part::After => {
                (player.part, player.at) = (Part::Before, player.at + 1);
                let base = Ns(player.base(spec.round));
                let until = match step.act {
                    Act::Sleep(length) => Some(Limit::For(length)),
                    Act::SleepUntil(at) => Some(Limit::At(base + at)),
                    _ => None,
                };
                if let Some(until) = until {
                    let kind = FactKind::Sleep { until, outcome: Outcome::Done };
                    self.output.events.tell(self.clock.now, cpu, t, kind);
                }
                let after = self.after(t, &step, [spec.wake; 2]);
                Ok(self.runs(t, after))
            }
        }
    }

    /// Returns the CPU time after a step of `t`. `wake`: how much more a send costs that ends a
    /// wait, as it was recorded and now. That of a recorder follows from how much was told since it
    /// looked last.
    pub(super) fn after(&mut self, t: usize, step: &schedlab_model::Step, wake: [Ns; 2]) -> Ns {
        let told = self.output.events.records();
        let Some(exchange) = &mut self.features.exchange else { return step.after };
        let Act::Drain { records } = step.act else { return exchange.with_wakeup(t, step, wake) };
        let new = told - std::mem::replace(&mut exchange.players[t].drained, told);
        let length = u128::from(step.after.0) * u128::from(new) / u128::from(records.max(1));
        Ns(u64::try_from(length).unwrap_or(u64::MAX))
    }

    /// Makes `t` run for so long.
    pub(super) fn runs(&mut self, t: usize, length: Ns) -> Flow {
        let task = &mut self.tasks[t];
        task.fresh = false;
        task.left = length.0;
        if length > Ns::ZERO { Flow::Cpu } else { Flow::Next }
    }

    /// Lets an operation take effect. `base`: when the round began, for absolute times.
    pub(super) fn act(&mut self, cpu: usize, t: usize, act: Act, base: u64) -> Step<Done> {
        match act {
            Act::Receive { object, amount, whole } => {
                self.receive_at(cpu, t, object, amount, whole)
            }
            Act::Send { object, amount } => self.send_to(cpu, t, object, amount),
            Act::Sleep(length) => {
                let until = self.clock.now.saturating_add(length.0);
                Ok(self.sleeps_until(t, until, true))
            }
            Act::SleepUntil(at) => {
                let until = base.saturating_add(at.0);
                if until <= self.clock.now {
                    self.tasks[t].exit_paid = false;
                    return Ok(Done::Yes);
                }
                Ok(self.sleeps_until(t, until, true))
            }
            Act::Device(length) => {
                let until = self.clock.now.saturating_add(length.0);
                Ok(self.sleeps_until(t, until, false))
            }
            Act::Spawn(child) => {
                self.spawn_or_later(cpu, t, child)?;
                Ok(Done::Yes)
            }
            Act::Drain { .. } | Act::Nothing => Ok(Done::Yes),
        }
    }

    /// Starts a task, or lets it live once more when its present life is over.
    fn spawn_or_later(&mut self, cpu: usize, t: usize, child: TaskId) -> Step {
        let number = child.index();
        let state = self.tasks[number].state;
        if matches!(state, TaskState::Absent | TaskState::Dead) {
            return self.spawn(cpu, t, child).map(drop);
        }
        if let Some(exchange) = &mut self.features.exchange {
            exchange.begin_later(number);
        }
        if matches!(state, TaskState::Exiting | TaskState::Dying) {
            // Its script is over, its context not yet given up.
            self.due.slots.arm(self.due.layout.task(number), self.clock.now + UNTIL_GONE);
        }
        Ok(())
    }

    /// Lets a task that has ended live once more; one whose context is not given up yet, a little
    /// later. Returns whether it was to live again.
    pub(in super::super) fn live_again(&mut self, t: usize) -> Step<bool> {
        let Some(exchange) = &mut self.features.exchange else { return Ok(false) };
        match self.tasks[t].state {
            TaskState::Exiting | TaskState::Dying => {
                self.due.slots.arm(self.due.layout.task(t), self.clock.now + UNTIL_GONE);
                Ok(true)
            }
            TaskState::Dead if exchange.lives_again(t) => {
                self.create(t, None, self.tasks[t].home as usize)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Arms the timer of `t`, with slack and lateness where it is a timer of the kernel.
    fn sleeps_until(&mut self, t: usize, until: u64, timer: bool) -> Done {
        if self.pay_exit(t) {
            return Done::Owes;
        }
        if timer {
            self.sleep_until(t, until);
        } else {
            self.due.slots.arm(self.due.layout.task(t), until);
        }
        Done::Waits(Waits::Timer)
    }
}
