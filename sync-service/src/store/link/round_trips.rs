//! Distance of a server, measured as its shortest recent round trip.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Time for which the shortest round trip counts as the distance. A store that moved farther away may seem slow
/// for this time.
const KEPT: Duration = Duration::from_mins(1);

/// Recent round trips that are shorter than all later ones: the first is the shortest.
#[derive(Default)]
pub(super) struct RoundTrips(VecDeque<(Instant, Duration)>);

impl RoundTrips {
    pub(super) fn note(&mut self, took: Duration, at: Instant) {
        while self.0.back().is_some_and(|(_, known)| *known >= took) {
            self.0.pop_back();
        }
        self.0.push_back((at, took));
        while self.0.front().is_some_and(|(noted, _)| at.duration_since(*noted) > KEPT) {
            self.0.pop_front();
        }
    }

    /// Shortest recent round trip; zero if none is known.
    pub(super) fn shortest(&self) -> Duration {
        self.0.front().map_or(Duration::ZERO, |(_, took)| *took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_redis_is_no_distant_one() {
        let (mut trips, begin) = (RoundTrips::default(), Instant::now());
        let ms = Duration::from_millis;
        assert_eq!(trips.shortest(), Duration::ZERO);
        for (at_s, took_ms, shortest_ms) in
            [(0, 80, 80), (1, 20, 20), (2, 1_500, 20), (30, 900, 20), (40, 1_500, 20), (61, 1_500, 20)]
        {
            trips.note(ms(took_ms), begin + Duration::from_secs(at_s));
            assert_eq!(trips.shortest(), ms(shortest_ms), "at {at_s} s");
        }
        // A store that has moved away for good is a distant one.
        trips.note(ms(1_500), begin + KEPT + Duration::from_secs(2));
        assert_eq!(trips.shortest(), ms(900));
        assert!(trips.0.len() <= 3);
    }
}
