//! Acquiring tokens of strict rules, while the request waits.
//!
//! A POP spends only tokens that the budget was debited for beforehand. If it holds none, the request waits for an
//! exchange with weir-sync, bounded by a time-out, and is then decided again. If the exchange fails early, the same
//! report is resent once in the remaining time. Acquired tokens go into the key's entry, for any request. If the slot
//! has no room for it, the request acquires tokens for itself alone, so a slot full of debts locks no newcomer out.

use alloc::boxed::Box;
use core::cell::Cell;

use crate::check::{AcquireState, Decision, Hit, HitDecision};
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::sync::calls::{ACQUIRES_MAX, CallPurpose, KeyContents, OwnEpoch, ReportBuilder, ReportedKey};
use crate::sync::client::SyncClient;
use crate::sync::consume::{chunk_beside, take};
use crate::sync::report::chunk_of;
use crate::table::slot::{Cold, Entry, LocalLimits, Slot, Watched};
use crate::table::{EntryPlace, LoadedSlot, Slots, Updated};
use crate::{NEXT_TO_STORE, RuleIndex};
use weir_protocol::messages::{Message, Reply, Report, Settled, WireError};
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::request::Request;

/// Time for which an epoch with an unknown lease is given back, in nanoseconds.
const UNCONFIRMED_NS: u64 = 60 * SECOND_NS;

impl Limiter {
    /// The report for a request that must acquire tokens; `None` if weir-sync cannot be asked.
    fn acquire(&mut self, slots: &mut dyn Slots, now: Time) -> Option<Report> {
        if self.sync.as_ref()?.calls.of(CallPurpose::Acquire).count() >= ACQUIRES_MAX {
            return None;
        }
        let scratch = self.scratch.take()?;
        let mut builder = ReportBuilder::default();
        let unpaid = || scratch.hits.iter().filter(|hit| hit.result.decision == HitDecision::Unpaid);
        for hit in unpaid() {
            self.give_back_spare(hit, slots, now);
        }
        let lost = self.sync.as_mut()?.report_own_epochs(&mut builder, &self.rules, true, now);
        self.counters.add(CountedEvent::Uncharged, lost);
        let own = builder.keys.len();
        for hit in unpaid() {
            self.want(hit, &mut builder, slots, now);
        }
        self.scratch = Some(scratch);
        if builder.keys.len() == own {
            return None;
        }
        self.counters.add(CountedEvent::Paused, 1);
        self.begin_report(builder, CallPurpose::Acquire, now)
    }

