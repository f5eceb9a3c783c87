//! The reply of weir-sync to a report.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Ban, KEYS_MAX, Message, POPS_MAX, RULES_MAX, WireError, check_bans, expect};
use crate::quota::Quota;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    pub sequence: u64,
    /// Number of live POPs in the fleet, at least 1. The fair share is a quota divided by it.
    pub pops: u32,
    /// True if `pops` is a guess: only the POPs that report to the sender are counted.
    pub is_guess: bool,
    /// The keys of the report that are charged, and whose counts are therefore confirmed. Grants for the other keys
    /// come out of the region's own share, unless they are charged in part.
    pub settled: Settled,
    /// An allowance for each key of the report, in its order. If empty, all allowances stay as they are.
    pub grants: Vec<Allowance>,
    /// Version of the rule set that the fleet is to run; 0 if none was ever pushed.
    pub rule_set: u64,
    /// Names of the rules that `pushed` and `bans` refer to.
    pub rules: Vec<String>,
    /// Grants for hot keys that the report did not name, so that the POP has them before a key's client arrives there.
    pub pushed: Vec<PushedGrant>,
    /// Keys that were banned elsewhere recently.
    pub bans: Vec<Ban>,
    /// Number of workers of the POP that report keys, and therefore share its report limits; 0 if unknown.
    pub workers: u32,
}

/// The keys of a report that are charged in full. For the others, the budget is unreachable or a report limit exceeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settled {
    #[default]
    None,
    All,
    /// All keys but those with a set bit. Bits are in the report's order, from the lowest bit of each byte.
    But(Vec<u8>),
}

impl Settled {
    /// Encodes a bool for each key in the report's order: true if the key is charged.
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

    pub fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// True if the key at this index of the report is charged.
    pub fn covers(&self, place: usize) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::But(but) => but.get(place / 8).is_some_and(|bits| bits >> (place % 8) & 1 == 0),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushedGrant {
    /// Index into [`Reply::rules`].
    pub rule: u16,
    pub value: Vec<u8>,
    /// The quota that the grant was made for. A POP whose rule has another quota, older or newer, ignores the grant.
    pub quota: Quota,
    pub grant: Grant,
}

/// The result for one key of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allowance {
    /// Warm: far from its quota. The key is reported less often, and no other POP receives a grant for it.
    Warm,
    /// Hot: close to its quota.
    Hot(Grant),
    Leased(Leased),
}

impl Allowance {
    pub fn grant(&self) -> Option<&Grant> {
        if let Self::Hot(grant) = self { Some(grant) } else { None }
    }
}

/// Tokens that were debited from the budget in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    /// All tokens debited for the key's epoch since it began, including those that were admitted since.
    pub charged: u64,
    /// Time for which they may be spent, in milliseconds from the time of the report.
    pub lease_ms: u32,
    /// Time after the reply until more tokens are available, if fewer were debited than wanted; 0 if unknown. For a
    /// granted turn: time after the reply until the turn. Without a lease: time until the end of a window that is too
    /// short for one. In milliseconds, rounded up.
    pub wait_ms: u64,
    /// True if more tokens may be available sooner, because other leases may be returned.
    pub may_return: bool,
    pub left: u32,
}

impl Leased {
    /// No lease: the epoch is over, or the store is unreachable.
    pub const NONE: Self = Self { charged: 0, lease_ms: 0, wait_ms: 0, may_return: false, left: 0 };

    pub const fn of(charged: u64, lease_ms: u32) -> Self {
        Self { charged, lease_ms, ..Self::NONE }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub ratio: AdmitRatio,
    /// Upper limit of the level of the POP's bucket when it made the report, in thousandths of a token;
    /// negative is debt. The POP subtracts what it has admitted since.
    pub level_milli: i64,
    /// Maximum number of tokens in the POP's bucket while the grant is valid.
    pub burst: u32,
    /// Rate divisor: while the grant is valid, the POP's bucket refills at the rate divided by this. Values above
    /// [`super::DIVISOR_MAX`] count as the maximum.
    pub divisor: u32,
    /// Validity of the grant, in milliseconds from its arrival.
    pub lease_ms: u32,
}

/// A fraction from 0 to 1, in steps of 2^-30.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32")]
pub struct AdmitRatio(u32);

impl AdmitRatio {
    pub const ZERO: Self = Self(0);
    pub const ONE: Self = Self(1 << 30);

    /// `part / whole`, rounded down; 0 if `part` is 0, 1 if it is at least `whole` or 2^98.
    pub fn of(part: u128, whole: u128) -> Self {
        if part == 0 {
            return Self::ZERO;
        }
        if part >= whole {
            return Self::ONE;
        }
        let scaled = part.checked_mul(Self::ONE.0.into()).and_then(|steps| u32::try_from(steps / whole).ok());
        scaled.map_or(Self::ONE, Self)
    }

    /// The ratio in steps of 2^-30.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// A ratio in steps of 2^-30; values above 1 count as 1.
    pub const fn from_bits(bits: u32) -> Self {
        if bits > Self::ONE.0 { Self::ONE } else { Self(bits) }
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
        let is_named = |pushed: &PushedGrant| usize::from(pushed.rule) < self.rules.len();
        expect("pushed[].rule", self.pushed.iter().all(is_named))?;
        check_bans(&self.bans, self.rules.len())
    }
}
