//! One watched key, as one worker knows it: what it was asked for, what of that is said, and when more is due.

use crate::slot::Tag;
use weir_rules::key::KeyValue;
use weir_wire::messages::AdmitRatio;
use weir_wire::time::{SECOND_NS, Time};

/// A warm key is reported this often, in nanoseconds.
const WARM_NS: u64 = 2 * SECOND_NS;
/// A warm key is reported before its turn once it was asked for one part in so many of its burst.
const LUMP_PART: u32 = 8;
/// The shortest span that a rate is taken from, in nanoseconds.
const SPAN_NS_MIN: u64 = SECOND_NS / 4;

/// A watched key, as one worker knows it.
#[derive(Clone, Debug)]
pub(crate) struct WatchedKey {
    pub(crate) rule: u16,
    pub(crate) value: KeyValue,
    pub(crate) slot: u32,
    /// Tokens asked for and not yet added to the shared entry's `asked`.
    pub(crate) asked_unadded: u32,
    /// Tokens that this worker was asked for; wraps.
    pub(crate) asked: u64,
    /// What the latest answered report or draw said of `asked`.
    answered: u64,
    /// What the latest report said of it, answered or not, that has not come to nothing.
    said: u64,
    /// What the latest answered report said of it, or would have if there had been anything to say.
    reported: u64,
    /// What `asked` was when it was last looked for what is due.
    looked: u64,
    /// What the latest request asked for, ...
    cost: u32,
    /// ... and the dearest.
    pub(super) dearest: u32,
    /// Something happened that no report has said.
    pub(crate) dirty: bool,
    /// Since when, if it is dirty.
    pub(crate) dirty_since: Time,
    pub(super) touched_at: Time,
    /// When it was last put into a report, or met.
    pub(super) said_at: Time,
    /// Whether weir-sync last called it hot, or gave it a lease.
    pub(super) is_hot: bool,
    /// What it was asked for when weir-sync last called it warm.
    warm: Option<Warm>,
    /// Before then it has nothing to say, unless it is asked for.
    rests_until: Time,
    /// Error diffusion: the part of a request that is due, in steps of the admit ratio.
    pub(super) credit: u32,
}

/// A key that weir-sync called warm: far from its quota.
#[derive(Clone, Copy, Debug)]
struct Warm {
    /// When the report was made that was answered so.
    since: Time,
    /// What it was asked for until then, in thousandths of a token per second.
    milli: u64,
    /// Tokens asked for that are not to wait for its turn.
    lump: u32,
    /// Whether it was asked for much more, of late.
    has_grown: bool,
}

impl WatchedKey {
    /// A key that nobody has asked for.
    pub(super) fn new(tag: Tag, rule: u16, value: &KeyValue, slot: u32, now: Time) -> Self {
        Self {
            rule,
            value: *value,
            slot,
            asked_unadded: 0,
            asked: 0,
            answered: 0,
            said: 0,
            reported: 0,
            looked: 0,
            cost: 1,
            dearest: 1,
            dirty: false,
            dirty_since: now,
            touched_at: now,
            said_at: now,
            is_hot: false,
            warm: None,
            rests_until: Time::ZERO,
            credit: first_credit(tag),
        }
    }

    /// Whether it goes before others.
    pub(super) fn matters(&self) -> bool {
        self.is_hot
    }

    /// Whether it is to be reported now: a warm key in its own time, or at once where it is asked for
    /// twice as much as when it was called warm, or for a good part of its burst.
    pub(super) fn is_due(&self, now: Time) -> bool {
        if now < self.rests_until && self.asked_recently() == 0 {
            return false;
        }
        let Some(warm) = self.warm else { return true };
        let since_ns = now.nanos_since(warm.since);
        since_ns >= WARM_NS || warm.has_grown || self.asked_recently() > u64::from(warm.lump)
    }

