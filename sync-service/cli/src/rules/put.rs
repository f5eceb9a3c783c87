//! `weir-sync rules put` and `diff`, which begin with a dry run at weir-sync; and `canary`, `promote` and `withdraw`,
//! for a rule set that only some POPs run.

use bytes::Bytes;
use clap::{Arg, ArgMatches};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::api::{Api, ApiRequest, ApiResponse, ApiResult};
use crate::check::CheckedFile;
use crate::document::source;
use crate::names::{Names, given_version};
use crate::output::{self, CommandOutput, CommandResult, Failure, items, shown, text};
use crate::{fleet, given, number, option};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

/// Option to wait for POPs, with its default and its maximum, in seconds.
const WAIT: &str = "wait";
const WAIT_S_DEFAULT: &str = "30";
const WAIT_S_MAX: u64 = 3_600;
/// Time to wait for POPs without the option, in seconds.
const LOOK_S: u64 = 2;

pub(super) fn wait() -> Arg {
    number(WAIT, "SECONDS", WAIT_S_MAX)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value(WAIT_S_DEFAULT)
        .conflicts_with_all(["pops", "region"])
        .help("Wait until all POPs run it, for at most SECONDS (30 by default), and end with 1 if one does not")
}

struct File<'a> {
    path: &'a str,
    media_type: &'static str,
    bytes: Bytes,
    /// Query parameter that selects the POPs, or `None` for all POPs.
    audience: Option<(&'static str, &'a str)>,
}

impl<'a> File<'a> {
    /// Reads the file that the command line names. One of the options `audience` may select its POPs.
    fn read(matches: &'a ArgMatches, audience: &[&'static str]) -> Result<Self, Failure> {
        let path = given(matches, "file").unwrap_or_default();
        let bytes = source::read_file(path, source::FILE_BYTES_MAX);
        let bytes = bytes.map_err(|error| Failure::unusable(format!("{path}: cannot be read: {error}")))?;
        let is_json = path.to_ascii_lowercase().ends_with(".json");
        let audience = audience.iter().find_map(|name| Some((*name, given(matches, name)?)));
        Ok(Self { path, media_type: if is_json { JSON } else { YAML }, bytes: bytes.into(), audience })
    }

    /// Request that puts the file in place of `version`.
    fn ask(&self, version: u64) -> ApiRequest<'static> {
        let ask = ApiRequest::new(Method::PUT, &["rules"]).replacing(version);
        let ask = ask.body(self.media_type, self.bytes.clone());
        self.audience.iter().fold(ask, |ask, (name, value)| ask.query(name, value))
    }

    /// Sends the request, and returns the body of the answer. Reports errors in the file with lines and columns if this
    /// program finds them too.
    async fn put(&self, api: &Api, ask: ApiRequest<'_>) -> Result<Value, Failure> {
        match api.try_ask(ask).await? {
            ApiResult::Done(answer) => Ok(answer.body),
            ApiResult::Refused(StatusCode::UNPROCESSABLE_ENTITY, problem) => {
                let Some(found) = CheckedFile::errors_in(self.path, &self.bytes) else {
                    return Err(api.refusal(StatusCode::UNPROCESSABLE_ENTITY, &problem));
                };
                Err(Failure::refused(format!("refused: {}\n{found}", text(&problem["detail"]))))
            }
            ApiResult::Refused(status, problem) => Err(api.refusal(status, &problem)),
        }
    }
}

/// Dry run of putting the file in place of the current version or of `--if-version`. Returns the version that would be
/// replaced (0 if there is none) and the answer.
async fn tried(api: &Api, matches: &ArgMatches, file: &File<'_>) -> Result<(u64, Value), Failure> {
    let current = current(api).await?;
    if current == 0 && file.audience.is_some() {
        let sentence = "there is no rule set yet, and so none to try another beside: put one for all POPs first";
        return Err(Failure::refused(sentence));
    }
    let expected = match matches.try_contains_id("if-version") {
        Ok(true) => given_version(api, matches, "if-version").await?.unwrap_or(current),
        // `diff` has no such option.
        _ => current,
    };
    let answer = file.put(api, file.ask(expected).query("dry_run", &true)).await?;
    if answer["dry_run"] != true {
        return Err(Failure::unusable(format!("{api}: expected the answer to a dry run, found {answer}")));
    }
    Ok((current, answer))
}

