//! `schedlab tune`: searches the settings of one to three knobs for the one that serves a goal
//! best, says what it costs, and how sure that is.
//!
//! Every setting is a row of a comparison ([`compare`](crate::compare)) with the same replay,
//! errors and distrust. Many settings are first run with one seed, and those that no other is
//! better than go on with more; the answer comes from seeds that the search has not seen.

mod answer;
mod confirm;
mod explore;
mod goal;
mod in_vain;
mod partial;
mod rank;
mod rounds;
mod so_far;
mod space;

pub use answer::{Asked, Round, SCHEMA, Search, Tried, Tuned, Validated};
pub use confirm::Confirm;
pub use explore::Explorer;
pub use goal::{Aim, Meets};
pub use partial::Partial;
pub use so_far::{Best, Found, Step, Watch};
pub use space::{Dimension, MOST_DIMENSIONS};

use crate::StudyError;
use crate::compare::{
    Options, Point, RecordedInput, compare_recording, compare_scenario, plan_of_point,
    recorded_scheduler,
};
use crate::measurements::MACHINE;
use crate::result::{Row, Study};
use crate::scenario::Scenario;
use rounds::{Halved, Last, Ran, Stage, chosen, rounds, runs};
use schedlab_model::Ns;
use schedlab_model::text::nearest;
use schedlab_scheduler::{SchedulerSpec, registry};
use so_far::SoFar;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// So many settings are run with every seed at the end.
const FINALISTS: usize = 12;
/// A round leaves one in so many settings, with so many times the seeds.
const HALVING: usize = 3;
/// So many settings are simulated together: what is in memory at once.
const TOGETHER: usize = 64;

/// What is searched for a better setting.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A scenario, under its first scheduler or another one.
    Scenario(&'a Scenario, Option<&'a SchedulerSpec>),
    /// A recording, under the scheduler that models its kernel or another one.
    Recording(&'a RecordedInput, Option<&'a SchedulerSpec>),
}

/// What a user may choose.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// What is to become better.
    pub goal: Aim,
    /// What is not to become worse.
    pub keep: Vec<Aim>,
    /// The dimensions, as written.
    pub space: Vec<String>,
    /// Seeds of the last round.
    pub seeds: u32,
    /// How many settings are tried at most.
    pub trials: usize,
    /// Seed of the sample, and first seed of the runs.
    pub seed: Option<u64>,
    /// Virtual time of each run.
    pub duration: Option<Ns>,
    /// Threads; 0 = one per CPU.
    pub jobs: usize,
    /// The server for which recordings are to be good enough, as [`Options::serve`].
    pub serve: Option<String>,
    /// When it becomes true, the search ends with [`StudyError::Stopped`].
    pub stop: Option<Arc<AtomicBool>>,
    /// Then the answer is that of what is finished, if that is anything.
    pub keep_finished: bool,
}

/// A file that the search did not see, and how it is called.
pub type HeldOut<'a> = (String, &'a RecordedInput);

/// Searches.
///
/// # Errors
/// What is wrong with the goal, the space or the input.
pub fn tune(
    input: Target<'_>,
    options: &TuneOptions,
    held_out: &[HeldOut<'_>],
    watch: Watch<'_>,
) -> Result<Tuned, StudyError> {
    let base = input.base()?;
    check_names(input, options)?;
    few_dimensions(options)?;
    let (space, not_tried) = in_vain::leave_out(input, read_space(input, options, &base)?, &base)?;
    let fault = |what: String| StudyError::Option(format!("--space: {what}"));
    let first = options.seed.unwrap_or_else(|| input.seed());
    let (points, grid) = space::points(&space, &base, options.trials, first).map_err(fault)?;
    let rounds = rounds(points.len(), 1, options.seeds, input.may_be_shorter());
    let how = if grid { "grid" } else { "sample" };
    let begun =
        Begun { space: &space, how, tried: points.len(), before: Vec::new(), rounds, first };
    let mut run = Running::new(input, options, &base, watch);
    let mut tuned = run.finish(points, begun, held_out)?;
    tuned.notes.splice(0..0, not_tried);
    Ok(tuned)
}

/// A search whose points are known.
struct Begun<'a> {
    space: &'a [Dimension],
    how: &'a str,
    /// How many settings were tried in all.
    tried: usize,
    /// Rounds that are over.
    before: Vec<Stage>,
    /// Rounds that are to come.
    rounds: Vec<Stage>,
    /// First seed of all rounds.
    first: u64,
}

/// A search that runs.
struct Running<'a> {
    input: Target<'a>,
    options: &'a TuneOptions,
    base: &'a SchedulerSpec,
    so_far: SoFar<'a>,
    /// Runs of the comparisons that are over.
    done: usize,
    all: usize,
}

