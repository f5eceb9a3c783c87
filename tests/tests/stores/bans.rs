//! The list of bans: the same in every store. And that of hot keys in Redis, as weir-syncs read it: by its changes.

use std::collections::BTreeMap;
use std::slice;
use std::time::{Duration, Instant};

use redis::AsyncCommands;
use weir_budget::ban::{BANS_KEPT_MAX, BanList, BanState, BannedKey, FORGOTTEN_MS};
use weir_budget::budget::BudgetId;
use weir_budget::hot::HotKey;
use weir_protocol::messages::BAN_MS_MAX;
use weir_protocol::sharing::Sharing;
use weir_store::Store;
use weir_tests::redis::Redis;
use weir_tests::wait::until;

use crate::equality::Random;
use crate::{POP_TTL, connected, connected_with, id, memory_with, slow};

/// Longer than any test.
const HOUR_MS: u32 = 3_600_000;

fn key(rule: &str, value: &[u8], for_ms: u32) -> BannedKey {
    BannedKey { id: BudgetId::new(rule.into(), value.to_vec()), for_ms, state: BanState::Banned }
}

/// The list by key.
async fn list(store: &dyn Store, mine: &[BannedKey]) -> BTreeMap<BudgetId, u32> {
    store.bans(mine).await.unwrap().into_iter().map(|key| (key.id, key.for_ms)).collect()
}

for_every_store!(
    bans_of_every_region_are_listed,
    a_ban_leaves_when_it_ends,
    the_bans_are_bounded,
    an_operators_override_replaces_the_previous_state,
    random_calls_agree_with_the_reference,
);

async fn bans_of_every_region_are_listed(store: &dyn Store) {
    let mine = [key("a b:", &[0, 255], HOUR_MS), key("\u{e9}\0\r\n", b"}{", HOUR_MS)];
    let listed = list(store, &mine).await;
    assert!(mine.iter().all(|key| listed.contains_key(&key.id)) && listed.len() == 2, "{listed:?}");
    let more = list(store, &[key("r", b"v", BAN_MS_MAX)]).await;
    assert_eq!(more.len(), 3, "those of others, and one's own");
    assert!(more.values().all(|for_ms| *for_ms > HOUR_MS / 2 && *for_ms <= BAN_MS_MAX));
    assert_eq!(list(store, &[]).await.len(), 3);
}

async fn a_ban_leaves_when_it_ends(store: &dyn Store) {
    let started = Instant::now();
    assert_eq!(list(store, &[key("r", b"v", 1_000), key("r", b"w", HOUR_MS), key("r", b"x", 0)]).await.len(), 2);
    until("the first to leave", async || (list(store, &[]).await.len() == 1).then_some(())).await;
    assert!(started.elapsed() >= Duration::from_millis(999), "{:?}", started.elapsed());
    assert!(list(store, &[]).await.contains_key(&key("r", b"w", 0).id));
}

async fn an_operators_override_replaces_the_previous_state(store: &dyn Store) {
    let banned_key = |state: BanState, for_ms: u32| BannedKey { state, ..key("r", b"v", for_ms) };
    let all = async |mine: &[BannedKey]| -> Vec<(BanState, bool)> {
        let listed = store.bans(mine).await.unwrap();
        listed.into_iter().map(|key| (key.state, key.for_ms > FORGOTTEN_MS)).collect()
    };
    let (banned, forgotten) = ([(BanState::Banned, true)], [(BanState::Forgotten, false)]);
    assert_eq!(all(&[banned_key(BanState::Banned, HOUR_MS)]).await, banned);
    let reset = banned_key(BanState::Forgotten, FORGOTTEN_MS);
    assert_eq!(all(slice::from_ref(&reset)).await, forgotten);
    assert_eq!(all(&[banned_key(BanState::Banned, HOUR_MS)]).await, forgotten, "a penalty of before");
    assert_eq!(all(&[banned_key(BanState::BannedByOperator, HOUR_MS)]).await, banned);
    assert_eq!(all(&[banned_key(BanState::BannedByOperator, 60_000)]).await, banned);
    let listed = store.bans(&[]).await.unwrap();
    assert!(listed[0].for_ms <= 60_000, "an operator's may be shorter: {listed:?}");
    assert_eq!(all(&[reset]).await, forgotten);
    until("its time to be over", async || {
        (all(&[banned_key(BanState::Banned, HOUR_MS)]).await == banned).then_some(())
    })
    .await;
}

// I2
async fn the_bans_are_bounded(store: &dyn Store) {
    let all: Vec<_> = (0..BANS_KEPT_MAX + 100)
        .map(|n| key("r", &n.to_be_bytes(), HOUR_MS + u32::try_from(n).unwrap() * 1_000))
        .collect();
    // Not in the order in which they end.
    let (first, last) = all.split_at(all.len() / 2);
    let mut listed = BTreeMap::new();
    for some in last.chunks(1_000).chain(first.chunks(1_000)) {
        listed = list(store, some).await;
    }
    assert_eq!(listed.len(), BANS_KEPT_MAX);
    assert!(!listed.contains_key(&all[99].id) && listed.contains_key(&all[100].id), "those that end soonest went");
}

