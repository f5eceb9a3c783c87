//! Divides the budgets of a fleet's rate limiter: one quota, spent at many points of presence (POPs).
//!
//! Each POP decides by itself, reports what it admitted, and is told with the reply what it may admit until the next.
//! In between stands a weir-sync, which charges the reports to budgets in a store. [`hub::Hub`] is all of a weir-sync
//! but its IO: it is driven with reports, the store's answers and the time, and says what to ask and to reply. The
//! budgets that a store keeps are here too: [`budget::Budget`], and [`escrow::Escrow`] where no token may be
//! spent before it is debited.
//!
//! ```
//! use weir_budget::budget::Budget;
//! use weir_budget::divide::Terms;
//! use weir_budget::hub::{Answers, Hub, Settings};
//! use weir_wire::quota::Quota;
//! use weir_wire::sharing::Sharing;
//! use weir_wire::time::Time;
//! use weir_wire::messages::{Key, Report, Rule};
//!
//! let member = String::from("eu");
//! let settings = Settings { member, terms: Terms::default(), pop_ttl_ns: 10_000_000_000, pops_expected: 0 };
//! let mut hub = Hub::new(settings);
//!
//! // A POP has admitted 70 of a client's requests, which may make 100 at once and 10 a second.
//! let quota = Quota::from_token_ns(100_000_000, 100)?;
//! let rules = vec![Rule { name: "per-address".into(), quota, sharing: Sharing::of(quota) }];
//! let key = Key { value: vec![4, 32, 192, 0, 2, 1], admitted: 70, unconfirmed: 70, asked: 70, ..Key::default() };
//! let report = Report { pop: "fra1".into(), sequence: 1, rules, keys: vec![key], ..Report::default() };
//!
//! // The report comes in, and what it asks of the store goes out. A `Budget` is the store here.
//! let (now, unix_us) = (Time::from_nanos(1_000_000_000), 1_800_000_000_000_000);
//! let pending = hub.report(now, unix_us, report);
//! let mut budget = Budget::default();
//! let charge = pending.entries()[0].charge("eu", pending.pop());
//! let account = budget.charge(unix_us, &charge);
//! assert_eq!(account.charged, 70);
//!
//! // The account comes in, and the reply goes out: a grant of what is left.
//! let answers: Answers<()> = Answers { accounts: vec![Ok(account)], drawn: vec![], pops: Ok(1) };
//! let outcome = hub.settle(now, 0, pending, answers);
//! let grant = outcome.reply.grants[0].grant().expect("a key that is close to its quota");
//! assert!(outcome.reply.settled.is_all() && grant.level_milli == 30_000);
//! # Ok::<(), weir_wire::quota::QuotaError>(())
//! ```
//!
//! What [`hub`] is made of, in the order a report meets it:
//!
//! 1. [`pops`] knows who reports here, and how large the fleet is;
//! 2. [`claims`] lets no more through than a POP can have admitted; [`ban`] sees to it that every POP hears of the keys that a penalty holds, and [`push`] that it heard;
//! 3. [`region`] makes a [`plan`] of the report: what to charge, and for strict rules what to draw; [`demand`] turns
//!    its cumulative counts into requests per second;
//! 4. the store charges a [`budget`], exactly once: [`source`] knows what was charged for a POP and how late its
//!    reports are, `clock` tells time that passed from a step of the store's clock, [`spill`] pays for late reports,
//!    [`spread`] remembers how deep a budget went;
//! 5. it draws on an [`escrow`], which refills by the law of its rule: steadily, or by windows;
//! 6. [`divide`] turns an account into a grant, [`floors`] evens out what is a region's own, and [`heat`] says how
//!    closely to watch the key;
//! 7. [`hot`] knows the keys that every POP must hear of, [`heard`] how budgets stood, and with the store out of reach
//!    [`alone`] goes on from there with the region's own share.
//!
//! [`busy`] knows for operators which keys are asked for, admitted and limited most, [`decisions`] what each rule decides, and
//! [`statuses`] how the POPs are.
//! [`store_clock`] keeps a jump of the store's clock from refilling budgets.
//! [`bound`] says how far above the quota all POPs can get, [`figures`] how things stand, and [`text`] writes keys.
//!
//! This crate knows no clock, no socket and no store: time is an argument, and a store may do the same elsewhere. The
//! Redis scripts of weir-sync are translations of [`budget::Budget::charge`] and [`escrow::Escrow::draw`],
//! and one test suite runs over both.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod alone;
pub mod ban;
pub mod bound;
mod bounded;
pub mod budget;
pub mod busy;
pub mod claims;
mod clock;
pub mod decisions;
pub mod demand;
pub mod divide;
pub mod escrow;
pub mod figures;
pub mod floors;
pub mod hashed;
pub mod heard;
pub mod heat;
pub mod hot;
pub mod hub;
pub mod id;
pub mod plan;
pub mod pops;
pub mod push;
pub mod region;
mod scaled;
mod sorted;
pub mod source;
pub mod spill;
pub mod spread;
pub mod statuses;
pub mod store_clock;
pub mod text;
