//! A region's floor as a bucket of its own: f per cent of the rate, f per cent of the burst.
//!
//! It smooths the region's demand, which fluctuates, so that a region whose demand equals its floor gets it. While the
//! budget is in debt the bucket may go into debt too: a region that is flooded from time to time does not get its floor
//! anew each time. Tokens admitted without a grant, out of touch, at most empty the bucket.
//!
//! Several weir-syncs may serve one region, and the store returns to each only the charges of its own reports. So each
//! debits its bucket by the cumulative counts of the reports that it receives.

use weir_protocol::time::{SECOND_NS, Time};

use crate::budget::{Account, BudgetId, PlanEntry, SourceId};
use crate::divide::{FloorCapacity, SURPLUS, TARGET_PART};
use crate::id::BoundedMap;
use crate::sorted::Sorted;

/// Maximum number of sources remembered for a key; beyond it, all of them are forgotten.
const SOURCES_MAX: usize = 1_024;
/// Time after which a key without demand is forgotten, in nanoseconds.
const IDLE_NS: u64 = 60 * SECOND_NS;
/// Time within which a report's tokens were admitted, in nanoseconds: each of two weir-syncs gets every second report.
const REPORTED_WITHIN_NS: u64 = SECOND_NS;
/// Age of a report's tokens, in nanoseconds, above which their POP or region was out of touch. A warm key is reported
/// within 2.5 seconds.
const LATE_NS: u64 = 3 * SECOND_NS;

/// Floors of a region's keys. A key without room gets a new bucket with each charge, which smooths nothing.
#[derive(Debug, Default)]
pub struct Floors {
    buckets: BoundedMap<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// Deficit in nanoseconds of the whole quota's refill.
    deficit_ns: u64,
    at: Time,
    /// Latest count of admitted tokens from each source, and its time.
    counts: Sorted<SourceId, (u64, Time)>,
    /// Growth of the counts since it was last debited.
    grew: u64,
    /// Start of the time in which these tokens were admitted, or `None` if there are none.
    grew_since: Option<Time>,
    /// True if a source is new here: only the store can then tell the new part of its count.
    has_new: bool,
}

impl Bucket {
    fn new(now: Time) -> Self {
        Self { deficit_ns: 0, at: now, counts: Sorted::default(), grew: 0, grew_since: None, has_new: true }
    }

    fn observe(&mut self, now: Time, source: &SourceId, admitted: u64, span_ns: u64) {
        let mut since = Time::from_nanos(now.as_nanos().saturating_sub(span_ns));
        if self.counts.len() >= SOURCES_MAX {
            self.counts = Sorted::default();
        }
        match self.counts.find(|known| known.cmp(source)) {
            Ok((last, at)) => {
                since = since.max(core::mem::replace(at, now));
                if admitted <= *last {
                    return;
                }
                self.grew = self.grew.saturating_add(admitted - *last);
                *last = admitted;
            }
            Err(place) => {
                self.counts.put(place, source.clone(), (admitted, now));
                self.has_new = true;
            }
        }
        self.grew_since = Some(self.grew_since.map_or(since, |known| known.min(since)));
    }
}

impl Floors {
    /// Debits the key's bucket after `account` was charged for `entry`; returns its floor's capacity.
    pub fn charge(&mut self, now: Time, entry: &PlanEntry, percent: u8, account: &Account) -> Option<FloorCapacity> {
        if percent == 0 {
            return None;
        }
        let part = |ns: u64| ns / 100 * u64::from(percent);
        let full_ns = part(entry.quota.fill_ns());
        let mut unknown = Bucket::new(now);
        let bucket = self.bucket(now, &entry.id).unwrap_or(&mut unknown);
        let refill_ns = part(now.nanos_since(bucket.at));
        let lacking_ns = bucket.deficit_ns.saturating_sub(refill_ns);
        // These tokens were admitted since the last charge, so the refill since then pays for them.
        let unused_ns = refill_ns.saturating_sub(bucket.deficit_ns).min(part(REPORTED_WITHIN_NS));
        let grew = core::mem::take(&mut bucket.grew);
        let is_late = bucket.grew_since.take().is_some_and(|since| now.nanos_since(since) > LATE_NS);
        // Several reports may be waiting for the store at once: the first that is charged debits the counts of all.
        let tokens = if bucket.has_new { grew.max(account.charged) } else { grew };
        bucket.has_new = bucket.counts.len() == 0;
        let taken_ns = entry.quota.token_ns().saturating_mul(tokens).saturating_sub(unused_ns);
        let deficit_ns = lacking_ns.saturating_add(taken_ns);
        // Tokens beyond the floor are its debt only while the budget is in debt and grants can arrive.
        let most_ns = if account.deficit_ns < entry.quota.fill_ns() {
            full_ns
        } else if is_late {
            full_ns.max(lacking_ns)
        } else {
            u64::MAX
        };
        let deficit_ns = deficit_ns.min(most_ns);
        (bucket.deficit_ns, bucket.at) = (deficit_ns, now);
        // As for the whole budget, or a small bucket would overflow between two charges: a level below the target is
        // made up within a second, and a surplus is given out faster.
        let steered_ns = full_ns - full_ns / TARGET_PART;
        let surplus_ns = steered_ns.saturating_sub(deficit_ns).saturating_mul(SURPLUS);
        let lack_ns = deficit_ns.saturating_sub(steered_ns);
        let rate_ns = part(SECOND_NS).saturating_add(surplus_ns).saturating_sub(lack_ns);
        Some(FloorCapacity { rate_ns, level_ns: full_ns.saturating_sub(deficit_ns) })
    }

