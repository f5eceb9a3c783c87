//! The audit log: changes, decisions and anomalies, written to sinks as lines of JSON.
//!
//! An event is serialized and appended to a bounded queue per sink, without waiting. A [writer](sink) per sink takes
//! lines from its queue. If a sink is slow or gone, the oldest lines are lost and counted, and an extra line states
//! their number once the sink works again. docs/reference/audit-log.md lists the fields of each event.

pub mod event;
pub mod observer;
pub(crate) mod sink;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use weir_store::StoreError;
use weir_store::address::NodeMap;
use weir_store::dial::{DialError, LoginFiles};
use weir_store::keys::RedisKeys;
use weir_store::stream::{StreamSettings, StreamWriter};

use crate::config::{AuditFile, AuditStream, Config, StoreAddress};
use crate::metrics::{Metrics, OfEvent, OfSink};
use event::{AuditEvent, ChangeEvent, Stamp};
use sink::{FileSink, Queue, Sink, Writer};

/// Time limit for opening the file at startup, so that a file that hangs does not block it.
const OPEN_MAX: Duration = Duration::from_secs(1);
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// Recorder of events. Without sinks, events are dropped.
#[derive(Debug, Default)]
pub struct AuditLog {
    /// `None` without sinks.
    stamp: Option<Arc<Stamp>>,
    queues: Vec<Arc<Queue>>,
    events: Family<OfEvent, Counter>,
}

impl AuditLog {
    /// Audit log of the weir-sync `name`, with the writers to run. Files are opened again when `reread` changes.
    pub fn new(
        config: &Config,
        name: &str,
        metrics: &Metrics,
        reread: &watch::Receiver<u64>,
    ) -> Result<(Self, Vec<Writer>), DialError> {
        let stamp = Arc::new(Stamp::new(name));
        let mut sinks = Vec::new();
        if let Some(to) = &config.audit_log_file {
            let name = if *to == AuditFile::Stdout { "stdout" } else { "file" };
            sinks.push((name, Sink::File(FileSink::new(to.clone()))));
        }
        if let Some(stream) = config.audit_log_redis.as_ref().and_then(|redis| stream_settings(config, redis)) {
            sinks.push(("redis", Sink::Redis(Box::new(StreamWriter::new(stream)?))));
        }
        let writer = |(name, sink)| {
            let of = |family: &Family<OfSink, Counter>| family.get_or_create_owned(&OfSink { sink: name });
            Writer {
                name,
                queue: Arc::new(Queue::new(config.audit_log_queue_max, of(&metrics.audit_log_lost))),
                sink,
                stamp: Arc::clone(&stamp),
                written: of(&metrics.audit_log_written),
                errors: of(&metrics.audit_log_errors),
                reread: reread.clone(),
            }
        };
        let writers: Vec<_> = sinks.into_iter().map(writer).collect();
        let queues: Vec<_> = writers.iter().map(|writer| Arc::clone(&writer.queue)).collect();
        let own_stamp = (!queues.is_empty()).then(|| Arc::clone(&stamp));
        Ok((Self { stamp: own_stamp, queues, events: metrics.audit_log_events.clone() }, writers))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.stamp.is_some()
    }

    /// Records an event. Never waits.
    pub(crate) fn record(&self, event: &AuditEvent) {
        let Some(stamp) = &self.stamp else { return };
        self.events.get_or_create(&OfEvent { event: event.kind() }).inc();
        let line = stamp.line(event);
        self.queues.iter().for_each(|queue| queue.push(line.clone()));
    }

    /// Records a change. All changes by operators and watched files pass through here.
    pub fn change(&self, changed: ChangeEvent) {
        self.record(&AuditEvent::Change(Box::new(changed)));
    }

    /// Records a change that failed, if it may have been made nevertheless.
    pub(crate) fn change_failed(&self, error: &StoreError, changed: ChangeEvent) {
        if error.may_be_done() {
            self.change(ChangeEvent { outcome: Some("unknown"), ..changed });
        }
    }

    /// Waits until all lines are written, at most `limit`.
    pub(crate) async fn finish(&self, limit: Duration) {
        let written = async {
            while self.queues.iter().any(|queue| !queue.is_empty()) {
                sleep(LOOK_PAUSE).await;
            }
        };
        if timeout(limit, written).await.is_err() {
            tracing::warn!("stopped before all of the audit log was written");
        }
    }
}

/// Settings of the stream in `redis`; `None` for a store in memory, which the configuration refuses.
fn stream_settings(config: &Config, redis: &AuditStream) -> Option<StreamSettings> {
    let files = config.store_files();
    let (url, files, nodes) = match (redis, &config.store) {
        // The store's CA and client certificate are used here too, but none of its passwords.
        (AuditStream::Redis(url), _) => {
            let password = config.audit_log_redis_password_file.clone();
            let files = LoginFiles { password, sentinel_password: None, sentinel_user: None, ..files };
            (url, files, NodeMap::default())
        }
        (AuditStream::Store, StoreAddress::Redis(url)) => (url, files, config.store_nodes.clone()),
        (AuditStream::Store, StoreAddress::Memory) => return None,
    };
    Some(StreamSettings {
        url: url.expose().to_owned(),
        key: RedisKeys::new(&config.store_prefix).one("audit"),
        files,
        nodes,
        response_timeout: config.store_timeout,
        entries_max: config.audit_log_redis_max,
    })
}

/// Tries to open the audit log's file, and returns the reason if that fails. A file that hangs is not an error.
pub(crate) async fn try_file(to: &AuditFile) -> Result<(), String> {
    let AuditFile::File(path) = to else { return Ok(()) };
    let sink = FileSink::new(to.clone());
    match timeout(OPEN_MAX, sink.reopen()).await {
        Ok(Err(error)) => Err(format!("cannot open {path}: {error}")),
        _ => Ok(()),
    }
}
