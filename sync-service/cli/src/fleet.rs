//! `weir-sync fleet`: the rule set version and the status of each POP.

use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};
use serde_json::Value;
use tokio::time::sleep;

use crate::api::{Api, ApiRequest, asking};
use crate::names::Names;
use crate::output::{CommandOutput, CommandResult, Failure, items, shown, span, table, text};
use crate::{flag, number};

pub(super) const NAME: &str = "fleet";
const WAIT_S_MAX: u64 = 3_600;
/// Polling interval: about the time in which a new version reaches the POPs.
const PAUSE: Duration = Duration::from_millis(250);

pub(super) fn command() -> Command {
    let wait = number("wait-s", "SECONDS", WAIT_S_MAX).requires("strict");
    asking(Command::new(NAME))
        .about("Shows the fleet's POPs: their versions of the rule set, their connectivity, and their last reports")
        .arg(flag("strict").help("End with 1 unless there are POPs, and all run the current version"))
        .arg(wait.help("With --strict: how long to wait until they do"))
}

pub(super) async fn run(matches: &ArgMatches) -> CommandResult {
    let api = Api::of(matches)?;
    let is_strict = matches.get_flag("strict");
    let patience = matches.get_one::<u64>("wait-s").copied().unwrap_or_default();
    let fleet = watched(&api, patience, |fleet| !is_strict || is_current(fleet)).await?;
    let page = page(&fleet, Names::for_people(&api, matches).await);
    let offline = fleet["offline"].as_str().map(|why| {
        format!(
            "warning: {}: these are the POPs that report to this weir-sync, and the rule set it sends them",
            shown(why)
        )
    });
    let is_refused = is_strict && !is_current(&fleet);
    let output = CommandOutput::new(fleet, page).with_note(offline.unwrap_or_default());
    Ok(output.refused_if(is_refused))
}

/// State of the fleet once `is_over` returns true, or after `patience_s` seconds.
pub(super) async fn watched(api: &Api, patience_s: u64, is_over: impl Fn(&Value) -> bool) -> Result<Value, Failure> {
    let deadline = Instant::now() + Duration::from_secs(patience_s);
    loop {
        let fleet = api.ask(ApiRequest::get(&["fleet"])).await?.body;
        if is_over(&fleet) || Instant::now() >= deadline {
            return Ok(fleet);
        }
        sleep(PAUSE).await;
    }
}

fn is_current(fleet: &Value) -> bool {
    let pops = items(&fleet["pops"]);
    !pops.is_empty() && pops.iter().all(|pop| pop["is_current"] == true)
}

/// Number of POPs that run the rule set, number of all POPs, and a line with the reason for each POP that does not.
pub(super) fn runs(fleet: &Value, names: Names) -> (usize, usize, Vec<String>) {
    let pops = items(&fleet["pops"]);
    let (current, others): (Vec<&Value>, Vec<&Value>) = pops.iter().partition(|pop| pop["is_current"] == true);
    let why = |pop: &&Value| format!("{}: {}{}", text(&pop["name"]), state(pop, fleet, names), refusal(pop));
    (current.len(), pops.len(), others.iter().map(why).collect())
}

/// True if every POP runs the rule set or has refused it.
pub(super) fn is_settled(fleet: &Value) -> bool {
    let has_refused = |pop: &Value| pop["refused"] == fleet["version"];
    items(&fleet["pops"]).iter().all(|pop| pop["is_current"] == true || has_refused(pop))
}

/// Reason why a POP refused a rule set, with a leading colon; empty if there is none.
fn refusal(pop: &Value) -> String {
    pop["refusal"].as_str().map(|why| format!(": {}", shown(why))).unwrap_or_default()
}

fn page(fleet: &Value, names: Names) -> String {
    let pops = items(&fleet["pops"]);
    let runs = |pop: &&Value| pop["is_current"] == true && pop["is_canary"] != true;
    let current = pops.iter().filter(runs).count();
    // POPs run a revision: the version with its overrides.
    let rule_set = fleet["rule_set"].as_u64().or(fleet["version"].as_u64()).unwrap_or_default();
    let of = match rule_set {
        0 if fleet["lost"].is_u64() => format!(
            "The store has lost the fleet's rule set, and POPs run revision {} of it: `weir-sync rules put FILE` puts \
             it again",
            fleet["lost"]
        ),
        0 => "There is no rule set of the fleet's: POPs run their own configuration's".to_owned(),
        version => format!("Version {} runs at {current} of {} POPs", names.of(version), pops.len()),
    };
    if pops.is_empty() {
        return format!("{of}.\nNo POP has reported: are they up, and do they reach a weir-sync?\n");
    }
    let row = |pop: &Value| {
        let version = pop["version"].as_u64().unwrap_or_default();
        let reported = format!("{} ago", span(pop["silent_s"].as_f64().unwrap_or_default()));
        let shown = match version {
            0 => "-".into(),
            _ if pop["is_current"] == true && pop["is_canary"] == true => "canary".into(),
            _ if pop["is_current"] == true => names.of(rule_set),
            version => version.to_string(),
        };
        let clock = pop["clock_s"].as_f64().map(|s| if s.abs() < 0.05 { "0.0 s".into() } else { format!("{s:+.1} s") });
        let [name, region, replica] = ["name", "region", "replica"].map(|field| text(&pop[field]));
        let [connectivity, module] = ["connectivity", "module"].map(|field| match text(&pop[field]) {
            known if known.is_empty() => "-".to_owned(),
            known => known,
        });
        let clock = clock.unwrap_or_else(|| "-".to_owned());
        vec![name, region, replica, shown, state(pop, fleet, names), connectivity, clock, module, reported]
    };
    let rows: Vec<_> = pops.iter().map(row).collect();
    let canary = match &fleet["canary"] {
        Value::Null => String::new(),
        canary => format!(" A canary runs: {}; `rules canary` shows it.", canary["id"]),
    };
    let head = ["POP", "REGION", "REPLICA", "VERSION", "STATE", "SYNC", "CLOCK", "MODULE", "REPORTED"];
    let refusals = pops.iter().filter(|pop| pop["is_current"] != true && pop["refusal"].is_string());
    let refusals: Vec<_> = refusals.map(|pop| format!("{}{}\n", text(&pop["name"]), refusal(pop))).collect();
    let gap = if refusals.is_empty() { "" } else { "\n" };
    format!("{of}.{canary}\n\n{}{gap}{}", table(&head, &rows), refusals.concat())
}

fn state(pop: &Value, fleet: &Value, names: Names) -> String {
    let refused = pop["refused"].as_u64().unwrap_or_default();
    match pop["version"].as_u64().unwrap_or_default() {
        // Earlier refusals do not matter.
        _ if pop["is_current"] == true => "current".into(),
        _ if refused > 0 && fleet["canary"]["revision"] == refused => "refused the canary".into(),
        _ if refused > 0 && fleet["version"] == refused => {
            format!("refused {}", names.of(fleet["rule_set"].as_u64().unwrap_or_default()))
        }
        _ if refused > 0 => format!("refused {refused}"),
        0 => "its own rules".into(),
        _ if fleet["lost"].is_u64() => "lost".into(),
        _ => "behind".into(),
    }
}
