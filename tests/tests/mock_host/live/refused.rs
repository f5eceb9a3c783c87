//! Rule sets that cannot be used or fetched, and how large they may be.

use serde_json::json;
use weir_protocol::messages::RunningRules;
use weir_rules::document::DOCUMENT_BYTES_MAX;
use weir_tests::mock_host::{CallAnswer, HttpCall, Worker};

use super::{at_the_time_of, fetch, named, push, running, set, tick, worker};
use crate::harness::{client, rule, shared, with};

#[test]
fn a_bad_one_is_refused_with_its_places_and_the_old_one_kept() {
    let shared = shared();
    let mut worker = worker(&shared);
    push(&mut worker, 7, set(&[rule("1/h", 4)]));
    let bad =
        json!({"rules": [named("Bad Name", "1/h", 1), named("b", "often", 1)], "table": {"addresses": 5}});
    push(&mut worker, 8, bad.to_string().into_bytes());
    for line in [
        "rule set 8: rules[0].name: expected",
        "rule set 8: rules[1].rate: expected",
        "rule set 8: table: unknown",
    ] {
        assert_eq!(worker.host().logged(line), 1, "{line}");
    }
    assert_eq!(worker.host().logged("rule set 8 is refused"), 1);
    assert_eq!(worker.allowed_of(9, &client(1)), 4);
    assert!(tick(&mut worker, 8).is_empty() && tick(&mut worker, 8).is_empty(), "it is refused for good");
    assert_eq!(running(&mut worker), RunningRules { version: 7, refused: 8 });
    // Another worker is spared it, and one that starts later.
    let mut late = super::worker(&shared);
    at_the_time_of(&worker, &mut late);
    assert!(tick(&mut late, 8).is_empty() && tick(&mut late, 8).is_empty());
    assert_eq!(running(&mut late), RunningRules { version: 7, refused: 8 });
    at_the_time_of(&late, &mut worker);
    push(&mut worker, 9, set(&[rule("1/h", 2)]));
    // The first client has nothing left of its burst, whatever a burst is now.
    assert_eq!([1, 2].map(|n| worker.allowed_of(9, &client(n))), [0, 2]);
    assert_eq!(running(&mut worker), RunningRules { version: 9, refused: 8 });
}

// I1, I9
#[test]
fn what_is_no_document_is_refused() {
    let many: Vec<_> = (0..100).map(|i| named(&format!("B{i}"), "1/h", 1)).collect();
    let documents = [
        Vec::new(),
        b"rules: []".to_vec(),
        vec![0xff; 40],
        vec![b'['; 100_000],
        set(&[]),
        set(&vec![rule("1/h", 1); 1_001]),
        set(&many),
        [set(&[rule("1/h", 1)]), vec![b' '; DOCUMENT_BYTES_MAX]].concat(),
    ];
    for (version, document) in (1..).zip(documents) {
        let mut worker = worker(&shared());
        push(&mut worker, version, document);
        assert_eq!(running(&mut worker), RunningRules { version: 0, refused: version });
        assert_eq!(worker.allowed_of(9, &client(1)), 5);
        let errors = worker.host().logged("weir: rule set ");
        assert!((2..=51).contains(&errors), "{errors} lines for version {version}");
    }
}

// I1
#[test]
fn a_fetch_that_fails_is_tried_again_and_holds_nothing_up() {
    let failures = [
        CallAnswer::timeout(),
        CallAnswer::new("404", vec![]),
        CallAnswer::new("503", vec![b'x'; 2_000_000]),
        CallAnswer::new("401", set(&[rule("1/h", 1)])),
    ];
    let mut worker = worker(&shared());
    let mut call = fetch(&mut worker, 7);
    for (n, failure) in (1u8..).zip(failures) {
        assert_eq!(worker.allowed_of(9, &client(n)), 5, "decided by the rules there are");
        worker.answer_call(call.token, failure);
        assert_eq!(worker.allowed_of(9, &client(n + 100)), 5);
        worker.tick();
        let is_report = |call: &HttpCall| !call.body.is_empty();
        assert!(worker.host().http_calls.iter().all(is_report), "{n}: not before the next interval");
        call = again(&mut worker);
    }
    assert_eq!(worker.host().logged("no rule set: "), 4);
    worker.answer_call(call.token, CallAnswer::timeout());
    let call = again(&mut worker);
    worker.answer_call(call.token, CallAnswer::timeout());
    assert_eq!(worker.host().logged("no rule set: "), 5, "the same trouble is told once");
    let call = again(&mut worker);
    worker.answer_call(call.token, CallAnswer::new("200", set(&[rule("1/h", 2)])));
    assert_eq!(worker.allowed_of(9, &client(50)), 2);
    assert_eq!(running(&mut worker), RunningRules { version: 7, refused: 0 });
}

/// The fetch that is made after one that failed, some intervals later.
fn again(worker: &mut Worker) -> HttpCall {
    (0..40).find_map(|_| tick(worker, 7).pop()).expect("another fetch")
}

#[test]
fn nonsense_in_shared_data_is_fetched_anew() {
    // Of the document, its version, and the word of it.
    for (is_word, at) in [(false, 8), (false, 2), (true, 0)] {
        let shared = shared();
        push(&mut worker(&shared), 7, set(&[rule("1/h", 2)]));
        shared.tamper(b"weir.rules", |value| {
            if is_word == (value.len() == 16) && value.len() > 8 {
                value[at] ^= 0x55;
            }
        });
        let mut late = worker(&shared);
        late.advance_ms(60_000);
        assert_eq!(late.allowed_of(9, &client(1)), 5);
        push(&mut late, 7, set(&[rule("1/h", 2)]));
        assert_eq!(late.allowed_of(9, &client(2)), 2);
        assert_eq!(worker(&shared).allowed_of(9, &client(3)), 2);
    }
}

// I2
#[test]
fn a_thousand_rules_in_a_mebibyte_are_taken() {
    let rules: Vec<_> = (0..999)
        .map(|i| {
            with(named(&format!("r{i}"), "1/h", 9), "match", json!({"path": {"exact": format!("/{i}")}}))
        })
        .chain([rule("1/h", 2)])
        .collect();
    let mut document = set(&rules);
    document.resize(DOCUMENT_BYTES_MAX, b' ');
    let shared = shared();
    let mut worker = worker(&shared);
    push(&mut worker, 7, document);
    assert_eq!(worker.allowed_of(9, &client(1)), 2);
    assert_eq!(shared.size_of(b"weir.rules"), Some(DOCUMENT_BYTES_MAX + 8));
    assert_eq!(super::worker(&shared).allowed_of(9, &client(2)), 2);
    assert_eq!(running(&mut worker).version, 7);
}

// I2
#[test]
fn pushed_sets_cost_no_memory_and_few_metrics() {
    let shared = shared();
    let mut worker = worker(&shared);
    let mut sizes = Vec::new();
    for version in 1..=40 {
        let rules: Vec<_> = (0..600).map(|i| named(&format!("v{version}-{i}"), "1/h", 9)).collect();
        push(&mut worker, version, set(&rules));
        sizes.push((worker.memory_bytes(), worker.host().metric_names().len()));
    }
    // The allocator may take a page or two more for the same once in a while, not for each: a set takes seven.
    assert!(sizes[39].0 - sizes[19].0 <= 2 * 65_536, "{sizes:?}");
    // Four for each of 4,000 rules, and those that are always there.
    assert!((16_000..16_100).contains(&sizes[39].1), "{sizes:?}");
    assert_eq!(worker.host().logged("rules have no metrics"), 34);
    assert_eq!(running(&mut worker).version, 40);
}