    /// Adds the key, with the tokens that all its waiting requests need, and a few in advance under a calendar quota.
    fn want(&mut self, hit: &Hit, builder: &mut ReportBuilder, slots: &mut dyn Slots, now: Time) {
        let Some(limits) = self.local_limits(hit.rule) else { return };
        let is_window = self.rules.get(hit.rule).is_some_and(|rule| rule.sharing.refill_policy.is_window());
        let (place, timeout_ns) = (hit.place(), self.timeout_ns());
        let is_again = self.current.connectivity.acquired == AcquireState::Over;
        let reported = ReportedKey { awaited: hit.cost, is_again, ..ReportedKey::of(place, hit.rule, now) };
        if self.is_for_itself(hit.rule) {
            return self.want_unplaced(hit, reported, &limits, builder, now);
        }
        let (flight, busy) = (self.rules.flight(hit.rule), Cell::new(0));
        let updated = self.update_counted(place, flight, Some(limits), slots, now, &|watched, in_flight| {
            // While offline, a POP may admit more than was leased. For requests in flight, the excess ends with them.
            let is_overspent = match flight {
                Some(_) => watched.admitted < in_flight,
                None => watched.admitted > watched.charged,
            };
            // A barred key that gets a request again has spent its epoch, and so has a key whose window has ended.
            let is_spent = watched.barred_ns(now) > 0 || is_window && watched.is_barred();
            if watched.is_over(now) || is_spent || is_overspent {
                watched.begin_epoch(now);
            }
            watched.await_lease(now + timeout_ns);
            // The new epoch also acquires the places of the requests in flight.
            watched.admitted = watched.admitted.max(in_flight);
            busy.set(in_flight);
            watched.await_tokens(hit.cost, timeout_ns, now);
        });
        let placed = if let Updated::Written(watched) = updated { Some(watched) } else { None };
        if placed.is_some() && !hit.watched {
            self.watch.touch(&self.rules.named(hit), hit.cost, None, now);
        }
        let Some((watched, key)) = placed.zip(self.watch.get_mut(hit.tag.bits())) else {
            if let Some(watched) = placed {
                self.end_waiting(&ReportedKey { epoch: watched.epoch, ..reported }, slots, now);
            }
            return self.want_unplaced(hit, reported, &limits, builder, now);
        };
        let watched = Watched { admitted: watched.admitted.saturating_sub(busy.get()), ..watched };
        let reported = ReportedKey { epoch: watched.epoch, admitted: watched.admitted, asked: key.asked, ..reported };
        let chunk = if is_window { chunk_of(limits.quota) } else { busy.get() };
        let is_bucket = !is_window && flight.is_none();
        let chunk = if NEXT_TO_STORE && is_bucket { chunk_beside(self, limits.quota) } else { chunk };
        let ahead = watched.awaited(timeout_ns, now).saturating_add(chunk);
        let value = self.rules.keys.value(hit.key).as_bytes();
        builder.add(hit.rule, reported, &KeyContents { value, watched: &watched, missing: 0, ahead }, now);
    }

    /// True if each request under this rule acquires tokens for itself alone.
    fn is_for_itself(&self, rule: RuleIndex) -> bool {
        self.reserves(rule) || self.rules.has_turns(rule)
    }

    /// Gives back the tokens that the budget may have been debited for the key's epoch in `reported`, whose call
    /// failed, if no reply has stated them and no request waits for them.
    fn give_back_unconfirmed(&mut self, reported: &ReportedKey, slots: &mut dyn Slots, now: Time) {
        if reported.awaited == 0 || !self.sync.as_ref().is_some_and(SyncClient::can_give_back) {
            return;
        }
        let ended = self.end_unused(reported.place, slots, now, &|watched| {
            watched.epoch == reported.epoch && watched.admitted.max(watched.charged) == 0
        });
        if let Some(watched) = ended
            && let Some(name) = self.watch.get_mut(reported.place.tag.bits()).map(|key| key.name)
            && let Some(sync) = &mut self.sync
        {
            sync.keep_giving_back(name, &Watched { until: now + UNCONFIRMED_NS, ..watched }, 0);
        }
    }

    /// Gives back the unused tokens of the hit's key, if its request acquires tokens for itself alone. Places in flight
    /// are kept, because those of other requests belong to the same epoch.
    fn give_back_spare(&mut self, hit: &Hit, slots: &mut dyn Slots, now: Time) {
        if !self.is_for_itself(hit.rule)
            || self.rules.flight(hit.rule).is_some()
            || !self.sync.as_ref().is_some_and(SyncClient::can_give_back)
        {
            return;
        }
        let ended = self.end_unused(hit.place(), slots, now, &|watched| watched.on_hand(now) > 0);
        if let (Some(watched), Some(sync)) = (ended, &mut self.sync) {
            sync.keep_giving_back(self.rules.named(hit), &watched, 0);
        }
    }

    /// Ends the key's epoch if `is_unused` and no request waits. Returns the previous entry; `None` if it continues.
    fn end_unused(
        &mut self,
        place: EntryPlace,
        slots: &mut dyn Slots,
        now: Time,
        is_unused: &dyn Fn(&Watched) -> bool,
    ) -> Option<Watched> {
        let (timeout_ns, before) = (self.timeout_ns(), Cell::new(None));
        let updated = self.update_watched(place, None, slots, now, &|watched| {
            let ends = is_unused(watched) && watched.awaited(timeout_ns, now) == 0;
            before.set(ends.then_some(*watched));
            if ends {
                watched.end_epoch(now);
            }
        });
        before.get().filter(|_| matches!(updated, Updated::Written(_)))
    }

