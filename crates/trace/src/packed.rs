//! Events in little memory: what a flight recorder keeps.

use crate::TraceError;
use crate::format;
use schedlab_model::{EventKind, Ns, SchedEvent};

/// Some events, compressed as in a block of a file: about 4 bytes each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packed {
    stored: Vec<u8>,
    raw: usize,
    first: Ns,
    last: Ns,
    /// Events that were lost between them.
    lost: u64,
}

impl Packed {
    /// Packs `events`; `None` when there are none.
    ///
    /// # Errors
    /// The compressor has no memory.
    pub fn pack(events: &[SchedEvent]) -> Result<Option<Packed>, TraceError> {
        Packed::with_level(events, 1)
    }

    /// As [`Packed::pack`] with a zstd level from 1 (fast) to 19 (small).
    ///
    /// # Errors
    /// The compressor has no memory.
    pub fn with_level(events: &[SchedEvent], level: i32) -> Result<Option<Packed>, TraceError> {
        let times = || events.iter().map(|event| event.at);
        let (Some(first), Some(last)) = (times().min(), times().max()) else { return Ok(None) };
        let raw = format::encode_events(events, first.0);
        let mut stored = zstd::bulk::compress(&raw, level)
            .map_err(|source| TraceError::Io { doing: "pack", source })?;
        stored.shrink_to_fit();
        let lost = events.iter().fold(0u64, |lost, event| match event.kind {
            EventKind::Lost { count } => lost.saturating_add(count),
            _ => lost,
        });
        Ok(Some(Packed { stored, raw: raw.len(), first, last, lost }))
    }

    /// Appends the events to `out`, as they were.
    ///
    /// # Errors
    /// The memory was damaged.
    pub fn unpack(&self, out: &mut Vec<SchedEvent>) -> Result<(), TraceError> {
        let raw = zstd::bulk::decompress(&self.stored, self.raw)
            .map_err(|source| TraceError::Io { doing: "unpack", source })?;
        format::decode_events(&raw, self.first.0, out)
            .map_err(|what| TraceError::Header { what })?;
        Ok(())
    }

    /// The compressed events, and their length before.
    pub(crate) fn stored(&self) -> (&[u8], usize) {
        (&self.stored, self.raw)
    }

    /// Events that were lost between them.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// How many events.
    pub fn events(&self) -> usize {
        self.raw / format::RECORD
    }

    /// Time of the earliest event.
    pub fn first(&self) -> Ns {
        self.first
    }

    /// Time of the latest event.
    pub fn last(&self) -> Ns {
        self.last
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.stored.capacity() + size_of::<Packed>()
    }
}

/// The event with each of its tasks replaced by `task` (a recording that leaves tasks out numbers
/// them anew).
#[inline]
pub fn renumber(
    event: &SchedEvent,
    mut task: impl FnMut(schedlab_model::TaskId) -> schedlab_model::TaskId,
) -> SchedEvent {
    let mut event = *event;
    format::each_task(&mut event.kind, &mut |id| *id = task(*id));
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, PrevState, TaskId, Waker};

    #[test]
    fn packs_and_renumbers() {
        let kinds = [
            EventKind::Switch {
                prev: Some(TaskId(1)),
                prev_state: PrevState::Sleeping,
                next: None,
            },
            EventKind::Wake { task: TaskId(1), waker: Waker::InlineSoftirq(TaskId(2)) },
            EventKind::New { task: TaskId(3), parent: Some(TaskId(1)) },
            EventKind::Exit { task: TaskId(3) },
        ];
        let events: Vec<_> = (0..4000u64)
            .map(|i| SchedEvent { at: Ns(7 + i * 10), cpu: CpuId(0), kind: kinds[i as usize % 4] })
            .collect();
        let packed = Packed::pack(&events).unwrap().unwrap();
        assert_eq!(
            (packed.first(), packed.last(), packed.events()),
            (Ns(7), events[3999].at, 4000)
        );
        assert!(packed.bytes() < 4000 * 4, "{}", packed.bytes());
        let mut back = Vec::new();
        packed.unpack(&mut back).unwrap();
        assert_eq!(back, events);
        assert_eq!(Packed::pack(&[]).unwrap(), None);
        let moved = |i: usize| renumber(&events[i], |id| TaskId(id.0 + 10)).kind;
        assert_eq!(
            moved(1),
            EventKind::Wake { task: TaskId(11), waker: Waker::InlineSoftirq(TaskId(12)) }
        );
        assert_eq!(moved(2), EventKind::New { task: TaskId(13), parent: Some(TaskId(11)) });
        assert_eq!(
            moved(0),
            EventKind::Switch {
                prev: Some(TaskId(11)),
                prev_state: PrevState::Sleeping,
                next: None
            }
        );
    }
}
