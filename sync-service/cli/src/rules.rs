//! `weir-sync rules`: the fleet's rule set.

mod put;

use clap::{Arg, ArgMatches, Command};
use hyper::Method;
use serde_json::{Value, json};

use crate::api::{Api, ApiRequest, ApiResponse, asking, comment};
use crate::names::{Named, Names, given_version};
use crate::output::{self, CommandOutput, CommandResult, Failure, items, pretty, table, text};
use crate::{flag, given, moment, number, required};
use put::lines;

pub(super) const NAME: &str = "rules";

pub(super) fn command() -> Command {
    let version = |name: &'static str| Arg::new(name).value_name("VERSION").value_parser(Named::read);
    let file = Arg::new("file").value_name("FILE").help("The rules, as YAML or JSON; - is the standard input");
    let put = "Puts a file as the rule set, and shows what that changes; one with the same content is not put again";
    let canary = number("canary", "ID", u64::MAX);
    let enforce = required("enforce", "on|off", "Whether rules are enforced");
    let commands = [
        Command::new("get")
            .about("Prints the rule set, as JSON, which `rules put` takes as it is")
            .arg(version("version").long("version").help("A version that is kept, in place of the current one")),
        Command::new("put")
            .about(put)
            .arg(file.clone().required(true))
            .arg(comment())
            .arg(version("if-version").long("if-version").help("Only if this is still the current version"))
            .arg(flag("strict").help("Put nothing if there are warnings"))
            .arg(put::wait())
            .args(put::audience()),
        Command::new("canary")
            .about("Shows the rule set that a part of the POPs runs: which of them, and what it changes"),
        Command::new("promote")
            .about("Makes the canary the rule set of all POPs, as a new version")
            .arg(canary.help("Only if this is the canary, by the number that `rules canary` shows"))
            .arg(comment()),
        Command::new("withdraw").about("Ends the canary: its POPs run what the others do").arg(comment()),
        Command::new("diff")
            .about("Says what a file would change if it were put; ends with 1 if it would change anything")
            .arg(file.required_unless_present("version"))
            .arg(
                version("version")
                    .long("version")
                    .conflicts_with("file")
                    .help("What a rollback to this version would change, instead"),
            ),
        Command::new("versions").about("Lists the versions that are kept: when they were made, by whom and why"),
        Command::new("rollback")
            .about("Restores a kept version as a new one")
            .arg(version("version").required(true).help("The version, as `rules versions` lists it"))
            .arg(comment()),
        Command::new("enforce")
            .about("The kill switch: switches all rules off in the whole fleet, or on again")
            .arg(enforce.value_parser(["on", "off"]))
            .arg(comment()),
    ];
    asking(Command::new(NAME))
        .about("Shows and changes the fleet's rule set")
        .subcommand_required(true)
        .subcommands(commands)
}

pub(super) async fn run(matches: &ArgMatches) -> CommandResult {
    let Some((name, matches)) = matches.subcommand() else {
        return Err(Failure::unusable("expected a command; --help lists them"));
    };
    let api = Api::of(matches)?;
    match name {
        "get" => get(&api, matches).await,
        "put" if matches.contains_id("pops") || matches.contains_id("region") => put::begin(&api, matches).await,
        "put" => put::put(&api, matches).await,
        "canary" => put::show(&api, matches).await,
        "promote" => put::promote(&api, matches).await,
        "withdraw" => put::withdraw(&api, matches).await,
        "diff" if matches.contains_id("version") => diff_version(&api, matches).await,
        "diff" => put::diff(&api, matches).await,
        "versions" => versions(&api).await,
        "rollback" => roll_back(&api, matches).await,
        _ => enforce(&api, matches).await,
    }
}

async fn get(api: &Api, matches: &ArgMatches) -> CommandResult {
    let ApiResponse { version, body } = match given_version(api, matches, "version").await? {
        Some(version) => api.ask(ApiRequest::get(&["rules"]).query("version", &version)).await?,
        None => api.ask(ApiRequest::get(&["rules"])).await?,
    };
    let version = version.unwrap_or_default();
    let (page, names) = (pretty(&body), Names::for_people(api, matches).await);
    let answer = json!({"version": version, "rules": body});
    Ok(CommandOutput::new(answer, page).with_note(format!("version {}", names.of(version))))
}

