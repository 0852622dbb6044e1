//! Follows the tasks of a recorder that has no end, in tables as large as the tasks that live:
//! what ended is forgotten, and its place is used again.

mod slots;

use schedlab_model::{EventKind, EventSink, GroupId, SchedEvent, TaskId};
use schedlab_trace::analysis::Occupancy;
use schedlab_trace::analysis::follow::{Followed, Follower, Listener};
use schedlab_trace::{GroupInfo, Header, TaskInfo, renumber};
use slots::Slots;

/// Listens to a [`LiveFollower`], whose tasks have places in the listener's header.
pub(crate) trait LiveListener: Listener {
    /// Returns the tasks and groups that are known.
    fn header(&mut self) -> &mut Header;
    /// Returns who was where, which says how long an ended task may still be named.
    fn occupancy(&self) -> &Occupancy;
    /// Called when the facts of the task at a place are new.
    fn met(&mut self, _: TaskId) {}
}

/// A listener, the follower to which it listens, and the places of the recorder's tasks.
pub(crate) struct LiveFollower<L> {
    followed: Followed<L>,
    slots: Slots,
}

impl<L: LiveListener> LiveFollower<L> {
    pub(crate) fn new(listener: L) -> LiveFollower<L> {
        LiveFollower { followed: Followed::new(0, 0, listener), slots: Slots::default() }
    }

    pub(crate) fn listener(&mut self) -> &mut L {
        &mut self.followed.listener
    }

    /// Returns the listener beside the state that it hears of.
    pub(crate) fn both(&self) -> (&L, &Follower) {
        (&self.followed.listener, self.followed.follower())
    }

    /// Returns the place of a task.
    pub(crate) fn slot(&mut self, id: TaskId) -> TaskId {
        self.slots.slot_for(id)
    }

    /// Notes a control group, before its tasks.
    pub(crate) fn group(&mut self, id: GroupId, info: GroupInfo) {
        let groups = &mut self.followed.listener.header().groups;
        if let Some(known) = groups.get_mut(id.index()) { *known = info } else { groups.push(info) }
    }

    /// Notes the facts of a task.
    pub(crate) fn meet(&mut self, id: TaskId, info: TaskInfo) {
        self.slots.has_thread(id, info.tid, self.followed.follower().now());
        let slot = self.slots.slot_for(id);
        let tasks = &mut self.followed.listener.header().tasks;
        if slot.index() >= tasks.len() {
            tasks.resize_with(slot.index() + 1, || TaskInfo::unknown(0, 0, "?"));
        }
        tasks[slot.index()] = info;
        self.followed.listener.met(slot);
    }

    /// Forgets the tasks that ended and that no wait, event or remembered switch can name any more.
    pub(crate) fn forget_ended(&mut self) {
        if !self.slots.any_due(self.followed.follower().now()) {
            return;
        }
        let since = self.followed.listener.occupancy().needed_since(self.followed.follower());
        while let Some(slot) = self.slots.release(since) {
            self.followed.forget(slot);
            if let Some(info) = self.followed.listener.header().tasks.get_mut(slot.index()) {
                *info = TaskInfo::unknown(0, 0, "?");
            }
        }
    }

    pub(crate) fn event(&mut self, event: &SchedEvent) {
        let renumbered = renumber(event, |id| self.slots.slot_for(id));
        self.followed.event(&renumbered);
        if let (EventKind::Exit { task: id }, EventKind::Exit { task }) =
            (event.kind, renumbered.kind)
        {
            let tasks = &self.followed.listener.header().tasks;
            let tid = tasks.get(task.index()).map_or(0, |task| task.tid);
            self.slots.ended(id, tid, event.at);
        }
    }
}
