//! Which task works for which: what programs send each other, how much lies between them, and what
//! one request went through, from process to process. All of it from recorded facts, as `schedlab
//! show --messages` has them.

use super::SCHEMA;
use super::overview::{Look, Opened};
use crate::StudyError;
use schedlab_model::{Ns, TaskId};
use schedlab_trace::analysis::follow::{Followed, Listener, Span};
use schedlab_trace::analysis::messages::{End, Messages, Pair, Request, Unseen};
use schedlab_trace::analysis::{Analysis, By, Label, Scope};
use schedlab_trace::{Header, Recording};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Edges at most: a person reads no more of them.
const EDGES: usize = 40;
/// Requests that a request consists of at most, and how deep they are looked for.
const FRAMES: usize = 64;
const DEPTH: usize = 8;
/// States of a frame at most.
const STATES: usize = 400;

/// Which task works for which.
#[derive(Clone, PartialEq, Debug, Default, JsonSchema, Serialize)]
pub struct FlowOutput {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// Why nothing is known; missing: it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Programs that send or receive, the server first, then those with most messages.
    pub nodes: Vec<FlowNode>,
    /// What goes from one to another, most messages first.
    pub edges: Vec<FlowEdge>,
    /// Edges that are left out: those with fewest messages.
    pub more_edges: usize,
    /// One request of the server each: of the slowest and the median one.
    pub requests: Vec<FlowRequest>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// A program.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct FlowNode {
    /// Its name; empty: another machine, or a task that was not recorded.
    pub name: String,
    /// Whether it is the server.
    pub serves: bool,
    /// Requests that it answered.
    pub answered: u64,
    /// Messages that it sent and received.
    pub messages: u64,
}

/// What goes from one program to another.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct FlowEdge {
    /// Place of the sender in `nodes`.
    pub from: usize,
    /// Place of the receiver.
    pub to: usize,
    /// What it goes over: a port, a path, the kind of object.
    pub over: String,
    /// Messages; of a futex, wakeups.
    pub messages: u64,
    /// Messages a second.
    pub per_second: f64,
    /// Bytes.
    pub bytes: u64,
    /// Most bytes that lay in one of the objects; missing: they have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_queue_bytes: Option<u64>,
    /// Median time until a message was received; missing: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_p50_ns: Option<u64>,
    /// 99th percentile of the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_p99_ns: Option<u64>,
}

/// One request, from process to process.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct FlowRequest {
    /// `slowest` or `median`.
    pub which: &'static str,
    /// Of so many requests to this server.
    pub of: u64,
    /// What it came over.
    pub over: String,
    /// When its first bytes arrived, since the start of the recording.
    pub from_ns: u64,
    /// When the first bytes of the answer went back.
    pub to_ns: u64,
    /// The tasks that worked for it: the client, the server, the tasks that the server asked.
    pub frames: Vec<FlowFrame>,
    /// Requests inside that are left out.
    pub more_frames: usize,
}

/// One task while it worked for a request.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct FlowFrame {
    /// How deep: 0 is the client, 1 the server, 2 what the server asked.
    pub depth: usize,
    /// Name and number.
    pub task: String,
    /// Its program.
    pub program: String,
    /// What the request came over; empty for the client.
    pub over: String,
    /// Beginning, since the start of the recording.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// What the task did meanwhile: state, beginning and end, in order.
    pub states: Vec<(&'static str, u64, u64)>,
    /// How long it waited for a CPU meanwhile.
    pub waited_ns: u64,
}

impl Opened {
    /// Returns which task works for which; without facts the reason why that is not known.
    ///
    /// # Errors
    /// A part or a server that is not there.
    pub fn flow(&self, look: &Look) -> Result<FlowOutput, StudyError> {
        let (scope, _) = self.scope(look)?;
        let recording = &self.recording;
        if let Err(error) = Messages::check(&recording.header) {
            let missing = Some(error.to_string());
            return Ok(FlowOutput { schema: SCHEMA, missing, ..FlowOutput::default() });
        }
        let found = Messages::from_recording(recording, &scope, By::Name);
        let mut flow = graph(recording, &scope, &found);
        flow.requests = requests(recording, &scope, &found);
        flow.notes = Unseen::of(recording, &scope).sentences(&recording.header);
        Ok(flow)
    }
}

