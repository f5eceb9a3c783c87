//! Composition of the document that POPs run: a rule set with its overrides.
//!
//! | override | effect on the rule set |
//! |---|---|
//! | ban of an address | a condition of `deny` |
//! | allow of an address | a condition of `allow` |
//! | another rate for a key | a tier of its rule, before the rule's own tiers |
//! | ban of a key | none: POPs receive it like the bans of a penalty |
//!
//! Each override carries its end (`until_ms`) to the POPs, so that it ends even at a POP that is offline by then. Of
//! two overrides that affect one address, the one with the smaller network applies.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use weir_cli::document::Document;
use weir_rules::CONDITIONS_MAX;
use weir_rules::matching::Range;
use weir_rules::reading::ConfigError;

use super::spec::{Network, Override, OverrideKind, OverrideQuota, OverrideState, Subject};
use super::tier;

/// Maximum number of groups of addresses by their end, for bans and for allows separately.
const ENDS_MAX: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OverrideEffect {
    InForce,
    /// The override has no effect at present, for this reason.
    None(String),
    /// The override is left out, because the document would have these errors with it.
    Invalid(Vec<ConfigError>),
}

impl OverrideEffect {
    /// Reason why the override changes nothing, or `None` if it is in force.
    pub(crate) fn why_none(&self) -> Option<String> {
        match self {
            Self::InForce => None,
            Self::None(why) => Some(why.clone()),
            Self::Invalid(errors) => {
                let first = errors.first().map(ToString::to_string).unwrap_or_default();
                Some(format!("it does not fit the rule set: {first}"))
            }
        }
    }
}

pub(crate) fn with_effects(
    overrides: impl IntoIterator<Item = Override>,
    effects: Vec<OverrideEffect>,
) -> Vec<OverrideState> {
    let state = |(order, effect): (_, OverrideEffect)| OverrideState { order, without_effect: effect.why_none() };
    overrides.into_iter().zip(effects).map(state).collect()
}

/// Overrides that are written into the document together, and left out together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group<'a> {
    Bans,
    Allows,
    Tier(&'a str, &'a OverrideQuota),
}

fn group(order: &Override) -> Option<Group<'_>> {
    match (&order.settings.subject, order.settings.kind, &order.settings.terms) {
        (Subject::Address { .. }, OverrideKind::Ban, _) => Some(Group::Bans),
        (Subject::Address { .. }, OverrideKind::Allow, _) => Some(Group::Allows),
        (Subject::Key { rule, .. }, OverrideKind::Rate, Some(terms)) => Some(Group::Tier(rule, terms)),
        _ => None,
    }
}

/// Applies `overrides` to `base`; returns the document for the POPs, and the effect of each override. A group that
/// would make the document invalid is left out as a whole.
pub(crate) fn compose(base: &Document, overrides: &[Override]) -> (Document, Vec<OverrideEffect>) {
    let mut effects = vec![OverrideEffect::InForce; overrides.len()];
    let all: Vec<&Override> = overrides.iter().collect();
    let document = with(base, &all).unwrap_or_else(|_| with_some(base, overrides, &mut effects));
    let allowed = allowed_by(base.value());
    let names: BTreeSet<&str> = base.rules().rules().iter().map(|rule| rule.name.as_str()).collect();
    for (order, effect) in overrides.iter().zip(&mut effects).filter(|(_, effect)| **effect == OverrideEffect::InForce)
    {
        let is_ban = order.settings.kind == OverrideKind::Ban;
        let why = match &order.settings.subject {
            Subject::Key { rule, .. } if is_ban && !names.contains(rule.as_str()) => {
                format!("the rule set has no rule {rule:?}")
            }
            _ if !base.rules().is_enforced() => "all rules are switched off, and with them overrides".into(),
            Subject::Address { address } if is_ban && allowed.iter().any(|network| address.is_in(network)) => {
                "the rule set's allow list has the address".into()
            }
            _ => continue,
        };
        *effect = OverrideEffect::None(why);
    }
    (document, effects)
}

