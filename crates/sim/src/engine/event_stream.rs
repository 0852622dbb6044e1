//! The event stream of a run: its sink, its hash, its length.

use crate::hash::EventHash;
use schedlab_model::{CpuId, EventKind, EventSink, Fact, FactKind, Ns, SchedEvent};

#[derive(Debug)]
pub(super) struct EventStream<'a, S> {
    sink: &'a mut S,
    pub(super) hash: EventHash,
    pub(super) events: u64,
    /// Facts that were told.
    facts: u64,
    /// Time of the last event.
    pub(super) last: u64,
}

impl<S: EventSink> EventStream<'_, S> {
    pub(super) fn new(sink: &mut S) -> EventStream<'_, S> {
        EventStream { sink, hash: EventHash::default(), events: 0, facts: 0, last: 0 }
    }

    /// Hands an event to the sink. Its kind is known where this is called: inlined, most of the
    /// hash is computed beforehand.
    #[inline(always)]
    pub(super) fn note(&mut self, now: u64, cpu: usize, kind: EventKind) {
        let event = SchedEvent { at: Ns(now), cpu: CpuId(cpu as u32), kind };
        self.hash.add(&event);
        self.events += 1;
        self.last = now;
        self.sink.event(&event);
    }

    /// Hands a fact to the sink. It is no part of the hash: the events that follow from it are.
    pub(super) fn tell(&mut self, now: u64, cpu: usize, t: usize, kind: FactKind) {
        self.facts += 1;
        self.sink.fact(&Fact { at: Ns(now), cpu: CpuId(cpu as u32), task: Some(t.into()), kind });
    }

    /// Returns how many events and facts were told.
    pub(super) fn records(&self) -> u64 {
        self.events + self.facts
    }
}
