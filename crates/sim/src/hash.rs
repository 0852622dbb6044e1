//! A stable 64-bit hash over all events of a run, independent of the sink.

use schedlab_model::{CpuId, EventKind, PrevState, SchedEvent, TaskId, Waker};

/// Multiply and fold, one step per event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventHash(u64);

impl Default for EventHash {
    fn default() -> EventHash {
        EventHash(0x6c62_272e_07bb_0142)
    }
}

#[inline(always)]
fn task(task: Option<TaskId>) -> u64 {
    task.map_or(0, |t| u64::from(t.0) + 1)
}

#[inline(always)]
fn state(state: PrevState) -> u64 {
    match state {
        PrevState::Runnable => 0,
        PrevState::RunnableInKernel => 1,
        PrevState::Sleeping => 2,
        PrevState::DiskSleep => 3,
        PrevState::Stopped => 4,
        PrevState::Dead => 5,
        PrevState::Blocked => 6,
        PrevState::Unknown => 7,
    }
}

#[inline(always)]
fn waker(waker: Waker) -> (u64, u64) {
    match waker {
        Waker::Task(t) => (0, task(Some(t))),
        Waker::InlineSoftirq(t) => (1, task(Some(t))),
        Waker::SoftIrq => (2, 0),
        Waker::HardIrq => (3, 0),
        Waker::Unknown => (4, 0),
    }
}

#[inline(always)]
fn cpu(cpu: CpuId) -> u64 {
    u64::from(cpu.0)
}

impl EventHash {
    /// Takes one event in. The encoding of every kind is fixed; a new kind gets a new number. Where
    /// it is called the kind is known: inlined it is a third of what it is as a call, also in a
    /// build without link-time optimisation.
    #[inline(always)]
    pub(crate) fn add(&mut self, event: &SchedEvent) {
        let (tag, a, b) = match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                (state(prev_state), task(prev), task(next))
            }
            EventKind::Wake { task: wakee, waker: by } => {
                let (kind, id) = waker(by);
                (16 + kind, task(Some(wakee)), id)
            }
            EventKind::New { task: new, parent } => (32, task(Some(new)), task(parent)),
            EventKind::Exec { task: t } => (33, task(Some(t)), 0),
            EventKind::Exit { task: t } => (34, task(Some(t)), 0),
            EventKind::Migrate { task: t, from, to } => {
                (35, task(Some(t)), cpu(from) << 32 | cpu(to))
            }
            EventKind::Throttle { task: t } => (36, task(Some(t)), 0),
            EventKind::Unthrottle { task: t } => (37, task(Some(t)), 0),
            EventKind::Steal { ns } => (38, ns.0, 0),
            EventKind::Regroup { task: t, group } => (39, task(Some(t)), u64::from(group.0)),
            EventKind::Lost { count } => (40, count, 0),
            _ => (63, 0, 0),
        };
        let what = tag << 48 ^ cpu(event.cpu) << 54 ^ a.rotate_left(24) ^ b;
        let wide = u128::from(self.0 ^ event.at.0 ^ 0x9ddf_ea08_eb38_2d69)
            * u128::from(what ^ self.0.rotate_left(32) ^ 0xc3a5_c85c_97cb_3127);
        self.0 = (wide >> 64) as u64 ^ wide as u64 ^ what;
    }

    /// The hash so far.
    pub(crate) fn finish(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::Ns;

    fn hash(events: &[SchedEvent]) -> u64 {
        let mut hash = EventHash::default();
        events.iter().for_each(|event| hash.add(event));
        hash.finish()
    }

    #[test]
    fn every_field_counts() {
        let switch = |at, cpu, prev, next| SchedEvent {
            at: Ns(at),
            cpu: CpuId(cpu),
            kind: EventKind::Switch { prev, prev_state: PrevState::Runnable, next },
        };
        let (a, b) = (Some(TaskId(0)), Some(TaskId(1)));
        let variants = [
            switch(1, 0, a, b),
            switch(2, 0, a, b),
            switch(1, 1, a, b),
            switch(1, 0, b, a),
            switch(1, 0, None, a),
            switch(1, 0, a, None),
        ];
        let mut hashes: Vec<u64> = variants.iter().map(|event| hash(&[*event])).collect();
        hashes.push(hash(&variants[..2]));
        hashes.push(hash(&[variants[1], variants[0]]));
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 8);
    }
}
