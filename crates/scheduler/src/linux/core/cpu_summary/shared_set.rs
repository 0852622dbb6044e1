//! A set of CPUs that readers see without a lock.

use schedlab_model::{CpuId, CpuSet, WORDS};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A set of CPUs that may be read while one of them is put in or taken out, with its size.
#[derive(Debug)]
pub(in crate::linux) struct SharedSet {
    words: [AtomicU64; WORDS],
    count: AtomicU32,
    /// One thread makes all changes.
    pub(super) one_thread: bool,
}

impl SharedSet {
    /// The first `count` CPUs.
    pub(in crate::linux) fn first(count: usize) -> SharedSet {
        let words = [const { AtomicU64::new(0) }; WORDS];
        let set = SharedSet { words, count: AtomicU32::new(0), one_thread: false };
        (0..count).for_each(|cpu| set.change(cpu.into(), false, true));
        set
    }
    #[inline]
    pub(super) fn change(&self, cpu: CpuId, before: bool, after: bool) {
        if before == after {
            return;
        }
        let (word, bit) = (&self.words[cpu.index() / 64 % WORDS], 1 << (cpu.0 % 64));
        if self.one_thread {
            let (old, count) = (word.load(Relaxed), self.count.load(Relaxed));
            word.store(if after { old | bit } else { old & !bit }, Relaxed);
            self.count.store(if after { count + 1 } else { count - 1 }, Relaxed);
        } else if after {
            word.fetch_or(bit, Relaxed);
            self.count.fetch_add(1, Relaxed);
        } else {
            word.fetch_and(!bit, Relaxed);
            self.count.fetch_sub(1, Relaxed);
        }
    }
    /// Puts a CPU in or takes it out.
    pub(in crate::linux) fn set(&self, cpu: CpuId, member: bool) {
        self.change(cpu, self.get().contains(cpu), member);
    }
    /// The set at this moment.
    #[inline]
    pub(in crate::linux) fn get(&self) -> CpuSet {
        let (mut words, mut word) = ([0; WORDS], 0);
        while word < WORDS {
            words[word] = self.words[word].load(Relaxed);
            word += 1;
        }
        CpuSet::from_words(words)
    }
    /// How many CPUs are in it.
    #[inline]
    pub(in crate::linux) fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }
    /// Whether no CPU is in it.
    #[inline]
    pub(in crate::linux) fn none(&self) -> bool {
        self.count() == 0
    }
    /// Those of a word of a set of CPUs.
    #[inline]
    pub(in crate::linux) fn in_word(&self, word: usize) -> u64 {
        self.words[word].load(Relaxed)
    }
}
