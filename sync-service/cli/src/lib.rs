//! The commands of `weir-sync`, and how rule files are read and checked.
//!
//! [`check`], [`explain`] and [`import`] read files. The other commands use the HTTP API of a running weir-sync, and
//! change nothing except through it. weir-sync itself uses [`document`] (rule sets, JSON and YAML with places),
//! [`check::warn`], [`explain::others`], [`moment`] (RFC 3339) and [`credentials`] (tokens, PEM).
//!
//! ```
//! use weir_cli::check::warn::warnings;
//! use weir_cli::document::{Document, Form};
//!
//! let yaml = b"rules:
//!   - {name: login, key: client_address, rate: 5/m, match: {path: /login}}
//!   - {name: slow-login, key: client_address, rate: 9/m, match: {path: /login}}";
//! let document = Document::read(yaml, Form::Yaml).map_err(|errors| format!("{errors:?}"))?;
//! let warnings = warnings(document.rules());
//! assert_eq!((warnings.len(), warnings[0].place.as_str()), (1, "rules[1].match"));
//! assert!(warnings[0].problem.starts_with("never limits: login counts the same requests"));
//! # Ok::<(), String>(())
//! ```

#![allow(missing_docs, reason = "a name that says all needs no comment")]

mod api;
pub mod check;
pub mod credentials;
pub mod document;
pub mod explain;
mod fleet;
pub mod import;
mod keys;
pub mod moment;
mod names;
mod output;
mod overrides;
mod rules;

use std::io::Write as _;
use std::process::ExitCode;

use clap::builder::RangedU64ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use clap_complete::{Shell, generate};
use tokio::runtime;

use explain::ReadRequest;
use output::{CommandEnd, CommandOutput, CommandResult, Failure, pretty};

pub use api::{COMMENT, COMMENT_BYTES_MAX};

pub fn commands() -> impl Iterator<Item = Command> {
    let first = [check::command(), import::command(), rules::command(), fleet::command()];
    first.into_iter().chain(keys::commands()).chain(overrides::commands()).chain([completions_command()])
}

fn option(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value)
}

/// Option with a whole number from 1 to `max`.
fn number(name: &'static str, value: &'static str, max: u64) -> Arg {
    option(name, value).value_parser(RangedU64ValueParser::<u64>::new().range(1..=max))
}

fn flag(name: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue)
}

fn required(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).value_name(value).required(true).help(help)
}

fn given<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_one::<String>(name).map(String::as_str)
}

/// Runs the command `name`. `whole` is weir-sync's command line; `read` parses a request to explain.
pub fn run(name: &str, matches: &ArgMatches, whole: Command, read: ReadRequest) -> ExitCode {
    let result = match name {
        check::NAME => check::run(matches),
        import::NAME => import::run(matches).map(CommandOutput::done).map_err(Failure::unusable),
        explain::NAME if matches.get_flag(explain::LIVE) => ask(keys::explain_live(matches, read)),
        explain::NAME => explain::run(matches, read).map(CommandOutput::done).map_err(Failure::unusable),
        COMPLETIONS => complete(matches, whole),
        rules::NAME => ask(rules::run(matches)),
        fleet::NAME => ask(fleet::run(matches)),
        keys::TOP => ask(keys::top(matches)),
        keys::NAME => ask(keys::run(matches)),
        keys::RESET => ask(keys::reset(matches)),
        name => ask(overrides::run(name, matches)),
    };
    let mut leaf = matches;
    while let Some((_, matches)) = leaf.subcommand() {
        leaf = matches;
    }
    let is_json = leaf.try_get_one::<bool>("json").ok().flatten() == Some(&true);
    print(result, is_json)
}

fn ask(command: impl Future<Output = CommandResult>) -> CommandResult {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::unusable(format!("cannot start: {error}")))?;
    let result = runtime.block_on(command);
    // Dropping the runtime would wait for a name look-up.
    runtime.shutdown_background();
    result
}

fn print(result: CommandResult, is_json: bool) -> ExitCode {
    let (end, page, notes) = match result {
        // Notes are for people.
        Ok(CommandOutput { end, json: Some(json), .. }) if is_json => (end, pretty(&json), String::new()),
        Ok(CommandOutput { end, page, notes, .. }) => (end, page, notes),
        Err(Failure { end, sentence }) => (end, String::new(), sentence),
    };
    // The reader may have closed the pipe.
    if !notes.is_empty() {
        let _ = writeln!(std::io::stderr(), "{}", notes.trim_end());
    }
    let written = write!(std::io::stdout(), "{page}").and_then(|()| std::io::stdout().flush());
    // An output that is cut off must not look complete, unless its reader has closed the pipe.
    let end = match (end, written) {
        (CommandEnd::Done, Err(error)) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            let _ = writeln!(std::io::stderr(), "cannot write the answer: {error}");
            CommandEnd::Unusable
        }
        (end, _) => end,
    };
    ExitCode::from(end as u8)
}

const COMPLETIONS: &str = "completions";

fn completions_command() -> Command {
    let shell = required("shell", "SHELL", "The shell").value_parser(value_parser!(Shell));
    Command::new(COMPLETIONS)
        .about("Prints what a shell reads to complete weir-sync's command lines")
        .after_help("As in: weir-sync completions bash > /etc/bash_completion.d/weir-sync")
        .arg(shell)
}

fn complete(matches: &ArgMatches, mut whole: Command) -> CommandResult {
    let shell = matches.get_one::<Shell>("shell").copied().unwrap_or(Shell::Bash);
    let mut page = Vec::new();
    let name = whole.get_name().to_owned();
    generate(shell, &mut whole, name, &mut page);
    String::from_utf8(page).map(CommandOutput::done).map_err(|error| Failure::unusable(error.to_string()))
}
