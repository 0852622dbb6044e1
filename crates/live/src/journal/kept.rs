//! What of a journal still says something: a driver that runs for days makes entries for each
//! thread that its processes create, and most of those have ended.

use super::Entry;
use schedlab_host::threads::Identity;
use std::collections::{BTreeMap, BTreeSet};

/// Leaves out the entries about threads that ended, and those that say nothing beside the others.
/// What is given back is the same.
pub(super) fn kept(entries: Vec<Entry>) -> Vec<Entry> {
    let mut last = Last::default();
    for (place, entry) in entries.iter().enumerate() {
        match entry {
            Entry::LetGo { thread } => {
                last.let_go.insert(thread.clone(), place);
            }
            Entry::Released { process } => {
                last.released.insert(*process, place);
            }
            Entry::Scheduling { thread, .. } | Entry::Affinity { thread, .. } => {
                last.changed.insert(thread.clone(), place);
            }
            _ => {}
        }
    }
    let mut said = Said { last, ..Said::default() };
    let mut place = 0;
    let mut kept = entries;
    kept.retain(|entry| {
        place += 1;
        said.says_something(place - 1, entry)
    });
    kept
}

/// The places of the last entries that make earlier ones void.
#[derive(Default)]
struct Last {
    let_go: BTreeMap<Identity, usize>,
    /// The last changes of threads.
    changed: BTreeMap<Identity, usize>,
    released: BTreeMap<u32, usize>,
}

#[derive(Default)]
struct Said {
    last: Last,
    there: BTreeMap<Identity, bool>,
    /// Threads whose timer slack is kept.
    slacks: BTreeSet<Identity>,
    /// Entries that are kept, without what was before: of several about one thing the first one
    /// counts.
    all: BTreeSet<String>,
}

impl Said {
    fn says_something(&mut self, place: usize, entry: &Entry) -> bool {
        match entry {
            Entry::LetGo { thread } => {
                // A later change makes it void, and is void itself when its process was given back.
                let later = self.last.changed.get(thread).copied().filter(|at| *at > place);
                self.is_last(place, thread)
                    && self.is_there(thread)
                    && later.is_none_or(|at| self.counts(at, thread))
            }
            Entry::Released { process } => self.last.released.get(process) == Some(&place),
            Entry::Scheduling { thread, set, timer_slack, .. } => {
                if !self.counts(place, thread) {
                    return false;
                }
                // Its slack outlives that it was let go.
                let slack = timer_slack.is_some() && self.slacks.insert(thread.clone());
                let is_new = self.after(place, thread) && self.is_new(&("policy", thread, set));
                slack || is_new
            }
            Entry::Affinity { thread, set, one_of, .. } => {
                self.counts(place, thread)
                    && self.after(place, thread)
                    && self.is_new(&("affinity", thread, set, one_of))
            }
            Entry::Process { thread, .. } => self.counts(place, thread) && self.is_new(entry),
            Entry::Stopped { thread } => {
                self.counts(place, thread) && self.is_new(&("stopped", thread))
            }
            Entry::File { path, set, .. } => self.is_new(&("file", path, set)),
            Entry::Made { .. } | Entry::Command { .. } => self.is_new(entry),
        }
    }

    /// Whether a thread is there, as far as can be seen, and was not given back later.
    fn counts(&mut self, place: usize, thread: &Identity) -> bool {
        let later = self.last.released.get(&thread.process).is_some_and(|at| *at > place);
        !later && self.is_there(thread)
    }

    fn is_there(&mut self, thread: &Identity) -> bool {
        *self.there.entry(thread.clone()).or_insert_with(|| thread.exists().unwrap_or(true))
    }

    /// Whether the thread was not let go later.
    fn after(&self, place: usize, thread: &Identity) -> bool {
        self.last.let_go.get(thread).is_none_or(|at| *at < place)
    }

    fn is_last(&self, place: usize, thread: &Identity) -> bool {
        self.last.let_go.get(thread) == Some(&place)
    }

