//! What `schedlab list` prints as JSON.

use crate::scenario::Scenario;
use schedlab_scheduler::Needs;
use schedlab_scheduler::registry::{self, Entry};
use schemars::JsonSchema;
use serde::Serialize;

/// Version of the JSON.
pub const SCHEMA: &str = "schedlab-list/1";

/// The JSON of `list`: schedulers or scenarios.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
#[serde(untagged)]
pub enum ListOutput<'a> {
    /// Schedulers and their knobs.
    Schedulers(SchedulersOutput),
    /// Which schedulers can run real threads.
    Live(LiveOutput),
    /// The scenarios of the gallery.
    Scenarios(ScenariosOutput<'a>),
}

/// Schedulers and their knobs.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct SchedulersOutput {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// All schedulers, in the order of the list.
    pub schedulers: Vec<ListedScheduler>,
}

/// A scheduler.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ListedScheduler {
    /// Its name, such as `linux-6.18`.
    pub name: &'static str,
    /// What it is and when it was used, in one line.
    pub summary: &'static str,
    /// Its knobs.
    pub knobs: Vec<ListedKnob>,
    /// What it needs of its driver, which policies it refuses and what in it was fitted, one
    /// sentence each.
    pub capabilities: Vec<String>,
}

/// A knob of a scheduler.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ListedKnob {
    /// Its name in the real system, such as `sched_latency_ns`.
    pub name: &'static str,
    /// Its default, as text (it may depend on the machine: `6ms times the scaling factor`).
    pub default: String,
    /// The values that it may have.
    pub allowed: String,
    /// The unit of a number; empty for a plain number, and for times, which are written with their
    /// unit.
    pub unit: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// Where the real system has it.
    pub source: &'static str,
}

/// Which schedulers can run real threads (`list schedulers --live`).
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct LiveOutput {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// All schedulers, in the order of the list.
    pub schedulers: Vec<LiveScheduler>,
}

/// Whether a scheduler can run real threads on this machine, for this user.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct LiveScheduler {
    /// Its name.
    pub name: &'static str,
    /// Whether it can.
    pub live: bool,
    /// The need that cannot be met; `None`: it can run. Without the kernel's wakeup events no
    /// scheduler can.
    pub missing: Option<&'static str>,
    /// What it needs of its driver.
    pub needs: LiveNeeds,
}

/// What a scheduler needs of its driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct LiveNeeds {
    /// Wakeups, as they happen.
    pub wakeups: bool,
    /// Ticks.
    pub ticks: bool,
    /// The waker of each wakeup.
    pub wakers: bool,
    /// Slices that end exactly, by a timer of their own.
    pub exact_slices: bool,
}

/// The scenarios of the gallery.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct ScenariosOutput<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// All scenarios, by name.
    pub scenarios: Vec<ListedScenario<'a>>,
}

/// A scenario.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct ListedScenario<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is, in one line.
    pub title: &'a str,
    /// What it shows.
    pub about: &'a str,
    /// The schedulers under which it runs, with their knobs.
    pub schedulers: Vec<String>,
    /// Name of the unchanged variant.
    pub baseline: &'a str,
    /// Names of the other variants.
    pub variants: Vec<&'a str>,
    /// Number of published figures that it is held to.
    pub expectations: usize,
}

impl SchedulersOutput {
    /// Returns all schedulers of the registry.
    pub fn all() -> SchedulersOutput {
        let schedulers = registry::all().iter().map(ListedScheduler::from).collect();
        SchedulersOutput { schema: SCHEMA, schedulers }
    }
}

impl From<&Entry> for ListedScheduler {
    fn from(entry: &Entry) -> ListedScheduler {
        let knobs = (entry.knobs)().into_iter().map(|knob| ListedKnob {
            allowed: knob.allowed(),
            name: knob.name,
            default: knob.default,
            unit: knob.unit,
            doc: knob.doc,
            source: knob.source,
        });
        ListedScheduler {
            name: entry.name,
            summary: entry.summary,
            knobs: knobs.collect(),
            capabilities: entry.capabilities(),
        }
    }
}

impl LiveScheduler {
    /// Returns whether a scheduler with these needs can run here; `missing` is the need that cannot
    /// be met.
    pub fn new(name: &'static str, needs: Needs, missing: Option<&'static str>) -> LiveScheduler {
        let Needs { wakeups, ticks, wakers, exact_slices, .. } = needs;
        let needs = LiveNeeds { wakeups, ticks, wakers, exact_slices };
        LiveScheduler { name, live: missing.is_none(), missing, needs }
    }
}

impl<'a> ListedScenario<'a> {
    /// Returns a scenario of the gallery as a list has it.
    pub fn new(name: &'a str, scenario: &'a Scenario) -> ListedScenario<'a> {
        ListedScenario {
            name,
            title: &scenario.title,
            about: &scenario.about,
            schedulers: scenario.schedulers.iter().map(ToString::to_string).collect(),
            baseline: &scenario.baseline,
            variants: scenario.variants.iter().map(|variant| variant.name.as_str()).collect(),
            expectations: scenario.expectations.len(),
        }
    }
}
