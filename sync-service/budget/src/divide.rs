//! Turns a budget's account into grants: an admit ratio for each region, a level, a burst, a lease.
//!
//! With level x, rate L, burst B, demand D of the whole fleet, horizon H:
//!
//! ```text
//! x_target = min(0.1 B + 0.2 s x L, B - 0.1 s x L)
//! L_eff    = max(0, L + s (x - x_target) / H)     s = 4 above the target, 1 below
//! p        = 0 if L_eff = 0, else min(1, L_eff / D)
//! ```
//!
//! Where regions have floors (region r: `f_r` of the quota), demand up to r's floor is r's own even while the budget is
//! in debt. The rest is divided in proportion to the demand beyond the floors:
//!
//! ```text
//! own_r = min(D_r, f_r L)        q = min(1, max(0, L_eff - sum own) / (D - sum own))
//! p_r   = (own_r + q (D_r - own_r)) / D_r
//! ```
//!
//! A client that was seen at m points of presence at once gets about B / m at each (see [`crate::records`]).
//!
//! Everything is computed in nanoseconds of refill, where L is 1, so that even a quota of one token a day stays
//! precise. Every quotient is rounded down, against the client, by less than 2 parts in 2^30 or 0.001 tokens.

use alloc::collections::BTreeMap;

use weir_protocol::messages::{AdmitRatio, Allowance, DIVISOR_MAX, Grant};
use weir_protocol::quota::Quota;
use weir_protocol::sharing::Sharing;
use weir_protocol::time::SECOND_NS;

use crate::budget::{Account, PlanEntry, ReplicaDemand};
use crate::demand::{WARM_GAP_NS, WINDOW_NS};
use crate::scaled;

/// Time over which a surplus is given out or a debt recovered, in nanoseconds (H in the design).
pub const HORIZON_NS: u64 = SECOND_NS;
/// Target level (`x_target`), first part: the burst divided by this.
pub const TARGET_PART: u64 = 10;
/// Target level, second part: refill, in nanoseconds, for tokens that are admitted and not charged yet.
pub const TARGET_NS: u64 = SECOND_NS / 5;
/// Minimum distance of the target level from full, in nanoseconds of refill. A small burst overflows between two
/// charges, so its target is lower, even below empty.
pub const BELOW_FULL_NS: u64 = SECOND_NS / 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantSettings {
    /// Time until the next grant arrives, in nanoseconds: the sync interval and a round trip.
    pub interval_ns: u64,
    pub lease_min_ns: u64,
    pub lease_max_ns: u64,
    /// Time for which a POP may spend the tokens that it is leased under a strict rule, in nanoseconds.
    pub strict_lease_ns: u64,
    /// Like `strict_lease_ns`, for quotas that do not refill before a window ends.
    pub calendar_lease_ns: u64,
}

