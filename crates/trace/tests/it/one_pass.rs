//! What is found while a recording is read is what a look at the whole finds; and the listing that
//! is read in brief is that of the whole recording.

use crate::common::{CPUS, TASKS, any_events, bytes, header, switch, wake};
use proptest::prelude::*;
use schedlab_model::{Ns, PrevState, SchedEvent, TaskId, Waker};
use schedlab_trace::analysis::Scope;
use schedlab_trace::analysis::losses::sentence;
use schedlab_trace::analysis::show::{Cell, Output, Table};
use schedlab_trace::analysis::timehist::{self, Found, Listed, Listing, Row};
use schedlab_trace::{Blocks, ReadLimits, Recording, Repairs, TraceError};

/// Rows as text.
#[derive(Clone, Default, PartialEq, Debug)]
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

/// What the listing gave, and how many rows there were at the end of each look but the last.
struct Taken {
    rows: Vec<Row>,
    looks: Vec<usize>,
    /// It could not be done in brief.
    whole: bool,
}

/// The listing with so many rows in a piece.
fn listed(file: &[u8], together: usize, in_order: bool) -> (Listed, Taken) {
    let (limits, mut rows, mut looks) = (ReadLimits::default(), Vec::new(), Vec::new());
    let mut listing = Listing::new(&mut rows, in_order).together(together);
    let mut whole = false;
    let listed = loop {
        match listing.read(Blocks::new(file, limits), limits).unwrap() {
            Found::Listed(listed) => break *listed,
            Found::Again => looks.push(listing.given()),
            Found::Whole => {
                looks.push(listing.given());
                whole = true;
                break listing.whole(Recording::read(file).unwrap()).unwrap();
            }
        }
        assert!(looks.len() < 3, "read four times, it has other mendings each time");
    };
    (listed, Taken { rows, looks, whole })
}

/// Reads `events` in every way there is; in how many looks it could be listed.
fn same(events: &[SchedEvent], scope: &Scope) -> Result<usize, TestCaseError> {
    let header = header(CPUS, TASKS);
    let file = bytes(&header, events, end(events));
    let whole = Recording::from_parts(header, events.to_vec(), Ns(end(events))).unwrap();
    prop_assert_eq!(&Recording::read(&file[..]).unwrap(), &whole);
    let mut all = Rows::default();
    timehist::ENTRY.run(&whole, scope, &mut all).unwrap();
    let mut looks = 0;
    for (together, in_order) in [(1, true), (3, true), (4096, true), (2, false)] {
        let (listed, taken) = listed(&file, together, in_order);
        prop_assert_eq!(listed.events, whole.events.len());
        prop_assert_eq!(&listed.about, &Recording { events: Vec::new(), ..whole.clone() });
        let mut rows = Rows::default();
        rows.table(&timehist::TABLE).unwrap();
        let shown = taken.rows.iter().filter(|row| row.is_shown(scope));
        shown.for_each(|row| rows.time_on_cpu(row).unwrap());
        sentence(&listed.losses.within(scope)).iter().for_each(|text| rows.note(text).unwrap());
        prop_assert_eq!(rows, all.clone());
        looks = taken.looks.len() + 1;
    }
    Ok(looks)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: schedlab_testing::cases(1024), failure_persistence: None, ..ProptestConfig::default() })]

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

/// The same tasks, but only switches from who is known to run: what a recorder that misses nothing
/// sees.
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
    for (events, expected, looks) in [
        (&early[..], Repairs { early_wakes: 1, ..Repairs::default() }, 1),
        (&missing[..], Repairs { inconsistent_switches: 1, ..Repairs::default() }, 2),
    ] {
        assert_eq!(same(events, &Scope::default()).unwrap(), looks, "{events:?}");
        let file = bytes(&header(CPUS, TASKS), events, end(events));
        let (Listed { about, .. }, taken) = listed(&file, 1, true);
        assert!(!taken.whole, "{events:?}");
        let Repairs { early_wakes, inconsistent_switches, .. } = about.repairs;
        assert_eq!(
            (early_wakes, inconsistent_switches),
            (expected.early_wakes, expected.inconsistent_switches)
        );
    }
    // When the missing switch was depends on the wakeup's right place.
    let both: Vec<SchedEvent> =
        early.iter().copied().chain([switch(60, 0, Some(4), sleep, None)]).collect();
    assert!(same(&both, &Scope::default()).unwrap() > 1);
    assert!(!listed(&bytes(&header(CPUS, TASKS), &both, end(&both)), 1, true).1.whole);
}

