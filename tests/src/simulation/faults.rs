//! Faults and their times: written down, or drawn from a seed.

use fastrand::Rng;
use weir_protocol::time::SECOND_NS;

use super::network::Link;
use super::setup::Setup;

/// Something that goes wrong, or comes right again.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The links between POPs and weir-syncs are now like this.
    Near(Link),
    /// The links between weir-syncs and the store are now like this.
    Far(Link),
    /// A POP does not reach its weir-sync (or does again).
    CutPop(usize, bool),
    /// A POP's link is silent for this long, in nanoseconds; then all that was sent arrives in a bunch.
    Silence(usize, u64),
    /// A region does not reach the store (or does again).
    CutRegion(usize, bool),
    /// A POP's clock jumps, in nanoseconds; only back, as no monotonic clock jumps forward.
    PopClock(usize, i64),
    /// The store's clock jumps, in microseconds.
    StoreClock(i64),
    /// The store takes this much longer, in nanoseconds.
    StoreSlow(u64),
    /// The store refuses everything, or answers again.
    StoreUp(bool),
    /// The store goes back to its state of this long ago, in nanoseconds.
    StoreLoses(u64),
    /// The store loses everything.
    StoreFlushed,
    /// A POP ends, its table with it.
    PopCrash(usize),
    /// It starts again.
    PopStart(usize),
    /// A POP's VMs are replaced; its table stays.
    Reload(usize),
    /// A weir-sync ends, and forgets.
    SyncCrash(usize),
    /// It starts again.
    SyncStart(usize),
}

/// The time of each, in nanoseconds from the begin of the traffic.
pub type Schedule = Vec<(u64, Fault)>;

/// The store ends at `at`, and `gone_ns` later another takes over that lacks the last `behind_ns`.
pub fn failover(at: u64, gone_ns: u64, behind_ns: u64) -> Schedule {
    let back = at + gone_ns;
    // What the new one has was kept before the old one ended.
    vec![(at, Fault::StoreUp(false)), (back, Fault::StoreLoses(gone_ns + behind_ns)), (back, Fault::StoreUp(true))]
}

/// Within the first 38 s, POPs, regions and a weir-sync fail one after the other. Between the seconds of `worst`, the
/// links of POPs, which are `near` otherwise, lose, repeat and delay messages.
pub(super) fn one_after_the_other(near: Link, worst: [u64; 2]) -> Schedule {
    let at = |seconds: u64| seconds * SECOND_NS;
    let [bad, good] = worst.map(at);
    vec![
        (at(7), Fault::CutPop(0, true)),
        (at(13), Fault::CutPop(0, false)),
        (at(16), Fault::PopCrash(1)),
        (at(18), Fault::PopStart(1)),
        (at(21), Fault::Silence(2, 3 * SECOND_NS)),
        (at(26), Fault::CutRegion(0, true)),
        (at(33), Fault::CutRegion(0, false)),
        (at(36), Fault::SyncCrash(0)),
        (at(38), Fault::SyncStart(0)),
        (bad, Fault::Near(Link { loss: 0.4, duplication: 0.3, jitter_ns: SECOND_NS / 2, ..near })),
        (good, Fault::Near(near)),
    ]
}

/// `count` faults between `from` and `until`, in nanoseconds; each is healed again by then.
pub fn random(setup: &Setup, count: usize, from: u64, until: u64, rng: &mut Rng) -> Schedule {
    let mut schedule = Schedule::new();
    for _ in 0..count {
        let begin = rng.u64(from..until);
        let end = (begin + rng.u64(SECOND_NS / 10..6 * SECOND_NS)).min(until);
        schedule.extend(one(setup, begin, end, rng));
    }
    schedule.sort_by_key(|(at, _)| *at);
    schedule
}

/// Time that a POP loses whose clock jumps back, in nanoseconds: the time since a worker read it last, and a step
/// that is too small to be noticed.
pub fn lost_by_jump_ns(by_ns: i64, setup: &Setup) -> u64 {
    by_ns.unsigned_abs().min(setup.interval_ns + 2 * SECOND_NS)
}

fn one(setup: &Setup, begin: u64, end: u64, rng: &mut Rng) -> Schedule {
    let (pop, region) = (rng.usize(0..setup.pops), rng.usize(0..setup.regions));
    let sync = rng.usize(0..setup.regions * setup.syncs_per_region);
    match rng.u8(0..14) {
        0 => vec![(begin, Fault::Near(bad(setup.near, rng))), (end, Fault::Near(setup.near))],
        1 => vec![(begin, Fault::Far(bad(setup.far, rng))), (end, Fault::Far(setup.far))],
        2 => vec![(begin, Fault::CutPop(pop, true)), (end, Fault::CutPop(pop, false))],
        3 => vec![(begin, Fault::CutRegion(region, true)), (end, Fault::CutRegion(region, false))],
        4 => vec![(begin, Fault::PopClock(pop, -rng.i64(1..600_000_000_000)))],
        5 => vec![(begin, Fault::StoreClock(rng.i64(-2_000_000..2_000_000)))],
        6 => vec![(begin, Fault::StoreSlow(rng.u64(0..SECOND_NS))), (end, Fault::StoreSlow(0))],
        7 => vec![(begin, Fault::StoreUp(false)), (end, Fault::StoreUp(true))],
        8 => vec![(begin, Fault::StoreLoses(rng.u64(0..=begin.min(2 * SECOND_NS))))],
        9 => failover(begin, end - begin, rng.u64(0..SECOND_NS)),
        10 => vec![(begin, Fault::PopCrash(pop)), (end, Fault::PopStart(pop))],
        12 => vec![(begin, Fault::Silence(pop, end - begin))],
        11 => vec![(begin, Fault::SyncCrash(sync)), (end, Fault::SyncStart(sync))],
        _ if rng.u8(0..4) == 0 => vec![(begin, Fault::StoreFlushed)],
        _ => vec![(begin, Fault::Reload(pop))],
    }
}

fn bad(link: Link, rng: &mut Rng) -> Link {
    Link {
        delay_ns: link.delay_ns * rng.u64(1..=5),
        jitter_ns: rng.u64(0..SECOND_NS / 2),
        loss: rng.f64() / 2.0,
        duplication: rng.f64() / 2.0,
    }
}
