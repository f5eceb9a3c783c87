//! When each request of a client is sent, and to which POP: fixed before the load begins, whatever the
//! answers will be.

use std::time::Duration;

use fastrand::Rng;

use super::POPS;

/// Zipf's exponent, as in the simulation.
const ZIPF_EXPONENT: f64 = 1.1;

/// A request: when, from the beginning of the load, and at which POP.
pub type Arrival = (Duration, usize);

/// Where a client's requests go.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// To each POP the same part.
    Even,
    /// By Zipf's law: the second gets a bit less than half of what the first gets, and so on.
    Zipf,
    /// All to one.
    At(usize),
    /// All to one, to the next one after each of these.
    Hopping(Duration),
}

impl Place {
    fn pick(self, rng: &mut Rng, at: Duration) -> usize {
        match self {
            Self::Even => rng.usize(0..POPS),
            Self::Zipf => zipf(rng),
            Self::At(pop) => pop,
            Self::Hopping(dwell) => (0..POPS).cycle().nth(hops(at, dwell)).unwrap_or_default(),
        }
    }
}

fn hops(at: Duration, dwell: Duration) -> usize {
    usize::try_from(at.as_nanos() / dwell.as_nanos().max(1)).unwrap_or_default() % POPS
}

fn zipf(rng: &mut Rng) -> usize {
    let weights: Vec<f64> = (1..=POPS).map(|rank| super::float(rank).powf(-ZIPF_EXPONENT)).collect();
    let mut at = rng.f64() * weights.iter().sum::<f64>();
    let position = weights.iter().position(|weight| {
        at -= weight;
        at < 0.0
    });
    position.unwrap_or(POPS - 1)
}

/// `per_second` requests on average, as a Poisson process, from `from` to `to`. One seed is one schedule.
pub fn poisson(seed: u64, per_second: f64, place: Place, from: Duration, to: Duration) -> Vec<Arrival> {
    let mut rng = Rng::with_seed(seed);
    let mut arrivals = vec![];
    let mut at = from;
    loop {
        // 1 - f64() is never zero.
        at += Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / per_second);
        if at >= to {
            return arrivals;
        }
        arrivals.push((at, place.pick(&mut rng, at)));
    }
}

/// `each` requests to every POP, spread over `within` from the beginning.
pub fn burst(seed: u64, each: usize, within: Duration) -> Vec<Arrival> {
    let mut rng = Rng::with_seed(seed);
    let mut arrivals: Vec<Arrival> =
        (0..each * POPS).map(|index| (within.mul_f64(rng.f64()), index % POPS)).collect();
    arrivals.sort_unstable();
    arrivals
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn shares(place: Place) -> [usize; POPS] {
        let mut shares = [0; POPS];
        for (_, pop) in poisson(1, 100.0, place, Duration::ZERO, MINUTE) {
            shares[pop] += 1;
        }
        shares
    }

    #[test]
    fn sends_what_was_asked_for_where_it_was_asked_for() {
        for place in [Place::Even, Place::Zipf, Place::At(2), Place::Hopping(Duration::from_secs(1))] {
            let total: usize = shares(place).iter().sum();
            assert!((5_700..6_300).contains(&total), "{place:?}: {total} of 6,000");
        }
        let even = shares(Place::Even);
        assert!(even.iter().all(|part| (1_800..2_200).contains(part)), "{even:?}");
        assert_eq!(shares(Place::At(2))[..2], [0, 0]);
        // 1 : 0.467 : 0.299
        let [first, second, third] = shares(Place::Zipf);
        assert!(
            first * 40 > second * 80 && second * 100 > third * 140 && third > 800,
            "{first} {second} {third}"
        );
    }
}
