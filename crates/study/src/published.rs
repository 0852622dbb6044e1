//! `schedlab published`: every figure of the gallery that was published, or measured with the real
//! system, once, beside what comes out here, and why it differs. The figures are `published` of the
//! scenarios' expectations, their sources are in `published/sources.toml`, and what was checked
//! against recordings of the real systems is in `oracles/checked.json`.

mod answer;
mod page;
mod source;

pub use answer::answer;
pub use page::page;
pub use source::{Check, Source, SourceKind, checks, sources};

use crate::StudyError;
use crate::compare::{Options, Progress, compare_scenario, runs_of_scenario};
use crate::gallery::{self, Found};
use crate::metric::{Metric, Stat};
use crate::result::Checked;
use crate::scenario::{Cause, Expectation, Scenario};
use schemars::JsonSchema;
use serde::Serialize;

/// Version of the JSON form.
pub const SCHEMA: &str = "schedlab-published/1";

/// A scenario with its published figures.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Published {
    /// Its name.
    pub scenario: String,
    /// Its title.
    pub title: String,
    /// What of it was fitted, and to what.
    pub fitted: Vec<String>,
    /// Number of seeds, over which the simulated figures are medians.
    pub seeds: usize,
    /// How many figures are near, differ, and are words; fitted ones are among them.
    pub tally: Tally,
    /// The figures, each once, in the order of the file.
    pub figures: Vec<Figure>,
}

/// A published figure.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Figure {
    /// What it is in its source.
    pub figure: String,
    /// Its source ([`Source::id`]); missing where the scenario does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What it is worth as evidence.
    pub kind: FigureKind,
    /// Why the simulated figure differs, as one of a few kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// CPUs of the machine, where that is not the scenario's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<usize>,
    /// How many tasks and rows of the scenario the figure is about. Of a maximum the largest is
    /// shown, else the farthest off.
    pub lines: usize,
    /// What came out.
    #[serde(flatten)]
    pub checked: Checked,
}

/// What a figure is worth as evidence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// Published in a paper, an article or a talk: a machine that this project never had.
    Paper,
    /// Measured with the real scheduler's code, which this project ran.
    RealCode,
    /// An input was fitted to it, or taken from it: no evidence.
    Fitted,
}

impl FigureKind {
    /// All of them, in the order in which they are shown.
    pub const ALL: [FigureKind; 3] = [FigureKind::Paper, FigureKind::RealCode, FigureKind::Fitted];

    /// Returns the heading of its figures.
    pub const fn title(self) -> &'static str {
        match self {
            FigureKind::Paper => "Papers, articles and talks",
            FigureKind::RealCode => "Real code that the project ran",
            FigureKind::Fitted => "Fitted inputs: no evidence",
        }
    }
}

/// How a simulated figure compares with the published one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Within 10 %, shares within half a point.
    Inside,
    /// Farther off.
    Off,
    /// Published in words, and as the scenario reads these words.
    WordsHold,
    /// Published in words, and not so.
    WordsFail,
}

impl Figure {
    /// Whether it is evidence, and not as published.
    pub fn is_off(&self) -> bool {
        self.kind != FigureKind::Fitted
            && matches!(self.standing(), Standing::Off | Standing::WordsFail)
    }

    /// How it compares.
    pub fn standing(&self) -> Standing {
        match (self.checked.deviation.map(|one| one.near), self.checked.holds) {
            (Some(true), _) => Standing::Inside,
            (Some(false), _) => Standing::Off,
            (None, true) => Standing::WordsHold,
            (None, false) => Standing::WordsFail,
        }
    }
}

/// How many figures are how far off.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, JsonSchema, Serialize)]
pub struct Tally {
    /// Within 10 %, shares within 0.5 points.
    pub near: usize,
    /// Farther off, and the scenario says why.
    pub explained: usize,
    /// Farther off without a reason.
    pub unexplained: usize,
    /// Published in words, not as a number of this metric.
    pub words: usize,
}

