//! `weir-sync explain --live`: the keys of a request, and their state in a running fleet.

use clap::{ArgMatches, Command};
use hyper::Method;
use serde_json::Value;

use super::api::{Api, ApiRequest, asking};
use super::keys::{of_list, one};
use super::output::{CommandOutput, CommandResult, Failure};
use super::table::{shown, table};
use crate::explain;

/// Definition of the command line, with a file or with a fleet.
pub(super) fn command() -> Command {
    asking(explain::command()).mut_arg("json", |json| json.requires(explain::LIVE))
}

/// Shows the state of the described request's keys.
pub(super) async fn run(matches: &ArgMatches) -> CommandResult {
    let request = explain::described(matches).map_err(Failure::unusable)?;
    let api = Api::of(matches)?;
    let answer = api.ask(ApiRequest::new(Method::POST, &["keys"]).json(&request)).await?.body;
    Ok(if matches.get_flag("json") {
        CommandOutput::json(&answer)
    } else {
        CommandOutput::done(page(&answer))
    })
}

/// Text for people.
fn page(answer: &Value) -> String {
    let summary = format!("{}\n", answer["summary"]["text"].as_str().map(shown).unwrap_or_default());
    if answer["list"].is_string() {
        let overrides = match answer["overrides"].as_array().map_or(&[][..], Vec::as_slice) {
            [] => String::new(),
            overrides => format!("\noverrides:\n{}", of_list(overrides)),
        };
        return format!("{summary}\n{overrides}");
    }
    let list = |name: &str| answer[name].as_array().map_or(&[][..], Vec::as_slice);
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or("-").to_owned();
    let mut sections = vec![summary];
    sections.extend(list("keys").iter().map(one));
    let others: Vec<_> = list("others").iter().map(|row| vec![text(row, "rule"), text(row, "why")]).collect();
    if !others.is_empty() {
        sections.push(table(&["OTHER RULE", "WHY IT DOES NOT COUNT IT"], &others));
    }
    sections.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_key_is_told_and_why_other_rules_do_not_count() {
        let key =
            json!({"rule": "login", "key": "192.0.2.7", "grant": {"admit_ratio": 0.5, "watch_level": "hot"}});
        let other = json!({"rule": "api", "why": "its path is another"});
        let summary = json!({"text": "It may be limited."});
        let told = page(&json!({"summary": summary, "list": null, "keys": [key], "others": [other]}));
        let expected = "It may be limited.\n\ngrant.admit_ratio:  0.50\ngrant.watch_level:  hot\nkey:                192.0.2.7\n\
                        rule:               login\n\nOTHER RULE  WHY IT DOES NOT COUNT IT\napi         its path is another\n";
        assert_eq!(told, expected);
        let denied = page(&json!({"summary": summary, "list": "deny", "keys": []}));
        assert_eq!(denied, "It may be limited.\n\n");
    }
}
