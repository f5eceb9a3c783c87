//! `weir-sync keys` and `weir-sync reset`: top keys, single keys, and resetting a key.

use clap::builder::RangedU64ValueParser;
use clap::{Arg, ArgMatches, Command};
use hyper::Method;
use serde_json::Value;

use super::api::{Api, ApiRequest, asking, comment};
use super::output::{CommandOutput, CommandResult, Failure};
use super::table::{shown, table};

/// Names of the commands.
pub(super) const NAME: &str = "keys";
pub(super) const RESET: &str = "reset";
/// Maximum number of listed keys.
const KEYS_MAX: u64 = 1_000;

/// Note on a list that lacks the keys of other weir-syncs.
const PARTIAL: &str =
    "\nThese are not all keys: the store is out of reach, or a weir-sync is of another version.\n";

/// Definition of the command line of `keys`.
pub(super) fn command() -> Command {
    let value = Arg::new("value").value_name("VALUE").requires("key-rule");
    selecting(asking(Command::new(NAME)))
        .about("Lists the fleet's busiest keys; or says all that is known of one")
        .arg(Arg::new("key-rule").value_name("RULE").requires("value").help("The rule of one key, and ..."))
        .arg(value.help("... its value: an address or a network, or as the list has it"))
}

/// Definition of the command line of `reset`.
pub(super) fn reset_command() -> Command {
    one_key(asking(Command::new(RESET)))
        .about("Resets a key in the whole fleet: it starts anew, full and not banned")
        .arg(comment())
}

/// Adds the options that select keys.
pub(super) fn selecting(command: Command) -> Command {
    let option = |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    let most = RangedU64ValueParser::<u64>::new().range(1..=KEYS_MAX);
    command
        .arg(option("rule", "RULE").help("Only keys of this rule"))
        .arg(option("prefix", "TEXT").help("Only keys that begin so, as the list has them"))
        .arg(
            option("sort", "BY")
                .value_parser(["limited", "admitted", "debt"])
                .default_value("limited")
                .help("What the first of them has most of"),
        )
        .arg(option("limit", "N").value_parser(most).default_value("20").help("How many"))
}

/// Adds the arguments that name a key.
pub(super) fn one_key(command: Command) -> Command {
    let value = Arg::new("value").value_name("VALUE").required(true);
    command
        .arg(Arg::new("key-rule").value_name("RULE").required(true).help("The rule"))
        .arg(value.help("Its key: an address or a network, or as `weir-sync keys` lists it"))
}

/// Rule and value of the key that is named; none if there is none.
pub(super) fn named(matches: &ArgMatches) -> Option<(&str, &str)> {
    let text = |name| matches.get_one::<String>(name).map(String::as_str);
    Some((text("key-rule")?, text("value")?))
}

/// Shows the top keys, or one key.
pub(super) async fn run(matches: &ArgMatches) -> CommandResult {
    let api = Api::of(matches)?;
    let is_json = matches.get_flag("json");
    let Some((rule, value)) = named(matches) else {
        let answer = selected(&api, matches).await?;
        return Ok(if is_json { CommandOutput::json(&answer) } else { CommandOutput::done(list(&answer)) });
    };
    let answer = api.ask(ApiRequest::get(&["keys", rule, value])).await?.body;
    Ok(if is_json { CommandOutput::json(&answer) } else { CommandOutput::done(one(&answer)) })
}

/// Requests the keys that the command line selects.
pub(super) async fn selected(api: &Api, matches: &ArgMatches) -> Result<Value, Failure> {
    let mut ask = ApiRequest::get(&["keys"]);
    for name in ["rule", "prefix", "sort"] {
        if let Some(text) = matches.get_one::<String>(name) {
            ask = ask.query(name, text);
        }
    }
    let limit = matches.get_one::<u64>("limit").copied().unwrap_or(KEYS_MAX);
    Ok(api.ask(ask.query("limit", &limit)).await?.body)
}

/// Resets a key.
pub(super) async fn reset(matches: &ArgMatches) -> CommandResult {
    let api = Api::of(matches)?;
    let (rule, value) = named(matches).unwrap_or_default();
    let path = ["keys", rule, value];
    let ask = ApiRequest::new(Method::DELETE, &path).comment(matches.get_one("comment"))?;
    let answer = api.ask(ask).await?.body;
    if matches.get_flag("json") {
        return Ok(CommandOutput::json(&answer));
    }
    let key = answer["key"].as_str().unwrap_or(value);
    Ok(CommandOutput::done(format!(
        "{} of {} starts anew, at every POP within a second.\n",
        shown(key),
        shown(rule)
    )))
}

