//! Sockets that share one address (SO_REUSEPORT): each thread of a server has one, and the kernel
//! picks one for each sender's address (Linux 6.12: net/core/sock_reuseport.c). A recording names a
//! datagram's socket by the address to which it goes, so that they look like one socket that the
//! threads read in turns.
//!
//! What comes for a socket wakes a thread that waits for it. Where a datagram came while one reader
//! was awake and another one slept, and that one slept on, it came for the socket of the first.

use crate::facts::{Facts, Kind, Slept};
use schedlab_model::{Ns, ObjectId, ObjectKind, TaskId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// So many datagrams have to come while one reader is awake and another one sleeps: fewer say
/// nothing. Chosen.
const OCCASIONS: usize = 20;
/// One in so many of them that wakes none of the sleepers shows sockets apart. Readers of one
/// socket give none; of many sockets with equal traffic each of the others gives one in as many as
/// there are. Chosen.
const SILENT: usize = 20;

/// What is known of the readers of one address.
struct Port {
    /// Each with its sleeps, in order of time.
    readers: Vec<(TaskId, Vec<(Ns, Ns)>)>,
    /// Sends and receives, in order of time.
    events: Vec<Event>,
}

/// A datagram goes in or comes out, as operation number `place` of a task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: Ns,
    /// A receive behind the sends of its moment.
    receives: bool,
    task: TaskId,
    place: usize,
    /// When the send woke a task.
    woke: Option<Ns>,
}

/// The reader to which a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    /// To this reader, by its number among them.
    Reader(usize),
    /// To one of several that were awake.
    Awake,
}

impl Facts {
    /// Tells sockets that share an address apart: each of their readers has an object of its own
    /// then. Gives how many readers of each such address there are.
    pub(crate) fn tell_ports_apart(&mut self) -> Vec<(TaskId, usize)> {
        let mut told = Vec::new();
        for (number, port) in self.ports() {
            let Some(owners) = port.owners() else { continue };
            told.push((port.readers[0].0, port.readers.len()));
            self.give_away(number, &port, &owners);
        }
        told
    }

    /// Returns what is known of each address at which several tasks read, and to which one sends.
    fn ports(&self) -> BTreeMap<usize, Port> {
        let mut readers: BTreeMap<usize, BTreeSet<TaskId>> = BTreeMap::new();
        for (object, event) in self.datagrams().filter(|(_, event)| event.receives) {
            readers.entry(object).or_default().insert(event.task);
        }
        readers.retain(|_, readers| readers.len() > 1);
        if readers.is_empty() {
            return BTreeMap::new();
        }
        let mut ports: BTreeMap<usize, Port> =
            readers.iter().map(|(object, readers)| (*object, Port::of(readers, self))).collect();
        for (object, event) in self.datagrams() {
            if let Some(port) = ports.get_mut(&object) {
                port.events.push(event);
            }
        }
        ports.retain(|_, port| port.events.iter().any(|event| !event.receives));
        ports.values_mut().for_each(|port| port.events.sort_unstable());
        ports
    }

    /// Returns what goes into and comes out of UDP sockets, task by task.
    fn datagrams(&self) -> impl Iterator<Item = (usize, Event)> {
        self.tasks.iter().enumerate().flat_map(move |(number, task)| {
            task.operations.iter().enumerate().filter_map(move |(place, operation)| {
                let (object, receives) = match operation.kind {
                    Kind::Send(object, _) => (object.index(), false),
                    Kind::Receive(object, _) => (object.index(), true),
                    _ => return None,
                };
                let info = self.objects.get(object)?;
                let (at, task, woke) = (operation.at, number.into(), operation.woke);
                let event = Event { at, receives, task, place, woke };
                (info.kind == ObjectKind::Udp).then_some((object, event))
            })
        })
    }