impl Default for GrantSettings {
    fn default() -> Self {
        Self {
            interval_ns: 350_000_000,
            lease_min_ns: 2 * SECOND_NS,
            lease_max_ns: 60 * SECOND_NS,
            strict_lease_ns: 2 * SECOND_NS,
            calendar_lease_ns: 600 * SECOND_NS,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloorCapacity {
    /// In nanoseconds of the quota's refill per second.
    pub rate_ns: u64,
    /// Tokens that may be taken at once, in nanoseconds of the quota's refill.
    pub level_ns: u64,
}

/// Grants of a key to the POPs of one region, until the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    pub watch_level: WatchLevel,
    pub weight: Weight,
    /// Grant for POPs with demand for the key.
    pub asking: Grant,
    /// Grant for the other POPs, where the client may appear next.
    pub elsewhere: Grant,
    pub is_single_pop: bool,
}

impl Division {
    /// Importance of keeping the key: resting keys are dropped first, then those with the smallest deficits.
    pub(crate) fn importance(&self) -> (WatchLevel, Weight) {
        (self.watch_level, self.weight)
    }

    pub fn allowance(&self) -> Allowance {
        if self.watch_level == WatchLevel::Warm { Allowance::Warm } else { Allowance::Hot(self.asking) }
    }
}

/// Grants of the key to the POPs of `region` until the next ones; a function of the account, so that regions agree.
///
/// `own` is the current capacity of the region's own floor; without it, the floor's plain rate applies.
pub fn divide(
    entry: &PlanEntry,
    account: &Account,
    own: Option<FloorCapacity>,
    region: &str,
    terms: &GrantSettings,
) -> Division {
    let (quota, sharing) = (entry.quota, &entry.sharing);
    let level_ns = i128::from(quota.fill_ns()) - i128::from(account.deficit_ns);
    let asked = FleetDemand::of(account, sharing, terms);
    let is_single_pop = asked.askers <= 1;
    // If one POP has all the demand, its bucket is exact and needs no ratio, only the level. A region's floor
    // is an exception: it refills long before a debt is paid.
    let is_exact = is_single_pop && (level_ns >= 0 || sharing.floor(region) == 0);
    let ratio = if is_exact { AdmitRatio::ONE } else { ratio(entry, own, level_ns, &asked, region) };
    let watch_level = WatchLevel::of(quota, account, asked.lately_milli);
    let fan_out = u64::from(account.fan_out.max(1));
    let (burst, divisor) = hold(entry, fan_out, 0, terms);
    let elsewhere = Grant {
        ratio,
        level_milli: level_milli(quota, if is_exact { level_ns } else { level_ns.max(0) }, own),
        burst,
        divisor,
        lease_ms: if watch_level == WatchLevel::Resting {
            millis(terms.lease_max_ns)
        } else {
            lease_ms(level_ns, terms)
        },
    };
    // If neither this POP nor two others have demand, the client may appear anywhere next.
    let pops = if is_single_pop && entry.own_milli == 0 { fan_out } else { fan_out.min(asked.askers) };
    let (burst, divisor) =
        if is_single_pop && pops <= 1 { (quota.burst(), 1) } else { hold(entry, pops, entry.own_milli, terms) };
    let weight = Weight::of(quota, account);
    Division { watch_level, weight, asking: Grant { burst, divisor, ..elsewhere }, elsewhere, is_single_pop }
}

/// Burst and rate divisor of a POP, for a client that was seen at `pops` POPs at once. The burst is the POP's
/// part of the whole burst, but at least a few requests and the demand until the next grant.
fn hold(entry: &PlanEntry, pops: u64, asked_milli: u64, terms: &GrantSettings) -> (u32, u32) {
    let PlanEntry { quota, sharing, .. } = entry;
    let most = u64::from(sharing.local_burst);
    let lump = likely_milli(scaled(asked_milli, terms.interval_ns, SECOND_NS)) / 1_000;
    let least = LUMP.min(u64::from(quota.burst()) / 4).max(1);
    let tokens = least.max(lump).min(most);
    let divisor = rate_divisor_of(entry, pops, asked_milli, tokens, terms);
    let burst = ((tokens - 1) * divisor + 1).max(most / pops.max(1));
    (u32::try_from(burst).unwrap_or(sharing.local_burst), u32::try_from(divisor).unwrap_or(DIVISOR_MAX))
}

/// Rate divisor for a POP that must be able to hold `tokens`.
fn rate_divisor_of(entry: &PlanEntry, pops: u64, asked_milli: u64, tokens: u64, terms: &GrantSettings) -> u64 {
    let PlanEntry { quota, sharing, .. } = entry;
    let divisor = pops / UNEVEN;
    if divisor <= 1 {
        return 1;
    }
    // At least one token must refill until the next grant, and the rate must not fall below the POP's demand.
    let slowest = (terms.interval_ns / quota.token_ns()).clamp(1, u64::from(DIVISOR_MAX));
    let quickest = SECOND_NS * 1_000 / asked_milli.saturating_mul(quota.token_ns()).max(1);
    // Each token is charged `divisor` times, except the last one, which only has to be present.
    let most = u64::from(sharing.local_burst).saturating_sub(1) / tokens.saturating_sub(1).max(1);
    divisor.min(quickest).clamp(1, slowest).min(most).max(1)
}

/// Upper estimate of the number of arrivals for an expected `mean_milli`, in thousandths: a Poisson process deviates by
/// the root of its mean.
fn likely_milli(mean_milli: u64) -> u64 {
    mean_milli.saturating_add(LUMP_DEVIATIONS * mean_milli.saturating_mul(1_000).isqrt())
}

pub fn region_of(replica: &str) -> &str {
    replica.split_once('/').map_or(replica, |(region, _)| region)
}

/// Part of a replica's demand that still counts, and the number of its POPs with demand. Its last report counts in full
/// for an interval, and then fades like its window, so that a client that moves does not count twice.
fn still_asked(replica: &ReplicaDemand, terms: &GrantSettings) -> (u128, u64) {
    let (interval_us, window_us) = (terms.interval_ns / 1_000, WINDOW_NS / 1_000);
    let fade_us = window_us.saturating_sub(interval_us).max(1);
    let left_us = interval_us.saturating_add(fade_us).saturating_sub(replica.age_us).min(fade_us);
    let milli = scaled(replica.demand.milli, left_us, fade_us).into();
    (milli, if left_us > 0 { u64::from(replica.demand.askers) } else { 0 })
}

struct FleetDemand<'a> {
    /// Thousandths of a token per second.
    milli: u128,
    /// Like `milli`, but a report counts in full until a warm key's next one is due. A client that moves counts at
    /// several POPs, so this sum only decides how closely the key is watched.
    lately_milli: u128,
    /// By region, with the same sum as `milli`; empty if no region has a floor.
    by_region: BTreeMap<&'a str, u128>,
    askers: u64,
}

impl<'a> FleetDemand<'a> {
    fn of(account: &'a Account, sharing: &Sharing, terms: &GrantSettings) -> Self {
        let mut asked = Self { milli: 0, lately_milli: 0, by_region: BTreeMap::new(), askers: 0 };
        for replica in &account.replicas {
            let (milli, askers) = still_asked(replica, terms);
            asked.milli += milli;
            if replica.age_us.saturating_mul(1_000) <= *WARM_GAP_NS.end() {
                asked.lately_milli += u128::from(replica.demand.milli);
            }
            asked.askers += askers;
            if !sharing.floors.is_empty() {
                *asked.by_region.entry(region_of(&replica.name)).or_default() += milli;
            }
        }
        asked
    }
}

/// Admit ratio of `region`. All sums here are in thousandths of a nanosecond of refill per second.
fn ratio(
    entry: &PlanEntry,
    own: Option<FloorCapacity>,
    level_ns: i128,
    asked: &FleetDemand<'_>,
    region: &str,
) -> AdmitRatio {
    let PlanEntry { quota, sharing, .. } = entry;
    const { assert!(HORIZON_NS == SECOND_NS, "so that a level divided by it is a rate in the same digits") };
    let price = u128::from(quota.token_ns());
    let own = |name: &str, milli: u128| {
        let rate = u128::from(sharing.floor(name)) * u128::from(HORIZON_NS * 1_000 / 100);
        let mine = own.filter(|_| name == region).map(|own| u128::from(own.rate_ns) * 1_000);
        (price * milli).min(mine.unwrap_or(rate))
    };
    let own_sum: u128 =
        if sharing.floors.is_empty() { 0 } else { asked.by_region.iter().map(|(r, m)| own(r, *m)).sum() };
    // L_eff, less the regions' own floors.
    let beyond_ns = level_ns - target_ns(*quota);
    let rest_ns = i128::from(HORIZON_NS) + if beyond_ns > 0 { beyond_ns * i128::from(SURPLUS) } else { beyond_ns };
    let rest = u128::try_from(rest_ns * 1_000).unwrap_or(0).saturating_sub(own_sum);
    let of_rest = AdmitRatio::of(rest, price * asked.milli - own_sum);
    if sharing.floor(region) == 0 {
        return of_rest;
    }
    // p = q + (1 - q) own / D; a region without demand so far starts within its floor.
    let milli = asked.by_region.get(region).copied().unwrap_or(0);
    if milli == 0 {
        return AdmitRatio::ONE;
    }
    let left = u128::from(AdmitRatio::ONE.bits() - of_rest.bits());
    let by_floor = left * own(region, milli) / (price * milli);
    AdmitRatio::from_bits(of_rest.bits() + u32::try_from(by_floor).unwrap_or(0))
}

/// For a client that was seen at many POPs, each POP refills this many times faster than by an even division.
const UNEVEN: u64 = 5;
/// A POP's burst covers its demand until the next grant, plus this many standard deviations.
const LUMP_DEVIATIONS: u64 = 2;
/// Minimum number of requests that a POP lets through at once, unless that is a large part of the burst.
const LUMP: u64 = 2;
/// A surplus is given out this many times faster than a deficit is made up.
pub(crate) const SURPLUS: u64 = 4;

pub(crate) fn target_ns(quota: Quota) -> i128 {
    let fill_ns = quota.fill_ns();
    i128::from(fill_ns / TARGET_PART + TARGET_NS).min(i128::from(fill_ns) - i128::from(BELOW_FULL_NS))
}

fn level_milli(quota: Quota, level_ns: i128, own: Option<FloorCapacity>) -> i64 {
    // A slow quota may refill less than a token until the next grant, but the floor's tokens are available anyway.
    let own_ns = own.map(|own| own.level_ns.min(LUMP * quota.token_ns()));
    let level_ns = own_ns.map_or(level_ns, |own_ns| level_ns.max(own_ns.into()));
    if let (Ok(level_ns), Ok(token_ns)) = (i64::try_from(level_ns * 1_000), i64::try_from(quota.token_ns())) {
        return level_ns.div_euclid(token_ns);
    }
    let milli = (level_ns * 1_000).div_euclid(i128::from(quota.token_ns()));
    i64::try_from(milli).unwrap_or(if milli < 0 { i64::MIN } else { i64::MAX })
}

fn lease_ms(level_ns: i128, terms: &GrantSettings) -> u32 {
    let debt_ns = u64::try_from(-level_ns).unwrap_or(0);
    let lease_ns =
        SECOND_NS.saturating_add(debt_ns).clamp(terms.lease_min_ns, terms.lease_max_ns.max(terms.lease_min_ns));
    millis(lease_ns)
}

fn millis(ns: u64) -> u32 {
    u32::try_from(ns / 1_000_000).unwrap_or(u32::MAX)
}

pub const RANK_MAX: u8 = 4;
/// A key is hot if its demand exceeds its rate divided by this, or its deficit its burst divided by this.
const HOT_PART: u64 = 2;

/// Degree to which a key is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchLevel {
    /// Far from its quota: no other POP needs a grant.
    Warm,
    /// Without demand now, but its budget is far from full, or its client was seen at many POPs at once and may return
    /// to all of them.
    Resting,
    Hot,
}

