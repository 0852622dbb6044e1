//! `schedlab doctor`

use crate::args::Doctor;
use crate::{Done, output};
use std::fmt::Write as _;

pub(crate) fn run(args: &Doctor) -> anyhow::Result<Done> {
    let machine = schedlab_host::machine();
    let text = if args.json {
        serde_json::to_string_pretty(&machine)? + "\n"
    } else {
        let mut text = String::new();
        let _ = writeln!(text, "kernel   {} {}", machine.kernel, machine.version);
        let _ = writeln!(text, "machine  {} CPUs, {}", machine.online.count(), machine.model);
        let _ = writeln!(text, "tick     {} a second", machine.hz);
        for (name, value) in &machine.knobs {
            let _ = writeln!(text, "         {name} = {value}");
        }
        text
    };
    output::write(None, &text)?;
    Ok(Done::Well)
}
