//! Which object of the recording a number of the kernel's side means.

use super::unix_names::UnixNames;
use super::{RawFact, flag, kind};
use schedlab_model::{ObjectId, ObjectInfo, ObjectKind};
use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};

/// A connection whose ends are closed for this long is forgotten, in ns: so long its addresses are
/// not used again (TCP_TIMEWAIT_LEN, include/net/tcp.h, Linux 6.18: 60 s).
const TIME_WAIT_NS: u64 = 60_000_000_000;

/// A number of the kernel's side, and of which kind of object it is one.
type Key = (ObjectKind, u64);

/// What is known of an object that goes on.
#[derive(Debug)]
struct Known {
    id: ObjectId,
    info: ObjectInfo,
    /// The latest place, in 64 bits.
    place: Option<u64>,
    /// It was given out by an accept.
    accepted: bool,
    /// It began with the other direction of its connection, and has not been opened by itself yet.
    half_open: bool,
    /// An end of its connection was closed.
    closing: bool,
    /// When a fact named it last.
    used: u64,
}

/// The objects of a recording.
#[derive(Debug, Default)]
pub(super) struct Objects {
    known: HashMap<Key, Known>,
    count: u32,
    /// Objects that are new or have changed.
    fresh: BTreeSet<(ObjectId, Key)>,
    /// How many of them are closing, at most.
    closing: usize,
    unix: UnixNames,
}

impl Objects {
    /// Returns the object of a fact.
    pub(super) fn object(&mut self, raw: &RawFact) -> ObjectId {
        let key = (raw.object_kind(), raw.object);
        let id = match self.known.get_mut(&key) {
            Some(known) => {
                known.used = raw.at;
                known.id
            }
            None => self.begin(raw),
        };
        if key.0 == ObjectKind::Unix {
            self.name_unix(raw);
        }
        id
    }

    /// Returns the object of this kind and number, of which nothing else is known.
    pub(super) fn named(&mut self, kind: ObjectKind, number: u64) -> ObjectId {
        match self.known.get(&(kind, number)) {
            Some(known) => known.id,
            None => self.add((kind, number), ObjectInfo::of_kind(kind)),
        }
    }

    /// Returns the object of a fact that says that it begins: whatever had its number before is
    /// another one.
    pub(super) fn begun(&mut self, raw: &RawFact) -> ObjectId {
        let key = (raw.object_kind(), raw.object);
        // The second end of a socket pair is known from the first.
        if let Some(known) = self.known.get_mut(&key).filter(|known| known.half_open) {
            known.half_open = false;
            return known.id;
        }
        self.known.remove(&key);
        let peer = peer_key(raw);
        peer.and_then(|peer| self.known.remove(&peer));
        let id = self.object(raw);
        if let Some(known) = peer.and_then(|peer| self.known.get_mut(&peer)) {
            known.half_open = raw.kind == kind::OPEN;
        }
        id
    }

    /// Returns the direction of an accepted connection to its task. One that was asked for here is
    /// known from there; one that was accepted before is another one with the same number.
    pub(super) fn accepted(&mut self, raw: &RawFact) -> ObjectId {
        let key = (raw.object_kind(), raw.object);
        let id = match self.known.get(&key).is_some_and(|known| known.accepted) {
            true => self.begun(raw),
            false => self.object(raw),
        };
        if let Some(known) = self.known.get_mut(&key) {
            known.accepted = true;
        }
        id
    }

    /// Returns the object of a fact that says that its sending end is closed.
    pub(super) fn closed(&mut self, raw: &RawFact) -> ObjectId {
        let id = self.object(raw);
        for key in [Some((raw.object_kind(), raw.object)), peer_key(raw)].into_iter().flatten() {
            if let Some(known) = self.known.get_mut(&key) {
                self.closing += usize::from(!known.closing);
                (known.closing, known.used) = (true, raw.at);
            }
        }
        id
    }

    /// Returns the place of a fact in 64 bits. The kernel counts in 32; the nearest number to the
    /// last place is meant.
    pub(super) fn place(&mut self, raw: &RawFact) -> u64 {
        let Some(known) = self.known.get_mut(&(raw.object_kind(), raw.object)) else { return 0 };
        // One round above 0, so that a place a little before the first one is none below 0.
        let last = known.place.unwrap_or(1 << 32 | u64::from(raw.place));
        let by = raw.place.wrapping_sub(last as u32) as i32;
        let place = last.saturating_add_signed(i64::from(by));
        known.place = Some(place);
        place
    }

    /// Returns what is new or has changed, each object once, in the order of the ids.
    pub(super) fn fresh(&mut self) -> Vec<(ObjectId, ObjectInfo)> {
        let fresh = std::mem::take(&mut self.fresh).into_iter();
        fresh
            .map(|(id, key)| {
                let known = self.known.get(&key).filter(|known| known.id == id);
                (id, known.map_or_else(|| ObjectInfo::of_kind(key.0), |known| known.info.clone()))
            })
            .collect()
    }

