//! Spending a strict rule's tokens, which the budget was debited for beforehand.

use super::hit::Hit;
use super::hit_result::{HitDecision, HitResult};
use super::terms::RuleTerms;
use crate::buckets::{Bucket, BucketStatus};
use crate::limiter::{AcquireState, Limiter};
use crate::table::slot::{BAR_STEP_NS, Entry, Placement, Slot};
use weir_protocol::sharing::OnSyncLoss;
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::algorithm::Algorithm;

/// Longest wait, in nanoseconds, for a client whose key got no tokens from weir-sync and no time for the
/// next. The wait is the refill time of its tokens, up to this.
const UNPAID_WAIT_NS_MAX: u64 = SECOND_NS;
/// Time in nanoseconds after which weir-sync is asked again about a strict rule's key without tokens, so that
/// a manual change of its budget takes effect. A calendar quota is not asked about again before its window
/// ends.
const BARRED_NS_MAX: u64 = 60 * SECOND_NS;

impl Limiter {
    /// Spends leased tokens if there are enough. Otherwise the verdict is to acquire some, or to wait.
    pub(crate) fn spend(
        &self,
        hit: &Hit,
        lodging: Placement,
        terms: &RuleTerms,
        slot: &mut Slot,
        now: Time,
    ) -> HitResult {
        if terms.has_turns {
            return self.take_turn(hit, terms, now);
        }
        let (quota, cost) = (&terms.quota, hit.cost);
        let refused = |verdict| HitResult::refused(verdict, hit.tag);
        let timeout_ns = self.timeout_ns();
        // A request in flight may last until its epoch ends, so it must begin that long before.
        let begins_by = now + terms.in_flight.map_or(0, |flight| flight.expires_ns());
        let in_hand = self.in_hand.iter().find(|in_hand| in_hand.tag == hit.tag && begins_by < in_hand.until);
        // A request that reserves does not spend shared tokens, because they could not be given back
        // separately.
        let (on_hand, elsewhere, awaited) = match lodging.entry {
            Entry::Watched(w) if !self.reserves(hit.rule) => {
                // Tokens that other requests wait for are reserved. A request that has waited finds enough
                // for all that were answered.
                let drawn = in_hand.filter(|in_hand| in_hand.told.epoch == w.epoch);
                let reserved = if drawn.is_some() { 0 } else { w.awaited(timeout_ns, now) };
                let on_hand = w.on_hand(begins_by).saturating_sub(reserved);
                (on_hand, w.left(), drawn.map_or(0, |drawn| drawn.told.awaited))
            }
            _ => (0, in_hand.map_or(0, |in_hand| in_hand.left), 0),
        };
        // Clients are told the sum of the tokens held here and those that the budget had at the last reply.
        let told = |left: u32| {
            let bucket = Bucket::FULL.held_to(quota, left.saturating_add(elsewhere), now);
            refused(HitDecision::Fits(BucketStatus::allowed(bucket, quota, now)))
        };
        if let (Entry::Watched(mut watched), true) = (lodging.entry, on_hand >= cost) {
            watched.spend(cost, now);
            watched.end_waiting(awaited);
            // The bucket is used only while the POP is offline, by `on_sync_loss`. The entry stays in its
            // slot until the bucket is full, which could take a month for a calendar quota.
            if terms.on_sync_loss != OnSyncLoss::Deny && !terms.is_calendar && terms.in_flight.is_none() {
                watched.bucket = watched.bucket.charged(quota, cost, now);
            }
            // Always fits: the entry exists already.
            let _ = slot.put_back(&lodging, &Entry::Watched(watched), now);
            let left = watched.on_hand(begins_by).saturating_sub(watched.awaited(timeout_ns, now));
            return match &terms.in_flight {
                Some(flight) => {
                    let left = left.saturating_add(elsewhere);
                    Self::begin(hit, &Algorithm::Concurrency(*flight), left, slot, now)
                }
                None => told(left),
            };
        }
        let drawn = in_hand.map_or(0, |in_hand| in_hand.tokens);
        // Tokens that a request acquired for itself are given back if it acquires again.
        let is_over = self.touch.drawn == AcquireState::Over;
        if drawn >= cost && !is_over {
            return told(0);
        }
        let (barred_ns, since_ns) = match lodging.entry {
            Entry::Watched(watched) => (watched.barred_ns(now), watched.noted_since_ns(now)),
            Entry::Cold(_) => (0, 0),
        };
        if self.touch.may_draw() && (barred_ns == 0 || since_ns >= BARRED_NS_MAX) {
            return refused(HitDecision::Unpaid);
        }
        let refill_ns = |tokens: u32| quota.token_ns().saturating_mul(tokens.into());
        // Missing tokens refill one after another, but those of a window all at once.
        let missing_ns =
            |tokens: u32| if terms.is_calendar { 0 } else { refill_ns(tokens.saturating_sub(1)) };
        let told_ns = if barred_ns > 0 { barred_ns.saturating_add(BAR_STEP_NS) } else { 0 };
        let wait_ns = match in_hand.map_or(told_ns, |drawn| drawn.more_at.nanos_since(now)) {
            0 => refill_ns(cost).min(UNPAID_WAIT_NS_MAX),
            more_ns => {
                let lacks = cost.saturating_sub(on_hand).saturating_sub(drawn).min(quota.burst());
                more_ns.saturating_add(missing_ns(lacks))
            }
        };
        refused(HitDecision::Short { wait_ns })
    }
}
