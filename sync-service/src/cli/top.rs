//! `weir-sync top`: the busiest keys, again and again.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::builder::RangedU64ValueParser;
use clap::{Arg, ArgMatches, Command};
use tokio::time::sleep;

use super::api::{Api, asking};
use super::keys::{list, selected, selecting};
use super::said::{Answered, Failure, Said};
use super::time::utc;

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
    let mut seen = false;
    for round in 1..=rounds {
        let page = match selected(&api, matches).await {
            Ok(answer) if matches.get_flag("json") => format!("{answer}\n"),
            Ok(answer) => format!("{}  {api}\n\n{}", utc(now_s()), list(&answer)),
            Err(failure) if !seen || round == rounds => return Err(failure),
            Err(Failure { sentence, .. }) => format!("{}  {sentence}\n", utc(now_s())),
        };
        seen = true;
        if !is_shown(&page) {
            break;
        }
        if round < rounds {
            sleep(interval).await;
        }
    }
    Ok(Said::done(""))
}

/// Prints a page; whether somebody may still read.
fn is_shown(page: &str) -> bool {
    let mut stdout = io::stdout();
    let clear = if stdout.is_terminal() { CLEAR } else { "" };
    write!(stdout, "{clear}{page}").and_then(|()| stdout.flush()).is_ok()
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
