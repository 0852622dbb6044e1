//! What is in an input: its programs and groups, which of them waited for which, and its schedule.

use super::SCHEMA;
pub use super::looked::Look;
use super::looked::{AT_ONCE, Looked, Numbers, waits};
use crate::StudyError;
use crate::compare::recorded_scheduler;
use crate::measurements::{Kind, SubjectData};
use crate::metric::{Metric, Stat};
use crate::page::recording::{lanes, longest, summed_schedule};
use crate::result::InputKind;
use crate::scenario::Scenario;
use crate::serve::Guess;
use crate::show::{ShownServer, sentences};
use schedlab_model::{Ns, TaskId};
use schedlab_report::{LaneWait, Lanes};
use schedlab_scheduler::SchedulerSpec;
use schedlab_scheduler::registry::Family;
use schedlab_trace::analysis::blame::{Blame, Culprit};
use schedlab_trace::analysis::worst::Worst;
use schedlab_trace::analysis::{Analysis, Answer, Label, Scope};
use schedlab_trace::{Header, Recording};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// What can be opened.
#[derive(Clone, PartialEq, Debug, Default, JsonSchema, Serialize)]
pub struct InputsOutput {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// Files: those whose longest wait is known first, the worst before the others.
    pub files: Vec<ListedInput>,
    /// Whether every file has been looked at.
    pub complete: bool,
    /// The input that the user named alone; missing: none, or several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// The server that the user named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serve: Option<String>,
    /// The scenarios of the gallery.
    pub gallery: Vec<ListedInput>,
    /// Whether the machine is watched: `schedlab ui --live`.
    pub live: bool,
}

/// Something that can be opened.
#[derive(Clone, PartialEq, Debug, Default, JsonSchema, Serialize)]
pub struct ListedInput {
    /// What it is called in addresses.
    pub id: String,
    /// Its name: a file, or a scenario.
    pub name: String,
    /// One line about it; of a recording what was waited for.
    pub about: String,
    /// The longest wait in it; missing where none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_wait_ns: Option<u64>,
}

/// What is in an input, or in a part of it.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Overview {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// What it is called in addresses.
    pub id: String,
    /// Its name, as `schedlab compare` takes it.
    pub name: String,
    /// A recording, or a scenario whose first seed was simulated.
    pub kind: InputKind,
    /// One line about it.
    pub title: String,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Events in it.
    pub events: usize,
    /// Its length.
    pub duration_ns: u64,
    /// Beginning and end of the part that the numbers are of.
    pub part_ns: [u64; 2],
    /// Release of the recorded kernel; empty for a scenario.
    pub kernel: String,
    /// The scheduler of the unchanged row, with its knobs; empty where no scheduler models the
    /// kernel.
    pub scheduler: String,
    /// What it says of waiting, in sentences.
    pub answer: String,
    /// The program that waited, and the one that ran meanwhile, of which the answer speaks;
    /// missing: none waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited: Option<[String; 2]>,
    /// The server that the numbers are about; missing: none was named or found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// How the server was found, where none was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guess: Option<String>,
    /// Programs, the server first, then those that used most CPU time; 100 at most.
    pub programs: Vec<ProgramOutput>,
    /// How many more there are: `/programs` has all.
    pub more_programs: usize,
    /// Whether they are not counted yet: the same without `programs=later` has them.
    pub programs_follow: bool,
    /// Control groups, or domains of Xen, without the root.
    pub groups: Vec<GroupOutput>,
    /// Names of the sources of requests, of a scenario.
    pub sources: Vec<String>,
    /// The longest waits: of the server, if it waited; else of the program of which the answer
    /// speaks, if it has some of them.
    pub waits: Vec<WaitOutput>,
    /// The program whose waits these are; missing: they are of any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_of: Option<String>,
}

/// All programs of an input, or of a part of it.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct ProgramsOutput {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// In the order of [`Overview::programs`].
    pub programs: Vec<ProgramOutput>,
}

/// All tasks of a name.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct ProgramOutput {
    /// The name.
    pub name: String,
    /// How many tasks.
    pub tasks: usize,
    /// CPU time, in parts of one CPU.
    pub share: f64,
    /// Time for which its tasks waited for a CPU.
    pub waited_ns: u64,
    /// Median time from a wakeup to running; missing without wakeups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_p50_ns: Option<f64>,
    /// 99th percentile of the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_p99_ns: Option<f64>,
    /// Programs that were on the CPU meanwhile, and for which part of the waiting: the largest
    /// first.
    pub behind: Vec<(String, f64)>,
    /// Whether it is the server.
    pub serves: bool,
    /// Policies of its tasks, as a variant has them.
    pub policies: Vec<String>,
    /// Smallest and largest nice value.
    pub nice: [i8; 2],
    /// CPUs on which its first task may run; empty: all.
    pub cpus: String,
    /// Groups of its tasks.
    pub groups: Vec<String>,
}

