//! Random agents.

use super::dice::Dice;
use super::draft::{Draft, quote};
use super::parts::Shape;
use schedlab_model::Ns;
use schedlab_sim::DelegationCosts;

/// Every third scenario runs behind agents, which may die or hang.
pub(super) fn draw(dice: &mut Dice, draft: &mut Draft, shape: &Shape, duration: Ns) {
    if !dice.chance(33) || shape.nested {
        return;
    }
    let names: Vec<String> = draft.names("task");
    let mut set = |key: &str, value: String| draft.delegation.push((key.to_owned(), value));
    if shape.cpus > 1 && dice.chance(50) {
        set("mode", quote("global"));
        set("agent", dice.between(0, shape.cpus - 1).to_string());
    } else {
        set("mode", quote("per-cpu"));
    }
    let presets: Vec<&str> = DelegationCosts::presets().collect();
    let costs: &&str = dice.pick(&presets);
    set("costs", quote(costs));
    if dice.chance(33) {
        for (name, _) in DelegationCosts::NAMES {
            set(name, quote(&Ns(dice.between(0, 3_000)).exact()));
        }
    }
    set("group", dice.between(1, 8).to_string());
    let outside: Vec<String> = names.into_iter().filter(|_| dice.chance(15)).collect();
    if !outside.is_empty() {
        set("outside", format!("[{}]", outside.join(", ")));
    }
    let at = Ns(dice.between(0, duration.0));
    match dice.between(0, 4) {
        0 => set("die", quote(&at.exact())),
        1 => set("hang", quote(&at.exact())),
        _ => {}
    }
    if dice.chance(50) {
        set("runnable_timeout", quote(&Ns::from_ms(dice.between(5, 200)).exact()));
    }
}

/// A negative penalty makes every task of Linux 2.4 better anywhere else: those that wait change
/// places with those that run for ever, and only the price of a switch lets time pass.
pub(super) fn let_time_pass(draft: &mut Draft, scheduler: &str) {
    if !scheduler.contains("proc_change_penalty=-") {
        return;
    }
    draft.costs.retain(|(name, _)| name != "other_switch_ns");
    draft.costs.push(("other_switch_ns".to_owned(), quote("20us")));
    if let Some((_, costs)) = draft.delegation.iter_mut().find(|(key, _)| key == "costs") {
        *costs = quote("ghost-2021");
        draft.delegation.retain(|(key, _)| !key.ends_with("_ns"));
    }
}