impl<'a> Running<'a> {
    fn new(
        input: Target<'a>,
        options: &'a TuneOptions,
        base: &'a SchedulerSpec,
        watch: Watch<'a>,
    ) -> Running<'a> {
        let so_far = SoFar::new(&options.goal, &options.keep, watch);
        Running { input, options, base, so_far, done: 0, all: 0 }
    }

    /// Goes through the rounds, makes the answer from the last one, and tries it on what the search
    /// did not see.
    fn finish(
        &mut self,
        points: Vec<Point>,
        begun: Begun<'_>,
        held_out: &[HeldOut<'_>],
    ) -> Result<Tuned, StudyError> {
        let options = self.options;
        self.all =
            begun.rounds.iter().map(|round| runs(round.settings, round.seeds)).sum::<usize>()
                + runs(points.len().min(FINALISTS), options.seeds) * (1 + held_out.len());
        self.so_far.step(0, self.all);
        let halved = self.halve(points, &begun.rounds, begun.first)?;
        // Seeds that the search has not seen.
        let searched = !begun.rounds.is_empty() || !begun.before.is_empty();
        let fresh = begun.first.wrapping_add(if searched { u64::from(options.seeds) } else { 0 });
        let (last, is_partial) = self.last_round(halved.left, halved.last, fresh)?;
        let rounds = begun.before.iter().chain(begun.rounds.iter().take(last.before));
        let search = Search {
            how: begun.how.to_owned(),
            settings: begun.tried,
            seed: begun.first,
            space: begun.space.iter().map(|dimension| dimension.text().to_owned()).collect(),
            rounds: rounds.map(|round| self.described(round, &last.study)).collect(),
        };
        let mut tuned = answer::answer(self.input, options, search, &last, halved.dropped)?;
        if is_partial {
            tuned.partial = Some(self.partial(&tuned, &begun, last.before, held_out.len()));
            return Ok(tuned);
        }
        let chosen = chosen(&tuned, &last.points);
        for (file, other) in held_out {
            match self.validate(file, other, &chosen, fresh) {
                Err(StudyError::Stopped) if options.keep_finished => {
                    tuned.partial = Some(self.partial(&tuned, &begun, last.before, held_out.len()));
                    break;
                }
                validated => tuned.validated.push(validated?),
            }
        }
        Ok(tuned)
    }

    /// Runs what is left with the seeds of the answer. Where that was ended before it was finished,
    /// the round before it is the last; without one, it is what is finished of this one.
    fn last_round(
        &mut self,
        left: Option<Vec<Point>>,
        before: Option<Last>,
        fresh: u64,
    ) -> Result<(Last, bool), StudyError> {
        let Some(points) = left else {
            return before.map(|last| (last, true)).ok_or(StudyError::Stopped);
        };
        let options = self.options;
        self.so_far.round();
        match (self.study(self.input, &points, fresh, options.seeds, options.duration), before) {
            (Err(StudyError::Stopped), Some(before)) if options.keep_finished => Ok((before, true)),
            (Ok(study), Some(before)) if study.unfinished > 0 => Ok((before, true)),
            (study, before) => {
                let (study, rounds) = (study?, before.map_or(0, |last| last.before + 1));
                let is_partial = study.unfinished > 0;
                Ok((Last { study, points, before: rounds, is_fresh: true }, is_partial))
            }
        }
    }

    /// What was not done of a search that was ended.
    fn partial(&self, tuned: &Tuned, begun: &Begun<'_>, round: usize, held_out: usize) -> Partial {
        Partial {
            runs: self.so_far.done(),
            of_runs: self.all,
            settings: tuned.settings.len().saturating_sub(1),
            round: begun.before.len() + round + 1,
            of_rounds: begun.before.len() + begun.rounds.len() + 1,
            not_validated: held_out - tuned.validated.len(),
        }
    }

    /// Returns the settings that are left after every round, and what was left out for another
    /// reason than its numbers.
    fn halve(
        &mut self,
        mut points: Vec<Point>,
        rounds: &[Stage],
        first: u64,
    ) -> Result<Halved, StudyError> {
        let (mut dropped, mut last) = (Vec::new(), None);
        for (index, round) in rounds.iter().enumerate() {
            let next = rounds.get(index + 1).map_or(FINALISTS, |next| next.settings);
            let Ran { study, losses, kept, dropped: more } = self.round(&points, round, first)?;
            dropped.extend(more);
            let best = rank::best(&losses, next).into_iter().map(|place| kept[place].clone());
            let best = best.collect();
            let is_whole = study.as_ref().is_some_and(|study| study.unfinished == 0);
            // What is finished of a later round is less than all of the one before.
            if let Some(study) = study.filter(|_| is_whole || last.is_none()) {
                last = Some(Last { study, points, before: index, is_fresh: index == 0 });
            }
            if !is_whole {
                return Ok(Halved { left: None, dropped, last });
            }
            points = best;
        }
        Ok(Halved { left: Some(points), dropped, last })
    }

    /// Runs a round, so many settings at a time.
    fn round(&mut self, points: &[Point], round: &Stage, first: u64) -> Result<Ran, StudyError> {
        let duration = if round.short { self.shorter() } else { self.options.duration };
        self.so_far.round();
        let mut ran = Ran::default();
        for chunk in points.chunks(TOGETHER) {
            let study = match self.study(self.input, chunk, first, round.seeds, duration) {
                Err(StudyError::Stopped) if self.options.keep_finished => {
                    ran.unfinished(chunk.len());
                    break;
                }
                study => study?,
            };
            let rows = by_name(&study);
            for point in chunk {
                match rows.get(point.variant.name.as_str()) {
                    Some(row) if row.bound.is_none() && row.load.is_none() => {
                        ran.losses.push(answer::losses(self.options, &study.rows[0], row));
                        ran.kept.push(point.clone());
                    }
                    Some(_) => ran.dropped.push(point.variant.name.clone()),
                    None => {}
                }
            }
            ran.dropped.extend(refused(&study));
            ran.join(study);
        }
        Ok(ran)
    }

    /// A comparison of the first row with some points.
    fn study(
        &mut self,
        input: Target<'_>,
        points: &[Point],
        seed: u64,
        seeds: u32,
        duration: Option<Ns>,
    ) -> Result<Study, StudyError> {
        let (before, all, so_far) = (self.done, self.all, &self.so_far);
        let report = |done: usize, _: usize| so_far.step((before + done).min(all), all);
        let aims = std::iter::once(&self.options.goal).chain(&self.options.keep);
        let options = Options {
            points: points.to_vec(),
            only: aims.map(|aim| aim.wanted.clone()).collect(),
            seed: Some(seed),
            repetitions: Some(seeds),
            duration,
            jobs: self.options.jobs,
            stop: self.options.stop.clone(),
            keep_finished: self.options.keep_finished,
            seen: self.so_far.seen(),
            serve: self.options.serve.clone(),
            schedulers: match input {
                Target::Scenario(..) => vec![self.base.clone()],
                Target::Recording(..) => Vec::new(),
            },
            ..Options::default()
        };
        let study = match input {
            Target::Scenario(scenario, _) => compare_scenario(scenario, &options, &report),
            Target::Recording(recorded, under) => {
                compare_recording(recorded, under, &options, &report)
            }
        }?;
        self.done = before + (points.len() + 1) * seeds as usize;
        Ok(study)
    }

    /// A third of what is counted.
    fn shorter(&self) -> Option<Ns> {
        let Target::Scenario(scenario, _) = self.input else { return self.options.duration };
        let whole = self.options.duration.unwrap_or(scenario.duration);
        Some(scenario.warmup + Ns(whole.0.saturating_sub(scenario.warmup.0) / HALVING as u64))
    }

    fn described(&self, round: &Stage, last: &Study) -> Round {
        let short = if round.short { self.shorter() } else { None };
        Round {
            settings: round.settings,
            seeds: round.seeds,
            duration_ns: short.map_or(last.duration_ns, |short| short.0),
        }
    }

    /// Whether what was found holds on a recording that the search did not see.
    fn validate(
        &mut self,
        file: &str,
        other: &RecordedInput,
        points: &[Point],
        seed: u64,
    ) -> Result<Validated, StudyError> {
        let input = Target::Recording(other, None);
        let fail = |error: StudyError| match error {
            StudyError::Stopped => error,
            error => StudyError::Option(format!("--validate {file}: {}", cause(error))),
        };
        check_names(input, self.options).map_err(fail)?;
        let study = self.study(input, points, seed, self.options.seeds, None).map_err(fail)?;
        if study.unfinished > 0 {
            return Err(StudyError::Stopped);
        }
        answer::validated(file, self.options, &study, points).map_err(fail)
    }
}

