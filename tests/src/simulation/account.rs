//! The reference: what was truly offered and admitted, and what one ideal bucket would have.

use std::collections::VecDeque;

use weir_limiter::quota::Quota;
use weir_limiter::time::SECOND_NS;

/// Watches one key over all POPs.
#[derive(Debug)]
pub struct Account {
    quota: Quota,
    /// The ideal bucket's deficit in nanoseconds of refill, and when it was that.
    ideal: (u64, u64),
    /// Requests offered.
    pub offered: u64,
    /// Requests admitted.
    pub admitted: u64,
    /// Requests that the ideal bucket would have admitted.
    pub ideally: u64,
    /// Admitted requests of the last second.
    window: VecDeque<u64>,
    /// Windows that end before this do not count.
    settle_ns: u64,
    /// The fullest second that began after `settle_ns`.
    pub fullest_second: u64,
    /// How far admitted requests were above burst + rate x t at most, over any span, in tokens.
    pub overshoot: f64,
    /// A bucket that may go below empty, for the overshoot: its deficit and when it was that.
    debt: (u64, u64),
}

impl Account {
    /// Nothing seen yet; windows count once they begin after `settle_ns`.
    pub fn new(quota: Quota, settle_ns: u64) -> Self {
        Self {
            quota,
            ideal: (0, 0),
            offered: 0,
            admitted: 0,
            ideally: 0,
            window: VecDeque::new(),
            settle_ns,
            fullest_second: 0,
            overshoot: 0.0,
            debt: (0, 0),
        }
    }

    /// A request at `now`, in nanoseconds from the start.
    pub fn request(&mut self, now: u64, admitted: bool) {
        self.offered += 1;
        if refilled(&mut self.ideal, now) + self.quota.token_ns() <= self.quota.fill_ns() {
            self.ideal.0 += self.quota.token_ns();
            self.ideally += 1;
        }
        if admitted {
            self.admit(now);
        }
    }

    fn admit(&mut self, now: u64) {
        self.admitted += 1;
        let deficit = refilled(&mut self.debt, now) + self.quota.token_ns();
        self.debt.0 = deficit;
        #[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
        let over = deficit.saturating_sub(self.quota.fill_ns()) as f64 / self.quota.token_ns() as f64;
        self.overshoot = self.overshoot.max(over);
        self.window.push_back(now);
        while self.window.front().is_some_and(|first| now - first >= SECOND_NS) {
            self.window.pop_front();
        }
        if self.window.front().is_some_and(|first| *first >= self.settle_ns) {
            self.fullest_second = self.fullest_second.max(self.window.len() as u64);
        }
    }

    /// Admitted, as a part of what the ideal bucket would have admitted.
    #[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
    pub fn ratio(&self) -> f64 {
        self.admitted as f64 / self.ideally as f64
    }

    /// The fullest second, as a part of rate x 1 s + burst.
    #[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
    pub fn fullest(&self) -> f64 {
        let rate = SECOND_NS as f64 / self.quota.token_ns() as f64;
        self.fullest_second as f64 / (rate + f64::from(self.quota.burst()))
    }
}

fn refilled(bucket: &mut (u64, u64), now: u64) -> u64 {
    *bucket = (bucket.0.saturating_sub(now - bucket.1), now);
    bucket.0
}
