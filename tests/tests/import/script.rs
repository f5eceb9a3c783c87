//! Requests of a rate limit service as `tests/src/examples/script.rs` reads requests.
//!
//! ```text
//! messaging (message_type, marketing)(to_number, 7) & (to_number, 7) x 6 -> 5 allow, 1 limit
//! ```
//!
//! is asked about the first descriptor; those after `&` come with it.

/// The lines of `text` as a script; indented lines stay as they are.
pub(crate) fn lines(text: &str) -> String {
    text.lines().map(|line| if line.starts_with(' ') { line.to_owned() } else { asked(line) } + "\n").collect()
}

fn asked(line: &str) -> String {
    let (domain, rest) = line.split_once(' ').expect("a domain");
    let end = rest.rfind(')').expect("a descriptor") + 1;
    let (descriptors, rest) = rest.split_at(end);
    let mut descriptors = descriptors.split(" & ").map(entries);
    let own = descriptors.next().expect("a descriptor");
    let beside = descriptors.map(|entries| format!(";{};", joined(&entries))).collect::<Vec<_>>().concat();
    let mut claims = vec![("domain".to_owned(), domain.to_owned())];
    let keys: Vec<_> = own.iter().map(|(key, _)| encoded(key)).collect();
    claims.push(("entries".into(), keys.join(",")));
    claims.extend(own.into_iter().map(|(key, value)| (format!("entry.{key}"), value)));
    claims.extend((!beside.is_empty()).then_some(("beside".into(), beside)));
    let claims = claims.iter().map(|(name, value)| format!(" [claim ratelimit.{name} {value}]"));
    let claims = claims.collect::<Vec<_>>().concat();
    format!("GET /{claims}{rest}")
}

fn entries(text: &str) -> Vec<(String, String)> {
    let entries = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).expect("(KEY, VALUE)");
    let pair = |entry: &str| entry.split_once(", ").map(|(key, value)| (key.to_owned(), value.to_owned()));
    entries.split(")(").map(|entry| pair(entry).expect("KEY, VALUE")).collect()
}

fn joined(entries: &[(String, String)]) -> String {
    let entries: Vec<_> = entries.iter().map(|(key, value)| format!("{}={}", encoded(key), encoded(value))).collect();
    entries.join(",")
}

/// As the gateway writes keys and values where commas and the like stand between them.
fn encoded(text: &str) -> String {
    text.replace('%', "%25").replace(',', "%2C").replace(';', "%3B").replace('=', "%3D")
}
