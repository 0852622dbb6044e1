//! Searches that are ended: the answer is that of what is finished.

use schedlab_model::Ns;
use schedlab_study::StudyError;
use schedlab_study::tune::{Aim, Partial, Target, TuneOptions, Tuned, tune};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SETTINGS: usize = 3;

fn options(seeds: u32) -> TuneOptions {
    TuneOptions {
        goal: Aim::parse("yes run p99 < 10ms").unwrap(),
        keep: Vec::new(),
        space: vec!["yes nice=0,5,10".to_owned()],
        seeds,
        trials: 100,
        seed: None,
        duration: Some(Ns::from_ms(1_500)),
        jobs: 1,
        serve: None,
        stop: None,
        keep_finished: true,
    }
}

/// The search on one thread, ended when so many runs are finished.
fn ended_after(runs: Option<usize>, seeds: u32) -> Result<Tuned, StudyError> {
    let scenario = schedlab_study::gallery::load("two-hogs").expect("there").expect("valid");
    let stop = Arc::new(AtomicBool::new(false));
    let options = TuneOptions { stop: Some(Arc::clone(&stop)), ..options(seeds) };
    let watch = |step: &schedlab_study::tune::Step| {
        if Some(step.done) == runs {
            stop.store(true, Ordering::Relaxed);
        }
    };
    tune(Target::Scenario(&scenario, None), &options, &[], &watch)
}

/// All rows with the first seed come before any with the second.
#[test]
fn an_ended_search_answers_with_the_seeds_that_all_settings_have() {
    let rows = SETTINGS + 1;
    let ended = ended_after(Some(rows + 1), 4).unwrap();
    let partial = Partial {
        runs: rows + 1,
        of_runs: rows * 4,
        settings: SETTINGS,
        round: 1,
        of_rounds: 1,
        not_validated: 0,
    };
    assert_eq!(ended.partial, Some(partial));
    let whole = ended_after(None, 1).unwrap();
    assert_eq!(whole.partial, None);
    assert_eq!((ended.seeds, ended.settings), (whole.seeds, whole.settings));
}

#[test]
fn settings_that_were_not_reached_are_missing() {
    let ended = ended_after(Some(2), 4).unwrap();
    let partial = ended.partial.expect("it was ended");
    assert_eq!((partial.runs, partial.settings, ended.settings.len()), (2, 1, 2));
    assert!(partial.says().contains("after 2 of 16 runs; the answer is of one setting"));
}

#[test]
fn nothing_is_no_answer() {
    assert!(matches!(ended_after(Some(0), 4), Err(StudyError::Stopped)));
}

/// The search says while it runs which setting is best by the goal.
#[test]
fn the_best_setting_so_far_is_told() {
    let scenario = schedlab_study::gallery::load("redis-batch").expect("there").expect("valid");
    let steps = std::sync::Mutex::new(Vec::new());
    let watch = |step: &schedlab_study::tune::Step<'_>| {
        steps.lock().unwrap().push((step.done, step.all, step.best.clone()));
    };
    let goal = Aim::parse("clients response p99 < 1ms").unwrap();
    let space = vec!["sysbench nice=0,19".to_owned()];
    let duration = Some(Ns::from_s(2));
    let options = TuneOptions { goal, space, duration, ..options(1) };
    tune(Target::Scenario(&scenario, None), &options, &[], &watch).unwrap();
    let steps = steps.into_inner().unwrap();
    assert_eq!(steps[0], (0, 3, None));
    let (_, _, best) = steps.last().unwrap();
    let best = best.as_ref().expect("one is better");
    assert!(best.setting.contains("nice=19") && best.value != best.unchanged, "{best:?}");
}