/// A control group, or a domain of Xen.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct GroupOutput {
    /// Its path.
    pub name: String,
    /// `cpu.weight`, or Xen's weight; missing: the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Its limit in per cent of one CPU; missing: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_percent: Option<f64>,
}

/// A wait.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct WaitOutput {
    /// The CPU on which the task then ran.
    pub cpu: u32,
    /// When it began.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// Which task waited how long.
    pub head: String,
    /// Where, why, and what ran meanwhile.
    pub text: String,
}

impl From<LaneWait> for WaitOutput {
    fn from(wait: LaneWait) -> WaitOutput {
        let LaneWait { run: _, cpu, from, to, head, text } = wait;
        WaitOutput { cpu: cpu.0, from_ns: from.0, to_ns: to.0, head, text }
    }
}

/// An input that is open: a recording, or the simulated events of a scenario's first seed.
pub struct Opened {
    /// What it is called in addresses.
    pub id: String,
    /// Its name, as `schedlab compare` takes it.
    pub name: String,
    /// The events.
    pub recording: Recording,
    /// Where the events are simulated: the scenario.
    pub scenario: Option<Box<Scenario>>,
    /// What was looked at last: numbers and lanes come from one pass over the events.
    last: Mutex<Option<Arc<Looked>>>,
}

impl Opened {
    /// Opens an input; `id` is what it is called in addresses.
    pub fn new(
        id: String,
        name: String,
        recording: Recording,
        scenario: Option<Box<Scenario>>,
    ) -> Opened {
        Opened { id, name, recording, scenario, last: Mutex::default() }
    }

