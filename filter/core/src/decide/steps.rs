//! The steps of a decision: look up, judge, commit.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::decision::{Decision, DecisionKind, LimitReason};
use super::fast_path::FastPath;
use super::hit::{Hit, Scratch};
use super::matching::MatchResult;
use super::pending_decision::PendingDecision;
use super::status::allowed;
use crate::buckets::BucketStatus;
use crate::buckets::algorithm::Receipt;
use crate::counters::CountedEvent;
use crate::fleet::connectivity::Connectivity;
use crate::limiter::{AcquireState, ConnectivityReading, Limiter};
use crate::table::slot::Slot;
use crate::table::{LoadedSlot, Slots, WriteError};
use weir_protocol::time::Time;
use weir_rules::request::Request;

/// Most retries of a write that conflicts with another worker's. Each retry means that another request was
/// decided, and slots that threads share favour a writer that keeps losing. So only an extremely contended
/// slot comes near this.
pub(crate) const WRITES_MAX: u32 = 32;

impl Limiter {
    /// Decides one request at `now`.
    pub fn decide(&mut self, request: &mut dyn Request, slots: &mut dyn Slots, now: Time) -> Decision {
        match self.try_fast_path(request, slots, now) {
            FastPath::Passed => return self.passed(now),
            FastPath::Refused(rule, denial) => return self.refused_quickly(rule, denial, now),
            FastPath::Left => {}
        }
        self.decide_generally(request, slots, now)
    }

    /// [`Limiter::decide`] without the quick path.
    pub(crate) fn decide_generally(
        &mut self,
        request: &mut dyn Request,
        slots: &mut dyn Slots,
        now: Time,
    ) -> Decision {
        self.decide_at(AcquireState::NotYet, request, slots, now)
    }

    pub(crate) fn decide_at(
        &mut self,
        drawn: AcquireState,
        request: &mut dyn Request,
        slots: &mut dyn Slots,
        now: Time,
    ) -> Decision {
        self.restore_terms();
        self.touch.drawn = drawn;
        self.would_refuse.clear();
        // The scratch is taken out, so that the rest of the limiter can be borrowed meanwhile.
        let mut scratch = self.scratch.take().unwrap_or_default();
        let met = self.find_matches(request, &mut scratch, slots.count(), now);
        let ruling = if let MatchResult::Blocked = met {
            PendingDecision::BLOCKED
        } else if let MatchResult::Lacking(rule) = met {
            self.refused_for_lacking(rule)
        } else if scratch.hits.is_empty() {
            PendingDecision::UNCOUNTED
        } else if let Some(refused) = self.remembered(&scratch.hits, now) {
            refused
        } else {
            self.settle(&mut scratch, slots, now)
        };
        let is_allowed = ruling.outcome == DecisionKind::Allow;
        if is_allowed {
            if !scratch.shadow.is_empty() && !self.only_asks {
                self.evaluate_shadows(&mut scratch, slots, now);
            }
            for rule in &scratch.unlimited {
                self.counters.count(*rule, |counts| &mut counts.allowed);
            }
        }
        if !self.in_hand.is_empty() {
            self.end_in_hand(&scratch.hits, is_allowed, slots, now);
        }
        self.in_vain.clear();
        let PendingDecision { outcome, strictest, hold_ns, is_banned } = ruling;
        let decision = match (outcome, strictest) {
            (DecisionKind::Allow, _) => {
                let told = if self.is_told { self.status_of_allowed(allowed(&scratch.hits)) } else { None };
                let afterwards = core::mem::take(&mut self.afterwards);
                let shadow = match self.would_refuse.as_slice() {
                    [] => Box::default(),
                    rules => rules.into(),
                };
                Decision::Allow { strictest, told, shadow, hold_ns, afterwards }
            }
            (DecisionKind::Limit | DecisionKind::Deny, Some((rule, standing))) => {
                let reason = match outcome {
                    DecisionKind::Deny => LimitReason::Deny,
                    _ if is_banned => LimitReason::Ban,
                    _ => LimitReason::Limit,
                };
                let hits = &scratch.hits;
                let tag = || hits.iter().find(|hit| hit.rule == rule).map_or(0, |hit| hit.tag.bits());
                let jitter_s = self.jitter_s(rule, tag);
                let counted = hits.iter().map(|hit| (hit.rule, hit.key));
                Decision::Refuse { reason, status: self.status(rule, standing, counted), jitter_s }
            }
            // A request that has waited must not wait again: its verdicts are final then, and this makes sure of it.
            (DecisionKind::Wait, Some(_)) if self.touch.may_draw() => {
                self.scratch = Some(scratch);
                return self.wait(request, slots, now);
            }
            _ => Decision::Block,
        };
        self.scratch = Some(scratch);
        decision
    }

