//! Classes of tasks whose waits the kernel sums up together: those that have one name in the
//! metrics, and are meant by the same rules about percentiles.

use super::meters::OTHERS;
use foldhash::fast::FixedState;
use schedlab_host::in_kernel::{ClassSums, View};
use schedlab_model::{Ns, TaskId};
use std::collections::{BTreeMap, HashMap};

/// Places that are kept for what has no name of its own, by the rules that mean it.
const FOR_OTHERS: usize = 32;

/// A class without tasks is another one's place after this time: what its tasks did last was read
/// by then.
const REST: Ns = Ns::from_s(2);

/// The place of a class is in the lower bits of its number; the others tell those apart that had
/// the place one after the other.
const PLACE: u32 = 0xffff;

struct Class {
    number: u32,
    name: String,
    /// A bit for each rule that counts its waits.
    rules: u64,
    tasks: usize,
    /// Since when nothing changed.
    idle: Ns,
    mark: (u64, Ns),
    read: ClassSums,
}

/// What a class did since the last look.
pub(super) struct Counted<'a> {
    pub(super) name: &'a str,
    pub(super) rules: u64,
    pub(super) sums: ClassSums,
}

/// See the module.
pub(super) struct Classes {
    list: Vec<Class>,
    most: usize,
    by_name: BTreeMap<(String, u64), usize>,
    of_task: HashMap<TaskId, usize, FixedState>,
    free: Vec<usize>,
}

impl Classes {
    /// For so many classes. The first is that of tasks that the recorder has not looked at yet.
    pub(super) fn new(most: usize) -> Classes {
        let mut classes = Classes {
            list: Vec::new(),
            most,
            by_name: BTreeMap::new(),
            of_task: HashMap::default(),
            free: Vec::new(),
        };
        classes.make((OTHERS.to_owned(), 0), 0);
        // It has no tasks that are known, and stays.
        classes.list[0].tasks = 1;
        classes
    }

    /// Returns the number of the class of a task from now on.
    pub(super) fn of(&mut self, task: TaskId, name: String, rules: u64) -> u32 {
        let place = self.place((name, rules));
        self.list[place].tasks += 1;
        self.left(task);
        self.of_task.insert(task, place);
        self.list[place].number
    }

    /// Notes that a task ended.
    pub(super) fn ended(&mut self, task: TaskId) {
        self.left(task);
    }

    fn left(&mut self, task: TaskId) {
        if let Some(place) = self.of_task.remove(&task) {
            self.list[place].tasks -= 1;
        }
    }

    fn place(&mut self, key: (String, u64)) -> usize {
        if let Some(&place) = self.by_name.get(&key) {
            return place;
        }
        let others = key.0 == OTHERS;
        let most = if others { self.most } else { self.most.saturating_sub(FOR_OTHERS) };
        if self.list.len() < most {
            return self.make(key, self.list.len());
        }
        match self.free.pop() {
            Some(place) => self.make(key, place),
            None if others => 0,
            None => self.place((OTHERS.to_owned(), key.1)),
        }
    }

    fn make(&mut self, key: (String, u64), place: usize) -> usize {
        let mut class = Class {
            number: place as u32,
            name: key.0.clone(),
            rules: key.1,
            tasks: 0,
            idle: Ns::ZERO,
            mark: (0, Ns::ZERO),
            read: nothing(),
        };
        match self.list.get_mut(place) {
            Some(before) => {
                // What was summed up for the one before it was read.
                class.number = before.number.wrapping_add(PLACE + 1);
                (class.mark, class.idle) = (before.mark, before.idle);
                std::mem::swap(&mut class.read, &mut before.read);
                self.by_name.remove(&(std::mem::take(&mut before.name), before.rules));
                *before = class;
            }
            None => self.list.push(class),
        }
        self.by_name.insert(key, place);
        place
    }

    /// Returns the name of the class with a number.
    pub(super) fn name(&self, number: u32) -> &str {
        let class = self.list.get((number & PLACE) as usize);
        class.filter(|class| class.number == number).map_or(OTHERS, |class| &class.name)
    }

