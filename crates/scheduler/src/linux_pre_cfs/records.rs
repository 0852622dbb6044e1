//! Task records and lists that several CPUs may read while another writes: relaxed words, as the
//! kernels of that time did it.

use schedlab_model::TaskId;
use std::sync::atomic::{AtomicI8, AtomicI32, AtomicI64, Ordering::Relaxed};

macro_rules! word {
    ($($(#[doc = $doc:literal])+ $name:ident: $atomic:ident of $number:ident,)+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Debug, Default)]
            pub(super) struct $name($atomic);

            #[allow(dead_code, reason = "not every width needs everything")]
            impl $name {
                #[inline]
                pub(super) fn new(value: i64) -> $name {
                    $name($atomic::new(Self::fit(value)))
                }
                #[inline]
                pub(super) fn get(&self) -> i64 {
                    i64::from(self.0.load(Relaxed))
                }
                #[inline]
                pub(super) fn set(&self, value: i64) {
                    self.0.store(Self::fit(value), Relaxed);
                }
                #[inline]
                pub(super) fn flag(&self) -> bool {
                    self.get() != 0
                }
                #[inline]
                fn fit(value: i64) -> $number {
                    debug_assert!($number::try_from(value).is_ok(), "{value} does not fit into \
                        the record");
                    value as $number
                }
            }
        )+
    };
}

word! {
    /// A number that may be read without a lock.
    Word: AtomicI64 of i64,
    /// A number below 2^31, so that the record of a task fits into a cache line.
    Half: AtomicI32 of i32,
    /// A number from -128 to 127.
    Byte: AtomicI8 of i8,
}

impl Word {
    /// Adds, also while others add.
    #[inline]
    pub(super) fn add(&self, value: i64) {
        self.0.fetch_add(value, Relaxed);
    }
}

/// Represents "no task" and "no list" in links.
pub(super) const NIL: i64 = -1;

/// Links of a task in a list.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) next: Half,
    pub(super) prev: Half,
}

impl Default for Links {
    fn default() -> Links {
        Links { next: Half::new(NIL), prev: Half::new(NIL) }
    }
}

/// A doubly linked list through the records of its members.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) head: i64,
    pub(super) tail: i64,
    pub(super) len: usize,
}

impl List {
    pub(super) const EMPTY: List = List { head: NIL, tail: NIL, len: 0 };

    pub(super) fn push_front<'a>(&mut self, links: impl Fn(i64) -> &'a Links, task: TaskId) {
        let id = i64::from(task.0);
        links(id).prev.set(NIL);
        links(id).next.set(self.head);
        if self.head == NIL {
            self.tail = id;
        } else {
            links(self.head).prev.set(id);
        }
        self.head = id;
        self.len += 1;
    }

    pub(super) fn push_back<'a>(&mut self, links: impl Fn(i64) -> &'a Links, task: TaskId) {
        let id = i64::from(task.0);
        links(id).next.set(NIL);
        links(id).prev.set(self.tail);
        if self.tail == NIL {
            self.head = id;
        } else {
            links(self.tail).next.set(id);
        }
        self.tail = id;
        self.len += 1;
    }

    /// The task must be a member.
    pub(super) fn remove<'a>(&mut self, links: impl Fn(i64) -> &'a Links, task: TaskId) {
        let own = links(i64::from(task.0));
        let (prev, next) = (own.prev.get(), own.next.get());
        if prev == NIL {
            self.head = next
        } else {
            links(prev).next.set(next)
        }
        if next == NIL {
            self.tail = prev
        } else {
            links(next).prev.set(prev)
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_order() {
        let links: Vec<Links> = (0..4).map(|_| Links::default()).collect();
        let at = |id: i64| &links[id as usize];
        let mut list = List::EMPTY;
        list.push_back(at, TaskId(1));
        list.push_back(at, TaskId(2));
        list.push_front(at, TaskId(0));
        list.push_back(at, TaskId(3));
        list.remove(at, TaskId(1));
        list.remove(at, TaskId(3));
        let mut seen = Vec::new();
        let mut id = list.head;
        while id != NIL {
            seen.push(id);
            id = at(id).next.get();
        }
        assert_eq!((seen, list.tail, list.len), (vec![0, 2], 2, 2));
    }
}
