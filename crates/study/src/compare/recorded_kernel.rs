//! The scheduler that a recording was made under: the preset that models its kernel, with what the
//! header says of its settings.

use super::features;
use crate::StudyError;
use crate::run::with_knobs;
use schedlab_scheduler::linux::{KernelRelease, preset_of};
use schedlab_scheduler::{SchedulerSpec, registry, sched_ext};
use schedlab_trace::{Header, TraceError};

/// Returns the preset that models a kernel release (what `uname -r` prints) best, and why.
pub fn kernel_scheduler(release: &str) -> Result<(&'static str, String), String> {
    if release.is_empty() {
        return Err(TraceError::NoKernel.to_string());
    }
    let release: KernelRelease = release.parse().map_err(|error| {
        format!(
            "the kernel of the recording's header: {error}; name the scheduler that models it \
             with --recorded-under, such as linux-6.18"
        )
    })?;
    let model = preset_of(release);
    Ok((model.preset, format!("kernel {}.{}: {}", release.major(), release.minor(), model.why)))
}

/// Returns the scheduler under which the events of a recording were simulated; `None`: a kernel
/// made them, or one that is not in the registry.
fn simulated_under(header: &Header) -> Option<SchedulerSpec> {
    // A recording cannot make the program open a file.
    let is_name = header.backend == "simulator" && !sched_ext::is_object(&header.kernel);
    let spec: SchedulerSpec = header.kernel.parse().ok().filter(|_| is_name)?;
    registry::find(&spec.name).is_ok().then_some(spec)
}

/// Returns the scheduler that `spec` names; a kernel without a preset of its own (`linux-4.19`)
/// counts as the preset that models it, and the sentence says so.
pub fn modelled_by(spec: &SchedulerSpec) -> (SchedulerSpec, Option<String>) {
    let Some(release) =
        spec.name.strip_prefix("linux-").filter(|_| registry::find(&spec.name).is_err())
    else {
        return (spec.clone(), None);
    };
    match kernel_scheduler(release) {
        Ok((preset, why)) => {
            let taken = SchedulerSpec { knobs: spec.knobs.clone(), ..SchedulerSpec::named(preset) };
            (taken, Some(format!("{} is simulated as {preset} ({why})", spec.name)))
        }
        Err(_) => (spec.clone(), None),
    }
}

/// A setting as the recorder found it, as a knob. debugfs gives the base slice in milliseconds.
fn knob_of(name: &str, value: &str) -> (String, String) {
    let value = value.trim();
    match name {
        "slice_of_a_new_task_ns" => ("base_slice_ns".to_owned(), value.to_owned()),
        _ => (name.to_owned(), value.to_owned()),
    }
}

/// The recorded scheduler with the knobs that the header brings. Those that the model lacks are
/// given back.
pub fn recorded_scheduler(
    header: &Header,
    chosen: Option<&SchedulerSpec>,
) -> Result<(SchedulerSpec, String, Vec<String>), StudyError> {
    let (spec, why) = match chosen {
        Some(spec) => (spec.clone(), "named by the user".to_owned()),
        None => match simulated_under(header) {
            Some(spec) => (spec, "the recording was simulated under it".to_owned()),
            None => {
                let (name, why) = kernel_scheduler(&header.kernel).map_err(StudyError::Option)?;
                (SchedulerSpec::named(name), why)
            }
        },
    };
    let mut knobs: Vec<(String, String)> = Vec::new();
    let mut left_out = Vec::new();
    // `recorder.…` says how the recording was made, not how the kernel schedules.
    let features =
        features::of_mask(&header.kernel, header.knobs.get(features::MASK).map_or("", |text| text));
    let read = header.knobs.iter().filter(|(name, _)| !name.starts_with("recorder."));
    let decoded = !features.is_empty();
    let read = read.filter(|(name, _)| !decoded || *name != features::MASK);
    for (name, value) in read.map(|(name, value)| (name.as_str(), value.as_str())).chain(features) {
        let pair = knob_of(name, value);
        if spec.knobs.iter().any(|(own, _)| *own == pair.0) {
            continue;
        }
        match with_knobs(&spec, std::slice::from_ref(&pair)) {
            Ok((_, absent)) if absent.is_empty() => knobs.push(pair),
            _ => left_out.push(format!("{name}={}", value.trim())),
        }
    }
    let (full, _) = with_knobs(&spec, &knobs)?;
    Ok((full, why, left_out))
}

/// What belongs to the machine rather than to a kernel version is kept when another scheduler is
/// tried.
pub(super) fn machine_settings(
    recorded: &SchedulerSpec,
    other: &SchedulerSpec,
) -> Result<SchedulerSpec, StudyError> {
    if other.name == recorded.name {
        let missing = recorded
            .knobs
            .iter()
            .filter(|(name, _)| !other.knobs.iter().any(|(own, _)| own == name));
        let mut full = other.clone();
        full.knobs.extend(missing.cloned());
        return Ok(full);
    }
    let has = (registry::find(&other.name)?.knobs)();
    let mut full = other.clone();
    for (name, value) in &recorded.knobs {
        let general = name.starts_with("sched_rt_") || name == "sched_autogroup_enabled";
        let fits = has.iter().any(|knob| knob.name == name);
        if general && fits && !other.knobs.iter().any(|(own, _)| own == name) {
            full.knobs.push((name.clone(), value.clone()));
        }
    }
    Ok(full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_find_their_scheduler() {
        for (release, scheduler) in [
            ("6.2.0-39-generic", "linux-6.1"),
            ("6.1.192", "linux-6.1"),
            ("6.8.0-31", "linux-6.6"),
            ("6.12.95", "linux-6.12"),
            ("6.18.44+", "linux-6.18"),
            ("7.2.13", "linux-7.2"),
            ("5.4.0", "linux-5.10"),
            ("4.15.0-213-generic", "linux-4.9"),
            ("3.10.0-1160.el7.x86_64", "linux-3.10"),
        ] {
            assert_eq!(kernel_scheduler(release).unwrap().0, scheduler, "{release}");
        }
        assert!(kernel_scheduler("unknown").unwrap_err().contains("--recorded-under"));
    }

    /// What was simulated says under which scheduler; a file's name is not opened.
    #[test]
    fn what_was_simulated_is_replayed_under_the_same() {
        let of = |backend: &str, kernel: &str| {
            let (backend, kernel) = (backend.to_owned(), kernel.to_owned());
            recorded_scheduler(&Header { backend, kernel, ..Header::default() }, None)
        };
        assert_eq!(of("simulator", "linux-6.12").unwrap().0.name, "linux-6.12");
        assert_eq!(of("simulator", "rr").unwrap().0.name, "rr");
        for (backend, kernel) in
            [("tracefs", "linux-6.12"), ("simulator", "x"), ("simulator", "bpf:/etc/passwd")]
        {
            assert!(of(backend, kernel).is_err(), "{backend} {kernel}");
        }
    }
}
