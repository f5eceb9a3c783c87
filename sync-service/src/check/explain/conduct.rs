//! Descriptions of a rule's enforcement, its sharing among POPs, and its response.

use weir_protocol::sharing::{OnSyncLoss, Sharing};
use weir_rules::algorithm::Algorithm;
use weir_rules::mode::Mode;
use weir_rules::template::Template;
use weir_rules::{Reset, Response, Rule};

use super::amount::{article, span};
use super::condition::named;

/// Maximum number of characters of a body that are shown.
const BODY_CHARS_MAX: usize = 60;

/// Description of its enforcement; none if it is always enforced.
pub(super) fn enforcement(rule: &Rule) -> Option<String> {
    match (rule.enforcement.mode, rule.enforcement.percent) {
        (Mode::Off, _) => Some("Off: it is not looked at.".into()),
        (Mode::Shadow, _) => Some("In shadow: what it would do is counted, and nothing is limited.".into()),
        (Mode::Enforce, 100) => None,
        (Mode::Enforce, percent) => {
            Some(format!("Enforced for {percent} % of the keys; for the others it is in shadow."))
        }
    }
}

/// Description of its penalty.
pub(super) fn penalty(rule: &Rule) -> Option<String> {
    let penalty = rule.penalty?;
    let (after, within, deny_for) = (penalty.after(), span(penalty.within_ns()), span(penalty.deny_for_ns()));
    let times = if after == 1 { "once".into() } else { format!("{after} times") };
    Some(format!(
        "A key that was limited {times} within {} is banned for {}, in every region.",
        article(&within),
        article(&deny_for)
    ))
}

/// Description of its sharing among POPs, a sentence each.
pub(super) fn sharing(rule: &Rule) -> Vec<String> {
    if !matches!(rule.algorithm, Algorithm::TokenBucket(_)) {
        return vec!["Each POP counts for itself.".into()];
    }
    let Sharing { strict, local_burst, floors, .. } = &rule.sharing;
    let mut told = Vec::new();
    if *strict && !rule.is_quota() {
        told.push(
            "Strict: a POP spends only tokens that the fleet's budget was debited for before. A request may have to wait for \
             weir-sync once."
                .into(),
        );
    }
    if !strict && *local_burst < rule.quota.burst() {
        told.push(format!("A POP lets {local_burst} through before the fleet has heard of a key."));
    }
    if !floors.is_empty() {
        let floors: Vec<_> = floors.iter().map(|f| format!("{} {} %", f.region, f.percent)).collect();
        told.push(format!("Parts of the quota belong to regions: {}.", floors.join(", ")));
    }
    let does = match rule.on_sync_loss {
        OnSyncLoss::Local => "allows this by itself",
        OnSyncLoss::Share => "allows its fair share of this",
        OnSyncLoss::Deny => "answers 503",
    };
    told.push(format!("Out of touch with weir-sync, a POP {does}."));
    told
}

/// Description of its response, as far as that differs from the default; a sentence each.
pub(super) fn response(rule: &Rule) -> Vec<String> {
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
    let mut told = Vec::new();
    if *status != 429 {
        told.push(format!("A client above it gets status {status}."));
    }
    if let Some(text) = body.as_ref().map(Template::written) {
        let short: String = text.chars().take(BODY_CHARS_MAX).collect();
        let cut = if short.len() < text.len() { "..." } else { "" };
        told.push(format!("The body is {short:?}{cut}."));
    }
    if let Some(content_type) = content_type {
        let default = if body.is_none() { ", though its body is a problem" } else { "" };
        told.push(format!("The body's type is {content_type}{default}."));
    }
    if !set_headers.is_empty() {
        let names = named(set_headers.iter().map(|(name, _)| name.clone()), "and");
        told.push(format!("The answer has the headers {names} too."));
    }
    let families = [
        (headers.retry_after, "retry-after"),
        (headers.ratelimit, "ratelimit"),
        (headers.x_ratelimit, "x-ratelimit"),
    ];
    let given: Vec<_> = families.iter().filter(|(is_given, _)| *is_given).map(|(_, name)| *name).collect();
    match given.len() {
        3 => {}
        0 => told.push("The answer has none of the quota's headers.".into()),
        _ => told.push(format!("Of the quota's headers, the answer has only {}.", given.join(" and "))),
    }
    if *on_allowed {
        told.push("Responses that are allowed have the quota's headers too.".into());
    }
    if *on_shadow {
        told.push("In shadow, responses to requests that it would refuse name it in x-weir-shadow.".into());
    }
    if *reset == Reset::Epoch {
        told.push("x-ratelimit-reset is a Unix time.".into());
    }
    if *retry_after_jitter_s > 0 {
        told.push(format!(
            "retry-after is up to {retry_after_jitter_s} s longer, another time for each refusal."
        ));
    }
    told
}