    /// Adds tokens for this request alone, under an epoch of their own: it reserves them, or its key has no room.
    fn want_unplaced(
        &mut self,
        hit: &Hit,
        reported: ReportedKey,
        limits: &LocalLimits,
        builder: &mut ReportBuilder,
        now: Time,
    ) {
        let Some(epoch) = self.sync.as_mut().map(SyncClient::epoch_of_its_own) else { return };
        let watched = Watched { epoch, ..Watched::begin(&Cold::NEW, limits, 0, now) };
        let reported = ReportedKey { epoch, awaited: 0, is_unplaced: true, ..reported };
        let value = self.rules.keys.value(hit.key).as_bytes();
        // A peek asks for the time of its turn, but takes none.
        let ahead = if self.current.only_asks && self.rules.has_turns(hit.rule) { 0 } else { hit.cost };
        builder.add(hit.rule, reported, &KeyContents { value, watched: &watched, missing: 0, ahead }, now);
    }

    /// Ends the use of acquired tokens after their request was decided again. Its `hits` spent them if `is_allowed`.
    pub(crate) fn end_acquired(&mut self, hits: &[Hit], is_allowed: bool, slots: &mut dyn Slots, now: Time) {
        while let Some(acquired) = self.current.acquired.pop() {
            let hit = hits.iter().find(|hit| hit.tag == acquired.tag);
            // If the request was allowed, spending the tokens has ended the wait.
            if !is_allowed || hit.is_none() {
                self.end_waiting(&acquired.reported, slots, now);
            }
            // A request in flight keeps its place until the lease ends, unless its host reports its end.
            let keeps = |hit: &&Hit| {
                let is_in_flight = is_allowed && self.rules.flight(hit.rule).is_some() && !self.reserves(hit.rule);
                // A turn is spent when it is acquired.
                is_in_flight || self.rules.has_turns(hit.rule)
            };
            if let Some(hit) = hit.filter(|hit| acquired.tokens > 0 && !keeps(hit)) {
                let cost = if is_allowed { acquired.tokens } else { 0 };
                let goes_on = is_allowed && self.reserves(hit.rule);
                let own = OwnEpoch {
                    name: self.rules.named(hit),
                    epoch: acquired.reported.epoch,
                    tokens: acquired.tokens,
                    cost: if goes_on { None } else { Some(cost) },
                    until: acquired.until,
                    named_in: 0,
                    again_at: Time::ZERO,
                };
                let is_kept = self.sync.as_mut().is_some_and(|sync| sync.keep_own(own));
                // For a request that continues, this is counted at its end.
                let is_lost = !is_kept && own.cost.is_some_and(|cost| cost != own.tokens);
                self.counters.add(CountedEvent::Uncharged, u32::from(is_lost));
            }
        }
    }

    /// Ends the wait of the request of `reported`. From now on its tokens are for any request.
    fn end_waiting(&mut self, reported: &ReportedKey, slots: &mut dyn Slots, now: Time) {
        if reported.awaited > 0 {
            self.update_watched(reported.place, None, slots, now, &|watched| {
                if watched.epoch == reported.epoch {
                    watched.end_waiting(reported.awaited);
                }
            });
        }
    }

