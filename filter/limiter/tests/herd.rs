//! Many clients of one key that all obey `Retry-After`, in whole seconds: how many get through.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_limiter::check::Decision;
use weir_limiter::limiter::Limiter;
use weir_limiter::response::numbers;
use weir_limiter::table::{HashSecret, LocalSlots, TableIdentity};
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::config::PluginConfig;
use weir_rules::request::{Attribute, Request};

const MS: u64 = SECOND_NS / 1_000;
const CLIENTS: usize = 60;
/// Maximum number of tries of a client for one request.
const TRIES: u32 = 5;

struct Client;

impl Request for Client {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        (*attribute == Attribute::SourceAddress).then(|| b"192.0.2.1".to_vec())
    }
}

/// A linear congruential generator (Knuth, MMIX).
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// The herd comes within 50 ms. Each client sends `requests` requests one after the other, each at most five times.
/// Returns the percentage that got through, and the seconds that it took.
fn herd(jitter_s: u32, burst: u32, requests: u32) -> (u64, u64) {
    let rules = format!(
        r#"{{"rules": [{{"name": "r", "key": ["client_address"], "rate": "20/s", "burst": {burst},
            "response": {{"retry_after_jitter_s": {jitter_s}}}}}]}}"#
    );
    let rules = PluginConfig::parse(rules.as_bytes()).expect("good rules").rules;
    let identity = TableIdentity { secret: HashSecret::new([7; 16]), table_id: 1 };
    let (mut limiter, mut slots) = (Limiter::new(rules, identity, None), LocalSlots::new(1));
    let (mut random, mut through) = (Lcg(7), 0);
    let begin = 1_000 * SECOND_NS;
    let first = |_| Reverse((begin + random.below(50 * MS), requests, TRIES));
    let mut herd: BinaryHeap<_> = (0..CLIENTS).map(first).collect();
    let mut last = begin;
    while let Some(Reverse((now, requests, tries))) = herd.pop() {
        last = last.max(now);
        let decision = limiter.decide(&mut Client, &mut slots, Time::from_nanos(now));
        // To the client and back.
        let way_ns = 2 * MS + random.below(10 * MS);
        match decision {
            Decision::Allow { .. } => through += 1,
            Decision::Refuse { status, jitter_s, .. } if tries > 1 => {
                let rule = &limiter.rules().rules()[usize::from(status.rule)];
                let after_s = numbers(rule, &status.bucket, 0, jitter_s).retry_after_s;
                herd.push(Reverse((now + after_s * SECOND_NS + way_ns, requests, tries - 1)));
                continue;
            }
            _ => {}
        }
        if requests > 1 {
            herd.push(Reverse((now + way_ns, requests - 1, TRIES)));
        }
    }
    let all = u64::try_from(CLIENTS).unwrap() * u64::from(requests);
    (through * 100 / all, (last - begin).div_ceil(SECOND_NS))
}

#[test]
fn a_herd_that_comes_once_gets_through() {
    for (jitter_s, burst) in [(0, 20), (2, 20), (6, 20), (6, 5), (60, 20)] {
        let (percent, took_s) = herd(jitter_s, burst, 1);
        println!("once, jitter {jitter_s} s, burst {burst}: {percent} % in {took_s} s");
        assert!(percent >= 97, "jitter {jitter_s} s, burst {burst}: {percent} %");
    }
}

/// Each has its next request as soon as the one before is answered: without jitter the quickest get all tokens.
#[test]
fn a_herd_that_stays_gets_through_with_jitter() {
    let without = herd(0, 20, 50);
    println!("staying, without jitter: {} % in {} s", without.0, without.1);
    for (jitter_s, least) in [(3, 90), (6, 97), (9, 97), (30, 97)] {
        let (percent, took_s) = herd(jitter_s, 20, 50);
        println!("staying, jitter {jitter_s} s: {percent} % in {took_s} s");
        assert!(percent >= least && percent > without.0, "jitter {jitter_s} s: {percent} %");
    }
}
