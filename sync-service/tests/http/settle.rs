//! Checks that reserve an estimate, and learn the cost of the request later.
//!
//! Tests of I6.

use std::cell::Cell;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Answer;
use crate::gateway::{check, gateway, in_force, send};
use crate::{Server, until};

/// A hundred a day for each key, never more.
async fn hundred() -> Server {
    let server = Server::start(gateway()).await;
    let rule = json!({"name": "tokens", "key": [{"header": "x-api-key"}], "rate": "100/d", "strict": true});
    in_force(&server, &json!({"rules": [rule]})).await;
    server
}

/// A check of `cost` for a key.
#[allow(clippy::needless_pass_by_value, reason = "plainer to call")]
fn of(key: &str, cost: u32, fields: Value) -> Value {
    let mut asked = json!({"headers": {"x-api-key": key}, "cost": cost});
    asked.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    asked
}

/// Reserves `cost`, which must be there; returns the reservation.
async fn reserve(server: &Server, key: &str, cost: u32, reserve_s: u32) -> String {
    let reservation = Cell::new(None);
    // What a check before has acquired, and not taken, goes back within an interval.
    until("it is so", async || {
        let answer = check(server, &of(key, cost, json!({"reserve_s": reserve_s}))).await;
        reservation.set(answer["reservation"].as_str().map(str::to_owned));
        answer["decision"] == "allow"
    })
    .await;
    reservation.take().unwrap()
}

async fn settle(server: &Server, reservation: &str, cost: u32) -> Answer {
    send(server, "/v1/settle", "", &json!({"reservation": reservation, "cost": cost})).await
}

async fn is_allowed(server: &Server, key: &str, cost: u32) -> bool {
    check(server, &of(key, cost, json!({"peek": true}))).await["decision"] == "allow"
}

#[tokio::test]
async fn unspent_tokens_are_returned_once() {
    let server = hundred().await;
    let reservation = reserve(&server, "alice", 80, 60).await;
    assert!(!is_allowed(&server, "alice", 30).await, "80 of 100 are reserved");
    for _ in 0..3 {
        let answer = settle(&server, &reservation, 20).await;
        assert_eq!((answer.status, answer.text()), (200, json!({"cost": 20, "reservation": reservation}).to_string()));
    }
    until("it is so", async || is_allowed(&server, "alice", 80).await).await;
    assert!(!is_allowed(&server, "alice", 81).await, "20 of 100 are spent");
    let other = settle(&server, &reservation, 30).await;
    assert_eq!(other.status, 409, "{}", other.text());
    assert!(other.detail().contains("with a cost of 20"), "{}", other.detail());
    // One that failed costs nothing.
    let reservation = reserve(&server, "alice", 80, 60).await;
    assert_eq!(settle(&server, &reservation, 0).await.status, 200);
    until("it is so", async || is_allowed(&server, "alice", 80).await).await;
}

/// Under rules that are not strict, the gateway's own bucket or window gets back what a request did not cost.
#[tokio::test]
async fn tokens_returned_under_other_rules_are_free_again() {
    let server = Server::start(gateway()).await;
    let rule = |name: &str, fields: Value| {
        let mut rule = json!({"name": name, "key": [{"header": "x-api-key"}],
            "match": {"path": {"exact": format!("/{name}")}}});
        rule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        rule
    };
    let rules = [
        rule("bucket", json!({"rate": "100/d"})),
        rule("window", json!({"rate": "100/d", "algorithm": "fixed_window"})),
        rule("after", json!({"rate": "100/d", "cost": {"after": {"header": "x-tokens"}, "reserve": 80}})),
        rule("places", json!({"limit": 80, "algorithm": "concurrency"})),
    ];
    in_force(&server, &json!({"rules": rules})).await;
    for (path, cost, left) in [("/bucket", 80, 80), ("/window", 80, 80), ("/after", 1, 0), ("/places", 80, 80)] {
        let asked = |cost: u32| of("alice", cost, json!({"path": path, "reserve_s": 60}));
        let answer = check(&server, &asked(cost)).await;
        let reservation = answer["reservation"].as_str().unwrap();
        assert_eq!(check(&server, &asked(cost.max(30))).await["decision"], "limit", "{path}");
        assert_eq!(settle(&server, reservation, 20).await.status, 200);
        // A rule with a `reserve` of its own takes that for each.
        let again = check(&server, &asked(if left > 0 { left } else { 1 })).await;
        assert_eq!(again["decision"], "allow", "{path} {again}");
    }
}

