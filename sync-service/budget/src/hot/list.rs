//! List of hot keys that regions share through a store, with all that another region needs to divide a key's budget.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use weir_protocol::messages::RULE_NAME_MAX;
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::sharing::{FLOORS_MAX, Floor, Sharing};

use crate::budget::BudgetId;
use crate::divide::RANK_MAX;
use crate::id::{Hex, TextError, value_of};

/// Maximum number of hot keys; beyond it, keys that rest are dropped first, then those with the lowest weight.
pub const HOT_MAX: usize = 4_096;

/// Time for which a key stays on the list after a region last added it, in milliseconds.
pub const LISTED_MS: u64 = 1_000;

/// A hot key as regions exchange it. Its text form is `<nanoseconds a token>:<burst>:<local burst>:<floors>:<value in
/// hex>:<rule>`, floors as `<region>=<percent>,...`; a key that rests has `~` before it. Strict rules have no hot keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HotKey {
    pub id: BudgetId,
    pub quota: Quota,
    pub sharing: Sharing,
    /// True if the region that added it has no demand for it: other regions keep it, and need not read its budget.
    pub rests: bool,
    /// Rank from 0 to [`RANK_MAX`] for the store, which replaces lower ones first; keys read from the list have rank 0.
    pub rank: u8,
}

impl fmt::Display for HotKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rests {
            f.write_str("~")?;
        }
        write!(f, "{}:{}:{}:", self.quota.token_ns(), self.quota.burst(), self.sharing.local_burst)?;
        for (i, floor) in self.sharing.floors.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}={}", floor.region, floor.percent)?;
        }
        write!(f, ":{}:{}", Hex(&self.id.value), self.id.rule)
    }
}

impl FromStr for HotKey {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        parse(text).ok_or(TextError("<ns a token>:<burst>:<local burst>:<floors>:<value in hex>:<rule>"))
    }
}

fn parse(text: &str) -> Option<HotKey> {
    let (rests, text) = text.strip_prefix('~').map_or((false, text), |text| (true, text));
    let mut parts = text.splitn(6, ':');
    let (token_ns, burst) = (number(parts.next()?)?, number(parts.next()?)?);
    let quota = Quota::from_token_ns(token_ns, u32::try_from(burst).ok()?).ok()?;
    let local_burst = u32::try_from(number(parts.next()?)?).ok()?;
    let sharing =
        Sharing { strict: false, local_burst, floors: floors(parts.next()?)?, refill_policy: RefillPolicy::Continuous };
    let value = value_of(parts.next()?)?;
    let rule = parts.next().filter(|rule| (1..=RULE_NAME_MAX).contains(&rule.len()))?;
    let id = BudgetId::new(rule.into(), value);
    sharing.fits(quota).then_some(HotKey { id, quota, sharing, rests, rank: 0 })
}

fn floors(text: &str) -> Option<Vec<Floor>> {
    // One more than allowed, so that a longer list is refused and not cut.
    let parts = text.split(',').filter(|part| !part.is_empty()).take(FLOORS_MAX + 1);
    let floor = |part: &str| {
        let (region, percent) = part.split_once('=')?;
        Some(Floor { region: String::from(region), percent: u8::try_from(number(percent)?).ok()? })
    };
    parts.map(floor).collect()
}

/// Parses digits only; `parse` alone would accept a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// List of hot keys, for stores without one of their own.
#[derive(Debug, Default)]
pub struct HotList {
    /// Rank of each key and end of its listing, in milliseconds of the store's clock.
    listed: BTreeMap<HotKey, (u8, u64)>,
}

