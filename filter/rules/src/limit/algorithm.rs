//! The algorithms that a rule may count by, with checked parameters.
//!
//! # Adding one
//!
//! 1. Here: a variant of [`Algorithm`], and a struct that checks its parameters.
//! 2. `limit/mod.rs`: its name in `KINDS`, its fields in `read`.
//! 3. `algorithms/` in weir-limiter: pure functions of a cell in a file of its own; `algorithms/mod.rs` calls them.
//! 4. The compiler names the other places that need something for it: `shared_by` and `times` in `limit/mod.rs`,
//!    `response/mod.rs` in weir-limiter, `check/explain/amount.rs` and `check/page.rs` in weir-cli.
//!
//! Everywhere else a default applies: each POP counts for itself, in one cell for each key, and a token that was taken
//! is spent. The compiler does not name these places. What differs from that belongs in:
//!
//! | difference | place |
//! |---|---|
//! | a key has several cells | [`Algorithm::cells`], [`Algorithm::in_one_cell`] |
//! | requests wait for their turn | `Rule::holds_requests` in `rule/mod.rs` |
//! | room may come back before the wait is over | `may_remember` in weir-limiter's `check/answer.rs` |
//! | the end of a request releases something | `record_end_action` in weir-limiter's `check/settle.rs` |
//! | nothing can be refunded | `refund` in `algorithms/mod.rs`, and `book` in `check/settle.rs` |
//! | past requests cannot be booked | `book_hit` in `check/settle.rs` |
//! | a limit does not count requests | `quota_unit` in weir-limiter's `response/mod.rs` |
//!
//! To share it over the fleet, add a refill policy (`docs/architecture.md`).

use weir_protocol::quota::{FILL_NS_MAX, Quota, QuotaError, TOKENS_MAX};
use weir_protocol::refill_policy;

/// Highest limit of a sliding log in a POP.
pub const LOG_MAX: u32 = 16;
pub const LOGGED_PER_CELL: usize = 2;
/// Longest window, and longest expiry of a request in flight: 400 days, in nanoseconds.
pub const LENGTH_NS_MAX: u64 = FILL_NS_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A bucket that refills continuously.
    TokenBucket(Quota),
    /// A count that restarts with each window.
    FixedWindow(WindowLimit),
    /// A count of the current window, plus the weighted count of the previous one.
    SlidingWindow(WindowLimit),
    /// A log of every request in the last window.
    SlidingLog(SlidingLog),
    /// A queue that requests leave at a constant rate.
    LeakyBucket(LeakyBucket),
    /// A count of requests in flight.
    Concurrency(Concurrency),
}

impl Algorithm {
    /// Maximum number of tokens that a fresh key can take at once.
    pub const fn limit(&self) -> u32 {
        match self {
            Self::TokenBucket(quota) => quota.burst(),
            Self::FixedWindow(window) | Self::SlidingWindow(window) => window.limit(),
            Self::SlidingLog(log) => log.0.limit(),
            Self::LeakyBucket(bucket) => bucket.places(),
            Self::Concurrency(concurrency) => concurrency.limit(),
        }
    }

    /// Number of cells of one key in a POP's table, 1 to half of [`LOG_MAX`].
    pub const fn cells(&self) -> usize {
        match self {
            Self::SlidingLog(log) => log.cells(),
            _ => 1,
        }
    }

    /// The same limit in a single cell, for keys that share it. A log becomes a fixed window.
    #[must_use]
    pub fn in_one_cell(self) -> Self {
        match self {
            Self::SlidingLog(log) => Self::FixedWindow(log.0),
            other => other,
        }
    }

    /// Number of the algorithm. It never changes between versions.
    pub const fn number(&self) -> u8 {
        match self {
            Self::TokenBucket(_) => 0,
            Self::FixedWindow(_) => 1,
            Self::SlidingWindow(_) => 2,
            Self::SlidingLog(_) => 3,
            Self::LeakyBucket(_) => 4,
            Self::Concurrency(_) => 5,
        }
    }
}

