//! Acquires from a strict budget, and their results.

use alloc::vec::Vec;

use weir_protocol::calendar::{Calendar, Window};
use weir_protocol::messages::{HELD_MS_MAX, Leased};
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::{GIVEN_BACK_S, RefillPolicy};

use crate::budget::{BudgetId, COUNT_MAX, DEFICIT_NS_MAX};

/// The shortest lease, in microseconds: one millisecond, since a lease of zero means none.
pub const LEASE_US_MIN: u64 = 1_000;
pub const LEASE_US_MAX: u64 = 10_000_000;
pub const CALENDAR_LEASE_US_MAX: u64 = 600_000_000;
/// Longest time for which a request may hold an epoch without confirmation, in microseconds.
pub const HELD_US_MAX: u64 = HELD_MS_MAX as u64 * 1_000;
/// Reciprocal of the part by which a lease is longer for the budget than for the POP, whose clock may be slower.
pub const DRIFT_PART: u64 = 64;
/// Value of a token under any policy that does not refill continuously, in nanoseconds of refill.
pub const WINDOW_TOKEN_NS: u64 = 1_000;

/// Shortest wait before asking again for tokens that others hold and may give back, in microseconds.
pub const ASK_AGAIN_US: u64 = 1_000_000;
/// Wait before asking again for a place in flight, in microseconds: the interval at which POPs report.
const ASK_FOR_A_PLACE_US: u64 = 250_000;
/// Minimum and maximum time for which a window is remembered after its end, in microseconds; in between, as long as it
/// lasted. The store's clock may step back by that time.
const WINDOW_KEPT_US: (u64, u64) = (60_000_000, 3_600_000_000);

/// Name of a strict budget in a store. A rule whose refill policy changes gets another budget.
pub type EscrowId = (RefillPolicy, BudgetId);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireRequest {
    pub id: BudgetId,
    pub quota: Quota,
    /// Time for which the POP may spend the tokens, in microseconds; clamped between [`LEASE_US_MIN`] and
    /// [`LEASE_US_MAX`], or [`CALENDAR_LEASE_US_MAX`] under a policy of windows.
    pub lease_us: u64,
    pub refill_policy: RefillPolicy,
    /// Current window by the clock of the weir-sync that acquires. Only months need it: without it, nothing is acquired
    /// from them.
    pub window: Option<Window>,
    /// A claim for each of the POP's epochs, usually one; or claims that lease nothing.
    pub claims: Vec<Claim>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub epoch: u64,
    /// Tokens spent since the epoch began.
    pub admitted: u64,
    /// Tokens wanted beyond `admitted`. Zero gives the epoch back.
    pub ahead: u32,
    /// Set if one request holds the epoch: the time for which it may continue, in microseconds, from [`LEASE_US_MIN`]
    /// to [`HELD_US_MAX`]. When the epoch is given back, more may have been spent than was debited.
    pub held_us: Option<u64>,
    pub kind: ClaimKind,
}

/// Kind of a claim. All but a lease are executed at once, and belong to no epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    /// Acquires tokens that the POP may spend while a lease lasts.
    Lease,
    /// Consumes all of `ahead`, or nothing.
    Take,
    /// Consumes all of `ahead` whatever the level is: tokens that were spent without a lease.
    Charge,
    /// Gives `ahead` back, up to a full budget.
    Refund,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireResult {
    /// Nanoseconds of refill until full. For queues, the time until the last turn is over; under a policy of
    /// windows, the counted tokens at the quota's rate.
    pub deficit_ns: u64,
    pub outstanding: u64,
    pub given: u64,
    pub now_us: u64,
    pub leases: Vec<Leased>,
}

impl AcquireResult {
    pub fn left(&self, quota: Quota) -> u32 {
        let left_ns = quota.fill_ns().saturating_sub(self.deficit_ns);
        u32::try_from(left_ns / quota.token_ns()).unwrap_or(u32::MAX)
    }
}

impl AcquireRequest {
    pub fn escrow(&self) -> EscrowId {
        (self.refill_policy, self.id.clone())
    }

    pub fn leased_us(&self) -> u64 {
        let most_us = if self.refill_policy.windows().is_none() { LEASE_US_MAX } else { CALENDAR_LEASE_US_MAX };
        // A request may begin at the end of its lease, and then continues for some time.
        self.lease_us.clamp(LEASE_US_MIN, most_us) + self.refill_policy.expires_us()
    }

