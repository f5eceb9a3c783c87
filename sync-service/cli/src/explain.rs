//! `weir-sync explain FILE`: lists the rules that count a request, with its keys.

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};
use weir_budget::id::Hex;
use weir_rules::fleet_secret::FleetSecret;
use weir_rules::key::{KeyPart, KeySpec, KeyValue, Missing, MissingPart};
use weir_rules::matching::{Bits, Clause, Condition, Holds, Test};
use weir_rules::mode::Mode;
use weir_rules::reading::ConfigError;
use weir_rules::request::{Attribute, AttributeId, Fetched, Request, Source, Values};
use weir_rules::{Listed, Rule, RuleSet};

use crate::check::CheckedFile;
use crate::check::explain::condition::{part, source};
use crate::credentials::key_secret;
use crate::{flag, given, option};

/// Flag to query a fleet instead of reading a file.
pub const LIVE: &str = "live";
pub const NAME: &str = "explain";

/// Parser of a request in JSON, in the form of a check's body.
pub type ReadRequest = fn(&Value) -> Result<Box<dyn Request>, Vec<ConfigError>>;

pub fn command() -> Command {
    let file = Arg::new("file").value_name("FILE").required_unless_present(LIVE);
    let live = flag(LIVE).conflicts_with_all(["file", "key-secret-file", "route"]);
    let headers = option("header", "NAME: VALUE").action(ArgAction::Append);
    let claims = option("claim", "A.B=VALUE").action(ArgAction::Append);
    Command::new(NAME)
        .about("Says which rules, and which of their keys, a request would hit, and why no others")
        .arg(file.help("The rules, or a plugin configuration, as YAML or JSON"))
        .arg(live.help("Asks a weir-sync what its fleet knows of the request's keys"))
        .arg(option("method", "METHOD").default_value("GET").help("Its method"))
        .arg(option("path", "PATH").default_value("/").help("Its path, with its query"))
        .arg(option("host", "HOST").help("Its host, with a port or without"))
        .arg(headers.help("One of its headers; may be given again"))
        .arg(option("address", "ADDRESS").help("The client's address"))
        .arg(option("route", "NAME").help("The proxy's name of its route"))
        .arg(claims.help("A claim of its JWT, under these names of Envoy's metadata; may be given again"))
        .arg(option("key-secret-file", "FILE").help("The file of the POPs' sync.key_secret, for their keys' bytes"))
}

/// The request that the command line describes, as JSON for weir-sync. An error has one line per problem.
pub fn described(matches: &ArgMatches, read: ReadRequest) -> Result<Value, String> {
    let mut errors = Vec::new();
    let mut pairs = |name: &str, at: char, expected: &str| {
        let mut read = Vec::new();
        for text in matches.get_many::<String>(name).into_iter().flatten() {
            match text.split_once(at).filter(|(name, _)| !name.trim().is_empty()) {
                Some((name, value)) => read.push((name.trim(), value.trim())),
                None => errors.push(format!("--{name}: expected {expected}, found {text:?}")),
            }
        }
        read
    };
    let headers = pairs("header", ':', "a header, as in 'x-api-key: abc'");
    let claims = pairs("claim", '=', "a claim, as in payload.sub=abc");
    let mut request = json!({"headers": {}, "claims": {}});
    for (name, value) in headers {
        match &mut request["headers"][name.to_ascii_lowercase()] {
            Value::Array(lines) => lines.push(value.into()),
            first => *first = json!([value]),
        }
    }
    for (path, value) in claims {
        let mut at = &mut request["claims"];
        for name in path.split('.') {
            if at.is_string() {
                break;
            }
            at = &mut at[name];
        }
        // A JWT has each claim once, and weir-sync refuses duplicate fields.
        if at.is_null() {
            *at = value.into();
        } else {
            errors.push(format!("--claim: expected each claim once, found {path} again"));
        }
    }
    if !errors.is_empty() {
        return Err(errors.join("\n"));
    }
    for name in ["method", "path", "host", "address"] {
        if let Some(text) = given(matches, name) {
            request[name] = text.into();
        }
    }
    request_of(&request, read).map(|_| request)
}

