//! While the store is out of reach, a region grants its own share, confirms nothing, and loses nothing.

use std::time::{Duration, Instant};

use weir_protocol::messages::{Allowance, Leased, Report};
use weir_sync::config::{Config, Secret, StoreAddress};

use crate::Server;
use crate::client::{greeting, one_key, report};
use crate::exchange::{metric, reply};
use crate::stores::{FakeRedis, Shared};

/// Tolerance for a busy machine.
const SLACK: Duration = Duration::from_secs(2);

fn region(name: &str) -> Config {
    Config { region: name.into(), ..Config::default() }
}

/// The level of the only key, in thousandths, its burst, and whether the report was settled.
async fn level(server: &Server, sent: &Report) -> (i64, u32, bool) {
    let reply = reply(&report(server.address, "", sent).await);
    let grant = reply.grants[0].grant().expect("a grant");
    (grant.level_milli, grant.burst, reply.settled.is_all())
}

async fn is_settled(server: &Server, sent: &Report) -> bool {
    reply(&report(server.address, "", sent).await).settled.is_all()
}

// I5, I7
#[tokio::test]
async fn an_offline_region_has_its_share_and_is_charged_later() {
    let store = Shared::new(Config::default().pop_ttl);
    let fra = Server::start_over(region("fra"), store.clone()).await;
    let iad = Server::start_over(region("iad"), store.clone()).await;
    for pop in ["iad2", "iad3"] {
        report(iad.address, "", &greeting(pop)).await;
    }
    // 20 of 100 are taken elsewhere; one POP of four reports here.
    report(iad.address, "", &one_key("iad1", 1, 20, 20, 20)).await;
    assert_eq!(level(&fra, &one_key("fra1", 1, 0, 0, 0)).await, (80_000, 100, true));
    store.set_gone(true);
    // A quarter of the quota, less the fifth that was taken, and less what is not confirmed.
    assert_eq!(level(&fra, &one_key("fra1", 2, 5, 5, 5)).await, (15_000, 25, false));
    assert_eq!(level(&fra, &one_key("fra1", 3, 7, 7, 7)).await, (13_000, 25, false));
    assert_eq!(level(&fra, &one_key("fra1", 3, 7, 7, 7)).await, (13_000, 25, false), "a repeat");
    assert_eq!(reply(&report(fra.address, "", &greeting("fra1")).await).pops, 4, "as last known");
    store.set_gone(false);
    assert_eq!(level(&fra, &one_key("fra1", 4, 10, 10, 10)).await, (70_000, 100, true));
    assert_eq!(level(&iad, &one_key("iad1", 2, 20, 0, 20)).await, (70_000, 100, true));
    // The second outage begins with the store's last answer, not with where the first outage ended.
    store.set_gone(true);
    assert_eq!(level(&fra, &one_key("fra1", 5, 12, 2, 12)).await, (15_500, 25, false));
    assert!(metric(&fra, r#"weir_sync_reports_offline_total{region="fra"}"#).await >= 5.0);
}

/// The burst granted to `sent`, and the reply's POPs.
async fn granted(server: &Server, sent: &Report) -> (u32, u32, bool) {
    let reply = reply(&report(server.address, "", sent).await);
    assert!(!reply.settled.is_all());
    (reply.grants[0].grant().expect("a grant").burst, reply.pops, reply.is_guess)
}

// I5
#[tokio::test]
async fn a_weir_sync_started_offline_uses_its_pops_count() {
    let known = r#"weir_sync_pops_known{region="fra"}"#;
    let store = Shared::new(Config::default().pop_ttl);
    store.set_gone(true);
    let fra = Server::start_over(region("fra"), store.clone()).await;
    assert_eq!(granted(&fra, &one_key("fra1", 1, 40, 40, 40)).await, (100, 1, true), "the number of POPs is unknown");
    assert!(metric(&fra, known).await < 0.5);
    let knowing = |sequence, pops| Report { pops, ..one_key("fra1", sequence, 40, 40, 40) };
    assert_eq!(granted(&fra, &knowing(2, 2)).await, (50, 2, false));
    assert!(metric(&fra, known).await > 0.5);
    // A restarted POP: both POPs of the fleet report here.
    assert_eq!(granted(&fra, &one_key("fra2", 1, 10, 10, 10)).await, (100, 2, false));
    // Once the store has counted the POPs, the count of POPs no longer matters.
    store.set_gone(false);
    for pop in ["fra1", "fra2"] {
        assert_eq!(reply(&report(fra.address, "", &greeting(pop)).await).pops, 2);
    }
    store.set_gone(true);
    assert_eq!(granted(&fra, &knowing(3, 4)).await, (100, 2, false));
}

// I6
#[tokio::test]
async fn offline_strict_keys_get_nothing_and_hot_keys_are_pushed() {
    let store = Shared::new(Config::default().pop_ttl);
    let server = Server::start_over(region("fra"), store.clone()).await;
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
    let answered = reply(&report(server.address, "", &mixed).await);
    assert!(!answered.settled.is_all());
    assert_eq!(answered.grants[0], Allowance::Leased(Leased::of(0, 0)));
    assert_eq!(answered.grants[1].grant().unwrap().level_milli, 40_000);
    let other = reply(&report(server.address, "", &greeting("fra2")).await);
    assert!(other.rules.contains(&"per-address".to_owned()), "{other:?}");
    assert!(other.pushed.iter().any(|pushed| pushed.grant.level_milli == 40_000), "{other:?}");
}

#[tokio::test]
async fn a_hung_store_delays_one_report_only() {
    let redis = FakeRedis::start().await;
    let store_timeout = Duration::from_secs(1);
    let store = StoreAddress::Redis(Secret::new(redis.url()));
    let server = Server::start(Config { store, store_timeout, ..region("fra") }).await;
    let deadline = Instant::now() + Duration::from_mins(2);
    while !is_settled(&server, &one_key("fra1", 1, 1, 1, 1)).await {
        assert!(Instant::now() < deadline, "never in reach");
    }
    redis.hang();
    let started = Instant::now();
    assert!(!is_settled(&server, &one_key("fra1", 2, 2, 1, 2)).await);
    assert!(started.elapsed() < store_timeout + SLACK, "{:?}", started.elapsed());
    for sequence in 3..50 {
        let started = Instant::now();
        assert!(!is_settled(&server, &one_key("fra1", sequence, sequence, sequence, sequence)).await);
        assert!(started.elapsed() < store_timeout / 2, "report {sequence} took {:?}", started.elapsed());
    }
}
