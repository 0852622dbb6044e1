//! A live torture: a keeper changes a family of processes, and at a random moment something happens
//! to it: kills, stops, limits, a journal that is removed, cut or garbled, numbers that are used
//! again, a second instance, a full disk. After each round everything must be as before, and
//! nothing may be left. Seeded: `cargo xtask torture-live --rounds 2000 --seed 7`.

use super::before_after::everything;
use super::{Folder, Kept, Target, wait};
use libtest_mimic::Failed;
use rustix::process::Signal;
use schedlab_host::threads::{self, Identity};
use schedlab_live::detach::{Owners, detach};
use schedlab_live::{Keeper, LiveError, RunDir};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Rounds in the usual tests.
const ROUNDS: u64 = 24;
/// So many rounds go on at the same time where there are more than the usual ones: a round waits
/// most of its time.
const AT_ONCE: usize = 6;

/// What happens to the journal's file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Damage {
    None,
    Removed,
    Cut,
    Garbled,
}

/// What happens to processes and limits, in which order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum End {
    Finish,
    OwnerKilled,
    GuardianKilled,
    BothKilled,
    AllKilled,
    OwnerKilledGuardianStopped,
    OwnerKilledSecondStopped,
    FinishGuardianStopped,
    SecondKilledThenBoth,
    NoDescriptors,
    NoLimit,
    OwnerStoppedAndSilent,
}

const DAMAGES: [Damage; 4] = [Damage::None, Damage::Removed, Damage::Cut, Damage::Garbled];
const ENDS: [End; 12] = [
    End::Finish,
    End::OwnerKilled,
    End::GuardianKilled,
    End::BothKilled,
    End::AllKilled,
    End::OwnerKilledGuardianStopped,
    End::OwnerKilledSecondStopped,
    End::FinishGuardianStopped,
    End::SecondKilledThenBoth,
    End::NoDescriptors,
    End::NoLimit,
    End::OwnerStoppedAndSilent,
];
/// Changes besides the first ones.
const CHANGES: [&str; 6] = ["fifo", "batch", "nice", "slice", "band", "stop"];

/// A small generator of moments.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.next(of.len() as u64) as usize]
    }
}

pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

pub(crate) fn torture() -> Result<(), Failed> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED torture: needs root");
        return Ok(());
    }
    let (rounds, seed) = (number("SCHEDLAB_ROUNDS", ROUNDS), number("SCHEDLAB_SEED", 1));
    let workers = if rounds > ROUNDS { AT_ONCE } else { 1 };
    let (next, told, begun) = (AtomicU64::new(0), Mutex::new(Told::default()), Instant::now());
    let work = || -> Result<(), String> {
        loop {
            let round = next.fetch_add(1, Ordering::Relaxed);
            if round >= rounds {
                return Ok(());
            }
            let mut random = Random(seed.wrapping_mul(1_000_003).wrapping_add(round));
            random.next(2);
            let mut what = Vec::new();
            let took = one_round(round, &mut random, &mut what).map_err(|why| {
                next.store(rounds, Ordering::Relaxed);
                format!("seed {seed}, round {round} ({}): {why}", what.join(", "))
            })?;
            told.lock().expect("no other panics with it").add(what, took);
        }
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        // A panic goes on as one of the test.
        let ended =
            all.into_iter().map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.collect::<Vec<_>>().into_iter().collect::<Result<(), String>>()
    })?;
    let Told { counts, longest } = told.into_inner().expect("no other panics with it");
    for (what, count) in &counts {
        println!("{count:6}  {what}");
    }
    println!(
        "{rounds} rounds (seed {seed}): everything as before, nothing left; {} ms at most from an \
         attack to that; {} s in all",
        longest.as_millis(),
        begun.elapsed().as_secs()
    );
    Ok(())
}

/// What came of the rounds until now.
#[derive(Default)]
struct Told {
    counts: BTreeMap<String, u64>,
    longest: Duration,
}

impl Told {
    fn add(&mut self, what: Vec<String>, took: Duration) {
        what.into_iter().for_each(|what| *self.counts.entry(what).or_default() += 1);
        self.longest = self.longest.max(took);
    }
}

/// What is in the world of a round.
struct Round {
    folder: Folder,
    mounted: bool,
    family: Target,
    child: Identity,
    before: [BTreeMap<String, String>; 2],
}

impl Drop for Round {
    fn drop(&mut self) {
        let _ = self.child.signal(Signal::KILL);
        if self.mounted {
            let _ = Command::new("umount").arg("-l").arg(&self.folder.0).status();
        }
    }
}

