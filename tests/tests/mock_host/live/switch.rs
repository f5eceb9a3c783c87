//! What lives on when the rules are replaced, and what is under way then.

use serde_json::json;
use weir_protocol::messages::{Allowance, Leased, Message, Reply, Report, Settled};
use weir_tests::mock_host::{CallAnswer, Decision, HttpCall, Worker};

use super::{fetch, named, push, running, set, word, worker};
use crate::harness::{client, plugin, rule, shared, synced, with};

// I3
#[test]
fn a_bucket_of_an_unchanged_rule_keeps_its_level() {
    let mut worker = worker(&shared());
    assert_eq!(worker.allowed_of(3, &client(1)), 3);
    push(&mut worker, 7, set(&[named("wide", "1/h", 99), rule("1/h", 5)]));
    assert_eq!(worker.allowed_of(9, &client(1)), 2);
    push(&mut worker, 8, set(&[named("wide", "1/h", 99)]));
    assert_eq!(worker.allowed_of(9, &client(1)), 9);
    push(&mut worker, 9, set(&[rule("1/h", 5)]));
    assert_eq!(worker.allowed_of(9, &client(1)), 0, "as it was left");
}

#[test]
fn the_pushed_set_rules_where_the_plugins_own_changes() {
    let shared = shared();
    let mut worker = worker(&shared);
    push(&mut worker, 7, set(&[rule("1/h", 2)]));
    assert!(worker.update(synced(&rule("1/h", 50)).to_string()));
    assert_eq!(worker.allowed_of(9, &client(1)), 2);
    assert_eq!(running(&mut worker).version, 7);
    // Without weir-sync there is no fleet whose rules they were.
    assert!(worker.update(plugin(&rule("1/h", 4)).to_string()));
    assert_eq!(worker.allowed_of(9, &client(2)), 4);
}

// I1
#[test]
fn requests_that_wait_across_the_switch_are_decided() {
    let strict = |name: &str| {
        let rule = with(named(name, "5/m", 5), "strict", json!(true));
        with(rule, "response", json!({"on_allowed": true}))
    };
    let mut worker = Worker::configured(&shared(), &synced(&strict("login")));
    let leased = |call: &HttpCall, charged| {
        let report = Report::decode(&call.body).expect("weir-sync could not read this report");
        let lease = Allowance::Leased(Leased::of(charged, 2_000));
        let (sequence, grants) = (report.sequence, vec![lease; report.keys.len()]);
        let reply =
            Reply { sequence, pops: 1, settled: Settled::All, grants, rule_set: 7, ..Reply::default() };
        CallAnswer::new("200", reply.encode())
    };
    // It waits across the switch; its rule is unchanged, and moved: the token that came is spent.
    let waiting = worker.held(&client(1));
    let gone = worker.held(&client(2));
    let call = {
        worker.advance_ms(250);
        worker.tick();
        let calls = worker.host().http_calls.clone();
        let own = [waiting.call.token, gone.call.token];
        for call in calls.into_iter().filter(|call| !own.contains(&call.token)) {
            let report = Report::decode(&call.body).expect("weir-sync could not read this report");
            worker.answer_call(call.token, word(&report, 7));
        }
        worker.advance_ms(250);
        worker.tick();
        worker.host().http_calls.iter().find(|call| call.body.is_empty()).cloned().expect("no fetch")
    };
    let wide = named("wide", "1/h", 99);
    worker.answer_call(call.token, CallAnswer::new("200", set(&[wide, strict("login")])));
    let served = worker.answer_waiting(&waiting, leased(&waiting.call, 1));
    assert_eq!(served.decision, Decision::Continue);
    assert!(served.added_headers.iter().any(|(_, value)| value.contains("\"login\"")), "{served:?}");
    // Its token did not come: it asks once more, under the rules that are in force now, and no third time.
    let again = worker.answer_and_hold(&gone, leased(&gone.call, 0));
    let served = worker.answer_waiting(&again, leased(&again.call, 0));
    assert_eq!(served.answer().status, 429);
}

// I1
#[test]
fn a_response_under_way_says_nothing_of_a_rule_that_was_replaced() {
    let told = with(rule("1/h", 5), "response", json!({"on_allowed": true}));
    for is_replaced in [false, true] {
        let mut worker = Worker::configured(&shared(), &synced(&told));
        let call = fetch(&mut worker, 7);
        let begun = worker.passing(&client(1));
        if is_replaced {
            let document = set(&[with(told.clone(), "name", json!("other"))]);
            worker.answer_call(call.token, CallAnswer::new("200", document));
        }
        let served = worker.respond(begun);
        assert_eq!(served.added_headers.is_empty(), is_replaced, "{served:?}");
    }
}
