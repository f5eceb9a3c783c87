//! The overdraft of a budget while nothing is wrong: loans at the begin are paid back, and after that only
//! tokens under way are lent.

use weir_protocol::time::SECOND_NS;

/// The least part of the rate at which an overdraft is paid back.
const PAID_BACK: f64 = 0.8;

/// The overdraft of one budget in a stretch, in tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overdrawn {
    /// Until then it may be overdrawn by what is lent at once to a client that was not known.
    settles_at: u64,
    /// Tokens per second.
    rate: f64,
    /// The most until then.
    pub early: f64,
    /// The most afterwards, beyond what is not yet paid back of `early`.
    pub late: f64,
    /// The time of that, in nanoseconds from the begin of the traffic.
    pub late_at: u64,
}

impl Overdrawn {
    /// It is overdrawn by this much when a stretch begins.
    pub fn new(overdrawn: f64, rate: f64, settles_at: u64) -> Self {
        Self { settles_at, rate, early: overdrawn, late: 0.0, late_at: settles_at }
    }

    /// It is overdrawn by this much at `now`.
    pub fn observe(&mut self, overdrawn: f64, now: u64) {
        let Some(ns) = now.checked_sub(self.settles_at) else {
            self.early = self.early.max(overdrawn);
            return;
        };
        let left = (self.early - PAID_BACK * self.rate * ns as f64 / SECOND_NS as f64).max(0.0);
        if overdrawn - left > self.late {
            (self.late, self.late_at) = (overdrawn - left, now);
        }
    }
}
