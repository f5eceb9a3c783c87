//! Acquiring tokens of strict rules, while the request waits.
//!
//! A POP spends only tokens that the budget was debited for beforehand. If it holds none, the request waits
//! for one exchange, bounded by a time-out, and is then decided again. If the exchange fails early, the same
//! report is sent once more in the time that is left.
//!
//! Acquired tokens go into the key's entry, for any request. If the slot has no room for the entry, the
//! request acquires tokens for itself alone. So a slot full of keys with debt locks no newcomer out.

use alloc::boxed::Box;
use core::cell::Cell;

use super::acquired::OwnEpoch;
use super::calls::CallPurpose;
use super::exchange::SyncState;
use super::report_builder::{KeyContents, ReportBuilder, ReportedKey};
use super::wish::chunk_of;
use crate::RuleIndex;
use crate::counters::CountedEvent;
use crate::decide::{Decision, Hit, HitDecision};
use crate::limiter::{AcquireState, Limiter};
use crate::table::slot::{Cold, Entry, Slot, Unheard, Watched};
use crate::table::{LoadedSlot, Slots, Updated};
use weir_protocol::messages::{Message, Reply, Report, Settled, WireError};
use weir_protocol::time::Time;
use weir_rules::request::Request;

impl Limiter {
    /// The report for a request that must acquire tokens. None if weir-sync cannot be asked.
    fn acquire(&mut self, slots: &mut dyn Slots, now: Time) -> Option<Report> {
        if !self.exchange.as_ref()?.calls.have_room(CallPurpose::Draw) {
            return None;
        }
        let scratch = self.scratch.take()?;
        let mut saying = ReportBuilder::default();
        let unpaid = || scratch.hits.iter().filter(|hit| hit.judged.verdict == HitDecision::Unpaid);
        for hit in unpaid() {
            self.give_back_spare(hit, slots, now);
        }
        self.report_own_epochs(&mut saying, true, now);
        let own = saying.len();
        for hit in unpaid() {
            self.want(hit, &mut saying, slots, now);
        }
        self.scratch = Some(scratch);
        if saying.len() == own {
            return None;
        }
        self.counters.add(CountedEvent::Paused, 1);
        self.say(saying, CallPurpose::Draw, now)
    }

