//! What a page needs of one run besides numbers: its schedule, which task delayed which, run-queue
//! length, longest waits.

use schedlab_model::{CpuId, EventSink, Ns, SchedEvent, TaskId, Topology};
use schedlab_report::LaneRecorder;
use schedlab_trace::Header;
use schedlab_trace::analysis::blame::Blame;
use schedlab_trace::analysis::follow::{Followed, Follower, Listener, Occupant, Span, Wait};
use schedlab_trace::analysis::runqueue::RunQueue;
use schedlab_trace::analysis::worst::Worst;
use schedlab_trace::analysis::{By, Scope};

/// Points of run-queue length over time.
const STEPS: u64 = 400;
/// Longest waits kept of each run.
pub(crate) const WORST: usize = 10;

/// How a run is observed.
#[derive(Clone, Debug)]
pub(crate) struct Keep {
    /// Machine and tasks; the names are those of classes.
    pub(crate) header: Header,
    /// Events of the schedule that are kept.
    pub(crate) events: u64,
    /// Observed from here.
    pub(crate) from: Ns,
    /// To here.
    pub(crate) duration: Ns,
    /// What is in view at first; `None`: all.
    pub(crate) focus: Option<Focus>,
    /// The tasks that are looked at; `None`: all. By [`TaskId`].
    pub(crate) tasks: Option<Vec<bool>>,
    /// The tasks of the server, whose waits come first; `None`: none is known.
    pub(crate) first: Option<Vec<bool>>,
    /// The vCPUs of all runs, with their classes; they and their placeholders come after the tasks
    /// of the workload in the header ([`levels`](crate::run::levels)).
    pub(crate) vcpus: Vec<(String, String)>,
}

/// What a page is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Focus {
    /// The part of the schedule that is in view at first.
    pub(crate) part: [Ns; 2],
    /// Where the schedule begins: events before it have no room on the page.
    pub(crate) begin: Ns,
}

/// Observes one run.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    pub(crate) lanes: LaneRecorder,
    followed: Followed<Findings>,
    duration: Ns,
}

/// What was found in one run.
#[derive(Clone, Debug)]
pub(crate) struct Findings {
    /// Which program delayed which.
    pub(crate) blame: Blame,
    /// Tasks that waited.
    pub(crate) queue: RunQueue,
    /// The longest waits.
    pub(crate) worst: Worst,
    /// Where the window begins.
    pub(crate) from: Ns,
}

/// Returns what writes down the schedule from `from` on, `events` of it at most.
pub(crate) fn recorder(
    header: &Header,
    from: Ns,
    events: u64,
    focus: Option<Focus>,
) -> LaneRecorder {
    let lanes = LaneRecorder::new(header.topology.cpus(), from, events);
    let lanes = match focus {
        Some(focus) => lanes.not_before(focus.begin).focused(Some(focus.part)),
        None => lanes,
    };
    if header.backend == "simulator" { lanes.idle_at_first() } else { lanes }
}

impl Observer {
    pub(crate) fn new(keep: &Keep) -> Observer {
        let scope = Scope {
            from: keep.from,
            to: keep.duration,
            tasks: keep.tasks.clone(),
            first: keep.first.clone(),
            ..Scope::default()
        };
        let findings = Findings {
            blame: Blame::new(&keep.header, &scope, By::Name),
            queue: RunQueue::new(&keep.header, &scope, STEPS),
            worst: Worst::new(&keep.header, &scope, WORST),
            from: keep.from,
        };
        let (tasks, cpus) = (keep.header.tasks.len(), keep.header.topology.cpus());
        Observer {
            lanes: recorder(&keep.header, keep.from, keep.events, keep.focus),
            followed: Followed::new(tasks, cpus, findings),
            duration: keep.duration,
        }
    }

    /// For a nested machine with these vCPUs, each with a row behind the CPUs.
    pub(crate) fn nested(keep: &Keep, vcpus: &[String]) -> Observer {
        let cpus = keep.header.topology.cpus();
        let mut header = keep.header.clone();
        header.topology = Topology::flat(cpus + vcpus.len());
        let mut observer = Observer::new(&Keep { header, ..keep.clone() });
        let rows = (0..cpus).map(|cpu| format!("pCPU {cpu}")).chain(vcpus.iter().cloned());
        observer.lanes = observer.lanes.named(rows.collect());
        observer
    }

    pub(crate) fn finish(self) -> (LaneRecorder, Findings) {
        (self.lanes, self.followed.finish(self.duration))
    }
}

impl EventSink for Observer {
    fn event(&mut self, event: &SchedEvent) {
        self.lanes.event(event);
        self.followed.event(event);
    }
}

/// All three hear the same.
impl Listener for Findings {
    fn span(&mut self, span: &Span) {
        self.blame.span(span);
        self.queue.span(span);
        self.worst.span(span);
    }
    fn wait(&mut self, wait: &Wait<'_>) {
        self.blame.wait(wait);
        self.queue.wait(wait);
        self.worst.wait(wait);
    }
    fn occupied(&mut self, cpu: CpuId, at: Ns, who: Occupant) {
        self.blame.occupied(cpu, at, who);
        self.queue.occupied(cpu, at, who);
        self.worst.occupied(cpu, at, who);
    }
    fn unknown_wake(&mut self, task: TaskId, at: Ns) {
        self.blame.unknown_wake(task, at);
        self.queue.unknown_wake(task, at);
        self.worst.unknown_wake(task, at);
    }
    fn before(&mut self, follower: &Follower, event: &SchedEvent) {
        self.blame.before(follower, event);
        self.queue.before(follower, event);
        self.worst.before(follower, event);
    }
    fn after(&mut self, follower: &Follower, event: &SchedEvent) {
        self.blame.after(follower, event);
        self.queue.after(follower, event);
        self.worst.after(follower, event);
    }
    fn finished(&mut self, follower: &Follower) {
        self.blame.finished(follower);
        self.queue.finished(follower);
        self.worst.finished(follower);
    }
}