    /// Notes what it was asked for in the last `since_ns` nanoseconds.
    pub(super) fn look(&mut self, since_ns: u64) {
        let asked = self.asked.wrapping_sub(core::mem::replace(&mut self.looked, self.asked));
        if let Some(warm) = &mut self.warm {
            let expected_milli = u128::from(warm.milli) * u128::from(since_ns) / u128::from(SECOND_NS);
            // Two requests more are no growth.
            let slack_milli = 2_000 * u128::from(self.cost);
            warm.has_grown |= u128::from(asked) * 1_000 > 2 * expected_milli + slack_milli;
        }
    }

    /// Tokens asked for since this worker's latest answered report or draw.
    pub(crate) fn asked_recently(&self) -> u64 {
        self.asked.wrapping_sub(self.answered)
    }

    /// Tokens asked for that no report of this worker has said; from now on one does.
    pub(crate) fn say_asked(&mut self) -> u64 {
        self.asked.wrapping_sub(core::mem::replace(&mut self.said, self.asked))
    }

    /// A report came to nothing that was the first to say what was asked for after `said`.
    pub(crate) fn unsay_asked(&mut self, said: u64) {
        let (unsaid, known) = (self.asked.wrapping_sub(said), self.asked.wrapping_sub(self.said));
        // Nor is it about a key that was forgotten and met again.
        if (known..u64::MAX / 2).contains(&unsaid) {
            self.said = said;
        }
    }

    /// Tokens asked for since its latest answered report, but for draws: however quickly those are answered, it says
    /// how often the key is asked for.
    pub(crate) fn asked_since_report(&self) -> u64 {
        self.asked.wrapping_sub(self.reported)
    }

    /// A report is answered that said `asked`; or none was to be made.
    pub(crate) fn reported(&mut self, asked: u64) {
        let is_late = asked.wrapping_sub(self.reported) > u64::MAX / 2;
        if !is_late {
            self.reported = asked;
        }
    }

    /// A report that was made at `sent_at` is answered, and what it said of this key is known: `asked`
    /// tokens asked for until then, those not known before since `since`. Reports may be answered out of order.
    /// A key that is warm has the `burst` of its rule.
    pub(crate) fn answered(&mut self, asked: u64, since: Time, sent_at: Time, warm_burst: Option<u32>) {
        let new = asked.wrapping_sub(self.answered);
        let is_late = new > u64::MAX / 2;
        if is_late {
            return;
        }
        self.answered = asked;
        self.is_hot = warm_burst.is_none();
        let span_ns = sent_at.nanos_since(self.warm.map_or(since, |warm| warm.since));
        let milli = u128::from(new) * 1_000 * u128::from(SECOND_NS) / u128::from(span_ns.max(SPAN_NS_MIN));
        let milli = u64::try_from(milli).unwrap_or(u64::MAX);
        self.warm =
            warm_burst.map(|burst| Warm { since: sent_at, milli, lump: burst / LUMP_PART, has_grown: false });
    }

    /// Whether weir-sync has called it warm.
    pub(crate) fn is_warm(&self) -> bool {
        self.warm.is_some()
    }

    /// It is hot, and not warm any more.
    pub(crate) fn heat(&mut self) {
        (self.warm, self.is_hot) = (None, true);
    }

    pub(super) fn count(&mut self, cost: u32, now: Time) {
        self.asked_unadded = self.asked_unadded.saturating_add(cost);
        self.asked = self.asked.wrapping_add(u64::from(cost));
        (self.cost, self.dearest) = (cost, cost.max(self.dearest));
        self.soil(now);
        self.touched_at = now;
    }

    /// There is nothing to say before `until`, unless it is asked for; and then there is.
    pub(crate) fn rest(&mut self, until: Time, now: Time) {
        self.soil(now);
        self.rests_until = until;
    }

    /// There is something to say that began at `since`.
    pub(crate) fn soil(&mut self, since: Time) {
        self.dirty_since = if self.dirty { self.dirty_since.min(since) } else { since };
        self.dirty = true;
    }
}

/// The first credit comes from the key's hash, which differs from POP to POP (the secret does), so
/// that they do not let their first request through all at once.
fn first_credit(tag: Tag) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "any bits of a hash will do")]
    let bits = (tag.bits() >> 20) as u32;
    bits % AdmitRatio::ONE.bits()
}
