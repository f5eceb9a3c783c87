//! The quota status that a client is told.

use super::*;
use crate::decide::QuotaStatus;
use alloc::collections::BTreeMap;
use std::string::ToString;

/// A client with an account.
struct Customer;

impl Request for Customer {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::SourceAddress => Some(b"192.0.2.1".to_vec()),
            Attribute::Header(_) => Some(b"acme".to_vec()),
            _ => None,
        }
    }
}

/// Tables of both kinds: where a plain rule's bucket is changed in place, and where it is not.
fn tables() -> Vec<std::boxed::Box<dyn Slots>> {
    #[allow(unused_mut, reason = "without memory of its own, there is one kind")]
    let mut tables: Vec<std::boxed::Box<dyn Slots>> = vec![std::boxed::Box::new(LocalSlots::new(4))];
    tables.push(std::boxed::Box::new(crate::table::SlotsHandle::new(crate::table::SharedSlots::new(4, 1))));
    tables
}

/// The names of the rules whose policies a status tells, its own first; and their partition keys.
fn told(limiter: &Limiter, status: &QuotaStatus) -> (Vec<String>, Vec<Vec<u8>>) {
    let others = || status.others().iter().map(|other| (other.rule, other.partition.clone()));
    let all = || core::iter::once((status.rule, status.partition().to_vec())).chain(others());
    let name = |rule| limiter.rule(rule).map_or(String::new(), |rule| rule.name.clone());
    (all().map(|(rule, _)| name(rule)).collect(), all().map(|(_, partition)| partition).collect())
}

#[test]
fn a_rule_that_does_not_advertise_hides_none_that_does() {
    let (loud, silent) =
        (json!({"on_allowed": true}), json!({"on_allowed": true, "headers": ["retry_after"]}));
    let set = json!([
        {"name": "hidden", "key": ["client_address"], "rate": "1/h", "burst": 3},
        {"name": "silent", "key": ["client_address"], "rate": "1/h", "burst": 4, "response": silent},
        {"name": "wide", "key": ["client_address"], "rate": "1/h", "burst": 100, "response": loud},
        {"name": "tight", "key": ["client_address"], "rate": "1/h", "burst": 50, "response": loud},
    ]);
    for mut slots in tables() {
        let mut limiter = limiter(rules(&set), None);
        for n in 1..=3 {
            let decision = limiter.decide(&mut Customer, &mut *slots, T0);
            assert_eq!(decision.strictest().unwrap().0, RuleIndex::new(0), "the log names the strictest");
            let Decision::Allow { told: Some(status), .. } = decision else { panic!("{decision:?}") };
            assert_eq!((status.rule, status.standing.remaining), (RuleIndex::new(3), 50 - n));
            assert_eq!(told(&limiter, &status).0, ["tight", "wide"], "and none that does not say so");
        }
        for _ in 0..2 {
            let decision = limiter.decide(&mut Customer, &mut *slots, T0);
            let Decision::Refuse { status, .. } = decision else { panic!("{decision:?}") };
            assert_eq!(told(&limiter, &status).0, ["hidden", "wide", "tight"]);
        }
    }
    for mut slots in tables() {
        let mut quiet = limiter(one_rule("1/h", 3), None);
        let decision = quiet.decide(&mut Customer, &mut *slots, T0);
        assert!(matches!(decision, Decision::Allow { told: None, .. }), "{decision:?}");
    }
}

#[test]
fn a_part_of_a_key_is_told_if_its_rule_logs_it() {
    let loud = json!({"on_allowed": true});
    let rule = |name, key: Value, log_key| json!({"name": name, "key": key, "rate": "1/h", "burst": 2, "log_key": log_key, "response": loud});
    let set = json!([
        rule("customer", json!([{"header": "x-customer"}]), true),
        rule("both", json!([{"header": "x-customer"}, "client_address"]), true),
        rule("secret", json!([{"header": "x-customer"}]), false),
    ]);
    for mut slots in tables() {
        let mut limiter = limiter(rules(&set), None);
        for _ in 0..4 {
            let status = match limiter.decide(&mut Customer, &mut *slots, T0) {
                Decision::Allow { told: Some(status), .. } => *status,
                Decision::Refuse { status, .. } => status,
                decision => panic!("told nothing: {decision:?}"),
            };
            let (names, parts) = told(&limiter, &status);
            let parts = names.iter().map(String::as_str).zip(parts).collect::<BTreeMap<_, _>>();
            let acme = || b"acme".to_vec();
            assert_eq!(
                parts,
                BTreeMap::from([("customer", acme()), ("both", acme()), ("secret", Vec::new())])
            );
        }
    }
}

#[test]
fn a_banned_client_is_told_so_from_memory_too() {
    let penalty = json!({"after": 2, "within": "1m", "deny_for": "1h"});
    let set = json!([
        {"name": "r", "key": ["client_address"], "rate": "1/h", "burst": 1, "penalty": penalty},
        {"name": "other", "key": ["client_address"], "rate": "1/h", "burst": 9},
    ]);
    for mut slots in tables() {
        let mut limiter = limiter(rules(&set), None);
        let reasons = (0..6).map(|_| match limiter.decide(&mut Customer, &mut *slots, T0) {
            Decision::Refuse { reason, .. } => std::format!("{reason:?}"),
            decision => std::format!("{:?}", decision.outcome()),
        });
        assert_eq!(
            reasons.collect::<Vec<_>>(),
            ["Allow", "Limit", "Limit", "Ban", "Ban", "Ban"].map(str::to_string)
        );
    }
}
