//! A thread that plays a script.

use super::super::program::Flow;
use super::super::state::Waits;
use super::super::{Engine, Step};
use super::Exchanges;
use super::lanes::Mode;
use super::objects::{Done, flow};
use schedlab_model::{Act, EventSink, FactKind, Limit, Ns, Outcome, ScriptId};

/// Where a task is in its script.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Player {
    script: Option<ScriptId>,
    at: u32,
    part: Part,
    round: u64,
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
        let Some(&step) = spec.steps.get(player.at as usize) else {
            let Some(from) = spec.repeat_from else {
                *player = Player::default();
                self.tasks[t].pc += 1;
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
                Ok(self.runs(t, step.before))
            }
            Part::Act => {
                let base = spec.round.0.saturating_mul(player.round);
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
                let base = Ns(spec.round.0.saturating_mul(player.round));
                let until = match step.act {
                    Act::Sleep(length) => Some(Limit::For(length)),
                    Act::SleepUntil(at) => Some(Limit::At(base + at)),
                    _ => None,
                };
                if let Some(until) = until {
                    let kind = FactKind::Sleep { until, outcome: Outcome::Done };
                    self.output.events.tell(self.clock.now, cpu, t, kind);
                }
                Ok(self.runs(t, step.after))
            }
        }
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
                self.spawn(cpu, t, child)?;
                Ok(Done::Yes)
            }
            Act::Nothing => Ok(Done::Yes),
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
