//! Applying weir-sync's replies.

use alloc::vec::Vec;
use core::cell::Cell;

use crate::RuleIndex;
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::sync::calls::{AcquiredTokens, CallPurpose, PendingCall, ReportedKey};
use crate::sync::report::rest_until;
use crate::table::slot::{BAR_STEP_NS, Tag, Watched};
use crate::table::{EntryPlace, NamedKey, Slots, Updated};
use weir_protocol::messages::{Allowance, Ban, Grant, Leased, Message, PushedGrant, Reply, WORKERS_MAX, WireError};
use weir_protocol::quota::Quota;
use weir_protocol::time::Time;

/// Maximum wait for tokens that is accepted, in milliseconds: longer than any month.
const WAIT_MS_MAX: u64 = 32 * 86_400_000;
/// Maximum wait for tokens that other requests have reserved, in milliseconds.
const RETURNS_MS: u64 = 1_000;

impl Limiter {
    /// Applies the reply to report `sequence`. On an error nothing changes: a report under way stays so.
    pub fn apply(&mut self, sequence: u64, bytes: &[u8], slots: &mut dyn Slots, now: Time) -> Result<(), WireError> {
        let reply = Reply::decode(bytes)?;
        let sent = self.end_answered(sequence, CallPurpose::Report, &reply)?;
        if let Some(sync) = &mut self.sync {
            sync.confirm_bans(sequence);
            sync.took(now.nanos_since(sent.sent_at));
        }
        self.observe(&reply, &sent.reported, sent.sent_at, slots, now);
        if reply.grants.is_empty() {
            self.watch.undo_report(&sent.reported);
        }
        Ok(())
    }

    /// Ends call `number` if `reply` matches it, that is, covers all of the call's keys or none.
    pub(crate) fn end_answered(
        &mut self,
        number: u64,
        purpose: CallPurpose,
        reply: &Reply,
    ) -> Result<PendingCall, WireError> {
        let calls = self.sync.as_mut().map(|sync| &mut sync.calls);
        let fits = |sent: &PendingCall| reply.grants.is_empty() || reply.grants.len() == sent.reported.len();
        let sent = calls.filter(|calls| reply.sequence == number && calls.get(number).is_some_and(fits));
        sent.and_then(|calls| calls.end(number, purpose)).ok_or(WireError::Limit("sequence or grants"))
    }

    /// Applies a reply to a report or a call for tokens that was sent at `sent_at` with the keys `reported`.
    pub(crate) fn observe(
        &mut self,
        reply: &Reply,
        reported: &[ReportedKey],
        sent_at: Time,
        slots: &mut dyn Slots,
        now: Time,
    ) {
        if let Some(sync) = self.sync.as_mut() {
            sync.observe(reply.pops, reply.is_guess, now);
            if reply.workers > 0 {
                sync.workers = reply.workers.min(WORKERS_MAX);
            }
            sync.versions.observe(reply.rule_set, reply.sequence, now);
        }
        self.counters.add(if reply.settled.is_all() { CountedEvent::Answered } else { CountedEvent::Partial }, 1);
        for pushed in &reply.pushed {
            if let Some(rule) = reply.rules.get(usize::from(pushed.rule)) {
                self.learn(rule, pushed, slots, now);
            }
        }
        self.apply_bans(reply, slots, now);
        let replies = reported.iter().zip(&reply.grants).enumerate();
        for (at, (reported, allowance)) in replies {
            let is_settled = reply.settled.covers(at);
            let is_over = matches!(allowance, Allowance::Leased(leased) if leased.lease_ms == 0);
            if is_settled
                && (is_over || reported.rule == RuleIndex::NONE)
                && let Some(sync) = &mut self.sync
            {
                let key = (reported.place.tag, reported.epoch);
                sync.observe_own_epoch(key, reply.sequence, allowance, sent_at);
            }
            if reported.rule == RuleIndex::NONE {
                continue;
            }
            match allowance {
                Allowance::Hot(grant) => self.hold(reported, Some(grant), is_settled, sent_at, slots, now),
                Allowance::Warm => self.hold(reported, None, is_settled, sent_at, slots, now),
                Allowance::Leased(leased) if is_settled => self.lease(reported, leased, sent_at, slots, now),
                Allowance::Leased(_) => {}
            }
            if reported.is_unplaced {
                continue;
            }
            let quota = self.rules.get(reported.rule).map(|rule| rule.quota);
            let warm_burst = quota.filter(|_| *allowance == Allowance::Warm).map(Quota::burst);
            let is_report = reported.awaited == 0;
            if let Some(key) = self.watch.get_mut(reported.place.tag.bits()) {
                if is_report {
                    key.reported(reported.asked);
                }
                key.answered(reported.asked, reported.dirty_since, sent_at, warm_burst);
                if is_report && !is_settled {
                    key.mark_changed(reported.dirty_since);
                }
            }
        }
    }

