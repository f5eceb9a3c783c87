//! Clocks that begin anywhere, drift and jump.

use fastrand::Rng;
use weir_protocol::time::Time;

/// The earliest that clocks begin: well above zero, so that they can step back.
const ORIGIN_NS_MIN: u64 = 1 << 50;
/// The begin of wall clocks by default, in microseconds since 1970.
pub const BEGINS_US: u64 = 1 << 50;
const PARTS_PER_MILLION: i128 = 1_000_000;

/// A monotonic clock, as a process sees it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin_ns: u64,
    drift_ppm: i32,
    offset_ns: i64,
}

impl Clock {
    /// A clock with an origin of its own that drifts by at most `drift_ppm_max`.
    pub fn random(drift_ppm_max: u32, rng: &mut Rng) -> Self {
        let most = i32::try_from(drift_ppm_max).unwrap_or(i32::MAX);
        Self { origin_ns: ORIGIN_NS_MIN + rng.u64(0..1 << 50), drift_ppm: rng.i32(-most..=most), offset_ns: 0 }
    }

    /// Its time when `now_ns` have truly passed.
    pub fn at(&self, now_ns: u64) -> Time {
        let drifted = i128::from(now_ns) * (PARTS_PER_MILLION + i128::from(self.drift_ppm)) / PARTS_PER_MILLION;
        let read = i128::from(self.origin_ns) + drifted + i128::from(self.offset_ns);
        Time::from_nanos(u64::try_from(read).unwrap_or(0))
    }

    /// Its time then if it had never jumped.
    pub fn undisturbed(&self, now_ns: u64) -> Time {
        Self { offset_ns: 0, ..*self }.at(now_ns)
    }

    /// Jumps by this many nanoseconds.
    pub fn jump(&mut self, by_ns: i64) {
        self.offset_ns += by_ns;
    }
}

/// The store's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock {
    begins_us: u64,
    offset_us: i64,
}

impl WallClock {
    /// One that reads this at first, in microseconds since 1970.
    pub fn beginning(begins_us: u64) -> Self {
        Self { begins_us, offset_us: 0 }
    }

    /// Its time when `now_ns` have truly passed, in microseconds.
    pub fn at_us(&self, now_ns: u64) -> u64 {
        (self.begins_us + now_ns / 1_000).saturating_add_signed(self.offset_us)
    }

    /// Jumps by this many microseconds.
    pub fn jump(&mut self, by_us: i64) {
        self.offset_us += by_us;
    }
}