impl Target<'_> {
    /// The scheduler of the first row.
    fn base(&self) -> Result<SchedulerSpec, StudyError> {
        match *self {
            Target::Scenario(scenario, chosen) => {
                let spec = chosen.or(scenario.schedulers.first()).cloned();
                let spec = spec.ok_or_else(|| {
                    StudyError::Option("the scenario names no scheduler".to_owned())
                })?;
                registry::check(&spec)?;
                Ok(spec)
            }
            Target::Recording(recorded, chosen) => {
                chosen.map(registry::check).transpose()?;
                Ok(recorded_scheduler(recorded.found().0, chosen)?.0)
            }
        }
    }

    fn seed(&self) -> u64 {
        match self {
            Target::Scenario(scenario, _) => scenario.seed,
            Target::Recording(..) => 1,
        }
    }

    /// Whether a part of the time is a smaller experiment of the same kind: a recording's beginning
    /// is not.
    fn may_be_shorter(&self) -> bool {
        matches!(self, Target::Scenario(scenario, _) if !scenario.end_with_tasks)
    }

    /// Everything that can be measured by name.
    fn names(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::from([MACHINE]);
        match self {
            Target::Recording(recorded, _) => names.extend(recorded.classes()),
            Target::Scenario(scenario, _) => {
                names.extend(scenario.classes.iter().map(String::as_str));
                names.extend(scenario.workload.sources.iter().map(|source| source.name.as_str()));
                names
                    .extend(scenario.workload.channels.iter().map(|channel| channel.name.as_str()));
            }
        }
        names
    }

    fn check(&self, base: &SchedulerSpec, point: &Point) -> Result<(), StudyError> {
        match self {
            Target::Scenario(scenario, _) => plan_of_point(scenario, base, point).map(drop),
            Target::Recording(recorded, _) => recorded.plan_of_point(base, point).map(drop),
        }
    }
}

