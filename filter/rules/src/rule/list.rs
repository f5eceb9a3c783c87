//! Parser of the list of rules.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Rule;
use super::derived::{expanded, tiers, variants, wider};
use super::mode::Enforcement;
use super::variant::Variant;
use crate::key::{Missing, key};
use crate::limit::after::After;
use crate::limit::cost::cost;
use crate::limit::{self, AlgorithmName, Limit, Penalty};
use crate::matching::condition;
use crate::reading::{Fields, Item, Reader, meant};
use crate::response::Response;
use weir_protocol::messages::RULES_MAX;
use weir_protocol::quota::{Quota, TOKENS_MAX};
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::sharing::{FLOORS_MAX, Floor, OnSyncLoss, REGION_NAME_MAX, Sharing, is_region_name};

const ON_SYNC_LOSS: [(&str, OnSyncLoss); 3] =
    [("local", OnSyncLoss::Local), ("share", OnSyncLoss::Share), ("deny", OnSyncLoss::Deny)];
const MISSING: [(&str, Missing); 3] = [("skip", Missing::Skip), ("share", Missing::Share), ("limit", Missing::Limit)];

const LOG_KEY: &str = "expected a key of one part beside client_address, and no path_segments";

/// Fields about sharing that only some rules may have, and the end of the error that names those rules.
const SHARED: [(&str, &str); 3] =
    [("on_sync_loss", ", or with strict"), ("local_burst", ", which POPs share"), ("min_share", ", which POPs share")];

pub(crate) fn rules(list: &Item<'_>, reader: &mut Reader) -> Option<Vec<Rule>> {
    let written = list.value().as_array().map_or(0, Vec::len);
    if !(1..=RULES_MAX).contains(&written) {
        list.record_unexpected(format_args!("a list of 1 to {RULES_MAX} rules"));
        return None;
    }
    let mut rules: Vec<Rule> = Vec::with_capacity(written);
    let mut names: Vec<String> = Vec::with_capacity(written);
    let mut found = 0;
    for (group, item) in (0..).zip(list.items()) {
        for mut rule in rule(&item, reader, &mut found).unwrap_or_default() {
            match names.binary_search(&rule.name) {
                Ok(_) => item.record_at("name", format_args!("another rule has the name {:?}", rule.name)),
                Err(at) => names.insert(at, rule.name.clone()),
            }
            rule.variant.group = group;
            rules.push(rule);
        }
    }
    if found > RULES_MAX {
        list.record(format_args!(
            "expected at most {RULES_MAX} rules with those that tiers and also_by_prefix make, found {found}"
        ));
    }
    Some(rules)
}

