//! `schedlab show`

use super::compare::request::{RequestArgs, ServeAndTypes};
use crate::exit::Exit;
use crate::format::{FormatArgs, ResultFormat, paragraphs};
use crate::origin::origin;
use crate::output;
use crate::progress::{Progress, Working};
#[cfg(feature = "parquet")]
use crate::render::show::ParquetTable;
use crate::render::show::{Json, Rows, Text, overview};
use crate::render::xen as render;
use crate::render::{Style, wrap};
use crate::stdin;
use anyhow::{anyhow, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueEnum};
use schedlab_model::Ns;
use schedlab_model::text::shown;
use schedlab_scheduler::SchedulerSpec;
use schedlab_study::compare::Around;
use schedlab_study::gallery::{self, Found};
use schedlab_study::show::{
    About, ShowOptions, ShownServer, found_beside, open, scope, sentences, server_first,
};
use schedlab_study::together::Together;
use schedlab_trace::Recording;
use schedlab_trace::analysis::losses::sentence;
use schedlab_trace::analysis::show::Output as _;
use schedlab_trace::analysis::show::{ALL, Entry, Found as Shown};
use schedlab_trace::analysis::{Answer, By, Scope, timehist};
use std::io::Write;
use std::path::Path;

/// Options that select a part of the events, which have no meaning for a summary of the whole run.
const XEN_ALONE: [&str; 11] =
    ["report", "task", "cgroup", "cpu", "from", "to", "around", "by", "top", "absolute", "serve"];

/// `schedlab show`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab show incident.slt                              an overview
  schedlab show incident.slt --worst 10                   the ten longest waits, and why
  schedlab show incident.slt --serve redis-server         its waits first, and their causes
  schedlab show a.slt --latency --task 'redis*'           run-queue latency of some tasks
  schedlab show a.slt --timehist --from 2s --to 2.1s      each time on a CPU, as perf sched \
  timehist
  schedlab show a.slt --blame --by cgroup --json          which groups delay which, as JSON
  schedlab show node.slt --latency --by pod               run-queue latency of each pod
  schedlab show host.slt --steal                          which guest lost time to which other
  schedlab show node.slt --by unit --report units.html    a page by unit of systemd
  schedlab show incident.slt --report incident.html       a page with charts
  schedlab show fleet/ --serve redis-server               a row for each recording, outliers first
  schedlab show a.slt --task 'redis*' --around worst --report worst.html     of their longest wait
  schedlab show a.slt --latency --format parquet > waits.parquet
  schedlab show two-hogs --slices --scheduler linux-6.1   of a simulated scenario
  schedlab show two-hogs --timehist --scheduler bpf:mine.bpf.o --kernel-btf vmlinux
  schedlab show xen-bare-caps --scheduler xen-credit2 --variant 'cap 25' --xl --xenalyze

Several analyses may be asked for at once. An analysis that needs more than the recording has \
refuses by name.")]
pub(crate) struct ShowArgs {
    /// Analyse this recording (.slt), trace of another tool, scenario (.toml), scenario of the
    /// gallery by name, or folder of recordings, one from each machine; `-` is standard input
    pub(crate) input: String,
    #[command(flatten)]
    pub(crate) analyses: Analyses,
    /// Show only these tasks: a name, a glob such as 'redis*', a thread's or process' id
    #[arg(long, value_name = "NAME|PID")]
    pub(crate) task: Option<String>,
    /// Show only tasks of this control group and those below it
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<String>,
    #[command(flatten)]
    pub(crate) serve: RequestArgs<ServeAndTypes>,
    /// Show only this CPU
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<u32>,
    /// Begin at this time since the start of the recording, such as 2s
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) from: Option<Ns>,
    /// End at this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) to: Option<Ns>,
    /// Show the part around this time, or around a wait by its rank in --worst (worst, worst:3;
    /// with --task or --serve of those tasks): 2 s, or twice a longer wait
    #[arg(long, value_name = "TIME|WAIT", conflicts_with_all = ["from", "to"])]
    pub(crate) around: Option<Around>,
    /// Group tasks by this [default: by name, listings by thread]
    #[arg(long, value_name = "WHAT")]
    pub(crate) by: Option<Grouped>,
    /// Show at most this many rows where the largest are shown
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<usize>,
    /// Print times of the recording's clock (as perf prints them) instead of times since its start
    #[arg(long)]
    pub(crate) absolute: bool,
    /// Simulate a scenario under this scheduler [default: its first]
    #[arg(short, long, value_name = "SCHEDULER")]
    pub(crate) scheduler: Option<SchedulerSpec>,
    /// Simulate this variant of a scenario [default: its first row]
    #[arg(long, value_name = "NAME")]
    pub(crate) variant: Option<String>,
    /// Print a Xen host at the end of a scenario's run, as `xl sched-credit`, `xl sched-credit2`
    /// and `xl vcpu-list` do
    #[arg(long, help_heading = "Xen", conflicts_with_all = XEN_ALONE)]
    pub(crate) xl: bool,
    /// Print the time by run state of each vCPU, as `xenalyze --summary` does, in nanoseconds
    /// instead of cycles
    #[arg(long, help_heading = "Xen", conflicts_with_all = XEN_ALONE)]
    pub(crate) xenalyze: bool,
    /// Write a page to this file instead: one HTML file with charts, without other files
    #[arg(long, value_name = "FILE.html")]
    #[arg(conflicts_with_all = ["json", "format", "cpu", "top", "absolute"])]
    pub(crate) report: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// How tasks are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Grouped {
    /// By thread
    Thread,
    /// By name
    Name,
    /// By process: its main thread's name and its id
    Process,
    /// By control group
    Cgroup,
    /// By systemd unit; without one by session
    Unit,
    /// By container: the runtime and the first digits of the id
    Container,
    /// By pod of Kubernetes: namespace and name, or uid; and class of service
    Pod,
    /// By guest of KVM; other tasks by name
    Guest,
}

