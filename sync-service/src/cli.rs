//! Commands that use the HTTP API of a running weir-sync; they change nothing except through it.
//!
//! [`rules`], [`fleet`], [`keys`], [`top`], [`overrides`] and [`explain`] are groups of commands. [`api`] reads
//! the address and the token, and turns an error of the API into a sentence with its remedy;
//! [`crate::http_client`] is the HTTP client below it. [`output`] is the output of a command, and [`table`] and
//! [`time`] format it.

mod api;
mod completions;
mod explain;
mod fleet;
mod keys;
mod names;
mod output;
mod overrides;
mod rules;
mod table;
mod time;
mod tls;
mod top;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{ArgMatches, Command};
use tokio::runtime;

use self::output::{CommandEnd, CommandResult, Failure};

/// Command lines of these commands.
pub fn commands() -> impl Iterator<Item = Command> {
    let asking = [
        rules::command(),
        fleet::command(),
        top::command(),
        keys::command(),
        keys::reset_command(),
        explain::command(),
    ];
    asking.into_iter().chain(overrides::commands()).chain([completions::command()])
}

/// Runs the command of this name; none if it is not one of these. `whole` is weir-sync's command line.
pub fn run(name: &str, matches: &ArgMatches, whole: impl FnOnce() -> Command) -> Option<ExitCode> {
    let answered = match name {
        completions::NAME => completions::run(matches, whole()),
        rules::NAME => ask(rules::run(matches)),
        fleet::NAME => ask(fleet::run(matches)),
        crate::explain::NAME => ask(explain::run(matches)),
        top::NAME => ask(top::run(matches)),
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
