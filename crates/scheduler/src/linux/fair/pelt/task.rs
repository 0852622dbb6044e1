//! The same signal in the room that a task has for it: 24 bytes, so that it is beside its partners
//! in one cache line.

use schedlab_model::Ns;

use super::{EPOCH_GAIN, EPOCH_SHIFT, Inputs, Moment, Pelt};

/// A task's signal: what [`Signal`] is for a queue, in less room. A task is one runnable task or
/// none, so no sum is larger than twice [`EPOCH_GAIN`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(in crate::linux) struct TaskSignal {
    /// Up to here the sums are right: number of the epoch (it may begin again after 4.5 years) and
    /// [`gain_until`] the time.
    epoch: u32,
    gained: u32,
    load: u32,
    runnable: u32,
    util: u32,
    /// It is on a queue.
    on: bool,
    running: bool,
}

const _: () =
    assert!(size_of::<TaskSignal>() == 24, "a task's signal and its partners share a cache line");
const _: () = assert!(2 * EPOCH_GAIN <= u32::MAX as u64, "a sum has room");

impl TaskSignal {
    /// Of a new task at `now`: full load, and the given use (0 … [`SCALE`]).
    pub(in crate::linux) fn start(now: Ns, util: u64) -> TaskSignal {
        let mut pelt = Pelt::zero(now);
        pelt.start_task(now, util);
        let mut signal =
            TaskSignal { epoch: (now.0 >> EPOCH_SHIFT) as u32, ..TaskSignal::default() };
        signal.keep(&pelt);
        signal
    }
    #[inline]
    fn keep(&mut self, pelt: &Pelt) {
        self.gained = pelt.gained as u32;
        (self.load, self.runnable, self.util) =
            (pelt.load as u32, pelt.runnable as u32, pelt.util as u32);
    }
    /// Until `now` it was on and ran as before; from now on like this. Without a change nothing is
    /// computed.
    #[inline(always)]
    pub(in crate::linux) fn set(&mut self, now: Moment, on: bool, running: bool) {
        // Which of both is different cannot be foreseen: one branch.
        if (running ^ self.running) | (on ^ self.on) {
            self.advance(now);
            (self.on, self.running) = (on, running);
        }
    }
    #[inline(always)]
    fn advance(&mut self, now: Moment) {
        let (epoch, gained) = ((now.now.0 >> EPOCH_SHIFT) as u32, now.gained as u32);
        if epoch != self.epoch {
            if (epoch.wrapping_sub(self.epoch) as i32) < 0 {
                return;
            }
            self.cross(epoch);
        }
        // The clock of another CPU may be an older one.
        let Some(gain) = gained.checked_sub(self.gained) else { return };
        // Without a branch or a multiplication.
        let gain_if = |is: bool| gain & u32::from(is).wrapping_neg();
        let on = gain_if(self.on);
        self.load += on;
        self.runnable += on;
        self.util += gain_if(self.running);
        self.gained = gained;
    }
    #[cold]
    #[inline(never)]
    fn cross(&mut self, epoch: u32) {
        let mut pelt = self.pelt(Ns::ZERO);
        pelt.end_epochs(u64::from(epoch.wrapping_sub(self.epoch)), self.inputs());
        self.keep(&pelt);
        self.epoch = epoch;
    }
    /// Brings the sums up to `now` and gives them.
    #[inline]
    pub(in crate::linux) fn at(&mut self, now: Moment) -> Pelt {
        self.advance(now);
        self.pelt(now.now)
    }
    /// As it will be at `now`, without changing anything.
    #[inline]
    pub(in crate::linux) fn peek(&self, now: Ns) -> Pelt {
        { *self }.at(Moment::new(now))
    }
    /// The sums as of the last change.
    #[inline]
    pub(in crate::linux) fn last(&self) -> Pelt {
        self.pelt(Ns::ZERO)
    }
    /// The sums, as of `at`.
    #[inline]
    fn pelt(&self, at: Ns) -> Pelt {
        Pelt {
            at_ns: at.0,
            gained: u64::from(self.gained),
            load: u64::from(self.load),
            runnable: u64::from(self.runnable),
            util: u64::from(self.util),
        }
    }
    /// A group's: a task whose sums are `task` came to its queue, whose sums are `queue` with it
    /// (`update_tg_cfs_load`). Both are of the moment up to which this was brought.
    pub(in crate::linux) fn gains(&mut self, task: &Pelt, queue: &Pelt) {
        let sum = (u64::from(self.load) + task.load).max(queue.util);
        self.load = sum.min(queue.largest()) as u32;
    }
    /// A group's: a task left its queue, whose sums are `queue` without it and whose entities weigh
    /// `weight`. What is left counts as runnable as often as one of these on average.
    pub(in crate::linux) fn loses(&mut self, queue: &Pelt, weight: u64) {
        let sum = queue.load.checked_div(weight).unwrap_or(0).min(u64::from(self.load));
        self.load = sum.max(queue.util).min(queue.largest()) as u32;
    }
    fn inputs(&self) -> Inputs {
        let on = u64::from(self.on);
        Inputs { load: on, runnable: on, running: self.running }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SCALE, Signal};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_group_is_runnable_as_often_as_its_tasks() {
        let at = Ns::from_ms(500);
        let now = Moment::new(at);
        let mut group = TaskSignal::default();
        let mut loads = |change: &dyn Fn(&mut TaskSignal)| {
            group.at(now);
            change(&mut group);
            group.at(now).load_avg(1024)
        };
        let queue = |load, util| {
            let mut queue = Pelt::zero(at);
            queue.attach(load, util, util);
            queue
        };
        let hog = TaskSignal::start(at, SCALE).at(now);
        assert_eq!(loads(&|group| group.gains(&hog, &queue(1024, 1024))), 1024);
        assert_eq!(loads(&|group| group.gains(&hog, &queue(2048, 1024))), 1024, "no more than all");
        // What stays weighs 1024 and was runnable for a quarter of the time.
        assert_eq!(loads(&|group| group.loses(&queue(256, 100), 1024)), 256);
        // It is not less than the CPU time that the rest had.
        assert_eq!(loads(&|group| group.loses(&queue(20, 100), 1024)), 100);
        assert_eq!(loads(&|group| group.loses(&queue(0, 0), 0)), 0, "it is empty");
    }

