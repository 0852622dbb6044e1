//! Random machines, groups, tasks and sources, as text.

use super::dice::Dice;
use super::draft::{Draft, DraftSection, quote};
use schedlab_model::{Ns, Section};
use schedlab_scheduler::{Knob, KnobKind};
use schedlab_sim::{Costs, PreemptModel};

/// What the parts of one scenario share.
pub(super) struct Shape {
    pub(super) cpus: u64,
    /// Programs have kernel sections.
    kernel: bool,
    /// Paths of groups that tasks may belong to.
    groups: Vec<String>,
    /// Groups are domains with kernels of their own.
    pub(super) nested: bool,
    channels: Vec<String>,
    tasks: u64,
    /// The scheduler serves deadline tasks.
    pub(super) deadlines: bool,
}

/// A slice shorter than this makes more events than a reader waits for.
const SHORTEST: Ns = Ns::from_us(50);

/// A scheduler with some of its knobs turned.
pub(super) fn scheduler(dice: &mut Dice, name: &str, knobs: &[Knob]) -> String {
    let mut set = Vec::new();
    for knob in knobs {
        if dice.chance(85) {
            continue;
        }
        let value = match knob.kind {
            KnobKind::Time(low, high) => {
                let low = low.max(SHORTEST);
                Ns(dice.between(low.0, high.0.min(200_000_000).max(low.0))).exact()
            }
            KnobKind::Steps(steps) => {
                let low = steps.low.max(SHORTEST).0.div_ceil(steps.step.0.max(1));
                let high = steps.high.0.min(200_000_000) / steps.step.0.max(1);
                Ns(dice.between(low, high.max(low)) * steps.step.0.max(1)).exact()
            }
            KnobKind::Number(low, high) => {
                let span = high.saturating_sub(low).clamp(0, 200) as u64;
                (low + dice.between(0, span) as i64).to_string()
            }
            KnobKind::Flag => dice.pick(&["true", "false"]).to_string(),
            KnobKind::Word(words) => dice.pick(words).to_string(),
        };
        set.push(format!("{}={value}", knob.name));
    }
    if set.is_empty() { name.to_owned() } else { format!("{name}:{}", set.join(",")) }
}

/// A machine of 1 to 8 CPUs, and whether programs will have kernel sections.
pub(super) fn machine(dice: &mut Dice, draft: &mut Draft, xen: bool) -> Shape {
    let mut set = |key: &str, value: String| draft.machine.push((key.to_owned(), value));
    let cpus = match dice.between(0, 4) {
        kind @ 0..=2 => {
            let cpus = if kind == 2 { dice.between(3, 8) } else { kind + 1 };
            set("cpus", cpus.to_string());
            cpus
        }
        kind => {
            set("sockets", "2".to_owned());
            set("cores", "2".to_owned());
            set("threads", (kind - 2).to_string());
            4 * (kind - 2)
        }
    };
    set("hz", dice.pick(&["100", "250", "300", "1000"]).to_string());
    if dice.chance(50) {
        set("ticks", quote("staggered"));
    }
    let nested = xen && dice.chance(40);
    let kernel = dice.chance(50);
    if kernel || dice.chance(20) {
        set("preempt", quote(dice.pick(&PreemptModel::ALL).name()));
    }
    if !nested && dice.chance(15) {
        set("threaded_irqs", "true".to_owned());
        set("irq_work", quote(&Ns(dice.between(0, 40_000)).exact()));
    }
    if dice.chance(40) {
        let names: Vec<&str> = Costs::knobs().map(|(name, _)| name).collect();
        for _ in 0..dice.between(1, 6) {
            let name = *dice.pick(&names);
            if draft.costs.iter().all(|(known, _)| known != name) {
                draft.costs.push((name.to_owned(), quote(&Ns(dice.between(0, 30_000)).exact())));
            }
        }
    }
    Shape {
        cpus,
        kernel,
        groups: Vec::new(),
        nested,
        channels: Vec::new(),
        tasks: 0,
        deadlines: false,
    }
}

