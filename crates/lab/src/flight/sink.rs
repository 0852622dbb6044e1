//! What hears the recorder: the ring, the rules and the metrics.

mod in_kernel;

use super::config::{FlightConfig, NamedRule};
use super::findings::Findings;
use super::log::{FlightLine, Level, What};
use super::meters::Meters;
use super::rule::{Figure, Rule};
use super::signals::FlightSignals;
use super::windows::Windows;
use super::writer::{BY_HAND, Job};
use crate::live_follower::LiveFollower;
use crate::record::flight_recorder::FlightRecorder;
use crate::record::stop_watcher::StopWatcher;
use crate::record::{
    BLOCK_EVERY, Caught, RecordProgress, Snapshot, StopConditions, StretchKind, capabilities,
    describe, group_info, task_info,
};
use in_kernel::InKernelPart;
use rustix::time::{ClockId, clock_gettime};
use schedlab_host::in_kernel::Kept;
use schedlab_host::{
    Backend, GroupFacts, RecordSink, RecordStart, RecordingCapabilities, TaskFacts,
};
use schedlab_model::{EventKind, EventSink, Fact, Ns, ObjectId, ObjectInfo, SchedEvent};
use schedlab_trace::{FactLoss, Header, TraceError};
use sd_notify::NotifyState;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Time between two looks at what metrics only read.
const SECOND: Ns = Ns::from_s(1);

/// Time between two lines about lost events.
const MINUTE: Ns = Ns::from_s(60);

/// Where recordings, lines and signals go to and come from.
pub(super) struct Outside<'a> {
    pub(super) file: &'a Path,
    pub(super) jobs: SyncSender<Job>,
    pub(super) log: &'a (dyn Fn(FlightLine) + Sync),
    pub(super) signals: &'a FlightSignals,
    /// Returns what the recordings take.
    pub(super) disk: &'a dyn Fn() -> u64,
}

/// An incident whose recording still goes on.
struct Pending {
    /// The rule's place.
    place: usize,
    caught: Caught,
    due: Ns,
}

/// What is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// What has ended.
    AtEnded,
    /// What lasts, too.
    AtLasting,
}

/// How events come.
pub(super) enum Way {
    /// All of them come here, for this reason.
    Here(String),
    /// The kernel sums up, in so many classes.
    InKernel(usize),
}

/// See the module.
pub(super) struct FlightSink<'a> {
    config: FlightConfig,
    outside: Outside<'a>,
    header: Header,
    flight: FlightRecorder,
    stops: StopWatcher,
    /// By condition of `stops`: its rule's place.
    stretches: Vec<usize>,
    live: LiveFollower<Findings>,
    so_far: RecordProgress,
    fact_loss: FactLoss,
    started: Option<RecordingCapabilities>,
    found: Vec<(usize, Caught)>,
    pending: Option<Pending>,
    /// By name of a rule: when its last recordings began.
    made: BTreeMap<String, VecDeque<Ns>>,
    /// Of which rules it was said that incidents join a recording, or have none.
    said: Vec<(String, What)>,
    packed: Ns,
    /// When that was read which metrics only read.
    read: Option<Ns>,
    counted: (u64, u64),
    lost: Lost,
    heart: Heart,
    failed: Option<TraceError>,
    /// What is to be written.
    jobs: Vec<Job>,
    /// Why events come here; empty where the kernel sums up.
    why_here: String,
    kernel: Option<InKernelPart>,
}

/// The signs of life that systemd wants (WatchdogSec=): from the thread that evaluates rules, which
/// is the one that matters.
struct Heart {
    every: Option<Duration>,
    last: Instant,
}

impl Heart {
    fn new() -> Heart {
        let every = sd_notify::watchdog_enabled().map(|limit| limit / 2);
        Heart { every, last: Instant::now() }
    }

    fn beat(&mut self) {
        if self.every.is_some_and(|every| self.last.elapsed() >= every) {
            self.last = Instant::now();
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        }
    }
}

/// Lost events that a line has told of.
#[derive(Default)]
struct Lost {
    told: u64,
    at: Ns,
}

