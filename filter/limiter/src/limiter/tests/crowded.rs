//! More keys that owe something than the table has places for.

use super::*;
use crate::algorithms::Admission;
use std::collections::BTreeMap;
use std::string::ToString as _;
use weir_protocol::messages::Leased;
use weir_rules::key::KeyValue;

const LEASE_MS: u32 = 2_000;

/// The rule of envoy/login.
fn login() -> RuleSet {
    rules(&json!([{"name": "login", "key": ["client_address"], "rate": "5/m", "strict": true}]))
}

fn client(n: u32) -> Client {
    Client(core::net::Ipv4Addr::from_bits(n).to_string())
}

/// weir-sync's answer if the budget has tokens for every key.
fn answer_all(report: &Report) -> Vec<u8> {
    let lease = |key: &weir_protocol::messages::Key| match key.ahead {
        0 => Leased::NONE,
        ahead => Leased::of(key.admitted + u64::from(ahead), LEASE_MS),
    };
    let grants = report.keys.iter().map(|key| Allowance::Leased(lease(key))).collect();
    reply(report.sequence, 1, grants)
}

/// Asks once; if the request has to wait, weir-sync answers with a token.
fn ask_and_wait(limiter: &mut Limiter, slots: &mut LocalSlots, n: u32, now: Time) -> DecisionKind {
    let decision = limiter.decide(&mut client(n), slots, now);
    if decision.outcome() != DecisionKind::Wait {
        return decision.outcome();
    }
    let (report, acquire) = waiting_for(decision);
    let answered = limiter.acquired(acquire, &answer_all(&report), slots, now + MS).unwrap();
    limiter.decide_again(answered, &mut client(n), slots, now + MS).outcome()
}

/// A 64th of the default table, of 2,000 newcomers a second: each asks once, for three minutes.
// I6
#[test]
fn a_slow_flood_locks_no_newcomer_out() {
    let (mut limiter, mut slots) = (limiter(login(), Some(1)), LocalSlots::new(64));
    limiter.sync.as_mut().unwrap().observe(1, false, T0);
    let every_ns = SECOND_NS * 64 / 2_000;
    let (mut refused, mut reported, newcomers) = (0, T0, 180 * 2_000 / 64);
    for n in 0..newcomers {
        let now = T0 + u64::from(n) * every_ns;
        refused += u32::from(ask_and_wait(&mut limiter, &mut slots, n, now) != DecisionKind::Allow);
        if now.nanos_since(reported) >= 250 * MS
            && let Some(report) = limiter.report(&mut slots, true, now)
        {
            reported = now;
            limiter.apply(report.sequence, &answer_all(&report), &mut slots, now).unwrap();
        }
    }
    assert_eq!(refused, 0, "of {newcomers}");
}

/// Reports all that is due and has it charged; returns the counts of `n` in the report.
fn report_all(limiter: &mut Limiter, slots: &mut LocalSlots, n: u32, now: Time) -> Option<(u64, u64)> {
    let report = limiter.report(slots, true, now)?;
    let grants = vec![Allowance::Warm; report.keys.len()];
    limiter.apply(report.sequence, &reply(report.sequence, 5, grants), slots, now).unwrap();
    let value = KeyValue::of_address(
        core::net::Ipv4Addr::from_bits(n).into(),
        weir_rules::address::Prefixes { ipv4: 32, ipv6: 64 },
    );
    let key = report.keys.iter().find(|key| key.value == value.as_bytes())?;
    Some((key.admitted, key.unconfirmed))
}

#[test]
fn charged_counts_are_not_reported_again_after_eviction() {
    let (mut limiter, mut slots) = (limiter(one_rule("1/m", 20), Some(1)), LocalSlots::new(1));
    limiter.sync.as_mut().unwrap().observe(5, false, T0);
    let take = |limiter: &mut Limiter, slots: &mut LocalSlots, n, tokens| {
        for _ in 0..tokens {
            assert_eq!(limiter.decide(&mut client(n), slots, T0).outcome(), DecisionKind::Allow, "{n}");
        }
    };
    take(&mut limiter, &mut slots, 1, 10);
    assert_eq!(report_all(&mut limiter, &mut slots, 1, T0), Some((10, 10)));
    for n in 2..20 {
        take(&mut limiter, &mut slots, n, 12);
    }
    assert_eq!(report_all(&mut limiter, &mut slots, 1, T0 + SECOND_NS), None);
    // It comes back with its fair share used up, so that even one token is reported at once.
    take(&mut limiter, &mut slots, 1, 1);
    let (_, unconfirmed) = report_all(&mut limiter, &mut slots, 1, T0 + 2 * SECOND_NS).expect("a report of it");
    assert!((1..=3).contains(&unconfirmed), "of a token, and a fair share of two: {unconfirmed}");
}

/// A part of the default table, and of what comes to it.
const PART: u32 = 256;

