//! Tiers 3 and 4: perf context-switch records. No tracefs, and for one's own children no privilege
//! at all. They tell who ran where and whether it was preempted; not when a task was woken, nor by
//! which.

use super::raw::{RawEvent, RawKind, Record, Records, u32_at, u64_at};
use super::tracepoints::comm_from;
use crate::sys::perf::{Target, What};
use crate::sys::{Event, Ring};
use perf_event_open_sys::bindings as abi;
use schedlab_model::PrevState;
use std::collections::VecDeque;

/// The ring of one CPU.
pub(crate) struct SwitchRecorder {
    ring: Ring,
    /// Other threads' events that write into it.
    more: Vec<Event>,
    /// Own tasks only: no other task is seen, and who ran in between is unknown.
    own_only: bool,
    last_at: u64,
    bytes: Vec<u8>,
}

impl SwitchRecorder {
    pub(crate) fn open(target: Target, ring_bytes: usize) -> std::io::Result<SwitchRecorder> {
        let ring = Ring::map(Event::open(What::ContextSwitches, target)?, ring_bytes)?;
        let own_only = matches!(target, Target::Tree { .. });
        Ok(SwitchRecorder { ring, more: Vec::new(), own_only, last_at: 0, bytes: Vec::new() })
    }

    /// Another thread (and the children that it creates later) on the same CPU.
    pub(crate) fn add(&mut self, thread: u32, cpu: u32) -> std::io::Result<()> {
        let target = Target::Tree { pid: thread as i32, cpu: cpu as i32 };
        let event = Event::open(What::ContextSwitches, target)?;
        event.write_into(&self.ring)?;
        self.more.push(event);
        Ok(())
    }
}

impl super::CpuSource for SwitchRecorder {
    fn enable(&mut self) -> std::io::Result<()> {
        self.ring.event.enable()?;
        self.more.iter().try_for_each(Event::enable)
    }

    fn disable(&mut self) -> std::io::Result<()> {
        self.ring.event.disable()?;
        self.more.iter().try_for_each(Event::disable)
    }

    fn drain(&mut self, out: &mut VecDeque<RawEvent>) {
        self.bytes.clear();
        self.ring.drain(&mut self.bytes);
        let mut records = Records::new(&self.bytes);
        for record in &mut records {
            if let Some(event) = decode(record, self.own_only) {
                // An inherited event's copy of one task may trail another's by some nanoseconds.
                self.last_at = self.last_at.max(event.at);
                out.push_back(RawEvent { at: self.last_at, ..event });
            }
        }
        if records.broken() {
            out.push_back(RawEvent { at: self.last_at, kind: RawKind::Lost { count: 1 } });
        }
    }

    fn ring_bytes(&self) -> usize {
        self.ring.size()
    }
}

/// The trailer that `sample_id_all` puts behind every record here: pid, tid, time, id.
const TRAILER: usize = 24;

fn decode(record: Record<'_>, own_only: bool) -> Option<RawEvent> {
    let trailer = record.body.get(record.body.len().checked_sub(TRAILER)?..)?;
    let (tid, at) = (u32_at(trailer, 4)?, u64_at(trailer, 8)?);
    let out = u32::from(record.misc) & abi::PERF_RECORD_MISC_SWITCH_OUT != 0;
    let preempted = u32::from(record.misc) & abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0;
    let state = if preempted { PrevState::Runnable } else { PrevState::Blocked };
    let kind = match record.kind {
        // Each switch gives an OUT of the old and an IN of the new task; the OUT knows everything.
        abi::PERF_RECORD_SWITCH_CPU_WIDE if out => {
            let next = u32_at(record.body, 4)?;
            let none = [0; 16];
            let state = if tid == 0 { PrevState::Runnable } else { state };
            let (prev, prev_state) = (tid, state);
            RawKind::Switch {
                prev,
                prev_comm: none,
                prev_state,
                next,
                next_comm: none,
                next_prio: UNKNOWN_PRIO,
            }
        }
        abi::PERF_RECORD_SWITCH if out && own_only => RawKind::Out { tid, state },
        abi::PERF_RECORD_SWITCH if own_only => RawKind::In { tid },
        abi::PERF_RECORD_COMM => {
            let comm = comm_from(record.body.get(8..record.body.len() - TRAILER)?);
            RawKind::Comm { tid: u32_at(record.body, 4)?, comm }
        }
        abi::PERF_RECORD_FORK => {
            let (child, parent) = (u32_at(record.body, 8)?, u32_at(record.body, 12)?);
            RawKind::New { tid: child, parent, comm: [0; 16] }
        }
        abi::PERF_RECORD_EXIT => RawKind::Exit { tid: u32_at(record.body, 8)? },
        abi::PERF_RECORD_LOST => RawKind::Lost { count: u64_at(record.body, 8)? },
        _ => return None,
    };
    Some(RawEvent { at, kind })
}

/// Context-switch records carry no priority.
pub(crate) const UNKNOWN_PRIO: i32 = i32::MIN;

#[cfg(test)]
mod tests {
    use super::*;

    fn body(front: &[u32], tid: u32, at: u64) -> Vec<u8> {
        let mut body: Vec<u8> = front.iter().flat_map(|n| n.to_ne_bytes()).collect();
        body.extend([tid, tid].iter().flat_map(|n| n.to_ne_bytes()));
        body.extend(at.to_ne_bytes());
        body.extend(5u64.to_ne_bytes());
        body
    }

    #[test]
    fn an_out_record_is_the_whole_switch() {
        let body = body(&[20, 20], 10, 99);
        let misc =
            (abi::PERF_RECORD_MISC_SWITCH_OUT | abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT) as u16;
        let record = Record { kind: abi::PERF_RECORD_SWITCH_CPU_WIDE, misc, body: &body };
        let event = decode(record, false).unwrap();
        assert_eq!(event.at, 99);
        let RawKind::Switch { prev: 10, next: 20, prev_state, .. } = event.kind else {
            panic!("{event:?}")
        };
        assert_eq!(prev_state, PrevState::Runnable);
        let record = Record { misc: 0, ..record };
        assert_eq!(decode(record, false), None, "the IN record repeats it");
    }

    #[test]
    fn short_records_are_ignored() {
        for length in 0..TRAILER {
            let body = vec![0; length];
            let record = Record { kind: abi::PERF_RECORD_EXIT, misc: 0, body: &body };
            assert_eq!(decode(record, false), None);
        }
    }
}
