//! Third stage, part three: what an operation costs more because of when it was made. An
//! activation costs something that does not grow with its messages, and a send that ends the wait
//! of another task costs that wakeup. Both change with the schedule: a server that is never
//! preempted finds its client awake, and answers one message in each activation.
//!
//! Like is compared with like: steps of one coroutine (or sends of one script to one object),
//! because what different connections ask for costs different amounts, and of one place in a
//! request, because the first bytes of an answer cost the work for it and the next ones do not.
//! What is often both counts more. What the first operation of a kind, or a look, costs more for
//! each message of its activation is the slope of the line with the least squares through all of
//! them.

use schedlab_model::{Act, Coroutine, Executor, Ns, Price, Prices, Step};
use std::collections::BTreeMap;

/// Places of a receive behind the last send, or of a send behind the last receive, that are told
/// apart; what is further behind is as the last. Chosen: an answer in more parts goes on alike.
const PLACES: usize = 4;

/// Steps that are alike.
#[derive(Clone, Copy, Default)]
struct Cell {
    count: i128,
    /// The sum of their costs.
    sum: i128,
    /// Of their numbers of messages.
    messages: i128,
    /// Of the squares of these, and of these times the costs.
    squares: i128,
    products: i128,
}

impl Cell {
    fn add(&mut self, messages: u32, cost: i128) {
        let messages = i128::from(messages);
        self.count += 1;
        self.sum += cost;
        self.messages += messages;
        self.squares += messages * messages;
        self.products += messages * cost;
    }
}

/// What sums of squares are multiplied by, so that their mean keeps a fraction.
const SCALE: i128 = 1 << 16;

/// The slope of lines through several cells that have it in common.
#[derive(Clone, Copy, Default)]
struct Slope {
    products: i128,
    squares: i128,
}

impl Slope {
    fn add(&mut self, cell: Cell) {
        if cell.count > 0 {
            let centred =
                |products: i128, sums: i128| (products * cell.count - sums) * SCALE / cell.count;
            self.products += centred(cell.products, cell.messages * cell.sum);
            self.squares += centred(cell.squares, cell.messages * cell.messages);
        }
    }

    /// Returns the slope. More messages do not make what is common to them cheaper.
    fn each(self) -> Ns {
        let each = self.products.checked_div(self.squares).unwrap_or_default().max(0);
        Ns(u64::try_from(each).unwrap_or_default())
    }
}

/// By first of its activation, and by whether it ended a wait.
type Cells = [[Cell; 2]; 2];

/// A mean of differences, each with its weight.
#[derive(Clone, Copy, Default)]
struct Difference {
    sum: i128,
    weight: i128,
    /// The sum of the numbers of messages of what costs more.
    messages: i128,
}

impl Difference {
    /// Adds how much more `more` costs on average than `less`.
    fn add(&mut self, less: Cell, more: Cell) {
        let weight = less.count.min(more.count);
        if weight > 0 {
            self.sum += weight * (more.sum / more.count - less.sum / less.count);
            self.messages += weight * more.messages / more.count;
            self.weight += weight;
        }
    }

    /// Returns the mean; `None`: there was nothing to compare.
    fn mean(self) -> Option<i64> {
        let mean = self.sum.checked_div(self.weight)?;
        i64::try_from(mean).ok()
    }

    /// Returns the mean as a price that grows by `each`.
    fn price(self, each: Ns) -> Option<Price> {
        let of_messages = i64::try_from(i128::from(each.0) * self.messages / self.weight.max(1));
        Some(Price { fixed: self.mean()?.saturating_sub(of_messages.ok()?), each })
    }
}

/// Costs by kind (receive, send) and place.
#[derive(Default)]
struct Costs {
    cells: [[Cells; PLACES]; 2],
    places: [usize; 2],
}

impl Costs {
    /// Adds a step. `first`: as in [`schedlab_model::CoroutineStep`].
    fn add(&mut self, step: &Step, first: u32) {
        let kind = match step.act {
            Act::Receive { .. } => 0,
            Act::Send { .. } => 1,
            _ => return,
        };
        let place = self.places[kind];
        self.places[kind] = (place + 1).min(PLACES - 1);
        self.places[1 - kind] = 0;
        let cell = &mut self.cells[kind][place][usize::from(first > 0)][usize::from(step.woke)];
        cell.add(first, i128::from(step.before.0) + i128::from(step.after.0));
    }
}

