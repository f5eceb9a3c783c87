//! Tiers: another quota, or none, for some of the requests that a rule counts.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Rule;
use super::variant::{Change, Tier, Variant};
use crate::key::KeySpec;
use crate::limit::calendar;
use crate::limit::{self, Kind, Limit, TIMES_MAX};
use crate::matching::{Condition, Texts, condition, long_texts};
use crate::reading::{Errors, Fields, Reader, rule_name};
use crate::request::Attributes;
use weir_wire::messages::RULE_NAME_MAX;
use weir_wire::sharing::Sharing;

/// The most tiers of one rule.
const TIERS_MAX: usize = 20;

/// Reads the field `tiers` of a rule that counts by `key` with the algorithm `kind`; each with its place.
pub(super) fn tiers(
    fields: &mut Fields<'_>,
    kind: Kind,
    key: Option<&KeySpec>,
    reader: &mut Reader,
    errors: &mut Errors,
) -> Vec<(String, Tier)> {
    let mut tiers: Vec<(String, Tier)> = Vec::new();
    for (place, item) in fields.list("tiers", TIERS_MAX, errors) {
        let Some(mut fields) = Fields::of(item, &place, errors) else { continue };
        let name = rule_name(&mut fields, "the tier's name", errors);
        if let Some(name) = name.as_ref().filter(|name| tiers.iter().any(|(_, tier)| tier.name == **name)) {
            errors.note(&fields.place("name"), format!("another tier has the name {name:?}"));
        }
        let when_place = fields.place("when");
        let when = match fields.take("when") {
            Some(value) => condition(value, &when_place, reader, errors),
            None => Some(Condition::default()),
        };
        let keys = keys(&mut fields, key, &reader.attributes, errors);
        if fields.take("when").is_none() && fields.take("keys").is_none() {
            let expected = "missing: expected when, a condition, as in {headers: [{name: x-plan, equals: gold}]}, or \
                            keys, a list of the key's values, or both";
            errors.note(&place, expected);
        }
        let change = change(&mut fields, kind, &place, errors);
        fields.finish(errors);
        if let (Some(name), Some(when), Some(change)) = (name, when, change) {
            tiers.push((place, Tier { name, when, keys, change }));
        }
    }
    tiers
}

/// Reads the field `keys`: values of the rule's key.
fn keys(
    fields: &mut Fields<'_>,
    key: Option<&KeySpec>,
    attributes: &Attributes,
    errors: &mut Errors,
) -> Option<Texts> {
    fields.take("keys")?;
    let as_requests_have =
        |text: &str| key.map_or_else(|| text.to_owned(), |key| key.as_requests_have(text, attributes));
    let keys = long_texts(fields, "keys", errors, as_requests_have);
    if key.is_some_and(|key| !key.has_one_value()) {
        let expected = "expected a key with one part beside client_address, whose values these are";
        errors.note(&fields.place("keys"), expected);
    }
    Some(keys)
}

fn change(fields: &mut Fields<'_>, kind: Kind, place: &str, errors: &mut Errors) -> Option<Change> {
    let has = |fields: &mut Fields<'_>, name| fields.take(name).is_some();
    let is_unlimited = fields.boolean("unlimited", errors).unwrap_or_default();
    let times = fields.number("times", 1..=TIMES_MAX, errors);
    let own = if kind == Kind::Concurrency { "limit" } else { "rate" };
    let given = [is_unlimited, has(fields, "times"), has(fields, own)];
    if given.iter().filter(|is_given| **is_given).count() != 1 {
        errors.note(place, format!("expected one of times, {own} and unlimited: true"));
        return None;
    }
    match (is_unlimited, times) {
        (true, _) => Some(Change::Unlimited),
        (_, Some(times)) => Some(Change::Times(times)),
        _ if given.get(1) == Some(&true) => None,
        _ if kind == Kind::Quota => {
            let (quota, sharing) = calendar::terms(fields, errors)?;
            Some(Change::To(Limit::of(quota, None), Some(sharing)))
        }
        _ => limit::read(kind, fields, errors).map(|limit| Change::To(limit, None)),
    }
}

/// The variants of `rule`, in the order in which they are tried: `RULE.TIER` for each tier, and the rule last.
pub(super) fn variants(
    rule: &Rule,
    tiers: Vec<(String, Tier)>,
    name_place: &str,
    errors: &mut Errors,
) -> Vec<Rule> {
    let mut rules = Vec::with_capacity(tiers.len() + 1);
    for (number, (place, tier)) in (0..).zip(tiers) {
        let name = format!("{}.{}", rule.name, tier.name);
        if name.len() > RULE_NAME_MAX {
            let expected = format!("expected a name that leaves room for the tier {name:?}");
            errors.note(name_place, format!("{expected}, of at most {RULE_NAME_MAX} characters"));
        }
        let (limit, sharing) = match &tier.change {
            Change::Unlimited => (rule.limit(), None),
            Change::To(limit, sharing) => (*limit, sharing.clone()),
            Change::Times(times) => {
                let Ok(limit) = rule.limit().times(*times) else {
                    let problem = format!("expected less: {times} times the rule's quota is too much");
                    errors.note(&format!("{place}.times"), problem);
                    continue;
                };
                (limit, None)
            }
        };
        let sharing = sharing.unwrap_or_else(|| shared_alike(rule, &limit));
        if rule.cost.most() > sharing.local_burst.min(limit.algorithm.limit()) {
            let problem = format!("expected room for a request that costs {}", rule.cost.most());
            errors.note(&place, problem);
        }
        let variant = Variant { number, tier: Some(Arc::new(tier)), ..Variant::default() };
        let Limit { algorithm, quota, rate } = limit;
        rules.push(Rule { name, algorithm, quota, rate, variant, sharing, ..rule.clone() });
    }
    let number = u8::try_from(rules.len()).unwrap_or(u8::MAX);
    rules.push(Rule { variant: Variant { number, ..Variant::default() }, ..rule.clone() });
    rules
}

/// How POPs share `limit`: as they share the rule's quota, with a local burst that is the same part of the burst.
fn shared_alike(rule: &Rule, limit: &Limit) -> Sharing {
    let (local, burst) = (u64::from(rule.sharing.local_burst), u64::from(rule.quota.burst()));
    let part = u64::from(limit.quota.burst()) * local / burst.max(1);
    let local_burst = u32::try_from(part).unwrap_or(u32::MAX).clamp(1, limit.quota.burst());
    Sharing { local_burst, ..rule.sharing.clone() }
}
