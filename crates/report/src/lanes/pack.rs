//! The bytes of a schedule: its events in order of time, each said by what is known before it, so
//! that most of it takes a few bits.
//!
//! First the occupant of each CPU before its first switch, then a column for each thing that an
//! event says, in the order of [`Columns`]; then the marks. A column is the count of its numbers,
//! its form ([`Form`]), and the numbers. All else are varints. An occupant is 0 (unknown), 1 (idle)
//! or 2 + task; a waker 0 (unknown), 1 (interrupt), 2 (softirq) or 3 + task.
//!
//! Both sides keep what follows from the events so far ([`Known`]): who is on each CPU, which tasks
//! wait there, on which CPU a task was last, which task woke it last and which it woke last, and
//! the CPUs by when something happened on them. `ui/src/page/lanes/decode.ts` is the other side.

use crate::embed::{deflated, varint};

/// What happened: a wakeup, a loss, or from `SWITCH` on a switch on the CPU of that rank.
const WAKE: u64 = 0;
const LOST: u64 = 1;
const SWITCH: u64 = 2;
/// Wakers of a wakeup besides those that are no tasks (0 to 2): what runs on the CPU of the
/// wakeup; the task that woke this one last; from `ANY` on the task itself.
const RUNNING: u64 = 3;
const AGAIN: u64 = 4;
const ANY: u64 = 5;
/// Who is next: no task, a task that does not wait on this CPU, or one of those that do, by rank.
const NO_TASK: u64 = 0;
const OTHER: u64 = 1;
const WAITING: u64 = 2;

/// Numbers, of which each event has some.
#[derive(Clone, Debug, Default)]
struct Columns {
    /// What happened.
    what: Varints,
    /// Nanoseconds since the event before.
    after: Vec<u64>,
    /// Of wakeups: the waker.
    wakers: Varints,
    /// Of what a running task wakes: the rank of its CPU.
    ranks: Varints,
    /// Of what a running task wakes: 0: the one that it woke last; 1 + task.
    woken: Varints,
    /// Tasks that nothing before tells.
    tasks: Vec<u64>,
    /// Of other wakeups: 0: the CPU on which the task was last; 1 + CPU. Of losses: the CPU.
    cpus: Varints,
    /// Of switches: who is next.
    next: Varints,
    /// Of switches: why the one before stopped.
    why: Varints,
}

/// Numbers that are mostly small.
#[derive(Clone, Debug, Default)]
struct Varints {
    count: u64,
    bytes: Vec<u8>,
}

impl Varints {
    fn push(&mut self, number: u64) {
        self.count += 1;
        varint(&mut self.bytes, number);
    }

    fn write(&self, out: &mut Vec<u8>) {
        varint(out, self.count);
        varint(out, Form::Varints as u64);
        out.extend_from_slice(&self.bytes);
    }
}

/// How the numbers of a column are written.
enum Form {
    /// As varints.
    Varints = 0,
    /// The number of binary digits of each as a byte, then all digits but the first of each, the
    /// lowest first, without gaps.
    Digits = 1,
}

/// What is known of a task.
#[derive(Clone, Copy, Debug, Default)]
struct Task {
    /// 1 + the CPU on which it waits.
    waits: usize,
    runs: bool,
    /// 1 + the CPU on which it was last.
    last: usize,
    /// 1 + the task that woke it last, and 1 + the one that it woke last.
    waker: u64,
    wakee: u64,
}

/// What follows from the events so far.
#[derive(Clone, Debug)]
struct Known {
    /// Occupant; unknown until the first switch.
    on: Vec<u64>,
    /// Tasks that wait, those that have waited longest first.
    queues: Vec<Vec<u64>>,
    tasks: Vec<Task>,
    /// CPUs, that on which something happened last at the end.
    order: Vec<usize>,
}

impl Known {
    fn new(cpus: usize) -> Known {
        let queues = vec![Vec::new(); cpus];
        Known { on: vec![0; cpus], queues, tasks: Vec::new(), order: (0..cpus).collect() }
    }

    fn task(&mut self, task: u64) -> &mut Task {
        let place = task as usize;
        if place >= self.tasks.len() {
            self.tasks.resize(place + 1, Task::default());
        }
        &mut self.tasks[place]
    }

