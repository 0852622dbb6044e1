//! `schedlab ui`

#[cfg(feature = "machine")]
mod live;

use crate::ending::Ending;
use crate::exit::Exit;
use crate::origin::made_on;
use crate::output;
use schedlab_scheduler::SchedulerSpec;
use schedlab_study::page::Origin;
use schedlab_ui::{Workbench, WorkbenchOptions};
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

/// `schedlab ui`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab ui                                    open the page, and drop a file on it
  schedlab ui redis.slt --serve redis-server     begin with a recording and its server
  schedlab ui incidents/                         a folder: its recordings, worst first
  schedlab ui redis-batch                        a scenario of the gallery
  schedlab ui redis.slt --scheduler bpf:mine.bpf.o --kernel-btf vmlinux
                                                 offer a scheduler in BPF, too
  schedlab ui --live                             watch this machine; a button opens the last 10 s
  schedlab ui redis.slt --no-open --port 8080    for a browser elsewhere: ssh -L 8080:127.0.0.1:8080
  schedlab ui --socket $XDG_RUNTIME_DIR/ui       no port: ssh -L 8080:/run/user/1000/ui HOST

The page is for this machine only: it listens on 127.0.0.1, and the address that it prints has a \
token without which nothing is answered. At a socket other users cannot even connect. What is dropped on the page is kept in files without a \
name, which are gone when the command ends. Ctrl-C ends it (docs/guide/workbench.md).

Exit codes: 0 it was ended, 2 bad input or not possible here.")]
pub(crate) struct UiArgs {
    /// Open these: recordings (.slt), traces of other tools, scenarios (.toml or of the gallery),
    /// or folders of recordings
    #[arg(value_name = "FILE|FOLDER")]
    inputs: Vec<String>,
    /// Ask about this server first: a program, a glob, a pid, a control group or a unit of a
    /// recording [default: the program that the recording shows to be one]
    #[arg(long, value_name = "SERVER")]
    serve: Option<String>,
    /// Offer this scheduler, too: one with options, or an object of sched_ext (bpf:FILE.bpf.o with
    /// --kernel-btf), which a page cannot name itself
    #[arg(long = "scheduler", value_name = "SPEC")]
    schedulers: Vec<SchedulerSpec>,
    /// Lay out the types of schedulers in BPF as this kernel does: /sys/kernel/btf/vmlinux of a
    /// kernel with sched_ext, or a vmlinux
    #[arg(long, value_name = "FILE")]
    kernel_btf: Option<PathBuf>,
    /// Listen on this port of 127.0.0.1 [default: any that is free]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Listen at this socket instead of a port; its folder must be yours alone (mode 0700)
    #[arg(long, value_name = "FILE", conflicts_with = "port")]
    socket: Option<PathBuf>,
    /// Watch this machine, too (needs the rights of `schedlab record`)
    #[cfg(feature = "machine")]
    #[arg(long)]
    live: bool,
    /// Print the address only, and start no browser
    #[arg(long)]
    no_open: bool,
}

pub(crate) fn run(args: &UiArgs) -> anyhow::Result<Exit> {
    let origin = Origin {
        commit: env!("SCHEDLAB_COMMIT").to_owned(),
        made_on: made_on(),
        ..Origin::default()
    };
    let workbench = Workbench::bind(&WorkbenchOptions {
        inputs: args.inputs.clone(),
        serve: args.serve.clone(),
        schedulers: args.schedulers.clone(),
        kernel_btf: args.kernel_btf.clone(),
        port: args.port.unwrap_or(0),
        socket: args.socket.clone(),
        origin,
    })?;
    let ending = Ending::install()?;
    #[cfg(feature = "machine")]
    let workbench = if args.live {
        let flag = ending.flag();
        let asked = || flag.as_ref().is_some_and(|flag| flag.load(Relaxed));
        workbench.watching(Box::new(live::Watched::start(&asked)?))
    } else {
        workbench
    };
    output::write(None, &place(&workbench))?;
    if !args.no_open
        && args.socket.is_none()
        && let Err(why) = open(&workbench)
    {
        output::warn(&format!("No browser was started: {why}. Open the address above.\n"));
    }
    let stop = ending.flag();
    workbench.serve(&|| stop.as_ref().is_some_and(|stop| stop.load(Relaxed)))?;
    Ok(Exit::Done)
}

/// Returns where the workbench is.
fn place(workbench: &Workbench) -> String {
    let address = workbench.address();
    let at = match workbench.socket() {
        None => format!("The workbench is at {address}\n"),
        Some(path) => format!(
            "The workbench is at the socket {}. A browser reaches it through a tunnel:\n  ssh -L \
             8080:{} HOST\n  {address}\n",
            path.display(),
            std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display(),
        ),
    };
    at + "The address is for you alone: it has a token. Ctrl-C ends the workbench, and what was \
          dropped on its page is gone then.\n"
}

/// Starts the user's browser.
fn open(workbench: &Workbench) -> Result<(), String> {
    let has = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !std::io::stdout().is_terminal() {
        return Err("standard output is no terminal".to_owned());
    }
    // The browser of root is another user's business, and most refuse to run as root.
    if is_root() {
        return Err("schedlab runs as root".to_owned());
    }
    if !has("DISPLAY") && !has("WAYLAND_DISPLAY") {
        return Err("there is no graphical session here".to_owned());
    }
    let address = workbench.address_to_open().ok_or("its key was used")?;
    let mut child = Command::new("xdg-open")
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("xdg-open: {error}"))?;
    // It ends at once or with the browser; its exit is not waited for here.
    std::thread::spawn(move || child.wait());
    Ok(())
}

fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&match std::fs::metadata("/proc/self") {
        Ok(data) => data,
        Err(_) => return false,
    }) == 0
}
