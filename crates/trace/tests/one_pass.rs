//! What is found while a recording is read is what a look at the whole finds; and the listing that is read in brief is that of
//! the whole recording.

mod common;

use common::{CPUS, TASKS, any_events, bytes, header, switch, wake};
use proptest::prelude::*;
use schedlab_model::{Ns, PrevState, SchedEvent, Waker};
use schedlab_trace::analysis::Scope;
use schedlab_trace::analysis::show::{Cell, Output, Table};
use schedlab_trace::analysis::timehist::{self, Brief, Found, Mending};
use schedlab_trace::{Blocks, ReadLimits, Recording, Repairs};

/// Rows as text.
#[derive(Default, PartialEq, Debug)]
struct Rows(Vec<String>);

impl Output for Rows {
    fn table(&mut self, table: &Table) -> std::io::Result<()> {
        self.0.push(table.title.to_owned());
        Ok(())
    }
    fn row(&mut self, cells: &[Cell<'_>]) -> std::io::Result<()> {
        self.0.push(format!("{cells:?}"));
        Ok(())
    }
    fn note(&mut self, text: &str) -> std::io::Result<()> {
        self.0.push(text.to_owned());
        Ok(())
    }
}

fn end(events: &[SchedEvent]) -> u64 {
    events.iter().map(|event| event.at.0).max().unwrap_or(0) + 10
}

fn brief(file: &[u8]) -> Option<Brief> {
    let (limits, mut known) = (ReadLimits::default(), Mending::default());
    for _ in 0..3 {
        match Brief::of_blocks(Blocks::new(file, limits), limits, &known).unwrap() {
            Found::Brief(brief) => return Some(*brief),
            Found::Again(mending) => known = mending,
            Found::Whole => return None,
        }
    }
    panic!("read four times, it has other mendings each time")
}

/// Reads `events` in every way there is; whether it could be done in brief.
fn same(events: &[SchedEvent], scope: &Scope) -> Result<bool, TestCaseError> {
    let header = header(CPUS, TASKS);
    let file = bytes(&header, events, end(events));
    let whole = Recording::from_parts(header, events.to_vec(), Ns(end(events))).unwrap();
    prop_assert_eq!(&Recording::read(&file[..]).unwrap(), &whole);
    let Some(brief) = brief(&file) else { return Ok(false) };
    prop_assert_eq!(brief.events, whole.events.len());
    prop_assert_eq!(&brief.about, &Recording { events: Vec::new(), ..whole.clone() });
    let (mut rows, mut all) = (Rows::default(), Rows::default());
    rows.table(&timehist::TABLE).unwrap();
    brief.rows(scope, |row| rows.time_on_cpu(row).unwrap());
    timehist::ENTRY.run(&whole, scope, &mut all).unwrap();
    prop_assert_eq!(rows, all);
    Ok(true)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn read_at_once_or_looked_at_as_a_whole(events in any_events(), from in 0..3_000u64, length in 1..3_000u64) {
        let window = Scope { from: Ns(from), to: Ns(from + length), ..Scope::default() };
        for events in [events.clone(), orderly(&events)] {
            for scope in [Scope::default(), window.clone()] {
                same(&events, &scope)?;
            }
        }
    }

    #[test]
    fn misordered_events_are_left_to_the_whole(mut events in any_events(), one in 0..200usize, other in 0..200usize) {
        let count = events.len().max(1);
        if !events.is_empty() {
            events.swap(one % count, other % count);
        }
        same(&events, &Scope::default())?;
    }
}

/// The same tasks, but only switches from who is known to run: what a recorder that misses nothing sees.
fn orderly(events: &[SchedEvent]) -> Vec<SchedEvent> {
    let mut current = [None; CPUS];
    let mut out = Vec::new();
    for event in events {
        let mut event = *event;
        if let schedlab_model::EventKind::Switch { prev, next, prev_state } = &mut event.kind {
            *prev = current[event.cpu.index()];
            let elsewhere = next.is_some_and(|next| current.contains(&Some(next)));
            if elsewhere || prev == next {
                continue;
            }
            if prev.is_none() {
                *prev_state = PrevState::Runnable;
            }
            current[event.cpu.index()] = *next;
        }
        out.push(event);
    }
    out
}

#[test]
fn each_kind_of_mending_is_done_in_brief() {
    let sleep = PrevState::Sleeping;
    // Task 1 is woken just before it has blocked.
    let early = [
        switch(0, 0, None, PrevState::Runnable, Some(1)),
        wake(10, 1, 1, Waker::HardIrq),
        switch(12, 0, Some(1), sleep, Some(2)),
        switch(30, 0, Some(2), sleep, Some(1)),
        switch(50, 0, Some(1), sleep, None),
    ];
    // The switch from task 1 to task 2 is missing.
    let missing = [
        switch(0, 0, None, PrevState::Runnable, Some(1)),
        wake(10, 0, 2, Waker::HardIrq),
        switch(20, 1, None, PrevState::Runnable, Some(3)),
        switch(40, 0, Some(2), sleep, None),
    ];
    for (events, expected) in [
        (&early[..], Repairs { early_wakes: 1, ..Repairs::default() }),
        (&missing[..], Repairs { inconsistent_switches: 1, ..Repairs::default() }),
    ] {
        assert!(same(events, &Scope::default()).unwrap(), "{events:?}");
        let file = bytes(&header(CPUS, TASKS), events, end(events));
        let about = brief(&file).unwrap().about;
        let Repairs { early_wakes, inconsistent_switches, .. } = about.repairs;
        assert_eq!(
            (early_wakes, inconsistent_switches),
            (expected.early_wakes, expected.inconsistent_switches)
        );
    }
    // When the missing switch was depends on the wakeup's right place.
    let both: Vec<SchedEvent> = early.iter().copied().chain([switch(60, 0, Some(4), sleep, None)]).collect();
    assert!(same(&both, &Scope::default()).unwrap());
}