fn label(header: &Header, label: &Label) -> String {
    match label {
        Label::Name(name) => name.clone(),
        Label::Task(task) => header.tasks[task.index()].comm.clone(),
    }
}

/// Returns nodes and edges.
fn graph(recording: &Recording, scope: &Scope, found: &Messages) -> FlowOutput {
    let header = &recording.header;
    let mut pairs: Vec<_> = found.pairs.iter().collect();
    pairs.sort_by_key(|(key, pair)| (std::cmp::Reverse(pair.messages), (*key).clone()));
    let more_edges = pairs.len().saturating_sub(EDGES);
    pairs.truncate(EDGES);
    let mut messages: BTreeMap<End, u64> = BTreeMap::new();
    for ((from, to, _), pair) in &pairs {
        for end in BTreeSet::from([*from, *to]) {
            *messages.entry(end).or_default() += pair.messages;
        }
    }
    let leads = found.keys.leads(scope);
    let serves = |end: End| end.is_some_and(|line| leads[line]);
    let mut answered: BTreeMap<usize, u64> = BTreeMap::new();
    for request in found.requests() {
        *answered.entry(found.keys.line(request.by)).or_default() += 1;
    }
    let mut ends: Vec<End> = messages.keys().copied().collect();
    ends.sort_by_key(|end| (!serves(*end), std::cmp::Reverse(messages[end]), *end));
    let node = |end: &End| FlowNode {
        name: end.map_or_else(String::new, |line| label(header, &found.keys.labels[line])),
        serves: serves(*end),
        answered: end.and_then(|line| answered.get(&line).copied()).unwrap_or(0),
        messages: messages[end],
    };
    let place = |end: &End| ends.iter().position(|other| other == end).unwrap_or(0);
    let seconds = (scope.length(recording).0 as f64 / 1e9).max(1e-9);
    let edge = |((from, to, over), pair): (&(End, End, String), &Pair)| {
        let queued = Some(&pair.queued).filter(|queued| queued.count() > 0);
        FlowEdge {
            from: place(from),
            to: place(to),
            over: over.clone(),
            messages: pair.messages,
            per_second: pair.messages as f64 / seconds,
            bytes: pair.bytes,
            longest_queue_bytes: Some(pair.longest_queue).filter(|_| pair.bytes > 0),
            queued_p50_ns: queued.map(|queued| queued.p50().0),
            queued_p99_ns: queued.map(|queued| queued.p99().0),
        }
    };
    FlowOutput {
        schema: SCHEMA,
        nodes: ends.iter().map(node).collect(),
        edges: pairs.into_iter().map(edge).collect(),
        more_edges,
        ..FlowOutput::default()
    }
}

/// Requests with what they are found by.
struct Requests<'a> {
    all: Vec<Request<'a>>,
    /// By the task that answered, and by the task that asked: places in `all`, by arrival.
    by_server: BTreeMap<TaskId, Vec<usize>>,
    by_client: BTreeMap<TaskId, Vec<usize>>,
}

/// Requests of one task that are looked through for the one around another: a task has few open at
/// a time.
const AROUND: usize = 64;

