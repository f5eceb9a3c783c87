//! The live figures at `/metrics`: of this region, rule by rule.

use std::time::{Duration, Instant};

use weir_sync::config::Config;

use crate::client::{get, greeting, one_key};
use crate::exchange::{metric, replied};
use crate::stores::Shared;
use crate::{Server, replica, until};

/// A figure of region `fra`, rounded.
async fn figure(server: &Server, name: &str) -> i64 {
    #[allow(clippy::cast_possible_truncation, reason = "small")]
    let rounded = metric(server, name).await.round() as i64;
    rounded
}

async fn of_rule(server: &Server, name: &str) -> i64 {
    figure(server, &format!(r#"weir_sync_{name}{{region="fra",rule="per-address"}}"#)).await
}

async fn of_region(server: &Server, name: &str) -> i64 {
    figure(server, &format!(r#"weir_sync_{name}{{region="fra"}}"#)).await
}

#[tokio::test]
async fn debt_and_overshoot_have_a_row_per_rule() {
    let store = Shared::new(Config::default().pop_ttl);
    let fra = replica("fra", "a", &store).await;
    replied(&fra, &one_key("fra1", 1, 50, 50, 50)).await;
    assert_eq!(of_rule(&fra, "debt_tokens").await, 0);
    replied(&fra, &one_key("fra1", 2, 130, 80, 130)).await;
    let mut other = one_key("fra1", 3, 150, 150, 150);
    other.keys[0].value = b"192.0.2.2".to_vec();
    replied(&fra, &other).await;
    assert_eq!(of_rule(&fra, "debt_tokens").await, 80);
    assert_eq!(of_rule(&fra, "overshoot_tokens").await, 50);
    // Without the store, the debt is counted against the region's own share.
    store.set_gone(true);
    other.keys[0].admitted += 20;
    other.keys[0].asked += 20;
    other.keys[0].unconfirmed = 20;
    replied(&fra, &other).await;
    assert_eq!((of_rule(&fra, "debt_tokens").await, of_rule(&fra, "overshoot_tokens").await), (100, 70));
    assert_eq!(of_rule(&fra, "overshoot_max_tokens").await, 70);
    store.set_gone(false);
    replied(&fra, &one_key("fra1", 4, 130, 0, 130)).await;
    let owed = async || (of_rule(&fra, "debt_tokens").await, of_rule(&fra, "overshoot_tokens").await);
    assert_eq!(owed().await, (100, 70), "the other key's 20 are not in the store yet");
    replied(&fra, &other).await;
    assert_eq!(owed().await, (100, 70), "now it has");
    assert_eq!(of_rule(&fra, "overshoot_max_tokens").await, 70, "the most since the start");
}

#[tokio::test]
async fn pops_and_hot_keys_are_counted_here_and_in_the_fleet() {
    let store = Shared::new(Config::default().pop_ttl);
    let (fra, iad) = (replica("fra", "a", &store).await, replica("iad", "a", &store).await);
    replied(&fra, &greeting("fra1")).await;
    replied(&iad, &greeting("iad2")).await;
    replied(&iad, &one_key("iad1", 1, 10, 10, 10)).await;
    replied(&fra, &greeting("fra1")).await;
    assert_eq!((of_region(&fra, "pops_here").await, of_region(&fra, "pops").await), (1, 3));
    let mut sequence = 1;
    // 60 of 100 are taken: the key is hot there at once, and here as soon as this region reads the list.
    until("it is hot here", async || {
        sequence += 1;
        replied(&iad, &one_key("iad1", sequence, 60, 0, 60)).await;
        (of_region(&fra, "hot_keys").await, of_region(&fra, "hot_keys_here").await) == (1, 1)
    })
    .await;
    let page = get(fra.address, "/metrics").await.text();
    let warm = page.contains(r#"weir_sync_warm_keys{region="fra"} "#);
    assert!(warm && !page.contains("weir_sync_bound_tokens{"), "{page}");
}

#[tokio::test]
async fn the_lag_is_the_age_of_the_oldest_charged_count() {
    let store = Shared::new(Config::default().pop_ttl);
    let fra = replica("fra", "a", &store).await;
    let mut late = one_key("fra1", 1, 10, 10, 10);
    late.keys[0].span_ms = 7_000;
    let mut later = late.keys[0].clone();
    (later.value, later.span_ms) = (b"192.0.2.2".to_vec(), 9_000);
    let mut confirmed = later.clone();
    (confirmed.value, confirmed.unconfirmed, confirmed.span_ms) = (b"192.0.2.3".to_vec(), 0, 70_000);
    late.keys.extend([later, confirmed]);
    replied(&fra, &late).await;
    replied(&fra, &greeting("fra1")).await;
    store.set_gone(true);
    replied(&fra, &late).await;
    assert_eq!(of_region(&fra, "lag_seconds_count").await, 1, "what was charged");
    assert_eq!(of_region(&fra, "lag_seconds_sum").await, 9);
}

#[tokio::test]
async fn the_stores_silence_is_a_metric() {
    let store = Shared::new(Config::default().pop_ttl);
    let fra = replica("fra", "a", &store).await;
    let silence = r#"weir_sync_store_silence_seconds{region="fra"}"#;
    replied(&fra, &greeting("fra1")).await;
    assert!(metric(&fra, silence).await < 5.0);
    store.set_gone(true);
    let (started, gone_for) = (Instant::now(), Duration::from_secs(2));
    while started.elapsed() < gone_for {
        replied(&fra, &greeting("fra1")).await;
    }
    assert!(metric(&fra, silence).await >= gone_for.as_secs_f64());
    assert!(of_region(&fra, "reports_offline_total").await >= 1);
    store.set_gone(false);
    replied(&fra, &greeting("fra1")).await;
    assert!(metric(&fra, silence).await < gone_for.as_secs_f64());
}
