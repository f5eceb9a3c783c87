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
//! use weir_protocol::quota::Quota;
//! use weir_protocol::sharing::Sharing;
//! use weir_protocol::time::Time;
//! use weir_protocol::messages::{Key, Report, BudgetRule};
//!
//! let member = String::from("eu");
//! let settings = HubSettings { member, terms: GrantSettings::default(), pop_ttl_ns: 10_000_000_000, pops_expected: 0 };
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
//! let pending = hub.report(now, unix_us, report);
//! let mut budget = Budget::default();
//! let charge = pending.entries()[0].charge("eu", pending.pop());
//! let account = budget.charge(unix_us, &charge);
//! assert_eq!(account.charged, 70);
//!
//! // The account comes in, and the reply goes out, with a grant of what is left.
//! let answers: StoreReplies<()> = StoreReplies { accounts: vec![Ok(account)], drawn: vec![], pops: Ok(1) };
//! let outcome = hub.settle(now, 0, pending, answers);
//! let grant = outcome.reply.grants[0].grant().expect("a key that is close to its quota");
//! assert!(outcome.reply.settled.is_all() && grant.level_milli == 30_000);
//! # Ok::<(), weir_protocol::quota::QuotaError>(())
//! ```
//!
//! The parts of [`hub`], in the order in which a report passes them:
//!
//! 1. [`pops`] lists the POPs that report here, and estimates the size of the fleet;
//! 2. [`report_limits`] limits a report to what its POP can have admitted; [`ban`] distributes the keys that penalties
//!    banned to all POPs, and [`push`] repeats messages that were lost;
//! 3. [`region`] makes a [`plan`] of the report: its charges and, for strict rules, its draws; [`demand`] turns
//!    cumulative counts into requests per second;
//! 4. the store charges a [`budget`], exactly once: [`source`] records the counts charged for a POP and the
//!    delay of its reports, `clock` distinguishes time that passed from a step of the store's clock, [`unused_refill`]
//!    pays for late reports, [`fan_out`] records the fan-out of bursts;
//! 5. the store draws on an [`escrow`], which refills by its rule's refill policy: continuously, or by windows;
//! 6. [`divide`] turns an account into a grant, [`floors`] smooths the demand within a region's minimum share,
//!    and [`watch_level`] decides how closely to watch the key;
//! 7. [`hot`] keeps the keys that are pushed to every POP, and [`unfilled`] the last state of each budget; without
//!    the store, [`offline`] continues from there with the region's own share.
//!
//! For operators, [`top_keys`] keeps the top keys, [`decisions`] the decisions of each rule, and [`statuses`] the
//! state of each POP. [`store_clock`] prevents a jump of the store's clock from refilling budgets. [`bound`]
//! computes how far above its quota a key can get, [`figures`] collects gauges, and [`text`] writes keys as
//! text.
//!
//! This crate has no clock, no socket and no store: time is an argument, and a store may run the same code
//! elsewhere. The Redis scripts of weir-sync are translations of [`budget::Budget::charge`] and
//! [`escrow::Escrow::acquire`], and one test suite runs over both.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod ban;
pub mod bound;
mod bounded;
pub mod budget;
mod clock;
pub mod decisions;
pub mod demand;
pub mod divide;
pub mod escrow;
pub mod fan_out;
pub mod figures;
pub mod floors;
pub mod hashed;
pub mod hot;
pub mod hub;
pub mod id;
pub mod offline;
pub mod plan;
pub mod pops;
pub mod push;
pub mod region;
pub mod report_limits;
mod scaled;
mod sorted;
pub mod source;
pub mod statuses;
pub mod store_clock;
pub mod text;
pub mod top_keys;
pub mod unfilled;
pub mod unused_refill;
pub mod watch_level;
