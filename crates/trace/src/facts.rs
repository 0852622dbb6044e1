//! The facts of a recording: what its tasks exchanged, and at which objects.

mod codec;
mod loss;
mod packed;

use crate::header::escape;
use crate::reader::LONGEST;
use crate::repair::too_much_lost;
use crate::{Header, Recording, TraceError};
pub(crate) use codec::{Layout, RECORD, decode, encode};
pub use loss::FactLoss;
pub use packed::PackedFacts;
use schedlab_model::{Fact, FactKind, Ns, ObjectId, ObjectInfo, ObjectKind, TaskId};

/// What tasks exchanged, in order of time, and the objects that the facts name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// The index is the [`ObjectId`].
    pub objects: Vec<ObjectInfo>,
    /// In non-decreasing time.
    pub list: Vec<Fact>,
}

impl Facts {
    /// Returns the object of an id that a fact names.
    pub fn object(&self, id: ObjectId) -> &ObjectInfo {
        &self.objects[id.index()]
    }

    /// Returns the facts from `from` to `to`, both included.
    pub fn between(&self, from: Ns, to: Ns) -> &[Fact] {
        let begin = self.list.partition_point(|fact| fact.at < from);
        let end = self.list.partition_point(|fact| fact.at <= to);
        self.list.get(begin..end).unwrap_or_default()
    }

    /// Returns the facts from `from` to `to` as if the recording had begun at `from`; the objects
    /// are all of them.
    #[must_use]
    pub fn part(&self, from: Ns, to: Ns) -> Facts {
        let shifted = |fact: &Fact| {
            let mut kind = fact.kind;
            kind.shift(from);
            Fact { at: fact.at.saturating_sub(from), kind, ..*fact }
        };
        let list = self.between(from, to).iter().map(shifted).collect();
        Facts { objects: self.objects.clone(), list }
    }

    /// Returns what is missing among them.
    pub fn loss(&self) -> FactLoss {
        FactLoss::of(&self.list)
    }

    /// Returns a sentence where more datagrams than may be missing came from tasks that are not
    /// known, while tasks sent to addresses that were not read (recorders up to schedlab 0.1.0 did
    /// not read where an unbound UDP socket sends): those may be the same, and a client that waits
    /// for its answers looks like one that does not.
    pub fn without_addresses(&self) -> Option<String> {
        let (mut moved, mut nowhere) = (0u64, 0u64);
        let mut ends = vec![(0u64, false); self.objects.len()];
        for fact in &self.list {
            let (object, sends) = match fact.kind {
                FactKind::Send(sent) if sent.bytes > 0 => (sent.object, true),
                FactKind::Receive(got) if got.bytes > 0 && !got.peek => (got.object, false),
                _ => continue,
            };
            moved += 1;
            let (received, is_sent_to) = &mut ends[object.index()];
            *received += u64::from(!sends);
            *is_sent_to |= sends;
            let of = self.object(object);
            nowhere += u64::from(sends && of.kind == ObjectKind::Udp && of.to.is_empty());
        }
        let udp = |(_, of): &(_, &ObjectInfo)| of.kind == ObjectKind::Udp;
        let ends = ends.iter().zip(&self.objects).filter(udp);
        let orphans: u64 = ends.filter(|((_, sent), _)| !sent).map(|((got, _), _)| got).sum();
        let unknown = orphans.min(nowhere);
        too_much_lost(unknown, moved).then(|| {
            format!(
                "of {orphans} datagrams no task is known to have sent them, while {nowhere} were \
                 sent to addresses that the recording does not hold, so that a client that waits \
                 for its answers cannot be told from one that does not: record again"
            )
        })
    }

    /// Sorts what is out of order. Returns how many facts came after a later one.
    pub(crate) fn sort(&mut self) -> u64 {
        let mut latest = Ns::ZERO;
        let mut misordered = 0;
        for fact in &self.list {
            misordered += u64::from(fact.at < latest);
            latest = latest.max(fact.at);
        }
        if misordered > 0 {
            self.list.sort_by_key(|fact| fact.at);
        }
        misordered
    }

    /// Every id of every fact must exist, so that later code may index without asking.
    pub(crate) fn check(&self, header: &Header) -> Result<(), TraceError> {
        let (cpus, tasks, objects) =
            (header.topology.cpus(), header.tasks.len(), self.objects.len());
        let known = |fact: &Fact| {
            let mut known = fact.cpu.index() < cpus && fact.at <= LONGEST;
            let mut fact = *fact;
            fact.each_task(&mut |task| known &= task.index() < tasks);
            fact.kind.each_object(&mut |object| known &= object.index() < objects);
            known
        };
        if let Some(at) = self.list.iter().position(|fact| !known(fact)) {
            let what = format!(
                "fact {at} ({:?}) names a time, CPU, task or object that the recording ({cpus} \
                 CPUs, {tasks} tasks, {objects} \
                 objects) does not have",
                self.list[at]
            );
            return Err(TraceError::Header { what });
        }
        let peers = self.objects.iter().filter_map(|object| object.peer);
        match peers.max().filter(|peer| peer.index() >= objects) {
            Some(peer) => Err(TraceError::Header {
                what: format!("an object has the peer {peer}, which is not listed"),
            }),
            None => Ok(()),
        }
    }
}

impl Recording {
    /// Returns the recording without facts: what a recorder without `--messages` would have kept.
    #[must_use]
    pub fn without_facts(mut self) -> Recording {
        self.facts = Facts::default();
        self.header.capabilities.0.remove(crate::Capability::Messages.name());
        self
    }
}

/// Writes the names of an object as they are shown.
pub(crate) fn escape_object(object: &mut ObjectInfo) {
    escape(&mut object.from);
    escape(&mut object.to);
}

/// Returns how many facts this one says were lost.
pub(crate) fn lost(fact: &Fact) -> u64 {
    match fact.kind {
        FactKind::Lost { count } => count,
        _ => 0,
    }
}

/// Returns the fact with each of its tasks and objects replaced (a recording that leaves some out
/// numbers them anew).
pub fn renumber_fact(
    fact: &Fact,
    mut task: impl FnMut(TaskId) -> TaskId,
    mut object: impl FnMut(ObjectId) -> ObjectId,
) -> Fact {
    let mut fact = *fact;
    fact.each_task(&mut |id| *id = task(*id));
    fact.kind.each_object(&mut |id| *id = object(*id));
    fact
}
