//! What each class had in the course of a recording, and in the course of its replay.
//!
//! Where tasks move between CPUs, which of them share one lasts for a while, and then others do:
//! shares and rates differ from one window of the recording to the next. They differ for other
//! reasons, too: a client starts, connects, and ends. The replay starts, connects and ends as the
//! recording does. So what counts is by how much the windows of the two differ.

use super::spread::BEYOND;
use crate::measurements::Kind;
use crate::metric::Metric;
use schedlab_model::{EventSink, Fact, Ns, SchedEvent};
use schedlab_stats::t_critical;
use schedlab_trace::Recording;
use schedlab_trace::analysis::messages::RequestTimes;
use schedlab_trace::analysis::{Summary, TaskSummary};
use std::collections::BTreeMap;

/// Windows of a run. Of a recording of 3 s one has 94 ms: some twenty turns of tasks that share a
/// CPU, and ten of them are a placement that lasts for a second.
const WINDOWS: usize = 32;

/// What the tasks had in each window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Course {
    windows: Vec<Had>,
}

/// What was had in one window.
#[derive(Clone, Debug, Default)]
struct Had {
    length: Ns,
    /// The tasks that had anything, ascending, by number: of thousands that live briefly few are
    /// in one window.
    tasks: Vec<(u32, OfTask)>,
    /// By port or path: requests that were answered.
    answered: BTreeMap<String, u64>,
}

impl Had {
    /// Returns what these tasks had, which ascend. Of two lists the shorter is walked through and
    /// the longer searched: a program may be one of thousands of tasks, or have thousands.
    fn of_tasks<'a>(&'a self, of: &'a [usize]) -> Box<dyn Iterator<Item = &'a OfTask> + 'a> {
        let tasks = &self.tasks;
        if of.len() < tasks.len() {
            let find = |task: &usize| tasks.binary_search_by_key(task, |one| one.0 as usize).ok();
            return Box::new(of.iter().filter_map(find).map(|at| &tasks[at].1));
        }
        let is_of = |one: &&(u32, OfTask)| of.binary_search(&(one.0 as usize)).is_ok();
        Box::new(tasks.iter().filter(is_of).map(|(_, had)| had))
    }
}

/// What a task had in one window.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct OfTask {
    run: Ns,
    /// Activations that ended.
    ended: u64,
    /// For how long it waited, where it runs a virtual CPU; and whether it does.
    stolen: Ns,
    vcpus: u32,
}

/// Cuts a stream of events into windows.
#[derive(Clone)]
pub(crate) struct Watch {
    summary: Summary,
    requests: Option<RequestTimes>,
    duration: Ns,
    /// By port or path: requests that were answered in all.
    before: BTreeMap<String, u64>,
    course: Course,
}

impl Watch {
    /// Begins with nothing. `vcpus`: for each task whether it runs a virtual CPU; `requests`: what
    /// measures them, where messages are known.
    pub(crate) fn new(
        vcpus: &[bool],
        cpus: usize,
        duration: Ns,
        requests: Option<RequestTimes>,
    ) -> Watch {
        let summary = Summary::new(vcpus.len(), cpus, Ns::ZERO).of_vcpus(vcpus).sums_only();
        Watch { summary, requests, duration, before: BTreeMap::new(), course: Course::default() }
    }

    /// Returns when the current window ends; `None`: it was the last.
    fn edge(&self) -> Option<Ns> {
        let number = self.course.windows.len() + 1;
        let at = u128::from(self.duration.0) * number as u128 / WINDOWS as u128;
        (number <= WINDOWS).then_some(Ns(at as u64))
    }

    /// Ends the windows that are over at this time.
    fn pass(&mut self, at: Ns) {
        while let Some(edge) = self.edge().filter(|edge| *edge <= at) {
            self.cut(edge);
        }
    }

    fn cut(&mut self, edge: Ns) {
        self.summary.finish(edge);
        let tasks = self.summary.tasks.iter().map(OfTask::from).zip(0..);
        let tasks = tasks.filter(|(had, _)| *had != OfTask::default());
        let tasks = tasks.map(|(had, task)| (task, had)).collect();
        self.summary.begin_next();
        let all = self.requests.iter().flat_map(|requests| &requests.services);
        let all: BTreeMap<String, u64> =
            all.map(|(name, times)| (name.clone(), times.len() as u64)).collect();
        let before = |name: &str| self.before.get(name).copied().unwrap_or_default();
        let answered = all.iter().map(|(name, count)| (name.clone(), count - before(name)));
        self.course.windows.push(Had {
            length: self.summary.window,
            tasks,
            answered: answered.collect(),
        });
        self.before = all;
    }

    /// Returns the windows; those that nothing came to are empty.
    pub(crate) fn finish(mut self) -> Course {
        self.pass(self.duration);
        self.course
    }
}

