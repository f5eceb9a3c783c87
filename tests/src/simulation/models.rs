//! Two other ways to limit a fleet, to compare with: plain local limits, and a central limiter.

use fastrand::Rng;
use weir_protocol::quota::Quota;

use super::account::Meter;
use super::reference::SAMPLE_NS;
use super::traffic::{Arrival, Traffic};

/// Requests per sample.
pub type Curve = Vec<u64>;

/// The arrivals before `end_ns`.
pub fn arrivals(mut traffic: Traffic, rng: &mut Rng, end_ns: u64) -> Vec<Arrival> {
    std::iter::from_fn(|| traffic(rng)).take_while(|arrival| arrival.at < end_ns).collect()
}

fn curve(times: impl Iterator<Item = u64>, end_ns: u64) -> Curve {
    let sample = |ns: u64| usize::try_from(ns / SAMPLE_NS).expect("some minutes");
    let mut counts = vec![0; sample(end_ns)];
    for at in times {
        if let Some(count) = counts.get_mut(sample(at)) {
            *count += 1;
        }
    }
    counts
}

/// The traffic.
pub fn offered(arrivals: &[Arrival], end_ns: u64) -> Curve {
    curve(arrivals.iter().map(|arrival| arrival.at), end_ns)
}

/// Admissions if every POP has a bucket of the whole quota, and POPs do not talk to each other.
pub fn plain_local(arrivals: &[Arrival], quota: Quota, pops: usize, end_ns: u64) -> Curve {
    let mut buckets = vec![Meter::default(); pops];
    let admitted = arrivals.iter().filter(|arrival| buckets[arrival.pop].take_if_there(quota, 1, arrival.at));
    curve(admitted.map(|arrival| arrival.at), end_ns)
}

/// Admissions if every request waits for an answer from one bucket, `round_trip_ns` away. If
/// `is_cut` holds, no answer comes, and the request is let through `timeout_ns` later (the default of
/// Envoy's global rate limit).
pub fn central(
    arrivals: &[Arrival],
    quota: Quota,
    round_trip_ns: u64,
    timeout_ns: u64,
    is_cut: impl Fn(&Arrival) -> bool,
    end_ns: u64,
) -> Curve {
    let mut bucket = Meter::default();
    let decided = arrivals.iter().filter_map(|arrival| {
        if is_cut(arrival) {
            return Some(arrival.at + timeout_ns);
        }
        bucket.take_if_there(quota, 1, arrival.at + round_trip_ns / 2).then_some(arrival.at + round_trip_ns)
    });
    curve(decided, end_ns)
}
