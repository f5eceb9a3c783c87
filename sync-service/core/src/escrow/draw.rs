//! What is asked of a strict budget, and what it answers.

use alloc::vec::Vec;

use weir_wire::calendar::{Calendar, Window};
use weir_wire::law::{GIVEN_BACK_S, Law};
use weir_wire::messages::{HELD_MS_MAX, Leased};
use weir_wire::quota::Quota;

use crate::budget::{BudgetId, COUNT_MAX, DEFICIT_NS_MAX};

/// The shortest lease, in microseconds: one millisecond, since a lease of zero means none.
pub const LEASE_US_MIN: u64 = 1_000;
/// The longest lease, in microseconds.
pub const LEASE_US_MAX: u64 = 10_000_000;
/// The longest lease under a law of windows, in microseconds.
pub const CALENDAR_LEASE_US_MAX: u64 = 600_000_000;
/// The longest that a request may hold an epoch without saying so again, in microseconds.
pub const HELD_US_MAX: u64 = HELD_MS_MAX as u64 * 1_000;
/// A lease lasts longer for the budget than for the POP by one part in this many: the POP's clock may be slower by so
/// much.
pub const DRIFT_PART: u64 = 64;
/// What a token is worth under any law by which none refills, in nanoseconds of refill.
pub const WINDOW_TOKEN_NS: u64 = 1_000;

/// How soon to ask again for tokens that others hold and may give back, in microseconds, at least.
pub const ASK_AGAIN_US: u64 = 1_000_000;
/// How soon to ask again for a place in flight, in microseconds: requests end at any time, and POPs report that as often.
const ASK_FOR_A_PLACE_US: u64 = 250_000;
/// How long a window is remembered after its end, in microseconds, at least and at most; in between, for as long as it
/// lasted. The store's clock may step back by so much without beginning a window again.
const WINDOW_KEPT_US: (u64, u64) = (60_000_000, 3_600_000_000);

/// Names a strict budget in a store. A rule that changes to another law gets another budget.
pub type EscrowId = (Law, BudgetId);

/// What one report wants of one strict budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Which budget.
    pub id: BudgetId,
    /// How large it is.
    pub quota: Quota,
    /// How long the POP may spend what it is given, in microseconds; held between [`LEASE_US_MIN`] and
    /// [`LEASE_US_MAX`], or [`CALENDAR_LEASE_US_MAX`] under a law of windows.
    pub lease_us: u64,
    /// How it refills.
    pub law: Law,
    /// The window that it is by the clock of the weir-sync that draws. Needed for months only; without it nothing is
    /// drawn on these.
    pub window: Option<Window>,
    /// A claim for each of the POP's epochs, usually one; or claims that lease nothing.
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
    /// If one request holds the epoch: for how long it may go on, in microseconds; held between [`LEASE_US_MIN`] and
    /// [`HELD_US_MAX`], whatever the lease. When the epoch is given back, more may have been spent than was debited.
    pub held_us: Option<u64>,
    /// What it asks for.
    pub kind: Kind,
}

/// What a claim asks for. All but a lease are done at once, and are for no epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Tokens that its POP may spend while a lease lasts.
    Lease,
    /// All of `ahead`, debited as spent, or nothing.
    Take,
    /// All of `ahead`, debited as spent whatever the level is: what was spent without asking.
    Charge,
    /// `ahead` is given back, up to a full budget.
    Refund,
}

/// What a strict budget is after a draw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Nanoseconds of refill until full, under the law of turns until the last turn is over; under a law of windows, what
    /// the tokens that count would take at the quota's rate.
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

impl Drawn {
    /// Whole tokens that a budget of `quota` has left by the rate.
    pub fn left(&self, quota: Quota) -> u32 {
        let left_ns = quota.fill_ns().saturating_sub(self.deficit_ns);
        u32::try_from(left_ns / quota.token_ns()).unwrap_or(u32::MAX)
    }
}

impl Draw {
    /// The budget that it draws on.
    pub fn escrow(&self) -> EscrowId {
        (self.law, self.id.clone())
    }

    /// For how long a POP may spend what it is given, in microseconds.
    pub fn leased_us(&self) -> u64 {
        let most_us = if self.law.windows().is_none() { LEASE_US_MAX } else { CALENDAR_LEASE_US_MAX };
        // A request may begin at the end of its lease, and then goes on for some time.
        self.lease_us.clamp(LEASE_US_MIN, most_us) + self.law.expires_us()
    }

    /// For how long it counts as outstanding, in microseconds: a little longer.
    pub fn held_us(&self) -> u64 {
        longer_us(self.leased_us())
    }

