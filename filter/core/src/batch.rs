//! Tokens that a worker has withdrawn from the table for one client's next requests: a batch.
//!
//! A client who asks often is then decided from the worker's own memory, and its bucket is read and written once for
//! many requests.
//!
//! **No batch makes a bucket admit more than burst + rate x t.** A bucket is the time at which it is full again
//! ([`crate::bucket`]), and what is taken from it moves that on: each batch is a stretch of time of its own, up to
//! where its withdrawal left the bucket. While its tokens wait, their bucket refills, and must not hold a burst beside
//! them: so they lapse, the first as soon as the time has come that the stretch begins at, and all at its end. What has
//! not lapsed of all workers' batches are stretches in the future, none over another, and none beyond where the bucket
//! is full: the bucket lacks at least as many tokens. A client who is alone with his bucket notices nothing, as what he
//! did not use goes back the next time, and what lapsed would have made a full bucket overflow.
//!
//! The memory is a fixed array: two clients who meet in it displace each other, which costs look-ups and what was left
//! in a batch until it would have lapsed.

use alloc::vec::Vec;
use core::net::IpAddr;

use xxhash_rust::xxh64::xxh64;

use crate::bucket::Bucket;
use crate::decision::Standing;
use crate::time::{SECOND_NS, Time};

/// Clients remembered at most.
const CLIENTS: u32 = 4_096;
/// The longest that a batch lasts, in nanoseconds: so late, a worker sees what others changed of a bucket.
const LAST_NS_MAX: u64 = SECOND_NS / 4;
/// One part in so many of a burst, at most, is in one batch.
const BURST_PART: u32 = 64;
/// Fewer requests than these do not make a batch worth its while.
const REQUESTS_MIN: u32 = 4;
/// The most rules that are paid from one batch.
pub(crate) const RULES_MAX: usize = 4;
/// The longest value of an attribute beside the address that a batch is for, in bytes.
const VALUE_BYTES_MAX: usize = 30;
/// Bits of a time that is remembered less exactly.
const STEP_BITS: u32 = 10;
/// No rule.
const NONE: u16 = u16::MAX;

/// How many requests a batch may pay for, of a bucket that holds `burst` tokens of `token_ns` nanoseconds each, for
/// requests that cost so much; none where that is too few.
pub(crate) fn requests_max(burst: u32, token_ns: u64, cost: u32) -> Option<u32> {
    let by_time = LAST_NS_MAX / token_ns.max(1);
    let tokens = u32::try_from(by_time).unwrap_or(u32::MAX).min(burst / BURST_PART);
    Some(tokens / cost.max(1)).filter(|requests| *requests >= REQUESTS_MIN)
}

/// Whose requests a batch pays for: those that these rules count by keys of these values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whose {
    address: u128,
    value: [u8; VALUE_BYTES_MAX],
    /// The length of `value`, or more where there is none.
    value_len: u8,
    has_address: bool,
    rules: [u16; RULES_MAX],
    /// Where it is remembered, and what tells it from most others there, once it is [`Whose::known`].
    place: u32,
    who: u32,
}

impl Whose {
    /// Nobody's: counted by no rule.
    pub(crate) const NOBODY: Self = Self {
        address: 0,
        value: [0; VALUE_BYTES_MAX],
        value_len: u8::MAX,
        has_address: false,
        rules: [NONE; RULES_MAX],
        place: 0,
        who: 0,
    };

    /// Counted by `rule` as the `n`-th; none where that is one too many.
    pub(crate) fn by(&mut self, n: usize, rule: u16) -> Option<()> {
        *self.rules.get_mut(n)? = rule;
        Some(())
    }

    /// The rules in their order.
    pub(crate) fn rules(&self) -> impl Iterator<Item = u16> + '_ {
        self.rules.iter().copied().take_while(|rule| *rule != NONE)
    }

    /// Those of this client among them.
    pub(crate) fn from(&mut self, address: IpAddr) {
        let address = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        (self.address, self.has_address) = (address.to_bits(), true);
    }

    /// Those with this value among them; none where it is too long.
    pub(crate) fn with(&mut self, value: &[u8]) -> Option<()> {
        self.value.get_mut(..value.len())?.copy_from_slice(value);
        self.value_len = u8::try_from(value.len()).ok()?;
        Some(())
    }

    /// Complete. Who aims for another's place displaces him, and gains nothing.
    pub(crate) fn known(mut self) -> Self {
        let value = self.value.get(..usize::from(self.value_len)).unwrap_or_default();
        let seed = if value.is_empty() { u64::from(self.rules[0]) } else { xxh64(value, 0) };
        #[allow(clippy::cast_possible_truncation, reason = "the two halves")]
        let (low, high) = (self.address as u64, (self.address >> 64) as u64);
        // Fibonacci hashing: the multiplier is 2^64 divided by the golden ratio, and the high bits are the good ones.
        let hash = (low ^ high.rotate_left(29) ^ seed.rotate_left(48)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        #[allow(clippy::cast_possible_truncation, reason = "the two halves")]
        let halves = ((hash >> 32) as u32, hash as u32);
        (self.place, self.who) = (halves.0 >> (u32::BITS - CLIENTS.ilog2()), halves.0 ^ halves.1);
        self
    }

    fn place(&self) -> usize {
        self.place as usize
    }
}

/// Who was last seen in a place. Most who come are seen once: they leave no more than this.
#[derive(Clone, Copy, Default)]
struct Seen {
    who: u32,
    /// In steps of 2^10 ns, which wrap in an hour.
    at: u32,
}

