//! Conditions in words.

use weir_rules::matching::{Clause, Condition, PathMatch, Test, ValueTest, Written};
use weir_rules::request::{Attribute, Attributes, Duplicates, Folding, Source, ValueOf};

use crate::moment;

/// Maximum number of list items that are named.
const NAMED_MAX: usize = 5;

/// `requests ...` that meet the condition; `every request` if it is empty.
pub fn requests(condition: &Condition, attributes: &Attributes) -> String {
    let phrases = phrases(condition, attributes);
    if phrases.is_empty() { "every request".into() } else { format!("requests {}", phrases.join(" and ")) }
}

/// A phrase for each test of the condition.
fn phrases(condition: &Condition, attributes: &Attributes) -> Vec<String> {
    let Condition { all, any, not, end } = condition;
    let clause = |clause: &Clause| {
        let tests = clause.tests().map(|test| phrase(test, attributes));
        tests.collect::<Vec<_>>()
    };
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
    let spelled = |says: &str, folding: Folding| {
        let names = Folding::NAMES.into_iter().filter(|(_, one)| folding.has(*one));
        let names = named(names.map(|(name, _)| name.to_owned()), "and");
        (!names.is_empty()).then(|| format!("{says} {names}"))
    };
    let spellings =
        [spelled("whatever its", path.ignores()), spelled("to the letter in", path.tells_apart())];
    let spellings: Vec<_> = spellings.into_iter().flatten().collect();
    let spellings = if spellings.is_empty() { String::new() } else { format!(" ({})", spellings.join(", ")) };
    format!("{kind} {}{spellings}", path.written().text())
}

/// A value's kind and name: `header x-key`, `last cookie sid`.
pub fn value_of(value: &ValueOf, attributes: &Attributes) -> String {
    let which = match value.duplicates {
        Duplicates::Unsaid => "",
        Duplicates::First => "first ",
        Duplicates::Last => "last ",
        Duplicates::Limit => "only ",
    };
    format!("{which}{}", source(&value.source, attributes))
}

/// Kind and name of a value's source: `header x-key`.
pub fn source(source: &Source, attributes: &Attributes) -> String {
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
pub fn quoted<'a>(values: impl Iterator<Item = &'a str>) -> String {
    named(values.map(|value| format!("{value:?}")), "or")
}

/// `a, b or c`; a long list ends with the number of further items.
pub fn named(items: impl Iterator<Item = String>, or: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Document, Form};
    use serde_json::{Value, json};

    fn in_words(condition: &Value) -> String {
        let rule = json!({"name": "a", "match": condition, "key": ["all"], "rate": "1/s"});
        let document = Document::read(json!({"rules": [rule]}).to_string().as_bytes(), Form::Json).unwrap();
        requests(&document.rules().rules()[0].matches, document.rules().attributes())
    }

    #[test]
    fn every_field_has_its_words() {
        for (condition, words) in [
            (json!({}), "every request"),
            (json!({"methods": ["GET", "HEAD"]}), "requests with the method GET or HEAD"),
            (
                json!({"hosts": ["a.example", "*.b.example"]}),
                "requests for the host a.example or *.b.example",
            ),
            (json!({"path": {"exact": "/x"}}), "requests with the path /x"),
            (
                json!({"path": {"prefix": "/x", "case": "ignore", "slashes": "ignore", "encoding": "exact"}}),
                "requests with a path that begins with /x (whatever its case and slashes, to the letter in encoding)",
            ),
            (
                json!({"cookies": [{"name": "a", "equals": "b", "duplicates": "last"}]}),
                "requests whose last cookie a is \"b\"",
            ),
            (
                json!({"paths": [{"prefix": "/x/"}, {"glob": "/u/*"}]}),
                "requests with a path that begins with /x/ or a path of the form /u/*",
            ),
            (json!({"headers": [{"name": "x-a", "equals": "b c"}]}), "requests whose header x-a is \"b c\""),
            (
                json!({"query": [{"name": "q", "in": ["a", "b"]}, {"name": "r", "prefix": "c"}]}),
                "requests whose query parameter q is \"a\" or \"b\" and whose query parameter r begins with \"c\"",
            ),
            (json!({"headers": [{"name": "x", "regex": "^a+$"}]}), "requests whose header x matches /^a+$/"),
            (
                json!({"headers": [{"name": "x", "present": true}, {"name": "y", "present": false}]}),
                "requests with the header x and without the header y",
            ),
            (
                json!({"cookies": [{"name": "sid", "prefix": "a"}, {"name": "b", "present": false}]}),
                "requests whose cookie sid begins with \"a\" and without the cookie b",
            ),
            (
                json!({"claims": [{"name": ["payload", "plan"], "in": ["gold", "vip"]}]}),
                "requests whose JWT claim payload.plan is \"gold\" or \"vip\"",
            ),
            (json!({"addresses": ["10.0.0.0/8", "::1"]}), "requests from 10.0.0.0/8 or ::1"),
            (json!({"routes": ["main"]}), "requests on the route main"),
            (
                json!({"methods": ["GET"], "any": [{"routes": ["a"]}, {"routes": ["b"], "hosts": ["c"]}],
                       "not": {"hosts": ["d"], "path": {"exact": "/"}}}),
                "requests with the method GET and that are (on the route a) or (for the host c and on the route b) \
                 and that are not (with the path / and for the host d)",
            ),
        ] {
            assert_eq!(in_words(&condition), words, "{condition}");
        }
    }

    #[test]
    fn a_long_list_is_cut_short() {
        let list = |n: usize| named((1..=n).map(|i| i.to_string()), "or");
        assert_eq!((list(0), list(1), list(6)), (String::new(), "1".into(), "1, 2, 3, 4, 5 or 6".into()));
        assert_eq!(list(7), "1, 2, 3, 4, 5 or 2 more");
    }
}
