//! The canary, and the numbers of revisions while one runs: the same in every store.

use weir_store::Store;
use weir_store::rules::{Current, NewVersion, OverrideChange, RulesChange, RulesResult, StoredCanary, Until};
use weir_tests::redis::Redis;

use crate::{POP_TTL, connected_with, memory_with};

for_every_store!(
    one_canary_runs_beside_the_stable_version,
    a_promoted_canary_keeps_its_revision,
    a_withdrawn_canary_leaves_no_number,
    a_put_ends_the_canary,
    only_the_named_canary_ends,
    a_file_waits_for_the_canary_to_end,
);

async fn put(store: &dyn Store, document: &str) -> RulesResult {
    change(store, RulesChange::Put(NewVersion { document, expected: None, note: "put", from_file: false })).await
}

/// Puts a rule set; the new version.
async fn put_good(store: &dyn Store, document: &str) -> u64 {
    let RulesResult::Put(version) = put(store, document).await else { panic!("it is put") };
    version
}

async fn change(store: &dyn Store, change: RulesChange<'_>) -> RulesResult {
    store.change_rules(&change).await.unwrap()
}

async fn begin(store: &dyn Store, document: &str) -> u64 {
    let expected = current(store).await.version.unwrap();
    let begin = RulesChange::Begin { document, text: "fra \u{e9}", expected };
    let RulesResult::Begun(id) = change(store, begin).await else { panic!("it begins") };
    id
}

async fn order(store: &dyn Store, name: &str) {
    let put = OverrideChange::Put { name, text: "x", until: Until::In(3_600_000) };
    store.overrides(Some(&put)).await.unwrap();
}

async fn current(store: &dyn Store) -> Current {
    store.current().await.unwrap()
}

async fn one_canary_runs_beside_the_stable_version(store: &dyn Store) {
    let begin_beside = |expected| RulesChange::Begin { document: "b", text: "fra \u{e9}", expected };
    assert_eq!(store.canary().await.unwrap(), None);
    assert_eq!(change(store, begin_beside(0)).await, RulesResult::Conflict(0), "beside nothing");
    let version = put_good(store, "a").await;
    assert_eq!(change(store, begin_beside(version + 1)).await, RulesResult::Conflict(version));
    assert_eq!(current(store).await.canary_revision(), None);
    let RulesResult::Begun(id) = change(store, begin_beside(version)).await else { panic!("it begins") };
    assert!(id.abs_diff(version) < 600_000, "it begins at the time: {id} {version}");
    assert_eq!(current(store).await, Current { version: Some(version), overrides: 0, canary: id });
    let StoredCanary { at_ms, .. } = store.canary().await.unwrap().unwrap();
    let kept = StoredCanary { id, at_ms, text: "fra \u{e9}".into(), document: "b".into() };
    assert_eq!(store.canary().await.unwrap(), Some(kept));
    assert!(at_ms.abs_diff(id) < 600_000, "{at_ms}");
    assert_eq!(change(store, begin_beside(version)).await, RulesResult::Runs(id));
    assert_eq!(put(store, "c").await, RulesResult::Runs(id));
    assert_eq!(store.current().await.unwrap().version, Some(version));
    assert_eq!(store.kept_rules().await.unwrap().len(), 1);
}

async fn a_promoted_canary_keeps_its_revision(store: &dyn Store) {
    let version = put_good(store, "a").await;
    let id = begin(store, "b").await;
    assert_eq!((current(store).await.revision(), current(store).await.canary_revision()), (version, Some(version + 1)));
    order(store, "one").await;
    let first = current(store).await.revision();
    order(store, "two").await;
    assert_eq!(current(store).await.revision(), first + 2, "the number between was the canary's");
    assert_eq!(store.overrides(None).await.unwrap().current, current(store).await);
    let promote = RulesChange::Promote { id, note: "promoted" };
    assert_eq!(change(store, promote).await, RulesResult::Put(version + 1));
    let after = current(store).await;
    assert_eq!((after.revision(), after.canary_revision(), after.version), (first + 3, None, Some(version + 1)));
    assert_eq!(store.get_rules(version + 1).await.unwrap().as_deref(), Some("b"));
    assert_eq!(store.kept_rules().await.unwrap()[0].note, "promoted");
    assert_eq!((store.canary().await.unwrap(), change(store, promote).await), (None, RulesResult::Missing));
    order(store, "three").await;
    assert_eq!(current(store).await.revision(), first + 4, "by one again");
}

async fn a_withdrawn_canary_leaves_no_number(store: &dyn Store) {
    let version = put_good(store, "a").await;
    let mut last = current(store).await.revision();
    let mut last_id = 0;
    for _ in 0..3 {
        let id = begin(store, "b").await;
        assert!(id > last_id, "{id} {last_id}");
        let during = current(store).await;
        assert_eq!(during.revision(), last, "those without it get nothing new");
        assert_eq!(change(store, RulesChange::Withdraw { id }).await, RulesResult::Withdrawn(id));
        let after = current(store).await;
        assert!(after.revision() > during.canary_revision().unwrap(), "{after:?} {during:?}");
        assert_eq!((after.version, after.canary), (Some(version), 0));
        (last, last_id) = (after.revision(), id);
    }
    assert_eq!(change(store, RulesChange::Withdraw { id: last_id }).await, RulesResult::Missing);
    assert_eq!(current(store).await.revision(), last);
}

fn over(document: &str, expected: u64) -> RulesChange<'_> {
    RulesChange::PutOver(NewVersion { document, expected: Some(expected), note: document, from_file: false })
}

async fn a_put_ends_the_canary(store: &dyn Store) {
    let version = put_good(store, "a").await;
    for round in 0..2 {
        begin(store, "b").await;
        let during = current(store).await.canary_revision().unwrap();
        let over = |expected| over("off", expected);
        assert_eq!(change(store, over(version + round + 1)).await, RulesResult::Conflict(version + round));
        assert_eq!(change(store, over(version + round)).await, RulesResult::Put(version + round + 1));
        assert!(current(store).await.revision() > during, "another content has another number");
        assert_eq!(store.canary().await.unwrap(), None);
    }
    let before = current(store).await;
    let over = over("on", version + 2);
    assert_eq!(change(store, over).await, RulesResult::Put(version + 3), "without one it is as a put");
    assert_eq!(current(store).await, Current { version: Some(version + 3), ..before });
    assert_eq!(store.get_rules(version + 3).await.unwrap().as_deref(), Some("on"));
}

async fn only_the_named_canary_ends(store: &dyn Store) {
    put_good(store, "a").await;
    let id = begin(store, "b").await;
    assert_eq!(change(store, RulesChange::Promote { id: id + 1, note: "" }).await, RulesResult::Runs(id));
    assert_eq!(change(store, RulesChange::Withdraw { id: id + 1 }).await, RulesResult::Runs(id));
    assert_eq!(change(store, RulesChange::Withdraw { id }).await, RulesResult::Withdrawn(id));
}

async fn a_file_waits_for_the_canary_to_end(store: &dyn Store) {
    let file = |document| NewVersion { document, expected: None, note: "file", from_file: true };
    let put_file = async |document| change(store, RulesChange::Put(file(document))).await;
    let RulesResult::Put(version) = put_file("a").await else { panic!("it is put") };
    let id = begin(store, "b").await;
    assert_eq!(put_file("a").await, RulesResult::Same(version));
    for _ in 0..2 {
        assert_eq!(put_file("c").await, RulesResult::Runs(id), "it is news until it is put");
    }
    change(store, RulesChange::Withdraw { id }).await;
    assert_eq!(put_file("c").await, RulesResult::Put(version + 1));
}
