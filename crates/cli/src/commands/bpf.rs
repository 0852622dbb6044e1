//! `schedlab bpf`

use crate::exit::Exit;
use crate::output;
use schedlab_model::text::shown;
use schedlab_scheduler::sched_ext::{BpfOption, Inspection, KernelView, ListedMap};
use schedlab_study::objects;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Width of a list of names.
const WIDTH: usize = 96;

/// `schedlab bpf`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum BpfCommand {
    /// List callbacks, calls, maps and options of a sched_ext object, and what the simulator lacks
    Inspect(InspectArgs),
    /// Write the profile of a sched_ext scheduler that this kernel runs (`?profile=FILE`)
    Snapshot(SnapshotArgs),
}

/// `schedlab bpf snapshot`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo schedlab bpf snapshot scx_bpfland -o now.toml
  schedlab compare two-hogs --scheduler 'bpf:bpfland.bpf.o?profile=now.toml' --kernel-btf vmlinux

The profile has the scheduler's read-only variables, which its user half sets before it loads, the \
numbers of its struct sched_ext_ops, and the sizes of its maps. It has neither entries of maps nor \
the programs that the user half ran: add those by hand (docs/guide/sched-ext.md).

Exit codes: 0 done, 2 the scheduler does not run, or cannot be looked at, for the reason that is printed.")]
pub(crate) struct SnapshotArgs {
    /// Take this one: its name (/sys/kernel/sched_ext/root/ops), or that of its program
    scheduler: String,
    /// Write the variables that its programs change while they run, too (.data and .bss)
    #[arg(long)]
    state: bool,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// `schedlab bpf inspect`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab bpf inspect mine.bpf.o
  schedlab bpf inspect mine.bpf.o --kernel-btf vmlinux      also what that kernel lacks
  schedlab compare two-hogs --scheduler linux-7.2 --scheduler 'bpf:mine.bpf.o?slice_ns=5ms' \\
                            --kernel-btf vmlinux

The kernel's types are in /sys/kernel/btf/vmlinux of a machine whose kernel has sched_ext (Linux \
6.12 and later, with CONFIG_SCHED_CLASS_EXT).

Exit codes: 0 the object can run, 1 it cannot, for the reason that is printed, 2 it is no scheduler.")]
pub(crate) struct InspectArgs {
    /// Look into this object, as clang makes it
    object: PathBuf,
    /// Say what the kernel with these types lacks: /sys/kernel/btf/vmlinux, or a vmlinux
    #[arg(long, value_name = "FILE")]
    kernel_btf: Option<PathBuf>,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(command: &BpfCommand) -> anyhow::Result<Exit> {
    match command {
        BpfCommand::Inspect(args) => inspect(args),
        BpfCommand::Snapshot(args) => snapshot(args),
    }
}

#[cfg(feature = "machine")]
fn snapshot(args: &SnapshotArgs) -> anyhow::Result<Exit> {
    if let Some(path) = &args.output {
        output::check(path)?;
    }
    let profile = schedlab_lab::snapshot::snapshot(&args.scheduler, args.state)?;
    output::write(args.output.as_deref(), &profile)?;
    Ok(Exit::Done)
}

#[cfg(not(feature = "machine"))]
fn snapshot(args: &SnapshotArgs) -> anyhow::Result<Exit> {
    anyhow::bail!(
        "this schedlab was built without the feature `machine`, so that it cannot look at the \
         scheduler {} that runs: build it with --features machine{}{}",
        shown(&args.scheduler),
        if args.state { ", and give --state then" } else { "" },
        if args.output.is_some() { "; nothing was written" } else { "" }
    )
}

fn inspect(args: &InspectArgs) -> anyhow::Result<Exit> {
    if let Some(path) = &args.output {
        output::check(path)?;
    }
    let found = objects::inspect(&args.object, args.kernel_btf.as_deref())?;
    output::write(args.output.as_deref(), &text(&found))?;
    let refused = found.kernel.as_ref().is_some_and(|kernel| kernel.refused.is_some());
    Ok(if refused { Exit::ExpectationFailed } else { Exit::Done })
}

fn text(found: &Inspection) -> String {
    let mut text = String::new();
    let (scheduler, form) = (shown(&found.scheduler), shown(&found.form));
    let _ = writeln!(text, "{scheduler}: struct {form}, {} instructions", found.instructions);
    for (name, value) in &found.values {
        let _ = writeln!(text, "  ops.{} = {value:#x}", shown(name));
    }
    text += "\nCallbacks (instructions that each reaches)\n";
    for one in &found.callbacks {
        let never = one.never.map_or_else(String::new, |why| format!("  never called: {why}"));
        let _ = writeln!(text, "  {:<22} {:>6}{never}", shown(&one.name), one.instructions);
    }
    names(&mut text, "Kernel functions", &found.kfuncs);
    names(&mut text, "Helpers", &found.helpers);
    if !found.maps.is_empty() {
        text += "\nMaps\n";
        found.maps.iter().for_each(|one| map(&mut text, one));
    }
    if !found.options.is_empty() {
        text += "\nOptions (?name=value), with their values in the object\n";
        found.options.iter().for_each(|one| option(&mut text, one));
    }
    names(&mut text, "Programs that nothing runs here", &found.not_run);
    match &found.kernel {
        Some(kernel) => of_kernel(&mut text, kernel),
        None => text += "\nWith --kernel-btf FILE: what that kernel and the simulator lack.\n",
    }
    text
}

/// A heading and names with commas between them.
fn names(text: &mut String, heading: &str, names: &[String]) {
    if names.is_empty() {
        return;
    }
    let _ = write!(text, "\n{heading} ({})\n ", names.len());
    let mut width = 1;
    for (at, name) in names.iter().enumerate() {
        let name = shown(name);
        let end = if at + 1 < names.len() { "," } else { "" };
        if width + name.len() + 2 > WIDTH {
            text.push_str("\n ");
            width = 1;
        }
        let _ = write!(text, " {name}{end}");
        width += name.len() + 2;
    }
    text.push('\n');
}

fn map(text: &mut String, map: &ListedMap) {
    let kind = map.kind.unwrap_or("a kind that the simulator does not have");
    let timer = if map.timer { ", with a timer" } else { "" };
    let _ = writeln!(
        text,
        "  {:<22} {kind}: key {}, value {}, at most {}{timer}",
        shown(&map.name),
        map.key,
        map.value,
        map.max
    );
}

fn option(text: &mut String, option: &BpfOption) {
    let value = option.default.map_or_else(String::new, |value| format!(" = {value}"));
    let (name, ty) = (shown(&option.name), shown(&option.ty));
    let _ = writeln!(text, "  {name:<22} {ty}{value}  ({})", shown(&option.section));
}

fn of_kernel(text: &mut String, kernel: &KernelView) {
    names(text, "Functions that this kernel does not have", &kernel.absent);
    names(text, "Fields that this kernel does not have", &kernel.fields);
    let lacking: Vec<String> =
        kernel.lacking.iter().map(|(name, callback)| format!("{name} (ops.{callback})")).collect();
    names(text, "What the simulator does not have", &lacking);
    match &kernel.refused {
        Some(why) => {
            let _ = writeln!(text, "\nIt cannot run: {}", shown(why));
        }
        None => text.push_str("\nIt can run: nothing that it reaches is missing.\n"),
    }
}