    pub(super) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Forgets connections that were closed and used last long before `now`.
    pub(super) fn forget(&mut self, now: u64) {
        /// Fewer are kept: looking at all costs more than they do.
        const FEW: usize = 10_000;
        if self.closing < FEW {
            return;
        }
        let over = |known: &Known| known.closing && known.used.saturating_add(TIME_WAIT_NS) < now;
        self.known.retain(|_, known| !over(known));
        self.closing = self.known.values().filter(|known| known.closing).count();
    }

    fn add(&mut self, key: Key, info: ObjectInfo) -> ObjectId {
        let id = ObjectId(self.count);
        self.count = self.count.saturating_add(1);
        self.fresh.insert((id, key));
        let (accepted, half_open, closing) = (false, false, false);
        self.known
            .insert(key, Known { id, info, place: None, accepted, half_open, closing, used: 0 });
        id
    }

    /// A new object, and the other direction of its connection, unless that one is known already.
    fn begin(&mut self, raw: &RawFact) -> ObjectId {
        let key = (raw.object_kind(), raw.object);
        let info = info(raw);
        let Some(peer) = peer_key(raw) else { return self.add(key, info) };
        let other = ObjectInfo {
            from: info.to.clone(),
            to: info.from.clone(),
            capacity: None,
            ..info.clone()
        };
        let id = self.add(key, info);
        let peer_id = match self.known.get(&peer) {
            Some(known) => known.id,
            None => self.add(peer, other),
        };
        for (key, other) in [(key, peer_id), (peer, id)] {
            if let Some(known) = self.known.get_mut(&key) {
                known.info.peer = Some(other);
                self.fresh.insert((known.id, key));
            }
        }
        id
    }

    /// The path of the end at which the fact happened is that of the object's beginning or end.
    fn name_unix(&mut self, raw: &RawFact) {
        let key = (ObjectKind::Unix, raw.object);
        let sends = matches!(raw.kind, kind::SEND | kind::CONNECT);
        let named =
            |known: &Known| if sends { &known.info.from } else { &known.info.to }.is_empty();
        if !self.known.get(&key).is_some_and(named) {
            return;
        }
        let Some(path) = self.unix.path(raw.word) else { return };
        let path = path.to_owned();
        for (key, at_from) in [(Some(key), sends), (peer_key(raw), !sends)] {
            let Some((key, known)) = key.and_then(|key| Some((key, self.known.get_mut(&key)?)))
            else {
                continue;
            };
            let name = if at_from { &mut known.info.from } else { &mut known.info.to };
            name.clone_from(&path);
            self.fresh.insert((known.id, key));
        }
    }
}

/// The number of the other direction of the fact's connection.
fn peer_key(raw: &RawFact) -> Option<Key> {
    match raw.object_kind() {
        // Two halves, one of each end.
        ObjectKind::Tcp => Some((ObjectKind::Tcp, raw.object.rotate_left(32))),
        ObjectKind::Unix if raw.other != 0 => Some((ObjectKind::Unix, raw.other)),
        _ => None,
    }
}

/// What a fact tells about its object.
fn info(raw: &RawFact) -> ObjectInfo {
    let kind = raw.object_kind();
    let mut info = ObjectInfo::of_kind(kind);
    let (from_port, to_port) = (raw.word as u16, (raw.word >> 16) as u16);
    let (from, to) = (raw.other as u32, (raw.other >> 32) as u32);
    match kind {
        ObjectKind::Tcp => {
            info.from = address(raw, from, from_port);
            info.to = address(raw, to, to_port);
        }
        ObjectKind::Udp if raw.other == 0 && to_port == 0 => info.from = format!("*:{from_port}"),
        ObjectKind::Udp if to == 0 && !raw.has(flag::IPV6) => info.to = format!("*:{to_port}"),
        ObjectKind::Udp => info.to = address(raw, to, to_port),
        ObjectKind::Pipe => info.to = format!("pipe:[{}]", raw.word),
        _ => {}
    }
    let sends = raw.kind == kind::SEND;
    let holds =
        kind == ObjectKind::Pipe || sends && (ObjectKind::Tcp..=ObjectKind::Socket).contains(&kind);
    info.capacity = (holds && raw.extra != 0).then_some(u64::from(raw.extra));
    info
}

