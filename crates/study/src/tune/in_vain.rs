//! Nice values that count against no other task: the search names them, and does not try them.

use super::{Dimension, Target, space};
use crate::StudyError;
use crate::compare::{Point, known_of_scenario, plan_of_point};
use crate::no_effect::{self, NoEffect};
use crate::run::RowPlan;
use crate::variant::Variant;
use schedlab_scheduler::SchedulerSpec;

/// Settings of tasks that decide with which others a nice value counts.
const PLACES: [&str; 3] = ["group", "cpus", "policy"];

/// Returns the dimensions that can matter, and a sentence about each of the others.
///
/// # Errors
/// None can matter.
pub(super) fn leave_out(
    input: Target<'_>,
    dimensions: Vec<Dimension>,
    base: &SchedulerSpec,
) -> Result<(Vec<Dimension>, Vec<String>), StudyError> {
    // Where another dimension moves tasks, the group is not known.
    let is_fixed = !dimensions
        .iter()
        .any(|dimension| dimension.has_fixed() || PLACES.iter().any(|key| dimension.sets(key)));
    let named: Vec<SchedulerSpec> =
        dimensions.iter().flat_map(|dimension| Dimension::schedulers(dimension.text())).collect();
    let schedulers = if named.is_empty() { vec![base.clone()] } else { named };
    let (mut left, mut notes) = (Vec::new(), Vec::new());
    for dimension in dimensions {
        let found = match is_fixed && dimension.sets("nice") {
            true => of_dimension(input, &dimension, base, &schedulers)?,
            false => None,
        };
        match found {
            Some(why) => notes.push(format!("--space '{}': {why}", dimension.text())),
            None => left.push(dimension),
        }
    }
    match left.is_empty() {
        true => Err(StudyError::Option(notes.join("; "))),
        false => Ok((left, notes.iter().map(|note| format!("not tried: {note}")).collect())),
    }
}

/// Returns why the values at both ends of a dimension change nothing; `None`: one may.
fn of_dimension(
    input: Target<'_>,
    dimension: &Dimension,
    base: &SchedulerSpec,
    schedulers: &[SchedulerSpec],
) -> Result<Option<String>, StudyError> {
    let mut found: Option<NoEffect> = None;
    for scheduler in schedulers {
        let unchanged = Point { scheduler: Some(scheduler.clone()), variant: as_it_is() };
        let unchanged = plan(input, base, &unchanged)?;
        for point in space::ends(dimension, scheduler).map_err(StudyError::Option)? {
            let point = Point { scheduler: Some(scheduler.clone()), ..point };
            let plan = plan(input, base, &point)?;
            if plan.workload == unchanged.workload {
                continue;
            }
            match of_plan(input, &plan, &unchanged) {
                Some(one) => found = Some(one),
                None => return Ok(None),
            }
        }
    }
    Ok(found.map(|one| {
        let search =
            one.space().map_or(String::new(), |text| format!(" Search it: --space '{text}'"));
        format!("{}{search}", one.short)
    }))
}

fn as_it_is() -> Variant {
    Variant { name: "unchanged".to_owned(), schedulers: Vec::new(), clauses: Vec::new() }
}

fn plan(input: Target<'_>, base: &SchedulerSpec, point: &Point) -> Result<RowPlan, StudyError> {
    match input {
        Target::Scenario(scenario, _) => plan_of_point(scenario, base, point),
        Target::Recording(recorded, _) => recorded.plan_of_point(base, point),
    }
}

fn of_plan(input: Target<'_>, plan: &RowPlan, unchanged: &RowPlan) -> Option<NoEffect> {
    match input {
        Target::Scenario(scenario, _) => {
            no_effect::of_whole_plan(plan, unchanged, known_of_scenario(scenario))
        }
        Target::Recording(recorded, _) => {
            no_effect::of_whole_plan(plan, unchanged, recorded.known(&|task| recorded.share(task)))
        }
    }
}
