//! The top keys that weir-syncs report: the same in every store.

use redis::AsyncCommands;
use weir_store::{Store, TOP_KEYS_REPLICAS_MAX};
use weir_tests::redis::Redis;
use weir_tests::wait::until;

use crate::{POP_TTL, connected, connected_with, memory_with};

for_every_store!(the_last_report_of_each_is_kept, silent_replicas_are_forgotten, the_replicas_are_bounded);

/// Replica and text, by replica.
async fn stored(store: &dyn Store) -> Vec<(String, String)> {
    let mut top_keys = store.top_keys().await.unwrap();
    top_keys.sort_unstable();
    top_keys
}

async fn the_last_report_of_each_is_kept(store: &dyn Store) {
    assert_eq!(stored(store).await, []);
    let texts = [("fra/a", "{\"a\": [1]}"), ("fra/\u{e9} b", "\0\r\n"), ("fra/a", "new")];
    for (replica, text) in texts {
        store.store_top_keys(replica, text).await.unwrap();
    }
    let pair = |(replica, text): (&str, &str)| (replica.to_owned(), text.to_owned());
    assert_eq!(stored(store).await, [pair(texts[2]), pair(texts[1])]);
    store.store_top_keys("fra/a", "").await.unwrap();
    assert_eq!(stored(store).await, [pair(texts[1])]);
}

async fn silent_replicas_are_forgotten(store: &dyn Store) {
    store.store_top_keys("gone", "text").await.unwrap();
    until("a silent one to be forgotten", async || {
        store.store_top_keys("there", "text").await.unwrap();
        (stored(store).await == [("there".to_owned(), "text".to_owned())]).then_some(())
    })
    .await;
}

async fn the_replicas_are_bounded(store: &dyn Store) {
    for n in 0..TOP_KEYS_REPLICAS_MAX + 5 {
        store.store_top_keys(&format!("m{n}"), "text").await.unwrap();
    }
    let stored = stored(store).await;
    assert_eq!(stored.len(), TOP_KEYS_REPLICAS_MAX);
    assert!(stored.iter().any(|(replica, _)| *replica == format!("m{}", TOP_KEYS_REPLICAS_MAX + 4)));
}

#[tokio::test]
async fn a_foreign_value_is_replaced() {
    let redis = Redis::start().await;
    let mut connection = redis.connection().await;
    let () = connection.set("weir:{top_keys}", "no hash").await.unwrap();
    let () = connection.set("weir:{top_keys}:times", "no set").await.unwrap();
    let store = connected(&redis).await;
    store.store_top_keys("fra/a", "text").await.unwrap();
    assert_eq!(stored(&store).await.len(), 1);
}
