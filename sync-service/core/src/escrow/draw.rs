//! What is asked of a strict budget, and what it answers.

use alloc::vec::Vec;

use weir_wire::calendar::{Calendar, Window};
use weir_wire::messages::Leased;
use weir_wire::quota::Quota;

use crate::budget::{BudgetId, COUNT_MAX, DEFICIT_NS_MAX};

/// The shortest lease, in microseconds: one millisecond, since a lease of zero means none.
pub const LEASE_US_MIN: u64 = 1_000;
/// The longest lease, in microseconds.
pub const LEASE_US_MAX: u64 = 10_000_000;
/// The longest lease of a calendar's quota, in microseconds.
pub const CALENDAR_LEASE_US_MAX: u64 = 600_000_000;
/// A lease lasts longer for the budget than for the POP by one part in this many: the POP's clock may be slower by so
/// much.
pub const DRIFT_PART: u64 = 64;
/// What a token is worth under a window's law, in nanoseconds of refill, though none comes.
pub const WINDOW_TOKEN_NS: u64 = 1_000;

/// How a strict budget gets back what was debited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// At the quota's rate, up to its burst: a token bucket.
    Steady,
    /// All of it when a window ends: this one, by the clock of the weir-sync that draws.
    Window(Window),
}

/// Names a strict budget in a store. A rule whose quota changes to another calendar gets another budget.
pub type EscrowId = (Option<Calendar>, BudgetId);

/// What one report wants of one strict budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Which budget.
    pub id: BudgetId,
    /// How large it is.
    pub quota: Quota,
    /// How long the POP may spend what it is given, in microseconds; held between [`LEASE_US_MIN`] and
    /// [`LEASE_US_MAX`], or [`CALENDAR_LEASE_US_MAX`] for a calendar quota.
    pub lease_us: u64,
    /// How it refills.
    pub law: Law,
    /// A claim for each of the POP's epochs, usually one.
    pub claims: Vec<Claim>,
}

/// What a POP wants for an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The epoch.
    pub epoch: u64,
    /// Tokens spent since the epoch began.
    pub admitted: u64,
    /// How many tokens beyond those it wants debited. Zero gives the epoch back.
    pub ahead: u32,
}

/// What a strict budget is after a draw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Nanoseconds of refill until full; under a window's law, what the tokens debited would take at the quota's rate.
    pub deficit_ns: u64,
    /// Tokens leased and not known to be spent.
    pub outstanding: u64,
    /// Tokens that this draw debited.
    pub given: u64,
    /// The store's clock at the draw, in microseconds.
    pub now_us: u64,
    /// An answer to each claim, in order.
    pub leases: Vec<Leased>,
}

impl Law {
    /// Which calendar's windows it goes by.
    pub fn calendar(&self) -> Option<Calendar> {
        match self {
            Self::Steady => None,
            Self::Window(window) => Some(window.calendar),
        }
    }
}

impl Draw {
    /// The budget that it draws on.
    pub fn escrow(&self) -> EscrowId {
        (self.law.calendar(), self.id.clone())
    }

    /// For how long a POP may spend what it is given, in microseconds.
    pub fn leased_us(&self) -> u64 {
        let most_us = match self.law {
            Law::Steady => LEASE_US_MAX,
            Law::Window(_) => CALENDAR_LEASE_US_MAX,
        };
        self.lease_us.clamp(LEASE_US_MIN, most_us)
    }

    /// For how long it counts as outstanding, in microseconds: a little longer.
    pub fn held_us(&self) -> u64 {
        self.leased_us() + self.leased_us().div_ceil(DRIFT_PART)
    }

    /// What a token is worth by the law, in nanoseconds of refill.
    pub fn token_ns(&self) -> u64 {
        match self.law {
            Law::Steady => self.quota.token_ns(),
            Law::Window(_) => WINDOW_TOKEN_NS,
        }
    }

    /// What [`Drawn::deficit_ns`] says of a budget that is `deficit_ns` from full by its law.
    pub fn told_ns(&self, deficit_ns: u64) -> u64 {
        match self.law {
            Law::Steady => deficit_ns,
            Law::Window(_) => price_ns(deficit_ns / WINDOW_TOKEN_NS, self.quota.token_ns()),
        }
    }
}

impl Claim {
    /// Tokens spent, within what a record holds.
    pub fn spent(&self) -> u64 {
        self.admitted.min(COUNT_MAX)
    }
}

/// What tokens are worth, in nanoseconds of refill, within what a deficit holds.
pub(super) fn price_ns(tokens: u64, token_ns: u64) -> u64 {
    tokens.saturating_mul(token_ns).min(DEFICIT_NS_MAX)
}