    /// Applies the grant in the reply to a report sent at `sent_at`. Its level is reduced by the tokens admitted since
    /// and raised by the refill since. Without a grant, ends the key's current one.
    ///
    /// A report may be overtaken by one with a larger count that is already confirmed. The level may also lack those
    /// tokens, so they are not subtracted again: the other reply's level certainly lacked them.
    fn hold(
        &mut self,
        reported: &ReportedKey,
        grant: Option<&Grant>,
        is_settled: bool,
        sent_at: Time,
        slots: &mut dyn Slots,
        now: Time,
    ) {
        let Some(quota) = self.rules.bounded(reported.rule) else { return };
        let grant = grant.map(|grant| self.with_room(grant, reported.rule, reported.place.tag));
        let refilled = quota.refill_micro(now.nanos_since(sent_at)) / 1_000;
        let refilled_milli = i64::try_from(refilled).unwrap_or(i64::MAX);
        self.update_watched(reported.place, None, slots, now, &|watched| {
            if watched.epoch != reported.epoch {
                return;
            }
            if is_settled {
                watched.confirm(reported.admitted, sent_at);
            }
            let Some(grant) = grant else { return watched.release(now) };
            // Negative if reserved tokens returned meanwhile, because the budget was charged for them.
            let since = i64::from(watched.admitted) - i64::from(reported.admitted.max(watched.charged));
            let level_milli = grant.level_milli.saturating_add(refilled_milli);
            watched.hold(&grant, &quota, level_milli.saturating_sub(since * 1_000), now);
        });
        self.local_cache.forget(reported.place.tag);
    }

    /// The grant, with room in its burst for the key's most expensive request at this worker or, in the reporter, at
    /// any worker. Cheap requests hold the bucket to that burst.
    fn with_room(&self, grant: &Grant, rule: RuleIndex, tag: Tag) -> Grant {
        let local_burst = self.rules.terms_of(rule).map_or(0, |terms| terms.local_burst);
        let most = if grant.burst == 0 { 0 } else { self.watch.dearest(tag).min(local_burst) };
        Grant { burst: grant.burst.max(most), ..*grant }
    }

    /// Adds tokens debited from a strict rule's budget. Their lease begins with the report, so it ends here first.
    fn lease(&mut self, reported: &ReportedKey, leased: &Leased, sent_at: Time, slots: &mut dyn Slots, now: Time) {
        let until = sent_at + u64::from(leased.lease_ms) * 1_000_000;
        let sharing = self.rules.get(reported.rule).map(|rule| &rule.sharing);
        let (is_strict, is_calendar) =
            sharing.map_or((false, false), |sharing| (sharing.strict, sharing.refill_policy.is_window()));
        let (is_acquire, is_late) = (reported.awaited > 0 || reported.is_unplaced, leased.lease_ms > 0 && until <= now);
        // The budget counts a lease that has ended as spent.
        if !is_strict || is_late && !is_acquire {
            return;
        }
        let charged = if is_late { 0 } else { u32::try_from(leased.charged).unwrap_or(u32::MAX) };
        let wait_ms = leased.wait_ms.min(WAIT_MS_MAX);
        // Reserved tokens return when a request ends, which is sooner than a refill.
        let returns = leased.may_return && self.reserves(reported.rule);
        let more_at = now + if returns { wait_ms.min(RETURNS_MS) } else { wait_ms } * 1_000_000;
        // Not later than the start of the next window: the budget measured the wait after `sent_at`, and rounded it up.
        let bar_at = if is_calendar { sent_at + wait_ms.saturating_sub(1) * 1_000_000 } else { more_at };
        let got_none = leased.lease_ms == 0 && (wait_ms > 0 || is_calendar || !reported.is_again);
        let has_window_ended = is_calendar && wait_ms > 0 && bar_at <= now;
        let is_over = is_acquire && (is_late || got_none || has_window_ended);
        // The budget had no tokens, and that reply is valid until its window ends.
        let is_of_the_end =
            is_calendar && leased.charged == 0 && wait_ms > 0 && (leased.lease_ms == 0 || bar_at <= now);
        self.local_cache.forget(reported.place.tag);
        let tokens = if reported.is_unplaced { charged } else { 0 };
        let acquired = AcquiredTokens {
            tag: reported.place.tag,
            reported: *reported,
            tokens,
            until,
            more_at,
            left: leased.left,
            is_over,
        };
        if reported.is_unplaced {
            return self.current.acquired.push(acquired);
        }
        let (flight, is_other) = (self.rules.flight(reported.rule), Cell::new(false));
        let updated = self.update_counted(reported.place, flight, None, slots, now, &|watched, in_flight| {
            is_other.set(watched.epoch != reported.epoch);
            if is_other.get() {
                return;
            }
            let has_ended = watched.charged == 0 || watched.until <= now;
            if is_of_the_end && !watched.is_over(now) {
                // The next window may have debited tokens for this epoch, in replies that came before or are under way.
                watched.end_waiting(reported.awaited);
            } else if leased.lease_ms == 0 || is_late && has_ended {
                // For the budget, this epoch is over.
                watched.begin_epoch(now);
                watched.admitted = in_flight;
            } else {
                watched.lease(charged, until);
                // The request will be refused.
                if watched.on_hand(now) < reported.awaited {
                    watched.end_waiting(reported.awaited);
                }
                watched.record_left(leased.left);
                // A shorter wait would end with the epoch, and returned tokens may end a longer one.
                if wait_ms > 0 && (is_calendar || more_at > until && !leased.may_return) {
                    // A client that returns on time must not find the key still barred.
                    watched.bar(Time::from_nanos(bar_at.as_nanos().saturating_sub(BAR_STEP_NS)), now);
                }
            }
        });
        if reported.awaited > 0 {
            let is_refused =
                |w: &Watched| is_of_the_end || w.epoch != reported.epoch || w.on_hand(now) < reported.awaited;
            let has_ended = matches!(&updated, Updated::Written(watched) if is_refused(watched));
            let awaited = if has_ended { 0 } else { reported.awaited };
            let is_over = is_over || is_other.get();
            self.current.acquired.push(AcquiredTokens {
                reported: ReportedKey { awaited, ..*reported },
                is_over,
                ..acquired
            });
        }
        // Unused tokens are given back with the next report, or with a later one for a calendar quota.
        if let (Updated::Written(watched), Some(key)) = (updated, self.watch.get_mut(reported.place.tag.bits()))
            && watched.on_hand(now) > 0
        {
            key.mark_changed(now);
            if is_calendar {
                // If the request spends all of them, the next report states so, because other POPs may wait for tokens.
                let is_spent = watched.on_hand(now) <= reported.awaited;
                key.rest(if is_spent { now } else { rest_until(watched.until) }, now);
            }
        }
    }

