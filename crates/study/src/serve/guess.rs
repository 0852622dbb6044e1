//! Which program of a recording may be the server, where the user names none. A guess orders rows
//! and chooses the first sentence; it hides no row and changes no verdict.

use super::Server;
use schedlab_model::{EventKind, TaskId, Waker};
use schedlab_trace::analysis::messages::Messages;
use schedlab_trace::analysis::{Analysis, By, Scope};
use schedlab_trace::{Capability, Recording, TaskInfo};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The setting in a recording's header that says for which server it was made: a pid or a program.
pub const RECORDED_FOR: &str = "recorder.for";

/// Answers and exchanges below this number say nothing: a program that starts exchanges a few
/// wakeups with its parent.
const ENOUGH: u64 = 100;
/// Programs that have to wait for the same one before it is guessed.
const WAITING_PROGRAMS: usize = 2;

/// The program that schedlab takes for the server, because none was named.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Guess {
    /// Its name, or its pid.
    pub name: String,
    /// Why it counts as the server.
    pub why: String,
    /// The names of its threads.
    #[serde(skip)]
    pub programs: Vec<String>,
}

impl Guess {
    fn new(name: &str, why: &str) -> Guess {
        Guess { name: name.to_owned(), why: why.to_owned(), programs: vec![name.to_owned()] }
    }

    /// Returns what is said of it, behind `serve: `.
    pub fn sentence(&self) -> String {
        format!("{} (guessed: {}; name another by --serve)", self.name, self.why)
    }
}

/// Returns the program that is most likely the server: the one that the recording was made for,
/// else the one that answers most requests, else the one that most other programs wait for.
pub fn guess(recording: &Recording) -> Option<Guess> {
    let header = &recording.header;
    let made_for = header.knobs.get(RECORDED_FOR).and_then(|asked| {
        let server = Server::new(asked);
        let programs = Server::programs(header, &server.tasks(header).ok()?);
        Some(Guess::new(&server.name(&programs), "the recording was made for it"))
    });
    // What the programs of a host of guests serve is the guests.
    let is_of_guests = header.tasks.iter().any(|task| task.vcpu);
    let found = || answers(recording).or_else(|| waited_for(recording));
    let mut guess = made_for.or_else(|| if is_of_guests { None } else { found() })?;
    if let Ok(tasks) = Server::new(&guess.name).tasks(header) {
        guess.programs = Server::programs(header, &tasks);
    }
    Some(guess)
}

/// Returns the program that answered more than half of all requests, where messages were recorded.
fn answers(recording: &Recording) -> Option<Guess> {
    let header = &recording.header;
    Messages::check(header).ok()?;
    let found = Messages::from_recording(recording, &Scope::default(), By::Name);
    let mut by_program: BTreeMap<&str, u64> = BTreeMap::new();
    for (task, count) in found.answered() {
        *by_program.entry(header.tasks[task.index()].program()).or_default() += count;
    }
    let all: u64 = by_program.values().sum();
    let (name, most) = by_program.into_iter().max_by_key(|(_, count)| *count)?;
    (most >= ENOUGH && most * 2 > all).then(|| Guess::new(name, "it answers most requests"))
}

/// Returns the program that most others wait for in a recording.
fn waited_for(recording: &Recording) -> Option<Guess> {
    let header = &recording.header;
    if !header.capabilities.has(Capability::Waker) {
        return None;
    }
    let mut exchanges = Exchanges::default();
    let programs: Vec<Option<usize>> =
        header.tasks.iter().map(|task| exchanges.program(task)).collect();
    let program = |task: TaskId| programs.get(task.index()).copied().flatten();
    for event in &recording.events {
        if let EventKind::Wake { task, waker: Waker::Task(by) | Waker::InlineSoftirq(by) } =
            event.kind
            && let (Some(by), Some(task)) = (program(by), program(task))
        {
            exchanges.wakes(by, task);
        }
    }
    exchanges.guess()
}

