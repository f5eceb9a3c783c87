//! Coding the messages between a POP and weir-sync.

use std::hint::black_box;

use weir_protocol::messages::{
    AdmitRatio, Allowance, BudgetRule, Grant, Key, Message, Replies, Reply, Report, RunningRules, Settled,
};
use weir_protocol::quota::Quota;
use weir_protocol::sharing::Sharing;
use weir_rules::address::{Prefixes, parse};
use weir_rules::key::KeyValue;

use super::{Case, Operation, address};

/// Keys in a message.
const KEYS: u32 = 100;

pub(super) const CASES: &[Case] = &[
    Case { group: "wire", name: "encode a report of 100 keys", start: || encode(report()) },
    Case { group: "wire", name: "decode a report of 100 keys", start: || decode(&report()) },
    Case { group: "wire", name: "encode 100 grants", start: || encode(reply()) },
    Case { group: "wire", name: "decode 100 grants", start: || decode(&reply()) },
];

fn encode<M: Message + 'static>(message: M) -> Operation {
    Box::new(move || {
        black_box(black_box(&message).encode());
    })
}

fn decode<M: Message>(message: &M) -> Operation {
    let bytes = message.encode();
    assert!(M::decode(&bytes).is_ok(), "the message that is to be measured");
    Box::new(move || {
        let _ = black_box(M::decode(black_box(&bytes)));
    })
}

/// A POP's report of clients that are all in the middle of a flood.
fn report() -> Report {
    let quota = Quota::new("100/s".parse().expect("a rate"), 200).expect("a quota");
    let key = |n: u32| {
        let client = parse(&address(n)).expect("an address");
        Key {
            rule: 0,
            value: KeyValue::of_address(client, Prefixes::default()).as_bytes().to_vec(),
            epoch: 0x1234_5678 + n,
            admitted: 12_345 + u64::from(n),
            unconfirmed: 25,
            span_ms: 250,
            missing: 0,
            asked: 123_456 + u64::from(n),
            asked_recently: 250,
            ahead: 0,
        }
    };
    Report {
        pop: "fra-1".into(),
        worker: 0x1234_5678_9abc_def0,
        sequence: 4_321,
        table: 0xdead_beef,
        made_ms: 86_400_000,
        pops: 330,
        running: RunningRules { version: 3, refused: 0 },
        replies: Replies { done: 4_320, lost: 0 },
        rules: vec![BudgetRule { name: "per-client".into(), quota, sharing: Sharing::of(quota) }],
        keys: (0..KEYS).map(key).collect(),
        bans: Vec::new(),
        held: Vec::new(),
        status: None,
    }
}

/// The answer to it: each client gets a third of what it asks for.
fn reply() -> Reply {
    let grant = |n: u32| {
        let level_milli = i64::from(n) * 100 - 5_000;
        Allowance::Hot(Grant { ratio: AdmitRatio::of(1, 3), level_milli, burst: 200, divisor: 2, lease_ms: 2_000 })
    };
    Reply {
        sequence: 4_321,
        pops: 330,
        is_guess: false,
        settled: Settled::All,
        grants: (0..KEYS).map(grant).collect(),
        rule_set: 3,
        rules: Vec::new(),
        pushed: Vec::new(),
        bans: Vec::new(),
        workers: 4,
    }
}
