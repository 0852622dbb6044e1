//! The figures of the oracle files, computed from simulated events the way they were computed from
//! the trace: shares and run lengths from switch record to switch record, waits from wakeup record
//! to switch record.

use super::data::Measured;
use schedlab_model::{EventKind, EventSink, Ns, SchedEvent, TaskId};
use std::collections::BTreeMap;

/// Collects the events of one run.
#[derive(Debug)]
pub(crate) struct Collector {
    tasks: Vec<Collected>,
}

#[derive(Clone, Debug, Default)]
struct Collected {
    woken: Option<Ns>,
    entered: Option<Ns>,
    cpu: Ns,
    wakeups: u64,
    waits: Vec<u64>,
    run_lengths: BTreeMap<u64, u64>,
}

impl Collector {
    /// For a run with this many tasks.
    pub(crate) fn new(tasks: usize) -> Collector {
        Collector { tasks: vec![Collected::default(); tasks] }
    }

    /// The figures of every task, the run having ended after `duration`.
    pub(crate) fn finish(mut self, duration: Ns) -> Vec<Measured> {
        for task in &mut self.tasks {
            if let Some(entered) = task.entered {
                task.cpu += duration.saturating_sub(entered);
            }
        }
        self.tasks.iter_mut().map(|task| task.measured(duration)).collect()
    }

    fn collected(&mut self, task: TaskId) -> &mut Collected {
        &mut self.tasks[task.index()]
    }
}

impl EventSink for Collector {
    fn event(&mut self, event: &SchedEvent) {
        match event.kind {
            EventKind::Wake { task, .. } | EventKind::New { task, .. } => {
                let task = self.collected(task);
                task.wakeups += 1;
                task.woken = Some(event.at);
            }
            EventKind::Switch { prev, next, .. } => {
                if let Some(prev) = prev {
                    self.collected(prev).left(event.at);
                }
                if let Some(next) = next {
                    let next = self.collected(next);
                    next.entered = Some(event.at);
                    if let Some(woken) = next.woken.take() {
                        next.waits.push((event.at - woken).0);
                    }
                }
            }
            _ => {}
        }
    }
}

impl Collected {
    fn left(&mut self, at: Ns) {
        let Some(entered) = self.entered.take() else { return };
        let ran = at - entered;
        self.cpu += ran;
        // Rounded to 0.1 ms, as in the files.
        *self.run_lengths.entry((ran.0 + 50_000) / 100_000 * 100).or_default() += 1;
    }

    fn measured(&mut self, duration: Ns) -> Measured {
        self.waits.sort_unstable();
        let count = self.waits.len();
        let rank = |part: f64| {
            let rank = (part * count as f64).ceil() as usize;
            self.waits.get(rank.max(1) - 1).map(|ns| *ns as f64 / 1e3)
        };
        let mean = (count > 0).then(|| self.waits.iter().sum::<u64>() as f64 / count as f64 / 1e3);
        let mut lengths: Vec<(u64, u64)> = self.run_lengths.iter().map(|(l, n)| (*l, *n)).collect();
        lengths.sort_by_key(|&(length, times)| (std::cmp::Reverse(times), length));
        lengths.truncate(6);
        Measured {
            share: self.cpu.0 as f64 / duration.0 as f64,
            nr_wakeups: self.wakeups,
            wait_mean_us: mean,
            wait_p50_us: rank(0.50),
            wait_p99_us: rank(0.99),
            run_len_merged_hist_us: lengths,
        }
    }
}

/// The median of each figure over several runs (the upper one of an even number). Run lengths are
/// added up.
pub(crate) fn median(runs: &[Vec<Measured>]) -> Vec<Measured> {
    let tasks = runs.first().map_or(0, Vec::len);
    (0..tasks)
        .map(|task| median_of(&runs.iter().map(|run| &run[task]).collect::<Vec<_>>()))
        .collect()
}

fn median_of(runs: &[&Measured]) -> Measured {
    let middle = |figure: fn(&Measured) -> Option<f64>| {
        let mut values: Vec<f64> = runs.iter().filter_map(|m| figure(m)).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let mut lengths: BTreeMap<u64, u64> = BTreeMap::new();
    for (length, times) in runs.iter().flat_map(|m| &m.run_len_merged_hist_us) {
        *lengths.entry(*length).or_default() += times;
    }
    let mut lengths: Vec<(u64, u64)> = lengths.into_iter().collect();
    lengths.sort_by_key(|&(length, times)| (std::cmp::Reverse(times), length));
    lengths.truncate(6);
    Measured {
        share: middle(|m| Some(m.share)).unwrap_or(0.0),
        nr_wakeups: middle(|m| Some(m.nr_wakeups as f64)).unwrap_or(0.0) as u64,
        wait_mean_us: middle(|m| m.wait_mean_us),
        wait_p50_us: middle(|m| m.wait_p50_us),
        wait_p99_us: middle(|m| m.wait_p99_us),
        run_len_merged_hist_us: lengths,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, PrevState, Waker};

    #[test]
    fn shares_waits_and_run_lengths_count_from_record_to_record() {
        let mut collector = Collector::new(2);
        let (a, b) = (TaskId(0), TaskId(1));
        let mut at = |us: u64, kind| {
            collector.event(&SchedEvent { at: Ns::from_us(us), cpu: CpuId(0), kind })
        };
        let switch = |prev, next| EventKind::Switch { prev, prev_state: PrevState::Runnable, next };
        let wake = |task| EventKind::Wake { task, waker: Waker::HardIrq };
        at(0, wake(a));
        at(2, switch(None, Some(a)));
        at(1000, wake(b));
        at(4002, switch(Some(a), Some(b)));
        at(5002, switch(Some(b), Some(a)));
        let measured = collector.finish(Ns::from_us(10_000));
        assert!((measured[0].share - 0.8998).abs() < 1e-9);
        assert_eq!(measured[0].wait_mean_us, Some(2.0), "a preemption is no wait");
        assert_eq!(measured[1].wait_p99_us, Some(3002.0));
        assert_eq!(measured[0].run_len_merged_hist_us, [(4000, 1)]);
        let middle = median(&[measured.clone(), measured.clone(), measured]);
        assert_eq!(middle[1].wait_p50_us, Some(3002.0));
        assert_eq!(middle[0].run_len_merged_hist_us, [(4000, 3)]);
    }
}
