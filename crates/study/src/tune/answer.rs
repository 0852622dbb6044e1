//! What a search found: the setting, what it gains and costs, and how sure that is.

use super::confirm::{Confirm, confirm};
use super::goal::{Aim, Meets, is_thin};
use super::partial::Partial;
use super::rounds::Last;
use super::{Target, TuneOptions, by_name, rank, refused};
use crate::StudyError;
use crate::change::Judgement;
use crate::compare::{MOST_GAIN, Point, of_change, reproduction, times_its_error, upper};
use crate::deploy::Deployment;
use crate::headline::Figure;
use crate::metric::Metric;
use crate::result::{Cell, Input, Row, Study, Verdict};
use crate::view::seconds;
use schedlab_stats::range_confidence;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Value of [`Tuned::schema`].
pub const SCHEMA: &str = "schedlab-tune/1";

/// A setting that gains this part of what the best one gains (as logarithms of the ratios) is near
/// it.
const NEAR: f64 = 0.8;

/// What a search found.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Tuned {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Version of schedlab that made it.
    pub version: String,
    /// What was searched.
    pub input: Input,
    /// What is to become better, and then what is not to become worse: the order of the figures of
    /// each setting.
    pub asked: Vec<Asked>,
    /// What it comes to, in two sentences; `row` is a place in `settings`.
    pub verdict: Verdict,
    /// How the settings were found.
    pub search: Search,
    /// Seeds of the figures below.
    pub seeds: Vec<u64>,
    /// Virtual time of each run of the figures below.
    pub duration_ns: u64,
    /// The unchanged row, and then the settings of the last round, the best by the goal first.
    pub settings: Vec<Tried>,
    /// Place in `settings` of the mildest near the best; missing: none gains for certain.
    pub recommended: Option<usize>,
    /// Place in `settings` of the one with the largest certain gain in the goal.
    pub largest_gain: Option<usize>,
    /// How the recommended setting is tried on the real threads.
    pub confirm: Option<Confirm>,
    /// What the recommended setting, and the one with the largest gain, give on recordings that the
    /// search did not see.
    pub validated: Vec<Validated>,
    /// Whether the simulation reproduces the recording.
    pub trusted: bool,
    /// Why not.
    pub distrust: Vec<String>,
    /// What a reader must know to judge the numbers.
    pub notes: Vec<String>,
    /// What is missing because the search was ended before its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Partial>,
}

/// A number that was asked for.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Asked {
    /// As written.
    pub text: String,
    /// What is measured.
    #[serde(flatten)]
    pub figure: Figure,
}

/// How the settings were found.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Search {
    /// `grid`: every combination; `sample`: points that fill the space evenly.
    pub how: String,
    /// How many settings were tried.
    pub settings: usize,
    /// Seed of the sample, and the first of the runs.
    pub seed: u64,
    /// The dimensions, as written.
    pub space: Vec<String>,
    /// The rounds before the last.
    pub rounds: Vec<Round>,
}

/// A round of the search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Round {
    /// Settings that were run.
    pub settings: usize,
    /// Runs of each.
    pub seeds: u32,
    /// Virtual time of each run.
    pub duration_ns: u64,
}

/// A setting and its numbers.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Tried {
    /// As `compare --variant` takes it, after its scheduler where that is another one.
    pub setting: String,
    /// Its scheduler.
    pub scheduler: String,
    /// Its numbers, in the order of `asked`; `null`: nothing was counted.
    pub figures: Vec<Option<Cell>>,
    /// Whether each of the numbers is within its bound; `null`: it has none.
    pub meets: Vec<Option<Meets>>,
    /// Whether no other setting of the last round is better in everything that was asked for.
    pub front: bool,
    /// How much it asks of the machine's owner, from 0 (nothing) to 7 (another system).
    pub mildness: u8,
    /// How to make it without schedlab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy: Option<Deployment>,
    /// What happened that a reader must know.
    pub notes: Vec<String>,
}

/// A recording that the search did not see.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Validated {
    /// The file.
    pub file: String,
    /// Whether the simulation reproduces it.
    pub trusted: bool,
    /// Why not.
    pub distrust: Vec<String>,
    /// Its unchanged row, and then the settings.
    pub settings: Vec<Tried>,
    /// What that says of each setting but the first: `holds`, `does not hold`, `cannot tell`.
    pub holds: Vec<String>,
}