impl Round {
    fn begin(round: u64, full_disk: bool) -> Round {
        let folder = Folder::new(&format!("torture-{round}"));
        drop(folder.run_dir());
        let mounted = full_disk && {
            let mut mount = Command::new("mount");
            // A page for the journal, one for the folder.
            mount
                .args(["-t", "tmpfs", "-o", "size=4k,mode=0700", "schedlab-torture"])
                .arg(&folder.0);
            mount.status().is_ok_and(|status| status.success())
        };
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 & wait"]).stdin(Stdio::null());
        let family = Target(shell.spawn().expect("sh(1)"));
        wait("it has a child that sleeps", || {
            threads::children(family.pid()).first().is_some_and(|pid| threads::is_asleep(*pid))
        });
        let child = threads::identity(threads::children(family.pid())[0]).expect("it lives");
        wait("it waits", || threads::is_asleep(family.pid()));
        let before = [everything(family.pid()), everything(child.process)];
        Round { folder, mounted, family, child, before }
    }

    fn journals(&self) -> Vec<PathBuf> {
        self.folder.journals()
    }

    /// Returns what is not as before, or left.
    fn fault(&self, kept: &[Identity]) -> Option<String> {
        for (pid, before) in
            [(self.family.pid(), &self.before[0]), (self.child.process, &self.before[1])]
        {
            let now = everything(pid);
            let differ = before.iter().filter(|(name, value)| now.get(*name) != Some(value));
            let differ: Vec<String> = differ
                .map(|(name, value)| format!("{name} was {value}, and is {:?}", now.get(name)))
                .collect();
            if !differ.is_empty() {
                return Some(format!("process {pid}: {}", differ.join("; ")));
            }
        }
        if let Some(one) = kept.iter().find(|one| one.lives()) {
            return Some(format!("process {} ({}) is left", one.process, one.comm));
        }
        let files: Vec<_> = std::fs::read_dir(&self.folder.0)
            .into_iter()
            .flatten()
            .flatten()
            .map(|one| one.path())
            .collect();
        if !files.is_empty() {
            return Some(format!("files are left: {files:?}"));
        }
        let claims = std::fs::read_dir("/run/schedlab-claims").into_iter().flatten().flatten();
        let own = self.folder.0.display().to_string();
        let left = |path: &Path| {
            std::fs::read_link(path)
                .is_ok_and(|text| text.to_string_lossy().contains(&format!("{own}/")))
        };
        claims
            .map(|one| one.path())
            .find(|path| left(path))
            .map(|path| format!("a claim is left: {}", path.display()))
    }
}

/// Returns how long it took from the attack until all was as before; `what` says what happened.
fn one_round(round: u64, random: &mut Random, what: &mut Vec<String>) -> Result<Duration, String> {
    let full = random.next(12) == 0;
    let world = Round::begin(round, full);
    if world.mounted {
        what.push("full disk".to_owned());
        return full_disk(&world);
    }
    let end = random.one(&ENDS);
    what.push(format!("{end:?}"));
    // Only the silent owner's guardian waits for heartbeats.
    let silence = if end == End::OwnerStoppedAndSilent { "200" } else { "none" };
    let mut kept = Kept::start(&world.folder, world.family.pid(), silence);
    let second = kept.second();
    let all: Vec<Identity> = [kept.child.id(), kept.guardian, second]
        .into_iter()
        .filter_map(threads::identity)
        .collect();
    for _ in 0..random.next(4) {
        let change = random.one(&CHANGES);
        if kept.say(change) != "ok" {
            return Err(format!("{change} was refused"));
        }
        what.push(format!("change {change}"));
    }
    if random.next(3) == 0 {
        what.push("second instance".to_owned());
        second_instance(&world, &kept, round)?;
    }
    // `restore` is all that is left when all three are gone: then the journal must be there.
    let damage = if end == End::AllKilled { Damage::None } else { random.one(&DAMAGES) };
    damage_to(damage, &world.journals()[0]);
    what.push(format!("journal {damage:?}"));
    let began = Instant::now();
    end_it(end, &mut kept, &all)?;
    if end == End::AllKilled {
        detach(&RunDir::at(&world.folder.0).map_err(|error| error.to_string())?, Owners::Dead)
            .map_err(|error| error.to_string())?;
    }
    let _ = kept.child.wait();
    is_over(&world, &all)?;
    Ok(began.elapsed())
}

