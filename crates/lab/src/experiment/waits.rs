//! The waits of some threads for a CPU, including those in which a limit held them back; and where
//! a fair task ran on the CPU of a runnable real-time thread, which only a limit on the real-time
//! class causes (since Linux 6.12 the fair server, kernel/sched/deadline.c; before, real-time
//! throttling, kernel/sched/rt.c).

use schedlab_model::{Ns, SchedEvent, TaskId};
use schedlab_trace::analysis::follow::{Followed, Follower, Listener, Occupant, Wait};
use schedlab_trace::analysis::{Occupancy, Scope};
use schedlab_trace::{Recording, TaskInfo};

/// Fair tasks that run this long on the CPU of a waiting real-time thread got it from the limit.
/// Chosen: the limit gives 50 ms of each second, less what fair tasks had of that second before;
/// switches and sections in which the kernel does not preempt take 10 ms at most, even in a virtual
/// machine (docs/measuring.md).
pub(super) const LIMIT: Ns = Ns::from_ms(40);

/// A wait of a real-time thread, and the CPU time of fair tasks in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Overtaken {
    /// Its beginning.
    pub(super) at: Ns,
    /// Its length.
    pub(super) waited: Ns,
    /// CPU time of fair tasks in it, on the CPU in whose queue the thread was.
    pub(super) fair: Ns,
    /// The fair task with the most of it, and how much.
    pub(super) most: (String, Ns),
}

/// The waits of some threads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Waits {
    /// The longest, throttled time included, as recorders call it that see the limit.
    pub(super) longest: Ns,
    /// The waits of real-time threads in which fair tasks ran, in the order of their ends.
    pub(super) overtaken: Vec<Overtaken>,
}

struct Search<'a> {
    tasks: &'a [TaskInfo],
    waiting: &'a [bool],
    window: (Ns, Ns),
    occupancy: Occupancy,
    found: Waits,
}

impl Search<'_> {
    /// Returns whether the policy of a task is fair; `None`: it is not known.
    fn fair(&self, task: TaskId) -> Option<bool> {
        self.tasks.get(task.index()).filter(|info| info.known).map(|info| info.policy.is_fair())
    }
}

impl Listener for Search<'_> {
    fn occupied(&mut self, cpu: schedlab_model::CpuId, at: Ns, occupant: Occupant) {
        self.occupancy.note(cpu, at, occupant);
    }

    fn wait(&mut self, wait: &Wait<'_>) {
        let (from, to) = self.window;
        if self.waiting.get(wait.task.index()) != Some(&true) || wait.from < from || wait.to > to {
            return;
        }
        self.found.longest = self.found.longest.max(wait.total());
        if self.fair(wait.task) != Some(false) {
            return;
        }
        let mut by: Vec<(TaskId, Ns)> = Vec::new();
        wait.each_part(|part, end| {
            self.occupancy.over(part.cpu, part.since, end, |occupant, time| {
                let Occupant::Task(task) = occupant else { return };
                if self.fair(task) != Some(true) {
                    return;
                }
                match by.iter_mut().find(|(known, _)| *known == task) {
                    Some((_, had)) => *had += time,
                    None => by.push((task, time)),
                }
            });
        });
        let Some(&(most, had)) = by.iter().max_by_key(|(_, had)| *had) else { return };
        self.found.overtaken.push(Overtaken {
            at: wait.from,
            waited: wait.total(),
            fair: by.iter().map(|(_, had)| *had).sum(),
            most: (self.tasks[most.index()].comm.clone(), had),
        });
    }

    fn after(&mut self, follower: &Follower, _event: &SchedEvent) {
        self.occupancy.tidy(follower);
    }
}

