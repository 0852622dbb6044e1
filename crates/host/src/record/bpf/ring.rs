//! The ring of one CPU for events, in memory that the BPF programs share with user space.

use super::decode::{Decoder, RECORD, SEQUENCE};
use super::messages::FactRing;
use super::{CONTROL, Loaded};
use crate::record::CpuSource;
use crate::record::messages::RawFact;
use crate::record::raw::RawEvent;
use crate::sys::Shared;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the parts of `struct control` stand.
pub(super) const HEAD: usize = 0;
pub(super) const LOST: usize = 8;
pub(super) const TAIL: usize = 64;

/// Reads the ring of one CPU.
pub(super) struct Reader {
    rings: Rc<Shared>,
    controls: Rc<Shared>,
    cpu: usize,
    slots: usize,
    tail: u64,
    lost: u64,
    /// How far the head was at the look before.
    seen: u64,
    stopped: bool,
    decoder: Decoder,
}

impl Reader {
    pub(super) fn new(
        (rings, controls): (&Rc<Shared>, &Rc<Shared>),
        (cpu, slots): (usize, usize),
    ) -> Reader {
        Reader {
            rings: Rc::clone(rings),
            controls: Rc::clone(controls),
            cpu,
            slots,
            tail: 0,
            lost: 0,
            seen: 0,
            stopped: false,
            decoder: Decoder::default(),
        }
    }

    fn control(&self, part: usize) -> &AtomicU64 {
        self.controls.long(self.cpu * CONTROL + part)
    }

    fn records(&mut self, mut each: impl FnMut([u64; 4])) -> u64 {
        let head = self.control(HEAD).load(Ordering::Acquire);
        // x86 shows the stores of another CPU in their order. Elsewhere a record counts when the
        // look before saw the head beyond it: a poll's time is enough for any store to arrive.
        let end = if cfg!(target_arch = "x86_64") || self.stopped { head } else { self.seen };
        self.seen = head;
        while self.tail != end {
            let slot = self.tail as usize & (self.slots - 1);
            let offset = (self.cpu * self.slots + slot) * RECORD;
            if self.rings.word(offset + SEQUENCE).load(Ordering::Acquire)
                != (self.tail as u32).wrapping_add(1)
            {
                break;
            }
            each(self.rings.four(offset));
            self.tail += 1;
        }
        self.control(TAIL).store(self.tail, Ordering::Release);
        let lost = self.control(LOST).load(Ordering::Relaxed);
        lost - std::mem::replace(&mut self.lost, lost)
    }

    /// Appends what is there.
    pub(super) fn events(&mut self, out: &mut VecDeque<RawEvent>) {
        let mut decoder = std::mem::take(&mut self.decoder);
        let lost = self.records(|words| {
            for event in decoder.before(words) {
                event.into_iter().for_each(|event| out.push_back(event));
            }
            out.extend(decoder.record(words));
        });
        if lost > 0 {
            out.push_back(decoder.lost(lost));
        }
        self.decoder = decoder;
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots * RECORD
    }
}

/// The ring of one CPU.
pub(crate) struct BpfRing {
    loaded: Rc<RefCell<Loaded>>,
    reader: Reader,
    facts: Option<FactRing>,
}

impl BpfRing {
    pub(super) fn new(
        loaded: &Rc<RefCell<Loaded>>,
        memory: (&Rc<Shared>, &Rc<Shared>),
        place: (usize, usize),
        facts: Option<FactRing>,
    ) -> BpfRing {
        BpfRing { loaded: Rc::clone(loaded), reader: Reader::new(memory, place), facts }
    }

    pub(super) fn facts(&self) -> Option<&FactRing> {
        self.facts.as_ref()
    }

    pub(super) fn loaded(&self) -> &RefCell<Loaded> {
        &self.loaded
    }

    pub(crate) fn cpu(&self) -> usize {
        self.reader.cpu
    }

    /// Calls `each` with every record that is there, in order. Returns how many were lost since the
    /// last call.
    pub(crate) fn drain_records(&mut self, each: impl FnMut([u64; 4])) -> u64 {
        self.reader.records(each)
    }
}

impl CpuSource for BpfRing {
    fn enable(&mut self) -> std::io::Result<()> {
        self.reader.stopped = false;
        self.loaded.borrow_mut().attach()
    }

    fn disable(&mut self) -> std::io::Result<()> {
        self.loaded.borrow_mut().detach();
        self.reader.stopped = true;
        Ok(())
    }

    fn drain(&mut self, out: &mut VecDeque<RawEvent>) {
        self.reader.events(out);
    }

    fn enable_facts(&mut self) -> std::io::Result<()> {
        self.loaded.borrow_mut().attach_facts()
    }

    fn drain_facts(&mut self, out: &mut VecDeque<RawFact>) {
        let Some(facts) = &mut self.facts else { return };
        facts.drain(self.reader.cpu, self.reader.stopped, out);
        // Known when the programs are detached, and not by CPU: the first ring has all.
        let left_out = std::mem::take(&mut self.loaded.borrow_mut().left_out);
        if left_out > 0 {
            out.push_back(RawFact::lost(facts.last_at, left_out));
        }
    }

    fn ring_bytes(&self) -> usize {
        self.reader.bytes()
    }

    /// A tracepoint whose last program went gets another one only after a grace period
    /// (`tracepoint_add_func`).
    fn begins_once(&self) -> bool {
        true
    }
}
