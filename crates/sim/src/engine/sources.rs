//! Requests from outside: open loop, recorded, closed loop.

use super::channels::Sender;
use super::slots::NEVER;
use super::state::{Origin, Token};
use super::{Engine, Step};
use schedlab_model::{Draw, EventSink, Ns, SourceKind};
use std::cmp::Reverse;

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    pub(super) fn start_source(&mut self, s: usize) {
        match &self.input.workload.sources[s].kind {
            SourceKind::Open { interarrival, start } => {
                let gap = self.traffic.sources[s].stream.draw(interarrival, 0);
                self.traffic.sources[s].next_send = start.0.saturating_add(gap);
                self.arm_source(s);
            }
            SourceKind::Recorded { .. } => {
                self.next_recorded(s);
                self.arm_source(s);
            }
            SourceKind::Closed { clients, .. } => {
                let first = self.traffic.first_client[s];
                (first..first + *clients as usize).for_each(|client| self.client_sends(client, 0));
            }
        }
    }

    fn next_recorded(&mut self, s: usize) {
        let SourceKind::Recorded { at } = &self.input.workload.sources[s].kind else { return };
        let source = &mut self.traffic.sources[s];
        source.next_send = at.get(source.next_index).map_or(NEVER, |at| at.0);
        source.next_index += 1;
    }

    /// The source's slot fires at its next send, or when a request arrives.
    fn arm_source(&mut self, s: usize) {
        let source = &self.traffic.sources[s];
        let arrival = source.flying.peek().map_or(NEVER, |Reverse((at, ..))| *at);
        let at = source.next_send.min(arrival);
        if at == NEVER {
            self.due.slots.disarm(self.due.layout.source(s));
        } else {
            self.due.slots.arm(self.due.layout.source(s), at.max(self.clock.now));
        }
    }

    pub(super) fn source_fires(&mut self, s: usize) -> Step {
        while let Some(&Reverse((at, _, sent))) = self.traffic.sources[s].flying.peek()
            && at <= self.clock.now
        {
            self.traffic.sources[s].flying.pop();
            self.arrives(s, Origin::Open(s as u32), sent)?;
        }
        if self.traffic.sources[s].next_send <= self.clock.now {
            self.open_send(s)?;
        }
        self.arm_source(s);
        Ok(())
    }

    fn open_send(&mut self, s: usize) -> Step {
        let spec = &self.input.workload.sources[s];
        self.output.metrics.sources[s].sent += 1;
        let source = &mut self.traffic.sources[s];
        let sent = source.next_send;
        source.sends += 1;
        let wire = match spec.kind {
            // The recorded times are arrivals at the machine; the client sent them a wire earlier.
            SourceKind::Recorded { .. } => 0,
            _ => source.stream.draw(&spec.one_way, 1) + self.input.costs.arrival_to_wake_ns.0,
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
        let source = &mut self.traffic.sources[s];
        source.flying.push(Reverse((sent.saturating_add(wire), source.sends, sent)));
        Ok(())
    }

    fn arrives(&mut self, s: usize, origin: Origin, sent: u64) -> Step {
        self.count_step(None)?;
        let token = Token { origin, sent, entered: self.clock.now, count: 1 };
        self.put(self.input.workload.sources[s].into.index(), token, Sender::Outside)?;
        Ok(())
    }

    /// A client sends its next request at `sent`.
    fn client_sends(&mut self, client: usize, sent: u64) {
        let c = &mut self.traffic.clients[client];
        let wire = c.stream.draw(&self.input.workload.sources[c.source as usize].one_way, 1);
        c.sent = sent;
        let at = sent.saturating_add(wire).saturating_add(self.input.costs.arrival_to_wake_ns.0);
        self.due.slots.arm(self.due.layout.client(client), at);
    }

    pub(super) fn client_fires(&mut self, client: usize) -> Step {
        let (s, sent) = (self.traffic.clients[client].source, self.traffic.clients[client].sent);
        if Ns(sent) >= self.output.metrics.from {
            self.output.metrics.sources[s as usize].sent += 1;
        }
        self.arrives(s as usize, Origin::Client(s, client as u32), sent)
    }

    /// The reply to a request that was sent at `sent` leaves the machine now.
    pub(super) fn reply(&mut self, s: usize, client: Option<usize>, sent: u64) {
        let spec = &self.input.workload.sources[s];
        let stream = match client {
            Some(client) => &mut self.traffic.clients[client].stream,
            None => &mut self.traffic.sources[s].stream,
        };
        let one_way = |stream: &mut crate::rng::Stream, draw: &Draw| stream.draw(draw, 1);
        let back = one_way(stream, &spec.one_way);
        let mut response = self.clock.now.saturating_add(back) - sent;
        if let SourceKind::Recorded { .. } = spec.kind {
            response = response.saturating_add(one_way(stream, &spec.one_way));
        }
        let think = match &spec.kind {
            SourceKind::Closed { think, .. } => stream.draw(think, 0),
            _ => 0,
        };
        let metrics = &mut self.output.metrics.sources[s];
        metrics.completed += 1;
        metrics.response.record(Ns(response));
        if let Some(client) = client {
            self.client_sends(client, self.clock.now.saturating_add(back).saturating_add(think));
        }
    }
}