    /// The first reader keeps the object, each other one gets one like it.
    fn give_away(&mut self, number: usize, port: &Port, owners: &[Owner]) {
        let mut objects = vec![ObjectId::from(number)];
        for _ in 1..port.readers.len() {
            objects.push(ObjectId::from(self.objects.len()));
            self.objects.push(self.objects[number].clone());
        }
        for (event, owner) in port.events.iter().zip(owners) {
            let Owner::Reader(reader) = *owner else { continue };
            if let Kind::Send(object, _) | Kind::Receive(object, _) =
                &mut self.tasks[event.task.index()].operations[event.place].kind
            {
                *object = objects[reader];
            }
        }
        for ((task, _), own) in port.readers.iter().zip(&objects) {
            for operation in &mut self.tasks[task.index()].operations {
                if let Kind::Nothing(object) = &mut operation.kind
                    && object.index() == number
                {
                    *object = *own;
                }
            }
        }
    }
}

impl Port {
    /// Returns the readers of an address with their sleeps.
    fn of(readers: &BTreeSet<TaskId>, facts: &Facts) -> Port {
        let slept = |&task: &TaskId| {
            let operations = facts.tasks[task.index()].operations.iter();
            let sleeps = operations.filter_map(|operation| operation.slept);
            let ends = |sleep: Slept| (sleep.until.saturating_sub(sleep.length), sleep.until);
            (task, sleeps.map(ends).collect())
        };
        Port { readers: readers.iter().map(slept).collect(), events: Vec::new() }
    }

    /// Returns to which reader each datagram goes; `None`: they share one socket.
    fn owners(&self) -> Option<Vec<Owner>> {
        let (mut occasions, mut silent) = (0, 0);
        let mut owners = Vec::with_capacity(self.events.len());
        for event in &self.events {
            if event.receives {
                let own = self.readers.iter().position(|(task, _)| *task == event.task);
                owners.push(own.map_or(Owner::Awake, Owner::Reader));
                continue;
            }
            let at = event.woke.unwrap_or(event.at);
            let states: Vec<Option<bool>> =
                self.readers.iter().map(|(_, sleeps)| woken_at(sleeps, at, event.woke)).collect();
            let woken = states.iter().position(|state| *state == Some(true));
            let awake = states.iter().filter(|state| state.is_none()).count();
            if awake > 0 && awake < states.len() {
                occasions += 1;
                silent += usize::from(woken.is_none());
            }
            owners.push(match woken {
                Some(reader) => Owner::Reader(reader),
                None if awake == 1 => {
                    Owner::Reader(states.iter().position(Option::is_none).unwrap_or_default())
                }
                None => Owner::Awake,
            });
        }
        let apart = occasions >= OCCASIONS && silent * SILENT >= occasions;
        apart.then(|| self.settled(owners))
    }

    /// Gives what may go to several readers to those that receive more than is known to be theirs.
    fn settled(&self, mut owners: Vec<Owner>) -> Vec<Owner> {
        let mut there = vec![0u64; self.readers.len()];
        let mut open: VecDeque<usize> = VecDeque::new();
        for (number, event) in self.events.iter().enumerate() {
            match (owners[number], event.receives) {
                (Owner::Reader(reader), false) => there[reader] += 1,
                (Owner::Reader(reader), true) if there[reader] > 0 => there[reader] -= 1,
                (Owner::Reader(reader), true) => {
                    if let Some(sent) = open.pop_front() {
                        owners[sent] = Owner::Reader(reader);
                    }
                }
                (Owner::Awake, _) => open.push_back(number),
            }
        }
        // What no reader received goes where most was left over.
        let most = (0..there.len()).max_by_key(|reader| there[*reader]).unwrap_or_default();
        open.into_iter().for_each(|sent| owners[sent] = Owner::Reader(most));
        owners
    }
}

