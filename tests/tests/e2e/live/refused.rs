//! An invalid rule set is refused where it is put, and goes nowhere else.

use serde_json::{Value, json};
use weir_tests::client::Ask;
use weir_tests::region;

use super::{CLIENT, Fleet, NARROW, WIDE, document};
use crate::plugin::with;

/// Documents that no POP could use, and where in them.
fn unusable() -> [(Value, &'static str); 3] {
    let mut dear = document(NARROW);
    dear["rules"][0]["cost"] = json!(2);
    let mut endless = document(NARROW);
    endless["rules"][1]["match"] = json!({"headers": [{"name": "x-a", "regex": "(((a{100}){100}){100}){100}"}]});
    [(dear, "rules[0]"), (endless, "rules[1].match.headers[0].regex"), (with(json!({}), "rule", json!([])), "rule")]
}

// I1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_rule_set_is_refused_and_changes_nothing() {
    let (fleet, version) = Fleet::start(&document(WIDE)).await;
    let load = fleet.load().await;
    let mut operator = fleet.operator(0);
    for (document, place) in unusable() {
        let answer = operator.put(&document).await;
        assert_eq!(answer.status, 422, "{answer:?}");
        assert!(answer.text().contains(place), "expected the place {place}: {answer:?}");
    }
    for region in &fleet.regions {
        region.edge.counter_grows("weir.sync.answered", 8).await;
    }
    region::run(&fleet.regions, version).await;
    let answers = load.stop().await;
    let limited: usize = answers.0.iter().flatten().map(|run| run.tally.limited()).sum();
    assert_eq!(limited, 0, "the wide rule went on");
    for region in &fleet.regions {
        assert_eq!(region.edge.counter("weir.rule_set.refused").await, 0);
        let ask = Ask::get("/changed").forwarded_for(CLIENT);
        assert_eq!(region.edge.client().send(&ask).await.status, 200);
    }
}
