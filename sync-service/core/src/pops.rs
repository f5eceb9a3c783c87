//! The points of presence that report here, and how many the fleet has.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use weir_limiter::time::Time;
use weir_limiter::wire::POPS_MAX;

/// POPs by name, with when they were last heard.
#[derive(Debug, Default)]
pub struct Pops {
    heard_at: BTreeMap<String, Time>,
    /// The same, longest silent first.
    by_age: BTreeSet<(Time, String)>,
}

impl Pops {
    /// Notes that `pop` spoke at `now`. Beyond [`POPS_MAX`], the one silent for longest is forgotten.
    pub fn hear(&mut self, now: Time, pop: &str) {
        if let Some(heard_at) = self.heard_at.insert(pop.into(), now) {
            self.by_age.remove(&(heard_at, pop.into()));
        }
        self.by_age.insert((now, pop.into()));
        if self.by_age.len() > POPS_MAX as usize {
            self.forget_first();
        }
    }

    /// How many POPs spoke within `ttl_ns` nanoseconds before `now`; the others are forgotten.
    pub fn live(&mut self, now: Time, ttl_ns: u64) -> u32 {
        while self.by_age.first().is_some_and(|(heard_at, _)| now.nanos_since(*heard_at) > ttl_ns) {
            self.forget_first();
        }
        u32::try_from(self.by_age.len()).unwrap_or(POPS_MAX)
    }

    fn forget_first(&mut self) {
        if let Some((_, pop)) = self.by_age.pop_first() {
            self.heard_at.remove(&pop);
        }
    }
}

/// How many POPs the fleet has, as far as a weir-sync knows.
///
/// The store counts them. Before it has, since this process began without it, POPs say what they last heard, and the
/// operator may have said how many to expect: of these the most, as a share too large is the dearer mistake. What the
/// store counts replaces it all; but fewer than were known are believed only once the store has counted no more for as
/// long as a silent POP counts as live, since a store that lost its data begins at one.
#[derive(Clone, Copy, Debug, Default)]
pub struct FleetSize {
    counted: Option<Counted>,
    said: u32,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    pops: u32,
    /// Since when the store counts fewer, and the most of what it counted since.
    fewer: Option<(Time, u32)>,
}

impl FleetSize {
    /// The operator expects so many; 0 is nothing said.
    pub fn expect(&mut self, pops: u32) {
        self.said = self.said.max(pops.min(POPS_MAX));
    }

    /// A POP has heard of so many; 0 is of none.
    pub fn hear(&mut self, pops: u32) {
        self.said = self.said.max(pops.min(POPS_MAX));
    }

    /// The store counts so many at `now`; a POP is live for `ttl_ns` nanoseconds after its last word.
    pub fn count(&mut self, now: Time, pops: u32, ttl_ns: u64) {
        let pops = pops.clamp(1, POPS_MAX);
        let known = self.counted.get_or_insert(Counted { pops: self.said, fewer: None });
        let (since, most) = known.fewer.map_or((now, pops), |(since, most)| (since, most.max(pops)));
        *known = if pops >= known.pops {
            Counted { pops, fewer: None }
        } else if now.nanos_since(since) > ttl_ns {
            Counted { pops: most, fewer: None }
        } else {
            Counted { fewer: Some((since, most)), ..*known }
        };
    }

    /// How many there are; `None` if nobody has said.
    pub fn known(&self) -> Option<u32> {
        self.counted.map(|counted| counted.pops).or(Some(self.said).filter(|said| *said > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use weir_limiter::time::SECOND_NS;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * SECOND_NS)
    }

    #[test]
    fn a_pop_that_falls_silent_stops_counting() {
        let mut pops = Pops::default();
        for (second, pop) in [(0, "a"), (0, "b"), (5, "a"), (6, "a"), (6, "c")] {
            pops.hear(at(second), pop);
        }
        assert_eq!(pops.live(at(10), 10 * SECOND_NS), 3);
        assert_eq!(pops.live(at(11), 10 * SECOND_NS), 2, "b is silent");
        assert_eq!(pops.live(at(17), 10 * SECOND_NS), 0);
        pops.hear(at(20), "b");
        assert_eq!(pops.live(at(20), 10 * SECOND_NS), 1);
    }

    #[test]
    fn what_pops_say_of_the_fleet_counts_until_the_store_does() {
        let mut fleet = FleetSize::default();
        assert_eq!(fleet.known(), None);
        for said in [0, 3, 0, 2] {
            fleet.hear(said);
        }
        assert_eq!(fleet.known(), Some(3), "the most");
        fleet.expect(30);
        assert_eq!(fleet.known(), Some(30));
        fleet.hear(u32::MAX);
        assert_eq!(fleet.known(), Some(POPS_MAX));
        fleet.count(at(0), 2, 10 * SECOND_NS);
        assert_eq!(fleet.known(), Some(POPS_MAX), "the store may have lost its data");
        fleet.count(at(11), 2, 10 * SECOND_NS);
        fleet.hear(30);
        assert_eq!(fleet.known(), Some(2), "the store knows");
    }

    #[test]
    fn a_store_that_lost_its_data_is_not_believed_before_every_pop_has_had_time_to_speak() {
        let mut fleet = FleetSize::default();
        let mut known = |at_s: u64, pops: u32| {
            fleet.count(at(at_s), pops, 10 * SECOND_NS);
            fleet.known().unwrap()
        };
        assert_eq!(known(0, 30), 30);
        // It was out of reach for a while, and lost its data.
        for (at_s, pops) in [(20, 1), (21, 12), (22, 30), (23, 1), (24, 29), (33, 28)] {
            assert_eq!(known(at_s, pops), 30, "{at_s} s");
        }
        assert_eq!(known(34, 28), 29, "one POP is gone, and then another");
        assert_eq!(known(35, 28), 29);
        assert_eq!(known(46, 28), 28);
        assert_eq!(known(47, 31), 31, "more are believed at once");
    }

    #[test]
    fn the_number_is_bounded() {
        let mut pops = Pops::default();
        for n in 0..u64::from(POPS_MAX) + 10 {
            pops.hear(Time::from_nanos(n), &format!("pop-{n}"));
        }
        assert_eq!(pops.live(at(1), SECOND_NS), POPS_MAX);
        assert_eq!(pops.heard_at.len(), POPS_MAX as usize);
    }
}
