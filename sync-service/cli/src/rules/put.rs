//! `weir-sync rules put` and `diff`. Both first try the change at the weir-sync that would make it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::builder::RangedU64ValueParser;
use clap::{Arg, ArgMatches};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api::{Api, ApiRequest, ApiResponse, ApiResult};
use crate::check::CheckedFile;
use crate::document::source;
use crate::fleet;
use crate::names::{Names, given_version};
use crate::output::{self, CommandOutput, CommandResult, Failure, shown};

/// Media types of a rule set.
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

/// Option that waits for POPs, with its default and its maximum in seconds.
const WAIT: &str = "wait";
const WAIT_S_DEFAULT: &str = "30";
const WAIT_S_MAX: u64 = 3_600;
/// Time to wait for POPs without the option, in seconds, and the polling interval. POPs learn of a version
/// within one interval.
const LOOK_S: u64 = 2;
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// Option that waits until POPs run the file.
pub(super) fn wait() -> Arg {
    let seconds = RangedU64ValueParser::<u64>::new().range(1..=WAIT_S_MAX);
    Arg::new(WAIT)
        .long(WAIT)
        .value_name("SECONDS")
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value(WAIT_S_DEFAULT)
        .value_parser(seconds)
        .conflicts_with_all(["pops", "region"])
        .help("Wait until all POPs run it, for at most SECONDS (30 by default), and end with 1 if one does not")
}

/// Contents of a rules file.
pub(super) struct File<'a> {
    path: &'a str,
    pub(super) media_type: &'static str,
    pub(super) bytes: Bytes,
}

/// Result of a dry run.
struct Tried {
    /// Version that would be replaced; 0 if there is none.
    current: u64,
    /// The whole answer.
    answer: Value,
}

/// Fails if the command line has `--strict` and there are warnings.
pub(super) fn require_none(matches: &ArgMatches, warnings: &[String]) -> Result<(), Failure> {
    if !matches.get_flag("strict") || warnings.is_empty() {
        return Ok(());
    }
    let (found, lines) = (warnings.len(), warnings.join("\n"));
    let sentence = format!("{lines}\n--strict: expected no warnings, found {found}: nothing was put");
    Err(Failure::refused(sentence))
}