    /// Returns the rank of a CPU, and makes it the first.
    fn rank(&mut self, cpu: usize) -> u64 {
        let rank = self.order.iter().rev().position(|one| *one == cpu).unwrap_or(0);
        let place = self.order.len() - 1 - rank;
        self.order[place..].rotate_left(1);
        rank as u64
    }

    fn wait(&mut self, task: u64, cpu: usize) {
        self.task(task).waits = cpu + 1;
        self.queues[cpu].push(task);
    }

    /// Takes a task out of where it waits; returns its rank on `cpu`.
    fn take(&mut self, task: u64, cpu: usize) -> Option<u64> {
        let waits = std::mem::take(&mut self.task(task).waits).checked_sub(1)?;
        let place = self.queues[waits].iter().position(|one| *one == task)?;
        self.queues[waits].remove(place);
        (waits == cpu).then_some(place as u64)
    }

    /// Another occupant; the one before waits on if `waits`.
    fn occupy(&mut self, cpu: usize, who: u64, waits: bool) {
        if let Some(before) = self.on[cpu].checked_sub(2) {
            self.task(before).runs = false;
            if waits {
                self.wait(before, cpu);
            }
        }
        self.on[cpu] = who;
        if let Some(task) = who.checked_sub(2) {
            let task = self.task(task);
            (task.runs, task.last) = (true, cpu + 1);
        }
    }
}

/// Writes events down as they come.
#[derive(Clone, Debug)]
pub(super) struct Packer {
    known: Known,
    columns: Columns,
    /// Occupant of each CPU before its first switch, once there was one.
    first: Vec<Option<u64>>,
    last: u64,
}

impl Packer {
    pub(super) fn new(cpus: usize) -> Packer {
        let (known, columns) = (Known::new(cpus), Columns::default());
        Packer { known, columns, first: vec![None; cpus], last: 0 }
    }

    /// Notes the time, in nanoseconds from the beginning.
    fn at(&mut self, at: u64) {
        self.columns.after.push(at.saturating_sub(self.last));
        self.last = self.last.max(at);
    }

    /// Of a CPU: `before` is the occupant until now, where that is not known yet.
    pub(super) fn switch(&mut self, at: u64, cpu: usize, before: u64, next: u64, why: u64) {
        self.at(at);
        let rank = self.known.rank(cpu);
        self.columns.what.push(SWITCH + rank);
        if self.first[cpu].is_none() {
            self.first[cpu] = Some(before);
            self.known.occupy(cpu, before, false);
        }
        self.columns.why.push(why);
        // One that goes on by itself waits first: it may be the next.
        let next_task = next.checked_sub(2);
        self.known.occupy(cpu, 0, why == 1 || why == 2);
        let said = match next_task.map(|task| (task, self.known.take(task, cpu))) {
            None => NO_TASK,
            Some((_, Some(rank))) => WAITING + rank,
            Some((task, None)) => {
                self.columns.tasks.push(task);
                OTHER
            }
        };
        self.columns.next.push(said);
        self.known.occupy(cpu, next, false);
    }

    pub(super) fn wake(&mut self, at: u64, cpu: usize, task: u64, waker: u64) {
        self.at(at);
        let Packer { known, columns, .. } = self;
        columns.what.push(WAKE);
        let (by, again) = (waker.checked_sub(3), known.task(task).waker);
        if by.is_some_and(|by| known.on[cpu] == by + 2) {
            columns.wakers.push(RUNNING);
            columns.ranks.push(known.rank(cpu));
            let wakee = by.map_or(0, |by| known.task(by).wakee);
            columns.woken.push(if wakee == task + 1 { 0 } else { task + 1 });
        } else {
            columns.wakers.push(match by {
                None => waker,
                Some(by) if by + 1 == again => AGAIN,
                Some(by) => ANY + by,
            });
            columns.tasks.push(task);
            let last = known.task(task).last;
            columns.cpus.push(if last == cpu + 1 { 0 } else { cpu as u64 + 1 });
            known.rank(cpu);
        }
        if let Some(by) = by {
            known.task(by).wakee = task + 1;
            known.task(task).waker = by + 1;
        }
        let of = known.task(task);
        of.last = cpu + 1;
        if of.waits == 0 && !of.runs {
            known.wait(task, cpu);
        }
    }

