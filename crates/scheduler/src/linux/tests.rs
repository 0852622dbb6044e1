//! Tests of the whole family through the public trait, on the tiny driver.

use super::testing::{Closed, Driver};
use crate::{Scheduler, registry};

const MS: u64 = 1_000_000;

fn linux(spec: &str, cpus: usize) -> Box<dyn Scheduler> {
    registry::build(&spec.parse().expect("a spec"), cpus).expect("a scheduler")
}

#[test]
fn two_hogs_alternate_every_4_ms_on_one_cpu() {
    let mut driver = Driver::new(linux("linux-6.1", 1), 1, 250, &[Closed::hog(0), Closed::hog(0)]);
    driver.run(1_000 * MS);
    assert!(driver.run_lengths(0, 20 * MS).iter().all(|&run| run == 4 * MS));
    assert!(driver.share(0, 0, 1_000 * MS).abs_diff(5_000) <= 50);
}

#[test]
fn nice_5_gets_a_quarter() {
    let mut driver = Driver::new(linux("linux-6.1", 1), 1, 250, &[Closed::hog(0), Closed::hog(5)]);
    driver.run(4_000 * MS);
    assert!(driver.share(1, 0, 4_000 * MS).abs_diff(2_465) <= 50);
}
