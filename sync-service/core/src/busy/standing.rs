//! How one budget stands, when an operator asks.

use weir_wire::law::Law;
use weir_wire::quota::Quota;

use crate::divide::Division;
use crate::escrow::{Draw, Drawn};
use crate::plan::Entry;

/// What to ask the store of one key; it takes nothing.
#[derive(Clone, Debug)]
pub enum Question {
    /// Of a budget that POPs share.
    Shared(Entry),
    /// Of a strict budget.
    Strict(Draw),
}

/// How a budget stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// How large it is.
    pub quota: Quota,
    /// By what law it refills.
    pub law: Law,
    /// Its tokens, in thousandths; below zero it owes.
    pub level_milli: i64,
    /// Nanoseconds of refill until it is full.
    pub deficit_ns: u64,
    /// By how many bursts it was overdrawn of late; 0 if that is not remembered.
    pub spread: u32,
    /// Tokens that are leased to POPs and not known to be spent.
    pub outstanding: u64,
    /// What POPs of this region may do with it; none of a strict budget.
    pub division: Option<Division>,
}

/// The tokens of a budget that is `deficit_ns` from full, in thousandths; below zero it owes.
pub fn level_milli(quota: Quota, deficit_ns: u64) -> i64 {
    let lacks = u128::from(deficit_ns) * 1_000 / u128::from(quota.token_ns());
    let lacks = i64::try_from(lacks).unwrap_or(i64::MAX);
    (i64::from(quota.burst()) * 1_000).saturating_sub(lacks)
}

/// What the store said to `draw`.
impl From<(&Draw, &Drawn)> for Standing {
    fn from((draw, drawn): (&Draw, &Drawn)) -> Self {
        Self {
            quota: draw.quota,
            law: draw.law,
            level_milli: level_milli(draw.quota, drawn.deficit_ns),
            deficit_ns: drawn.deficit_ns,
            spread: 0,
            outstanding: drawn.outstanding,
            division: None,
        }
    }
}
