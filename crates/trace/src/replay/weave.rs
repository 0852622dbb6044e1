//! The second half of `runtime`: lanes take the place of what the threads of a runtime did.

use super::runtime::{Part, Runtime};
use super::timeline::{Activation, Deed, End, Origin, Stretch, TaskTimeline};
use schedlab_model::{Ns, PrevState, TaskId};
use std::collections::BTreeMap;

/// What is known while they are put in.
struct Weave {
    /// What each thread did.
    old: BTreeMap<usize, TaskTimeline>,
    /// When each thread carried which lane, ascending.
    carried: BTreeMap<usize, Vec<(Ns, Ns, usize)>>,
    /// The activation of a thread that woke a lane: the lane, and the number of its activation.
    woke: BTreeMap<(usize, usize), (usize, usize)>,
    /// The thread that carries each lane at the beginning.
    carriers: Vec<usize>,
}

impl Weave {
    fn new(lines: &mut [TaskTimeline], threads: &[usize], lanes: &[Vec<Part>]) -> Weave {
        let old =
            threads.iter().map(|&thread| (thread, std::mem::take(&mut lines[thread]))).collect();
        let (carried, woke) = (BTreeMap::new(), BTreeMap::new());
        let mut weave = Weave { old, carried, woke, carriers: Vec::new() };
        for (lane, parts) in lanes.iter().enumerate() {
            let own = parts.iter().map(|part| part.thread).chain(threads.iter().copied());
            let carrier = own.into_iter().find(|thread| !weave.carriers.contains(thread));
            weave.carriers.extend(carrier);
            for part in parts {
                weave.carried.entry(part.thread).or_default().push((part.from, part.to, lane));
            }
        }
        weave.carried.values_mut().for_each(|parts| parts.sort_unstable());
        weave
    }

    /// The lane for which a thread works at `at`, else the first one.
    fn lane(&self, thread: usize, at: Ns) -> usize {
        let parts = self.carried.get(&thread).map_or(&[][..], |parts| parts);
        let last = parts.partition_point(|(from, ..)| *from <= at).checked_sub(1);
        last.map_or(0, |last| parts[last].2)
    }

    /// The line of one lane, without its deeds. What a monitor begins its timer begins: the lane
    /// had slept for so long.
    fn line(
        &mut self,
        lane: usize,
        parts: &[Part],
        monitors: &[usize],
        duration: Ns,
    ) -> TaskTimeline {
        let mut line = TaskTimeline::default();
        let mut until = Ns::ZERO;
        for part in parts {
            let old = &self.old[&part.thread];
            if let Some(number) = part.wakes {
                let first = &old.activations[number];
                if let Some(before) = line.activations.last_mut() {
                    before.end = End::Blocked(PrevState::Sleeping);
                }
                let slept = match line.activations.is_empty() {
                    true => first.slept,
                    false => Some((part.from.saturating_sub(until), PrevState::Sleeping)),
                };
                line.slept += slept.map_or(Ns::ZERO, |(slept, _)| slept);
                let by_monitor =
                    matches!(first.origin, Origin::Task(by) if monitors.contains(&by.index()));
                let origin = if by_monitor { Origin::HardIrq } else { first.origin };
                if !by_monitor {
                    self.woke.insert((part.thread, number), (lane, line.activations.len()));
                }
                line.starts.push(line.total);
                let (demand, deeds, end) = (Ns::ZERO, Vec::new(), End::Cut);
                line.activations.push(Activation {
                    origin,
                    slept,
                    demand,
                    deeds,
                    end,
                    ..first.clone()
                });
            }
            let first = old.stretches.partition_point(|s| s.to <= part.from);
            for s in old.stretches[first..].iter().take_while(|s| s.from < part.to) {
                let (from, to) = (s.from.max(part.from), s.to.min(part.to));
                line.stretches.push(Stretch { from, to, before: line.total, speed: s.speed });
                let work = s.speed.work(to.saturating_sub(from));
                line.total += work;
                if let Some(open) = line.activations.last_mut() {
                    open.demand += work;
                }
            }
            until = part.to;
        }
        if let Some(last) = line.activations.last_mut()
            && until < duration
        {
            last.end = End::Blocked(PrevState::Sleeping);
            line.slept_last = duration.saturating_sub(until);
        }
        line
    }

    /// Who is woken now by what woke a thread; `None`: nobody, the lane was awake. That a thread
    /// was created that carries no lane at first is no work, either: a second round would create
    /// what is there.
    fn woken(&self, deed: Deed) -> Option<Deed> {
        match deed {
            Deed::Wake(task, number) if self.old.contains_key(&task.index()) => {
                let &(lane, number) = self.woke.get(&(task.index(), number as usize))?;
                Some(Deed::Wake(TaskId::from(self.carriers[lane]), number as u32))
            }
            Deed::Spawn(task) if self.old.contains_key(&task.index()) => {
                self.carriers.contains(&task.index()).then_some(deed)
            }
            other => Some(other),
        }
    }

    /// What the threads did to others, at the progress that their lane had then.
    fn add_deeds(&self, lines: &mut [TaskTimeline]) {
        for (&thread, old) in &self.old {
            for (activation, start) in old.activations.iter().zip(&old.starts) {
                for &(offset, deed) in &activation.deeds {
                    let at = old.reached(*start + offset);
                    let line = &mut lines[self.carriers[self.lane(thread, at)]];
                    if let Some(deed) = self.woken(deed) {
                        line.add(line.progress(at), deed);
                    }
                }
            }
        }
        for &carrier in &self.carriers {
            let line = &mut lines[carrier];
            line.order_deeds();
        }
    }

    /// Other tasks name lanes where they named threads.
    fn rename(&self, line: &mut TaskTimeline, deeds: bool) {
        for activation in &mut line.activations {
            if let Origin::Task(by) = activation.origin
                && self.old.contains_key(&by.index())
            {
                let lane = self.lane(by.index(), activation.woken);
                activation.origin = Origin::Task(TaskId::from(self.carriers[lane]));
            }
            if deeds {
                activation.deeds.retain_mut(|(_, deed)| match self.woken(*deed) {
                    Some(new) => {
                        *deed = new;
                        true
                    }
                    None => false,
                });
            }
        }
    }
}

/// Puts the lanes into the lines; gives their carriers.
pub(super) fn weave(
    lines: &mut [TaskTimeline],
    runtime: &Runtime,
    lanes: &[Vec<Part>],
    duration: Ns,
) -> Vec<usize> {
    let mut weave = Weave::new(lines, &runtime.threads, lanes);
    let monitors = &runtime.monitors;
    for (lane, parts) in lanes.iter().enumerate() {
        lines[weave.carriers[lane]] = weave.line(lane, parts, monitors, duration);
    }
    weave.add_deeds(lines);
    for (task, line) in lines.iter_mut().enumerate() {
        weave.rename(line, !weave.carriers.contains(&task));
    }
    weave.carriers
}
