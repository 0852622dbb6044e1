//! The space of a search: one to three dimensions, each a setting with values, and the points that
//! are tried of it.

use crate::compare::Point;
use crate::variant::{Variant, quoted_target};
use schedlab_model::Ns;
use schedlab_model::text::{decimal, nearest, scaled};
use schedlab_scheduler::{
    Knob, KnobError, KnobKind, SchedulerList, SchedulerSpec, registry, sched_ext,
};
use schedlab_stats::Random;
use std::collections::BTreeSet;

/// A search without the Python package has so many dimensions at most.
pub const MOST_DIMENSIONS: usize = 3;
/// A range of whole numbers is listed when it has so many at most.
const LISTED: u64 = 64;
/// A range is walked by factors when its end is so many times its beginning.
const BY_FACTORS: u64 = 8;
/// A grid has so many values of a range at least; with fewer a sample fills the space better.
const GRID_LEAST: usize = 5;
/// A setting of these keys changes how much there is to do.
const OF_LOAD: [&str; 4] = ["demand", "off", "rate", "clients"];

/// One dimension.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dimension {
    /// What is set: `sysbench nice`, `base_slice_ns`, `scheduler`.
    pub what: String,
    of: Of,
    values: Values,
    /// Settings that every value of it has: what makes the group of a limit. Empty: none.
    fixed: String,
    text: String,
}

/// What a dimension sets.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Of {
    Scheduler,
    Knob(String),
    Setting { target: String, key: String },
}

/// The values of a dimension.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Values {
    List(Vec<String>),
    Range(Range),
}

/// A range of numbers of one unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    unit: Unit,
    low: i64,
    high: i64,
    /// Values are multiples of it.
    step: i64,
}

/// In what the numbers of a range are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Whole,
    /// Nanoseconds.
    Time,
    Percent,
}

impl Dimension {
    /// Reads `[TARGET ]KEY=V1,V2,...` or `[TARGET ]KEY=LOW..HIGH`. Before a `;` stand settings that
    /// every value has, such as `sysbench group=/batch ; /batch cpu.max=10%..90%`. A knob may stand
    /// without values, and has then those that the scheduler allows. `schedulers`: those whose
    /// knobs are meant.
    ///
    /// # Errors
    /// What is wrong, and what is allowed.
    pub fn parse(text: &str, schedulers: &[SchedulerSpec]) -> Result<Dimension, String> {
        let form = || {
            "write 'TASK KEY=LOW..HIGH', 'TASK KEY=V1,V2', 'KNOB=LOW..HIGH' or \
                       'scheduler=S1,S2', such as 'sysbench nice=0..19'"
        };
        let (fixed, varied) = text.rsplit_once(';').unwrap_or(("", text));
        let fixed = fixed.trim().to_owned();
        if !fixed.is_empty() {
            Variant::parse_named("", &fixed)
                .map_err(|error| format!("`{fixed}` before the `;`: {error}"))?;
        }
        let (left, right) = match varied.split_once('=') {
            Some((left, right)) => (left.trim(), Some(right.trim())),
            None => (varied.trim(), None),
        };
        if left.is_empty() {
            return Err(format!("it names no setting: {}", form()));
        }
        let (target, key) = left.rsplit_once(char::is_whitespace).unwrap_or(("scheduler", left));
        let target = target.trim().trim_matches(['"', '\'']).to_owned();
        let of = match (target.as_str(), key) {
            ("scheduler", "scheduler") => Of::Scheduler,
            ("scheduler", knob) => Of::Knob(knob.to_owned()),
            _ => Of::Setting { target: target.clone(), key: key.to_owned() },
        };
        if OF_LOAD.contains(&key) {
            return Err(format!(
                "`{key}` changes how much there is to do, which is no setting; `schedlab compare \
                 --scan` shows what other loads give"
            ));
        }
        let knob = if let Of::Knob(name) = &of { knob(name, schedulers)? } else { None };
        let mut values = match (right, &knob) {
            (Some(right), _) if of == Of::Scheduler => scheduler_list(right)?,
            (Some(right), _) => values(right).map_err(|what| format!("{what}: {}", form()))?,
            (None, Some(knob)) => allowed(knob),
            (None, None) if of == Of::Scheduler || !matches!(of, Of::Knob(_)) => {
                return Err(format!("`{left}` has no values: {}", form()));
            }
            (None, None) => {
                return Err(format!(
                    "`{left}` is an option of a scheduler in BPF, which says no bounds: write \
                     '{left}=LOW..HIGH' or '{left}=V1,V2'"
                ));
            }
        };
        if let (Values::Range(range), Some(KnobKind::Steps(steps))) =
            (&mut values, knob.map(|knob| knob.kind))
        {
            range.step = steps.step.0.max(1) as i64;
        }
        if let (Of::Scheduler, Values::List(names)) = (&of, &values) {
            for name in names {
                let spec = name.parse::<SchedulerSpec>().map_err(|error| error.to_string())?;
                registry::check(&spec).map_err(|error| error.to_string())?;
            }
        }
        let what = if target == "scheduler" { key.to_owned() } else { format!("{target} {key}") };
        Ok(Dimension { what, of, values, fixed, text: text.trim().to_owned() })
    }