impl<'a> FlightSink<'a> {
    pub(super) fn new(
        config: FlightConfig,
        meters: Option<Meters>,
        way: Way,
        outside: Outside<'a>,
    ) -> FlightSink<'a> {
        let (why_here, kernel) = match way {
            Way::Here(why) => (why, None),
            Way::InKernel(classes) => (String::new(), Some(InKernelPart::new(classes))),
        };
        let own = std::process::id();
        let (until, stretches) = stretches(&config);
        let findings = Findings::new(windows(&config, own), meters);
        FlightSink {
            header: Header { note: "kept by schedlab flight".to_owned(), ..Header::default() },
            flight: FlightRecorder::new(config.kept(), config.memory.0 as usize),
            stops: StopWatcher::new(&until, own),
            stretches,
            live: LiveFollower::new(findings),
            so_far: RecordProgress::default(),
            fact_loss: FactLoss::default(),
            started: None,
            found: Vec::new(),
            pending: None,
            made: BTreeMap::new(),
            said: Vec::new(),
            packed: Ns::ZERO,
            read: None,
            counted: (0, 0),
            lost: Lost::default(),
            heart: Heart::new(),
            failed: None,
            jobs: Vec::new(),
            why_here,
            kernel,
            config,
            outside,
        }
    }

    fn log(&self, level: Level, what: What, message: String) {
        (self.outside.log)(FlightLine::new(level, what, message));
    }

    /// Keeps the first error of the ring; the next `flush` reports it.
    fn keep(&mut self, result: Result<(), TraceError>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
    }

    /// Takes what met a rule.
    fn incident(&mut self, place: usize, caught: Caught) {
        let now = self.so_far.at;
        let Some(rule) = self.config.rules.get(place) else { return };
        let (name, rate) = (rule.name.clone(), rule.at_most);
        let made = self.made.entry(name.clone()).or_default();
        while made.front().is_some_and(|&at| now.saturating_sub(at) >= rate.within) {
            made.pop_front();
            self.said.retain(|said| *said != (name.clone(), What::Suppressed));
        }
        let what = match made.len() >= rate.count {
            _ if self.pending.is_some() => What::Joined,
            true => What::Suppressed,
            false => What::Incident,
        };
        if let Some(meters) = &self.live.listener().meters {
            meters.incident(&name, what == What::Suppressed);
        }
        let message = match what {
            What::Incident => caught.to_string(),
            What::Joined => format!("{caught}; the recording under way has it"),
            _ => format!(
                "{caught}; no recording of it nor of the next ones: at most {} in {}",
                rate.count, rate.within
            ),
        };
        // Of a storm one line says enough.
        let said = (name.clone(), what);
        let is_new = !self.said.contains(&said);
        if is_new {
            let line = FlightLine::new(Level::Info, what, message).of_rule(&name);
            (self.outside.log)(FlightLine { incident: Some(caught.since(Ns::ZERO)), ..line });
        }
        if what != What::Incident {
            if is_new {
                self.said.push(said);
            }
            return;
        }
        self.said.retain(|(_, what)| *what != What::Joined);
        self.made.entry(name).or_default().push_back(now);
        let due = now.saturating_add(self.config.after);
        self.pending = Some(Pending { place, caught, due });
    }

    /// Hands the recording of an incident on, when the time after it is over or recording ends.
    fn hand_on(&mut self, at_once: bool) {
        let now = self.so_far.at;
        let due = |pending: &mut Pending| at_once || pending.due <= now;
        let Some(Pending { place, caught, .. }) = self.pending.take_if(due) else { return };
        let rule = self.config.rules.get(place);
        let name = rule.map_or_else(|| BY_HAND.to_owned(), |rule| rule.name.clone());
        let run = rule.and_then(|rule| rule.run.clone()).or_else(|| self.config.run.clone());
        self.write(name, Some(caught), run);
    }

    /// Has the ring written.
    fn write(&mut self, rule: String, caught: Option<Caught>, run: Option<Vec<String>>) {
        let packed = self.flight.pack();
        self.keep(packed);
        let found = self.started.as_ref();
        let (backend, system_wide) =
            found.map_or((Backend::Bpf, false), |found| (found.backend, found.system_wide));
        let snapshot = Snapshot {
            flight: self.flight.clone(),
            header: self.header.clone(),
            caught,
            end: self.so_far.so_far(self.fact_loss.lost),
            cpu_time: None,
            backend,
            system_wide,
            fact_loss: self.fact_loss.clone(),
        };
        let (max_total, run_timeout) = (self.config.max_total.0, self.config.run_timeout);
        self.jobs.push(Job { snapshot, kept: None, rule, max_total, run, run_timeout });
    }

    /// Hands on what is to be written; `kept` returns what is kept elsewhere.
    fn send(&mut self, kept: Option<&dyn Fn() -> Kept>) {
        for job in std::mem::take(&mut self.jobs) {
            let rule = job.rule.clone();
            let job = Job { kept: kept.map(|kept| kept()), ..job };
            if self.outside.jobs.try_send(job).is_err() {
                let message = "earlier recordings are still being written: this one is left out";
                let line = FlightLine::new(Level::Error, What::NotWritten, message.to_owned());
                (self.outside.log)(line.of_rule(&rule));
            }
        }
    }

    /// Returns why a backend that does not see wakeups is not enough for the rules.
    fn unseen(&self) -> Option<String> {
        let rules = self.config.rules.iter();
        let blocks = |rule: &&NamedRule| match &rule.when {
            Rule::Stretch(condition) => condition.measure == StretchKind::Block,
            Rule::Window(_) => false,
        };
        rules.filter(blocks).map(|rule| {
            format!(
                "rule `{}`: how long a task was blocked is seen only where wakeups are (backends \
                 bpf and tracepoints; `schedlab doctor` says what they lack here)",
                rule.name
            )
        }).next()
    }

    /// Writes what was found last: recording ends.
    pub(super) fn end(&mut self) {
        self.look(Look::AtEnded);
        self.hand_on(true);
        self.send(None);
    }

    /// Looks whether a rule is met. What comes after a recording was due is not in it.
    fn look(&mut self, look: Look) {
        self.hand_on(false);
        let now = self.so_far.at;
        if look == Look::AtLasting {
            self.stops.look(now);
        }
        if let Some((condition, caught)) = self.stops.take() {
            self.found.push((self.stretches[condition], caught));
        }
        let findings = self.live.listener();
        let mut found = findings.windows.look(now);
        found.append(&mut findings.caught);
        found.append(&mut self.found);
        for (place, caught) in found {
            self.incident(place, caught);
        }
    }

    /// Reads the file again.
    fn reload(&mut self) {
        let new = match FlightConfig::open(self.outside.file) {
            Ok(new) => new,
            Err(error) => {
                let message = format!("{error}; the old rules hold");
                return self.log(Level::Error, What::NotReloaded, message);
            }
        };
        if let Some(why) = self.needs_events(&new) {
            let message = format!("{why}: a restart is needed; the old rules hold");
            return self.log(Level::Error, What::NotReloaded, message);
        }
        let fixed = self.config.fixed_differences(&new);
        let message = counted(new.rules.len());
        let (level, message) = match fixed.is_empty() {
            true => (Level::Info, message),
            false => {
                (Level::Warning, format!("{message}; a restart is needed for {}", fixed.join(", ")))
            }
        };
        let own = std::process::id();
        let (until, stretches) = stretches(&new);
        self.stops.set(&until);
        self.stretches = stretches;
        self.live.listener().set(windows(&new, own));
        self.kernel.iter_mut().for_each(InKernelPart::rules_are_new);
        // An incident under way is of a rule that may be gone.
        self.hand_on(true);
        self.said.clear();
        let FlightConfig { rules, after, max_total, run, run_timeout, .. } = new;
        self.config =
            FlightConfig { rules, after, max_total, run, run_timeout, ..self.config.clone() };
        self.log(level, What::Reloaded, message);
    }

    /// Returns why the rules of a file need events here, where the kernel sums up.
    fn needs_events(&self, new: &FlightConfig) -> Option<String> {
        let limits = self.started.as_ref().is_some_and(|started| started.limits);
        self.kernel.as_ref().and_then(|_| why_here(&new.rules, limits))
    }

    fn heed_signals(&mut self) {
        if self.outside.signals.take_write() {
            self.write(BY_HAND.to_owned(), None, None);
        }
        if self.outside.signals.take_reload() {
            let reloading = NotifyState::monotonic_usec_now();
            let _ = reloading.and_then(|now| sd_notify::notify(&[NotifyState::Reloading, now]));
            self.reload();
            let _ = sd_notify::notify(&[NotifyState::Ready]);
        }
    }

    /// Notes what is recorded, and says so.
    fn started(&mut self, start: &RecordStart, way: &str) -> io::Result<()> {
        if let Some(unseen) = self.unseen().filter(|_| !start.capabilities.wakeups) {
            return Err(io::Error::other(unseen));
        }
        self.started = Some(start.capabilities.clone());
        describe(&mut self.header, start);
        let header = &mut self.live.listener().header;
        header.topology = start.machine.topology.clone();
        header.capabilities = capabilities(&start.capabilities);
        let by = start.capabilities.backend.name();
        let rules = counted(self.config.rules.len());
        let ring = self.config.ring;
        let message = format!("recording by {by}, {rules}, the last {ring} in memory; {way}");
        self.log(Level::Info, What::Started, message);
        // Without systemd it is not heard.
        let _ = sd_notify::notify(&[NotifyState::Ready]);
        Ok(())
    }

    /// Counts for the metrics, and tells of lost events.
    fn account(&mut self) {
        let (events, lost) = (self.so_far.events, self.so_far.lost);
        let new = (events - self.counted.0, lost - self.counted.1);
        self.counted = (events, lost);
        let due = self.read.is_none_or(|at| self.so_far.at.saturating_sub(at) >= SECOND);
        let disk = self.outside.disk;
        if let Some(meters) = &self.live.listener().meters {
            meters.seen(new.0, new.1);
            if due {
                meters.read(own_cpu(), schedlab_host::stolen(), disk());
            }
        }
        if due {
            self.read = Some(self.so_far.at);
        }
        let quiet = self.so_far.at.saturating_sub(self.lost.at) < MINUTE && self.lost.told > 0;
        if lost > self.lost.told && !quiet {
            let message = format!(
                "{} events were lost: the kernel had no room for them",
                lost - self.lost.told
            );
            self.lost = Lost { told: lost, at: self.so_far.at };
            self.log(Level::Warning, What::Lost, message);
        }
    }
}

