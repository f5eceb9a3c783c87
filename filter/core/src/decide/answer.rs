//! Making a decision from judged hits.

use alloc::vec::Vec;

use super::decision::DecisionKind;
use super::hit::Hit;
use super::hit_result::HitDecision;
use super::pending_decision::PendingDecision;
use crate::RuleIndex;
use crate::buckets::BucketStatus;
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::local::Denial;
use crate::table::slot::Slot;
use crate::table::{LoadedSlot, Slots};
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::algorithm::Algorithm;

/// Wait for clients that are refused because the POP is offline, in nanoseconds.
const DENIED_WAIT_NS: u64 = SECOND_NS;

impl Limiter {
    /// Lets the request of `hits` through. `written` are the slots that were committed for it.
    pub(crate) fn allow(&mut self, hits: &[Hit], written: &[LoadedSlot], now: Time) -> PendingDecision {
        let mut strictest: Option<(RuleIndex, BucketStatus)> = None;
        let mut hold_ns = 0;
        for hit in hits {
            self.counters.count(hit.rule, |counts| &mut counts.allowed);
            self.counters.add(CountedEvent::Evicted, hit.judged.evicted);
            self.counters.add(CountedEvent::Overflowed, u32::from(hit.judged.is_shared));
            self.record_end_action(hit, written, now);
            hold_ns = hit.judged.taken.map_or(0, |taken| taken.hold_ns).max(hold_ns);
            let HitDecision::Fits(standing) = hit.judged.verdict else { continue };
            if strictest.is_none_or(|(other, s)| self.is_stricter((hit.rule, standing), (other, s))) {
                strictest = Some((hit.rule, standing));
            }
        }
        PendingDecision { hold_ns, ..PendingDecision::of(DecisionKind::Allow, strictest) }
    }

    /// True if the first rule has a smaller fraction of its burst left than the second.
    pub(super) fn is_stricter(
        &self,
        first: (RuleIndex, BucketStatus),
        second: (RuleIndex, BucketStatus),
    ) -> bool {
        let burst = |rule| self.rule(rule).map_or(1, |rule| u64::from(rule.quota.burst()));
        u64::from(first.1.remaining) * burst(second.0) < u64::from(second.1.remaining) * burst(first.0)
    }

    /// Refuses the request for the rule with the longest wait, and puts keys without tokens into the local
    /// cache.
    pub(crate) fn refuse(
        &mut self,
        hits: &[Hit],
        slots: &mut dyn Slots,
        rooms: &mut Vec<Slot>,
        now: Time,
    ) -> PendingDecision {
        let mut longest: Option<(RuleIndex, BucketStatus)> = None;
        let (mut unpaid, mut banned_by) = (None, None);
        for hit in hits {
            let wait_ns = match hit.judged.verdict {
                HitDecision::Fits(_) => continue,
                HitDecision::Unpaid => {
                    unpaid.get_or_insert(hit.rule);
                    continue;
                }
                HitDecision::Denied => return self.denied(hit.rule),
                HitDecision::Banned { wait_ns } => {
                    let until = now + wait_ns;
                    self.local_cache.remember(hit.tag, Denial::ban(until), now);
                    longest = longer(longest, hit.rule, wait_ns);
                    banned_by = longest.filter(|(rule, _)| *rule == hit.rule).or(banned_by);
                    continue;
                }
                HitDecision::Thinned { wait_ns } => wait_ns,
                HitDecision::Short { wait_ns } => {
                    if self.may_remember(hit.rule) {
                        let denial = Denial { cost: hit.cost, is_ban: false, until: now + wait_ns };
                        self.local_cache.remember(hit.tag, denial, now);
                    }
                    self.counters.add(CountedEvent::Overflowed, u32::from(hit.judged.is_shared));
                    wait_ns
                }
            };
            if !hit.watched && hit.judged.tag == hit.tag {
                self.watch_refused(hit, slots, rooms, now);
            }
            if let Some(penalty) = self
                .rule(hit.rule)
                .and_then(|rule| rule.penalty)
                .filter(|_| !(self.only_asks || self.is_booking))
            {
                self.strike(hit, &penalty, slots, now);
            }
            longest = longer(longest, hit.rule, wait_ns);
        }
        match (longest, unpaid) {
            (Some((rule, standing)), _) => {
                let is_banned = banned_by.is_some_and(|(by, _)| by == rule);
                PendingDecision { is_banned, ..self.refused(rule, standing) }
            }
            (None, Some(rule)) => {
                PendingDecision::refused(DecisionKind::Wait, rule, BucketStatus::refused(0))
            }
            (None, None) => PendingDecision::UNCOUNTED,
        }
    }

    /// True if the local cache may repeat this rule's refusal until the wait is over. Not for rules that
    /// count requests in flight, because these may end at any time; not if reserved tokens may come back; and
    /// not for rules with a penalty, which counts refusals.
    fn may_remember(&self, rule: RuleIndex) -> bool {
        let rule = self.rule(rule);
        rule.is_some_and(|rule| {
            let is_reserved = (rule.reserves || self.may_reserve) && !rule.sharing.strict;
            let comes_back = is_reserved || matches!(rule.algorithm, Algorithm::Concurrency(_));
            !comes_back && rule.penalty.is_none()
        })
    }

    fn denied(&mut self, rule: RuleIndex) -> PendingDecision {
        self.counters.count(rule, |counts| &mut counts.denied);
        PendingDecision::refused(DecisionKind::Deny, rule, BucketStatus::refused(DENIED_WAIT_NS))
    }

    pub(crate) fn refused(&mut self, rule: RuleIndex, standing: BucketStatus) -> PendingDecision {
        self.counters.count(rule, |counts| &mut counts.limited);
        PendingDecision::refused(DecisionKind::Limit, rule, standing)
    }
}

/// The refusal with the longer wait.
fn longer(
    known: Option<(RuleIndex, BucketStatus)>,
    rule: RuleIndex,
    wait_ns: u64,
) -> Option<(RuleIndex, BucketStatus)> {
    known.filter(|(_, known)| known.more_ns >= wait_ns).or(Some((rule, BucketStatus::refused(wait_ns))))
}