/// Puts the file as the rule set.
pub(super) async fn put(api: &Api, matches: &ArgMatches) -> CommandResult {
    let file = File::read(matches)?;
    let comment = matches.get_one::<String>("comment");
    let tried = tried(api, &file, given_version(api, matches, "if-version").await?).await?;
    let current = tried.current;
    let warnings = tried.warnings();
    require_none(matches, &warnings)?;
    let is_same = tried.answer["is_same"] == true;
    let mut note = String::new();
    let made = if is_same {
        current
    } else {
        let ask = ApiRequest::new(Method::PUT, &["rules"]).replacing(current).body(file.media_type, file.bytes.clone());
        let answer = api.try_ask(ask.comment(comment)?).await?;
        let answer = file.accepted(api, answer)?;
        note = output::note(&answer);
        answer["version"].as_u64().unwrap_or_default()
    };
    let fleet = followed(api, matches, made).await?;
    let names = Names::known(api).await;
    let (running, count, others) = fleet::runs(&fleet, names);
    let is_late = matches.contains_id(WAIT) && (running < count || count == 0);
    let answer = json!({
        "version": made, "previous": current, "is_same": is_same, "changes": tried.answer["changes"],
        "warnings": tried.answer["warnings"], "pops": {"running": running, "count": count, "others": others},
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
    let page = head + &lines(&tried.answer) + &runs + &others.collect::<String>();
    let notes = output::lines(warnings.into_iter().chain([note]));
    Ok(CommandOutput::new(answer, page).with_note(notes).refused_if(is_late))
}

/// State of the fleet once every POP runs the version or has refused it, or when the time is over.
async fn followed(api: &Api, matches: &ArgMatches, version: u64) -> Result<Value, Failure> {
    let seconds = matches.get_one::<u64>(WAIT).copied().unwrap_or(LOOK_S);
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        let fleet = api.ask(ApiRequest::get(&["fleet"])).await?.body;
        // Somebody else may have put another version in the meantime.
        let is_over = fleet["rule_set"] != version || fleet::is_settled(&fleet);
        let waits_for_first = matches.contains_id(WAIT) && fleet["pops"] == json!([]);
        if is_over && !waits_for_first || Instant::now() >= deadline {
            return Ok(fleet);
        }
        sleep(LOOK_PAUSE).await;
    }
}

/// Shows the changes that putting the file would make.
pub(super) async fn diff(api: &Api, matches: &ArgMatches) -> CommandResult {
    let file = File::read(matches)?;
    let tried = tried(api, &file, None).await?;
    let is_same = tried.answer["is_same"] == true;
    let (path, current) = (file.path, Names::for_people(api, matches).await.of(tried.current));
    let head = match (is_same, tried.current) {
        (true, _) => format!("{path} is the same as version {current}.\n"),
        (false, 0) => format!("{path} would be the first version.\n"),
        (false, _) => format!("{path} differs from version {current}.\n"),
    };
    let (page, notes) = (head + &lines(&tried.answer), tried.warnings().join("\n"));
    Ok(CommandOutput::new(tried.answer, page).with_note(notes).refused_if(!is_same))
}

/// Makes a dry run of putting the file in place of the current version, or of `expected`.
async fn tried(api: &Api, file: &File<'_>, expected: Option<u64>) -> Result<Tried, Failure> {
    let seen = current(api).await?;
    let ask = ApiRequest::new(Method::PUT, &["rules"]).query("dry_run", &true).replacing(expected.unwrap_or(seen));
    let answer = api.try_ask(ask.body(file.media_type, file.bytes.clone())).await?;
    let answer = file.accepted(api, answer)?;
    if answer["dry_run"] != true {
        return Err(Failure::unusable(format!("{api}: expected the answer to a dry run, found {answer}")));
    }
    Ok(Tried { current: seen, answer })
}

impl Tried {
    /// Warnings, one per line.
    fn warnings(&self) -> Vec<String> {
        warnings(&self.answer)
    }
}

impl<'a> File<'a> {
    pub(super) fn read(matches: &'a ArgMatches) -> Result<Self, Failure> {
        let path = matches.get_one::<String>("file").map_or("", String::as_str);
        let bytes = source::read_file(path, source::FILE_BYTES_MAX);
        let bytes = bytes.map_err(|error| Failure::unusable(format!("{path}: cannot be read: {error}")))?;
        let is_json = path.to_ascii_lowercase().ends_with(".json");
        Ok(Self { path, media_type: if is_json { JSON } else { YAML }, bytes: bytes.into() })
    }

    /// Body of the answer. If weir-sync found errors in the file that this program finds, too, they are
    /// reported with lines and columns.
    pub(super) fn accepted(&self, api: &Api, outcome: ApiResult) -> Result<Value, Failure> {
        match outcome {
            ApiResult::Done(answer) => Ok(answer.body),
            ApiResult::Refused(StatusCode::UNPROCESSABLE_ENTITY, problem) => {
                let Some(found) = CheckedFile::errors_in(self.path, &self.bytes) else {
                    return Err(api.refusal(StatusCode::UNPROCESSABLE_ENTITY, &problem));
                };
                let detail = problem["detail"].as_str().map(shown).unwrap_or_default();
                Err(Failure::refused(format!("refused: {detail}\n{found}")))
            }
            ApiResult::Refused(status, problem) => Err(api.refusal(status, &problem)),
        }
    }
}

/// Warnings in an answer, one per line.
pub(super) fn warnings(answer: &Value) -> Vec<String> {
    let warning = |warning: &Value| {
        let text = |field: &str| warning[field].as_str().map(shown).unwrap_or_default();
        let rule = warning["rule"].as_str().map_or_else(String::new, |rule| format!(" ({})", shown(rule)));
        format!("warning: {}{rule}: {}", text("place"), text("problem"))
    };
    answer["warnings"].as_array().into_iter().flatten().map(warning).collect()
}

pub(super) async fn kept(api: &Api, version: u64) -> Result<ApiResponse, Failure> {
    api.ask(ApiRequest::get(&["rules"]).query("version", &version)).await
}

/// Differences between a kept version and the current one.
pub(super) async fn differences(api: &Api, to: u64) -> Result<Value, Failure> {
    Ok(api.ask(ApiRequest::get(&["rules", "diff"]).query("to", &to)).await?.body)
}

/// Lines of an answer that describe differences.
pub(super) fn lines(answer: &Value) -> String {
    let lines = answer["lines"].as_array().into_iter().flatten().filter_map(Value::as_str);
    lines.map(|line| shown(line) + "\n").collect()
}

/// Version of the current rule set; 0 if there is none.
pub(super) async fn current(api: &Api) -> Result<u64, Failure> {
    match api.try_ask(ApiRequest::get(&["rules"])).await? {
        ApiResult::Done(ApiResponse { version: Some(version), .. }) => Ok(version),
        ApiResult::Done(_) => Err(Failure::unusable(format!("{api}: expected a version (ETag) in the answer"))),
        ApiResult::Refused(StatusCode::NOT_FOUND, _) => Ok(0),
        ApiResult::Refused(status, problem) => Err(api.refusal(status, &problem)),
    }
}
