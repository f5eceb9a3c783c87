//! The workers of one POP share each bucket: none refuses tokens that others left, and all admit what one may.

use super::*;

const CLIENT: &str = "192.0.2.1";

/// Workers of a POP in a fleet of `pops`.
fn workers<const N: usize>(rules: &RuleSet, pops: u32) -> [Limiter; N] {
    core::array::from_fn(|id| {
        let mut limiter = limiter(rules.clone(), Some(id as u64));
        limiter.sync.as_mut().unwrap().observe(pops, false, T0);
        limiter
    })
}

/// Another burst each time the bucket is full, dealt to the workers in turn or in runs.
#[test]
fn a_burst_over_any_number_of_workers_is_admitted() {
    for (pops, run) in [1, 3, 1_000].into_iter().flat_map(|pops| [1, 2, 7, 118].map(|run| (pops, run))) {
        let (mut all, mut slots) = (workers::<8>(&one_rule("159/s", 118), pops), LocalSlots::new(1));
        for n in 0..10 * 118 {
            let now = T0 + n / 118 * 3 * SECOND_NS + n % 118 * 400_000;
            for worker in &mut all {
                worker.sync.as_mut().unwrap().observe(pops, false, now);
            }
            let worker = usize::try_from(n / run % 8).unwrap();
            assert!(allows(&mut all[worker], &mut slots, CLIENT, now), "{n}, {pops} POPs, runs of {run}");
        }
    }
}

/// The admitted requests of one client, as a bucket that never refuses.
#[derive(Clone, Copy)]
struct Meter(u64);

impl Meter {
    /// Tokens above burst + rate x t in the span that has the most.
    fn over(&mut self, quota: weir_protocol::quota::Quota, now: Time) -> u64 {
        self.0 = self.0.max(now.as_nanos()) + quota.token_ns();
        (self.0 - now.as_nanos()).saturating_sub(quota.fill_ns()) / quota.token_ns()
    }
}

fn rate() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("20/s"), Just("200/s"), Just("3/s")]
}

proptest! {
    /// I3, with one rule or two of one key, in a fleet or not, with reports, and a table too small for its keys.
    #[test]
    fn workers_in_a_fleet_admit_no_more_than_burst_and_rate(
        steps in prop::collection::vec((0usize..3, 0u8..3, prop_oneof![0u64..5, 0u64..60, 300u64..1_500]), 1..600),
        pops in prop_oneof![Just(1u32), Just(3), Just(1_000)],
        bursts in prop::collection::vec((rate(), 8u32..150, 1u32..4), 1..3),
        (slots, crowd) in (1u32..3, 0u64..60),
    ) {
        let rule = |(i, (rate, burst, local)): (usize, &(&str, u32, u32))| json!({
            "name": std::format!("r{i}"), "key": ["client_address"], "rate": rate, "burst": burst,
            "local_burst": (burst / local).max(1),
        });
        let rule_set = rules(&bursts.iter().enumerate().map(rule).collect());
        let quotas: Vec<_> = rule_set.rules().iter().map(|rule| rule.quota).collect();
        let (mut all, mut slots, mut now) = (workers::<3>(&rule_set, pops), LocalSlots::new(slots), T0);
        let mut meters = [[Meter(0); 2]; 3];
        for (i, (worker, client, step_ms)) in steps.into_iter().enumerate() {
            now += step_ms * MS;
            for worker in &mut all {
                worker.sync.as_mut().unwrap().observe(pops, false, now);
            }
            if i % 16 == 15 && crowd > 30 {
                for n in 0..crowd {
                    allows(&mut all[0], &mut slots, &std::format!("10.9.{}.{n}", i % 256), now);
                }
            }
            if i % 32 == 31 {
                let _ = all[worker].report(&mut slots, false, now);
            }
            if allows(&mut all[worker], &mut slots, &std::format!("10.0.0.{client}"), now) {
                for (meter, quota) in meters[usize::from(client)].iter_mut().zip(&quotas) {
                    prop_assert_eq!(meter.over(*quota, now), 0, "client {} at {}: {:?}", client, i, quota);
                }
            }
        }
    }
}
