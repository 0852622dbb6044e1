//! Whether what a scheduler in BPF gives depends on timing: on when the CPUs' ticks come, and on
//! what its instructions and calls cost. A recording or scenario knows neither exactly, so each
//! such row is also run with other ticks and prices. Where a number changes more with them than
//! with seeds, the row says so, with the range.

use super::verdict::{FELT, FELT_TIME, WORTH};
use super::{Options, rows_of_objects, values};
use crate::StudyError;
use crate::measurements::Kind;
use crate::metric::{Metric, Unit};
use crate::result::{Row, TimingRange};
use crate::run::{Bench, Measures, RowPlan, Run};
use schedlab_model::Ns;
use schedlab_sim::{Costs, Machine, TickSkew};
use schedlab_stats::Estimate;

/// Seeds below which their spread says nothing: the median of three is the first that one outlier
/// does not move.
const LEAST_SEEDS: usize = 3;
/// By how much prices may be too low: an instruction is 0.3 ns on one of the two machines that were
/// measured, and 1 ns on the other (`Costs::modern_vm`, `Costs::oracle_7_2`).
const DEARER: u64 = 4;
/// Numbers that a note names.
const NAMED: usize = 3;

/// Other ticks, or other prices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// All CPUs' ticks at once.
    TicksAtOnce,
    /// Ticks apart from each other (`skew_tick=1`).
    TicksApart,
    /// Instructions and calls cost nothing.
    NoPrices,
    /// They cost [`DEARER`] times as much.
    HighPrices,
}

impl Change {
    /// Those that a machine allows. `ticks`: nothing says when its ticks come.
    fn all(ticks: bool) -> Vec<Change> {
        let of_ticks = [Change::TicksAtOnce, Change::TicksApart].into_iter().filter(|_| ticks);
        of_ticks.chain([Change::NoPrices, Change::HighPrices]).collect()
    }

    fn words(self) -> &'static str {
        match self {
            Change::TicksAtOnce => "with all ticks at once",
            Change::TicksApart => "with ticks apart",
            Change::NoPrices => "with instructions that cost nothing",
            Change::HighPrices => "with instructions that cost four times as much",
        }
    }

    fn made(self, mut machine: Machine) -> Machine {
        let known = Costs::modern_vm();
        let dearer = |own: Ns, known: Ns| Ns(DEARER * if own == Ns::ZERO { known } else { own }.0);
        match self {
            Change::TicksAtOnce => machine.ticks = TickSkew::Aligned,
            Change::TicksApart => machine.ticks = TickSkew::Staggered,
            Change::NoPrices => {
                (machine.costs.bpf_thousand_ns, machine.costs.bpf_call_ns) = (Ns::ZERO, Ns::ZERO);
            }
            Change::HighPrices => {
                let costs = &mut machine.costs;
                costs.bpf_thousand_ns = dearer(costs.bpf_thousand_ns, known.bpf_thousand_ns);
                costs.bpf_call_ns = dearer(costs.bpf_call_ns, known.bpf_call_ns);
            }
        }
        machine
    }
}

/// What rows give with other ticks and prices.
#[derive(Default)]
pub(super) struct Timing {
    /// By row; empty: it is no scheduler in BPF, or nothing was tried.
    tries: Vec<Vec<Vec<Run>>>,
    /// By row: with which change the scheduler ended, and why.
    ended: Vec<Option<(Change, String)>>,
}

impl Timing {
    /// Runs the rows of schedulers in BPF with other timing, each with all seeds. `ticks`: nothing
    /// says when the machine's ticks come.
    ///
    /// # Errors
    /// The runs were ended from outside.
    pub(super) fn tried(
        bench: &Bench<'_>,
        options: &Options,
        (plans, seeds, unfinished): (&[RowPlan], &[u64], usize),
        ticks: bool,
    ) -> Result<Timing, StudyError> {
        let rows = rows_of_objects(plans);
        let mut timing =
            Timing { tries: vec![Vec::new(); plans.len()], ended: vec![None; plans.len()] };
        // A search has its own errors, and what was ended is not begun again.
        let whole = options.points.is_empty() && unfinished == 0;
        if !whole || rows.is_empty() || seeds.len() < LEAST_SEEDS {
            return Ok(timing);
        }
        let own: Vec<RowPlan> = rows.iter().map(|row| plans[*row].clone()).collect();
        for change in Change::all(ticks) {
            let machine = |seed: u64| change.made((bench.machine)(seed));
            let first = seeds.first().copied().unwrap_or(0);
            if machine(first) == (bench.machine)(first) {
                continue;
            }
            let other = Bench {
                machine: &machine,
                seeds,
                keep: None,
                measures: Measures::All,
                progress: &|_, _| {},
                seen: None,
                known: None,
                ..*bench
            };
            for (row, runs) in rows.iter().zip(other.by_plan(&own)?) {
                match runs.into_iter().collect::<Result<Vec<Run>, StudyError>>() {
                    Ok(runs) => timing.tries[*row].push(runs),
                    Err(StudyError::Stopped) => return Err(StudyError::Stopped),
                    Err(why) => {
                        timing.tries[*row].push(Vec::new());
                        timing.ended[*row] = Some((change, why.to_string()));
                    }
                }
            }
        }
        Ok(timing)
    }

