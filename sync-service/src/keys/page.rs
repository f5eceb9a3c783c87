//! JSON of keys for operators.

use serde_json::{Value, json};
use weir_budget::budget::{BudgetId, ReplicaDemand};
use weir_budget::divide::{Division, WatchLevel};
use weir_budget::hub::BudgetState;
use weir_budget::top_keys::fleet::{FleetTopKey, InRegion, Unseen};
use weir_budget::top_keys::{KeyRates, WINDOW_NS};
use weir_cli::moment;
use weir_protocol::messages::AdmitRatio;
use weir_protocol::time::SECOND_NS;
use weir_store::StoreError;

use super::name;

#[derive(Clone, Debug, Default)]
pub(crate) struct TopKeysPage {
    pub(crate) keys: Vec<FleetTopKey>,
    /// Upper bound of the rates of keys outside the list.
    pub(crate) unseen: Unseen,
    pub(crate) weir_syncs: usize,
    /// True if keys of other weir-syncs are missing: the store is out of reach, or they have another version.
    pub(crate) is_partial: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct KeyState {
    pub(crate) id: BudgetId,
    /// State of the key's budget, or the error that prevented reading it.
    pub(crate) budget: Result<BudgetState, StoreError>,
    /// Demand per weir-sync, from the store.
    pub(crate) replicas: Vec<ReplicaDemand>,
    /// Rates of the key, if it is one of the top keys.
    pub(crate) top_keys: Option<FleetTopKey>,
    /// Remaining time of the key's ban in milliseconds, or `None` if it is not banned.
    pub(crate) banned_ms: Option<u32>,
    /// True if POPs have recently reported keys of the rule.
    pub(crate) is_reported: bool,
}

pub(crate) fn one(one: &KeyState, now_ms: u64) -> Value {
    let mut json = match &one.top_keys {
        Some(key) => row(key, now_ms, one.banned_ms),
        None => named(&one.id, None, now_ms, one.banned_ms),
    };
    let mut add = |name: &str, value: Value| json[name] = value;
    add("is_reported", one.is_reported.into());
    add("asked_in", one.replicas.iter().map(replica).collect::<Vec<_>>().into());
    match &one.budget {
        Err(error) => add("store_error", error.to_string().into()),
        Ok(budget) => {
            let BudgetState { quota, level_milli, .. } = budget;
            add("rate_per_s", per_second(quota.token_ns()).into());
            add("burst", quota.burst().into());
            add("level", signed_parts(*level_milli).into());
            add("debt", signed_parts(level_milli.saturating_neg().max(0)).into());
            add("fan_out", budget.fan_out.into());
            add("leased", budget.outstanding.into());
            add("grant", budget.division.as_ref().map(grant).into());
            add("full_in_s", full_in_s(budget).into());
            add("free_in_s", free_in_s(budget, one.banned_ms).into());
        }
    }
    json
}

/// JSON of a key without its quota. `key` is `None` if its demand is too low for a top key; then all rates are 0.
fn named(id: &BudgetId, key: Option<&FleetTopKey>, now_ms: u64, banned_ms: Option<u32>) -> Value {
    let mut row = rates(key.map(|key| key.rates).unwrap_or_default());
    let mut add = |name: &str, value: Value| row[name] = value;
    add("rule", id.rule.as_str().into());
    add("key", name::show(&id.value).into());
    add("address", name::address(&id.value).into());
    let limited_ms = key.and_then(|key| key.limited_ms);
    add("since", limited_ms.map(|ms| moment::text(now_ms.saturating_sub(ms))).into());
    add("banned_until", banned_ms.map(|ms| moment::text(now_ms.saturating_add(ms.into()))).into());
    add("pops", key.map(pops).unwrap_or_default().into());
    add("regions", key.iter().flat_map(|key| &key.regions).map(region).collect::<Vec<_>>().into());
    row
}

fn replica(replica: &ReplicaDemand) -> Value {
    json!({
        "weir_sync": &*replica.name,
        "asked_per_s": parts(replica.demand.milli),
        "pops": replica.demand.askers,
        "silent_s": parts(replica.age_us / 1_000),
    })
}

fn grant(division: &Division) -> Value {
    let Division { watch_level, asking, is_single_pop, .. } = division;
    let watch_level = match watch_level {
        WatchLevel::Warm => "warm",
        WatchLevel::Resting => "resting",
        WatchLevel::Hot => "hot",
    };
    json!({
        "watch_level": watch_level,
        "admit_ratio": f64::from(asking.ratio.bits()) / f64::from(AdmitRatio::ONE.bits()),
        "burst": asking.burst,
        "rate_divisor": asking.divisor,
        "lease_s": parts(asking.lease_ms.into()),
        "is_single_pop": is_single_pop,
    })
}

/// Seconds until the budget is full, or `None` if its refill policy has no rate.
fn full_in_s(budget: &BudgetState) -> Option<f64> {
    budget.refill_policy.is_by_rate().then(|| parts(budget.deficit_ns / 1_000_000))
}

/// Seconds until a request of one token is allowed, or `None` if that does not follow from the rate.
fn free_in_s(budget: &BudgetState, banned_ms: Option<u32>) -> Option<f64> {
    let banned_ms = u64::from(banned_ms.unwrap_or(0));
    if !budget.refill_policy.is_by_rate() && budget.level_milli < 1_000 {
        return None;
    }
    let lacks = u128::try_from(1_000_i64.saturating_sub(budget.level_milli)).unwrap_or(0);
    let wait_ns = lacks * u128::from(budget.quota.token_ns()) / 1_000;
    let refill_ms = u64::try_from(wait_ns / 1_000_000).unwrap_or(u64::MAX);
    Some(parts(refill_ms.max(banned_ms)))
}

/// JSON of a list of top keys. `found` keys matched; `banned_ms` is the remaining time of each listed key's ban.
pub(crate) fn list(top_keys: &TopKeysPage, found: usize, now_ms: u64, banned_ms: &[Option<u32>]) -> Value {
    let keys = top_keys.keys.iter().zip(banned_ms).map(|(key, banned_ms)| row(key, now_ms, *banned_ms));
    let keys: Vec<_> = keys.collect();
    json!({
        "keys": keys,
        "found": found,
        "weir_syncs": top_keys.weir_syncs,
        "is_partial": top_keys.is_partial,
        "window_s": WINDOW_NS / SECOND_NS,
        "unlisted_bursts_per_s": {
            "limited": parts(top_keys.unseen.limited_milli), "admitted": parts(top_keys.unseen.admitted_milli),
        },
    })
}

pub(crate) fn row(key: &FleetTopKey, now_ms: u64, banned_ms: Option<u32>) -> Value {
    let mut row = named(&key.id, Some(key), now_ms, banned_ms);
    let mut add = |name: &str, value: Value| row[name] = value;
    add("rate_per_s", per_second(key.quota.token_ns()).into());
    add("burst", key.quota.burst().into());
    add("level", signed_parts(key.level_milli).into());
    add("debt", signed_parts(key.level_milli.saturating_neg().max(0)).into());
    row
}

/// POPs of a key, highest demand first.
fn pops(key: &FleetTopKey) -> Vec<Value> {
    let of = |(region, there): (&String, &InRegion)| {
        let pop = |(pop, rates): &(String, KeyRates)| (region.clone(), pop.clone(), *rates);
        there.pops.iter().map(pop).collect::<Vec<_>>()
    };
    let mut pops: Vec<_> = key.regions.iter().flat_map(of).collect();
    pops.sort_by_key(|(_, _, rates)| std::cmp::Reverse(rates.asked_milli));
    let pop = |(region, pop, of): (String, String, KeyRates)| {
        let mut row = rates(of);
        (row["pop"], row["region"]) = (pop.into(), region.into());
        row
    };
    pops.into_iter().map(pop).collect()
}

fn region((region, there): (&String, &InRegion)) -> Value {
    let mut row = rates(there.rates);
    (row["region"], row["pops"]) = (region.as_str().into(), there.askers.into());
    row
}

fn rates(rates: KeyRates) -> Value {
    json!({
        "asked_per_s": parts(rates.asked_milli),
        "admitted_per_s": parts(rates.admitted_milli),
        "limited_per_s": parts(rates.limited_milli()),
    })
}

/// Tokens per second at `token_ns` nanoseconds per token.
#[allow(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn per_second(token_ns: u64) -> f64 {
    let rate = SECOND_NS as f64 / token_ns.max(1) as f64;
    // Nine digits are enough even for one token a month.
    format!("{rate:.9}").parse().unwrap_or(rate)
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn parts(milli: u64) -> f64 {
    milli as f64 / 1_000.0
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn signed_parts(milli: i64) -> f64 {
    milli as f64 / 1_000.0
}
