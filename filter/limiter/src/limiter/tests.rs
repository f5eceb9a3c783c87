mod crowded;
mod forgotten;
mod in_a_fleet;
mod keys;
mod lists;
mod quick;
mod quota;
mod regexes;
mod replace;
mod reports;
mod reserve;
mod rollback;
mod rule_model;
mod several_rules;
mod strict;
mod strict_workers;
mod tiers;
mod turns;
mod workers;

use super::*;
use crate::RuleIndex;
use crate::algorithms::{Bucket, BucketStatus};
use crate::check::{Decision, DecisionKind, EndAction};
use crate::counters::CountedEvent;
use crate::sync::CallPurpose;
use crate::table::slot::Slot;
use crate::table::{HashSecret, LocalSlots, ReadError, Slots, Version, WriteError};
use alloc::vec::Vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::string::String;
use std::vec;
use weir_protocol::messages::{AdmitRatio, Allowance, Grant, Message, Reply, Report, Settled};
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::reading::ErrorCollector;
use weir_rules::request::{Attribute, Request};
use weir_rules::{RuleSet, document};

const T0: Time = Time::from_nanos(1_000_000 * SECOND_NS);
const MS: u64 = 1_000_000;

struct Client(String);

impl Request for Client {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::SourceAddress => Some(self.0.clone().into()),
            Attribute::Path => Some(b"/".to_vec()),
            _ => None,
        }
    }
}

/// A request with these attributes: its `source`, its `path`, and headers.
struct Asks<'a>(Vec<(&'a str, &'a str)>);

impl Request for Asks<'_> {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        let name = match attribute {
            Attribute::SourceAddress => "source",
            Attribute::Path => "path",
            Attribute::Header(name) => name,
            _ => return None,
        };
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
    }
}

fn rules(value: &Value) -> RuleSet {
    let errors = ErrorCollector::default();
    let rules = document::read(&json!({"rules": value}), &errors);
    errors.into_result(rules).unwrap()
}

/// `rule` with these fields in place of its own.
fn changed(mut rule: Value, fields: &Value) -> Value {
    rule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    rule
}

/// An encoded reply with a grant for each key, all of which it settles.
fn reply(sequence: u64, pops: u32, grants: Vec<Allowance>) -> Vec<u8> {
    Reply { sequence, pops, settled: Settled::All, grants, ..Reply::default() }.encode()
}

fn one_rule(rate: &str, burst: u32) -> RuleSet {
    rules(&json!([{"name": "r", "key": ["client_address"], "rate": rate, "burst": burst}]))
}

fn limiter(rules: impl Into<Arc<RuleSet>>, worker: Option<u64>) -> Limiter {
    let identity = TableIdentity { secret: HashSecret::new([7; 16]), table_id: 9 };
    Limiter::new(rules, identity, worker.map(|worker| Reporter { pop: "a".into(), worker }))
}

fn ask(limiter: &mut Limiter, slots: &mut dyn Slots, address: &str, now: Time) -> Decision {
    limiter.decide(&mut Client(address.into()), slots, now)
}

/// The report that a request waits for, and the number of that call.
fn waiting_for(decision: Decision) -> (Report, u64) {
    match decision {
        Decision::Wait(report) => (*report.clone(), report.sequence),
        decided => panic!("expected it to wait, found {decided:?}"),
    }
}

/// Number of requests that wait.
fn acquiring(limiter: &Limiter) -> usize {
    limiter.sync.as_ref().map_or(0, |exchange| exchange.calls.of(CallPurpose::Acquire).count())
}

/// Actions for the end of a request that was let through.
fn afterwards(decision: Decision) -> Vec<EndAction> {
    match decision {
        Decision::Allow { afterwards, .. } => afterwards,
        decided => panic!("expected it to go through, found {decided:?}"),
    }
}

fn allows(limiter: &mut Limiter, slots: &mut dyn Slots, address: &str, now: Time) -> bool {
    ask(limiter, slots, address, now).outcome() == DecisionKind::Allow
}

fn admitted(limiter: &mut Limiter, slots: &mut dyn Slots, address: &str, n: u32, now: Time) -> usize {
    (0..n).filter(|_| allows(limiter, slots, address, now)).count()
}

#[test]
fn a_limiter_admits_the_burst_then_states_the_wait() {
    let (mut limiter, mut slots) = (limiter(one_rule("2/s", 3), None), LocalSlots::new(4));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1:5", 3, T0), 3);
    let refused = ask(&mut limiter, &mut slots, "192.0.2.1:5", T0 + 100 * MS);
    let status = BucketStatus { remaining: 0, more_ns: 400 * MS, full_ns: 400 * MS };
    assert_eq!((refused.outcome(), refused.strictest()), (DecisionKind::Limit, Some((RuleIndex::new(0), status))));
    // Now the local cache answers, with the same time.
    let refused = ask(&mut limiter, &mut slots, "192.0.2.1:5", T0 + 499 * MS);
    assert_eq!(refused.strictest().unwrap().1.more_ns, MS);
    assert!(allows(&mut limiter, &mut slots, "192.0.2.1:5", T0 + 500 * MS));
    assert_eq!(limiter.counters().take_event(CountedEvent::LocalCacheHits), 1);
    assert_eq!(limiter.counters().take_rule(0).limited, 2);
}

/// Slots that let another worker write between a read and a write.
struct Contended<'a> {
    slots: &'a mut LocalSlots,
    interloper: RefCell<&'a mut dyn FnMut(&mut LocalSlots)>,
}

impl Slots for Contended<'_> {
    fn read(&mut self, index: u32, into: &mut Slot) -> Result<Version, ReadError> {
        let read = self.slots.read(index, into);
        self.interloper.get_mut()(self.slots);
        read
    }

    fn write(&mut self, i: u32, slot: &mut Slot, v: Version) -> Result<(), WriteError> {
        self.slots.write(i, slot, v)
    }

    fn count(&self) -> u32 {
        self.slots.count()
    }
}

fn answer(limiter: &mut Limiter, slots: &mut dyn Slots, report: &Report, pops: u32, grant: Grant, now: Time) {
    let grants = vec![Allowance::Hot(grant); report.keys.len()];
    limiter.apply(report.sequence, &reply(report.sequence, pops, grants), slots, now).unwrap();
}

fn grant(part: u128, whole: u128, level_milli: i64) -> Grant {
    Grant { ratio: AdmitRatio::of(part, whole), level_milli, burst: u32::MAX, divisor: 1, lease_ms: 2_000 }
}

/// A limiter with one watched key that has used up its burst of four.
fn watching() -> (Limiter, LocalSlots) {
    let (mut limiter, mut slots) = (limiter(one_rule("100/s", 4), Some(1)), LocalSlots::new(4));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 5, T0), 4);
    (limiter, slots)
}
