//! The algorithms that a rule may count by, with checked parameters. A key's state under each, and what a request does
//! to it, belong to the code that decides.

use core::fmt;

use weir_wire::law;
use weir_wire::quota::{FILL_NS_MAX, Quota, QuotaError, TOKENS_MAX};

/// The highest limit a sliding log can keep in a POP.
pub const LOG_MAX: u32 = 16;
/// Requests of a sliding log that one cell remembers.
pub const LOGGED_PER_CELL: usize = 2;
/// The longest window, and the longest expiry of a request in flight: 400 days, in nanoseconds.
pub const LENGTH_NS_MAX: u64 = FILL_NS_MAX;

/// What a rule counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A bucket that refills steadily.
    TokenBucket(Quota),
    /// A count that starts again with every window.
    FixedWindow(Window),
    /// The same, with the previous window weighted in.
    SlidingWindow(Window),
    /// Every request of the last window.
    SlidingLog(SlidingLog),
    /// A queue that requests leave at a steady rate.
    LeakyBucket(LeakyBucket),
    /// Requests in flight.
    Concurrency(Concurrency),
}

impl Algorithm {
    /// The most that a key can take at once when it has taken nothing yet.
    pub const fn limit(&self) -> u32 {
        match self {
            Self::TokenBucket(quota) => quota.burst(),
            Self::FixedWindow(window) | Self::SlidingWindow(window) => window.limit(),
            Self::SlidingLog(log) => log.0.limit(),
            Self::LeakyBucket(bucket) => bucket.places(),
            Self::Concurrency(concurrency) => concurrency.limit(),
        }
    }

    /// Cells of one key in a POP's table, 1 to half of [`LOG_MAX`].
    pub const fn cells(&self) -> usize {
        match self {
            Self::SlidingLog(log) => log.cells(),
            _ => 1,
        }
    }

    /// The same limit in one cell, for keys that share it: a log becomes a fixed window.
    #[must_use]
    pub fn in_one_cell(self) -> Self {
        match self {
            Self::SlidingLog(log) => Self::FixedWindow(log.0),
            other => other,
        }
    }

    /// A number for each algorithm, which no later version changes.
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

/// At most `limit` in a window of `length_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    limit: u32,
    length_ns: u64,
}

impl Window {
    /// `limit`, 1 to [`TOKENS_MAX`], per `length_ns`, up to [`LENGTH_NS_MAX`].
    pub const fn new(limit: u32, length_ns: u64) -> Result<Self, BoundsError> {
        match checked(limit, TOKENS_MAX, length_ns) {
            Ok(()) => Ok(Self { limit, length_ns }),
            Err(error) => Err(error),
        }
    }

    /// The length of a window, in nanoseconds.
    pub const fn length_ns(&self) -> u64 {
        self.length_ns
    }

    /// The limit.
    pub const fn limit(&self) -> u32 {
        self.limit
    }
}

/// At most `limit` in any window of `length_ns`, exactly; the limit is at most [`LOG_MAX`], or [`law::LOG_MAX`] for a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog(Window);

impl SlidingLog {
    /// `limit`, 1 to [`LOG_MAX`], per `length_ns`, up to [`LENGTH_NS_MAX`].
    pub const fn new(limit: u32, length_ns: u64) -> Result<Self, BoundsError> {
        match checked(limit, LOG_MAX, length_ns) {
            Ok(()) => Ok(Self(Window { limit, length_ns })),
            Err(error) => Err(error),
        }
    }

    /// One that the fleet's budget keeps: the limit is at most [`law::LOG_MAX`].
    pub const fn of_fleet(limit: u32, length_ns: u64) -> Result<Self, BoundsError> {
        match checked(limit, law::LOG_MAX, length_ns) {
            Ok(()) => Ok(Self(Window { limit, length_ns })),
            Err(error) => Err(error),
        }
    }

    /// Its limit and length.
    pub const fn window(&self) -> &Window {
        &self.0
    }

    /// How many cells a key's log takes.
    pub const fn cells(&self) -> usize {
        (self.0.limit as usize).div_ceil(LOGGED_PER_CELL)
    }
}

/// One turn each `token_ns`, and a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    /// Its burst is a place for each token that waits, and one for the token whose turn it is.
    quota: Quota,
}

impl LeakyBucket {
    /// A turn each `token_ns` nanoseconds (at least 1,000), and up to `queue` tokens that wait for theirs: fewer
    /// than [`TOKENS_MAX`], and for less than [`FILL_NS_MAX`].
    pub const fn new(token_ns: u64, queue: u32) -> Result<Self, QuotaError> {
        match Quota::from_token_ns(token_ns, queue.saturating_add(1)) {
            Ok(quota) => Ok(Self { quota }),
            Err(error) => Err(error),
        }
    }

