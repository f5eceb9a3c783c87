//! Turns in a queue that the fleet's budget keeps: a strict leaky bucket.
//!
//! Each request acquires its own turn. Nothing about it is stored in the key's slot. A turn that is not used
//! is lost, because no other request could use it.

use super::hit::Hit;
use super::hit_result::{HitDecision, HitResult};
use super::terms::RuleTerms;
use crate::RuleIndex;
use crate::buckets::algorithm::{Admitted, Receipt};
use crate::buckets::{Bucket, BucketStatus};
use crate::limiter::{AcquireState, Limiter};
use weir_protocol::time::Time;

impl Limiter {
    /// True if each request under this rule acquires its own turn.
    pub(crate) fn has_turns(&self, rule: RuleIndex) -> bool {
        self.terms.get(usize::from(rule)).is_some_and(|terms| terms.has_turns)
    }

    /// Uses the turn that was acquired for the request, if it got one and can be held until then.
    pub(super) fn take_turn(&self, hit: &Hit, terms: &RuleTerms, now: Time) -> HitResult {
        let (quota, cost) = (&terms.quota, hit.cost);
        let refused = |verdict| HitResult::refused(verdict, hit.tag);
        if cost > quota.burst() {
            return refused(HitDecision::Short { wait_ns: quota.fill_ns() });
        }
        let turn_ns = quota.token_ns().saturating_mul(cost.into());
        let beyond = |until_ns: u64| until_ns.saturating_add(turn_ns).saturating_sub(quota.fill_ns());
        let drawn = self.in_hand.iter().find(|in_hand| in_hand.tag == hit.tag);
        // A peek returns when its turn would come, but takes none.
        let (fits, left, wait_ns, short_ns) = match drawn {
            // The lease had ended when the reply arrived, and the turn with it.
            _ if self.touch.drawn == AcquireState::Over => return refused(HitDecision::Unpaid),
            None if self.touch.may_draw() => return refused(HitDecision::Unpaid),
            None => (false, 0, turn_ns, turn_ns),
            Some(drawn) => {
                let wait_ns = drawn.more_at.nanos_since(now);
                if self.only_asks {
                    (drawn.left >= cost, drawn.left.saturating_sub(cost), wait_ns, beyond(wait_ns))
                } else {
                    (drawn.tokens >= cost, drawn.left, wait_ns, wait_ns)
                }
            }
        };
        if fits && (wait_ns == 0 || self.may_hold || self.only_asks) {
            let bucket = Bucket::FULL.held_to(quota, left, now);
            let fits = HitDecision::Fits(BucketStatus::allowed(bucket, quota, now));
            return HitResult {
                taken: Some(Admitted { receipt: Receipt::NONE, hold_ns: wait_ns }),
                ..refused(fits)
            };
        }
        refused(HitDecision::Short { wait_ns: short_ns })
    }
}
