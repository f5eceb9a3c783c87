//! The reference: what was offered and admitted, beside what one ideal bucket would have admitted of the
//! same requests at the same times.

use std::collections::VecDeque;
use std::time::Duration;

use weir_protocol::quota::{Period, Quota, Rate};

use super::float;
use crate::simulation::account::Meter;

/// A quota of `rate` a second.
pub fn per_second(rate: u32, burst: u32) -> Quota {
    let quota = Rate::new(rate, Period::Second).and_then(|rate| Quota::new(rate, burst).ok());
    quota.unwrap_or_else(|| panic!("no quota: {rate}/s, burst {burst}"))
}

/// The outcomes of one client's requests.
#[derive(Clone, Debug)]
pub struct Account {
    quota: Quota,
    /// Requests sent.
    pub offered: usize,
    /// Requests that one ideal bucket would have admitted.
    pub ideal: usize,
    /// The time at which each admitted request was sent.
    admitted_at: Vec<Duration>,
}

impl Account {
    /// Of requests in the order in which they were sent: when, and whether it was admitted.
    pub fn of(quota: Quota, requests: impl IntoIterator<Item = (Duration, bool)>) -> Self {
        let mut account = Self { quota, offered: 0, ideal: 0, admitted_at: vec![] };
        let mut bucket = Meter::default();
        for (at, admitted) in requests {
            account.offered += 1;
            account.ideal += usize::from(bucket.take_if_there(quota, 1, nanos(at)));
            if admitted {
                account.admitted_at.push(at);
            }
        }
        account
    }

    /// Requests admitted.
    pub fn admitted(&self) -> usize {
        self.admitted_at.len()
    }

    /// Admitted, as a part of what the ideal bucket would have admitted.
    pub fn ratio(&self) -> f64 {
        float(self.admitted()) / float(self.ideal)
    }

    /// Admitted, as a part of what was offered.
    pub fn part_admitted(&self) -> f64 {
        float(self.admitted()) / float(self.offered)
    }

    /// Admitted per second between `from` and `to`.
    pub fn rate_between(&self, from: Duration, to: Duration) -> f64 {
        let within = self.admitted_at.iter().filter(|at| (from..to).contains(at)).count();
        float(within) / to.saturating_sub(from).as_secs_f64()
    }

    /// By how many tokens the admitted were above burst + rate x t at most, over any t.
    pub fn overshoot_most(&self) -> f64 {
        let mut bucket = Meter::default();
        let taken = self.admitted_at.iter().map(|at| bucket.take(self.quota, 1, nanos(*at)));
        self.over(taken.max().unwrap_or_default())
    }

    /// The part of that which was not paid back at `end`, in tokens.
    pub fn overshoot_at(&self, end: Duration) -> f64 {
        let mut bucket = Meter::default();
        for at in self.admitted_at.iter().filter(|at| **at <= end) {
            bucket.take(self.quota, 1, nanos(*at));
        }
        self.over(bucket.deficit_ns(nanos(end)))
    }

    /// The part of that which was never paid back between `from` and `to`, in tokens: 0 where it was, if only for
    /// a moment, for a budget is steered, and swings a little.
    pub fn overshoot_least(&self, from: Duration, to: Duration) -> f64 {
        // Debt grows with a request and is least just before one.
        let mut bucket = Meter::default();
        let mut least = self.overshoot_at(to);
        for at in &self.admitted_at {
            if (from..to).contains(at) {
                least = least.min(self.over(bucket.deficit_ns(nanos(*at))));
            }
            bucket.take(self.quota, 1, nanos(*at));
        }
        least
    }

    /// The most that any second from `settled` on admitted, as a part of rate x 1 s + burst.
    pub fn fullest_second(&self, settled: Duration) -> f64 {
        let mut window = VecDeque::new();
        let mut fullest = 0;
        for at in self.admitted_at.iter().filter(|at| **at >= settled) {
            window.push_back(*at);
            while window.front().is_some_and(|first| at.saturating_sub(*first) >= Duration::from_secs(1)) {
                window.pop_front();
            }
            fullest = fullest.max(window.len());
        }
        float(fullest) / earned(self.quota, Duration::from_secs(1))
    }

    /// Tokens that a bucket with this deficit is below empty.
    fn over(&self, deficit_ns: u64) -> f64 {
        let over = Duration::from_nanos(deficit_ns.saturating_sub(self.quota.fill_ns()));
        over.as_secs_f64() / Duration::from_nanos(self.quota.token_ns()).as_secs_f64()
    }
}

/// The tokens that a quota gives within `span`: its burst, and what refills.
pub fn earned(quota: Quota, span: Duration) -> f64 {
    f64::from(quota.burst()) + span.as_secs_f64() / Duration::from_nanos(quota.token_ns()).as_secs_f64()
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
