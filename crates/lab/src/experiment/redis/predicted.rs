//! The simulated rows of `redis-batch`, with the cost of a request from the dedicated row of this
//! machine.

use super::super::client_kind::ClientKind;
use super::super::figures::Collected;
use super::super::model::MachineModel;
use super::super::plan::ExperimentError;
use super::super::waits::waits;
use super::findings::never_idle;
use super::rows::{
    BATCH, BATCH_SHARE, FOREIGN, OVERTAKEN, P50, ROWS, Row, SERVER_SHARE, STALL, THROUGHPUT,
    longest,
};
use schedlab_study::compare::{Options, compare_scenario};
use schedlab_study::gallery::Found;
use schedlab_study::measurements::Kind;
use schedlab_study::metric::{Metric, Stat};
use schedlab_study::result::Study;
use schedlab_study::scenario::Scenario;
use schedlab_study::show;

/// Virtual time of a row, with its warm-up.
const HEAD: &str = "duration = \"6s\"\nwarmup = \"1s\"\nbaseline = \"shared\"\n\
                    channels = [\"requests\"]\nrepetitions = 1";
/// Virtual time of a run for the fit of a request's way.
const FIT: &str = "duration = \"600ms\"\nwarmup = \"100ms\"\nbaseline = \"shared\"\n\
                   channels = [\"requests\"]\nrepetitions = 1";
/// Halvings of the interval of a request's way.
const STEPS: usize = 8;

/// The simulated rows.
pub(super) struct Prediction {
    study: Option<Study>,
    /// For the rows with a real-time server: the greatest CPU time of fair tasks in one of its
    /// waits, in nanoseconds.
    overtaken: Vec<(&'static str, f64)>,
    /// Events of sysbench in a second of CPU time, where it was measured.
    events: f64,
    /// Where the numbers are from.
    pub(super) about: Vec<String>,
}

impl Prediction {
    /// Simulates the rows for one client and its connections. Nothing is simulated without a
    /// dedicated row, which gives the cost of a request.
    pub(super) fn simulate(
        model: &MachineModel,
        (kind, connections): (ClientKind, usize),
        here: &Collected,
        rows: &[&Row],
    ) -> Result<Prediction, ExperimentError> {
        let median = |figure| here.median("dedicated", figure);
        let events = median_ratio(here, rows);
        let (Some(rate), Some(share), Some(p50)) =
            (median(THROUGHPUT), median(SERVER_SHARE), median(P50))
        else {
            let about = vec!["nothing is simulated without the row `dedicated`".to_owned()];
            return Ok(Prediction { study: None, overtaken: Vec::new(), events, about });
        };
        let seen_ns = (share * 1e9 / rate.max(1.0)).max(1.0);
        let foreign = median(FOREIGN).unwrap_or_default();
        let full = kind.closed() && never_idle(share, foreign);
        let mut load = Load { model, kind, connections, cost_ns: seen_ns, full };
        let mut way_ns = load.fit(rate, p50)?;
        // The measured CPU time of Redis contains switches and ticks, and the model adds its own.
        let dedicated = load.dedicated(way_ns)?;
        let own_ns =
            (dedicated.share * 1e9 / dedicated.rate.max(1.0) - seen_ns).clamp(0.0, seen_ns / 2.0);
        load.cost_ns = seen_ns - own_ns;
        way_ns = load.fit(rate, p50)?;
        let study = load.study(HEAD, way_ns, rows)?;
        let way = format!("its way there and back is FITTED: {:.1} us each way", way_ns / 1e3);
        let way = match kind {
            ClientKind::Open(_) => format!("{way}, so that p50 of the dedicated row is met"),
            _ if full => {
                "its way there and back is left out: where Redis is never idle, nothing depends \
                 on it"
                    .to_owned()
            }
            _ => format!("{way}, so that the requests a second of the dedicated row are met"),
        };
        let about = vec![format!(
            "simulated: a request costs {:.2} us of CPU (the dedicated row, less {:.2} us that \
             the model's own switches and \
             ticks take), {way}; the other rows are computed",
            load.cost_ns / 1e3,
            own_ns / 1e3,
        )];
        let overtaken = load.overtaken(way_ns, rows)?;
        Ok(Prediction { study: Some(study), overtaken, events, about })
    }

