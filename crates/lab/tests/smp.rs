//! The evaluation of the three old schedulers keeps the shapes and the fitted table.

use schedlab_lab::smp::{SmpOptions, SmpRow, evaluate, paper_us};

fn rows(tasks: &[u32], cpus: &[usize], costs: &str) -> Vec<SmpRow> {
    let options = SmpOptions {
        tasks: tasks.to_vec(),
        cpus: cpus.to_vec(),
        variants: vec!["default".to_owned()],
        costs: costs.to_owned(),
        jobs: 0,
        hot: false,
    };
    evaluate(&options, &|_, _| ()).unwrap().rows
}

fn cost(rows: &[SmpRow], scheduler: &str, tasks: u32, cpus: usize) -> f64 {
    let row = |row: &&SmpRow| (row.scheduler.as_str(), row.tasks, row.cpus) == (scheduler, tasks, cpus);
    let row = rows.iter().find(row).unwrap();
    // The prices are fitted without the waits for the lock.
    row.cost_us - row.wait_us
}

#[test]
fn table_1_and_its_ratios() {
    let rows = rows(&[1024], &[2, 4, 8], "p3-xeon-700");
    for (cpus, want) in [(2, 58.0), (4, 79.0), (8, 94.0)] {
        let (standard, o1) = (cost(&rows, "linux-2.4", 1024, cpus), cost(&rows, "linux-2.4-o1", 1024, cpus));
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
    let options = SmpOptions {
        tasks: vec![2],
        cpus: vec![2],
        variants: vec!["default".to_owned()],
        costs: "free".to_owned(),
        jobs: 1,
        hot: false,
    };
    assert!(evaluate(&options, &|_, _| ()).unwrap_err().to_string().contains("p3-xeon-700"));
}
