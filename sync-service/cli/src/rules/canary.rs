//! `weir-sync rules put --pops` or `--region`, `canary`, `promote` and `withdraw`: a rule set for some of the
//! POPs.

use clap::{Arg, ArgMatches};
use hyper::{Method, StatusCode};
use serde_json::Value;

use super::put::{File, current, lines, require_none, warnings};
use crate::api::{Api, ApiRequest, ApiResponse, ApiResult};
use crate::names::{Names, given_version};
use crate::output::{CommandOutput, CommandResult, Failure, shown};

/// Path of the canary below `/v1`.
const PATH: [&str; 2] = ["rules", "canary"];

/// Options that select the canary's POPs.
pub(super) fn audience() -> [Arg; 2] {
    let option = |name: &'static str, value| Arg::new(name).long(name).value_name(value);
    [
        option("pops", "A,B")
            .conflicts_with("region")
            .help("Only for these POPs: a canary, which is then promoted or withdrawn"),
        option("region", "REGION")
            .help("Only for the POPs that report to the weir-syncs of this region: a canary, too"),
    ]
}

/// True if a rule set is put for some of the POPs only.
pub(super) fn is_for_some(matches: &ArgMatches) -> bool {
    matches.contains_id("pops") || matches.contains_id("region")
}

pub(super) async fn begin(api: &Api, matches: &ArgMatches) -> CommandResult {
    let file = File::read(matches)?;
    let version = current(api).await?;
    let version = given_version(api, matches, "if-version").await?.unwrap_or(version);
    if version == 0 {
        let sentence = "there is no rule set yet, and so none to try another beside: put one for all POPs first";
        return Err(Failure::refused(sentence));
    }
    let ask = || {
        let ask = ApiRequest::new(Method::PUT, &["rules"]).replacing(version);
        let ask = ask.body(file.media_type, file.bytes.clone());
        let of = |name| matches.get_one::<String>(name);
        match (of("pops"), of("region")) {
            (Some(pops), _) => ask.query("pops", pops),
            (None, region) => ask.query("region", &region.cloned().unwrap_or_default()),
        }
    };
    let tried = file.accepted(api, api.try_ask(ask().query("dry_run", &true)).await?)?;
    let warnings = warnings(&tried);
    require_none(matches, &warnings)?;
    if tried["is_same"] == true {
        let version = Names::known(api).await.of(version);
        let sentence = format!("version {version} is the same already: no canary begins");
        return Err(Failure::refused(sentence));
    }
    let mut answer = file.accepted(api, api.try_ask(ask().comment(matches.get_one("comment"))?).await?)?;
    answer["changes"] = tried["changes"].clone();
    let page = format!(
        "Canary {} is for {}, beside version {}: `rules canary` shows how far it has come.\n",
        answer["canary"],
        whom(&answer),
        Names::for_people(api, matches).await.of(version)
    );
    Ok(CommandOutput::new(answer, page + &lines(&tried)).with_note(warnings.join("\n")))
}

pub(super) async fn show(api: &Api, matches: &ArgMatches) -> CommandResult {
    let canary = match api.try_ask(ApiRequest::get(&PATH)).await? {
        ApiResult::Done(ApiResponse { body, .. }) => body,
        ApiResult::Refused(StatusCode::NOT_FOUND, _) if !matches.get_flag("json") => {
            return Ok(CommandOutput::done(
                "No canary runs: `rules put FILE --pops A,B` or `--region R` begins one.\n",
            ));
        }
        ApiResult::Refused(status, problem) => return Err(api.refusal(status, &problem)),
    };
    let page = page(&canary, Names::for_people(api, matches).await) + &lines(&canary);
    Ok(CommandOutput::new(canary, page))
}

/// Makes the canary the rule set of all POPs.
pub(super) async fn promote(api: &Api, matches: &ArgMatches) -> CommandResult {
    let id = match matches.get_one::<u64>("canary") {
        Some(id) => *id,
        None => api.ask(ApiRequest::get(&PATH)).await?.version.unwrap_or_default(),
    };
    let ask = ApiRequest::new(Method::POST, &["rules", "canary", "promote"]).replacing(id);
    let answer = api.ask(ask.comment(matches.get_one("comment"))?).await?.body;
    let version = Names::for_people(api, matches).await.of(answer["version"].as_u64().unwrap_or_default());
    Ok(CommandOutput::new(answer, format!("Version {version} is the rule set of canary {id}, for all POPs.\n")))
}

/// Ends the canary.
pub(super) async fn withdraw(api: &Api, matches: &ArgMatches) -> CommandResult {
    let ask = ApiRequest::new(Method::DELETE, &PATH).comment(matches.get_one("comment"))?;
    let answer = api.ask(ask).await?.body;
    let (id, whom) = (&answer["id"], whom(&answer));
    let page = format!("Canary {id} is withdrawn: {whom} runs what all others do.\n");
    Ok(CommandOutput::new(answer, page))
}

fn page(canary: &Value, names: Names) -> String {
    let text = |field: &str| canary[field].as_str().map(shown).unwrap_or_default();
    let pops = |field: &str| {
        let names = canary[field].as_array().into_iter().flatten();
        names.filter_map(Value::as_str).map(shown).collect::<Vec<_>>()
    };
    let (running, waiting, refused) = (pops("running"), pops("waiting"), pops("refused"));
    let all = running.len() + waiting.len() + refused.len();
    let why = if text("comment").is_empty() { String::new() } else { format!(": {}", text("comment")) };
    let page = format!(
        "Canary {} is for {}, beside version {}, since {} by {}{why}.\nIt runs at {} of {all} POPs.\n",
        canary["id"],
        whom(canary),
        names.of(canary["version"].as_u64().unwrap_or_default()),
        text("at"),
        text("author"),
        running.len()
    );
    let others = [("Refused by", refused), ("Not yet at", waiting)].map(|(head, pops)| match pops.as_slice() {
        [] => String::new(),
        _ => format!("{head} {}.\n", pops.join(", ")),
    });
    page + &others.concat()
}

/// POPs of a canary.
fn whom(canary: &Value) -> String {
    if let Some(region) = canary["region"].as_str() {
        return format!("the region {}", shown(region));
    }
    let names = canary["pops"].as_array().into_iter().flatten();
    names.filter_map(Value::as_str).map(shown).collect::<Vec<_>>().join(", ")
}
