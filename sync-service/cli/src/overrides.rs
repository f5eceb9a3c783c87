//! `weir-sync ban`, `allow` and `override` with their counterparts, and `overrides`, which lists the overrides.

use clap::{ArgMatches, Command, value_parser};
use hyper::Method;
use serde_json::{Map, Value, json};

use crate::api::{Api, ApiRequest, asking, comment};
use crate::keys::{named, one_key};
use crate::output::{self, CommandOutput, CommandResult, items, shown, table, text};
use crate::{flag, given, option, required};

const BAN: &str = "ban";
const UNBAN: &str = "unban";
const ALLOW: &str = "allow";
const UNALLOW: &str = "unallow";
const OVERRIDE: &str = "override";
const LIST: &str = "overrides";

pub(super) fn commands() -> [Command; 6] {
    let whom = |help: &'static str| required("whom", "WHOM", help);
    let gone = || whom("Its id or its address, as `weir-sync overrides` lists them");
    let key = "Its key: an address, `all`, or `text:` and the value of the one other part";
    let overriding = one_key(until(asking(Command::new(OVERRIDE))), key)
        .about("Gives a key another rate, until a time")
        .arg(option("rate", "RATE").required_unless_present("lift").help("As in a rule: 100/s"))
        .arg(option("burst", "N").value_parser(value_parser!(u64)).help("As in a rule"))
        .arg(flag("lift").conflicts_with_all(["rate", "burst", "until"]).help("Lifts it"));
    [
        until(asking(Command::new(BAN)))
            .about("Refuses an address, a network, or a key of a rule, until a time")
            .arg(whom("An address or a network, as 203.0.113.0/24; or a rule and one of its keys").num_args(1..=2)),
        asking(Command::new(UNBAN)).about("Lifts a ban").arg(gone()).arg(comment()),
        until(asking(Command::new(ALLOW)))
            .about("Lets an address or a network through, past all rules, until a time")
            .arg(whom("An address or a network, as 203.0.113.0/24")),
        asking(Command::new(UNALLOW)).about("Lifts an allow").arg(gone()).arg(comment()),
        overriding,
        asking(Command::new(LIST)).about("Lists the overrides: until when, by whom and why"),
    ]
}

fn until(command: Command) -> Command {
    command
        .arg(option("for", "TIME").default_value("1h").help("For how long, as in 30s, 15m, 1h or 7d"))
        .arg(option("until", "TIME").conflicts_with("for").help("Until when, instead, as in 2026-11-23T12:00:00Z"))
        .arg(option("reason", "TEXT").help("Why, for those who look at the overrides"))
}

pub(super) async fn run(name: &str, matches: &ArgMatches) -> CommandResult {
    let api = Api::of(matches)?;
    match name {
        BAN => give(&api, matches, "bans", "banned").await,
        ALLOW => give(&api, matches, "allows", "allowed").await,
        UNBAN => take_back(&api, matches, "bans", "The ban").await,
        UNALLOW => take_back(&api, matches, "allows", "The allow").await,
        OVERRIDE => overridden(&api, matches).await,
        _ => list(&api).await,
    }
}

fn whom(matches: &ArgMatches) -> Vec<&str> {
    matches.get_many::<String>("whom").into_iter().flatten().map(String::as_str).collect()
}

fn lasting(matches: &ArgMatches) -> Map<String, Value> {
    let end = match given(matches, "until") {
        Some(until) => ("until", until),
        None => ("for", given(matches, "for").unwrap_or_default()),
    };
    let reason = given(matches, "reason").map(|reason| ("reason", reason));
    [end].into_iter().chain(reason).map(|(name, text)| (name.to_owned(), json!(text))).collect()
}

async fn give(api: &Api, matches: &ArgMatches, kind: &str, what: &str) -> CommandResult {
    let mut body = lasting(matches);
    match *whom(matches) {
        [rule, key] => body.extend([("rule".into(), json!(rule)), ("key".into(), json!(key))]),
        _ => body.extend([("address".into(), json!(whom(matches).concat()))]),
    }
    let order = api.ask(ApiRequest::new(Method::PUT, &[kind]).json(&body.into())).await?.body;
    Ok(put(order, what))
}

async fn overridden(api: &Api, matches: &ArgMatches) -> CommandResult {
    let (rule, key) = named(matches).unwrap_or_default();
    let path = ["keys", rule, key, "override"];
    if matches.get_flag("lift") {
        let ask = ApiRequest::new(Method::DELETE, &path).comment(matches.get_one("reason"))?;
        let answer = api.ask(ask).await?.body;
        let page = format!("{} of {} has its rule's rate again.\n", shown(key), shown(rule));
        return Ok(changed(answer, page));
    }
    let mut body = lasting(matches);
    body.extend(given(matches, "rate").map(|rate| ("rate".into(), json!(rate))));
    body.extend(matches.get_one::<u64>("burst").map(|burst| ("burst".into(), json!(burst))));
    let order = api.ask(ApiRequest::new(Method::PUT, &path).json(&body.into())).await?.body;
    Ok(put(order, "given another rate"))
}

fn put(order: Value, what: &str) -> CommandOutput {
    let page = format!("{} is {what} until {}.\n", about(&order), text(&order["until"]));
    let without = order["without_effect"].as_str().map(|why| format!("warning: without effect: {}", shown(why)));
    let notes = output::lines([without.unwrap_or_default(), output::note(&order)]);
    changed(order, page).with_note(notes)
}

fn changed(answer: Value, page: String) -> CommandOutput {
    let note = output::note(&answer);
    CommandOutput::new(answer, page).with_note(note)
}

fn about(order: &Value) -> String {
    match order["address"].as_str() {
        Some(address) => shown(address),
        None => format!("{} of {}", text(&order["key"]), text(&order["rule"])),
    }
}

async fn take_back(api: &Api, matches: &ArgMatches, kind: &str, what: &str) -> CommandResult {
    let whom = &whom(matches).concat();
    let path = [kind, whom.as_str()];
    let ask = ApiRequest::new(Method::DELETE, &path).comment(matches.get_one("comment"))?;
    let answer = api.ask(ask).await?.body;
    let page = format!("{what} of {} is lifted.\n", shown(whom));
    Ok(changed(answer, page))
}

async fn list(api: &Api) -> CommandResult {
    let answer = api.ask(ApiRequest::get(&["overrides"])).await?.body;
    let overrides = items(&answer["overrides"]);
    let lost = answer["lost"].as_u64().map_or_else(String::new, |revision| {
        format!(
            "warning: POPs run revision {revision}, of a rule set that the store has lost: its overrides are not \
             listed. They end in their time; `weir-sync rules put FILE` ends them now"
        )
    });
    if overrides.is_empty() {
        return Ok(CommandOutput::new(answer, "There are no overrides.\n").with_note(lost));
    }
    let row = |order: &Value| {
        let text = |field: &str| match &order[field] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        vec![text("id"), text("kind"), about(order), text("until"), text("author"), text("reason")]
    };
    let rows: Vec<_> = overrides.iter().map(row).collect();
    let page = table(&["ID", "KIND", "WHOM", "UNTIL", "BY", "REASON"], &rows);
    Ok(CommandOutput::new(answer, page).with_note(lost))
}
