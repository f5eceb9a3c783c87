//! Behaviour of every store.

use std::time::{Duration, Instant};

use weir_budget::budget::{BudgetId, SOURCES_KEPT, SOURCES_MAX};
use weir_budget::hot::{HOT_MAX, HotKey, LISTED_MS};
use weir_protocol::messages::POPS_MAX;
use weir_protocol::quota::Period;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::sharing::{Floor, Sharing};
use weir_store::{ChargeBatch, Store};
use weir_tests::redis::Redis;
use weir_tests::wait::until;

use crate::{POP_TTL, all, charge, charge_as, connected_with, count, entry, memory_with, quota, slow};

/// Longer than any test.
const FOREVER: Duration = Duration::from_hours(24);

/// Time after which the replicas of a cluster take over where no test waits for that, in milliseconds.
pub(crate) const CALM_MS: u32 = 15_000;

/// Runs each of these over every store; `with` sets how long a POP counts as alive, where that matters.
macro_rules! for_every_store {
    ($($test:ident $(with $pop_ttl:expr)?),* $(,)?) => {
        mod in_memory {
            use super::*;
            $(#[tokio::test] async fn $test() {
                super::$test(&memory_with(for_every_store!(@ttl $($pop_ttl)?))).await;
            })*
        }
        mod in_redis {
            use super::*;
            $(#[tokio::test] async fn $test() {
                // Under the ACL that docs/redis.md names: what a store does needs no more.
                let redis = Redis::start_with(crate::failing::with_a_user()).await;
                super::$test(&connected_with(&redis, for_every_store!(@ttl $($pop_ttl)?)).await).await;
            })*
        }
        /// One after the other: it takes a while to start.
        #[tokio::test]
        async fn each_test_passes_in_a_cluster() {
            let cluster = weir_tests::redis_cluster::Cluster::start(crate::suite::CALM_MS).await;
            $(
                println!("{}", stringify!($test));
                cluster.flush().await;
                $test(&crate::connected_at(&cluster.url(), for_every_store!(@ttl $($pop_ttl)?)).await).await;
            )*
        }
        #[tokio::test]
        async fn each_test_passes_behind_sentinels() {
            let group = weir_tests::redis_sentinels::Sentinels::start().await;
            $(
                println!("{}", stringify!($test));
                let () = redis::cmd("FLUSHALL").query_async(&mut group.servers[0].operator().await).await.unwrap();
                $test(&crate::connected_at(&group.url(), for_every_store!(@ttl $($pop_ttl)?)).await).await;
            )*
        }
    };
    (@ttl) => { POP_TTL };
    (@ttl $pop_ttl:expr) => { $pop_ttl };
}

for_every_store!(
    repeated_and_overtaken_reports_are_charged_once,
    a_changed_quota_keeps_the_fraction_of_the_burst,
    a_batch_is_answered_in_order,
    live_pops_are_counted,
    the_sources_of_a_budget_are_bounded,
    the_pops_are_bounded with FOREVER,
    any_name_is_accepted,
    a_forgotten_budget_affects_no_other,
    hot_keys_are_listed_as_reported,
    the_hot_list_is_bounded,
    a_full_list_keeps_the_highest_ranks,
);

async fn repeated_and_overtaken_reports_are_charged_once(store: &dyn Store) {
    let mut charged = 0;
    // Sent: 5, 8, 11. Arrives: 8, 8 (a retry), 5 (overtaken), 11, 11. No reply came through.
    for admitted in [8, 8, 5, 11, 11] {
        charged += charge(store, entry(b"a", slow(), vec![count(1, admitted, admitted)])).await.unwrap().charged;
    }
    assert_eq!(charged, 11);
}

async fn a_forgotten_budget_affects_no_other(store: &dyn Store) {
    for value in [b"a", b"b"] {
        charge(store, entry(value, slow(), vec![count(1, 30, 30)])).await.unwrap();
    }
    let id = entry(b"a", slow(), vec![]).id;
    for _ in 0..2 {
        store.forget(&id, &[RefillPolicy::Continuous]).await.unwrap();
    }
    let gone = charge(store, entry(b"a", slow(), vec![count(1, 31, 1)])).await.unwrap();
    assert_eq!((gone.charged, gone.deficit_ns), (1, slow().token_ns()), "what was not confirmed is charged");
    let other = charge(store, entry(b"b", slow(), vec![count(1, 30, 0)])).await.unwrap();
    assert!(other.deficit_ns > 29 * slow().token_ns());
}

async fn a_changed_quota_keeps_the_fraction_of_the_burst(store: &dyn Store) {
    let (small, large) = (quota(1, Period::Hour, 10), quota(1_000, Period::Day, 5_000));
    for (value, tokens, all_milli) in [(b"owes", 15, [1_500, 1_001, 1_001]), (b"left", 3, [300; 3])] {
        // The last is a POP that still has the first quota.
        for (quota, milli) in [small, large, small].into_iter().zip(all_milli) {
            let account = charge(store, entry(value, quota, vec![count(1, tokens, tokens)])).await.unwrap();
            let deficit_milli = (account.deficit_ns + quota.fill_ns() / 2_000) / (quota.fill_ns() / 1_000);
            assert_eq!(deficit_milli, milli, "thousandths of {} tokens", quota.burst());
        }
    }
}

async fn a_batch_is_answered_in_order(store: &dyn Store) {
    let entries: Vec<_> = (1..=200_u64).map(|n| entry(&n.to_be_bytes(), slow(), vec![count(1, n, n)])).collect();
    let accounts = all(store.charge(&ChargeBatch { replica: "fra", pop: "fra1", entries: &entries }).await);
    let charged: Vec<u64> = accounts.iter().map(|account| account.charged).collect();
    assert_eq!(charged, (1..=200).collect::<Vec<_>>());
    let none = ChargeBatch { replica: "fra", pop: "fra1", entries: &[] };
    assert!(store.charge(&none).await.is_empty());
}

