//! Overshoot bound: how far above its quota a key can get over all points of presence.
//!
//! In any span t the fleet admits at most `burst + rate x t + bound` tokens for a key. What is admitted above
//! the quota is debt, and is paid back; the bound limits how deep the debt can get.
//!
//! # The argument
//!
//! With rate L, burst B, N POPs, horizon H and R = [`FleetParameters::reach_ns`]:
//!
//! 1. *A POP's grant is at most R old.* A POP that admits more than its fair share reports that at its next
//!    tick, and receives the budget's level in the reply; an exchange that fails is tried again. So at most 2 R
//!    pass between a report that was charged and the reply to the next one that is charged: R until the next
//!    report is made, and R until its reply arrives.
//! 2. *On one grant a POP admits the content of its bucket, and the refill until the next grant*: `b_i + 2 L R`. A
//!    bucket holds at most the local burst b, or the whole burst B if its POP is the only one with demand. Several POPs
//!    may have such a grant at once, as grants age: the next POP can be alone only after the last has been silent for
//!    the window W in which demand is measured, and a POP without demand any more gets a new grant within R. So at most
//!    `a = 1 + R / W`, rounded up, hold a whole burst, and the fleet `sum b_i = N b + min(N, a) (B - b)`.
//! 3. *Below a level of `x_target - L H` nothing is granted* (p = 0). So the known debt grows to `L H` at most,
//!    and then by the tokens under way: for each POP those of step 2.
//! 4. *The first B of it is the burst.* Either the budget was full when all this began, and has B to give; or
//!    other POPs had drained it, and those received the level and hold no burst themselves.
//!
//! Together `sum b_i + 2 N L R + L H - B`; for a burst below `0.1 s L`, plus the depth of `x_target` below
//! empty. With b = B that is `(N - 1) B` and the cost of late grants.
//!
//! # Assumptions
//!
//! - POPs that are cut off for longer than R are not included. Each adds its whole rate, its fair share of the quota or
//!   nothing (`on_sync_loss`), which is charged once it is back.
//! - Tokens that POPs admit without reporting them (cold keys) or report with a delay (warm keys) must fit the
//!   quota together: the fair shares of all POPs and the demand that makes a key hot add up to it.
//! - Floors: a region's floor is admitted in debt too, so step 3 holds for the rest only. With steady demand the floor
//!   is less than the refill, and the debt shrinks. Each jump of the demand adds the POPs' tokens under way once more.
//! - Lost tokens (a store is flushed, a POP crashes before it reports) are never charged.

use weir_protocol::quota::Quota;
use weir_protocol::sharing::Sharing;

use crate::demand::WINDOW_NS;
use crate::divide::{HORIZON_NS, target_ns};

/// A POP may admit the refill of this many times [`FleetParameters::reach_ns`] before a new grant stops it.
const REACHES: u128 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetParameters {
    pub pops: u32,
    pub interval_ns: u64,
    /// Time from a POP to its weir-sync, to the store, and back, in nanoseconds.
    pub trip_ns: u64,
    pub timeout_ns: u64,
    /// Number of consecutive exchanges that may fail.
    pub failures: u32,
}

impl FleetParameters {
    /// Maximum age of a grant that a POP acts on, in nanoseconds.
    pub fn reach_ns(&self) -> u64 {
        let again_ns = self.timeout_ns.saturating_add(self.interval_ns);
        let failing_ns = again_ns.saturating_mul(u64::from(self.failures));
        self.interval_ns.saturating_add(self.trip_ns).saturating_add(failing_ns)
    }
}

/// Maximum number of tokens for one key above `burst + rate x t` in any span t, rounded up; 0 for a strict rule.
pub fn bound(quota: Quota, sharing: &Sharing, fleet: &FleetParameters) -> u64 {
    if sharing.strict {
        return 0;
    }
    let (pops, reach_ns) = (u64::from(fleet.pops.max(1)), fleet.reach_ns());
    let (burst, local_burst) = (u64::from(quota.burst()), u64::from(sharing.local_burst.min(quota.burst())));
    let alone = reach_ns.div_ceil(WINDOW_NS).saturating_add(1).min(pops);
    let held = pops * local_burst + alone * (burst - local_burst);
    let known_ns = u128::from(HORIZON_NS) + target_ns(quota).min(0).unsigned_abs();
    let late_ns = u128::from(pops) * REACHES * u128::from(reach_ns) + known_ns;
    (held - burst).saturating_add(refill(quota, late_ns))
}

