//! Limits on a POP's claims: no more than its own buckets can have admitted.
//!
//! A POP's bucket admits at most burst + rate x t (I3). So whatever a POP reports as admitted for a key, a
//! *meter* lets no more through: a token bucket with the key's rate that holds [`BURSTS`] bursts. It holds more
//! than one, as a POP that restarts has a full bucket. Time counts from the POP's last report of the key,
//! however long ago, since an honest POP reports everything it admitted meanwhile. It is measured by the POP's
//! own clock, which may not run ahead of ours. Claims beyond that are not charged until the meter has refilled.
//!
//! Meters are bounded: if a POP claims more keys at once than its share, the rest is not charged until there is
//! room. Keys of a rule that is in none of the kept rule sets are refused, and so are bans that no rule of
//! theirs imposes.
//!
//! Strict rules need no meters for leased tokens: their budgets give no more than they have, whoever asks. But
//! a request that held tokens may be reported to have cost more than it held ([`crate::escrow`]). Its rule
//! gives the maximum cost, and a meter lets such costs through, each whole, while it has a token. So an honest
//! POP waits for none of them if its requests cost no more than [`BURSTS`] times the tokens they held, since
//! the requests at one time hold no more than a burst.

mod limits;
mod meter;
mod visit;

use alloc::string::String;
use alloc::vec::Vec;

use weir_protocol::messages::{BudgetRule, POPS_MAX};
use weir_protocol::quota::Quota;
use weir_protocol::time::SECOND_NS;

pub use self::limits::ReportLimits;
pub(crate) use self::meter::Passed;
pub use self::meter::{BURSTS, FLOOD_PER_S, LATE_NS, OF_ONE_POP_MAX, SPAN_NS};
use crate::divide::{HORIZON_NS, SURPLUS};

/// Maximum demand accepted from a POP, as a multiple of the highest rate that a budget ever gives out.
pub const DEMAND_TIMES: u64 = 100;
/// Maximum number of keys that all POPs may claim at once. Beyond it each POP still gets its [`EVEN_SHARE`], so
/// that the total is at most twice this.
pub const METERS_MAX: usize = 1 << 19;
/// Number of keys that each POP may claim at once, however many POPs there are.
pub const EVEN_SHARE: usize = METERS_MAX / POPS_MAX as usize;

/// Reason for a refused claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedClaimReason {
    /// Its rule is not in the fleet's rule sets, or has another quota there.
    Rule,
    /// Its rule set is newer than those known here.
    Newer,
    /// It has more tokens than the POP's bucket can have admitted.
    Tokens,
    /// It has more keys than the POP's share.
    Keys,
    /// It is a ban that no rule imposes, or there are too many.
    Ban,
    /// It is a request that cost more than its rule allows.
    Cost,
}

/// Kind of sender of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// A POP, identified by its token.
    Pop,
    /// The gateway of this process. Its callers state the costs of their requests; the rule's limits on
    /// response costs and the bucket's capacity do not apply.
    Gateway,
}

/// Refused claims of a report, for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Reason of the refusal.
    pub reason: RefusedClaimReason,
    /// Number of keys or bans.
    pub count: u64,
    /// Rule of the first of them.
    pub rule: String,
    /// Claim of the first of them: tokens, keys, or a ban in milliseconds.
    pub claimed: u64,
    /// Maximum that was expected.
    pub expected: u64,
}

/// A rule that the fleet may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRule {
    /// The rule as reports contain it.
    pub rule: BudgetRule,
    /// Length of its penalty's ban in milliseconds; 0 if it has no penalty.
    pub ban_ms: u32,
    /// Maximum cost of one request.
    pub cost_max: u32,
}

/// Maximum demand accepted from a POP for one key, in thousandths of a token per second: a multiple of the
/// highest rate that a budget gives out.
pub(crate) fn demand_milli_max(quota: Quota) -> u64 {
    const { assert!(HORIZON_NS == SECOND_NS, "a surplus is given out within a part of a second") };
    let rate_milli = SECOND_NS * 1_000 / quota.token_ns();
    let surplus_milli = SURPLUS * 1_000 * u64::from(quota.burst());
    (rate_milli + surplus_milli).max(1_000) * DEMAND_TIMES
}

fn refuse(
    refusals: &mut Vec<Refusal>,
    reason: RefusedClaimReason,
    rule: &BudgetRule,
    claimed: u64,
    expected: u64,
) {
    match refusals.iter_mut().find(|known| known.reason == reason) {
        Some(known) => known.count += 1,
        None => refusals.push(Refusal { reason, count: 1, rule: rule.name.clone(), claimed, expected }),
    }
}