/// Control groups, or domains.
pub(super) fn groups(dice: &mut Dice, draft: &mut Draft, shape: &mut Shape, xen: bool) {
    if !shape.nested && dice.chance(60) {
        return;
    }
    for index in 1..=dice.between(1, 4) {
        let below = shape
            .groups
            .iter()
            .filter(|_| !xen)
            .cloned()
            .chain([String::new()])
            .collect::<Vec<_>>();
        let path = format!("{}/g{index}", dice.pick(&below));
        let mut group = DraftSection::new("group");
        group.text("name", &path);
        if xen {
            if dice.chance(50) {
                group.set("weight", dice.between(1, 2000).to_string());
            }
            if dice.chance(30) {
                group.set("cap", dice.between(5, 100).to_string());
            }
            if shape.nested {
                let guest = dice.pick(&["linux-6.18", "linux-6.1", "linux-2.6.22", "rr"]);
                let model = dice.pick(&PreemptModel::ALL).name();
                let vcpus = dice.between(1, 3);
                group.set(
                    "vm",
                    format!(
                        "{{ vcpus = {vcpus}, guest = {}, preempt = {} }}",
                        quote(guest),
                        quote(model)
                    ),
                );
            }
        } else {
            if dice.chance(50) {
                group.set("cpu.shares", dice.between(2, 20_000).to_string());
            }
            if dice.chance(10) {
                group.set("cpu.idle", "true");
            }
            if dice.chance(30) {
                let (quota, period) = (dice.between(1, 60), dice.between(10, 100));
                group.text("cpu.max", format!("{quota}ms/{period}ms"));
            }
        }
        shape.groups.push(path);
        draft.parts.push(group);
    }
}

/// Tasks, with the channels and sources that they need.
pub(super) fn tasks(dice: &mut Dice, draft: &mut Draft, shape: &mut Shape) {
    let mut sources = Vec::new();
    for _ in 0..dice.between(1, 12) {
        let mut task = new_task(shape);
        program(dice, shape, &mut task, &mut sources);
        attributes(dice, shape, &mut task);
        draft.parts.push(task);
    }
    if !shape.nested && dice.chance(30) {
        ring(dice, draft, shape);
    }
    if !shape.nested && dice.chance(20) {
        spawner(dice, draft);
    }
    draft.parts.extend(sources);
    draft.set("channels", format!("[{}]", shape.channels.join(", ")));
    draft.set("locks", "[\"m\"]");
}

fn new_task(shape: &mut Shape) -> DraftSection {
    let mut task = DraftSection::new("task");
    task.text("name", format!("t{}", shape.tasks));
    shape.tasks += 1;
    task
}

fn attributes(dice: &mut Dice, shape: &Shape, task: &mut DraftSection) {
    let mut pinned = !shape.nested && dice.chance(40);
    match dice.between(0, 12) {
        0 => task.text("policy", "batch"),
        1 => task.text("policy", "idle"),
        2 => task.text("policy", format!("fifo:{}", dice.between(1, 99))),
        3 => task.text("policy", format!("rr:{}", dice.between(1, 3))),
        4 if shape.deadlines => {
            let (runtime, slack, gap) =
                (dice.between(1, 20), dice.between(0, 60), dice.between(0, 60));
            let (deadline, period) = (runtime + slack, runtime + slack + gap);
            task.text("policy", format!("deadline:{runtime}00us/{deadline}00us/{period}00us"));
            // Admission refuses them with masks of their own.
            pinned = pinned && dice.chance(5);
        }
        _ => {}
    }
    if dice.chance(60) {
        task.set("nice", (dice.between(0, 39) as i64 - 20).to_string());
    }
    if pinned {
        let (a, b) = (dice.between(0, shape.cpus - 1), dice.between(0, shape.cpus - 1));
        task.text(
            "cpus",
            if a == b { a.to_string() } else { format!("{},{}", a.min(b), a.max(b)) },
        );
    }
    if !shape.groups.is_empty() && (shape.nested || dice.chance(70)) {
        task.text("group", dice.pick(&shape.groups));
    }
    match dice.between(0, 2) {
        0 => {}
        1 => task.text("start", format!("{}us", dice.between(0, 50_000))),
        _ => task.text("start", format!("asleep until {}us", dice.between(0, 50_000))),
    }
}

