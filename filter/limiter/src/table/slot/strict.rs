//! A strict rule's key: its leased tokens, and the waits for more.

use super::entry::{SharingState, Strict, Watched};
use super::tag::{FINE_BITS, Moment, epoch_of, fine};
use weir_protocol::quota::TOKENS_MAX;
use weir_protocol::time::{SECOND_NS, Time};

/// Precision of the time at which a barred key may have tokens again, in nanoseconds.
pub(crate) const BAR_STEP_NS: u64 = 1 << FINE_BITS;

/// Time after its time-out for which a request may still wait, in nanoseconds: its worker may be busy.
const LATE_NS: u64 = SECOND_NS;

impl Watched {
    /// State under a strict rule. A key that was not under one starts without any.
    fn strict(&self) -> Strict {
        match self.kind {
            SharingState::Strict(strict) => strict,
            SharingState::Bounded(_) => {
                let (updated_at, left) = (Moment::of(Time::ZERO), self.kind.tokens());
                Strict { awaited: 0, updated_at, is_barred: false, left }
            }
        }
    }

    /// Changes the state under a strict rule, to which the key belongs from now on.
    fn change_strict(&mut self, change: impl FnOnce(&mut Strict)) {
        let mut strict = self.strict();
        change(&mut strict);
        self.kind = SharingState::Strict(strict);
    }

    /// Begins a new epoch, with a number that the key never had before.
    pub(crate) fn begin_epoch(&mut self, now: Time) {
        let next = self.epoch.wrapping_add(1);
        let now_named = epoch_of(now);
        let is_later = now_named.wrapping_sub(next) < u32::MAX / 2;
        self.epoch = if is_later { now_named } else { next };
        (self.admitted, self.charged, self.until) = (0, 0, Time::ZERO);
        self.change_strict(|strict| (strict.awaited, strict.is_barred) = (0, false));
    }

    /// Begins the next epoch. A barred key stays barred.
    pub(crate) fn end_epoch(&mut self, now: Time) {
        let (until, is_barred) = (self.until, self.barred_ns(now) > 0);
        self.begin_epoch(now);
        if is_barred {
            self.until = until;
            self.change_strict(|strict| strict.is_barred = true);
        }
    }

