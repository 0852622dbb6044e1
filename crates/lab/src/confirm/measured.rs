//! What a round measured.

use super::plan::ConfirmError;
use crate::process_tasks::of_processes;
use schedlab_model::{CpuId, CpuSet, EventKind, Ns, TaskId};
use schedlab_study::measurements::SubjectData;
use schedlab_study::metric::{Metric, Stat};
use schedlab_trace::Recording;
use schedlab_trace::analysis::{Summary, TaskSummary};
use std::collections::{BTreeMap, BTreeSet};

/// The metrics that are compared.
pub const METRICS: [Metric; 5] = [
    Metric::Share,
    Metric::Latency(Stat::Percentile(50_000)),
    Metric::Latency(Stat::Percentile(99_000)),
    Metric::Run(Stat::Percentile(50_000)),
    Metric::Switches,
];

/// The values of a round.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct RoundMeasurements {
    values: BTreeMap<String, Vec<(Metric, f64)>>,
    /// CPU time of agents, as a part of a CPU.
    pub(super) agents: Option<f64>,
    /// Threads that the driver gave back before the end.
    pub(super) given_back: u64,
    /// How often the round was begun again because the driver had been killed.
    pub(super) repeated: u64,
    /// CPU time of other programs on the command's CPUs, as a part of one CPU.
    pub(super) others: f64,
}

impl RoundMeasurements {
    pub(super) fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.values.keys().cloned()
    }

    pub(super) fn value(&self, name: &str, metric: Metric) -> Option<f64> {
        self.values.get(name)?.iter().find(|(one, _)| *one == metric).map(|(_, value)| *value)
    }

    #[cfg(test)]
    pub(super) fn from_values(name: &str, values: &[(Metric, f64)]) -> RoundMeasurements {
        RoundMeasurements {
            values: BTreeMap::from([(name.to_owned(), values.to_vec())]),
            ..RoundMeasurements::default()
        }
    }

    /// Returns the values of the tasks of `processes`, and of their children; `driver` is the
    /// process of the driver.
    pub(super) fn from_recording(
        recording: &Recording,
        processes: &BTreeSet<u32>,
        cpus: &CpuSet,
        driver: Option<u32>,
    ) -> Result<RoundMeasurements, ConfirmError> {
        let summary = Summary::from_recording(recording)
            .map_err(|error| ConfirmError::Input(error.to_string()))?;
        let own = of_processes(recording, processes);
        let mut sums: BTreeMap<String, TaskSummary> = BTreeMap::new();
        for (index, task) in
            recording.header.tasks.iter().enumerate().filter(|(index, _)| own[*index])
        {
            sums.entry(task.comm.clone()).or_default().merge(&summary.tasks[index]);
        }
        let values = sums.into_iter().map(|(name, sum)| {
            let data = SubjectData::of_tasks(&name, summary.window, sum);
            let value = |metric: &Metric| Some((*metric, data.value(*metric)?));
            (name, METRICS.iter().filter_map(value).collect())
        });
        let known = |index: usize| own[index] || Some(recording.header.tasks[index].pid) == driver;
        Ok(RoundMeasurements {
            values: values.collect(),
            others: others(recording, cpus, known),
            ..RoundMeasurements::default()
        })
    }
}

/// Returns the CPU time on `cpus` of tasks for which `known` is false, as a part of one CPU.
fn others(recording: &Recording, cpus: &CpuSet, known: impl Fn(usize) -> bool) -> f64 {
    let mut on: BTreeMap<CpuId, (Ns, Option<TaskId>)> = BTreeMap::new();
    let mut sum = Ns::ZERO;
    let mut add = |task: Option<TaskId>, since: Ns, until: Ns| {
        if task.is_some_and(|task| !known(task.index())) {
            sum += until.saturating_sub(since);
        }
    };
    for event in recording.events.iter().filter(|event| cpus.contains(event.cpu)) {
        let EventKind::Switch { prev, next, .. } = event.kind else { continue };
        // The task that leaves at the first switch of a CPU ran from the start.
        let (since, _) = on.insert(event.cpu, (event.at, next)).unwrap_or_default();
        add(prev, since, event.at);
    }
    on.into_values().for_each(|(since, task)| add(task, since, recording.duration));
    sum.0 as f64 / recording.duration.0.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{PrevState, SchedEvent, Topology};
    use schedlab_trace::{Header, TaskInfo};

    #[test]
    fn what_others_take_is_counted_on_the_commands_cpus() {
        let task = |pid: u32| TaskInfo::unknown(pid, pid, format!("t{pid}"));
        let tasks = vec![task(1), task(2), task(3)];
        let header = Header { topology: Topology::flat(2), tasks, ..Header::default() };
        let switch = |at: u64, cpu: u32, prev: Option<u32>, next: Option<u32>| {
            let (prev, next) = (prev.map(TaskId), next.map(TaskId));
            let kind = EventKind::Switch { prev, prev_state: PrevState::Runnable, next };
            SchedEvent { at: Ns(at), cpu: CpuId(cpu), kind }
        };
        // On CPU 1: task 2 (others) until 100, the command until 400, the driver until 500, idle
        // until 600, others until 700, and the command until 950.
        let events = vec![
            switch(50, 0, Some(1), None),
            switch(100, 1, Some(1), Some(0)),
            switch(400, 1, Some(0), Some(2)),
            switch(500, 1, Some(2), None),
            switch(600, 1, None, Some(1)),
            switch(700, 1, Some(1), Some(0)),
            switch(950, 1, Some(0), Some(1)),
        ];
        let recording = Recording::from_parts(header, events, Ns(1_000)).unwrap();
        let cpus = CpuSet::single(CpuId(1));
        let part = others(&recording, &cpus, |task| task != 1);
        assert!((part - 0.25).abs() < 1e-9, "{part}");
    }
}