/// At random, against the list in weir-budget; the times agree to within what the calls took.
async fn random_calls_agree_with_the_reference(store: &dyn Store) {
    for seed in [1, 2, 0x5eed] {
        let (mut random, mut reference) = (Random(seed), BanList::default());
        let (started, rule) = (Instant::now(), format!("seed-{seed}"));
        for _ in 0..100 {
            let mine: Vec<_> = (0..random.below(4))
                .map(|_| {
                    // An override lasts long enough to be exchanged.
                    let lengths = [HOUR_MS, BAN_MS_MAX, 0, 1];
                    let state = random.pick(&[
                        BanState::Banned,
                        BanState::Banned,
                        BanState::BannedByOperator,
                        BanState::Forgotten,
                    ]);
                    let for_ms = random.pick(if state == BanState::Banned { &lengths } else { &lengths[..2] });
                    BannedKey { state, ..key(&rule, &[random.pick(b"abcdefgh")], for_ms) }
                })
                .collect();
            let before_us = u64::try_from(started.elapsed().as_micros()).unwrap();
            let mut listed = list(store, &mine).await;
            let after_us = u64::try_from(started.elapsed().as_micros()).unwrap();
            // What holds for a millisecond only may be on the one and not on the other.
            listed.retain(|id, for_ms| id.rule == rule && *for_ms > 1_000);
            let earliest = reference.exchange(&mine, before_us);
            let expected: BTreeMap<_, _> =
                earliest.into_iter().filter(|key| key.for_ms > 1_000).map(|key| (key.id, key.for_ms)).collect();
            assert!(listed.keys().eq(expected.keys()), "seed {seed}: {listed:?}, expected {expected:?}");
            let slack_ms = u32::try_from(after_us / 1_000).unwrap() + 2;
            for (id, for_ms) in &listed {
                assert!(for_ms.abs_diff(expected[id]) <= slack_ms, "seed {seed}: {id:?}");
            }
        }
    }
}

// I4
#[tokio::test]
async fn regions_exchange_bans_and_resend_all_after_a_flush() {
    let redis = Redis::start().await;
    let (fra, iad) = (connected(&redis).await, connected(&redis).await);
    let mut connection = redis.connection().await;
    list(&fra, &[key("r", b"a", HOUR_MS)]).await;
    assert_eq!(list(&iad, &[key("r", b"b", HOUR_MS)]).await.len(), 2);
    assert_eq!(list(&fra, &[]).await.len(), 2, "what changed since");
    redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
    let listed = list(&iad, &[key("r", b"c", HOUR_MS)]).await;
    assert!(listed.contains_key(&key("r", b"c", 0).id));
    assert!(list(&fra, &[]).await.contains_key(&key("r", b"c", 0).id));
}

#[tokio::test]
async fn a_foreign_value_under_the_lists_key_is_replaced() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let () = connection.set("weir:{bans}", "no set").await.unwrap();
    let () = connection.set("weir:{bans}:changed", "no set").await.unwrap();
    assert_eq!(list(&store, &[key("r", b"a", HOUR_MS)]).await.len(), 1);
    let until_us: f64 = connection.zscore("weir:{bans}", "r 61").await.unwrap();
    for odd in ["", "r", "r 6", "\u{e9}"] {
        let () = connection.zadd("weir:{bans}", odd, until_us).await.unwrap();
        let () = connection.zadd("weir:{bans}:changed", odd, until_us).await.unwrap();
    }
    assert_eq!(list(&store, &[]).await.len(), 1);
    for name in ["weir:{bans}", "weir:{bans}:changed"] {
        let ttl_ms: i64 = connection.pttl(name).await.unwrap();
        assert!(ttl_ms > 0 && ttl_ms <= i64::from(HOUR_MS) + 1_000, "{name}: {ttl_ms}");
    }
    // From a clock that has stepped back since.
    let () = connection.zadd("weir:{bans}", "r 61", until_us * 2.0).await.unwrap();
    let another = connected(&redis).await;
    assert_eq!(list(&another, &[]).await.len(), 0);
}

fn hot_key(value: u64, rests: bool, rank: u8) -> HotKey {
    HotKey { id: id(&value.to_be_bytes()), quota: slow(), sharing: Sharing::of(slow()), rests, rank }
}

#[tokio::test]
async fn changes_of_the_hot_list_add_up_to_the_list() {
    let redis = Redis::start().await;
    let (names, reader) = (connected(&redis).await, connected(&redis).await);
    let mut random = Random(7);
    for round in 0..6 {
        for _ in 0..10 {
            let some = (0..20).map(|_| hot_key(random.below(60), random.below(3) == 0, 1)).collect::<Vec<_>>();
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
