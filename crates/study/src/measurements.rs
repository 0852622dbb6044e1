//! What one run measured, by class of tasks, whether it was recorded or simulated.

use crate::metric::{Metric, Stat};
use crate::places::Places;
use schedlab_model::Ns;
use schedlab_sim::{
    ChannelMetrics, CpuMetrics, DecisionMetrics, DelegationMetrics, Distribution, Metrics,
    SourceMetrics, TaskMetrics, WorkConservation,
};
use schedlab_trace::analysis::messages::RequestTimes;
use schedlab_trace::analysis::{Durations, Summary, TaskSummary};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Who a row of a table is about.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// All tasks of one name.
    Class,
    /// One task (only when it is asked for).
    Task,
    /// A source of requests: what its clients see.
    Source,
    /// A channel: requests that were finished, from any sender.
    Channel,
    /// All CPUs together.
    Machine,
}

/// The measurements of one run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// One for each class, in order of first appearance, then sources, then channels with finished
    /// requests.
    pub subjects: Vec<SubjectData>,
    /// Single tasks, in order; of recordings only those of the classes that were asked for.
    pub tasks: Vec<SubjectData>,
    places: Places,
    places_of_tasks: Places,
}

/// The measurements about one subject.
#[derive(Clone, Debug)]
pub struct SubjectData {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// How many tasks.
    pub tasks: usize,
    /// The class of a single task.
    pub class: String,
    window: Ns,
    data: Data,
}

#[derive(Clone, Debug)]
enum Data {
    Sim(Box<TaskMetrics>),
    Trace(Box<TaskSummary>),
    Source(Box<SourceMetrics>),
    Channel(Box<ChannelMetrics>),
    Machine(Box<MachineMetrics>),
    /// Requests a second that a client counted.
    Counted(f64),
}

/// All CPUs together.
#[derive(Clone, Debug)]
struct MachineMetrics {
    cpus: Vec<CpuMetrics>,
    conservation: WorkConservation,
    decisions: DecisionMetrics,
    agents: Option<Box<DelegationMetrics>>,
}

/// With what the names of subjects begin that are the requests over a port or path.
pub const OF_SERVICE: &str = "requests at ";

/// What the one [`Kind::Machine`] subject is called.
pub const MACHINE: &str = "machine";

impl Measured {
    /// From the simulator's own metrics. `classes` names the class of each task.
    pub fn of_metrics(metrics: &Metrics, classes: &[String]) -> Measured {
        let window = metrics.elapsed();
        let mut measured = Measured::default();
        let mut of_class = HashMap::new();
        for (task, class) in metrics.tasks.iter().zip(classes) {
            let single =
                SubjectData::new(Kind::Task, &task.name, window, Data::Sim(Box::new(task.clone())));
            measured.tasks.push(SubjectData { class: class.clone(), ..single });
            match measured.class(&mut of_class, class) {
                None => {
                    let data = Data::Sim(Box::new(task.clone()));
                    measured.subjects.push(SubjectData::new(Kind::Class, class, window, data));
                }
                Some(subject) => {
                    subject.tasks += 1;
                    if let Data::Sim(sum) = &mut subject.data {
                        merge(sum, task);
                    }
                }
            }
        }
        for source in &metrics.sources {
            let data = Data::Source(Box::new(source.clone()));
            measured.subjects.push(SubjectData::new(Kind::Source, &source.name, window, data));
        }
        for channel in metrics.channels.iter().filter(|channel| channel.done > 0) {
            let data = Data::Channel(Box::new(channel.clone()));
            measured.subjects.push(SubjectData::new(Kind::Channel, &channel.name, window, data));
        }
        let (cpus, conservation) = (metrics.cpus.clone(), metrics.work_conservation);
        let agents = metrics.delegation.clone();
        let decisions = metrics.decisions;
        let data =
            Data::Machine(Box::new(MachineMetrics { cpus, conservation, decisions, agents }));
        measured.subjects.push(SubjectData::new(Kind::Machine, MACHINE, window, data));
        measured
    }

