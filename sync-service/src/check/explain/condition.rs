//! Conditions in words.

use serde_json::Value;

/// How many items of a list are named.
const NAMED_MAX: usize = 5;

/// `requests ...` that meet the condition; `every request` where it asks for nothing.
pub fn requests(condition: Option<&Value>) -> String {
    let phrases = condition.map(phrases).unwrap_or_default();
    if phrases.is_empty() { "every request".into() } else { format!("requests {}", phrases.join(" and ")) }
}

/// What a request must be, a phrase for each field.
fn phrases(condition: &Value) -> Vec<String> {
    let list = |field: &str| condition[field].as_array().map_or(&[][..], Vec::as_slice);
    let texts = |field: &str| named(list(field).iter().map(plain), "or");
    let mut phrases = Vec::new();
    let mut add = |field: &str, phrase: &dyn Fn() -> String| {
        if condition.get(field).is_some() {
            phrases.push(phrase());
        }
    };
    add("methods", &|| format!("with the method {}", texts("methods")));
    add("hosts", &|| format!("for the host {}", texts("hosts")));
    add("path", &|| format!("with {}", path(&condition["path"])));
    add("paths", &|| format!("with {}", named(list("paths").iter().map(path), "or")));
    let tested =
        [("headers", "header"), ("cookies", "cookie"), ("query", "query parameter"), ("claims", "JWT claim")];
    for (field, what) in tested {
        add(field, &|| list(field).iter().map(|one| test(what, one)).collect::<Vec<_>>().join(" and "));
    }
    add("addresses", &|| format!("from {}", texts("addresses")));
    add("routes", &|| format!("on the route {}", texts("routes")));
    add("any", &|| {
        let any = list("any").iter().map(|one| format!("({})", self::phrases(one).join(" and ")));
        format!("that are {}", named(any, "or"))
    });
    add("not", &|| format!("that are not ({})", self::phrases(&condition["not"]).join(" and ")));
    phrases
}

fn path(path: &Value) -> String {
    let says =
        [("exact", "the path "), ("prefix", "a path that begins with "), ("glob", "a path of the form ")];
    let told = says.into_iter().find_map(|(kind, says)| Some(format!("{says}{}", path[kind].as_str()?)));
    told.unwrap_or_default() + &spellings(path)
}

/// What counts in how a path is spelled, as far as that is written.
fn spellings(path: &Value) -> String {
    let said = |what: &str| {
        let words = [
            ("case", "case"),
            ("slashes", "slashes"),
            ("parameters", "parameters"),
            ("encoding", "encoding"),
        ];
        let said = words.iter().filter(|(field, _)| path[*field] == what).map(|(_, word)| (*word).to_owned());
        named(said, "and")
    };
    let of = |said: String, says: &str| if said.is_empty() { said } else { format!("{says} {said}") };
    let told = [of(said("ignore"), "whatever its"), of(said("exact"), "to the letter in")];
    let told: Vec<_> = told.into_iter().filter(|told| !told.is_empty()).collect();
    if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) }
}

fn test(what: &str, test: &Value) -> String {
    let name = match test["name"].as_array() {
        Some(names) => names.iter().map(plain).collect::<Vec<_>>().join("."),
        None => plain(&test["name"]),
    };
    let of = match test["duplicates"].as_str() {
        Some("limit") => "only ".to_owned(),
        Some(which) => format!("{which} "),
        None => String::new(),
    };
    let name = format!("{of}{what} {name}");
    let quoted = |field: &str| test[field].to_string();
    if test.get("equals").is_some() {
        format!("whose {name} is {}", quoted("equals"))
    } else if let Some(values) = test["in"].as_array() {
        format!("whose {name} is {}", named(values.iter().map(ToString::to_string), "or"))
    } else if test.get("prefix").is_some() {
        format!("whose {name} begins with {}", quoted("prefix"))
    } else if let Some(regex) = test["regex"].as_str() {
        format!("in whose {name} /{regex}/ is found")
    } else if test["present"] == true {
        format!("with the {name}")
    } else {
        format!("without the {name}")
    }
}

/// `a, b or c`; a long list ends with how many more there are.
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

/// A text without quotes, anything else as JSON.
pub fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
            (
                json!({"headers": [{"name": "x", "regex": "^a+$"}]}),
                "requests in whose header x /^a+$/ is found",
            ),
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
                 and that are not (for the host d and with the path /)",
            ),
        ] {
            assert_eq!(requests(Some(&condition)), words, "{condition}");
        }
        assert_eq!(requests(None), "every request");
    }

    #[test]
    fn of_a_long_list_only_some_are_named() {
        let list = |n: usize| named((1..=n).map(|i| i.to_string()), "or");
        assert_eq!((list(0), list(1), list(6)), (String::new(), "1".into(), "1, 2, 3, 4, 5 or 6".into()));
        assert_eq!(list(7), "1, 2, 3, 4, 5 or 2 more");
    }
}