    /// Time for which the tokens count as outstanding, in microseconds; slightly longer than the lease.
    pub fn held_us(&self) -> u64 {
        longer_us(self.leased_us())
    }

    pub fn token_ns(&self) -> u64 {
        if self.refill_policy.is_by_rate() { self.quota.token_ns() } else { WINDOW_TOKEN_NS }
    }

    /// Converts a deficit under the policy to [`AcquireResult::deficit_ns`].
    pub fn reply_deficit_ns(&self, deficit_ns: u64) -> u64 {
        if self.refill_policy.is_by_rate() {
            return deficit_ns;
        }
        price_ns(deficit_ns / WINDOW_TOKEN_NS, self.quota.token_ns())
    }

    /// Marks the `leases` that lack tokens which other claims hold: those `outstanding` that are not their own. Windows
    /// and places in flight have no marks; their wait is the time to ask again.
    pub fn record_returns(&self, leases: &mut [Leased], outstanding: u64) {
        if !matches!(self.refill_policy, RefillPolicy::Continuous | RefillPolicy::Sliding(_) | RefillPolicy::Log(_)) {
            return;
        }
        for (lease, claim) in leases.iter_mut().zip(&self.claims) {
            let own = lease.charged.saturating_sub(claim.spent());
            lease.may_return = lease.lease_ms > 0 && lease.wait_ms > 0 && outstanding > own;
        }
    }

    /// Wait before asking again for tokens of a window, or places, that others hold and may give back, in microseconds.
    pub fn ask_again_us(&self) -> u64 {
        match self.refill_policy {
            RefillPolicy::InFlight(_) => ASK_FOR_A_PLACE_US,
            RefillPolicy::Window(calendar) => {
                let lease_us = calendar.longest_us().min(CALENDAR_LEASE_US_MAX);
                ASK_AGAIN_US + lease_us.saturating_sub(GIVEN_BACK_S * 1_000_000) / 2
            }
            RefillPolicy::Continuous | RefillPolicy::Sliding(_) | RefillPolicy::Log(_) | RefillPolicy::Queue => 0,
        }
    }

    /// Time for which a window is remembered after its end; a sliding one counts for one more window.
    pub fn kept_us(&self) -> u64 {
        let length_us = self.refill_policy.windows().map_or(0, Calendar::longest_us);
        let counts_us = if let RefillPolicy::Sliding(_) = self.refill_policy { length_us } else { 0 };
        counts_us + length_us.clamp(WINDOW_KEPT_US.0, WINDOW_KEPT_US.1)
    }

    /// End of the window that the store's clock is in at `now_us`, or `None` if unknown.
    pub(super) fn end_us(&self, now_us: u64) -> Option<u64> {
        let calendar = self.refill_policy.windows()?;
        match calendar.even() {
            Some(_) => Some(calendar.window(now_us).end_us),
            None => self.window?.end_at(now_us),
        }
    }
}

impl Claim {
    /// Claim for a POP's `epoch` that no request is known to hold: tokens spent, and tokens wanted beyond them.
    pub const fn of(epoch: u64, admitted: u64, ahead: u32) -> Self {
        Self { epoch, admitted, ahead, held_us: None, kind: ClaimKind::Lease }
    }

    pub const fn take(tokens: u32) -> Self {
        Self::at_once(ClaimKind::Take, tokens)
    }

    pub const fn at_once(kind: ClaimKind, tokens: u32) -> Self {
        Self { kind, ..Self::of(0, 0, tokens) }
    }

    pub fn is_at_once(&self) -> bool {
        self.kind != ClaimKind::Lease
    }

    /// Time for which the POP may spend the tokens of an epoch that a request holds, in microseconds; else `None`.
    pub fn leased_us(&self) -> Option<u64> {
        self.held_us.map(|us| us.clamp(LEASE_US_MIN, HELD_US_MAX))
    }

    /// True if the request that held the epoch has ended.
    pub fn is_settled(&self) -> bool {
        self.held_us.is_some() && self.ahead == 0
    }

    pub fn spent(&self) -> u64 {
        self.admitted.min(COUNT_MAX)
    }
}

pub fn longer_us(leased_us: u64) -> u64 {
    leased_us + leased_us.div_ceil(DRIFT_PART)
}

pub(super) fn price_ns(tokens: u64, token_ns: u64) -> u64 {
    tokens.saturating_mul(token_ns).min(DEFICIT_NS_MAX)
}