/// Returns whether a reader that sleeps at a moment is woken then, by a send that `woke` a task;
/// `None`: it does not sleep.
fn woken_at(sleeps: &[(Ns, Ns)], at: Ns, woke: Option<Ns>) -> Option<bool> {
    let next = sleeps.partition_point(|(_, until)| *until < at);
    let (from, until) = sleeps.get(next)?;
    (*from < at).then_some(woke == Some(*until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Operation, TaskFacts};
    use schedlab_model::ObjectInfo;

    const PORT: ObjectId = ObjectId(0);

    fn operation(at: u64, kind: Kind, woke: Option<u64>, slept: Option<(u64, u64)>) -> Operation {
        let slept = slept.map(|(from, until)| Slept {
            until: Ns(until),
            length: Ns(until - from),
            by_task: true,
            device: false,
        });
        let (at, woke) = (Ns(at), woke.map(Ns));
        Operation { at, began: at, before: Ns(1), after: Ns::ZERO, slept, woke, kind }
    }

    /// Task 0 sends a datagram each 100 ns. Task 1 is awake all the time and reads all but each
    /// `every`-th; task 2 sleeps until it is woken by that one, and reads it.
    fn server(every: u64, sends: u64) -> Facts {
        let (mut client, mut busy, mut idle) =
            (TaskFacts::default(), TaskFacts::default(), TaskFacts::default());
        let mut slept_from = 0;
        for number in 1..=sends {
            let at = number * 100;
            let wakes = number % every == 0;
            let send = Kind::Send(PORT, 32);
            client.operations.push(operation(at, send, wakes.then_some(at - 1), None));
            let got = Kind::Receive(PORT, 32);
            if wakes {
                let looked = Kind::Select { ready: 1, timed_out: false };
                idle.operations.push(operation(at + 9, looked, None, Some((slept_from, at - 1))));
                idle.operations.push(operation(at + 10, got, None, None));
                idle.operations.push(operation(at + 11, Kind::Nothing(PORT), None, None));
                slept_from = at + 12;
            } else {
                busy.operations.push(operation(at + 50, got, None, None));
            }
        }
        let info = ObjectInfo::of_kind(ObjectKind::Udp);
        Facts { tasks: vec![client, busy, idle], objects: vec![info], duration: Ns(sends * 100) }
    }

    fn objects_of(facts: &Facts, task: usize) -> Vec<usize> {
        let operations = facts.tasks[task].operations.iter();
        let object = |one: &Operation| match one.kind {
            Kind::Send(object, _) | Kind::Receive(object, _) | Kind::Nothing(object) => {
                Some(object.index())
            }
            _ => None,
        };
        operations.filter_map(object).collect()
    }

    #[test]
    fn who_sleeps_on_has_a_socket_of_its_own() {
        let mut facts = server(4, 100);
        assert_eq!(facts.tell_ports_apart(), [(TaskId(1), 2)]);
        let sent = objects_of(&facts, 0);
        let want: Vec<usize> = (1..=100).map(|number| usize::from(number % 4 == 0)).collect();
        assert_eq!(sent, want, "each fourth one is for the other thread");
        assert!(objects_of(&facts, 1).iter().all(|object| *object == 0));
        assert!(objects_of(&facts, 2).iter().all(|object| *object == 1), "also where nothing was");
        assert_eq!(facts.objects.len(), 2);
        assert_eq!(facts.tell_ports_apart(), [], "each has one reader now");
    }

    /// Each datagram that comes while one thread sleeps wakes it: one socket, of which both read.
    #[test]
    fn threads_that_share_a_socket_go_on_sharing_it() {
        let mut facts = server(1, 100);
        // The first thread reads one, too.
        facts.tasks[1].operations.push(operation(9_999, Kind::Receive(PORT, 32), None, None));
        let before = facts.clone();
        assert_eq!(facts.tell_ports_apart(), []);
        assert_eq!(objects_of(&facts, 0), objects_of(&before, 0));
        let mut few = server(4, 15);
        assert_eq!(few.tell_ports_apart(), [], "too few say nothing");
    }

    /// Where two readers are awake, the one that receives more than is known to be its own has it.
    #[test]
    fn what_may_be_for_several_goes_where_it_is_missing() {
        let events = |list: &[(u64, bool, u32)]| -> Vec<Event> {
            let event = |&(at, receives, task): &(u64, bool, u32)| Event {
                at: Ns(at),
                receives,
                task: TaskId(task),
                place: 0,
                woke: None,
            };
            list.iter().map(event).collect()
        };
        let port = Port {
            readers: vec![(TaskId(1), Vec::new()), (TaskId(2), Vec::new())],
            events: events(&[
                (1, false, 0),
                (2, false, 0),
                (3, true, 2),
                (4, true, 1),
                (5, false, 0),
            ]),
        };
        let own = [Owner::Reader(0), Owner::Reader(1)];
        let owners = port.settled(vec![own[0], Owner::Awake, own[1], own[0], Owner::Awake]);
        assert_eq!(owners, [own[0], own[1], own[1], own[0], own[1]]);
    }
}
