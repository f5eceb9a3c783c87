//! A watched entry as words of eight bytes, after its tag.
//!
//! ```text
//!  word 0  bucket    64 b  time at which it is full again
//!       1  until     40 b  in steps of 2^22 ns
//!          moment    24 b  likewise; unconfirmed_since of a bounded rule, updated_at of a strict one
//!       2  admitted  32 b
//!          epoch     32 b
//!       3  charged   32 b
//!          count     32 b  asked of a bounded rule, awaited of a strict one
//!       4  divisor   12 b  rate divisor; of a strict rule, the rest of until, in steps of 2^10 ns
//!          tokens    20 b
//!          ratio     32 b  admit ratio, or a marker above all ratios
//! ```
//!
//! The fields of a word are listed from its upper bits to its lower.

use crate::algorithms::Bucket;
use crate::table::slot::entry::{Bounded, Hold, SharingState, Strict, Watched};
use crate::table::slot::moment::{FINE_BITS, MOMENT_BITS, Moment, STEP_BITS};
use weir_protocol::messages::{AdmitRatio, DIVISOR_MAX};
use weir_protocol::quota::TOKENS_MAX;
use weir_protocol::time::Time;

/// Words of a watched entry after its tag.
pub(crate) const WATCHED_WORDS: usize = 5;

/// Markers in place of an admit ratio, for entries without a grant: above every ratio.
const SHARE: u32 = AdmitRatio::ONE.bits() + 1;
const LEASE: u32 = SHARE + 1;
const BAR: u32 = LEASE + 1;
/// Bits of an entry's tokens; the rest of that half holds its rate divisor.
const BURST_BITS: u32 = 20;
const BURST_MASK: u32 = (1 << BURST_BITS) - 1;
const _: () = assert!(TOKENS_MAX <= BURST_MASK && DIVISOR_MAX <= u32::MAX >> BURST_BITS);
/// Number of steps of a strict rule's times in one step of the others.
const FINE_STEPS: u32 = 1 << (STEP_BITS - FINE_BITS);
const _: () = assert!(FINE_STEPS - 1 <= u32::MAX >> BURST_BITS);

impl Watched {
    /// Number of leading words that requests change: the bucket, `unconfirmed_since` and `admitted`. The end and
    /// the epoch are in them, too, and stay.
    pub(crate) const WORDS_OF_REQUESTS: usize = 3;

    /// Decodes an entry.
    pub(crate) fn from_words([bucket, times, admitted, charged, hold]: [u64; WATCHED_WORDS]) -> Self {
        let (moment, count) = (Moment::from_bits(low(times)), low(charged));
        let (tokens, divisor) = (high(hold) & BURST_MASK, high(hold) >> BURST_BITS);
        let steps = times >> MOMENT_BITS << STEP_BITS;
        let bounded = |hold| SharingState::Bounded(Bounded { asked: count, unconfirmed_since: moment, hold });
        let (until, kind) = match low(hold) {
            stands @ (LEASE | BAR) => {
                let is_barred = stands == BAR;
                let strict = Strict { awaited: count, updated_at: moment, is_barred, left: tokens };
                (steps | u64::from(divisor) << FINE_BITS, SharingState::Strict(strict))
            }
            SHARE => (steps, bounded(Hold::Share { cost: tokens, pops: divisor.max(1) })),
            ratio => {
                let (ratio, divisor) = (AdmitRatio::from_bits(ratio), divisor.max(1));
                (steps, bounded(Hold::Grant { ratio, burst: tokens, divisor }))
            }
        };
        Self {
            bucket: Bucket::full_at(Time::from_nanos(bucket)),
            until: Time::from_nanos(until),
            epoch: low(admitted),
            admitted: high(admitted),
            charged: high(charged),
            kind,
        }
    }

    /// Encodes the entry.
    pub(crate) fn to_words(self) -> [u64; WATCHED_WORDS] {
        let (moment, count, ratio, divisor) = match self.kind {
            SharingState::Bounded(Bounded { asked, unconfirmed_since, hold: Hold::Grant { ratio, divisor, .. } }) => {
                (unconfirmed_since, asked, ratio.bits(), divisor)
            }
            SharingState::Bounded(Bounded { asked, unconfirmed_since, hold: Hold::Share { pops, .. } }) => {
                (unconfirmed_since, asked, SHARE, pops)
            }
            SharingState::Strict(Strict { awaited, updated_at, is_barred, .. }) => {
                let fine = low(self.until.as_nanos() >> FINE_BITS) % FINE_STEPS;
                (updated_at, awaited, if is_barred { BAR } else { LEASE }, fine)
            }
        };
        [
            self.bucket.refilled().as_nanos(),
            self.until.as_nanos() >> STEP_BITS << MOMENT_BITS | u64::from(moment.bits()),
            word(self.admitted, self.epoch),
            word(self.charged, count),
            word(divisor << BURST_BITS | self.kind.tokens() & BURST_MASK, ratio),
        ]
    }
}

#[allow(clippy::cast_possible_truncation, reason = "half of it")]
const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    low(word >> 32)
}

const fn word(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}
