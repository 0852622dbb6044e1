//! Requests from outside: open loop, recorded, closed loop.

use super::channels::Sender;
use super::slots::NEVER;
use super::state::{Origin, Token};
use super::{Engine, Step};
use schedlab_model::{Draw, EventSink, Ns, SourceKind};
use std::cmp::Reverse;

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    pub(super) fn start_source(&mut self, s: usize) {
        match &self.workload.sources[s].kind {
            SourceKind::Open { interarrival, start } => {
                let gap = self.sources[s].stream.draw(interarrival, 0);
                self.sources[s].next_send = start.0.saturating_add(gap);
                self.arm_source(s);
            }
            SourceKind::Recorded { .. } => {
                self.next_recorded(s);
                self.arm_source(s);
            }
            SourceKind::Closed { clients, .. } => {
                let first = self.first_client[s];
                (first..first + *clients as usize).for_each(|client| self.client_sends(client, 0));
            }
        }
    }

    fn next_recorded(&mut self, s: usize) {
        let SourceKind::Recorded { at } = &self.workload.sources[s].kind else { return };
        let source = &mut self.sources[s];
        source.next_send = at.get(source.next_index).map_or(NEVER, |at| at.0);
        source.next_index += 1;
    }

    /// The source's slot fires at its next send, or when a request arrives.
    fn arm_source(&mut self, s: usize) {
        let source = &self.sources[s];
        let arrival = source.flying.peek().map_or(NEVER, |Reverse((at, ..))| *at);
        let at = source.next_send.min(arrival);
        if at == NEVER {
            self.slots.disarm(self.layout.source(s));
        } else {
            self.slots.arm(self.layout.source(s), at.max(self.now));
        }
    }

    pub(super) fn source_fires(&mut self, s: usize) -> Step {
        while let Some(&Reverse((at, _, sent))) = self.sources[s].flying.peek()
            && at <= self.now
        {
            self.sources[s].flying.pop();
            self.arrives(s, Origin::Open(s as u32), sent)?;
        }
        if self.sources[s].next_send <= self.now {
            self.open_send(s)?;
        }
        self.arm_source(s);
        Ok(())
    }

    fn open_send(&mut self, s: usize) -> Step {
        let spec = &self.workload.sources[s];
        self.metrics.sources[s].sent += 1;
        let source = &mut self.sources[s];
        let sent = source.next_send;
        source.sends += 1;
        let wire = match spec.kind {
            // The recorded times are arrivals at the machine; the client sent them a wire earlier.
            SourceKind::Recorded { .. } => 0,
            _ => source.stream.draw(&spec.one_way, 1) + self.costs.arrival_to_wake_ns.0,
        };
        match &spec.kind {
            SourceKind::Open { interarrival, .. } => {
                source.next_send = sent.saturating_add(source.stream.draw(interarrival, 0));
            }
            _ => self.next_recorded(s),
        }
        if wire == 0 {
            return self.arrives(s, Origin::Open(s as u32), sent);
        }
        let source = &mut self.sources[s];
        source.flying.push(Reverse((sent.saturating_add(wire), source.sends, sent)));
        Ok(())
    }

    fn arrives(&mut self, s: usize, origin: Origin, sent: u64) -> Step {
        self.count_step(None)?;
        let token = Token { origin, sent, entered: self.now, count: 1 };
        self.put(self.workload.sources[s].into.index(), token, Sender::Outside)?;
        Ok(())
    }

    /// A client sends its next request at `sent`.
    fn client_sends(&mut self, client: usize, sent: u64) {
        let c = &mut self.clients[client];
        let wire = c.stream.draw(&self.workload.sources[c.source as usize].one_way, 1);
        c.sent = sent;
        let at = sent.saturating_add(wire).saturating_add(self.costs.arrival_to_wake_ns.0);
        self.slots.arm(self.layout.client(client), at);
    }

    pub(super) fn client_fires(&mut self, client: usize) -> Step {
        let (s, sent) = (self.clients[client].source, self.clients[client].sent);
        if Ns(sent) >= self.metrics.from {
            self.metrics.sources[s as usize].sent += 1;
        }
        self.arrives(s as usize, Origin::Client(s, client as u32), sent)
    }

    /// The reply to a request that was sent at `sent` leaves the machine now.
    pub(super) fn reply(&mut self, s: usize, client: Option<usize>, sent: u64) {
        let spec = &self.workload.sources[s];
        let stream = match client {
            Some(client) => &mut self.clients[client].stream,
            None => &mut self.sources[s].stream,
        };
        let one_way = |stream: &mut crate::rng::Stream, draw: &Draw| stream.draw(draw, 1);
        let back = one_way(stream, &spec.one_way);
        let mut response = self.now.saturating_add(back) - sent;
        if let SourceKind::Recorded { .. } = spec.kind {
            response = response.saturating_add(one_way(stream, &spec.one_way));
        }
        let think = match &spec.kind {
            SourceKind::Closed { think, .. } => stream.draw(think, 0),
            _ => 0,
        };
        let metrics = &mut self.metrics.sources[s];
        metrics.completed += 1;
        metrics.response.record(Ns(response));
        if let Some(client) = client {
            self.client_sends(client, self.now.saturating_add(back).saturating_add(think));
        }
    }
}
