//! Shapes of the traffic of clients in random worlds.

use fastrand::Rng;
use weir_protocol::time::SECOND_NS;

use super::traffic::{self, Traffic};

/// A client's traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    /// At one rate, at all POPs evenly or by Zipf's law.
    Steady {
        /// Requests per second.
        rate: f64,
        /// True for Zipf's law.
        is_zipf: bool,
    },
    OnePop {
        /// Requests per second.
        rate: f64,
        pop: usize,
    },
    Leaving {
        /// Requests per second.
        rate: f64,
        pop: usize,
        /// When, in nanoseconds.
        at: u64,
    },
    /// At one rate, at one POP after the other.
    Hopping {
        /// Requests per second.
        rate: f64,
        /// Time at each, in nanoseconds.
        dwell_ns: u64,
    },
    /// At two rates in turn.
    Jumping {
        /// Requests per second, ...
        low: f64,
        /// ... and at other times.
        high: f64,
        /// The length of each, in nanoseconds.
        half_ns: u64,
    },
    /// In region 0 at one rate, and everywhere else at another: a flood.
    Floor {
        /// Requests per second in region 0, ...
        asks: f64,
        /// ... and in the others.
        flood: f64,
        regions: usize,
    },
    /// The same, but in region 0 every other second only.
    Pulses {
        /// Requests per second in region 0, ...
        asks: f64,
        /// ... and in the others.
        flood: f64,
        regions: usize,
    },
    /// At one rate, at all POPs evenly, but for a while in one region only.
    Visiting {
        /// Requests per second.
        rate: f64,
        /// Which, ...
        region: usize,
        /// ... of how many, ...
        regions: usize,
        /// ... from when to when, in nanoseconds.
        span: (u64, u64),
    },
    /// At one POP; then nowhere; then at all POPs at once; and so on.
    Returning {
        /// Requests per second at the one.
        rate: f64,
        pop: usize,
        /// Its length, in nanoseconds.
        round: u64,
        /// The time at which it leaves in a round, ...
        leaves: u64,
        /// ... and comes back, ...
        comes: u64,
        /// ... with this many requests at each POP.
        each: usize,
    },
    /// At all POPs at once, then at none.
    Bursts {
        each: usize,
        /// From one to the next, in nanoseconds.
        period_ns: u64,
    },
}

/// A client: how it asks, and what its requests cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Asking {
    pub(super) shape: Shape,
    /// Tokens, under a rule that lets requests state their cost.
    pub(super) cost: u32,
    /// True if half of them cost one token only.
    pub(super) is_mixed: bool,
}

impl Asking {
    /// As traffic at `pops` POPs.
    pub(super) fn traffic(self, pops: usize) -> Traffic {
        let Self { shape, cost, is_mixed } = self;
        let dear = shape.scaled(if is_mixed { 0.5 } else { 1.0 } / f64::from(cost)).traffic(pops);
        let dear = traffic::costing(cost, dear);
        if is_mixed { traffic::merged(vec![dear, shape.scaled(0.5).traffic(pops)]) } else { dear }
    }
}

impl Shape {
    /// The same with this many times the requests.
    fn scaled(self, times: f64) -> Self {
        match self {
            Self::Steady { rate, is_zipf } => Self::Steady { rate: rate * times, is_zipf },
            Self::OnePop { rate, pop } => Self::OnePop { rate: rate * times, pop },
            Self::Leaving { rate, pop, at } => Self::Leaving { rate: rate * times, pop, at },
            Self::Hopping { rate, dwell_ns } => Self::Hopping { rate: rate * times, dwell_ns },
            Self::Jumping { low, high, half_ns } => Self::Jumping { low: low * times, high: high * times, half_ns },
            Self::Floor { asks, flood, regions } => Self::Floor { asks: asks * times, flood: flood * times, regions },
            Self::Pulses { asks, flood, regions } => Self::Pulses { asks: asks * times, flood: flood * times, regions },
            Self::Visiting { rate, region, regions, span } => {
                Self::Visiting { rate: rate * times, region, regions, span }
            }
            Self::Returning { rate, pop, round, leaves, comes, each } => {
                Self::Returning { rate: rate * times, pop, round, leaves, comes, each }
            }
            Self::Bursts { each, period_ns } => {
                Self::Bursts { each: ((each as f64 * times) as usize).max(1), period_ns }
            }
        }
    }

    /// Draws one for a quota of `rate` tokens a second and this burst, at `pops` POPs, asking at most `most` a second.
    pub(super) fn random(rate: f64, burst: u32, pops: usize, most: f64, rng: &mut Rng) -> Self {
        let asked = (rate * log_uniform(0.3, 20.0, rng)).min(most);
        let time_ns = |from: u64, to: u64, rng: &mut Rng| rng.u64(from..to);
        match rng.u8(0..10) {
            0..3 => Self::Steady { rate: asked, is_zipf: false },
            3..5 => Self::Steady { rate: asked, is_zipf: true },
            5 => Self::OnePop { rate: asked, pop: rng.usize(0..pops) },
            6 => Self::Hopping { rate: asked, dwell_ns: time_ns(SECOND_NS / 10, 5 * SECOND_NS, rng) },
            7 | 8 => {
                Self::Jumping { low: asked / 20.0, high: asked, half_ns: time_ns(SECOND_NS / 5, 4 * SECOND_NS, rng) }
            }
            _ => {
                let each = rng.usize(1..=burst as usize);
                let least_s = (each * pops) as f64 / most;
                let period_ns = (least_s.max(log_uniform(0.5, 20.0, rng)) * 1e9) as u64;
                Self::Bursts { each, period_ns }
            }
        }
    }