/// At most `limit` tokens in each window of `length_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimit {
    limit: u32,
    length_ns: u64,
}

impl WindowLimit {
    /// `None` beyond a limit of 1 to [`TOKENS_MAX`] and a length of 1 to [`LENGTH_NS_MAX`].
    pub fn new(limit: u32, length_ns: u64) -> Option<Self> {
        Self::within(limit, TOKENS_MAX, length_ns)
    }

    fn within(limit: u32, most: u32, length_ns: u64) -> Option<Self> {
        let fits = (1..=most).contains(&limit) && (1..=LENGTH_NS_MAX).contains(&length_ns);
        fits.then_some(Self { limit, length_ns })
    }

    pub const fn length_ns(&self) -> u64 {
        self.length_ns
    }

    pub const fn limit(&self) -> u32 {
        self.limit
    }
}

/// At most `limit` requests in any interval of `length_ns`, exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog(WindowLimit);

impl SlidingLog {
    /// A log in a POP, with a limit of 1 to [`LOG_MAX`].
    pub fn new(limit: u32, length_ns: u64) -> Option<Self> {
        WindowLimit::within(limit, LOG_MAX, length_ns).map(Self)
    }

    /// A log in the fleet's budget, with a limit of 1 to [`refill_policy::LOG_MAX`].
    pub fn of_fleet(limit: u32, length_ns: u64) -> Option<Self> {
        WindowLimit::within(limit, refill_policy::LOG_MAX, length_ns).map(Self)
    }

    pub const fn window(&self) -> &WindowLimit {
        &self.0
    }

    pub const fn cells(&self) -> usize {
        (self.0.limit as usize).div_ceil(LOGGED_PER_CELL)
    }
}

/// A queue with one turn per `token_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    /// The burst is a place for each waiting token, and one for the token whose turn it is.
    quota: Quota,
}

impl LeakyBucket {
    /// A queue with a turn each `token_ns` (at least 1,000) and up to `queue` waiting tokens (less than
    /// [`TOKENS_MAX`]), of which each waits less than [`FILL_NS_MAX`].
    pub const fn new(token_ns: u64, queue: u32) -> Result<Self, QuotaError> {
        match Quota::from_token_ns(token_ns, queue.saturating_add(1)) {
            Ok(quota) => Ok(Self { quota }),
            Err(error) => Err(error),
        }
    }

    /// A queue with one turn per token time of `quota`, and a place for each token of its burst.
    pub const fn of(quota: Quota) -> Self {
        Self { quota }
    }

    /// The fair share of one of `pops` POPs, with at least one place.
    #[must_use]
    pub fn shared_by(self, pops: u32) -> Self {
        let places = self.places().checked_div(pops).unwrap_or_default().max(1);
        let token_ns = self.quota.token_ns().saturating_mul(pops.into());
        Self::new(token_ns, places - 1).unwrap_or(self)
    }

    /// Number of tokens that an empty queue accepts: those that may wait, and one.
    pub const fn places(&self) -> u32 {
        self.quota.burst()
    }

    /// The quota of the equivalent token bucket: a token is a turn, and the burst is the number of places.
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u32,
    expires_ns: u64,
}

impl Concurrency {
    pub fn new(limit: u32, expires_ns: u64) -> Option<Self> {
        WindowLimit::new(limit, expires_ns).map(|_| Self { limit, expires_ns })
    }

    #[must_use]
    pub fn shared_by(self, pops: u32) -> Self {
        Self { limit: self.limit.checked_div(pops).unwrap_or(self.limit).max(1), ..self }
    }

    /// Time after which a request in flight is no longer counted, in nanoseconds.
    pub const fn expires_ns(&self) -> u64 {
        self.expires_ns
    }

    pub const fn limit(&self) -> u32 {
        self.limit
    }
}
