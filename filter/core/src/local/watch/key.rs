//! One watched key, as one worker knows it: what it was asked for, how much of that is reported, and when more is due.

use crate::table::NamedKey;
use crate::table::slot::Tag;
use weir_wire::messages::AdmitRatio;
use weir_wire::time::{SECOND_NS, Time};

/// The bytes that a key takes in a report besides its value, about the maximum: an epoch, and counts.
const KEY_BYTES: u64 = 20;

/// A warm key is reported this often, in nanoseconds.
const WARM_NS: u64 = 2 * SECOND_NS;
/// A warm key is reported before its turn once it was asked for more than this part of its burst: an eighth.
const LUMP_PART: u32 = 8;
/// The shortest span over which a rate is measured, in nanoseconds.
const SPAN_NS_MIN: u64 = SECOND_NS / 4;

/// A watched key, as one worker knows it.
#[derive(Clone, Debug)]
pub(crate) struct WatchedKey {
    pub(crate) name: NamedKey,
    /// Tokens asked for that are not yet added to the shared entry's `asked`.
    pub(crate) asked_unadded: u32,
    /// Tokens that this worker was asked for; wraps.
    pub(crate) asked: u64,
    /// What the latest answered report or draw said of `asked`.
    answered: u64,
    /// What the latest report said of it, answered or not, unless it failed.
    said: u64,
    /// What the latest answered report said of it, or would have said if the key had been in it.
    reported: u64,
    /// What `asked` was when the list was last searched for keys that are due.
    looked: u64,
    /// The cost of the latest request.
    cost: u32,
    /// The cost of the dearest request.
    pub(super) dearest: u32,
    /// Whether something happened that no report has said.
    pub(crate) dirty: bool,
    /// Since when, if it is dirty.
    pub(crate) dirty_since: Time,
    pub(crate) touched_at: Time,
    /// When it was last put into a report, or met.
    pub(super) said_at: Time,
    /// Whether weir-sync last called it hot, or gave it a lease.
    pub(super) is_hot: bool,
    /// How it was asked for when weir-sync last called it warm; none if it is not warm.
    warm: Option<Warm>,
    /// Until then it has nothing to report, unless it is asked for.
    rests_until: Time,
    /// Error diffusion: the part of a request that is due, in steps of the admit ratio.
    pub(super) credit: u32,
}

/// A key that weir-sync called warm: far from its quota.
#[derive(Clone, Copy, Debug)]
struct Warm {
    /// When the report with that answer was made.
    since: Time,
    /// The rate at which it was asked for until then, in thousandths of a token per second.
    milli: u64,
    /// Once more tokens than this are asked for, it is reported before its turn.
    lump: u32,
    /// Whether it has been asked for much more lately.
    has_grown: bool,
}

impl WatchedKey {
    /// A key that has not been asked for.
    pub(super) fn new(name: &NamedKey, now: Time) -> Self {
        Self {
            name: *name,
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
            credit: first_credit(name.place.tag),
        }
    }

    /// Whether it is to be reported now: a warm key at its turn, or at once if it is asked for twice as much
    /// as when it was called warm, or for a good part of its burst.
    pub(super) fn is_due(&self, now: Time) -> bool {
        if now < self.rests_until && self.asked_recently() == 0 {
            return false;
        }
        let Some(warm) = self.warm else { return true };
        let since_ns = now.nanos_since(warm.since);
        since_ns >= WARM_NS || warm.has_grown || self.asked_recently() > u64::from(warm.lump)
    }

    /// It is due as soon as it has something to report.
    pub(super) fn hurry(&mut self) {
        (self.warm, self.rests_until) = (None, Time::ZERO);
    }

    /// Notes what it was asked for in the last `since_ns` nanoseconds.
    pub(super) fn look(&mut self, since_ns: u64) {
        let asked = self.asked.wrapping_sub(core::mem::replace(&mut self.looked, self.asked));
        if let Some(warm) = &mut self.warm {
            let expected_milli = u128::from(warm.milli) * u128::from(since_ns) / u128::from(SECOND_NS);
            // Two more requests do not count as growth.
            let slack_milli = 2_000 * u128::from(self.cost);
            warm.has_grown |= u128::from(asked) * 1_000 > 2 * expected_milli + slack_milli;
        }
    }