impl From<&TaskSummary> for OfTask {
    fn from(task: &TaskSummary) -> OfTask {
        let (run, ended) = (task.run, task.activations);
        OfTask { run, ended, stolen: task.stolen, vcpus: task.vcpus }
    }
}

impl EventSink for Watch {
    fn event(&mut self, event: &SchedEvent) {
        self.pass(event.at);
        self.summary.event(event);
    }

    fn fact(&mut self, fact: &Fact) {
        self.pass(fact.at);
        if let Some(requests) = &mut self.requests {
            requests.fact(fact);
        }
    }
}

impl Course {
    /// Returns the course of a recording. `requests`: what measures them, of none to begin with.
    pub(super) fn from_recording(recording: &Recording, requests: Option<&RequestTimes>) -> Course {
        let header = &recording.header;
        let (vcpus, cpus) = (header.vcpus(), header.topology.cpus());
        let mut watch = Watch::new(&vcpus, cpus, recording.duration, requests.cloned());
        let mut facts = recording.facts.list.iter().peekable();
        for event in &recording.events {
            while let Some(fact) = facts.next_if(|fact| fact.at <= event.at) {
                watch.fact(fact);
            }
            watch.event(event);
        }
        facts.for_each(|fact| watch.fact(fact));
        watch.finish()
    }

    /// Returns a share or a rate in each window, in the metric's unit; `None`: it is neither.
    /// `of`: the tasks of the subject, ascending.
    fn of(&self, kind: Kind, name: &str, metric: Metric, of: &[usize]) -> Option<Vec<f64>> {
        let sum = |had: &Had, value: &dyn Fn(&OfTask) -> f64| {
            had.of_tasks(of).map(value).fold(0.0, |sum, one| sum + one)
        };
        let value = |had: &Had| {
            let length = had.length.0.max(1) as f64;
            Some(match (metric, kind) {
                (Metric::Share, _) => sum(had, &|task| task.run.0 as f64) / length,
                (Metric::Steal, _) => {
                    let vcpus = sum(had, &|task| f64::from(task.vcpus));
                    sum(had, &|task| task.stolen.0 as f64) / length / vcpus.max(1.0)
                }
                (Metric::Throughput, Kind::Channel) => {
                    had.answered.get(name).copied().unwrap_or_default() as f64 / length * 1e9
                }
                (Metric::Throughput, _) => sum(had, &|task| task.ended as f64) / length * 1e9,
                _ => return None,
            })
        };
        self.windows.iter().map(value).collect()
    }
}

/// The course of a recording beside that of its replay.
pub(super) struct Beside<'a> {
    recorded: &'a Course,
    /// By seed.
    replayed: Vec<&'a Course>,
}

impl<'a> Beside<'a> {
    /// Of a recording and the runs of its replay. Where none of them was watched, nothing differs.
    pub(super) fn new(
        recorded: &'a Course,
        replayed: impl Iterator<Item = &'a Course>,
    ) -> Beside<'a> {
        Beside { recorded, replayed: replayed.collect() }
    }

    /// Returns by how much a share or a rate may differ from that of another such recording (95 %),
    /// in the metric's unit: two means of windows. 0 where nothing is known.
    pub(super) fn of_mean(&self, kind: Kind, name: &str, metric: Metric, tasks: &[usize]) -> f64 {
        let of = |course: &Course| course.of(kind, name, metric, tasks);
        let Some(recorded) = of(self.recorded) else { return 0.0 };
        let replayed: Vec<Vec<f64>> =
            self.replayed.iter().filter_map(|course| of(course)).collect();
        if replayed.is_empty() {
            return 0.0;
        }
        let mean = |window: usize| {
            let all = replayed.iter().filter_map(|course| course.get(window));
            all.sum::<f64>() / replayed.len() as f64
        };
        let differences: Vec<f64> =
            recorded.iter().enumerate().map(|(window, was)| was - mean(window)).collect();
        std::f64::consts::SQRT_2 * half_width(&differences)
    }
}

