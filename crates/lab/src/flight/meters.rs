//! The metrics of a running flight recorder, in a registry of the Prometheus client library. The
//! number of series is bounded, however many tasks come and go.

use super::classes::Counted;
use super::config::{FlightConfig, label};
use super::waits::Waits;
use prometheus_client::metrics::counter::{Atomic, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use schedlab_model::{Ns, TaskId};
use schedlab_trace::analysis::{By, line_name};
use schedlab_trace::{Header, TaskInfo};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The name of all that have no series of their own.
pub(super) const OTHERS: &str = "(others)";

/// A series that was silent for so long makes room for another.
const SILENT: Ns = Ns::from_s(600);

/// Pairs of who waited and who ran meanwhile, for each series; all further ones count as
/// [`OTHERS`]. Ten culprits of a server tell what delays it; the square of all would not be bounded
/// by anything that a user has chosen.
const CULPRITS: usize = 10;

type Labels = Vec<(&'static str, String)>;
type Seconds = Counter<f64, Nanoseconds>;

/// A sum of times, which the recorder's thread alone adds to: no addition is lost without a lock on
/// the bus for each of some hundred thousand a second, and none is rounded.
#[derive(Debug, Default)]
struct Nanoseconds(AtomicU64);

impl Nanoseconds {
    fn add(&self, time: Ns) {
        self.0.store(self.0.load(Ordering::Relaxed).saturating_add(time.0), Ordering::Relaxed);
    }

    /// Sets a sum that is read elsewhere; it never becomes less.
    fn set(&self, time: Ns) {
        self.0.fetch_max(time.0, Ordering::Relaxed);
    }
}

impl Atomic<f64> for Nanoseconds {
    fn inc(&self) -> f64 {
        self.inc_by(1.0)
    }

    fn inc_by(&self, by: f64) -> f64 {
        let before = self.get();
        self.add(Ns((by * 1e9) as u64));
        before
    }

    fn get(&self) -> f64 {
        seconds(Ns(self.0.load(Ordering::Relaxed)))
    }
}

/// See the module. Copies of what is in the registry are updated by the recorder's thread.
pub(crate) struct Meters {
    by: By,
    most: usize,
    waits: Family<Labels, Waits>,
    run: Family<Labels, Seconds>,
    throttled: Family<Labels, Seconds>,
    delays: Family<Labels, Seconds>,
    /// By series that waited: which series ran meanwhile, [`CULPRITS`] and those of [`OTHERS`].
    pairs: Vec<Vec<(usize, Seconds)>>,
    incidents: Family<Labels, Counter>,
    suppressed: Family<Labels, Counter>,
    events: Counter,
    lost: Counter,
    own: Seconds,
    stolen: Seconds,
    disk: Gauge,
    series: Vec<Series>,
    places: BTreeMap<String, usize>,
    /// By place of a task: its series, once it had one.
    of_task: Vec<Option<usize>>,
}

/// What is counted of one name.
struct Series {
    name: String,
    waits: Waits,
    run: Seconds,
    throttled: Seconds,
    used: Ns,
}

impl Meters {
    /// Returns the metrics, and the registry that shows them.
    pub(super) fn new(config: &FlightConfig) -> (Meters, Registry) {
        let meters = Meters::of(config.by.by(), config.series);
        let mut registry = meters.registry();
        meters.register_incidents(&mut registry);
        (meters, registry)
    }

    /// Returns those of a live view, which has no rules: by `by`, with series for so many names.
    pub(crate) fn of_view(by: By, most: usize) -> (Meters, Registry) {
        let meters = Meters::of(by, most);
        let registry = meters.registry();
        (meters, registry)
    }

    fn of(by: By, most: usize) -> Meters {
        Meters {
            by,
            most,
            waits: Family::default(),
            run: Family::default(),
            throttled: Family::default(),
            delays: Family::default(),
            pairs: Vec::new(),
            incidents: Family::default(),
            suppressed: Family::default(),
            events: Counter::default(),
            lost: Counter::default(),
            own: Counter::default(),
            stolen: Counter::default(),
            disk: Gauge::default(),
            series: Vec::new(),
            places: BTreeMap::new(),
            of_task: Vec::new(),
        }
    }

    fn registry(&self) -> Registry {
        let mut all = Registry::with_prefix("schedlab");
        let seconds = || Unit::Seconds;
        let waits = "Waits for a CPU, from a wakeup or a preemption to running";
        all.register_with_unit("wait", waits, seconds(), self.waits.clone());
        all.register_with_unit("run", "CPU time", seconds(), self.run.clone());
        let throttled = "Time for which cpu.max or a real-time limit held waits up";
        all.register_with_unit("throttled", throttled, seconds(), self.throttled.clone());
        let delays = "Time for which a culprit ran on the CPU for which a task waited";
        all.register_with_unit("delay", delays, seconds(), self.delays.clone());
        all.register("events", "Scheduling events that were seen", self.events.clone());
        let lost = "Scheduling events for which the kernel had no room";
        all.register("events_lost", lost, self.lost.clone());
        all.register_with_unit("own_cpu", "CPU time of schedlab", seconds(), self.own.clone());
        let stolen = "CPU time that a hypervisor gave to others, all CPUs together";
        all.register_with_unit("stolen", stolen, seconds(), self.stolen.clone());
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        all.register("build", "The program", Info::new(version));
        all
    }

    fn register_incidents(&self, all: &mut Registry) {
        all.register("incidents", "Incidents of a rule", self.incidents.clone());
        let suppressed = "Incidents that at-most left without a recording";
        all.register("incidents_suppressed", suppressed, self.suppressed.clone());
        let disk = "What the recordings of incidents take";
        all.register_with_unit("recordings", disk, Unit::Bytes, self.disk.clone());
    }

    /// Returns the labels of a name.
    fn labels(&self, name: &str) -> Labels {
        vec![(label(self.by), name.to_owned())]
    }

    /// Notes that the task at a place is another one, or in another group.
    pub(crate) fn met(&mut self, slot: TaskId) {
        if let Some(known) = self.of_task.get_mut(slot.index()) {
            *known = None;
        }
    }

    /// Returns the series of a task.
    fn series_of(&mut self, task: TaskId, header: &Header, now: Ns) -> usize {
        if let Some(Some(at)) = self.of_task.get(task.index()) {
            return *at;
        }
        let name = name_of(self.by, task, header);
        let at = self.series_named(name, now);
        if task.index() >= self.of_task.len() {
            self.of_task.resize(task.index() + 1, None);
        }
        self.of_task[task.index()] = Some(at);
        at
    }

    /// Counts what the tasks of one name did; `name` says whose the others are that ran meanwhile.
    pub(super) fn counted<'a>(
        &mut self,
        counted: &Counted<'_>,
        now: Ns,
        name: impl Fn(u32) -> &'a str,
    ) {
        let at = self.series_named(counted.name.to_owned(), now);
        let (series, sums) = (&mut self.series[at], &counted.sums);
        series.used = now;
        series.run.inner().add(sums.ran);
        series.waits.add(sums.waited, &sums.counts);
        series.throttled.inner().add(sums.throttled);
        let culprits = sums.culprits.iter().map(|&(who, time)| (name(who), time));
        let others = (OTHERS, sums.by_others);
        for (ran, time) in culprits.chain([others]).filter(|(_, time)| *time > Ns::ZERO) {
            let ran = self.series_named(ran.to_owned(), now);
            self.delayed_by(at, ran, time, now);
        }
    }

    /// Returns the series of a name: its own, where there is one or room for one.
    fn series_named(&mut self, name: String, now: Ns) -> usize {
        if let Some(&at) = self.places.get(&name) {
            return at;
        }
        if name == OTHERS || self.places.len() < self.most {
            return self.add(name, self.series.len(), now);
        }
        let silent = self
            .series
            .iter()
            .enumerate()
            .filter(|(_, series)| series.name != OTHERS && now.saturating_sub(series.used) > SILENT)
            .min_by_key(|(at, series)| (series.used, *at))
            .map(|(at, _)| at);
        match silent {
            Some(at) => {
                self.forget(at);
                self.add(name, at, now)
            }
            None => self.series_named(OTHERS.to_owned(), now),
        }
    }

    fn add(&mut self, name: String, at: usize, now: Ns) -> usize {
        let labels = self.labels(&name);
        let series = Series {
            waits: self.waits.get_or_create_owned(&labels),
            run: self.run.get_or_create_owned(&labels),
            throttled: self.throttled.get_or_create_owned(&labels),
            name: name.clone(),
            used: now,
        };
        match self.series.get_mut(at) {
            Some(place) => *place = series,
            None => self.series.push(series),
        }
        self.places.insert(name, at);
        at
    }

    /// Takes the series at a place out of what is served.
    fn forget(&mut self, at: usize) {
        let labels = self.labels(&self.series[at].name);
        self.waits.remove(&labels);
        self.run.remove(&labels);
        self.throttled.remove(&labels);
        self.places.remove(&self.series[at].name);
        self.of_task.iter_mut().filter(|of| **of == Some(at)).for_each(|of| *of = None);
        let mut gone = Vec::new();
        for (waited, pairs) in self.pairs.iter_mut().enumerate() {
            pairs.retain(|&(ran, _)| {
                let stays = waited != at && ran != at;
                if !stays {
                    gone.push((waited, ran));
                }
                stays
            });
        }
        for (waited, ran) in gone {
            let labels = self.pair(&self.series[waited].name, &self.series[ran].name);
            self.delays.remove(&labels);
        }
    }

    fn pair(&self, waited: &str, ran: &str) -> Labels {
        vec![(label(self.by), waited.to_owned()), ("culprit", ran.to_owned())]
    }

    /// Counts CPU time of a task.
    pub(crate) fn ran(&mut self, task: TaskId, header: &Header, time: Ns, now: Ns) {
        let at = self.series_of(task, header, now);
        self.series[at].used = now;
        self.series[at].run.inner().add(time);
    }

    /// Counts a wait, and for how long a limit held it up.
    pub(crate) fn waited(
        &mut self,
        (task, header): (TaskId, &Header),
        (length, throttled): (Ns, Ns),
        now: Ns,
    ) {
        let at = self.series_of(task, header, now);
        let series = &mut self.series[at];
        series.used = now;
        series.waits.observe(length);
        if throttled > Ns::ZERO {
            series.throttled.inner().add(throttled);
        }
    }

    /// Counts for how long a task ran while another waited.
    pub(crate) fn delayed(
        &mut self,
        (waited, ran): (TaskId, TaskId),
        header: &Header,
        time: Ns,
        now: Ns,
    ) {
        let waited = self.series_of(waited, header, now);
        let ran = self.series_of(ran, header, now);
        self.delayed_by(waited, ran, time, now);
    }

    fn delayed_by(&mut self, waited: usize, mut ran: usize, time: Ns, now: Ns) {
        if self.delay(waited, ran, time) {
            return;
        }
        if self.pairs.get(waited).is_some_and(|pairs| pairs.len() >= CULPRITS) {
            ran = self.series_named(OTHERS.to_owned(), now);
            if self.delay(waited, ran, time) {
                return;
            }
        }
        let labels = self.pair(&self.series[waited].name, &self.series[ran].name);
        let new = self.delays.get_or_create_owned(&labels);
        new.inner().add(time);
        if waited >= self.pairs.len() {
            self.pairs.resize_with(waited + 1, Vec::new);
        }
        self.pairs[waited].push((ran, new));
    }

    /// Adds to the time of a pair of series, if it is counted already.
    fn delay(&self, waited: usize, ran: usize, time: Ns) -> bool {
        let pairs = self.pairs.get(waited).map_or(&[][..], Vec::as_slice);
        let seen = pairs.iter().find(|(other, _)| *other == ran);
        seen.iter().for_each(|(_, sum)| sum.inner().add(time));
        seen.is_some()
    }

    /// Counts an incident of a rule, and whether it has no recording because of `at-most`.
    pub(super) fn incident(&self, rule: &str, suppressed: bool) {
        let labels = vec![("rule", rule.to_owned())];
        self.incidents.get_or_create_owned(&labels).inc();
        if suppressed {
            self.suppressed.get_or_create_owned(&labels).inc();
        }
    }

    /// Counts what the recorder has seen since the last time.
    pub(crate) fn seen(&self, events: u64, lost: u64) {
        self.events.inc_by(events);
        self.lost.inc_by(lost);
    }

    /// Sets what is read rather than counted: own CPU time and stolen time so far, and what
    /// recordings take.
    pub(crate) fn read(&self, own: Ns, stolen: Ns, disk: u64) {
        self.own.inner().set(own);
        self.stolen.inner().set(stolen);
        self.disk.set(i64::try_from(disk).unwrap_or(i64::MAX));
    }
}

/// Returns the name under which the task at a place counts.
pub(crate) fn name_of(by: By, task: TaskId, header: &Header) -> String {
    let name = |info: &TaskInfo| {
        let leader = |pid: u32| {
            let leader = header.tasks.iter().find(|task| task.tid == pid);
            leader.map(|task| task.comm.as_str())
        };
        line_name(header, info, by, leader).unwrap_or_else(|| info.comm.clone())
    };
    header.tasks.get(task.index()).map_or_else(|| "?".to_owned(), name)
}

fn seconds(time: Ns) -> f64 {
    time.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use schedlab_host::in_kernel::BUCKETS;

    fn config(series: usize) -> FlightConfig {
        let text = format!("by = 'command'\nseries = {series}\nmetrics = '127.0.0.1:9920'");
        toml::from_str(&text).unwrap()
    }

    fn header(names: &[&str]) -> Header {
        let task =
            |(at, name): (usize, &&str)| TaskInfo::unknown(at as u32 + 1, at as u32 + 1, *name);
        Header { tasks: names.iter().enumerate().map(task).collect(), ..Header::default() }
    }

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn what_happened_is_in_the_text() {
        let (mut meters, registry) = Meters::new(&config(10));
        let header = header(&["redis", "batch"]);
        let (redis, batch) = (TaskId(0), TaskId(1));
        meters.ran(redis, &header, Ns::from_ms(250), Ns::from_s(1));
        meters.waited((redis, &header), (Ns::from_ms(5), Ns::ZERO), Ns::from_s(1));
        meters.delayed((redis, batch), &header, Ns::from_ms(4), Ns::from_s(1));
        meters.incident("slow", false);
        meters.incident("slow", true);
        meters.seen(7, 2);
        meters.read(Ns::from_ms(1500), Ns::ZERO, 77);
        let text = text(&registry);
        for line in [
            "schedlab_run_seconds_total{command=\"redis\"} 0.25",
            "schedlab_wait_seconds_count{command=\"redis\"} 1",
            "schedlab_wait_seconds_bucket{le=\"0.004096\",command=\"redis\"} 0",
            "schedlab_wait_seconds_bucket{le=\"0.008192\",command=\"redis\"} 1",
            "schedlab_delay_seconds_total{command=\"redis\",culprit=\"batch\"} 0.004",
            "schedlab_incidents_total{rule=\"slow\"} 2",
            "schedlab_incidents_suppressed_total{rule=\"slow\"} 1",
            "schedlab_events_total 7",
            "schedlab_events_lost_total 2",
            "schedlab_own_cpu_seconds_total 1.5",
            "schedlab_recordings_bytes 77",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    /// In protobuf a histogram is native, too, and has no more buckets than it may.
    #[test]
    fn a_histogram_is_native_in_protobuf() {
        use prometheus_client::encoding::prometheus_protobuf::encode;
        let (mut meters, registry) = Meters::new(&config(10));
        let header = header(&["redis"]);
        for us in 1..100_000 {
            let times = (Ns::from_us(us * us), Ns::ZERO);
            meters.waited((TaskId(0), &header), times, Ns::from_s(1));
        }
        let families = encode(&registry).unwrap();
        let waits = families.iter().find(|family| family.name == "schedlab_wait_seconds").unwrap();
        let histogram = waits.metric[0].histogram.as_ref().unwrap();
        assert_eq!(histogram.sample_count, 99_999);
        assert!(!histogram.bucket.is_empty(), "classic, too");
        let spans: u32 = histogram.positive_span.iter().map(|span| span.length).sum();
        assert!(spans > 20 && spans as usize <= BUCKETS, "{spans}");
        assert_eq!(histogram.positive_delta.len(), spans as usize);
        assert_eq!(histogram.schema, 3);
    }

    /// However many names come, so many series there are; a silent one makes room.
    #[test]
    fn series_are_bounded_and_silent_ones_make_room() {
        let (mut meters, registry) = Meters::new(&config(3));
        let names: Vec<String> = (0..50).map(|n| format!("job-{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let header = header(&names);
        for at in 0..50 {
            meters.ran(TaskId(at), &header, Ns::from_ms(1), Ns::from_s(1));
            meters.delayed((TaskId(0), TaskId(at)), &header, Ns::from_ms(1), Ns::from_s(1));
        }
        let lines = |text: &str, begin: &str| {
            text.lines().filter(|line| line.starts_with(begin)).map(str::to_owned).collect()
        };
        let run: Vec<String> = lines(&text(&registry), "schedlab_run_seconds_total");
        assert_eq!(run.len(), 4, "{run:?}");
        assert!(run.iter().any(|line| line.contains("(others)\"} 0.047")), "{run:?}");
        let late = Ns::from_s(1).saturating_add(SILENT).saturating_add(Ns(1));
        meters.ran(TaskId(0), &header, Ns::from_ms(1), late);
        meters.met(TaskId(40));
        meters.ran(TaskId(40), &header, Ns::from_ms(1), late);
        let run: Vec<String> = lines(&text(&registry), "schedlab_run_seconds_total");
        assert_eq!(run.len(), 4, "{run:?}");
        assert!(run.iter().any(|line| line.contains("job-40")), "{run:?}");
        assert!(!run.iter().any(|line| line.contains("job-1\"")), "{run:?}");
        let delays: Vec<String> = lines(&text(&registry), "schedlab_delay_seconds_total");
        assert!(delays.len() <= 3, "{delays:?}");
    }
}
