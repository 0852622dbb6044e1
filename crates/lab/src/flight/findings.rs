//! What the follower of all tasks tells the flight recorder: window rules and metrics.

use super::meters::Meters;
use super::windows::Windows;
use crate::live_follower::LiveListener;
use crate::record::Caught;
use schedlab_model::{CpuId, Ns, SchedEvent, TaskId};
use schedlab_trace::Header;
use schedlab_trace::analysis::follow::{Follower, Listener, Occupant, Span, ThreadState, Wait};
use schedlab_trace::analysis::{Occupancy, throttle};

/// Switches that are remembered while a task waits, on all CPUs together (6 MB): who ran before
/// them is unknown in a wait that is longer.
const SWITCHES: usize = 1 << 18;

/// See the module.
pub(super) struct Findings {
    pub(super) header: Header,
    pub(super) windows: Windows,
    pub(super) meters: Option<Meters>,
    /// Single waits that met a rule, with the rule's place.
    pub(super) caught: Vec<(usize, Caught)>,
    occupancy: Occupancy,
    /// Of the wait that is looked at: who ran, and for how long.
    meanwhile: Vec<(TaskId, Ns)>,
}

impl Findings {
    pub(super) fn new(windows: Windows, meters: Option<Meters>) -> Findings {
        Findings {
            header: Header::default(),
            windows,
            meters,
            caught: Vec::new(),
            occupancy: Occupancy::bounded(SWITCHES),
            meanwhile: Vec::new(),
        }
    }

    /// Replaces the window rules; their windows begin now.
    pub(super) fn set(&mut self, windows: Windows) {
        self.windows = windows;
        for (at, task) in self.header.tasks.iter().enumerate() {
            self.windows.met(TaskId::from(at), task, &self.header.groups);
        }
    }
}

impl LiveListener for Findings {
    fn header(&mut self) -> &mut Header {
        &mut self.header
    }

    fn occupancy(&self) -> &Occupancy {
        &self.occupancy
    }

    fn met(&mut self, slot: TaskId) {
        if let Some(task) = self.header.tasks.get(slot.index()) {
            self.windows.met(slot, task, &self.header.groups);
        }
        self.meters.iter_mut().for_each(|meters| meters.met(slot));
    }
}

impl Listener for Findings {
    fn occupied(&mut self, cpu: CpuId, at: Ns, occupant: Occupant) {
        self.occupancy.note(cpu, at, occupant);
    }

    fn span(&mut self, span: &Span) {
        if span.state == ThreadState::Running
            && let Some(meters) = &mut self.meters
        {
            meters.ran(span.task, &self.header, span.length(), span.to);
        }
    }

    fn wait(&mut self, wait: &Wait<'_>) {
        let (header, occupancy) = (&self.header, &self.occupancy);
        self.caught.extend(self.windows.wait(wait, header, occupancy));
        let Some(meters) = &mut self.meters else { return };
        let held = throttle::held(header, occupancy, wait).map_or(Ns::ZERO, |(_, time)| time);
        meters.waited((wait.task, header), (wait.total(), held), wait.to);
        self.meanwhile.clear();
        wait.each_part(|part, end| {
            if !part.throttled {
                occupancy.over(part.cpu, part.since, end, |occupant, time| {
                    let Occupant::Task(task) = occupant else { return };
                    match self.meanwhile.iter_mut().find(|(known, _)| *known == task) {
                        Some((_, sum)) => *sum += time,
                        None => self.meanwhile.push((task, time)),
                    }
                });
            }
        });
        for &(ran, time) in &self.meanwhile {
            meters.delayed((wait.task, ran), header, time, wait.to);
        }
    }

    fn after(&mut self, follower: &Follower, _: &SchedEvent) {
        self.occupancy.tidy(follower);
    }
}