/// Applies as many groups of overrides to `base` as possible, the first ones first. Tries all at once, then halves of
/// them, because parsing a document is slow and most overrides fit.
fn with_some(base: &Document, overrides: &[Override], effects: &mut [OverrideEffect]) -> Document {
    let groups: BTreeSet<_> = overrides.iter().filter_map(group).collect();
    let groups: Vec<_> = groups.into_iter().collect();
    let (mut document, mut taken) = (base.clone(), Vec::new());
    let mut waiting = vec![groups.as_slice()];
    while let Some(groups) = waiting.pop() {
        let is_in = |order: &&Override| group(order).is_some_and(|of| groups.binary_search(&of).is_ok());
        let more: Vec<_> = taken.iter().copied().chain(overrides.iter().filter(is_in)).collect();
        match with(base, &more) {
            Ok(made) => (document, taken) = (made, more),
            Err(errors) if groups.len() <= 1 => {
                let left_out = overrides.iter().zip(&mut *effects).filter(|(order, _)| is_in(order));
                left_out.for_each(|(_, effect)| *effect = OverrideEffect::Invalid(errors.clone()));
            }
            Err(_) => {
                let (first, others) = groups.split_at(groups.len() / 2);
                waiting.extend([others, first]);
            }
        }
    }
    document
}

/// Effect that `tried` would have beside `others`; invalid if it would displace one of them.
pub(crate) fn try_beside(base: &Document, others: Vec<Override>, tried: Override) -> OverrideEffect {
    let mut all = others;
    all.push(tried);
    let mut with_it = compose(base, &all).1;
    let Some(own) = with_it.pop() else { return OverrideEffect::InForce };
    let is_out = |effect: &OverrideEffect| matches!(effect, OverrideEffect::Invalid(_));
    if is_out(&own) || !with_it.iter().any(is_out) {
        return own;
    }
    all.pop();
    let without_it = compose(base, &all).1;
    let mut lost = with_it.into_iter().zip(without_it).filter(|(_, before)| !is_out(before));
    lost.find(|(now, _)| is_out(now)).map_or(own, |(now, _)| now)
}

fn with(base: &Document, overrides: &[&Override]) -> Result<Document, Vec<ConfigError>> {
    let of_kind = |kind| overrides.iter().filter(move |order| order.settings.kind == kind);
    let address = |order: &&Override| order.settings.subject.address().map(|address| (order.until_ms, address));
    let addresses = |kind| of_kind(kind).filter_map(&address).collect::<Vec<_>>();
    let (bans, allows) = (addresses(OverrideKind::Ban), addresses(OverrideKind::Allow));
    // A tier ends when the last of its keys does.
    let mut tiers: BTreeMap<_, (u64, Vec<&str>)> = BTreeMap::new();
    for order in of_kind(OverrideKind::Rate) {
        if let (Subject::Key { rule, key }, Some(terms)) = (&order.settings.subject, &order.settings.terms) {
            let (until_ms, keys) = tiers.entry((rule, terms)).or_default();
            *until_ms = order.until_ms.max(*until_ms);
            keys.push(key);
        }
    }
    if bans.is_empty() && allows.is_empty() && tiers.is_empty() {
        return Ok(base.clone());
    }
    let mut value = base.value().clone();
    if let Some(fields) = value.as_object_mut() {
        for (until_ms, bans) in by_end(&bans) {
            add(fields, "deny", json!({"addresses": bans, "until_ms": until_ms}));
        }
        for condition in allowing(&allows, &bans) {
            add(fields, "allow", condition);
        }
        for ((rule, terms), (until_ms, keys)) in tiers {
            tier::add(fields, base.rules(), (rule, terms), &keys, until_ms)?;
        }
    }
    Document::of_value(value)
}

/// Groups networks by their ends, in at most [`ENDS_MAX`] groups. Beyond that number, some networks get a later end
/// than their own; weir-sync then ends these in time.
fn by_end(networks: &[(u64, Network)]) -> Vec<(u64, Vec<Network>)> {
    let mut ends: BTreeMap<u64, Vec<Network>> = BTreeMap::new();
    for (until_ms, network) in networks {
        ends.entry(*until_ms).or_default().push(*network);
    }
    let ends: Vec<_> = ends.into_iter().collect();
    let last = |group: &[(u64, Vec<Network>)]| group.last().map_or(0, |(until_ms, _)| *until_ms);
    let all = |group: &[(u64, Vec<Network>)]| group.iter().flat_map(|(_, networks)| networks.clone()).collect();
    ends.chunks(ends.len().div_ceil(ENDS_MAX).max(1)).map(|group| (last(group), all(group))).collect()
}