/// Parses the described request. An error has one line per problem.
fn request_of(request: &Value, read: ReadRequest) -> Result<Box<dyn Request>, String> {
    read(request).map_err(|errors| {
        let lines = errors.iter().map(|error| format!("--{}: {}", error.place.replacen("s.", " ", 1), error.problem));
        lines.collect::<Vec<_>>().join("\n")
    })
}

/// Request with the name of its route, which the body of a check cannot contain.
struct Routed {
    request: Box<dyn Request>,
    route: Option<String>,
}

impl Request for Routed {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::Route => self.route.clone().map(String::into_bytes),
            other => self.request.attribute(other),
        }
    }
}

fn in_one_line(request: &Value, route: Option<&str>) -> String {
    let text = |field: &str| request[field].as_str().unwrap_or_default();
    let mut line = format!("{} {}", text("method"), text("path"));
    let places = [("to", text("host")), ("from", text("address")), ("on route", route.unwrap_or_default())].into_iter();
    line.extend(places.filter(|(_, what)| !what.is_empty()).map(|(label, what)| format!(" {label} {what}")));
    for (name, lines) in request["headers"].as_object().into_iter().flatten() {
        let lines = lines.as_array().into_iter().flatten().filter_map(Value::as_str);
        line.extend(lines.map(|value| format!(", {name}: {value}")));
    }
    add_claims(&request["claims"], "", &mut line);
    line
}

/// Adds the claims in `value`, whose names begin with `path`.
fn add_claims(value: &Value, path: &str, line: &mut String) {
    if let Some(text) = value.as_str() {
        line.extend([", claim ", path, "=", text]);
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        add_claims(value, &path, line);
    }
}

/// Explains the request. An error in the file or the request has one line per problem.
pub fn run(matches: &ArgMatches, read: ReadRequest) -> Result<String, String> {
    let route = given(matches, "route");
    let described = described(matches, read)?;
    let line = in_one_line(&described, route);
    let mut request = Routed { request: request_of(&described, read)?, route: route.map(str::to_owned) };
    let secret = match given(matches, "key-secret-file") {
        Some(path) => FleetSecret::derive(key_secret("--key-secret-file", path)?.as_bytes()),
        None => FleetSecret::UNKEYED,
    };
    let document = CheckedFile::document(given(matches, "file").unwrap_or_default())?;
    let mut lines = vec![line];
    lines.extend(outcome(document.rules(), &mut request, &secret));
    let is_hashed = document.rules().rules().iter().any(|rule| rule.key.is_hashed());
    if is_hashed && secret == FleetSecret::UNKEYED {
        lines.push("(The bytes of keys with other parts than addresses are those of POPs without a secret.)".into());
    }
    Ok(lines.join("\n") + "\n")
}

fn outcome(rules: &RuleSet, request: &mut dyn Request, secret: &FleetSecret) -> Vec<String> {
    let (mut values, mut room, mut met) = (Values::default(), Bits::default(), Vec::new());
    let mut fetched = Fetched::new(request, rules.attributes(), &mut values);
    let meets = |list: &[Condition], least: Holds, fetched: &mut Fetched<'_>| {
        list.iter().position(|condition| condition.holds(fetched) >= least)
    };
    match rules.listed(&mut fetched, &mut room) {
        Listed::Off => {
            return vec!["enforce is false: it goes through; no rule and no list is looked at.".into()];
        }
        Listed::Allowed => {
            let place = meets(rules.allow(), Holds::Yes, &mut fetched).unwrap_or_default();
            return vec![format!("It meets allow[{place}]: it goes through; no rule counts it.")];
        }
        Listed::Blocked => {
            let sure = meets(rules.deny(), Holds::Yes, &mut fetched);
            let place = sure.or_else(|| meets(rules.deny(), Holds::Unsure, &mut fetched)).unwrap_or_default();
            let meets = if sure.is_some() { "meets" } else { "may meet" };
            return vec![format!("It {meets} deny[{place}], and meets nothing in allow: it gets status 403.")];
        }
        Listed::No => {}
    }
    let met = rules.find_matches(&mut fetched, &mut room, &mut met);
    let (mut counting, mut others) = (Vec::new(), Vec::new());
    for (rule, explained) in explained(rules, met, &mut fetched, secret) {
        let (list, line) = match explained {
            Ok(line) => (&mut counting, line),
            Err(line) => (&mut others, line),
        };
        list.push(format!("  {}: {line}", rule.name));
    }
    let mut lines = vec![if counting.is_empty() { "Counted by no rule." } else { "Counted by:" }.to_owned()];
    lines.extend(counting);
    if !others.is_empty() {
        lines.push("Not counted by:".into());
    }
    lines.extend(others);
    lines
}

