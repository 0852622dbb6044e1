//! The operations of one task, cut where it waits, and the program that they make.

use super::starts::{self, StartUp};
use schedlab_model::{Amount, Branch, ChannelId, Ns, Op, Program};

/// A task of a closed loop that creates others within this first part of its work (in per cent)
/// sets up, as a server that starts while it is recorded: it begins again behind that. Chosen, not
/// measured: Redis has created its threads after 1 % of three seconds.
const SETUP_PERCENT: u128 = 10;
/// Longest single `Run` of an endless task.
const CHUNK: Ns = Ns::from_s(1);

/// What ends a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// It did not sleep.
    None,
    /// A token of another task.
    Task,
    /// A token from outside.
    Outside,
    /// Nothing but time.
    Sleep(Ns),
    /// A device, alone or with others.
    Device,
}

/// What a task does after its recorded work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// Ends, as it did.
    Exit,
    /// Runs for ever.
    Run,
    /// Waits for ever.
    Wait(ChannelId),
    /// Sleeps for this long and begins again, behind the last task that it created; of its start
    /// see `starts`.
    Again(Ns),
    /// Begins again, and creates again what has ended by then.
    Anew,
}

/// The operations of a task, cut where it waits for a token.
pub(super) struct Parts {
    ops: Vec<Op>,
    /// What each part waits for, and where its operations begin.
    parts: Vec<(Wait, usize)>,
    pub(super) arrivals: Vec<Ns>,
    /// So many of them are its start, up to its first sleep in state `S`; 0: it was there when the
    /// recording began.
    pub(super) start: usize,
}

impl Default for Parts {
    fn default() -> Parts {
        let parts = vec![(Wait::None, 0)];
        Parts { ops: Vec::new(), parts, arrivals: Vec::new(), start: 0 }
    }
}

impl Parts {
    pub(super) fn begin(&mut self, wait: Wait) {
        self.parts.push((wait, self.ops.len()));
    }

    /// A token from outside at this time.
    pub(super) fn arrive(&mut self, at: Ns) {
        self.arrivals.push(at);
        self.begin(Wait::Outside);
    }

    /// The operations of the last part, to add to.
    pub(super) fn ops(&mut self) -> &mut Vec<Op> {
        &mut self.ops
    }

    /// How many parts there are.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// What each part waits for, and its operations.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Wait, &[Op])> {
        let ends = self.parts.iter().skip(1).map(|part| part.1).chain([self.ops.len()]);
        self.parts.iter().zip(ends).map(|(&(wait, from), to)| (wait, &self.ops[from..to]))
    }

    pub(super) fn has(&self, wait: Wait) -> bool {
        self.parts.iter().any(|(w, _)| *w == wait)
    }

    pub(super) fn creates(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Spawn(_)))
    }

    /// Whether it creates no more tasks when [`SETUP_PERCENT`] of its work is done.
    pub(super) fn sets_up(&self) -> bool {
        let (mut done, mut before_last) = (0_u128, 0_u128);
        for op in &self.ops {
            match op {
                Op::Spawn(_) => before_last = done,
                op => done += starts::run(op).map_or(0, |length| u128::from(length.0)),
            }
        }
        before_last * 100 <= done * SETUP_PERCENT
    }

    /// Whether it creates all others before it waits for the first time, as a benchmark's main
    /// thread does.
    pub(super) fn creates_first(&self) -> bool {
        let second = self.parts.get(1).map_or(self.ops.len(), |part| part.1);
        !self.ops[second..].iter().any(|op| matches!(op, Op::Spawn(_)))
    }

    /// Its start, as operations of [`Parts::in_order`].
    pub(super) fn start_up(&self) -> Option<StartUp> {
        if self.start == 0 || self.start > self.len() {
            return None;
        }
        let others = self.iter().skip(self.start);
        let work = others.map(|(_, ops)| ops.iter().filter_map(starts::run).sum()).collect();
        let count = |(wait, ops): (Wait, &[Op])| ops.len() + usize::from(wait != Wait::None);
        StartUp::new(self.iter().take(self.start).map(count).sum(), work)
    }

    /// One channel for all tokens, everything in the recorded order.
    pub(super) fn in_order(self, own: ChannelId, ends: Ending) -> Program {
        let waits = self.parts.iter().filter(|(wait, _)| *wait != Wait::None).count();
        // One more for what may come behind them.
        let mut ops = Vec::with_capacity(self.ops.len() + waits + 1);
        for (wait, part) in self.iter() {
            if wait != Wait::None {
                ops.push(Op::Receive(own));
            }
            ops.extend_from_slice(part);
        }
        let end = ops.len() as u32;
        let repeat_from = match ends {
            Ending::Exit => None,
            Ending::Run => {
                ops.push(Op::Run(Amount::Fixed(CHUNK)));
                Some(end)
            }
            Ending::Wait(never) => {
                ops.push(Op::Receive(never));
                Some(end)
            }
            Ending::Again(seam) => {
                if seam > Ns::ZERO {
                    ops.push(Op::Sleep(Amount::Fixed(seam)));
                }
                // Behind its setup: the tasks that it has created are there already.
                let setup = ops.iter().rposition(|op| matches!(op, Op::Spawn(_)));
                Some(setup.map_or(0, |last| last as u32 + 1))
            }
            Ending::Anew => Some(0),
        };
        Program { ops, repeat_from, ..Program::default() }
    }

    /// Two channels: what other tasks made it do, and what the outside made it do, each in its own
    /// order.
    pub(super) fn event_loop(self, own: ChannelId, outside: ChannelId) -> Program {
        let mut ops = Vec::new();
        let mut branches = Vec::new();
        let kinds = [(Wait::None, None), (Wait::Task, Some(own)), (Wait::Outside, Some(outside))];
        for (kind, channel) in kinds {
            let from = ops.len() as u32;
            for (_, part) in self.iter().filter(|(wait, _)| *wait == kind) {
                ops.extend_from_slice(part);
                ops.push(Op::Select);
            }
            let to = ops.len() as u32;
            branches.extend(channel.filter(|_| to > from).map(|channel| Branch {
                channel,
                from,
                to,
            }));
        }
        Program { ops, branches, ..Program::default() }
    }
}
