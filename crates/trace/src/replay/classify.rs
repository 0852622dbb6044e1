//! Second step: which sleeps that the outside ended stay at their absolute times, and which move with the
//! work before them.

use super::timeline::{Activation, Deed, Line, Origin};
use schedlab_model::{Ns, PrevState};
use std::collections::BTreeMap;

/// What a sleep becomes that no task ended (a timer, a device, the network).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outside {
    /// The wakeup stays at its recorded time: a periodic timer, a packet from another machine.
    Absolute,
    /// The sleep keeps its length and moves with the work before it.
    Relative(Why),
}

/// Why a sleep is taken as relative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Why {
    /// The lengths of the sleeps are alike, their times are not periodic.
    EqualSleeps,
    /// The task sleeps in a system call whose time is relative.
    Nap,
    /// The task hardly ever sleeps: it wants the CPU, and would not wait for a date.
    Hungry,
    /// The task belongs to a closed loop of tasks that wake each other; a date would tie the loop to it.
    ClosedLoop,
}

/// What was found about each task.
pub(super) struct Classes {
    pub(super) outside: Vec<Outside>,
    /// Groups of tasks that wake each other in a circle, two or more each; ascending.
    pub(super) loops: Vec<Loop>,
}

impl Classes {
    /// Whether the task belongs to a circle.
    pub(super) fn in_loop(&self, task: usize) -> bool {
        self.loops.iter().any(|circle| circle.tasks.binary_search(&task).is_ok())
    }
}

/// Tasks that wake each other in a circle.
pub(super) struct Loop {
    pub(super) tasks: Vec<usize>,
    /// Nothing but its own tasks drives it.
    pub(super) closed: bool,
}

/// A loop counts as driven from outside when one of its tasks gets this part of its wakeups from there
/// (in per cent). Chosen, not measured: loops seen so far have below 5 or above 40.
const DRIVEN_PERCENT: usize = 20;
/// A task whose timer expires without a message to a task that sleeps in this part of all times (in per cent) is a monitor. Chosen: a
/// sender has below 10, Go's monitor above 90.
const MONITOR_PERCENT: usize = 50;
/// `nanosleep` on x86-64: its time is relative by definition.
const NANOSLEEP: u32 = 35;
/// With more than this part of its timed sleeps in such a call a task sleeps for lengths, not until dates (in per cent).
const NAPS_PERCENT: usize = 50;
/// A task is hungry when it sleeps for less than this part of its life (in per cent).
const HUNGRY_PERCENT: u64 = 10;
/// Fewer sleeps than this say nothing about their kind.
const ENOUGH: usize = 8;

/// Decides for every task.
///
/// `monitors` drive nobody, whatever their timers do.
pub(super) fn classify(lines: &[Line], duration: Ns, monitors: &[usize]) -> Classes {
    let loops: Vec<Loop> = circles(lines)
        .into_iter()
        .map(|tasks| {
            let closed = !tasks.iter().any(|&task| !monitors.contains(&task) && driven(lines, task));
            Loop { tasks, closed }
        })
        .collect();
    let mut outside: Vec<Outside> = lines.iter().map(|line| sleeps(line, duration)).collect();
    for circle in loops.iter().filter(|circle| circle.closed) {
        for &task in &circle.tasks {
            outside[task] = Outside::Relative(Why::ClosedLoop);
        }
    }
    Classes { outside, loops }
}

fn from_outside(activation: &Activation) -> bool {
    matches!(activation.origin, Origin::HardIrq | Origin::SoftIrq | Origin::Unknown)
}

