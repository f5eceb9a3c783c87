//! `weir-sync keys`, `top`, `reset` and `explain --live`: the busiest keys, single keys, and the keys of a request.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use hyper::Method;
use serde_json::Value;
use tokio::time::sleep;

use crate::api::{Api, ApiRequest, asking, comment};
use crate::explain::{self, ReadRequest};
use crate::output::{CommandOutput, CommandResult, Failure, items, shown, table, text};
use crate::{given, moment, number, option, required};

pub(super) const NAME: &str = "keys";
pub(super) const TOP: &str = "top";
pub(super) const RESET: &str = "reset";
const KEYS_MAX: u64 = 1_000;

/// Note on a list that lacks the keys of other weir-syncs.
const PARTIAL: &str = "\nThese are not all keys: the store is out of reach, or a weir-sync is of another version.\n";

pub(super) fn commands() -> [Command; 4] {
    let value = Arg::new("value").value_name("VALUE").requires("key-rule");
    [
        selecting(asking(Command::new(TOP)))
            .about("Shows the fleet's busiest keys, until it is interrupted")
            .arg(number("interval-s", "SECONDS", 3_600).default_value("2").help("How often"))
            .arg(number("rounds", "N", u64::MAX).help("How many times, in place of until it is interrupted")),
        selecting(asking(Command::new(NAME)))
            .about("Lists the fleet's busiest keys; or shows all that is known of one")
            .arg(Arg::new("key-rule").value_name("RULE").requires("value").help("The rule of one key, and ..."))
            .arg(value.help("... its value: an address or a network, or as the list has it")),
        one_key(asking(Command::new(RESET)), "Its key: an address or a network, or as `weir-sync keys` lists it")
            .about("Resets a key in the whole fleet: it starts anew, full and not banned")
            .arg(comment()),
        asking(explain::command()).mut_arg("json", |json| json.requires(explain::LIVE)),
    ]
}

fn selecting(command: Command) -> Command {
    command
        .arg(option("rule", "RULE").help("Only keys of this rule"))
        .arg(option("prefix", "TEXT").help("Only keys that begin so, as the list has them"))
        .arg(
            option("sort", "BY")
                .value_parser(["limited", "admitted", "debt"])
                .default_value("limited")
                .help("What the first of them has most of"),
        )
        .arg(number("limit", "N", KEYS_MAX).default_value("20").help("How many"))
}

pub(super) fn one_key(command: Command, help: &'static str) -> Command {
    command.arg(required("key-rule", "RULE", "The rule")).arg(required("value", "VALUE", help))
}

pub(super) fn named(matches: &ArgMatches) -> Option<(&str, &str)> {
    Some((given(matches, "key-rule")?, given(matches, "value")?))
}

pub(super) async fn run(matches: &ArgMatches) -> CommandResult {
    let api = Api::of(matches)?;
    let Some((rule, value)) = named(matches) else {
        let answer = selected(&api, matches).await?;
        let page = list(&answer);
        return Ok(CommandOutput::new(answer, page));
    };
    let answer = api.ask(ApiRequest::get(&["keys", rule, value])).await?.body;
    let page = one(&answer);
    Ok(CommandOutput::new(answer, page))
}

async fn selected(api: &Api, matches: &ArgMatches) -> Result<Value, Failure> {
    let mut ask = ApiRequest::get(&["keys"]);
    for name in ["rule", "prefix", "sort"] {
        if let Some(text) = given(matches, name) {
            ask = ask.query(name, &text);
        }
    }
    let limit = matches.get_one::<u64>("limit").copied().unwrap_or(KEYS_MAX);
    Ok(api.ask(ask.query("limit", &limit)).await?.body)
}

pub(super) async fn reset(matches: &ArgMatches) -> CommandResult {
    let api = Api::of(matches)?;
    let (rule, value) = named(matches).unwrap_or_default();
    let path = ["keys", rule, value];
    let ask = ApiRequest::new(Method::DELETE, &path).comment(matches.get_one("comment"))?;
    let answer = api.ask(ask).await?.body;
    let key = shown(answer["key"].as_str().unwrap_or(value));
    let page = format!("{key} of {} starts anew, at every POP within a second.\n", shown(rule));
    Ok(CommandOutput::new(answer, page))
}

fn list(answer: &Value) -> String {
    let keys = items(&answer["keys"]);
    let notes = notes(answer, keys.len());
    if keys.is_empty() {
        return format!("No key is busy: all are far from their quotas, or get no requests.\n{notes}");
    }
    let row = |key: &Value| {
        // `pops` lists only those with the highest demand.
        let pops: u64 = items(&key["regions"]).iter().filter_map(|region| region["pops"].as_u64()).sum();
        let of = |field: &str| cell(&key[field]);
        let per_s = ["asked_per_s", "admitted_per_s", "limited_per_s"].map(of);
        let rest = [of("level"), of("debt"), pops.to_string(), of("since"), of("banned_until")];
        [of("rule"), of("key")].into_iter().chain(per_s).chain(rest).collect()
    };
    let head = ["RULE", "KEY", "ASKED/S", "ADMITTED/S", "LIMITED/S", "LEVEL", "DEBT", "POPS", "SINCE", "BANNED UNTIL"];
    table(&head, &keys.iter().map(row).collect::<Vec<_>>()) + &notes
}