    /// Returns it as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is about this setting of tasks or groups.
    pub(super) fn sets(&self, key: &str) -> bool {
        matches!(&self.of, Of::Setting { key: own, .. } if own == key)
    }

    /// Whether settings go with every value.
    pub(super) fn has_fixed(&self) -> bool {
        !self.fixed.is_empty()
    }

    /// Returns the schedulers of the dimension, if it is about them.
    pub fn schedulers(text: &str) -> Vec<SchedulerSpec> {
        let (left, names) = text.split_once('=').unwrap_or_default();
        let own = left.trim() == "scheduler";
        names.parse::<SchedulerList>().ok().filter(|_| own).map_or_else(Vec::new, |list| list.0)
    }

    /// Returns how many values there are, where they can be listed.
    fn count(&self) -> Option<usize> {
        match &self.values {
            Values::List(list) => Some(list.len()),
            Values::Range(range) => range.count(),
        }
    }

    /// Returns value number `index` of `of` values that go from the beginning to the end.
    fn level(&self, index: usize, of: usize) -> String {
        match &self.values {
            Values::List(list) => list[index].clone(),
            Values::Range(range) if range.count() == Some(of) => {
                range.show(range.low + index as i64 * range.step)
            }
            Values::Range(range) => range.at(index as f64 / (of.max(2) - 1) as f64),
        }
    }

    /// Returns the value at `part` (0 to 1, 1 excluded) of the way.
    fn at(&self, part: f64) -> String {
        match self.count() {
            Some(count) => self.level(((part * count as f64) as usize).min(count - 1), count),
            None => self.level_of_range(part),
        }
    }

    fn level_of_range(&self, part: f64) -> String {
        match &self.values {
            Values::List(list) => list[0].clone(),
            Values::Range(range) => range.at(part),
        }
    }

    /// Returns the values at its ends: what is wrong with a dimension is wrong with one of these,
    /// and with each of a list.
    pub(super) fn ends(&self) -> Vec<String> {
        match &self.values {
            Values::List(list) => list.clone(),
            Values::Range(range) => vec![range.show(range.low), range.show(range.high)],
        }
    }
}

impl Range {
    fn count(&self) -> Option<usize> {
        let count = (self.high.abs_diff(self.low) / self.step.unsigned_abs().max(1)) + 1;
        let listed = self.unit != Unit::Time || self.step > 1;
        (listed && count <= LISTED).then_some(count as usize)
    }

    /// Returns the value at `part` of the way: by factors where the range is wide and begins
    /// above 0. It has three digits.
    fn at(&self, part: f64) -> String {
        let (low, high) = (self.low as f64, self.high as f64);
        let wide = self.low > 0 && self.high / self.low >= BY_FACTORS as i64;
        let value =
            if wide { low * libm::pow(high / low, part) } else { low + (high - low) * part };
        let digits = 10_f64.powi((libm::log10(value.abs().max(1.0)).floor() as i32 - 2).max(0));
        let rounded = ((value / digits).round() * digits) as i64;
        let steps = (rounded + self.step / 2).div_euclid(self.step) * self.step;
        self.show(steps.clamp(self.low, self.high))
    }

