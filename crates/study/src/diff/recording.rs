//! Two recordings, or two folders of recordings.

use super::bootstrap::{self, Drawn, Windowed};
use super::{Cell, Diff, DiffOptions, Recorded, SCHEMA, Side, Subject};
use crate::StudyError;
use crate::change::Judgement;
use crate::compare::Ended;
use crate::metric::{Metric, Stat};
use crate::result::Verdict;
use crate::show::whole;
use crate::together::Together;
use schedlab_model::{EventSink, Ns};
use schedlab_trace::analysis::{Analysis, Durations, Summary, TaskSummary};
use schedlab_trace::import::Purpose;
use schedlab_trace::{Capability, Header, TaskInfo};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const STATS: [Stat; 5] = [
    Stat::Percentile(50_000),
    Stat::Percentile(90_000),
    Stat::Percentile(99_000),
    Stat::Percentile(99_900),
    Stat::Max,
];
/// A subject that uses less of a CPU than this in both recordings, and was not woken this often a
/// second, is noise.
const SHARE_MIN: f64 = 0.001;
const WAKES_MIN: f64 = 20.0;
const WINDOWS_MIN: usize = 8;
/// Of fewer recordings it cannot be told how much they differ.
const RECORDINGS_MIN: usize = 3;

/// What the tasks of one name or cgroup got, by window.
#[derive(Default)]
struct Group {
    tasks: usize,
    windows: Vec<TaskSummary>,
}

/// The recordings of one side, cut up.
struct Cut {
    side: Side,
    seconds: f64,
    groups: BTreeMap<(&'static str, String), Group>,
    drawings: Vec<Vec<u32>>,
    /// What is drawn, and how many of it there are.
    drawn: Drawn,
    wakes: bool,
}

/// The name under which tasks of two recordings are the same: kernel workers carry numbers that
/// mean nothing.
fn class(task: &TaskInfo) -> String {
    match task.comm.split_once('/') {
        Some((name, _)) if task.kernel || name == "kworker" => name.to_owned(),
        _ => task.comm.clone(),
    }
}

/// Returns what each task counts for: its name and its control group, or the one thing that it is
/// taken together by.
fn keys(header: &Header, by: Together) -> Vec<Vec<(&'static str, String)>> {
    let by = by.of(header);
    if !by.is_by_name() {
        return by.names(header).into_iter().map(|name| vec![(by.word(), name)]).collect();
    }
    let of = |info: &TaskInfo| {
        let group = header.groups.get(info.group.index());
        let group = group.map(|group| ("cgroup", group.spec.name.clone()));
        [Some(("task", class(info))), group].into_iter().flatten().collect()
    };
    header.tasks.iter().map(of).collect()
}

/// The recordings of a folder, by name; a file is alone.
fn recordings(path: &Path) -> Result<Vec<PathBuf>, StudyError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let fail = |what: String| StudyError::Option(format!("{}: {what}", path.display()));
    let entries =
        std::fs::read_dir(path).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let entries = entries.map_err(|error| fail(error.to_string()))?;
    // A stranger's folder may have a pipe in it, whose opening waits for a writer.
    let is_recording = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "slt") && path.is_file()
    };
    let mut files: Vec<PathBuf> =
        entries.into_iter().map(|entry| entry.path()).filter(is_recording).collect();
    files.sort();
    match files.len() {
        few if few < RECORDINGS_MIN => Err(fail(format!(
            "a folder must hold at least {RECORDINGS_MIN} recordings (*.slt), so that one sees \
             how much they differ; it holds {few}"
        ))),
        _ => Ok(files),
    }
}

fn cut(path: &Path, options: &DiffOptions, seed: u64, ended: Ended<'_>) -> Result<Cut, StudyError> {
    let files = recordings(path)?;
    let windows = options.windows.max(WINDOWS_MIN);
    let drawn = match files.len() {
        1 => Drawn::Windows(windows),
        several => Drawn::Recordings(several),
    };
    let mut cut = Cut {
        side: Side { file: path.display().to_string(), recordings: files.len(), ..Side::default() },
        seconds: 0.0,
        groups: BTreeMap::new(),
        drawings: bootstrap::drawings(drawn.count(), seed),
        drawn,
        wakes: true,
    };
    if files.len() > 1 {
        // All windows of a recording come with it.
        let spread = |times: &Vec<u32>| {
            times.iter().flat_map(|&n| std::iter::repeat_n(n, windows)).collect()
        };
        cut.drawings = cut.drawings.iter().map(spread).collect();
    }
    for (which, file) in files.iter().enumerate() {
        cut.add(file, which, (windows, options.by), ended)?;
    }
    Ok(cut)
}

