//! Finds an agent that beats and does not do its work: a thread that it put into a real-time class,
//! or into sched_ext's, is runnable, and gets no CPU. The agent itself gives such a thread back
//! much earlier; that it did not shows that it is not to be trusted.

use crate::journal::{Entry, Setting};
use crate::memory::Memory;
use schedlab_host::threads::{self, Identity};
use schedlab_model::Ns;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// How often the threads are looked at, unless the limit is shorter.
const LOOK: Duration = Duration::from_millis(500);
/// How many threads are looked at in that time; of more, each has its turn.
const THREADS: usize = 64;
/// What is known of the threads that a journal names.
pub(super) struct Starving<'a> {
    journal: &'a Memory,
    /// How much of it was read.
    read: u64,
    limit: Duration,
    looked: Instant,
    threads: BTreeMap<u32, Waiter>,
    /// Those that are still to be looked at in this turn.
    round: VecDeque<u32>,
    /// The last thread that was looked at.
    last: u32,
}

struct Waiter {
    thread: Identity,
    /// What the thread may have while it is managed.
    set: Setting,
    wait: Wait,
}

/// For how long a thread has been runnable without running.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Wait {
    ran: Ns,
    since: Option<Instant>,
}

impl Wait {
    /// Notes one look: whether the thread is runnable in the band, and its CPU time so far. Returns
    /// for how long it has waited.
    fn seen(&mut self, now: Instant, runnable: bool, ran: Ns) -> Duration {
        self.since = (runnable && ran == self.ran).then(|| self.since.unwrap_or(now));
        self.ran = ran;
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

impl Starving<'_> {
    pub(super) fn for_journal(journal: &Memory, limit: Duration) -> Starving<'_> {
        let looked = Instant::now();
        Starving {
            journal,
            read: 0,
            limit,
            looked,
            threads: BTreeMap::new(),
            round: VecDeque::new(),
            last: 0,
        }
    }

    /// Looks at one thread when it is time to; returns a sentence about one that has waited longer
    /// than the limit. One at each heartbeat: the guardian goes before an agent that shares its
    /// CPU, as sched_ext's does, and a look reads two files. (In a guest whose CPUs are emulated 33
    /// threads at once took that agent's CPU for 40 to 60 ms, and two with five files each for 12.)
    pub(super) fn look(&mut self) -> Option<String> {
        if self.round.is_empty() {
            if self.looked.elapsed() < LOOK.min(self.limit / 4) {
                return None;
            }
            self.looked = Instant::now();
            self.read_on();
            let after = self.threads.range(self.last + 1..).map(|(tid, _)| *tid);
            let turn = after.chain(self.threads.range(..=self.last).map(|(tid, _)| *tid));
            self.round = turn.take(THREADS).collect();
        }
        let tid = self.round.pop_front()?;
        self.last = tid;
        let waiter = self.threads.get_mut(&tid)?;
        let (Some(runnable), Some(served)) = (waiter.thread.runnable(), threads::served(tid))
        else {
            self.threads.remove(&tid);
            return None;
        };
        let runnable = runnable && holds(tid, waiter.set);
        if waiter.wait.seen(Instant::now(), runnable, served.run) <= self.limit {
            return None;
        }
        let (name, ms) = (&waiter.thread.comm, self.limit.as_millis());
        Some(format!("thread {tid} ({name}) was runnable and got no CPU for more than {ms} ms"))
    }

    /// Reads what was written since the last look. A line that is not whole yet is read the next
    /// time.
    fn read_on(&mut self) {
        let Ok((at, text)) = self.journal.read_from(self.read) else { return };
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        self.read = at + whole.len() as u64;
        // The first line is the journal's head.
        for entry in whole.lines().filter_map(|line| serde_json::from_str::<Entry>(line).ok()) {
            match entry {
                Entry::Scheduling {
                    thread,
                    set: set @ (Setting::FifoBand(..) | Setting::Ext),
                    ..
                } => {
                    // Entries come again when the journal is written anew.
                    let known = self.threads.get(&thread.tid).filter(|one| one.thread == thread);
                    let wait = known.map_or_else(Wait::default, |one| one.wait);
                    self.threads.insert(thread.tid, Waiter { thread, set, wait });
                }
                Entry::LetGo { thread } => self.threads.retain(|_, one| one.thread != thread),
                Entry::Released { process } => {
                    self.threads.retain(|_, one| one.thread.process != process)
                }
                _ => {}
            }
        }
    }
}

/// Returns whether a thread is held by what a driver set: in its band, not in the fair class of a
/// yield window.
fn holds(tid: u32, set: Setting) -> bool {
    match set {
        Setting::FifoBand(low, high) => threads::fifo_priority(tid)
            .ok()
            .flatten()
            .is_some_and(|now| (low..=high).contains(&now)),
        Setting::Ext => threads::scheduling(tid).is_ok_and(|now| now.ext),
        Setting::To(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The guardian goes before an agent on its CPU: it must not look at many threads at once.
    #[test]
    fn one_thread_is_looked_at_at_once_and_all_in_turn() {
        let memory = Memory::create().expect("memory");
        let mut starving = Starving::for_journal(&memory, Duration::from_secs(600));
        let thread = threads::identity(std::process::id()).expect("this process");
        for tid in 1..=5 {
            let waiter =
                Waiter { thread: thread.clone(), set: Setting::Ext, wait: Wait::default() };
            starving.threads.insert(tid, waiter);
        }
        starving.looked = Instant::now().checked_sub(LOOK).expect("the machine runs for longer");
        let mut left = Vec::new();
        for _ in 0..5 {
            assert_eq!(starving.look(), None);
            left.push(starving.round.len());
        }
        assert_eq!((left, starving.last), (vec![4, 3, 2, 1, 0], 5));
    }

    #[test]
    fn only_a_runnable_thread_that_does_not_run_waits() {
        let mut wait = Wait::default();
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let ms = Duration::from_millis;
        // It ran since the last look, whenever that was.
        assert_eq!(wait.seen(at(0), true, Ns(7)), ms(0));
        assert_eq!(wait.seen(at(500), true, Ns(7)), ms(0));
        assert_eq!(wait.seen(at(1_000), true, Ns(7)), ms(500));
        assert_eq!(wait.seen(at(1_500), true, Ns(8)), ms(0));
        assert_eq!(wait.seen(at(2_000), true, Ns(8)), ms(0));
        // It sleeps, or is not in the band.
        assert_eq!(wait.seen(at(2_500), false, Ns(8)), ms(0));
        assert_eq!(wait.seen(at(9_000), true, Ns(8)), ms(0));
        assert_eq!(wait.seen(at(9_100), true, Ns(8)), ms(100));
    }
}
