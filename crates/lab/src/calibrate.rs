//! `schedlab calibrate`: the file of a calibration, which is the cost preset `this-machine`.
//! `docs/calibration.md` describes it, and how the simulator's prices follow from the measured
//! costs.

use schedlab_host::MachineFacts;
use schedlab_measure::calibrate::Calibration;
use schedlab_model::text::iso8601;
use schedlab_study::preset::{Preset, Provenance, SCHEMA, Sure};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Part of the cost of a switch that lies before the record of a tracer (0 … 1). Chosen, since
/// nothing outside of the kernel can measure it; the preset `modern-vm` has the same.
const BEFORE_RECORD: f64 = 0.6;

/// Returns the preset of a calibration made just now on `machine` by `command`.
pub fn preset(
    calibration: &Calibration,
    machine: &MachineFacts,
    command: String,
    version: &str,
) -> Preset {
    let now =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let mut preset = Preset {
        schema: SCHEMA.to_owned(),
        provenance: Provenance {
            kernel: format!("{} {}", machine.kernel, machine.version),
            cpu: machine.model.clone(),
            cpus: machine.online.count(),
            hz: machine.hz,
            virtual_machine: machine.virtual_machine,
            date: iso8601(now),
            command,
            schedlab: version.to_owned(),
            foreign: (calibration.foreign * 1e3).round() / 1e3,
            seconds: (calibration.elapsed.0 as f64 / 1e8).round() / 10.0,
        },
        costs: BTreeMap::new(),
        simulator: BTreeMap::new(),
        spread: BTreeMap::new(),
        lacks: BTreeMap::new(),
    };
    let tenths = |ns: f64| (ns * 10.0).round() / 10.0;
    for cost in &calibration.costs {
        if let Some(why) = &cost.lacks {
            preset.lacks.insert(cost.name.to_owned(), why.clone());
        }
        let Some(spread) = cost.spread else { continue };
        // Noise can make a difference negative, which no price may be; the spread keeps the sign.
        preset.costs.insert(cost.name.to_owned(), tenths(spread.median_ns).max(0.0));
        let sure = Sure {
            low_ns: tenths(spread.low_ns),
            high_ns: tenths(spread.high_ns),
            p99_ns: tenths(spread.p99_ns),
            count: spread.count,
            rounds: spread.rounds,
        };
        preset.spread.insert(cost.name.to_owned(), sure);
    }
    preset.costs.insert("hot_lines".to_owned(), calibration.private_lines as f64);
    preset.simulator = simulator(&preset.costs);
    preset
}

/// Returns the text of the preset's file.
pub fn file_text(preset: &Preset) -> String {
    let quoted = |text: &str| serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned());
    let p = &preset.provenance;
    let mut text = format!(
        "# Written by `schedlab calibrate`: what this machine's own work costs \
         (docs/calibration.md).\n\
         schema = {}\n\n[provenance]\nkernel = {}\ncpu = {}\ncpus = {}\nhz = {}\n\
         virtual_machine = {}\ndate = {}\n\
         command = {}\nschedlab = {}\nforeign = {:?}\nseconds = {:?}\n",
        quoted(&preset.schema),
        quoted(&p.kernel),
        quoted(&p.cpu),
        p.cpus,
        p.hz,
        p.virtual_machine,
        quoted(&p.date),
        quoted(&p.command),
        quoted(&p.schedlab),
        p.foreign,
        p.seconds
    );
    text += "\n# Medians; nanoseconds unless the name ends otherwise.\n[costs]\n";
    for (name, value) in &preset.costs {
        let _ = writeln!(text, "{name} = {value:?}");
    }
    text +=
        "\n# What the simulator takes for `costs = \"this-machine\"`, nanoseconds.\n[simulator]\n";
    for (name, value) in &preset.simulator {
        let _ = writeln!(text, "{name} = {value}");
    }
    text += "\n# 95 % interval of each median over rounds, 99th percentile, samples, rounds.\n\
             [spread]\n";
    for (name, s) in &preset.spread {
        let _ = writeln!(
            text,
            "{name} = {{ low_ns = {:?}, high_ns = {:?}, p99_ns = {:?}, count = {}, rounds = {} }}",
            s.low_ns, s.high_ns, s.p99_ns, s.count, s.rounds
        );
    }
    if !preset.lacks.is_empty() {
        text += "\n# Not measured.\n[lacks]\n";
        for (name, why) in &preset.lacks {
            let _ = writeln!(text, "{name} = {}", quoted(why));
        }
    }
    text
}

