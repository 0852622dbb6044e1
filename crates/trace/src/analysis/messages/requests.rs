//! Requests and answers on connections: from the arrival of the first bytes to the first bytes that
//! go back.

use crate::analysis::follow::{Followed, Listener, Span};
use crate::analysis::{Durations, Keys, Scope};
use crate::{Facts, Recording};
use schedlab_model::{FactKind, Ns, ObjectId, ObjectInfo, ObjectKind, TaskId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Ports from which on a system takes those of its clients (ip_local_port_range,
/// Documentation/networking/ip-sysctl.rst, Linux 6.18: 32768 to 60999).
const EPHEMERAL: u16 = 32_768;

/// A request that was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answered {
    arrived: Ns,
    answered: Ns,
    /// The task that answered.
    by: TaskId,
    /// The direction in which the request came.
    object: ObjectId,
    /// The task that asked; `None`: it is not in the recording, and the request arrived at the
    /// latest then.
    client: Option<TaskId>,
}

/// A request that has no answer yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    arrived: Ns,
    client: Option<TaskId>,
    read: bool,
}

/// A request that was answered, as others read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// When its first bytes arrived; of a client that is not in the recording when the server read
    /// them.
    pub arrived: Ns,
    /// When the first bytes of the answer went back.
    pub answered: Ns,
    /// The task that answered.
    pub by: TaskId,
    /// The task that asked; `None`: it is not in the recording.
    pub client: Option<TaskId>,
    /// The server's port or path.
    pub over: &'a str,
}

/// What happens on the connections of servers.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    /// The direction in which requests come; and by the other direction, that one.
    inward: BTreeSet<ObjectId>,
    outward: HashMap<ObjectId, ObjectId>,
    open: HashMap<ObjectId, Open>,
    answered: Vec<Answered>,
    names: HashMap<ObjectId, String>,
}

/// What the tasks of one line answered over one port or path.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) line: usize,
    pub(super) over: String,
    pub(super) connections: u64,
    pub(super) latency: Durations,
    /// For how long of all latencies together the answering task waited for a CPU.
    pub(super) waiting: Ns,
    /// The latencies of the slowest hundredth together, and the same of them.
    pub(super) slowest: Ns,
    pub(super) slowest_waiting: Ns,
    /// Requests whose client was not recorded.
    pub(super) unseen_clients: u64,
}

/// Returns what the server's end of a connection is called; `None`: the object is no connection of
/// a server.
pub(super) fn service(facts: &Facts, object: &ObjectInfo) -> Option<String> {
    let peer = object.peer.map(|peer| facts.object(peer));
    match object.kind {
        ObjectKind::Tcp => {
            let port = |address: &str| address.rsplit_once(':')?.1.parse::<u16>().ok();
            let (from, to) = (port(&object.from)?, port(&object.to)?);
            Some(format!("TCP :{}", from.min(to)))
        }
        ObjectKind::Unix => {
            let paths = [&object.to, &object.from].into_iter().chain(peer.map(|peer| &peer.to));
            paths.filter(|path| !path.is_empty()).map(|path| format!("Unix {path}")).next()
        }
        _ => None,
    }
}

/// Whether requests come in this direction: to the end that has a path, or the lower port of one
/// that no client is given.
fn is_inward(object: &ObjectInfo) -> bool {
    match object.kind {
        ObjectKind::Tcp => {
            let port = |address: &str| {
                address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok())
            };
            matches!((port(&object.from), port(&object.to)), (Some(from), Some(to)) if to < from && to < EPHEMERAL)
        }
        ObjectKind::Unix => !object.to.is_empty(),
        _ => false,
    }
}

impl Requests {
    /// For these objects: a connection's server is the task that accepted it, and on older ones the
    /// end with the known port or path.
    pub(super) fn new(facts: &Facts) -> Requests {
        let mut requests = Requests::default();
        let accepted = facts.list.iter().filter_map(|fact| match fact.kind {
            FactKind::Accept { object, .. } => Some(object),
            _ => None,
        });
        for object in accepted {
            requests.inward.insert(object);
        }
        for (id, object) in facts.objects.iter().enumerate() {
            let (id, Some(peer)) = (ObjectId::from(id), object.peer) else { continue };
            if is_inward(object) && !requests.inward.contains(&peer) {
                requests.inward.insert(id);
            }
        }
        for id in &requests.inward {
            let object = facts.object(*id);
            if let Some(peer) = object.peer {
                requests.outward.insert(peer, *id);
            }
            let name = service(facts, object).unwrap_or_else(|| object.kind.word().to_owned());
            requests.names.insert(*id, name);
        }
        requests
    }

    /// Bytes went into `object`; `late`: they were received before this was told.
    pub(super) fn sent(&mut self, at: Ns, task: TaskId, object: ObjectId, late: bool) {
        if self.inward.contains(&object) {
            if !late {
                self.open.entry(object).or_insert(Open {
                    arrived: at,
                    client: Some(task),
                    read: false,
                });
            }
            return;
        }
        let Some(&inward) = self.outward.get(&object) else { return };
        if let Some(open) = self.open.get(&inward).copied().filter(|open| open.read) {
            self.open.remove(&inward);
            let Open { arrived, client, .. } = open;
            self.answered.push(Answered {
                arrived,
                answered: at.max(arrived),
                by: task,
                object: inward,
                client,
            });
        }
    }

