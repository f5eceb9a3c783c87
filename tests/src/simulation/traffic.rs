//! Requests: their clients, times and POPs.

use fastrand::Rng;
use weir_protocol::time::SECOND_NS;
use weir_rules::key::KeyValue;
use weir_rules::request::{Attribute, Request};

use super::setup::PATHS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, in nanoseconds from the begin of the traffic.
    pub at: u64,
    pub pop: usize,
    pub key: u32,
    /// Its path: a place in [`super::setup::PATHS`].
    pub path: u8,
    /// The cost that it states; see [`super::setup::BY_COST`].
    pub cost: u32,
}

/// Requests in the order they arrive.
pub type Traffic = Box<dyn FnMut(&mut Rng) -> Option<Arrival>>;

/// The time between two requests of a Poisson process, in nanoseconds.
pub fn gap_ns(rng: &mut Rng, per_second: f64) -> u64 {
    // 1 - f64() is never zero.
    let seconds = -(1.0 - rng.f64()).ln() / per_second;
    (seconds * 1e9) as u64
}

fn arrival(at: u64, pop: usize) -> Arrival {
    Arrival { at, pop, key: 0, path: 0, cost: 1 }
}

pub fn silence() -> Traffic {
    Box::new(|_| None)
}

/// `per_second` requests, each at the POP that `place` names for its time.
pub fn poisson(per_second: f64, mut place: impl FnMut(&mut Rng, u64) -> usize + 'static) -> Traffic {
    let mut now = 0;
    Box::new(move |rng| {
        now += gap_ns(rng, per_second);
        Some(arrival(now, place(rng, now)))
    })
}

/// Spread over `pops` evenly.
pub fn even(per_second: f64, pops: usize) -> Traffic {
    poisson(per_second, move |rng, _| rng.usize(0..pops))
}

/// Spread over `pops` by Zipf's law with exponent 1.1.
pub fn zipf(per_second: f64, pops: usize) -> Traffic {
    let ranks = Zipf::new(pops, 1.1);
    poisson(per_second, move |rng, _| ranks.draw(rng))
}

/// All at one POP, the next one every `dwell_ns`.
pub fn hopping(per_second: f64, pops: usize, dwell_ns: u64) -> Traffic {
    poisson(per_second, move |_, now| usize::try_from(now / dwell_ns).expect("few hops") % pops)
}

/// Only at the POPs for which `is_there` holds, evenly.
pub fn at_pops(per_second: f64, pops: usize, is_there: impl Fn(usize) -> bool) -> Traffic {
    let there: Vec<_> = (0..pops).filter(|pop| is_there(*pop)).collect();
    poisson(per_second, move |rng, _| there[rng.usize(0..there.len())])
}

/// Spread evenly, `low` and `high` requests per second in turn for `half_ns` each, `low` first.
pub fn jumping(low: f64, high: f64, half_ns: u64, pops: usize) -> Traffic {
    let mut now = 0;
    Box::new(move |rng| {
        // Thinning: candidates come at the high rate, and the low phase keeps its part of them.
        loop {
            now += gap_ns(rng, high);
            let is_high = (now / half_ns) % 2 == 1;
            if is_high || rng.f64() < low / high {
                return Some(arrival(now, rng.usize(0..pops)));
            }
        }
    })
}

/// `each` requests at every POP at once (within 50 ms), every `period_ns`.
pub fn bursts(each: usize, pops: usize, period_ns: u64) -> Traffic {
    let (mut begin, mut queue) = (0, Vec::new());
    Box::new(move |rng| {
        if queue.is_empty() {
            queue = (0..each * pops).map(|k| (begin + rng.u64(0..SECOND_NS / 20), k % pops)).collect();
            queue.sort_unstable_by(|a, b| b.cmp(a));
            begin += period_ns;
        }
        queue.pop().map(|(at, pop)| arrival(at, pop))
    })
}

/// `traffic`, moved by `by_ns` and ended `until_ns` after the begin of all traffic.
pub fn between(by_ns: u64, until_ns: u64, mut traffic: Traffic) -> Traffic {
    Box::new(move |rng| {
        let next = traffic(rng)?;
        let at = next.at + by_ns;
        (at < until_ns).then_some(Arrival { at, ..next })
    })
}

/// The requests of `traffic` that arrive when `is_then` holds.
pub fn when(mut traffic: Traffic, is_then: impl Fn(u64) -> bool + 'static) -> Traffic {
    Box::new(move |rng| {
        loop {
            let next = traffic(rng)?;
            if is_then(next.at) {
                return Some(next);
            }
        }
    })
}

