//! Explanations of rules in sentences.

pub(crate) mod amount;
pub(crate) mod condition;

use weir_protocol::sharing::{OnSyncLoss, Sharing};
use weir_rules::address::Prefixes;
use weir_rules::algorithm::Algorithm;
use weir_rules::key::KeyPart;
use weir_rules::matching::Condition;
use weir_rules::mode::Mode;
use weir_rules::template::Template;
use weir_rules::variant::Tier;
use weir_rules::{Reset, Response, Rule, RuleSet};

use amount::{article, span};
use condition::named;

const BODY_CHARS_MAX: usize = 60;

/// Effects of `enforce`, `allow` and `deny`, one line each.
pub(crate) fn lists(rules: &RuleSet) -> Vec<String> {
    let requests = |condition| condition::requests(condition, rules.attributes());
    let mut lines = Vec::new();
    if !rules.is_enforced() {
        lines.push("enforce is false: none of this limits anything.".into());
    }
    for condition in rules.allow() {
        lines.push(format!("allow: {} are counted by no rule and never refused.", requests(condition)));
    }
    for condition in rules.deny() {
        lines.push(format!("deny: {} get status 403, unless they meet allow.", requests(condition)));
    }
    lines
}

/// Sentences that explain `rule`, one of `rules`; the first contains its name.
pub(crate) fn sentences(rule: &Rule, rules: &RuleSet) -> Vec<String> {
    if !rule.is_written() {
        return made(rule, rules);
    }
    let attributes = rules.attributes();
    let mut lines = vec![format!(
        "{}: counts {} {}; allows {}{}.",
        rule.name,
        condition::requests(&rule.matches, attributes),
        condition::key(&rule.key, attributes),
        if rule.key.is_all() { "" } else { "each " },
        amount::allowance(rule),
    )];
    lines.extend(condition::missing(rule.missing, &rule.key));
    lines.extend(amount::in_any_window(rule));
    lines.extend(amount::cost(rule, attributes));
    lines.extend(tiers(rule, rules));
    lines.extend(wider(rule, rules));
    lines.extend(enforcement(rule));
    lines.extend(penalty(rule));
    lines.extend(sharing(rule));
    lines.extend(response(rule));
    lines
}

/// Rules that `tiers` and `also_by_prefix` derive from the written rule `base`.
fn made_by<'a>(base: &'a Rule, rules: &'a RuleSet) -> impl Iterator<Item = &'a Rule> {
    rules.rules().iter().filter(|rule| rule.place() == base.place() && !rule.is_written())
}

fn made(rule: &Rule, rules: &RuleSet) -> Vec<String> {
    let base = rules.rules().iter().find(|base| base.place() == rule.place() && base.is_written());
    let base = base.map_or("", |base| &base.name);
    let what = match &rule.variant.tier {
        Some(tier) => format!("{base} for its tier {}", tier.name),
        None => format!("{base} again"),
    };
    let over = match (rule.variant.wider_times, rule.key.prefixes()) {
        (Some(_), Some(Prefixes { ipv4, ipv6 })) => format!(", over wider addresses (IPv4 /{ipv4}, IPv6 /{ipv6})"),
        _ => String::new(),
    };
    if rule.variant.is_unlimited() {
        return vec![format!("{}: {what}; not limited.", rule.name)];
    }
    vec![format!("{}: {what}{over}; allows each {}.", rule.name, amount::allowance(rule))]
}

fn tiers(base: &Rule, rules: &RuleSet) -> Vec<String> {
    let mut lines = Vec::new();
    for rule in made_by(base, rules).filter(|rule| rule.variant.wider_times.is_none()) {
        let Some(tier) = &rule.variant.tier else { continue };
        let requests = of_tier(tier, rule, rules);
        lines.push(format!("Tier {}, for {requests}: {}.", tier.name, amount::of_tier(tier, rule)));
    }
    if lines.len() > 1 {
        lines.push("The first tier that fits a request counts.".into());
    }
    lines
}