    fn show(&self, value: i64) -> String {
        match self.unit {
            Unit::Whole => value.to_string(),
            Unit::Percent => format!("{}%", decimal(value.unsigned_abs(), 1)),
            Unit::Time => match value.unsigned_abs() {
                ns if ns >= 1_000_000_000 => format!("{}s", decimal(ns, 9)),
                ns if ns >= 1_000_000 => format!("{}ms", decimal(ns, 6)),
                ns if ns >= 1_000 => format!("{}us", decimal(ns, 3)),
                ns => format!("{ns}ns"),
            },
        }
    }
}

fn values(text: &str) -> Result<Values, String> {
    if let Some((low, high)) = text.split_once("..") {
        let (low, high) = (low.trim(), high.trim());
        let read = |text: &str| {
            number(text).ok_or_else(|| format!("`{text}` is no whole number, time or percentage"))
        };
        let ((unit, low), (other, high)) = (read(low)?, read(high)?);
        if unit != other {
            return Err(format!("`{text}`: both ends of a range have one unit"));
        }
        if low >= high {
            return Err(format!(
                "`{text}` is empty: the range goes from a smaller value to a larger one"
            ));
        }
        return Ok(Values::Range(Range { unit, low, high, step: 1 }));
    }
    let list: Vec<String> = text.split(',').map(|value| value.trim().to_owned()).collect();
    if list.iter().any(String::is_empty) {
        return Err(format!("`{text}` has an empty value"));
    }
    several(text, list)
}

/// Schedulers with a comma between them, which may have options with commas of their own.
fn scheduler_list(text: &str) -> Result<Values, String> {
    let list: SchedulerList = text.parse().map_err(|error: KnobError| error.to_string())?;
    several(text, list.0.iter().map(SchedulerSpec::to_string).collect())
}

fn several(text: &str, list: Vec<String>) -> Result<Values, String> {
    let unique: BTreeSet<&String> = list.iter().collect();
    if unique.len() < 2 || unique.len() < list.len() {
        return Err(format!(
            "`{text}`: there is nothing to choose from: give two values or more, each once"
        ));
    }
    Ok(Values::List(list))
}

/// A whole number, a time with its unit, or a percentage in tenths.
fn number(text: &str) -> Option<(Unit, i64)> {
    if let Ok(number) = text.parse::<i64>() {
        return Some((Unit::Whole, number));
    }
    if let Some(percent) = text.strip_suffix('%') {
        return Some((Unit::Percent, i64::try_from(scaled(percent, 1)?).ok()?));
    }
    Some((Unit::Time, i64::try_from(text.parse::<Ns>().ok()?.0).ok()?))
}

/// The knob of this name, of the first scheduler that has it; `None`: it is an option of a
/// scheduler in BPF.
fn knob(name: &str, schedulers: &[SchedulerSpec]) -> Result<Option<Knob>, String> {
    let mut all = Vec::new();
    for spec in schedulers {
        if sched_ext::is_object(&spec.name) {
            match sched_ext::check_option(&spec.name, name) {
                Ok(()) => return Ok(None),
                Err(why) if schedulers.len() == 1 => return Err(why),
                Err(_) => continue,
            }
        }
        all.extend((registry::find(&spec.name).map_err(|error| error.to_string())?.knobs)());
    }
    if let Some(knob) = all.iter().find(|knob| knob.name == name) {
        return Ok(Some(knob.clone()));
    }
    let hint = nearest(name, all.iter().map(|knob| knob.name))
        .map(|right| format!(" (did you mean `{right}`?)"))
        .unwrap_or_default();
    let names: Vec<&str> = schedulers.iter().map(|spec| spec.name.as_str()).collect();
    Err(format!(
        "{} has no knob `{name}`{hint}; `schedlab list schedulers -v` shows all. A setting of a \
         task has its name first: 'TASK {name}=...'",
        names.join(" or ")
    ))
}

