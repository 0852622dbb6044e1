//! Rules about all waits of a server within a time, which moves on by tenths.

use super::rule::{Figure, Rule, WindowRule};
use crate::record::{Caught, StretchKind};
use schedlab_model::{Ns, TaskId};
use schedlab_study::serve::Server;
use schedlab_trace::analysis::follow::Wait;
use schedlab_trace::analysis::{Occupancy, throttle};
use schedlab_trace::{GroupInfo, Header, TaskInfo};
use std::collections::VecDeque;

/// Parts of a window's time. A window is looked at when a part is over, so an incident is found up
/// to a part of that time late.
const PARTS: u64 = 10;

/// All window rules of a file.
#[derive(Default)]
pub(super) struct Windows {
    windows: Vec<Window>,
    own_process: u32,
}

struct Window {
    /// The rule's place in the file.
    place: usize,
    rule: WindowRule,
    words: String,
    server: Option<Server>,
    /// By place of a task: whether its waits count.
    members: Vec<bool>,
    parts: VecDeque<Part>,
    /// When the newest part is over.
    until: Ns,
}

/// What came within a part of a window.
#[derive(Default)]
struct Part {
    waits: u64,
    /// Those that took longer than the rule's limit.
    long: u64,
    throttled: Ns,
    longest: Option<Longest>,
}

/// A wait that ended.
#[derive(Clone, Copy)]
pub(super) struct EndedWait {
    /// The place of the task.
    pub(super) task: TaskId,
    pub(super) from: Ns,
    pub(super) length: Ns,
}

/// The wait to which an incident points.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Longest {
    length: Ns,
    from: Ns,
    task: (String, u32),
}

impl Windows {
    /// Takes the window rules of a file; `own_process` is the recorder's, which no rule without a
    /// server means.
    pub(super) fn new(rules: &[&Rule], own_process: u32) -> Windows {
        let window = |(place, rule): (usize, &&Rule)| {
            let Rule::Window(of) = rule else { return None };
            Some(Window {
                place,
                rule: of.clone(),
                words: rule.to_string(),
                server: of.server.as_deref().map(Server::new),
                members: Vec::new(),
                parts: VecDeque::new(),
                until: Ns::ZERO,
            })
        };
        Windows { windows: rules.iter().enumerate().filter_map(window).collect(), own_process }
    }

    /// Notes the facts of the task at a place.
    pub(super) fn met(&mut self, slot: TaskId, info: &TaskInfo, groups: &[GroupInfo]) {
        for window in &mut self.windows {
            let is_meant = match &window.server {
                Some(server) => server.is_meant(info, groups),
                None => info.pid != self.own_process && info.tid != 0,
            };
            if slot.index() >= window.members.len() {
                window.members.resize(slot.index() + 1, false);
            }
            window.members[slot.index()] = is_meant;
        }
    }

    /// Returns what is to be known of the waits of the task at a place: which windows count all of
    /// them, a bit for each; the least limit of those; and whether one is about what limits took.
    pub(super) fn watch(&self, slot: TaskId) -> (u64, Option<Ns>, bool) {
        let (mut counts, mut bound, mut throttled) = (0, None, false);
        for (at, window) in self.windows.iter().enumerate() {
            if !window.has(slot) {
                continue;
            }
            match window.rule.figure {
                Figure::Percentile(_) => {
                    counts |= 1u64.checked_shl(at as u32).unwrap_or(0);
                    bound = bound.into_iter().chain([window.rule.limit]).min();
                }
                Figure::Throttled => throttled = true,
            }
        }
        (counts, bound, throttled)
    }

    /// Whether there are windows that count all waits.
    pub(super) fn count_all(&self) -> bool {
        self.windows.iter().any(|window| matches!(window.rule.figure, Figure::Percentile(_)))
    }

    /// Notes that so many waits ended, which the windows of `counts` count: see
    /// [`watch`](Self::watch).
    pub(super) fn counted(&mut self, counts: u64, waits: u64) {
        for (at, window) in self.windows.iter_mut().enumerate() {
            if counts.checked_shr(at as u32).is_some_and(|bits| bits & 1 == 1) {
                window.part().waits += waits;
            }
        }
    }

