//! Four findings about cyclictest on standard and PREEMPT_RT kernels (docs/sources/experiments.md,
//! section 2), checked against what was measured.

use super::load::Load;
use super::matrix::{Cell, Matrix, System};
use super::published::{self, LOOPS};
use schedlab_measure::Samples;
use schedlab_model::Ns;
use schemars::JsonSchema;
use serde::Serialize;

/// Whether a finding holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Truth {
    /// It does.
    Holds,
    /// It does not.
    DoesNot,
    /// What was measured cannot say.
    CannotTell,
}

impl Truth {
    /// Returns its name for a table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Truth::Holds => "true",
            Truth::DoesNot => "false",
            Truth::CannotTell => "cannot tell here",
        }
    }
}

/// A published finding, and whether it holds.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Finding {
    /// What was published.
    pub says: &'static str,
    /// Whether it holds.
    pub truth: Truth,
    /// The numbers behind that.
    pub because: String,
}

const MS: u64 = 1_000_000;

/// Returns all four, checked; none where no row says what ran beside it.
pub fn findings(matrix: &Matrix) -> Vec<Finding> {
    if matrix.cells.iter().all(|cell| cell.load == Load::Unstated) {
        return Vec::new();
    }
    let standard = matrix.systems.iter().find(|system| !system.realtime);
    let realtime = matrix.systems.iter().find(|system| system.realtime);
    let cell = |system: Option<&System>, load, fifo| {
        let name = &system?.name;
        matrix.cells.iter().find(|cell| {
            cell.system == *name
                && cell.load == load
                && cell.fifo() == fifo
                && !cell.rounds.is_empty()
        })
    };
    let of = |load, fifo| cell(standard, load, fifo).map(Cell::all);
    let (idle, loaded) = (of(Load::Idle, true), of(Load::Loaded, true));
    let disturbed = cell(standard, Load::Idle, false).and_then(Cell::disturbed);
    let virtual_machine = standard.is_some_and(|system| system.virtual_machine == Some(true));
    vec![
        other_idle(of(Load::Idle, false), disturbed),
        other_loaded(of(Load::Loaded, false)),
        fifo(idle.as_ref(), loaded.as_ref(), virtual_machine),
        order(
            [idle.as_ref(), loaded.as_ref()],
            [Load::Idle, Load::Loaded].map(|load| cell(realtime, load, true).map(Cell::all)),
        ),
    ]
}

fn missing(says: &'static str, what: &str) -> Finding {
    Finding { says, truth: Truth::CannotTell, because: format!("there is no row: {what}") }
}

fn other_idle(samples: Option<Samples>, disturbed: Option<f64>) -> Finding {
    let says = "SCHED_OTHER, idle: tens of microseconds on average, milliseconds at worst";
    let Some(samples) = samples else { return missing(says, "SCHED_OTHER, idle, standard kernel") };
    let (mean, max) = (samples.mean(), samples.max());
    let truth = match (mean, max) {
        (10_000..100_000, MS..) => Truth::Holds,
        // A longer run could still have a sample of a millisecond.
        (10_000..100_000, _) if samples.count() < LOOPS => Truth::CannotTell,
        // Beside other programs the row is not idle.
        _ if disturbed.is_some() => Truth::CannotTell,
        _ => Truth::DoesNot,
    };
    let mut because =
        format!("{} on average, {} at worst of {}", Ns(mean), Ns(max), samples.count());
    if let Some(part) = disturbed {
        because += &format!("; but other programs had {:.0} % of the CPUs", part * 100.0);
    }
    Finding { says, truth, because }
}

fn other_loaded(samples: Option<Samples>) -> Finding {
    let says = "SCHED_OTHER under load: tens to hundreds of milliseconds at worst";
    let Some(samples) = samples else {
        return missing(says, "SCHED_OTHER, loaded, standard kernel");
    };
    let truth = match samples.max() / MS {
        10.. => Truth::Holds,
        _ if samples.count() < LOOPS => Truth::CannotTell,
        _ => Truth::DoesNot,
    };
    Finding {
        says,
        truth,
        because: format!("{} at worst of {}", Ns(samples.max()), samples.count()),
    }
}

