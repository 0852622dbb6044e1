//! What is missing among the facts of a recording: facts that the recorder lost, and bytes that the
//! kernel counted and no fact tells of.

use super::lost;
use crate::repair::too_much_lost;
use schedlab_model::{Fact, FactKind, Transfer};

/// Facts that are there and facts that are missing. Facts are counted one after the other, in their
/// order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FactLoss {
    /// Facts that were recorded.
    pub facts: u64,
    /// Facts for which the recorder had no room.
    pub lost: u64,
    /// Bytes of the recorded sends and receives at objects whose kind has places.
    pub bytes: u64,
    /// Bytes between the places of recorded facts that no fact tells of: the kernel skips a BPF
    /// program that would interrupt itself, and does not call one for what a thread of its own
    /// moves.
    pub missing: u64,
    /// By object: its sends and its receives.
    ends: Vec<[Option<End>; 2]>,
}

/// One end of an object's stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct End {
    /// The place behind the last bytes.
    place: u64,
    /// Bytes before it that no fact has told of.
    missing: u64,
}

impl FactLoss {
    /// Returns what is missing among these facts.
    pub fn of(facts: &[Fact]) -> FactLoss {
        let mut loss = FactLoss::default();
        facts.iter().for_each(|fact| loss.count(fact));
        loss
    }

    /// Counts one fact more.
    pub fn count(&mut self, fact: &Fact) {
        let lost = lost(fact);
        self.lost = self.lost.saturating_add(lost);
        self.facts += u64::from(lost == 0);
        match fact.kind {
            FactKind::Send(ref moved) => self.moved(0, moved),
            FactKind::Receive(ref moved) if !moved.peek => self.moved(1, moved),
            _ => {}
        }
    }

    fn moved(&mut self, side: usize, moved: &Transfer) {
        let Some(place) = moved.place.filter(|_| moved.bytes > 0) else { return };
        let bytes = u64::from(moved.bytes);
        self.bytes = self.bytes.saturating_add(bytes);
        let object = moved.object.index();
        if self.ends.len() <= object {
            self.ends.resize(object + 1, [None; 2]);
        }
        let begin = place.saturating_sub(bytes);
        let end = self.ends[object][side].get_or_insert(End { place: begin, missing: 0 });
        if begin >= end.place {
            let gap = begin - end.place;
            *end = End { place, missing: end.missing.saturating_add(gap) };
            self.missing = self.missing.saturating_add(gap);
            return;
        }
        // Of two threads that send at once, the first to take its place may be the last to be told.
        let told = end.missing.min(bytes.min(end.place - begin));
        *end = End { place: end.place.max(place), missing: end.missing - told };
        self.missing = self.missing.saturating_sub(told);
    }

    /// Returns whether so many facts, or bytes, are missing that the rest is not to be trusted.
    pub fn is_too_much(&self) -> bool {
        too_much_lost(self.lost, self.lost.saturating_add(self.facts))
            || too_much_lost(self.missing, self.missing.saturating_add(self.bytes))
    }

    /// Returns a sentence with numbers and parts; `None` when nothing is missing.
    pub fn sentence(&self) -> Option<String> {
        let part = |missing: u64, there: u64| {
            100.0 * missing as f64 / (missing as f64 + there as f64).max(1.0)
        };
        let facts = match self.lost {
            0 => None,
            lost => Some(format!(
                "the recorder lost {lost} facts ({:.2} % of {})",
                part(lost, self.facts),
                self.facts.saturating_add(lost)
            )),
        };
        let bytes = match self.missing {
            0 => None,
            missing => Some(format!(
                "no fact tells of {missing} bytes that the kernel counted in its streams ({:.2} % \
                 of {})",
                part(missing, self.bytes),
                self.bytes.saturating_add(missing)
            )),
        };
        let both: Vec<String> = facts.into_iter().chain(bytes).collect();
        (!both.is_empty()).then(|| both.join(", and "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, Ns, ObjectId};

    fn fact(kind: FactKind) -> Fact {
        Fact { at: Ns(1), cpu: CpuId(0), task: None, kind }
    }

    fn moved(bytes: u32, place: u64) -> Transfer {
        Transfer { place: Some(place), ..Transfer::done(ObjectId(1), bytes) }
    }

    fn missing(kinds: &[FactKind]) -> u64 {
        let facts: Vec<Fact> = kinds.iter().map(|kind| fact(*kind)).collect();
        FactLoss::of(&facts).missing
    }

    #[test]
    fn places_show_what_is_missing_at_each_end() {
        let send = |bytes, place| FactKind::Send(moved(bytes, place));
        let receive = |bytes, place| FactKind::Receive(moved(bytes, place));
        assert_eq!(missing(&[send(10, 110), send(10, 120), receive(20, 120)]), 0);
        assert_eq!(missing(&[send(10, 110), send(10, 150)]), 30);
        assert_eq!(missing(&[receive(50, 150), receive(5, 175)]), 20);
        // What is told late is not missing.
        assert_eq!(missing(&[send(10, 110), send(10, 150), send(30, 140)]), 0);
        let peek = FactKind::Receive(Transfer { peek: true, ..moved(9, 900) });
        assert_eq!(missing(&[receive(1, 101), peek, receive(1, 102)]), 0);
    }

    #[test]
    fn the_sentence_has_number_and_part() {
        let mut loss = FactLoss::default();
        assert!(loss.sentence().is_none() && !loss.is_too_much());
        loss.count(&fact(FactKind::Send(moved(60, 160))));
        loss.count(&fact(FactKind::Send(moved(20, 200))));
        loss.count(&fact(FactKind::Lost { count: 3 }));
        assert!(loss.is_too_much());
        let said = loss.sentence().unwrap();
        assert_eq!(
            said,
            "the recorder lost 3 facts (60.00 % of 5), and no fact tells of 20 bytes that the \
             kernel counted in its streams (20.00 % of 100)"
        );
    }

    #[test]
    fn numbers_of_a_strange_file_do_no_harm() {
        let far = |place| FactKind::Send(moved(u32::MAX, place));
        let facts = [far(0), far(u64::MAX), far(5), far(u64::MAX)].map(fact);
        let mut loss = FactLoss::of(&facts);
        loss.count(&fact(FactKind::Lost { count: u64::MAX }));
        loss.count(&fact(FactKind::Lost { count: u64::MAX }));
        assert!(loss.is_too_much() && loss.sentence().is_some());
    }
}
