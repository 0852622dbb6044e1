//! A live torture of whole drivers: `attach`, `run` and `record` while they, their guardians, their
//! holder, their journal or their target are attacked. After each round the target is as before,
//! and no process, file or claim of the round is left. Seeded; `cargo xtask torture-live` does many
//! rounds of this and of the one in crates/live/tests/it/torture.rs.

#![allow(clippy::print_stdout)] // the figures are the point

use super::{Children, children_of, command, state, turn, wait_until, words_of};
use crate::Folder;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Rounds in the usual tests: one of each kind.
const ROUNDS: u64 = ATTACKS.len() as u64;
/// The entry of the environment by which the processes of a round are found.
const MARK: &str = "SCHEDLAB_TORTURE";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Attack {
    AgentKilled,
    GuardianKilled,
    BothKilled,
    AllKilled,
    TargetKilled,
    AgentStopped,
    JournalRemoved,
    JournalRemovedAgentKilled,
    JournalGarbledAgentKilled,
    SecondInstance,
    NumberUsedAgain,
    RunKilled,
    RunHolderKilled,
    RunAndHolderKilled,
    RecordKilled,
}

const ATTACKS: [Attack; 15] = [
    Attack::AgentKilled,
    Attack::GuardianKilled,
    Attack::BothKilled,
    Attack::AllKilled,
    Attack::TargetKilled,
    Attack::AgentStopped,
    Attack::JournalRemoved,
    Attack::JournalRemovedAgentKilled,
    Attack::JournalGarbledAgentKilled,
    Attack::SecondInstance,
    Attack::NumberUsedAgain,
    Attack::RunKilled,
    Attack::RunHolderKilled,
    Attack::RunAndHolderKilled,
    Attack::RecordKilled,
];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn tortured_drivers_leave_nothing() {
    let Some(_turn) = turn("tortured_drivers_leave_nothing") else { return };
    let (rounds, seed) = (number("SCHEDLAB_ROUNDS", ROUNDS), number("SCHEDLAB_SEED", 1));
    let mut counts: BTreeMap<Attack, u64> = BTreeMap::new();
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        // Each kind in turn, in another order for another seed.
        let attack = ATTACKS[((round + 1) * 7 + seed * 3) as usize % ATTACKS.len()];
        let delay = Duration::from_micros((seed * 7_919 + round) * 104_729 % 60_000);
        let begun = Instant::now();
        Round::new(round).attack(attack, delay);
        longest = longest.max(begun.elapsed());
        *counts.entry(attack).or_default() += 1;
    }
    for (attack, count) in &counts {
        println!("{count:6}  {attack:?}");
    }
    println!(
        "{rounds} rounds (seed {seed}): everything as before, nothing left; {} ms at most",
        longest.as_millis()
    );
}

struct Round {
    folder: Folder,
    mark: String,
}

fn send(pid: u32, signal: Signal) {
    // It may have ended by itself.
    let _ = Pid::from_raw(pid.cast_signed()).map(|pid| kill_process(pid, signal));
}

fn slack(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/timerslack_ns")).unwrap_or_default()
}

impl Round {
    fn new(round: u64) -> Round {
        Round {
            folder: Folder::new(&format!("torture-{round}")),
            mark: format!("{}-{round}", std::process::id()),
        }
    }

    fn start(&self, arguments: &[&str]) -> Child {
        let mut started = command(&self.folder, arguments);
        started.env(MARK, &self.mark).stdout(Stdio::null()).stderr(Stdio::null());
        started.spawn().expect("the program can be started")
    }

