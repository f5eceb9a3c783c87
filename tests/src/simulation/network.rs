//! Links that delay, lose, repeat and reorder, and partitions.

use fastrand::Rng;

/// The behaviour of a link that carries messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The shortest time one way, in nanoseconds.
    pub delay_ns: u64,
    /// The longest additional time, in nanoseconds. If that is more than messages are apart, they overtake each other.
    pub jitter_ns: u64,
    /// The part of messages that are lost.
    pub loss: f64,
    /// The part of messages that arrive twice.
    pub duplication: f64,
}

/// After how long each copy of a message arrives: none, one or two.
pub type Arrivals = [Option<u64>; 2];

impl Link {
    /// A link that only takes its time.
    pub const fn perfect(delay_ns: u64) -> Self {
        Self { delay_ns, jitter_ns: 0, loss: 0.0, duplication: 0.0 }
    }

    /// After how long each copy of a message arrives, in nanoseconds.
    pub fn arrivals(&self, rng: &mut Rng) -> Arrivals {
        if rng.f64() < self.loss {
            return [None; 2];
        }
        let twice = rng.f64() < self.duplication;
        let first = self.delay_ns + rng.u64(0..=self.jitter_ns);
        let second = twice.then(|| self.delay_ns + rng.u64(0..=self.jitter_ns));
        [Some(first), second]
    }
}

/// All links of a world.
#[derive(Clone, Debug)]
pub struct Network {
    /// Between a POP and its weir-sync.
    pub near: Link,
    /// Between a weir-sync and the store.
    pub far: Link,
    /// POPs that do not reach their weir-sync.
    pub cut_pops: Vec<bool>,
    /// Until when each POP's link is silent, in simulated nanoseconds: whatever is sent before arrives after it.
    pub silent_until: Vec<u64>,
    /// Regions that do not reach the store.
    pub cut_regions: Vec<bool>,
}

impl Network {
    /// All links up.
    pub fn new(near: Link, far: Link, pops: usize, regions: usize) -> Self {
        let (cut_pops, silent_until) = (vec![false; pops], vec![0; pops]);
        Self { near, far, cut_pops, silent_until, cut_regions: vec![false; regions] }
    }

    /// A message between `pop` and its weir-sync, sent at `now`.
    pub fn near(&self, pop: usize, now: u64, rng: &mut Rng) -> Arrivals {
        let held_ns = self.silent_until[pop].saturating_sub(now);
        let arrivals = if self.cut_pops[pop] { [None; 2] } else { self.near.arrivals(rng) };
        arrivals.map(|arrival| arrival.map(|delay_ns| held_ns + delay_ns))
    }

    /// A message between a weir-sync of `region` and the store.
    pub fn far(&self, region: usize, rng: &mut Rng) -> Arrivals {
        if self.cut_regions[region] { [None; 2] } else { self.far.arrivals(rng) }
    }
}