/// The address as it is written: of a long IPv6 address only the end is known.
fn address(raw: &RawFact, end: u32, port: u16) -> String {
    if !raw.has(flag::IPV6) {
        return format!("{}:{port}", Ipv4Addr::from(end.to_le_bytes()));
    }
    if raw.has(flag::IPV6_IS_LONG) {
        let [a, b, c, d] = end.to_le_bytes();
        return format!("[..{a:02x}{b:02x}:{c:02x}{d:02x}]:{port}");
    }
    format!("[{}]:{port}", Ipv6Addr::from(u128::from(u32::from_be_bytes(end.to_le_bytes()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes from 127.0.0.1:41230 to 127.0.0.1:6379, or back.
    fn tcp(kind: u8, back: bool) -> RawFact {
        let here = u64::from(u32::from_le_bytes([127, 0, 0, 1]));
        let (object, word) = (0xaaaa_0001_bbbb_0002u64, 41_230 | 6_379 << 16);
        RawFact {
            kind,
            of: 1,
            object: if back { object.rotate_left(32) } else { object },
            other: here | here << 32,
            word: if back { 6_379 | 41_230 << 16 } else { word },
            ..RawFact::default()
        }
    }

    #[test]
    fn both_ends_and_directions_find_each_other() {
        let mut objects = Objects::default();
        let there = objects.object(&tcp(kind::SEND, false));
        assert_eq!(objects.object(&tcp(kind::RECEIVE, false)), there);
        let back = objects.object(&tcp(kind::SEND, true));
        assert_ne!(there, back);
        let fresh = objects.fresh();
        assert_eq!(fresh.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [there, back]);
        assert_eq!((fresh[0].1.peer, fresh[1].1.peer), (Some(back), Some(there)));
        assert_eq!(
            (&fresh[0].1.from[..], &fresh[0].1.to[..]),
            ("127.0.0.1:41230", "127.0.0.1:6379")
        );
        assert_eq!(fresh[1].1.to, "127.0.0.1:41230");
        assert!(!objects.has_fresh());
    }

    #[test]
    fn an_accept_keeps_what_its_client_began_and_a_second_one_begins_anew() {
        let mut objects = Objects::default();
        let asked = objects.begun(&tcp(kind::CONNECT, false));
        objects.fresh();
        assert_eq!(objects.accepted(&tcp(kind::ACCEPT, false)), asked);
        let again = objects.accepted(&tcp(kind::ACCEPT, false));
        assert_ne!(again, asked, "the same addresses again");
        objects.fresh();
        assert_ne!(objects.begun(&tcp(kind::CONNECT, false)), again);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_object() {
        let mut objects = Objects::default();
        let pipe = RawFact { kind: kind::OPEN, of: 7, object: 5, word: 4711, ..RawFact::default() };
        let first = objects.begun(&pipe);
        assert_eq!(objects.fresh()[0].1.to, "pipe:[4711]");
        assert_eq!(objects.object(&RawFact { kind: kind::SEND, ..pipe }), first);
        let second = objects.begun(&pipe);
        assert_ne!(first, second);
        assert_eq!(objects.object(&RawFact { kind: kind::SEND, ..pipe }), second);
        assert_ne!(
            objects.named(ObjectKind::Futex, 5),
            second,
            "another kind has numbers of its own"
        );
    }

    #[test]
    fn both_ends_of_a_socket_pair_begin_together() {
        let mut objects = Objects::default();
        let end = |object, other| RawFact {
            kind: kind::OPEN,
            of: 3,
            object,
            other,
            ..RawFact::default()
        };
        let one = objects.begun(&end(1, 2));
        let fresh = objects.fresh();
        assert_eq!(fresh.len(), 2);
        let two = objects.begun(&end(2, 1));
        assert!(!objects.has_fresh());
        assert_ne!(objects.begun(&end(1, 2)), one, "the same numbers again");
        assert_eq!((fresh[0].1.peer, fresh[1].1.peer), (Some(two), Some(one)));
    }

    #[test]
    fn places_go_on_where_the_kernel_begins_anew() {
        let mut objects = Objects::default();
        let mut at = |place| {
            let raw = RawFact { place, ..tcp(kind::SEND, false) };
            objects.object(&raw);
            objects.place(&raw)
        };
        let begin = at(u32::MAX - 9);
        assert_eq!(at(10) - begin, 20);
        assert_eq!(at(u32::MAX - 4), begin + 5, "the receiver is behind");
        assert_eq!(at(2_000_000_010), begin + 2_000_000_020);
    }

    #[test]
    fn closed_connections_are_forgotten() {
        let mut objects = Objects::default();
        for number in 1..=10_000u64 {
            objects.closed(&RawFact {
                object: number << 40 | number,
                at: 5,
                ..tcp(kind::CLOSE, false)
            });
        }
        let late = RawFact { object: 1 << 40 | 1, at: 9, ..tcp(kind::RECEIVE, false) };
        objects.object(&late);
        objects.forget(5 + TIME_WAIT_NS);
        assert_eq!(objects.known.len(), 20_000, "both directions");
        objects.forget(6 + TIME_WAIT_NS);
        assert_eq!((objects.known.len(), objects.closing), (1, 1), "one is still read");
    }

    #[test]
    fn addresses_are_written_as_far_as_they_are_known() {
        let of = |flags, end| {
            address(&RawFact { flags, ..RawFact::default() }, u32::from_le_bytes(end), 80)
        };
        assert_eq!(of(0, [10, 0, 0, 7]), "10.0.0.7:80");
        assert_eq!(of(flag::IPV6, [0, 0, 0, 1]), "[::1]:80");
        assert_eq!(of(flag::IPV6 | flag::IPV6_IS_LONG, [0x12, 0x34, 0, 0xff]), "[..1234:00ff]:80");
    }
}