/// Returns the waits of the marked tasks within `window`. A wait that the window cuts is left out:
/// its beginning or end is not known.
pub(super) fn waits(recording: &Recording, window: (Ns, Ns), waiting: &[bool]) -> Waits {
    let search = Search {
        tasks: &recording.header.tasks,
        waiting,
        window,
        occupancy: Occupancy::default(),
        found: Waits::default(),
    };
    Followed::over(recording, &Scope::default(), search).found
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, EventKind, Policy, PrevState, Waker};
    use std::path::Path;

    fn task(comm: &str, policy: Policy) -> TaskInfo {
        TaskInfo { policy, known: true, ..TaskInfo::unknown(1, 1, comm) }
    }

    fn event(ms: u64, kind: EventKind) -> SchedEvent {
        SchedEvent { at: Ns::from_ms(ms), cpu: CpuId(0), kind }
    }

    fn switch(ms: u64, prev: u32, next: u32) -> SchedEvent {
        let (prev, next) = (Some(TaskId(prev)), Some(TaskId(next)));
        event(ms, EventKind::Switch { prev, prev_state: PrevState::Runnable, next })
    }

    fn recording(tasks: Vec<TaskInfo>, events: Vec<SchedEvent>) -> Recording {
        let mut recording = shipped("redis-fifo-other-closed");
        recording.header.tasks = tasks;
        recording.duration = events.last().map_or(Ns::ZERO, |last| last.at);
        recording.events = events;
        recording
    }

    fn shipped(name: &str) -> Recording {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings");
        Recording::open(folder.join(format!("{name}.slt"))).unwrap()
    }

    const ALL: (Ns, Ns) = (Ns::ZERO, Ns::MAX);

    /// Returns the waits of the tasks of this name.
    fn waits_of(recording: &Recording, window: (Ns, Ns), comm: &str) -> Waits {
        let waiting: Vec<bool> =
            recording.header.tasks.iter().map(|info| info.comm == comm).collect();
        waits(recording, window, &waiting)
    }

    #[test]
    fn a_wait_is_laid_to_the_fair_tasks_that_ran_in_it() {
        // The FIFO task loses the CPU at 10 to the batch job, which loses it to a stranger at 40;
        // the FIFO task runs again at 64. A second real-time task then takes the CPU for 20 ms:
        // that is no limit.
        let tasks = vec![
            task("redis", Policy::Fifo(1)),
            task("batch", Policy::Other),
            task("stranger", Policy::Idle),
            task("client", Policy::Fifo(2)),
        ];
        let events = vec![
            switch(0, 1, 0),
            switch(10, 0, 1),
            switch(40, 1, 2),
            switch(64, 2, 0),
            switch(70, 0, 3),
            switch(90, 3, 0),
            switch(99, 0, 1),
        ];
        let recording = recording(tasks, events);
        let ms = Ns::from_ms;
        let most = ("batch".to_owned(), ms(30));
        let overtaken = vec![Overtaken { at: ms(10), waited: ms(54), fair: ms(54), most }];
        assert_eq!(waits_of(&recording, ALL, "redis"), Waits { longest: ms(54), overtaken });
        // A fair task is not overtaken, and a wait that the window cuts is not counted.
        assert_eq!(
            waits_of(&recording, ALL, "batch"),
            Waits { longest: ms(59), overtaken: Vec::new() }
        );
        let later = Waits { longest: ms(20), overtaken: Vec::new() };
        assert_eq!(waits_of(&recording, (ms(11), Ns::MAX), "redis"), later);
    }

    #[test]
    fn an_idle_cpu_and_an_unknown_task_are_no_fair_task() {
        let tasks = vec![task("redis", Policy::Fifo(1)), TaskInfo::unknown(7, 7, "gone")];
        let wake = EventKind::Wake { task: TaskId(0), waker: Waker::HardIrq };
        let sleep = EventKind::Switch {
            prev: Some(TaskId(0)),
            prev_state: PrevState::Sleeping,
            next: Some(TaskId(1)),
        };
        let events = vec![
            switch(0, 1, 0),
            event(1, sleep),
            event(2, wake),
            switch(60, 1, 0),
            switch(61, 0, 1),
        ];
        let found = waits_of(&recording(tasks, events), ALL, "redis");
        assert_eq!(found, Waits { longest: Ns::from_ms(58), overtaken: Vec::new() });
    }

    /// The BPF recorder calls the time in which the fair server holds a task back throttled, which
    /// is no run-queue latency. For the task, and for the clients that wait for its answer, it is a
    /// wait.
    #[test]
    fn a_throttled_wait_is_a_wait() {
        let tasks = vec![task("redis", Policy::Fifo(1)), task("batch", Policy::Other)];
        let (held, let_go) =
            (EventKind::Throttle { task: TaskId(0) }, EventKind::Unthrottle { task: TaskId(0) });
        let events = vec![
            switch(0, 1, 0),
            switch(10, 0, 1),
            event(10, held),
            event(64, let_go),
            switch(64, 1, 0),
            switch(65, 0, 1),
        ];
        let recording = recording(tasks, events);
        let found = waits_of(&recording, ALL, "redis");
        assert_eq!((found.longest, found.overtaken.len()), (Ns::from_ms(54), 1));
        assert_eq!(found.overtaken[0].fair, Ns::from_ms(54));
    }

    /// Recorded on Linux 6.18: Redis under SCHED_FIFO 1 beside sysbench, three seconds.
    #[test]
    fn the_fair_server_is_found_in_a_shipped_recording() {
        let found = waits_of(&shipped("redis-fifo-other-closed8"), ALL, "redis-server");
        assert!(found.longest >= LIMIT, "{:?}", found.longest);
        let met: Vec<&Overtaken> = found.overtaken.iter().filter(|one| one.fair >= LIMIT).collect();
        assert_eq!(met.len(), 3, "{found:?}");
        for one in met {
            assert!(one.most.0 == "sysbench" && one.fair.0 * 100 >= one.waited.0 * 95, "{one:?}");
            assert!((Ns::from_ms(48)..Ns::from_ms(58)).contains(&one.waited), "{one:?}");
        }
    }
}