    /// Looks, unless the last look was the same. Of two that look at once one waits for the other.
    fn looked(&self, look: &Look) -> Result<Arc<Looked>, StudyError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = last.as_ref().filter(|known| known.look == *look) {
            return Ok(known.clone());
        }
        let scenario = self.scenario.as_deref();
        let looked = Arc::new(Looked::new(&self.recording, &self.name, scenario, look)?);
        *last = Some(looked.clone());
        Ok(looked)
    }

    /// Returns what the look is at, and the server.
    pub(super) fn scope(&self, look: &Look) -> Result<(Scope, Option<ShownServer>), StudyError> {
        look.scope(&self.recording, self.scenario.as_deref())
    }

    /// Returns the schedule as a page's lanes have it.
    ///
    /// # Errors
    /// A part or a server that is not there, or events that do not tell preemption from blocking.
    pub fn lanes(&self, look: &Look) -> Result<Lanes, StudyError> {
        let looked = self.looked(look)?;
        Ok(looked.lanes(&self.recording, self.scenario.is_some()).clone())
    }

    /// Returns the schedule as [`Opened::lanes`] does, where it is there already; else, where that
    /// is less work, what a picture of so many columns shows of it ([`LaneRun::summed`]).
    ///
    /// # Errors
    /// As for [`Opened::lanes`].
    ///
    /// [`LaneRun::summed`]: schedlab_report::LaneRun::summed
    pub fn first_lanes(&self, look: &Look, columns: usize) -> Result<Lanes, StudyError> {
        let known = self.last.try_lock().ok().and_then(|last| last.clone());
        let known = known.filter(|known| known.look == *look);
        if let Some(lanes) = known.as_ref().and_then(|known| known.known_lanes()) {
            return Ok(lanes.clone());
        }
        let scope = look.part(&self.recording)?;
        let summed = summed_schedule(&self.recording, &scope, columns.min(COLUMNS));
        let header = &self.recording.header;
        summed.map_or_else(|| self.lanes(look), |run| Ok(lanes(header, run, Vec::new())))
    }

    /// Writes down what a first look needs, so that it is there when it is asked for.
    ///
    /// # Errors
    /// As for [`Opened::lanes`].
    pub fn look_ahead(&self, look: &Look) -> Result<(), StudyError> {
        let looked = self.looked(look)?;
        looked.numbers(&self.recording, &self.name)?;
        looked.lanes(&self.recording, self.scenario.is_some());
        Ok(())
    }

    /// Returns all programs, in the order of [`Overview::programs`].
    ///
    /// # Errors
    /// As for [`Opened::lanes`].
    pub fn programs(&self, look: &Look) -> Result<ProgramsOutput, StudyError> {
        let looked = self.looked(look)?;
        let numbers = looked.numbers(&self.recording, &self.name)?;
        let (programs, _) = programs(&self.recording.header, (&looked, &numbers), usize::MAX);
        Ok(ProgramsOutput { schema: SCHEMA, programs })
    }

    /// Returns the longest wait, of the server where one is named or found and waited, and the
    /// sentences about it: for a list of recordings.
    ///
    /// # Errors
    /// As for [`Opened::lanes`]; a recording that does not tell who waited.
    pub fn worst(&self, serve: Option<&str>) -> Result<(Option<u64>, String), StudyError> {
        // A server that is in some recordings of a folder is asked for where it is.
        let looked = self.looked(&Look::of_server(serve));
        let looked = looked.or_else(|_| self.looked(&Look::default()))?;
        Worst::check(&self.recording.header)
            .map_err(|source| StudyError::trace(&self.name, source))?;
        let Looked { scope, server, answer, worst, .. } = &*looked;
        Ok(said_of(&self.recording, scope, server.as_ref(), (answer.as_ref(), worst)))
    }

    /// Returns what is in it. `under`: the scheduler that models the kernel of a recording, where
    /// that is not chosen by its header. With `programs_later` it has none of them where counting
    /// them would take longer than all else.
    ///
    /// # Errors
    /// As for [`Opened::lanes`].
    pub fn overview(
        &self,
        look: &Look,
        under: Option<&SchedulerSpec>,
        programs_later: bool,
    ) -> Result<Overview, StudyError> {
        let looked = self.looked(look)?;
        let numbers = match looked.known_numbers() {
            None if programs_later && self.recording.events.len() > AT_ONCE => None,
            None => Some(looked.numbers(&self.recording, &self.name)?),
            known => known,
        };
        let Looked { scope, server, answer, worst, .. } = &*looked;
        let recording = &self.recording;
        let header = &recording.header;
        let knows = Worst::check(header).is_ok();
        let about = answer.as_ref().map(|answer| answer.waiting.as_str());
        let (waits, waits_of) = match knows {
            true => waits_of(recording, scope, worst, (server.as_ref(), about)),
            false => (Vec::new(), None),
        };
        let counted = numbers.as_deref();
        let counted = counted.map(|numbers| programs(header, (&looked, numbers), PROGRAMS));
        let programs_follow = counted.is_none();
        let (programs, more_programs) = counted.unwrap_or_default();
        let scenario = self.scenario.as_deref();
        Ok(Overview {
            schema: SCHEMA,
            id: self.id.clone(),
            name: self.name.clone(),
            kind: scenario.map_or(InputKind::Recording, |_| InputKind::Scenario),
            title: scenario.map_or(&header.note, |scenario| &scenario.title).clone(),
            cpus: header.topology.cpus(),
            events: recording.events.len(),
            duration_ns: recording.duration.0,
            part_ns: [scope.from.0, scope.to.min(recording.duration).0],
            kernel: scenario.map_or_else(|| header.kernel.clone(), |_| String::new()),
            scheduler: self.scheduler(under),
            answer: sentences(recording, scope, answer.as_ref(), server.as_ref()),
            waited: answer.as_ref().map(|answer| [answer.waiting.clone(), answer.running.clone()]),
            server: server.as_ref().map(|server| server.name.clone()),
            guess: server.as_ref().and_then(|server| server.guess.as_ref()).map(Guess::sentence),
            programs,
            more_programs,
            programs_follow,
            groups: groups(header, self.family(under)),
            sources: scenario
                .iter()
                .flat_map(|scenario| &scenario.workload.sources)
                .map(|source| source.name.clone())
                .collect(),
            waits: waits.into_iter().map(WaitOutput::from).collect(),
            waits_of,
        })
    }

    /// Returns the scheduler of the unchanged row; empty where none models the kernel.
    fn scheduler(&self, under: Option<&SchedulerSpec>) -> String {
        let spec = match &self.scenario {
            Some(scenario) => scenario.schedulers.first().cloned(),
            None => recorded_scheduler(&self.recording.header, under).ok().map(|(spec, _, _)| spec),
        };
        spec.map_or_else(String::new, |spec| spec.to_string())
    }

    /// Returns the system whose settings it has.
    pub fn family(&self, under: Option<&SchedulerSpec>) -> Family {
        Family::named_by(&self.scheduler(under)).unwrap_or(Family::Textbook)
    }
}

