//! The top keys: an operator asks any weir-sync about the whole fleet.

use std::time::Duration;

use serde_json::Value;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::open_loop;
use weir_tests::operator::Operator;
use weir_tests::redis::Redis;
use weir_tests::wait::until;
use weir_tests::weir_sync::WeirSync;

use crate::plugin::one;
use crate::sync::synced;

/// Requests that the rule admits per second, and at once.
const RATE: u32 = 20;
/// Requests per second of the attacker at each of two POPs, and of a bystander at one.
const ATTACK: u32 = 100;
const CALM: u32 = 6;
/// Time for which both ask, in seconds.
const SECONDS: u32 = 8;
/// The tolerance of the list's figures, as a part.
const TOLERANCE: f64 = 0.15;

async fn edge(pop: &str, weir_sync: &WeirSync) -> Envoy {
    let plugin = synced(one("per-address", &format!("{RATE}/s"), RATE), pop);
    Envoy::in_touch(Setup::with(plugin).pop(pop, weir_sync)).await
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row:#}"))
}

fn assert_near(row: &Value, name: &str, expected: f64) {
    let found = number(row, name);
    assert!((found - expected).abs() <= TOLERANCE * expected, "{name} is {found}, not {expected:.1}: {row:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attacker_at_two_regions_leads_the_list_of_keys() {
    let redis = Redis::start().await;
    let sync_a = WeirSync::start("fra1", &redis.url()).await;
    let sync_b = WeirSync::start("nyc1", &redis.url()).await;
    let (a, b) = (edge("fra1", &sync_a).await, edge("nyc1", &sync_b).await);
    let (attacker, bystander) = (Ask::from("203.0.113.7"), Ask::from("203.0.113.8"));
    let span = Duration::from_secs(SECONDS.into());
    let [mut at_a, mut at_b, mut calm] = [a.client(), b.client(), a.client()];
    let (of_a, of_b, of_calm) = tokio::join!(
        open_loop(&mut at_a, &attacker, ATTACK, span),
        open_loop(&mut at_b, &attacker, ATTACK, span),
        open_loop(&mut calm, &bystander, CALM, span)
    );
    assert_eq!(of_calm.tally.admitted(), of_calm.tally.total(), "{of_calm:?}");
    let asked = f64::from(ATTACK) * f64::from(SECONDS) / of_a.lasted.as_secs_f64();
    let admitted = u32::try_from(of_a.tally.admitted() + of_b.tally.admitted()).unwrap();
    assert!(admitted < ATTACK * SECONDS / 2, "{admitted}");

    // How both POPs are.
    let mut operator = Operator::of(&sync_b);
    until("both POPs to be in touch", async || {
        let page = operator.get("/v1/fleet").await.json();
        let pops = page["pops"].as_array().unwrap();
        let is_well = |pop: &Value| {
            let is_right = pop["clock_s"].as_f64().is_some_and(|off_s| off_s.abs() < 2.0);
            is_right && pop["connectivity"] == "fresh" && pop["module"] == env!("CARGO_PKG_VERSION")
        };
        (pops.len() == 2 && pops.iter().all(is_well)).then_some(())
    })
    .await;

    // The rule's decisions in both regions, known within a second or two.
    let expected = [("allowed_per_s", f64::from(RATE + CALM)), ("limited_per_s", 2.0 * asked - f64::from(RATE))];
    until("the rates of both regions", async || {
        let page = operator.get("/v1/rates").await.json();
        let rule = &page["rules"][0];
        let is_near = |(name, expected): (&str, f64)| (number(rule, name) - expected).abs() <= TOLERANCE * expected;
        let is_whole = rule["pops"] == 2 && page["is_partial"] == false;
        (is_whole && expected.into_iter().all(is_near)).then_some(())
    })
    .await;

    // Any weir-sync answers for both regions, as long as the rates of the last seconds hold.
    let page = until("both regions to be listed", async || {
        let page = operator.get("/v1/keys?rule=per-address&sort=limited").await.json();
        (page["keys"][0]["regions"].as_array().map(Vec::len) == Some(2)).then_some(page)
    })
    .await;
    let top = &page["keys"][0];
    assert_eq!((&top["rule"], &top["key"]), (&"per-address".into(), &"203.0.113.7".into()), "{page:#}");
    assert_near(top, "asked_per_s", 2.0 * asked);
    assert_near(top, "admitted_per_s", f64::from(RATE));
    assert_near(top, "limited_per_s", 2.0 * asked - f64::from(RATE));
    assert!(top["since"].is_string() && number(top, "level") < f64::from(RATE), "{top:#}");
    let mut pops: Vec<_> = top["pops"].as_array().unwrap().iter().map(|pop| pop["pop"].as_str().unwrap()).collect();
    pops.sort_unstable();
    assert_eq!(pops, ["fra1", "nyc1"]);
    for pop in top["pops"].as_array().unwrap() {
        assert_near(pop, "asked_per_s", asked);
    }
    let others = page["keys"].as_array().unwrap().iter().filter(|row| row["key"] == "203.0.113.8");
    for row in others {
        assert!(number(row, "limited_per_s") == 0.0 && row["since"].is_null(), "{row:#}");
    }
    let one = operator.get("/v1/keys/per-address/203.0.113.7").await.json();
    assert!(number(&one, "full_in_s") > 0.0 && one["grant"].is_object(), "{one:#}");
    let calm = operator.get("/v1/keys/per-address/203.0.113.8").await.json();
    assert!(number(&calm, "free_in_s") == 0.0 && number(&calm, "limited_per_s") == 0.0, "{calm:#}");
}