/// Conditions that allow these networks, except for banned networks inside them.
fn allowing(allows: &[(u64, Network)], bans: &[(u64, Network)]) -> Vec<Value> {
    let (mut whole, mut conditions) = (Vec::new(), Vec::new());
    for (until_ms, allow) in allows {
        let inside: Vec<_> = bans.iter().map(|(_, ban)| ban).filter(|ban| allow.covers(ban)).collect();
        if inside.is_empty() {
            whole.push((*until_ms, *allow));
        } else {
            let but = json!({"addresses": inside});
            conditions.push(json!({"addresses": [allow], "not": but, "until_ms": until_ms}));
        }
    }
    let whole = by_end(&whole).into_iter();
    conditions.extend(whole.map(|(end, networks)| json!({"addresses": networks, "until_ms": end})));
    conditions
}

/// Adds a condition to a list. Merges it into a full list without its end: weir-sync then ends it in time.
fn add(fields: &mut Map<String, Value>, list: &str, mut condition: Value) {
    let list = fields.entry(list).or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    let is_plain = |known: &&mut Value| ["any", "not", "until_ms"].iter().all(|name| known.get(name).is_none());
    if list.len() >= CONDITIONS_MAX
        && let Some(known) = list.iter_mut().rev().find(is_plain)
    {
        condition.as_object_mut().map(|fields| fields.remove("until_ms"));
        *known = json!({"any": [known.take(), condition]});
        return;
    }
    list.push(condition);
}