/// Losses of a row, by which settings are ranked: the goal, what is to be kept, and what it asks of
/// the owner.
pub(super) fn losses(options: &TuneOptions, base: &Row, row: &Row) -> Vec<f64> {
    let aims = std::iter::once(&options.goal).chain(&options.keep);
    let loss = |aim: &Aim| {
        let figure = aim.figure(base);
        let value = |row| figure.as_ref()?.cell(row).map(|cell| cell.value.median);
        aim.loss(value(row), value(base).unwrap_or_default())
    };
    aims.map(loss).chain([f64::from(row.mildness)]).collect()
}

/// The settings of a comparison as an answer has them.
struct Table<'a> {
    options: &'a TuneOptions,
    study: &'a Study,
    figures: Vec<Figure>,
}

impl<'a> Table<'a> {
    /// # Errors
    /// A number that the unchanged row does not have.
    fn new(options: &'a TuneOptions, study: &'a Study) -> Result<Table<'a>, StudyError> {
        let table = Table { options, study, figures: Vec::new() };
        let base = &study.rows[0];
        let figure = |(index, aim): (usize, &Aim)| {
            let found = aim.figure(base).filter(|figure| figure.cell(base).is_some());
            found.ok_or_else(|| {
                let option = if index == 0 { "--goal" } else { "--keep" };
                StudyError::Option(format!(
                    "{option} '{}': {} has no `{}` in {}: nothing was counted",
                    aim.text(),
                    aim.wanted.subject,
                    aim.metric(),
                    study.input.name
                ))
            })
        };
        let figures = table.aims().enumerate().map(figure).collect::<Result<_, _>>()?;
        Ok(Table { figures, ..table })
    }

    fn aims(&self) -> impl Iterator<Item = &'a Aim> {
        std::iter::once(&self.options.goal).chain(&self.options.keep)
    }

    fn base_of(&self, index: usize) -> f64 {
        self.figures[index].cell(&self.study.rows[0]).map_or(0.0, |cell| cell.value.median)
    }

    fn merges(&self, index: usize) -> bool {
        let figure = &self.figures[index];
        let found = self.study.rows[0].find(figure.kind, &figure.subject);
        // What a limit holds back is time, however the work of it is counted.
        figure.metric != Metric::Throttled
            && found.is_some_and(|subject| subject.merges)
            && figure.cell(&self.study.rows[0]).is_some_and(|c| c.error.is_none())
    }

    fn tried(&self, row: &Row) -> Tried {
        let figures: Vec<Option<Cell>> =
            self.figures.iter().map(|figure| figure.cell(row).copied()).collect();
        let meets = self.aims().zip(&figures).enumerate();
        let meets = meets.map(|(index, (aim, cell))| {
            aim.meets(cell.as_ref(), self.base_of(index), self.merges(index))
        });
        Tried {
            setting: row.variant.clone(),
            scheduler: row.scheduler.clone(),
            meets: meets.collect(),
            figures,
            front: false,
            mildness: row.mildness,
            deploy: row.deploy.clone(),
            notes: row.notes.clone(),
        }
    }

    /// What a setting certainly gains in a number, as the logarithm of a ratio; negative: it loses.
    fn gain(&self, tried: &Tried, index: usize) -> f64 {
        let Some(cell) = tried.figures[index] else { return 0.0 };
        let (Some(change), base) = (cell.change, self.base_of(index)) else { return 0.0 };
        let sign = match change.judgement {
            Judgement::Better => 1.0,
            Judgement::Worse => -1.0,
            // A number that is neither good nor bad in itself has a bound that says which.
            Judgement::Different
                if self
                    .aims()
                    .nth(index)
                    .is_some_and(|aim| aim.metric().def().better.is_none()) =>
            {
                let aim = self.aims().nth(index);
                let nearer = aim.is_some_and(|aim| {
                    aim.loss(Some(cell.value.median), base) < aim.loss(Some(base), base)
                });
                if nearer { 1.0 } else { -1.0 }
            }
            _ => return 0.0,
        };
        if base <= 0.0 || is_thin(&cell, self.study.seeds.len()) {
            return 0.0;
        }
        let certain = (change.difference.abs() - change.error).max(0.0).copysign(change.difference);
        sign * ((base + certain) / base).max(1e-6).ln().abs().min(MOST_GAIN)
    }
}