/// Explanation of each rule for a request that meets the rules at `met`, or the reason why a rule does not count it.
fn explained<'a>(
    rules: &'a RuleSet,
    met: &[u16],
    request: &mut Fetched<'_>,
    secret: &FleetSecret,
) -> Vec<(&'a Rule, Result<String, String>)> {
    let mut explain = |(place, rule): (u16, &'a Rule)| {
        let explained = if met.contains(&place) && !rule.variant.is_unlimited() {
            counted(rule, request, secret)
        } else {
            let is_met = |other: &(u16, &Rule)| other.1.place() == rule.place() && met.contains(&other.0);
            let chosen = (0..).zip(rules.rules()).find(is_met).map(|(_, other)| other);
            Err(uncounted(rule, chosen, request))
        };
        (rule, explained)
    };
    (0u16..).zip(rules.rules()).map(&mut explain).collect()
}

/// The rules that do not count a request, each with the reason.
pub fn others(rules: &RuleSet, met: &[u16], request: &mut Fetched<'_>) -> Vec<(String, String)> {
    let explained = explained(rules, met, request, &FleetSecret::UNKEYED);
    explained.into_iter().filter_map(|(rule, explained)| Some((rule.name.clone(), explained.err()?))).collect()
}

/// Explanation of a rule that matches a request, or the reason why the rule does not count it.
fn counted(rule: &Rule, request: &mut Fetched<'_>, secret: &FleetSecret) -> Result<String, String> {
    let mode = match (rule.enforcement.mode, rule.enforcement.percent) {
        (Mode::Off, _) => return Err("its mode is off".into()),
        (Mode::Shadow, _) => "in shadow".into(),
        (Mode::Enforce, 100) => "enforced".into(),
        (Mode::Enforce, percent) => format!("enforced for {percent} % of its keys, else in shadow"),
    };
    let cost = match &rule.after {
        Some(_) if rule.reserves => format!("reserves {}, and costs what its response states", rule.cost.of(request)),
        Some(_) => "costs what its response states".into(),
        None => format!("costs {}", rule.cost.of(request)),
    };
    let (key, parts) = match rule.key.value(request, secret) {
        Ok(key) => (key, parts(&rule.key, request)),
        Err(lacking) => {
            let lacks = lacks(&rule.key, lacking, request);
            match rule.missing {
                _ if lacking == MissingPart::Repeated => {
                    return Ok(format!("has {lacks} more than once (duplicates: limit): limited at once; {mode}"));
                }
                Missing::Skip => return Err(format!("lacks {lacks} (missing: skip)")),
                Missing::Limit => return Ok(format!("lacks {lacks} (missing: limit): limited at once; {mode}")),
                Missing::Share => {
                    (KeyValue::LACKING, format!("of all requests that lack a part: lacks {lacks} (missing: share)"))
                }
            }
        }
    };
    let unsure = match rule.matches.holds(request).min(rule.variant.holds(&rule.key, request)) {
        Holds::Yes => "",
        _ => "; the request may not meet its conditions",
    };
    Ok(format!("key {parts}; bytes {}; {cost}; {mode}{unsure}", Hex(key.as_bytes())))
}