/// Returns the longest waits of what the answer is about, and whose they are.
fn waits_of(
    recording: &Recording,
    scope: &Scope,
    worst: &Worst,
    (server, about): (Option<&ShownServer>, Option<&str>),
) -> (Vec<LaneWait>, Option<String>) {
    let (waits, of_server) = longest(recording, scope, worst);
    if of_server {
        return (waits, server.map(|server| server.name.clone()));
    }
    let Some(about) = about else { return (waits, None) };
    let tasks = recording.header.tasks.iter();
    let scope =
        Scope { first: Some(tasks.map(|task| task.comm == about).collect()), ..scope.clone() };
    let (own, has_some) = longest(recording, &scope, worst);
    if has_some { (own, Some(about.to_owned())) } else { (waits, None) }
}

/// Returns the programs, the server's first, as many as are asked for, and how many there are
/// besides.
fn programs(
    header: &Header,
    (looked, numbers): (&Looked, &Numbers),
    most: usize,
) -> (Vec<ProgramOutput>, usize) {
    let scope = &looked.scope;
    let Numbers { classes, measured, blame } = numbers;
    let lines: BTreeMap<String, usize> =
        (0..blame.keys.len()).rev().map(|line| (label(blame, header, line), line)).collect();
    let mut tasks: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (task, class) in classes.iter().enumerate() {
        tasks.entry(class.as_str()).or_default().push(task);
    }
    let of = |name: &str| tasks.get(name).map_or(&[][..], |tasks| tasks);
    let serves = |name: &str| of(name).iter().any(|&task| scope.leads(TaskId::from(task)));
    let mut all: Vec<(bool, f64, &SubjectData)> = measured
        .subjects
        .iter()
        .filter(|subject| subject.kind == Kind::Class)
        .map(|subject| {
            let share = subject.value(Metric::Share).unwrap_or(0.0);
            // Threads of the server that never ran are none of its first rows.
            (share > 0.0 && serves(&subject.name), share, subject)
        })
        .collect();
    all.sort_by(|a, b| {
        b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)).then_with(|| a.2.name.cmp(&b.2.name))
    });
    let more = all.len().saturating_sub(most);
    let shown = all.into_iter().take(most).map(|(_, _, subject)| {
        let behind = lines.get(&subject.name).map(|&line| behind(blame, header, line));
        program(header, scope, (subject, of(&subject.name)), behind.unwrap_or_default())
    });
    (shown.collect(), more)
}

/// Programs of an overview: rows that the page has before more are asked for.
const PROGRAMS: usize = 100;
/// Programs behind which another waited that are named.
const BEHIND: usize = 4;
/// Columns of a picture at most: more than any screen has.
const COLUMNS: usize = 16_384;

fn program(
    header: &Header,
    scope: &Scope,
    (subject, tasks): (&SubjectData, &[usize]),
    (waited, behind): (u64, Vec<(String, f64)>),
) -> ProgramOutput {
    let infos = || tasks.iter().filter_map(|&task| header.tasks.get(task));
    let distinct = |names: Vec<String>| {
        let mut names = names;
        names.sort();
        names.dedup();
        names
    };
    let latency = |thousandths| subject.value(Metric::Latency(Stat::Percentile(thousandths)));
    let nices = || infos().map(|info| info.nice.get());
    let has_run = subject.value(Metric::Share).is_some_and(|share| share > 0.0);
    let first = infos().next().map(|info| info.affinity.and(&all_cpus(header)));
    ProgramOutput {
        name: subject.name.clone(),
        tasks: subject.tasks,
        share: subject.value(Metric::Share).unwrap_or(0.0),
        waited_ns: waited,
        latency_p50_ns: latency(50_000),
        latency_p99_ns: latency(99_000),
        behind,
        serves: has_run && tasks.iter().any(|&task| scope.leads(TaskId::from(task))),
        policies: distinct(infos().map(|info| info.policy.to_string()).collect()),
        nice: [nices().min().unwrap_or(0), nices().max().unwrap_or(0)],
        cpus: first
            .filter(|cpus| *cpus != all_cpus(header))
            .map_or_else(String::new, |cpus| cpus.to_string()),
        groups: distinct(
            infos()
                .filter_map(|info| header.groups.get(info.group.index()))
                .map(|group| group.spec.name.clone())
                .collect(),
        ),
    }
}

