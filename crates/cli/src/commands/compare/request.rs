//! The options that `compare` shares with Python, as arguments, and those of them that other
//! commands have too.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use schedlab_study::compare::ReplayFrom;
use schedlab_study::compare::request::{CompareOption, CompareRequest, OPTIONS, Shape};
use std::marker::PhantomData;

/// Which options of [`OPTIONS`] a command has.
pub(crate) trait Which {
    /// Returns whether the command has this one.
    fn has(option: &CompareOption) -> bool;
}

/// All options.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct All;

impl Which for All {
    fn has(_: &CompareOption) -> bool {
        true
    }
}

/// The server alone.
#[cfg(feature = "machine")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Serve;

#[cfg(feature = "machine")]
impl Which for Serve {
    fn has(option: &CompareOption) -> bool {
        option.name == "serve"
    }
}

/// The server, and the kernel's types for schedulers in BPF.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServeAndTypes;

impl Which for ServeAndTypes {
    fn has(option: &CompareOption) -> bool {
        ["serve", "kernel_btf"].contains(&option.name)
    }
}

/// The server, the part of the recording, and what tasks are taken together by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServeAndPart;

impl Which for ServeAndPart {
    fn has(option: &CompareOption) -> bool {
        ["serve", "begin", "end", "around", "by"].contains(&option.name)
    }
}

/// What a recording is replayed from, and the kernel's types for schedulers in BPF.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplayAndTypes;

impl Which for ReplayAndTypes {
    fn has(option: &CompareOption) -> bool {
        ["replay", "kernel_btf"].contains(&option.name)
    }
}

/// What a recording is replayed from, alone.
#[cfg(feature = "machine")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replay;

#[cfg(feature = "machine")]
impl Which for Replay {
    fn has(option: &CompareOption) -> bool {
        option.name == "replay"
    }
}

/// What was asked for by those options of [`OPTIONS`] that `W` has.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestArgs<W = All>(pub(crate) Box<CompareRequest>, PhantomData<W>);

impl<W> RequestArgs<W> {
    /// Returns the server that was asked about.
    pub(crate) fn serve(&self) -> Option<&str> {
        self.0.options.serve.as_deref()
    }

    /// Returns what the recording is to be replayed from; `None`: the usual.
    pub(crate) fn replay(&self) -> Option<ReplayFrom> {
        self.0.replay
    }
}

fn options<W: Which>() -> impl Iterator<Item = &'static CompareOption> {
    OPTIONS.iter().filter(|option| W::has(option))
}

impl<W: Which> Args for RequestArgs<W> {
    fn augment_args(command: Command) -> Command {
        options::<W>().fold(command, |command, option| command.arg(argument(option)))
    }
    fn augment_args_for_update(command: Command) -> Command {
        RequestArgs::<W>::augment_args(command)
    }
}

impl<W: Which> FromArgMatches for RequestArgs<W> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<RequestArgs<W>, clap::Error> {
        let mut request = RequestArgs(Box::default(), PhantomData);
        request.update_from_arg_matches(matches)?;
        Ok(request)
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for option in options::<W>() {
            for text in matches.get_many::<String>(option.name).into_iter().flatten() {
                set(&mut self.0, option, text)?;
            }
        }
        Ok(())
    }
}

/// Takes one value of an option.
fn set(
    request: &mut CompareRequest,
    option: &'static CompareOption,
    text: &str,
) -> Result<(), clap::Error> {
    request
        .set(option, text)
        .map_err(|why| clap::Error::raw(ErrorKind::ValueValidation, format!("{why}\n")))
}

fn argument(option: &'static CompareOption) -> Arg {
    let many = if option.shape.many() { " (may be given several times)" } else { "" };
    let action = if option.shape.many() { ArgAction::Append } else { ArgAction::Set };
    let argument = Arg::new(option.name).long(option.flag).value_name(option.value).action(action);
    let argument = match option.short {
        Some(letter) => argument.short(letter),
        None => argument,
    };
    argument
        .help(format!("{}{many}", option.help))
        // A time with a sign is answered by what a time may be.
        .allow_hyphen_values(option.shape == Shape::Time)
        .value_parser(move |text: &str| CompareRequest::default().set(option, text).map(|()| text.to_owned()))
}
