//! What a rule does, in sentences.

pub mod amount;
pub mod condition;
mod conduct;
pub mod key;

use serde_json::Value;
use weir_rules::Rule;
use weir_rules::address::Prefixes;

use crate::document::Document;

/// What the document does before any rule is looked at; a line each.
pub fn lists(document: &Document) -> Vec<String> {
    let list = |name: &str| document.value()[name].as_array().cloned().unwrap_or_default();
    let mut told = Vec::new();
    if !document.is_enforced() {
        told.push("enforce is false: none of this limits anything.".into());
    }
    for condition in list("allow") {
        let requests = condition::requests(Some(&condition));
        told.push(format!("allow: {requests} are counted by no rule and never refused."));
    }
    for condition in list("deny") {
        let requests = condition::requests(Some(&condition));
        told.push(format!("deny: {requests} are answered 403, but for those of allow."));
    }
    told
}

/// What `rule` does, a sentence each; the first names it.
pub fn sentences(rule: &Rule, document: &Document) -> Vec<String> {
    let Some(written) = document.written_of(rule) else { return vec![format!("{}.", rule.name)] };
    if !rule.is_written() {
        return vec![made(rule, written)];
    }
    let mut told = vec![format!(
        "{}: counts {} {}; allows {}{}.",
        rule.name,
        condition::requests(written.get("match")),
        key::key(rule, &written["key"]),
        if key::is_all(&written["key"]) { "" } else { "each " },
        amount::allowance(rule, Some(written)),
    )];
    told.extend(key::missing(rule.missing, &written["key"]));
    told.extend(amount::cost(rule, written.get("cost")));
    told.extend(tiers(written));
    told.extend(wider(rule, written));
    told.extend(conduct::enforcement(rule));
    told.extend(conduct::penalty(rule, written.get("penalty")));
    told.extend(conduct::sharing(rule));
    told.extend(conduct::response(rule, written.get("response")));
    told
}

/// A rule that a written one's `tiers` or `wider` make.
fn made(rule: &Rule, written: &Value) -> String {
    let base = condition::plain(&written["name"]);
    let Some(tier) = tier(rule, written) else {
        return format!(
            "{}: {base} again, over {}; allows each {}.",
            rule.name,
            over(rule),
            amount::allowance(rule, None)
        );
    };
    let of = format!("{}: {base} for its tier {}", rule.name, condition::plain(&tier["name"]));
    if rule.variant.is_unlimited {
        return format!("{of}; not limited.");
    }
    let is_wider = rule.name.len() > base.len() + 1 + tier["name"].as_str().map_or(0, str::len);
    let over = if is_wider { format!(", over {}", over(rule)) } else { String::new() };
    format!("{of}{over}; allows each {}.", amount::allowance(rule, (!is_wider).then_some(tier)))
}

/// The tier that `rule` is, as it is written.
pub fn tier<'a>(rule: &Rule, written: &'a Value) -> Option<&'a Value> {
    rule.variant.when.as_ref()?;
    let name = rule.name.split('.').nth(1)?;
    written["tiers"].as_array()?.iter().find(|tier| tier["name"] == name)
}

fn over(rule: &Rule) -> String {
    let Prefixes { ipv4, ipv6 } = rule.key.prefixes().unwrap_or_default();
    format!("wider addresses (IPv4 /{ipv4}, IPv6 /{ipv6})")
}

fn tiers(written: &Value) -> Vec<String> {
    let tiers = written["tiers"].as_array().map_or(&[][..], Vec::as_slice);
    let mut told: Vec<_> = tiers
        .iter()
        .map(|tier| {
            let (name, of) = (condition::plain(&tier["name"]), of_tier(tier, written));
            let amount = |field: &str| tier.get(field).map(condition::plain);
            let has = if tier["unlimited"] == true {
                "not limited".into()
            } else if let Some(times) = amount("times") {
                format!("{times} times as much")
            } else if let Some(limit) = amount("limit") {
                format!("{limit} in flight")
            } else {
                let burst = amount("burst").map(|burst| format!(", {burst} at once")).unwrap_or_default();
                format!("{}{burst}", amount("rate").unwrap_or_default())
            };
            format!("Tier {name}, for {of}: {has}.")
        })
        .collect();
    if told.len() > 1 {
        told.push("The first tier that fits a request counts.".into());
    }
    told
}

/// Which requests a tier is for.
fn of_tier(tier: &Value, written: &Value) -> String {
    let when = tier.get("when").filter(|when| when.as_object().is_none_or(|when| !when.is_empty()));
    let Some(keys) = tier["keys"].as_array() else { return condition::requests(tier.get("when")) };
    let keys = condition::named(keys.iter().map(ToString::to_string), "or");
    let part = written["key"].as_array().and_then(|key| key.iter().find(|part| !key::is_address(part)));
    let of = format!("of {keys} ({})", part.map_or_else(String::new, |part| key::part(part, None)));
    match when {
        Some(when) => format!("{}, {of}", condition::requests(Some(when))),
        None => format!("requests {of}"),
    }
}

fn wider(rule: &Rule, written: &Value) -> Vec<String> {
    let wider = written["wider"].as_array().map_or(&[][..], Vec::as_slice);
    let narrow = rule.key.prefixes().unwrap_or_default();
    let line = |(n, one): (usize, &Value)| {
        let bits = |name: &str, default: u8| one.get(name).map_or(default.to_string(), condition::plain);
        let (ipv4, ipv6) = (bits("ipv4", narrow.ipv4), bits("ipv6", narrow.ipv6));
        let (times, made) = (condition::plain(&one["times"]), format!("{}.w{n}", rule.name));
        format!(
            "Each IPv4 /{ipv4} and IPv6 /{ipv6} gets {times} times as much ({made}); a request needs room there too."
        )
    };
    (1..).zip(wider).map(line).collect()
}

#[cfg(test)]
mod tests;