/// Returns so many rules, in words.
fn counted(rules: usize) -> String {
    if rules == 1 { "1 rule".to_owned() } else { format!("{rules} rules") }
}

/// Rules about percentiles that the kernel's sums tell apart.
const MOST_WINDOWS: usize = 64;

/// Returns why rules need every event here: `limits` says whether the kernel tells what limits
/// take.
pub(super) fn why_here(rules: &[NamedRule], limits: bool) -> Option<String> {
    let windows = rules.iter().filter_map(|rule| match &rule.when {
        Rule::Window(window) => Some((&rule.name, window.figure)),
        Rule::Stretch(_) => None,
    });
    if windows.clone().count() > MOST_WINDOWS {
        return Some(format!(
            "there are more than {MOST_WINDOWS} rules about percentiles and throttling"
        ));
    }
    let throttled = windows.filter(|(_, figure)| *figure == Figure::Throttled);
    throttled
        .filter(|_| !limits)
        .map(|(name, _)| {
            format!(
                "rule `{name}` is about what limits take, which the kernel says from Linux 6.18 on"
            )
        })
        .next()
}

/// Returns the conditions about one stretch, and the places of their rules.
fn stretches(config: &FlightConfig) -> (StopConditions, Vec<usize>) {
    let of = |(place, rule): (usize, &NamedRule)| match &rule.when {
        Rule::Stretch(condition) => Some((condition.clone(), place)),
        Rule::Window(_) => None,
    };
    let (conditions, places) = config.rules.iter().enumerate().filter_map(of).unzip();
    (StopConditions(conditions), places)
}

