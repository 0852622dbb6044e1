//! `schedlab record`

use crate::args::Record;
use crate::{Done, output};
use anyhow::{anyhow, bail};
use schedlab_host::{RecordRequest, Scope, StopSignal};
use schedlab_lab::record::{Recorded, record};
use schedlab_model::{CpuId, Ns};

/// More lost events than this part of all, and the recording is not to be trusted (per thousand).
const LOST_PERMILLE: u64 = 10;

pub(crate) fn run(args: &Record) -> anyhow::Result<Done> {
    let request = request(args)?;
    output::check(&args.output)?;
    let signal = StopSignal::install().map_err(|error| anyhow!("cannot catch Ctrl-C: {error}"))?;
    let recorded = record(&request, &args.output, &args.note, &|| signal.requested())?;
    let text = if args.json { json(args, &recorded)? } else { text(args, &recorded) };
    output::write(None, &text)?;
    let bad = recorded.end.lost * 1000 > recorded.end.events * LOST_PERMILLE;
    Ok(if bad { Done::Untrusted } else { Done::Well })
}

fn request(args: &Record) -> anyhow::Result<RecordRequest> {
    let scope = if !args.run.is_empty() {
        Scope::Command(args.run.clone())
    } else if !args.pid.is_empty() {
        Scope::Pids(args.pid.clone())
    } else if args.all {
        Scope::All
    } else {
        bail!(
            "what shall be recorded? Give --all (the whole machine), --pid N, or a command after `--`, such as \
             schedlab record -o x.slt --for 5s -- ./bench.sh"
        );
    };
    if args.duration == Some(Ns::ZERO) {
        bail!("--for 0: must be longer than 0, such as --for 5s");
    }
    let mut request = RecordRequest::new(scope);
    request.duration = args.duration;
    request.backend = args.backend;
    if let Some(cpu) = args.recorder_cpu {
        let cpus = schedlab_host::machine().online;
        if cpu as usize >= schedlab_model::MAX_CPUS || !cpus.contains(CpuId(cpu)) {
            bail!("--recorder-cpu {cpu}: this machine has the CPUs {cpus}");
        }
        request.recorder_cpu = Some(CpuId(cpu));
    }
    Ok(request)
}

fn text(args: &Record, recorded: &Recorded) -> String {
    let end = &recorded.end;
    let path = args.output.display();
    let mut text = format!(
        "{path}: {} events of {} threads in {}, {} KiB, by {}; the recorder used {} of CPU\n",
        end.events,
        recorded.tasks,
        end.duration,
        recorded.file_bytes.div_ceil(1024),
        recorded.backend.name(),
        end.recorder_cpu
    );
    if end.stolen > Ns::ZERO {
        text += &format!("the hypervisor took {} away meanwhile\n", end.stolen);
    }
    if end.lost > 0 {
        text += &format!(
            "{} events were lost: record for a shorter time, or put the recorder on a quiet CPU with \
             --recorder-cpu\n",
            end.lost
        );
    }
    match end.exit {
        Some(status) if !status.success() => text += &format!("the command ended with {status}\n"),
        _ => {}
    }
    text + &format!("next: schedlab compare {path}\n")
}

fn json(args: &Record, recorded: &Recorded) -> anyhow::Result<String> {
    let end = &recorded.end;
    let value = serde_json::json!({
        "file": args.output.display().to_string(),
        "events": end.events,
        "lost": end.lost,
        "threads": recorded.tasks,
        "duration_ns": end.duration.0,
        "file_bytes": recorded.file_bytes,
        "backend": recorded.backend.name(),
        "recorder_cpu_ns": end.recorder_cpu.0,
        "stolen_ns": end.stolen.0,
        "command_exit": end.exit.and_then(|status| status.code()),
    });
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}
