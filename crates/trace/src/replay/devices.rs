//! Waits for devices: who set one to work, and whom its interrupt woke.
//!
//! A sleep in state `D` that an interrupt ended was a wait for a device. When several tasks wait
//! for one piece of work (four compilers that need the same page of a shared file, say), one
//! interrupt wakes them all, and the kernel thread that sends the next request: they meet on that
//! interrupt's CPU, and wait for each other. So of those whom one interrupt woke, the task that
//! slept longest sets the device to work for as long as it slept, and the interrupt, on the CPU on
//! which it came, lets all of them go on. Who comes later than the interrupt does not wait.

use super::classify::Loop;
use super::timeline::TaskTimeline;
use schedlab_model::{Amount, ChannelId, CpuId, Ns, Op, PrevState};
use std::collections::BTreeMap;

/// Part of a task in a wait for a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    /// Where it waits: the number of the device's work.
    work: u32,
    /// How long the work takes, whom the interrupt comes to, and how many wait for it; `None`:
    /// another task sees to that.
    starts: Option<(Ns, CpuId, u32)>,
}

/// All waits for devices.
#[derive(Debug, Default)]
pub(super) struct Devices {
    parts: BTreeMap<(usize, usize), Part>,
    /// Who sets devices to work, by the number of the work.
    pub(super) starters: Vec<usize>,
    /// The number of the work for which a task waits alone, again and again.
    alone: BTreeMap<usize, u32>,
}

/// A task's activation, and how long it slept before it.
#[derive(Clone, Copy)]
struct Sleeper {
    task: usize,
    activation: usize,
    slept: Ns,
    on: CpuId,
    device: bool,
}

/// Finds those whom interrupts woke together.
pub(super) fn find(lines: &[TaskTimeline], loops: &[Loop]) -> Devices {
    let mut interrupts: BTreeMap<u32, Vec<Sleeper>> = BTreeMap::new();
    for (task, line) in lines.iter().enumerate() {
        // Whatever else one of these waits for has a place in its order.
        let special = loops.iter().any(|l| l.tasks.binary_search(&task).is_ok());
        for (activation, a) in line.activations.iter().enumerate().skip(1) {
            let (Some((slept, state)), Some((on, interrupt))) = (a.slept, a.interrupt) else {
                continue;
            };
            let device = state == PrevState::DiskSleep;
            if device || !special {
                let sleeper = Sleeper { task, activation, slept, on, device };
                interrupts.entry(interrupt).or_default().push(sleeper);
            }
        }
    }
    let mut devices = Devices::default();
    interrupts.values().for_each(|sleepers| devices.add(sleepers));
    devices
}

impl Devices {
    /// Those whom one interrupt woke.
    fn add(&mut self, sleepers: &[Sleeper]) {
        let waiters = sleepers.iter().filter(|sleeper| sleeper.device);
        // The first of equals.
        let Some(first) = waiters.rev().max_by_key(|sleeper| sleeper.slept) else { return };
        let next = self.starters.len() as u32;
        let work =
            if sleepers.len() == 1 { *self.alone.entry(first.task).or_insert(next) } else { next };
        if work == next {
            self.starters.push(first.task);
        }
        for sleeper in sleepers {
            let leads = (sleeper.task, sleeper.activation) == (first.task, first.activation);
            let starts = leads.then_some((first.slept, first.on, sleepers.len() as u32));
            self.parts.insert((sleeper.task, sleeper.activation), Part { work, starts });
        }
    }

    /// Whether the task waits for a device before this activation.
    pub(super) fn has(&self, task: usize, activation: usize) -> bool {
        self.parts.contains_key(&(task, activation))
    }

    /// What the task does before this activation instead of sleeping, when that was a wait for a
    /// device. The channels of the devices begin with `first`.
    pub(super) fn wait(&self, task: usize, activation: usize, first: usize) -> Option<Vec<Op>> {
        let part = self.parts.get(&(task, activation))?;
        let channel = ChannelId::from(first + part.work as usize);
        let start = part.starts.map(|(length, cpu, count)| Op::Device {
            length: Amount::Fixed(length),
            cpu,
            channel,
            count,
        });
        Some(start.into_iter().chain([Op::Receive(channel)]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::timeline::{Activation, Origin};
    use super::*;
    use PrevState::{DiskSleep, Sleeping};

    /// Wakeups by interrupts: task, interrupt, how long it slept in which state.
    fn lines(wakes: &[(usize, u32, u64, PrevState)]) -> Vec<TaskTimeline> {
        let mut lines = vec![TaskTimeline::default(); 4];
        let plain = |origin| Activation::plain(origin, Ns::ZERO, Ns(5));
        lines.iter_mut().for_each(|line| line.activations.push(plain(Origin::Initial)));
        for &(task, number, slept, state) in wakes {
            let (interrupt, slept) = (Some((CpuId(1), number)), Some((Ns(slept), state)));
            lines[task].activations.push(Activation { interrupt, slept, ..plain(Origin::SoftIrq) });
        }
        lines
    }

    #[test]
    fn whom_one_interrupt_woke_one_work_lets_go_on() {
        let lines = lines(&[
            (0, 1, 900, Sleeping),
            (1, 1, 70, DiskSleep),
            (2, 1, 80, DiskSleep),
            (3, 2, 9, DiskSleep),
            (3, 3, 7, DiskSleep),
        ]);
        let devices = find(&lines, &[]);
        assert_eq!(devices.starters, [2, 3], "who waited for the device longest, and the only one");
        let channel = ChannelId(40);
        let start = Op::Device { length: Amount::Fixed(Ns(80)), cpu: CpuId(1), channel, count: 3 };
        assert_eq!(devices.wait(2, 1, 40), Some(vec![start, Op::Receive(channel)]));
        assert_eq!(devices.wait(1, 1, 40), Some(vec![Op::Receive(channel)]));
        assert_eq!(
            devices.wait(0, 1, 40),
            Some(vec![Op::Receive(channel)]),
            "it slept for longer, but not for a device"
        );
        let other = ChannelId(41);
        let start =
            Op::Device { length: Amount::Fixed(Ns(9)), cpu: CpuId(1), channel: other, count: 1 };
        assert_eq!(devices.wait(3, 1, 40), Some(vec![start, Op::Receive(other)]));
        assert_eq!(
            devices.wait(3, 2, 40).map(|ops| ops[1]),
            Some(Op::Receive(other)),
            "alone again"
        );
        assert_eq!(devices.wait(3, 0, 40), None);
    }

    #[test]
    fn an_interrupt_that_ends_no_wait_for_a_device_is_none() {
        let devices = find(&lines(&[(0, 1, 900, Sleeping), (1, 1, 70, Sleeping)]), &[]);
        assert!(devices.starters.is_empty() && !devices.has(0, 1));
    }

    #[test]
    fn tasks_of_a_loop_keep_their_own_order() {
        let loops = [Loop { tasks: vec![0, 1], closed: true }];
        let devices = find(
            &lines(&[(0, 1, 900, Sleeping), (1, 1, 70, DiskSleep), (2, 1, 60, DiskSleep)]),
            &loops,
        );
        assert!(!devices.has(0, 1) && devices.has(1, 1) && devices.has(2, 1));
    }
}