    /// One whose turns are as long as a token of `quota` takes, with as many places as it has tokens.
    pub const fn of(quota: Quota) -> Self {
        Self { quota }
    }

    /// An even share of it, of which so many POPs have one each: one place at least.
    #[must_use]
    pub fn shared_by(self, pops: u32) -> Self {
        let places = self.places().checked_div(pops).unwrap_or_default().max(1);
        let token_ns = self.quota.token_ns().saturating_mul(pops.into());
        Self::new(token_ns, places - 1).unwrap_or(self)
    }

    /// How many tokens have a place when none waits: as many as fit the queue, and one.
    pub const fn places(&self) -> u32 {
        self.quota.burst()
    }

    /// The quota of an equal token bucket: a token is a turn, and the burst is all places.
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }
}

/// At most `limit` in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u32,
    expires_ns: u64,
}

impl Concurrency {
    /// `limit`, 1 to [`TOKENS_MAX`], and an expiry up to [`LENGTH_NS_MAX`].
    pub const fn new(limit: u32, expires_ns: u64) -> Result<Self, BoundsError> {
        match checked(limit, TOKENS_MAX, expires_ns) {
            Ok(()) => Ok(Self { limit, expires_ns }),
            Err(error) => Err(error),
        }
    }

    /// An even share of it, of which so many POPs have one each: one request at least.
    #[must_use]
    pub fn shared_by(self, pops: u32) -> Self {
        Self { limit: self.limit.checked_div(pops).unwrap_or(self.limit).max(1), ..self }
    }

    /// After how long a request in flight may be forgotten, in nanoseconds.
    pub const fn expires_ns(&self) -> u64 {
        self.expires_ns
    }

    /// The limit.
    pub const fn limit(&self) -> u32 {
        self.limit
    }
}

/// A parameter out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundsError {
    /// The limit is not from 1 to this.
    Limit {
        /// The highest limit the algorithm can keep.
        most: u32,
    },
    /// The length or expiry is not from 1 to [`LENGTH_NS_MAX`] nanoseconds.
    Length,
}

impl fmt::Display for BoundsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { most } => write!(f, "expected a limit from 1 to {most}"),
            Self::Length => f.write_str("expected a time of more than zero and at most 400 days"),
        }
    }
}

impl core::error::Error for BoundsError {}

/// Checks a limit and a length.
const fn checked(limit: u32, most: u32, length_ns: u64) -> Result<(), BoundsError> {
    if limit == 0 || limit > most {
        return Err(BoundsError::Limit { most });
    }
    if length_ns == 0 || length_ns > LENGTH_NS_MAX {
        return Err(BoundsError::Length);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::time::SECOND_NS;

    #[test]
    fn bounds_are_kept() {
        let limit = Err(BoundsError::Limit { most: TOKENS_MAX });
        assert_eq!(Window::new(0, 1), limit);
        assert_eq!(Window::new(TOKENS_MAX + 1, 1), limit);
        assert_eq!(Window::new(1, 0), Err(BoundsError::Length));
        assert_eq!(Window::new(1, LENGTH_NS_MAX + 1), Err(BoundsError::Length));
        assert!(Window::new(TOKENS_MAX, LENGTH_NS_MAX).is_ok());
        assert_eq!(SlidingLog::new(LOG_MAX + 1, 1), Err(BoundsError::Limit { most: LOG_MAX }));
        assert_eq!(Concurrency::new(1, 0), Err(BoundsError::Length));
        assert!(LeakyBucket::new(SECOND_NS, 0).is_ok());
        assert!(LeakyBucket::new(SECOND_NS, TOKENS_MAX - 1).is_ok());
        assert!(LeakyBucket::new(SECOND_NS, TOKENS_MAX).is_err());
        assert!(LeakyBucket::new(SECOND_NS, u32::MAX).is_err());
    }

    #[test]
    fn a_log_takes_a_cell_for_two_places() {
        for (limit, cells) in [(1, 1), (2, 1), (3, 2), (15, 8), (16, 8)] {
            assert_eq!(Algorithm::SlidingLog(SlidingLog::new(limit, 1).unwrap()).cells(), cells);
        }
        assert_eq!(Algorithm::FixedWindow(Window::new(9, 1).unwrap()).cells(), 1);
    }
}