impl Tally {
    /// Of these figures.
    pub fn count<'a>(figures: impl IntoIterator<Item = &'a Checked>) -> Tally {
        let mut tally = Tally::default();
        for figure in figures {
            *match (figure.deviation.map(|one| one.near), &figure.differs) {
                (None, _) => &mut tally.words,
                (Some(true), _) => &mut tally.near,
                (Some(false), Some(_)) => &mut tally.explained,
                (Some(false), None) => &mut tally.unexplained,
            } += 1;
        }
        tally
    }

    /// Those that are numbers.
    pub fn numbers(self) -> usize {
        self.near + self.explained + self.unexplained
    }
}

/// Everything that `schedlab published` knows.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Gallery {
    /// [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// How many of the published figures are inside 10 %, and why the others are not: two
    /// sentences.
    pub answer: [String; 2],
    /// Where the figures come from.
    pub sources: Vec<Source>,
    /// What was checked against recordings of the real systems, figure by figure.
    pub checks: Vec<Check>,
    /// The scenarios.
    pub scenarios: Vec<Published>,
    /// How many scenarios were asked for, where the command was ended before all of them were run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial_of: Option<usize>,
}

impl Gallery {
    /// Of these of `asked` scenarios; sources without a figure among them are left out.
    pub fn new(scenarios: Vec<Published>, asked: usize) -> Gallery {
        let named = |id: &str| all(&scenarios).any(|one| one.source.as_deref() == Some(id));
        let sources = sources().iter().filter(|source| named(&source.id)).cloned().collect();
        Gallery {
            schema: SCHEMA,
            answer: answer(&scenarios),
            sources,
            checks: checks().to_vec(),
            partial_of: Some(asked).filter(|&asked| scenarios.len() < asked),
            scenarios,
        }
    }

    /// Returns a sentence about what is missing of a command that was ended early.
    pub fn partial(&self) -> Option<String> {
        let asked = self.partial_of?;
        let done = self.scenarios.len();
        Some(format!("ended early, after {done} of {asked} scenarios; the others were not run"))
    }

    /// The figures of one kind and source, with the seeds of their scenario.
    pub fn figures<'a>(
        &'a self,
        kind: FigureKind,
        source: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Published, &'a Figure)> + Clone {
        self.scenarios
            .iter()
            .flat_map(|one| one.figures.iter().map(move |figure| (one, figure)))
            .filter(move |(_, figure)| figure.kind == kind && figure.source.as_deref() == source)
    }

    /// The sources in their order, then what names none.
    pub fn origins(&self) -> Vec<Option<&Source>> {
        let unnamed = all(&self.scenarios).any(|figure| figure.source.is_none());
        self.sources.iter().map(Some).chain(unnamed.then_some(None)).collect()
    }

    /// Whether every figure is what its scenario expects.
    pub fn holds(&self) -> bool {
        all(&self.scenarios).all(|figure| figure.checked.holds)
    }
}

/// Every figure.
pub(crate) fn all(scenarios: &[Published]) -> impl Iterator<Item = &Figure> {
    scenarios.iter().flat_map(|one| &one.figures)
}

/// The scenarios of these names (empty: all of the gallery that have published figures).
///
/// # Errors
/// A name that is no scenario, or a scenario without such figures.
pub fn scenarios(names: &[String]) -> Result<Vec<Scenario>, StudyError> {
    let has = |scenario: &Scenario| scenario.expectations.iter().any(|one| one.published.is_some());
    if names.is_empty() {
        let mut all = Vec::new();
        for (name, _) in gallery::built_in() {
            if let Found::Scenario(scenario) = gallery::find(name)?
                && has(&scenario)
            {
                all.push(*scenario);
            }
        }
        return Ok(all);
    }
    let one = |name: &String| match gallery::find(name)? {
        Found::Scenario(scenario) if has(&scenario) => Ok(*scenario),
        _ => Err(StudyError::Option(format!(
            "{name} has no published figures (`published` of an [[expect]]); `schedlab published` \
             without a name shows all"
        ))),
    };
    names.iter().map(one).collect()
}

