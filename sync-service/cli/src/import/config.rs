//! Configuration of envoyproxy/ratelimit, parsed and checked.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;
use weir_protocol::quota::TOKENS_MAX;

use crate::document::source;

pub(super) struct Domain {
    pub(super) name: String,
    pub(super) nodes: Vec<DescriptorNode>,
}

/// Entry that a request's descriptor may have at this depth.
pub(super) struct DescriptorNode {
    pub(super) place: String,
    pub(super) key: String,
    pub(super) value: Value,
    pub(super) limit: Option<ImportedLimit>,
    /// Entries that may follow.
    pub(super) nodes: Vec<Self>,
    /// True if all values that match its wildcard are counted together.
    pub(super) is_shared: bool,
    /// Texts of warnings about fields that are dropped without harm.
    pub(super) lost: Vec<&'static str>,
}

#[derive(PartialEq, Eq)]
pub(super) enum Value {
    Any,
    Is(String),
    /// Values that match this text, in which `*` stands for any text.
    Like(String),
}

pub(super) struct ImportedLimit {
    pub(super) place: String,
    pub(super) amount: Amount,
    pub(super) name: Option<String>,
    /// Names of the limits that do not count this limit's requests.
    pub(super) replaces: Vec<String>,
    pub(super) is_in_shadow: bool,
}

