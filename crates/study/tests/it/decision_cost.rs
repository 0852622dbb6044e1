//! The evaluation of the three old schedulers keeps the shapes and the fitted table.

use schedlab_study::compare::{Options, compare_scenario};
use schedlab_study::decision_cost::{
    DecisionCostOptions, DecisionCostResult, DecisionCostRow, evaluate, paper_us, scenario,
};

fn rows(tasks: &[u32], cpus: &[usize], costs: &str) -> Vec<DecisionCostRow> {
    sweep(tasks, cpus, costs).rows
}

fn sweep(tasks: &[u32], cpus: &[usize], costs: &str) -> DecisionCostResult {
    let options = DecisionCostOptions {
        tasks: tasks.to_vec(),
        cpus: cpus.to_vec(),
        variants: vec!["default".to_owned()],
        costs: costs.to_owned(),
        jobs: 0,
        hot: false,
    };
    evaluate(&options, &|_, _| ()).unwrap()
}

fn cost(rows: &[DecisionCostRow], scheduler: &str, tasks: u32, cpus: usize) -> f64 {
    let row = |row: &&DecisionCostRow| {
        (row.scheduler.as_str(), row.tasks, row.cpus) == (scheduler, tasks, cpus)
    };
    // From entry to return, as in the paper: the wait for the lock included.
    rows.iter().find(row).unwrap().cost_us
}

/// `bench model` and `compare` run the same: a decision costs the same in both. (0.094 and 0.0037 %
/// of 100 ms were noted for `mq` once.)
#[test]
fn the_sweep_and_the_scenario_agree() {
    let mut sized = scenario().unwrap().sized(2, 64);
    (sized.variants, sized.expectations) = (Vec::new(), Vec::new());
    let study = compare_scenario(&sized, &Options::default(), &|_, _| ()).unwrap();
    let swept = rows(&[64], &[2], "p3-xeon-700");
    for scheduler in ["linux-2.4", "linux-2.4-mq", "linux-2.4-o1"] {
        let row = study.rows.iter().find(|row| row.scheduler == scheduler).unwrap();
        let mut cells = row.subjects.iter().flat_map(|subject| &subject.cells);
        let decision =
            cells.find(|cell| cell.metric.to_string() == "decision").unwrap().value.median;
        let model = cost(&swept, scheduler, 64, 2);
        assert!(
            (decision / 1e3 - model).abs() < 0.01 * model,
            "{scheduler}: {decision} ns and {model} us"
        );
    }
}

#[test]
fn table_1_and_its_ratios() {
    let rows = rows(&[1024], &[2, 4, 8], "p3-xeon-700");
    for (cpus, want) in [(2, 58.0), (4, 79.0), (8, 94.0)] {
        let (standard, o1) =
            (cost(&rows, "linux-2.4", 1024, cpus), cost(&rows, "linux-2.4-o1", 1024, cpus));
        let ratio = standard / o1;
        assert!((ratio / want - 1.0).abs() < 0.15, "{cpus} CPUs: {ratio}, the paper {want}");
        let paper = paper_us("linux-2.4-o1", cpus).unwrap();
        assert!((o1 / paper - 1.0).abs() < 0.1, "{cpus} CPUs: {o1} us, the paper {paper}");
        // Balanced lists: nothing like the cost of one list.
        let mq = cost(&rows, "linux-2.4-mq", 1024, cpus);
        assert!(mq < standard * 1.2 / cpus as f64, "{cpus} CPUs: {mq} of {standard}");
    }
}

#[test]
fn only_lists_grow_with_the_threads() {
    let rows = rows(&[64, 512], &[2], "p3-xeon-700");
    let growth = |name| cost(&rows, name, 512, 2) / cost(&rows, name, 64, 2);
    assert!(growth("linux-2.4") > 5.0 && growth("linux-2.4-mq") > 4.0, "{rows:?}");
    assert!((growth("linux-2.4-o1") - 1.0).abs() < 0.05, "{rows:?}");
}

#[test]
fn free_machines_have_nothing_to_evaluate() {
    let options = DecisionCostOptions {
        tasks: vec![2],
        cpus: vec![2],
        variants: vec!["default".to_owned()],
        costs: "free".to_owned(),
        jobs: 1,
        hot: false,
    };
    assert!(evaluate(&options, &|_, _| ()).unwrap_err().to_string().contains("p3-xeon-700"));
}

/// What the paper says of total times ("no notable difference"): within 2 % on 2 and 4 CPUs. On 8
/// the one list takes more than that by arithmetic (1.5 ms of every 61.5): a scan takes as long as
/// the ticks of two CPUs lie apart, and CPUs that recharging has brought into step wait for its
/// lock. Without that wait the difference is what the scan takes. Each of the three is within 2 %
/// of their mean everywhere.
#[test]
fn totals_differ_by_the_scan_and_on_eight_cpus_by_the_wait() {
    let DecisionCostResult { rows, totals, .. } = sweep(&[1024], &[2, 4, 8], "p3-xeon-700");
    for (cpus, total) in [2, 4, 8].into_iter().zip(totals) {
        let of =
            |name: &str| rows.iter().find(|row| row.scheduler == name && row.cpus == cpus).unwrap();
        let all = ["linux-2.4", "linux-2.4-mq", "linux-2.4-o1"].map(|name| of(name).total_s);
        let (least, most) =
            (all.iter().copied().fold(f64::MAX, f64::min), all.iter().copied().fold(0.0, f64::max));
        let apart = most / least - 1.0;
        assert!((total.cpus, total.apart) == (cpus, apart) && total.from_mean < 0.02, "{total:?}");
        let standard = of("linux-2.4");
        assert_eq!((total.decisions, total.waiting), (standard.real_share, standard.wait_share));
        let without = standard.total_s * (1.0 - standard.wait_share) / least - 1.0;
        if cpus < 8 {
            assert!(
                apart < 0.02 && standard.wait_share < 0.001,
                "{cpus} CPUs: {apart}, {standard:?}"
            );
        } else {
            assert!((0.02..0.03).contains(&apart), "{apart}");
            assert!((0.015..0.02).contains(&without), "{without} {standard:?}");
            assert!((0.1..0.5).contains(&(standard.wait_us / standard.cost_us)), "{standard:?}");
        }
    }
}

#[test]
fn the_sweep_is_that_of_the_paper() {
    let sweep = scenario().unwrap().sweep.unwrap();
    assert_eq!(sweep.cpus, [2, 4, 8]);
    assert_eq!(sweep.tasks, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
}