    /// It is not known what is on the CPU from now on.
    pub(super) fn lost(&mut self, at: u64, cpu: usize, before: u64) {
        self.at(at);
        self.first[cpu].get_or_insert(before);
        self.columns.what.push(LOST);
        self.columns.cpus.push(cpu as u64);
        self.known.occupy(cpu, 0, false);
    }

    /// Returns the bytes; `before`: the occupants of CPUs that never switched; `small`: the form of
    /// columns in which little repeats is the shorter one, which takes longer than all else.
    pub(super) fn finish(&self, before: &[u64], small: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (first, before) in self.first.iter().zip(before) {
            varint(&mut bytes, first.unwrap_or(*before));
        }
        let c = &self.columns;
        c.what.write(&mut bytes);
        noise(&mut bytes, &c.after, small);
        [&c.wakers, &c.ranks, &c.woken].iter().for_each(|column| column.write(&mut bytes));
        noise(&mut bytes, &c.tasks, small);
        [&c.cpus, &c.next, &c.why].iter().for_each(|column| column.write(&mut bytes));
        bytes
    }
}

/// Writes a column in which little repeats; in the shorter form, where it is to be small.
fn noise(out: &mut Vec<u8>, column: &[u64], small: bool) {
    let mut plain = Varints::default();
    column.iter().for_each(|number| plain.push(*number));
    if !small {
        return plain.write(out);
    }
    let digits = digits(column);
    if deflated(&digits, 1).len() >= deflated(&plain.bytes, 1).len() {
        return plain.write(out);
    }
    varint(out, plain.count);
    varint(out, Form::Digits as u64);
    out.extend_from_slice(&digits);
}

/// Returns a column as [`Form::Digits`].
fn digits(column: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = column.iter().map(|n| (64 - n.leading_zeros()) as u8).collect();
    let (mut held, mut count) = (0u128, 0u32);
    for number in column {
        let more = (64 - number.leading_zeros()).saturating_sub(1);
        let rest = number & ((1u64 << more) - 1);
        held |= u128::from(rest) << count;
        count += more;
        while count >= 8 {
            bytes.push(held as u8);
            held >>= 8;
            count -= 8;
        }
    }
    if count > 0 {
        bytes.push(held as u8);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_a_column() {
        // 0, 1, 5 (101: 01), 2 (10: 0), 12 (1100: 100): 01, then 0, then 100.
        assert_eq!(digits(&[0, 1, 5, 2, 12]), [0, 1, 3, 2, 4, 0b10_0001]);
        assert_eq!(digits(&[u64::MAX])[0], 64);
        assert_eq!(digits(&[u64::MAX]).len(), 9);
    }

    #[test]
    fn what_is_known_is_not_said_again() {
        let mut packer = Packer::new(2);
        packer.switch(10, 0, 1, 2, 0);
        // The task that runs wakes another, twice; it waits on this CPU and is next.
        packer.wake(20, 0, 1, 3);
        packer.switch(30, 0, 0, 3, 1);
        packer.switch(40, 0, 0, 2, 3);
        packer.wake(50, 0, 1, 3);
        let c = &packer.columns;
        // All are below 128: a byte each.
        assert_eq!(c.what.bytes, [SWITCH + 1, WAKE, SWITCH, SWITCH, WAKE].map(|n| n as u8));
        assert_eq!(c.after, [10; 5]);
        assert_eq!(c.wakers.bytes, [RUNNING as u8; 2]);
        assert_eq!((&c.woken.bytes[..], &c.tasks[..]), (&[2, 0][..], &[0][..]));
        assert_eq!(c.next.bytes, [OTHER, WAITING, WAITING].map(|n| n as u8));
        // Woken by what does not run: the same as before, on the CPU where it was.
        packer.switch(60, 0, 0, 1, 3);
        packer.wake(70, 0, 1, 3);
        assert_eq!(packer.columns.wakers.bytes, [RUNNING, RUNNING, AGAIN].map(|n| n as u8));
        assert_eq!(packer.columns.cpus.bytes, [0]);
    }
}
