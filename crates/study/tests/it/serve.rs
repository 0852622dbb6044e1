//! `--serve`: whether a recording can be relied on is asked for one server, and for what delays it.

use schedlab_model::{
    Amount, CpuId, CpuSet, Nice, Ns, Op, Program, SchedEvent, TaskSpec, Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, RunOptions};
use schedlab_study::compare::{Options, RecordedInput, compare_recording};
use schedlab_study::result::Study;
use schedlab_trace::{Capabilities, Header, Recording, TaskInfo, save};
use std::path::{Path, PathBuf};

const DURATION: Ns = Ns::from_s(3);

/// Two CPUs with a server, which runs now and then, and three programs that never end; each on the
/// CPU that is given. `told`: what the recording says of a task, which may be wrong.
fn recording(name: &str, on: [u32; 4], told: impl Fn(&TaskSpec, &mut TaskInfo)) -> PathBuf {
    let now_and_then = Program::forever([
        Op::Run(Amount::Fixed(Ns::from_us(100))),
        Op::Sleep(Amount::Fixed(Ns::from_us(900))),
    ]);
    let mut tasks = vec![
        TaskSpec::new("server", now_and_then),
        TaskSpec::new("hog", Program::hog()),
        TaskSpec::new("stranger", Program::hog()),
        TaskSpec::new("other", Program::hog()),
    ];
    for (task, cpu) in tasks.iter_mut().zip(on) {
        task.affinity = CpuSet::single(CpuId(cpu));
    }
    let workload = Workload { tasks, ..Workload::default() };
    let scheduler = registry::build(&"linux-6.18".parse().unwrap(), 2).unwrap();
    let mut events: Vec<SchedEvent> = Vec::new();
    let options = RunOptions::for_time(DURATION);
    schedlab_sim::run(&Machine::flat(2), &workload, &*scheduler, &options, &mut events).unwrap();
    let info = |(i, task): (usize, &TaskSpec)| {
        let mut info = TaskInfo {
            affinity: task.affinity,
            ..TaskInfo::unknown(i as u32 + 1, i as u32 + 1, task.name.clone())
        };
        told(task, &mut info);
        info
    };
    let header = Header {
        backend: "simulator".to_owned(),
        kernel: "6.18.44".to_owned(),
        hz: 250,
        topology: Machine::flat(2).topology,
        capabilities: Capabilities::simulator(),
        tasks: workload.tasks.iter().enumerate().map(info).collect(),
        ..Header::default()
    };
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    save(&Recording { header, events, duration: DURATION, ..Recording::default() }, &path).unwrap();
    path
}

/// A server and a hog on CPU 0, and on CPU 1 two hogs of which the recording says a wrong nice
/// value: they do not replay.
fn of_strangers(name: &str) -> PathBuf {
    recording(name, [0, 0, 1, 1], |task, info| {
        if task.name == "other" {
            info.nice = Nice::new(10).unwrap();
        }
    })
}

/// A trace of perf holds no affinity: what was kept away from the server competes with it in the
/// simulation. No program that ran while it waited speaks against that, for it did not wait.
#[test]
fn a_server_that_waits_in_the_simulation_alone_is_not_believed() {
    let pinned = |name: &str, known: bool| {
        let path = recording(name, [0, 1, 1, 1], |_, info| {
            info.known = known;
            if !known {
                info.affinity = CpuSet::ALL;
            }
        });
        compared(&RecordedInput::open(&path).unwrap(), Some("server"))
    };
    let known = pinned("serve-pinned.slt", true).self_replay.unwrap();
    assert!(known.trusted, "{:?}", known.distrust);
    let study = pinned("serve-anywhere.slt", false);
    let doubts = study.self_replay.unwrap().distrust;
    assert!(doubts[0].starts_with("server: run-queue latency p99 0ns recorded, "), "{doubts:?}");
    let said = study.verdict.certainty;
    assert!(
        said.starts_with("Do not rely on it: ") && said.contains("`schedlab record`"),
        "{said}"
    );
}

fn compared(input: &RecordedInput, serve: Option<&str>) -> Study {
    asked(input, serve, "batch idle: hog policy=idle")
}

fn asked(input: &RecordedInput, serve: Option<&str>, variant: &str) -> Study {
    let options = Options {
        jobs: 1,
        repetitions: Some(2),
        variants: vec![variant.to_owned()],
        serve: serve.map(str::to_owned),
        ..Options::default()
    };
    compare_recording(input, None, &options, &|_, _| {}).unwrap()
}

#[test]
fn what_does_not_delay_the_server_does_not_count() {
    let input = RecordedInput::open(&of_strangers("serve.slt")).unwrap();
    let of_all = compared(&input, None);
    let doubts = of_all.self_replay.unwrap().distrust;
    assert!(doubts.iter().any(|why| why.starts_with("other: ")), "{doubts:?}");

    let study = compared(&input, Some("server"));
    let (replay, served) = (study.self_replay.unwrap(), study.served.unwrap());
    assert!(replay.trusted, "{:?}", replay.distrust);
    assert_eq!(served.other_doubts, doubts);
    let delays: Vec<String> =
        served.delayed_by.unwrap().into_iter().map(|delay| delay.name).collect();
    assert_eq!(delays, ["hog"]);
    assert_eq!(study.headline[0].subject, "server");
    assert!(
        study.verdict.certainty.starts_with("Good enough for server: "),
        "{}",
        study.verdict.certainty
    );
    assert!(
        study
            .notes
            .iter()
            .any(|note| note
                == "server waited for a CPU behind hog (100 %), in parts of its waiting")
    );
    assert!(study.notes.iter().any(|note| note.contains("it does not count")), "{:?}", study.notes);

    // What becomes of the others cannot be told from this.
    let study = asked(&input, Some("server"), "less: stranger nice=19");
    let said = &study.verdict;
    assert!(said.outcome.starts_with("server run-queue p99 is 1.00ms in every row"), "{said:?}");
    assert!(said.certainty.ends_with("; nothing changes."), "{said:?}");

    // Of the very program that does not replay nothing is believed, by whatever name it is asked
    // for.
    for asked in ["other", "oth*", "4"] {
        let study = compared(&input, Some(asked));
        let replay = study.self_replay.unwrap();
        assert!(
            !replay.trusted && replay.distrust.iter().all(|doubt| doubt.starts_with("other: ")),
            "{asked}: {:?}",
            replay.distrust
        );
        assert!(
            study.verdict.certainty.contains("schedlab colocate"),
            "{}",
            study.verdict.certainty
        );
    }
}

#[test]
fn a_server_that_is_not_there_is_named_with_the_nearest() {
    let input = RecordedInput::open(&of_strangers("serve-name.slt")).unwrap();
    for (asked, words) in [
        ("servr", "did you mean `server`?"),
        ("77", "programs are: hog, other, server, stranger"),
        ("/batch", "Name a program, a pid, a control group (/path), a unit"),
        ("redis.service", "--serve redis.service: no task of the recording is meant"),
    ] {
        let options = Options { serve: Some(asked.to_owned()), ..Options::default() };
        let error = compare_recording(&input, None, &options, &|_, _| {}).unwrap_err().to_string();
        assert!(error.contains(words), "{asked}: {error}");
    }
}