/// How often programs wake each other.
#[derive(Clone, Debug, Default)]
pub struct Exchanges {
    /// A number for each program.
    numbers: BTreeMap<String, usize>,
    /// By waking program: the woken ones, ascending, and how often.
    wakes: Vec<Vec<(usize, u64)>>,
    /// How many pairs these are.
    pairs: usize,
}

/// Pairs of programs that are counted at most, so that memory stays flat.
const PAIRS: usize = 20_000;

impl Exchanges {
    /// Returns the number of a task's program; `None`: threads of the kernel serve all.
    pub fn program(&mut self, task: &TaskInfo) -> Option<usize> {
        if task.kernel {
            return None;
        }
        if let Some(number) = self.numbers.get(task.program()) {
            return Some(*number);
        }
        let next = self.numbers.len();
        (next < PAIRS).then(|| *self.numbers.entry(task.program().to_owned()).or_insert(next))
    }

    /// Counts a wakeup between two programs, by their numbers.
    pub fn wakes(&mut self, by: usize, task: usize) {
        if by == task {
            return;
        }
        if by >= self.wakes.len() {
            self.wakes.resize_with(by + 1, Vec::new);
        }
        let woken = &mut self.wakes[by];
        match woken.binary_search_by_key(&task, |pair| pair.0) {
            Ok(at) => woken[at].1 += 1,
            Err(at) if self.pairs < PAIRS => {
                woken.insert(at, (task, 1));
                self.pairs += 1;
            }
            Err(_) => {}
        }
    }

    /// Returns how often one program woke another.
    fn count(&self, by: usize, task: usize) -> u64 {
        let woken = self.wakes.get(by).map_or(&[][..], Vec::as_slice);
        woken.binary_search_by_key(&task, |pair| pair.0).map_or(0, |at| woken[at].1)
    }

