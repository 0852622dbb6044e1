//! The work of agents, as text.

use schedlab_model::Ns;
use schedlab_sim::DelegationCosts;
use schedlab_study::delegation::DelegationResult;
use schedlab_study::result::Study;

/// Returns a line for each row whose scheduler ran behind agents.
pub(crate) fn lines(study: &Study) -> Vec<String> {
    let rows = study.rows.iter().filter_map(|row| Some((row, row.delegation.as_ref()?)));
    rows.map(|(row, agents)| format!("{}, {}: {}", row.scheduler, row.variant, line(agents, study)))
        .collect()
}

fn line(agents: &DelegationResult, study: &Study) -> String {
    let failed: u64 = agents.failed.iter().map(|(_, count)| count).sum();
    let reasons: Vec<String> =
        agents.failed.iter().filter(|(_, n)| *n > 0).map(|(why, n)| format!("{why} {n}")).collect();
    let reasons =
        if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    let window = (study.duration_ns - study.warmup_ns).max(1) as f64;
    let part = |ns: u64| 100.0 * ns as f64 / window;
    let (cpu, busy) =
        agents.agents.iter().fold((0, 0), |(cpu, busy), a| (cpu + a.cpu_ns, busy + a.busy_ns));
    let count = match agents.agents.len() {
        1 => "agent".to_owned(),
        n => format!("{n} agents"),
    };
    let mut text = format!(
        "{count} ({}): {} messages, {} transactions in {} commits, {failed} failed{reasons}; \
         {:.1} % of a CPU, {:.1} % busy",
        agents.mode,
        agents.messages,
        agents.transactions,
        agents.commits,
        part(cpu),
        part(busy)
    );
    if let Some(at) = agents.agents_lost_at_ns {
        text += &format!("; lost at {}", Ns(at));
    }
    if let Some(at) = agents.fell_back_at_ns {
        text += &format!("; the kernel's own scheduler took over at {}", Ns(at));
    }
    text
}

/// Returns the costs of delegation and where they come from, each set once.
pub(crate) fn explanation(study: &Study) -> Vec<String> {
    let mut told: Vec<&DelegationResult> = Vec::new();
    let mut lines = Vec::new();
    for agents in study.rows.iter().filter_map(|row| row.delegation.as_ref()) {
        if told
            .iter()
            .any(|other| other.costs == agents.costs && other.costs_from == agents.costs_from)
        {
            continue;
        }
        told.push(agents);
        lines.push(format!("costs of delegation ({}):", agents.provenance));
        for (name, ns) in &agents.costs {
            let doc = DelegationCosts::NAMES
                .iter()
                .find(|(known, _)| known == name)
                .map_or("", |(_, doc)| doc);
            lines.push(format!("  {name} = {}: {doc}", Ns(*ns)));
        }
        let sums: Vec<String> =
            agents.sums.iter().map(|(name, ns)| format!("{name} {}", Ns(*ns))).collect();
        lines.push(format!("  which come to: {}", sums.join(", ")));
    }
    lines
}
