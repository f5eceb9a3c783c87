//! Two fleets that share a Redis: neither sees anything of the other.

use redis::AsyncCommands as _;
use weir_budget::ban::{BanState, BannedKey};
use weir_budget::hot::HotKey;
use weir_budget::pops::PopRuleSet;
use weir_protocol::sharing::Sharing;
use weir_store::Store;
use weir_store::redis::{Options, Redis as RedisStore};
use weir_store::rules::{NewVersion, RulesChange, RulesResult};
use weir_store::rules::{OverrideChange, Until};
use weir_tests::redis::{Redis, acl};
use weir_tests::redis_cluster::Cluster;

use crate::refusing::with_a_user;
use crate::strict::{acquire, claim, take};
use crate::{charge, count, entry, id, in_reach, options, slow};

const LONG_US: u64 = 60_000_000;

async fn fleet(url: &str, prefix: &str) -> RedisStore {
    let store = RedisStore::new(url, Options { prefix: prefix.into(), ..options() }).unwrap();
    in_reach(&store).await;
    store
}

/// Puts one of everything into `store`, which must be as if nobody else had: what it then has, as text.
async fn fill(store: &dyn Store, name: &str) -> Vec<String> {
    let charged = charge(store, entry(b"a", slow(), vec![count(1, 10, 10)])).await.unwrap();
    let claims = vec![claim(1, 0, 60)];
    let acquired = store.acquire("fra1", &[acquire(b"b", slow(), LONG_US, claims)]).await.remove(0).unwrap();
    let taken = take(store, b"c", 100).await;
    let put = NewVersion { document: name, expected: Some(0), note: "put", from_file: false };
    let put = store.change_rules(&RulesChange::Put(put)).await.unwrap();
    let RulesResult::Put(version) = put else { panic!("another's rule set") };
    let change = OverrideChange::Put { name, text: "text", until: Until::In(3_600_000) };
    let overrides = store.overrides(Some(&change)).await.unwrap();
    let (sharing, quota) = (Sharing::of(slow()), slow());
    let hot = HotKey { id: id(name.as_bytes()), quota, sharing, rests: false, rank: 1 };
    let hot = store.hot(&[hot]).await.unwrap();
    let ban = BannedKey { id: id(name.as_bytes()), for_ms: 60_000, state: BanState::Banned };
    let bans = store.bans(&[ban]).await.unwrap();
    let rule_set = PopRuleSet { pop: name.into(), version: 0, refused: 0 };
    store.store_pop_records("fra/a", &[rule_set]).await.unwrap();
    let pops = (store.register(name).await.unwrap(), store.fleet().await.unwrap().len());
    store.store_top_keys(name, "text").await.unwrap();
    let top_keys = store.top_keys().await.unwrap();
    let document = store.get_rules(version).await.unwrap();
    vec![
        format!("{} tokens are missing", charged.deficit_ns.div_ceil(slow().token_ns())),
        format!("{} acquired, {} taken", acquired.given, taken.given),
        format!("rules {document:?}"),
        format!("overrides {:?}", overrides.kept.iter().map(|kept| &kept.name).collect::<Vec<_>>()),
        format!("hot {:?}", hot.iter().map(|key| &key.id.value).collect::<Vec<_>>()),
        format!("bans {:?}", bans.iter().map(|key| &key.id.value).collect::<Vec<_>>()),
        format!("pops {pops:?}"),
        format!("top_keys {top_keys:?}"),
    ]
}

/// The contents of two fleets at `url` when both have put one of everything.
async fn each_has_its_own(url: &str) {
    let (one, other) = (fleet(url, "weir").await, fleet(url, "shop").await);
    let (has, others) = (fill(&one, "fra1").await, fill(&other, "ams1").await);
    let name = |text: &str| text.replace("fra1", "NAME").replace(&format!("{:?}", b"fra1"), "VALUE");
    let other_name = |text: &str| text.replace("ams1", "NAME").replace(&format!("{:?}", b"ams1"), "VALUE");
    for (has, others) in has.iter().zip(&others) {
        assert_eq!(name(has), other_name(others));
    }
    for store in [&one, &other] {
        store.forget(&id(b"a"), &[]).await.unwrap();
        let again = charge(store, entry(b"a", slow(), vec![count(2, 1, 1)])).await.unwrap();
        assert_eq!(again.deficit_ns.div_ceil(slow().token_ns()), 1, "its own budget was forgotten");
    }
}

#[tokio::test]
async fn two_fleets_in_one_redis_are_isolated() {
    let redis = Redis::start().await;
    each_has_its_own(&redis.url()).await;
    let mut names: Vec<String> = redis.connection().await.keys("*").await.unwrap();
    // Each is there for a second.
    names.retain(|name| !name.contains("probe"));
    let of = |prefix: &str| {
        let own = names.iter().filter_map(|name| name.strip_prefix(prefix));
        let mut of: Vec<_> = own.map(|name| name.replace(prefix, "PREFIX:")).collect();
        of.sort_unstable();
        of
    };
    assert_eq!(of("weir:"), of("shop:"), "{names:?}");
    assert_eq!(names.len(), 2 * of("weir:").len(), "under no other name: {names:?}");
    assert!(of("weir:").len() > 12, "{names:?}");
}

#[tokio::test]
async fn two_fleets_in_one_cluster_are_isolated() {
    let cluster = Cluster::start_masters().await;
    for server in &cluster.servers {
        let mut command = redis::cmd("ACL");
        command.arg(&["SETUSER", "weir-user", "~shop:*"]);
        let () = command.query_async(&mut server.operator().await).await.unwrap();
    }
    each_has_its_own(&cluster.url()).await;
}

#[tokio::test]
async fn a_user_of_one_fleet_cannot_reach_another() {
    let (_redis, url) = with_a_user(&acl().replace("~weir:*", "~shop:*")).await;
    fill(&fleet(&url, "shop").await, "ams1").await;
    let store = RedisStore::new(&url, Options { prefix: "weir".into(), ..options() }).unwrap();
    let refused = weir_tests::wait::until("a refusal", async || {
        store.ping().await.err().filter(|error| error.kind() == "refused")
    });
    refused.await;
}