    /// Records at `now` that a POP of the region has admitted `admitted` tokens since its bucket's epoch began, of
    /// which the unconfirmed ones within the last `span_ns` nanoseconds.
    pub fn observe(&mut self, now: Time, id: &BudgetId, source: &SourceId, admitted: u64, span_ns: u64) {
        if let Some(bucket) = self.bucket(now, id) {
            bucket.observe(now, source, admitted, span_ns);
        }
    }

    /// Forgets a key whose budget is full again.
    pub fn forget(&mut self, id: &BudgetId) {
        self.buckets.remove(id);
    }

    fn bucket(&mut self, now: Time, id: &BudgetId) -> Option<&mut Bucket> {
        let is_needed = |bucket: &Bucket| now.nanos_since(bucket.at) < IDLE_NS;
        self.buckets.get_or_insert(now, id, || Bucket::new(now), is_needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use weir_protocol::quota::{Period, Quota, Rate};
    use weir_protocol::sharing::Sharing;

    fn quota() -> Quota {
        Quota::new(Rate::new(100, Period::Second).unwrap(), 100).unwrap()
    }

    fn id() -> BudgetId {
        BudgetId::new("r".into(), Vec::from([1]))
    }

    fn entry(quota: Quota) -> PlanEntry {
        PlanEntry::new(id(), quota, Sharing::of(quota))
    }

    fn account(charged: u64, deficit_ns: u64) -> Account {
        Account { deficit_ns, charged, fan_out: 0, now_us: 0, replicas: Vec::new() }
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(1_000 * SECOND_NS + ms * 1_000_000)
    }

    /// Rate of the floor, in tenths of a token per second.
    fn rate(given: Option<FloorCapacity>) -> u64 {
        given.unwrap().rate_ns / 1_000_000
    }

    // I5
    #[test]
    fn a_region_back_in_touch_keeps_its_floor() {
        let (pop, in_debt) = (SourceId { epoch: 1, pop: "p".into() }, 2 * SECOND_NS);
        // 300 tokens in five seconds, of which the floor is 150: by reports without the store, or in a late one.
        let without_the_store: Vec<_> = (1..=20).map(|k| (k * 250, k * 15, SECOND_NS / 4)).collect();
        for reports in [without_the_store, Vec::from([(5_000, 300, 5 * SECOND_NS)])] {
            let mut floors = Floors::default();
            floors.observe(at(0), &id(), &pop, 0, 0);
            floors.charge(at(0), &entry(quota()), 30, &account(30, in_debt));
            for (ms, admitted, span_ns) in reports {
                floors.observe(at(ms), &id(), &pop, admitted, span_ns);
            }
            // Empty, three tokens below the level that is steered for.
            let back = floors.charge(at(5_000), &entry(quota()), 30, &account(0, in_debt));
            assert_eq!(rate(back), 300 - 30);
            // What it admits beyond its floor from then on, it owes, also after a pause.
            floors.observe(at(5_250), &id(), &pop, 330, SECOND_NS / 4);
            let owes = floors.charge(at(5_250), &entry(quota()), 30, &account(0, in_debt));
            assert_eq!(rate(owes), 300 - 30 - 225);
            floors.observe(at(15_250), &id(), &pop, 530, SECOND_NS / 4);
            let owes = floors.charge(at(15_250), &entry(quota()), 30, &account(0, in_debt));
            assert_eq!(rate(owes), 0);
        }
    }
}
