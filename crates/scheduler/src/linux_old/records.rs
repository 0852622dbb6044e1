//! Task records and lists that several CPUs may read while another writes: relaxed words, as the kernels of
//! that time did it.

use schedlab_model::TaskId;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// A number that may be read without a lock.
#[derive(Debug, Default)]
pub(super) struct Word(AtomicI64);

impl Word {
    pub(super) fn new(value: i64) -> Word {
        Word(AtomicI64::new(value))
    }
    #[inline]
    pub(super) fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
    #[inline]
    pub(super) fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }
    /// Adds, whoever else does at the same time.
    #[inline]
    pub(super) fn add(&self, value: i64) {
        self.0.fetch_add(value, Relaxed);
    }
    #[inline]
    pub(super) fn flag(&self) -> bool {
        self.get() != 0
    }
}

/// Stands for "no task" and "no list" in links.
pub(super) const NIL: i64 = -1;

/// Links of a task in a list.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) next: Word,
    pub(super) prev: Word,
}

impl Default for Links {
    fn default() -> Links {
        Links { next: Word::new(NIL), prev: Word::new(NIL) }
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
