//! Rule sets, and records of which POP runs which: the same in every store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use weir_budget::pops::PopRuleSet;
use weir_cli::document::{Document, Form};
use weir_store::Store;
use weir_store::fleet::POP_RECORDS_MAX;
use weir_store::rules::{NewVersion, RulesChange, RulesResult, VERSIONS_KEPT};
use weir_sync::overrides::OverrideKind;
use weir_sync::overrides::request;
use weir_sync::rules::{ChangeError, ChangeOrigin, RuleSets};
use weir_tests::redis::Redis;
use weir_tests::wait::until;

use crate::{POP_TTL, connected, connected_with, memory_with};

/// Longer than any test.
const FOREVER: Duration = Duration::from_hours(24);

for_every_store!(
    versions_count_up_and_a_conflict_changes_nothing,
    one_of_many_writers_wins,
    the_last_versions_are_kept,
    a_file_does_not_undo_a_later_put,
    the_largest_document_is_accepted,
    silent_pops_leave_the_list,
    any_pop_name_and_version_is_accepted,
    the_pop_records_are_bounded with FOREVER,
);

async fn put_version(store: &dyn Store, put: NewVersion<'_>) -> RulesResult {
    store.change_rules(&RulesChange::Put(put)).await.unwrap()
}

async fn put(store: &dyn Store, document: &str, expected: Option<u64>) -> RulesResult {
    put_version(store, NewVersion { document, expected, note: "put", from_file: false }).await
}

async fn put_file(store: &dyn Store, document: &str) -> RulesResult {
    put_version(store, NewVersion { document, expected: None, note: "file", from_file: true }).await
}

/// Puts the first, and returns its version.
async fn first(store: &dyn Store, document: &str) -> u64 {
    let RulesResult::Put(version) = put(store, document, Some(0)).await else { panic!("it is put") };
    version
}

async fn versions_count_up_and_a_conflict_changes_nothing(store: &dyn Store) {
    assert_eq!(store.current().await.unwrap().version, None);
    assert_eq!(store.kept_rules().await.unwrap(), []);
    assert_eq!(put(store, "x", Some(1)).await, RulesResult::Conflict(0));
    assert_eq!(store.current().await.unwrap().version, None);
    let version = first(store, "a").await;
    assert_eq!(put(store, "b", Some(0)).await, RulesResult::Conflict(version));
    assert_eq!(put(store, "b", Some(version)).await, RulesResult::Put(version + 1));
    assert_eq!(put(store, "c", Some(version)).await, RulesResult::Conflict(version + 1));
    assert_eq!(put(store, "b", None).await, RulesResult::Put(version + 2), "the same again is a version, too");
    assert_eq!(store.current().await.unwrap().version, Some(version + 2));
    for (back, document) in [(0, Some("a")), (1, Some("b")), (2, Some("b")), (3, None)] {
        assert_eq!(store.get_rules(version + back).await.unwrap().as_deref(), document);
    }
}

async fn one_of_many_writers_wins(store: &dyn Store) {
    let version = first(store, "a").await;
    let texts: Vec<String> = (0..4).map(|n| n.to_string()).collect();
    let (a, b, c, d) = tokio::join!(
        put(store, &texts[0], Some(version)),
        put(store, &texts[1], Some(version)),
        put(store, &texts[2], Some(version)),
        put(store, &texts[3], Some(version)),
    );
    let outcomes = [a, b, c, d];
    let won = |outcome: &&RulesResult| **outcome == RulesResult::Put(version + 1);
    assert_eq!(outcomes.iter().filter(won).count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == RulesResult::Conflict(version + 1)).count(), 3);
    let winner = outcomes.iter().position(|outcome| won(&outcome)).unwrap();
    assert_eq!(store.get_rules(version + 1).await.unwrap(), Some(texts[winner].clone()));
}

// I2
async fn the_last_versions_are_kept(store: &dyn Store) {
    let version = first(store, "0").await;
    let puts = VERSIONS_KEPT as u64 + 5;
    for n in 1..puts {
        let (document, note) = (n.to_string(), format!("rollback to {n}\n\u{e9}"));
        put_version(store, NewVersion { document: &document, expected: None, note: &note, from_file: false }).await;
    }
    let kept = store.kept_rules().await.unwrap();
    let versions: Vec<_> = kept.iter().map(|kept| kept.version).collect();
    assert_eq!(versions, (version + 5..version + puts).rev().collect::<Vec<_>>());
    let named = [kept[0].name(), kept.last().unwrap().name()];
    assert_eq!(named, [format!("r{puts}"), "r6".into()], "the first was r1");
    assert_eq!(kept[0].note, format!("rollback to {}\n\u{e9}", puts - 1));
    assert!((version / 1_000..version / 1_000 + 600).contains(&kept[0].at_s), "{} {version}", kept[0].at_s);
    assert_eq!(store.get_rules(version + 4).await.unwrap(), None);
    assert_eq!(store.get_rules(version + 5).await.unwrap().as_deref(), Some("5"));
}

async fn a_file_does_not_undo_a_later_put(store: &dyn Store) {
    let RulesResult::Put(version) = put_file(store, "a").await else { panic!() };
    assert_eq!(put_file(store, "a").await, RulesResult::Same(version));
    assert_eq!(put(store, "x", None).await, RulesResult::Put(version + 1));
    assert_eq!(put_file(store, "a").await, RulesResult::Same(version + 1), "the one that put x has seen a");
    assert_eq!(put_file(store, "x").await, RulesResult::Same(version + 1), "it is current");
    assert_eq!(put_file(store, "a").await, RulesResult::Put(version + 2), "the file has changed, and back");
    assert_eq!(put_file(store, "b").await, RulesResult::Put(version + 3));
    let expecting = NewVersion { document: "c", expected: Some(version), note: "file", from_file: true };
    assert_eq!(put_version(store, expecting).await, RulesResult::Conflict(version + 3));
    assert_eq!(put_file(store, "c").await, RulesResult::Put(version + 4), "a conflict is no put");
}

