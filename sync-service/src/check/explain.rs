//! Explanations of rules in sentences.

pub mod amount;
pub mod condition;
mod conduct;

use weir_rules::address::Prefixes;
use weir_rules::key::KeyPart;
use weir_rules::matching::Condition;
use weir_rules::variant::Tier;
use weir_rules::{Rule, RuleSet};

/// Effects of a rule set's fields before any rule applies; a line each.
pub fn lists(rules: &RuleSet) -> Vec<String> {
    let requests = |condition| condition::requests(condition, rules.attributes());
    let mut told = Vec::new();
    if !rules.is_enforced() {
        told.push("enforce is false: none of this limits anything.".into());
    }
    for condition in rules.allow() {
        told.push(format!("allow: {} are counted by no rule and never refused.", requests(condition)));
    }
    for condition in rules.deny() {
        told.push(format!("deny: {} get status 403, unless they meet allow.", requests(condition)));
    }
    told
}

/// Explains `rule`, one of `rules`, a sentence each; the first contains its name.
pub fn sentences(rule: &Rule, rules: &RuleSet) -> Vec<String> {
    if !rule.is_written() {
        return made(rule, rules);
    }
    let attributes = rules.attributes();
    let mut told = vec![format!(
        "{}: counts {} {}; allows {}{}.",
        rule.name,
        condition::requests(&rule.matches, attributes),
        condition::key(&rule.key, attributes),
        if rule.key.is_all() { "" } else { "each " },
        amount::allowance(rule),
    )];
    told.extend(condition::missing(rule.missing, &rule.key));
    told.extend(amount::in_any_window(rule));
    told.extend(amount::cost(rule, attributes));
    told.extend(tiers(rule, rules));
    told.extend(wider(rule, rules));
    told.extend(conduct::enforcement(rule));
    told.extend(conduct::penalty(rule));
    told.extend(conduct::sharing(rule));
    told.extend(conduct::response(rule));
    told
}

/// Rules that the written rule `base` generates by `tiers` and `also_by_prefix`.
fn made_by<'a>(base: &'a Rule, rules: &'a RuleSet) -> impl Iterator<Item = &'a Rule> {
    rules.rules().iter().filter(|rule| rule.place() == base.place() && !rule.is_written())
}

/// Explains a generated rule.
fn made(rule: &Rule, rules: &RuleSet) -> Vec<String> {
    let base = rules.rules().iter().find(|base| base.place() == rule.place() && base.is_written());
    let base = base.map_or("", |base| &base.name);
    let what = match &rule.variant.tier {
        Some(tier) => format!("{base} for its tier {}", tier.name),
        None => format!("{base} again"),
    };
    let over = match (rule.variant.wider_times, rule.key.prefixes()) {
        (Some(_), Some(Prefixes { ipv4, ipv6 })) => {
            format!(", over wider addresses (IPv4 /{ipv4}, IPv6 /{ipv6})")
        }
        _ => String::new(),
    };
    if rule.variant.is_unlimited() {
        return vec![format!("{}: {what}; not limited.", rule.name)];
    }
    vec![format!("{}: {what}{over}; allows each {}.", rule.name, amount::allowance(rule))]
}

fn tiers(base: &Rule, rules: &RuleSet) -> Vec<String> {
    let mut told = Vec::new();
    for rule in made_by(base, rules).filter(|rule| rule.variant.wider_times.is_none()) {
        let Some(tier) = &rule.variant.tier else { continue };
        let requests = of_tier(tier, rule, rules);
        told.push(format!("Tier {}, for {requests}: {}.", tier.name, amount::of_tier(tier, rule)));
    }
    if told.len() > 1 {
        told.push("The first tier that fits a request counts.".into());
    }
    told
}

/// Requests that a tier applies to.
fn of_tier(tier: &Tier, rule: &Rule, rules: &RuleSet) -> String {
    let requests = condition::requests(&tier.when, rules.attributes());
    let Some(keys) = &tier.keys else { return requests };
    let part = rule.key.parts().find(|part| matches!(part, KeyPart::Other(_)));
    let part = part.map_or_else(String::new, |part| condition::part(part, rules.attributes()));
    let keys = format!("whose {part} is {}", condition::quoted(keys.iter()));
    if tier.when == Condition::default() {
        format!("requests {keys}")
    } else {
        format!("{requests} and {keys}")
    }
}

fn wider(base: &Rule, rules: &RuleSet) -> Vec<String> {
    let line = |rule: &Rule| {
        let times = rule.variant.wider_times.filter(|_| rule.variant.tier.is_none())?;
        let (name, Prefixes { ipv4, ipv6 }) = (&rule.name, rule.key.prefixes()?);
        Some(format!(
            "Each IPv4 /{ipv4} and IPv6 /{ipv6} gets {times} times as much ({name}); a request needs room there too."
        ))
    };
    made_by(base, rules).filter_map(line).collect()
}

#[cfg(test)]
mod tests;