async fn versions(api: &Api) -> CommandResult {
    let answer = api.ask(ApiRequest::get(&["rules", "versions"])).await?.body;
    let kept = items(&answer["versions"]);
    if kept.is_empty() {
        let page = "There is no rule set of the fleet's: `rules put FILE` makes the first version.\n";
        return Ok(CommandOutput::new(answer, page));
    }
    let names = Names::of_kept(&answer);
    let row = |kept: &Value| {
        let number = |field: &str| kept[field].as_u64().unwrap_or_default();
        let made = moment::text(number("at_s").saturating_mul(1_000));
        vec![names.of(number("version")), made, text(&kept["author"]), text(&kept["note"]), text(&kept["comment"])]
    };
    let rows: Vec<_> = kept.iter().map(row).collect();
    let page = table(&["VERSION", "MADE", "BY", "FROM", "COMMENT"], &rows);
    Ok(CommandOutput::new(answer, page))
}

/// Differences between a kept version and the current one.
async fn differences(api: &Api, to: u64) -> Result<Value, Failure> {
    Ok(api.ask(ApiRequest::get(&["rules", "diff"]).query("to", &to)).await?.body)
}

async fn diff_version(api: &Api, matches: &ArgMatches) -> CommandResult {
    let to = given_version(api, matches, "version").await?.unwrap_or_default();
    let answer = differences(api, to).await?;
    let is_same = answer["is_same"] == true;
    let head = if is_same { "is the same as" } else { "differs from" };
    let names = Names::for_people(api, matches).await;
    let from = names.of(answer["from"].as_u64().unwrap_or_default());
    let page = format!("Version {} {head} the current one, {from}.\n{}", names.of(to), lines(&answer));
    Ok(CommandOutput::new(answer, page).refused_if(!is_same))
}

async fn roll_back(api: &Api, matches: &ArgMatches) -> CommandResult {
    let to = given_version(api, matches, "version").await?.unwrap_or_default();
    let differences = differences(api, to).await?;
    let current = differences["from"].as_u64().unwrap_or_default();
    let ask = ApiRequest::new(Method::POST, &["rules", "rollback"]).replacing(current).json(&json!({"version": to}));
    let made = api.ask(ask.comment(matches.get_one("comment"))?).await?.body["version"].clone();
    let changes = &differences["changes"];
    let answer = json!({"version": made, "previous": current, "to": to, "changes": changes});
    let names = Names::for_people(api, matches).await;
    let [made, to, current] = [made.as_u64().unwrap_or_default(), to, current].map(|version| names.of(version));
    let head = format!("Version {made} is the same as {to}; it replaces {current}.\n");
    Ok(CommandOutput::new(answer, head + &lines(&differences)))
}

async fn enforce(api: &Api, matches: &ArgMatches) -> CommandResult {
    let enforce = given(matches, "enforce") == Some("on");
    let ask = ApiRequest::new(Method::PUT, &["enforcement"]).json(&json!({"enforce": enforce}));
    let answer = api.ask(ask.comment(matches.get_one("comment"))?).await?.body;
    let (made, is_offline) = (&answer["version"], answer["offline"] == true);
    let json = json!({"version": made, "enforce": enforce, "offline": is_offline, "note": answer["note"]});
    let whose = if is_offline { "at the POPs that report to it" } else { "in the whole fleet" };
    let effect = if enforce { "rules are enforced" } else { "no rule limits anything" };
    let head = match made.as_u64() {
        Some(made) if !is_offline => format!("Version {}: ", Names::for_people(api, matches).await.of(made)),
        _ => String::new(),
    };
    let page = format!("{head}{effect}, {whose}.\n");
    Ok(CommandOutput::new(json, page).with_note(output::note(&answer)))
}