/// Makes the answer from the last round.
pub(super) fn answer(
    input: Target<'_>,
    options: &TuneOptions,
    search: Search,
    last: &Last,
    mut dropped: Vec<String>,
) -> Result<Tuned, StudyError> {
    let Last { study, points, .. } = last;
    let table = Table::new(options, study)?;
    let base = &study.rows[0];
    let rows = by_name(study);
    let is_setting = |row: &&&Row| row.bound.is_none() && row.load.is_none();
    let mut left: Vec<(Vec<f64>, &Row)> = Vec::new();
    for point in points {
        match rows.get(point.variant.name.as_str()).filter(is_setting) {
            Some(row) => left.push((losses(options, base, row), row)),
            None if rows.contains_key(point.variant.name.as_str()) => {
                dropped.push(point.variant.name.clone())
            }
            None => {}
        }
    }
    dropped.extend(refused(study));
    left.sort_by(|a, b| a.0[0].total_cmp(&b.0[0]));
    let asked = 1 + options.keep.len();
    let all: Vec<Vec<f64>> = left.iter().map(|(losses, _)| losses[..asked].to_vec()).collect();
    let front = rank::front(&all);
    let mut settings = vec![table.tried(base)];
    settings.extend(
        left.iter()
            .enumerate()
            .map(|(place, (_, row))| Tried { front: front.contains(&place), ..table.tried(row) }),
    );
    let largest_gain = largest(&table, &settings);
    let (recommended, met) = recommended(&table, &settings);
    let replay = study.self_replay.as_ref();
    let mut notes = study.notes.clone();
    notes.retain(|note| !note.starts_with("left out: "));
    notes.extend(about_dropped(&dropped));
    Ok(Tuned {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        input: study.input.clone(),
        asked: asked_for(&table),
        verdict: Verdict {
            outcome: outcome(&table, &settings, recommended, met),
            certainty: certainty(&table, &settings, recommended, (&search, last.is_fresh)),
            row: recommended,
            beside: Vec::new(),
        },
        search,
        seeds: study.seeds.clone(),
        duration_ns: study.duration_ns,
        confirm: recommended.map(|place| confirm(input, study, points, &settings[place])),
        settings,
        recommended,
        largest_gain,
        validated: Vec::new(),
        trusted: study.trusted(),
        distrust: replay.map(|replay| replay.distrust.clone()).unwrap_or_default(),
        notes,
        partial: None,
    })
}

fn asked_for(table: &Table<'_>) -> Vec<Asked> {
    let asked = |(aim, figure): (&Aim, &Figure)| Asked {
        text: aim.text().to_owned(),
        figure: figure.clone(),
    };
    table.aims().zip(&table.figures).map(asked).collect()
}

fn about_dropped(dropped: &[String]) -> Option<String> {
    let mut names: Vec<&str> = dropped.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let first = names.first()?;
    Some(match names.len() {
        1 => format!("no setting of this machine under its load, or refused: {first}"),
        count => format!(
            "{count} points are no settings of this machine under its load, or were refused, such \
             as: {first}"
        ),
    })
}

/// The place of the largest certain gain in the goal.
fn largest(table: &Table<'_>, settings: &[Tried]) -> Option<usize> {
    let gains = (1..settings.len()).map(|place| (place, table.gain(&settings[place], 0)));
    gains
        .filter(|(_, gain)| *gain > 0.0)
        .fold(None, |best: Option<(usize, f64)>, one| match best {
            Some(best) if best.1 >= one.1 => Some(best),
            _ => Some(one),
        })
        .map(|(place, _)| place)
}

