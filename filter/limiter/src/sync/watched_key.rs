//! One watched key on a worker's list: its demand, the reported part of it, and the time of its next report.

use crate::table::NamedKey;
use crate::table::slot::Tag;
use weir_protocol::messages::AdmitRatio;
use weir_protocol::time::{SECOND_NS, Time};

/// Bytes of a key in a report besides its value, close to the maximum: an epoch and counts.
const KEY_BYTES: u64 = 20;

const WARM_NS: u64 = 2 * SECOND_NS;
/// A warm key is reported early once the demand since its last report exceeds 1 / this of its burst.
const LUMP_PART: u32 = 8;
/// Minimum span over which a rate is measured, in nanoseconds.
const SPAN_NS_MIN: u64 = SECOND_NS / 4;

#[derive(Clone, Debug)]
pub(crate) struct WatchedKey {
    pub(crate) name: NamedKey,
    /// Demand in tokens not yet added to the shared entry's `asked`.
    pub(crate) asked_unadded: u32,
    /// Demand in tokens at this worker; wraps.
    pub(crate) asked: u64,
    /// Value of `asked` in the latest answered report or call for tokens.
    answered: u64,
    /// Value of `asked` in the latest report, answered or not, unless that failed.
    sent: u64,
    /// Value of `asked` in the latest answered report, whether or not the report had to name the key.
    reported: u64,
    /// Value of `asked` when the list was last searched for due keys.
    looked: u64,
    /// The POP's unconfirmed tokens as of the latest request here.
    pub(super) unconfirmed: u32,
    cost: u32,
    pub(super) dearest: u32,
    /// True if something happened that no report contains.
    pub(crate) dirty: bool,
    pub(crate) dirty_since: Time,
    pub(crate) touched_at: Time,
    /// Time at which the key was last put into a report, or added to the list.
    pub(super) reported_at: Time,
    /// True if weir-sync last called the key hot, or granted it a lease.
    pub(super) is_hot: bool,
    /// State of a key that weir-sync last called warm; `None` if it is not warm.
    warm: Option<Warm>,
    /// Time before which the key has nothing to report, unless there is demand for it.
    rests_until: Time,
    /// Error diffusion: the admitted fraction of a request carried over, in steps of the admit ratio.
    pub(super) credit: u32,
}

/// A key that weir-sync called warm: far from its quota.
#[derive(Clone, Copy, Debug)]
struct Warm {
    /// Time of the report whose reply called the key warm.
    since: Time,
    /// Demand until then, in thousandths of a token per second.
    milli: u64,
    /// Demand in tokens above which the key is reported early.
    lump: u32,
    /// True if the demand has grown much since.
    has_grown: bool,
}

impl WatchedKey {
    pub(super) fn new(name: &NamedKey, now: Time) -> Self {
        Self {
            name: *name,
            asked_unadded: 0,
            asked: 0,
            answered: 0,
            sent: 0,
            reported: 0,
            looked: 0,
            unconfirmed: 0,
            cost: 1,
            dearest: 1,
            dirty: false,
            dirty_since: now,
            touched_at: now,
            reported_at: now,
            is_hot: false,
            warm: None,
            rests_until: Time::ZERO,
            credit: first_credit(name.place.tag),
        }
    }

    /// True if the key must be reported now. A warm key is due at its interval, or if its demand has grown much.
    pub(super) fn is_due(&self, now: Time) -> bool {
        if now < self.rests_until && self.asked_recently() == 0 {
            return false;
        }
        let Some(warm) = self.warm else { return true };
        let since_ns = now.nanos_since(warm.since);
        since_ns >= WARM_NS || warm.has_grown || self.asked_recently() > u64::from(warm.lump)
    }

    /// Makes the key due as soon as it has something to report.
    pub(super) fn hurry(&mut self) {
        (self.warm, self.rests_until) = (None, Time::ZERO);
    }

    /// Records the demand of the last `since_ns` nanoseconds.
    pub(super) fn look(&mut self, since_ns: u64) {
        let asked = self.asked.wrapping_sub(core::mem::replace(&mut self.looked, self.asked));
        if let Some(warm) = &mut self.warm {
            let expected_milli = u128::from(warm.milli) * u128::from(since_ns) / u128::from(SECOND_NS);
            // Two more requests do not count as growth.
            let slack_milli = 2_000 * u128::from(self.cost);
            warm.has_grown |= u128::from(asked) * 1_000 > 2 * expected_milli + slack_milli;
        }
    }

    /// Demand since this worker's latest answered report or call for tokens.
    pub(crate) fn asked_recently(&self) -> u64 {
        self.asked.wrapping_sub(self.answered)
    }

