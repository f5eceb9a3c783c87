//! When requests of one key arrive, and at which POP.

use fastrand::Rng;
use weir_limiter::time::SECOND_NS;

/// A request: when, in nanoseconds from the start, and at which POP.
pub type Arrival = (u64, usize);

/// Requests in the order they arrive.
pub type Traffic = Box<dyn FnMut(&mut Rng) -> Option<Arrival>>;

fn gap_ns(rng: &mut Rng, per_second: f64) -> u64 {
    // The time between two requests of a Poisson process; 1 - f64() is never zero.
    let seconds = -(1.0 - rng.f64()).ln() / per_second;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and small")]
    let ns = (seconds * 1e9) as u64;
    ns
}

/// `per_second` requests, each at the POP that `place` names for its time.
pub fn poisson(per_second: f64, mut place: impl FnMut(&mut Rng, u64) -> usize + 'static) -> Traffic {
    let mut now = 0;
    Box::new(move |rng| {
        now += gap_ns(rng, per_second);
        Some((now, place(rng, now)))
    })
}

/// Spread over `pops` evenly.
pub fn even(per_second: f64, pops: usize) -> Traffic {
    poisson(per_second, move |rng, _| rng.usize(0..pops))
}

/// Spread over `pops` by Zipf's law with exponent 1.1.
pub fn zipf(per_second: f64, pops: usize) -> Traffic {
    let mut sums = Vec::with_capacity(pops);
    let mut total = 0.0;
    for rank in 1..=u32::try_from(pops).expect("few POPs") {
        total += f64::from(rank).powf(-1.1);
        sums.push(total);
    }
    poisson(per_second, move |rng, _| {
        let at = rng.f64() * total;
        sums.partition_point(|sum| *sum <= at).min(sums.len() - 1)
    })
}

/// All at one POP, the next one every `dwell_ns`.
pub fn hopping(per_second: f64, pops: usize, dwell_ns: u64) -> Traffic {
    poisson(per_second, move |_, now| usize::try_from(now / dwell_ns).expect("few hops") % pops)
}

/// Spread evenly, `low` and `high` requests per second in turn for `half_ns` each.
pub fn jumping(low: f64, high: f64, half_ns: u64, pops: usize) -> Traffic {
    let mut now = 0;
    Box::new(move |rng| {
        // Thinning: candidates at the high rate, of which the low phase keeps its part.
        loop {
            now += gap_ns(rng, high);
            let is_high = (now / half_ns) % 2 == 1;
            if is_high || rng.f64() < low / high {
                return Some((now, rng.usize(0..pops)));
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
        queue.pop()
    })
}
