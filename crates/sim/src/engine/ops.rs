//! The operations of all programs, one behind the other, in eight bytes each. Which one comes next
//! is read at every event of a task, and with thousands of tasks each such read is a line that has
//! left the caches: of operations as programs hold them, a line has two.

use schedlab_model::{Amount, ChannelId, Ns, Op, Program};

/// The operations of a run.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    packed: Vec<Packed>,
    /// What does not fit into eight bytes.
    others: Vec<Op>,
}

/// Where the operations of one program are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Place {
    first: usize,
    count: u32,
}

/// One operation: its kind in the upper four bits, and below what it is about.
#[derive(Clone, Copy, Debug)]
struct Packed(u64);

/// Below the kind.
const BITS: u32 = 60;
/// Of `Send`, the number of the channel is below the count.
const CHANNEL_BITS: u32 = 32;

/// Kinds; the first is a place among the others.
const OTHER: u64 = 0;
const RUN: u64 = 1;
const RUN_DRAW: u64 = 2;
const SLEEP: u64 = 3;
const SLEEP_DRAW: u64 = 4;
const RECEIVE: u64 = 5;
const RECEIVE_ALL: u64 = 6;
const SELECT: u64 = 7;
const SEND: u64 = 8;
const DONE: u64 = 9;

impl Packed {
    /// `None`: it does not fit.
    fn new(op: &Op) -> Option<Packed> {
        let (kind, about) = match *op {
            Op::Run(Amount::Fixed(ns)) => (RUN, ns.0),
            Op::Run(Amount::Draw(index)) => (RUN_DRAW, index.into()),
            Op::Sleep(Amount::Fixed(ns)) => (SLEEP, ns.0),
            Op::Sleep(Amount::Draw(index)) => (SLEEP_DRAW, index.into()),
            Op::Receive(channel) => (RECEIVE, channel.0.into()),
            Op::ReceiveAll(channel) => (RECEIVE_ALL, channel.0.into()),
            Op::Select => (SELECT, 0),
            Op::Send { channel, count } => {
                (SEND, u64::from(count) << CHANNEL_BITS | u64::from(channel.0))
            }
            Op::Done(channel) => (DONE, channel.0.into()),
            _ => return None,
        };
        (about >> BITS == 0).then_some(Packed(kind << BITS | about))
    }

    fn other(place: usize) -> Packed {
        Packed(OTHER << BITS | place as u64)
    }

    #[inline(always)]
    fn op(self, others: &[Op]) -> Option<Op> {
        let about = self.0 & ((1 << BITS) - 1);
        let channel = ChannelId(about as u32);
        Some(match self.0 >> BITS {
            RUN => Op::Run(Amount::Fixed(Ns(about))),
            RUN_DRAW => Op::Run(Amount::Draw(about as u16)),
            SLEEP => Op::Sleep(Amount::Fixed(Ns(about))),
            SLEEP_DRAW => Op::Sleep(Amount::Draw(about as u16)),
            RECEIVE => Op::Receive(channel),
            RECEIVE_ALL => Op::ReceiveAll(channel),
            SELECT => Op::Select,
            SEND => Op::Send { channel, count: (about >> CHANNEL_BITS) as u32 },
            DONE => Op::Done(channel),
            _ => return others.get(about as usize).copied(),
        })
    }
}

impl Ops {
    /// Makes room for so many.
    pub(crate) fn with_room(operations: usize) -> Ops {
        Ops { packed: Vec::with_capacity(operations), others: Vec::new() }
    }

    /// Adds the operations of a program.
    pub(crate) fn add(&mut self, program: &Program) -> Place {
        let place = Place { first: self.packed.len(), count: program.ops.len() as u32 };
        for op in &program.ops {
            let packed = Packed::new(op).unwrap_or_else(|| {
                self.others.push(*op);
                Packed::other(self.others.len() - 1)
            });
            self.packed.push(packed);
        }
        place
    }

    /// Returns an operation of a program; `None`: it is over there.
    #[inline(always)]
    pub(crate) fn get(&self, place: Place, pc: u32) -> Option<Op> {
        if pc >= place.count {
            return None;
        }
        self.packed.get(place.first + pc as usize)?.op(&self.others)
    }
}

impl Place {
    /// The number of operations: where the program is over.
    #[inline(always)]
    pub(crate) fn count(self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, TaskId};

    #[test]
    fn what_is_packed_comes_back() {
        let (long, channel) = (Ns((1 << 60) - 1), ChannelId(u32::MAX));
        let device =
            Op::Device { length: Amount::Fixed(long), cpu: CpuId(3), channel, count: u32::MAX };
        let first = [
            Op::Run(Amount::Fixed(long)),
            Op::Run(Amount::Fixed(Ns(1 << 60))),
            Op::Run(Amount::Draw(u16::MAX)),
            Op::Sleep(Amount::Fixed(Ns(0))),
            Op::Sleep(Amount::Fixed(Ns::MAX)),
            Op::Sleep(Amount::Draw(7)),
            Op::Receive(channel),
            Op::ReceiveAll(channel),
            Op::Select,
        ];
        let second = [
            Op::Send { channel, count: (1 << 28) - 1 },
            Op::Send { channel, count: 1 << 28 },
            Op::Done(channel),
            device,
            Op::NextPeriod { period: long, offset: Ns(5) },
            Op::Spawn(TaskId(9)),
            Op::Exit,
        ];
        let programs = [Program::once(first), Program::once([]), Program::once(second)];
        let mut ops = Ops::with_room(0);
        let places = programs.each_ref().map(|program| ops.add(program));
        for (program, place) in programs.iter().zip(places) {
            assert_eq!(place.count() as usize, program.ops.len());
            for (pc, op) in program.ops.iter().enumerate() {
                assert_eq!(ops.get(place, pc as u32), Some(*op));
            }
            assert_eq!(ops.get(place, place.count()), None);
            assert_eq!(ops.get(place, u32::MAX), None);
        }
        assert_eq!(ops.others.len(), 7, "two that are too long, one too many, and four kinds");
    }
}