    /// Reads the POP's connectivity before a request is judged.
    pub(crate) fn read_connectivity(&mut self, now: Time) {
        let (drawn, connectivity) = (self.touch.drawn, self.connectivity());
        let is_lost =
            connectivity.is_none_or(|connectivity| connectivity.step(now) == Connectivity::Fallback);
        let is_lost_for_strict = drawn == AcquireState::InVain
            || connectivity.is_none_or(|connectivity| !connectivity.may_ask(now));
        self.touch = ConnectivityReading { is_lost, is_lost_for_strict, drawn };
    }

    /// The refusal with the longest wait among those that the local cache has for these hits.
    fn remembered(&mut self, hits: &[Hit], now: Time) -> Option<PendingDecision> {
        let denials =
            hits.iter().filter_map(|hit| Some((hit, self.local_cache.get(hit.tag, hit.cost, now)?)));
        let (hit, denial) = denials.max_by_key(|(_, denial)| denial.until)?;
        for hit in hits {
            self.watch.touch_known(hit.tag, hit.cost, now);
        }
        self.counters.add(CountedEvent::LocalCacheHits, 1);
        let refused = self.refused(hit.rule, BucketStatus::refused(denial.until.nanos_since(now)));
        Some(PendingDecision { is_banned: denial.is_ban, ..refused })
    }

    /// Judges the hits on the table, and commits the tokens they take.
    fn settle(&mut self, scratch: &mut Scratch, slots: &mut dyn Slots, now: Time) -> PendingDecision {
        self.read_connectivity(now);
        let Scratch { hits, loaded, rooms, .. } = scratch;
        while let Some(loaded) = loaded.pop() {
            rooms.push(loaded.slot);
        }
        for i in 0..hits.len() {
            let Some(index) = hits.get(i).map(|hit| hit.slot) else { break };
            if !loaded.iter().any(|l| l.index == index) {
                loaded.push(self.load(slots, index, rooms));
            }
        }
        let mut fits = true;
        for loaded in loaded.iter_mut() {
            fits &= self.evaluate_slot(loaded, hits, now);
        }
        if fits {
            for i in 0..loaded.len() {
                let Some((done, [next, ..])) = loaded.split_at_mut_checked(i) else { break };
                if !self.commit(next, hits, slots, rooms, now) {
                    self.give_back(done, hits, slots, rooms, now);
                    fits = false;
                    break;
                }
            }
        }
        for hit in hits.iter().filter(|hit| hit.thinned) {
            self.watch.settle(hit.tag, fits);
        }
        if !fits {
            return self.refuse(hits, slots, rooms, now);
        }
        self.allow(hits, loaded, now)
    }

    pub(crate) fn load(&mut self, slots: &mut dyn Slots, index: u32, rooms: &mut Vec<Slot>) -> LoadedSlot {
        let (loaded, mishap) = LoadedSlot::read(slots, index, rooms.pop().unwrap_or_default());
        if let Some(mishap) = mishap {
            self.counters.add(mishap, 1);
        }
        loaded
    }

    /// Writes a judged slot. On a conflict, reads and judges it again; false if a hit no longer fits then.
    pub(crate) fn commit(
        &mut self,
        loaded: &mut LoadedSlot,
        hits: &mut [Hit],
        slots: &mut dyn Slots,
        rooms: &mut Vec<Slot>,
        now: Time,
    ) -> bool {
        for _ in 0..WRITES_MAX {
            if !loaded.is_known() {
                forget_taken(hits, loaded);
                return true;
            }
            match loaded.write(slots) {
                Ok(()) => return true,
                Err(WriteError::Unavailable) => {
                    self.counters.add(CountedEvent::Unavailable, 1);
                    forget_taken(hits, loaded);
                    return true;
                }
                Err(WriteError::Conflict) => self.counters.add(CountedEvent::CasRetried, 1),
            }
            *loaded = self.load(slots, loaded.index, rooms);
            if !self.evaluate_slot(loaded, hits, now) {
                return false;
            }
        }
        self.counters.add(CountedEvent::CasGaveUp, 1);
        forget_taken(hits, loaded);
        true
    }
}

/// Marks a slot as not written, so that its hits have nothing to give back or to release.
fn forget_taken(hits: &mut [Hit], loaded: &mut LoadedSlot) {
    loaded.give_up();
    for hit in hits.iter_mut().filter(|hit| hit.slot == loaded.index) {
        // A turn from the fleet's budget is in no slot, so it is kept.
        hit.judged.taken = hit.judged.taken.filter(|taken| taken.receipt == Receipt::NONE);
    }
}