    /// From the analysis of an event stream, recorded or simulated. `classes` names the class of
    /// each task, `single(index)` is the name of a task that must be measured by itself too.
    pub fn of_summary(
        summary: &Summary,
        classes: &[String],
        single: &dyn Fn(usize) -> Option<String>,
    ) -> Measured {
        let window = summary.window;
        let mut measured = Measured::default();
        let mut of_class = HashMap::new();
        for (index, (task, class)) in summary.tasks.iter().zip(classes).enumerate() {
            if let Some(name) = single(index) {
                let single = SubjectData::new(
                    Kind::Task,
                    &name,
                    window,
                    Data::Trace(Box::new(task.clone())),
                );
                measured.tasks.push(SubjectData { class: class.clone(), ..single });
            }
            match measured.class(&mut of_class, class) {
                None => {
                    let data = Data::Trace(Box::new(task.clone()));
                    measured.subjects.push(SubjectData::new(Kind::Class, class, window, data));
                }
                Some(subject) => {
                    subject.tasks += 1;
                    if let Data::Trace(sum) = &mut subject.data {
                        sum.merge(task);
                    }
                }
            }
        }
        for subject in measured.subjects.iter_mut().chain(&mut measured.tasks) {
            if let Data::Trace(task) = &mut subject.data {
                task.settle();
            }
        }
        measured
    }

    /// Adds the requests of servers, by port or path: from the arrival to the answer.
    pub(crate) fn requests(&mut self, times: &RequestTimes, window: Ns) {
        for (service, latencies) in &times.services {
            let name = format!("{OF_SERVICE}{service}");
            let done = latencies.len() as u64;
            let mut of = ChannelMetrics {
                name: name.clone(),
                sent: done,
                done,
                ..ChannelMetrics::default()
            };
            latencies.iter().for_each(|latency| of.response.record(*latency));
            self.subjects.push(SubjectData::new(
                Kind::Channel,
                &name,
                window,
                Data::Channel(Box::new(of)),
            ));
        }
    }

    /// The subject of this kind and name.
    pub fn find(&self, kind: Kind, name: &str) -> Option<&SubjectData> {
        let (all, places) = match kind {
            Kind::Task => (&self.tasks, &self.places_of_tasks),
            _ => (&self.subjects, &self.places),
        };
        places.find(all, |one| (one.kind, &one.name), (kind, name))
    }

    /// Adds a count that was not made from events, a second.
    pub(crate) fn count(&mut self, name: &str, per_second: f64) {
        self.subjects.push(SubjectData::new(
            Kind::Source,
            name,
            Ns::ZERO,
            Data::Counted(per_second),
        ));
    }

    /// The class of this name; `None`: it is the next that is added. `of_class`: where each is.
    fn class<'a>(
        &mut self,
        of_class: &mut HashMap<&'a str, usize>,
        name: &'a str,
    ) -> Option<&mut SubjectData> {
        let next = self.subjects.len();
        self.subjects.get_mut(*of_class.entry(name).or_insert(next))
    }
}

fn merge(sum: &mut TaskMetrics, task: &TaskMetrics) {
    sum.cpu_ns += task.cpu_ns;
    sum.throttled_ns += task.throttled_ns;
    sum.wakeups += task.wakeups;
    sum.switches += task.switches;
    sum.preemptions += task.preemptions;
    sum.migrations += task.migrations;
    sum.merge_latency(task);
    sum.preempt_wait.merge(&task.preempt_wait);
    sum.response.merge(&task.response);
    sum.run_length.merge(&task.run_length);
}

impl SubjectData {
    /// Returns the measurements of tasks that were added up already.
    pub fn of_tasks(name: &str, window: Ns, sum: TaskSummary) -> SubjectData {
        SubjectData::new(Kind::Class, name, window, Data::Trace(Box::new(sum)))
    }

    fn new(kind: Kind, name: &str, window: Ns, data: Data) -> SubjectData {
        SubjectData { kind, name: name.to_owned(), tasks: 1, class: String::new(), window, data }
    }

    /// Returns the value of a metric: shares as a part of one CPU, times in nanoseconds, the rest a
    /// second. `None` where the subject has no such metric or nothing was counted.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        match &self.data {
            Data::Sim(task) => TaskValues::simulated(task, self.window).value(metric),
            Data::Trace(task) => TaskValues::recorded(task, self.window).value(metric),
            Data::Source(source) => {
                of_client(metric, &source.response, source.completed, self.window)
            }
            Data::Channel(channel) => {
                of_client(metric, &channel.response, channel.done, self.window)
            }
            Data::Counted(rate) => Some(*rate).filter(|_| metric == Metric::Throughput),
            Data::Machine(machine) => machine.value(metric, self.window),
        }
    }
}

