//! Commands that use the HTTP API of a running weir-sync; they change nothing except through it.
//!
//! [`rules`], [`fleet`], [`keys`] and [`overrides`] are groups of commands. [`api`] reads the address and the token,
//! and turns an error of the API into a sentence with its remedy. [`output`] formats the output of a command.

mod api;
mod fleet;
mod keys;
mod names;
mod output;
mod overrides;
mod rules;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::{Shell, generate};
use tokio::runtime;

use output::{CommandEnd, CommandOutput, CommandResult, Failure};

/// Command lines of these commands.
pub fn commands() -> impl Iterator<Item = Command> {
    let asking = [
        rules::command(),
        fleet::command(),
        keys::top_command(),
        keys::command(),
        keys::reset_command(),
        keys::explain_command(),
    ];
    asking.into_iter().chain(overrides::commands()).chain([completions_command()])
}

/// Runs the command of this name; none if it is not one of these. `whole` is weir-sync's command line.
pub fn run(name: &str, matches: &ArgMatches, whole: impl FnOnce() -> Command) -> Option<ExitCode> {
    let answered = match name {
        COMPLETIONS => complete(matches, whole()),
        rules::NAME => ask(rules::run(matches)),
        fleet::NAME => ask(fleet::run(matches)),
        crate::explain::NAME => ask(keys::explain_live(matches)),
        keys::TOP => ask(keys::top(matches)),
        keys::NAME => ask(keys::run(matches)),
        keys::RESET => ask(keys::reset(matches)),
        name if overrides::NAMES.contains(&name) => ask(overrides::run(name, matches)),
        _ => return None,
    };
    Some(tell(answered))
}

/// Runs `answer` in a runtime of its own.
fn ask(answer: impl Future<Output = CommandResult>) -> CommandResult {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::unusable(format!("cannot start: {error}")))?;
    let answered = runtime.block_on(answer);
    // Dropping the runtime would wait for a name look-up.
    runtime.shutdown_background();
    answered
}

fn tell(answered: CommandResult) -> ExitCode {
    let (verdict, page, notes) = match answered {
        Ok(said) => (said.verdict, said.page, said.notes),
        Err(Failure { verdict, sentence }) => (verdict, String::new(), sentence),
    };
    // The readers may have closed the pipes.
    if !notes.is_empty() {
        let _ = writeln!(std::io::stderr(), "{}", notes.trim_end());
    }
    let written = write!(std::io::stdout(), "{page}").and_then(|()| std::io::stdout().flush());
    // An output that is cut off must not look complete, unless its reader has closed the pipe.
    match (verdict, written) {
        (CommandEnd::Done, Err(error)) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            let _ = writeln!(std::io::stderr(), "cannot write the answer: {error}");
            CommandEnd::Unusable.into()
        }
        (verdict, _) => verdict.into(),
    }
}

/// Name of the command.
pub(super) const COMPLETIONS: &str = "completions";

/// Definition of the command line.
pub(super) fn completions_command() -> Command {
    let shell = Arg::new("shell").value_name("SHELL").required(true).value_parser(value_parser!(Shell));
    Command::new(COMPLETIONS)
        .about("Prints what a shell reads to complete weir-sync's command lines")
        .after_help("As in: weir-sync completions bash > /etc/bash_completion.d/weir-sync")
        .arg(shell.help("The shell"))
}

/// Generates the completions of `whole`.
fn complete(matches: &ArgMatches, mut whole: Command) -> CommandResult {
    let shell = matches.get_one::<Shell>("shell").copied().unwrap_or(Shell::Bash);
    let mut page = Vec::new();
    let name = whole.get_name().to_owned();
    generate(shell, &mut whole, name, &mut page);
    String::from_utf8(page).map(CommandOutput::done).map_err(|error| Failure::unusable(error.to_string()))
}
