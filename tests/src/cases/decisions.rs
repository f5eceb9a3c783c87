//! Decisions about one client: how many rules, and which answer.

use std::hint::black_box;
use std::mem::ManuallyDrop;

use weir_limiter::decision::Outcome;
use weir_limiter::key::Secret;
use weir_limiter::limiter::{Limiter, TableIdentity};
use weir_limiter::table::LocalSlots;
use weir_rules::config::Config;
use weir_wire::time::Time;

use super::host::Post;
use super::{Case, Operation};

/// Between two requests: slow enough for a generous rule to admit every one.
pub(super) const STEP_NS: u64 = 1_000;
/// The time of the first request.
pub(super) const BEGIN: Time = Time::from_nanos(1 << 50);
/// Slots of a table, where nothing else is said.
pub(super) const SLOTS: u32 = 4_096;
/// The client.
const ADDRESS: &[u8] = b"192.0.2.1:80";

pub(super) const CASES: &[Case] = &[
    Case { group: "decide", name: "allowed, 1 rule", start: || allowed(&per_address(1, GENEROUS)) },
    Case { group: "decide", name: "allowed, 4 rules", start: || allowed(&per_address(4, GENEROUS)) },
    Case { group: "decide", name: "allowed, 16 rules", start: || allowed(&per_address(16, GENEROUS)) },
    Case { group: "decide", name: "allowed, 4 rules of 2 keys", start: || allowed(&of_two_keys()) },
    Case { group: "decide", name: "limited, deny cache", start: limited },
    Case { group: "matching", name: "1 of 1 rule counts", start: || one_matches(1) },
    Case { group: "matching", name: "1 of 500 rules counts", start: || one_matches(500) },
];

/// Admits every request of every case.
pub(super) const GENEROUS: &str = r#""rate": "1000000/s", "burst": 1000000"#;

/// `count` rules that count by the client's address.
pub(super) fn per_address(count: usize, quota: &str) -> Vec<String> {
    (0..count).map(|i| format!(r#"{{"name": "r{i}", "key": ["client_address"], {quota}}}"#)).collect()
}

/// Two rules by address, two by API key.
fn of_two_keys() -> Vec<String> {
    let key = |i| if i < 2 { r#""client_address""# } else { r#"{"header": "x-api-key"}"# };
    (0..4).map(|i| format!(r#"{{"name": "r{i}", "key": [{}], {GENEROUS}}}"#, key(i))).collect()
}

/// A limiter for `rules`, by itself.
pub(super) fn limiter(rules: &[String]) -> Limiter {
    let config = format!(r#"{{"rules": [{}]}}"#, rules.join(","));
    let config = Config::parse(config.as_bytes()).expect("a good configuration");
    Limiter::new(config.rules, TableIdentity { secret: Secret::new([7; 16]), table_id: 1 }, None)
}

fn allowed(rules: &[String]) -> Operation {
    repeated(limiter(rules), LocalSlots::new(SLOTS), b"/", Outcome::Allow)
}

/// The first request takes the only token, the second is limited by the table, and the rest by the deny cache.
fn limited() -> Operation {
    let mut limiter = limiter(&per_address(1, r#""rate": "1/d", "burst": 1"#));
    let mut slots = LocalSlots::new(SLOTS);
    for _ in 0..2 {
        limiter.decide(&mut Post::from(ADDRESS), &mut slots, BEGIN);
    }
    repeated(limiter, slots, b"/", Outcome::Limit)
}

/// Of `count` rules, each for another path, one counts the request.
fn one_matches(count: usize) -> Operation {
    let rule = |i| {
        format!(
            r#"{{"name": "r{i}", "key": ["client_address"], {GENEROUS}, "match": {{"hosts": ["api.example.com"],
                "methods": ["POST"], "path": {{"prefix": "/service-{i}/"}}}}}}"#
        )
    };
    let mut limiter = limiter(&(0..count).map(rule).collect::<Vec<_>>());
    let (mut slots, path) = (LocalSlots::new(SLOTS), b"/service-0/x?a=1");
    let decision = limiter.decide(&mut Post { address: ADDRESS, path }, &mut slots, BEGIN);
    assert_eq!(decision.strictest().map(|(rule, _)| rule), Some(0), "the rule that is to be measured");
    repeated(limiter, slots, path, Outcome::Allow)
}

/// The same request again and again, which ends in `outcome`.
fn repeated(mut limiter: Limiter, mut slots: LocalSlots, path: &'static [u8], outcome: Outcome) -> Operation {
    let mut now = BEGIN;
    let mut decide = move || {
        now += STEP_NS;
        limiter.decide(black_box(&mut Post { address: ADDRESS, path }), &mut slots, now)
    };
    assert_eq!(decide().outcome(), outcome, "the state that is to be measured");
    Box::new(move || {
        // A host takes a decision apart, which leaves nothing to be dropped.
        black_box(ManuallyDrop::new(decide()));
    })
}