    /// True if the epoch's lease has ended at `now`. False for a barred key: tokens may be under way.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        self.admitted.max(self.charged) > 0 && self.until <= now && !self.is_barred()
    }

    /// True if the key is barred, or was at its last request.
    pub(crate) fn is_barred(&self) -> bool {
        self.strict().is_barred
    }

    /// Adds a lease: the budget is debited `charged` tokens of this epoch in total, to be spent before `until`.
    pub(crate) fn lease(&mut self, charged: u32, until: Time) {
        let (is_first, is_barred) = (self.charged == 0, self.strict().is_barred);
        self.charged = self.charged.max(charged);
        if is_barred && self.charged <= self.admitted {
            return;
        }
        // The end of a bar is not a lease, so it does not prolong the time of the new tokens.
        let before = if is_first || is_barred { Time::ZERO } else { self.until };
        self.until = before.max(fine(until));
        self.change_strict(|strict| strict.is_barred = false);
    }

    /// Bars the key until at most one step after `until`, before which the budget has no tokens. Ignored while some
    /// are held.
    pub(crate) fn bar(&mut self, until: Time, now: Time) {
        if self.on_hand(now) == 0 {
            self.until = fine(until + BAR_STEP_NS);
            self.change_strict(|strict| {
                (strict.updated_at, strict.is_barred, strict.left) = (Moment::of(now), true, 0);
            });
        }
    }

    /// Ends the bar, because tokens were returned to the budget.
    pub(crate) fn unbar(&mut self) {
        if self.strict().is_barred {
            self.until = Time::ZERO;
            self.change_strict(|strict| strict.is_barred = false);
        }
    }

    /// Nanoseconds since weir-sync last replied without tokens, or a request last began to wait; the maximum if that is
    /// beyond the range of a [`Moment`], or if the clock stepped back.
    pub(crate) fn since_update_ns(&self, now: Time) -> u64 {
        let updated_at = self.strict().updated_at;
        let is_far = Moment::of(now).is_before(updated_at);
        if is_far { u64::MAX } else { updated_at.nanos_until(now) }
    }

    /// Keeps the entry until `until`, while its debit is under way. Does not prolong an epoch with a lease.
    pub(crate) fn await_lease(&mut self, until: Time) {
        if self.admitted.max(self.charged) == 0 {
            self.until = fine(until);
            self.change_strict(|strict| strict.is_barred = false);
        }
    }

    /// Tokens that requests at all workers wait for. Waits that an ended worker left behind count until `timeout_ns`
    /// after the newest began.
    pub(crate) fn awaited(&self, timeout_ns: u64, now: Time) -> u32 {
        let may_wait = self.since_update_ns(now) < timeout_ns.saturating_add(LATE_NS);
        if may_wait { self.strict().awaited } else { 0 }
    }

    pub(crate) fn await_tokens(&mut self, tokens: u32, timeout_ns: u64, now: Time) {
        let awaited = self.awaited(timeout_ns, now).saturating_add(tokens);
        self.change_strict(|strict| (strict.awaited, strict.updated_at) = (awaited, Moment::of(now)));
    }

    pub(crate) fn end_waiting(&mut self, tokens: u32) {
        self.change_strict(|strict| strict.awaited = strict.awaited.saturating_sub(tokens));
    }

    /// Gives back the held tokens beyond `kept`.
    pub(crate) fn keep(&mut self, kept: u32, now: Time) {
        self.admitted = self.admitted.saturating_add(self.on_hand(now).saturating_sub(kept));
    }

    pub(crate) fn spend(&mut self, cost: u32, now: Time) {
        self.renew(now);
        self.admitted = self.admitted.saturating_add(cost);
    }

    pub(crate) fn left(&self) -> u32 {
        self.strict().left
    }

    pub(crate) fn record_left(&mut self, left: u32) {
        self.change_strict(|strict| strict.left = left.min(TOKENS_MAX));
    }

    /// Nanoseconds from `now` for which the budget is known to have no tokens; zero if it may have some.
    pub(crate) fn barred_ns(&self, now: Time) -> u64 {
        if self.strict().is_barred { self.until.nanos_since(now) } else { 0 }
    }

    /// Leased tokens that may be spent at `now`.
    pub(crate) fn on_hand(&self, now: Time) -> u32 {
        let is_leased = now < self.until && !self.strict().is_barred;
        if is_leased { self.charged.saturating_sub(self.admitted) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::slot::{Cold, Entry, LocalLimits, Slot, Tag};
    use weir_protocol::quota::Quota;
    use weir_protocol::time::SECOND_NS;

    const T0: Time = Time::from_nanos(1 << 40);

    fn begun() -> Watched {
        let quota = Quota::from_token_ns(SECOND_NS, 100).unwrap();
        Watched::begin(&Cold::NEW, &LocalLimits { quota, local_burst: 100, divisor: 1 }, 0, T0)
    }

    // I6
    #[test]
    fn returned_tokens_of_a_barred_key_stay_barred_until_leased() {
        let mut key = begun();
        key.lease(1, T0 + 10 * SECOND_NS);
        key.spend(1, T0);
        key.bar(T0 + 3_600 * SECOND_NS, T0);
        key.admitted = 0;
        assert_eq!(key.on_hand(T0), 0);
        key.lease(2, T0 + 20 * SECOND_NS);
        assert_eq!((key.on_hand(T0), key.barred_ns(T0)), (2, 0));
        assert_eq!(key.on_hand(T0 + 20 * SECOND_NS), 0, "and not for as long as it was barred");
    }

    /// The last milliseconds of a window count.
    #[test]
    fn a_slot_keeps_a_leases_end_to_the_microsecond() {
        let until = T0 + 3_000_000;
        let (mut slot, tag, mut key) = (Slot::empty(), Tag::of_key(1, 0), begun());
        key.lease(1, until);
        slot.put(tag, &Entry::Watched(key), T0).unwrap();
        let Some(Entry::Watched(found)) = slot.get(tag) else { panic!("gone") };
        let early = Time::from_nanos(until.as_nanos() - BAR_STEP_NS);
        assert_eq!([early, until].map(|now| found.on_hand(now)), [1, 0]);
        assert_eq!(found, key);
    }
}
