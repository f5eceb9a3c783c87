//! Rule sets in a Redis that loses its data.

use std::sync::Arc;

use serde_json::json;
use weir_cli::document::{Document, Form};
use weir_sync::overrides::request;
use weir_sync::overrides::spec::OverrideKind;
use weir_sync::rules::{ChangeError, ChangeOrigin, RuleSets};
use weir_tests::redis::Redis;

use crate::connected;

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
    let put = other.put_override(OverrideKind::Ban, &ban, &ChangeOrigin::default()).await;
    assert_eq!(put, Err(ChangeError::None), "POPs would not get it");
    let after = ours.put_file(&document("6/s")).await.unwrap().unwrap();
    assert!(after > before, "{after} {before}");
    other.listen().await.unwrap();
    assert_eq!((other.version(), other.is_missing()), (after, false));
}