impl Cut {
    /// The windows of the recording at this place.
    fn add(
        &mut self,
        path: &Path,
        which: usize,
        (windows, by): (usize, Together),
        ended: Ended<'_>,
    ) -> Result<(), StudyError> {
        let recording = whole(path, Purpose::Any, ended)?;
        Summary::check(&recording.header).map_err(|source| StudyError::trace(path, source))?;
        if recording.events.is_empty() {
            return Err(StudyError::NoEvents {
                path: path.to_owned(),
                cut_off: recording.repairs.cut_off,
            });
        }
        // What happened before the first event was not seen.
        let first = recording.events[0].at;
        let end = recording.duration.max(Ns(first.0 + 1));
        let edge = |i: usize| {
            let part = u128::from(end.0 - first.0) * i as u128 / windows as u128;
            Ns(first.0 + part as u64)
        };
        let header = &recording.header;
        let mut summary = Summary::new(header.tasks.len(), header.topology.cpus(), first);
        let mut tasks: BTreeMap<(&'static str, String), usize> = BTreeMap::new();
        let names = keys(header, by);
        let mut put = |window: usize, got: Vec<TaskSummary>| {
            for (keys, got) in names.iter().zip(&got) {
                for key in keys.iter().cloned() {
                    *tasks.entry(key.clone()).or_default() += usize::from(window == 0);
                    let group = self.groups.entry(key).or_default();
                    group.windows.resize_with((which + 1) * windows, TaskSummary::default);
                    group.windows[which * windows + window].merge(got);
                }
            }
        };
        let mut next = 0;
        for window in 0..windows {
            if ended() {
                return Err(StudyError::Stopped);
            }
            let until = edge(window + 1);
            while let Some(event) = recording.events.get(next)
                && (event.at < until || window + 1 == windows)
            {
                summary.event(event);
                next += 1;
            }
            put(window, summary.cut(until));
        }
        for (key, count) in tasks {
            if let Some(group) = self.groups.get_mut(&key) {
                group.tasks = group.tasks.max(count);
            }
        }
        // Those that are not in this recording got nothing.
        self.groups.values_mut().for_each(|group| {
            group.windows.resize_with((which + 1) * windows, TaskSummary::default)
        });
        let side = &mut self.side;
        side.duration_ns += recording.duration.0;
        side.window_ns = side.window_ns.max(edge(1).0 - first.0);
        side.repairs.get_or_insert_default().add(&recording.repairs);
        made_under(&mut side.schedulers, header);
        self.seconds += (end.0 - first.0) as f64 / 1e9;
        self.wakes &= header.capabilities.has(Capability::WakeTimes);
        Ok(())
    }
}

pub(super) fn diff(
    before: &Path,
    after: &Path,
    options: &DiffOptions,
    ended: Ended<'_>,
) -> Result<Diff, StudyError> {
    if before.is_dir() != after.is_dir() {
        let (before, after) = (before.display(), after.display());
        return Err(StudyError::Option(format!(
            "{before} and {after}: give two recordings, or two folders with at least \
             {RECORDINGS_MIN} recordings each"
        )));
    }
    let sides = [
        cut(before, options, options.seed, ended)?,
        cut(after, options, options.seed ^ 0x5bd1_e995, ended)?,
    ];
    let matters = |cut: &Cut, group: &Group| {
        let run: u64 = group.windows.iter().map(|window| window.run.0).sum();
        let wakes: u64 = group.windows.iter().map(|window| window.wakeups).sum();
        run as f64 / 1e9 >= SHARE_MIN * cut.seconds || wakes as f64 >= WAKES_MIN * cut.seconds
    };
    let only = |here: &Cut, there: &Cut| -> Vec<String> {
        let gone = here
            .groups
            .iter()
            .filter(|(key, group)| !there.groups.contains_key(*key) && matters(here, group));
        gone.map(|((_, name), _)| name.clone()).collect()
    };
    let [one, two] = &sides;
    let both: Vec<_> = one
        .groups
        .iter()
        .filter_map(|(key, group)| Some((key, group, two.groups.get(key)?)))
        .filter(|(_, a, b)| matters(one, a) || matters(two, b))
        .collect();
    let mut subjects = Vec::new();
    for ((kind, name), a, b) in &both {
        if ended() {
            return Err(StudyError::Stopped);
        }
        let rows = [Row::from_cut(one, a), Row::from_cut(two, b)];
        subjects.push((kind, name, [a.tasks, b.tasks], rows));
    }
    let numbers = subjects.iter().map(|(.., rows)| Row::judged(rows)).sum();
    let finish =
        |(kind, name, tasks, rows): &(&&'static str, &String, [usize; 2], [Row; 2])| Subject {
            kind: (**kind).to_owned(),
            name: (*name).clone(),
            tasks: *tasks,
            cells: Row::cells(rows, &sides, numbers, options),
        };
    let mut diff = Diff {
        schema: SCHEMA.to_owned(),
        before: one.side.clone(),
        after: two.side.clone(),
        verdict: Verdict::default(),
        subjects: subjects.iter().map(finish).collect(),
        gone: only(one, two),
        new: only(two, one),
        gates: Vec::new(),
        notes: Vec::new(),
    };
    diff.notes = notes(&sides);
    Ok(diff)
}

/// Counts the scheduler of one more recording.
fn made_under(schedulers: &mut Vec<Recorded>, header: &Header) {
    let (name, changed) = (header.ext_scheduler(), usize::from(header.ext_change().is_some()));
    match schedulers.iter_mut().find(|known| known.sched_ext.as_deref() == name) {
        Some(known) => {
            known.recordings += 1;
            known.changed += changed;
        }
        None => {
            schedulers.push(Recorded { sched_ext: name.map(str::to_owned), recordings: 1, changed })
        }
    }
}

/// Under which schedulers the two sides were made, where one of them is no kernel's own.
fn schedulers(sides: [&Side; 2]) -> Vec<String> {
    let mut notes = Vec::new();
    let loaded = |side: &Side| {
        side.schedulers.iter().any(|known| known.sched_ext.is_some() || known.changed > 0)
    };
    if !sides.iter().any(|side| loaded(side)) {
        return notes;
    }
    let name = |known: &Recorded| match &known.sched_ext {
        Some(name) => format!("the sched_ext scheduler {name}"),
        None => "the kernel's own scheduler".to_owned(),
    };
    let under =
        sides.map(|side| side.schedulers.iter().map(name).collect::<Vec<_>>().join(" and "));
    notes.push(match under {
        [before, after] if before == after => format!("Both were recorded under {before}."),
        [before, after] => format!("Before was recorded under {before}, after under {after}."),
    });
    for side in sides {
        if side.schedulers.len() > 1 {
            let counts = side
                .schedulers
                .iter()
                .map(|known| format!("{} under {}", known.recordings, name(known)));
            let counts = counts.collect::<Vec<_>>().join(", ");
            notes.push(format!(
                "{}: its recordings are of different schedulers ({counts}): what differs between \
                 them counts as chance",
                side.file
            ));
        }
        let changed: usize = side.schedulers.iter().map(|known| known.changed).sum();
        if changed > 0 {
            notes.push(format!(
                "{}: in {changed} of {} recordings a sched_ext scheduler came or went: parts of \
                 them are of different schedulers \
                 (`schedlab show` says which)",
                side.file, side.recordings
            ));
        }
    }
    notes
}

fn notes(sides: &[Cut; 2]) -> Vec<String> {
    let mut notes = schedulers(sides.each_ref().map(|cut| &cut.side));
    for cut in sides {
        if let Some(repairs) = cut.side.repairs.as_ref().filter(|repairs| !repairs.is_clean()) {
            notes.push(format!("{}: repaired: {repairs}", cut.side.file));
        }
        if !cut.wakes {
            notes.push(format!(
                "{}: the recorder did not see wakeups: no latency and no response",
                cut.side.file
            ));
        }
    }
    notes
}

/// The numbers of one group in one recording.
struct Row {
    seconds: f64,
    run: Vec<f64>,
    switches: Vec<f64>,
    migrations: Vec<f64>,
    dists: [Windowed; 3],
}

impl Row {
    fn from_cut(cut: &Cut, group: &Group) -> Row {
        let column =
            |f: fn(&TaskSummary) -> u64| group.windows.iter().map(|w| f(w) as f64).collect();
        let dist = |f: fn(&TaskSummary) -> &Durations, there: bool| {
            let windows: Vec<&Durations> = group.windows.iter().map(f).collect();
            if there { Windowed::from_windows(&windows) } else { Windowed::default() }
        };
        Row {
            seconds: cut.seconds,
            run: column(|w| w.run.0),
            switches: column(|w| w.switches),
            migrations: column(|w| w.migrations),
            dists: [
                dist(|w| &w.wake_latency, cut.wakes),
                dist(|w| &w.preempt_wait, true),
                dist(|w| &w.response, cut.wakes),
            ],
        }
    }

