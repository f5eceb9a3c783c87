//! Temperature of a key: how closely it is watched, and how important it is to push it to POPs.

use weir_protocol::quota::Quota;
use weir_protocol::time::SECOND_NS;

use crate::budget::Account;
use crate::scaled::scaled;

/// Highest rank of a hot key.
pub const RANK_MAX: u8 = 4;
/// A key is hot if its demand is more than its rate divided by this, or its deficit more than its burst divided
/// by this.
const HOT_PART: u64 = 2;

/// Temperature of a key, which decides how closely it is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchLevel {
    /// Far from its quota: no other POP needs a grant.
    Warm,
    /// Without demand now. But its budget is far from full, or its client was seen at many POPs at once and may
    /// return to all of them.
    Resting,
    /// Close to its quota.
    Hot,
}

impl WatchLevel {
    /// Heat of a key with a demand of `demand_milli` thousandths of a token per second.
    pub fn of(quota: Quota, account: &Account, demand_milli: u128) -> Self {
        let rate_milli = SECOND_NS * 1_000 / quota.token_ns();
        let is_busy = demand_milli.saturating_mul(u128::from(HOT_PART)) > rate_milli.into();
        let lacks = account.deficit_ns.saturating_mul(HOT_PART) > quota.fill_ns();
        if is_busy || lacks && demand_milli > 0 {
            Self::Hot
        } else if lacks || account.spread > 1 {
            Self::Resting
        } else {
            Self::Warm
        }
    }
}

/// Importance of pushing a key to POPs: the deficit of its budget, in thousandths of a burst. A client that
/// sends one request to each of many keys gives each of them little weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u32);

impl Weight {
    /// Weight of a key with this account.
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
