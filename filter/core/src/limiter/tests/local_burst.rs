//! A local burst below the burst: what a POP reports of a key that gets only a part of the burst.

use super::*;

proptest! {
    /// I7, for any local burst and any number of POPs, whatever the clock does.
    #[test]
    fn no_more_is_reported_than_was_admitted(
        local_burst in 1u32..=40,
        pops in 1u32..60,
        steps in prop::collection::vec((0u32..6, -20i64..120, 1u32..60, prop::bool::ANY), 1..80),
    ) {
        let rule = json!([{"name": "r", "key": ["client_address"], "rate": "20/s", "burst": 40,
            "local_burst": local_burst}]);
        let (mut limiter, mut slots, mut now) = (limiter(rules(&rule), Some(1)), LocalSlots::new(1), T0);
        limiter.sync.as_mut().unwrap().observe(pops, false, now);
        let (mut all, mut cold) = (0, 0);
        for (asks, step_ms, pops, hears) in steps {
            now = Time::from_nanos(now.as_nanos().saturating_add_signed(step_ms * 1_000_000));
            if hears { limiter.sync.as_mut().unwrap().observe(pops, false, now); }
            for _ in 0..asks {
                all += u64::from(allows(&mut limiter, &mut slots, "192.0.2.1", now));
                let entry = limiter.entry(0, &[4, 32, 192, 0, 2, 1], &mut slots);
                let is_watched = matches!(entry, Some(Entry::Watched(_)));
                if !is_watched { cold = all; }
            }
            if let Some(key) = limiter.report(&mut slots, false, now).and_then(|mut report| report.keys.pop()) {
                prop_assert!(key.admitted <= all, "{} of {all}", key.admitted);
                prop_assert!(key.admitted >= all - cold, "{} of {all}, {cold} of them cold", key.admitted);
            }
        }
    }
}
