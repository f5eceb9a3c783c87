//! Budgets of a fleet's rate limiter: one quota, spent at many points of presence (POPs).
//!
//! Each POP decides by itself, reports what it admitted, and gets a grant until the next report with the reply. A
//! weir-sync in between charges the reports to budgets in a store. [`hub::Hub`] is a weir-sync without its IO: reports,
//! the store's answers and the time go in; questions to the store and replies come out. The store's budgets are here
//! too: [`budget::Budget`], and [`escrow::Escrow`] for strict rules, where tokens are debited before they are spent.
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
//!    within a region's minimum share; [`hot`] keeps the keys whose grants are pushed to every POP; [`offline`]
//!    continues without the store, with the region's own share.
//!
//! For operators there are [`top_keys`], [`decisions`] by rule, and [`bound`], how far above its quota a key can get.
//! [`store_clock`] prevents a jump of the store's clock from refilling budgets.
//!
//! # Memory
//!
//! All state has a maximum, whatever POPs report. At the maximum, the most silent or least important entry is dropped,
//! or a new one gets no room; each module states which.
//!
//! | state | one POP | all POPs | bytes each, about | module |
//! |---|---|---|---|---|
//! | POPs | | 10,000 | 2,000 | [`pops`] and those that list POPs |
//! | workers | 256 | 40,000 | 110 | [`pops`] |
//! | keys that are claimed | 65,536; 52 once all POPs claim 524,288 | twice 524,288 | 520 | [`report_limits`] |
//! | pushed grants that were sent | 4,096 per version of its rules | 1,048,576 | 100 | [`push`], [`hot`] |
//! | replies with pushes under way | 64 with grants, 64 with bans | | 50, and 16 per grant | [`push`] |
//! | rules with decision counts | 1,000 for each of 2 tables | 200,000 | 170 | [`decisions`] |
//! | rules with rates | | 1,000 | 2,500 | [`decisions`] |
//! | budgets, with up to 1,024 buckets each | | 100,000 | 90, and 420 per bucket | [`demand`] |
//! | budgets with a floor, with up to 1,024 buckets each | | 100,000 | 120, and 110 per bucket | [`floors`] |
//! | budgets that are not full | | 100,000 | 60 | [`offline`] |
//! | budgets without the store | | 100,000 | 500, and 130 per bucket | [`offline`] |
//! | hot keys | | 4,096 | 300, and 100 per floor | [`hot`] |
//! | bans, and bans by overrides | | 10,000 and 2,000 | 700 | [`ban`] |
//! | top keys | | 2,048 | 1,300 | [`top_keys`] |
//!
//! Bytes are computed from the types on 64 bits: the size of an entry in a map that is two thirds full, and its heap,
//! with names and keys of 64 bytes, without the allocator's own. A budget's name is shared, and part of the 520 of a
//! claimed key.
//!
//! So a POP at its maxima takes about 72 MB, of which 71 MB are its 65,536 keys: 1,090 bytes for a key that is claimed,
//! has demand in one bucket, and a budget that is not full. Floors add 230 bytes to a key, and an outage of the store
//! 630. With 52 keys a POP takes up to 1 MB, and all POPs together take about 1.2 GB. These sums count one bucket per
//! key and POP. A POP that makes up epochs gets more: 430 KB for the 1,024 of one budget.
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
