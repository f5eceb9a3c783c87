//! Sharing of a rule's quota among POPs: the local burst of a POP, and the floors of regions.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::quota::Quota;
use crate::refill_policy::RefillPolicy;

pub const FLOORS_MAX: usize = 32;
pub const REGION_NAME_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Sharing {
    /// True if a POP spends only tokens that were debited from the budget beforehand.
    pub strict: bool,
    /// Maximum number of tokens that one POP admits at once before weir-sync has a report of the key: 1 to the burst.
    pub local_burst: u32,
    pub floors: Vec<Floor>,
    /// Refill policy of the budget. Policies other than the continuous one require `strict`, no floors, a `local_burst`
    /// of the whole burst, and a burst of at most [`RefillPolicy::tokens_max`].
    pub refill_policy: RefillPolicy,
}

/// A part of a quota that is reserved for a region while it has demand.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Floor {
    pub region: String,
    pub percent: u8,
}

/// Behaviour of a POP in fallback, after too long a time without weir-sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSyncLoss {
    /// Limits by the whole quota: fails open.
    #[default]
    Local,
    /// Limits by the fair share of the quota.
    Share,
    /// Refuses every request with status 503: fails closed.
    Deny,
}

impl Sharing {
    /// The default for a rule with `quota`: not strict, no floors, the whole burst at every POP.
    pub const fn of(quota: Quota) -> Self {
        Self { strict: false, local_burst: quota.burst(), floors: Vec::new(), refill_policy: RefillPolicy::Continuous }
    }

    /// True if every field is valid with `quota`, and the floors add up to at most 100 %.
    pub fn fits(&self, quota: Quota) -> bool {
        let named = |floor: &Floor| is_region_name(&floor.region) && (1..=100).contains(&u32::from(floor.percent));
        let is_plain = self.strict && self.floors.is_empty() && self.local_burst == quota.burst();
        (1..=quota.burst()).contains(&self.local_burst)
            && (self.refill_policy == RefillPolicy::Continuous || is_plain && self.refill_policy.is_valid())
            && quota.burst() <= self.refill_policy.tokens_max()
            && self.floors.len() <= FLOORS_MAX
            && self.floors.iter().all(named)
            && self.floors.iter().map(|floor| u32::from(floor.percent)).sum::<u32>() <= 100
    }

    pub fn floor(&self, region: &str) -> u8 {
        self.floors.iter().find(|floor| floor.region == region).map_or(0, |floor| floor.percent)
    }
}

/// True if `name` is a valid name of a region: 1 to [`REGION_NAME_MAX`] of `a-z`, `0-9`, `-` and `_`.
pub fn is_region_name(name: &str) -> bool {
    (1..=REGION_NAME_MAX).contains(&name.len())
        && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Calendar;
    use crate::quota::{Period, Rate};

    // I9
    #[test]
    fn a_sharing_out_of_bounds_is_refused() {
        let quota = |burst| Quota::new(Rate::new(burst, Period::Day).unwrap(), burst).unwrap();
        let floors = |floors: &[(&str, u8)]| {
            let floors = floors.iter().map(|&(region, percent)| Floor { region: region.into(), percent }).collect();
            Sharing { floors, ..Sharing::of(quota(10)) }
        };
        let strict = |refill_policy| Sharing { strict: true, refill_policy, ..Sharing::of(quota(10)) };
        let (day, log) = (RefillPolicy::Window(Calendar::DAY), RefillPolicy::Log(60));
        for (sharing, fits) in [
            (floors(&[("eu", 30), ("us", 70)]), true),
            (floors(&[("eu", 31), ("us", 70)]), false),
            (floors(&[("eu", 0)]), false),
            (floors(&[("e u", 1)]), false),
            (Sharing { local_burst: 11, ..floors(&[]) }, false),
            (Sharing { local_burst: 0, ..floors(&[]) }, false),
            (strict(day), true),
            (Sharing { floors: floors(&[("eu", 30)]).floors, ..strict(day) }, false),
            (Sharing { strict: false, ..strict(day) }, false),
            (Sharing { local_burst: 9, ..strict(day) }, false),
            (strict(RefillPolicy::Window(Calendar::Month(i32::MIN))), false),
            (strict(RefillPolicy::Sliding(Calendar::MONTH)), false),
            (strict(log), true),
            (Sharing { strict: false, ..strict(log) }, false),
        ] {
            assert_eq!(sharing.fits(quota(10)), fits, "{sharing:?}");
        }
        for (burst, fits) in [(1_000, true), (1_001, false)] {
            let log = Sharing { local_burst: burst, ..strict(log) };
            assert_eq!(log.fits(quota(burst)), fits, "{burst}");
        }
    }
}
