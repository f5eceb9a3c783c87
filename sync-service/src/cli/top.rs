//! `weir-sync top`: the busiest keys, again and again.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Arg, ArgMatches, Command};
use tokio::time::sleep;

use super::api::{Api, asking};
use super::keys::{list, selected, selecting};
use super::said::{Answered, Failure, Said};
use crate::moment;

/// The command's name.
pub(super) const NAME: &str = "top";
/// Moves to the corner and clears what is below.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// What the command line looks like.
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

/// Shows them. A weir-sync that is out of reach meanwhile is waited for.
pub(super) async fn run(matches: &ArgMatches) -> Answered {
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
                // No part of what programs read.
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
    Ok(Said::done(""))
}

/// Prints a page; whether somebody may still read.
fn is_shown(page: &str, is_json: bool) -> bool {
    let mut stdout = io::stdout();
    let clear = if stdout.is_terminal() && !is_json { CLEAR } else { "" };
    write!(stdout, "{clear}{page}").and_then(|()| stdout.flush()).is_ok()
}

/// The time, to the second.
fn now() -> String {
    moment::text(moment::now_ms() / 1_000 * 1_000)
}