/// Networks that the document allows without any other condition.
fn allowed_by(document: &Value) -> Vec<Range> {
    let conditions = document["allow"].as_array().into_iter().flatten().filter_map(Value::as_object);
    let by_address = conditions.filter(|fields| fields.len() == 1).filter_map(|fields| fields.get("addresses"));
    let texts = by_address.filter_map(Value::as_array).flatten().filter_map(Value::as_str);
    texts.filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use weir_cli::document::Form;

    use super::*;
    use crate::overrides::spec::OverrideSettings;

    fn document(fields: &Value) -> Document {
        let mut value = json!({"rules": [{"name": "a", "key": ["client_address"], "rate": "5/s"}]});
        for (name, field) in fields.as_object().unwrap() {
            value[name] = field.clone();
        }
        Document::read(value.to_string().as_bytes(), Form::Json).unwrap()
    }

    fn order(kind: OverrideKind, address: &str) -> Override {
        about(kind, Subject::Address { address: address.parse().unwrap() }, None)
    }

    fn about(kind: OverrideKind, subject: Subject, terms: Option<OverrideQuota>) -> Override {
        let settings = OverrideSettings { kind, subject, terms, reason: String::new(), author: String::new() };
        Override { settings, id: 1, at_ms: 1, until_ms: 2 }
    }

    fn ban(address: &str) -> Override {
        order(OverrideKind::Ban, address)
    }

    fn allow(address: &str) -> Override {
        order(OverrideKind::Allow, address)
    }

    /// POPs end them by themselves, should weir-sync have forgotten them.
    #[test]
    fn each_order_carries_its_end_as_far_as_there_is_room() {
        let ending = |order: Override, until_ms| Override { until_ms, ..order };
        let overrides = [ending(ban("192.0.2.1"), 7), ending(ban("192.0.2.2"), 5), ending(ban("192.0.2.3"), 7)];
        let denied = compose(&document(&json!({})), &overrides).0.value()["deny"].clone();
        let expected = json!([
            {"addresses": ["192.0.2.2"], "until_ms": 5}, {"addresses": ["192.0.2.1", "192.0.2.3"], "until_ms": 7},
        ]);
        assert_eq!(denied, expected);
        let many: Vec<_> = (1..=50).map(|n| ending(ban(&format!("192.0.2.{n}")), n)).collect();
        let denied = compose(&document(&json!({})), &many).0.value()["deny"].clone();
        assert_eq!(denied.as_array().map(Vec::len), Some(17));
        assert_eq!(denied[0], json!({"addresses": ["192.0.2.1", "192.0.2.2", "192.0.2.3"], "until_ms": 3}));
    }

    #[test]
    fn the_override_of_the_smaller_network_counts() {
        let overrides = [allow("10.0.0.0/8"), ban("10.1.0.0/16"), allow("10.1.2.0/24"), ban("11.0.0.0/8")];
        let value = compose(&document(&json!({})), &overrides).0.value().clone();
        let but = json!({"addresses": ["10.0.0.0/8"], "not": {"addresses": ["10.1.0.0/16"]}, "until_ms": 2});
        assert_eq!(value["allow"], json!([but, {"addresses": ["10.1.2.0/24"], "until_ms": 2}]));
    }

    #[test]
    fn a_full_list_takes_a_condition_more() {
        let conditions = |condition: Value| json!({"deny": vec![condition; CONDITIONS_MAX]});
        let plain = json!({"methods": ["PUT"]});
        let (composed, effects) = compose(&document(&conditions(plain.clone())), &[ban("192.0.2.1")]);
        let last = &composed.value()["deny"][CONDITIONS_MAX - 1];
        assert_eq!(*last, json!({"any": [plain, {"addresses": ["192.0.2.1"]}]}));
        assert_eq!(effects, [OverrideEffect::InForce]);
    }

    fn overriding(rule: &str, key: &str, rate: &str, burst: u32) -> Override {
        let terms = OverrideQuota { rate: rate.into(), burst: Some(burst) };
        about(OverrideKind::Rate, Subject::Key { rule: rule.into(), key: key.into() }, Some(terms))
    }

    fn rules() -> Document {
        let tiers = json!([{"name": "own", "when": {"addresses": ["10.0.0.0/8"]}, "unlimited": true}]);
        let rules = json!([
            {"name": "a", "key": ["client_address"], "rate": "5/s", "tiers": tiers},
            {"name": "b", "key": ["client_address", {"header": "x-account"}], "rate": "5/s"},
            {"name": "all", "key": ["all"], "rate": "5/s"},
            {"name": "many", "key": ["host", "method"], "rate": "5/s"},
        ]);
        document(&json!({"rules": rules}))
    }

    #[test]
    fn overrides_precede_tiers_and_share_one_per_terms() {
        let overrides = [
            overriding("a", "192.0.2.1", "100/s", 200),
            overriding("a", "2001:db8::1", "100/s", 200),
            overriding("b", "text:acme", "7/5m", 9),
            overriding("all", "all", "1/s", 1),
        ];
        let (composed, effects) = compose(&rules(), &overrides);
        assert_eq!(effects, vec![OverrideEffect::InForce; 4]);
        let tiers = |rule: usize| composed.value()["rules"][rule]["tiers"].clone();
        let addresses = json!({"addresses": ["192.0.2.1/32", "2001:db8::/64"], "until_ms": 2});
        let both = json!({"name": "o-100-s-200", "rate": "100/s", "burst": 200, "when": addresses});
        assert_eq!((&tiers(0)[0], &tiers(0)[1]["name"]), (&both, &json!("own")));
        let end = json!({"until_ms": 2});
        let of_text = json!([{"name": "o-7-5m-9", "rate": "7/5m", "burst": 9, "keys": ["acme"], "when": end}]);
        assert_eq!((tiers(1), &tiers(2)[0]["when"]), (of_text, &end));
        let names: Vec<_> = composed.rules().rules().iter().map(|rule| rule.name.as_str()).collect();
        assert!(names.contains(&"a.o-100-s-200"), "{names:?}");
    }

    #[test]
    fn an_override_does_not_take_the_room_of_another() {
        let when = |n: usize| json!({"methods": [format!("M{n}")]});
        let own = |n: usize| json!({"name": format!("t{n}"), "when": when(n), "unlimited": true});
        let tiers: Vec<_> = (0..19).map(own).collect();
        let rule = json!({"name": "a", "key": ["client_address"], "rate": "5/s", "tiers": tiers});
        let base = document(&json!({"rules": [rule]}));
        let there = overriding("a", "192.0.2.1", "200/s", 200);
        let alike = overriding("a", "192.0.2.2", "200/s", 200);
        assert_eq!(try_beside(&base, vec![there.clone()], alike), OverrideEffect::InForce);
        let more = try_beside(&base, vec![there.clone()], overriding("a", "192.0.2.2", "100/s", 200));
        assert!(
            matches!(&more, OverrideEffect::Invalid(errors) if errors[0].to_string().contains("tiers")),
            "{more:?}"
        );
        // One that has lost its room already takes no room.
        let lost = overriding("gone", "192.0.2.1", "1/s", 1);
        assert_eq!(try_beside(&base, vec![there, lost], ban("192.0.2.1")), OverrideEffect::InForce);
    }
}