/// What the metrics of tasks are made of, whether they were simulated or recorded.
struct TaskValues<'a, D> {
    window: Ns,
    cpu: Ns,
    /// Finished activations.
    done: u64,
    switches: u64,
    preemptions: u64,
    migrations: u64,
    /// Time for which limits held them back.
    throttled: Ns,
    /// How long those that run virtual CPUs waited, and how many these are.
    stolen: (Ns, u32),
    latency: &'a D,
    queue_latency: &'a D,
    wait: &'a D,
    response: &'a D,
    run: &'a D,
}

impl<'a> TaskValues<'a, Distribution> {
    fn simulated(task: &'a TaskMetrics, window: Ns) -> Self {
        TaskValues {
            window,
            cpu: task.cpu_ns,
            done: task.response.count(),
            switches: task.switches,
            preemptions: task.preemptions,
            migrations: task.migrations,
            throttled: task.throttled_ns,
            stolen: (Ns::ZERO, 0),
            latency: &task.wake_latency,
            queue_latency: task.queue_latency(),
            wait: &task.preempt_wait,
            response: &task.response,
            run: &task.run_length,
        }
    }
}

impl<'a> TaskValues<'a, Durations> {
    fn recorded(task: &'a TaskSummary, window: Ns) -> Self {
        TaskValues {
            window,
            cpu: task.run,
            done: task.activations,
            switches: task.switches,
            preemptions: task.preemptions,
            migrations: task.migrations,
            throttled: task.throttled,
            stolen: (task.stolen, task.vcpus),
            latency: &task.wake_latency,
            queue_latency: task.queue_latency(),
            wait: &task.preempt_wait,
            response: &task.response,
            run: &task.run_length,
        }
    }
}

impl<D: Values> TaskValues<'_, D> {
    fn value(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Share => Some(self.cpu.0 as f64 / self.window.0.max(1) as f64),
            Metric::Latency(stat) => self.latency.statistic(stat),
            Metric::QueueLatency(stat) => self.queue_latency.statistic(stat),
            Metric::Wait(stat) => self.wait.statistic(stat),
            Metric::Response(stat) => self.response.statistic(stat),
            Metric::Run(stat) => self.run.statistic(stat),
            Metric::Throughput => rate(self.done, self.window).filter(|_| self.done > 0),
            Metric::Switches => rate(self.switches, self.window),
            Metric::Preemptions => rate(self.preemptions, self.window),
            Metric::Migrations => rate(self.migrations, self.window),
            Metric::Throttled => {
                let all = self.cpu.saturating_add(self.throttled);
                (all > Ns::ZERO).then(|| self.throttled.0 as f64 / all.0 as f64)
            }
            Metric::Steal => {
                let (waited, vcpus) = self.stolen;
                let whole = self.window.0 as f64 * f64::from(vcpus);
                (whole > 0.0).then(|| waited.0 as f64 / whole)
            }
            Metric::Utilisation
            | Metric::IdleWaiting
            | Metric::IdleCapped
            | Metric::IdleLongest => None,
            Metric::Decision | Metric::DecisionWait => None,
            Metric::Delivery(_) | Metric::Commit(_) | Metric::EndToEnd(_) => None,
            Metric::Transactions
            | Metric::FailedTransactions
            | Metric::Messages
            | Metric::Agents => None,
        }
    }
}

/// Returns a count as events a second; `None` when there is no time.
fn rate(count: u64, window: Ns) -> Option<f64> {
    let seconds = window.0 as f64 / 1e9;
    (seconds > 0.0).then(|| count as f64 / seconds)
}

/// Returns what the clients of a source, or those whose requests a channel carries, see.
fn of_client(metric: Metric, response: &Distribution, done: u64, window: Ns) -> Option<f64> {
    match metric {
        Metric::Response(stat) => response.statistic(stat),
        Metric::Throughput => rate(done, window),
        _ => None,
    }
}

impl MachineMetrics {
    /// `None` where decisions are free.
    fn per_decision(&self, time: Ns) -> Option<f64> {
        (self.decisions.calls > 0).then(|| time.0 as f64 / self.decisions.calls as f64)
    }

