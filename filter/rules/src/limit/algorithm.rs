//! Algorithms that a rule can count by, with checked parameters.
//!
//! # Adding one
//!
//! 1. Here: a variant of [`Algorithm`], and a struct that checks its parameters.
//! 2. `limit/mod.rs`: its name in `KINDS`, its fields in `read`.
//! 3. `algorithms/` in weir-limiter: pure functions of a cell in a file of its own; `algorithms/mod.rs` calls them.
//! 4. The compiler names the other places that need code for it: `shared_by` and `times` in `limit/mod.rs`,
//!    `response/mod.rs` in weir-limiter, `check/explain/amount.rs` and `check/page.rs` in weir-cli.
//!
//! Everywhere else a default applies: each POP counts for itself, in one cell for each key, and a token that was taken
//! is spent. The compiler does not name these places. Differences from the defaults belong in:
//!
//! | difference | place |
//! |---|---|
//! | a key has several cells | [`Algorithm::cells`], [`Algorithm::in_one_cell`] |
//! | requests wait for their turn | `Rule::holds_requests` in `rule/mod.rs` |
//! | room may return before the wait is over | `may_remember` in weir-limiter's `check/answer.rs` |
//! | the end of a request releases something | `record_end_action` in weir-limiter's `check/settle.rs` |
//! | nothing can be refunded | `refund` in `algorithms/mod.rs`, and `book` in `check/settle.rs` |
//! | past requests cannot be booked | `book_hit` in `check/settle.rs` |
//! | a limit does not count requests | `quota_unit` in weir-limiter's `response/mod.rs` |
//!
//! To share an algorithm over the fleet, add a refill policy (`docs/architecture.md`).

use weir_protocol::quota::{FILL_NS_MAX, Quota, TOKENS_MAX};

/// Maximum limit of a sliding log in a POP.
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
    /// A log of every request in the last window; in a POP, with a limit of at most [`LOG_MAX`].
    SlidingLog(WindowLimit),
    /// A queue that requests leave at a constant rate. A token is a turn, and the burst is the number of places: one
    /// for each waiting token, and one for the token whose turn it is.
    LeakyBucket(Quota),
    /// A count of requests in flight.
    Concurrency(Concurrency),
}

impl Algorithm {
    /// Maximum number of tokens that a fresh key can take at once.
    pub const fn limit(&self) -> u32 {
        match self {
            Self::TokenBucket(quota) | Self::LeakyBucket(quota) => quota.burst(),
            Self::FixedWindow(window) | Self::SlidingWindow(window) | Self::SlidingLog(window) => window.limit(),
            Self::Concurrency(concurrency) => concurrency.limit(),
        }
    }

    /// Number of cells of one key in a POP's table, 1 to half of [`LOG_MAX`].
    pub const fn cells(&self) -> usize {
        match self {
            Self::SlidingLog(window) => window.log_cells(),
            _ => 1,
        }
    }

    /// The same limit in a single cell, for keys that share a cell. A log becomes a fixed window.
    #[must_use]
    pub fn in_one_cell(self) -> Self {
        match self {
            Self::SlidingLog(window) => Self::FixedWindow(window),
            other => other,
        }
    }

    /// Number of the algorithm, the same in every version.
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
    /// Creates a limit; `None` unless the limit is 1 to [`TOKENS_MAX`] and the length 1 to [`LENGTH_NS_MAX`].
    pub fn new(limit: u32, length_ns: u64) -> Option<Self> {
        let fits = (1..=TOKENS_MAX).contains(&limit) && (1..=LENGTH_NS_MAX).contains(&length_ns);
        fits.then_some(Self { limit, length_ns })
    }

    pub const fn length_ns(&self) -> u64 {
        self.length_ns
    }

    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Number of cells of a sliding log with this limit.
    pub const fn log_cells(&self) -> usize {
        (self.limit as usize).div_ceil(LOGGED_PER_CELL)
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
