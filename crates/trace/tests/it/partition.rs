//! What must add up, on random streams: states to lifetimes, blame to waits, parts of a wait to the
//! wait.

use crate::common::{CPUS, TASKS, any_events as events, header};
use proptest::prelude::*;
use schedlab_model::{CpuId, EventKind, Ns, SchedEvent, TaskId};
use schedlab_trace::analysis::blame::{Blame, Culprit, Share};
use schedlab_trace::analysis::follow::{Began, Followed, ThreadState};
use schedlab_trace::analysis::latency::Latency;
use schedlab_trace::analysis::show::{ALL, Cell, Output, Table};
use schedlab_trace::analysis::states::States;
use schedlab_trace::analysis::worst::{Case, Worst};
use schedlab_trace::analysis::{Answer, By, Label, Scope};
use schedlab_trace::{Recording, TraceError};
use std::collections::BTreeMap;

fn recording(events: Vec<SchedEvent>) -> Result<Recording, TraceError> {
    let mut header = header(CPUS, TASKS);
    header.tasks.iter_mut().for_each(|task| task.known = true);
    let end = events.last().map_or(0, |event| event.at.0) + 10;
    Recording::from_parts(header, events, Ns(end))
}

/// Throws rows away, but looks at them.
struct Nothing(usize);