impl HotList {
    /// Adds a region's hot keys to the list at `now_us`; returns all keys on it, at most [`HOT_MAX`]. On a full list, a
    /// new key replaces one with a lower rank that ends first, or is not added.
    pub fn exchange(&mut self, mine: &[HotKey], now_us: u64) -> Vec<HotKey> {
        let over_ms = now_us / 1_000;
        let until_ms = over_ms.saturating_add(LISTED_MS);
        // An end too far ahead is from before the clock stepped back.
        self.listed.retain(|_, (_, until)| *until > over_ms && *until <= until_ms);
        let mut first: Option<(u8, HotKey)> = None;
        for key in mine {
            let (rank, listed) = (key.rank.min(RANK_MAX), HotKey { rank: 0, ..key.clone() });
            if !self.listed.contains_key(&listed) && self.listed.len() >= HOT_MAX {
                let lowest = first.take().or_else(|| self.first());
                match lowest {
                    Some((lowest, leaving)) if lowest < rank => drop(self.listed.remove(&leaving)),
                    stays => {
                        first = stays;
                        continue;
                    }
                }
            }
            first = first.filter(|(_, known)| *known != listed);
            self.listed.insert(listed, (rank, until_ms));
        }
        self.listed.keys().cloned().collect()
    }

    /// The key to replace next, and its rank.
    fn first(&self) -> Option<(u8, HotKey)> {
        let first = self.listed.iter().min_by_key(|(key, turn)| (**turn, *key));
        first.map(|(key, (rank, _))| (*rank, key.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;
    use weir_protocol::messages::KEY_BYTES_MAX;

    fn floor() -> impl Strategy<Value = Floor> {
        ("[a-z0-9_-]{1,64}", 1..=3_u8).prop_map(|(region, percent)| Floor { region, percent })
    }

    prop_compose! {
        fn hot_key()(
            token_ns in 1_000..1_000_000_000_u64, burst in 1..1_000_000_u32, part in 0.0..1.0_f64,
            floors in prop::collection::vec(floor(), 0..=FLOORS_MAX),
            value in prop::collection::vec(any::<u8>(), 1..=KEY_BYTES_MAX), rule in "\\PC{1,16}",
            rests in any::<bool>(),
        ) -> HotKey {
            let quota = Quota::from_token_ns(token_ns, burst).unwrap();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of it")]
            let local_burst = ((f64::from(burst) * part) as u32).max(1);
            let sharing = Sharing { strict: false, local_burst, floors, refill_policy: RefillPolicy::Continuous };
            HotKey { id: BudgetId::new(rule, value), quota, sharing, rests, rank: 0 }
        }
    }

    #[test]
    fn refuses_what_is_no_hot_key() {
        let good = "10000000:100:50:eu=30,us=20:0aff:per-address";
        assert_eq!(good.parse::<HotKey>().unwrap().to_string(), good);
        assert!("10000000:100:50::0aff:a:b::c".parse::<HotKey>().is_ok(), "a rule's name may hold a colon");
        let many: Vec<String> = (0..=FLOORS_MAX).map(|i| std::format!("r{i}=1")).collect();
        let long_value = "00".repeat(KEY_BYTES_MAX + 1);
        for bad in [
            "",
            "10000000:100:0aff:per-address",
            "0:100:50::0aff:r",
            "+10000000:100:50::0aff:r",
            "~~10000000:100:50::0aff:r",
            "10000000:0:50::0aff:r",
            "10000000:100:101::0aff:r",
            "10000000:100:0::0aff:r",
            "10000000:100:50:eu=60,us=41:0aff:r",
            "10000000:100:50:eu:0aff:r",
            "10000000:100:50:EU=30:0aff:r",
            "10000000:100:50:eu=+3:0aff:r",
            &std::format!("10000000:100:50:{}:0aff:r", many.join(",")),
            "10000000:100:50::0af:r",
            "10000000:100:50::+aff:r",
            "10000000:100:50::\u{e9}:r",
            "10000000:100:50:::r",
            &std::format!("10000000:100:50::{long_value}:r"),
            "10000000:100:50::0aff:",
            &std::format!("10000000:100:50::0aff:{}", "r".repeat(RULE_NAME_MAX + 1)),
        ] {
            assert!(bad.parse::<HotKey>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn reads_what_it_writes(key in hot_key()) {
            prop_assert_eq!(key.to_string().parse::<HotKey>(), Ok(key));
        }

        #[test]
        fn reads_anything_without_a_panic(text in "\\PC{0,80}|[0-9:=,a-f]{0,80}") {
            if let Ok(key) = text.parse::<HotKey>() {
                prop_assert!(key.sharing.fits(key.quota));
                prop_assert_eq!(key.to_string().parse::<HotKey>(), Ok(key));
            }
        }
    }
}
