//! Every mistake in a scenario gets one message that names the place, what is allowed and what to
//! do.

use schedlab_model::{Ns, Start};
use schedlab_sim::PreemptModel;
use schedlab_study::scenario::{Scenario, ScenarioError, parse};

const GOOD: &str = r#"schedulers = ["linux-6.1"]
duration = "1s"
channels = ["a", "b"]
locks = ["m", "n"]
[machine]
cpus = 2
hz = 250
[[group]]
name = "/batch"
cpu.max = "50ms/100ms"
[[task]]
name = "yes"
program = "hog"
"#;

fn read(text: &str) -> Result<Scenario, ScenarioError> {
    parse("test", "test.toml", text)
}

/// The good scenario with `from` replaced by `to`.
fn with(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    GOOD.replacen(from, to, 1)
}

#[test]
fn the_good_one_is_good() {
    let scenario = read(GOOD).unwrap();
    assert_eq!(scenario.machine.topology.cpus(), 2);
    assert_eq!(scenario.workload.groups.len(), 2);
}

#[test]
fn each_mistake_is_named_with_its_place() {
    let task = |rest: &str| format!("{GOOD}[[task]]\nname = \"t\"\n{rest}\n");
    let agents = |rest: &str| format!("{GOOD}[delegation]\n{rest}\n");
    let cases = [
        // (text, line, what the message must say)
        (with("duration", "dration"), 2, "did you mean `duration`?"),
        (agents("mode = \"globl\""), 15, "kernel (no agents), per-cpu"),
        (agents("agent = 2"), 15, "a CPU of the machine, 0 to 1"),
        (agents("msg_prodce_ns = \"1us\""), 15, "did you mean `msg_produce_ns`?"),
        (agents("outside = [\"yess\"]"), 0, "no task, group or source `yess`"),
        (with("hz = 250", "hertz = 250"), 7, "[machine] has no key `hertz`"),
        (with("\"1s\"", "30"), 2, "needs a unit"),
        (with("\"1s\"", "\"30 parsecs\""), 2, "ns, us, ms, s, m"),
        (with("\"1s\"", "\"-1s\""), 2, "negative"),
        (with("\"1s\"", "\"0s\""), 2, "longer than 0"),
        (with("\"1s\"", "1.5"), 2, "needs a unit"),
        (with("cpus = 2", "cpus = 0"), 6, "from 1 to 512"),
        (with("cpus = 2", "cpus = 2\nsockets = 2"), 7, "either `cpus`"),
        (with("hz = 250", "preempt = \"volontary\""), 7, "did you mean `voluntary`?"),
        (with("hz = 250", "irq_work = \"5us\""), 7, "only with `threaded_irqs`"),
        (task("program = [\"kernel spinlok 5us\"]"), 16, "did you mean `spinlock`?"),
        (task("program = [\"kernel\"]"), 16, "before the length there may be preemptible"),
        (task("program = [\"cond_resched\"]"), 14, "without running, sleeping or waiting"),
        (with("linux-6.1", "linux-6.l"), 1, "unknown scheduler `linux-6.l` (did you mean"),
        (with("linux-6.1", "linux-6.1:shed_latency_ns=3ms"), 1, "has no knob `shed_latency_ns`"),
        (with("duration = \"1s\"\n", ""), 0, "never ends"),
        (with("[[task]]", "[[taks]]"), 11, "did you mean `task`?"),
        (with("50ms/100ms", "50us/100ms"), 10, "at least 1ms"),
        (with("/batch", "batch"), 9, "path below the root"),
        (with("\"hog\"", "\"hog"), 13, "not valid TOML"),
        (
            task("program = \"hog\"\ncpus = \"5\""),
            17,
            "CPU 5 does not exist: the machine has CPUs 0-1",
        ),
        (task("program = [\"run 3\"]"), 16, "a number and a unit"),
        (task("program = [\"run -3ms\"]"), 16, "negative"),
        (task("program = [\"rnu 3ms\"]"), 16, "did you mean `run`?"),
        (task("program = [\"receive c\"]"), 16, "there is no channel `c`"),
        (task("program = [\"receive a\"]"), 14, "into which no task ever sends"),
        (task("program = [\"yield\"]"), 14, "without running, sleeping or waiting"),
        (task("program = []"), 16, "program is empty"),
        (task("program = \"hog\"\nnice = 20"), 17, "from -20 to 19"),
        (task("program = \"hog\"\npolicy = \"fifo\""), 17, "1 to 99"),
        (task("program = \"hog\"\npolicy = \"lottery\""), 17, "use other, batch, idle"),
        (task("program = \"hog\"\ngroup = \"/bacth\""), 17, "did you mean `/batch`?"),
        (task("program = [\"lock m\", \"run 1ms\"]"), 14, "wait for itself"),
        (task("program = [\"unlock m\", \"run 1ms\"]"), 14, "does not hold"),
        (task("program = \"hog\"\nstart = \"spawned\""), 14, "no program has a step"),
        (task("program = [\"nice 20\", \"run 1ms\"]"), 16, "is no nice value"),
        (task("program = [\"cpus 0,2\", \"run 1ms\"]"), 16, "has gaps"),
        (task("program = [\"cpus two\", \"run 1ms\"]"), 16, "not a CPU list"),
        (task("program = \"hog\"\ncount = 0"), 17, "from 1 to"),
    ];
    for (text, line, part) in cases {
        let error = read(&text).map(|_| ()).expect_err(part);
        assert!(error.message.contains(part), "wanted {part:?}, got: {error}");
        assert_eq!(error.line, line, "{error}");
    }
}

