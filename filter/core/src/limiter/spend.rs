//! Spending the tokens of a strict rule, which were paid for before, or saying how long there are none.

use super::judged::{Judged, Verdict};
use super::state::{Asked, Hit, Limiter};
use super::terms::Terms;
use crate::bucket::Bucket;
use crate::decision::Standing;
use crate::slot::{BAR_STEP_NS, Entry, Lodging, Slot};
use weir_wire::sharing::WhenUnsynced;
use weir_wire::time::{SECOND_NS, Time};

/// A strict rule's key for which there was no token, and no word of when there will be one, is not asked for again
/// sooner than a token comes, or this, in nanoseconds.
const UNPAID_WAIT_NS_MAX: u64 = SECOND_NS;
/// How long a strict rule's key is believed to have no tokens, in nanoseconds: what is done to its budget by hand
/// is heard of no later. A calendar's quota is believed to have none until its window ends.
const BARRED_NS_MAX: u64 = 60 * SECOND_NS;

impl Limiter {
    /// Spends tokens that were paid for.
    pub(super) fn spend(
        &self,
        hit: &Hit,
        lodging: Lodging,
        terms: &Terms,
        slot: &mut Slot,
        now: Time,
    ) -> Judged {
        let (quota, cost) = (&terms.quota, hit.cost);
        let refused = |verdict| Judged::refused(verdict, hit.tag);
        let in_hand = self.in_hand.iter().find(|in_hand| in_hand.tag == hit.tag && now < in_hand.until);
        let (on_hand, elsewhere, awaited) = match lodging.entry {
            Entry::Watched(w) => {
                // What others wait for is theirs; one that has waited finds enough for all whose answers are here.
                let drawn = in_hand.filter(|in_hand| in_hand.told.epoch == w.epoch);
                let on_hand = if drawn.is_some() { w.on_hand(now) } else { w.spare(now) };
                // What the budget of a calendar's quota had left when it last answered.
                let elsewhere = if terms.is_calendar { w.left() } else { 0 };
                (on_hand, elsewhere, drawn.map_or(0, |drawn| drawn.told.awaited))
            }
            Entry::Cold(_) => (0, 0, 0),
        };
        // What clients are told is left.
        let told = |left: u32| {
            let bucket = Bucket::FULL.held_to(quota, left.saturating_add(elsewhere), now);
            refused(Verdict::Fits(Standing::allowed(bucket, quota, now)))
        };
        if let (Entry::Watched(mut watched), true) = (lodging.entry, on_hand >= cost) {
            watched.spend(cost, now);
            watched.end_waiting(awaited);
            // Only the rule's own choice, out of touch with weir-sync, asks the bucket; until it is full the entry
            // keeps its place, and of a calendar's quota that would be a month.
            if terms.when_unsynced != WhenUnsynced::Deny && !terms.is_calendar {
                watched.bucket = watched.bucket.charged(quota, cost, now);
            }
            // The entry is there, so it has its room.
            let _ = slot.put_back(&lodging, &Entry::Watched(watched), now);
            return told(watched.spare(now));
        }
        let drawn = in_hand.map_or(0, |in_hand| in_hand.tokens);
        if drawn >= cost {
            return told(0);
        }
        let (barred_ns, since_ns) = match lodging.entry {
            Entry::Watched(watched) => (watched.barred_ns(now), watched.noted_since_ns(now)),
            Entry::Cold(_) => (0, 0),
        };
        if self.touch.asked == Asked::NotYet && (barred_ns == 0 || since_ns >= BARRED_NS_MAX) {
            return refused(Verdict::Unpaid);
        }
        // Those that are missing come one after the other.
        let missing = |tokens: u32| quota.token_ns().saturating_mul(u64::from(tokens.saturating_sub(1)));
        let told_ns = if barred_ns > 0 { barred_ns.saturating_add(BAR_STEP_NS) } else { 0 };
        let (wait_ns, full_ns) = match in_hand.map_or(told_ns, |drawn| drawn.more_at.nanos_since(now)) {
            0 => (missing(cost.saturating_add(1)).min(UNPAID_WAIT_NS_MAX), quota.fill_ns()),
            more_ns => {
                let lacks = cost.saturating_sub(on_hand).saturating_sub(drawn);
                (more_ns.saturating_add(missing(lacks)), more_ns.saturating_add(missing(quota.burst())))
            }
        };
        refused(Verdict::Short { wait_ns, full_ns })
    }
}
