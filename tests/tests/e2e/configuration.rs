//! Configuration: a bad one is refused, a good one takes over.

use serde_json::{Value, json};
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Host, Setup};
use weir_tests::load::drain;
use weir_tests::wait::until;

use crate::plugin::{one, rule, rules, with};

/// A configuration with an error of every kind, and where they are.
fn bad() -> (Value, [&'static str; 9]) {
    let plugin = json!({
        "rules": [
            {"name": "Per Address", "key": ["client_adress"], "rate": "50", "burst": 0, "response": {"status": 200}},
            {"name": "good", "key": ["client_address"], "rate": "1/s", "colour": "blue"},
            {"key": ["client_address"], "rate": "1/s", "match": {"path": {"regex": "x"}}},
        ],
        "table": {"addresses": "many"},
        "sink": {},
    });
    let places = [
        "rules[0].name",
        "rules[0].key[0]",
        "rules[0].rate",
        "rules[0].burst",
        "rules[0].response.status",
        "rules[1].colour",
        "rules[2].name",
        "rules[2].match.path",
        "table.addresses",
    ];
    (plugin, places)
}

/// Panics unless the log names each place on a line of its own, with what was expected.
fn assert_names(log: &str, places: &[&str]) {
    for place in places {
        let line = log.lines().find(|line| line.contains(&format!("weir: {place}: ")));
        let line = line.unwrap_or_else(|| panic!("no error at {place} in:\n{log}"));
        assert!(line.len() > line.find(place).unwrap_or_default() + place.len() + 10, "expected a reason: {line}");
    }
}

#[tokio::test]
async fn envoy_refuses_to_start_with_a_bad_configuration() {
    for host in Host::BOTH {
        for (plugin, places) in [(bad().0, &["rules[0].name", "sink"][..]), (json!({"rules": []}), &["rules"])] {
            let (status, log) = Envoy::start_refused(Setup::with(plugin).host(host)).await;
            assert!(!status.success(), "{host:?}: {status}");
            assert_names(&log, places);
        }
    }
}

#[tokio::test]
async fn a_bad_configuration_is_refused_and_the_old_one_stays() {
    for host in Host::BOTH {
        let setup = Setup::with(one("per-address", "1/h", 3)).host(host).from_file();
        let mut edge = Envoy::start(setup).await;
        let (mut client, ask) = (edge.client(), Ask::from("203.0.113.7"));
        assert_eq!(client.send(&ask).await.status, 200);

        let (plugin, places) = bad();
        edge.reconfigure(plugin);
        edge.stat_reaches("listener_manager.lds.update_rejected", 1).await;
        assert_names(&edge.log(), &places);
        // On the old connection and on a new one, with the level as it was.
        assert_eq!(client.send(&ask).await.status, 200);
        assert_eq!(drain(&mut edge.client(), &ask, 10).await.1, 1);

        // And a good one is still welcome afterwards.
        edge.reconfigure(one("after", "1/h", 1));
        until("the good configuration", async || {
            let answer = edge.client().send(&Ask::from("203.0.113.8")).await;
            answer.header("ratelimit").starts_with(r#""after""#).then_some(())
        })
        .await;
        edge.assert_alive();
    }
}

#[tokio::test]
async fn an_unchanged_rule_keeps_its_buckets_in_a_new_configuration() {
    let path = |rule, exact: &str| with(rule, "match", json!({"path": {"exact": exact}}));
    let kept = || path(rule("kept", "1/h", 4), "/kept");
    let before = rules([kept(), path(rule("changed", "1/h", 1), "/changed")]);
    let to = |path: &str| Ask::get(path).forwarded_for("203.0.113.7");
    for host in Host::BOTH {
        let mut edge = Envoy::start(Setup::with(before.clone()).host(host).from_file()).await;
        assert_eq!(edge.client().send(&to("/kept")).await.status, 200);
        assert_eq!(drain(&mut edge.client(), &to("/changed"), 5).await.1, 1);

        // The rule also moves to another place in the list: a rule is its name, not its index.
        edge.reconfigure(rules([path(rule("changed", "1/m", 5), "/changed"), kept()]));
        let probe = Ask::get("/changed").forwarded_for("203.0.113.99");
        until("the new configuration", async || {
            let answer = edge.client().send(&probe).await;
            (answer.header("x-ratelimit-limit") == "5").then_some(())
        })
        .await;
        assert_eq!(drain(&mut edge.client(), &to("/kept"), 9).await.1, 3, "one of four was taken before");
        assert_eq!(drain(&mut edge.client(), &to("/changed"), 9).await.1, 5, "another quota is another bucket");
        edge.assert_alive();
    }
}
