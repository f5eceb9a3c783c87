//! The trail: what was changed, decided, and out of the ordinary, written as lines of JSON to sinks.
//!
//! An event is stamped and put into a bounded queue for each sink; that never waits. A [`writer`] for each sink takes
//! lines out of its queue. A sink that is slow or gone loses the oldest lines, which is counted, and told by a line of its
//! own once the sink takes lines again. docs/trail.md has the fields of each event.

pub mod event;
pub mod fault;
pub mod file;
pub mod observer;
pub mod queue;
pub mod tally;
mod under_way;
pub mod writer;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::anomalies::Terms;
use crate::config::TrailFile;
use crate::metrics::{Metrics, OfEvent, OfSink};
use crate::store::StoreError;
use crate::store::dial::DialError;
use crate::store::stream::{Stream, StreamSettings};
use event::{Changed, Event, Outcome, Stamp};
use file::FileSink;
use queue::Queue;
use writer::{Sink, Writer};

/// How long the start waits for the trail's file: one that hangs must not hold it up.
const OPEN_MAX: Duration = Duration::from_secs(1);
/// How often it is looked whether all is written.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// Where events go.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A file, or the standard output.
    pub file: Option<TrailFile>,
    /// A stream of Redis.
    pub stream: Option<StreamSettings>,
    /// The most lines that wait for a sink.
    pub queue_max: usize,
    /// The most keys whose decisions are told in an interval.
    pub keys_max: usize,
    /// What is out of the ordinary.
    pub anomalies: Terms,
    /// How long a minute of these is.
    pub minute: Duration,
}

impl Default for Settings {
    /// Without sinks.
    fn default() -> Self {
        let (anomalies, minute) = (Terms::default(), Duration::from_mins(1));
        Self { file: None, stream: None, queue_max: 10_000, keys_max: 1_000, anomalies, minute }
    }
}

/// Takes events. Without sinks it drops them.
#[derive(Debug, Default)]
pub struct Trail {
    /// Without sinks nothing is stamped.
    stamp: Option<Arc<Stamp>>,
    queues: Vec<Arc<Queue>>,
    keys_max: usize,
    anomalies: Terms,
    minute: Duration,
    events: Family<OfEvent, Counter>,
}

impl Trail {
    /// A trail of the weir-sync `member`, and what writes it. Files are opened again when `reread` changes. Fails if a
    /// sink can never be used.
    pub fn new(
        settings: Settings,
        member: &str,
        metrics: &Metrics,
        reread: &watch::Receiver<u64>,
    ) -> Result<(Self, Vec<Writer>), DialError> {
        let stamp = Arc::new(Stamp::new(member));
        let mut sinks = Vec::new();
        if let Some(to) = settings.file {
            let name = if to == TrailFile::Stdout { "stdout" } else { "file" };
            sinks.push((name, Sink::File(FileSink::new(to))));
        }
        if let Some(stream) = settings.stream {
            sinks.push(("redis", Sink::Redis(Box::new(Stream::new(stream)?))));
        }
        let writer = |(name, sink)| {
            let of = |family: &Family<OfSink, Counter>| family.get_or_create_owned(&OfSink { sink: name });
            Writer {
                name,
                queue: Arc::new(Queue::new(settings.queue_max, of(&metrics.trail_lost))),
                sink,
                stamp: Arc::clone(&stamp),
                written: of(&metrics.trail_written),
                errors: of(&metrics.trail_errors),
                reread: reread.clone(),
            }
        };
        let writers: Vec<_> = sinks.into_iter().map(writer).collect();
        let queues: Vec<_> = writers.iter().map(|writer| Arc::clone(&writer.queue)).collect();
        let told = (!queues.is_empty()).then(|| Arc::clone(&stamp));
        let (keys_max, events) = (settings.keys_max, metrics.trail_events.clone());
        let (anomalies, minute) = (settings.anomalies, settings.minute);
        Ok((Self { stamp: told, queues, keys_max, anomalies, minute, events }, writers))
    }

    /// Whether anybody hears of events.
    pub fn is_on(&self) -> bool {
        self.stamp.is_some()
    }

    /// The most keys whose decisions are told in an interval.
    pub fn keys_max(&self) -> usize {
        self.keys_max
    }

    /// What is out of the ordinary.
    pub fn anomalies(&self) -> Terms {
        self.anomalies
    }

    /// How long each minute is in which what is limited is counted and compared.
    pub fn minute(&self) -> Duration {
        self.minute
    }

    /// Takes an event. It never waits.
    pub fn record(&self, event: &Event) {
        let Some(stamp) = &self.stamp else { return };
        self.events.get_or_create(&OfEvent { event: event.kind() }).inc();
        let line = stamp.line(event);
        self.queues.iter().for_each(|queue| queue.push(line.clone()));
    }

    /// Takes a change. Whatever an operator, or a watched file, changes goes through here.
    pub fn change(&self, changed: Changed) {
        self.record(&Event::Change(Box::new(changed)));
    }

    /// Takes a change that failed, if it may have been made all the same.
    pub fn change_failed(&self, error: &StoreError, changed: Changed) {
        if error.may_be_done() {
            self.change(Changed { outcome: Some(Outcome::Unknown), ..changed });
        }
    }

    /// Waits until all is written, for `limit` at most.
    pub async fn finish(&self, limit: Duration) {
        let until = Instant::now() + limit;
        while self.queues.iter().any(|queue| !queue.is_empty()) {
            if Instant::now() >= until {
                tracing::warn!("stopped before all of the trail was written");
                return;
            }
            sleep(LOOK_PAUSE).await;
        }
    }
}

/// Tries the trail's file: an error says why it cannot be written. One that does not answer is none.
pub async fn try_file(to: &TrailFile) -> Result<(), String> {
    let TrailFile::File(path) = to else { return Ok(()) };
    let sink = FileSink::new(to.clone());
    match timeout(OPEN_MAX, sink.reopen()).await {
        Ok(Err(error)) => Err(format!("cannot open {path}: {error}")),
        _ => Ok(()),
    }
}