/// Tokens above `burst + rate x t` for a client that sends to all POPs of `fleet` at once, while no exchange fails: the
/// POPs' local bursts, and what each admits until it has a grant, rounded up. Never more than [`bound`].
pub fn usual(quota: Quota, sharing: &Sharing, fleet: &FleetParameters) -> u64 {
    let pops = u64::from(fleet.pops.max(1));
    if sharing.strict || pops == 1 {
        return 0;
    }
    let (burst, local_burst) = (u64::from(quota.burst()), u64::from(sharing.local_burst.min(quota.burst())));
    let first_ns = u128::from(pops) * u128::from(fleet.interval_ns.saturating_add(fleet.trip_ns));
    (pops.saturating_mul(local_burst).saturating_sub(burst)).saturating_add(refill(quota, first_ns))
}

fn refill(quota: Quota, ns: u128) -> u64 {
    u64::try_from(ns.div_ceil(u128::from(quota.token_ns()))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_protocol::quota::{Period, Rate};
    use weir_protocol::refill_policy::RefillPolicy;
    use weir_protocol::time::SECOND_NS;

    const MS: u64 = 1_000_000;
    /// Three POPs with an interval of 250 ms and a round trip of 100 ms.
    const FLEET: FleetParameters =
        FleetParameters { pops: 3, interval_ns: 250 * MS, trip_ns: 100 * MS, timeout_ns: SECOND_NS, failures: 0 };

    fn quota(count: u32, burst: u32) -> Quota {
        Quota::new(Rate::new(count, Period::Second).unwrap(), burst).unwrap()
    }

    fn sharing(local_burst: u32) -> Sharing {
        Sharing { strict: false, local_burst, floors: alloc::vec![], refill_policy: RefillPolicy::Continuous }
    }

    // I4
    #[test]
    fn the_formula_in_figures() {
        let quota = quota(100, 100);
        // (N - 1) B, 2 N L R and L H.
        assert_eq!(bound(quota, &sharing(100), &FLEET), 200 + 210 + 100);
        // Two of the three may each hold a whole burst as if they were alone: 100 + 100 + 10, less one B.
        assert_eq!(bound(quota, &sharing(10), &FLEET), 110 + 210 + 100);
        let failing = FleetParameters { failures: 2, ..FLEET };
        assert_eq!(failing.reach_ns(), 350 * MS + 2 * 1_250 * MS);
        assert_eq!(bound(quota, &sharing(100), &failing), 200 + 6 * 285 + 100);
        assert_eq!(bound(quota, &Sharing { strict: true, ..sharing(100) }, &failing), 0);
    }

    #[test]
    fn the_usual_overshoot_is_the_bursts_and_one_exchange() {
        let quota = quota(50, 50);
        // 100 at the two others, and 50/s at each for 0.35 s; `make regions` measured 119.
        assert_eq!(usual(quota, &sharing(50), &FLEET), 100 + 53);
        assert_eq!(usual(quota, &sharing(5), &FLEET), 53);
        let one = FleetParameters { pops: 1, ..FLEET };
        assert_eq!(usual(quota, &sharing(50), &one), 0);
        assert_eq!(usual(quota, &Sharing { strict: true, ..sharing(50) }, &FLEET), 0);
    }

    prop_compose! {
        fn fleet()(
            pops in any::<u32>(), interval_ns in any::<u64>(), trip_ns in any::<u64>(),
            timeout_ns in any::<u64>(), failures in 0..10_u32, shift in 0..40_u32,
        ) -> FleetParameters {
            let (interval_ns, trip_ns, timeout_ns) = (interval_ns >> shift, trip_ns >> shift, timeout_ns >> shift);
            FleetParameters { pops: pops >> (shift / 2), interval_ns, trip_ns, timeout_ns, failures }
        }
    }

    proptest! {
        // I4
        #[test]
        fn grows_with_the_fleet_and_the_age_of_its_news(
            fleet in fleet(), count in 1..1_000_000_u32, burst in 2..1_000_000_u32, part in 1..100_u32,
            more in 1..1_000_000_u32,
        ) {
            let quota = quota(count, burst);
            let sharing = sharing((burst / part).max(1));
            let base = bound(quota, &sharing, &fleet);
            prop_assert!(usual(quota, &sharing, &fleet) <= base);
            let more_ns = u64::from(more) * MS;
            let slower = [
                FleetParameters { pops: fleet.pops.saturating_add(more), ..fleet },
                FleetParameters { interval_ns: fleet.interval_ns.saturating_add(more_ns), ..fleet },
                FleetParameters { trip_ns: fleet.trip_ns.saturating_add(more_ns), ..fleet },
                FleetParameters { timeout_ns: fleet.timeout_ns.saturating_add(more_ns), ..fleet },
                FleetParameters { failures: fleet.failures + 1, ..fleet },
            ];
            for fleet in slower {
                prop_assert!(bound(quota, &sharing, &fleet) >= base, "{fleet:?}");
            }
        }
    }
}
