//! `schedlab import`

use crate::args::Import;
use crate::{Done, output};
use anyhow::{Context, anyhow};
use schedlab_trace::import::{self, ImportOptions};
use std::io::BufReader;

pub(crate) fn run(args: &Import) -> anyhow::Result<Done> {
    output::check(&args.output)?;
    let options = ImportOptions { current_is_waker: args.current_is_waker };
    let imported = if args.input == "-" {
        import::any(std::io::stdin().lock(), options)
    } else {
        let file = std::fs::File::open(&args.input).with_context(|| args.input.clone())?;
        import::any(BufReader::new(file), options)
    };
    let imported = imported.map_err(|error| anyhow!("{}: {error}", args.input))?;
    schedlab_trace::save(&imported.recording, &args.output)?;
    let recording = &imported.recording;
    let mut text = format!(
        "{}: {} events of {} tasks on {} CPUs, {}\n",
        args.output.display(),
        recording.events.len(),
        recording.header.tasks.len(),
        recording.header.topology.cpus(),
        recording.duration
    );
    if !imported.ignored.is_empty() {
        let ignored: Vec<String> =
            imported.ignored.iter().map(|(name, count)| format!("{name} ({count})")).collect();
        text += &format!("left out, because they say nothing about the schedule: {}\n", ignored.join(", "));
    }
    text += &format!("repairs: {}\n", recording.repairs);
    output::write(None, &text)?;
    Ok(Done::Well)
}
