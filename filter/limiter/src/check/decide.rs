//! The steps of a decision: look up, evaluate, commit. Also the writes: storing entries, giving tokens back, and
//! changing watched entries outside of a decision.

use alloc::boxed::Box;

use crate::algorithms::Receipt;
use crate::check::answer::allowed;
use crate::check::cells::give_back_cells;
use crate::check::decision::{AcquireState, ConnectivityReading, Hit, HitDecision, Scratch};
use crate::check::decision::{Decision, LimitReason, PendingDecision};
use crate::check::evaluate::{Evaluation, hold, rate_divisor_of};
use crate::check::fast_path::{FastPath, passed, refused_quickly, try_fast_path};
use crate::check::rules::MatchResult;
use crate::check::settle::{end, give_back_tokens};
use crate::check::strict::{cell_of, in_flight};
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::sync::connectivity::Connectivity;
use crate::table::slot::{Cold, Entry, LocalLimits, Slot, Watched};
use crate::table::{self, EntryPlace, LoadedSlot, Slots, Updated, WriteError};
use weir_protocol::time::Time;
use weir_rules::algorithm::Concurrency;
use weir_rules::request::Request;

impl Limiter {
    pub fn decide(&mut self, request: &mut dyn Request, slots: &mut dyn Slots, now: Time) -> Decision {
        match try_fast_path(self, request, slots, now) {
            Some(FastPath::Passed) => passed(self, now),
            Some(FastPath::Refused(rule, denial)) => refused_quickly(self, rule, denial, now),
            None => self.decide_at(AcquireState::NotYet, request, slots, now),
        }
    }

    /// [`Limiter::decide`] without the fast path, for a request whose acquiring is in state `acquired`.
    pub(crate) fn decide_at(
        &mut self,
        acquired: AcquireState,
        request: &mut dyn Request,
        slots: &mut dyn Slots,
        now: Time,
    ) -> Decision {
        self.current.connectivity.acquired = acquired;
        self.current.would_refuse.clear();
        // The scratch is taken out so that the rest of the limiter can be borrowed.
        let mut scratch = self.scratch.take().unwrap_or_default();
        let pending = match self.find_matches(request, &mut scratch, slots.count(), now) {
            MatchResult::Blocked => PendingDecision::Block,
            MatchResult::Lacking(rule) => {
                // The client waits for the time of one token.
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
            // A request that has waited must not wait again. Its decisions are final by then; this ensures it.
            PendingDecision::Wait if self.current.connectivity.may_acquire() => {
                self.scratch = Some(scratch);
                return self.wait(request, slots, now);
            }
            PendingDecision::Wait | PendingDecision::Block => Decision::Block,
        };
        self.scratch = Some(scratch);
        decision
    }

    fn read_connectivity(&mut self, now: Time) {
        let acquired = self.current.connectivity.acquired;
        let connectivity = self.sync.as_ref().map(|sync| &sync.connectivity);
        let is_lost = connectivity.is_none_or(|connectivity| connectivity.step(now) == Connectivity::Fallback);
        let is_lost_for_strict =
            acquired == AcquireState::InVain || connectivity.is_none_or(|connectivity| !connectivity.may_ask(now));
        self.current.connectivity = ConnectivityReading { is_lost, is_lost_for_strict, acquired };
    }

    /// The refusal with the longest wait that the local cache contains for these hits.
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
        let Scratch { hits, loaded, .. } = scratch;
        while let Some(loaded) = loaded.pop() {
            self.rooms.push(loaded.slot);
        }
        for i in 0..hits.len() {
            let Some(index) = hits.get(i).map(|hit| hit.slot) else { break };
            if !loaded.iter().any(|l| l.index == index) {
                loaded.push(self.load(slots, index));
            }
        }
        let mut fits = true;
        for loaded in loaded.iter_mut() {
            fits &= Evaluation::of(self).evaluate_slot(loaded, hits, now);
        }
        if fits {
            for i in 0..loaded.len() {
                let Some((done, [next, ..])) = loaded.split_at_mut_checked(i) else { break };
                if !self.commit(next, hits, slots, now) {
                    self.give_back(done, hits, slots, now);
                    fits = false;
                    break;
                }
            }
        }
        for hit in hits.iter().filter(|hit| hit.thinned) {
            self.watch.settle(hit.tag, fits);
        }
        if !fits {
            return self.refuse(hits, slots, now);
        }
        self.allow(hits, loaded, now)
    }

