//! Queue and writer of a sink. The queue is bounded: a sink that is slow or gone neither blocks the recorder nor
//! fills memory. The writer retries until the sink accepts the lines.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use weir_store::stream::{EventLine, StreamWriter};

use super::event::{AuditEvent, Stamp};
use super::file::{FileSink, SinkError};

/// Pause before a sink that failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Destination of lines.
#[derive(Debug)]
pub enum Sink {
    /// A file or the standard output.
    File(FileSink),
    /// A Redis stream.
    Redis(Box<StreamWriter>),
}

impl Sink {
    async fn write(&mut self, lines: Vec<EventLine>) -> Result<(), SinkError> {
        match self {
            Self::File(file) => file.write(lines).await,
            Self::Redis(stream) => stream.append(&lines).await.map_err(|error| SinkError::new(0, &error)),
        }
    }
}

/// Writer of one sink.
#[derive(Debug)]
pub struct Writer {
    /// Name of the sink.
    pub name: &'static str,
    /// Lines that wait for the sink.
    pub queue: Arc<Queue>,
    /// The sink.
    pub sink: Sink,
    /// Stamp for lines about losses.
    pub stamp: Arc<Stamp>,
    /// Number of lines written.
    pub written: Counter,
    /// Number of failed attempts.
    pub errors: Counter,
    /// Changes when files must be opened again.
    pub reread: watch::Receiver<u64>,
}

impl Writer {
    /// Writes lines until the task is aborted.
    pub async fn run(mut self) {
        let mut is_failing = false;
        loop {
            let queue = Arc::clone(&self.queue);
            let batch = tokio::select! {
                batch = queue.take() => batch,
                Ok(()) = self.reread.changed() => {
                    self.reopen().await;
                    continue;
                }
            };
            let is_written = self.write(batch, is_failing).await;
            if !is_written {
                tokio::select! {
                    () = sleep(PAUSE) => {}
                    Ok(()) = self.reread.changed() => self.reopen().await,
                }
            }
            if is_failing && is_written {
                tracing::info!(sink = self.name, "the audit log is written again");
            }
            is_failing = !is_written;
        }
    }

    /// Writes a batch, preceded by a line on losses if there were any. Returns true if all lines were written.
    async fn write(&mut self, batch: LineBatch, was_failing: bool) -> bool {
        let has_losses = batch.unrecorded > 0;
        let loss = has_losses.then(|| self.stamp.line(&AuditEvent::Lost { count: batch.unrecorded }));
        let lines: Vec<_> = loss.into_iter().chain(batch.lines.iter().cloned()).collect();
        let all = lines.len();
        let (written, reason) = match self.sink.write(lines).await {
            Ok(()) => (all, None),
            Err(SinkError { written, reason }) => (written, Some(reason)),
        };
        self.written.inc_by(written as u64);
        let is_recorded = has_losses && written > 0;
        self.queue.give_back(batch, written - usize::from(is_recorded), is_recorded);
        if let Some(reason) = &reason {
            self.errors.inc();
            if !was_failing {
                tracing::warn!(
                    sink = self.name,
                    "the audit log cannot be written, and is tried again once a second: {reason}"
                );
            }
        }
        reason.is_none()
    }

    /// Opens the file again, if the sink is one.
    async fn reopen(&self) {
        let Sink::File(file) = &self.sink else { return };
        match file.reopen().await {
            Ok(()) => tracing::info!(sink = self.name, "the audit log's file is opened again"),
            // The open file stays open, so no lines are lost.
            Err(error) => {
                tracing::warn!(sink = self.name, "the audit log's file cannot be opened again: {error}");
            }
        }
    }
}

/// Maximum number of bytes that wait.
const BYTES_MAX: usize = 16 << 20;
/// Maximum number of lines that a sink gets at once.
pub const BATCH_MAX: usize = 256;

/// Lines that wait for a sink.
#[derive(Debug)]
pub struct Queue {
    lines_max: usize,
    state: Mutex<State>,
    news: Notify,
    lost: Counter,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<EventLine>,
    bytes: usize,
    /// Number of lost lines that the sink has not recorded yet.
    unrecorded: u64,
    /// Number of lines that the sink is writing.
    in_hand: usize,
}

/// Lines handed to a sink.
#[derive(Debug)]
pub struct LineBatch {
    /// The oldest lines.
    pub lines: Vec<EventLine>,
    /// Number of lines lost before these.
    pub unrecorded: u64,
}

impl Queue {
    /// Queue for at most `lines_max` lines. Lost lines are counted in `lost`.
    pub fn new(lines_max: usize, lost: Counter) -> Self {
        Self { lines_max, state: Mutex::default(), news: Notify::new(), lost }
    }

    /// Appends a line. If there is no room, the oldest lines are lost. Never waits.
    pub fn push(&self, line: EventLine) {
        let mut state = self.state();
        state.bytes += line.json.len();
        state.lines.push_back(line);
        self.shrink(&mut state);
        drop(state);
        self.news.notify_one();
    }

    /// Waits for lines and takes the oldest.
    pub async fn take(&self) -> LineBatch {
        loop {
            if let Some(batch) = self.try_take() {
                return batch;
            }
            self.news.notified().await;
        }
    }

    /// Completes a batch of which the sink has written the first `written` lines, and the number of lost lines
    /// if `is_recorded`. The rest returns to the queue as far as there is room.
    pub fn give_back(&self, batch: LineBatch, written: usize, is_recorded: bool) {
        let mut state = self.state();
        state.in_hand = 0;
        if !is_recorded {
            state.unrecorded += batch.unrecorded;
        }
        for line in batch.lines.into_iter().skip(written).rev() {
            state.bytes += line.json.len();
            state.lines.push_front(line);
        }
        self.shrink(&mut state);
    }

    /// True if no lines wait or are being written.
    pub fn is_empty(&self) -> bool {
        let state = self.state();
        state.lines.is_empty() && state.in_hand == 0
    }

    fn try_take(&self) -> Option<LineBatch> {
        let mut state = self.state();
        if state.lines.is_empty() {
            return None;
        }
        let count = state.lines.len().min(BATCH_MAX);
        let lines: Vec<_> = state.lines.drain(..count).collect();
        state.bytes -= lines.iter().map(|line| line.json.len()).sum::<usize>();
        state.in_hand = count;
        Some(LineBatch { lines, unrecorded: std::mem::take(&mut state.unrecorded) })
    }

    fn shrink(&self, state: &mut State) {
        while state.lines.len() > self.lines_max || state.bytes > BYTES_MAX {
            let Some(oldest) = state.lines.pop_front() else { return };
            state.bytes -= oldest.json.len();
            state.unrecorded += 1;
            self.lost.inc();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under this lock panics. If it did, the state would still be valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> EventLine {
        EventLine { kind: "change", json: text.into() }
    }

    #[tokio::test]
    async fn bytes_are_bounded_too() {
        let lost = Counter::default();
        let queue = Queue::new(1_000, lost.clone());
        let large = "x".repeat(BYTES_MAX / 4);
        for _ in 0..6 {
            queue.push(line(&large));
        }
        assert_eq!((lost.get(), queue.take().await.lines.len()), (2, 4));
        queue.push(line(&"x".repeat(BYTES_MAX + 1)));
        assert_eq!(lost.get(), 3, "one that has no room at all is lost itself");
    }
}