/// Version of the current rule set; 0 if there is none.
async fn current(api: &Api) -> Result<u64, Failure> {
    match api.try_ask(ApiRequest::get(&["rules"])).await? {
        ApiResult::Done(ApiResponse { version: Some(version), .. }) => Ok(version),
        ApiResult::Done(_) => Err(Failure::unusable(format!("{api}: expected a version (ETag) in the answer"))),
        ApiResult::Refused(StatusCode::NOT_FOUND, _) => Ok(0),
        ApiResult::Refused(status, problem) => Err(api.refusal(status, &problem)),
    }
}

/// Fails if the command line has `--strict` and there are warnings.
fn require_none(matches: &ArgMatches, warnings: &[String]) -> Result<(), Failure> {
    if !matches.get_flag("strict") || warnings.is_empty() {
        return Ok(());
    }
    let (found, lines) = (warnings.len(), warnings.join("\n"));
    let sentence = format!("{lines}\n--strict: expected no warnings, found {found}: nothing was put");
    Err(Failure::refused(sentence))
}

pub(super) async fn put(api: &Api, matches: &ArgMatches) -> CommandResult {
    let file = File::read(matches, &[])?;
    let (current, tried) = tried(api, matches, &file).await?;
    let warnings = warnings(&tried);
    require_none(matches, &warnings)?;
    let is_same = tried["is_same"] == true;
    let mut note = String::new();
    let made = if is_same {
        current
    } else {
        let answer = file.put(api, file.ask(current).comment(matches.get_one("comment"))?).await?;
        note = output::note(&answer);
        answer["version"].as_u64().unwrap_or_default()
    };
    let waits = matches.contains_id(WAIT);
    let is_over = |fleet: &Value| {
        // Somebody else may have put another version in the meantime.
        let is_over = fleet["rule_set"] != made || fleet::is_settled(fleet);
        is_over && !(waits && fleet["pops"] == json!([]))
    };
    let fleet = fleet::watched(api, matches.get_one::<u64>(WAIT).copied().unwrap_or(LOOK_S), is_over).await?;
    let names = Names::known(api).await;
    let (running, count, others) = fleet::runs(&fleet, names);
    let is_late = waits && (running < count || count == 0);
    let answer = json!({
        "version": made, "previous": current, "is_same": is_same, "changes": tried["changes"],
        "warnings": tried["warnings"], "pops": {"running": running, "count": count, "others": others},
    });
    let made = names.of(made);
    let head = match (is_same, current) {
        (true, _) => format!("Version {made} is the same already: nothing was put.\n"),
        (false, 0) => format!("Version {made} is the first.\n"),
        (false, _) => format!("Version {made} replaces {}.\n", names.of(current)),
    };
    let runs = match count {
        0 => "No POP has reported: none runs it yet.\n".to_owned(),
        _ => format!("It runs at {running} of {count} POPs.\n"),
    };
    let others = others.iter().map(|other| format!("  {other}\n"));
    let page = head + &lines(&tried) + &runs + &others.collect::<String>();
    let notes = output::lines(warnings.into_iter().chain([note]));
    Ok(CommandOutput::new(answer, page).with_note(notes).refused_if(is_late))
}

pub(super) async fn diff(api: &Api, matches: &ArgMatches) -> CommandResult {
    let file = File::read(matches, &[])?;
    let (version, tried) = tried(api, matches, &file).await?;
    let is_same = tried["is_same"] == true;
    let (path, current) = (file.path, Names::for_people(api, matches).await.of(version));
    let head = match (is_same, version) {
        (true, _) => format!("{path} is the same as version {current}.\n"),
        (false, 0) => format!("{path} would be the first version.\n"),
        (false, _) => format!("{path} differs from version {current}.\n"),
    };
    let (page, notes) = (head + &lines(&tried), warnings(&tried).join("\n"));
    Ok(CommandOutput::new(tried, page).with_note(notes).refused_if(!is_same))
}

fn warnings(answer: &Value) -> Vec<String> {
    let warning = |warning: &Value| {
        let rule = warning["rule"].as_str().map_or_else(String::new, |rule| format!(" ({})", shown(rule)));
        format!("warning: {}{rule}: {}", text(&warning["place"]), text(&warning["problem"]))
    };
    items(&answer["warnings"]).iter().map(warning).collect()
}

pub(super) fn lines(answer: &Value) -> String {
    items(&answer["lines"]).iter().map(|line| text(line) + "\n").collect()
}

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
