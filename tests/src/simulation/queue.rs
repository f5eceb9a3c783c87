//! Future events, in simulated time. Events due at the same time keep the order they came in.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Events by when they are due.
#[derive(Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Due<E>>,
    order: u64,
}

#[derive(Debug)]
struct Due<E> {
    at: u64,
    order: u64,
    event: E,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), order: 0 }
    }
}

impl<E> Queue<E> {
    /// `event` is due at `at`, in nanoseconds.
    pub fn push(&mut self, at: u64, event: E) {
        self.order += 1;
        self.heap.push(Due { at, order: self.order, event });
    }

    /// The time of the next event.
    pub fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|due| due.at)
    }

    /// The next event.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|due| (due.at, due.event))
    }
}

impl<E> Ord for Due<E> {
    /// The earliest is the greatest, as the heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl<E> PartialOrd for Due<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Due<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Due<E> {}
