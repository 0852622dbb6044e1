use super::*;
use schedlab_scheduler::registry;
use std::cell::Cell;

fn text(seed: u64, scheduler: Option<&str>) -> String {
    draft(seed, scheduler).unwrap().to_toml()
}

#[test]
fn a_scenario_follows_from_its_number() {
    assert_eq!(text(7, None), text(7, None));
    assert_ne!(text(7, None), text(8, None));
}

/// Whatever the shrinker says still fails stays: what it gives in the end holds it, and nothing
/// that can go.
#[test]
fn what_does_not_matter_is_left_out() {
    for seed in 1..40 {
        let draft = draft(seed, None).unwrap();
        let parses =
            |draft: &Draft| crate::scenario::parse("x", "x.toml", &draft.to_toml()).is_ok();
        let tasks = |draft: &Draft| draft.to_toml().matches("[[task]]").count();
        let small = shrink(&draft, |smaller| match parses(smaller) && tasks(smaller) > 0 {
            true => Still::Fails,
            false => Still::Holds,
        });
        let text = small.to_toml();
        assert!(parses(&small) && tasks(&small) == 1, "seed {seed}:\n{text}");
        for absent in ["[[source]]", "[[group]]", "sigma", "[delegation]", "sockets"] {
            // A virtual machine's task needs its group, and a receiver needs a source.
            let needed = text.contains("vm = ") || text.contains("receive");
            assert!(!text.contains(absent) || needed, "seed {seed}: {absent} in\n{text}");
        }
    }
}

#[test]
fn shrinking_ends_when_it_has_been_enough() {
    let (draft, tried) = (draft(7, None).unwrap(), Cell::new(0));
    let small = shrink(&draft, |_| {
        tried.set(tried.get() + 1);
        if tried.get() > 5 { Still::Enough } else { Still::Holds }
    });
    assert_eq!((tried.get(), small), (6, draft));
}

/// The tasks of Linux 2.4 with a negative penalty change places for ever; the generator gives
/// switches a price.
#[test]
fn time_passes_where_tasks_change_places_for_ever() {
    let hogs = "[[task]]\nname = \"t\"\ncount = 3\nprogram = [\"run 1s\"]\n";
    let head = "title = \"x\"\nschedulers = [\"linux-2.4:proc_change_penalty=-846\"]\n\
                duration = \"500ms\"\n";
    let free = format!("{head}[machine]\ncpus = 2\n{hogs}");
    let Verdict::Failed(Fault::Circle, how) = trial(&free, &registry::build) else {
        panic!("a machine on which switches cost nothing goes in circles");
    };
    assert!(how.contains("other_switch_ns"), "{how}");
    let agents = format!("{free}\n[delegation]\nmode = \"per-cpu\"\ncosts = \"free\"\n");
    let Verdict::Failed(Fault::Restless, how) = trial(&agents, &registry::build) else {
        panic!("agents that cost nothing go in circles");
    };
    assert!(how.contains("[delegation]"), "{how}");
    let costs = "[machine]\ncpus = 2\n[machine.cost]\nother_switch_ns = \"20us\"\n";
    let verdict = trial(&format!("{head}{costs}{hogs}"), &registry::build);
    assert!(matches!(verdict, Verdict::Ran(_)), "{verdict:?}");
}

/// A run that goes on and on is given up, not waited for.
#[test]
fn a_case_may_not_take_for_ever() {
    let text = "title = \"x\"\nschedulers = [\"rr\"]\nduration = \"100s\"\n\
                [machine]\ncpus = 1\n[[task]]\nname = \"t\"\n\
                program = [\"run 1us\", \"sleep 1us\"]\n";
    let Verdict::Refused(why) = trial(text, &registry::build) else { panic!("it is too long") };
    assert!(why.contains("events"), "{why}");
}