/// Runs one scenario unchanged, and on the other machines of its sweep that a published figure is
/// about. Of `options` the threads count, and what ends it.
///
/// # Errors
/// As [`compare_scenario`].
pub fn figures(
    scenario: &Scenario,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Published, StudyError> {
    let all = runs(scenario)?;
    let study = compare_scenario(scenario, options, &|done, _| progress(done, all))?;
    let mut checked = study.expectations;
    let mut before = study.rows.len() * study.seeds.len();
    for other in others(scenario) {
        let report = |done, _| progress(before + done, all);
        let study = compare_scenario(&other, options, &report)?;
        checked.extend(study.expectations);
        before += study.rows.len() * study.seeds.len();
    }
    let published = scenario.expectations.iter().filter(|one| one.published.is_some());
    let figures: Vec<Figure> = published
        .filter_map(|one| figure(one, scenario.machine.topology.cpus(), &checked))
        .collect();
    Ok(Published {
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        fitted: scenario.fitted.clone(),
        seeds: study.seeds.len(),
        tally: Tally::count(figures.iter().map(|figure| &figure.checked)),
        figures,
    })
}

/// Returns how many runs the figures of a scenario take.
///
/// # Errors
/// A scenario whose rows cannot be made.
pub fn runs(scenario: &Scenario) -> Result<usize, StudyError> {
    let others = others(scenario);
    let all = std::iter::once(scenario).chain(&others);
    all.map(|one| runs_of_scenario(one, &Options::default())).sum()
}

/// The scenario on every other machine that an expectation names, with these expectations and their
/// variants only.
fn others(scenario: &Scenario) -> Vec<Scenario> {
    let own = scenario.machine.topology.cpus();
    let mut sizes: Vec<usize> = scenario.expectations.iter().filter_map(|one| one.cpus).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let sized = |cpus: usize| {
        let mut other = scenario.sized(cpus, scenario.workload.tasks.len());
        other.expectations.retain(|one| one.cpus == Some(cpus));
        let wanted = |name: &str| {
            let asks = |pattern: &Option<String>| {
                pattern.as_ref().is_some_and(|one| schedlab_model::text::glob(one, name))
            };
            other.expectations.iter().any(|one| asks(&one.variant) || asks(&one.over))
        };
        let variants =
            scenario.variants.iter().filter(|variant| wanted(&variant.name)).cloned().collect();
        other.variants = variants;
        other
    };
    sizes.into_iter().filter(|cpus| *cpus != own).map(sized).collect()
}

/// The one figure of an expectation; `None` when no row of the table is what it is about.
fn figure(expectation: &Expectation, own: usize, checked: &[Checked]) -> Option<Figure> {
    let lines = checked.iter().filter(|one| one.line == expectation.line);
    let weight = |one: &&Checked| {
        let Some(deviation) = one.deviation else { return f64::from(u8::from(!one.holds)) };
        match expectation.metric {
            Metric::Latency(Stat::Max) | Metric::Response(Stat::Max) | Metric::Wait(Stat::Max) => {
                deviation.here
            }
            _ => deviation.difference.abs(),
        }
    };
    let shown = lines.clone().max_by(|a, b| weight(a).total_cmp(&weight(b)))?.clone();
    let publication = expectation.publication.clone();
    let (source, name, fitted, cause) = publication
        .map_or((None, None, false, None), |one| (one.source, one.figure, one.fitted, one.cause));
    let kind = match source.as_deref().and_then(source::find) {
        _ if fitted => FigureKind::Fitted,
        Some(Source { kind: SourceKind::RealCode, .. }) => FigureKind::RealCode,
        _ => FigureKind::Paper,
    };
    let what = shown.expectation.split(" is ").next().unwrap_or_default();
    let figure = name.unwrap_or_else(|| match shown.variant.as_str() {
        "as it is" => format!("{what}, {}", shown.scheduler),
        variant => format!("{what}, {}, {variant}", shown.scheduler),
    });
    Some(Figure {
        figure,
        source,
        kind,
        cause,
        cpus: expectation.cpus.filter(|cpus| *cpus != own),
        lines: lines.count(),
        checked: shown,
    })
}