pub fn of(key: u32, path: u8, mut traffic: Traffic) -> Traffic {
    Box::new(move |rng| traffic(rng).map(|next| Arrival { key, path, ..next }))
}

/// `traffic` whose requests each state this cost.
pub fn costing(cost: u32, mut traffic: Traffic) -> Traffic {
    Box::new(move |rng| traffic(rng).map(|next| Arrival { cost, ..next }))
}

pub fn merged(mut sources: Vec<Traffic>) -> Traffic {
    let mut next: Option<Vec<Option<Arrival>>> = None;
    Box::new(move |rng| {
        let next = next.get_or_insert_with(|| sources.iter_mut().map(|source| source(rng)).collect());
        let waiting = next.iter().enumerate().filter_map(|(i, arrival)| Some((arrival.as_ref()?.at, i)));
        let (_, first) = waiting.min()?;
        let arrival = next[first].take();
        next[first] = sources[first](rng);
        arrival
    })
}

/// Ranks drawn by Zipf's law.
#[derive(Clone, Debug)]
pub struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    /// `ranks` of them; the first is the most likely.
    pub fn new(ranks: usize, exponent: f64) -> Self {
        let mut total = 0.0;
        let sums = (1..=u32::try_from(ranks).expect("few ranks")).map(|rank| {
            total += f64::from(rank).powf(-exponent);
            total
        });
        Self { sums: sums.collect() }
    }

    pub fn draw(&self, rng: &mut Rng) -> usize {
        let at = rng.f64() * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|sum| *sum <= at).min(self.sums.len() - 1)
    }
}

/// `per_second` new clients from `first` on, each once at two POPs, for half of a burst of 20 at each: an attacker that
/// makes up keys, and sees to it that each is in debt.
pub fn new_keys(per_second: f64, first: u32, pops: usize) -> Traffic {
    let (mut now, mut key, mut next) = (0, first, None);
    Box::new(move |rng| {
        if let Some(second) = next.take() {
            return Some(second);
        }
        (now, key) = (now + gap_ns(rng, per_second), key + 1);
        let one = Arrival { at: now, pop: rng.usize(0..pops), key, path: 2, cost: 10 };
        next = Some(Arrival { pop: (one.pop + 1) % pops, ..one });
        Some(one)
    })
}

/// `keys` clients by Zipf's law with exponent 1.1; nine in ten always at one POP, one in ten anywhere.
pub fn crowd(per_second: f64, keys: usize, pops: usize) -> Traffic {
    let ranks = Zipf::new(keys, 1.1);
    let mut now = 0;
    Box::new(move |rng| {
        now += gap_ns(rng, per_second);
        let key = u32::try_from(ranks.draw(rng)).expect("fits an address");
        // Scattered, so that neighbouring ranks are neither at one POP nor all of one kind.
        let scattered = usize::try_from(key.wrapping_mul(2_654_435_761) >> 4).expect("32 bits");
        let is_spread = scattered % 10 == 0;
        let pop = if is_spread { rng.usize(0..pops) } else { scattered / 10 % pops };
        Some(Arrival { at: now, pop, key, path: 0, cost: 1 })
    })
}

/// The first of the clients whose addresses have the same leading `bits` as that of client `key`.
pub fn first_of(key: u32, bits: u8) -> u32 {
    key & u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

/// The canonical bytes of client `key`: the leading `bits` of 10.x.y.z.
pub fn value_of(key: u32, bits: u8) -> Vec<u8> {
    let [_, x, y, z] = first_of(key, bits).to_be_bytes();
    match bits {
        0 => KeyValue::ALL.as_bytes().to_vec(),
        _ => [&[4, bits], &[10, x, y, z][..usize::from(bits).div_ceil(8)]].concat(),
    }
}

/// The first of the clients that have these canonical bytes.
pub fn key_of(value: &[u8]) -> Option<u32> {
    match value {
        [4, _, 10, octets @ ..] => {
            let at = |i: usize| octets.get(i).copied().unwrap_or(0);
            Some(u32::from_be_bytes([0, at(0), at(1), at(2)]))
        }
        _ => (value == KeyValue::ALL.as_bytes()).then_some(0),
    }
}

impl Request for Arrival {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::SourceAddress => {
                let [_, x, y, z] = self.key.to_be_bytes();
                Some(format!("10.{x}.{y}.{z}:1").into_bytes())
            }
            Attribute::Path => Some(PATHS[usize::from(self.path)].as_bytes().to_vec()),
            // The only header that rules here ask for.
            Attribute::Header(_) => Some(self.cost.to_string().into_bytes()),
            _ => None,
        }
    }
}
