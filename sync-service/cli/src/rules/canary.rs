//! `weir-sync rules put --pops` or `--region`, `canary`, `promote` and `withdraw`: a rule set for some of the
//! POPs.

use clap::{Arg, ArgMatches};
use hyper::{Method, StatusCode};
use serde_json::Value;

use super::put::{File, lines, require_none, tried, warnings};
use crate::api::{Api, ApiRequest, ApiResponse, ApiResult};
use crate::names::Names;
use crate::option;
use crate::output::{CommandOutput, CommandResult, Failure, items, text};

/// Path of the canary below `/v1`.
const PATH: [&str; 2] = ["rules", "canary"];

pub(super) fn audience() -> [Arg; 2] {
    [
        option("pops", "A,B")
            .conflicts_with("region")
            .help("Only for these POPs: a canary, which is then promoted or withdrawn"),
        option("region", "REGION")
            .help("Only for the POPs that report to the weir-syncs of this region: a canary, too"),
    ]
}

pub(super) async fn begin(api: &Api, matches: &ArgMatches) -> CommandResult {
    let file = File::read(matches, &["pops", "region"])?;
    let (version, tried) = tried(api, matches, &file).await?;
    let warnings = warnings(&tried);
    require_none(matches, &warnings)?;
    if tried["is_same"] == true {
        let version = Names::known(api).await.of(version);
        let sentence = format!("version {version} is the same already: no canary begins");
        return Err(Failure::refused(sentence));
    }
    let mut answer = file.put(api, file.ask(version).comment(matches.get_one("comment"))?).await?;
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

pub(super) async fn withdraw(api: &Api, matches: &ArgMatches) -> CommandResult {
    let ask = ApiRequest::new(Method::DELETE, &PATH).comment(matches.get_one("comment"))?;
    let answer = api.ask(ask).await?.body;
    let (id, whom) = (&answer["id"], whom(&answer));
    let page = format!("Canary {id} is withdrawn: {whom} runs what all others do.\n");
    Ok(CommandOutput::new(answer, page))
}

fn page(canary: &Value, names: Names) -> String {
    let [running, waiting, refused] = ["running", "waiting", "refused"].map(|field| items(&canary[field]));
    let all = running.len() + waiting.len() + refused.len();
    let comment = text(&canary["comment"]);
    let why = if comment.is_empty() { String::new() } else { format!(": {comment}") };
    let page = format!(
        "Canary {} is for {}, beside version {}, since {} by {}{why}.\nIt runs at {} of {all} POPs.\n",
        canary["id"],
        whom(canary),
        names.of(canary["version"].as_u64().unwrap_or_default()),
        text(&canary["at"]),
        text(&canary["author"]),
        running.len()
    );
    let others = [("Refused by", refused), ("Not yet at", waiting)].map(|(head, pops)| match pops {
        [] => String::new(),
        _ => format!("{head} {}.\n", joined(pops)),
    });
    page + &others.concat()
}

fn whom(canary: &Value) -> String {
    match text(&canary["region"]) {
        region if region.is_empty() => joined(items(&canary["pops"])),
        region => format!("the region {region}"),
    }
}

fn joined(pops: &[Value]) -> String {
    pops.iter().map(text).collect::<Vec<_>>().join(", ")
}
