//! Budgets of a fleet's rate limiter: one quota, spent at many points of presence (POPs).
//!
//! Each POP decides by itself, reports what it admitted, and gets with the reply a grant until the next report.
//! A weir-sync in between charges the reports to budgets in a store. [`hub::Hub`] is all of a weir-sync but its
//! IO: reports, the store's answers and the time go in; questions to the store and replies come out. The
//! budgets that a store keeps are here too: [`budget::Budget`], and [`escrow::Escrow`] for strict rules, where
//! no token may be spent before it is debited.
//!
//! ```
//! use weir_budget::budget::Budget;
//! use weir_budget::divide::GrantSettings;
//! use weir_budget::hub::{StoreReplies, Hub, HubSettings};
//! use weir_budget::report_limits::ReporterKind;
//! use weir_protocol::quota::Quota;
//! use weir_protocol::sharing::Sharing;
//! use weir_protocol::time::Time;
//! use weir_protocol::messages::{Key, Report, BudgetRule};
//!
//! let (replica, terms) = (String::from("eu"), GrantSettings::default());
//! let settings = HubSettings { replica, terms, pop_ttl_ns: 10_000_000_000, pops_expected: 0 };
//! let mut hub = Hub::new(settings);
//!
//! // A POP has admitted 70 requests of a client, whose quota is 100 at once and 10 a second.
//! let quota = Quota::from_token_ns(100_000_000, 100)?;
//! let rules = vec![BudgetRule { name: "per-address".into(), quota, sharing: Sharing::of(quota) }];
//! let key = Key { value: vec![4, 32, 192, 0, 2, 1], admitted: 70, unconfirmed: 70, asked: 70, ..Key::default() };
//! let report = Report { pop: "fra1".into(), sequence: 1, rules, keys: vec![key], ..Report::default() };
//!
//! // The report comes in, and questions to the store go out. A `Budget` is the store here.
//! let (now, unix_us) = (Time::from_nanos(1_000_000_000), 1_800_000_000_000_000);
//! let pending = hub.report(ReporterKind::Pop, now, unix_us, report);
//! let mut budget = Budget::default();
//! let charge = pending.entries()[0].charge("eu", &pending.report.pop);
//! let account = budget.charge(unix_us, &charge);
//! assert_eq!(account.charged, 70);
//!
//! // The account comes in, and the reply goes out, with a grant of what is left.
//! let answers: StoreReplies<()> = StoreReplies { accounts: vec![Ok(account)], acquired: vec![], pops: Ok(1) };
//! let outcome = hub.settle(now, 0, pending, answers);
//! let grant = outcome.reply.grants[0].grant().expect("a key that is close to its quota");
//! assert!(outcome.reply.settled.is_all() && grant.level_milli == 30_000);
//! # Ok::<(), weir_protocol::quota::QuotaError>(())
//! ```
//!
//! The parts of [`hub`], in the order in which a report passes them:
//!
//! 1. [`pops`] lists the POPs that report here, and estimates the size of the fleet;
//! 2. [`report_limits`] limits a report to what its POP can have admitted; [`ban`] distributes bans to all POPs, and
//!    [`push`] repeats messages that were lost;
//! 3. [`hub`] plans the charges and, for strict rules, the acquires; [`demand`] turns counts into requests per second;
//! 4. the store charges a [`budget`], exactly once, with its [`records`], or acquires from an [`escrow`];
//! 5. [`divide`] turns an account into a grant, and decides how closely to watch the key; [`floors`] smooths the demand
//!    within a region's minimum share; [`hot`] has the keys that are pushed to every POP; [`offline`] continues
//!    without the store, with the region's own share.
//!
//! For operators there are [`top_keys`], [`decisions`] by rule, and [`bound`], how far above its quota a key can get.
//! [`store_clock`] prevents a jump of the store's clock from refilling budgets.
//!
//! # Memory
//!
//! All state has a maximum, whatever POPs report. When it is reached, the most silent or least important goes first, or
//! something new gets no room; each module says which.
//!
//! | state | one POP | all POPs | module |
//! |---|---|---|---|
//! | POPs | | 10,000 | [`pops`] |
//! | workers | 256 | 40,000 | [`pops`] |
//! | keys that are claimed | 65,536; 52 once all POPs claim 524,288 | twice 524,288 | [`report_limits`] |
//! | pushed grants that were sent | | 1,048,576 (about 80 MB) | [`push`] |
//! | replies with pushes under way | 64 | | [`push`] |
//! | rules with decision counts | 1,000 for each of 2 tables | 200,000 | [`decisions`] |
//! | budgets, with up to 1,024 buckets each | | 100,000 | [`demand`], [`floors`] |
//! | budgets that are not full, or without the store | | 100,000 each | [`offline`] |
//! | hot keys | | 4,096 | [`hot`] |
//! | bans, and bans by overrides | | 10,000 and 2,000 | [`ban`] |
//! | top keys | | 2,048 | [`top_keys`] |
//!
//! A message has at most 256 KiB ([`weir_protocol::messages`]). weir-sync adds its connections (`connections_max`) and
//! the rows of the audit log (100,000).
//!
//! This crate has no clock, no socket and no store: time is an argument, and a store may run the same code
//! elsewhere. The Redis scripts of weir-sync are translations of [`budget::Budget::charge`] and
//! [`escrow::Escrow::acquire`], and one test suite runs over both.

#![no_std]
#![allow(missing_docs, reason = "a name that says all needs no comment")]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod ban;
pub mod bound;
pub mod budget;
pub mod decisions;
pub mod demand;
pub mod divide;
pub mod escrow;
pub mod floors;
pub mod hot;
pub mod hub;
pub mod id;
pub mod offline;
pub mod pops;
pub mod push;
pub mod records;
pub mod report_limits;
mod sorted;
pub mod store_clock;
pub mod top_keys;

/// Returns `number * times / over`, rounded down and saturated at `u64::MAX`. `over == 0` counts as 1. It runs for each
/// key of a report: a division of 128 bits takes several times as long as one of 64, which is used where it suffices.
pub(crate) fn scaled(number: u64, times: u64, over: u64) -> u64 {
    let over = over.max(1);
    number.checked_mul(times).map_or_else(
        || u64::try_from(u128::from(number) * u128::from(times) / u128::from(over)).unwrap_or(u64::MAX),
        |product| product / over,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn scaled_agrees_with_wide_numbers(bits in prop::array::uniform3((any::<u64>(), 0..64_u32))) {
            let [number, times, over] = bits.map(|(bits, less)| bits >> less);
            let wide = u128::from(number) * u128::from(times) / u128::from(over.max(1));
            prop_assert_eq!(u128::from(scaled(number, times, over)), wide.min(u128::from(u64::MAX)));
        }
    }
}
