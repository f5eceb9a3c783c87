//! Overrides, and what is current with them: the same in every store.

use weir_store::Store;
use weir_store::rules::{
    Current, OVERRIDES_MAX, OverrideChange, OverrideResult, StoredOverride, StoredOverrides, Until,
};
use weir_store::rules::{NewVersion, RulesChange, RulesResult};
use weir_tests::redis::Redis;
use weir_tests::wait::until;

use crate::{POP_TTL, connected_with, memory_with};

for_every_store!(
    each_change_makes_one_revision,
    the_last_override_of_a_name_counts,
    an_override_ends_by_itself,
    the_overrides_are_bounded,
    any_text_is_accepted,
);

const HOUR: Until = Until::In(3_600_000);

async fn put(store: &dyn Store, name: &str, text: &str, until: Until) -> StoredOverrides {
    store.overrides(Some(&OverrideChange::Put { name, text, until })).await.unwrap()
}

async fn drop_it(store: &dyn Store, name: &str) -> OverrideResult {
    store.overrides(Some(&OverrideChange::Drop(name))).await.unwrap().outcome
}

/// Puts a rule set; the new version.
async fn put_rules(store: &dyn Store) -> u64 {
    let put = NewVersion { document: "x", expected: None, note: "put", from_file: false };
    match store.change_rules(&RulesChange::Put(put)).await.unwrap() {
        RulesResult::Put(version) => version,
        other => panic!("{other:?}"),
    }
}

fn texts(overrides: &StoredOverrides) -> Vec<(&str, &str)> {
    overrides.kept.iter().map(|kept| (kept.name.as_str(), kept.text.as_str())).collect()
}

async fn each_change_makes_one_revision(store: &dyn Store) {
    assert_eq!(store.current().await.unwrap(), Current::default());
    assert_eq!(store.current().await.unwrap().revision(), 0);
    let version = put_rules(store).await;
    assert_eq!(store.current().await.unwrap().revision(), version, "without overrides it is the version");
    let first = put(store, "a", "1", HOUR).await;
    let number = first.current.overrides;
    assert_eq!(first.current, Current { version: Some(version), overrides: number, canary: 0 });
    assert!(number.abs_diff(version) < 600_000, "it begins at the time: {number} {version}");
    assert_eq!(store.overrides(None).await.unwrap().current, first.current, "to ask changes nothing");
    assert_eq!(drop_it(store, "b").await, OverrideResult::Missing);
    assert_eq!(store.current().await.unwrap(), first.current);
    put_rules(store).await;
    put(store, "b", "2", HOUR).await;
    assert_eq!(drop_it(store, "a").await, OverrideResult::Done);
    let expected = Current { version: Some(version + 1), overrides: number + 2, canary: 0 };
    assert_eq!(store.current().await.unwrap(), expected);
    let read = store.overrides(None).await.unwrap();
    assert_eq!(texts(&read), [("b", "2")], "a new rule set keeps it");
    assert_eq!(read.current, store.current().await.unwrap());
}

async fn the_last_override_of_a_name_counts(store: &dyn Store) {
    put(store, "b", "1", HOUR).await;
    put(store, "a", "2", HOUR).await;
    let read = put(store, "b", "3", Until::At(9_999_999_999_999)).await;
    assert_eq!(texts(&read), [("a", "2"), ("b", "3")], "the oldest first");
    let StoredOverride { id, at_ms, until_ms, .. } = read.kept[1];
    assert_eq!((id, until_ms), (read.current.overrides, 9_999_999_999_999));
    assert!(at_ms <= read.now_ms && read.now_ms - at_ms < 600_000, "{read:?}");
    assert_eq!(read.kept[0].until_ms - read.kept[0].at_ms, 3_600_000);
}

async fn an_override_ends_by_itself(store: &dyn Store) {
    put(store, "a", "1", HOUR).await;
    let before = put(store, "b", "2", Until::In(1)).await.current.overrides;
    let read = until("the override to end", async || {
        let read = store.overrides(None).await.unwrap();
        (read.kept.len() == 1).then_some(read)
    })
    .await;
    // Dropped with the put itself if that took a millisecond.
    assert!((before..=before + 1).contains(&read.current.overrides), "{before} {read:?}");
    assert_eq!(store.overrides(None).await.unwrap().current, read.current, "once");
    let past = put(store, "c", "3", Until::At(1)).await;
    assert_eq!((texts(&past), past.current.overrides), (vec![("a", "1")], read.current.overrides + 2));
}

async fn the_overrides_are_bounded(store: &dyn Store) {
    for n in 0..OVERRIDES_MAX {
        assert_eq!(put(store, &n.to_string(), "x", HOUR).await.outcome, OverrideResult::Done);
    }
    let full = put(store, "more", "x", HOUR).await;
    assert_eq!((full.outcome, full.kept.len()), (OverrideResult::Full, OVERRIDES_MAX));
    assert_eq!(put(store, "7", "y", HOUR).await.outcome, OverrideResult::Done, "in place of another");
    assert_eq!(drop_it(store, "8").await, OverrideResult::Done);
    assert_eq!(put(store, "more", "x", HOUR).await.outcome, OverrideResult::Done);
}

async fn any_text_is_accepted(store: &dyn Store) {
    let (name, text) = ("a b\r\n\0\u{e9}", " 1 2 3 \r\n\0\u{e9}");
    assert_eq!(texts(&put(store, name, text, HOUR).await), [(name, text)]);
    assert_eq!(drop_it(store, name).await, OverrideResult::Done);
}