/// Every value that the scheduler allows.
fn allowed(knob: &Knob) -> Values {
    let range = |unit, low, high, step| Values::Range(Range { unit, low, high, step });
    match knob.kind {
        KnobKind::Time(low, high) => range(Unit::Time, low.0 as i64, high.0 as i64, 1),
        KnobKind::Steps(steps) => {
            range(Unit::Time, steps.low.0 as i64, steps.high.0 as i64, steps.step.0.max(1) as i64)
        }
        KnobKind::Number(low, high) => range(Unit::Whole, low, high, 1),
        KnobKind::Flag => Values::List(vec!["on".to_owned(), "off".to_owned()]),
        KnobKind::Word(words) => {
            Values::List(words.iter().map(|word| (*word).to_owned()).collect())
        }
    }
}

/// Returns the points of the space, each once, and whether they are a grid. `base`: the scheduler
/// of the first row.
///
/// # Errors
/// A combination that cannot be written as a variant.
pub(super) fn points(
    space: &[Dimension],
    base: &SchedulerSpec,
    trials: usize,
    seed: u64,
) -> Result<(Vec<Point>, bool), String> {
    let counts: Vec<Option<usize>> = space.iter().map(Dimension::count).collect();
    let listed: usize = counts.iter().flatten().product();
    let ranges = counts.iter().filter(|count| count.is_none()).count();
    // Values of each range, so that the grid has `trials` points at most.
    let of_range = (2..=LISTED as usize)
        .rev()
        .find(|levels| listed.saturating_mul(levels.saturating_pow(ranges as u32)) <= trials)
        .unwrap_or(1);
    let grid = if ranges == 0 { listed <= trials } else { of_range >= GRID_LEAST };
    let values: Vec<Vec<String>> = match grid {
        true => on_grid(space, &counts, of_range),
        false => sample(space, trials, seed),
    };
    let mut seen = BTreeSet::new();
    let mut points = Vec::new();
    for values in values {
        let point = compose(space, &values, base)?;
        if seen.insert(point.variant.name.clone()) {
            points.push(point);
        }
    }
    Ok((points, grid))
}

fn on_grid(space: &[Dimension], counts: &[Option<usize>], of_range: usize) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = vec![Vec::new()];
    for (dimension, count) in space.iter().zip(counts) {
        let levels = count.unwrap_or(of_range);
        let with = |values: Vec<String>| {
            (0..levels).map(move |index| {
                let mut values = values.clone();
                values.push(dimension.level(index, levels));
                values
            })
        };
        all = all.into_iter().flat_map(with).collect();
    }
    all
}

/// Fills the space evenly: the additive sequence of the generalised golden ratio (Roberts 2018,
/// "The unreasonable effectiveness of quasirandom sequences"), begun at a random place.
fn sample(space: &[Dimension], trials: usize, seed: u64) -> Vec<Vec<String>> {
    let mut random = Random::new(seed);
    let begin: Vec<f64> = space.iter().map(|_| random.unit()).collect();
    let root = golden(space.len());
    let steps: Vec<f64> = (1..=space.len()).map(|power| 1.0 / root.powi(power as i32)).collect();
    let part = |index: usize, axis: usize| (begin[axis] + steps[axis] * (index + 1) as f64).fract();
    let at = |index| space.iter().enumerate().map(|(axis, of)| of.at(part(index, axis))).collect();
    (0..trials).map(at).collect()
}

/// The root of x^(d+1) = x + 1 above 1.
fn golden(dimensions: usize) -> f64 {
    let mut root: f64 = 2.0;
    for _ in 0..64 {
        root = libm::pow(1.0 + root, 1.0 / (dimensions as f64 + 1.0));
    }
    root
}

