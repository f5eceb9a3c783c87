//! Decisions about one client: how many rules, and which answer.

use std::hint::black_box;

use serde_json::{Value, json};
use weir_limiter::check::DecisionKind;
use weir_limiter::engine::{Engine, LocalHost, OpenRequest, RequestDecision, RequestStep};
use weir_limiter::table::slot::KEYS_PER_SLOT;
use weir_protocol::time::Time;
use weir_rules::matching::{PROGRAMS_BYTES_MAX, Pattern};

use super::host::Post;
use super::{Case, Operation};

/// Between two requests: slow enough for a generous rule to admit every one.
pub(super) const STEP_NS: u64 = 1_000;
/// The time of the first request.
pub(super) const BEGIN: Time = Time::from_nanos(1 << 50);
/// Slots of a table, by default.
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
    Case { group: "matching", name: "dearest expressions", start: dearest },
];

/// Admits every request of every case.
pub(super) const GENEROUS: &str = r#""rate": "1000000/s", "burst": 1000000"#;

/// `count` rules that count by the client's address.
pub(super) fn per_address(count: usize, quota: &str) -> Vec<String> {
    (0..count).map(|i| format!(r#"{{"name": "r{i}", "key": ["client_address"], {quota}}}"#)).collect()
}

/// Two rules by address, two by API key.
pub(super) fn of_two_keys() -> Vec<String> {
    let key = |i| if i < 2 { r#""client_address""# } else { r#"{"header": "x-api-key"}"# };
    (0..4).map(|i| format!(r#"{{"name": "r{i}", "key": [{}], {GENEROUS}}}"#, key(i))).collect()
}

/// The configuration of a POP on its own, with this number of slots.
pub(super) fn configuration(rules: &[String], slots: u32) -> Vec<u8> {
    let rules: Value = serde_json::from_str(&format!("[{}]", rules.join(","))).expect("good rules");
    let addresses = slots * u32::try_from(KEYS_PER_SLOT).expect("small");
    json!({"rules": rules, "table": {"addresses": addresses}}).to_string().into_bytes()
}

/// An edge of a POP on its own, and its site.
pub(super) struct Alone {
    edge: Engine,
    site: LocalHost,
}

impl Alone {
    pub(super) fn new(rules: &[String], slots: u32) -> Self {
        let mut site = LocalHost::new([7; 16], 1);
        let configured = Engine::configure(&configuration(rules, slots), &mut site, BEGIN);
        let (edge, _) = configured.expect("a good configuration");
        Self { edge, site }
    }

    /// The decision on a request, which leaves nothing to be done.
    pub(super) fn decide(&mut self, request: &mut Post<'_>, now: Time) -> DecisionKind {
        let mut open = OpenRequest::new(1);
        let RequestDecision { step, .. } = self.edge.request(&mut open, black_box(request), &mut self.site, now);
        match black_box(step) {
            RequestStep::Continue => DecisionKind::Allow,
            RequestStep::Answer(_) => DecisionKind::Limit,
            RequestStep::Hold | RequestStep::Call(_) | RequestStep::Take(_) => DecisionKind::Wait,
        }
    }
}

fn allowed(rules: &[String]) -> Operation {
    repeated(Alone::new(rules, SLOTS), b"/", DecisionKind::Allow)
}

/// The first request takes the only token, the second is limited by the table, and the rest by the deny cache.
fn limited() -> Operation {
    let mut alone = Alone::new(&per_address(1, r#""rate": "1/d", "burst": 1"#), SLOTS);
    for _ in 0..2 {
        alone.decide(&mut Post::from(ADDRESS), BEGIN);
    }
    repeated(alone, b"/", DecisionKind::Limit)
}

/// Of `count` rules, each for another path, one counts the request.
fn one_matches(count: usize) -> Operation {
    let rule = |i| {
        format!(
            r#"{{"name": "r{i}", "key": ["client_address"], {GENEROUS}, "match": {{"hosts": ["api.example.com"],
                "methods": ["POST"], "path": {{"prefix": "/service-{i}/"}}}}}}"#
        )
    };
    let mut alone = Alone::new(&(0..count).map(rule).collect::<Vec<_>>(), SLOTS);
    let path = b"/service-0/x?a=1";
    alone.decide(&mut Post { address: ADDRESS, path }, BEGIN);
    let counted = alone.edge.counters().take_rule(0);
    assert_eq!(counted.allowed, 1, "the rule that is to be measured");
    repeated(alone, path, DecisionKind::Allow)
}

/// Rules whose expressions take all that a rule set may have, and a value as long as they are tried on.
fn dearest() -> Operation {
    const DEAR: &str = "(a?b?c?d?e?f?g?h?i?j?){9}z$";
    let bytes = Pattern::new(DEAR, false).expect("an expression").program_bytes();
    let rule = |i| {
        format!(
            r#"{{"name": "r{i}", "key": ["client_address"], {GENEROUS}, "match": {{"headers":
                [{{"name": "x-long", "regex": "{DEAR}"}}]}}}}"#
        )
    };
    let rules: Vec<_> = (0..PROGRAMS_BYTES_MAX / bytes).map(rule).collect();
    repeated(Alone::new(&rules, SLOTS), b"/", DecisionKind::Allow)
}

/// The same request again and again, which ends in `outcome`.
fn repeated(mut alone: Alone, path: &'static [u8], outcome: DecisionKind) -> Operation {
    let mut now = BEGIN;
    let mut decide = move || {
        now += STEP_NS;
        alone.decide(&mut Post { address: ADDRESS, path }, now)
    };
    assert_eq!(decide(), outcome, "the state that is to be measured");
    Box::new(move || {
        decide();
    })
}