    fn metrics() -> Vec<Metric> {
        let mut metrics = vec![Metric::Share];
        for of in [Metric::Latency, Metric::Wait, Metric::Response] {
            metrics.extend(STATS.map(of));
        }
        metrics.extend([Metric::Switches, Metric::Migrations]);
        metrics
    }

    fn dist(&self, metric: Metric) -> Option<(&Windowed, Stat)> {
        match metric {
            Metric::Latency(stat) => Some((&self.dists[0], stat)),
            Metric::Wait(stat) => Some((&self.dists[1], stat)),
            Metric::Response(stat) => Some((&self.dists[2], stat)),
            _ => None,
        }
    }

    fn value(&self, metric: Metric, times: &[u32]) -> Option<f64> {
        if let Some((dist, stat)) = self.dist(metric) {
            return dist.value(times, stat);
        }
        let sum = |column: &[f64]| -> f64 {
            column.iter().zip(times).map(|(v, &t)| v * f64::from(t)).sum()
        };
        match metric {
            Metric::Share => Some(sum(&self.run) / 1e9 / self.seconds),
            Metric::Switches => Some(sum(&self.switches) / self.seconds),
            Metric::Migrations => Some(sum(&self.migrations) / self.seconds),
            _ => None,
        }
    }

    fn samples(rows: &[Row; 2], metric: Metric) -> Option<([u64; 2], Stat)> {
        let (a, stat) = rows[0].dist(metric)?;
        Some(([a.count(), rows[1].dist(metric)?.0.count()], stat))
    }

