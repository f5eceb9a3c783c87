//! Charges that wait at the same moment go in one call; `clock_equality` compares what each of them gets.

use futures_util::future::join_all;
use weir_store::{ChargeBatch, Store};
use weir_tests::redis::Redis;

use crate::{all, connected, count, entry, slow};

#[tokio::test]
async fn waiting_charges_share_one_call() {
    let redis = Redis::start().await;
    let store = connected(&redis).await;
    // Each POP gets the answer to its own charges.
    let charge = async |pop: u64| {
        let admitted = [pop + 1, pop + 20];
        let entries = [0, 1].map(|n| entry([b"a", b"b"][n], slow(), vec![count(1, admitted[n], admitted[n])]));
        let batch = ChargeBatch { replica: "fra", pop: &format!("pop{pop}"), entries: &entries };
        let charged: Vec<_> = all(store.charge(&batch).await).iter().map(|account| account.charged).collect();
        assert_eq!(charged, admitted, "pop{pop}");
    };
    charge(10).await;
    let calls = async || redis.info::<u64>("commandstats", "cmdstat_evalsha:calls=").await;
    let before = calls().await;
    join_all((0..10).map(charge)).await;
    let calls = calls().await - before;
    // The first POP may be on its way before the others ask, and the link may try the server.
    assert!(calls <= 3, "{calls} calls for ten POPs and two keys");
}
