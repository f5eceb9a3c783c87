//! Tokens that a worker has withdrawn from the table for one client's next requests: a batch.
//!
//! A client that asks often is then decided from the worker's own memory, and its bucket is read and written once for
//! many requests.
//!
//! **No batch makes a bucket admit more than burst + rate x t.** A bucket is the time at which it is full again
//! ([`crate::bucket`]), and what is taken from it moves that on. So a batch is a stretch of time: from where the bucket
//! was to where the withdrawal left it. Each request that is paid from it moves the begin on, just as it would have moved
//! the bucket: to now, if that is later, for a full bucket gains nothing, and then by what it costs. The batch ends
//! where that would go beyond the stretch. The stretches of all workers' batches of one bucket lie one behind the other,
//! and none beyond where it is full; what of them is still to come is as much as is withdrawn and may yet be used, and
//! the bucket lacks at least that. When its client goes to the table again, the bucket is set to where the begin has got
//! to, unless somebody else has taken from it since. So a client of one worker, whose requests all meet the same rules,
//! never notices a batch; another may find up to a quarter of a burst withdrawn for requests that it does not make.
//!
//! The memory is a fixed array: two clients that meet in it displace each other, which costs look-ups and what was left
//! in a batch until it would have lapsed. The same is lost where a withdrawal of several rules' tokens meets another
//! worker's, and not all of them can be had any more.

use alloc::vec::Vec;
use core::net::IpAddr;

use xxhash_rust::xxh64::xxh64;

use crate::FIBONACCI;
use crate::bucket::Bucket;
use crate::decision::Standing;
use crate::rules::NO_RULE;
use crate::time::{SECOND_NS, Time};

/// Clients remembered at most.
const CLIENTS: u32 = 4_096;
/// The longest that a bucket takes to gain what is in a batch, in nanoseconds.
const STRETCH_NS_MAX: u64 = SECOND_NS / 4;
/// One part in so many of a burst, at most, is in one batch.
const BURST_PART: u32 = 64;
/// Fewer requests than these do not make a batch worth its while.
const REQUESTS_MIN: u32 = 4;
/// The most rules that are paid from one batch.
const RULES_MAX: usize = 4;
/// The longest value of an attribute beside the address that a batch is for, in bytes.
const VALUE_BYTES_MAX: usize = 30;
/// Bits of a time that is remembered less exactly.
const STEP_BITS: u32 = 10;

/// How many requests a batch may pay for, of a bucket that holds `burst` tokens of `token_ns` nanoseconds each, for
/// requests that cost so much; none where that is too few.
pub(crate) fn requests_max(burst: u32, token_ns: u64, cost: u32) -> Option<u32> {
    let by_time = STRETCH_NS_MAX / token_ns.max(1);
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
        rules: [NO_RULE; RULES_MAX],
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
        self.rules.iter().copied().take_while(|rule| *rule != NO_RULE)
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

    /// Complete. A client that aims for another's place displaces it, and gains nothing.
    pub(crate) fn known(mut self) -> Self {
        let value = self.value.get(..usize::from(self.value_len)).unwrap_or_default();
        let rules = self.rules.iter().fold(0_u64, |rules, rule| rules.rotate_left(16) ^ u64::from(*rule));
        let seed = if value.is_empty() { rules.rotate_left(23) } else { rules ^ xxh64(value, 0) };
        #[allow(clippy::cast_possible_truncation, reason = "the two halves")]
        let (low, high) = (self.address as u64, (self.address >> 64) as u64);
        // The high bits are the good ones.
        let hash = (low ^ high.rotate_left(29) ^ seed.rotate_left(48)).wrapping_mul(FIBONACCI);
        #[allow(clippy::cast_possible_truncation, reason = "the two halves")]
        let halves = ((hash >> 32) as u32, hash as u32);
        (self.place, self.who) = (halves.0 >> (u32::BITS - CLIENTS.ilog2()), halves.0 ^ halves.1);
        self
    }

    pub(crate) fn place(&self) -> usize {
        self.place as usize
    }
}

/// The client that was last seen in a place. Most are seen once: they leave no more than this.
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

    /// How long before `now`, in nanoseconds; more, by less than two steps.
    fn age_ns(self, now: Time) -> u64 {
        (u64::from(Self::at(now).wrapping_sub(self.at)) + 1) << STEP_BITS
    }
}

/// The tokens of one rule in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// What the bucket were, had no more been taken from it than was paid for.
    pub(crate) paid: Bucket,
    /// What the withdrawal left of it.
    pub(crate) until: Bucket,
    /// What a request costs, in nanoseconds of the bucket's refill.
    pub(crate) cost_ns: u64,
}

impl Stretch {
    const NONE: Self = Self { paid: Bucket::FULL, until: Bucket::FULL, cost_ns: 0 };