fn fifo(idle: Option<&Samples>, loaded: Option<&Samples>, virtual_machine: bool) -> Finding {
    let says = "SCHED_FIFO stays below 1 ms on a standard kernel, even under full load";
    let (Some(idle), Some(loaded)) = (idle, loaded) else {
        return missing(says, "SCHED_FIFO, idle and loaded, standard kernel");
    };
    let worst = idle.max().max(loaded.max());
    let count = idle.count().min(loaded.count());
    let above = idle.above(MS) + loaded.above(MS);
    let mut because = format!(
        "at worst {} idle, {} loaded; {above} of {} above 1 ms",
        Ns(idle.max()),
        Ns(loaded.max()),
        idle.count() + loaded.count()
    );
    let truth = if worst < MS && count >= LOOPS {
        Truth::Holds
    } else if worst < MS {
        because += &format!("; {LOOPS} expiries each are needed");
        Truth::CannotTell
    } else if virtual_machine {
        because += "; in a virtual machine these contain the host's own delays, which cannot be \
                    told apart inside";
        Truth::CannotTell
    } else {
        Truth::DoesNot
    };
    Finding { says, truth, because }
}

fn order(standard: [Option<&Samples>; 2], realtime: [Option<Samples>; 2]) -> Finding {
    let says = "PREEMPT_RT shortens SCHED_FIFO's maximum by another order";
    let maximum = |realtime, load| published::max(realtime, load, true).unwrap_or(Ns::ZERO);
    let [old, new] = [false, true].map(|rt| maximum(rt, Load::Loaded));
    let published = format!(
        "published: {old} to {new} under load ({:.0} times), {} to {} idle ({:.0} times)",
        old.0 as f64 / new.0 as f64,
        maximum(false, Load::Idle),
        maximum(true, Load::Idle),
        maximum(false, Load::Idle).0 as f64 / maximum(true, Load::Idle).0 as f64
    );
    let ([_, Some(old)], [_, Some(new)]) = (standard, &realtime) else {
        let because = format!(
            "one kernel only (docs/guide/realtime.md says how to compare two); {published}"
        );
        return Finding { says, truth: Truth::CannotTell, because };
    };
    let times = old.max() as f64 / new.max().max(1) as f64;
    // Half an order (a factor of 3.2) is nearer to an order than to nothing.
    let truth = if old.count().min(new.count()) < LOOPS {
        Truth::CannotTell
    } else if times >= 10f64.sqrt() {
        Truth::Holds
    } else {
        Truth::DoesNot
    };
    let because =
        format!("under load {} to {}, {times:.1} times; {published}", Ns(old.max()), Ns(new.max()));
    Finding { says, truth, because }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(count: u64, usual_us: u64, worst_us: u64) -> Samples {
        let mut samples = Samples::default();
        (1..count).for_each(|_| samples.add(usual_us * 1000));
        samples.add(worst_us * 1000);
        samples
    }

    #[test]
    fn the_published_numbers_agree_with_the_findings() {
        assert_eq!(other_idle(Some(samples(30_000, 55, 9_602)), None).truth, Truth::Holds);
        assert_eq!(other_loaded(Some(samples(30_000, 55, 101_095))).truth, Truth::Holds);
        let (idle, loaded) = (samples(30_000, 5, 369), samples(30_000, 5, 446));
        assert_eq!(fifo(Some(&idle), Some(&loaded), false).truth, Truth::Holds);
        let realtime = [Some(samples(30_000, 5, 75)), Some(samples(30_000, 5, 41))];
        let found = order([Some(&idle), Some(&loaded)], realtime);
        assert_eq!(found.truth, Truth::Holds, "{}", found.because);
        assert!(found.because.contains("10.9 times"), "{}", found.because);
    }

    #[test]
    fn each_can_fail_and_each_can_stay_open() {
        assert_eq!(other_idle(Some(samples(30_000, 500, 9_602)), None).truth, Truth::DoesNot);
        assert_eq!(other_idle(Some(samples(30_000, 50, 200)), None).truth, Truth::DoesNot);
        assert_eq!(other_idle(Some(samples(3_000, 50, 200)), None).truth, Truth::CannotTell);
        assert_eq!(
            other_idle(Some(samples(30_000, 500, 9_602)), Some(0.4)).truth,
            Truth::CannotTell
        );
        assert_eq!(other_loaded(Some(samples(30_000, 50, 900))).truth, Truth::DoesNot);
        let (good, bad) = (samples(30_000, 5, 400), samples(30_000, 5, 5_000));
        assert_eq!(fifo(Some(&good), Some(&bad), false).truth, Truth::DoesNot);
        assert_eq!(fifo(Some(&good), Some(&bad), true).truth, Truth::CannotTell);
        assert_eq!(fifo(Some(&good), Some(&samples(300, 5, 10)), false).truth, Truth::CannotTell);
        assert_eq!(order([Some(&good); 2], [Some(good.clone()), Some(bad)]).truth, Truth::DoesNot);
        assert_eq!(order([Some(&good); 2], [None, None]).truth, Truth::CannotTell);
    }
}