/// Number of refused ones in a thousand newcomers that come once each, during a flood from `addresses` in turn, with
/// a table of this size; if `pops` are given, at a POP with fresh connectivity that reports nothing.
fn refused_of_newcomers(
    rate: &str,
    burst: u32,
    per_second: u32,
    addresses: u32,
    seconds: u32,
    pops: Option<u32>,
) -> u32 {
    let mut limiter = limiter(one_rule(rate, burst), pops.map(u64::from));
    let mut slots = LocalSlots::new(4_096 / PART);
    let every_ns = SECOND_NS * u64::from(PART) / u64::from(per_second);
    let (mut newcomers, mut refused) = (0, 0);
    for n in 0..per_second * seconds / PART {
        let now = T0 + u64::from(n) * every_ns;
        if let Some(sync) = &mut limiter.sync {
            sync.observe(pops.unwrap_or(1), false, now);
        }
        let is_newcomer = n % 20 == 0;
        let who = if is_newcomer { n | 1 << 31 } else { n % (addresses / PART) };
        let outcome = limiter.decide(&mut client(who), &mut slots, now).outcome();
        // Counted once the flood has lasted for a while.
        if is_newcomer && n >= per_second * seconds / PART / 3 {
            newcomers += 1;
            refused += u32::from(outcome != DecisionKind::Allow);
        }
    }
    refused * 1_000 / newcomers
}

// I3
#[test]
fn a_flood_from_a_million_addresses_refuses_no_newcomer() {
    for addresses in [100_000, 300_000, 1_000_000] {
        for (rate, burst, per_second, seconds) in
            [("5/m", 5, 9_000, 180), ("10/m", 10, 10_000, 120), ("60/h", 60, 1_000, 1_800)]
        {
            let refused = refused_of_newcomers(rate, burst, per_second, addresses, seconds, None);
            assert!(refused <= 5, "{rate} at {per_second}/s from {addresses}: {refused} of 1,000");
        }
    }
}

/// The fair share is half a token, so every key is watched at once, and its counts are never confirmed.
#[test]
fn keys_that_have_to_be_reported_leave_newcomers_room() {
    let refused = refused_of_newcomers("5/m", 5, 9_000, 1_000_000, 180, Some(5));
    assert!(refused <= 50, "{refused} of 1,000");
}

/// The table distinguishes 205,000 debtors, as many as 17,000 newcomers a second leave. Beyond that, the number of
/// admitted requests stays the same.
// I3
#[test]
fn a_full_table_keeps_its_rate_of_admitted_requests() {
    // At 25,000/s the merged debts are still growing by then.
    for (per_second, expected) in [(25_000, 10..=550), (50_000, 600..=750), (100_000, 800..=850)] {
        let refused = refused_of_newcomers("5/m", 5, per_second, 100_000_000, 90, None);
        assert!(expected.contains(&refused), "{per_second}/s: {refused} of 1,000");
    }
}

/// The key whose bucket is full again soonest gives up its place first, so a slow rule's flood evicts a fast rule's
/// keys. A client of the fast rule in that slot loses nothing by it.
#[test]
fn a_slow_rules_flood_costs_fast_rules_clients_nothing() {
    let rule_set = rules(&json!([
        {"name": "slow", "match": {"addresses": ["10.0.0.0/8"]}, "key": ["client_address"], "rate": "5/m", "burst": 5},
        {"name": "fast", "key": ["client_address"], "rate": "50/s", "burst": 50,
         "match": {"addresses": ["192.0.2.0/24"]}},
    ]));
    let (mut limiter, mut slots) = (limiter(rule_set, None), LocalSlots::new(1));
    let (mut flood, mut through) = (0, 0);
    for ms in (0..60_000_u32).step_by(2) {
        let now = T0 + u64::from(ms) * MS;
        flood +=
            u32::from(limiter.decide(&mut client(0x0a00_0000 | ms), &mut slots, now).outcome() == DecisionKind::Allow);
        if ms % 16 == 0 {
            through += u32::from(allows(&mut limiter, &mut slots, "192.0.2.1", now));
        }
    }
    assert!(flood > 30, "{flood} of the flood");
    assert!((3_040..=3_050).contains(&through), "{through} of 3,050");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// I3, compared with a bucket for each key that is never evicted: one slot with more keys than it can
    /// distinguish, which use some or all of what they get, and come back.
    #[test]
    fn an_evicted_key_gains_nothing(
        steps in prop::collection::vec((0usize..2, 0u32..60, 1u32..12, 0u64..200), 100..300),
        reporting in prop::bool::ANY,
    ) {
        let rule_set = rules(&json!([
            {"name": "slow", "key": ["client_address"], "rate": "6/m", "burst": 5},
            {"name": "fast", "key": ["client_address"], "rate": "5/s", "burst": 10},
        ]));
        let quotas = [0, 1].map(|rule: usize| rule_set.rules()[rule].quota);
        let mut workers: Vec<_> = (0..2).map(|w| limiter(rule_set.clone(), reporting.then_some(w))).collect();
        let (mut slots, mut now, mut model) = (LocalSlots::new(1), T0, BTreeMap::new());
        for (worker, who, asks, step_ms) in steps {
            now += step_ms * MS;
            for _ in 0..asks {
                if workers[worker].decide(&mut client(who), &mut slots, now).outcome() == DecisionKind::Allow {
                    let buckets = model.entry(who).or_insert([Bucket::FULL; 2]);
                    for (bucket, quota) in buckets.iter_mut().zip(&quotas) {
                        let Admission::Taken(after) = bucket.take(quota, 1, now) else {
                            return Err(TestCaseError::fail(std::format!("client {who} had none left")));
                        };
                        *bucket = after;
                    }
                }
            }
        }
    }
}