async fn the_largest_document_is_accepted(store: &dyn Store) {
    let document = "\u{e9}".repeat(1 << 19);
    let version = first(store, &document).await;
    assert_eq!(store.get_rules(version).await.unwrap(), Some(document));
}

fn rule_set(pop: &str, version: u64, refused: u64) -> PopRuleSet {
    PopRuleSet { pop: pop.into(), version, refused }
}

/// Name, region, replica, version, refused.
async fn fleet(store: &dyn Store) -> Vec<(String, String, String, u64, u64)> {
    let seen = store.fleet().await.unwrap();
    seen.into_iter().map(|pop| (pop.pop, pop.region, pop.replica, pop.version, pop.refused)).collect()
}

fn row(pop: &str, replica: (&str, &str), version: u64, refused: u64) -> (String, String, String, u64, u64) {
    (pop.into(), replica.0.into(), replica.1.into(), version, refused)
}

async fn silent_pops_leave_the_list(store: &dyn Store) {
    let start = Instant::now();
    assert_eq!(fleet(store).await, []);
    store.store_pop_records("fra/a", &[rule_set("fra1", 5, 0), rule_set("fra2", 6, 7)]).await.unwrap();
    store.store_pop_records("iad/a", &[rule_set("iad1", 0, 0)]).await.unwrap();
    store.store_pop_records("fra/a", &[]).await.unwrap();
    let of_iad = row("iad1", ("iad", "a"), 0, 0);
    let all = [row("fra1", ("fra", "a"), 5, 0), row("fra2", ("fra", "a"), 6, 7), of_iad.clone()];
    assert_eq!(fleet(store).await, all);
    store.store_pop_records("fra/a", &[rule_set("fra1", 8, 0)]).await.unwrap();
    store.store_pop_records("fra/b", &[rule_set("fra2", 9, 0)]).await.unwrap();
    let all = [row("fra1", ("fra", "a"), 8, 0), row("fra2", ("fra", "b"), 6, 7), of_iad];
    assert_eq!(fleet(store).await, all, "the later of one replica, the lower of two");
    let age_us = store.fleet().await.unwrap()[0].age_us;
    assert!(u128::from(age_us) <= start.elapsed().as_micros(), "{age_us}");
    until("the silent to be forgotten", async || {
        store.store_pop_records("fra/b", &[rule_set("fra2", 9, 0)]).await.unwrap();
        (fleet(store).await == [row("fra2", ("fra", "b"), 9, 0)]).then_some(())
    })
    .await;
    assert!(start.elapsed() >= POP_TTL, "not before their time: {:?}", start.elapsed());
}

async fn any_pop_name_and_version_is_accepted(store: &dyn Store) {
    let odd = "a b/c 1 2\r\n\0\u{e9}";
    store.store_pop_records("fra/a", &[rule_set(odd, u64::MAX, u64::MAX)]).await.unwrap();
    assert_eq!(fleet(store).await, [row(odd, ("fra", "a"), u64::MAX, u64::MAX)]);
}

// I2
async fn the_pop_records_are_bounded(store: &dyn Store) {
    let pops: Vec<_> = (0..POP_RECORDS_MAX + 50).map(|n| rule_set(&format!("pop-{n}"), 1, 0)).collect();
    for pops in pops.chunks(1_000) {
        store.store_pop_records("fra/a", pops).await.unwrap();
    }
    let seen = fleet(store).await;
    // In Redis one of the records is the weir-sync's own.
    assert!((POP_RECORDS_MAX - 1..=POP_RECORDS_MAX).contains(&seen.len()), "{} records", seen.len());
    assert!(seen.iter().any(|pop| pop.0 == format!("pop-{}", POP_RECORDS_MAX + 49)), "the newest stay");
}

fn document(rate: &str) -> Document {
    let text = format!("rules: [{{name: a, key: [client_address], rate: {rate}}}]");
    Document::read(text.as_bytes(), Form::Yaml).unwrap()
}

#[tokio::test]
async fn a_flush_keeps_the_rule_set_and_reuses_no_number() {
    let redis = Redis::start().await;
    let (store, mut connection) = (Arc::new(connected(&redis).await), redis.connection().await);
    let rule_sets = |store| RuleSets::new(store, "eu", <_>::default(), <_>::default());
    let (ours, other) = (rule_sets(store.clone()), rule_sets(store));
    other.listen().await.unwrap();
    assert!(other.is_missing());
    let before = ours.put(&document("5/s"), Some(0), &ChangeOrigin::default()).await.unwrap();
    other.listen().await.unwrap();
    assert_eq!((other.version(), other.is_missing()), (before, false));
    redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
    other.listen().await.unwrap();
    assert_eq!((other.version(), other.is_missing()), (before, true));
    assert_eq!(other.get(before).await.unwrap().unwrap().document, document("5/s").text());
    assert_eq!(other.current().await.unwrap(), None);
    let ban = request::read(OverrideKind::Ban, &json!({"address": "192.0.2.1", "for": "1h"}), 0, None).unwrap();
    let put = other.put_override(&ban, &ChangeOrigin::default()).await;
    assert_eq!(put, Err(ChangeError::None), "POPs would not get it");
    let after = ours.put_file(&document("6/s")).await.unwrap().unwrap();
    assert!(after > before, "{after} {before}");
    other.listen().await.unwrap();
    assert_eq!((other.version(), other.is_missing()), (after, false));
}