    /// The stretch once one more request is paid for; none where it has too little left.
    fn pay(self, now: Time) -> Option<Self> {
        let paid = Bucket::full_at(self.paid.refilled().max(now) + self.cost_ns);
        (paid <= self.until).then_some(Self { paid, ..self })
    }
}

#[derive(Clone, Copy)]
struct Batch {
    whose: Whose,
    /// For each of its rules.
    stretches: [Stretch; RULES_MAX],
    /// Rules that it has a stretch for; none where it is empty.
    rules: usize,
    /// Requests that it has paid for.
    paid: u32,
    /// The strictest rule when it was filled.
    strictest: (u16, Standing),
}

impl Batch {
    const EMPTY: Self = Self {
        whose: Whose::NOBODY,
        stretches: [Stretch::NONE; RULES_MAX],
        rules: 0,
        paid: 0,
        strictest: (NO_RULE, Standing { remaining: 0, more_ns: 0, full_ns: 0 }),
    };
}

/// What the batches of one worker take, in bytes: for good, if its rules use any.
const BYTES: usize = CLIENTS as usize * (size_of::<Batch>() + size_of::<Seen>());

// I2.
const _: () = assert!(BYTES <= 1 << 20);

/// The batches of one worker.
pub(crate) struct Batches {
    seen: Vec<Seen>,
    list: Vec<Batch>,
}

impl Batches {
    /// None yet; where they `are_used`, with room for them.
    pub(crate) fn new(are_used: bool) -> Self {
        let clients = if are_used { CLIENTS as usize } else { 0 };
        Self { seen: alloc::vec![Seen::default(); clients], list: alloc::vec![Batch::EMPTY; clients] }
    }

    fn get(&mut self, whose: &Whose) -> Option<&mut Batch> {
        if !self.has_seen(whose) {
            return None;
        }
        self.list.get_mut(whose.place()).filter(|batch| batch.whose == *whose)
    }

    /// Pays for a request at `now` from the batch that is for it; the strictest rule when that was filled. None
    /// where there is none, or too little left in it.
    pub(crate) fn pay(&mut self, whose: &Whose, now: Time) -> Option<(u16, Standing)> {
        let batch = self.get(whose).filter(|batch| batch.rules > 0)?;
        let mut after = batch.stretches;
        for stretch in after.iter_mut().take(batch.rules) {
            *stretch = stretch.pay(now)?;
        }
        batch.stretches = after;
        batch.paid = batch.paid.saturating_add(1);
        Some(batch.strictest)
    }

    /// What is left of the batch of a client that goes to the table: a stretch for each rule, or none.
    pub(crate) fn unused(&mut self, whose: &Whose) -> impl Iterator<Item = Stretch> {
        self.get(whose).into_iter().flat_map(|batch| batch.stretches.into_iter().take(batch.rules))
    }

    /// Whether a client that goes to the table at `now` asks so often that a batch is worth its while, of so many
    /// requests as a bucket gains back in `lasts_ns` nanoseconds: whether at the pace since it last went enough of
    /// them come in that time.
    pub(crate) fn is_worth(&mut self, whose: &Whose, lasts_ns: u64, now: Time) -> bool {
        let seen = self.seen.get(whose.place()).copied().filter(|seen| seen.who == whose.who);
        let Some(seen) = seen else { return false };
        let asked = u64::from(self.get(whose).map_or(0, |batch| batch.paid)) + 1;
        seen.age_ns(now).saturating_mul(u64::from(REQUESTS_MIN)) <= lasts_ns.saturating_mul(asked)
    }

    /// Whether a client was the last to go to the table from its place.
    pub(crate) fn has_seen(&self, whose: &Whose) -> bool {
        self.seen.get(whose.place()).is_some_and(|seen| seen.who == whose.who)
    }

    /// Notes that a client went to the table at `now`.
    pub(crate) fn see(&mut self, whose: &Whose, now: Time) {
        if let Some(seen) = self.seen.get_mut(whose.place()) {
            *seen = Seen { who: whose.who, at: Seen::at(now) };
        }
    }

    /// Keeps what a client has withdrawn, a stretch for each rule, whose strictest is given.
    pub(crate) fn fill(
        &mut self,
        whose: &Whose,
        stretches: impl Iterator<Item = Stretch>,
        strictest: (u16, Standing),
    ) {
        let Some(batch) = self.list.get_mut(whose.place()) else { return };
        *batch = Batch { whose: *whose, strictest, ..Batch::EMPTY };
        for (room, stretch) in batch.stretches.iter_mut().zip(stretches) {
            *room = stretch;
            batch.rules += 1;
        }
    }

    /// Forgets a client's batch: what it had not used went back, or some of it.
    pub(crate) fn forget(&mut self, whose: &Whose) {
        if let Some(batch) = self.get(whose) {
            *batch = Batch::EMPTY;
        }
    }
}
