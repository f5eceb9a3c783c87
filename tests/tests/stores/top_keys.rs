//! What weir-syncs say of their busy keys: the same in every store.

use redis::AsyncCommands;
use weir_store::{Store, TOP_KEYS_MEMBERS_MAX};
use weir_tests::redis::Redis;
use weir_tests::wait::until;

use crate::{POP_TTL, connected, connected_with, memory_with};

for_every_store!(keeps_the_last_word_of_each, forgets_those_that_say_no_more, bounds_the_members);

/// Member and text, by member.
async fn said(store: &dyn Store) -> Vec<(String, String)> {
    let mut said = store.top_keys().await.unwrap();
    said.sort_unstable();
    said
}

async fn keeps_the_last_word_of_each(store: &dyn Store) {
    assert_eq!(said(store).await, []);
    let texts = [("fra/a", "{\"a\": [1]}"), ("fra/\u{e9} b", "\0\r\n"), ("fra/a", "new")];
    for (member, text) in texts {
        store.store_top_keys(member, text).await.unwrap();
    }
    let pair = |(member, text): (&str, &str)| (member.to_owned(), text.to_owned());
    assert_eq!(said(store).await, [pair(texts[2]), pair(texts[1])]);
    store.store_top_keys("fra/a", "").await.unwrap();
    assert_eq!(said(store).await, [pair(texts[1])]);
}

async fn forgets_those_that_say_no_more(store: &dyn Store) {
    store.store_top_keys("gone", "text").await.unwrap();
    until("one that says no more to be forgotten", async || {
        store.store_top_keys("there", "text").await.unwrap();
        (said(store).await == [("there".to_owned(), "text".to_owned())]).then_some(())
    })
    .await;
}

async fn bounds_the_members(store: &dyn Store) {
    for n in 0..TOP_KEYS_MEMBERS_MAX + 5 {
        store.store_top_keys(&format!("m{n}"), "text").await.unwrap();
    }
    let said = said(store).await;
    assert_eq!(said.len(), TOP_KEYS_MEMBERS_MAX);
    assert!(said.iter().any(|(member, _)| *member == format!("m{}", TOP_KEYS_MEMBERS_MAX + 4)));
}

#[tokio::test]
async fn what_another_program_left_there_is_replaced() {
    let redis = Redis::start().await;
    let mut connection = redis.connection().await;
    let () = connection.set("weir:{top_keys}", "no hash").await.unwrap();
    let () = connection.set("weir:{top_keys}:times", "no set").await.unwrap();
    let store = connected(&redis).await;
    store.store_top_keys("fra/a", "text").await.unwrap();
    assert_eq!(said(&store).await.len(), 1);
}