    /// Applies the reply to call `number`, which acquires tokens; false if weir-sync queried no budget. The request is
    /// then decided as offline. On an error nothing has changed, and the call is still under way.
    pub fn acquired(&mut self, number: u64, bytes: &[u8], slots: &mut dyn Slots, now: Time) -> Result<bool, WireError> {
        let reply = Reply::decode(bytes)?;
        let acquire = self.end_answered(number, CallPurpose::Acquire, &reply)?;
        // The delay of a resent call is not representative.
        if let Some(sync) = self.sync.as_mut().filter(|sync| sync.lost < number) {
            sync.took(now.nanos_since(acquire.sent_at));
        }
        self.observe(&reply, &acquire.reported, acquire.sent_at, slots, now);
        for (at, reported) in acquire.reported.iter().enumerate() {
            if !self.current.acquired.iter().any(|acquired| acquired.tag == reported.place.tag) {
                self.end_waiting(reported, slots, now);
            }
            if !reply.settled.covers(at) && reported.rule != RuleIndex::NONE {
                self.current.in_vain.push(reported.place.tag);
                self.give_back_unconfirmed(reported, slots, now);
            }
        }
        Ok(!matches!(reply.settled, Settled::None))
    }

    /// True if call `number` would acquire nothing useful: its epoch has ended, or its budget is known to be empty.
    pub(crate) fn is_in_vain(&self, number: u64, slots: &mut dyn Slots, now: Time) -> bool {
        let acquire = self.sync.as_ref().and_then(|sync| sync.calls.get(number));
        let reported =
            acquire.into_iter().flat_map(|acquire| &acquire.reported).filter(|reported| reported.awaited > 0);
        let mut found = reported.map(|reported| {
            let (loaded, _) = LoadedSlot::read(slots, reported.place.slot, Slot::default());
            (reported, loaded.slot.get(reported.place.tag))
        });
        found.any(|(reported, entry)| match entry {
            Some(Entry::Watched(watched)) => watched.epoch != reported.epoch || watched.barred_ns(now) > 0,
            _ => false,
        })
    }

    /// Records that call `number` failed and is resent once. Grants pushed with the first attempt count as lost.
    pub(crate) fn acquire_sent_again(&mut self, number: u64) {
        self.counters.add(CountedEvent::SyncFailed, 1);
        if let Some(sync) = &mut self.sync {
            sync.lost = sync.lost.max(number);
        }
    }

    pub fn acquire_failed(&mut self, number: u64, slots: &mut dyn Slots, now: Time) {
        let sent_at = self.give_up_acquire(number, slots, now);
        self.counters.add(CountedEvent::SyncFailed, 1);
        if let (Some(sent_at), Some(sync)) = (sent_at, &mut self.sync) {
            sync.miss(sent_at, now);
        }
    }

    /// Ends call `number`, which no request waits for any more, and returns the time at which it was sent. The next
    /// report requests the acquired tokens, or gives them back.
    pub(crate) fn give_up_acquire(&mut self, number: u64, slots: &mut dyn Slots, now: Time) -> Option<Time> {
        let acquire = self.sync.as_mut()?.give_up(number, CallPurpose::Acquire)?;
        for reported in &acquire.reported {
            self.end_waiting(reported, slots, now);
            self.give_back_unconfirmed(reported, slots, now);
        }
        Some(acquire.sent_at)
    }

    /// Decides a request that has waited, and never waits again. `answered` is true if weir-sync queried the budgets.
    pub fn decide_again(
        &mut self,
        answered: bool,
        request: &mut dyn Request,
        slots: &mut dyn Slots,
        now: Time,
    ) -> Decision {
        let acquired = if answered { AcquireState::Answered } else { AcquireState::InVain };
        self.decide_at(acquired, request, slots, now)
    }

    /// Acquires tokens for a request that must wait. Call this before any other request is decided.
    #[inline(never)]
    pub(crate) fn wait(&mut self, request: &mut dyn Request, slots: &mut dyn Slots, now: Time) -> Decision {
        if NEXT_TO_STORE && let Some(take) = take(self, now) {
            return Decision::Take(Box::new(take));
        }
        match self.acquire(slots, now) {
            Some(report) => Decision::Wait(Box::new(report)),
            None => self.decide_again(false, request, slots, now),
        }
    }
}