/// Returns the prices of an executor.
pub(crate) fn of_executor(coroutines: &[Coroutine]) -> Prices {
    // By whether the sends ended a wait, by whether they were the first, and both against neither.
    let mut first = [[Difference::default(); 2]; 2];
    let (mut wake, mut both) = ([Difference::default(); 2], Difference::default());
    let mut slopes = [Slope::default(); 2];
    for coroutine in coroutines {
        let mut costs = Costs::default();
        coroutine.steps.iter().for_each(|step| costs.add(&step.step, step.first));
        for (kind, of_kind) in costs.cells.iter().enumerate() {
            for cells in of_kind {
                for woke in [0, 1] {
                    first[kind][woke].add(cells[0][woke], cells[1][woke]);
                    slopes[kind].add(cells[1][woke]);
                }
                for first in [0, 1] {
                    wake[first].add(cells[first][0], cells[first][1]);
                }
                both.add(cells[0][0], cells[1][1]);
            }
        }
    }
    let of_first = |kind: usize| {
        let ([calm, woke], each) = (first[kind], slopes[kind].each());
        calm.price(each).or(woke.price(each)).unwrap_or_default()
    };
    let (first_receive, first_send) = (of_first(0), of_first(1));
    // Where each first send ends a wait and no other one does, the difference is that of the
    // wakeup, which is known to be work.
    let [later, of_first] = wake.map(Difference::mean);
    let of_first = of_first.or(later).or_else(|| both.mean());
    let wake = [later.or(of_first), of_first].map(price);
    Prices { first_receive, first_send, wake, ..Prices::default() }
}

/// Takes out of the looks of an executor what grows with the messages of the activation that they
/// end, and with what they find, and notes that as prices. `with`: by look that slept, and by one
/// that did not, these two numbers.
pub(crate) fn of_looks(executor: &mut Executor, with: &[Vec<(u32, u32)>; 2]) {
    let cost = |ns: Ns| i128::from(ns.0);
    let mut finding = Cell::default();
    for ((_, after), &(_, found)) in executor.looks_asleep.iter().zip(&with[0]) {
        // One whose time was over found nothing, and did what is to be done then.
        if found > 0 {
            finding.add(found, cost(*after));
        }
    }
    let mut slope = Slope::default();
    slope.add(finding);
    let each_found = slope.each();
    let of_found = |found: u32| Ns(each_found.0.saturating_mul(found.into()));
    let mut ending = [Cell::default(); 2];
    for ((before, _), &(messages, _)) in executor.looks_asleep.iter().zip(&with[0]) {
        ending[0].add(messages, cost(*before));
    }
    for (look, &(messages, found)) in executor.looks_awake.iter().zip(&with[1]) {
        ending[1].add(messages, cost(look.saturating_sub(of_found(found))));
    }
    let mut slope = Slope::default();
    ending.into_iter().for_each(|cell| slope.add(cell));
    let each_behind = slope.each();
    let of_messages = |messages: u32| Ns(each_behind.0.saturating_mul(messages.into()));
    let (mut before_less, mut after_less, mut awake_less) = (Ns::ZERO, Ns::ZERO, Ns::ZERO);
    for ((before, after), &(messages, found)) in executor.looks_asleep.iter_mut().zip(&with[0]) {
        take(before, of_messages(messages), &mut before_less);
        take(after, of_found(found), &mut after_less);
    }
    for (look, &(messages, found)) in executor.looks_awake.iter_mut().zip(&with[1]) {
        take(look, of_messages(messages) + of_found(found), &mut awake_less);
    }
    executor.prices.look_behind = each_behind;
    executor.prices.look_found = each_found;
}

/// Takes `less` from a cost; what is more than it has, from the next ones.
fn take(cost: &mut Ns, less: Ns, owed: &mut Ns) {
    let less = less + *owed;
    *owed = less.saturating_sub(*cost);
    *cost = cost.saturating_sub(less);
}

