//! `weir-sync completions SHELL`: shell completions.

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::{Shell, generate};

use super::output::{CommandOutput, CommandResult, Failure};

/// Name of the command.
pub(super) const NAME: &str = "completions";

/// Definition of the command line.
pub(super) fn command() -> Command {
    let shell = Arg::new("shell").value_name("SHELL").required(true).value_parser(value_parser!(Shell));
    Command::new(NAME)
        .about("Prints what a shell reads to complete weir-sync's command lines")
        .after_help("As in: weir-sync completions bash > /etc/bash_completion.d/weir-sync")
        .arg(shell.help("The shell"))
}

/// Generates the completions of `whole`.
pub(super) fn run(matches: &ArgMatches, mut whole: Command) -> CommandResult {
    let shell = matches.get_one::<Shell>("shell").copied().unwrap_or(Shell::Bash);
    let mut page = Vec::new();
    let name = whole.get_name().to_owned();
    generate(shell, &mut whole, name, &mut page);
    String::from_utf8(page).map(CommandOutput::done).map_err(|error| Failure::unusable(error.to_string()))
}