#[test]
fn cyclic_waits_are_explained() {
    let text = format!(
        "{GOOD}[[task]]\nname = \"p\"\nprogram = [\"receive a\", \"send b\"]\n\
         [[task]]\nname = \"q\"\nprogram = [\"receive b\", \"send a\"]\n"
    );
    let message = read(&text).unwrap_err().message;
    assert!(
        message.contains("`p` waits for channel `a`") && message.contains("`q` waits for"),
        "{message}"
    );

    let text = text.replace("channels = [\"a\"", "channels = [{ name = \"a\", initial = 1 }");
    assert!(read(&text).is_ok(), "one token starts it");

    let text = format!(
        "{GOOD}[[task]]\nname = \"p\"\nprogram = [\"lock m\", \"lock n\", \"run 1ms\", \"unlock \
         n\", \"unlock m\"]\n\
         [[task]]\nname = \"q\"\nprogram = [\"lock n\", \"lock m\", \"run 1ms\", \"unlock m\", \
         \"unlock n\"]\n"
    );
    let message = read(&text).unwrap_err().message;
    assert!(message.contains("taken in a circle by p, q"), "{message}");
}

#[test]
fn expectations_and_variants_are_checked() {
    let expect = |body: &str| format!("{GOOD}[[expect]]\n{body}\n");
    for (text, part) in [
        (expect("metric = \"shar\"\ntask = \"yes\"\nis = \"1\""), "did you mean `share`"),
        (expect("metric = \"share\"\ntask = \"yess\"\nis = \"1\""), "did you mean `yes`"),
        (
            expect("metric = \"share\"\nis = \"1\""),
            "needs `task`, `source`, `channel` or machine = true",
        ),
        (
            expect("metric = \"idle-capped\"\ntask = \"yes\"\nis = \"0\""),
            "metrics of machine = true",
        ),
        (expect("metric = \"share\"\nmachine = true\nis = \"1\""), "metrics of machine = true"),
        (
            format!("{GOOD}[[group]]\nname = \"/vm\"\nvm = {{ vcpus = 0, guest = \"rr\" }}\n"),
            "from 1 to 512",
        ),
        (
            format!("{GOOD}[[group]]\nname = \"/vm\"\nvm = {{ vcpus = 1, guest = \"linux-9\" }}\n"),
            "unknown scheduler",
        ),
        (format!("{GOOD}[[group]]\nname = \"/vm\"\nweight = 70000\n"), "from 1 to 65535"),
        (
            format!("{GOOD}[[variant]]\nname = \"v\"\nset = \"/vm guest=none\"\n"),
            "no task, group or source",
        ),
        (expect("metric = \"latency p99\"\ntask = \"yes\"\nis = \"1\""), "unit"),
        (
            expect("metric = \"share\"\ntask = \"yes\"\nvariant = \"x\"\nis = \"1\""),
            "there is no variant `x`",
        ),
        (
            format!("{GOOD}[[variant]]\nname = \"v\"\nset = \"yse policy=idle\"\n"),
            "did you mean `yes`",
        ),
        (
            format!("{GOOD}[[variant]]\nname = \"v\"\nset = \"yes polic=idle\"\n"),
            "did you mean `policy`",
        ),
        (
            format!("{GOOD}[[variant]]\nname = \"v\"\nset = \"yes cpus=9\"\n"),
            "CPU 9 does not exist",
        ),
        (
            format!("{GOOD}[[variant]]\nname = \"v\"\nset = \"machine preempt=fulll\"\n"),
            "did you mean `full`",
        ),
        (
            format!("{GOOD}[[variant]]\nname = \"v\"\nset = \"machine threaded_irqs=on\"\n"),
            "threaded_irqs = false into its [machine]",
        ),
    ] {
        let error = read(&text).map(|_| ()).expect_err(part);
        assert!(error.message.contains(part) && error.line > 13, "wanted {part:?}, got: {error}");
    }
}

#[test]
fn kernel_sections_and_interrupt_threads_are_read() {
    let text = with(
        "hz = 250",
        "hz = 250\npreempt = \"rt\"\nthreaded_irqs = false\nirq_work = \"exp 3us\"",
    );
    let text = text
        + "[[task]]\nname = \"t\"\nprogram = [\"every 1ms skip\", \"kernel 5us\", \"kernel \
           spinlock exp 2us\"]\n"
        + "[[variant]]\nname = \"threads\"\nset = \"machine threaded_irqs=on preempt=lazy\"\n";
    let scenario = read(&text).unwrap();
    let names: Vec<&str> = scenario.workload.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["yes", "t", "irq/0", "irq/1"]);
    assert_eq!(scenario.classes[2..], ["irq", "irq"]);
    assert!(scenario.workload.tasks[2..].iter().all(|task| task.start == Start::Spawned));
    assert_eq!(scenario.workload.tasks[1].program.ops.len(), 4);
    let applied = scenario.variants[0].apply(&scenario.subject()).unwrap();
    assert_eq!(applied.kernel.unwrap().preempt, PreemptModel::Lazy);
    assert!(
        applied.workload.tasks[2..].iter().all(|task| task.start == Start::AsleepUntil(Ns::ZERO))
    );
}

#[test]
fn a_message_shows_the_line() {
    let error = read(&with("duration", "dration")).unwrap_err();
    let expected = "test.toml:2:1: a scenario has no key `dration`: did you mean `duration`?\n \
                    2 | dration = \"1s\"\n   | ^^^^^^^";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn no_text_makes_it_panic() {
    // Every prefix, and every character replaced by something hostile.
    for (at, _) in GOOD.char_indices() {
        let _ = read(&GOOD[..at]);
        for bad in ["\"", "[", "=", "\u{0}", "é", "9999999999999999999999"] {
            let mut text = GOOD.to_owned();
            text.replace_range(at..at + 1, bad);
            let _ = read(&text);
        }
    }
}