/// Returns the simulator's prices from the measured costs. What was not measured is free.
fn simulator(measured: &BTreeMap<String, f64>) -> BTreeMap<String, u64> {
    let get = |name: &str| measured.get(name).copied();
    let less = |a: Option<f64>, b: Option<f64>| Some((a? - b?).max(0.0));
    let switch = less(get("switch_yield_ns"), get("yield_ns"));
    let before = switch.map(|ns| ns * BEFORE_RECORD);
    let wake = less(get("wake_call_ns"), get("wake_nobody_ns"));
    let idle_exit = less(get("wakeup_idle_cpu_ns"), get("wakeup_busy_cpu_ns"));
    let sum = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
    [
        ("wake_call_ns", wake),
        ("wakeup_switch_ns", before),
        ("tick_switch_ns", before),
        ("block_switch_ns", before),
        ("idle_switch_ns", before),
        ("other_switch_ns", before),
        ("switch_enter_ns", switch.map(|ns| ns * (1.0 - BEFORE_RECORD))),
        ("idle_decide_ns", idle_exit),
        ("ipi_latency_ns", less(get("wakeup_busy_cpu_ns"), sum(get("wake_call_ns"), switch))),
        ("timer_to_wake_ns", less(get("timer_fifo_ns"), sum(idle_exit, switch))),
        ("timer_slack_ns", less(get("timer_other_ns"), get("timer_fifo_ns"))),
        ("tick_ns", get("tick_ns")),
        // A device's interrupt costs as much as the tick's, plus the wakeup in it.
        ("wake_interrupt_ns", sum(get("tick_ns"), wake)),
        ("refill_core_ns", get("refill_64k_moved_ns")),
        ("scan_hot_ns", get("scan_hot_ns")),
        ("line_ns", get("line_ns")),
        ("handoff_ns", get("lock_handoff_ns")),
        ("wake_hold_ns", wake),
    ]
    .into_iter()
    .filter_map(|(name, ns)| Some((name.to_owned(), ns?.round() as u64)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_measure::calibrate::{Cost, Spread};
    use schedlab_model::{CpuId, Ns};
    use schedlab_sim::Costs;

    fn calibration() -> Calibration {
        let spread = |median_ns| Spread {
            median_ns,
            low_ns: median_ns - 1.0,
            high_ns: median_ns + 1.0,
            p99_ns: 2.0 * median_ns,
            count: 99,
            rounds: 9,
        };
        let cost = |(name, ns): (&'static str, f64)| Cost {
            name,
            what: "",
            spread: Some(spread(ns)),
            lacks: None,
        };
        let mut costs: Vec<Cost> = [
            ("switch_yield_ns", 1500.04),
            ("yield_ns", 500.0),
            ("wake_call_ns", 900.0),
            ("wake_nobody_ns", 300.0),
            ("wakeup_busy_cpu_ns", 12_000.0),
            ("wakeup_idle_cpu_ns", 30_000.0),
            ("timer_fifo_ns", 25_000.0),
            ("timer_other_ns", 75_000.0),
            ("tick_ns", 800.0),
            ("scan_hot_ns", 2.4),
        ]
        .map(cost)
        .into();
        // Noise made a difference negative, and the file must be readable all the same.
        costs.push(cost(("recorder_switch_ns", -75.0)));
        let lacks = Some("needs \"two\" CPUs\n".to_owned());
        costs.push(Cost { name: "lock_handoff_ns", what: "", spread: None, lacks });
        let (cpu, elapsed) = (CpuId(0), Ns::from_s(2));
        Calibration { cpu, other: None, elapsed, foreign: 0.25, private_lines: 8192, costs }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let machine = schedlab_host::machine();
        let preset =
            preset(&calibration(), &machine, "schedlab calibrate -o \"a b\"".to_owned(), "0.1");
        let file = schedlab_testing::temp_dir()
            .join(format!("schedlab-calibration-{}.toml", std::process::id()));
        std::fs::write(&file, file_text(&preset)).unwrap();
        let read = Preset::read(&file);
        std::fs::write(&file, file_text(&preset).replace("tion/1", "tion/9")).unwrap();
        let newer = Preset::read(&file).unwrap_err().to_string();
        std::fs::write(&file, "schema = 1").unwrap();
        let other = Preset::read(&file).unwrap_err().to_string();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(preset.costs["recorder_switch_ns"], 0.0);
        assert_eq!(read.unwrap(), preset);
        let missing = Preset::read(&file).unwrap_err().to_string();
        for message in [newer, other, missing] {
            assert!(message.contains("schedlab calibrate"), "{message}");
        }
    }

    #[test]
    fn prices_follow_from_the_measured_costs() {
        let preset = preset(&calibration(), &schedlab_host::machine(), String::new(), "0.1");
        let prices = preset.prices();
        assert_eq!((prices.block_switch_ns, prices.switch_enter_ns), (Ns(600), Ns(400)));
        assert_eq!(prices.wake_call_ns, Ns(600));
        assert_eq!(prices.idle_decide_ns, Ns(18_000));
        // 12,000 less the write (900) and the switch (1,000).
        assert_eq!(prices.ipi_latency_ns, Ns(10_100));
        assert_eq!((prices.timer_to_wake_ns, prices.timer_slack_ns), (Ns(6_000), Ns(50_000)));
        assert_eq!(
            (prices.scan_hot_ns, prices.hot_lines, prices.handoff_ns),
            (Ns(2), 8192, Ns::ZERO)
        );
        // Every name is one of the simulator's.
        assert!(preset.simulator.keys().all(|name| Costs::default().get(name).is_some()));
    }
}