#[test]
fn rows_come_as_soon_as_they_are_settled() {
    let sleep = PrevState::Sleeping;
    // Two CPUs take turns, until task 5 leaves CPU 0, where task 1 ran.
    let turn = |i: u64| {
        let (cpu, task) = ((i % 2) as u32, 1 + (i % 2) as u32);
        let (prev, next) =
            if (i / 2).is_multiple_of(2) { (None, Some(task)) } else { (Some(task), None) };
        let state = if prev.is_some() { sleep } else { PrevState::Runnable };
        switch(10 * i, cpu, prev, state, next)
    };
    let mut events: Vec<SchedEvent> = (0..101).map(turn).collect();
    events.push(switch(2_000, 0, Some(5), sleep, None));
    let file = bytes(&header(CPUS, TASKS), &events, end(&events));
    let (_, taken) = listed(&file, 1, true);
    // All but those since the other CPU's last switch.
    assert_eq!((&taken.looks[..], taken.rows.len()), (&[99][..], 103));
    assert!(
        listed(&file, 1, false).1.looks == [0],
        "nothing before the end where blocks are in disorder"
    );
    same(&events, &Scope::default()).unwrap();
}

/// Task 1 is woken by task 2 on CPU 1 just before it blocks at 12: where that wakeup belongs task 2
/// is proven to have run until then, where it is until 10. `unseen` is when another task turns out
/// to have run on CPU 1.
fn proof_by_an_early_wakeup(unseen: u64) -> Vec<SchedEvent> {
    let (sleep, idle) = (PrevState::Sleeping, PrevState::Runnable);
    let mut events = vec![
        switch(0, 0, None, idle, Some(5)),
        switch(1, 1, None, idle, Some(2)),
        switch(5, 0, Some(5), sleep, Some(3)),
        switch(8, 0, Some(3), sleep, Some(1)),
        wake(10, 1, 1, Waker::Task(TaskId(2))),
        switch(10, 2, None, idle, Some(0)),
        switch(12, 0, Some(1), sleep, Some(3)),
        switch(20, 2, Some(0), sleep, None),
        switch(30, 0, Some(3), sleep, Some(1)),
        switch(31, 2, None, idle, Some(0)),
        switch(32, 0, Some(1), sleep, None),
        switch(33, 2, Some(0), sleep, None),
    ];
    let place = events.iter().position(|event| event.at > Ns(unseen)).unwrap_or(events.len());
    events.insert(place, switch(unseen, 1, Some(4), sleep, None));
    events
}

#[test]
fn a_wakeup_that_may_move_settles_nothing() {
    // It is missed before the wakeup's right place: task 2 is proven to have run until 1 only.
    let events = proof_by_an_early_wakeup(11);
    assert!(same(&events, &Scope::default()).unwrap() > 1);
}

#[test]
fn what_was_missing_in_the_look_before_may_have_been_later() {
    // It is missed after the wakeup's right place: task 2 is proven to have run until 12, and not
    // until 10.
    let events = proof_by_an_early_wakeup(40);
    assert!(same(&events, &Scope::default()).unwrap() > 2);
}

#[test]
fn a_file_that_changes_is_refused() {
    let [file, other] = [1, 2].map(|task| {
        let events = [
            switch(0, 0, None, PrevState::Runnable, Some(task)),
            switch(10, 0, Some(task), PrevState::Sleeping, None),
            switch(20, 0, None, PrevState::Runnable, Some(task)),
            // A task must have come before task 3 left.
            switch(30, 0, Some(3), PrevState::Sleeping, None),
        ];
        bytes(&header(CPUS, TASKS), &events, 100)
    });
    let (limits, mut rows) = (ReadLimits::default(), Vec::<Row>::new());
    let mut listing = Listing::new(&mut rows, true).together(1);
    assert!(matches!(listing.read(Blocks::new(&file[..], limits), limits), Ok(Found::Again)));
    let again = listing.read(Blocks::new(&other[..], limits), limits);
    assert!(matches!(again, Err(TraceError::Changed)));
}