    /// The runs of a row with other ticks or prices: one entry for each way, the same for all rows,
    /// without runs where the scheduler ended. Empty: none were made.
    pub(super) fn tries(&self, row: usize) -> &[Vec<Run>] {
        self.tries.get(row).map_or(&[], Vec::as_slice)
    }

    /// Between which values the median of a number lies with other ticks and prices, where that is
    /// more than seeds change it.
    pub(super) fn range(
        &self,
        row: usize,
        own: &[Run],
        (kind, name, metric): (Kind, &str, Metric),
    ) -> Option<(f64, f64)> {
        let tries = self.tries(row);
        if tries.is_empty() {
            return None;
        }
        let of = |runs: &[Run]| Estimate::from_values(values(runs, kind, name, metric));
        let base = of(own)?;
        let medians = tries.iter().filter_map(|runs| Some(of(runs)?.median)).chain([base.median]);
        let Estimate { low, high, .. } = Estimate::from_values(medians.collect())?;
        // As in the verdict, less is not worth a sentence.
        let tiny = metric.unit() == Unit::Time && high - low < FELT_TIME;
        let worth = high - low >= WORTH * high.abs() && !tiny;
        (worth && high - low > base.high - base.low).then_some((low, high))
    }

    /// Writes into each row which of its numbers depend on timing.
    pub(super) fn add_to(&self, rows: &mut [Row], runs: &[Vec<Run>]) {
        for (index, row) in rows.iter_mut().enumerate() {
            let numbers = row.subjects.iter().flat_map(|subject| {
                let of = |cell: &crate::result::Cell| (subject.kind, &subject.name, cell.metric);
                subject.cells.iter().map(of)
            });
            let found = numbers.filter_map(|(kind, name, metric)| {
                let (low, high) = self.range(index, &runs[index], (kind, name, metric))?;
                Some(TimingRange { kind, subject: name.clone(), metric, low, high })
            });
            row.timing = found.collect();
            row.notes.extend(note(&row.timing));
            if let Some((change, why)) = self.ended.get(index).and_then(Option::as_ref) {
                row.notes.push(format!("depends on timing: {} it ends: {why}", change.words()));
            }
        }
    }
}

/// The sentence for a row: first the numbers that users feel, of these those that change most.
fn note(all: &[TimingRange]) -> Option<String> {
    let part = |one: &TimingRange| (one.high - one.low) / one.high.abs().max(f64::MIN_POSITIVE);
    let mut order: Vec<&TimingRange> = all.iter().collect();
    let felt = |one: &TimingRange| !FELT.contains(&one.metric);
    order.sort_by(|a, b| felt(a).cmp(&felt(b)).then_with(|| part(b).total_cmp(&part(a))));
    let words = |one: &&TimingRange| {
        let (low, high) = (one.metric.show(one.low), one.metric.show(one.high));
        format!("{} {} {low} to {high}", one.subject, one.metric.heading())
    };
    let named: Vec<String> = order.iter().take(NAMED).map(words).collect();
    let more = match all.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    (!named.is_empty()).then(|| {
        format!(
            "depends on timing (when ticks come, what instructions and calls cost) more than on \
             seeds: {}{more}",
            named.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_prices_change_and_nothing_else() {
        let machine = Machine::flat(2);
        assert_eq!(Change::TicksAtOnce.made(machine.clone()), machine);
        assert_eq!(Change::TicksApart.made(machine.clone()).ticks, TickSkew::Staggered);
        assert_eq!(Change::NoPrices.made(machine.clone()), machine);
        let known = Costs::modern_vm();
        let dear = Change::HighPrices.made(machine.clone()).costs;
        assert_eq!(dear.bpf_call_ns, Ns(4 * known.bpf_call_ns.0));
        assert_eq!(dear.wake_call_ns, machine.costs.wake_call_ns);
        let own = Machine { costs: Costs { bpf_call_ns: Ns(7), ..Costs::default() }, ..machine };
        assert_eq!(Change::HighPrices.made(own.clone()).costs.bpf_call_ns, Ns(28));
        assert_eq!(Change::NoPrices.made(own).costs.bpf_call_ns, Ns::ZERO);
        assert_eq!(Change::all(false), [Change::NoPrices, Change::HighPrices]);
    }

    #[test]
    fn the_number_that_changes_most_is_named_first() {
        let one = |subject: &str, low: f64, high: f64| TimingRange {
            kind: Kind::Class,
            subject: subject.to_owned(),
            metric: Metric::Share,
            low,
            high,
        };
        let all = [one("a", 0.5, 0.6), one("b", 0.1, 0.9), one("c", 0.5, 0.7), one("d", 0.5, 0.51)];
        let note = note(&all).expect("a note");
        assert!(note.ends_with(
            "b CPU share 10.0% to 90.0%, c CPU share 50.0% to 70.0%, a CPU share 50.0% to 60.0%, \
             and 1 more"
        ));
        assert_eq!(super::note(&[]), None);
    }
}