/// Reads a rule: its tiers and then the rule itself, each followed by its rules of `also_by_prefix`. Adds their number
/// to `found`; `None` if that exceeds the maximum.
fn rule(item: &Item<'_>, reader: &mut Reader, found: &mut usize) -> Option<Vec<Rule>> {
    let mut fields = item.fields()?;
    let name = fields.rule_name("the rule's name");
    let matches = match fields.take("match") {
        Some(item) => condition(&item, reader).map(Arc::new),
        None => Some(Arc::default()),
    };
    let mut key = key(&mut fields, &mut reader.attributes);
    if fields.boolean("log_key") == Some(true) && key.as_mut().is_some_and(|key| !key.make_clear()) {
        fields.record_at("log_key", LOG_KEY);
    }
    let missing = fields.choice("missing", &MISSING).unwrap_or_default();
    let kind = limit::kind(&mut fields);
    let (limit, sharing) = if let AlgorithmName::Quota(east) = kind {
        limit::calendar_terms(&mut fields, east).unzip()
    } else {
        let limit = limit::read(kind, &mut fields);
        let mut sharing = sharing(&mut fields, limit.map(|limit| limit.quota));
        record_unshared_fields(kind, sharing.as_ref(), &mut fields);
        (limit.zip(sharing.as_mut()).map(|(limit, sharing)| limit.shared_by(sharing)), sharing)
    };
    let quota = limit.map(|limit| limit.quota);
    let (after, reserves) = After::read(&mut fields).unzip();
    let enforcement = Enforcement::read(&mut fields);
    let penalty = Penalty::read(&mut fields);
    let is_strict = sharing.as_ref().is_some_and(|sharing| sharing.strict);
    // A strict rule fails closed by default, because it must never overshoot.
    let default = if is_strict { OnSyncLoss::Deny } else { OnSyncLoss::default() };
    let on_sync_loss = fields.choice("on_sync_loss", &ON_SYNC_LOSS).unwrap_or(default);
    let cost = cost(&mut fields, quota, sharing.as_ref(), &mut reader.attributes);
    let wider = wider(&mut fields, key.as_ref());
    let tiers = tiers(&mut fields, kind, key.as_ref(), reader);
    let response = match fields.take("response") {
        Some(item) => Response::read(&item),
        None => Some(Response::default()),
    };
    // Turns and requests in flight cannot be charged with the response.
    if after.is_some() && matches!(kind, AlgorithmName::LeakyBucket | AlgorithmName::Concurrency) {
        fields.record_at("cost", "expected a cost known at the request: the rule is a leaky_bucket or concurrency");
    }
    fields.finish_with(meant::of_rule);
    let Limit { algorithm, quota, rate } = limit?;
    let rule = Rule {
        name: name?,
        matches: matches?,
        key: key?,
        missing,
        cost: cost?,
        algorithm,
        quota,
        rate,
        after: after.map(Arc::new),
        // A strict rule debits its tokens beforehand, so it always reserves some.
        reserves: reserves.is_some_and(|reserves| reserves || is_strict),
        variant: Variant::default(),
        enforcement,
        penalty,
        sharing: sharing?,
        on_sync_loss,
        response: response?,
    };
    *found += (tiers.len() + 1) * (wider.len() + 1);
    if *found > RULES_MAX {
        return None;
    }
    let mut rules = Vec::new();
    for variant in variants(rule, tiers, item) {
        rules.append(&mut expanded(variant, &wider, item));
    }
    Some(rules)
}

/// Records errors for fields about sharing. POPs share only token buckets and strict rules.
fn record_unshared_fields(kind: AlgorithmName, sharing: Option<&Sharing>, fields: &mut Fields<'_>) {
    let is_strict = sharing.is_some_and(|sharing| sharing.strict);
    let are_known = if kind == AlgorithmName::TokenBucket { SHARED.len() } else { usize::from(is_strict) };
    for &(name, elsewhere) in SHARED.iter().skip(are_known) {
        if let Some(item) = fields.take(name) {
            item.record(format_args!("expected only with algorithm: token_bucket{elsewhere}"));
        }
    }
}

fn sharing(fields: &mut Fields<'_>, quota: Option<Quota>) -> Option<Sharing> {
    let strict = fields.boolean("strict").unwrap_or_default();
    let burst_max = quota.map_or(TOKENS_MAX, Quota::burst);
    let local_burst = fields.number("local_burst", 1..=burst_max).unwrap_or(burst_max);
    let floors = match fields.take("min_share") {
        Some(item) => floors(&item)?,
        None => Vec::new(),
    };
    Some(Sharing { strict, local_burst, floors, refill_policy: RefillPolicy::Continuous })
}

fn floors(item: &Item<'_>) -> Option<Vec<Floor>> {
    let Some(object) = item.value().as_object().filter(|object| (1..=FLOORS_MAX).contains(&object.len())) else {
        item.record_unexpected(format_args!("1 to {FLOORS_MAX} regions and their parts, as in {{eu: 30}}"));
        return None;
    };
    let mut floors: Vec<Floor> = Vec::with_capacity(object.len());
    for (region, percent) in object {
        let percent = item.within(region, percent);
        if !is_region_name(region) {
            percent.record(format_args!(
                "expected 1 to {REGION_NAME_MAX} characters from a-z, 0-9, - and _ as a region's name"
            ));
        }
        let percent = percent.number(1..=100).and_then(|percent| u8::try_from(percent).ok());
        floors.extend(percent.map(|percent| Floor { region: region.clone(), percent }));
    }
    let sum: u32 = floors.iter().map(|floor| u32::from(floor.percent)).sum();
    if sum > 100 {
        item.record(format_args!("expected parts that add up to at most 100, found {sum}"));
    }
    Some(floors)
}