async fn live_pops_are_counted(store: &dyn Store) {
    let start = Instant::now();
    assert_eq!(store.register("fra1").await.unwrap(), 1);
    assert_eq!(store.register("fra2").await.unwrap(), 2);
    assert_eq!(store.register("fra1").await.unwrap(), 2, "the same again");
    until("the silent POP to be forgotten", async || (store.register("fra1").await.unwrap() == 1).then_some(())).await;
    assert!(start.elapsed() >= POP_TTL, "not before its time: {:?}", start.elapsed());
}

// I2
async fn the_sources_of_a_budget_are_bounded(store: &dyn Store) {
    let epochs = SOURCES_MAX as u64 + 1;
    for first in (1..=epochs).step_by(500) {
        let counts = (first..=epochs.min(first + 499)).map(|epoch| count(epoch, 1, 1)).collect();
        charge(store, entry(b"a", slow(), counts)).await.unwrap();
    }
    let forgotten = epochs - SOURCES_KEPT as u64;
    let kept = charge(store, entry(b"a", slow(), vec![count(epochs, 1, 1), count(forgotten + 1, 1, 1)])).await.unwrap();
    assert_eq!(kept.charged, 0, "the newest are on record");
    let lost = charge(store, entry(b"a", slow(), vec![count(1, 1, 1), count(forgotten, 1, 1)])).await.unwrap();
    assert_eq!(lost.charged, 2, "the oldest are not");
}

// I2
async fn the_pops_are_bounded(store: &dyn Store) {
    for pop in 0..POPS_MAX + 50 {
        let live = store.register(&format!("pop-{pop}")).await.unwrap();
        assert_eq!(live, POPS_MAX.min(pop + 1));
    }
}

async fn any_name_is_accepted(store: &dyn Store) {
    let odd = "a=1,2,3;b:}{\r\n\0 \u{e9}";
    let mut charged = 0;
    for _ in 0..2 {
        let mut entry = entry(&[0, 255, b'}', b':'], slow(), vec![count(u64::MAX, 5, 5)]);
        entry.id = BudgetId::new(odd.into(), entry.id.value.clone());
        charged += charge_as(store, "fra", odd, entry).await.unwrap().charged;
        assert_eq!(store.register(odd).await.unwrap(), 1);
    }
    assert_eq!(charged, 5);
}

async fn hot_keys_are_listed_as_reported(store: &dyn Store) {
    let floors = vec![Floor { region: "eu-1".into(), percent: 30 }, Floor { region: "us".into(), percent: 70 }];
    let key = |rule: &str, value: &[u8], sharing| HotKey {
        id: BudgetId::new(rule.into(), value.to_vec()),
        quota: slow(),
        sharing,
        rests: rule == "a:b",
        rank: 0,
    };
    let mine = [
        key(
            "a:b",
            &[0, 255],
            Sharing { strict: false, local_burst: 7, floors, refill_policy: RefillPolicy::Continuous },
        ),
        key("\u{e9}", b":", Sharing::of(slow())),
    ];
    let mut list = store.hot(&mine).await.unwrap();
    list.sort();
    assert_eq!(list, mine);
    assert_eq!(store.hot(&[]).await.unwrap().len(), 2, "others see them");
    until("what nobody names any more to leave", async || store.hot(&[]).await.unwrap().is_empty().then_some(())).await;
}

fn ranked(value: usize, rank: u8) -> HotKey {
    HotKey {
        id: BudgetId::new("r".into(), value.to_be_bytes().to_vec()),
        quota: slow(),
        sharing: Sharing::of(slow()),
        rests: false,
        rank,
    }
}

// I2
async fn the_hot_list_is_bounded(store: &dyn Store) {
    let mine: Vec<_> = (0..HOT_MAX + 50).map(|value| ranked(value, 0)).collect();
    assert_eq!(store.hot(&mine).await.unwrap().len(), HOT_MAX);
}

/// Another region names as many as fit, each of little weight, after this one has named a few that are deep in debt.
// I2
async fn a_full_list_keeps_the_highest_ranks(store: &dyn Store) {
    let few: Vec<_> = (0..3).map(|value| ranked(value, 3)).collect();
    let many = |from: usize| (from..from + HOT_MAX).map(|value| ranked(value, 1)).collect::<Vec<_>>();
    store.hot(&[&few[..], &many(10)[3..]].concat()).await.unwrap();
    let is_among = |list: &[HotKey], key: &HotKey| list.iter().any(|listed| listed.id == key.id);
    // On a busy machine, keys may leave the list because their time is over; that says nothing.
    let mut number = 30_000;
    let [list, later, late] = until("all to be named before any leave", async || {
        number += 1;
        let (named, late) = (Instant::now(), vec![ranked(number, 3)]);
        store.hot(&few).await.unwrap();
        let list = store.hot(&many(10_000)).await.unwrap();
        let later = store.hot(&late).await.unwrap();
        (named.elapsed() < Duration::from_millis(LISTED_MS)).then_some([list, later, late])
    })
    .await;
    assert_eq!(list.len(), HOT_MAX);
    assert!(few.iter().all(|key| is_among(&list, key)));
    assert!(later.len() == HOT_MAX && is_among(&later, &late[0]), "one that matters less makes room");
    until("what nobody names any more to leave", async || {
        let list = store.hot(&many(20_000)).await.unwrap();
        (!few.iter().any(|key| is_among(&list, key))).then_some(())
    })
    .await;
}