    /// Evaluates an allowed request under each rule in shadow, without effect on the decision or other rules.
    fn evaluate_shadows(&mut self, scratch: &mut Scratch, slots: &mut dyn Slots, now: Time) {
        self.read_connectivity(now);
        let Scratch { shadow, .. } = scratch;
        for i in 0..shadow.len() {
            let Some(one) = shadow.get_mut(i..=i) else { break };
            let Some(index) = one.first().map(|hit| hit.slot) else { break };
            let mut loaded = self.load(slots, index);
            let fits =
                Evaluation::of(self).evaluate_slot(&mut loaded, one, now) && self.commit(&mut loaded, one, slots, now);
            let written = [loaded];
            let Some(hit) = one.first() else { break };
            if hit.thinned {
                self.watch.settle(hit.tag, fits);
            }
            if fits {
                self.counters.count(hit.rule, |counts| &mut counts.allowed);
                self.record_end_action(hit, &written, now);
            }
            self.rooms.extend(written.map(|loaded| loaded.slot));
            if fits {
                continue;
            }
            self.counters.count(hit.rule, |counts| &mut counts.shadow_limited);
            self.current.would_refuse.push(hit.rule);
            if !hit.watched && hit.result.tag == hit.tag && !matches!(hit.result.decision, HitDecision::Denied) {
                self.watch_refused(hit, slots, now);
            }
        }
    }
}

/// Maximum number of retries of a write that conflicts with another worker's. Each retry means that another request was
/// decided, and shared slots favour a writer that keeps losing. So only extreme contention comes near this.
const WRITES_MAX: u32 = 32;

impl Limiter {
    pub(crate) fn load(&mut self, slots: &mut dyn Slots, index: u32) -> LoadedSlot {
        let (loaded, mishap) = LoadedSlot::read(slots, index, self.rooms.pop().unwrap_or_default());
        if let Some(mishap) = mishap {
            self.counters.add(mishap, 1);
        }
        loaded
    }

    /// Writes an evaluated slot. After a conflict, reads and evaluates it again; false if a hit no longer fits.
    pub(crate) fn commit(
        &mut self,
        loaded: &mut LoadedSlot,
        hits: &mut [Hit],
        slots: &mut dyn Slots,
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
            *loaded = self.load(slots, loaded.index);
            if !Evaluation::of(self).evaluate_slot(loaded, hits, now) {
                return false;
            }
        }
        self.counters.add(CountedEvent::CasGaveUp, 1);
        forget_taken(hits, loaded);
        true
    }

    /// Changes slot `index` by compare-and-swap. Writes nothing if `change` returns `None`.
    pub(crate) fn change_slot<T>(
        &mut self,
        index: u32,
        slots: &mut dyn Slots,
        change: impl Fn(&mut Slot) -> Option<T>,
    ) -> Updated<T> {
        table::change_slot(&mut self.rooms, &mut self.counters, (index, slots), change)
    }

    /// Changes the watched entry at `place`. If there is none and `limits` are passed, the key first becomes watched.
    pub(crate) fn update_watched(
        &mut self,
        place: EntryPlace,
        limits: Option<LocalLimits>,
        slots: &mut dyn Slots,
        now: Time,
        change: &dyn Fn(&mut Watched),
    ) -> Updated<Watched> {
        self.update_counted(place, None, limits, slots, now, &|watched, _| change(watched))
    }

    /// [`Limiter::update_watched`], where `change` also gets the number of requests in flight, or 0 if the fleet does
    /// not count them.
    pub(crate) fn update_counted(
        &mut self,
        place: EntryPlace,
        flight: Option<Concurrency>,
        limits: Option<LocalLimits>,
        slots: &mut dyn Slots,
        now: Time,
        change: &dyn Fn(&mut Watched, u32),
    ) -> Updated<Watched> {
        self.change_slot(place.slot, slots, |slot| {
            let begin = |cold: &Cold| limits.map(|limits| Watched::begin(cold, &limits, 0, now));
            let mut watched = match slot.get(place.tag) {
                Some(Entry::Watched(watched)) => watched,
                Some(Entry::Cold(cold)) => begin(&cold)?,
                // The key starts with its debt. Its use of the fair share before its eviction is not reported.
                None => Watched { bucket: slot.find_or_new(place.tag, now).entry.bucket(), ..begin(&Cold::NEW)? },
            };
            let in_flight = flight.map_or(0, |flight| in_flight(slot, place.tag, &flight, now));
            change(&mut watched, in_flight);
            slot.put(place.tag, &Entry::Watched(watched), now)?;
            Some(watched)
        })
    }
}

