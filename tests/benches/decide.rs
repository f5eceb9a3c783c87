//! What one decision costs natively, without a host: `make bench`.
//!
//! The slots are in this program's memory, so this is the core's own work: rules, hashing, reading a
//! slot, judging, sealing and writing it. A proxy adds its host calls.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use weir_limiter::config::Config;
use weir_limiter::decision::Outcome;
use weir_limiter::key::Secret;
use weir_limiter::limiter::{Limiter, TableIdentity};
use weir_limiter::request::{Attribute, Request};
use weir_limiter::slot::KEYS_PER_SLOT;
use weir_limiter::table::LocalSlots;
use weir_limiter::time::Time;

/// Between two requests: slow enough for a generous rule to admit every one.
const STEP_NS: u64 = 1_000;

struct From(&'static [u8]);

impl Request for From {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        (*attribute == Attribute::SourceAddress).then(|| self.0.to_vec())
    }

    fn attribute_into(&mut self, attribute: &Attribute, room: &mut Vec<u8>) -> bool {
        room.clear();
        let is_there = *attribute == Attribute::SourceAddress;
        if is_there {
            room.extend_from_slice(self.0);
        }
        is_there
    }
}

/// A request from the `n`-th address of 10.0.0.0/8.
struct FromNth(u32);

impl Request for FromNth {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        let [_, b, c, d] = self.0.to_be_bytes();
        (*attribute == Attribute::SourceAddress).then(|| format!("10.{b}.{c}.{d}:80").into_bytes())
    }
}

fn limiter(rules: usize, rate: &str, burst: u32) -> Limiter {
    let rule =
        |i| format!(r#"{{"name": "r{i}", "key": ["client_address"], "rate": "{rate}", "burst": {burst}}}"#);
    let rules: Vec<_> = (0..rules).map(rule).collect();
    let config = format!(r#"{{"rules": [{}]}}"#, rules.join(","));
    let config = Config::parse(config.as_bytes()).expect("a good configuration");
    Limiter::new(config.rules, TableIdentity { secret: Secret::new([7; 16]), table_id: 1 }, None)
}

fn decide(c: &mut Criterion) {
    let mut group = c.benchmark_group("decide");
    group.throughput(Throughput::Elements(1));
    for rules in [1, 4, 16] {
        let (mut limiter, mut slots) = (limiter(rules, "1000000/s", 1_000_000), LocalSlots::new(4_096));
        let mut now = Time::from_nanos(1 << 50);
        group.bench_function(format!("allowed, {rules} rules, one address"), |b| {
            b.iter(|| {
                now += STEP_NS;
                limiter.decide(black_box(&mut From(b"192.0.2.1:80")), &mut slots, now)
            });
        });
    }
    let (mut limited, mut slots) = (limiter(1, "1/d", 1), LocalSlots::new(4_096));
    let mut now = Time::from_nanos(1 << 50);
    limited.decide(&mut From(b"192.0.2.1:80"), &mut slots, now);
    group.bench_function("limited, deny cache", |b| {
        b.iter(|| {
            now += STEP_NS;
            limited.decide(black_box(&mut From(b"192.0.2.1:80")), &mut slots, now)
        });
    });
    group.finish();
}

/// A POST to one of many paths, from one address.
struct Post(&'static [u8]);

impl Request for Post {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::SourceAddress => Some(b"192.0.2.1:80".to_vec()),
            Attribute::Method => Some(b"POST".to_vec()),
            Attribute::Path => Some(self.0.to_vec()),
            Attribute::Authority => Some(b"api.example.com".to_vec()),
            _ => None,
        }
    }
}

/// A rule set of which one rule counts the request, however many there are.
fn matching(c: &mut Criterion) {
    let mut group = c.benchmark_group("one of many rules matches");
    group.throughput(Throughput::Elements(1));
    for rules in [1, 500] {
        let rule = |i: usize| {
            format!(
                r#"{{"name": "r{i}", "key": ["client_address"], "rate": "1000000/s", "match": {{"hosts": ["api.example.com"],
                    "methods": ["POST"], "path": {{"prefix": "/service-{i}/"}}}}}}"#
            )
        };
        let list: Vec<_> = (0..rules).map(rule).collect();
        let config = format!(r#"{{"rules": [{}]}}"#, list.join(","));
        let config = Config::parse(config.as_bytes()).expect("a good configuration");
        let identity = TableIdentity { secret: Secret::new([7; 16]), table_id: 1 };
        let (mut limiter, mut slots) = (Limiter::new(config.rules, identity, None), LocalSlots::new(4_096));
        let mut now = Time::from_nanos(1 << 50);
        let met = limiter.decide(&mut Post(b"/service-0/x"), &mut slots, now).strictest.map(|(rule, _)| rule);
        assert_eq!(met, Some(0), "the rule that is to be measured");
        group.bench_function(format!("{rules} rules"), |b| {
            b.iter(|| {
                now += STEP_NS;
                limiter.decide(black_box(&mut Post(b"/service-0/x?a=1")), &mut slots, now)
            });
        });
    }
    group.finish();
}

fn rotating(c: &mut Criterion) {
    let mut group = c.benchmark_group("rotating addresses");
    group.throughput(Throughput::Elements(1));
    for (name, rate) in [("slots with room", "1000000/s"), ("slots full of debt", "1/d")] {
        let keys = 4_096 * u32::try_from(KEYS_PER_SLOT).expect("small");
        let (mut limiter, mut slots) = (limiter(1, rate, 1), LocalSlots::new(4_096));
        let (mut now, mut n) = (Time::from_nanos(1 << 50), 0u32);
        for _ in 0..2 * keys {
            n += 1;
            now += STEP_NS;
            limiter.decide(&mut FromNth(n), &mut slots, now);
        }
        let outcome = limiter.decide(&mut FromNth(n + 1), &mut slots, now).outcome;
        assert_eq!(outcome == Outcome::Allow, rate != "1/d", "the table is in the state to be measured");
        group.bench_function(name, |b| {
            b.iter_batched(
                || {
                    n += 1;
                    now += STEP_NS;
                    (FromNth(n), now)
                },
                |(mut request, now)| limiter.decide(&mut request, &mut slots, now),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, decide, matching, rotating);
criterion_main!(benches);