impl<'a> Requests<'a> {
    fn new(mut all: Vec<Request<'a>>) -> Requests<'a> {
        all.sort_by_key(|request| (request.arrived, request.answered, request.by));
        let (mut by_server, mut by_client) = (BTreeMap::new(), BTreeMap::new());
        for (place, request) in all.iter().enumerate() {
            by_server.entry(request.by).or_insert_with(Vec::new).push(place);
            if let Some(client) = request.client {
                by_client.entry(client).or_insert_with(Vec::new).push(place);
            }
        }
        Requests { all, by_server, by_client }
    }

    /// Whether the client asked while it worked for another request.
    fn is_inner(&self, request: &Request<'_>) -> bool {
        let own = request.client.and_then(|client| self.by_server.get(&client));
        let own = own.map_or(&[][..], |own| own);
        let begun = own.partition_point(|&place| self.all[place].arrived <= request.arrived);
        let ends_later = |&place: &usize| self.all[place].answered >= request.answered;
        own[..begun].iter().rev().take(AROUND).any(ends_later)
    }

    /// Returns the requests that the answering task made meanwhile.
    fn inside(&self, outer: &Request<'_>) -> Vec<usize> {
        let asked = self.by_client.get(&outer.by).map_or(&[][..], |asked| asked);
        let begin = asked.partition_point(|&place| self.all[place].arrived < outer.arrived);
        let inner = asked[begin..].iter().copied();
        inner
            .take_while(|&place| self.all[place].arrived <= outer.answered)
            .filter(|&place| self.all[place].answered <= outer.answered)
            .collect()
    }

    /// Returns the requests to one server that no other request is around, by their length: those
    /// of the server that was asked about, else of the program and port with most of them.
    fn of_server(&self, scope: &Scope, header: &Header) -> Vec<usize> {
        let outer = |place: &usize| !self.is_inner(&self.all[*place]);
        let outer: Vec<usize> = (0..self.all.len()).filter(outer).collect();
        let leads = |place: &&usize| scope.leads(self.all[**place].by);
        let of_server: Vec<usize> = outer.iter().filter(leads).copied().collect();
        let outer = if of_server.is_empty() { outer } else { of_server };
        let mut groups: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        for place in outer {
            let request = &self.all[place];
            let comm = header.tasks[request.by.index()].comm.as_str();
            groups.entry((comm, request.over)).or_default().push(place);
        }
        let mut most = groups.into_values().max_by_key(Vec::len).unwrap_or_default();
        most.sort_by_key(|&place| (length(&self.all[place]), place));
        most
    }
}

fn length(request: &Request<'_>) -> Ns {
    request.answered.saturating_sub(request.arrived)
}

/// Returns the slowest request of the server, and the median one.
fn requests(recording: &Recording, scope: &Scope, found: &Messages) -> Vec<FlowRequest> {
    let header = &recording.header;
    let all = Requests::new(found.requests().collect());
    let ranked = all.of_server(scope, header);
    let Some(&slowest) = ranked.last() else { return Vec::new() };
    let picked = [("slowest", slowest), ("median", ranked[ranked.len() / 2])];
    let frames = picked.map(|(_, place)| frames(&all, header, &all.all[place]));
    let wanted = frames.iter().flat_map(|(frames, _)| frames).map(|(task, frame)| Wanted {
        task: *task,
        from: Ns(frame.from_ns),
        to: Ns(frame.to_ns),
        states: Vec::new(),
        waited: Ns::ZERO,
    });
    let listener = States { wanted: wanted.collect() };
    // What a task did then does not depend on the part that is looked at.
    let whole = Scope { to: scope.to, ..Scope::default() };
    let mut states = Followed::over(recording, &whole, listener).wanted.into_iter();
    let with_states = |(frame, wanted): ((TaskId, FlowFrame), Wanted)| FlowFrame {
        states: wanted.states,
        waited_ns: wanted.waited.0,
        ..frame.1
    };
    picked
        .into_iter()
        .zip(frames)
        .map(|((which, place), (frames, more_frames))| {
            let request = &all.all[place];
            FlowRequest {
                which,
                of: ranked.len() as u64,
                over: request.over.to_owned(),
                from_ns: request.arrived.0,
                to_ns: request.answered.0,
                frames: frames.into_iter().zip(states.by_ref()).map(with_states).collect(),
                more_frames,
            }
        })
        .collect()
}

/// Returns the tasks that worked for a request, the outermost first, and how many are left out.
fn frames(
    all: &Requests<'_>,
    header: &Header,
    outermost: &Request<'_>,
) -> (Vec<(TaskId, FlowFrame)>, usize) {
    let frame = |task: TaskId, depth: usize, over: &str, request: &Request<'_>| {
        let info = &header.tasks[task.index()];
        let frame = FlowFrame {
            depth,
            task: format!("{}-{}", info.comm, info.tid),
            program: info.comm.clone(),
            over: over.to_owned(),
            from_ns: request.arrived.0,
            to_ns: request.answered.0,
            states: Vec::new(),
            waited_ns: 0,
        };
        (task, frame)
    };
    let mut frames: Vec<_> =
        outermost.client.map(|client| frame(client, 0, "", outermost)).into_iter().collect();
    let (mut open, mut more) = (vec![(1, *outermost)], 0);
    while let Some((depth, request)) = open.pop() {
        if frames.len() >= FRAMES || depth > DEPTH {
            more += 1;
            continue;
        }
        frames.push(frame(request.by, depth, request.over, &request));
        // The earliest is looked at first.
        open.extend(
            all.inside(&request).into_iter().rev().map(|place| (depth + 1, all.all[place])),
        );
    }
    (frames, more)
}

