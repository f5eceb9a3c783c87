//! The same decisions by `governor`, as its users would make them: a keyed limiter on its dashmap, keyed by the
//! address that is parsed from the same text.
//!
//! The quota is that of the cases, too. With "given clock" the time costs governor nothing, as it costs the limiter
//! nothing: the fair comparison. "Own clock" is governor's default, which reads the processor's counter. What
//! governor does not do is not asked of it: it has no conditions, no decision across limiters (those for several
//! rules are asked one after the other), no headers' values in its answer, and no bound on its memory: a newcomer
//! makes its map grow, so there is no miss, and no full set.

use std::cell::Cell;
use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::Duration;

use criterion::Criterion;
use governor::clock::{Clock, DefaultClock};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use weir_tests::cases;

/// Between two requests, as in the cases.
const STEP_NS: u64 = 1_000;

type Keyed<C> = RateLimiter<IpAddr, DashMapStateStore<IpAddr>, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// A clock that is set to the time.
#[derive(Clone, Default)]
struct Given(Rc<Cell<u64>>);

impl Given {
    fn step(&self) {
        self.0.set(self.0.get() + STEP_NS);
    }
}

impl Clock for Given {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::new(self.0.get())
    }
}

/// Admits every request, as the cases' generous rule does.
fn generous() -> Quota {
    let million = NonZeroU32::new(1_000_000).expect("not zero");
    Quota::per_second(million).allow_burst(million)
}

fn client(text: &[u8]) -> IpAddr {
    let text = str::from_utf8(text).expect("text");
    text.parse::<SocketAddr>().expect("an address and a port").ip()
}

/// True if all of `limiters` admit a request from the address in `text`.
fn admits<C: Clock>(limiters: &[Keyed<C>], text: &[u8]) -> bool {
    let client = client(black_box(text));
    limiters.iter().all(|limiter| limiter.check_key(&client).is_ok())
}

/// Every case of governor.
pub(super) fn keyed(c: &mut Criterion) {
    let mut group = super::timed(c, "governor");
    let one: &[u8] = b"192.0.2.1:80";
    for count in [1, 4, 16] {
        let clock = Given::default();
        let limiters: Vec<Keyed<_>> =
            (0..count).map(|_| RateLimiter::dashmap_with_clock(generous(), clock.clone())).collect();
        assert!(admits(&limiters, one));
        group.bench_function(format!("allowed, {count} limiters, given clock"), |b| {
            b.iter(|| {
                clock.step();
                admits(&limiters, one)
            });
        });
    }
    let limiters = [Keyed::<DefaultClock>::dashmap(generous())];
    group.bench_function("allowed, 1 limiter, own clock", |b| b.iter(|| admits(&limiters, one)));

    let clock = Given::default();
    let daily = Quota::with_period(Duration::from_hours(24)).expect("a quota");
    let limiters = [RateLimiter::dashmap_with_clock(daily, clock.clone())];
    assert_eq!([(); 2].map(|()| admits(&limiters, one)), [true, false]);
    group.bench_function("limited, given clock", |b| {
        b.iter(|| {
            clock.step();
            admits(&limiters, one)
        });
    });

    let clock = Given::default();
    let limiters = [RateLimiter::dashmap_with_clock(generous(), clock.clone())];
    let addresses: Vec<_> = (0..10_000).map(cases::address).collect();
    assert!(addresses.iter().all(|address| admits(&limiters, address)));
    let mut next = addresses.iter().cycle();
    group.bench_function("hit, 10000 addresses in turn, given clock", |b| {
        b.iter(|| {
            clock.step();
            admits(&limiters, next.next().expect("a cycle has no end"))
        });
    });
    group.finish();
}
