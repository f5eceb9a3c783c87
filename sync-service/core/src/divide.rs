//! From a budget's account to a grant: one admit ratio for everyone, a level, a lease.
//!
//! With level x, rate L, burst B, demand D of the whole fleet, horizon H:
//!
//! ```text
//! L_eff = max(0, L + (x - 0.1 B) / H)        p = 0 if L_eff = 0, else min(1, L_eff / D)
//! ```
//!
//! Everything is computed in nanoseconds of refill, where L is 1 and so even a quota of one token a
//! day keeps its digits. Every quotient is rounded down: against the client, by less than one part
//! in 2^30 or one thousandth of a token.

use weir_limiter::quota::Quota;
use weir_limiter::time::SECOND_NS;
use weir_limiter::wire::{AdmitRatio, Grant};

use crate::budget::{Account, Member};
use crate::demand::WINDOW_NS;
use crate::hot::is_hot;

/// Over how long a surplus is given out or a debt taken back, in nanoseconds (H in the design).
pub const HORIZON_NS: u64 = SECOND_NS;
/// The level that is steered for, as one part of the burst in this many (`x_target` = 0.1 B).
pub const TARGET_PART: u64 = 10;

/// What the operator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long until the next grant arrives, in nanoseconds: the sync interval and a round trip.
    pub interval_ns: u64,
    /// The shortest lease, in nanoseconds.
    pub lease_min_ns: u64,
    /// The longest lease, in nanoseconds.
    pub lease_max_ns: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self { interval_ns: 350_000_000, lease_min_ns: 2 * SECOND_NS, lease_max_ns: 60 * SECOND_NS }
    }
}

/// What every POP may do with the key until the next grant: a function of the account alone, so
/// that regions agree without talking.
pub fn divide(quota: Quota, account: &Account, terms: &Terms) -> Grant {
    divided(quota, account, terms).0
}

/// The grant, and whether the key is hot.
pub fn divided(quota: Quota, account: &Account, terms: &Terms) -> (Grant, bool) {
    let level_ns = i128::from(quota.fill_ns()) - i128::from(account.deficit_ns);
    let (demand_milli, askers) = account.members.iter().fold((0_u128, 0_u64), |(milli, askers), member| {
        let (part, asks) = still_asked(member, terms);
        (milli + part, askers + asks)
    });
    // Where one POP sees the key, its bucket is exact and needs no ratio, only the level.
    let alone = askers <= 1;
    let ratio = if alone { AdmitRatio::ONE } else { ratio(quota, level_ns, demand_milli) };
    // Where nothing is to be admitted, each bucket takes on the whole debt: it outlasts the lease.
    let exact = alone || ratio == AdmitRatio::ZERO && level_ns < 0;
    let grant = Grant {
        ratio,
        level_milli: level_milli(quota, level_ns, exact, terms),
        burst: quota.burst(),
        lease_ms: lease_ms(level_ns, terms),
    };
    (grant, is_hot(quota, account, demand_milli))
}

/// `account`'s debt in thousandths of a token; zero where there is none.
pub fn debt_milli(quota: Quota, account: &Account) -> u64 {
    let debt_ns = account.deficit_ns.saturating_sub(quota.fill_ns());
    let milli = u128::from(debt_ns) * 1_000 / u128::from(quota.token_ns());
    u64::try_from(milli).unwrap_or(u64::MAX)
}

/// What a region's demand still counts for, and its POPs that are asked.
///
/// A region that is asked says so every interval; until then its word stands. One that has fallen
/// silent fades out as its window does, so that a client who moves is not counted twice.
fn still_asked(member: &Member, terms: &Terms) -> (u128, u64) {
    let (interval_us, window_us) = (terms.interval_ns / 1_000, WINDOW_NS / 1_000);
    let fade_us = window_us.saturating_sub(interval_us).max(1);
    let left_us = interval_us.saturating_add(fade_us).saturating_sub(member.age_us).min(fade_us);
    let milli = u128::from(member.demand.milli) * u128::from(left_us) / u128::from(fade_us);
    (milli, if left_us > 0 { u64::from(member.demand.askers) } else { 0 })
}

fn ratio(quota: Quota, level_ns: i128, demand_milli: u128) -> AdmitRatio {
    // L_eff, in H-ths of the rate.
    let effective = i128::from(HORIZON_NS) + level_ns - i128::from(quota.fill_ns() / TARGET_PART);
    let Ok(effective @ 1..) = u128::try_from(effective) else { return AdmitRatio::ZERO };
    // p = (effective / H) x (1e9 / token_ns) / (demand_milli / 1000), and H = 1e9.
    const { assert!(HORIZON_NS == SECOND_NS) };
    let part = effective * 1_000;
    let whole = u128::from(quota.token_ns()) * demand_milli;
    if part >= whole {
        return AdmitRatio::ONE;
    }
    let bits = part * u128::from(AdmitRatio::ONE.bits()) / whole;
    u32::try_from(bits).map_or(AdmitRatio::ONE, AdmitRatio::from_bits)
}

fn level_milli(quota: Quota, level_ns: i128, exact: bool, terms: &Terms) -> i64 {
    let level_ns = if exact { level_ns } else { level_ns.max(0) + i128::from(terms.interval_ns) };
    let milli = (level_ns * 1_000).div_euclid(i128::from(quota.token_ns()));
    i64::try_from(milli).unwrap_or(if milli < 0 { i64::MIN } else { i64::MAX })
}

fn lease_ms(level_ns: i128, terms: &Terms) -> u32 {
    let debt_ns = u64::try_from(-level_ns).unwrap_or(0);
    let lease_ns = SECOND_NS
        .saturating_add(debt_ns)
        .clamp(terms.lease_min_ns, terms.lease_max_ns.max(terms.lease_min_ns));
    u32::try_from(lease_ns / 1_000_000).unwrap_or(u32::MAX)
}
