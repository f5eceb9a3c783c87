//! A budget as Redis keeps it (see `sync-service/src/store/charge.lua`), to look at and to change.

use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use weir_sync::store::redis::HEAD_BYTES;

/// What it begins with.
const MARK: usize = 2;
const DOUBLE: usize = 8;

/// A number in the head: its place among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Microseconds of refill until it is full.
    Deficit = 0,
    /// When it was last charged, on its own clock, in microseconds.
    At = 2,
    /// How far its clock is ahead of the store's, in microseconds.
    Ahead = 3,
    /// How many bursts deep it went, ...
    FanOut = 4,
    /// ... until when to remember that, in microseconds, ...
    FanOutUntil = 5,
    /// ... and what was remembered when the overshoot began.
    FanOutBefore = 6,
}

/// A budget's string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptBudget(Vec<u8>);

impl KeptBudget {
    /// What is kept under `key`.
    pub async fn read(connection: &mut MultiplexedConnection, key: &str) -> Option<Self> {
        let kept: Option<Vec<u8>> = connection.get(key).await.unwrap_or_else(|e| panic!("no budget: {e}"));
        kept.map(Self)
    }

    /// Puts it back, to be kept for as long as before.
    pub async fn write(&self, connection: &mut MultiplexedConnection, key: &str) {
        let mut set = redis::cmd("SET");
        let written = set.arg(key).arg(&self.0).arg("KEEPTTL").query_async::<()>(connection).await;
        written.unwrap_or_else(|e| panic!("the budget cannot be written: {e}"));
    }

    /// A number of the head.
    pub fn get(&self, number: Number) -> f64 {
        self.double(MARK + number as usize * DOUBLE)
    }

    /// Changes it.
    pub fn set(&mut self, number: Number, to: f64) {
        let at = MARK + number as usize * DOUBLE;
        self.0[at..at + DOUBLE].copy_from_slice(&to.to_le_bytes());
    }

    /// How many members there are.
    pub fn members_len(&self) -> usize {
        let (mut at, end) = self.members();
        let mut count = 0;
        while at < end {
            at += 1 + usize::from(self.0[at]) + 3 * DOUBLE;
            count += 1;
        }
        count
    }

    /// What each source is on record for, in tokens.
    pub fn sources(&self) -> Vec<f64> {
        let (_, mut at) = self.members();
        let mut sources = Vec::new();
        while at < self.0.len() {
            let name_len = self.0[at + 1..].iter().position(|byte| *byte == b'\n').expect("the name's end");
            sources.push(self.double(at + name_len + 2));
            at += name_len + 2 + 4 * DOUBLE;
        }
        sources
    }

    /// Where the members begin and end.
    fn members(&self) -> (usize, usize) {
        let counts = &self.0[MARK + 12 * DOUBLE..HEAD_BYTES];
        let begin = HEAD_BYTES + usize::from(counts[0]) * 2 * DOUBLE;
        let bytes = usize::from(counts[4]) + (usize::from(counts[5]) << 8) + (usize::from(counts[6]) << 16);
        (begin, begin + bytes)
    }

    fn double(&self, at: usize) -> f64 {
        f64::from_le_bytes(self.0[at..at + DOUBLE].try_into().expect("eight bytes"))
    }
}