/// Returns the mildest setting near the best, and whether it is within every bound. Where none is
/// within all of them, it is the mildest that is near the largest gain.
fn recommended(table: &Table<'_>, settings: &[Tried]) -> (Option<usize>, bool) {
    let bounds = |tried: &Tried| tried.meets.iter().flatten().all(|meets| *meets == Meets::Yes);
    let goal_bound = table.options.goal.is_bound();
    let kept = |tried: &Tried| tried.meets[1..].iter().flatten().all(|meets| *meets == Meets::Yes);
    // What it certainly loses of what is to be kept.
    let paid = |tried: &Tried| -> f64 {
        (1..tried.figures.len()).map(|index| (-table.gain(tried, index)).max(0.0)).sum()
    };
    let by = |place: usize| {
        let tried = &settings[place];
        (tried.mildness, paid(tried), -table.gain(tried, 0))
    };
    let order = |a: &usize, b: &usize| {
        let (a, b, places) = (by(*a), by(*b), a.cmp(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2)).then(places)
    };
    if goal_bound {
        let within: Vec<usize> =
            (0..settings.len()).filter(|&place| bounds(&settings[place])).collect();
        if within.contains(&0) {
            return (None, true);
        }
        // Within the bound the price decides; prices that cannot be told apart are one.
        let least =
            within.iter().map(|&place| paid(&settings[place])).fold(f64::INFINITY, f64::min);
        let cheap = within.into_iter().filter(|&place| paid(&settings[place]) <= least + 0.02);
        if let Some(found) = cheap.min_by(order) {
            return (Some(found), true);
        }
    }
    let gains = |place: &usize| table.gain(&settings[*place], 0);
    let allowed = |place: &usize| kept(&settings[*place]);
    let best = (1..settings.len()).filter(allowed).map(|place| gains(&place)).fold(0.0, f64::max);
    let near = (1..settings.len())
        .filter(allowed)
        .filter(|place| best > 0.0 && gains(place) >= NEAR * best);
    let found = near.min_by(order);
    (found, found.is_some_and(|place| bounds(&settings[place])))
}

/// The setting, what it gains, and what it costs.
fn outcome(table: &Table<'_>, settings: &[Tried], chosen: Option<usize>, met: bool) -> String {
    let goal = &table.figures[0];
    let name = format!("{} {}", goal.subject(), goal.metric);
    let base = &settings[0];
    let now = base.figures[0].map(|cell| goal.metric.show(cell.value.median)).unwrap_or_default();
    let Some(place) = chosen else {
        return match met {
            true => format!(
                "Change nothing: {name} is {now} as it is, within the goal ({}).",
                table.options.goal.text()
            ),
            false => format!(
                "{} in {name}, which is {now} as it is{}.",
                nothing(table),
                nearest_to(table, settings)
            ),
        };
    };
    let tried = &settings[place];
    let what = tried.deploy.as_ref().map_or_else(String::new, |deploy| upper(&deploy.what));
    let setting = match what.is_empty() {
        true => upper(&tried.setting),
        false => format!("{what} ({})", tried.setting),
    };
    let number = |index: usize| {
        let figure = &table.figures[index];
        tried.figures[index].map(|cell| {
            format!("{} {}", figure.subject(), of_change(&cell, figure.kind, table.base_of(index)))
        })
    };
    let gain = number(0).unwrap_or_default();
    let goal = match (table.options.goal.is_bound(), tried.meets[0]) {
        (true, Some(Meets::Yes)) => format!(", within the goal ({})", table.options.goal.text()),
        (true, Some(Meets::Open)) => {
            format!(", and the goal ({}) lies within the error", table.options.goal.text())
        }
        (true, _) => {
            format!(", the nearest to the goal ({}) that was found", table.options.goal.text())
        }
        _ => String::new(),
    };
    let costs = (1..table.figures.len())
        .filter_map(|index| Some(cost(table, tried, index, number(index)?)));
    let costs: String = costs.map(|cost| format!("; {cost}")).collect();
    format!("{setting}: {gain}{goal}{costs}.")
}

