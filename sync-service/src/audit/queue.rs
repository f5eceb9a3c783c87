//! Bounded queue of a sink. A sink that is slow or gone neither blocks the recorder nor fills memory.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;

use super::event::EventLine;

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
    untold: u64,
    /// Number of lines that the sink is writing.
    in_hand: usize,
}

/// Lines handed to a sink.
#[derive(Debug)]
pub struct LineBatch {
    /// The oldest lines.
    pub lines: Vec<EventLine>,
    /// Number of lines lost before these.
    pub untold: u64,
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
    /// if `is_told`. The rest returns to the queue as far as there is room.
    pub fn give_back(&self, batch: LineBatch, written: usize, is_told: bool) {
        let mut state = self.state();
        state.in_hand = 0;
        if !is_told {
            state.untold += batch.untold;
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
        Some(LineBatch { lines, untold: std::mem::take(&mut state.untold) })
    }

    fn shrink(&self, state: &mut State) {
        while state.lines.len() > self.lines_max || state.bytes > BYTES_MAX {
            let Some(oldest) = state.lines.pop_front() else { return };
            state.bytes -= oldest.json.len();
            state.untold += 1;
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

    fn texts(batch: &LineBatch) -> Vec<&str> {
        batch.lines.iter().map(|line| &*line.json).collect()
    }

    #[tokio::test]
    async fn the_oldest_lines_make_room_and_are_counted() {
        let lost = Counter::default();
        let queue = Queue::new(3, lost.clone());
        for text in ["1", "2", "3", "4", "5"] {
            queue.push(line(text));
        }
        assert_eq!(lost.get(), 2);
        let batch = queue.take().await;
        assert_eq!((texts(&batch), batch.untold), (vec!["3", "4", "5"], 2));
        assert!(!queue.is_empty(), "it is in hand");
        queue.push(line("6"));
        queue.push(line("7"));
        queue.give_back(batch, 1, true);
        assert_eq!(lost.get(), 3, "what is given back is the oldest, and one of two has room");
        let batch = queue.take().await;
        assert_eq!((texts(&batch), batch.untold), (vec!["5", "6", "7"], 1));
        queue.give_back(batch, 0, false);
        let batch = queue.take().await;
        assert_eq!((texts(&batch), batch.untold), (vec!["5", "6", "7"], 1), "nobody was told");
        queue.give_back(batch, 3, true);
        assert!(queue.is_empty() && lost.get() == 3);
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