    /// How many numbers of this pair can be judged.
    fn judged(rows: &[Row; 2]) -> usize {
        let can = |metric: &Metric| match Row::samples(rows, *metric) {
            None => true,
            Some((samples, stat)) => bootstrap::lacks(stat, samples).is_none(),
        };
        Row::metrics().iter().filter(|metric| can(metric)).count()
    }

    fn cells(
        rows: &[Row; 2],
        sides: &[Cut; 2],
        numbers: usize,
        options: &DiffOptions,
    ) -> Vec<Cell> {
        // Each window as often as it was recorded; the sides may have different numbers of
        // recordings.
        let once = sides.each_ref().map(|cut| vec![1; cut.drawings[0].len()]);
        let mut cells = Vec::new();
        for metric in Row::metrics() {
            let (Some(before), Some(after)) =
                (rows[0].value(metric, &once[0]), rows[1].value(metric, &once[1]))
            else {
                continue;
            };
            let dist = Row::samples(rows, metric);
            let lacks = dist.and_then(|(samples, stat)| bootstrap::lacks(stat, samples));
            let mut cell = Cell {
                metric,
                before,
                after,
                samples: dist.map_or([0, 0], |(samples, _)| samples),
                interval: None,
                judgement: Judgement::CannotTell,
                lacks,
                alone: None,
            };
            if cell.lacks.is_none() {
                let drawn = [0, 1].map(|side: usize| -> Vec<f64> {
                    let values =
                        sides[side].drawings.iter().map(|times| rows[side].value(metric, times));
                    values.flatten().collect()
                });
                let change = bootstrap::change(
                    metric,
                    (before, after),
                    [&drawn[0], &drawn[1]],
                    [sides[0].drawn, sides[1].drawn],
                    (numbers, options.least),
                );
                cell.interval = Some(change.interval);
                cell.judgement = change.judgement;
                cell.alone = change.alone;
            }
            cells.push(cell);
        }
        cells
    }
}