    /// Returns a figure of a row, by its name.
    pub(super) fn value(&self, row: &str, figure: &str) -> Option<f64> {
        let study = self.study.as_ref()?;
        let found = study.rows.iter().find(|one| one.variant == row)?;
        let of = |kind, name, metric| Some(found.find(kind, name)?.cell(metric)?.value.median);
        let client = |metric| of(Kind::Source, "clients", metric);
        let percentile = |thousandths| client(Metric::Response(Stat::Percentile(thousandths)));
        let batch = || of(Kind::Class, "sysbench", Metric::Share);
        let server = |metric| of(Kind::Class, "redis-server", metric);
        match figure {
            _ if figure == STALL.name => {
                let waits = [Metric::Latency(Stat::Max), Metric::Wait(Stat::Max)].map(server);
                waits.into_iter().flatten().reduce(f64::max)
            }
            _ if figure == OVERTAKEN.name => {
                self.overtaken.iter().find(|(name, _)| *name == row).map(|(_, fair)| *fair)
            }
            "requests" => client(Metric::Throughput),
            "p50" => percentile(50_000),
            "p95" => percentile(95_000),
            "p99" => percentile(99_000),
            "p99.9" => percentile(99_900),
            "max" => client(Metric::Response(Stat::Max)),
            "CPU of redis" => server(Metric::Share),
            _ if row == "dedicated" && figure.contains("sysbench") => None,
            "CPU of sysbench" => batch(),
            "sysbench" => batch().map(|share| share * self.events).filter(|rate| rate.is_finite()),
            "longest turn of sysbench" => of(Kind::Class, "sysbench", Metric::Run(Stat::Max)),
            _ => None,
        }
    }
}

/// Returns the events of sysbench in a second of CPU time, from the first row that has both.
fn median_ratio(here: &Collected, rows: &[&Row]) -> f64 {
    let one =
        |row: &&&Row| Some(here.median(row.name, BATCH)? / here.median(row.name, BATCH_SHARE)?);
    rows.iter().find_map(|row| one(&row)).unwrap_or(f64::NAN)
}

/// The simulated dedicated row: requests a second, p50 in nanoseconds, a part of the CPU.
struct Dedicated {
    rate: f64,
    p50: f64,
    share: f64,
}

/// The load of a scenario.
struct Load<'a> {
    model: &'a MachineModel,
    kind: ClientKind,
    connections: usize,
    cost_ns: f64,
    /// Whether the server of the dedicated row was never idle.
    full: bool,
}

