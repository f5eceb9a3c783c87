//! Conditions in words.

use weir_rules::address::Prefixes;
use weir_rules::key::{KeyPart, KeySpec, Missing, Part};
use weir_rules::matching::{Clause, Condition, PathMatch, Test, ValueTest, Written};
use weir_rules::request::{Attribute, Attributes, Duplicates, Folding, Source, ValueOf};

use crate::moment;

const NAMED_MAX: usize = 5;

/// `requests ...`, with the condition in words; `every request` if it is empty.
pub(crate) fn requests(condition: &Condition, attributes: &Attributes) -> String {
    let phrases = phrases(condition, attributes);
    if phrases.is_empty() { "every request".into() } else { format!("requests {}", phrases.join(" and ")) }
}

fn phrases(condition: &Condition, attributes: &Attributes) -> Vec<String> {
    let Condition { all, any, not, end } = condition;
    let clause = |clause: &Clause| clause.tests().map(|test| phrase(test, attributes)).collect::<Vec<_>>();
    let within = |one: &Clause| format!("({})", clause(one).join(" and "));
    let mut phrases = clause(all);
    if !any.is_empty() {
        phrases.push(format!("that are {}", named(any.iter().map(within), "or")));
    }
    phrases.extend(not.as_deref().map(|not| format!("that are not {}", within(not))));
    phrases.extend(end.ms().map(|end_ms| format!("until {}", moment::text(end_ms))));
    phrases
}

fn phrase(test: &Test, attributes: &Attributes) -> String {
    let texts = |texts: &[String]| named(texts.iter().cloned(), "or");
    match test {
        Test::Methods(methods) => format!("with the method {}", texts(methods)),
        Test::OverriddenMethods(methods, headers) => {
            let headers = headers.iter().map(|id| source(&Source::Attribute(*id), attributes));
            format!("with the method {}, as sent or in the {}", texts(methods), named(headers, "or"))
        }
        Test::Paths(paths) => format!("with {}", named(paths.iter().map(path), "or")),
        Test::Hosts(hosts) => format!("for the host {}", named(hosts.iter(), "or")),
        Test::Routes(routes) => format!("on the route {}", texts(routes)),
        Test::Addresses(networks) => format!("from {}", named(networks.iter(), "or")),
        Test::Value(value, test) => {
            let name = value_of(value, attributes);
            match test {
                ValueTest::In(values) => format!("whose {name} is {}", quoted(values.iter())),
                ValueTest::Prefix(prefix) | ValueTest::PrefixInAnyCase(prefix) => {
                    format!("whose {name} begins with {prefix:?}")
                }
                ValueTest::Regex(pattern) => format!("whose {name} matches /{}/", pattern.text()),
                ValueTest::Present(true) => format!("with the {name}"),
                ValueTest::Present(false) => format!("without the {name}"),
            }
        }
    }
}

fn path(path: &PathMatch) -> String {
    let kind = match path.written() {
        Written::Exact(_) => "the path",
        Written::Prefix(_) => "a path that begins with",
        Written::Glob(_) => "a path of the form",
    };
    let spelled = |words: &str, folding: Folding| {
        let names = Folding::NAMES.into_iter().filter(|(_, one)| folding.has(*one));
        let names = named(names.map(|(name, _)| name.to_owned()), "and");
        (!names.is_empty()).then(|| format!("{words} {names}"))
    };
    let spellings = [spelled("whatever its", path.ignores()), spelled("to the letter in", path.distinguishes())];
    let spellings: Vec<_> = spellings.into_iter().flatten().collect();
    let spellings = if spellings.is_empty() { String::new() } else { format!(" ({})", spellings.join(", ")) };
    format!("{kind} {}{spellings}", path.written().text())
}

/// A value's kind and name: `header x-key`, `last cookie sid`.
pub(crate) fn value_of(value: &ValueOf, attributes: &Attributes) -> String {
    let which = match value.duplicates {
        Duplicates::Unset => "",
        Duplicates::First => "first ",
        Duplicates::Last => "last ",
        Duplicates::Limit => "only ",
    };
    format!("{which}{}", source(&value.source, attributes))
}

pub(crate) fn source(source: &Source, attributes: &Attributes) -> String {
    match source {
        Source::Cookie(_, name) => format!("cookie {name}"),
        Source::Query(name) => format!("query parameter {name}"),
        Source::Attribute(id) => match attributes.get(*id) {
            Some(Attribute::Header(name)) => format!("header {name}"),
            Some(Attribute::Claim(names)) => format!("JWT claim {}", names.join(".")),
            Some(Attribute::Method) => "method".into(),
            _ => "route".into(),
        },
    }
}

/// `"a", "b" or "c"`.
pub(crate) fn quoted<'a>(values: impl Iterator<Item = &'a str>) -> String {
    named(values.map(|value| format!("{value:?}")), "or")
}

/// `a, b or c`; a long list ends with the number of further items.
pub(crate) fn named(items: impl Iterator<Item = String>, or: &str) -> String {
    let mut items: Vec<_> = items.collect();
    if items.len() > NAMED_MAX + 1 {
        let more = items.len() - NAMED_MAX;
        items.truncate(NAMED_MAX);
        items.push(format!("{more} more"));
    }
    match items.pop() {
        Some(last) if !items.is_empty() => format!("{} {or} {last}", items.join(", ")),
        last => last.unwrap_or_default(),
    }
}

pub(crate) fn key(key: &KeySpec, attributes: &Attributes) -> String {
    if key.is_all() {
        return "in one bucket".into();
    }
    // Not cut short by `named`, because a key has at most eight parts.
    let parts: Vec<_> = key.parts().map(|one| part(one, attributes)).collect();
    format!("by {}", parts.join(" and "))
}

/// Describes how requests that lack a part of the key are handled.
pub(crate) fn missing(missing: Missing, key: &KeySpec) -> Option<String> {
    let of = if key.parts().count() == 1 { "without it" } else { "without one of these" };
    let does = match missing {
        Missing::Skip => format!("A request {of} is not counted."),
        Missing::Share => format!("All requests {of} share one bucket."),
        Missing::Limit => format!("A request {of} is limited at once."),
    };
    (!key.is_all()).then_some(does)
}

pub(crate) fn part(part: KeyPart<'_>, attributes: &Attributes) -> String {
    match part {
        KeyPart::ClientAddress(Prefixes { ipv4, ipv6 }) => format!("client address (IPv4 /{ipv4}, IPv6 /{ipv6})"),
        KeyPart::Other(part) => match part {
            Part::Value(value) => value_of(value, attributes),
            Part::Host => "host".into(),
            Part::Path => "path".into(),
            Part::PathSegments(1) => "the first segment of the path".into(),
            Part::PathSegments(n) => format!("the first {n} segments of the path"),
        },
    }
}
