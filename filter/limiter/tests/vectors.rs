//! Vectors: the same inputs give the same decisions, to the bit, natively and on wasm32.
//!
//! Natively: `cargo test -p weir-limiter --test vectors`. On wasm32: the same with
//! `--target wasm32-unknown-unknown` and wasm-bindgen's test runner (`make vectors`).

use weir_limiter::check::DecisionKind;
use weir_limiter::limiter::Limiter;
use weir_limiter::sync::Reporter;
use weir_limiter::table::{HashSecret, LocalSlots, TableIdentity};
use weir_protocol::messages::{
    AdmitRatio, Allowance, Ban, BudgetRule, Grant, Key, Leased, Message, PushedGrant, Replies, Reply, Report,
    RunningRules, Settled,
};
use weir_protocol::quota::Quota;
use weir_protocol::sharing::Sharing;
use weir_protocol::time::Time;
use weir_rules::address::{Prefixes, parse};
use weir_rules::config::PluginConfig;
use weir_rules::key::KeyValue;
use weir_rules::request::{Attribute, Request};

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[path = "vectors/algorithms.rs"]
mod algorithms;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// A linear congruential generator (Knuth, MMIX): the same numbers everywhere.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

struct From(String);

impl Request for From {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::SourceAddress => Some(self.0.clone().into_bytes()),
            Attribute::Method => Some(b"GET".to_vec()),
            Attribute::Path => Some(b"/a?b".to_vec()),
            Attribute::Authority => Some(b"example.com".to_vec()),
            _ => None,
        }
    }
}

#[test]
fn key_hashes() {
    let secret = HashSecret::new(*b"0123456789abcdef");
    for (address, expected) in [
        ("192.0.2.1:80", "0420c0000201 e46c72eb5a7662f0 6cc1a381a2fccd6e"),
        ("[2001:db8::1]:443", "064020010db800000000 32dfc133b3f6c636 0ef329d202513430"),
    ] {
        let value = KeyValue::of_address(parse(address.as_bytes()).unwrap(), Prefixes::default());
        let hash = secret.hash(value.as_bytes());
        let found = format!("{} {:016x} {:016x}", hex(value.as_bytes()), hash.place, hash.tag);
        assert_eq!(found, expected, "{address}");
    }
}

#[test]
fn messages() {
    let quota = Quota::new("100/s".parse().unwrap(), 100).unwrap();
    let report = Report {
        pop: "fra1".into(),
        worker: 7,
        sequence: 300,
        table: 1 << 20,
        made_ms: 1 << 31,
        pops: 330,
        rules: vec![BudgetRule { name: "r".into(), quota, sharing: Sharing::of(quota) }],
        keys: vec![Key {
            rule: 0,
            value: vec![4, 32, 192, 0, 2, 1],
            epoch: 1 << 30,
            admitted: 90,
            unconfirmed: 5,
            span_ms: 250,
            missing: 3,
            asked: 1_000,
            asked_recently: 128,
            ahead: 0,
        }],
        running: RunningRules { version: 5, refused: 6 },
        replies: Replies { done: 299, lost: 298 },
        bans: vec![Ban { rule: 0, value: vec![4, 32, 192, 0, 2, 9], for_ms: 60_000 }],
        held: vec![],
        status: None,
    };
    assert_eq!(
        hex(&report.encode()),
        "01046672613107ac028080408080808008ca020506ab02aa0201017280ade20464006400000100060420c000020180808080045a05fa0103e8078001000100060420c0000209e0d4030000"
    );
    assert_eq!(Report::decode(&report.encode()), Ok(report));
    let grant = Grant { ratio: AdmitRatio::of(1, 3), level_milli: -1_500, burst: 9, divisor: 1, lease_ms: 2_000 };
    let reply = Reply {
        sequence: 300,
        pops: 3,
        is_guess: false,
        settled: Settled::All,
        grants: vec![Allowance::Hot(grant)],
        rules: vec!["r".into()],
        pushed: vec![PushedGrant { rule: 0, value: vec![4, 32, 192, 0, 2, 1], quota, grant }],
        rule_set: 6,
        bans: vec![],
        workers: 4,
    };
    assert_eq!(
        hex(&reply.encode()),
        "01ac020300010101d5aad5aa01b7170901d00f060101720100060420c000020180ade20464d5aad5aa01b7170901d00f0004"
    );
    assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    let leased = Leased { wait_ms: 86_400_000, may_return: true, left: 9_700, ..Leased::of(300, 600_000) };
    let reply = Reply { sequence: 1, pops: 1, grants: vec![Allowance::Leased(leased)], ..Reply::default() };
    assert_eq!(hex(&reply.encode()), "01010100000102ac02c0cf2480b8992901e44b0000000000");
    assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
}

/// Thousands of requests under three rules, with a table that is too small, reports and grants, as one number.
#[test]
fn a_long_run_of_decisions() {
    let config = br#"{"rules": [
        {"name": "host", "key": ["client_address"], "rate": "20/s", "burst": 5},
        {"name": "net", "key": [{"client_address": {"ipv4": 24}}], "rate": "60/s", "burst": 40},
        {"name": "path", "match": {"path": {"prefix": "/a"}}, "key": ["client_address"], "rate": "50/m", "burst": 9}
    ]}"#;
    let config = PluginConfig::parse(config).unwrap();
    let identity = TableIdentity { secret: HashSecret::new([3; 16]), table_id: 1 };
    let reporter = Reporter { pop: "a".into(), worker: 1 };
    let mut worker = Limiter::new(config.rules, identity, Some(reporter));
    let (mut slots, mut rnd, mut now) = (LocalSlots::new(9), Lcg(42), Time::from_nanos(1 << 40));
    let (mut digest, mut limited) = (0u64, 0);
    for i in 0..20_000u64 {
        now += rnd.below(20_000_000);
        let request = format!("10.0.{}.{}:1", rnd.below(3), rnd.below(30));
        let decision = worker.decide(&mut From(request), &mut slots, now);
        limited += u32::from(decision.outcome() == DecisionKind::Limit);
        let (rule, status) = decision.strictest().unwrap();
        for part in
            [u64::try_from(usize::from(rule)).unwrap(), u64::from(status.remaining), status.more_ns, status.full_ns]
        {
            digest = digest.rotate_left(5) ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        if i % 50 == 0 {
            exchange(&mut worker, &mut slots, &mut rnd, now);
        }
    }
    assert_eq!(format!("{limited} {digest:016x}"), "11849 a405787fc47b2c49");
}

fn exchange(limiter: &mut Limiter, slots: &mut LocalSlots, rnd: &mut Lcg, now: Time) {
    let Some(report) = limiter.report(slots, true, now) else { return };
    let grants = report.keys.iter().map(|key| {
        Allowance::Hot(Grant {
            ratio: AdmitRatio::of(rnd.below(100).into(), 100),
            level_milli: i64::try_from(key.admitted % 7).unwrap() * 1_000 - 2_000,
            burst: 50,
            divisor: 1,
            lease_ms: 1_500,
        })
    });
    let reply = Reply {
        sequence: report.sequence,
        pops: 4,
        settled: Settled::All,
        grants: grants.collect(),
        ..Reply::default()
    };
    limiter.apply(report.sequence, &reply.encode(), slots, now).unwrap();
}
