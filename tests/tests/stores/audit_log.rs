//! The audit log in a stream of a real Redis: one that answers, hangs, dies and comes back, and a cluster.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use serde_json::Value;
use tokio::sync::watch;
use weir_sync::audit::AuditLog;
use weir_sync::audit::event::ChangeEvent;
use weir_sync::config::{AuditStream, Config, Secret};
use weir_sync::metrics::{Metrics, OfSink};
use weir_tests::redis::{Redis, Setup};
use weir_tests::redis_cluster::Cluster;
use weir_tests::wait::until;

use crate::TIMEOUT;

/// The stream's key.
const STREAM_KEY: &str = "weir:audit";

/// An audit log into the stream at `url`, and what it counts.
fn audit_log(url: &str, entries_max: usize) -> (AuditLog, Arc<Metrics>, watch::Sender<u64>) {
    let metrics = Arc::new(Metrics::new("fra").0);
    let config = Config {
        audit_log_redis: Some(AuditStream::Redis(Secret::new(url))),
        audit_log_redis_max: entries_max,
        audit_log_queue_max: 100,
        store_timeout: TIMEOUT,
        ..Config::default()
    };
    let reread = watch::Sender::default();
    let (audit_log, writers) = AuditLog::new(&config, "fra/a", &metrics, &reread.subscribe()).unwrap();
    for writer in writers {
        tokio::spawn(writer.run());
    }
    (audit_log, metrics, reread)
}

/// Something that was changed.
fn change(audit_log: &AuditLog, note: &str) {
    audit_log.change(ChangeEvent {
        what: "rules",
        author: "admin".into(),
        note: note.into(),
        ..ChangeEvent::default()
    });
}

fn lost(metrics: &Metrics) -> u64 {
    metrics.audit_log_lost.get_or_create(&OfSink { sink: "redis" }).get()
}

/// The entries of the stream: its kind, and its JSON.
async fn entries(connection: &mut MultiplexedConnection) -> Vec<(String, Value)> {
    let range = redis::cmd("XRANGE").arg(STREAM_KEY).arg("-").arg("+").query_async(connection).await;
    let range: Vec<(String, HashMap<String, String>)> = range.unwrap_or_default();
    let entry = |(_, fields): &(String, HashMap<String, String>)| {
        (fields["event"].clone(), serde_json::from_str(&fields["json"]).unwrap())
    };
    range.iter().map(entry).collect()
}

/// Waits until the last entry is the change of this note; all entries.
async fn with_last(connection: &mut MultiplexedConnection, note: &str) -> Vec<(String, Value)> {
    until("the stream to have the change", async || {
        let entries = entries(connection).await;
        entries.last().is_some_and(|(_, json)| json["note"] == note).then_some(entries)
    })
    .await
}

#[tokio::test]
async fn events_are_entries_of_a_bounded_stream() {
    let setup = Setup { user: Some("weir".into()), password: Some("pa55".into()), ..Setup::default() };
    let redis = Redis::start_with(setup).await;
    let (audit_log, metrics, _reread) = audit_log(&redis.url(), 10);
    change(&audit_log, "one");
    let mut connection = redis.connection().await;
    let entries = with_last(&mut connection, "one").await;
    let [(event, json)] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!((event.as_str(), &json["event"], &json["region"]), ("change", &"change".into(), &"fra".into()));
    for n in 0..500 {
        change(&audit_log, &n.to_string());
        if n % 50 == 49 {
            with_last(&mut connection, &n.to_string()).await;
        }
    }
    // Redis cuts off whole nodes of its list, of 100 entries unless it is set otherwise.
    let length: usize = redis::cmd("XLEN").arg(STREAM_KEY).query_async(&mut connection).await.unwrap();
    assert!((10..=210).contains(&length), "{length}");
    assert_eq!(lost(&metrics), 0);
}

#[tokio::test]
async fn an_outage_of_redis_drops_only_the_oldest_events() {
    let mut redis = Redis::start().await;
    let (audit_log, metrics, _reread) = audit_log(&redis.url(), 10_000);
    change(&audit_log, "before");
    with_last(&mut redis.connection().await, "before").await;
    redis.freeze().await;
    for n in 0..1_000 {
        change(&audit_log, &n.to_string());
        tokio::task::yield_now().await;
    }
    assert!(lost(&metrics) > 0);
    redis.thaw();
    let mut connection = redis.connection().await;
    let of_losses = with_last(&mut connection, "999").await;
    assert!(of_losses.iter().any(|(event, json)| event == "lost" && json["count"].as_u64() > Some(0)));
    drop(connection);
    redis.kill();
    change(&audit_log, "while it was gone");
    tokio::time::sleep(Duration::from_millis(50)).await;
    redis.restart().await;
    with_last(&mut redis.connection().await, "while it was gone").await;
}

#[tokio::test]
async fn a_cluster_keeps_the_stream_on_one_master() {
    let cluster = Cluster::start_masters().await;
    let (audit_log, _, _reread) = audit_log(&cluster.url(), 10_000);
    change(&audit_log, "one");
    let master = until("a master to have it", async || cluster.master_of(STREAM_KEY, 0).await).await;
    let mut connection = cluster.masters()[master].connection().await;
    with_last(&mut connection, "one").await;
}