    /// Tokens asked for since this worker's latest answered report or draw.
    pub(crate) fn asked_recently(&self) -> u64 {
        self.asked.wrapping_sub(self.answered)
    }

    /// Tokens asked for that no report of this worker has said.
    pub(super) fn unsaid(&self) -> u64 {
        self.asked.wrapping_sub(self.said)
    }

    /// The same. From now on, they count as said.
    pub(crate) fn say_asked(&mut self) -> u64 {
        self.asked.wrapping_sub(core::mem::replace(&mut self.said, self.asked))
    }

    /// About how many bytes it takes in a report.
    pub(super) fn bytes(&self) -> u64 {
        bytes_of(self.name.value.as_bytes())
    }

    /// A report failed that was the first to say what was asked for after `said`.
    pub(crate) fn unsay_asked(&mut self, said: u64) {
        let (unsaid, known) = (self.asked.wrapping_sub(said), self.asked.wrapping_sub(self.said));
        // Not if more than that is unsaid already, or if the key was forgotten and met again.
        if (known..u64::MAX / 2).contains(&unsaid) {
            self.said = said;
        }
    }

    /// Tokens asked for since its latest answered report. Draws do not count as reports here: however quickly they are
    /// answered, this says how often the key is asked for.
    pub(crate) fn asked_since_report(&self) -> u64 {
        self.asked.wrapping_sub(self.reported)
    }

    /// A report that said `asked` was answered, or had no need to name the key.
    pub(crate) fn reported(&mut self, asked: u64) {
        let is_late = asked.wrapping_sub(self.reported) > self.asked_since_report();
        if !is_late {
            self.reported = asked;
        }
    }

    /// A report made at `sent_at` is answered. It said that `asked` tokens had been asked for, the new ones
    /// since `since`. `warm_burst` is the burst of the key's rule if the answer calls it warm. Reports may be
    /// answered out of order.
    pub(crate) fn answered(&mut self, asked: u64, since: Time, sent_at: Time, warm_burst: Option<u32>) {
        let new = asked.wrapping_sub(self.answered);
        // It may also say more than was asked for, if the key was forgotten since, and met again.
        let is_late = new > self.asked_recently();
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

    /// Whether weir-sync last called it warm.
    pub(crate) fn is_warm(&self) -> bool {
        self.warm.is_some()
    }

    /// Makes it hot.
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

    /// Takes over what `other` has to report, which is the same key at another worker.
    #[cfg(feature = "own_memory")]
    pub(super) fn take_over(&mut self, other: &mut Self) {
        let unadded = core::mem::take(&mut other.asked_unadded);
        self.asked_unadded = self.asked_unadded.saturating_add(unadded);
        self.asked = self.asked.wrapping_add(other.say_asked());
        (other.answered, other.reported) = (other.asked, other.asked);
        (self.cost, self.dearest) = (other.cost, other.dearest.max(self.dearest));
        self.touched_at = self.touched_at.max(other.touched_at);
        self.soil(other.dirty_since);
    }

    /// Until `until` it has nothing to report, unless it is asked for; after that it has.
    pub(crate) fn rest(&mut self, until: Time, now: Time) {
        self.soil(now);
        self.rests_until = until;
    }

    /// Marks it as having something to report that began at `since`.
    pub(crate) fn soil(&mut self, since: Time) {
        self.dirty_since = if self.dirty { self.dirty_since.min(since) } else { since };
        self.dirty = true;
    }
}

/// The first credit comes from the key's hash. POPs have different secrets and so different hashes, so
/// they do not all let their first request through at once.
fn first_credit(tag: Tag) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "any bits of a hash will do")]
    let bits = (tag.bits() >> 20) as u32;
    bits % AdmitRatio::ONE.bits()
}

/// About how many bytes the key with this value takes in a report.
pub(crate) fn bytes_of(value: &[u8]) -> u64 {
    KEY_BYTES + value.len() as u64
}
