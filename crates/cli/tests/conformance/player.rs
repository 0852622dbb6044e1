//! Threads that do what a workload says: the operations of the simulator's tasks, with real CPU
//! time and real sleeps.

use rustix::time::{ClockId, clock_gettime};
use schedlab_host::threads;
use schedlab_model::{Amount, Ns, Op, Start, TaskId, Workload};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

/// The word that makes this program a player.
pub(crate) const COMMAND: &str = "play-workload";
/// Between the word to begin and the workload's time 0: every task sleeps, so that this gap can be
/// seen in a recording.
const PAUSE: Duration = Duration::from_millis(80);

/// When the time 0 is; `None`: not said yet.
type Gate = Arc<(Mutex<Option<Instant>>, Condvar)>;

struct Play {
    workload: Workload,
    gate: Gate,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Plays the workload in `file` (JSON): says `ready`, waits for a line, plays, ends.
#[expect(clippy::print_stdout, reason = "it speaks to its test")]
pub(crate) fn play(file: &str) -> ExitCode {
    let text = std::fs::read_to_string(file).expect("the test wrote it");
    let workload: Workload = serde_json::from_str(&text).expect("the test wrote it");
    let play = Arc::new(Play { workload, gate: Gate::default(), threads: Mutex::default() });
    for (index, task) in play.workload.tasks.iter().enumerate() {
        if let Start::At(at) = task.start {
            start(&play, TaskId::from(index), Some(at));
        }
    }
    println!("ready");
    std::io::stdout().flush().expect("the test reads");
    std::io::stdin().lock().lines().next();
    *play.gate.0.lock().expect("no thread panics") = Some(Instant::now() + PAUSE);
    play.gate.1.notify_all();
    loop {
        // Children may make more while we wait.
        let Some(thread) = play.threads.lock().expect("no thread panics").pop() else { break };
        thread.join().expect("a player");
    }
    ExitCode::SUCCESS
}

fn start(play: &Arc<Play>, task: TaskId, at: Option<Ns>) {
    let theirs = play.clone();
    let name = play.workload.tasks[task.index()].name.clone();
    let thread = Builder::new().name(name).spawn(move || {
        if let Some(at) = at {
            let mut zero = theirs.gate.0.lock().expect("no thread panics");
            while zero.is_none() {
                zero = theirs.gate.1.wait(zero).expect("no thread panics");
            }
            let begin = zero.expect("it was said") + Duration::from_nanos(at.0);
            drop(zero);
            sleep(begin.saturating_duration_since(Instant::now()));
        }
        let ops = theirs.workload.tasks[task.index()].program.ops.clone();
        for op in &ops {
            act(&theirs, op);
            if at.is_none() && matches!(op, Op::Sleep(_)) {
                until_managed();
            }
        }
    });
    play.threads.lock().expect("no thread panics").push(thread.expect("a thread"));
}

fn act(play: &Arc<Play>, op: &Op) {
    match op {
        Op::Run(Amount::Fixed(time)) => burn(*time),
        Op::Sleep(Amount::Fixed(time)) => sleep(Duration::from_nanos(time.0)),
        Op::Spawn(task) => start(play, *task, None),
        other => panic!("players do not know {other:?}"),
    }
}

/// A thread that another one made is taken on when its entry in the journal is on the disk, which
/// may take a busy disk longer than any sleep of a workload: what it does after a sleep it does
/// under management. (A minute: only a driver that never takes it on takes that long, and then the
/// test finds too few threads managed.)
fn until_managed() {
    for _ in 0..12_000 {
        if threads::fifo_priority(0).is_ok_and(|priority| priority.is_some()) {
            return;
        }
        sleep(Duration::from_millis(5));
    }
}

/// Uses this much CPU time.
fn burn(time: Ns) {
    let used = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    let end = used() + time.0;
    while used() < end {
        std::hint::spin_loop();
    }
}