/// Whether the outside causes a good part of its activations, and these cause others: a monitor, which looks whether there is
/// something to do and mostly does nothing, drives nobody.
pub(super) fn driven(lines: &[Line], task: usize) -> bool {
    let line = &lines[task];
    let outside: Vec<&Activation> = line.activations.iter().filter(|a| from_outside(a)).collect();
    if outside.len() * 100 < line.activations.len() * DRIVEN_PERCENT {
        return false;
    }
    let wakees = |a: &Activation| {
        a.deeds
            .iter()
            .filter_map(|(_, deed)| match deed {
                Deed::Wake(task, _) => Some(task.index()),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    let mut woken: BTreeMap<usize, usize> = BTreeMap::new();
    line.activations.iter().flat_map(wakees).for_each(|wakee| *woken.entry(wakee).or_default() += 1);
    let all: usize = woken.values().sum();
    // Who is awake gets its message without a wakeup. A silent activation that finds most of those asleep whom the task wakes
    // at all had no message.
    let idle = |a: &&&Activation| {
        let awake = woken.iter().filter(|(wakee, _)| lines[**wakee].awake_at(a.woken).is_some());
        wakees(a).is_empty() && awake.map(|(_, times)| times).sum::<usize>() * 2 < all
    };
    outside.iter().filter(idle).count() * 100 < outside.len() * MONITOR_PERCENT
}

/// How one task sleeps when nobody wakes it.
fn sleeps(line: &Line, duration: Ns) -> Outside {
    if line.activations.is_empty() {
        return Outside::Absolute;
    }
    let first = line.activations.first().map_or(Ns::ZERO, |a| a.woken);
    let life = duration.saturating_sub(first).0.max(1);
    let initial_sleep = line.activations[0].slept.map_or(Ns::ZERO, |(slept, _)| slept);
    let slept = (line.slept.saturating_sub(initial_sleep) + line.slept_last).0;
    if u128::from(slept) * 100 < u128::from(life) * u128::from(HUNGRY_PERCENT) && line.activations.len() > 1 {
        return Outside::Relative(Why::Hungry);
    }
    let timed: Vec<&Activation> = line.activations.iter().filter(|a| from_outside(a)).collect();
    let naps = timed.iter().filter(|a| a.call == Some(NANOSLEEP)).count();
    if naps * 100 > timed.len() * NAPS_PERCENT {
        return Outside::Relative(Why::Nap);
    }
    let lengths: Vec<u64> = timed
        .iter()
        .filter_map(|a| a.slept)
        .filter(|(_, state)| *state != PrevState::DiskSleep)
        .map(|(slept, _)| slept.0)
        .collect();
    let gaps: Vec<u64> = timed.windows(2).map(|pair| pair[1].woken.saturating_sub(pair[0].woken).0).collect();
    if lengths.len() < ENOUGH || gaps.len() < ENOUGH {
        return Outside::Absolute;
    }
    let (length_spread, gap_spread) = (spread_permille(lengths), spread_permille(gaps));
    if length_spread <= 50 && length_spread * 2 <= gap_spread {
        Outside::Relative(Why::EqualSleeps)
    } else {
        Outside::Absolute
    }
}

/// Half the distance between the quartiles, in thousandths of the median: 0 for equal values.
fn spread_permille(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    let at = |quarter: usize| values[(values.len() - 1) * quarter / 4];
    let half = u128::from(at(3) - at(1)) * 500;
    (half / u128::from(at(2).max(1))) as u64
}

/// The strongly connected components of "woke" with more than one task (Tarjan's algorithm, without
/// recursion).
fn circles(lines: &[Line]) -> Vec<Vec<usize>> {
    let wakes: Vec<Vec<usize>> = lines
        .iter()
        .map(|line| {
            let deeds = line.activations.iter().flat_map(|a| &a.deeds);
            let mut out: Vec<usize> = deeds
                .filter_map(|(_, deed)| match deed {
                    Deed::Wake(task, _) => Some(task.index()),
                    _ => None,
                })
                .collect();
            out.sort_unstable();
            out.dedup();
            out
        })
        .collect();
    let mut finder = Circles {
        order: vec![usize::MAX; lines.len()],
        low: vec![0; lines.len()],
        on_stack: vec![false; lines.len()],
        stack: Vec::new(),
        next: 0,
        found: Vec::new(),
    };
    for task in 0..lines.len() {
        if finder.order[task] == usize::MAX {
            finder.visit(task, &wakes);
        }
    }
    finder.found.sort();
    finder.found
}

struct Circles {
    order: Vec<usize>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl Circles {
    fn visit(&mut self, root: usize, wakes: &[Vec<usize>]) {
        let mut path = vec![(root, 0)];
        self.enter(root);
        while let Some((task, edge)) = path.last_mut() {
            let task = *task;
            if let Some(&to) = wakes[task].get(*edge) {
                *edge += 1;
                if self.order[to] == usize::MAX {
                    self.enter(to);
                    path.push((to, 0));
                } else if self.on_stack[to] {
                    self.low[task] = self.low[task].min(self.order[to]);
                }
                continue;
            }
            path.pop();
            if let Some(&(parent, _)) = path.last() {
                self.low[parent] = self.low[parent].min(self.low[task]);
            }
            if self.low[task] == self.order[task] {
                self.leave(task);
            }
        }
    }

    fn enter(&mut self, task: usize) {
        self.order[task] = self.next;
        self.low[task] = self.next;
        self.next += 1;
        self.stack.push(task);
        self.on_stack[task] = true;
    }

    fn leave(&mut self, root: usize) {
        let mut component = Vec::new();
        while let Some(task) = self.stack.pop() {
            self.on_stack[task] = false;
            component.push(task);
            if task == root {
                break;
            }
        }
        if component.len() > 1 {
            component.sort_unstable();
            self.found.push(component);
        }
    }
}
