//! `diff` on simulated recordings: it finds a planted regression of 20 %, and calls equal runs equal, ten times each.

use schedlab_lab::diff::{Diff, DiffOptions, diff};
use schedlab_lab::gate::{Gate, Outcome};
use schedlab_lab::metric::{Metric, Stat};
use schedlab_lab::stats::Judgement;
use schedlab_model::{
    Amount, ChannelId, ChannelSpec, Draw, Ns, Op, Program, SourceKind, SourceSpec, TaskSpec, Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, RunOptions};
use schedlab_trace::{Capabilities, Header, TaskInfo, Writer};
use std::path::{Path, PathBuf};

const DURATION: Ns = Ns::from_s(4);

/// A server with random work of `mean` under open-loop requests, and a batch task that sleeps and runs.
fn workload(mean: Ns) -> Workload {
    let random = |ops: Vec<Op>, draw: Draw| Program { draws: vec![draw], ..Program::forever(ops) };
    let serve = vec![Op::Receive(ChannelId(0)), Op::Run(Amount::Draw(0))];
    let batch = vec![Op::Run(Amount::Draw(0)), Op::Sleep(Amount::Fixed(Ns::from_ms(5)))];
    Workload {
        tasks: vec![
            TaskSpec::new(
                "server",
                random(serve, Draw::Uniform { low: Ns(mean.0 / 2), high: Ns(mean.0 * 3 / 2) }),
            ),
            TaskSpec::new("batch", random(batch, Draw::Exponential { mean: Ns::from_ms(2) })),
        ],
        channels: vec![ChannelSpec::default()],
        sources: vec![SourceSpec {
            name: "clients".to_owned(),
            into: ChannelId(0),
            kind: SourceKind::Open {
                interarrival: Draw::Exponential { mean: Ns::from_ms(1) },
                start: Ns::ZERO,
            },
            one_way: Draw::Fixed(Ns::ZERO),
        }],
        ..Workload::default()
    }
}

fn record(folder: &Path, name: &str, mean: Ns, seed: u64) -> PathBuf {
    let workload = workload(mean);
    let info =
        |(i, task): (usize, &TaskSpec)| TaskInfo::unknown(i as u32 + 1, i as u32 + 1, task.name.clone());
    let header = Header {
        capabilities: Capabilities::simulator(),
        tasks: workload.tasks.iter().enumerate().map(info).collect(),
        topology: Machine::flat(1).topology,
        ..Header::default()
    };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    let scheduler = registry::build(&"linux-6.18".parse().unwrap(), 1).unwrap();
    let options = RunOptions { seed, ..RunOptions::for_time(DURATION) };
    schedlab_sim::run(&Machine::flat(1), &workload, &*scheduler, &options, &mut writer).unwrap();
    let path = folder.join(format!("{name}-{seed}.slt"));
    std::fs::write(&path, writer.finish(DURATION).unwrap()).unwrap();
    path
}

fn response(diff: &Diff) -> Judgement {
    let server = diff.subjects.iter().find(|s| s.name == "server").unwrap();
    let p50 = Metric::Response(Stat::Percentile(50_000));
    server.cells.iter().find(|cell| cell.metric == p50).unwrap().judgement
}

#[test]
fn finds_a_planted_regression_and_calls_equal_runs_equal() {
    let folder = std::env::temp_dir().join(format!("schedlab-diff-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let gates =
        vec![Gate::parse("server response p50 > +10%").unwrap(), Gate::parse("server share > 90%").unwrap()];
    let options = DiffOptions { gates, ..DiffOptions::default() };
    for round in 0..10u64 {
        let before = record(&folder, "before", Ns::from_us(100), 2 * round + 1);
        let equal = record(&folder, "equal", Ns::from_us(100), 2 * round + 2);
        let slower = record(&folder, "slower", Ns::from_us(120), 2 * round + 2);
        let same = diff(&before, &equal, &options).unwrap();
        assert!(!same.told_apart() && !same.failed(), "round {round}: {}", same.verdict.outcome);
        let worse = diff(&before, &slower, &options).unwrap();
        assert_eq!(response(&worse), Judgement::Worse, "round {round}: {}", worse.verdict.outcome);
        assert!(worse.verdict.outcome.contains("server"), "{}", worse.verdict.outcome);
        assert_eq!(worse.gates[0].outcome, Outcome::Met, "round {round}: {}", worse.gates[0].got);
        assert_eq!(worse.gates[1].outcome, Outcome::Not);
        assert_eq!(diff(&before, &slower, &options).unwrap(), worse, "equal seeds give equal intervals");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
