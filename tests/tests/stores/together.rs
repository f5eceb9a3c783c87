//! Charges that wait at the same moment go in one call; `clock_equality` compares what each of them gets.

use futures_util::future::join_all;
use weir_store::{ChargeBatch, Store};
use weir_tests::redis::Redis;

use crate::{connected, count, entry, slow};

#[tokio::test]
async fn waiting_charges_share_one_call() {
    let redis = Redis::start().await;
    let store = connected(&redis).await;
    let charge = async |pop: String, admitted| {
        let entries = [b"a", b"b"].map(|key| entry(key, slow(), vec![count(1, admitted, admitted)]));
        let answers = store.charge(&ChargeBatch { replica: "fra", pop: &pop, entries: &entries }).await;
        assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|account| account.charged == 1)), "{answers:?}");
    };
    charge("pop0".into(), 1).await;
    let calls = async || redis.info::<u64>("commandstats", "cmdstat_evalsha:calls=").await;
    let before = calls().await;
    join_all((0..10).map(|pop| charge(format!("pop{pop}"), if pop == 0 { 2 } else { 1 }))).await;
    let calls = calls().await - before;
    // The first POP may be on its way before the others ask, and the link may try the server.
    assert!(calls <= 3, "{calls} calls for ten POPs and two keys");
}
