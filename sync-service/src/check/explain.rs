//! What a rule does, in sentences.

use std::fmt::Write as _;

use serde_json::Value;
use weir_limiter::quota::Quota;
use weir_limiter::rules::Rule;
use weir_limiter::sharing::{Sharing, WhenUnsynced};

/// What `rule` does; `written` is the rule as its operator wrote it.
pub fn sentence(rule: &Rule, written: Option<&Value>) -> String {
    let field = |name: &str| written.and_then(|rule| rule.get(name));
    let mut text = format!(
        "{}: counts {} by {}; allows each {}, {} at once.",
        rule.name,
        field("match").map_or("every request".into(), |matches| format!("requests with {matches}")),
        field("key").map_or("its key".into(), ToString::to_string),
        allowance(rule.quota, field("rate")),
        rule.quota.burst(),
    );
    for more in [strictness(rule), first_seen(rule), floors(&rule.sharing)].into_iter().flatten() {
        text.push(' ');
        text.push_str(&more);
    }
    text.push(' ');
    text.push_str(&unsynced(rule.when_unsynced));
    if rule.response.status != 429 {
        // Writing to a string cannot fail.
        let _ = write!(text, " Who is above it gets status {}.", rule.response.status);
    }
    text
}

fn allowance(quota: Quota, rate: Option<&Value>) -> String {
    match rate.and_then(Value::as_str) {
        Some(rate) => rate.into(),
        None => format!("a request every {} ns", quota.token_ns()),
    }
}

fn strictness(rule: &Rule) -> Option<String> {
    let text = "Strict: a POP spends only what the fleet's budget was debited for before, and a request may wait \
                for that once.";
    rule.sharing.strict.then(|| text.into())
}

fn first_seen(rule: &Rule) -> Option<String> {
    let local = rule.sharing.local_burst;
    let text = || format!("A POP lets {local} through before the fleet has heard of a key.");
    (!rule.sharing.strict && local < rule.quota.burst()).then(text)
}

fn floors(sharing: &Sharing) -> Option<String> {
    let floors: Vec<_> =
        sharing.floors.iter().map(|floor| format!("{} {} %", floor.region, floor.percent)).collect();
    (!floors.is_empty()).then(|| format!("Of the quota regions have for their own: {}.", floors.join(", ")))
}

fn unsynced(when: WhenUnsynced) -> String {
    let does = match when {
        WhenUnsynced::Local => "allows this by itself",
        WhenUnsynced::Share => "allows its even share of this",
        WhenUnsynced::Deny => "answers 503",
    };
    format!("Out of touch with weir-sync, a POP {does}.")
}

#[cfg(test)]
mod tests {
    use crate::document::{Document, Form};

    fn sentence(rule: &str) -> String {
        let document = Document::read(format!("rules:\n- {rule}\n").as_bytes(), Form::Yaml).unwrap();
        let rule = &document.rules().rules()[0];
        super::sentence(rule, document.written(&rule.name))
    }

    #[test]
    fn a_plain_rule() {
        assert_eq!(
            sentence("{name: a, key: [client_address], rate: 60/m, burst: 5}"),
            "a: counts every request by [\"client_address\"]; allows each 60/m, 5 at once. Out of touch with \
             weir-sync, a POP allows this by itself."
        );
    }

    #[test]
    fn everything_that_is_said_is_explained() {
        let all = sentence(
            "{name: b, match: {hosts: [A.example, b.example], methods: [PUT, POST, PATCH], path: {prefix: /x}}, \
             key: [client_address: {ipv4: 24, ipv6: 128}], rate: 10/s, local_burst: 2, floors: {eu: 30, us: 20}, \
             when_unsynced: share, response: {status: 420}}",
        );
        let expected = "b: counts requests with {\"hosts\":[\"A.example\",\"b.example\"],\"methods\":[\"PUT\",\"POST\",\
             \"PATCH\"],\"path\":{\"prefix\":\"/x\"}} by [{\"client_address\":{\"ipv4\":24,\"ipv6\":128}}]; allows \
             each 10/s, 10 at once. A POP lets 2 through before the fleet has heard of a key. Of the quota regions have \
             for their own: eu 30 %, us 20 %. Out of touch with weir-sync, a POP allows its even share of this. Who is \
             above it gets status 420.";
        assert_eq!(all, expected);
        let strict = sentence(
            "{name: c, match: {path: {exact: /in}}, key: [client_address], rate: 5/m, strict: true}",
        );
        assert!(
            strict.starts_with("c: counts requests with {\"path\":{\"exact\":\"/in\"}} by")
                && strict.contains(" Strict: "),
            "{strict}"
        );
        assert!(strict.ends_with("a POP answers 503."), "{strict}");
    }
}
