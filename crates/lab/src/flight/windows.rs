//! Rules about all waits of a server within a time, which moves on by tenths.

use super::rule::{Figure, Rule, WindowRule};
use crate::record::{Caught, StretchKind};
use schedlab_model::{Ns, TaskId};
use schedlab_study::serve::Server;
use schedlab_trace::analysis::follow::Wait;
use schedlab_trace::analysis::{Durations, Occupancy, throttle};
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
    waits: Durations,
    throttled: Ns,
    longest: Option<Longest>,
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

    /// Counts a wait. Returns what it makes an incident by itself, with the place of the rule.
    pub(super) fn wait(
        &mut self,
        wait: &Wait<'_>,
        header: &Header,
        occupancy: &Occupancy,
    ) -> Option<(usize, Caught)> {
        let mut found = None;
        for window in &mut self.windows {
            if !window.members.get(wait.task.index()).is_some_and(|&is| is) {
                continue;
            }
            let throttled =
                || throttle::held(header, occupancy, wait).map_or(Ns::ZERO, |(_, time)| time);
            let (counted, throttled) = match window.rule.figure {
                Figure::Percentile(_) => (wait.total(), Ns::ZERO),
                Figure::Throttled => {
                    let throttled = throttled();
                    (throttled, throttled)
                }
            };
            if window.rule.figure == Figure::Throttled && throttled == Ns::ZERO {
                continue;
            }
            let info = header.tasks.get(wait.task.index());
            let task = info.map_or_else(Default::default, |info| (info.comm.clone(), info.tid));
            let one = Longest { length: wait.total(), from: wait.from, task };
            if window.rule.over == Ns::ZERO {
                if throttled > window.rule.limit {
                    found = found.or_else(|| Some((window.place, window.caught(one))));
                }
                continue;
            }
            window.count(counted, throttled, one);
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
    fn count(&mut self, counted: Ns, throttled: Ns, one: Longest) {
        if self.parts.is_empty() {
            self.parts.push_back(Part::default());
        }
        let Some(part) = self.parts.back_mut() else { return };
        part.waits.add(counted);
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
            Figure::Percentile(part) => {
                let mut all = Durations::default();
                self.parts.iter().for_each(|one| all.merge(&one.waits));
                all.count() >= self.rule.figure.least() && all.quantile(part) > self.rule.limit
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
