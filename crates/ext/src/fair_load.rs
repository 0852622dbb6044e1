//! Fair threads on the managed CPUs: the fair class goes before sched_ext's, which gets what it
//! leaves (and, since Linux 7.x, 50 ms a second from the `ext_server` of kernel/sched/ext.c).

use crate::ExtError;
use schedlab_host::threads;
use schedlab_model::{CpuId, CpuSet, Ns};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long is measured before a run: 75 ticks of HZ=250.
const MEASURED: Duration = Duration::from_millis(300);
/// A CPU of which others have more, in per cent, is refused.
const REFUSED: u64 = 50;
/// A CPU of which others have more, in per cent, is told.
pub(crate) const TOLD: u64 = 5;

/// What others had of one managed CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FairLoad {
    /// The CPU.
    pub cpu: CpuId,
    /// Per cent of it.
    pub share: u64,
    /// The thread that had most of it.
    pub by: String,
}

/// Measures what threads that are not of `managed` processes have of `cpus`; returns the CPUs of
/// which that is worth telling.
///
/// # Errors
/// When it is so much of a CPU that threads of sched_ext would wait for long.
pub fn measure(cpus: &CpuSet, managed: &[u32]) -> Result<Vec<FairLoad>, ExtError> {
    judge(look(cpus, managed))
}

/// The same without a judgement.
pub(crate) fn look(cpus: &CpuSet, managed: &[u32]) -> Vec<FairLoad> {
    let (begin, before) = (Instant::now(), served(managed));
    std::thread::sleep(MEASURED);
    let (took, after) = (begin.elapsed(), served(managed));
    let named = |(cpu, share, by): (CpuId, u64, u32)| {
        let name = threads::identity(by).map_or("gone by now".to_owned(), |thread| thread.comm);
        FairLoad { cpu, share, by: format!("thread {by} ({name}) and others") }
    };
    let loads = loads(cpus, &before, &after, Ns(took.as_nanos() as u64));
    loads.into_iter().map(named).collect()
}

fn judge(loads: Vec<FairLoad>) -> Result<Vec<FairLoad>, ExtError> {
    match loads.iter().max_by_key(|load| load.share).filter(|load| load.share >= REFUSED) {
        Some(most) => {
            Err(ExtError::FairLoad { cpu: most.cpu, share: most.share, by: most.by.clone() })
        }
        None => Ok(loads),
    }
}

/// What a thread had of the CPUs so far, and on which it ran last.
#[derive(Clone, Copy, Debug)]
struct Had {
    run: Ns,
    cpu: u32,
}

/// Returns what each thread has had of the CPUs, by thread id. Those of `managed` processes and of
/// this one do not count.
fn served(managed: &[u32]) -> BTreeMap<u32, Had> {
    let own = std::process::id();
    let others =
        threads::processes().into_iter().filter(|pid| *pid != own && !managed.contains(pid));
    let had = |tid: u32| {
        Some((tid, Had { run: threads::served(tid)?.run, cpu: threads::last_cpu(tid)? }))
    };
    others.flat_map(threads::of_process).filter_map(had).collect()
}

/// Returns the CPUs of `cpus` of which threads had more than [`TOLD`] per cent between two looks,
/// with that share and the thread that had most of it.
fn loads(
    cpus: &CpuSet,
    before: &BTreeMap<u32, Had>,
    after: &BTreeMap<u32, Had>,
    took: Ns,
) -> Vec<(CpuId, u64, u32)> {
    let mut by_cpu: BTreeMap<u32, (Ns, Ns, u32)> = BTreeMap::new();
    for (tid, had) in after.iter().filter(|(_, had)| cpus.contains(CpuId(had.cpu))) {
        let began = before.get(tid).map_or(Ns::ZERO, |before| before.run);
        let run = had.run.saturating_sub(began);
        let (all, most, by) = by_cpu.entry(had.cpu).or_insert((Ns::ZERO, Ns::ZERO, *tid));
        *all += run;
        if run > *most {
            (*most, *by) = (run, *tid);
        }
    }
    let share = |all: Ns| (all.0 * 100 / took.0.max(1)).min(100);
    let all = by_cpu.into_iter().map(|(cpu, (all, _, by))| (CpuId(cpu), share(all), by));
    all.filter(|(_, share, _)| *share > TOLD).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(all: &[(u32, u64, u32)]) -> BTreeMap<u32, Had> {
        all.iter().map(|&(tid, ms, cpu)| (tid, Had { run: Ns::from_ms(ms), cpu })).collect()
    }

    #[test]
    fn what_others_have_of_a_managed_cpu_is_told_or_refused() {
        let cpus: CpuSet = "1-2".parse().expect("CPUs");
        let before = look(&[(10, 1_000, 1), (11, 50, 1), (12, 0, 2), (13, 0, 0)]);
        let found =
            |after: &[(u32, u64, u32)]| loads(&cpus, &before, &look(after), Ns::from_ms(300));
        // CPU 0 is not managed; 3 % of CPU 2 is not worth a word.
        assert_eq!(found(&[(10, 1_000, 1), (11, 50, 1), (12, 9, 2), (13, 300, 0)]), []);
        let some = found(&[(10, 1_030, 1), (11, 65, 1), (12, 9, 2), (13, 300, 0)]);
        assert_eq!(some, [(CpuId(1), 15, 10)]);
        // A thread that began meanwhile counts from its birth.
        assert_eq!(found(&[(10, 1_000, 1), (14, 290, 2)]), [(CpuId(2), 96, 14)]);
        let load =
            |share| FairLoad { cpu: CpuId(2), share, by: "thread 14 (hog) and others".to_owned() };
        assert_eq!(judge(vec![load(49)]).expect("told"), [load(49)]);
        let refused = judge(vec![load(12), load(50)]).expect_err("refused").to_string();
        assert!(refused.starts_with("50 % of CPU 2 went to thread 14 (hog)"), "{refused}");
    }
}
