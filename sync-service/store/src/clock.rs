//! Clocks of a store's servers, estimated from their answers (see [`weir_budget::store_clock`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use redis::{Cmd, Value};
use weir_budget::budget::COUNT_MAX;
use weir_budget::store_clock::{Bounds, StoreClock};

use crate::{lock, unix_us};

pub(super) const BOUNDS_LEN: usize = 3;
pub(super) const DOUBLE: usize = 8;
/// Error code of calls refused as late; the error's text is the clock's time.
pub(super) const LATE: &str = "LATE";

/// Encoding of the bounds in a script's arguments, and of the clock in its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The bounds are the last arguments, and the answer is a row with the time at this index.
    Row(usize),
    /// The bounds are doubles at the beginning of the last argument, and the answer begins with the time as a double.
    Packed,
}

#[derive(Debug)]
pub(crate) struct Clocks {
    /// Zero of this process's own time.
    started: Instant,
    jumps: AtomicU64,
    /// The clock with the latest answer: a server that takes over is expected to show the same time.
    last: Mutex<StoreClock>,
}

impl Clocks {
    /// Creates clocks without an answer yet: the machine's wall clock is the initial guess.
    pub(crate) fn new() -> Self {
        let last = Mutex::new(StoreClock::new(unix_us(), 0));
        Self { started: Instant::now(), jumps: AtomicU64::new(0), last }
    }

    pub(crate) fn jumps(&self) -> u64 {
        self.jumps.load(Ordering::Relaxed)
    }

    fn own_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Clock of one server, or of those that take over from each other under one name.
#[derive(Debug)]
pub(crate) struct ServerClock {
    all: Arc<Clocks>,
    known: Mutex<StoreClock>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SentBounds {
    sent_us: u64,
    bounds: Bounds,
}

impl SentBounds {
    /// Adds the bounds to a script's arguments; `tail` is the rest of its last argument.
    pub(crate) fn add_to(&self, command: &mut Cmd, route: Route, tail: &[u8]) {
        match route {
            Route::Row(_) => drop(command.arg(&self.numbers())),
            Route::Packed => drop(command.arg([&doubles(&self.numbers()), tail].concat())),
        }
    }

    fn numbers(&self) -> [u64; BOUNDS_LEN] {
        let Bounds { latest_us, jump } = self.bounds;
        [latest_us, jump.seen_us, jump.length_us].map(|us| us.min(COUNT_MAX))
    }
}

/// Encodes whole numbers below 2^53 as doubles for a script.
pub(super) fn doubles(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(numbers.len() * DOUBLE);
    add_doubles(&mut bytes, numbers);
    bytes
}

pub(super) fn add_doubles(bytes: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        #[allow(clippy::cast_precision_loss, reason = "below 2^53")]
        bytes.extend_from_slice(&(*number as f64).to_le_bytes());
    }
}

/// Parses a whole number that a script wrote as a double.
pub(super) fn whole(bytes: &[u8]) -> Option<u64> {
    let number = f64::from_le_bytes(bytes.try_into().ok()?);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a float saturates")]
    (number >= 0.0).then_some(number as u64)
}

impl ServerClock {
    pub(crate) fn new(all: Arc<Clocks>) -> Self {
        let known = *lock(&all.last);
        Self { all, known: Mutex::new(known) }
    }

    pub(crate) fn bounds_sent(&self) -> SentBounds {
        let sent_us = self.all.own_us();
        SentBounds { sent_us, bounds: lock(&self.known).bounds(sent_us) }
    }

    pub(crate) fn observe(&self, sent: SentBounds, rows: &[Value], route: Route) {
        let Some(shown_us) = rows.iter().rev().find_map(|row| shown_us(row, route)) else { return };
        let (own_us, mut known) = (self.all.own_us(), lock(&self.known));
        let jumped_us = known.observe(sent.sent_us, own_us, shown_us);
        *lock(&self.all.last) = *known;
        drop(known);
        if let Some(jumped_us) = jumped_us {
            self.all.jumps.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                ahead_ms = jumped_us / 1_000,
                "the store's clock is ahead of where it can be by this machine's: nothing refills for that time. Look at \
                 the clocks of both (NTP)"
            );
        }
    }
}

/// Time of the clock if the answer refuses a call as late.
pub(super) fn late_us(answer: &Value) -> Option<u64> {
    let Value::ServerError(error) = answer else { return None };
    error.details().filter(|_| error.code() == LATE)?.parse().ok()
}

fn shown_us(answer: &Value, route: Route) -> Option<u64> {
    match (answer, route) {
        (Value::Array(row), Route::Row(at)) => match row.get(at)? {
            Value::Int(us) => u64::try_from(*us).ok(),
            _ => None,
        },
        (Value::BulkString(answer), Route::Packed) => whole(answer.get(..DOUBLE)?),
        _ => late_us(answer),
    }
}
