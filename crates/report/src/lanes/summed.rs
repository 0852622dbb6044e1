//! A schedule summed up for a first look: of each CPU, for each column of a picture, what ran
//! longest in it and for how long anything ran. It is packed as a schedule is (`lanes/pack.rs`),
//! with a few switches a column instead of all that there were.

use super::marks::Marks;
use super::pack::Packer;
use super::{LaneRun, Packing, occupant};
use crate::embed::packed;
use schedlab_model::{EventKind, EventSink, Ns, SchedEvent};

/// Occupants of a column that keep their own time; the second one has that of all others, too.
const OWN: usize = 2;
/// Switches of a column at most: to each of these, and to no task.
pub const SWITCHES: usize = OWN + 1;
/// Why the one before stopped: not because another one was chosen, so that nothing waits.
const SLEEPING: u64 = 3;

/// What is on a CPU, and what was in the column so far.
#[derive(Clone, Debug)]
struct Cpu {
    on: u64,
    since: u64,
    started: bool,
    column: u64,
    /// Occupants of the column, each with its time.
    parts: Vec<(u64, u64)>,
    /// The occupant that was written last.
    last: Option<u64>,
}

/// Sums a schedule up as it happens.
#[derive(Clone, Debug)]
pub struct LaneSums {
    from: Ns,
    step: u64,
    cpus: Vec<Cpu>,
    /// Time, CPU and occupant from then on.
    switches: Vec<(u64, usize, u64)>,
    events: u64,
    now: Ns,
}

impl LaneSums {
    /// For `cpus` CPUs, from `from` to `to`, in so many columns.
    pub fn new(cpus: usize, (from, to): (Ns, Ns), columns: usize) -> LaneSums {
        let step = (to.0.saturating_sub(from.0)).div_ceil(columns.max(1) as u64).max(1);
        let cpu = Cpu { on: 0, since: 0, started: false, column: 0, parts: Vec::new(), last: None };
        let cpus = vec![cpu; cpus];
        LaneSums { from, step, cpus, switches: Vec::new(), events: 0, now: from }
    }

    /// A CPU that has not switched yet is idle: a simulation begins so, a recording does not say.
    #[must_use]
    pub fn idle_at_first(mut self) -> LaneSums {
        self.cpus.iter_mut().for_each(|cpu| cpu.on = occupant(None));
        self
    }

    /// Goes on to a time, at which another occupant comes.
    fn pass(&mut self, place: usize, at: u64) {
        let cpu = &mut self.cpus[place];
        while cpu.since < at {
            let column = cpu.since / self.step;
            if column != cpu.column {
                cpu.write(place, self.step, &mut self.switches);
                cpu.column = column;
            }
            let until = at.min((column + 1) * self.step);
            let (on, time) = (cpu.on, until - cpu.since);
            match cpu.parts.iter_mut().find(|(who, _)| *who == on) {
                Some((_, sum)) => *sum += time,
                None => cpu.parts.push((on, time)),
            }
            cpu.since = until;
        }
    }

    /// Closes a run of this length.
    pub fn finish(mut self, name: &str, style: usize, whole: Ns) -> LaneRun {
        let to = whole.max(self.now);
        for place in 0..self.cpus.len() {
            self.pass(place, (to - self.from).0);
            self.cpus[place].write(place, self.step, &mut self.switches);
        }
        self.switches.sort_unstable();
        let mut packer = Packer::new(self.cpus.len());
        for (at, cpu, who) in &self.switches {
            packer.switch(*at, *cpu, 0, *who, SLEEPING);
        }
        let before = vec![0; self.cpus.len()];
        let mut bytes = packer.finish(&before, false);
        Marks::default().finish(self.from, to, &mut bytes);
        LaneRun {
            name: name.to_owned(),
            style,
            cpus: self.cpus.len(),
            from_ns: self.from,
            to_ns: to,
            whole_ns: to,
            cut: false,
            focus_ns: None,
            events: self.events,
            rows: Vec::new(),
            incident: None,
            unmarked: 0,
            summed: true,
            data: packed(&bytes, Packing::Fast.effort()),
        }
    }
}

