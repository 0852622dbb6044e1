//! What a workload of messages is made of, and which rules it needed beside the facts.

use crate::facts::{Kind, TaskFacts};
use crate::steps::Steps;
use schedlab_model::{Exchange, Ns, TaskId};
use schedlab_trace::Recording;
use schedlab_trace::replay::spread;
use std::fmt;

/// What was found in the facts, and what had to be assumed beside them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Operations of all tasks.
    pub operations: u64,
    /// Objects at which something was exchanged.
    pub objects: usize,
    /// Threads that do one thing after the other, and those that wait for many objects at once.
    pub scripts: usize,
    /// Event loops and pools.
    pub executors: usize,
    /// Tasks that never wait for anything: they have no end of demand.
    pub endless: Vec<TaskId>,
    /// Futexes that are taken to guard something.
    pub locks: usize,
    /// Futexes that are taken to carry events.
    pub events: usize,
    /// Receives of bytes that no recorded task sent: at their recorded times.
    pub arrivals: usize,
    /// Wakeups by tasks that no fact explains: a token each.
    pub wakeups: u64,
    /// Waits that no fact explains and no task ended: they end at their recorded times.
    pub unexplained: u64,
    /// Processes whose threads share their connections: name, threads, and how many run at once.
    pub shared: Vec<(String, usize, usize)>,
    /// Processes of which several threads read at one address, each from a socket of its own: name
    /// and sockets.
    pub apart: Vec<(String, usize)>,
    /// Sends of event loops that are laid to another connection than their own.
    pub on_behalf: u64,
    /// Threads of the recorder, whose work follows from how much is recorded.
    pub recorders: usize,
    /// What the steadiest task's sends or receives cost more or less from one eighth of the
    /// recording to the next (standard deviation, in millionths); `None`: no task has enough.
    pub spread_of_costs: Option<u64>,
    /// What is missing among the facts, in words; empty where nothing is.
    pub missing: String,
}

/// Returns how steady the machine was, from what the same operation costs the same task.
fn spread_of_costs(tasks: &[TaskFacts], duration: Ns) -> Option<u64> {
    let alike: [fn(&Kind) -> bool; 2] =
        [|kind| matches!(kind, Kind::Send(..)), |kind| matches!(kind, Kind::Receive(..))];
    let of = |task: &TaskFacts, alike: fn(&Kind) -> bool| {
        let operations = task.operations.iter().filter(|operation| alike(&operation.kind));
        spread(operations.map(|operation| (operation.at, operation.cost())), duration)
    };
    tasks.iter().flat_map(|task| alike.map(|alike| of(task, alike))).flatten().min()
}

impl Report {
    /// Counts what the steps and the exchange hold.
    pub(crate) fn note(&mut self, steps: &Steps<'_>, recording: &Recording, exchange: &Exchange) {
        let operations = || steps.facts.tasks.iter().flat_map(|task| &task.operations);
        self.operations = operations().count() as u64;
        self.wakeups =
            operations().filter(|operation| operation.kind == Kind::Woken).count() as u64;
        let used = steps
            .graph
            .objects
            .iter()
            .filter(|object| object.has_sender() || !object.readers.is_empty());
        self.objects = used.count();
        let futexes = || steps.graph.objects.iter().filter(|object| object.futex);
        self.locks = futexes().filter(|object| object.lock).count();
        self.events = futexes().filter(|object| !object.lock).count();
        (self.scripts, self.executors) = (exchange.scripts.len(), exchange.executors.len());
        self.arrivals = steps.arrivals.len();
        (self.on_behalf, self.unexplained) = (steps.on_behalf, steps.unexplained);
        self.recorders = steps.drains.len();
        self.spread_of_costs = spread_of_costs(&steps.facts.tasks, recording.duration);
        self.missing = recording.facts.loss().sentence().unwrap_or_default();
    }

    /// Returns the rules that go beyond the facts and were used here, a sentence each.
    pub fn rules(&self) -> Vec<String> {
        let mut rules = Vec::new();
        if self.locks > 0 {
            rules.push(format!(
                "{} futexes guard something, because a task both waits and wakes there or each \
                 wait expects the value 2 (a mutex of \
                 glibc or Go that has waiters): a wait ends with a wake, or when no task that \
                 wakes there is awake",
                self.locks
            ));
        }
        for (name, sockets) in &self.apart {
            rules.push(format!(
                "{sockets} sockets of {name} have one address: a datagram is for the thread that \
                 it woke, or that was awake while the others slept on"
            ));
        }
        for (name, threads, lanes) in &self.shared {
            rules.push(format!(
                "{threads} threads of {name} read the same objects: they share their work, and \
                 {lanes} of them do it at once"
            ));
        }
        if self.recorders > 0 {
            rules.push(
                "the recorder's CPU time follows the number of events and facts that the simulation \
                 tells, at the recorded price of each"
                    .to_owned(),
            );
        }
        if self.on_behalf > 0 {
            rules.push(format!(
                "{} messages of event loops belong to the oldest message that the loop had read \
                 and not acted on, because all that the loop had found was \
                 read and their own connection was not among it (a proxy)",
                self.on_behalf
            ));
        }
        rules
    }
}

/// Some lines for people.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "replay by messages: {} operations of tasks at {} objects; {} threads that do one \
             thing after the other, {} event loops or \
             pools, {} endless tasks",
            self.operations,
            self.objects,
            self.scripts,
            self.executors,
            self.endless.len()
        )?;
        write!(
            f,
            "\nwithout a fact: {} waits that a task ended (a token each), {} that end at their \
             recorded times; {} receives of what no \
             recorded task sent, at their times",
            self.wakeups, self.unexplained, self.arrivals
        )?;
        if !self.missing.is_empty() {
            write!(f, "\n{}", self.missing)?;
        }
        for rule in self.rules() {
            write!(f, "\nrule: {rule}")?;
        }
        Ok(())
    }
}