    fn value(&self, metric: Metric, window: Ns) -> Option<f64> {
        let all = (window.0 * self.cpus.len() as u64).max(1) as f64;
        let idle: Ns = self.cpus.iter().map(|cpu| cpu.idle_ns).sum();
        let switches: u64 = self.cpus.iter().map(|cpu| cpu.switches).sum();
        let agents = self.agents.as_deref();
        match metric {
            Metric::Utilisation => Some(1.0 - idle.0 as f64 / all),
            Metric::IdleWaiting => Some(self.conservation.idle_ns.0 as f64 / all),
            Metric::IdleCapped => Some(self.conservation.capped_idle_ns.0 as f64 / all),
            Metric::IdleLongest => Some(self.conservation.longest_ns.0 as f64),
            Metric::Decision => self.per_decision(self.decisions.cost_ns),
            Metric::DecisionWait => self.per_decision(self.decisions.wait_ns),
            Metric::Switches => rate(switches, window),
            Metric::Delivery(stat) => agents?.delivery.statistic(stat),
            Metric::Commit(stat) => agents?.commit.statistic(stat),
            Metric::EndToEnd(stat) => agents?.end_to_end.statistic(stat),
            Metric::Transactions => rate(agents?.transactions, window),
            Metric::FailedTransactions => rate(agents?.failed_in_all(), window),
            Metric::Messages => rate(agents?.messages, window),
            Metric::Agents => Some(agents?.agents_cpu_ns().0 as f64 / window.0.max(1) as f64),
            Metric::Share
            | Metric::Throttled
            | Metric::Steal
            | Metric::Throughput
            | Metric::Preemptions
            | Metric::Migrations => None,
            Metric::Latency(_)
            | Metric::QueueLatency(_)
            | Metric::Wait(_)
            | Metric::Response(_)
            | Metric::Run(_) => None,
        }
    }
}

/// A distribution that a subject may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// Wakeup to running.
    Latency,
    /// Preempted to running again.
    Wait,
    /// Wakeup (or arrival) to the end of the activation (or request).
    Response,
    /// Uninterrupted time on a CPU.
    Run,
}

impl Quantity {
    /// All of them.
    pub(crate) const ALL: [Quantity; 4] =
        [Quantity::Latency, Quantity::Wait, Quantity::Response, Quantity::Run];
}

impl SubjectData {
    /// The non-empty buckets of a distribution: largest value and count, ascending.
    pub fn buckets(&self, quantity: Quantity) -> Vec<(Ns, u64)> {
        let sim = |values: &Distribution| values.buckets().collect();
        let trace = |values: &Durations| values.buckets().collect();
        match (&self.data, quantity) {
            (Data::Sim(task), Quantity::Latency) => sim(&task.wake_latency),
            (Data::Sim(task), Quantity::Wait) => sim(&task.preempt_wait),
            (Data::Sim(task), Quantity::Response) => sim(&task.response),
            (Data::Sim(task), Quantity::Run) => sim(&task.run_length),
            (Data::Trace(task), Quantity::Latency) => trace(&task.wake_latency),
            (Data::Trace(task), Quantity::Wait) => trace(&task.preempt_wait),
            (Data::Trace(task), Quantity::Response) => trace(&task.response),
            (Data::Trace(task), Quantity::Run) => trace(&task.run_length),
            (Data::Source(source), Quantity::Response) => sim(&source.response),
            (Data::Channel(channel), Quantity::Response) => sim(&channel.response),
            _ => Vec::new(),
        }
    }
}

/// A distribution of times.
trait Values {
    /// Returns a statistic in nanoseconds; `None` of no values.
    fn statistic(&self, stat: Stat) -> Option<f64>;
}

impl Values for Distribution {
    fn statistic(&self, stat: Stat) -> Option<f64> {
        let ns = match stat {
            _ if self.count() == 0 => return None,
            Stat::Min => self.min(),
            Stat::Mean => self.mean(),
            Stat::Mode => self.mode(),
            Stat::Percentile(thousandths) => self.quantile(f64::from(thousandths) / 100_000.0),
            Stat::Max => self.max(),
        };
        Some(ns.0 as f64)
    }
}

impl Values for Durations {
    fn statistic(&self, stat: Stat) -> Option<f64> {
        let ns = match stat {
            _ if self.count() == 0 => return None,
            Stat::Min => self.quantile(0),
            Stat::Mean => self.mean(),
            Stat::Mode => self.buckets().max_by_key(|(_, count)| *count)?.0,
            Stat::Percentile(thousandths) => self.quantile(thousandths * 10),
            Stat::Max => self.max(),
        };
        Some(ns.0 as f64)
    }
}