pub(super) enum Amount {
    Unlimited,
    /// The number, and the unit as written in a rule.
    Limited(u32, &'static str),
}

/// Units of time, each with its length in a rule. Days are in UTC, as in envoyproxy/ratelimit.
const UNITS: [(&str, &str); 7] =
    [("second", "s"), ("minute", "m"), ("hour", "h"), ("day", "d"), ("week", "7d"), ("month", "30d"), ("year", "365d")];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    domain: Option<String>,
    descriptors: Option<Vec<Spanned<Descriptor>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Descriptor {
    key: Option<String>,
    value: Option<String>,
    rate_limit: Option<Spanned<RateLimit>>,
    descriptors: Option<Vec<Spanned<Self>>>,
    shadow_mode: Option<bool>,
    quota_mode: Option<bool>,
    detailed_metric: Option<bool>,
    value_to_metric: Option<bool>,
    share_threshold: Option<bool>,
    metadata: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RateLimit {
    unit: Option<String>,
    requests_per_unit: Option<u32>,
    unlimited: Option<bool>,
    name: Option<String>,
    replaces: Option<Vec<Replaced>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replaced {
    name: Option<String>,
}

/// Parses `files`, each with its name. An error has one line per problem.
pub(super) fn read(files: &[(&str, &str)]) -> Result<Vec<Domain>, String> {
    let (mut domains, mut errors) = (Vec::<Domain>::new(), Vec::new());
    for (name, text) in files {
        let file = match parse(text) {
            Ok(file) => file,
            Err(error) => {
                errors.push(format!("{name}: {error}"));
                continue;
            }
        };
        let Some(domain) = file.domain.filter(|domain| !domain.is_empty()) else {
            errors.push(format!("{name}: domain: missing: expected the domain that requests name"));
            continue;
        };
        let place = domains.iter().position(|known| known.name == domain).unwrap_or_else(|| {
            domains.push(Domain { name: domain, nodes: Vec::new() });
            domains.len() - 1
        });
        take(file.descriptors, name, &mut domains[place].nodes, &mut errors);
    }
    if errors.is_empty() { Ok(domains) } else { Err(errors.join("\n")) }
}

fn parse(text: &str) -> Result<File, String> {
    let options = serde_saphyr::options! { budget: source::budget() };
    source::from_str(text, options)
        .map_err(|error| format!("expected a configuration of envoyproxy/ratelimit: {error}"))
}

fn take(
    written: Option<Vec<Spanned<Descriptor>>>,
    file: &str,
    nodes: &mut Vec<DescriptorNode>,
    errors: &mut Vec<String>,
) {
    for descriptor in written.into_iter().flatten() {
        let place = format!("{file}:{}", descriptor.referenced.line());
        let Some(node) = node(descriptor.value, &place, file, errors) else { continue };
        match nodes.iter().find(|known| known.key == node.key && known.value == node.value) {
            Some(known) => {
                let first = &known.place;
                errors.push(format!("{place}: expected each key and value once in a list, found them at {first}, too"));
            }
            None => nodes.push(node),
        }
    }
}

fn node(written: Descriptor, place: &str, file: &str, errors: &mut Vec<String>) -> Option<DescriptorNode> {
    let mut nodes = Vec::new();
    take(written.descriptors, file, &mut nodes, errors);
    let mut wrong = |problem: &str| errors.push(format!("{place}: {problem}"));
    let is = |flag: Option<bool>| flag == Some(true);
    let value = match written.value.filter(|value| !value.is_empty()) {
        None => Value::Any,
        Some(value) if value.contains('*') => Value::Like(value),
        Some(value) => Value::Is(value),
    };
    let is_shared = is(written.share_threshold);
    if is_shared && !matches!(value, Value::Like(_)) {
        wrong("share_threshold: expected a value with a * beside it");
    }
    if is(written.quota_mode) {
        wrong("quota_mode: rules have no such mode: remove it, or use shadow_mode");
    }
    let key = written.key.filter(|key| !key.is_empty());
    if key.is_none() {
        wrong("key: missing: expected the key of an entry");
    } else if key.as_ref().is_some_and(|key| key.contains('*')) {
        wrong("key: expected a key without *: rules have wildcards in values only, so write a descriptor for each key");
    }
    let has_metric = is(written.detailed_metric) || is(written.value_to_metric);
    let is_in_shadow = is(written.shadow_mode);
    let metrics =
        "values are not in Weir's metrics, which are by rule: detailed_metric and value_to_metric are left out";
    let dropped = [
        (has_metric, metrics),
        (written.metadata.is_some(), "metadata is left out: answers carry none"),
        (is_in_shadow && written.rate_limit.is_none(), "shadow_mode without a rate_limit has no effect"),
    ];
    let lost = dropped.into_iter().filter(|(is_there, _)| *is_there).map(|(_, text)| text).collect();
    let limit = written.rate_limit.and_then(|limit| {
        let place = format!("{file}:{}", limit.referenced.line());
        read_limit(limit.value, place, is_in_shadow).map_err(|wrong| errors.extend(wrong)).ok()
    });
    Some(DescriptorNode { place: place.to_owned(), key: key?, value, limit, nodes, is_shared, lost })
}

fn read_limit(written: RateLimit, place: String, is_in_shadow: bool) -> Result<ImportedLimit, Vec<String>> {
    let mut errors = Vec::new();
    let mut wrong = |problem: &str| errors.push(format!("{place}: {problem}"));
    let units = || UNITS.map(|(name, _)| name).join(", ");
    let amount = match (written.unlimited, written.unit, written.requests_per_unit) {
        (Some(true), None, _) => Some(Amount::Unlimited),
        (Some(true), Some(_), _) => {
            wrong("unit: expected none beside unlimited");
            None
        }
        (_, None, _) => {
            wrong(&format!("unit: missing: expected one of {}", units()));
            None
        }
        (_, Some(_), None) => {
            wrong("requests_per_unit: missing: expected a number; 0 refuses every request");
            None
        }
        (_, Some(unit), Some(count)) => {
            if count > TOKENS_MAX {
                wrong(&format!("requests_per_unit: expected at most {TOKENS_MAX}: write it for a shorter unit"));
            }
            let known = UNITS.into_iter().find(|(name, _)| unit.eq_ignore_ascii_case(name));
            if known.is_none() {
                wrong(&format!("unit: expected one of {}, found {unit:?}", units()));
            }
            known.map(|(_, length)| Amount::Limited(count, length))
        }
    };
    let name = written.name.filter(|name| !name.is_empty());
    let mut replaces = Vec::new();
    for replaced in written.replaces.into_iter().flatten() {
        match replaced.name.filter(|name| !name.is_empty()) {
            None => wrong("replaces: expected the name of a rate_limit"),
            own if own == name => wrong("replaces: expected another rate_limit's name than its own"),
            Some(other) => replaces.push(other),
        }
    }
    match amount {
        Some(amount) if errors.is_empty() => Ok(ImportedLimit { place, amount, name, replaces, is_in_shadow }),
        _ => Err(errors),
    }
}
