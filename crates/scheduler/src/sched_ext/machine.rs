//! The machine in the words of profiles: how many CPUs, caches and nodes there are, in which order
//! CPUs come, which share a core; and sums and products of that.

use super::{Each, options};
use schedlab_bpf::{Btf, Enumerators};
use schedlab_model::{CpuId, CpuPlace, Topology};
use std::collections::BTreeSet;

/// Words that a value may be.
pub const WORDS: [&str; 23] = [
    "cpus",
    "cores",
    "llcs",
    "nodes",
    "smt",
    "numa",
    "node-llcs",
    "llc-cores",
    "core-cpus",
    "cpu",
    "sibling",
    "llc",
    "node",
    "order",
    "spread",
    "other",
    "rank",
    "nth",
    "part",
    "span",
    "span-cpus",
    "mask",
    "sizeof TYPE",
];

/// Greatest number of places that the name of one option may stand for.
const MOST_PLACES: usize = 1 << 16;

/// What words mean for one CPU, cache or other part.
#[derive(Debug, Clone, Default)]
pub(super) struct At(Vec<(&'static str, u64)>);

impl At {
    fn of<const N: usize>(words: [(&'static str, u64); N]) -> At {
        At(words.to_vec())
    }
    pub(super) fn set(&mut self, word: &'static str, value: u64) {
        self.0.push((word, value));
    }
    pub(super) fn word(&self, word: &str) -> Option<u64> {
        self.0.iter().rev().find(|(name, _)| *name == word).map(|(_, value)| *value)
    }
}

/// A machine, as user halves see it.
pub(super) struct View<'a> {
    pub(super) topology: &'a Topology,
    pub(super) enumerators: &'a Enumerators,
    /// Types of the object.
    pub(super) types: &'a Btf,
}

/// A level of the machine, as its CPUs are numbered by it.
type Level = fn(&CpuPlace) -> u32;
const NODE: Level = |place| place.node;
const LLC: Level = |place| place.llc;
const CORE: Level = |place| place.core;

impl View<'_> {
    fn of(&self, cpu: usize) -> CpuPlace {
        self.topology.places()[cpu]
    }
    fn cpus(&self) -> usize {
        self.topology.cpus()
    }
    fn ids(&self, level: Level) -> BTreeSet<u32> {
        self.topology.places().iter().map(level).collect()
    }
    /// The CPUs of a part, as a mask.
    fn span(&self, level: Level, id: u32) -> u64 {
        let places = self.topology.places().iter().enumerate();
        places.filter(|(_, place)| level(place) == id).fold(0, |mask, (cpu, _)| mask | 1 << cpu)
    }
    pub(super) fn smt(&self) -> bool {
        self.ids(CORE).len() < self.cpus()
    }
    /// The greatest number of parts of one level in one of another.
    fn most(&self, inner: Level, outer: Level) -> usize {
        let places = self.topology.places();
        let inside = |id: u32| {
            let own = places.iter().filter(|place| outer(place) == id).map(inner);
            own.collect::<BTreeSet<u32>>().len()
        };
        self.ids(outer).into_iter().map(inside).max().unwrap_or(0)
    }
    /// The greatest number of hardware threads of a core.
    fn threads(&self) -> usize {
        let span = |core| self.span(CORE, core).count_ones() as usize;
        self.ids(CORE).into_iter().map(span).max().unwrap_or(1)
    }
    /// The CPUs that share a core with one, itself left out.
    fn siblings(&self, cpu: usize) -> Vec<usize> {
        let core = self.topology.sharing(CpuId::from(cpu), |place| place.core);
        (0..self.cpus())
            .filter(|other| *other != cpu && core.contains(CpuId::from(*other)))
            .collect()
    }
    /// The number of a CPU among those of its core.
    fn thread(&self, cpu: usize) -> usize {
        self.siblings(cpu).iter().filter(|other| **other < cpu).count()
    }

    /// Returns what a part of a profile is for.
    pub(super) fn each(&self, each: Each) -> Vec<At> {
        match each {
            Each::Once => vec![self.whole()],
            Each::Cpu => (0..self.cpus()).map(|cpu| self.at_cpu(cpu)).collect(),
            Each::Sibling => {
                let pairs = (0..self.cpus())
                    .flat_map(|cpu| self.siblings(cpu).into_iter().map(move |other| (cpu, other)));
                let of = |(cpu, other): (usize, usize)| {
                    let mut at = self.at_cpu(cpu);
                    at.set("sibling", other as u64);
                    at
                };
                pairs.map(of).collect()
            }
            Each::Node => {
                let at = |id: u32| {
                    let span = self.span(NODE, id);
                    At::of([("node", u64::from(id)), ("span", span)])
                };
                self.ids(NODE).into_iter().map(at).collect()
            }
            Each::Llc => self.ids(LLC).into_iter().map(|id| self.at_llc(id)).collect(),
            Each::Neighbour => self.neighbours(),
            Each::Part => self.parts(),
        }
    }

    /// The machine as one part.
    pub(super) fn whole(&self) -> At {
        At::of([("span", self.all())])
    }

    fn all(&self) -> u64 {
        if self.cpus() >= 64 { u64::MAX } else { (1 << self.cpus()) - 1 }
    }

    fn at_cpu(&self, cpu: usize) -> At {
        let place = |cpu: usize| (self.of(cpu).node, self.of(cpu).llc, self.of(cpu).core, cpu);
        let spread = |cpu: usize| (self.thread(cpu), place(cpu));
        let before = |of: &dyn Fn(usize) -> bool| (0..self.cpus()).filter(|cpu| of(*cpu)).count();
        At::of([
            ("cpu", cpu as u64),
            ("llc", u64::from(self.of(cpu).llc)),
            ("node", u64::from(self.of(cpu).node)),
            ("order", before(&|other| place(other) < place(cpu)) as u64),
            ("spread", before(&|other| spread(other) < spread(cpu)) as u64),
        ])
    }

    fn at_llc(&self, id: u32) -> At {
        let span = self.span(LLC, id);
        let node = self.of(span.trailing_zeros() as usize).node;
        At::of([
            ("llc", u64::from(id)),
            ("node", u64::from(node)),
            ("span", span),
            ("span-cpus", u64::from(span.count_ones())),
        ])
    }

    /// Each cache with each other one: those of its node are of rank 0, those of other nodes of the
    /// next; within a rank they go round, the nearest number first.
    fn neighbours(&self) -> Vec<At> {
        let all: Vec<u32> = self.ids(LLC).into_iter().collect();
        let node = |id: u32| self.at_llc(id).word("node");
        let mut found = Vec::new();
        for own in &all {
            let far = |other: &u32| node(*other) != node(*own);
            let mut rank = 0;
            for wanted in [false, true] {
                let mut round: Vec<u32> =
                    all.iter().copied().filter(|id| id == own || far(id) == wanted).collect();
                let (n, start) = (round.len(), round.iter().position(|id| id == own).unwrap_or(0));
                let mut order: Vec<usize> = (0..n).collect();
                let distance = |at: usize| ((at + n - start) % n).min((start + n - at) % n);
                order.sort_by_key(|at| (distance(*at), *at));
                round = order.into_iter().map(|at| round[at]).filter(|id| id != own).collect();
                for (nth, other) in round.iter().enumerate() {
                    let mut at = self.at_llc(*own);
                    at.set("other", u64::from(*other));
                    at.set("rank", rank);
                    at.set("nth", nth as u64);
                    found.push(at);
                }
                rank += u64::from(!round.is_empty());
            }
        }
        found
    }

    fn parts(&self) -> Vec<At> {
        let at = |(id, span): (u64, u64)| {
            let cpus = u64::from(span.count_ones());
            At::of([("part", id), ("span", span), ("span-cpus", cpus)])
        };
        let of = |level: Level| {
            let ids = self.ids(level).into_iter();
            ids.map(|id| (u64::from(id), self.span(level, id))).collect::<Vec<_>>()
        };
        let cpus = (0..self.cpus() as u64).map(|cpu| (cpu, 1 << cpu)).collect();
        [vec![(0, self.all())], of(NODE), of(LLC), of(CORE), cpus]
            .concat()
            .into_iter()
            .map(at)
            .collect()
    }

    /// The value of a text: a sum of products of numbers, times and words, or flags of the kernel.
    pub(super) fn value(&self, text: &str, at: &At) -> Result<i128, String> {
        let flags = text.split('|').map(str::trim);
        if flags.clone().all(|name| name.starts_with("SCX_")) {
            // Those that the kernel lacks are 0, as scx's compat layer has it.
            let known = flags.map(|name| self.enumerators.get(name).copied().unwrap_or(0));
            return Ok(i128::from(known.fold(0, |all, flag| all | flag)));
        }
        let mut sum = 0i128;
        for product in text.split('+') {
            let mut value = 1i128;
            for factor in product.split('*') {
                let factor = self.atom(factor.trim(), at)?;
                value =
                    value.checked_mul(factor).ok_or_else(|| format!("`{text}` is too large"))?;
            }
            sum = sum.checked_add(value).ok_or_else(|| format!("`{text}` is too large"))?;
        }
        Ok(sum)
    }

    fn atom(&self, text: &str, at: &At) -> Result<i128, String> {
        if let Some(number) = options::number(text) {
            return Ok(number);
        }
        if let Some(value) = at.word(text) {
            return Ok(i128::from(value));
        }
        if let Some(name) = text.strip_prefix("sizeof ") {
            let ty = self.types.structure(name.trim());
            let ty = ty.ok_or_else(|| format!("the object has no struct `{}`", name.trim()))?;
            return Ok(i128::from(self.types.size(ty)));
        }
        let count = match text {
            "cpus" => self.cpus(),
            "cores" => self.ids(CORE).len(),
            "llcs" => self.ids(LLC).len(),
            "nodes" => self.ids(NODE).len(),
            "smt" => usize::from(self.smt()),
            "numa" => usize::from(self.ids(NODE).len() > 1),
            "node-llcs" => self.most(LLC, NODE),
            "llc-cores" => self.most(CORE, LLC),
            "core-cpus" => self.threads(),
            word if WORDS.contains(&word) => {
                return Err(format!(
                    "`{text}` has no meaning here: it is of `each` of another kind"
                ));
            }
            _ => {
                return Err(format!(
                    "`{text}` is no number, time, flag of the kernel (SCX_...) or one of {}",
                    WORDS.join(", ")
                ));
            }
        };
        Ok(count as i128)
    }

    /// The names that a name with expressions in brackets means: `a[llc]`, `a[1..3][2*nth]`.
    pub(super) fn places(&self, name: &str, at: &At) -> Result<Vec<String>, String> {
        let mut all = vec![String::new()];
        let mut rest = name;
        while let Some((before, after)) = rest.split_once('[') {
            let (inside, after) =
                after.split_once(']').ok_or_else(|| "`[` without `]`".to_owned())?;
            let (from, to) = match inside.split_once("..") {
                Some((from, to)) => (self.value(from, at)?, self.value(to, at)?),
                None => self.value(inside, at).map(|index| (index, index + 1))?,
            };
            let length = usize::try_from(to - from).unwrap_or(0);
            if from < 0 || length.saturating_mul(all.len()) > MOST_PLACES {
                return Err(format!("`[{inside}]` is no place of an array"));
            }
            let one = |head: &String| {
                let head = format!("{head}{before}");
                (from..to).map(move |index| format!("{head}[{index}]"))
            };
            all = all.iter().flat_map(one).collect();
            rest = after;
        }
        all.iter_mut().for_each(|name| name.push_str(rest));
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &[u8] = include_bytes!("../../../../bpf/sim/kernel.bpf.o");

    fn view<T>(topology: &Topology, ask: impl FnOnce(&View<'_>) -> T) -> T {
        let types = Btf::of_file(KERNEL).expect("a kernel's types");
        ask(&View { topology, enumerators: &types.enumerators(), types: &types })
    }

    /// Two nodes of two caches of two cores of two threads; CPUs 0 and 1 share a core.
    #[test]
    fn words_are_those_of_the_machine() {
        view(&Topology::regular(2, 2, 2, 2), |view| {
            let value = |text: &str| view.value(text, &At::default());
            for (text, expected) in [
                ("cpus", 16),
                ("llcs * 2 + 1", 9),
                ("node-llcs", 2),
                ("llc-cores", 2),
                ("core-cpus", 2),
                ("2 * 5us + 1", 10_001),
                ("SCX_OF_NO_KERNEL | SCX_NOR_THIS", 0),
            ] {
                assert_eq!(value(text), Ok(expected), "{text}");
            }
            assert!(value("sizeof task_struct").unwrap() > 100);
            assert!(value("sizeof nothing").unwrap_err().contains("no struct `nothing`"));
            assert!(value("llc").unwrap_err().contains("has no meaning here"));
            assert!(value("soon").unwrap_err().contains("is no number"));
            let third = &view.each(Each::Cpu)[3];
            assert_eq!(["order", "spread", "llc"].map(|w| third.word(w).unwrap()), [3, 9, 0]);
            let near = view.each(Each::Neighbour);
            let pairs = |own: u64| -> Vec<[u64; 3]> {
                let own = near.iter().filter(|at| at.word("llc") == Some(own));
                own.map(|at| ["rank", "nth", "other"].map(|w| at.word(w).unwrap())).collect()
            };
            // Both caches of the other node are one step away: the lower number comes first.
            assert_eq!(pairs(2), [[0, 0, 3], [1, 0, 0], [1, 1, 1]]);
            let parts = view.each(Each::Part);
            assert_eq!(parts.len(), 1 + 2 + 4 + 8 + 16);
            assert_eq!(parts[2].word("span"), Some(0xff00));
        });
    }

    #[test]
    fn names_stand_for_places() {
        view(&Topology::flat(2), |view| {
            let at = At::of([("nth", 3)]);
            let places = |name: &str| view.places(name, &at);
            assert_eq!(places("a").unwrap(), ["a"]);
            assert_eq!(places("a[2*nth+1].b").unwrap(), ["a[7].b"]);
            assert_eq!(
                places("a[1..3][0..cpus]").unwrap(),
                ["a[1][0]", "a[1][1]", "a[2][0]", "a[2][1]"]
            );
            assert!(places("a[0..1000000]").is_err() && places("a[1").is_err());
        });
    }
}