/// Table of keys.
pub(super) fn list(answer: &Value) -> String {
    let keys = answer["keys"].as_array().map_or(&[][..], Vec::as_slice);
    let notes = notes(answer, keys.len());
    if keys.is_empty() {
        return format!("No key is busy: all are far from their quotas, or nobody asks.\n{notes}");
    }
    let row = |key: &Value| {
        let cell = |field: &str| cell(&key[field]);
        // `pops` lists only those with the highest demand.
        let regions = key["regions"].as_array().into_iter().flatten();
        let pops: u64 = regions.filter_map(|region| region["pops"].as_u64()).sum();
        vec![
            cell("rule"),
            cell("key"),
            cell("asked_per_s"),
            cell("admitted_per_s"),
            cell("limited_per_s"),
            cell("level"),
            cell("debt"),
            pops.to_string(),
            cell("since"),
            cell("banned_until"),
        ]
    };
    let head = [
        "RULE",
        "KEY",
        "ASKED/S",
        "ADMITTED/S",
        "LIMITED/S",
        "LEVEL",
        "DEBT",
        "POPS",
        "SINCE",
        "BANNED UNTIL",
    ];
    table(&head, &keys.iter().map(row).collect::<Vec<_>>()) + &notes
}

/// Notes below a table of `listed` keys.
fn notes(answer: &Value, listed: usize) -> String {
    let found = answer["found"].as_u64().and_then(|found| usize::try_from(found).ok()).unwrap_or_default();
    let more = (found > listed).then(|| format!("\n{listed} of {found} keys: --limit lists more.\n"));
    let alone = (answer["is_partial"] == true).then_some(PARTIAL).map(str::to_owned);
    more.into_iter().chain(alone).collect()
}

/// Renders an object: a line per field, a table per list.
pub(super) fn one(answer: &Value) -> String {
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
pub(super) fn of_list(items: &[Value]) -> String {
    let Some(first) = items.first().and_then(Value::as_object) else {
        return items.iter().map(|item| shown(&cell(item)) + "\n").collect();
    };
    let names: Vec<&str> = first.keys().map(String::as_str).collect();
    let titles: Vec<String> = names
        .iter()
        .map(|name| shown(&name.replace("_per_s", "/s").replace('_', " ").to_uppercase()))
        .collect();
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let rows: Vec<Vec<String>> =
        items.iter().map(|item| names.iter().map(|name| cell(&item[*name])).collect()).collect();
    table(&titles, &rows)
}

/// Text of a value in a table.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => amount(number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}

/// Number with one decimal. A number below a tenth, such as the rate of `1/h`, has its first two significant
/// digits.
fn amount(number: f64) -> String {
    let (mut digits, mut scaled) = (1, number.abs());
    while scaled > 0.0 && scaled < 0.95 && digits < 9 {
        (digits, scaled) = (digits + 1, scaled * 10.0);
    }
    format!("{number:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_key_is_told_with_all_that_is_known_of_it() {
        let pop = |name: &str, rate: f64| json!({"pop": name, "asked_per_s": rate});
        let answer = json!({
            "rule": "login", "key": "192.0.2.7/32", "level": -3.25, "banned_until": null,
            "pops": [pop("ams1", 100.0), pop("fra1", 2.04)], "leases": [],
        });
        let expected = "banned_until:  -\nkey:           192.0.2.7/32\nlevel:         -3.2\nrule:          login\n\n\
                        pops:\nASKED/S  POP\n  100.0  ams1\n    2.0  fra1\n";
        assert_eq!(one(&answer), expected);
    }

    #[test]
    fn small_rates_are_told_too() {
        let told = [0.0, 1.0 / 3_600.0, 5.0 / 60.0, 0.5, 0.999, 20.04, -0.02].map(amount);
        assert_eq!(told, ["0.0", "0.00028", "0.083", "0.50", "1.0", "20.0", "-0.020"]);
    }

    #[test]
    fn a_table_counts_all_pops_and_says_what_it_lacks() {
        let pops = vec![json!({"pop": "a"}); 6];
        let region = |pops: u64| json!({"region": "fra", "pops": pops});
        let key =
            json!({"rule": "login", "key": "192.0.2.7", "pops": pops, "regions": [region(30), region(11)]});
        let page = list(&json!({"keys": [key], "found": 3, "is_partial": true}));
        assert!(
            page.lines().nth(1).is_some_and(|row| row.split_whitespace().any(|cell| cell == "41")),
            "{page}"
        );
        assert!(page.contains("1 of 3 keys") && page.contains("the store is out of reach"), "{page}");
        assert!(
            list(&json!({"keys": [], "found": 0, "is_partial": true})).contains("the store is out of reach")
        );
        assert_eq!(list(&json!({"keys": [key], "found": 1, "is_partial": false})).lines().count(), 2);
    }
}
