//! The latencies of requests, from a recording or while a simulation tells its facts.

use super::requests::Requests;
use super::stream::Stream;
use crate::{Facts, Recording};
use schedlab_model::{Fact, FactKind, Ns, ObjectId};
use std::collections::{BTreeMap, HashMap};

/// How long requests took from their arrival to the first bytes of the answer, by the server's port
/// or path.
#[derive(Clone, Debug, Default)]
pub struct RequestTimes {
    requests: Requests,
    /// Earlier answers do not count.
    from: Ns,
    /// By object, where sends are told after what was received of them.
    streams: Option<HashMap<ObjectId, Stream>>,
    /// By port or path.
    pub services: BTreeMap<String, Vec<Ns>>,
}

impl RequestTimes {
    /// Begins with nothing, for the facts of a simulation at these objects. Answers before `from`
    /// do not count.
    pub fn simulated(facts: &Facts, from: Ns) -> RequestTimes {
        RequestTimes { requests: Requests::new(facts), from, ..RequestTimes::default() }
    }

    /// Returns the requests of a recording.
    pub fn recorded(recording: &Recording) -> RequestTimes {
        let mut times = RequestTimes::simulated(&recording.facts, Ns::ZERO);
        times.streams = Some(HashMap::new());
        recording.facts.list.iter().for_each(|fact| times.fact(fact));
        times.streams = None;
        times
    }

    /// One fact more.
    pub fn fact(&mut self, fact: &Fact) {
        let Some(task) = fact.task else { return };
        match fact.kind {
            FactKind::Send(moved) if moved.bytes > 0 => {
                let late = self.streams.as_mut().is_some_and(|streams| {
                    let stream = streams.entry(moved.object).or_default();
                    stream.send(fact.at, 0, &moved);
                    stream.is_late(&moved)
                });
                self.requests.sent(fact.at, task, moved.object, late);
                self.answered();
            }
            FactKind::Receive(moved) if moved.bytes > 0 && !moved.peek => {
                if let Some(streams) = &mut self.streams {
                    streams.entry(moved.object).or_default().receive(fact.at, 0, &moved);
                }
                self.requests.received(fact.at, moved.object);
            }
            _ => {}
        }
    }

    /// Notes what was answered since.
    fn answered(&mut self) {
        for (name, answered, latency) in self.requests.take() {
            if answered < self.from {
                continue;
            }
            match self.services.get_mut(name) {
                Some(all) => all.push(latency),
                None => {
                    self.services.insert(name.to_owned(), vec![latency]);
                }
            }
        }
    }
}
