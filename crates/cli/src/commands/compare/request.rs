//! The options that `compare` shares with Python, as arguments.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use schedlab_study::compare::ReplayFrom;
use schedlab_study::compare::request::{CompareOption, CompareRequest, OPTIONS, Shape};

/// What was asked for by the options of [`OPTIONS`].
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestArgs(pub(crate) Box<CompareRequest>);

impl Args for RequestArgs {
    fn augment_args(command: Command) -> Command {
        OPTIONS.iter().fold(command, |command, option| command.arg(argument(option)))
    }
    fn augment_args_for_update(command: Command) -> Command {
        RequestArgs::augment_args(command)
    }
}

impl FromArgMatches for RequestArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<RequestArgs, clap::Error> {
        let mut request = RequestArgs::default();
        request.update_from_arg_matches(matches)?;
        Ok(request)
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for option in OPTIONS {
            for text in matches.get_many::<String>(option.name).into_iter().flatten() {
                set(&mut self.0, option, text)?;
            }
        }
        Ok(())
    }
}

/// `--replay` as [`OPTIONS`] declares it, for commands that have none of the other options.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplayArg(pub(crate) Option<ReplayFrom>);

impl ReplayArg {
    fn declared() -> impl Iterator<Item = &'static CompareOption> {
        OPTIONS.iter().filter(|option| option.name == "replay")
    }
}

impl Args for ReplayArg {
    fn augment_args(command: Command) -> Command {
        ReplayArg::declared().fold(command, |command, option| command.arg(argument(option)))
    }
    fn augment_args_for_update(command: Command) -> Command {
        ReplayArg::augment_args(command)
    }
}

impl FromArgMatches for ReplayArg {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ReplayArg, clap::Error> {
        let mut replay = ReplayArg::default();
        replay.update_from_arg_matches(matches)?;
        Ok(replay)
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let mut request = CompareRequest::default();
        for option in ReplayArg::declared() {
            for text in matches.get_many::<String>(option.name).into_iter().flatten() {
                set(&mut request, option, text)?;
            }
        }
        self.0 = request.replay.or(self.0);
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