    /// Bytes were taken out of `object`.
    pub(super) fn received(&mut self, at: Ns, object: ObjectId) {
        if self.inward.contains(&object) {
            self.open
                .entry(object)
                .or_insert(Open { arrived: at, client: None, read: false })
                .read = true;
        }
    }

    /// Takes what was answered so far: over which port or path, when, after how long.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (&str, Ns, Ns)> {
        let names = &self.names;
        self.answered.drain(..).map(|answered| {
            let name = names.get(&answered.object).map_or("", String::as_str);
            (name, answered.answered, answered.answered.saturating_sub(answered.arrived))
        })
    }

    /// Returns the requests that were answered, in the order of their answers.
    pub(super) fn all(&self) -> impl Iterator<Item = Request<'_>> {
        self.answered.iter().map(|one| Request {
            arrived: one.arrived,
            answered: one.answered,
            by: one.by,
            client: one.client,
            over: self.names.get(&one.object).map_or("", String::as_str),
        })
    }

    /// Returns how many requests each task answered.
    pub(super) fn by_task(&self) -> BTreeMap<TaskId, u64> {
        let mut counts = BTreeMap::new();
        self.answered.iter().for_each(|answered| *counts.entry(answered.by).or_default() += 1);
        counts
    }

    /// Returns the requests that were answered in the scope, by the line that answered and what
    /// they came over.
    pub(super) fn served(&self, recording: &Recording, scope: &Scope, keys: &Keys) -> Vec<Served> {
        let counts = |answered: &&Answered| scope.at(answered.answered) && scope.task(answered.by);
        let answered: Vec<&Answered> = self.answered.iter().filter(counts).collect();
        let servers: BTreeSet<TaskId> = answered.iter().map(|answered| answered.by).collect();
        let waits = Waits::from_recording(recording, scope, &servers);
        let mut rows: BTreeMap<(usize, &str), Vec<(&Answered, Ns)>> = BTreeMap::new();
        for answered in answered {
            let waited = waits.between(answered.by, answered.arrived, answered.answered);
            let name = self.names.get(&answered.object).map_or("", String::as_str);
            rows.entry((keys.line(answered.by), name)).or_default().push((answered, waited));
        }
        let mut served: Vec<Served> =
            rows.into_iter().map(|((line, over), list)| row(line, over, list)).collect();
        served.sort_by_key(|row| std::cmp::Reverse(row.latency.count()));
        keys.server_first(scope, &mut served, |row| row.line);
        served
    }
}

fn row(line: usize, over: &str, mut list: Vec<(&Answered, Ns)>) -> Served {
    let length = |answered: &Answered| answered.answered.saturating_sub(answered.arrived);
    list.sort_by_key(|(answered, _)| std::cmp::Reverse(length(answered)));
    let mut row = Served {
        line,
        over: over.to_owned(),
        connections: list.iter().map(|(answered, _)| answered.object).collect::<BTreeSet<_>>().len()
            as u64,
        latency: Durations::default(),
        waiting: Ns::ZERO,
        slowest: Ns::ZERO,
        slowest_waiting: Ns::ZERO,
        unseen_clients: list.iter().filter(|(answered, _)| answered.client.is_none()).count()
            as u64,
    };
    let hundredth = list.len().div_ceil(100);
    for (place, (answered, waited)) in list.into_iter().enumerate() {
        row.latency.add(length(answered));
        row.waiting += waited;
        if place < hundredth {
            row.slowest += length(answered);
            row.slowest_waiting += waited;
        }
    }
    row
}

/// When some tasks waited for a CPU.
#[derive(Debug, Default)]
struct Waits {
    /// By task: the waits in order, each with what was waited before it.
    tasks: BTreeMap<TaskId, Vec<(Ns, Ns, Ns)>>,
}

impl Waits {
    fn from_recording(recording: &Recording, scope: &Scope, tasks: &BTreeSet<TaskId>) -> Waits {
        let waits = Waits { tasks: tasks.iter().map(|task| (*task, Vec::new())).collect() };
        if waits.tasks.is_empty() { waits } else { Followed::over(recording, scope, waits) }
    }

    /// For how long of `from .. to` the task waited for a CPU.
    fn between(&self, task: TaskId, from: Ns, to: Ns) -> Ns {
        self.until(task, to).saturating_sub(self.until(task, from))
    }

    fn until(&self, task: TaskId, at: Ns) -> Ns {
        let Some(waits) = self.tasks.get(&task) else { return Ns::ZERO };
        let after = waits.partition_point(|(from, ..)| *from < at);
        match after.checked_sub(1).and_then(|last| waits.get(last)) {
            Some((from, to, before)) => before.saturating_add(at.min(*to).saturating_sub(*from)),
            None => Ns::ZERO,
        }
    }
}

impl Listener for Waits {
    fn span(&mut self, span: &Span) {
        if !span.state.waits() {
            return;
        }
        if let Some(waits) = self.tasks.get_mut(&span.task) {
            let before = waits.last().map_or(Ns::ZERO, |(from, to, before)| {
                before.saturating_add(to.saturating_sub(*from))
            });
            waits.push((span.from, span.to, before));
        }
    }
}