    /// Draws one for a count of which `asks` are asked for each second.
    pub(super) fn for_a_count(asks: f64, pops: usize, rng: &mut Rng) -> Self {
        match rng.u8(0..3) {
            0 => Self::OnePop { rate: asks, pop: rng.usize(0..pops) },
            1 => Self::Hopping { rate: asks, dwell_ns: rng.u64(SECOND_NS..5 * SECOND_NS) },
            _ => Self::Steady { rate: asks, is_zipf: rng.bool() },
        }
    }

    /// Draws one for a quota of `rate` tokens a second of which region 0 has a floor.
    pub(super) fn floor(rate: f64, regions: usize, most: f64, rng: &mut Rng) -> Self {
        let asks = (rate * log_uniform(0.1, 1.0, rng)).min(most / 4.0);
        Self::Floor { asks, flood: (rate * log_uniform(1.0, 20.0, rng)).min(most - asks), regions }
    }

    /// The most requests that wait at one POP at once, if each waits for `wait_ns`.
    pub(super) fn waiting(self, wait_ns: u64) -> f64 {
        let rate = match self {
            Self::Bursts { each, .. } => return each as f64,
            Self::Jumping { high, .. } => high,
            Self::Floor { asks, flood, .. } | Self::Pulses { asks, flood, .. } => asks.max(flood),
            Self::Steady { rate, .. }
            | Self::OnePop { rate, .. }
            | Self::Leaving { rate, .. }
            | Self::Hopping { rate, .. }
            | Self::Visiting { rate, .. }
            | Self::Returning { rate, .. } => rate,
        };
        rate * wait_ns as f64 / 1e9
    }

    pub(super) fn is_steady(self) -> bool {
        matches!(
            self,
            Self::Steady { .. }
                | Self::OnePop { .. }
                | Self::Leaving { .. }
                | Self::Hopping { .. }
                | Self::Floor { .. }
        )
    }

    /// As traffic at `pops` POPs.
    pub(super) fn traffic(self, pops: usize) -> Traffic {
        match self {
            Self::Steady { rate, is_zipf: false } => traffic::even(rate, pops),
            Self::Steady { rate, is_zipf: true } => traffic::zipf(rate, pops),
            Self::OnePop { rate, pop } => traffic::poisson(rate, move |_, _| pop),
            Self::Leaving { rate, pop, at } => traffic::between(0, at, traffic::poisson(rate, move |_, _| pop)),
            Self::Hopping { rate, dwell_ns } => traffic::hopping(rate, pops, dwell_ns),
            Self::Jumping { low, high, half_ns } => traffic::jumping(low, high, half_ns, pops),
            Self::Floor { asks, flood, regions } => traffic::merged(vec![
                traffic::at_pops(asks, pops, move |pop| pop % regions == 0),
                traffic::at_pops(flood, pops, move |pop| pop % regions != 0),
            ]),
            Self::Pulses { asks, flood, regions } => {
                let pulses = traffic::at_pops(asks, pops, move |pop| pop % regions == 0);
                let pulses = traffic::when(pulses, |at| (at / SECOND_NS).is_multiple_of(2));
                let flood = traffic::at_pops(flood, pops, move |pop| pop % regions != 0);
                traffic::merged(vec![pulses, flood])
            }
            Self::Visiting { rate, region, regions, span: (from, to) } => {
                let there = traffic::at_pops(rate, pops, move |pop| pop % regions == region);
                let visiting = traffic::between(0, to, traffic::when(there, move |at| at >= from));
                let everywhere = traffic::when(traffic::even(rate, pops), move |at| !(from..to).contains(&at));
                traffic::merged(vec![everywhere, visiting])
            }
            Self::Returning { rate, pop, round, leaves, comes, each } => {
                let steady = traffic::poisson(rate, move |_, _| pop);
                let steady = traffic::when(steady, move |at| at % round < leaves);
                let bursts = traffic::between(comes, u64::MAX, traffic::bursts(each, pops, round));
                traffic::merged(vec![steady, bursts])
            }
            Self::Bursts { each, period_ns } => traffic::bursts(each, pops, period_ns),
        }
    }
}

/// A number between `from` and `to` whose logarithm is distributed evenly.
pub(super) fn log_uniform(from: f64, to: f64, rng: &mut Rng) -> f64 {
    (from.ln() + rng.f64() * (to / from).ln()).exp()
}
