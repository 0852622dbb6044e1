//! Third stage, part three: what an operation costs more because of when it was made. An activation
//! costs something that does not grow with its messages, and a send that ends the wait of another
//! task costs that wakeup. Both change with the schedule: a server that is never preempted finds its
//! client awake, and answers many messages in one activation.
//!
//! Like is compared with like: steps of one coroutine (or sends of one script to one object),
//! because what different connections ask for costs different amounts, and of one place in a
//! request, because the first bytes of an answer cost the work for it and the next ones do not. What
//! is often both counts more.

use schedlab_model::{Act, Coroutine, Ns, Step};
use std::collections::BTreeMap;

/// Places of a receive behind the last send, or of a send behind the last receive, that are told
/// apart; what is further behind is as the last. Chosen: an answer in more parts goes on alike.
const PLACES: usize = 4;

/// What the threads of an executor pay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Prices {
    /// How much more the first receive and the first send of an activation cost than the others,
    /// in nanoseconds; may be negative.
    pub(crate) first: [i64; 2],
    /// How much more a send costs that ends a wait: one that is not the first of its activation,
    /// and the first.
    pub(crate) wake: [Ns; 2],
}

/// Number and sum of costs.
#[derive(Clone, Copy, Default)]
struct Cell {
    count: i128,
    sum: i128,
}

/// By first of its activation, and by whether it ended a wait.
type Cells = [[Cell; 2]; 2];

/// A mean of differences, each with its weight.
#[derive(Clone, Copy, Default)]
struct Difference {
    sum: i128,
    weight: i128,
}

impl Difference {
    /// Adds how much more `more` costs on average than `less`.
    fn add(&mut self, less: Cell, more: Cell) {
        let weight = less.count.min(more.count);
        if weight > 0 {
            self.sum += weight * (more.sum / more.count - less.sum / less.count);
            self.weight += weight;
        }
    }

    /// Returns the mean; `None`: there was nothing to compare.
    fn mean(self) -> Option<i64> {
        let mean = self.sum.checked_div(self.weight)?;
        i64::try_from(mean).ok()
    }
}

/// Costs by kind (receive, send) and place.
#[derive(Default)]
struct Costs {
    cells: [[Cells; PLACES]; 2],
    places: [usize; 2],
}

impl Costs {
    /// Adds a step.
    fn add(&mut self, step: &Step, first: bool) {
        let kind = match step.act {
            Act::Receive { .. } => 0,
            Act::Send { .. } => 1,
            _ => return,
        };
        let place = self.places[kind];
        self.places[kind] = (place + 1).min(PLACES - 1);
        self.places[1 - kind] = 0;
        let cell = &mut self.cells[kind][place][usize::from(first)][usize::from(step.woke)];
        cell.count += 1;
        cell.sum += i128::from(step.before.0) + i128::from(step.after.0);
    }
}

/// Returns the prices of an executor.
pub(crate) fn of_executor(coroutines: &[Coroutine]) -> Prices {
    // By whether the sends ended a wait, by whether they were the first, and both against neither.
    let mut first = [[Difference::default(); 2]; 2];
    let (mut wake, mut both) = ([Difference::default(); 2], Difference::default());
    for coroutine in coroutines {
        let mut costs = Costs::default();
        coroutine.steps.iter().for_each(|step| costs.add(&step.step, step.first));
        for (kind, of_kind) in costs.cells.iter().enumerate() {
            for cells in of_kind {
                for woke in [0, 1] {
                    first[kind][woke].add(cells[0][woke], cells[1][woke]);
                }
                for first in [0, 1] {
                    wake[first].add(cells[first][0], cells[first][1]);
                }
                both.add(cells[0][0], cells[1][1]);
            }
        }
    }
    let first = first.map(|[calm, woke]| calm.mean().or(woke.mean()).unwrap_or_default());
    // Where each first send ends a wait and no other one does, the difference is that of the
    // wakeup, which is known to be work.
    let joint = || Some(both.mean()? - first[1]);
    let [later, of_first] = wake.map(Difference::mean);
    let of_first = of_first.or(later).or_else(joint);
    Prices { first, wake: [later.or(of_first), of_first].map(price) }
}