/// What a task did in a part of time.
struct Wanted {
    task: TaskId,
    from: Ns,
    to: Ns,
    states: Vec<(&'static str, u64, u64)>,
    waited: Ns,
}

struct States {
    wanted: Vec<Wanted>,
}

impl Listener for States {
    fn span(&mut self, span: &Span) {
        for wanted in self.wanted.iter_mut().filter(|wanted| wanted.task == span.task) {
            let (from, to) = (span.from.max(wanted.from), span.to.min(wanted.to));
            if from >= to {
                continue;
            }
            if span.state.waits() {
                wanted.waited += to - from;
            }
            if wanted.states.len() < STATES {
                wanted.states.push((span.state.words(), from.0, to.0));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(arrived: u64, answered: u64, client: Option<u32>, by: u32) -> Request<'static> {
        let client = client.map(TaskId);
        Request { arrived: Ns(arrived), answered: Ns(answered), by: TaskId(by), client, over: ":1" }
    }

    /// A front end (1) is asked by clients (0), and asks a store (2), twice for the slow one.
    #[test]
    fn a_request_is_followed_through_those_that_were_asked_meanwhile() {
        let all = Requests::new(vec![
            request(10, 20, Some(0), 1),
            request(12, 14, Some(1), 2),
            request(30, 90, Some(0), 1),
            request(40, 50, Some(1), 2),
            request(60, 80, Some(1), 2),
            request(100, 120, None, 1),
        ]);
        let header = Header {
            tasks: ["client", "front", "store"]
                .map(|comm| schedlab_trace::TaskInfo::unknown(1, 1, comm))
                .to_vec(),
            ..Header::default()
        };
        // The store answers as often, but for another request each time.
        let ranked = all.of_server(&Scope::default(), &header);
        let lengths: Vec<u64> = ranked.iter().map(|&place| length(&all.all[place]).0).collect();
        assert_eq!(lengths, [10, 20, 60]);
        let slowest = &all.all[ranked[2]];
        let (found, more) = frames(&all, &header, slowest);
        let shown: Vec<(usize, &str, u64)> = found
            .iter()
            .map(|(_, frame)| (frame.depth, frame.program.as_str(), frame.from_ns))
            .collect();
        let wanted = [(0, "client", 30), (1, "front", 30), (2, "store", 40), (2, "store", 60)];
        assert_eq!((shown, more), (wanted.to_vec(), 0));
        // A client elsewhere has no frame.
        let (found, _) = frames(&all, &header, &all.all[ranked[1]]);
        assert_eq!(found.len(), 1);
    }
}
