//! Looks for fair load that comes up on managed CPUs while a run goes on: a thread of the fair
//! class with little to do, so that it may print and read /proc for as long as it takes.

use crate::agent::Shared;
use crate::fair_load::{self, FairLoad};
use schedlab_host::threads;
use schedlab_model::{CpuId, CpuSet, Ns};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between two looks at what the agent counts.
const PERIOD: Duration = Duration::from_secs(1);
/// How often it looks whether the run has ended.
const NAP: Duration = Duration::from_millis(50);
/// Other classes kept chosen threads from their CPUs for more than this part of one CPU, in per
/// cent: then it is worth a look at /proc for who that was. The same bound as before the run.
const WORTH: u64 = fair_load::TOLD;

/// Tells `warn`, until the run ends, what comes up on `cpus`: each CPU when it begins there, and
/// again when it had been free.
pub(crate) fn watch(
    shared: &Shared,
    cpus: &CpuSet,
    others: &CpuSet,
    mut warn: impl FnMut(&[FairLoad]),
) {
    // Else it would be such a load itself.
    let _ = threads::set_affinity(0, others);
    let mut told = Told::default();
    let (mut kept, mut since) = (kept_by_others(shared), Instant::now());
    while sleep(shared) {
        let (now, took) = (kept_by_others(shared), Ns(since.elapsed().as_nanos() as u64));
        let grown = now.saturating_sub(kept);
        (kept, since) = (now, Instant::now());
        let loads = match is_worth_a_look(grown, took) {
            true => fair_load::look(cpus, &managed(shared)),
            false => Vec::new(),
        };
        let new = told.renew(loads);
        if !new.is_empty() {
            warn(&new);
        }
    }
}

fn is_worth_a_look(grown: Ns, took: Ns) -> bool {
    grown.0.saturating_mul(100) > took.0.saturating_mul(WORTH)
}

/// False: the run has ended.
fn sleep(shared: &Shared) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < PERIOD {
        if shared.stop.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(NAP);
    }
    !shared.stop.load(Ordering::Relaxed)
}

fn kept_by_others(shared: &Shared) -> Ns {
    let seen = shared.seen.lock().ok();
    let ext = seen.as_ref().and_then(|seen| seen.0.sched_ext.as_ref());
    Ns(ext.map_or(0, |ext| ext.kept_by_others_ns))
}

/// Returns the processes of the managed threads.
fn managed(shared: &Shared) -> Vec<u32> {
    let tids = shared.seen.lock().map(|seen| seen.1.clone()).unwrap_or_default();
    let all: BTreeSet<u32> =
        tids.into_iter().filter_map(threads::identity).map(|thread| thread.process).collect();
    all.into_iter().collect()
}

/// The CPUs that were told.
#[derive(Default)]
struct Told(BTreeSet<CpuId>);

impl Told {
    /// Returns the loads of CPUs that had none at the last look.
    fn renew(&mut self, loads: Vec<FairLoad>) -> Vec<FairLoad> {
        let before = std::mem::take(&mut self.0);
        self.0 = loads.iter().map(|load| load.cpu).collect();
        loads.into_iter().filter(|load| !before.contains(&load.cpu)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_told_when_it_begins_and_again_when_it_had_gone() {
        let load = |cpu| FairLoad {
            cpu: CpuId(cpu),
            share: 30,
            by: "thread 7 (hog) and others".to_owned(),
        };
        let mut told = Told::default();
        assert_eq!(told.renew(vec![load(1)]), [load(1)]);
        assert_eq!(told.renew(vec![load(1), load(2)]), [load(2)]);
        assert_eq!(told.renew(vec![load(2)]), []);
        assert_eq!(told.renew(vec![]), []);
        assert_eq!(told.renew(vec![load(2)]), [load(2)]);
    }

    #[test]
    fn less_than_the_bound_is_not_worth_reading_proc() {
        let second = Ns::from_ms(1_000);
        assert!(!is_worth_a_look(Ns::from_ms(50), second));
        assert!(is_worth_a_look(Ns::from_ms(51), second));
    }
}
