//! A simulated Xen host in the layout of Xen's own tools. No colours: scripts cut these columns.

use schedlab_model::Ns;
use schedlab_study::xen::{Host, Pool, Tally};
use std::fmt::Write as _;

/// Returns the output of `xl sched-credit` or `xl sched-credit2`, then of `xl vcpu-list`.
pub(crate) fn xl(host: &Host) -> String {
    let mut out = String::new();
    let command = format!("xl sched-{}", host.pool.scheduler);
    let _ = writeln!(out, "# {command}");
    let _ = writeln!(out, "{}", pool(&host.pool));
    let _ = writeln!(out, "{:<33} {:>4} {:>6} {:>4}", "Name", "ID", "Weight", "Cap");
    for domain in &host.domains {
        let _ = writeln!(
            out,
            "{:<33} {:>4} {:>6} {:>4}",
            domain.name, domain.id, domain.weight, domain.cap
        );
    }
    let _ = writeln!(out, "\n# xl vcpu-list");
    let columns = ("Name", "ID", "VCPU", "CPU", "State", "Time(s)", "Affinity (Hard / Soft)");
    let (name, id, vcpu, cpu, state, time, affinity) = columns;
    let _ = writeln!(out, "{name:<32} {id:>5} {vcpu:>5} {cpu:>5} {state:>5} {time:>9} {affinity}");
    for domain in &host.domains {
        for vcpu in &domain.vcpus {
            let letters = match vcpu.state {
                'r' => "r-",
                'b' => "-b",
                _ => "--",
            };
            let _ = writeln!(
                out,
                "{:<32} {:>5} {:>5} {:>5}   {letters}- {:>9.1}  {} / {}",
                domain.name,
                domain.id,
                vcpu.vcpu,
                vcpu.cpu,
                seconds(vcpu.time_ns),
                vcpu.hard,
                vcpu.soft
            );
        }
    }
    out
}

fn pool(pool: &Pool) -> String {
    let us = |time: Ns| time.0 / 1000;
    match (pool.tslice_ns, pool.migration_delay_ns) {
        (Some(slice), Some(delay)) => format!(
            "Cpupool {}: tslice={}ms ratelimit={}us migration-delay={}us",
            pool.name,
            slice.0 / 1_000_000,
            us(pool.ratelimit_ns),
            us(delay)
        ),
        _ => format!("Cpupool {}: ratelimit={}us", pool.name, us(pool.ratelimit_ns)),
    }
}

fn seconds(time: Ns) -> f64 {
    time.0 as f64 / 1e9
}

/// Returns the run-state part of `xenalyze --summary`.
pub(crate) fn xenalyze(host: &Host) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "# xenalyze --summary: {} ({}) under {}, seed {}, {:.2}s",
        host.scenario,
        host.variant,
        host.pool.spec,
        host.seed,
        seconds(host.duration_ns)
    );
    let _ = writeln!(
        out,
        "# state: times, total, mean {{5%|50%|95%}} of a stay, in ns (xenalyze: cycles)"
    );
    for domain in &host.domains {
        let _ = writeln!(out, "|-- Domain {} ({}) --|", domain.id, domain.name);
        for vcpu in &domain.vcpus {
            let states = &vcpu.runstates;
            let _ = writeln!(out, " -- v{} -- {}", vcpu.vcpu, vcpu.name);
            let _ = writeln!(out, "  Runstates:");
            tally(&mut out, "running", &states.running);
            tally(&mut out, "runnable", &states.runnable);
            tally(&mut out, "wake", &states.wake);
            tally(&mut out, "preempt", &states.preempt);
            tally(&mut out, "blocked", &states.blocked);
            tally(&mut out, "offline", &states.offline);
            let _ = writeln!(out, "  pCPUs:");
            for runs in &states.pcpus {
                let _ = writeln!(
                    out,
                    "   [{}]: {:>8} {:>8.2}s",
                    runs.cpu,
                    runs.times,
                    seconds(runs.total_ns)
                );
            }
        }
    }
    out
}

/// Writes one line; states in which the vCPU never was are left out. The two kinds of waiting are
/// indented.
fn tally(out: &mut String, name: &str, tally: &Tally) {
    if tally.times == 0 {
        return;
    }
    let name =
        if ["wake", "preempt"].contains(&name) { format!("  {name}") } else { name.to_owned() };
    let _ = writeln!(
        out,
        "   {name:>10}: {:>8} {:>8.2}s {:>9} {{{:>9}|{:>9}|{:>9}}}",
        tally.times,
        seconds(tally.total_ns),
        tally.mean_ns.0,
        tally.p5_ns.0,
        tally.p50_ns.0,
        tally.p95_ns.0
    );
}