/// Ten tokens at three a request are four requests, and one that costs a hundred is one, however soon the next one
/// comes.
#[tokio::test]
async fn a_cost_that_does_not_fit_is_debt_before_the_next_check() {
    let server = Server::start(gateway()).await;
    let kinds = [
        ("bucket", json!({})),
        ("strict", json!({"strict": true})),
        ("window", json!({"algorithm": "fixed_window"})),
        ("strict-window", json!({"algorithm": "fixed_window", "strict": true})),
        ("log", json!({"algorithm": "sliding_log"})),
        ("strict-log", json!({"algorithm": "sliding_log", "strict": true})),
    ];
    let rules = kinds.iter().map(|(name, fields)| {
        let mut rule = json!({"name": name, "key": [{"header": "x-api-key"}], "rate": "10/d",
            "match": {"path": {"exact": format!("/{name}")}}});
        rule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        rule
    });
    in_force(&server, &json!({"rules": rules.collect::<Vec<_>>()})).await;
    for (name, _) in &kinds {
        for (key, cost, passes) in [("alice", 3, 4), ("bob", 100, 1)] {
            let mut passed = 0;
            for _ in 0..12 {
                let asked = of(key, 1, json!({"path": format!("/{name}"), "reserve_s": 60}));
                let answer = check(&server, &asked).await;
                if let Some(reservation) = answer["reservation"].as_str() {
                    assert_eq!(settle(&server, reservation, cost).await.status, 200);
                    passed += 1;
                }
            }
            assert_eq!(passed, passes, "{name} at {cost} each");
        }
    }
}

#[tokio::test]
async fn an_unsettled_reservation_costs_its_estimate() {
    let server = hundred().await;
    let reservation = reserve(&server, "alice", 80, 1).await;
    until("it is so", async || settle(&server, "fra/a:1", 0).await.status == 404).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let late = settle(&server, &reservation, 0).await;
    assert_eq!(late.status, 404, "{}", late.text());
    assert!(late.detail().contains("its estimate stays charged"), "{}", late.detail());
    assert!(is_allowed(&server, "alice", 20).await && !is_allowed(&server, "alice", 21).await);
}

#[tokio::test]
async fn many_are_settled_in_one_body_each_by_itself() {
    let server = hundred().await;
    let [first, second] = [reserve(&server, "alice", 50, 60).await, reserve(&server, "bob", 50, 60).await];
    let of = |reservation: &str, cost: u32| json!({"reservation": reservation, "cost": cost});
    let body = json!([of(&first, 1), of("fra/b:12", 2), of("fra/a:x", 3), of(&second, 4)]);
    let answer = send(&server, "/v1/settle", "", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let list: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((&list[0], &list[3]), (&of(&first, 1), &of(&second, 4)), "{list}");
    let error = |place: usize| list[place]["error"].as_str().unwrap();
    assert!(error(1).contains("the gateway fra/b made this reservation"), "{list}");
    assert!(error(2).contains("no such reservation"), "{list}");
    assert_eq!(settle(&server, "fra/b:12", 2).await.status, 421);
}

#[tokio::test]
async fn a_refused_check_reserves_nothing() {
    let server = hundred().await;
    let refused = check(&server, &of("alice", 101, json!({"reserve_s": 60}))).await;
    assert_eq!((&refused["decision"], &refused["reservation"]), (&json!("limit"), &Value::Null), "{refused}");
    for (path, body, expected) in [
        ("/v1/check", json!({"reserve_s": 601}), "expected a whole number from 1 to 600, found 601"),
        ("/v1/check", json!({"reserve_s": 1, "peek": true}), "expected none beside peek"),
        ("/v1/settle", json!({"cost": 1}), "missing: expected what the check was answered as its reservation"),
        ("/v1/settle", json!({"reservation": "a"}), "missing: expected what the request cost"),
        ("/v1/settle", json!({"reservation": "a", "cost": 1_000_001}), "expected a whole number from 0 to 1000000"),
    ] {
        let answer = send(&server, path, "", &body).await;
        assert_eq!(answer.status, 422, "{}", answer.text());
        assert!(answer.text().contains(expected), "{expected}: {}", answer.text());
    }
}