    /// Counts a wait. Returns what it makes an incident by itself, with the place of the rule.
    pub(super) fn wait(
        &mut self,
        wait: &Wait<'_>,
        header: &Header,
        occupancy: &Occupancy,
    ) -> Option<(usize, Caught)> {
        let ended = EndedWait { task: wait.task, from: wait.from, length: wait.total() };
        let held = || throttle::held(header, occupancy, wait).map_or(Ns::ZERO, |(_, time)| time);
        self.ended(ended, header, 1, &held)
    }

    /// Notes a wait of which [`counted`](Self::counted) tells, too, and for how long a limit held
    /// it up.
    pub(super) fn told(
        &mut self,
        ended: EndedWait,
        header: &Header,
        throttled: Ns,
    ) -> Option<(usize, Caught)> {
        self.ended(ended, header, 0, &|| throttled)
    }

    fn ended(
        &mut self,
        ended: EndedWait,
        header: &Header,
        waits: u64,
        throttled: &dyn Fn() -> Ns,
    ) -> Option<(usize, Caught)> {
        let mut found = None;
        for window in self.windows.iter_mut().filter(|window| window.has(ended.task)) {
            let (long, throttled) = match window.rule.figure {
                Figure::Percentile(_) => {
                    window.part().waits += waits;
                    (ended.length > window.rule.limit, Ns::ZERO)
                }
                Figure::Throttled => {
                    let throttled = throttled();
                    (throttled > Ns::ZERO, throttled)
                }
            };
            if !long {
                continue;
            }
            let info = header.tasks.get(ended.task.index());
            let task = info.map_or_else(Default::default, |info| (info.comm.clone(), info.tid));
            let one = Longest { length: ended.length, from: ended.from, task };
            if window.rule.over == Ns::ZERO {
                if throttled > window.rule.limit {
                    found = found.or_else(|| Some((window.place, window.caught(one))));
                }
                continue;
            }
            window.is_long(throttled, one);
        }
        found
    }

    /// Looks at the windows of which a part is over at `now`. Returns those that meet their rules.
    pub(super) fn look(&mut self, now: Ns) -> Vec<(usize, Caught)> {
        let due = self.windows.iter_mut().filter(|window| window.rule.over > Ns::ZERO);
        due.filter_map(|window| window.look(now)).collect()
    }
}

impl Window {
    fn has(&self, task: TaskId) -> bool {
        self.members.get(task.index()).is_some_and(|&is| is)
    }

    /// Returns the newest part.
    fn part(&mut self) -> &mut Part {
        if self.parts.is_empty() {
            self.parts.push_back(Part::default());
        }
        let newest = self.parts.len() - 1;
        &mut self.parts[newest]
    }

    fn is_long(&mut self, throttled: Ns, one: Longest) {
        let part = self.part();
        part.long += 1;
        part.throttled += throttled;
        if part.longest.as_ref().is_none_or(|longest| longest.length < one.length) {
            part.longest = Some(one);
        }
    }

    fn look(&mut self, now: Ns) -> Option<(usize, Caught)> {
        if now < self.until {
            return None;
        }
        self.until = now.saturating_add(Ns(self.rule.over.0 / PARTS));
        let found =
            self.is_met().then(|| self.parts.iter().filter_map(|part| part.longest.clone()));
        let longest = found.and_then(Iterator::max);
        match longest {
            // The same waits are no second incident.
            Some(longest) => {
                self.parts.clear();
                Some((self.place, self.caught(longest)))
            }
            None => {
                self.parts.push_back(Part::default());
                while self.parts.len() > PARTS as usize {
                    self.parts.pop_front();
                }
                None
            }
        }
    }

    fn is_met(&self) -> bool {
        match self.rule.figure {
            // The percentile is the least time that so many waits do not exceed: it is beyond the
            // limit when more waits are than it leaves out.
            Figure::Percentile(part) => {
                let sum = |of: fn(&Part) -> u64| self.parts.iter().map(of).sum::<u64>();
                let (waits, long) = (sum(|part| part.waits), sum(|part| part.long));
                let within = (u128::from(waits) * u128::from(part)).div_ceil(1_000_000);
                waits >= self.rule.figure.least() && u128::from(long) + within > u128::from(waits)
            }
            Figure::Throttled => {
                let throttled = self.parts.iter().map(|part| part.throttled.0).sum();
                Ns(throttled) > self.rule.limit
            }
        }
    }

    fn caught(&self, one: Longest) -> Caught {
        Caught {
            condition: self.words.clone(),
            measure: StretchKind::Wait,
            task: one.task,
            from: one.from,
            length: Some(one.length),
        }
    }
}