fn all_cpus(header: &Header) -> schedlab_model::CpuSet {
    schedlab_model::CpuSet::first(header.topology.cpus())
}

/// Returns the program of a line.
fn label(blame: &Blame, header: &Header, line: usize) -> String {
    match &blame.keys.labels[line] {
        Label::Name(name) => name.clone(),
        Label::Task(task) => header.tasks[task.index()].comm.clone(),
    }
}

/// Returns how long a program waited, and behind which others for which part of that.
fn behind(blame: &Blame, header: &Header, line: usize) -> (u64, Vec<(String, f64)>) {
    let waited = blame.waited(line).0;
    let mut all: Vec<(&Culprit, Ns)> = blame.rows[line]
        .iter()
        .filter(|(_, share)| share.time > Ns::ZERO)
        .map(|(culprit, share)| (culprit, share.time))
        .collect();
    // Names are made of those alone that may be shown: of many programs most are not.
    all.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    let least = all.get(BEHIND - 1).map_or(Ns::ZERO, |(_, time)| *time);
    all.retain(|(_, time)| *time >= least);
    let name = |culprit: &Culprit| match culprit {
        Culprit::Line(other) => label(blame, header, *other),
        Culprit::Idle => "no task (idle)".to_owned(),
        Culprit::Throttled => "a limit".to_owned(),
        Culprit::Unknown => "unknown".to_owned(),
    };
    let part = |time: Ns| time.0 as f64 / waited.max(1) as f64;
    let mut named: Vec<(String, f64)> =
        all.into_iter().map(|(culprit, time)| (name(culprit), part(time))).collect();
    named.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    named.truncate(BEHIND);
    (waited, named)
}

fn groups(header: &Header, family: Family) -> Vec<GroupOutput> {
    // cpu.weight × 10.24 (kernel/sched/sched.h, CGROUP_WEIGHT_DFL); Xen's weight is as it is.
    let weight = |weight: u32| match family {
        Family::Xen(_) => weight,
        _ => (u64::from(weight) * 100 / 1024) as u32,
    };
    let limit = |group: &schedlab_model::GroupSpec| {
        let of_cap = Some(f64::from(group.cap_percent)).filter(|cap| *cap > 0.0);
        let part = |limit: schedlab_model::Bandwidth| limit.quota.0 as f64 / limit.period.0 as f64;
        group.bandwidth.map(|limit| part(limit) * 100.0).or(of_cap)
    };
    let own = header.groups.iter().map(|group| &group.spec);
    own.filter(|group| group.parent.is_some() && !group.autogroup)
        .map(|group| GroupOutput {
            name: group.name.clone(),
            weight: group.weight.map(weight),
            limit_percent: limit(group),
        })
        .collect()
}

/// Returns the longest wait of a recording, of its server where it has one, and the sentence about
/// it: for a list of recordings.
///
/// # Errors
/// The file cannot be read, is no recording, or does not tell who waited.
pub fn worst_of(path: &Path, serve: Option<&str>) -> Result<(Option<u64>, String), StudyError> {
    let found = crate::gallery::find(&path.display().to_string())?;
    if let crate::gallery::Found::Scenario(scenario) = &found {
        return Ok((None, scenario.title.clone()));
    }
    let recording = crate::show::open(found, None, None, None)?;
    if let Err(source) = Worst::check(&recording.header) {
        return Err(StudyError::trace(path, source));
    }
    // A server that is in some recordings of a folder is asked for where it is.
    let of = |serve: Option<&str>| Look::of_server(serve).scope(&recording, None);
    let (scope, server) = of(serve).or_else(|_| of(None))?;
    let (answer, worst) = waits(&recording, &scope, 1);
    Ok(said_of(&recording, &scope, server.as_ref(), (answer.as_ref(), &worst)))
}

/// Returns the longest wait that was found, and what is said of waiting.
fn said_of(
    recording: &Recording,
    scope: &Scope,
    server: Option<&ShownServer>,
    (answer, worst): (Option<&Answer>, &Worst),
) -> (Option<u64>, String) {
    let said = sentences(recording, scope, answer, server);
    let longest = answer.and_then(|answer| answer.longest.as_ref()).map(|(case, _)| case);
    (longest.or(worst.cases.first()).map(|case| case.length().0), said)
}
