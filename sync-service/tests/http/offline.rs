//! While the store is out of reach, a region grants its own share, confirms nothing, and loses nothing; and several
//! weir-syncs of one region count each report of a POP once.

use weir_protocol::messages::{Allowance, Leased, Report};
use weir_sync::config::Config;

use crate::client::{greeting, one_key};
use crate::exchange::{metric, replied};
use crate::stores::Shared;
use crate::{Server, replica};

/// Gauge of whether the fleet's size is known.
const KNOWN: &str = r#"weir_sync_pops_known{region="fra"}"#;

/// The level of the only key, in thousandths, its burst, and whether the report was settled.
async fn level(server: &Server, sent: &Report) -> (i64, u32, bool) {
    let reply = replied(server, sent).await;
    let grant = reply.grants[0].grant().expect("a grant");
    (grant.level_milli, grant.burst, reply.settled.is_all())
}

// I5, I7
#[tokio::test]
async fn an_offline_region_has_its_share_and_is_charged_later() {
    let store = Shared::new(Config::default().pop_ttl);
    let fra = replica("fra", "a", &store).await;
    let iad = replica("iad", "a", &store).await;
    for pop in ["iad2", "iad3"] {
        replied(&iad, &greeting(pop)).await;
    }
    // 20 of 100 are taken elsewhere; one POP of four reports here.
    replied(&iad, &one_key("iad1", 1, 20, 20, 20)).await;
    assert_eq!(level(&fra, &one_key("fra1", 1, 0, 0, 0)).await, (80_000, 100, true));
    store.set_gone(true);
    // A quarter of the quota, less the fifth that was taken, and less what is not confirmed.
    assert_eq!(level(&fra, &one_key("fra1", 2, 5, 5, 5)).await, (15_000, 25, false));
    assert_eq!(level(&fra, &one_key("fra1", 3, 7, 7, 7)).await, (13_000, 25, false));
    assert_eq!(level(&fra, &one_key("fra1", 3, 7, 7, 7)).await, (13_000, 25, false), "a repeat");
    assert_eq!(replied(&fra, &greeting("fra1")).await.pops, 4, "as last known");
    assert!(metric(&fra, KNOWN).await > 0.5);
    store.set_gone(false);
    assert_eq!(level(&fra, &one_key("fra1", 4, 10, 10, 10)).await, (70_000, 100, true));
    assert_eq!(level(&iad, &one_key("iad1", 2, 20, 0, 20)).await, (70_000, 100, true));
    // The second outage begins with the store's last answer, not with where the first outage ended.
    store.set_gone(true);
    assert_eq!(level(&fra, &one_key("fra1", 5, 12, 2, 12)).await, (15_500, 25, false));
    assert!(metric(&fra, r#"weir_sync_reports_offline_total{region="fra"}"#).await >= 5.0);
}

// I6
#[tokio::test]
async fn offline_strict_keys_get_nothing_and_hot_keys_are_pushed() {
    let store = Shared::new(Config::default().pop_ttl);
    let server = replica("fra", "a", &store).await;
    store.set_gone(true);
    let mut mixed = one_key("fra1", 1, 60, 60, 60);
    let mut rule = mixed.rules[0].clone();
    rule.name = "login".into();
    rule.sharing.strict = true;
    mixed.rules.insert(0, rule);
    mixed.keys[0].rule = 1;
    let mut strict = mixed.keys[0].clone();
    (strict.rule, strict.ahead) = (0, 10);
    mixed.keys.insert(0, strict);
    let answered = replied(&server, &mixed).await;
    assert!(!answered.settled.is_all());
    let late = replica("fra", "b", &store).await;
    assert!(metric(&late, KNOWN).await < 0.5, "it has never asked the store");
    assert_eq!(answered.grants[0], Allowance::Leased(Leased::of(0, 0)));
    assert_eq!(answered.grants[1].grant().unwrap().level_milli, 40_000);
    let other = replied(&server, &greeting("fra2")).await;
    assert!(other.rules.contains(&"per-address".to_owned()), "{other:?}");
    assert!(other.pushed.iter().any(|pushed| pushed.grant.level_milli == 40_000), "{other:?}");
}

// I7
#[tokio::test]
async fn a_pop_that_alternates_between_replicas_is_charged_once() {
    let store = Shared::new(Config::default().pop_ttl);
    let servers = [replica("fra", "a", &store).await, replica("fra", "b", &store).await];
    let mut levels = Vec::new();
    for (n, server) in (1..=6).zip(servers.iter().cycle()) {
        // A reply confirms, no matter which replica sends it.
        let answered = replied(server, &one_key("fra1", n, 10 * n, 10, 10 * n)).await;
        assert_eq!(answered.pops, 1, "one POP, for any number of reporters");
        levels.push(answered.grants[0].grant().unwrap().level_milli);
    }
    assert_eq!(levels, [90_000, 80_000, 70_000, 60_000, 50_000, 40_000]);
    let last = store.accounts().last().unwrap().clone();
    let names: Vec<_> = last.replicas.iter().map(|m| &*m.name).collect();
    assert_eq!(names, ["fra/a", "fra/b"]);
    // Both know the budget. Without the store nothing is confirmed any more, so both count all of it.
    replied(&servers[0], &one_key("fra1", 6, 60, 0, 60)).await;
    store.set_gone(true);
    let mut levels = Vec::new();
    for (n, server) in (7..=9).zip(servers.iter().cycle()) {
        let sent = one_key("fra1", n, 10 * n, 10 * (n - 6), 10 * n);
        levels.push(replied(server, &sent).await.grants[0].grant().unwrap().level_milli);
    }
    assert_eq!(levels, [30_000, 20_000, 10_000]);
}