/// Returns the point of these values. A knob that the point's scheduler does not have is no part of
/// it.
pub(super) fn compose(
    space: &[Dimension],
    values: &[String],
    base: &SchedulerSpec,
) -> Result<Point, String> {
    if values.len() != space.len() {
        return Err(format!("{} values for {} dimensions", values.len(), space.len()));
    }
    let pairs = || space.iter().zip(values);
    let chosen =
        pairs().find(|(dimension, _)| dimension.of == Of::Scheduler).map(|(_, value)| value);
    let scheduler = match chosen {
        Some(value) => Some(value.parse::<SchedulerSpec>().map_err(|error| error.to_string())?),
        None => None,
    };
    let own = &scheduler.as_ref().unwrap_or(base).name;
    let knobs = registry::find(own).map(|entry| (entry.knobs)()).map_err(|e| e.to_string())?;
    let has = |name: &str| match sched_ext::is_object(own) {
        true => sched_ext::check_option(own, name).is_ok(),
        false => knobs.iter().any(|knob| knob.name == name),
    };
    // What one target has is one clause.
    let mut clauses: Vec<(String, Vec<String>)> = Vec::new();
    for (dimension, value) in pairs() {
        let (target, setting) = match &dimension.of {
            Of::Scheduler => continue,
            Of::Knob(name) if !has(name) => continue,
            Of::Knob(name) => ("scheduler".to_owned(), format!("{name}={value}")),
            Of::Setting { target, key } => (target.clone(), format!("{key}={value}")),
        };
        match clauses.iter_mut().find(|(known, _)| *known == target) {
            Some((_, settings)) => settings.push(setting),
            None => clauses.push((target, vec![setting])),
        }
    }
    let clause = |(target, settings): &(String, Vec<String>)| {
        format!("{} {}", quoted_target(target), settings.join(" "))
    };
    let mut texts: Vec<String> = Vec::new();
    for dimension in space.iter().filter(|dimension| !dimension.fixed.is_empty()) {
        if !texts.contains(&dimension.fixed) {
            texts.push(dimension.fixed.clone());
        }
    }
    texts.extend(clauses.iter().map(clause));
    let text = texts.join(" ; ");
    let name = match (&scheduler, text.is_empty()) {
        (Some(scheduler), true) => scheduler.to_string(),
        (Some(scheduler), false) => format!("{scheduler}, {text}"),
        (None, _) => text.clone(),
    };
    let variant = match text.is_empty() {
        true => Variant { name, schedulers: Vec::new(), clauses: Vec::new() },
        false => Variant::parse_named(&name, &text).map_err(|error| error.to_string())?,
    };
    Ok(Point { scheduler, variant })
}