impl WatchLevel {
    /// Watch level of a key with a demand of `demand_milli` thousandths of a token per second.
    pub fn of(quota: Quota, account: &Account, demand_milli: u128) -> Self {
        let rate_milli = SECOND_NS * 1_000 / quota.token_ns();
        let is_busy = demand_milli.saturating_mul(u128::from(HOT_PART)) > rate_milli.into();
        let lacks = account.deficit_ns.saturating_mul(HOT_PART) > quota.fill_ns();
        if is_busy || lacks && demand_milli > 0 {
            Self::Hot
        } else if lacks || account.fan_out > 1 {
            Self::Resting
        } else {
            Self::Warm
        }
    }
}

/// Importance of pushing a key to POPs: the deficit of its budget, in thousandths of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u32);

impl Weight {
    pub fn of(quota: Quota, account: &Account) -> Self {
        let lacks = scaled(account.deficit_ns, 1_000, quota.fill_ns());
        Self(u32::try_from(lacks).unwrap_or(u32::MAX))
    }

    /// Rank of a hot key on the list that regions share, by its deficit in bursts. Above 1 it is in debt.
    pub(crate) fn rank(self) -> u8 {
        match self.0 {
            0..=1_000 => 1,
            1_001..=2_000 => 2,
            2_001..=8_000 => 3,
            _ => RANK_MAX,
        }
    }
}
