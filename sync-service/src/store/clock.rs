//! The clocks of a store's servers, as their answers show them, by a clock of this process that never steps (see
//! [`weir_budget::store_clock`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use redis::{Arg, Cmd, Value};
use weir_budget::budget::COUNT_MAX;
use weir_budget::store_clock::{Bounds, StoreClock};

/// How many arguments tell a script what is known of the clock.
pub(super) const TOLD: usize = 3;
/// The bytes of a double.
pub(super) const DOUBLE: usize = 8;
/// The error by which they refuse a call, as the clock shows more than it says that it can; it says what it shows.
pub(super) const LATE: &str = "LATE";

/// How a script is told what is known of the clock, and says what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By its last arguments; the row that it answers says so at this place.
    Row(usize),
    /// By the doubles that its last argument begins with; its answer begins with one, too.
    Packed,
}

/// The clocks of all servers.
#[derive(Debug)]
pub struct Clocks {
    /// Zero of this process's own time.
    started: Instant,
    jumps: AtomicU64,
    /// The one that was heard last: a server that takes over is expected to show the same.
    last: Mutex<StoreClock>,
}

impl Clocks {
    /// Nothing was heard yet: the machine's wall clock is the best guess.
    pub fn new() -> Self {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let unix_us = u64::try_from(unix.as_micros()).unwrap_or(u64::MAX);
        Self {
            started: Instant::now(),
            jumps: AtomicU64::new(0),
            last: Mutex::new(StoreClock::new(unix_us, 0)),
        }
    }

    /// How often one of them was found ahead.
    pub fn jumps(&self) -> u64 {
        self.jumps.load(Ordering::Relaxed)
    }

    fn own_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// The clock of one server, or of those that take over from each other under one name.
#[derive(Debug)]
pub struct ServerClock {
    all: Arc<Clocks>,
    known: Mutex<StoreClock>,
}

/// What was known of a clock when a call was sent.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    sent_us: u64,
    bounds: Bounds,
}

impl Told {
    /// Tells it to a script that goes by it; `tail` is the rest of its last argument.
    pub fn add_to(&self, command: &mut Cmd, way: Way, tail: &[u8]) {
        match way {
            Way::Row(_) => drop(command.arg(&self.numbers())),
            Way::Packed => drop(command.arg([&doubles(&self.numbers()), tail].concat())),
        }
    }

    /// The same command, but told this.
    pub fn instead(&self, command: &Cmd, way: Way) -> Cmd {
        let (args, mut again) = (command.args_iter(), Cmd::new());
        let told_len = if way == Way::Packed { 1 } else { TOLD };
        let others = args.len().saturating_sub(told_len);
        let mut tail: &[u8] = &[];
        for (at, arg) in args.enumerate() {
            match arg {
                Arg::Simple(arg) if at < others => drop(again.arg(arg)),
                Arg::Simple(arg) => tail = arg.get(TOLD * DOUBLE..).unwrap_or_default(),
                _ => {}
            }
        }
        self.add_to(&mut again, way, tail);
        again
    }

    fn numbers(&self) -> [u64; TOLD] {
        let Bounds { latest_us, jump } = self.bounds;
        [latest_us, jump.seen_us, jump.length_us].map(|us| us.min(COUNT_MAX))
    }
}

/// Whole numbers below 2^53, as the doubles that a script reads.
pub(super) fn doubles(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(numbers.len() * DOUBLE);
    add_doubles(&mut bytes, numbers);
    bytes
}

/// Adds the same to `bytes`.
pub(super) fn add_doubles(bytes: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        #[allow(clippy::cast_precision_loss, reason = "below 2^53")]
        bytes.extend_from_slice(&(*number as f64).to_le_bytes());
    }
}

/// A whole number, as a script writes it: a double.
pub(super) fn whole(bytes: &[u8]) -> Option<u64> {
    let number = f64::from_le_bytes(bytes.try_into().ok()?);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a float saturates")]
    (number >= 0.0).then_some(number as u64)
}

impl ServerClock {
    /// The clock of a server that was not heard yet.
    pub fn new(all: Arc<Clocks>) -> Self {
        let known = *lock(&all.last);
        Self { all, known: Mutex::new(known) }
    }

    /// What to tell with a call that is sent now.
    pub fn tell(&self) -> Told {
        let sent_us = self.all.own_us();
        Told { sent_us, bounds: lock(&self.known).bounds(sent_us) }
    }

    /// The answers to calls that were told this; each says what the clock shows.
    pub fn hear(&self, told: Told, rows: &[Value], way: Way) {
        let Some(shown_us) = rows.iter().rev().find_map(|row| shown_us(row, way)) else { return };
        let (own_us, mut known) = (self.all.own_us(), lock(&self.known));
        let jumped_us = known.hear(told.sent_us, own_us, shown_us);
        *lock(&self.all.last) = *known;
        drop(known);
        if let Some(jumped_us) = jumped_us {
            self.all.jumps.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                ahead_ms = jumped_us / 1_000,
                "the store's clock is ahead of where it can be by this machine's: nothing refills for that time. Look at the \
                 clocks of both (NTP)"
            );
        }
    }
}

/// What the clock showed when a call was refused, if it was.
pub(super) fn late_us(answer: &Value) -> Option<u64> {
    let Value::ServerError(error) = answer else { return None };
    error.details().filter(|_| error.code() == LATE)?.parse().ok()
}

fn shown_us(answer: &Value, way: Way) -> Option<u64> {
    match (answer, way) {
        (Value::Array(row), Way::Row(at)) => match row.get(at)? {
            Value::Int(us) => u64::try_from(*us).ok(),
            _ => None,
        },
        (Value::BulkString(said), Way::Packed) => whole(said.get(..DOUBLE)?),
        _ => late_us(answer),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing that runs under these locks panics; should it, what they guard is still good.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
