//! State of one budget, for an operator's query.

use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;

use crate::divide::Division;
use crate::escrow::{AcquireRequest, AcquireResult};
use crate::plan::PlanEntry;

/// Question to the store about one key; it debits nothing.
#[derive(Clone, Debug)]
pub enum BudgetQuery {
    /// About a shared budget.
    Shared(PlanEntry),
    /// About a strict budget.
    Strict(AcquireRequest),
}

/// State of a budget.
#[derive(Clone, Debug)]
pub struct BudgetState {
    /// Its quota.
    pub quota: Quota,
    /// Its refill policy.
    pub refill_policy: RefillPolicy,
    /// Its level in thousandths of a token; negative if it is in debt.
    pub level_milli: i64,
    /// Nanoseconds of refill until it is full.
    pub deficit_ns: u64,
    /// Its recent fan-out in bursts; 0 if none is remembered.
    pub spread: u32,
    /// Tokens that are leased to POPs and not known to be spent.
    pub outstanding: u64,
    /// Grants to POPs of this region; none for a strict budget.
    pub division: Option<Division>,
}

/// Level of a budget with a deficit of `deficit_ns`, in thousandths of a token; negative if it is in debt.
pub fn level_milli(quota: Quota, deficit_ns: u64) -> i64 {
    let lacks = u128::from(deficit_ns) * 1_000 / u128::from(quota.token_ns());
    let lacks = i64::try_from(lacks).unwrap_or(i64::MAX);
    (i64::from(quota.burst()) * 1_000).saturating_sub(lacks)
}

/// State of a strict budget, from the result of a draw.
impl From<(&AcquireRequest, &AcquireResult)> for BudgetState {
    fn from((draw, drawn): (&AcquireRequest, &AcquireResult)) -> Self {
        Self {
            quota: draw.quota,
            refill_policy: draw.refill_policy,
            level_milli: level_milli(draw.quota, drawn.deficit_ns),
            deficit_ns: drawn.deficit_ns,
            spread: 0,
            outstanding: drawn.outstanding,
            division: None,
        }
    }
}
