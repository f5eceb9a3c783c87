//! Charges that wait at the same moment go in one call, and each is told what became of it.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use weir_budget::budget::{Account, Budget, Charge, Demand, GRACE_US};
use weir_budget::plan::PlanEntry;
use weir_protocol::quota::Period;
use weir_sync::store::redis::budget_key;
use weir_sync::store::{ChargeBatch, Store};
use weir_tests::redis::Redis;

use crate::{connected, count, entry, id, quota};

/// POPs that report at the same moment.
const POPS: u32 = 10;

/// How many scripts Redis has run.
pub(crate) async fn scripts(connection: &mut MultiplexedConnection) -> u64 {
    let mut info = redis::cmd("INFO");
    let page: String = info.arg("commandstats").query_async(connection).await.unwrap();
    let row = page.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    row.and_then(|row| row.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// What each POP says of `key` in a round: its counts, and by then the member's demand.
fn said(key: &[u8], pop: u32, round: u64) -> PlanEntry {
    let admitted = u64::from(pop) + 5 * round;
    let demand = Demand { milli: 1_000 * u64::from(pop), askers: pop };
    let counts = vec![count(u64::from(pop), admitted, admitted), count(99, round, round)];
    PlanEntry { demand, ..entry(key, quota(100, Period::Second, 20), counts) }
}

#[tokio::test]
async fn charges_that_wait_together_go_in_one_call() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let (keys, names) = ([b"a", b"b"], (0..POPS).map(|pop| format!("pop{pop}")).collect::<Vec<_>>());
    let look = [entry(b"look", quota(1, Period::Second, 1), vec![])];
    store.charge(&ChargeBatch { member: "fra", pop: "", entries: &look }).await.remove(0).unwrap();
    let mut references: BTreeMap<&[u8], Budget> = BTreeMap::new();
    for round in 1..=5 {
        let before = scripts(&mut connection).await;
        let reports = names.iter().zip(0..).map(|(name, pop)| {
            let entries = keys.map(|key| said(key, pop, round));
            let store = &store;
            async move { store.charge(&ChargeBatch { member: "fra", pop: name, entries: &entries }).await }
        });
        let answers: Vec<Vec<Account>> = join_all(reports)
            .await
            .into_iter()
            .map(|each| each.into_iter().map(Result::unwrap).collect())
            .collect();
        let calls = scripts(&mut connection).await - before;
        // The first POP may be on its way before the others ask, and the link may try the server.
        assert!(calls <= 3, "{calls} calls for {POPS} POPs and {} keys", keys.len());
        for (at, key) in keys.iter().enumerate() {
            let reference = references.entry(key.as_slice()).or_default();
            for ((name, pop), accounts) in names.iter().zip(0..).zip(&answers) {
                let PlanEntry { quota, demand, counts, .. } = said(*key, pop, round);
                let charge = Charge { quota, member: "fra", demand, pop: name, counts: &counts };
                assert_eq!(
                    accounts[at],
                    reference.charge(accounts[at].now_us, &charge),
                    "round {round}, {name}"
                );
            }
        }
    }
}

/// Redis does nothing else meanwhile, so there is a most for a call.
#[tokio::test]
async fn many_budgets_are_divided_among_calls_and_answered_in_their_order() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let look = [entry(b"look", quota(1, Period::Second, 1), vec![])];
    store.charge(&ChargeBatch { member: "fra", pop: "", entries: &look }).await.remove(0).unwrap();
    let before = scripts(&mut connection).await;
    let of = |n: u64| entry(&n.to_be_bytes(), quota(1, Period::Minute, 1_000), vec![count(1, n, n)]);
    let entries: Vec<PlanEntry> = (1..=100).map(of).collect();
    let accounts = store.charge(&ChargeBatch { member: "fra", pop: "fra1", entries: &entries }).await;
    let charged: Vec<u64> = accounts.into_iter().map(|account| account.unwrap().charged).collect();
    assert_eq!(charged, (1..=100).collect::<Vec<_>>());
    let calls = scripts(&mut connection).await - before;
    assert!((7..=8).contains(&calls), "{calls} calls, one of which may be the link's own");
}

/// To say it with each charge takes a sixth of Redis's time for it.
#[tokio::test]
async fn a_charge_says_until_when_to_keep_a_budget_only_where_that_is_out_of_date() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let key = budget_key(&id(b"a"));
    let charge = async |n, tokens| {
        let entries = [entry(b"a", quota(10, Period::Second, 100), vec![count(1, tokens, n)])];
        store.charge(&ChargeBatch { member: "fra", pop: "fra1", entries: &entries }).await.remove(0).unwrap();
    };
    charge(1, 1).await;
    let kept_ms: u64 = connection.pttl(&key).await.unwrap();
    assert!((GRACE_US / 1_000 - 1_000..=GRACE_US / 1_000 + 100).contains(&kept_ms), "{kept_ms}");
    let mark_ms = 1_000_000;
    let () = connection.pexpire(&key, mark_ms).await.unwrap();
    charge(1, 2).await;
    let kept_ms: i64 = connection.pttl(&key).await.unwrap();
    assert!(kept_ms > mark_ms - 10_000, "it was said again after a moment: {kept_ms}");
    // Twelve seconds of refill more.
    charge(120, 122).await;
    let kept_ms: u64 = connection.pttl(&key).await.unwrap();
    assert!(kept_ms > GRACE_US / 1_000 + 10_000, "{kept_ms}");
}
