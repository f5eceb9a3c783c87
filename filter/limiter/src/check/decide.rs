//! The steps of a decision: look up, evaluate, commit.

use alloc::boxed::Box;

use crate::check::answer::allowed;
use crate::check::current::{AcquireState, ConnectivityReading, Hit, HitDecision, Scratch};
use crate::check::decision::{Decision, LimitReason, PendingDecision};
use crate::check::evaluate::Evaluation;
use crate::check::fast_path::{FastPath, passed, refused_quickly, try_fast_path};
use crate::check::rules::MatchResult;
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::sync::connectivity::Connectivity;
use crate::table::Slots;
use weir_protocol::time::Time;
use weir_rules::request::Request;

impl Limiter {
    /// Decides one request at `now`.
    pub fn decide(&mut self, request: &mut dyn Request, slots: &mut dyn Slots, now: Time) -> Decision {
        match try_fast_path(self, request, slots, now) {
            FastPath::Passed => passed(self, now),
            FastPath::Refused(rule, denial) => refused_quickly(self, rule, denial, now),
            FastPath::Left => self.decide_at(AcquireState::NotYet, request, slots, now),
        }
    }

    /// [`Limiter::decide`] without the quick path, for a request whose tokens are acquired as far as `acquired`.
    pub(crate) fn decide_at(
        &mut self,
        acquired: AcquireState,
        request: &mut dyn Request,
        slots: &mut dyn Slots,
        now: Time,
    ) -> Decision {
        self.current.connectivity.acquired = acquired;
        self.current.would_refuse.clear();
        // The scratch is taken out, so that the rest of the limiter can be borrowed meanwhile.
        let mut scratch = self.scratch.take().unwrap_or_default();
        let pending = match self.find_matches(request, &mut scratch, slots.count(), now) {
            MatchResult::Blocked => PendingDecision::Block,
            MatchResult::Lacking(rule) => {
                // The wait is the time of one token.
                let wait_ns = self.rules.get(rule).map_or(0, |rule| rule.quota.token_ns());
                self.refused(LimitReason::Limit, rule, wait_ns)
            }
            MatchResult::Counted if scratch.hits.is_empty() => PendingDecision::UNCOUNTED,
            MatchResult::Counted => match self.remembered(&scratch.hits, now) {
                Some(refused) => refused,
                None => self.settle(&mut scratch, slots, now),
            },
        };
        let is_allowed = matches!(pending, PendingDecision::Allow { .. });
        if is_allowed {
            if !scratch.shadow.is_empty() && !self.current.only_asks {
                self.evaluate_shadows(&mut scratch, slots, now);
            }
            for rule in &scratch.unlimited {
                self.counters.count(*rule, |counts| &mut counts.allowed);
            }
        }
        if !self.current.acquired.is_empty() {
            self.end_acquired(&scratch.hits, is_allowed, slots, now);
        }
        self.current.in_vain.clear();
        let decision = match pending {
            PendingDecision::Allow { strictest, hold_ns } => {
                let status =
                    if self.rules.sends_status { self.rules.status_of_allowed(allowed(&scratch.hits)) } else { None };
                let afterwards = core::mem::take(&mut self.current.afterwards);
                let shadow = match self.current.would_refuse.as_slice() {
                    [] => Box::default(),
                    rules => rules.into(),
                };
                Decision::Allow { strictest, status, shadow, hold_ns, afterwards }
            }
            PendingDecision::Refuse(reason, rule, bucket) => {
                let hits = &scratch.hits;
                let tag = || hits.iter().find(|hit| hit.rule == rule).map_or(0, |hit| hit.tag.bits());
                let jitter_s = self.rules.jitter_s(rule, tag);
                let counted = hits.iter().map(|hit| (hit.rule, hit.key));
                Decision::Refuse { reason, status: self.rules.status(rule, bucket, counted), jitter_s }
            }
            // A request that has waited must not wait again: its decisions are final then, and this makes sure of it.
            PendingDecision::Wait if self.current.connectivity.may_acquire() => {
                self.scratch = Some(scratch);
                return self.wait(request, slots, now);
            }
            PendingDecision::Wait | PendingDecision::Block => Decision::Block,
        };
        self.scratch = Some(scratch);
        decision
    }

    /// Reads the POP's connectivity before a request is evaluated.
    fn read_connectivity(&mut self, now: Time) {
        let acquired = self.current.connectivity.acquired;
        let connectivity = self.sync.as_ref().map(|sync| &sync.connectivity);
        let is_lost = connectivity.is_none_or(|connectivity| connectivity.step(now) == Connectivity::Fallback);
        let is_lost_for_strict =
            acquired == AcquireState::InVain || connectivity.is_none_or(|connectivity| !connectivity.may_ask(now));
        self.current.connectivity = ConnectivityReading { is_lost, is_lost_for_strict, acquired };
    }

    /// The refusal with the longest wait among those that the local cache has for these hits.
    fn remembered(&mut self, hits: &[Hit], now: Time) -> Option<PendingDecision> {
        let denials = hits.iter().filter_map(|hit| Some((hit, self.local_cache.get(hit.tag, hit.cost, now)?)));
        let (hit, denial) = denials.max_by_key(|(_, denial)| denial.until)?;
        for hit in hits {
            self.watch.touch_known(hit.tag, hit.cost, None, now);
        }
        self.counters.add(CountedEvent::LocalCacheHits, 1);
        Some(self.refused(denial.reason(), hit.rule, denial.until.nanos_since(now)))
    }

    /// Evaluates the hits on the table, and commits the tokens they take.
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
            fits &= Evaluation::of(self).evaluate_slot(loaded, hits, now);
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

    /// Evaluates an allowed request by each rule in shadow. The result changes neither the decision nor the buckets of
    /// other rules.
    fn evaluate_shadows(&mut self, scratch: &mut Scratch, slots: &mut dyn Slots, now: Time) {
        self.read_connectivity(now);
        let Scratch { shadow, rooms, .. } = scratch;
        for i in 0..shadow.len() {
            let Some(one) = shadow.get_mut(i..=i) else { break };
            let Some(index) = one.first().map(|hit| hit.slot) else { break };
            let mut loaded = self.load(slots, index, rooms);
            let fits = Evaluation::of(self).evaluate_slot(&mut loaded, one, now)
                && self.commit(&mut loaded, one, slots, rooms, now);
            let written = [loaded];
            let Some(hit) = one.first() else { break };
            if hit.thinned {
                self.watch.settle(hit.tag, fits);
            }
            if fits {
                self.counters.count(hit.rule, |counts| &mut counts.allowed);
                self.record_end_action(hit, &written, now);
            }
            rooms.extend(written.map(|loaded| loaded.slot));
            if fits {
                continue;
            }
            self.counters.count(hit.rule, |counts| &mut counts.shadow_limited);
            self.current.would_refuse.push(hit.rule);
            if !hit.watched && hit.result.tag == hit.tag && !matches!(hit.result.decision, HitDecision::Denied) {
                self.watch_refused(hit, slots, rooms, now);
            }
        }
    }
}