fn nothing(table: &Table<'_>) -> &'static str {
    match table.options.keep.iter().any(Aim::is_bound) {
        true => "No setting of the space that keeps what is to be kept gains anything for certain",
        false => "No setting of the space gains anything for certain",
    }
}

/// The first of the settings, where none gains for certain.
fn nearest_to(table: &Table<'_>, settings: &[Tried]) -> String {
    let goal = &table.figures[0];
    let Some((tried, cell)) = settings.get(1).and_then(|tried| Some((tried, tried.figures[0]?)))
    else {
        return String::new();
    };
    format!(" ({}: {})", tried.setting, of_change(&cell, goal.kind, table.base_of(0)))
}

fn cost(table: &Table<'_>, tried: &Tried, index: usize, number: String) -> String {
    let gain = table.gain(tried, index);
    match gain {
        gain if gain < 0.0 => format!("it costs {number}"),
        gain if gain > 0.0 => format!("it gains {number} too"),
        _ => format!("no cost is certain in {number}"),
    }
}

/// How sure that is.
fn certainty(
    table: &Table<'_>,
    settings: &[Tried],
    chosen: Option<usize>,
    (search, is_fresh): (&Search, bool),
) -> String {
    let study = table.study;
    let told = chosen.and_then(|place| settings[place].figures[0]?.change);
    let told = told.map(|change| times_its_error(&change, study.self_replay.is_some()));
    let seeds = study.seeds.len();
    let unseen = match (search.rounds.is_empty(), is_fresh) {
        (true, _) => "",
        (false, true) => " that the search has not seen",
        (false, false) => " by which the search has chosen, so that the gain may be less",
    };
    let of = match seeds {
        1 => format!("one run of each{unseen}, so little is known about chance (--seeds 5)"),
        _ => format!("{seeds} seeds{unseen}"),
    };
    let tried = match search.settings {
        1 => "one setting was tried".to_owned(),
        count => format!("{count} settings were tried"),
    };
    let blunt = blunt(table, settings, chosen);
    match &study.self_replay {
        Some(replay) if !replay.trusted => reproduction(replay, seconds(study)),
        Some(replay) => {
            let told = told.map(|told| format!("; {told}")).unwrap_or_default();
            format!("{}{told}, over {of}; {tried}{blunt}.", reproduction(replay, seconds(study)))
        }
        None => {
            let told = told.map_or(String::new(), |told| format!("{told}, "));
            let sure = match seeds {
                1 => String::new(),
                _ => format!(
                    "; the range over the seeds contains the median with {:.0} % confidence",
                    range_confidence(seeds) * 100.0
                ),
            };
            upper(&format!("{told}over {of}{sure}; {tried}{blunt}."))
        }
    }
}

/// Why the goal is a number in which little can be told.
fn blunt(table: &Table<'_>, settings: &[Tried], chosen: Option<usize>) -> String {
    let Some(cell) = settings[0].figures[0].filter(|_| chosen.is_none()) else {
        return String::new();
    };
    let figure = &table.figures[0];
    let share = "the CPU share of a task is known best on a recording";
    if table.merges(0) {
        return format!(
            "; several requests share an activation of {}, so that its {} is no measure of work: \
             {share}",
            figure.subject, figure.metric
        );
    }
    if is_thin(&cell, table.study.seeds.len()) {
        return format!(
            "; fewer than two values lie beyond {} of {}, so that it says little",
            figure.metric, figure.subject
        );
    }
    match cell.error_bar.filter(|_| cell.error.is_some()) {
        Some(bar) if bar.error() >= cell.value.median / 2.0 => format!(
            "; {} of {} is known within {} only{}: {share}",
            figure.metric,
            figure.subject,
            figure.metric.show(bar.error()),
            bar.parts.of_which()
        ),
        _ => String::new(),
    }
}

/// What a recording that the search did not see says of the settings.
pub(super) fn validated(
    file: &str,
    options: &TuneOptions,
    study: &Study,
    points: &[Point],
) -> Result<Validated, StudyError> {
    let table = Table::new(options, study)?;
    let rows = by_name(study);
    let mut settings = vec![table.tried(&study.rows[0])];
    settings.extend(
        points
            .iter()
            .filter_map(|point| rows.get(point.variant.name.as_str()))
            .map(|row| table.tried(row)),
    );
    let holds = |tried: &Tried| {
        let judged = match tried.meets[0] {
            Some(Meets::Yes) => Some(true),
            Some(Meets::No) => Some(false),
            Some(Meets::Open) => None,
            None => match table.gain(tried, 0) {
                gain if gain > 0.0 => Some(true),
                gain if gain < 0.0 => Some(false),
                _ => None,
            },
        };
        match judged {
            _ if !study.trusted() => "cannot tell",
            Some(true) => "holds",
            Some(false) => "does not hold",
            None => "cannot tell",
        }
    };
    let holds = settings[1..].iter().map(|tried| holds(tried).to_owned()).collect();
    let replay = study.self_replay.as_ref();
    Ok(Validated {
        file: file.to_owned(),
        trusted: study.trusted(),
        distrust: replay.map(|replay| replay.distrust.clone()).unwrap_or_default(),
        settings,
        holds,
    })
}