    /// Demand that no report of this worker contains.
    pub(super) fn unreported(&self) -> u64 {
        self.asked.wrapping_sub(self.sent)
    }

    /// Returns the demand that no report contains, and counts it as reported from now on.
    pub(crate) fn take_unreported(&mut self) -> u64 {
        self.unconfirmed = 0;
        self.asked.wrapping_sub(core::mem::replace(&mut self.sent, self.asked))
    }

    /// Restores the unreported demand after a failed report, the first to contain the demand after `from`.
    pub(crate) fn restore_unreported(&mut self, from: u64) {
        let (unsent, known) = (self.asked.wrapping_sub(from), self.asked.wrapping_sub(self.sent));
        // Not if even more is unreported already, or if the key was dropped and added again.
        if (known..u64::MAX / 2).contains(&unsent) {
            self.sent = from;
        }
    }

    /// Demand since the latest answered report. Calls for tokens do not count, however quickly they are answered.
    pub(crate) fn asked_since_report(&self) -> u64 {
        self.asked.wrapping_sub(self.reported)
    }

    /// Records that a report with the demand `asked` was answered, or did not need to name the key.
    pub(crate) fn reported(&mut self, asked: u64) {
        let is_late = asked.wrapping_sub(self.reported) > self.asked_since_report();
        if !is_late {
            self.reported = asked;
        }
    }

    /// Applies the reply to a report made at `sent_at`, with the demand `asked`, whose new part began at `since`.
    /// `warm_burst` is the burst of the key's rule if the reply calls the key warm. Replies may come out of order.
    pub(crate) fn answered(&mut self, asked: u64, since: Time, sent_at: Time, warm_burst: Option<u32>) {
        let new = asked.wrapping_sub(self.answered);
        // `new` also exceeds the demand if the key was dropped since, and added again.
        let is_late = new > self.asked_recently();
        if is_late {
            return;
        }
        self.answered = asked;
        self.is_hot = warm_burst.is_none();
        let span_ns = sent_at.nanos_since(self.warm.map_or(since, |warm| warm.since));
        let milli = u128::from(new) * 1_000 * u128::from(SECOND_NS) / u128::from(span_ns.max(SPAN_NS_MIN));
        let milli = u64::try_from(milli).unwrap_or(u64::MAX);
        self.warm = warm_burst.map(|burst| Warm { since: sent_at, milli, lump: burst / LUMP_PART, has_grown: false });
    }

    pub(crate) fn is_warm(&self) -> bool {
        self.warm.is_some()
    }

    pub(crate) fn mark_hot(&mut self) {
        (self.warm, self.is_hot) = (None, true);
    }

    /// Counts a request of `cost` tokens. `unconfirmed` is `None` if the decision did not read the key's entry.
    pub(super) fn count(&mut self, cost: u32, unconfirmed: Option<u32>, now: Time) {
        self.unconfirmed = unconfirmed.unwrap_or(self.unconfirmed);
        self.asked_unadded = self.asked_unadded.saturating_add(cost);
        self.asked = self.asked.wrapping_add(u64::from(cost));
        (self.cost, self.dearest) = (cost, cost.max(self.dearest));
        self.mark_changed(now);
        self.touched_at = now;
    }

    /// Takes over the unreported demand of `other`, the same key at another worker.
    pub(super) fn take_over(&mut self, other: &mut Self) {
        let unadded = core::mem::take(&mut other.asked_unadded);
        self.asked_unadded = self.asked_unadded.saturating_add(unadded);
        self.asked = self.asked.wrapping_add(other.take_unreported());
        (other.answered, other.reported) = (other.asked, other.asked);
        (self.cost, self.dearest) = (other.cost, other.dearest.max(self.dearest));
        self.touched_at = self.touched_at.max(other.touched_at);
        self.mark_changed(other.dirty_since);
    }

    /// Lets the key report nothing until `until`, unless there is demand for it.
    pub(crate) fn rest(&mut self, until: Time, now: Time) {
        self.mark_changed(now);
        self.rests_until = until;
    }

    /// Marks the key as having something to report that began at `since`.
    pub(crate) fn mark_changed(&mut self, since: Time) {
        self.dirty_since = if self.dirty { self.dirty_since.min(since) } else { since };
        self.dirty = true;
    }
}

/// Initial credit, from the key's hash, so that POPs do not all admit their first requests at once.
fn first_credit(tag: Tag) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "any bits of a hash will do")]
    let bits = (tag.bits() >> 20) as u32;
    bits % AdmitRatio::ONE.bits()
}

/// Approximate size of a key with this value in a report, in bytes.
pub(crate) fn bytes_of(value: &[u8]) -> u64 {
    KEY_BYTES + value.len() as u64
}