    /// Asks for the tokens of this request and of all requests that wait for the key already, at any worker.
    /// Under a calendar quota, also for a few in advance.
    fn want(&mut self, hit: &Hit, saying: &mut ReportBuilder, slots: &mut dyn Slots, now: Time) {
        let Some(unheard) = self.unheard(hit.rule) else { return };
        let is_window = self.rule(hit.rule).is_some_and(|rule| rule.sharing.refill_policy.is_window());
        let (place, timeout_ns) = (hit.place(), self.timeout_ns());
        let is_again = self.touch.drawn == AcquireState::Over;
        let told = ReportedKey { awaited: hit.cost, is_again, ..ReportedKey::of(place, hit.rule, now) };
        if self.is_for_itself(hit.rule) {
            return self.want_unplaced(hit, told, &unheard, saying, now);
        }
        let (flight, busy) = (self.flight(hit.rule), Cell::new(0));
        let updated = self.update_counted(place, flight, Some(unheard), slots, now, &|watched, in_flight| {
            // While offline, a POP may admit more than was leased. For requests in flight, that excess ends with
            // them.
            let is_overspent = match flight {
                Some(_) => watched.admitted < in_flight,
                None => watched.admitted > watched.charged,
            };
            // A barred key that gets a request again has spent its epoch, and so has one whose window has ended.
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
            self.watch.touch(&self.named(hit), hit.cost, now);
        }
        let Some((watched, key)) = placed.zip(self.watch.get_mut(hit.tag.bits())) else {
            if let Some(watched) = placed {
                self.end_waiting(&ReportedKey { epoch: watched.epoch, ..told }, slots, now);
            }
            return self.want_unplaced(hit, told, &unheard, saying, now);
        };
        let watched = Watched { admitted: watched.admitted.saturating_sub(busy.get()), ..watched };
        let told = ReportedKey { epoch: watched.epoch, admitted: watched.admitted, asked: key.asked, ..told };
        let chunk = if is_window { chunk_of(unheard.quota) } else { busy.get() };
        #[cfg(feature = "takes")]
        let chunk = if is_window || flight.is_some() { chunk } else { self.chunk_beside(unheard.quota) };
        let ahead = watched.awaited(timeout_ns, now).saturating_add(chunk);
        let value = self.keys.value(hit.key).as_bytes();
        saying.add(hit.rule, told, &KeyContents { value, watched: &watched, missing: 0, ahead }, now);
    }

    /// True if each request under this rule acquires tokens for itself alone.
    fn is_for_itself(&self, rule: RuleIndex) -> bool {
        self.reserves(rule) || self.has_turns(rule)
    }

    /// Gives back the unused tokens of the hit's key, if its request acquires tokens for itself alone. Places of
    /// other requests in flight are of the same epoch, so they stay.
    fn give_back_spare(&mut self, hit: &Hit, slots: &mut dyn Slots, now: Time) {
        if !self.is_for_itself(hit.rule) || self.flight(hit.rule).is_some() {
            return;
        }
        let (timeout_ns, spare) = (self.timeout_ns(), Cell::new(None));
        let updated = self.update_watched(hit.place(), None, slots, now, &|watched| {
            let is_spare = watched.on_hand(now) > 0 && watched.awaited(timeout_ns, now) == 0;
            spare.set(is_spare.then_some(*watched));
            if is_spare {
                watched.end_epoch(now);
            }
        });
        if let (Updated::Written(_), Some(watched)) = (updated, spare.get()) {
            self.keep_giving_back(&self.named(hit), &watched, 0);
        }
    }

    /// Asks for tokens for this request alone, under an epoch of their own: the request reserves them, or its
    /// key has no room in its slot or on the watch list.
    fn want_unplaced(
        &mut self,
        hit: &Hit,
        told: ReportedKey,
        unheard: &Unheard,
        saying: &mut ReportBuilder,
        now: Time,
    ) {
        let Some(epoch) = self.exchange.as_mut().map(SyncState::epoch_of_its_own) else { return };
        let watched = Watched { epoch, ..Watched::begin(&Cold::NEW, unheard, 0, now) };
        let told = ReportedKey { epoch, awaited: 0, is_unplaced: true, ..told };
        let value = self.keys.value(hit.key).as_bytes();
        // A peek asks when its turn would come, and takes none.
        let ahead = if self.only_asks && self.has_turns(hit.rule) { 0 } else { hit.cost };
        saying.add(hit.rule, told, &KeyContents { value, watched: &watched, missing: 0, ahead }, now);
    }

    /// Ends the use of acquired tokens after their request was decided again. Its `hits` spent them if it
    /// `is_allowed`.
    pub(crate) fn end_in_hand(&mut self, hits: &[Hit], is_allowed: bool, slots: &mut dyn Slots, now: Time) {
        while let Some(in_hand) = self.in_hand.pop() {
            let hit = hits.iter().find(|hit| hit.tag == in_hand.tag);
            // If it was allowed, spending the tokens has ended the wait.
            if !is_allowed || hit.is_none() {
                self.end_waiting(&in_hand.told, slots, now);
            }
            // A request in flight keeps its place until the lease ends, unless its host reports its end.
            let keeps = |hit: &&Hit| {
                let is_in_flight = is_allowed && self.flight(hit.rule).is_some() && !self.reserves(hit.rule);
                // A turn is spent when it is given.
                is_in_flight || self.has_turns(hit.rule)
            };
            if let Some(hit) = hit.filter(|hit| in_hand.tokens > 0 && !keeps(hit)) {
                let cost = if is_allowed { in_hand.tokens } else { 0 };
                let goes_on = is_allowed && self.reserves(hit.rule);
                self.keep_own(OwnEpoch {
                    rule: hit.rule,
                    value: *self.keys.value(hit.key),
                    epoch: in_hand.told.epoch,
                    tokens: in_hand.tokens,
                    cost: if goes_on { None } else { Some(cost) },
                    until: in_hand.until,
                    said: 0,
                    again_at: Time::ZERO,
                });
            }
        }
    }

    /// Ends the wait of the request of `told`: its tokens are for any request from now on.
    fn end_waiting(&mut self, told: &ReportedKey, slots: &mut dyn Slots, now: Time) {
        if told.awaited > 0 {
            self.update_watched(told.place, None, slots, now, &|watched| {
                if watched.epoch == told.epoch {
                    watched.end_waiting(told.awaited);
                }
            });
        }
    }

    /// Applies the reply to call `number`, which acquires tokens. Returns false if weir-sync asked no budget;
    /// the request is then to be decided as offline. On an error nothing changed, and the call is still under
    /// way.
    pub fn drawn(
        &mut self,
        number: u64,
        bytes: &[u8],
        slots: &mut dyn Slots,
        now: Time,
    ) -> Result<bool, WireError> {
        let reply = Reply::decode(bytes)?;
        let draw = self.end_answered(number, CallPurpose::Draw, &reply)?;
        // A call that was sent again says nothing about the usual delay.
        if let Some(exchange) = self.exchange.as_mut().filter(|exchange| exchange.lost < number) {
            exchange.took(now.nanos_since(draw.sent_at));
        }
        self.observe(&reply, &draw.told, draw.sent_at, slots, now);
        for (at, told) in draw.told.iter().enumerate() {
            if !self.in_hand.iter().any(|in_hand| in_hand.tag == told.place.tag) {
                self.end_waiting(told, slots, now);
            }
            if !reply.settled.covers(at) && told.rule != RuleIndex::NONE {
                self.in_vain.push(told.place.tag);
                self.give_back_unheard(told, slots, now);
            }
        }
        Ok(!matches!(reply.settled, Settled::None))
    }

    /// True if tokens that call `number` could still acquire would never be spent: the epoch it is for has ended,
    /// or its budget is known to have none.
    pub(crate) fn is_in_vain(&self, number: u64, slots: &mut dyn Slots, now: Time) -> bool {
        let draw = self.exchange.as_ref().and_then(|exchange| exchange.calls.get(number));
        let told = draw.into_iter().flat_map(|draw| &draw.told).filter(|told| told.awaited > 0);
        let mut found = told.map(|told| {
            let (loaded, _) = LoadedSlot::read(slots, told.place.slot, Slot::default());
            (told, loaded.slot.get(told.place.tag))
        });
        found.any(|(told, entry)| match entry {
            Some(Entry::Watched(watched)) => watched.epoch != told.epoch || watched.barred_ns(now) > 0,
            _ => false,
        })
    }

    /// Records that call `number` failed and that its report is sent once more. The first reply may still
    /// have been sent, so the grants pushed with it count as lost.
    pub(crate) fn draw_sent_again(&mut self, number: u64) {
        self.counters.add(CountedEvent::SyncFailed, 1);
        if let Some(exchange) = &mut self.exchange {
            exchange.lost = exchange.lost.max(number);
        }
    }

    /// Ends call `number`, for which no request waits any more. The next report asks for the acquired tokens, or
    /// gives them back.
    pub fn draw_abandoned(&mut self, number: u64, slots: &mut dyn Slots, now: Time) {
        self.give_up_draw(number, slots, now);
    }

    /// Ends call `number`, which failed at `now`.
    pub fn draw_failed(&mut self, number: u64, slots: &mut dyn Slots, now: Time) {
        let sent_at = self.give_up_draw(number, slots, now);
        self.counters.add(CountedEvent::SyncFailed, 1);
        if let Some(sent_at) = sent_at {
            self.miss(sent_at, now);
        }
    }

    /// Returns the time at which the call was sent, if it was under way.
    fn give_up_draw(&mut self, number: u64, slots: &mut dyn Slots, now: Time) -> Option<Time> {
        let draw = self.exchange.as_mut()?.give_up(number, CallPurpose::Draw)?;
        for told in &draw.told {
            self.end_waiting(told, slots, now);
            self.give_back_unheard(told, slots, now);
        }
        Some(draw.sent_at)
    }

    /// True if the lease of the acquired tokens had ended on arrival, so that the request must acquire again.
    pub(crate) fn is_draw_over(&self) -> bool {
        self.in_hand.iter().any(|in_hand| in_hand.is_over)
    }

    /// Decides a request that has waited. `answered` is true if weir-sync asked the budgets. The request
    /// never waits again.
    pub fn decide_again(
        &mut self,
        answered: bool,
        request: &mut dyn Request,
        slots: &mut dyn Slots,
        now: Time,
    ) -> Decision {
        self.decide_at(
            if answered { AcquireState::Answered } else { AcquireState::InVain },
            request,
            slots,
            now,
        )
    }

    /// Acquires tokens for a request whose decision is to wait. Call it before any other request is decided.
    #[inline(never)]
    pub(crate) fn wait(&mut self, request: &mut dyn Request, slots: &mut dyn Slots, now: Time) -> Decision {
        #[cfg(feature = "takes")]
        if let Some(take) = self.take(now) {
            return Decision::Take(Box::new(take));
        }
        match self.acquire(slots, now) {
            Some(report) => Decision::Wait(Box::new(report)),
            None => self.decide_again(false, request, slots, now),
        }
    }
}