/// Waits until everything is as before and nothing is left.
fn is_over(world: &Round, all: &[Identity]) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match world.fault(all) {
            None => return Ok(()),
            Some(fault) if begun.elapsed().as_secs() > 60 => return Err(fault),
            Some(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn damage_to(damage: Damage, path: &Path) {
    match damage {
        Damage::None => {}
        Damage::Removed => std::fs::remove_file(path).expect("of this test"),
        Damage::Cut => {
            let file = std::fs::OpenOptions::new().write(true).open(path).expect("of this test");
            file.set_len(file.metadata().expect("of this test").len() / 2).expect("of this test");
        }
        Damage::Garbled => {
            let text =
                std::fs::read_to_string(path).expect("of this test").replace("before", "bef\0re");
            std::fs::write(path, text).expect("of this test");
        }
    }
}

fn end_it(end: End, kept: &mut Kept, all: &[Identity]) -> Result<(), String> {
    let [owner, guardian, second] = all else {
        return Err("one of the three is gone already".to_owned());
    };
    let send = |one: &Identity, signal: Signal| {
        one.signal(signal).map_err(|error| format!("{}: {error}", one.comm))
    };
    let gone = |one: &Identity| wait("it is gone", || !one.lives());
    match end {
        End::Finish => drop(kept.say("finish")),
        End::OwnerKilled => send(owner, Signal::KILL)?,
        End::GuardianKilled => {
            send(guardian, Signal::KILL)?;
            gone(guardian);
            let said = kept.say("beat");
            if !said.contains("guardian died") {
                return Err(format!("the owner does not notice: {said}"));
            }
            // It has nothing to do any more.
            drop(kept.child.kill());
        }
        End::BothKilled => {
            send(guardian, Signal::KILL)?;
            send(owner, Signal::KILL)?;
        }
        End::AllKilled => {
            for one in [guardian, second, owner] {
                send(one, Signal::KILL)?;
                if one != owner {
                    gone(one);
                }
            }
            drop(kept.child.wait());
        }
        End::OwnerKilledGuardianStopped => {
            send(guardian, Signal::STOP)?;
            send(owner, Signal::KILL)?;
            wait("the second guardian does it", || !second.lives());
            send(guardian, Signal::CONT)?;
        }
        End::OwnerKilledSecondStopped => {
            send(second, Signal::STOP)?;
            send(owner, Signal::KILL)?;
            gone(guardian);
            send(second, Signal::CONT)?;
        }
        End::FinishGuardianStopped => {
            send(guardian, Signal::STOP)?;
            drop(kept.say("finish"));
        }
        End::SecondKilledThenBoth => {
            send(second, Signal::KILL)?;
            let is_new =
                || threads::children(kept.guardian).iter().any(|pid| *pid != second.process);
            wait("the guardian starts another one", is_new);
            send(guardian, Signal::KILL)?;
            send(owner, Signal::KILL)?;
        }
        End::NoDescriptors => {
            kept.say("exhaust");
            drop(kept.say("finish"));
        }
        End::NoLimit => {
            kept.say("limit");
            drop(kept.say("finish"));
        }
        End::OwnerStoppedAndSilent => send(owner, Signal::STOP)?,
    }
    Ok(())
}

/// Another instance, in another folder, must be refused, and leaves nothing.
fn second_instance(world: &Round, kept: &Kept, round: u64) -> Result<(), String> {
    let folder = Folder::new(&format!("torture-second-{round}"));
    let mut keeper =
        Keeper::start(&super::options(folder.run_dir())).map_err(|error| error.to_string())?;
    let thread = Keeper::target(world.family.pid()).map_err(|error| error.to_string())?;
    let refused = keeper.confine(&thread, &super::one_cpu(thread.tid));
    keeper.finish().map_err(|error| error.to_string())?;
    match refused {
        Err(error @ LiveError::Taken { .. })
            if error.to_string().contains(&kept.child.id().to_string()) =>
        {
            Ok(())
        }
        other => Err(format!("a second instance was not refused: {other:?}")),
    }
}

/// The keeper's disk is full after some entries: it ends, and everything is given back.
fn full_disk(world: &Round) -> Result<Duration, String> {
    let began = Instant::now();
    let mut owner = Command::new(std::env::current_exe().expect("this program"))
        .args([
            "keep",
            &world.folder.0.display().to_string(),
            &world.family.pid().to_string(),
            "none",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("this program");
    let me = threads::identity(owner.id());
    // It changes the thread again and again until nothing can be noted, which it does not survive.
    if let Some(mut input) = owner.stdin.take() {
        use std::io::Write as _;
        while owner.try_wait().is_ok_and(|status| status.is_none())
            && writeln!(input, "nice\nfifo").is_ok()
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let status = owner.wait().map_err(|error| error.to_string())?;
    if status.success() {
        return Err("it went on with a full disk".to_owned());
    }
    is_over(world, &me.into_iter().collect::<Vec<_>>())?;
    Ok(began.elapsed())
}