fn notes(answer: &Value, listed: usize) -> String {
    let found = answer["found"].as_u64().and_then(|found| usize::try_from(found).ok()).unwrap_or_default();
    let more = (found > listed).then(|| format!("\n{listed} of {found} keys: --limit lists more.\n"));
    let alone = (answer["is_partial"] == true).then_some(PARTIAL).map(str::to_owned);
    more.into_iter().chain(alone).collect()
}

/// Renders an object: one line per field, one table per list.
fn one(answer: &Value) -> String {
    let fields = answer.as_object().into_iter().flatten();
    let (lists, plain): (Vec<_>, Vec<_>) = fields.partition(|(_, value)| value.is_array());
    let line = |(name, value): &(&String, &Value)| match value.as_object() {
        Some(fields) => fields.iter().map(|(of, value)| vec![format!("{name}.{of}:"), cell(value)]).collect(),
        None => vec![vec![format!("{name}:"), cell(value)]],
    };
    let rows: Vec<_> = plain.iter().flat_map(line).collect();
    let width = rows.iter().filter_map(|row| row.first()).map(|name| name.chars().count()).max().unwrap_or(0);
    let line = |row: &Vec<String>| {
        let [name, value] = row.as_slice() else { return String::new() };
        format!("{:<width$}  {}\n", shown(name), shown(value))
    };
    let plain: String = rows.iter().map(line).collect();
    let lists = lists.iter().filter_map(|(name, list)| {
        let items = list.as_array().filter(|items| !items.is_empty())?;
        Some(format!("\n{}:\n{}", shown(name), of_list(items)))
    });
    plain + &lists.collect::<String>()
}

/// Table of objects with the same fields; anything else becomes a line per item.
fn of_list(items: &[Value]) -> String {
    let Some(first) = items.first().and_then(Value::as_object) else {
        return items.iter().map(|item| shown(&cell(item)) + "\n").collect();
    };
    let title = |name: &String| shown(&name.replace("_per_s", "/s").replace('_', " ").to_uppercase());
    let titles: Vec<String> = first.keys().map(title).collect();
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let row = |item: &Value| first.keys().map(|name| cell(&item[name])).collect();
    table(&titles, &items.iter().map(row).collect::<Vec<_>>())
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => amount(number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}

/// Formats a number with one decimal, or with two significant digits if it is below 0.95, as the rate of `1/h`.
fn amount(number: f64) -> String {
    let (mut digits, mut scaled) = (1, number.abs());
    while scaled > 0.0 && scaled < 0.95 && digits < 9 {
        (digits, scaled) = (digits + 1, scaled * 10.0);
    }
    format!("{number:.digits$}")
}

/// Escape sequence that moves the cursor to the top and clears the screen below.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// Shows the busiest keys repeatedly. Keeps trying if weir-sync is out of reach after the first answer.
pub(super) async fn top(matches: &ArgMatches) -> CommandResult {
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

/// Prints a page. Returns false once the output is closed.
fn is_shown(page: &str, is_json: bool) -> bool {
    let mut stdout = io::stdout();
    let clear = if stdout.is_terminal() && !is_json { CLEAR } else { "" };
    write!(stdout, "{clear}{page}").and_then(|()| stdout.flush()).is_ok()
}

fn now() -> String {
    moment::text(moment::now_ms())
}

pub(super) async fn explain_live(matches: &ArgMatches, read: ReadRequest) -> CommandResult {
    let request = explain::described(matches, read).map_err(Failure::unusable)?;
    let api = Api::of(matches)?;
    let answer = api.ask(ApiRequest::new(Method::POST, &["keys"]).json(&request)).await?.body;
    let page = explained(&answer);
    Ok(CommandOutput::new(answer, page))
}

fn explained(answer: &Value) -> String {
    let summary = text(&answer["summary"]["text"]) + "\n";
    if answer["list"].is_string() {
        let overrides = match items(&answer["overrides"]) {
            [] => String::new(),
            overrides => format!("\noverrides:\n{}", of_list(overrides)),
        };
        return format!("{summary}\n{overrides}");
    }
    let mut sections = vec![summary];
    sections.extend(items(&answer["keys"]).iter().map(one));
    let others: Vec<_> =
        items(&answer["others"]).iter().map(|row| vec![cell(&row["rule"]), cell(&row["why"])]).collect();
    if !others.is_empty() {
        sections.push(table(&["OTHER RULE", "WHY IT DOES NOT COUNT IT"], &others));
    }
    sections.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_rates_keep_two_digits() {
        let texts = [0.0, 1.0 / 3_600.0, 5.0 / 60.0, 0.5, 0.999, 20.04, -0.02].map(amount);
        assert_eq!(texts, ["0.0", "0.00028", "0.083", "0.50", "1.0", "20.0", "-0.020"]);
    }
}