fn windows(config: &FlightConfig, own_process: u32) -> Windows {
    Windows::new(&config.rules.iter().map(|rule| &rule.when).collect::<Vec<_>>(), own_process)
}

/// Returns the CPU time of this process.
pub(crate) fn own_cpu() -> Ns {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Ns(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

impl EventSink for FlightSink<'_> {
    fn event(&mut self, event: &SchedEvent) {
        self.so_far.at = event.at;
        self.so_far.events += 1;
        if let EventKind::Lost { count } = event.kind {
            self.so_far.lost += count;
        }
        self.stops.event(event);
        if let Some((condition, caught)) = self.stops.take() {
            self.found.push((self.stretches[condition], caught));
        }
        self.live.event(event);
        let packed = self.flight.event(event);
        self.keep(packed);
    }

    fn fact(&mut self, fact: &Fact) {
        self.so_far.at = fact.at;
        self.so_far.facts += 1;
        self.fact_loss.count(fact);
        let packed = self.flight.fact(fact);
        self.keep(packed);
    }
}

impl RecordSink for FlightSink<'_> {
    fn start(&mut self, start: &RecordStart) -> io::Result<()> {
        let way = format!("each event is looked at here, because {}", self.why_here);
        self.started(start, &way)
    }

    fn group(&mut self, group: &GroupFacts) {
        let info = group_info(group);
        self.stops.group(group.id, &info);
        self.flight.group(info.clone());
        self.live.group(group.id, info);
    }

    fn task(&mut self, task: &TaskFacts) {
        let info = task_info(task);
        self.stops.task(task.id, &info, task.stand_in);
        self.flight.task(task.id, info.clone());
        self.live.meet(task.id, info);
    }

    fn object(&mut self, id: ObjectId, object: &ObjectInfo) {
        self.flight.object(id, object.clone());
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.so_far.at.saturating_sub(self.packed) >= BLOCK_EVERY {
            self.packed = self.so_far.at;
            let packed = self.flight.pack();
            self.keep(packed);
        }
        if let Some(error) = self.failed.take() {
            return Err(io::Error::other(error.to_string()));
        }
        self.live.forget_ended();
        self.look(Look::AtLasting);
        self.hand_on(false);
        self.heed_signals();
        self.account();
        self.heart.beat();
        self.send(None);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