impl Output for Nothing {
    fn table(&mut self, table: &Table) -> std::io::Result<()> {
        self.0 = table.columns.len();
        Ok(())
    }
    fn row(&mut self, cells: &[Cell<'_>]) -> std::io::Result<()> {
        assert_eq!(cells.len(), self.0, "a cell for each column");
        Ok(())
    }
    fn note(&mut self, _: &str) -> std::io::Result<()> {
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: schedlab_testing::cases(512), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_adds_up(events in events(), from in 0..3_000u64, length in 1..3_000u64) {
        let file = recording(events).unwrap();
        let window = Scope { from: Ns(from), to: Ns(from + length), ..Scope::default() };
        for scope in [Scope::default(), window] {
            let states = Followed::over(&file, &scope, States::new(&file.header, &scope, By::Thread));
            let blame = Followed::over(&file, &scope, Blame::new(&file.header, &scope, By::Thread));
            for task in 0..TASKS {
                let time = |state| states.time(task, state);
                let waited = time(ThreadState::Runnable) + time(ThreadState::Preempted) + time(ThreadState::Throttled);
                prop_assert_eq!(blame.waited(task), waited);
                prop_assert!(states.lifetime(task) <= scope.length(&file));
            }
            // Of all CPUs together no task runs longer than there is time.
            let run: Ns = (0..TASKS).map(|task| states.time(task, ThreadState::Running)).sum();
            prop_assert!(run.0 <= scope.length(&file).0 * CPUS as u64);
        }
    }

    /// Waits of lines with several tasks are laid together: as the waits of each task are.
    #[test]
    fn blame_by_name_is_the_sum_of_blame_by_thread(
        events in events(), names in proptest::collection::vec(0..2usize, TASKS),
        from in 0..3_000u64, length in 1..3_000u64,
    ) {
        let mut file = recording(events).unwrap();
        for (task, name) in file.header.tasks.iter_mut().zip(&names) {
            task.comm = format!("n{name}");
        }
        let window = Scope { from: Ns(from), to: Ns(from + length), ..Scope::default() };
        for scope in [Scope::default(), window] {
            let blame = |by| Followed::over(&file, &scope, Blame::new(&file.header, &scope, by));
            let (by_name, by_thread) = (blame(By::Name), blame(By::Thread));
            let line = |task: usize| by_name.keys.line(TaskId::from(task));
            let mut sums = vec![BTreeMap::<Culprit, Share>::new(); by_name.keys.len()];
            for (task, row) in by_thread.rows.iter().enumerate() {
                for (culprit, share) in row {
                    let culprit = match culprit {
                        Culprit::Line(task) => Culprit::Line(line(*task)),
                        other => *other,
                    };
                    let sum = sums[line(task)].entry(culprit).or_default();
                    (sum.time, sum.times) = (sum.time + share.time, sum.times + share.times);
                }
            }
            let sums: Vec<Vec<_>> = sums.into_iter().map(|row| row.into_iter().collect()).collect();
            prop_assert_eq!(&by_name.rows, &sums);
        }
    }

    /// The answer is about a line of the tables, with their numbers.
    #[test]
    fn an_answer_is_what_the_tables_say(
        events in events(), names in proptest::collection::vec(0..3, TASKS),
        first in proptest::option::of(proptest::collection::vec(any::<bool>(), TASKS)),
        from in 0..3_000u64, length in 1..3_000u64,
    ) {
        let mut file = recording(events).unwrap();
        for (task, name) in file.header.tasks.iter_mut().zip(names) {
            task.comm = format!("n{name}");
        }
        let window = Scope { from: Ns(from), to: Ns(from + length), ..Scope::default() };
        for scope in [Scope::default(), window] {
            let scope = Scope { first: first.clone(), ..scope };
            let blame = Followed::over(&file, &scope, Blame::new(&file.header, &scope, By::Name));
            let worst = Followed::over(&file, &scope, Worst::new(&file.header, &scope, usize::MAX));
            let Some(answer) = Answer::from_recording(&file, &scope) else {
                prop_assert!((0..blame.keys.len()).all(|line| blame.waited(line) == Ns::ZERO));
                continue;
            };
            let line = blame.keys.labels.iter().position(|label| match label {
                Label::Name(name) => *name == answer.waiting,
                Label::Task(_) => false,
            });
            let line = line.expect("a line of the table");
            prop_assert_eq!(answer.waited, blame.waited(line));
            let most = blame.rows[line].iter().map(|(_, share)| share.time).max();
            prop_assert_eq!(Some(answer.meanwhile), most);
            let of_line = |case: &&Case| blame.keys.line(case.task) == line;
            let longest = worst.cases.iter().find(of_line);
            prop_assert_eq!(answer.longest.as_ref().map(|(case, _)| case), longest);
        }
    }

    #[test]
    fn a_life_without_birth_fills_the_recording(events in events()) {
        let mut events = events;
        events.retain(|event| !matches!(event.kind, EventKind::New { .. }));
        let file = recording(events).unwrap();
        let scope = Scope::default();
        let states = Followed::over(&file, &scope, States::new(&file.header, &scope, By::Thread));
        for task in 0..TASKS {
            let life = states.lifetime(task);
            prop_assert!(life == Ns::ZERO || life == file.duration, "{life} of {}", file.duration);
        }
    }

    #[test]
    fn the_parts_of_every_wait_add_up(events in events()) {
        let file = recording(events).unwrap();
        let scope = Scope::default();
        let worst = Followed::over(&file, &scope, Worst::new(&file.header, &scope, usize::MAX));
        for case in &worst.cases {
            let parts: Ns = case.meanwhile.iter().map(|(_, time)| *time).sum();
            prop_assert_eq!(parts + case.throttled, case.length());
        }
        let latency = Followed::over(&file, &scope, Latency::new(&file.header, &scope, By::Thread));
        let counted: Ns =
            latency.lines.iter().map(|line| line.wake.lengths.sum() + line.preempt.lengths.sum()).sum();
        // After a preemption throttled time is left out.
        let left_out = |case: &Case| match case.began {
            Began::Woken { .. } => Ns::ZERO,
            Began::Preempted { .. } => case.throttled,
        };
        let total: Ns = worst.cases.iter().map(|case| case.length() - left_out(case)).sum();
        prop_assert_eq!(counted, total);
    }

    #[test]
    fn every_analysis_takes_any_stream(events in events(), from in 0..3_000u64) {
        let file = recording(events).unwrap();
        let later = Scope { from: Ns(from), to: Ns(from + 500), top: Some(2), ..Scope::default() };
        let some = Scope { tasks: Some(vec![true, false]), cpu: Some(CpuId(1)), by: Some(By::Cgroup), ..Scope::default() };
        for scope in [Scope::default(), later, some] {
            for entry in ALL {
                entry.run(&file, &scope, &mut Nothing(0)).unwrap();
            }
        }
    }
}

#[test]
fn analyses_refuse_by_name() {
    let mut blind = header(1, 1);
    blind.capabilities.0.clear();
    for entry in ALL {
        let error = entry.check(&blind).unwrap_err().to_string();
        assert!(error.starts_with(entry.title), "{error}");
        assert!(entry.needs.iter().all(|need| error.contains(need.name())), "{error}");
    }
}