impl Seen {
    fn at(now: Time) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "wraps on purpose")]
        let at = (now.as_nanos() >> STEP_BITS) as u32;
        at
    }

    /// How long before `now`, in nanoseconds; more, by less than a step.
    fn age_ns(self, now: Time) -> u64 {
        (u64::from(Self::at(now).wrapping_sub(self.at)) + 1) << STEP_BITS
    }
}

/// What a client has not used of his last batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unused {
    /// Requests that it did not pay for.
    pub(crate) requests: u32,
    /// What its withdrawal left of the bucket of each rule.
    pub(crate) buckets: [Bucket; RULES_MAX],
}

/// A batch that is just withdrawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    /// For how many requests.
    pub(crate) requests: u32,
    /// When all of it has lapsed, and how long before that the last but one has.
    pub(crate) lapsed_at: Time,
    pub(crate) lapse_ns: u64,
    /// What is left of the bucket of each rule.
    pub(crate) buckets: [Bucket; RULES_MAX],
    /// The strictest rule.
    pub(crate) strictest: (u16, Standing),
}

#[derive(Clone, Copy)]
struct Batch {
    whose: Whose,
    fill: Fill,
    /// Requests that it may still pay for, as of when one last was, and those that it has paid for.
    left: u32,
    paid: u32,
}

impl Fill {
    /// Nothing.
    pub(crate) const EMPTY: Self = Self {
        requests: 0,
        lapsed_at: Time::ZERO,
        lapse_ns: 1,
        buckets: [Bucket::FULL; RULES_MAX],
        strictest: (NONE, Standing { remaining: 0, more_ns: 0, full_ns: 0 }),
    };
}

impl Batch {
    const NOBODYS: Self = Self { whose: Whose::NOBODY, fill: Fill::EMPTY, left: 0, paid: 0 };
}

/// The batches of one worker.
pub(crate) struct Batches {
    seen: Vec<Seen>,
    list: Vec<Batch>,
}

impl Batches {
    /// None yet; where they `are_used`, with room for them.
    pub(crate) fn new(are_used: bool) -> Self {
        let clients = if are_used { CLIENTS as usize } else { 0 };
        Self { seen: alloc::vec![Seen::default(); clients], list: alloc::vec![Batch::NOBODYS; clients] }
    }

    fn get(&mut self, whose: &Whose) -> Option<&mut Batch> {
        if !self.has_seen(whose) {
            return None;
        }
        self.list.get_mut(whose.place()).filter(|batch| batch.whose == *whose)
    }

    /// Pays for a request at `now` from the batch that is for it; the strictest rule when that was filled. None
    /// where there is none, or nothing left in it.
    pub(crate) fn pay(&mut self, whose: &Whose, now: Time) -> Option<(u16, Standing)> {
        let batch = self.get(whose)?;
        let Fill { lapsed_at, lapse_ns, strictest, .. } = batch.fill;
        let unlapsed_ns = lapsed_at.nanos_since(now);
        if u64::from(batch.left).saturating_mul(lapse_ns) > unlapsed_ns {
            batch.left = u32::try_from(unlapsed_ns / lapse_ns).unwrap_or(0);
        }
        batch.left = batch.left.checked_sub(1)?;
        batch.paid += 1;
        Some(strictest)
    }

    /// What a client has not used who goes to the table.
    pub(crate) fn unused(&mut self, whose: &Whose) -> Option<Unused> {
        let batch = self.get(whose)?;
        let requests = batch.fill.requests.saturating_sub(batch.paid);
        (requests > 0).then_some(Unused { requests, buckets: batch.fill.buckets })
    }

    /// Whether a client who goes to the table at `now` asks so often that a batch of `requests`, one of which lapses
    /// every `lapse_ns` nanoseconds, is worth its while: at the pace since it last went, whether enough of them come
    /// before all have lapsed.
    pub(crate) fn is_worth(&mut self, whose: &Whose, requests: u32, lapse_ns: u64, now: Time) -> bool {
        let Some(seen) = self.seen.get(whose.place()).copied().filter(|_| self.has_seen(whose)) else {
            return false;
        };
        let asked = self.get(whose).map_or(0, |batch| batch.paid);
        let lasts_ns = u64::from(requests).saturating_mul(lapse_ns).saturating_mul(u64::from(asked) + 1);
        seen.age_ns(now).saturating_mul(u64::from(REQUESTS_MIN)) <= lasts_ns
    }

    /// Whether a client was the last to go to the table from his place.
    pub(crate) fn has_seen(&self, whose: &Whose) -> bool {
        self.seen.get(whose.place()).is_some_and(|seen| seen.who == whose.who)
    }

    /// Notes that a client went to the table at `now`.
    pub(crate) fn see(&mut self, whose: &Whose, now: Time) {
        if let Some(seen) = self.seen.get_mut(whose.place()) {
            *seen = Seen { who: whose.who, at: Seen::at(now) };
        }
    }

    /// Notes what a client has withdrawn who went to the table at `now`. What he had not used went back, if anything.
    pub(crate) fn fill(&mut self, whose: &Whose, fill: Option<Fill>, now: Time) {
        self.see(whose, now);
        match (fill, self.list.get_mut(whose.place())) {
            (Some(fill), Some(batch)) => {
                let fill = Fill { lapse_ns: fill.lapse_ns.max(1), ..fill };
                *batch = Batch { whose: *whose, left: fill.requests, fill, paid: 0 };
            }
            _ => self.forget(whose),
        }
    }

    /// Forgets what a client has not used: some of it went back, or all.
    pub(crate) fn forget(&mut self, whose: &Whose) {
        if let Some(batch) = self.get(whose) {
            *batch = Batch::NOBODYS;
        }
    }
}