    /// Returns the program of which several others ask something and get an answer, and which has
    /// more than half of all such exchanges. Of two programs that exchange wakeups with each other
    /// only, neither is guessed: each waits for the other.
    pub fn guess(&self) -> Option<Guess> {
        let mut all = 0;
        let mut exchanges: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        let by = self.wakes.iter().enumerate();
        let pairs = by.flat_map(|(one, woken)| woken.iter().map(move |pair| (one, *pair)));
        for (one, (other, there)) in pairs.filter(|(one, (other, _))| one < other) {
            let both = self.count(other, one).min(there);
            if both >= ENOUGH {
                all += both;
                exchanges.entry(one).or_default().push(both);
                exchanges.entry(other).or_default().push(both);
            }
        }
        let several = exchanges.into_iter().filter(|(_, with)| with.len() >= WAITING_PROGRAMS);
        let mut by_count: Vec<(u64, usize)> =
            several.map(|(program, with)| (with.iter().sum(), program)).collect();
        by_count.sort_unstable();
        let (most, program) = by_count.pop()?;
        let second = by_count.last().map_or(0, |(count, _)| *count);
        let (name, _) = self.numbers.iter().find(|(_, number)| **number == program)?;
        (most * 2 > all && second * 2 <= most).then(|| Guess::new(name, "most others wait for it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{
        CpuId, Fact, FactKind, Ns, ObjectId, ObjectInfo, ObjectKind, SchedEvent, Transfer,
    };
    use schedlab_trace::{Capabilities, Header};

    /// A recording in which pairs of tasks exchange 200 wakeups each.
    fn exchanging(names: &[&str], pairs: &[(u32, u32)]) -> Recording {
        let tasks: Vec<TaskInfo> =
            (1..).zip(names).map(|(n, name)| TaskInfo::unknown(n, n, *name)).collect();
        let header = Header { tasks, capabilities: Capabilities::simulator(), ..Header::default() };
        let wake = |at: u64, by: u32, task: u32| SchedEvent {
            at: Ns(at),
            cpu: CpuId(0),
            kind: EventKind::Wake { task: TaskId(task), waker: Waker::Task(TaskId(by)) },
        };
        let both = |at: u64| pairs.iter().flat_map(move |&(a, b)| [wake(at, a, b), wake(at, b, a)]);
        let events = (0..200).flat_map(both).collect();
        Recording { header, events, duration: Ns(200), ..Recording::default() }
    }

    /// Two threads of one program that ask another one are no two programs that wait for it.
    #[test]
    fn threads_of_one_process_are_one_program() {
        let mut recording =
            exchanging(&["client", "isc-net-0000", "isc-net-0001"], &[(0, 1), (2, 0)]);
        assert!(guess(&recording).is_some_and(|guess| guess.name == "client"));
        for task in &mut recording.header.tasks[1..] {
            task.process = Some("named".to_owned());
        }
        assert_eq!(guess(&recording), None, "each waits for the other");
    }

    #[test]
    fn the_server_is_what_several_programs_wait_for() {
        let recording = exchanging(&["db", "shop", "report"], &[(0, 1), (2, 0)]);
        let found = guess(&recording).expect("db stands out");
        assert_eq!(
            found.sentence(),
            "db (guessed: most others wait for it; name another by --serve)"
        );
        // Each of two waits for the other; and in a circle none is guessed.
        assert_eq!(guess(&exchanging(&["db", "shop"], &[(0, 1)])), None);
        assert_eq!(
            guess(&exchanging(&["a", "b", "c"], &[(0, 1), (1, 2), (2, 0)])).map(|g| g.name),
            None
        );
        // Threads of one program are one program.
        assert_eq!(guess(&exchanging(&["db", "shop", "shop"], &[(0, 1), (0, 2)])), None);
    }

    /// Of two programs that wait for each other the messages say which one answers.
    #[test]
    fn the_server_is_what_answers_requests() {
        let mut recording = exchanging(&["client", "server"], &[(0, 1)]);
        recording.header.capabilities.0.insert(Capability::Messages.name().to_owned());
        let flow = |from: &str, to: &str, peer: u32| ObjectInfo {
            from: from.to_owned(),
            to: to.to_owned(),
            peer: Some(ObjectId(peer)),
            ..ObjectInfo::of_kind(ObjectKind::Tcp)
        };
        let (client, server) = ("127.0.0.1:41230", "127.0.0.1:6379");
        recording.facts.objects = vec![flow(client, server, 1), flow(server, client, 0)];
        let fact = |at: u64, task: u32, kind| Fact {
            at: Ns(at),
            cpu: CpuId(0),
            task: Some(TaskId(task)),
            kind,
        };
        let moved = |object: u32| Transfer::done(ObjectId(object), 10);
        let request = |at: u64| {
            [
                fact(at, 0, FactKind::Send(moved(0))),
                fact(at, 1, FactKind::Receive(moved(0))),
                fact(at, 1, FactKind::Send(moved(1))),
                fact(at, 0, FactKind::Receive(moved(1))),
            ]
        };
        recording.facts.list = (0..ENOUGH).flat_map(request).collect();
        let found = guess(&recording).expect("the server answers");
        assert_eq!((&*found.name, &*found.why), ("server", "it answers most requests"));
        recording.facts.list.truncate(40);
        assert_eq!(guess(&recording), None, "ten requests say nothing");
    }

    #[test]
    fn what_a_recording_was_made_for_comes_first() {
        let mut recording = exchanging(&["db", "shop", "report"], &[(0, 1), (2, 0)]);
        recording.header.knobs.insert(RECORDED_FOR.to_owned(), "2".to_owned());
        let found = guess(&recording).expect("named");
        assert_eq!(
            (found.name.as_str(), found.why.as_str()),
            ("shop", "the recording was made for it")
        );
        recording.header.knobs.insert(RECORDED_FOR.to_owned(), "77".to_owned());
        assert_eq!(guess(&recording).map(|found| found.name).as_deref(), Some("db"));
    }
}
