//! What weir-sync answers.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::coding::{Message, WireError, expect};
use super::limits::{KEYS_MAX, POPS_MAX, RULES_MAX};
use super::report::{Ban, check_bans};
use crate::quota::Quota;

/// What weir-sync answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The sequence number of the report this answers.
    pub sequence: u64,
    /// Live POPs in the fleet, at least 1: an even share is a quota divided by this.
    pub pops: u32,
    /// Whether `pops` is a guess: the sender knows of no POPs but those that report to it.
    pub is_guess: bool,
    /// Which of the report's keys are charged: their counts are confirmed. What is granted for the others comes out of the
    /// region's own share, unless they are charged in part.
    pub settled: Settled,
    /// An allowance for each key of the report, in the report's order. Empty if there is nothing to say
    /// about them; then nothing changes.
    pub grants: Vec<Allowance>,
    /// The version of the rule set that the fleet is to run; 0 if none was ever pushed.
    pub rule_set: u64,
    /// The names of the rules that `pushed` and `bans` refer to.
    pub rules: Vec<String>,
    /// Grants for hot keys that the report did not name, so that the POP holds them before the key's
    /// client arrives there.
    pub pushed: Vec<Pushed>,
    /// Keys that were banned elsewhere recently.
    pub bans: Vec<Ban>,
    /// How many workers of the POP report keys, and so share what it may report; 0 if unknown.
    pub workers: u32,
}

/// Which keys of a report are charged in full. The others' budgets are out of reach, or what they claim is refused or more
/// than their POP may claim at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settled {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// A part: a bit for each key, in the report's order and from the lowest bit of each byte, says that it is not.
    But(Vec<u8>),
}

impl Settled {
    /// What is to be said of these keys, in the report's order: whether each is charged.
    pub fn of(charged: impl ExactSizeIterator<Item = bool>) -> Self {
        let keys = charged.len();
        let (mut but, mut failed) = (alloc::vec![0; keys.div_ceil(8)], 0);
        for (place, _) in charged.enumerate().filter(|(_, is_charged)| !is_charged) {
            if let Some(bits) = but.get_mut(place / 8) {
                *bits |= 1 << (place % 8);
                failed += 1;
            }
        }
        match failed {
            0 => Self::All,
            failed if failed == keys => Self::None,
            _ => Self::But(but),
        }
    }

    /// Whether all keys are charged.
    pub fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Whether the key at this place in the report is charged.
    pub fn covers(&self, place: usize) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::But(but) => but.get(place / 8).is_some_and(|bits| bits >> (place % 8) & 1 == 0),
        }
    }
}

/// A grant for a key that a POP did not ask about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pushed {
    /// Index into [`Reply::rules`].
    pub rule: u16,
    /// The key's value in canonical form.
    pub value: Vec<u8>,
    /// The quota that the grant is a part of. A POP whose rule has another quota, older or newer, ignores the grant.
    pub quota: Quota,
    /// What the POP may do with it.
    pub grant: Grant,
}

/// What weir-sync says about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allowance {
    /// Far from its quota: no other POP needs to hear of it, and it is reported less often.
    Warm,
    /// Close to its quota.
    Hot(Grant),
    /// A key of a strict rule.
    Leased(Leased),
}

impl Allowance {
    /// The grant, if the key is hot.
    pub fn grant(&self) -> Option<&Grant> {
        if let Self::Hot(grant) = self { Some(grant) } else { None }
    }
}

/// Tokens that were debited from the budget in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    /// All tokens debited for the key's epoch since it began, including those it has admitted since.
    pub charged: u64,
    /// How long they may be spent, in milliseconds from when the report was made.
    pub lease_ms: u32,
    /// If fewer tokens were debited than wanted: how long after the answer there are more, in
    /// milliseconds, rounded up; 0 if unknown. Of a turn that is given: how long after the answer it comes. Without a
    /// lease: when the window ends that is too short for one.
    pub wait_ms: u64,
    /// True if there may be more before that: other leases have tokens that may be given back.
    pub may_return: bool,
    /// Whole tokens that the budget has left.
    pub left: u32,
}

impl Leased {
    /// No lease: the epoch is over, or the store is out of reach.
    pub const NONE: Self = Self { charged: 0, lease_ms: 0, wait_ms: 0, may_return: false, left: 0 };

    /// `charged` tokens that may be spent for `lease_ms`; nothing more is known.
    pub const fn of(charged: u64, lease_ms: u32) -> Self {
        Self { charged, lease_ms, ..Self::NONE }
    }
}

/// What a POP may do with one hot key now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The fraction of the key's requests to let through.
    pub ratio: AdmitRatio,
    /// The most that the POP's bucket may have held when it made the report, in thousandths of a
    /// token; negative is debt. The POP subtracts what it has admitted since.
    pub level_milli: i64,
    /// The most tokens that the POP's bucket may hold while the grant is valid.
    pub burst: u32,
    /// While the grant is valid, the POP's bucket refills at the rate divided by this; a number above
    /// [`super::PARTS_MAX`] counts as that.
    pub parts: u32,
    /// How long the grant is valid, in milliseconds from its arrival.
    pub lease_ms: u32,
}

/// A fraction from 0 to 1, in steps of 2^-30.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct AdmitRatio(u32);

impl AdmitRatio {
    /// Admit nothing.
    pub const ZERO: Self = Self(0);
    /// Admit everything the bucket has.
    pub const ONE: Self = Self(1 << 30);

    /// `part / whole`, rounded down; 1 if `part` is at least `whole`, even if both are zero.
    pub const fn of(part: u64, whole: u64) -> Self {
        if part >= whole {
            return Self::ONE;
        }
        // part < whole, so the quotient is below 2^30 and the cast loses nothing.
        #[allow(clippy::cast_possible_truncation, reason = "below 2^30, see above")]
        Self(((part as u128 * Self::ONE.0 as u128) / whole as u128) as u32)
    }

    /// In steps of 2^-30.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// From steps of 2^-30; anything above 1 is 1.
    pub const fn from_bits(bits: u32) -> Self {
        if bits > Self::ONE.0 { Self::ONE } else { Self(bits) }
    }
}

impl From<AdmitRatio> for u32 {
    fn from(ratio: AdmitRatio) -> Self {
        ratio.0
    }
}

impl TryFrom<u32> for AdmitRatio {
    type Error = &'static str;

    fn try_from(bits: u32) -> Result<Self, Self::Error> {
        if bits > Self::ONE.0 { Err("an admit ratio above 1") } else { Ok(Self(bits)) }
    }
}

impl Message for Reply {
    fn validate(&self) -> Result<(), WireError> {
        expect("pops", (1..=POPS_MAX).contains(&self.pops))?;
        expect("grants", self.grants.len() <= KEYS_MAX)?;
        let bits = if let Settled::But(but) = &self.settled { Some(but.len()) } else { None };
        expect("settled", bits.is_none_or(|bytes| bytes == self.grants.len().div_ceil(8)))?;
        expect("rules", self.rules.len() <= RULES_MAX)?;
        expect("pushed", self.pushed.len() <= KEYS_MAX)?;
        let is_named = |pushed: &Pushed| usize::from(pushed.rule) < self.rules.len();
        expect("pushed[].rule", self.pushed.iter().all(is_named))?;
        check_bans(&self.bans, self.rules.len())
    }
}
