//! Sets of CPUs, as affinity masks and cpusets.

use crate::CpuId;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// The largest machine that schedlab models.
pub const MAX_CPUS: usize = 512;
/// Words of a [`CpuSet`].
pub const WORDS: usize = MAX_CPUS / 64;

/// A set of CPUs 0 … [`MAX_CPUS`]` - 1`. Written as the kernel writes cpulists: `0-3,8`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct CpuSet {
    words: [u64; WORDS],
}

impl CpuSet {
    /// No CPU.
    pub const EMPTY: CpuSet = CpuSet { words: [0; WORDS] };
    /// Every CPU that can exist.
    pub const ALL: CpuSet = CpuSet { words: [u64::MAX; WORDS] };

    /// CPUs `0 .. count`.
    pub fn first(count: usize) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        for (word, bits) in set.words.iter_mut().enumerate() {
            let inside = count.saturating_sub(64 * word).min(64) as u32;
            *bits = u64::MAX.checked_shr(64 - inside).unwrap_or(0);
        }
        set
    }
    /// Just `cpu`.
    pub fn single(cpu: CpuId) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        set.insert(cpu);
        set
    }
    /// Adds `cpu`. Panics when it is [`MAX_CPUS`] or more.
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        self.words[cpu.index() / 64] |= 1 << (cpu.0 % 64);
    }
    /// Takes `cpu` out.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) {
        if cpu.index() < MAX_CPUS {
            self.words[cpu.index() / 64] &= !(1 << (cpu.0 % 64));
        }
    }
    /// Whether `cpu` is in the set.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        cpu.index() < MAX_CPUS && self.words[cpu.index() / 64] & (1 << (cpu.0 % 64)) != 0
    }
    /// CPUs 0 … 63 as bits.
    #[inline]
    pub fn first_word(&self) -> u64 {
        self.words[0]
    }
    /// CPUs 64 `number` … 64 `number` + 63 as bits. Panics when `number` is [`WORDS`] or more.
    #[inline]
    pub fn word(&self, number: usize) -> u64 {
        self.words[number]
    }
    // Loops without iterators, whose closures stay calls where the compiler cuts a crate into many
    // units: wakeups and balancing do little else than this.
    /// The CPUs that are in both.
    #[inline]
    pub fn and(&self, other: &CpuSet) -> CpuSet {
        let (mut words, mut word) = (self.words, 0);
        while word < WORDS {
            words[word] &= other.words[word];
            word += 1;
        }
        CpuSet { words }
    }
    /// The CPUs of this set that are not in the other.
    #[inline]
    pub fn without(&self, other: &CpuSet) -> CpuSet {
        let (mut words, mut word) = (self.words, 0);
        while word < WORDS {
            words[word] &= !other.words[word];
            word += 1;
        }
        CpuSet { words }
    }
    /// The CPUs that are in either.
    #[inline]
    pub fn or(&self, other: &CpuSet) -> CpuSet {
        let (mut words, mut word) = (self.words, 0);
        while word < WORDS {
            words[word] |= other.words[word];
            word += 1;
        }
        CpuSet { words }
    }
    /// The set with these bits: CPU `c` is bit `c % 64` of word `c / 64`.
    #[inline]
    pub const fn from_words(words: [u64; WORDS]) -> CpuSet {
        CpuSet { words }
    }
    /// The first CPU at or above `from`, else the lowest one.
    #[inline]
    pub fn next_from(&self, from: u32) -> Option<CpuId> {
        let start = from as usize / 64;
        if start < WORDS {
            let above = self.words[start] & (u64::MAX << (from % 64));
            if above != 0 {
                return Some(CpuId(start as u32 * 64 + above.trailing_zeros()));
            }
            let next = (start + 1..WORDS).find(|&w| self.words[w] != 0);
            if let Some(w) = next {
                return Some(CpuId(w as u32 * 64 + self.words[w].trailing_zeros()));
            }
        }
        self.lowest()
    }
    /// How many CPUs below `cpu` are in the set.
    #[inline]
    pub fn count_below(&self, cpu: u32) -> usize {
        let word = (cpu as usize / 64).min(WORDS);
        let whole: u32 = self.words[..word].iter().map(|w| w.count_ones()).sum();
        let part = self.words.get(word).map_or(0, |w| (w & !(u64::MAX << (cpu % 64))).count_ones());
        (whole + part) as usize
    }
    /// How many CPUs.
    #[inline]
    pub fn count(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }
    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }
    /// Whether all CPUs of this set are in the other.
    #[inline]
    pub fn is_within(&self, other: &CpuSet) -> bool {
        let (mut outside, mut word) = (0, 0);
        while word < WORDS {
            outside |= self.words[word] & !other.words[word];
            word += 1;
        }
        outside == 0
    }
    /// The lowest CPU.
    #[inline]
    pub fn lowest(&self) -> Option<CpuId> {
        let word = self.words.iter().position(|&w| w != 0)?;
        Some(CpuId(word as u32 * 64 + self.words[word].trailing_zeros()))
    }
    /// The words of which this set has a CPU: from the first to behind the last.
    pub fn span(&self) -> Range<usize> {
        let first = self.words.iter().position(|&w| w != 0).unwrap_or(0);
        let last = self.words.iter().rposition(|&w| w != 0).map_or(first, |w| w + 1);
        first..last
    }
    /// The CPUs of these [`words`](CpuSet::span) that are in both, in ascending order: who knows
    /// where the few CPUs of a set lie need not look at all words. Panics when a word is [`WORDS`]
    /// or more.
    #[inline]
    pub fn common<'a>(
        &'a self,
        other: &'a CpuSet,
        words: Range<usize>,
    ) -> impl Iterator<Item = CpuId> + use<'a> {
        words.flat_map(|word| Bits {
            base: word as u32 * 64,
            rest: self.words[word] & other.words[word],
        })
    }
    /// The CPUs in ascending order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + use<> {
        Members { words: self.words, word: 0, bits: Bits { base: 0, rest: self.words[0] } }
    }
}