/// Returns how much more a send of a script costs that ends a wait: no more than the cheapest that
/// did, in which that wakeup is. (Between few sends with much work of different length before
/// them the difference of the means is anything; taken off again where no wait ended, it would be
/// all that a program does.)
pub(crate) fn of_script(steps: &[Step]) -> Ns {
    let mut by_object = BTreeMap::new();
    let mut places = [0; 2];
    let woke = steps.iter().filter(|step| step.woke).map(|step| step.before + step.after);
    let most = woke.min().unwrap_or_default();
    for step in steps {
        if let Some(object) = step.act.object() {
            let costs: &mut Costs = by_object.entry(object).or_default();
            costs.places = places;
            costs.add(step, 0);
            places = costs.places;
        }
    }
    let mut wake = Difference::default();
    for cells in by_object.values().flat_map(|costs: &Costs| &costs.cells[1]) {
        wake.add(cells[0][0], cells[0][1]);
    }
    price(wake.mean()).min(most)
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

    /// Steps of a coroutine, with the number of each that is the first of its activation.
    fn coroutine(steps: &[(Step, u32)]) -> Coroutine {
        let step = |&(step, first): &(Step, u32)| CoroutineStep {
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

    fn fixed(fixed: i64) -> Price {
        Price { fixed, each: Ns::ZERO }
    }

    /// An answer in two parts: the first one costs the work for it, and is not dearer because it is
    /// the first send of its activation, which it always is.
    #[test]
    fn parts_of_an_answer_are_not_compared_with_each_other() {
        let calm = |sends, cost, first| (step(sends, cost, false), first);
        let answer = [calm(RECEIVE, 10, 1), calm(SEND, 3_000, 1), calm(SEND, 100, 0)];
        assert_eq!(of_executor(&[coroutine(&answer)]), Prices::default());
        let other = [calm(RECEIVE, 8, 0), calm(SEND, 2_900, 0), calm(SEND, 100, 0)];
        let both: Vec<_> = answer.into_iter().chain(other).collect();
        let prices = of_executor(&[coroutine(&both)]);
        assert_eq!((prices.first_receive, prices.first_send), (fixed(2_000), fixed(100_000)));
    }

    /// A send of 48 us, 18 more as the first of an activation, with a wakeup 57 more then, and 20
    /// more else.
    #[test]
    fn first_and_wakeup_have_a_price_each() {
        let receive = (step(RECEIVE, 10, false), 0);
        let send = |cost, woke, first| [receive, (step(SEND, cost, woke), first)];
        let us = |later, first| [Ns::from_us(later), Ns::from_us(first)];
        let mut steps = [send(48, false, 0), send(66, false, 1), send(123, true, 1)].concat();
        let prices = of_executor(&[coroutine(&steps)]);
        assert_eq!((prices.first_send, prices.wake), (fixed(18_000), us(57, 57)));
        steps.extend(send(68, true, 0));
        let prices = of_executor(&[coroutine(&steps)]);
        assert_eq!((prices.first_send, prices.wake), (fixed(18_000), us(20, 57)));
        // Only both together, and neither.
        let steps = [send(48, false, 0), send(123, true, 1)].concat();
        let prices = of_executor(&[coroutine(&steps)]);
        assert_eq!(prices.wake, us(75, 75));
    }

    /// The first send costs 10 us more, and 4 more for each receive before it.
    #[test]
    fn the_first_send_costs_more_behind_more_receives() {
        let receive = (step(RECEIVE, 10, false), 0);
        let send = |cost, first| [receive, (step(SEND, cost, false), first)];
        let steps = [send(50, 0), send(64, 1), send(72, 3), send(92, 8), send(50, 0)].concat();
        let price = of_executor(&[coroutine(&steps)]).first_send;
        assert_eq!(price, Price { fixed: 10_000, each: Ns::from_us(4) });
        assert_eq!([price.of(1), price.of(8)], [14_000, 42_000]);
    }

    /// 20 us and 2 for each message before the sleep, 5 us and 1 for each found behind it; without
    /// a sleep both.
    #[test]
    fn looks_grow_with_the_messages_before_them_and_with_what_they_find() {
        let with = [vec![(2, 1), (10, 3), (0, 6)], vec![(4, 2), (8, 1)]];
        let us = Ns::from_us;
        let asleep = |&(messages, found): &(u32, u32)| {
            (us(20 + 2 * u64::from(messages)), us(5 + u64::from(found)))
        };
        let awake = |&(messages, found): &(u32, u32)| us(9 + u64::from(2 * messages + found));
        let mut executor = Executor {
            looks_asleep: with[0].iter().map(asleep).collect(),
            looks_awake: with[1].iter().map(awake).collect(),
            ..Executor::default()
        };
        of_looks(&mut executor, &with);
        assert_eq!((executor.prices.look_behind, executor.prices.look_found), (us(2), us(1)));
        assert_eq!(executor.looks_asleep, [(us(20), us(5)); 3]);
        assert_eq!(executor.looks_awake, [us(9); 2]);
    }

    #[test]
    fn a_wakeup_of_a_script_has_a_price_and_no_discount() {
        let answer = |cost, woke| [step(RECEIVE, 5, false), step(SEND, cost, woke)];
        assert_eq!(of_script(&[answer(30, false), answer(70, true)].concat()), Ns::from_us(40));
        assert_eq!(of_script(&[answer(70, false), answer(30, true)].concat()), Ns::ZERO);
        assert_eq!(of_script(&answer(70, true)), Ns::ZERO);
        // A thread with work of any length before each of its sends.
        let mixed = [answer(9_000, true), answer(6, true), answer(100, false)].concat();
        assert_eq!(of_script(&mixed), Ns::from_us(6));
    }
}
