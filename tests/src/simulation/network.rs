//! Links that delay, lose and repeat.

use fastrand::Rng;

/// How a link treats a message.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// The shortest time one way, in nanoseconds.
    pub delay_ns: u64,
    /// Up to so much longer, in nanoseconds; enough of it, and messages overtake each other.
    pub jitter_ns: u64,
    /// The part of messages that are lost.
    pub loss: f64,
    /// The part of messages that arrive twice.
    pub duplication: f64,
}

impl Link {
    /// A link that only takes its time.
    pub const fn perfect(delay_ns: u64) -> Self {
        Self { delay_ns, jitter_ns: 0, loss: 0.0, duplication: 0.0 }
    }

    /// After how long each copy of a message arrives: none, one or two.
    pub fn arrivals(&self, rng: &mut Rng) -> Vec<u64> {
        if rng.f64() < self.loss {
            return Vec::new();
        }
        let copies = if rng.f64() < self.duplication { 2 } else { 1 };
        (0..copies).map(|_| self.delay_ns + rng.u64(0..=self.jitter_ns)).collect()
    }
}
