//! A run that its caller ends.

use crate::common::{periodic, scheduler};
use schedlab_model::{EventSink, Ns, Policy, Program, SchedEvent, TaskSpec, Workload};
use schedlab_sim::{Machine, RunOptions, SimError, Stop, run};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the flag at the 5,000th event.
struct Ends {
    events: u64,
    flag: Arc<AtomicBool>,
}

impl EventSink for Ends {
    fn event(&mut self, _: &SchedEvent) {
        self.events += 1;
        self.flag.store(self.events >= 5_000, Ordering::Relaxed);
    }
}

fn two_tasks() -> Workload {
    let mut sleeper = periodic("sleeper", 100, 1_000, Ns::from_us(1));
    sleeper.policy = Policy::Other;
    Workload { tasks: vec![sleeper, TaskSpec::new("hog", Program::hog())], ..Workload::default() }
}

/// Returns how many events a run of an hour has that is ended at the 5,000th.
fn events_of(plain_path: bool) -> u64 {
    let mut sink = Ends { events: 0, flag: Arc::default() };
    let stop = Some(Stop::when(Arc::clone(&sink.flag)));
    let options = RunOptions { plain_path, stop, ..RunOptions::for_time(Ns::from_s(3_600)) };
    let workload = two_tasks();
    let ended =
        run(&Machine::flat(1), &workload, &*scheduler("linux-6.18", 1), &options, &mut sink);
    assert_eq!(ended.unwrap_err(), SimError::Stopped);
    sink.events
}

#[test]
fn a_run_ends_soon_after_its_flag() {
    for plain_path in [false, true] {
        let events = events_of(plain_path);
        assert!((5_000..20_000).contains(&events), "{events}");
    }
}

#[test]
fn a_flag_that_is_not_set_changes_nothing() {
    let hash = |stop: Option<Stop>| {
        let options = RunOptions { stop, ..RunOptions::for_time(Ns::from_s(2)) };
        let workload = two_tasks();
        let scheduler = scheduler("linux-6.18", 1);
        run(&Machine::flat(1), &workload, &*scheduler, &options, &mut ())
            .expect("a clean run")
            .event_hash
    };
    assert_eq!(hash(None), hash(Some(Stop::when(Arc::default()))));
}
