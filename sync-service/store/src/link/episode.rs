//! Rate limit of log lines about a server: each reason once per episode of failures, however many connections fail.

use std::mem::{discriminant, take};
use std::time::Duration;

use tokio::time::Instant;

use crate::StoreError;

/// An episode is over once everything has worked for this time.
const CALM: Duration = Duration::from_secs(10);
/// Maximum number of reasons logged per episode.
const REASONS_MAX: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Episode {
    logged: Vec<StoreError>,
    good_since: Option<Instant>,
}

impl Episode {
    /// Records a failure. Returns true if its reason is to be logged.
    pub(crate) fn is_news(&mut self, reason: &StoreError) -> bool {
        self.good_since = None;
        let is_news = self.logged.len() < REASONS_MAX && !self.logged.iter().any(|logged| is_same(logged, reason));
        if is_news {
            self.logged.push(reason.clone());
        }
        is_news
    }

    /// Records at `now` that everything works. Returns true if the end of an episode is to be logged.
    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        let since = *self.good_since.get_or_insert(now);
        now.duration_since(since) >= CALM && !take(&mut self.logged).is_empty()
    }

    pub(crate) fn is_on(&self) -> bool {
        !self.logged.is_empty()
    }
}

/// A time-out is the same reason for any length.
fn is_same(one: &StoreError, other: &StoreError) -> bool {
    match one {
        StoreError::Slow(_) | StoreError::Unconfirmed(_) => discriminant(one) == discriminant(other),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_news_once_an_episode() {
        let (mut episode, begin) = (Episode::default(), Instant::now());
        let at = |s| begin + Duration::from_secs(s);
        let refused = StoreError::Refused("no".into());
        assert!(!episode.is_over(at(0)) && !episode.is_over(at(60)), "there was none");
        assert!(episode.is_news(&StoreError::Slow(500)));
        for s in 61..70 {
            assert!(!episode.is_over(at(s)));
            assert!(!episode.is_news(&StoreError::Slow(u128::from(s))), "in reach for a moment");
        }
        assert!(episode.is_news(&refused) && episode.is_on());
        assert!(!episode.is_over(at(71)) && !episode.is_over(at(80)));
        assert!(episode.is_over(at(81)) && !episode.is_over(at(90)) && !episode.is_on());
        assert!(episode.is_news(&refused), "another episode");
        let reasons = (0..100).map(|n| StoreError::Refused(format!("{n}")));
        assert_eq!(reasons.filter(|reason| episode.is_news(reason)).count(), REASONS_MAX - 1);
    }
}
