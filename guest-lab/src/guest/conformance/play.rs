//! The phases of one play: what must hold of the threads that it starts, in the order of the play.

use super::{Rules, SOON, Thread, Threads, narrowed};

/// The phases of one play.
struct Play<'a> {
    threads: &'a Threads,
    cpus: u32,
    faults: Vec<String>,
}

/// Plays all phases, and returns what does not hold.
pub(super) fn plays(threads: &Threads, rules: &Rules, cpus: u32) -> Vec<String> {
    let mut play = Play { threads, cpus, faults: Vec::new() };
    play.wake_order(rules);
    play.preemption(rules);
    play.turns(rules);
    play.block(rules);
    play.exit(rules);
    play.fork();
    play.faults.extend(narrowed(threads, 2));
    play.faults
}

impl Play<'_> {
    fn one(&self, name: &str) -> Thread {
        self.threads.get(&format!("c_{name}")).cloned().unwrap_or_default()
    }

    /// The threads NAME1 to NAMEn.
    fn all(&self, name: &str, count: u32) -> Vec<Thread> {
        (1..=count).map(|number| self.one(&format!("{name}{number}"))).collect()
    }

    fn must(&mut self, what: &str, holds: bool, found: impl std::fmt::Display) {
        if !holds {
            self.faults.push(format!("{what}: {found}"));
        }
    }

    /// Three that come while all CPUs are busy begin in the order in which they came, when the
    /// first CPU is free.
    fn wake_order(&mut self, rules: &Rules) {
        let [a, b, c] = ["oa", "ob", "oc"].map(|name| self.one(name));
        let free = self.all("oh", self.cpus).iter().map(Thread::ended).min().unwrap_or(u64::MAX);
        let given = [&a, &b, &c].map(|one| one.given(one.began()));
        if rules.first_come {
            for (later, earlier, names) in [(given[1], &a, "oa ob"), (given[2], &b, "ob oc")] {
                let in_order = later == u64::MAX || later >= earlier.runs(earlier.began());
                self.must("wake order", in_order, names);
            }
            for (name, at) in ["oa", "ob", "oc"].iter().zip(given) {
                self.must(
                    "wake order",
                    at >= free,
                    format!("{name} runs while others have all CPUs"),
                );
            }
            let begins = a.runs(a.began());
            self.must(
                "wake order",
                begins <= free.saturating_add(SOON),
                "oa waits though a CPU is free",
            );
        }
    }

    /// One that goes first comes while all CPUs are busy with what goes later.
    fn preemption(&mut self, rules: &Rules) {
        let late = self.all("ph", self.cpus);
        let first = self.one("pl");
        let free = late.iter().map(Thread::ended).min().unwrap_or(u64::MAX);
        let waited = first.runs(first.began()).saturating_sub(first.began());
        let busy = first.began() < free;
        self.must("preemption", busy, "the CPUs were not busy");
        if rules.preempts {
            self.must("preemption", waited <= SOON, format!("it waited for {} us", waited / 1000));
        } else if rules.first_come {
            let given = first.given(first.began());
            self.must("preemption", given >= free, "it is not its turn while others have all CPUs");
        }
    }

    /// Twice as many as CPUs: under a scheduler with turns all begin before the first ends, under
    /// one without none does that waits.
    fn turns(&mut self, rules: &Rules) {
        let all = self.all("t", 2 * self.cpus);
        let first_end = all.iter().map(Thread::ended).min().unwrap_or(u64::MAX);
        let early = all.iter().filter(|one| one.given(one.began()) < first_end).count();
        let wanted = if rules.turns { all.len() } else { self.cpus as usize };
        self.must(
            "turns",
            early == wanted,
            format!("{early} of {} begin before the first ends", all.len()),
        );
    }

    /// A CPU is given to another thread when one sleeps, and given back where the sleeper goes
    /// before it.
    fn block(&mut self, rules: &Rules) {
        let (sleeper, others) = (self.one("ba"), self.all("bh", self.cpus));
        let (sleeps, wakes) =
            (sleeper.blocked(), sleeper.woken.iter().copied().find(|at| *at > sleeper.blocked()));
        let wakes = wakes.unwrap_or(u64::MAX);
        self.must("block", wakes < u64::MAX, "it sleeps for ever");
        let again = sleeper.runs(wakes).saturating_sub(wakes);
        let free = others.iter().map(Thread::ended).min().unwrap_or(u64::MAX);
        if rules.first_come {
            let last = others.iter().map(|one| one.runs(one.began())).max().unwrap_or(u64::MAX);
            let takes = last.saturating_sub(sleeps);
            self.must(
                "block",
                takes <= SOON,
                format!("its CPU was taken after {} us", takes / 1000),
            );
        }
        if rules.preempts {
            self.must(
                "block",
                again <= SOON,
                format!("it waited for {} us after its sleep", again / 1000),
            );
        } else if rules.first_come {
            self.must(
                "block",
                sleeper.given(wakes) >= free,
                "it goes on while others have all CPUs",
            );
        }
    }

    /// Those that wait get the CPUs of those that end.
    fn exit(&mut self, rules: &Rules) {
        let (first, then) = (self.all("eh", self.cpus), self.all("ew", self.cpus));
        let last_end = first.iter().map(Thread::ended).max().unwrap_or(u64::MAX);
        let last_begin = then.iter().map(|one| one.runs(one.began())).max().unwrap_or(u64::MAX);
        if rules.first_come {
            let waited = last_begin.saturating_sub(last_end);
            self.must("exit", waited <= SOON, format!("one waits {} us longer", waited / 1000));
        }
        self.must("exit", last_end < u64::MAX && last_begin < u64::MAX, "one never ran");
    }

    /// A child comes under management, too.
    fn fork(&mut self) {
        let child = self.one("fpk");
        self.must("fork", child.stays.iter().any(|stay| stay.given), "the child was never managed");
    }
}