    /// Whether it leases nothing: then it is about the window that it is, however soon that ends.
    pub(super) fn is_of_the_moment(&self) -> bool {
        self.claims.is_empty() || self.claims.iter().any(Claim::is_at_once)
    }

    /// What a token is worth by the law, in nanoseconds of refill.
    pub fn token_ns(&self) -> u64 {
        if self.law.is_by_rate() { self.quota.token_ns() } else { WINDOW_TOKEN_NS }
    }

    /// What [`Drawn::deficit_ns`] says of a budget that is `deficit_ns` from full by its law.
    pub fn told_ns(&self, deficit_ns: u64) -> u64 {
        if self.law.is_by_rate() {
            return deficit_ns;
        }
        price_ns(deficit_ns / WINDOW_TOKEN_NS, self.quota.token_ns())
    }

    /// How soon to ask again for tokens that others hold and may give back, in microseconds. A POP that is not asked for what
    /// it has of a window's count keeps it for a while; whoever asks twice more by then gets it.
    pub fn ask_again_us(&self) -> u64 {
        match self.law {
            Law::InFlight(_) => ASK_FOR_A_PLACE_US,
            Law::Window(calendar) => {
                let lease_us = calendar.longest_us().min(CALENDAR_LEASE_US_MAX);
                ASK_AGAIN_US + lease_us.saturating_sub(GIVEN_BACK_S * 1_000_000) / 2
            }
            Law::Steady | Law::Sliding(_) | Law::Log(_) | Law::Turns => ASK_AGAIN_US,
        }
    }

    /// For how long a window is remembered after its end, in microseconds. One that slides counts for another one.
    pub fn kept_us(&self) -> u64 {
        let length_us = self.law.windows().map_or(0, Calendar::longest_us);
        let counts_us = if let Law::Sliding(_) = self.law { length_us } else { 0 };
        counts_us + length_us.clamp(WINDOW_KEPT_US.0, WINDOW_KEPT_US.1)
    }

    /// How much of `us` is whole windows, in microseconds; none if they are not of one length.
    pub(super) fn whole_windows_us(&self, us: u64) -> u64 {
        let even = self.law.windows().filter(|calendar| calendar.even().is_some());
        let length_us = even.map_or(0, Calendar::longest_us);
        us.checked_div(length_us).map_or(0, |windows| windows * length_us)
    }

    /// When the window ends that the store's clock is in at `now_us`, if that is known.
    pub(super) fn end_us(&self, now_us: u64) -> Option<u64> {
        let calendar = self.law.windows()?;
        match calendar.even() {
            Some(_) => Some(calendar.window(now_us).end_us),
            None => self.window?.end_at(now_us),
        }
    }
}

impl Claim {
    /// What is claimed for a POP's `epoch`, of which no request is known to hold it: tokens spent, and wanted beyond them.
    pub const fn of(epoch: u64, admitted: u64, ahead: u32) -> Self {
        Self { epoch, admitted, ahead, held_us: None, kind: Kind::Lease }
    }

    /// Takes so many tokens, or none.
    pub const fn take(tokens: u32) -> Self {
        Self::at_once(Kind::Take, tokens)
    }

    /// A claim of this kind, which is not a lease, for so many tokens.
    pub const fn at_once(kind: Kind, tokens: u32) -> Self {
        Self { kind, ..Self::of(0, 0, tokens) }
    }

    /// Whether it leases nothing.
    pub fn is_at_once(&self) -> bool {
        self.kind != Kind::Lease
    }

    /// If a request holds the epoch: for how long the POP may spend its tokens, in microseconds.
    pub fn leased_us(&self) -> Option<u64> {
        self.held_us.map(|us| us.clamp(LEASE_US_MIN, HELD_US_MAX))
    }

    /// Whether the request that held the epoch has ended.
    pub fn is_settled(&self) -> bool {
        self.held_us.is_some() && self.ahead == 0
    }

    /// Tokens spent, within what a record holds.
    pub fn spent(&self) -> u64 {
        self.admitted.min(COUNT_MAX)
    }
}

/// For how long a lease counts for the budget, in microseconds.
pub fn longer_us(leased_us: u64) -> u64 {
    leased_us + leased_us.div_ceil(DRIFT_PART)
}

/// What tokens are worth, in nanoseconds of refill, within what a deficit holds.
pub(super) fn price_ns(tokens: u64, token_ns: u64) -> u64 {
    tokens.saturating_mul(token_ns).min(DEFICIT_NS_MAX)
}
