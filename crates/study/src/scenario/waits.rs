//! Finds workloads that can never get going: tasks that wait for each other in a circle, channels
//! into which no task sends, locks taken in a circle.
//!
//! Channels: every task is followed through its program, without time; a channel counts as supplied
//! for ever once something was sent into it. Who is still stuck then is stuck in every real run
//! too, so nothing that works is refused. Locks: two tasks that take two locks in opposite order
//! can stop each other for ever; such a program is refused even if it would be lucky.

use schedlab_model::{ChannelId, LockId, Op, Start, TaskId, Workload};
use std::collections::{BTreeMap, BTreeSet};

/// A task that cannot work, by index, and why.
pub(super) type Stuck = (usize, String);

/// The first problem, if there is one. `locks` are the locks' names.
pub(super) fn check(workload: &Workload, locks: &[String]) -> Result<(), Stuck> {
    check_spawns(workload)?;
    check_channels(workload)?;
    let mut order = Order::default();
    for (index, task) in workload.tasks.iter().enumerate() {
        order.follow(index, &task.program.ops, task.program.repeat_from, locks)?;
    }
    order.find_circle(workload, locks)
}

fn check_spawns(workload: &Workload) -> Result<(), Stuck> {
    let ops = || workload.tasks.iter().flat_map(|task| &task.program.ops);
    let spawned: BTreeSet<TaskId> =
        ops().filter_map(|op| if let Op::Spawn(task) = op { Some(*task) } else { None }).collect();
    for (index, task) in workload.tasks.iter().enumerate() {
        if task.start == Start::Spawned && !spawned.contains(&TaskId::from(index)) {
            let name = &task.name;
            let message = format!(
                "task `{name}` waits to be spawned, but no program has a step \"spawn {name}\""
            );
            return Err((index, message));
        }
    }
    Ok(())
}

/// How far each task gets.
struct Walk<'w> {
    workload: &'w Workload,
    at: Vec<usize>,
    alive: Vec<bool>,
    supplied: Vec<bool>,
}

fn check_channels(workload: &Workload) -> Result<(), Stuck> {
    let mut walk = Walk {
        workload,
        at: vec![0; workload.tasks.len()],
        alive: workload.tasks.iter().map(|task| task.start != Start::Spawned).collect(),
        supplied: workload.channels.iter().map(|channel| channel.initial > 0).collect(),
    };
    for source in &workload.sources {
        walk.supplied[source.into.index()] = true;
    }
    while (0..workload.tasks.len()).map(|task| u32::from(walk.advance(task))).sum::<u32>() > 0 {}
    let stuck: Vec<usize> =
        (0..workload.tasks.len()).filter(|&task| walk.waits_for(task).is_some()).collect();
    match stuck.first() {
        Some(&first) => Err((first, walk.explain(first))),
        None => Ok(()),
    }
}

impl Walk<'_> {
    /// Goes on until the task blocks or ends; whether anything happened.
    fn advance(&mut self, task: usize) -> bool {
        let ops = &self.workload.tasks[task].program.ops;
        let before = self.at[task];
        while self.alive[task] && self.at[task] < ops.len() {
            match ops[self.at[task]] {
                Op::Receive(channel)
                | Op::ReceiveAll(channel)
                | Op::ReceiveCount { channel, .. }
                    if !self.supplied[channel.index()] =>
                {
                    break;
                }
                Op::Send { channel, .. } => self.supplied[channel.index()] = true,
                Op::Spawn(child) => self.alive[child.index()] = true,
                _ => {}
            }
            self.at[task] += 1;
        }
        self.at[task] > before
    }

    /// The channel on which the task is stuck.
    fn waits_for(&self, task: usize) -> Option<ChannelId> {
        match self.workload.tasks[task].program.ops.get(self.at[task]) {
            Some(
                Op::Receive(channel) | Op::ReceiveAll(channel) | Op::ReceiveCount { channel, .. },
            ) if self.alive[task] => Some(*channel),
            _ => None,
        }
    }

    fn senders(&self, channel: ChannelId) -> impl Iterator<Item = usize> {
        let sends = move |op: &Op| matches!(op, Op::Send { channel: to, .. } if *to == channel);
        let tasks = self.workload.tasks.iter().enumerate();
        tasks.filter(move |(_, task)| task.program.ops.iter().any(sends)).map(|(index, _)| index)
    }

    fn explain(&self, first: usize) -> String {
        let mut chain = vec![first];
        loop {
            let task = *chain.last().expect("not empty");
            let Some(channel) = self.waits_for(task) else { break };
            let name = &self.workload.channels[channel.index()].name;
            let waiter = &self.workload.tasks[task].name;
            let Some(next) =
                self.senders(channel).find(|&s| s == task || self.waits_for(s).is_some())
            else {
                return format!(
                    "task `{waiter}` waits for channel `{name}`, into which no task ever sends: \
                     add a step \
                     \"send {name}\" to a task, a [[source]] with into = \"{name}\", or initial = 1"
                );
            };
            if let Some(start) = chain.iter().position(|&seen| seen == next) {
                chain.drain(..start);
                break;
            }
            chain.push(next);
        }
        let mut text = "cyclic wait:".to_owned();
        for &task in &chain {
            if let Some(channel) = self.waits_for(task) {
                let channel = &self.workload.channels[channel.index()].name;
                text += &format!(
                    " `{}` waits for channel `{channel}`,",
                    self.workload.tasks[task].name
                );
            }
        }
        text + " which only the others (or itself) would send into later; let one of them send \
                first, or give \
                a channel an initial token: channels = [{ name = \"...\", initial = 1 }]"
    }
}

