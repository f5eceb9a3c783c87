//! The points of presence that report here.

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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use weir_limiter::time::SECOND_NS;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * SECOND_NS)
    }

    #[test]
    fn who_falls_silent_stops_counting() {
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
    fn the_number_is_bounded() {
        let mut pops = Pops::default();
        for n in 0..u64::from(POPS_MAX) + 10 {
            pops.hear(Time::from_nanos(n), &format!("pop-{n}"));
        }
        assert_eq!(pops.live(at(1), SECOND_NS), POPS_MAX);
        assert_eq!(pops.heard_at.len(), POPS_MAX as usize);
    }
}