impl Load<'_> {
    /// Returns the one-way time of a request, in nanoseconds, with which the simulated dedicated
    /// row is as measured.
    fn fit(&self, rate: f64, p50: f64) -> Result<f64, ExperimentError> {
        if let ClientKind::Open(_) = self.kind {
            // The response time is the way there and back and the time at the server, which does
            // not depend on the way.
            return Ok(((p50 - self.dedicated(0.0)?.p50) / 2.0).max(0.0));
        }
        if self.full {
            // Every way fits in which the next request has arrived when one is served.
            return Ok(0.0);
        }
        let round = self.connections as f64 * 1e9 / rate.max(1.0);
        let (mut low, mut high) = (0.0, round / 2.0);
        for _ in 0..STEPS {
            let middle = (low + high) / 2.0;
            if self.dedicated(middle)?.rate > rate { low = middle } else { high = middle }
        }
        Ok((low + high) / 2.0)
    }

    /// Simulates the dedicated row with this one-way time, briefly.
    fn dedicated(&self, way_ns: f64) -> Result<Dedicated, ExperimentError> {
        let study = self.study(FIT, way_ns, &[&ROWS[0]])?;
        let row = study.rows.iter().find(|row| row.variant == "dedicated");
        let of = |kind, name, metric| {
            let cell = row.and_then(|row| row.find(kind, name)?.cell(metric).cloned());
            cell.map_or(0.0, |cell| cell.value.median)
        };
        Ok(Dedicated {
            rate: of(Kind::Source, "clients", Metric::Throughput),
            p50: of(Kind::Source, "clients", Metric::Response(Stat::Percentile(50_000))),
            share: of(Kind::Class, "redis-server", Metric::Share),
        })
    }

    /// Returns [`OVERTAKEN`] of the rows with a real-time server, from the simulated events.
    fn overtaken(
        &self,
        way_ns: f64,
        rows: &[&Row],
    ) -> Result<Vec<(&'static str, f64)>, ExperimentError> {
        let scenario = self.scenario(HEAD, way_ns, rows)?;
        let one = |row: &&&Row| {
            let found = Found::Scenario(Box::new(scenario.clone()));
            let recording = show::open(found, Some(&self.model.scheduler), Some(row.name), None)?;
            let window = (scenario.warmup, recording.duration);
            let server: Vec<bool> =
                recording.header.tasks.iter().map(|info| info.comm == "redis-server").collect();
            Ok((row.name, longest(&waits(&recording, window, &server).overtaken)))
        };
        rows.iter().filter(|row| !row.server.is_fair()).map(|row| one(&row)).collect()
    }

    fn study(&self, head: &str, way_ns: f64, rows: &[&Row]) -> Result<Study, ExperimentError> {
        let scenario = self.scenario(head, way_ns, rows)?;
        let options =
            Options { schedulers: vec![self.model.scheduler.clone()], ..Options::default() };
        Ok(compare_scenario(&scenario, &options, &|_, _| {})?)
    }

    fn scenario(
        &self,
        head: &str,
        way_ns: f64,
        rows: &[&Row],
    ) -> Result<Scenario, ExperimentError> {
        let load = match self.kind {
            ClientKind::Open(rate) => format!("open = \"exp {:.0}ns\"", 1e9 / rate),
            _ => format!("clients = {}\nthink = \"0ns\"", self.connections),
        };
        let mut text = format!(
            "[[task]]\nname = \"redis-server\"\ncpus = \"0\"\n\
             program = [\"receive all requests\", \"serve requests {}ns\"]\n\
             [[task]]\nname = \"sysbench\"\ncpus = \"0\"\nprogram = \"hog\"\n\
             [[source]]\nname = \"clients\"\ninto = \"requests\"\n{load}\none_way = \"{}ns\"\n",
            self.cost_ns.round().max(1.0),
            way_ns.round()
        );
        for row in rows.iter().filter(|row| !row.model.is_empty()) {
            text += &format!("[[variant]]\nname = \"{}\"\nset = \"{}\"\n", row.name, row.model);
        }
        self.model.scenario(head, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::prices::Prices;
    use schedlab_model::CpuSet;
    use schedlab_trace::Recording;
    use std::path::Path;

    fn model() -> MachineModel {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../recordings/redis-fifo-other-closed8.slt");
        let header = Recording::open(&file).unwrap().header;
        let mut machine = schedlab_host::machine();
        (machine.online, machine.hz) = (CpuSet::first(2), 250);
        let prices = Prices::choose(Some("modern-vm"), &machine).unwrap();
        MachineModel::from_header(&header, &machine, &prices).unwrap()
    }

    /// Returns the dedicated row as measured: requests a second, p50 in ns, CPU of Redis.
    fn dedicated(rate: f64, p50: f64, share: f64) -> Collected {
        let mut here = Collected::default();
        for (figure, value) in [(THROUGHPUT, rate), (P50, p50), (SERVER_SHARE, share)] {
            here.add("dedicated", figure, Some(value));
        }
        here
    }

    #[test]
    fn a_server_that_is_never_idle_meets_the_fair_server_in_the_simulator_too() {
        let rows: Vec<&Row> = ROWS[..3].iter().collect();
        let here = dedicated(30_000.0, 1_060_000.0, 0.998);
        let full =
            Prediction::simulate(&model(), (ClientKind::Bitcount, 32), &here, &rows).unwrap();
        assert!(full.about[0].contains("left out"), "{:?}", full.about);
        for figure in [OVERTAKEN, STALL] {
            let ns = full.value("redis FIFO", figure.name).unwrap();
            assert!((45e6..60e6).contains(&ns), "{}: {ns}", figure.name);
        }
        let share = full.value("redis FIFO", BATCH_SHARE.name).unwrap();
        assert!((0.04..0.07).contains(&share), "{share}");
        assert_eq!(full.value("shared", OVERTAKEN.name), None, "both are fair");
        // Nor is a server idle beside other programs that take a third of its CPU.
        let mut disturbed = dedicated(20_000.0, 1_600_000.0, 0.66);
        disturbed.add("dedicated", FOREIGN, Some(0.33));
        let full =
            Prediction::simulate(&model(), (ClientKind::Bitcount, 32), &disturbed, &rows[..1])
                .unwrap();
        assert!(full.about[0].contains("left out"), "{:?}", full.about);
        let rate = full.value("dedicated", THROUGHPUT.name).unwrap();
        assert!((rate / 30_000.0 - 1.0).abs() < 0.03, "{rate}");
    }

    #[test]
    fn a_client_that_limits_has_its_way_fitted() {
        let rows: Vec<&Row> = ROWS[..3].iter().collect();
        let here = dedicated(60_000.0, 250_000.0, 0.6);
        let idle = Prediction::simulate(&model(), (ClientKind::Closed, 32), &here, &rows).unwrap();
        assert!(idle.about[0].contains("FITTED"), "{:?}", idle.about);
        let rate = idle.value("dedicated", THROUGHPUT.name).unwrap();
        assert!((rate / 60_000.0 - 1.0).abs() < 0.03, "{rate}");
        let fair = idle.value("redis FIFO", OVERTAKEN.name).unwrap();
        assert!(fair < 40e6, "Redis sleeps, so that the fair server is not met: {fair}");
    }
}