/// The CPUs of one word.
struct Bits {
    base: u32,
    rest: u64,
}

impl Iterator for Bits {
    type Item = CpuId;

    #[inline]
    fn next(&mut self) -> Option<CpuId> {
        let bit = (self.rest != 0).then(|| self.rest.trailing_zeros())?;
        self.rest &= self.rest - 1;
        Some(CpuId(self.base + bit))
    }
}

/// See [`CpuSet::iter`].
struct Members {
    words: [u64; WORDS],
    /// The word that is being read, and what is left of it.
    word: usize,
    bits: Bits,
}

impl Iterator for Members {
    type Item = CpuId;

    #[inline]
    fn next(&mut self) -> Option<CpuId> {
        while self.bits.rest == 0 {
            self.word += 1;
            self.bits = Bits { base: self.word as u32 * 64, rest: *self.words.get(self.word)? };
        }
        self.bits.next()
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(iter: I) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        iter.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == CpuSet::ALL {
            return f.write_str("all");
        }
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.peek() == Some(&CpuId(last.0 + 1)) {
                last = cpus.next().expect("peeked");
            }
            if first == last {
                write!(f, "{separator}{}", first.0)?;
            } else {
                write!(f, "{separator}{}-{}", first.0, last.0)?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// Why a text is not a CPU list.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is not a CPU list: write numbers below {MAX_CPUS} and ranges, such as \"0-3,8\", or \
     \"all\""
)]
pub struct CpuSetError(pub String);

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<CpuSet, CpuSetError> {
        let error = || CpuSetError(text.to_owned());
        if text.trim() == "all" {
            return Ok(CpuSet::ALL);
        }
        let number = |part: &str| {
            part.trim().parse::<u32>().ok().filter(|&n| (n as usize) < MAX_CPUS).ok_or_else(error)
        };
        let mut set = CpuSet::EMPTY;
        for part in text.trim().split(',') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to) = (number(from)?, number(to)?);
            if from > to {
                return Err(error());
            }
            (from..=to).for_each(|n| set.insert(CpuId(n)));
        }
        Ok(set)
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for CpuSet {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "CpuSet".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CpuSet, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(CpuSet::EMPTY);
        }
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_round_trip() {
        for text in ["0", "0-3", "0-3,8", "1,3,5-7,511"] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), text);
        }
        assert_eq!("all".parse::<CpuSet>().unwrap(), CpuSet::ALL);
    }

    #[test]
    fn positions_agree_with_the_iterator() {
        for text in ["0", "3,64,130-140,511", "5-70", "511", ""] {
            let set = if text.is_empty() { CpuSet::EMPTY } else { text.parse::<CpuSet>().unwrap() };
            assert_eq!(set.lowest(), set.iter().next());
            let some: CpuSet = "0-66,133,300-511".parse().unwrap();
            assert!(set.common(&some, set.span()).eq(set.and(&some).iter()));
            assert_eq!(set.is_within(&some), set.without(&some).is_empty());
            assert!(set.and(&some).is_within(&set) && set.or(&some).without(&some).is_within(&set));
            assert!(
                set.span().all(|word| word < WORDS) && set.common(&set, set.span()).eq(set.iter())
            );
            for from in [0, 1, 3, 4, 63, 64, 65, 131, 300, 511, 512, 600] {
                let next = set.iter().find(|cpu| cpu.0 >= from).or_else(|| set.lowest());
                assert_eq!(set.next_from(from), next, "{text} from {from}");
                assert_eq!(set.count_below(from), set.iter().filter(|cpu| cpu.0 < from).count());
                let rest = set.without(&CpuSet::single(CpuId(64))).without(&CpuSet::first(4));
                assert!(rest.iter().eq(set.iter().filter(|cpu| cpu.0 >= 4 && cpu.0 != 64)));
            }
        }
    }

    #[test]
    fn refuses_bad_lists() {
        for text in ["", "a", "3-1", "512", "1,,2", "-1"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }
}