/// Marks a slot as not written, so that its hits give nothing back and release nothing.
fn forget_taken(hits: &mut [Hit], loaded: &mut LoadedSlot) {
    loaded.give_up();
    for hit in hits.iter_mut().filter(|hit| hit.slot == loaded.index) {
        // A turn from the fleet's budget is in no slot, so it is kept.
        hit.result.taken = hit.result.taken.filter(|taken| taken.receipt == Receipt::NONE);
    }
}

impl Limiter {
    /// Gives back the tokens of the last decision. No other worker may have seen the slots in between.
    pub(crate) fn take_back(&mut self, slots: &mut dyn Slots, now: Time) {
        let Some(scratch) = self.scratch.take() else { return };
        self.give_back(&scratch.loaded, &scratch.hits, slots, now);
        self.scratch = Some(scratch);
    }

    pub(crate) fn give_back(&mut self, written: &[LoadedSlot], hits: &[Hit], slots: &mut dyn Slots, now: Time) {
        for index in written.iter().filter(|loaded| loaded.is_known()).map(|loaded| loaded.index) {
            for _ in 0..WRITES_MAX {
                let mut loaded = self.load(slots, index);
                for hit in hits.iter().filter(|hit| hit.slot == index) {
                    self.give_back_one(hit, &mut loaded.slot, now);
                }
                let written = loaded.write(slots);
                self.rooms.push(loaded.slot);
                match written {
                    Err(WriteError::Conflict) => self.counters.add(CountedEvent::CasRetried, 1),
                    Ok(()) | Err(WriteError::Unavailable) => break,
                }
            }
        }
    }

    fn give_back_one(&self, hit: &Hit, slot: &mut Slot, now: Time) {
        // Consumed tokens are spent, and no entry here counts them.
        if self.current.taken_for(hit.tag).is_some() {
            return;
        }
        // If the response states the cost, only a reservation was taken.
        let Some(rule) = self.rules.get(hit.rule).filter(|rule| rule.after.is_none() || rule.reserves) else {
            return;
        };
        if !rule.is_shared() {
            return give_back_cells(hit, hit.result.tag, &rule.algorithm, slot, now);
        }
        if let Some(algorithm) = rule.in_cells() {
            give_back_cells(hit, cell_of(hit.tag), &algorithm, slot, now);
        }
        let (quota, is_strict) = (rule.quota, rule.sharing.strict);
        // Tokens that a request acquired for itself alone are in no entry.
        let Some(mut entry) = slot.get(hit.result.tag).filter(|_| self.current.acquired_for(hit.tag).is_none()) else {
            return;
        };
        let divisor = rate_divisor_of(&entry, hit.cost, now);
        // Under a token bucket, only reservations have a receipt; under a strict rule, only requests in flight.
        if let Some(taken) = hit.result.taken.filter(|_| !is_strict) {
            let cell = hold(slot, hit.tag, &quota, now);
            end(cell, slot, hit.tag, (taken.receipt, hit.cost, divisor), now);
        }
        // Tokens charged to a bounded rule's budget stay charged. A strict rule's budget was debited beforehand.
        let least = |watched: &Watched| if is_strict { 0 } else { watched.charged };
        give_back_tokens(&mut entry, &quota, hit.cost, divisor, least);
        // Always fits: the entry exists already.
        let _ = slot.put(hit.result.tag, &entry, now);
    }
}
