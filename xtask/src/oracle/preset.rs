//! Which scheduler a record asks for: the preset of its kernel with the knobs read back from it.

use super::data::Record;
use anyhow::{Context, Result, bail};
use schedlab_scheduler::linux::KernelRelease;
use schedlab_scheduler::{Knob, Scheduler, SchedulerSpec, registry};

/// The scheduler of a record, and whether it is an EEVDF one.
pub(crate) struct Preset {
    pub(crate) spec: SchedulerSpec,
    pub(crate) eevdf: bool,
}

impl Preset {
    /// The preset of the record's kernel with the record's knobs, or `instead` as it is.
    pub(crate) fn for_record(record: &Record, instead: Option<&str>) -> Result<Preset> {
        if let Some(text) = instead {
            let spec: SchedulerSpec = text.parse()?;
            return Preset::new(spec);
        }
        let mut parts = record.kernel.split(['.', '-', '+']).map(str::parse::<u32>);
        let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else {
            bail!("kernel `{}`: must begin with a version such as 6.12", record.kernel);
        };
        let name = match (major, minor) {
            (5, 15..) | (6, 0..=5) => "linux-6.1",
            (6, 6..=11) => "linux-6.6",
            (6, 12..=16) => "linux-6.12",
            (6, 17..=18) => "linux-6.18",
            (7, 2) => "linux-7.2",
            _ => bail!(
                "no preset for kernel {major}.{minor}: there are 6.1 (for 5.15 to 6.5), 6.6 (to \
                 6.11), 6.12 (to \
                 6.16), 6.18 and 7.2; --scheduler chooses one"
            ),
        };
        let knobs = (registry::find(name)?.knobs)();
        let spec = SchedulerSpec { knobs: settings(record, &knobs), ..SchedulerSpec::named(name) };
        Preset::new(spec)
    }

    /// Returns it with what is known of its fair class; what is no Linux is priced as today's
    /// kernels are.
    fn new(spec: SchedulerSpec) -> Result<Preset> {
        let eevdf = spec.family()?.linux().is_none_or(KernelRelease::has_eevdf);
        Ok(Preset { spec, eevdf })
    }

    /// Makes it, for one CPU.
    pub(crate) fn build(&self) -> Result<Box<dyn Scheduler>> {
        registry::build(&self.spec, 1).with_context(|| format!("scheduler {}", self.spec))
    }
}

/// The record's knobs under the names that the preset knows; what it does not have does not exist
/// there.
fn settings(record: &Record, has: &[Knob]) -> Vec<(String, String)> {
    let k = &record.knobs;
    let ns = |value: Option<u64>| value.map(|value| format!("{value}ns"));
    let mut all = vec![
        ("latency_ns".to_owned(), ns(k.latency_ns)),
        ("min_granularity_ns".to_owned(), ns(k.min_granularity_ns)),
        ("idle_min_granularity_ns".to_owned(), ns(k.idle_min_granularity_ns)),
        ("wakeup_granularity_ns".to_owned(), ns(k.wakeup_granularity_ns)),
        ("base_slice_ns".to_owned(), ns(k.base_slice_ns)),
        ("child_runs_first".to_owned(), k.child_runs_first.map(|value| value.to_string())),
        ("sched_rt_runtime_us".to_owned(), Some(k.rt_runtime_us.to_string())),
        ("sched_rt_period_us".to_owned(), Some(k.rt_period_us.to_string())),
        ("sched_rr_timeslice_ms".to_owned(), Some(k.rr_timeslice_ms.to_string())),
        (
            "fair_server_runtime_ns".to_owned(),
            ns(k.fair_server.as_ref().map(|server| server.runtime_ns)),
        ),
        (
            "fair_server_period_ns".to_owned(),
            ns(k.fair_server.as_ref().map(|server| server.period_ns)),
        ),
    ];
    all.extend(k.features.iter().map(|feature| match feature.strip_prefix("NO_") {
        Some(off) => (format!("features.{off}"), Some("off".to_owned())),
        None => (format!("features.{feature}"), Some("on".to_owned())),
    }));
    let known = |name: &str| has.iter().any(|knob| knob.name == name);
    all.into_iter()
        .filter(|(name, _)| known(name))
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::data;

    #[test]
    fn knobs_go_in_under_their_real_names() {
        let line = data::tests::LINE.replace('\n', " ");
        let record = data::parse(&line).unwrap().remove(0);
        let preset = Preset::for_record(&record, None).unwrap();
        assert_eq!(preset.spec.name, "linux-6.12");
        let text = preset.spec.to_string();
        for knob in [
            "base_slice_ns=700000ns",
            "fair_server_runtime_ns=50000000ns",
            "features.RUN_TO_PARITY=on",
        ] {
            assert!(text.contains(knob), "{text}");
        }
        assert!(preset.build().is_ok());
        let old = data::parse(&line.replace("6.12.95", "4.4.0")).unwrap().remove(0);
        assert!(Preset::for_record(&old, None).is_err());
    }
}