    proptest! {
        /// What a task keeps in 24 bytes is what a queue with this one task keeps in 56, also when
        /// the clock of another CPU is an older one.
        #[test]
        fn a_tasks_signal_is_a_queues_in_less_room(
            from in 0u64..1 << 40, util in 0u64..=SCALE,
            steps in prop::collection::vec((0u64..90_000_000, 0u64..2_000, any::<bool>(), any::<bool>()), 1..60),
        ) {
            let mut whole = Signal::zero(Ns(from));
            whole.at(Ns(from)).start_task(Ns(from), util);
            let mut packed = TaskSignal::start(Ns(from), util);
            let seen = |pelt: Pelt| (pelt.load_avg(1024), pelt.runnable_avg(), pelt.util_avg());
            let mut now = from;
            for (later, back, on, running) in steps {
                now += later;
                let at = Moment::new(Ns(now.saturating_sub(back)));
                let (on, running) = (on, on && running);
                let load = u64::from(on);
                whole.set(at, Inputs { load, runnable: load, running });
                packed.set(at, on, running);
                for ahead in [0, 700_000, 40_000_000, 3_000_000_000] {
                    let then = Ns(now + ahead);
                    prop_assert_eq!(seen(packed.peek(then)), seen(whole.peek(then)));
                }
                prop_assert_eq!(seen(packed.at(at)), seen(*whole.at(at.now)));
            }
        }
    }
}