    /// Calls `each` with what the classes did since the last look.
    pub(super) fn read(&mut self, view: &View<'_>, mut each: impl FnMut(&Classes, &Counted<'_>)) {
        self.free.clear();
        for place in 0..self.list.len() {
            let class = &mut self.list[place];
            let mark = view.mark(place);
            if mark == class.mark {
                if class.tasks == 0 && view.now.saturating_sub(class.idle) >= REST {
                    view.forget_culprits(place);
                    class.read.culprits.clear();
                    self.free.push(place);
                }
                continue;
            }
            (class.mark, class.idle) = (mark, view.now);
            let now = view.sums(place);
            let sums = since(&now, &class.read);
            class.read = now;
            let class = &self.list[place];
            each(self, &Counted { name: &class.name, rules: class.rules, sums });
        }
    }
}

fn nothing() -> ClassSums {
    ClassSums {
        waits: 0,
        waited: Ns::ZERO,
        ran: Ns::ZERO,
        throttled: Ns::ZERO,
        culprits: Vec::new(),
        by_others: Ns::ZERO,
        unknown: Ns::ZERO,
        counts: Vec::new(),
    }
}

/// Returns what was added.
fn since(now: &ClassSums, before: &ClassSums) -> ClassSums {
    let ns = |now: Ns, before: Ns| now.saturating_sub(before);
    let culprits = now.culprits.iter().map(|&(who, time)| {
        let known = before.culprits.iter().find(|(other, _)| *other == who);
        (who, ns(time, known.map_or(Ns::ZERO, |&(_, time)| time)))
    });
    let count = |(at, now): (usize, &u64)| {
        now.saturating_sub(before.counts.get(at).copied().unwrap_or_default())
    };
    ClassSums {
        waits: now.waits.saturating_sub(before.waits),
        waited: ns(now.waited, before.waited),
        ran: ns(now.ran, before.ran),
        throttled: ns(now.throttled, before.throttled),
        culprits: culprits.filter(|(_, time)| *time > Ns::ZERO).collect(),
        by_others: ns(now.by_others, before.by_others),
        unknown: ns(now.unknown, before.unknown),
        counts: now.counts.iter().enumerate().map(count).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_a_name_and_its_rules_and_there_are_so_many() {
        let most = FOR_OTHERS + 4;
        let mut classes = Classes::new(most);
        let mut of = |task: u32, name: &str, rules| {
            let number = classes.of(TaskId(task), name.to_owned(), rules);
            (number, classes.name(number).to_owned())
        };
        let redis = of(1, "redis", 0);
        assert_eq!(redis, of(2, "redis", 0));
        assert_ne!(redis, of(3, "redis", 1), "a rule counts these");
        assert_eq!(of(4, "batch", 0).1, "batch");
        // There is no more room for names, but for those that a rule counts.
        assert_eq!(of(5, "more", 0), (0, OTHERS.to_owned()));
        let counted = of(6, "more", 1);
        assert!(counted.0 > 0 && counted.1 == OTHERS);
        assert_eq!(counted, of(7, "even more", 1));
        assert_eq!(of(5, "batch", 0).1, "batch", "a task has another name");
    }

    #[test]
    fn a_place_that_is_free_is_another_classs_under_a_new_number() {
        let mut classes = Classes::new(FOR_OTHERS + 2);
        let first = classes.of(TaskId(1), "first".to_owned(), 0);
        classes.ended(TaskId(1));
        classes.free.push(first as usize);
        let second = classes.of(TaskId(2), "second".to_owned(), 0);
        assert_eq!((second & PLACE, classes.name(second)), (first, "second"));
        assert_eq!(classes.name(first), OTHERS, "what the kernel still has of the first");
        let again = classes.of(TaskId(3), "first".to_owned(), 0);
        assert_eq!(again, 0, "no room");
    }

    #[test]
    fn what_is_counted_is_what_was_added() {
        let sums = |waits, time, who: &[(u32, u64)], counts: &[u64]| ClassSums {
            waits,
            waited: Ns(time),
            ran: Ns(time),
            throttled: Ns::ZERO,
            culprits: who.iter().map(|&(who, time)| (who, Ns(time))).collect(),
            by_others: Ns::ZERO,
            unknown: Ns::ZERO,
            counts: counts.to_vec(),
        };
        let before = sums(3, 100, &[(7, 40)], &[1, 2]);
        let now = sums(5, 170, &[(7, 60), (8, 5)], &[1, 4]);
        assert_eq!(since(&now, &before), sums(2, 70, &[(7, 20), (8, 5)], &[0, 2]));
        assert_eq!(since(&now, &now).culprits, []);
        assert_eq!(since(&now, &nothing()), now);
    }
}
