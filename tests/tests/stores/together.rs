//! Charges that wait at the same moment go in one call, and each gets its own result.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use weir_budget::budget::{Account, Budget, Charge, Demand};
use weir_budget::plan::PlanEntry;
use weir_protocol::quota::Period;
use weir_store::{ChargeBatch, Store};
use weir_tests::redis::Redis;

use crate::{connected, count, entry, quota};

/// POPs that report at the same moment.
const POPS: u32 = 10;

/// The number of scripts that Redis has run.
pub(crate) async fn scripts(connection: &mut MultiplexedConnection) -> u64 {
    let mut info = redis::cmd("INFO");
    let page: String = info.arg("commandstats").query_async(connection).await.unwrap();
    let row = page.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    row.and_then(|row| row.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Each POP's entry for `key` in a round: its counts, and by then the replica's demand.
fn reported(key: &[u8], pop: u32, round: u64) -> PlanEntry {
    let admitted = u64::from(pop) + 5 * round;
    let demand = Demand { milli: 1_000 * u64::from(pop), askers: pop };
    let counts = vec![count(u64::from(pop), admitted, admitted), count(99, round, round)];
    PlanEntry { demand, ..entry(key, quota(100, Period::Second, 20), counts) }
}

#[tokio::test]
async fn waiting_charges_share_one_call() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let (keys, names) = ([b"a", b"b"], (0..POPS).map(|pop| format!("pop{pop}")).collect::<Vec<_>>());
    let look = [entry(b"look", quota(1, Period::Second, 1), vec![])];
    store.charge(&ChargeBatch { replica: "fra", pop: "", entries: &look }).await.remove(0).unwrap();
    let mut references: BTreeMap<&[u8], Budget> = BTreeMap::new();
    for round in 1..=5 {
        let before = scripts(&mut connection).await;
        let reports = names.iter().zip(0..).map(|(name, pop)| {
            let entries = keys.map(|key| reported(key, pop, round));
            let store = &store;
            async move { store.charge(&ChargeBatch { replica: "fra", pop: name, entries: &entries }).await }
        });
        let answers: Vec<Vec<Account>> =
            join_all(reports).await.into_iter().map(|each| each.into_iter().map(Result::unwrap).collect()).collect();
        let calls = scripts(&mut connection).await - before;
        // The first POP may be on its way before the others ask, and the link may try the server.
        assert!(calls <= 3, "{calls} calls for {POPS} POPs and {} keys", keys.len());
        for (at, key) in keys.iter().enumerate() {
            let reference = references.entry(key.as_slice()).or_default();
            for ((name, pop), accounts) in names.iter().zip(0..).zip(&answers) {
                let PlanEntry { quota, demand, counts, .. } = reported(*key, pop, round);
                let charge = Charge { quota, replica: "fra", demand, pop: name, counts: &counts };
                assert_eq!(accounts[at], reference.charge(accounts[at].now_us, &charge), "round {round}, {name}");
            }
        }
    }
}