fn of_tier(tier: &Tier, rule: &Rule, rules: &RuleSet) -> String {
    let requests = condition::requests(&tier.when, rules.attributes());
    let Some(keys) = &tier.keys else { return requests };
    let part = rule.key.parts().find(|part| matches!(part, KeyPart::Other(_)));
    let part = part.map_or_else(String::new, |part| condition::part(part, rules.attributes()));
    let keys = format!("whose {part} is {}", condition::quoted(keys.iter()));
    if tier.when == Condition::default() { format!("requests {keys}") } else { format!("{requests} and {keys}") }
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

fn enforcement(rule: &Rule) -> Option<String> {
    match (rule.enforcement.mode, rule.enforcement.percent) {
        (Mode::Off, _) => Some("Off: it is not looked at.".into()),
        (Mode::Shadow, _) => Some("In shadow: what it would do is counted, and nothing is limited.".into()),
        (Mode::Enforce, 100) => None,
        (Mode::Enforce, percent) => {
            Some(format!("Enforced for {percent} % of the keys; for the others it is in shadow."))
        }
    }
}

fn penalty(rule: &Rule) -> Option<String> {
    let penalty = rule.penalty?;
    let times = match penalty.strikes.limit() {
        1 => "once".into(),
        after => format!("{after} times"),
    };
    let [within, deny_for] = [penalty.strikes.length_ns(), penalty.deny_for_ns()].map(|ns| article(&span(ns)));
    Some(format!("A key that one POP limited {times} within {within} is banned for {deny_for} in every region."))
}

fn sharing(rule: &Rule) -> Vec<String> {
    if !matches!(rule.algorithm, Algorithm::TokenBucket(_)) {
        return vec!["Each POP counts for itself.".into()];
    }
    let Sharing { strict, local_burst, floors, .. } = &rule.sharing;
    let mut lines = Vec::new();
    if *strict && !rule.is_quota() {
        lines.push(
            "Strict: a POP spends only tokens that the fleet's budget was debited for before. A request may have to \
             wait for weir-sync once."
                .into(),
        );
    }
    if !strict && *local_burst < rule.quota.burst() {
        lines.push(format!("A POP lets {local_burst} through before the fleet knows a key."));
    }
    if !floors.is_empty() {
        let floors: Vec<_> = floors.iter().map(|f| format!("{} {} %", f.region, f.percent)).collect();
        lines.push(format!("Parts of the quota belong to regions: {}.", floors.join(", ")));
    }
    let does = match rule.on_sync_loss {
        OnSyncLoss::Local => "allows this by itself",
        OnSyncLoss::Share => "allows its fair share of this",
        OnSyncLoss::Deny => "answers 503",
    };
    lines.push(format!("Out of touch with weir-sync, a POP {does}."));
    lines
}

/// Differences between the rule's response and the default, one sentence each.
fn response(rule: &Rule) -> Vec<String> {
    let Response {
        status,
        headers,
        on_allowed,
        on_shadow,
        reset,
        body,
        content_type,
        set_headers,
        retry_after_jitter_s,
    } = &rule.response;
    let mut lines = Vec::new();
    if *status != 429 {
        lines.push(format!("A client above it gets status {status}."));
    }
    if let Some(text) = body.as_ref().map(Template::written) {
        let short: String = text.chars().take(BODY_CHARS_MAX).collect();
        let cut = if short.len() < text.len() { "..." } else { "" };
        lines.push(format!("The body is {short:?}{cut}."));
    }
    if let Some(content_type) = content_type {
        let default = if body.is_none() { ", though its body is a problem" } else { "" };
        lines.push(format!("The body's type is {content_type}{default}."));
    }
    if !set_headers.is_empty() {
        let names = named(set_headers.iter().map(|(name, _)| name.clone()), "and");
        lines.push(format!("The answer has the headers {names} too."));
    }
    let families =
        [(headers.retry_after, "retry-after"), (headers.ratelimit, "ratelimit"), (headers.x_ratelimit, "x-ratelimit")];
    let given: Vec<_> = families.iter().filter(|(is_given, _)| *is_given).map(|(_, name)| *name).collect();
    match given.len() {
        3 => {}
        0 => lines.push("The answer has none of the quota's headers.".into()),
        _ => lines.push(format!("Of the quota's headers, the answer has only {}.", given.join(" and "))),
    }
    if *on_allowed {
        lines.push("Responses that are allowed have the quota's headers too.".into());
    }
    if *on_shadow {
        lines.push("In shadow, responses to requests that it would refuse name it in x-weir-shadow.".into());
    }
    if *reset == Reset::Epoch {
        lines.push("x-ratelimit-reset is a Unix time.".into());
    }
    if *retry_after_jitter_s > 0 {
        lines.push(format!("retry-after is up to {retry_after_jitter_s} s longer, chosen anew for each refusal."));
    }
    lines
}

#[cfg(test)]
mod tests;