/// Refuses goals about what is not there.
fn check_names(input: Target<'_>, options: &TuneOptions) -> Result<(), StudyError> {
    if let (Target::Scenario(..), Some(_)) = (input, &options.serve) {
        let why = "has a meaning only for recordings, and the input is a scenario";
        return Err(StudyError::Option(format!("--serve {why}")));
    }
    let names = input.names();
    let goal = std::iter::once(("--goal", &options.goal));
    for (option, aim) in goal.chain(options.keep.iter().map(|aim| ("--keep", aim))) {
        let subject = aim.wanted.subject.as_str();
        if names.contains(subject) {
            continue;
        }
        let hint = nearest(subject, names.iter().copied())
            .map(|near| format!(" (did you mean `{near}`?)"))
            .unwrap_or_default();
        let some: Vec<&str> = names.iter().copied().take(20).collect();
        let more = if names.len() > some.len() { ", ..." } else { "" };
        return Err(StudyError::Option(format!(
            "{option} '{}': nothing is called `{subject}`{hint}; there are: {}{more}",
            aim.text(),
            some.join(", ")
        )));
    }
    Ok(())
}

/// Refuses more dimensions than the command line searches.
fn few_dimensions(options: &TuneOptions) -> Result<(), StudyError> {
    let count = options.space.len();
    if count == 0 || count > MOST_DIMENSIONS {
        return Err(StudyError::Option(format!(
            "--space is given {count} times: this search takes one to {MOST_DIMENSIONS} dimensions; \
             for more there are the optimizers of schedlab.tune in the Python package \
             (python/README.md), or fix what matters least"
        )));
    }
    Ok(())
}

/// Reads the dimensions and tries the values at their ends.
fn read_space(
    input: Target<'_>,
    options: &TuneOptions,
    base: &SchedulerSpec,
) -> Result<Vec<Dimension>, StudyError> {
    let named: Vec<SchedulerSpec> =
        options.space.iter().flat_map(|text| Dimension::schedulers(text)).collect();
    let schedulers = if named.is_empty() { vec![base.clone()] } else { named };
    let mut space: Vec<Dimension> = Vec::new();
    for text in &options.space {
        let fail = |what: String| StudyError::Option(format!("--space '{text}': {what}"));
        let dimension = Dimension::parse(text, &schedulers).map_err(fail)?;
        if space.iter().any(|other| other.what == dimension.what) {
            return Err(fail(format!("`{}` is a dimension already", dimension.what)));
        }
        for scheduler in &schedulers {
            for point in space::ends(&dimension, scheduler).map_err(fail)? {
                let scheduler = point.scheduler.as_ref().unwrap_or(scheduler);
                // A setting that is nothing under this scheduler is one under another.
                let point = Point { scheduler: Some(scheduler.clone()), ..point };
                input.check(base, &point).map_err(|error| fail(cause(error)))?;
            }
        }
        space.push(dimension);
    }
    Ok(space)
}

/// What is wrong, without the option of `compare` that it would be wrong in.
fn cause(error: StudyError) -> String {
    match error {
        StudyError::Variant { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

fn by_name(study: &Study) -> BTreeMap<&str, &Row> {
    study.rows[1..].iter().map(|row| (row.variant.as_str(), row)).collect()
}

/// The sentences about settings that a scheduler refused.
fn refused(study: &Study) -> Vec<String> {
    study.notes.iter().filter(|note| note.starts_with("left out: ")).cloned().collect()
}