    /// The living processes that were started in this round.
    fn processes(&self) -> Vec<u32> {
        let entry = format!("{MARK}={}", self.mark);
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = all.filter_map(|one| one.file_name().to_str()?.parse::<u32>().ok());
        let is_marked = |pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|one| one == entry.as_bytes())
        };
        numbers.filter(is_marked).collect()
    }

    fn journal(&self) -> Option<PathBuf> {
        let all =
            std::fs::read_dir(self.folder.0.join("run")).ok()?.flatten().map(|one| one.path());
        all.into_iter()
            .find(|path| path.extension().is_some_and(|extension| extension == "journal"))
    }

    fn left(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.folder.0.join("run"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|one| one.path());
        let own = self.folder.0.display().to_string();
        let claims = std::fs::read_dir("/run/schedlab-claims")
            .into_iter()
            .flatten()
            .flatten()
            .map(|one| one.path());
        let of_round = |path: &PathBuf| {
            std::fs::read_link(path).is_ok_and(|text| text.to_string_lossy().contains(&own))
        };
        files.chain(claims.filter(of_round)).collect()
    }

    fn attack(&self, attack: Attack, delay: Duration) {
        match attack {
            Attack::RunKilled
            | Attack::RunHolderKilled
            | Attack::RunAndHolderKilled
            | Attack::RecordKilled => {
                self.attack_command(attack, delay);
            }
            _ => self.attack_driver(attack, delay),
        }
        let end = Instant::now() + Duration::from_secs(60);
        while !(self.processes().is_empty() && self.left().is_empty()) {
            if Instant::now() > end {
                let lines: Vec<String> = self.processes().into_iter().map(words_of).collect();
                panic!("{attack:?}, round {}: left are {lines:?} and {:?}", self.mark, self.left());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A command that has a child in a session of its own, and one whose parent has ended.
    fn attack_command(&self, attack: Attack, delay: Duration) {
        let script = "setsid sleep 600 & (sleep 600 &) ; while :; do :; done";
        let output = self.folder.0.join("x.slt").display().to_string();
        let run = ["run", "--scheduler", "rr:slice_ns=2ms", "--", "sh", "-c", script];
        let record = [
            "record",
            "--no-calibration",
            "--backend",
            "own",
            "-o",
            &output,
            "--",
            "sh",
            "-c",
            script,
        ];
        let is_record = attack == Attack::RecordKilled;
        let mut driver = self.start(if is_record { &record } else { &run });
        let sleepers = || {
            self.processes().into_iter().filter(|pid| words_of(*pid).starts_with("sleep")).count()
        };
        // Where a guardian ended the driver for a stall of this machine, nothing may be left
        // either.
        wait_until("the command works", || {
            sleepers() == 2 || matches!(driver.try_wait(), Ok(Some(_)))
        });
        std::thread::sleep(delay);
        let comm =
            |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let holder = self.processes().into_iter().find(|pid| comm(pid) == "sched-holder\n");
        if matches!(attack, Attack::RunHolderKilled | Attack::RunAndHolderKilled) {
            holder.into_iter().for_each(|pid| send(pid, Signal::KILL));
        }
        if attack != Attack::RunHolderKilled {
            send(driver.id(), Signal::KILL);
        }
        driver.wait().expect("a child of this test");
    }

    fn attack_driver(&self, attack: Attack, delay: Duration) {
        let mut target = Children::start("while :; do :; done");
        let pid = target.pid();
        std::fs::write(format!("/proc/{pid}/timerslack_ns"), "123456").expect("root");
        let before = (state(pid).expect("it lives"), slack(pid));
        let word = pid.to_string();
        let mut driver = self.start(&["attach", "--scheduler", "rr:slice_ns=2ms", "--pid", &word]);
        let ends = |driver: &mut Child| matches!(driver.try_wait(), Ok(Some(_)));
        wait_until("it is managed", || {
            state(pid).is_some_and(|now| now.0 == 1 && now.1 == "0") || ends(&mut driver)
        });
        std::thread::sleep(delay);
        let guardian = children_of_all(driver.id())
            .into_iter()
            .find(|pid| words_of(*pid).contains("guardian"));
        let second = guardian.and_then(|pid| children_of(pid).first().copied());
        self.carry_out(attack, &mut driver, &mut target, (guardian, second));
        if attack == Attack::NumberUsedAgain || attack == Attack::TargetKilled {
            driver.wait().expect("a child of this test");
            return;
        }
        if matches!(attack, Attack::SecondInstance) {
            send(driver.id(), Signal::TERM);
        }
        if attack == Attack::AllKilled {
            // First: a thread of the driver that is due behind the target may not come to its end
            // before that.
            let given = super::schedlab(&self.folder, &["restore"]);
            assert_eq!(given.code, 0, "{given:?}");
        }
        driver.wait().expect("a child of this test");
        wait_until(&format!("{attack:?}: {pid} is as before, {before:?}"), || {
            state(pid).map(|now| (now, slack(pid))).as_ref() == Some(&before)
        });
    }

    fn carry_out(
        &self,
        attack: Attack,
        driver: &mut Child,
        target: &mut Children,
        (guardian, second): (Option<u32>, Option<u32>),
    ) {
        let agent = driver.id();
        let kill_all =
            |all: &[Option<u32>]| all.iter().flatten().for_each(|pid| send(*pid, Signal::KILL));
        let journal = self.journal();
        match attack {
            Attack::AgentKilled => kill_all(&[Some(agent)]),
            Attack::GuardianKilled => kill_all(&[guardian]),
            Attack::BothKilled => kill_all(&[guardian, Some(agent)]),
            Attack::AllKilled => kill_all(&[guardian, second, Some(agent)]),
            Attack::TargetKilled => send(target.pid(), Signal::KILL),
            Attack::AgentStopped => send(agent, Signal::STOP),
            Attack::JournalRemoved | Attack::JournalRemovedAgentKilled => {
                journal.into_iter().for_each(|path| drop(std::fs::remove_file(path)));
                send(
                    agent,
                    if attack == Attack::JournalRemoved { Signal::TERM } else { Signal::KILL },
                );
            }
            Attack::JournalGarbledAgentKilled => {
                if let Some(path) = journal {
                    let text = std::fs::read_to_string(&path)
                        .unwrap_or_default()
                        .replace("thread", "thr\0ad");
                    // It may be gone by now.
                    let _ = std::fs::OpenOptions::new()
                        .write(true)
                        .truncate(true)
                        .open(path)
                        .map(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
                }
                send(agent, Signal::KILL);
            }
            Attack::SecondInstance => {
                let other = Folder::new("torture-other");
                let word = target.pid().to_string();
                let run = super::schedlab(
                    &other,
                    &["attach", "--scheduler", "rr", "--cpus", "1", "--pid", &word, "--for", "1s"],
                );
                let named = run.stderr.contains(&format!("process {agent} "));
                // Where a guardian has ended the first one meanwhile, the second one may have the
                // target.
                let first_lives = matches!(driver.try_wait(), Ok(None));
                assert!(run.code == 2 && named || !first_lives, "{run:?}");
            }
            Attack::NumberUsedAgain => self.use_number_again(driver, target),
            Attack::RunKilled
            | Attack::RunHolderKilled
            | Attack::RunAndHolderKilled
            | Attack::RecordKilled => {}
        }
    }

    /// A member of the managed family ends, and a stranger gets its number and is pinned to the
    /// managed CPU by its owner.
    fn use_number_again(&self, driver: &mut Child, target: &mut Children) {
        let pid = target.pid();
        target.end();
        let mut stranger = None;
        for _ in 0..500 {
            if std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).is_err() {
                break;
            }
            let child = Children::start("exec sleep 600");
            if child.pid() == pid {
                stranger = Some(child);
                break;
            }
        }
        if stranger.is_some() {
            let pinned = std::process::Command::new("taskset")
                .args(["-pc", "0", &pid.to_string()])
                .stdout(Stdio::null())
                .status();
            assert!(pinned.is_ok_and(|status| status.success()), "taskset(1) of util-linux");
        }
        send(driver.id(), Signal::TERM);
        driver.wait().expect("a child of this test");
        if stranger.is_some() {
            assert_eq!(
                state(pid).map(|now| now.1),
                Some("0".to_owned()),
                "the stranger's own affinity"
            );
        }
    }
}

/// The children of all threads of a process: the guardian's parent is the supervisor's thread.
fn children_of_all(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = threads.filter_map(|one| std::fs::read_to_string(one.path().join("children")).ok());
    let all: Vec<String> = texts.collect();
    all.iter()
        .flat_map(|text| text.split_whitespace())
        .filter_map(|word| word.parse().ok())
        .collect()
}