/// Returns the points at the ends of one dimension alone, to be checked before anything runs.
pub(super) fn ends(dimension: &Dimension, base: &SchedulerSpec) -> Result<Vec<Point>, String> {
    let alone = std::slice::from_ref(dimension);
    dimension.ends().into_iter().map(|value| compose(alone, &[value], base)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linux() -> SchedulerSpec {
        "linux-6.18".parse().unwrap()
    }

    fn space(texts: &[&str]) -> Vec<Dimension> {
        texts.iter().map(|text| Dimension::parse(text, &[linux()]).unwrap()).collect()
    }

    fn names(texts: &[&str], trials: usize, seed: u64) -> (Vec<String>, bool) {
        let (points, grid) = points(&space(texts), &linux(), trials, seed).unwrap();
        (points.into_iter().map(|point| point.variant.name).collect(), grid)
    }

    #[test]
    fn what_fits_is_a_grid() {
        let (names, grid) = names(&["a policy=batch,idle", "a nice=0..19"], 40, 1);
        assert!(grid && names.len() == 40);
        assert_eq!(names[1], "a policy=batch nice=1");
        assert_eq!(names[39], "a policy=idle nice=19");
        let (names, grid) =
            super::tests::names(&["base_slice_ns=0.3ms..30ms", "a policy=batch,idle"], 20, 1);
        assert!(grid && names.len() == 20, "{names:?}");
        assert_eq!(names[0], "scheduler base_slice_ns=300us ; a policy=batch");
        assert_eq!(names[19], "scheduler base_slice_ns=30ms ; a policy=idle");
    }

    #[test]
    fn what_does_not_fit_is_a_sample_that_fills_the_space() {
        let texts = ["a nice=0..19", "b nice=0..19", "base_slice_ns=0.3ms..30ms"];
        let (all, grid) = names(&texts, 60, 7);
        assert!(!grid && all.len() == 60, "{}", all.len());
        assert_eq!(all, names(&texts, 60, 7).0);
        assert_ne!(all, names(&texts, 60, 8).0);
        for half in [0..10, 10..20] {
            let of = |name: &&String| {
                half.clone().any(|nice| {
                    name.contains(&format!("; a nice={nice} "))
                        || name.starts_with(&format!("a nice={nice} "))
                })
            };
            let count = all.iter().filter(of).count();
            assert!((25..=35).contains(&count), "{half:?}: {count}");
        }
    }

    #[test]
    fn a_knob_that_a_scheduler_has_not_is_no_part_of_its_points() {
        let schedulers = ["linux-6.1", "linux-6.18"].map(|name| name.parse().unwrap());
        let space: Vec<Dimension> = ["scheduler=linux-6.1,linux-6.18", "base_slice_ns=1ms,2ms"]
            .iter()
            .map(|text| Dimension::parse(text, &schedulers).unwrap())
            .collect();
        let (points, _) = points(&space, &linux(), 100, 1).unwrap();
        let names: Vec<&str> = points.iter().map(|point| point.variant.name.as_str()).collect();
        let expected = [
            "linux-6.1",
            "linux-6.18, scheduler base_slice_ns=1ms",
            "linux-6.18, scheduler base_slice_ns=2ms",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn values_have_three_digits_and_stay_inside() {
        let [dimension] = &space(&["base_slice_ns=0.3ms..30ms"])[..] else { panic!() };
        for index in 0..37 {
            let text = dimension.level(index, 37);
            let ns: Ns = text.parse().unwrap_or_else(|_| panic!("{text}"));
            assert!(ns >= Ns::from_us(300) && ns <= Ns::from_ms(30), "{text}");
        }
        assert_eq!(dimension.level(18, 37), "3ms");
        let [percent] = &space(&["/g cpu.max=10%..100%"])[..] else { panic!() };
        assert_eq!(
            (percent.level(0, 3), percent.level(1, 3)),
            ("10%".to_owned(), "31.6%".to_owned())
        );
    }

    #[test]
    fn a_target_with_blanks_is_quoted() {
        let (names, _) = names(&["\"Web Content\" nice=1,2"], 10, 1);
        assert_eq!(names, ["\"Web Content\" nice=1", "\"Web Content\" nice=2"]);
    }

    #[test]
    fn what_every_value_has_stands_before_it() {
        let group = "a group=/batch ; /batch cpu.max=10%,50%";
        let (all, _) =
            names(&[group, "a nice=0,5", "a group=/batch ; /batch cpu.weight=1,100"], 100, 1);
        assert_eq!(all.len(), 8);
        assert_eq!(all[0], "a group=/batch ; /batch cpu.max=10% cpu.weight=1 ; a nice=0");
        assert!(Variant::parse(&all[0]).is_ok());
        let error =
            Dimension::parse("a grup=/batch ; /batch cpu.max=10%,50%", &[linux()]).unwrap_err();
        assert!(
            error.contains("before the `;`") && error.contains("did you mean `group`"),
            "{error}"
        );
    }

    #[test]
    fn refusals_teach() {
        for (text, part) in [
            ("", "names no setting"),
            ("sysbench nice", "has no values"),
            ("sysbench nice=5..2", "is empty"),
            ("sysbench nice=5..5", "is empty"),
            ("sysbench nice=", "empty value"),
            ("sysbench nice=3", "nothing to choose from"),
            ("sysbench nice=3,3", "each once"),
            ("sysbench nice=a..b", "no whole number, time or percentage"),
            ("sysbench slice=1ms..5", "one unit"),
            ("base_slice=1ms,2ms", "did you mean `base_slice_ns`"),
            ("nice=0..19", "has its name first"),
            ("scheduler=linux-6.18,linux-9", "unknown scheduler"),
            ("sysbench demand=x1,x2", "no setting"),
        ] {
            let error = Dimension::parse(text, &[linux()]).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