/// Which lock is taken while another is held, and by which task first.
#[derive(Default)]
struct Order {
    edges: BTreeMap<(LockId, LockId), BTreeSet<usize>>,
}

impl Order {
    /// Follows one program (its endless part twice).
    fn follow(
        &mut self,
        task: usize,
        ops: &[Op],
        repeat_from: Option<u32>,
        names: &[String],
    ) -> Result<(), Stuck> {
        let again = repeat_from.map_or(&[][..], |from| &ops[from as usize..]);
        let mut held: Vec<LockId> = Vec::new();
        for op in ops.iter().chain(again) {
            match *op {
                Op::Lock(lock) if held.contains(&lock) => {
                    let name = &names[lock.index()];
                    let text = format!(
                        "it locks `{name}` while it holds `{name}`: it would wait for itself"
                    );
                    return Err((task, text));
                }
                Op::Lock(lock) => {
                    for &outer in &held {
                        self.edges.entry((outer, lock)).or_default().insert(task);
                    }
                    held.push(lock);
                }
                Op::Unlock(lock) => match held.iter().position(|&h| h == lock) {
                    Some(at) => drop(held.remove(at)),
                    None => {
                        let name = &names[lock.index()];
                        return Err((task, format!("it unlocks `{name}`, which it does not hold")));
                    }
                },
                _ => {}
            }
        }
        Ok(())
    }

    fn find_circle(&self, workload: &Workload, names: &[String]) -> Result<(), Stuck> {
        for (&(first, second), tasks) in &self.edges {
            let Some(path) = self.path(second, first) else { continue };
            let mut all: BTreeSet<usize> = tasks.clone();
            for pair in path.windows(2) {
                all.extend(&self.edges[&(pair[0], pair[1])]);
            }
            // One task alone cannot stop itself this way.
            if all.len() < 2 {
                continue;
            }
            let circle: Vec<&str> = std::iter::once(first)
                .chain(path)
                .map(|lock| names[lock.index()].as_str())
                .collect();
            let who: Vec<&str> =
                all.iter().map(|&task| workload.tasks[task].name.as_str()).collect();
            let text = format!(
                "cyclic wait: the locks {} are taken in a circle by {}, so each may hold what the \
                 other wants: \
                 take them in the same order everywhere",
                circle.join(" -> "),
                who.join(", ")
            );
            return Err((*all.first().expect("two"), text));
        }
        Ok(())
    }

    /// A way from `from` to `to` over the edges.
    fn path(&self, from: LockId, to: LockId) -> Option<Vec<LockId>> {
        let mut ways = vec![vec![from]];
        let mut seen = BTreeSet::from([from]);
        while let Some(way) = ways.pop() {
            let last = *way.last().expect("not empty");
            if last == to {
                return Some(way);
            }
            for &(outer, inner) in self.edges.keys() {
                if outer == last && seen.insert(inner) {
                    ways.push(way.iter().copied().chain([inner]).collect());
                }
            }
        }
        None
    }
}