impl Cpu {
    /// Writes the column down: what ran longest, all else that ran, and then no task.
    fn write(&mut self, place: usize, step: u64, switches: &mut Vec<(u64, usize, u64)>) {
        let idle = occupant(None);
        self.parts.sort_unstable_by_key(|(who, time)| (*who == idle, std::cmp::Reverse(*time)));
        let busy = self.parts.iter().take_while(|(who, _)| *who != idle).count();
        let rest: u64 = self.parts[busy.min(OWN)..busy].iter().map(|(_, time)| time).sum();
        if busy > OWN {
            self.parts.drain(OWN..busy);
            self.parts[OWN - 1].1 += rest;
        }
        // What went on from the column before needs no switch.
        let busy = busy.min(OWN);
        if busy == OWN && self.last == Some(self.parts[1].0) {
            self.parts.swap(0, 1);
        }
        let mut at = self.column * step;
        for (who, time) in self.parts.drain(..) {
            if self.last != Some(who) {
                switches.push((at, place, who));
                self.last = Some(who);
            }
            at += time;
        }
    }
}

impl EventSink for LaneSums {
    fn event(&mut self, event: &SchedEvent) {
        self.now = self.now.max(event.at);
        let place = event.cpu.index();
        let (prev, next) = match event.kind {
            EventKind::Switch { prev, next, .. } => (Some(occupant(prev)), occupant(next)),
            // It is not known what runs until the next switch.
            EventKind::Lost { .. } => (None, 0),
            EventKind::Wake { .. } | EventKind::New { .. } => {
                self.events += u64::from(self.now >= self.from);
                return;
            }
            _ => return,
        };
        if place >= self.cpus.len() {
            return;
        }
        if let Some(prev) = prev.filter(|_| !self.cpus[place].started) {
            // The first switch tells what ran before it.
            self.cpus[place].on = prev;
        }
        if self.now >= self.from {
            self.pass(place, (self.now - self.from).0);
            self.events += u64::from(prev.is_some());
        }
        let cpu = &mut self.cpus[place];
        (cpu.started, cpu.on) = (true, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, PrevState, TaskId};

    fn switch(at: u64, cpu: u32, prev: Option<u32>, next: Option<u32>) -> SchedEvent {
        let (prev, next) = (prev.map(TaskId), next.map(TaskId));
        let kind = EventKind::Switch { prev, prev_state: PrevState::Sleeping, next };
        SchedEvent { at: Ns(at), cpu: CpuId(cpu), kind }
    }

    /// Three tasks in the first column of ten, one that goes on from the second, and nothing.
    #[test]
    fn a_column_has_what_ran_longest_in_it() {
        let mut sums = LaneSums::new(1, (Ns(1_000), Ns(1_100)), 10).idle_at_first();
        for event in [
            switch(900, 0, None, Some(9)),
            switch(1_001, 0, Some(9), Some(1)),
            switch(1_005, 0, Some(1), Some(2)),
            switch(1_008, 0, Some(2), None),
            switch(1_012, 0, None, Some(3)),
            switch(1_055, 0, Some(3), None),
        ] {
            sums.event(&event);
        }
        sums.pass(0, 100);
        sums.cpus[0].write(0, 10, &mut sums.switches);
        let task = |task: u32| occupant(Some(TaskId(task)));
        // Of the second column 8 of 10 are the task's, and the summary begins with them.
        let expected = [
            (0, 0, task(1)),
            (4, 0, task(2)),
            (8, 0, 1),
            (10, 0, task(3)),
            (18, 0, 1),
            (20, 0, task(3)),
            (55, 0, 1),
        ];
        assert_eq!(sums.switches, expected);
    }

    #[test]
    fn a_summary_is_bounded_by_its_columns() {
        let mut sums = LaneSums::new(2, (Ns::ZERO, Ns(100_000)), 50);
        for at in 0..10_000u64 {
            let (prev, next) = ((at % 7) as u32, ((at + 1) % 7) as u32);
            sums.event(&switch(at * 10, (at % 2) as u32, Some(prev), Some(next)));
        }
        let run = sums.clone().finish("recorded", 0, Ns(100_000));
        assert!(run.summed && run.events == 10_000 && run.to_ns == Ns(100_000));
        for place in 0..2 {
            sums.pass(place, 100_000);
            sums.cpus[place].write(place, sums.step, &mut sums.switches);
        }
        assert!(sums.switches.len() <= 2 * 50 * SWITCHES, "{}", sums.switches.len());
        assert!(sums.switches.len() > 2 * 50, "{}", sums.switches.len());
    }
}