/// The chosen analyses, in the order of the list. Their options come from the list, so that a new
/// analysis needs no line here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Analyses(Vec<(usize, Option<usize>)>);

impl clap::Args for Analyses {
    fn augment_args(command: Command) -> Command {
        ALL.iter().fold(command, |command, entry| {
            let arg =
                Arg::new(entry.name).long(entry.name).help(entry.about).help_heading("Analyses");
            command.arg(match entry.takes {
                Some(value) => {
                    arg.value_name(value).value_parser(clap::value_parser!(u32).range(1..=100_000))
                }
                None => arg.action(ArgAction::SetTrue),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Analyses::augment_args(command)
    }
}

impl clap::FromArgMatches for Analyses {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Analyses, clap::Error> {
        let mut chosen = Analyses::default();
        chosen.update_from_arg_matches(matches)?;
        Ok(chosen)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for (index, entry) in ALL.iter().enumerate() {
            match entry.takes {
                Some(_) => {
                    if let Some(&number) = matches.get_one::<u32>(entry.name) {
                        self.0.push((index, Some(number as usize)));
                    }
                }
                None if matches.get_flag(entry.name) => self.0.push((index, None)),
                None => {}
            }
        }
        Ok(())
    }
}

impl ShowArgs {
    /// Whether an analysis was asked for.
    pub(crate) fn has_analyses(&self) -> bool {
        !self.analyses.0.is_empty()
    }
}

/// Shows a folder, or one recording or scenario.
pub(crate) fn run(args: &ShowArgs) -> anyhow::Result<Exit> {
    match super::fleet::is_folder(&args.input) {
        true => super::fleet::show(args),
        false => one(args),
    }
}

/// Calls tasks as what a page takes them together by.
fn take_together(args: &ShowArgs, recording: &mut Recording) {
    let by = match options(args).by {
        Some(by) => Together::new(by),
        None => Some(Together::default()),
    };
    if let Some(by) = by.map(|by| by.of(&recording.header)).filter(|by| !by.is_by_name()) {
        recording.header = by.named(&recording.header);
    }
}

fn one(args: &ShowArgs) -> anyhow::Result<Exit> {
    orders_rows(args)?;
    let working = Progress::with_verb(&format!("reading {}", args.input));
    let found = gallery::find(&stdin::given(&args.input)?)?;
    read_objects(args, &found)?;
    if args.format.is_parquet() {
        one_table(args)?;
    }
    if args.xl || args.xenalyze {
        drop(working);
        return xen(args, found);
    }
    if let Some(path) = listed(args, &found) {
        // A pipe can be read once: all of it is read before anything is shown.
        if let Some(about) = schedlab_study::show::about(path)? {
            drop(working);
            return list(args, path, &about);
        }
    }
    let scheduler =
        args.scheduler.as_ref().map(|spec| schedlab_study::compare::modelled_by(spec).0);
    let is_recording = matches!(found, Found::Recording(_));
    let mut recording = open(found, scheduler.as_ref(), args.variant.as_deref(), args.to)?;
    drop(working);
    let mut scope = scope(&recording, &options(args))?;
    let server = server(args, is_recording, &recording, &mut scope)?;
    if let Some(path) = &args.report {
        take_together(args, &mut recording);
        return report(args, path, &recording, (&scope, server.as_ref()));
    }
    let chosen = chosen(args, &recording, &scope)?;
    let working = Progress::with_verb(&format!("analysing {} events", recording.events.len()));
    let answer = || Answers::new(args, &chosen, &recording, (&scope, server));
    let (found, answer) = found_beside(&chosen, &recording, answer);
    let stdout = stdout();
    let clock = if args.absolute { recording.header.clock_start_ns } else { 0 };
    let format = args.format.get();
    #[cfg(feature = "parquet")]
    if args.format.is_parquet() {
        let table = parquet(&recording, found, clock)?;
        drop(working);
        output::write_bytes(None, &table)?;
        return Ok(Exit::Done);
    }
    if matches!(format, ResultFormat::Csv | ResultFormat::Ndjson) {
        let mut rows = Rows::new(stdout, format, &recording, clock);
        found.into_iter().try_for_each(|found| found(&mut rows))?;
        drop(working);
        rows.finish()?;
    } else if format == ResultFormat::Markdown {
        let text = as_text(args, &recording, (found, &answer), Vec::new(), Style::markdown())?;
        drop(working);
        output::write(None, &paragraphs(&String::from_utf8(text)?))?;
    } else if format == ResultFormat::Json {
        let about = (answer.found.as_ref(), answer.server.as_ref());
        let mut json = Json::new(stdout, &args.input, &recording, &scope, clock, about)?;
        for ((entry, _), found) in chosen.iter().zip(found) {
            json.analysis(entry.name)?;
            found(&mut json)?;
        }
        drop(working);
        json.finish()?.flush()?;
    } else {
        as_text(args, &recording, (found, &answer), stdout, Style::of_stdout())?.flush()?;
        drop(working);
    }
    Ok(Exit::Done)
}

/// Reads the scheduler in BPF under which a scenario is simulated.
fn read_objects(args: &ShowArgs, found: &Found) -> anyhow::Result<()> {
    let of_scenario = match found {
        Found::Scenario(scenario) if args.scheduler.is_none() => scenario.schedulers.first(),
        _ => None,
    };
    Ok(args.serve.0.read_schedulers(args.scheduler.iter().chain(of_scenario))?)
}

/// Analyses whose rows are in the order of time or of CPUs.
const NOT_BY_TASK: [&str; 3] = ["timehist", "stream", "runqueue"];

/// Returns the server whose rows come first: the one that was named; for text, JSON and pages,
/// which say so, also the one that is guessed in a recording.
fn server(
    args: &ShowArgs,
    is_recording: bool,
    recording: &Recording,
    scope: &mut Scope,
) -> anyhow::Result<Option<ShownServer>> {
    let rows = [ResultFormat::Csv, ResultFormat::Ndjson].contains(&args.format.get());
    let silent = !is_recording || rows || args.format.is_parquet();
    if silent && args.serve.serve().is_none() {
        return Ok(None);
    }
    Ok(server_first(recording, &options(args), scope)?)
}

/// Refuses a server where no row can come first.
fn orders_rows(args: &ShowArgs) -> anyhow::Result<()> {
    let name = |&(index, _): &(usize, Option<usize>)| ALL[index].name;
    let mut names = args.analyses.0.iter().map(name);
    match names.clone().next().filter(|_| names.all(|name| NOT_BY_TASK.contains(&name))) {
        Some(name) if args.serve.serve().is_some() => bail!(
            "--serve: the rows of --{name} are in the order of time or of CPUs, so that those of a \
             server cannot come first; --task shows only those of some tasks"
        ),
        _ => Ok(()),
    }
}

/// The analyses that are asked for, each with what it looks at, once the recording is known to hold
/// what they need.
fn chosen(
    args: &ShowArgs,
    recording: &Recording,
    scope: &Scope,
) -> anyhow::Result<Vec<(&'static Entry, Scope)>> {
    let chosen: Vec<(&'static Entry, Scope)> = match args.analyses.0.is_empty() {
        true => overview_of(recording, scope),
        false => {
            let with = |top: Option<usize>| Scope { top: top.or(scope.top), ..scope.clone() };
            args.analyses.0.iter().map(|&(index, top)| (&ALL[index], with(top))).collect()
        }
    };
    for (entry, _) in &chosen {
        entry.check(&recording.header).map_err(|error| anyhow!("{}: {error}", args.input))?;
    }
    Ok(chosen)
}

/// Writes the page of a recording.
fn report(
    args: &ShowArgs,
    path: &Path,
    recording: &Recording,
    about: (&Scope, Option<&ShownServer>),
) -> anyhow::Result<Exit> {
    if !args.analyses.0.is_empty() {
        bail!(
            "--report always holds the same sections: leave out the analyses, or leave out --report"
        );
    }
    output::check(path)?;
    let page = schedlab_study::page::of_recording(recording, &args.input, about, &origin(None)?)?;
    output::write(Some(path), &page.render()?)?;
    Ok(Exit::Done)
}

/// The only analysis as a Parquet file.
#[cfg(feature = "parquet")]
fn parquet(recording: &Recording, found: Vec<Shown<'_>>, clock: u64) -> anyhow::Result<Vec<u8>> {
    let [found] = <[_; 1]>::try_from(found).map_err(|_| one_analysis())?;
    let mut table = ParquetTable::new(recording, clock);
    found(&mut table)?;
    table.finish()
}

/// Refuses what does not make one table, and to write it to a terminal.
fn one_table(args: &ShowArgs) -> anyhow::Result<()> {
    if args.analyses.0.len() != 1 || args.xl || args.xenalyze {
        return Err(one_analysis());
    }
    output::no_terminal(None, "--format parquet")
}

fn one_analysis() -> anyhow::Error {
    anyhow!(
        "--format parquet holds one table: ask for one analysis, such as --latency (`export \
         --parquet DIR` writes the tables of a recording)"
    )
}

/// What the recording says before any table.
struct Answers {
    asked: bool,
    found: Option<Answer>,
    server: Option<ShownServer>,
    /// In sentences.
    said: String,
}

/// Analyses that are about who waits.
const OF_WAITS: [&str; 4] = ["worst", "latency", "blame", "tasks"];

impl Answers {
    fn new(
        args: &ShowArgs,
        chosen: &[(&Entry, Scope)],
        recording: &Recording,
        (scope, server): (&Scope, Option<ShownServer>),
    ) -> Answers {
        let has_guests = || recording.header.tasks.iter().any(|task| task.vcpu);
        let about = |(entry, _): &(&Entry, Scope)| {
            OF_WAITS.contains(&entry.name) || entry.name == "steal" && has_guests()
        };
        let format = args.format.get();
        let shown = !matches!(format, ResultFormat::Csv | ResultFormat::Ndjson);
        let asked = shown && chosen.iter().any(about) && Answer::check(&recording.header).is_ok();
        let found = if asked { Answer::from_recording(recording, scope) } else { None };
        let sentences = || sentences(recording, scope, found.as_ref(), server.as_ref());
        let said = if asked { sentences() } else { String::new() };
        Answers { asked, found, server, said }
    }

    fn sentences(&self) -> Option<String> {
        self.asked.then(|| self.said.clone())
    }
}

/// Writes the analyses for people.
fn as_text<W: Write>(
    args: &ShowArgs,
    recording: &Recording,
    (found, answer): (Vec<Shown<'_>>, &Answers),
    out: W,
    style: Style,
) -> anyhow::Result<W> {
    let clock = if args.absolute { recording.header.clock_start_ns } else { 0 };
    let mut text = Text::new(out, recording, style, clock);
    if let Some(sentences) = answer.sentences() {
        text.line(&format!("{}\n", style.bold(&wrap(&sentences, style.width, 0))))?;
    }
    let guess = answer.server.as_ref().and_then(|server| server.guess.as_ref());
    let serve = guess.map(|guess| {
        let serve = format!("serve: {}", shown(&guess.sentence()));
        format!("{}\n", style.dim(&wrap(&serve, style.width, 0)))
    });
    // Behind the answer: that of these sentences, or that of the analysis.
    if let Some(serve) = serve.as_ref().filter(|_| answer.asked) {
        text.line(serve)?;
    }
    if args.analyses.0.is_empty() {
        text.line(&overview(&shown(&args.input), recording, &style))?;
    }
    for found in found {
        found(&mut text)?;
    }
    if let Some(serve) = serve.filter(|_| !answer.asked) {
        text.line(&serve)?;
    }
    text.note_sched_ext(recording)?;
    text.note_repairs(recording, recording.events.len())?;
    if args.analyses.0.is_empty() {
        text.note_lost_facts(recording)?;
    }
    Ok(text.finish()?)
}

/// Returns the recording of which only the times on a CPU are asked for, which need not all of it
/// in memory.
fn listed<'a>(args: &ShowArgs, found: &'a Found) -> Option<&'a Path> {
    let alone =
        matches!(args.analyses.0[..], [(index, _)] if ALL[index].name == timehist::ENTRY.name);
    let text = args.format.is_table()
        && args.report.is_none()
        && args.around.is_none()
        && args.scheduler.is_none()
        && args.variant.is_none();
    match found {
        Found::Recording(path) if alone && text => Some(path),
        _ => None,
    }
}

/// Prints `--timehist` as text while the recording is read.
fn list(args: &ShowArgs, path: &Path, known: &About) -> anyhow::Result<Exit> {
    let about = &known.recording;
    let scope = scope(about, &options(args))?;
    timehist::ENTRY.check(&about.header).map_err(|error| anyhow!("{}: {error}", args.input))?;
    let clock = if args.absolute { about.header.clock_start_ns } else { 0 };
    let mut text = Text::new(stdout(), about, Style::of_stdout(), clock);
    let listed = text.times_on_cpu(&about.header, &scope, |lanes| {
        schedlab_study::show::list(path, known, scope.to, lanes)
    })?;
    match &listed {
        Ok(Some(listed)) => {
            if let Some(missing) = sentence(&listed.losses.within(&scope)) {
                text.note(&missing)?;
            }
            text.note_sched_ext(&listed.about)?;
            text.note_repairs(&listed.about, listed.events)?;
        }
        _ => text.cut_short(),
    }
    // The rows before a fault are shown.
    text.finish()?.flush()?;
    listed?;
    Ok(Exit::Done)
}

fn stdout() -> std::io::BufWriter<std::io::StdoutLock<'static>> {
    std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock())
}

fn options(args: &ShowArgs) -> ShowOptions {
    ShowOptions {
        task: args.task.clone(),
        cgroup: args.cgroup.clone(),
        cpu: args.cpu,
        from: args.from,
        to: args.to,
        around: args.around,
        serve: args.serve.serve().map(str::to_owned),
        top: args.top,
        by: args.by.map(by),
    }
}

/// What the option means to analyses.
pub(crate) fn by(of: Grouped) -> By {
    match of {
        Grouped::Thread => By::Thread,
        Grouped::Name => By::Name,
        Grouped::Process => By::Process,
        Grouped::Cgroup => By::Cgroup,
        Grouped::Unit => By::Unit,
        Grouped::Container => By::Container,
        Grouped::Pod => By::Pod,
        Grouped::Guest => By::Guest,
    }
}

/// Prints a Xen host as Xen's own tools do.
fn xen(args: &ShowArgs, found: Found) -> anyhow::Result<Exit> {
    let Found::Scenario(scenario) = found else {
        bail!(
            "--xl and --xenalyze show a simulated Xen host: give a scenario such as xen-ping, not \
             {}",
            args.input
        );
    };
    if !args.analyses.0.is_empty() {
        bail!("--xl and --xenalyze exclude other analyses: ask for those in a call of their own");
    }
    let working = Working::new(format!("simulating {}", args.input), true);
    let host =
        schedlab_study::xen::observe(&scenario, args.scheduler.as_ref(), args.variant.as_deref())?;
    drop(working);
    let text = |_: &Style| {
        let parts =
            [args.xl.then(|| render::xl(&host)), args.xenalyze.then(|| render::xenalyze(&host))];
        parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
    };
    output::write(None, &args.format.print(None, || Ok(&host), text)?)?;
    Ok(Exit::Done)
}

/// Returns the analyses of the overview, which is shown without options.
fn overview_of(recording: &Recording, scope: &Scope) -> Vec<(&'static Entry, Scope)> {
    let has_guests = recording.header.tasks.iter().any(|task| task.vcpu);
    let is_wanted = |name: &str| match name {
        "steal" => has_guests,
        _ => ["tasks", "worst"].contains(&name),
    };
    // Threads of all guests have the same names.
    let by = scope.by.or(has_guests.then_some(By::Guest));
    let wanted = ALL.iter().filter(|entry| is_wanted(entry.name));
    let possible = wanted.filter(|entry| entry.check(&recording.header).is_ok());
    let mut chosen: Vec<_> = possible
        .map(|entry| (entry, Scope { top: scope.top.or(Some(3)), by, ..scope.clone() }))
        .collect();
    chosen.reverse();
    chosen.sort_by_key(|(entry, _)| entry.name != "steal");
    chosen
}