    /// Applies a pushed grant. The key may be new at this POP.
    fn learn(&mut self, rule: &str, pushed: &PushedGrant, slots: &mut dyn Slots, now: Time) {
        let Some(key) = self.rules.find(rule, &pushed.value, slots.count()) else { return };
        let NamedKey { place, rule, .. } = key;
        let Some(quota) = self.rules.bounded(rule).filter(|quota| *quota == pushed.quota) else { return };
        let (limits, grant) = (self.local_limits(rule), self.with_room(&pushed.grant, rule, place.tag));
        let updated = self.update_watched(place, limits, slots, now, &|watched| {
            watched.hold(&grant, &quota, pushed.grant.level_milli, now);
        });
        // Without room in the slot, the key is unchanged.
        let Updated::Written(watched) = updated else { return };
        self.local_cache.forget(place.tag);
        if watched.admitted > watched.charged {
            self.learn_of(&key, now);
        }
        if let Some(key) = self.watch.get_mut(place.tag.bits()) {
            key.mark_hot();
        }
    }

    /// Applies bans from other POPs. A ban of zero length resets the key. Directly before another ban of the same key,
    /// it means that the other one replaces a longer ban.
    pub(crate) fn apply_bans(&mut self, reply: &Reply, slots: &mut dyn Slots, now: Time) {
        let mut bans = reply.bans.iter().peekable();
        while let Some(ban) = bans.next() {
            let is_instead =
                |next: &&Ban| ban.for_ms == 0 && next.for_ms > 0 && (next.rule, &next.value) == (ban.rule, &ban.value);
            let instead = bans.next_if(is_instead);
            let Some(name) = reply.rules.get(usize::from(ban.rule)) else { continue };
            let Some(NamedKey { place: EntryPlace { tag, slot }, rule, .. }) =
                self.rules.find(name, &ban.value, slots.count())
            else {
                continue;
            };
            let before: Vec<Tag> =
                self.rules.terms_of(rule).iter().flat_map(|terms| terms.changes.tags_before(tag)).collect();
            let until = |ban: &Ban| now + u64::from(ban.for_ms) * 1_000_000;
            // If the slot has no room for a ban, this POP bans the key once it is limited too often here.
            let _ = self.change_slot(slot, slots, |slot| match instead {
                Some(instead) => {
                    slot.unban(tag);
                    slot.ban(tag, until(instead), now)
                }
                None if ban.for_ms == 0 => {
                    [tag].iter().chain(&before).for_each(|tag| slot.forget(*tag));
                    Some(())
                }
                None => slot.ban(tag, until(ban), now),
            });
            self.local_cache.forget(tag);
        }
    }

    /// Puts the key on the watch list to be reported, if there is room.
    pub(crate) fn learn_of(&mut self, key: &NamedKey, now: Time) {
        let has_room = self.watch.learn(key, now);
        self.counters.add(CountedEvent::SyncDropped, u32::from(!has_room));
    }

    /// Ends the failed report `sequence`. Its keys are reported again. True if weir-sync is to blame.
    pub fn report_failed(&mut self, sequence: u64, now: Time) -> bool {
        let sent_at = self.report_again(sequence);
        sent_at.zip(self.sync.as_mut()).is_some_and(|(sent_at, sync)| sync.miss(sent_at, now))
    }

    /// Ends report `sequence`, and marks its keys to be reported again. Returns the time at which it was sent.
    pub(crate) fn report_again(&mut self, sequence: u64) -> Option<Time> {
        let sent = self.sync.as_mut()?.give_up(sequence, CallPurpose::Report)?;
        self.counters.add(CountedEvent::SyncFailed, 1);
        self.watch.undo_report(&sent.reported);
        Some(sent.sent_at)
    }
}