/// Returns how much more a send of a script costs that ends a wait.
pub(crate) fn of_script(steps: &[Step]) -> Ns {
    let mut by_object = BTreeMap::new();
    let mut places = [0; 2];
    for step in steps {
        if let Some(object) = step.act.object() {
            let costs: &mut Costs = by_object.entry(object).or_default();
            costs.places = places;
            costs.add(step, false);
            places = costs.places;
        }
    }
    let mut wake = Difference::default();
    for cells in by_object.values().flat_map(|costs: &Costs| &costs.cells[1]) {
        wake.add(cells[0][0], cells[0][1]);
    }
    price(wake.mean())
}

/// A wakeup does not make a send cheaper.
fn price(difference: Option<i64>) -> Ns {
    Ns(difference.unwrap_or_default().max(0).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CoroutineStep, ObjectId};

    /// A step: it sends, its cost in microseconds, it ended a wait.
    fn step(sends: bool, cost: u64, woke: bool) -> Step {
        let object = ObjectId(0);
        let act = match sends {
            true => Act::Send { object, amount: 1 },
            false => Act::Receive { object, amount: 1, whole: false },
        };
        Step { woke, ..Step::new(Ns::from_us(cost), act, Ns::ZERO) }
    }

    /// Steps of a coroutine, with whether they are the first of their activation.
    fn coroutine(steps: &[(Step, bool)]) -> Coroutine {
        let step = |&(step, first): &(Step, bool)| CoroutineStep {
            step,
            later: false,
            looked: false,
            after_others: false,
            first,
        };
        Coroutine { steps: steps.iter().map(step).collect(), ..Coroutine::default() }
    }

    const RECEIVE: bool = false;
    const SEND: bool = true;

    /// An answer in two parts: the first one costs the work for it, and is not dearer because it is
    /// the first send of its activation, which it always is.
    #[test]
    fn parts_of_an_answer_are_not_compared_with_each_other() {
        let calm = |sends, cost, first| (step(sends, cost, false), first);
        let answer = [calm(RECEIVE, 10, true), calm(SEND, 3_000, true), calm(SEND, 100, false)];
        assert_eq!(of_executor(&[coroutine(&answer)]), Prices::default());
        let other = [calm(RECEIVE, 8, false), calm(SEND, 2_900, false), calm(SEND, 100, false)];
        let both: Vec<_> = answer.into_iter().chain(other).collect();
        assert_eq!(of_executor(&[coroutine(&both)]).first, [2_000, 100_000]);
    }

    /// A send of 48 us, 18 more as the first of an activation, with a wakeup 57 more then, and 20
    /// more else.
    #[test]
    fn first_and_wakeup_have_a_price_each() {
        let receive = (step(RECEIVE, 10, false), false);
        let send = |cost, woke, first| [receive, (step(SEND, cost, woke), first)];
        let us = |later, first| [Ns::from_us(later), Ns::from_us(first)];
        let calm = [send(48, false, false), send(66, false, true)].concat();
        let steps = [calm.clone(), send(123, true, true).to_vec()].concat();
        let prices = of_executor(&[coroutine(&steps)]);
        assert_eq!(prices, Prices { first: [0, 18_000], wake: us(57, 57) });
        let steps = [steps, send(68, true, false).to_vec()].concat();
        let prices = of_executor(&[coroutine(&steps)]);
        assert_eq!(prices, Prices { first: [0, 18_000], wake: us(20, 57) });
        // Only both together, and neither.
        let steps = [send(48, false, false), send(123, true, true)].concat();
        let prices = of_executor(&[coroutine(&steps)]);
        assert_eq!(prices, Prices { first: [0, 0], wake: us(75, 75) });
    }

    #[test]
    fn a_wakeup_of_a_script_has_a_price_and_no_discount() {
        let answer = |cost, woke| [step(RECEIVE, 5, false), step(SEND, cost, woke)];
        assert_eq!(of_script(&[answer(30, false), answer(70, true)].concat()), Ns::from_us(40));
        assert_eq!(of_script(&[answer(70, false), answer(30, true)].concat()), Ns::ZERO);
        assert_eq!(of_script(&answer(70, true)), Ns::ZERO);
    }
}
