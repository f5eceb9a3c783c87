//! `weir-sync top`: the top keys, refreshed continuously.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Arg, ArgMatches, Command};
use tokio::time::sleep;

use super::api::{Api, asking};
use super::keys::{list, selected, selecting};
use super::output::{CommandOutput, CommandResult, Failure};
use crate::moment;

/// Name of the command.
pub(super) const NAME: &str = "top";
/// Escape sequence that moves the cursor to the top and clears the screen below.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// Definition of the command line.
pub(super) fn command() -> Command {
    let number = |name: &'static str, value: &'static str, max: u64| {
        let range = RangedU64ValueParser::<u64>::new().range(1..=max);
        Arg::new(name).long(name).value_name(value).value_parser(range)
    };
    selecting(asking(Command::new(NAME)))
        .about("Shows the fleet's busiest keys, until it is interrupted")
        .arg(number("interval-s", "SECONDS", 3_600).default_value("2").help("How often"))
        .arg(number("rounds", "N", u64::MAX).help("How many times, in place of until it is interrupted"))
}

/// Shows the keys. If weir-sync is out of reach after the first answer, keeps trying.
pub(super) async fn run(matches: &ArgMatches) -> CommandResult {
    let api = Api::of(matches)?;
    let number = |name| matches.get_one::<u64>(name).copied();
    let interval = Duration::from_secs(number("interval-s").unwrap_or(2));
    let rounds = number("rounds").unwrap_or(u64::MAX);
    let (mut seen, is_json) = (false, matches.get_flag("json"));
    for round in 1..=rounds {
        let page = match selected(&api, matches).await {
            Ok(answer) if is_json => format!("{answer}\n"),
            Ok(answer) => format!("{}  {api}\n\n{}", now(), list(&answer)),
            Err(failure) if !seen || round == rounds => return Err(failure),
            Err(Failure { sentence, .. }) if is_json => {
                // The error must not mix with the output for programs.
                let _ = writeln!(io::stderr(), "{sentence}");
                String::new()
            }
            Err(Failure { sentence, .. }) => format!("{}  {sentence}\n", now()),
        };
        seen = true;
        if !is_shown(&page, is_json) {
            break;
        }
        if round < rounds {
            sleep(interval).await;
        }
    }
    Ok(CommandOutput::done(""))
}

/// Prints a page. Returns false if nobody reads the output any more.
fn is_shown(page: &str, is_json: bool) -> bool {
    let mut stdout = io::stdout();
    let clear = if stdout.is_terminal() && !is_json { CLEAR } else { "" };
    write!(stdout, "{clear}{page}").and_then(|()| stdout.flush()).is_ok()
}

/// Current time, to the second.
fn now() -> String {
    moment::text(moment::now_ms() / 1_000 * 1_000)
}