/// The key's parts in written order, with the request's values.
fn parts(key: &KeySpec, request: &mut Fetched<'_>) -> String {
    let attributes = request.attributes;
    if key.is_all() {
        return "of all requests".into();
    }
    let mut others = key.others_in_clear(request).into_iter();
    let shown = key.parts().map(|one| match (one, request.client_address()) {
        (KeyPart::ClientAddress(prefixes), Some(address)) => {
            let (address, bits) = prefixes.cut(address);
            format!("client address {address}/{bits}")
        }
        (KeyPart::ClientAddress(_), None) => part(one, attributes),
        (KeyPart::Other(_), _) => {
            let values = others.next().flatten().unwrap_or_default();
            let segments: Vec<_> = values.iter().map(|value| String::from_utf8_lossy(value)).collect();
            format!("{} {:?}", part(one, attributes), segments.join("/"))
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn lacks(key: &KeySpec, lacking: MissingPart, request: &mut Fetched<'_>) -> String {
    if lacking == MissingPart::ClientAddress {
        return "a client address".into();
    }
    let others = key.parts().filter(|part| matches!(part, KeyPart::Other(_)));
    let mut lacking = others.zip(key.others_in_clear(request)).filter(|(_, values)| values.is_none());
    lacking.next().map_or_else(String::new, |(one, _)| part(one, request.attributes))
}

/// Reason why a rule does not count the request; `chosen` is the variant of the rule that does.
fn uncounted(rule: &Rule, chosen: Option<&Rule>, request: &mut Fetched<'_>) -> String {
    if let Some(reason) = not(&rule.matches, request) {
        return format!("match: {reason}");
    }
    let tier = rule.variant.tier.as_deref();
    if let Some(reason) = tier.and_then(|tier| not(&tier.when, request)) {
        return format!("when: {reason}");
    }
    if !rule.variant.holds(&rule.key, request).may() {
        return "keys: the request's key is none of them".into();
    }
    match chosen {
        Some(tier) if tier.variant.number == rule.variant.number => {
            "the request is of this tier, which is not limited".into()
        }
        Some(Rule { name, variant, .. }) if variant.tier.is_none() => {
            format!("the request may be of this tier, so {name} counts it, which allows less")
        }
        Some(tier) => format!("the request is for the tier {}", tier.name),
        None => "match does not hold".into(),
    }
}

/// Describes the part of `condition` that the request certainly fails, with the request's value.
fn not(condition: &Condition, request: &mut Fetched<'_>) -> Option<String> {
    let Condition { all, any, not, end: _ } = condition;
    if let Some(test) = all.tests().find(|test| !test.holds(request).may()) {
        return Some(failed(test, request));
    }
    let may = |clause: &Clause| clause.holds(request).may();
    if !any.is_empty() && !any.iter().any(may) {
        return Some("none of any holds".into());
    }
    let is_one = not.as_ref().is_some_and(|not| !(!not.holds(request)).may());
    is_one.then(|| "not does not hold: the request meets it".into())
}

fn failed(test: &Test, request: &mut Fetched<'_>) -> String {
    let (field, id) = match test {
        Test::Methods(_) | Test::OverriddenMethods(..) => ("methods".into(), Some(AttributeId::METHOD)),
        Test::Paths(_) => ("path".into(), Some(AttributeId::PATH)),
        Test::Hosts(_) => ("hosts".into(), Some(AttributeId::AUTHORITY)),
        Test::Routes(_) => ("routes".into(), Some(AttributeId::ROUTE)),
        Test::Addresses(_) => ("addresses".into(), Some(AttributeId::SOURCE_ADDRESS)),
        Test::Value(value, _) => {
            let id = if let Source::Attribute(id) = value.source { Some(id) } else { None };
            (source(&value.source, request.attributes), id)
        }
    };
    let found = match id.map(|id| request.get(id).map(String::from_utf8_lossy)) {
        Some(Some(value)) => format!(": it is {value:?}"),
        Some(None) => ": the request has none".into(),
        None => String::new(),
    };
    format!("{field} does not hold{found}")
}
