//! A region's floor as a bucket of its own: f per cent of the rate, f per cent of the burst.
//!
//! What a region is asked for in half a second goes up and down; over its bucket it evens out, so that one
//! that asks for its floor gets it. While the budget is in debt the bucket may go into debt too: a region that is
//! flooded from time to time does not get its floor anew each time.

use alloc::collections::BTreeMap;

use weir_limiter::quota::Quota;
use weir_limiter::time::{SECOND_NS, Time};

use crate::budget::{Account, BudgetId};
use crate::divide::{SURPLUS, TARGET_PART};

/// The most keys whose floors are kept; any beyond gets its floor's rate, and nothing evened out.
pub const FLOORS_MAX: usize = 100_000;
/// A key that nobody asked for is forgotten after this, in nanoseconds.
const IDLE_NS: u64 = 60 * SECOND_NS;

/// The floors of a region's keys.
#[derive(Debug, Default)]
pub struct Floors {
    buckets: BTreeMap<BudgetId, Bucket>,
    swept_at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Nanoseconds of the whole quota's refill until it is full.
    deficit_ns: u64,
    at: Time,
}

impl Floors {
    /// What a floor of `percent` gives the region now, in nanoseconds of the quota's refill per second,
    /// after `account` was charged.
    pub fn charge(
        &mut self,
        now: Time,
        id: &BudgetId,
        quota: Quota,
        percent: u8,
        account: &Account,
    ) -> Option<u64> {
        if percent == 0 {
            return None;
        }
        self.sweep(now);
        let part = |ns: u64| ns / 100 * u64::from(percent);
        let full_ns = part(quota.fill_ns());
        let has_room = self.buckets.len() < FLOORS_MAX || self.buckets.contains_key(id);
        let known = self.buckets.get(id).copied().filter(|_| has_room);
        let bucket = known.unwrap_or(Bucket { deficit_ns: 0, at: now });
        let refilled = bucket.deficit_ns.saturating_sub(part(now.nanos_since(bucket.at)));
        let deficit = refilled.saturating_add(quota.token_ns().saturating_mul(account.charged));
        // Beyond the floor, what is left of the others' is no debt.
        let deficit_ns = if account.deficit_ns < quota.fill_ns() { deficit.min(full_ns) } else { deficit };
        if has_room {
            self.buckets.insert(id.clone(), Bucket { deficit_ns, at: now });
        }
        // The same as for the whole: a lack below a tenth is made up within a second, a level above it is given out
        // faster. A small bucket would overflow else between two charges, and the region get less than its floor.
        let steered_ns = full_ns - full_ns / TARGET_PART;
        let surplus_ns = steered_ns.saturating_sub(deficit_ns).saturating_mul(SURPLUS);
        Some(part(SECOND_NS).saturating_add(surplus_ns).saturating_sub(deficit_ns.saturating_sub(steered_ns)))
    }

    fn sweep(&mut self, now: Time) {
        if now.nanos_since(self.swept_at) >= IDLE_NS {
            self.swept_at = now;
            self.buckets.retain(|_, bucket| now.nanos_since(bucket.at) < IDLE_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use weir_limiter::quota::{Period, Rate};

    fn quota() -> Quota {
        Quota::new(Rate::new(100, Period::Second).unwrap(), 100).unwrap()
    }

    fn id() -> BudgetId {
        BudgetId { rule: "r".into(), value: Vec::from([1]) }
    }

    fn account(charged: u64, deficit_ns: u64) -> Account {
        Account { deficit_ns, charged, spread: 0, now_us: 0, members: Vec::new() }
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(1_000 * SECOND_NS + ms * 1_000_000)
    }

    /// Tokens a second, with a tenth of a token.
    fn rate(given: Option<u64>) -> u64 {
        given.unwrap() / 1_000_000
    }

    #[test]
    fn a_rested_floor_gives_its_burst_and_then_its_rate() {
        let mut floors = Floors::default();
        assert_eq!(floors.charge(at(0), &id(), quota(), 0, &account(0, 0)), None);
        assert_eq!(rate(floors.charge(at(0), &id(), quota(), 30, &account(0, 0))), 300 + 4 * 270);
        assert_eq!(rate(floors.charge(at(0), &id(), quota(), 30, &account(27, 0))), 300);
        // A tenth of a second of 30 a second.
        assert_eq!(rate(floors.charge(at(100), &id(), quota(), 30, &account(0, 0))), 300 + 4 * 30);
    }

    #[test]
    fn what_others_leave_is_no_debt_and_what_they_do_not_is() {
        let mut floors = Floors::default();
        assert_eq!(rate(floors.charge(at(0), &id(), quota(), 30, &account(500, 0))), 270);
        let in_debt = 2 * SECOND_NS;
        assert_eq!(rate(floors.charge(at(0), &id(), quota(), 30, &account(40, in_debt))), 0);
        // 70 tokens taken, at 30 a second; what was no debt then is none now.
        assert_eq!(rate(floors.charge(at(2_000), &id(), quota(), 30, &account(0, in_debt))), 300 + 4 * 170);
    }
}
