//! The list of hot keys in Redis, as weir-syncs read it: by its changes.

use weir_budget::hot::HotKey;
use weir_protocol::sharing::Sharing;
use weir_store::Store;
use weir_tests::redis::Redis;
use weir_tests::wait::until;

use crate::equality::Random;
use crate::{connected, id, slow};

fn key(value: u64, rests: bool, rank: u8) -> HotKey {
    HotKey { id: id(&value.to_be_bytes()), quota: slow(), sharing: Sharing::of(slow()), rests, rank }
}

#[tokio::test]
async fn changes_of_the_hot_list_add_up_to_the_list() {
    let redis = Redis::start().await;
    let (names, reader) = (connected(&redis).await, connected(&redis).await);
    let mut random = Random(7);
    for round in 0..6 {
        for _ in 0..10 {
            let some = (0..20).map(|_| key(random.below(60), random.below(3) == 0, 1)).collect::<Vec<_>>();
            names.hot(&some).await.unwrap();
            reader.hot(&[]).await.unwrap();
        }
        let new = connected(&redis).await;
        // Keys leave the list all the time.
        until("both to be the same", async || {
            let whole = new.hot(&[]).await.unwrap();
            (reader.hot(&[]).await.unwrap() == whole).then_some(())
        })
        .await;
        assert!(round > 0 || !reader.hot(&[]).await.unwrap().is_empty());
    }
}