/// Returns half the width of the interval (95 %) of the mean of what neighbouring windows gave.
///
/// What lasts for longer than a window makes neighbours alike: n windows are worth n / tau that do
/// not depend on each other, where tau is 1 and twice the sum of their autocorrelations, added up
/// in pairs for as long as those are positive (Geyer, Practical Markov Chain Monte Carlo, 1992,
/// section 3.3). What a mean of n / tau values is off by follows Student's t with one less degrees
/// of freedom.
fn half_width(windows: &[f64]) -> f64 {
    let count = windows.len() as f64;
    let mean = windows.iter().sum::<f64>() / count.max(1.0);
    let together = |lag: usize| {
        let pairs = windows.iter().zip(windows.iter().skip(lag));
        pairs.map(|(one, other)| (one - mean) * (other - mean)).sum::<f64>() / count
    };
    let own = together(0);
    if windows.len() < 2 || own <= 0.0 {
        return 0.0;
    }
    let pairs = (0..windows.len() / 2).map(|pair| together(2 * pair) + together(2 * pair + 1));
    let alike: f64 = pairs.take_while(|sum| *sum > 0.0).sum();
    // Two values are the fewest that have a spread.
    let tau = (2.0 * alike / own - 1.0).clamp(1.0, count / 2.0);
    // Values lie around their own mean more closely than around the true one.
    let variance = own * count / (count - tau);
    (variance * tau / count).sqrt() * t_critical(BEYOND, 1, count / tau - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, EventKind, PrevState, TaskId};
    use schedlab_stats::variance;

    fn course(of: impl Fn(usize) -> u64) -> Course {
        let had = |window| Had {
            length: Ns(100),
            tasks: vec![(0, OfTask { run: Ns(of(window)), ended: 3, ..OfTask::default() })],
            answered: [(":1".to_owned(), of(window))].into_iter().collect(),
        };
        Course { windows: (0..WINDOWS).map(had).collect() }
    }

    fn of_share(recorded: &Course, replayed: &Course) -> f64 {
        let beside = Beside::new(recorded, std::iter::once(replayed));
        beside.of_mean(Kind::Class, "web", Metric::Share, &[0])
    }

    /// Neighbours that have nothing to do with each other: the standard error of a mean of 32.
    #[test]
    fn independent_windows_have_the_error_of_a_mean() {
        let windows: Vec<f64> = (0..32).map(|window| f64::from(window * 7 % 32 % 2)).collect();
        let error = (variance(windows.iter().copied()) / 32.0).sqrt();
        assert!((half_width(&windows) - 2.039_513 * error).abs() < 1e-4);
        assert_eq!(half_width(&[0.5; 32]), 0.0);
        assert_eq!(half_width(&[0.5]), 0.0);
    }

    /// A placement that lasts for eight windows is not seen 32 times: neighbours are alike over
    /// four lags, and what the windows are worth is a quarter.
    #[test]
    fn what_lasts_is_seen_seldom() {
        let lasting: Vec<f64> = (0..32).map(|window| f64::from(window / 8 % 2)).collect();
        let brief: Vec<f64> = (0..32).map(|window| f64::from(window % 2)).collect();
        let (lasting, brief) = (half_width(&lasting), half_width(&brief));
        // 0.5 * sqrt(3.9 / 28) is the standard error, and t of seven degrees is 2.4.
        assert!(lasting > 0.4 && lasting < 0.55, "{lasting}");
        assert!(lasting > 2.5 * brief, "{lasting} {brief}");
    }

    /// A client that starts in the third window does so in the replay.
    #[test]
    fn what_the_replay_does_as_well_is_no_spread() {
        let starts = |window: usize| if window < 3 { 0 } else { 60 };
        let moves = |window: usize| starts(window) + [0, 20][window / 2 % 2];
        assert_eq!(of_share(&course(starts), &course(starts)), 0.0);
        let beside_start = of_share(&course(moves), &course(starts));
        let beside_nothing = of_share(&course(moves), &course(|_| 60));
        assert!(beside_start > 0.01 && beside_start < beside_nothing, "{beside_start}");
        let nothing = Course::default();
        let none = Beside::new(&nothing, std::iter::empty());
        assert_eq!(none.of_mean(Kind::Class, "web", Metric::Share, &[0]), 0.0);
    }

    #[test]
    fn rates_are_those_of_requests_or_of_activations() {
        let (was, is) = (course(|window| window as u64), course(|_| 16));
        let beside = Beside::new(&was, std::iter::once(&is));
        let of = |kind| beside.of_mean(kind, ":1", Metric::Throughput, &[0]);
        assert!(of(Kind::Channel) > 0.0);
        assert_eq!(of(Kind::Class), 0.0, "three in each window");
    }

    /// One task that runs from the fourth to the seventh window.
    #[test]
    fn a_stream_is_cut_where_a_window_ends() {
        let mut watch = Watch::new(&[false], 1, Ns(3_200), None);
        let mut switch = |at: u64, prev: Option<u32>, next: Option<u32>| {
            watch.event(&SchedEvent {
                at: Ns(at),
                cpu: CpuId(0),
                kind: EventKind::Switch {
                    prev: prev.map(TaskId),
                    prev_state: PrevState::Blocked,
                    next: next.map(TaskId),
                },
            });
        };
        switch(350, None, Some(0));
        switch(620, Some(0), None);
        let course = watch.finish();
        let shares = course.of(Kind::Class, "web", Metric::Share, &[0]).unwrap();
        assert_eq!(shares.len(), WINDOWS);
        assert_eq!(&shares[2..8], &[0.0, 0.5, 1.0, 1.0, 0.2, 0.0]);
    }
}