/// A kernel section, now and then.
fn kernel(dice: &mut Dice, shape: &Shape, task: &mut DraftSection) {
    while shape.kernel && dice.chance(45) {
        if dice.chance(20) {
            task.step("cond_resched");
            continue;
        }
        let section = dice.pick(&Section::ALL).name();
        let longest = if dice.chance(10) { 5_000_000 } else { 300_000 };
        let length = Ns(dice.between(1_000, longest));
        task.step(format!("kernel {section} {}", length.exact()));
    }
}

/// One task's program. It may add a channel and a source for itself.
fn program(
    dice: &mut Dice,
    shape: &mut Shape,
    task: &mut DraftSection,
    sources: &mut Vec<DraftSection>,
) {
    let (work, rest) = (format!("run {}", dice.amount()), format!("sleep {}", dice.amount()));
    kernel(dice, shape, task);
    match dice.between(0, 9) {
        0 | 1 => task.step("run 1s"),
        2 | 3 => {
            task.step(&work);
            kernel(dice, shape, task);
            task.step(&rest);
        }
        4 => {
            let period = Ns(dice.length().0.max(100_000));
            let skip = if dice.chance(30) { " skip" } else { "" };
            task.step(format!("every {} from {}{skip}", period.exact(), dice.length().exact()));
            task.step(&work);
        }
        5 => {
            task.step(&work);
            task.step("yield");
        }
        6 if !shape.nested => {
            task.step("lock m");
            task.step(&work);
            kernel(dice, shape, task);
            task.step("unlock m");
            task.step(&rest);
        }
        7 => {
            let work = format!("{{ repeat = 20, steps = [{}, {}] }}", quote(&work), quote(&rest));
            task.steps.push(work);
            task.step("exit");
        }
        8 => {
            // `receive all` and `serve` stay together; the kernel is entered between them at most.
            let channel = source(dice, shape, sources);
            task.step(format!("receive all {channel}"));
            kernel(dice, shape, task);
            task.step(format!("serve {channel} {}", Ns(dice.between(1_000, 50_000)).exact()));
        }
        _ => {
            task.step(&work);
            task.step(&rest);
        }
    }
    kernel(dice, shape, task);
}

fn channel(shape: &mut Shape, initial: u64) -> String {
    let name = format!("c{}", shape.channels.len());
    shape.channels.push(format!("{{ name = {}, initial = {initial} }}", quote(&name)));
    name
}

/// A new channel with a source of requests.
fn source(dice: &mut Dice, shape: &mut Shape, sources: &mut Vec<DraftSection>) -> String {
    let channel = channel(shape, 0);
    let mut source = DraftSection::new("source");
    source.text("name", format!("into-{channel}"));
    source.text("into", &channel);
    if dice.chance(50) {
        source.set("clients", dice.between(1, 40).to_string());
        source.text("think", format!("exp {}", dice.length().exact()));
    } else {
        source.text("open", format!("exp {}us", dice.between(50, 2_000)));
    }
    source.text("one_way", Ns(dice.between(0, 100_000)).exact());
    sources.push(source);
    channel
}

/// Tasks that wake each other in a circle through channels.
fn ring(dice: &mut Dice, draft: &mut Draft, shape: &mut Shape) {
    let length = dice.between(2, 4) as usize;
    let channels: Vec<String> = (0..length)
        .map(|index| channel(shape, u64::from(index == 0) * dice.between(1, 3)))
        .collect();
    for index in 0..length {
        let mut task = new_task(shape);
        task.step(format!("receive {}", channels[index]));
        task.step(format!("run {}", dice.amount()));
        kernel(dice, shape, &mut task);
        task.step(format!("send {}", channels[(index + 1) % length]));
        attributes(dice, shape, &mut task);
        draft.parts.push(task);
    }
}

/// A task that starts another one again and again.
fn spawner(dice: &mut Dice, draft: &mut Draft) {
    let mut child = DraftSection::new("task");
    child.text("name", "child");
    child.text("start", "spawned");
    child.step(format!("run {}", dice.length().exact()));
    child.step("exit");
    let mut parent = DraftSection::new("task");
    parent.text("name", "parent");
    parent.step("spawn child");
    parent.step(format!("sleep {}", dice.length().exact()));
    draft.parts.extend([child, parent]);
}
