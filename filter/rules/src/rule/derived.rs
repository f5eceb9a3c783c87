//! Rules derived from a written rule: by `tiers`, with another quota or none for some of its requests; by
//! `also_by_prefix`, over wider prefixes, so that a client gains little by changing its address within one.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::Rule;
use super::variant::{Tier, TierQuota};
use crate::key::{KeySpec, prefixes};
use crate::limit::{self, AlgorithmName, Limit, TIMES_MAX};
use crate::matching::{Condition, Texts, condition, long_texts};
use crate::reading::{Fields, Item, Reader};
use crate::request::Attributes;
use crate::request::address::Prefixes;
use weir_protocol::messages::RULE_NAME_MAX;
use weir_protocol::quota::TOKENS_MAX;
use weir_protocol::sharing::Sharing;

const TIERS_MAX: usize = 20;
const WIDER_MAX: usize = 4;

/// Reads the field `tiers` of a rule that counts by `key` with the algorithm `kind`.
pub(super) fn tiers<'a>(
    fields: &mut Fields<'a>,
    kind: AlgorithmName,
    key: Option<&KeySpec>,
    reader: &mut Reader,
) -> Vec<(Item<'a>, Arc<Tier>)> {
    let mut tiers: Vec<(Item<'_>, Arc<Tier>)> = Vec::new();
    for item in fields.list("tiers", TIERS_MAX) {
        let Some(mut fields) = item.fields() else { continue };
        let name = fields.rule_name("the tier's name");
        if let Some(name) = name.as_ref().filter(|name| tiers.iter().any(|(_, tier)| tier.name == **name)) {
            fields.record_at("name", format_args!("another tier has the name {name:?}"));
        }
        let when = match fields.take("when") {
            Some(item) => condition(&item, reader),
            None => Some(Condition::default()),
        };
        let keys = keys(&mut fields, key, &reader.attributes);
        if !fields.has("when") && !fields.has("keys") {
            let expected = "missing: expected when, a condition, as in {headers: [{name: x-plan, equals: gold}]}, or \
                            keys, a list of the key's values, or both";
            fields.record(expected);
        }
        let change = change(&mut fields, kind);
        fields.finish();
        if let (Some(name), Some(when), Some(change)) = (name, when, change) {
            tiers.push((item, Arc::new(Tier { name, when, keys, change })));
        }
    }
    tiers
}

fn keys(fields: &mut Fields<'_>, key: Option<&KeySpec>, attributes: &Attributes) -> Option<Texts> {
    let item = fields.take("keys")?;
    let as_requests_have =
        |text: &str| key.map_or_else(|| text.to_owned(), |key| key.as_requests_have(text, attributes));
    let keys = long_texts(fields, "keys", &as_requests_have);
    if key.is_some_and(|key| key.others.len() != 1) {
        item.record("expected a key with one part beside client_address, whose values these are");
    }
    Some(keys)
}

fn change(fields: &mut Fields<'_>, kind: AlgorithmName) -> Option<TierQuota> {
    let is_unlimited = fields.boolean("unlimited").unwrap_or_default();
    let times = fields.number("times", 1..=TIMES_MAX);
    let own = if kind == AlgorithmName::Concurrency { "limit" } else { "rate" };
    match (is_unlimited, fields.has("times"), fields.has(own)) {
        (true, false, false) => Some(TierQuota::Unlimited),
        (false, true, false) => times.map(TierQuota::Times),
        (false, false, true) => match kind {
            AlgorithmName::Quota(east) => {
                limit::calendar_terms(fields, east).map(|(limit, sharing)| TierQuota::To(limit, Some(sharing)))
            }
            kind => limit::read(kind, fields).map(|limit| TierQuota::To(limit, None)),
        },
        _ => {
            fields.record(format_args!("expected one of times, {own} and unlimited: true"));
            None
        }
    }
}

/// The variants of `rule`, written at `at`, in the order of trial: `RULE.TIER` for each tier, and the rule last.
pub(super) fn variants(mut rule: Rule, tiers: Vec<(Item<'_>, Arc<Tier>)>, at: &Item<'_>) -> Vec<Rule> {
    let mut rules = Vec::with_capacity(tiers.len() + 1);
    for (number, (item, tier)) in (0..).zip(tiers) {
        let name = format!("{}.{}", rule.name, tier.name);
        require_room(&name, format_args!("the tier {name:?}"), at);
        let (limit, sharing) = match &tier.change {
            TierQuota::Unlimited => (rule.limit(), None),
            TierQuota::To(limit, sharing) => (*limit, sharing.clone()),
            TierQuota::Times(times) => {
                let Ok(limit) = rule.times(*times) else {
                    let problem = format_args!("expected less: {times} times the rule's quota is too much");
                    item.record_at("times", problem);
                    continue;
                };
                (limit, None)
            }
        };
        let mut sharing = sharing.unwrap_or_else(|| shared_alike(&rule, &limit));
        let limit = limit.shared_by(&mut sharing);
        if rule.cost.most() > sharing.local_burst.min(limit.algorithm.limit()) {
            item.record(format_args!("expected room for a request that costs {}", rule.cost.most()));
        }
        let mut made = rule.made(name, limit, sharing);
        (made.variant.number, made.variant.tier) = (number, Some(tier));
        rules.push(made);
    }
    rule.variant.number = u8::try_from(rules.len()).unwrap_or(u8::MAX);
    rules.push(rule);
    rules
}

/// Records an error at `at`, the written rule, if the name of a derived rule is too long; true if it fits.
fn require_room(name: &str, whose: fmt::Arguments<'_>, at: &Item<'_>) -> bool {
    if name.len() > RULE_NAME_MAX {
        let expected =
            format_args!("expected a name that leaves room for {whose}, of at most {RULE_NAME_MAX} characters");
        at.record_at("name", expected);
    }
    name.len() <= RULE_NAME_MAX
}

/// The sharing of `limit`: that of the rule, with the local burst in proportion to the burst.
fn shared_alike(rule: &Rule, limit: &Limit) -> Sharing {
    let (local, burst) = (u64::from(rule.sharing.local_burst), u64::from(rule.quota.burst()));
    let part = (u64::from(limit.quota.burst()) * local).checked_div(burst).unwrap_or(0);
    let local_burst = u32::try_from(part).unwrap_or(u32::MAX).min(limit.quota.burst()).max(1);
    Sharing { local_burst, ..rule.sharing.clone() }
}

/// A wider prefix, and its multiple of the rule's quota.
pub(super) struct WiderPrefix<'a> {
    item: Item<'a>,
    prefixes: Prefixes,
    times: u32,
}

/// Reads the field `also_by_prefix` of a rule with this key; the key is `None` if it is invalid.
pub(super) fn wider<'a>(fields: &mut Fields<'a>, key: Option<&KeySpec>) -> Vec<WiderPrefix<'a>> {
    let items = fields.list("also_by_prefix", WIDER_MAX);
    let narrow = match key.map(KeySpec::prefixes) {
        Some(Some(prefixes)) => prefixes,
        Some(None) if items.len() > 0 => {
            fields.record_at("also_by_prefix", "expected a key with client_address: there is no prefix to widen");
            return Vec::new();
        }
        // `also_by_prefix` is empty, or errors of the key have been recorded.
        _ => Prefixes { ipv4: u8::MAX, ipv6: u8::MAX },
    };
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        let Some(mut fields) = item.fields() else { continue };
        let prefixes = prefixes(&mut fields, narrow);
        for (name, wide, narrow) in [("ipv4", prefixes.ipv4, narrow.ipv4), ("ipv6", prefixes.ipv6, narrow.ipv6)] {
            if fields.has(name) && wide >= narrow {
                let expected = format_args!("expected less than {narrow}, which is the key's, found {wide}");
                fields.record_at(name, expected);
            }
        }
        if !fields.has("ipv4") && !fields.has("ipv6") {
            fields.record("expected ipv4, ipv6 or both, as in {ipv4: 24, ipv6: 48, times: 8}");
        }
        let times = fields.require("times", "how many times the rule's quota, as in 8");
        let times = times.and_then(|times| times.number(1..=TIMES_MAX));
        fields.finish();
        all.extend(times.map(|times| WiderPrefix { item, prefixes, times }));
    }
    all
}

/// `rule`, written at `at`, followed by the rules for its wider prefixes: `NAME.w1`, `NAME.w2`.
pub(super) fn expanded(rule: Rule, wider: &[WiderPrefix<'_>], at: &Item<'_>) -> Vec<Rule> {
    let mut rules = Vec::with_capacity(wider.len() + 1);
    for (n, wider) in (1..).zip(wider) {
        let times = wider.times;
        let name = format!("{}.w{n}", rule.name);
        if !require_room(&name, format_args!("the rule {name:?} which also_by_prefix makes"), at) {
            break;
        }
        let Ok(limit) = rule.times(times) else {
            let problem = format_args!(
                "expected no more than {TOKENS_MAX} as rate per second and as burst, {times} times the rule's"
            );
            wider.item.record(problem);
            continue;
        };
        let local_burst = rule.sharing.local_burst.saturating_mul(times).min(limit.quota.burst());
        let mut widened = rule.made(name, limit, Sharing { local_burst, ..rule.sharing.clone() });
        widened.key.set_prefixes(wider.prefixes);
        widened.variant.wider_times = Some(times);
        rules.push(widened);
    }
    rules.insert(0, rule);
    rules
}