    fn is_new(&mut self, what: &impl serde::Serialize) -> bool {
        // What cannot be written is kept.
        serde_json::to_string(what).map_or(true, |text| self.all.insert(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Journal, Record, Setting};
    use crate::{RunDir, restore};
    use schedlab_host::threads::{self, Scheduling};
    use schedlab_model::{CpuSet, Nice, Ns, Policy};

    fn scheduling(nice: i8) -> Scheduling {
        let nice = Nice::new(nice).expect("valid");
        Scheduling { policy: Policy::Other, nice, slice: None, reset_on_fork: false, ext: false }
    }

    fn policy(thread: &Identity, nice: i8, slack: u64) -> Entry {
        let set = Setting::To(scheduling(nice));
        let timer_slack = (slack > 0).then_some(Ns(slack));
        Entry::Scheduling { thread: thread.clone(), before: scheduling(0), set, timer_slack }
    }

    fn affinity(thread: &Identity, cpu: u32) -> Entry {
        let set = CpuSet::single(schedlab_model::CpuId(cpu));
        Entry::Affinity {
            thread: thread.clone(),
            before: CpuSet::ALL,
            set,
            one_of: false,
            follows: true,
        }
    }

    fn entry(thread: &Identity, kind: u8, value: u8) -> Entry {
        let thread = thread.clone();
        match kind {
            0 => policy(&thread, value as i8, 0),
            1 => policy(&thread, value as i8, 7),
            2 => affinity(&thread, u32::from(value)),
            3 => Entry::LetGo { thread },
            4 => Entry::Released { process: thread.process },
            5 => Entry::Stopped { thread },
            6 => Entry::Process {
                thread,
                before: scheduling(0),
                affinity: CpuSet::ALL,
                set: Setting::To(scheduling(value as i8)),
                confined: None,
                one_of: false,
                timer_slack: None,
                follows: false,
            },
            _ => Entry::File {
                path: format!("/{value}").into(),
                before: "1".into(),
                set: "2".into(),
            },
        }
    }

    proptest::proptest! {
        /// What is given back of threads that are there is the same, whatever was said.
        #[test]
        fn the_same_is_given_back(said in proptest::collection::vec((0_usize..2, 0_u8..8, 0_u8..3), 0..40)) {
            let own = threads::identity(std::process::id()).expect("this process");
            let parent = threads::identity(own.parent).expect("its parent");
            let all: Vec<Entry> =
                said.iter().map(|(who, kind, value)| entry([&own, &parent][*who], *kind, *value)).collect();
            let less = kept(all.clone());
            let again = kept(less.clone());
            proptest::prop_assert_eq!(restore::meaning(&all), restore::meaning(&less));
            proptest::prop_assert_eq!(less, again);
        }
    }

    const LEAST: u64 = 1 << 13;

    /// A driver that creates threads for days has a journal of those that live.
    #[test]
    fn a_journal_does_not_grow_with_threads_that_ended() {
        let folder = schedlab_files::TempDir::with_prefix("schedlab-anew-").expect("a folder");
        let run_dir = RunDir::at(folder.path()).expect("a run folder");
        let mut journal = Journal::create(&run_dir, "a test").expect("a journal");
        (journal.least, journal.anew_at) = (LEAST, LEAST);
        let own = threads::identity(std::process::id()).expect("this process");
        let living = [policy(&own, 5, 7), affinity(&own, 0)];
        living.iter().for_each(|entry| journal.note(entry).expect("room"));
        let mut longest = 0;
        for started in 0..400 {
            // Nothing of that start time ever was.
            let thread = Identity { started: 1 << 60 | started, ..own.clone() };
            journal.note(&policy(&thread, 5, 0)).expect("room");
            longest = longest.max(journal.length);
        }
        assert!(longest < LEAST + 1_000, "{longest} bytes");
        let of_file = Record::read(journal.path()).expect("readable").expect("a head");
        let (_, text) = journal.memory().read_from(0).expect("readable");
        let of_memory = Record::parse(journal.path(), &text).expect("readable").expect("a head");
        assert_eq!(of_file.entries, of_memory.entries);
        assert_eq!(of_file.entries[..2], living, "what is there stays");
        assert_eq!(
            std::fs::read_dir(folder.path()).expect("a folder").count(),
            1,
            "nothing lies beside it"
        );
    }

    /// Killed between its two steps, a journal says what it said.
    #[test]
    fn a_head_that_comes_again_is_no_damage() {
        let own = threads::identity(std::process::id()).expect("this process");
        let head = format!(
            "{{\"version\":4,\"boot\":\"b\",\"owner\":{},\"purpose\":\"x\"}}",
            serde_json::to_string(&own).expect("JSON")
        );
        let line = serde_json::to_string(&policy(&own, 5, 0)).expect("JSON");
        let text = format!("{head}\n{line}\n{head}\n{line}\n");
        let record = Record::parse(std::path::Path::new("1-2-0.journal"), &text)
            .expect("readable")
            .expect("a head");
        assert_eq!((record.entries.len(), record.faults.len()), (2, 0));
    }
}
