//! Faults that are drawn together with what clients ask meanwhile; each trial needs one certain mechanism. Most are
//! checked by a figure of their own ([`super::expected`]).

use fastrand::Rng;
use weir_protocol::time::SECOND_NS;

use super::faults::{Fault, Schedule};
use super::random::Sharing;
use super::setup::{Link, RuleText, Setup};
use super::shapes::{Shape, log_uniform};

/// A fault and what is asked meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// A POP is cut off for longer than its leases last.
    PopAlone,
    /// A region is cut off from the store for long; its weir-sync may be started anew meanwhile.
    RegionAlone,
    /// A POP's VMs are replaced before they have reported what they admitted, and after the client has left.
    Reloaded,
    /// The store's clock steps by more than a look takes for time, and by an hour at most.
    ClockSteps,
    /// Nothing goes wrong, but a client bursts everywhere, and again once its debt is paid.
    Again,
    /// POPs are cut off with tokens that they leased, and the client moves on.
    Hoards,
    /// Nothing goes wrong, but each request costs half of the burst, and many POPs are asked.
    Dear,
    DearAtOne,
    /// A client asks one POP whose weir-sync is silent again and again for seconds; then all arrives at once.
    Silent,
    /// Nothing goes wrong, but the burst fills in a tenth of a second or less.
    SmallBurst,
    /// A region is cut off from the store; then only it is asked; then it is cut off again.
    AloneAgain,
    /// Nothing goes wrong, but the region that has a floor is flooded in pulses.
    Pulses,
    /// POPs and weir-syncs start while clients ask; or only weir-syncs do, and without the store.
    Cold,
    /// Three nested rules and three clients.
    Nested,
    /// Two weir-syncs a region, however far away they are and however seldom a POP reports to them.
    Replicas,
    /// A POP is cut off with tokens that it leased ahead, and every POP is asked for a burst once its lease has ended.
    LeasesEnd,
}

/// The longest lease of a POP that is alone, in nanoseconds.
const LEASE_NS: u64 = 4 * SECOND_NS;
/// The shortest time for which a client bursts, in seconds.
const AGAIN_SECONDS: u64 = 40;
/// The shortest time for which expensive requests come, in seconds: each is a large part of a short run's admissions.
const DEAR_SECONDS: u64 = 80;
/// The shortest time for which a POP or a region is alone, in seconds.
const ALONE_SECONDS: u64 = 26;
/// The shortest length of the trial with silent links, in seconds.
const SILENT_SECONDS: u64 = 42;
/// The shortest time without faults, in seconds.
const STEADY_SECONDS: u64 = 60;
/// The shortest length of the trial in which leases end, in seconds.
const LEASES_SECONDS: u64 = 60;

impl Trial {
    /// Draws a trial that suits a world, or none.
    pub(super) fn random(setup: &Setup, sharing: Sharing, rng: &mut Rng) -> Option<Self> {
        match rng.u8(0..12) {
            0..6 if sharing == Sharing::Strict && setup.pops > 2 => Some(Self::Hoards),
            6..10 if sharing == Sharing::Strict && setup.pops > 1 => Some(Self::LeasesEnd),
            _ if sharing == Sharing::Strict => None,
            0 | 1 if sharing == Sharing::Floor => None,
            8..11 if sharing == Sharing::Floor => Some(Self::Pulses),
            0 => Some(Self::PopAlone),
            1 if setup.regions > 1 => Some(Self::RegionAlone),
            2 if setup.pops > 1 => Some(Self::Reloaded),
            3 => Some(Self::ClockSteps),
            4 | 5 if setup.pops > 3 => Some(Self::Again),
            6 | 7 if sharing == Sharing::Plain => Some(Self::Dear),
            8 | 9 => match rng.u8(0..4) {
                0 if sharing == Sharing::Plain => Some(Self::Silent),
                1 if sharing == Sharing::Plain => Some(Self::DearAtOne),
                2 if sharing == Sharing::Plain => Some(Self::SmallBurst),
                _ if setup.regions > 1 => Some(Self::AloneAgain),
                _ => None,
            },
            10 => match rng.u8(0..6) {
                0 | 1 => Some(Self::Cold),
                2 | 3 if setup.rules.len() == 1 && setup.keys == 3 && sharing == Sharing::Plain => Some(Self::Nested),
                2 | 3 => Some(Self::Replicas),
                _ => None,
            },
            _ => None,
        }
    }

    /// The shortest length before the end of all faults, in seconds.
    pub(super) fn seconds(self) -> u64 {
        match self {
            Self::PopAlone | Self::RegionAlone => ALONE_SECONDS + 6,
            Self::Again => AGAIN_SECONDS,
            Self::Dear | Self::DearAtOne => DEAR_SECONDS,
            Self::Silent => SILENT_SECONDS,
            Self::SmallBurst | Self::Pulses => STEADY_SECONDS,
            Self::LeasesEnd => LEASES_SECONDS,
            Self::AloneAgain => AGAIN_AT.1 / SECOND_NS + ALONE_SECONDS + 6,
            Self::Reloaded | Self::ClockSteps | Self::Hoards | Self::Cold | Self::Nested | Self::Replicas => 0,
        }
    }

    /// Draws its faults and shapes for a quota of `rate` tokens a second and this burst, with at most `most` requests a
    /// second, until `until` nanoseconds.
    pub(super) fn draw(
        self,
        setup: &mut Setup,
        shapes: &mut [Shape],
        (rate, burst, most): (f64, u32, f64),
        until: u64,
        rng: &mut Rng,
    ) -> Schedule {
        let pop = rng.usize(0..setup.pops);
        let begin = rng.u64(3 * SECOND_NS..6 * SECOND_NS);
        let steady =
            |rng: &mut Rng| Shape::Steady { rate: (rate * log_uniform(1.5, 10.0, rng)).min(most), is_zipf: rng.bool() };
        let of = Of { rate, burst, most, pop, begin, until };
        match self {
            Self::PopAlone => {
                setup.rules.truncate(1);
                setup.terms.lease_max_ns = LEASE_NS;
                let period_ns = rng.u64(3 * SECOND_NS..8 * SECOND_NS);
                let each = rng.usize(burst as usize / 2..=burst as usize).clamp(1, 400);
                shapes[0] = if rng.bool() { steady(rng) } else { Shape::Bursts { each, period_ns } };
                vec![(begin, Fault::CutPop(pop, true)), (until, Fault::CutPop(pop, false))]
            }
            Self::RegionAlone => {
                setup.rules.truncate(1);
                setup.syncs_per_region = 1;
                for shape in &mut *shapes {
                    *shape = steady(rng);
                }
                let region = rng.usize(0..setup.regions);
                let mut faults = vec![(begin, Fault::CutRegion(region, true))];
                if rng.bool() {
                    faults.push((begin + SECOND_NS, Fault::SyncCrash(region)));
                    faults.push((begin + 2 * SECOND_NS, Fault::SyncStart(region)));
                }
                faults.push((until, Fault::CutRegion(region, false)));
                faults
            }
            Self::Reloaded => {
                let at = begin + SECOND_NS;
                shapes[0] = Shape::Leaving { rate: (rate * log_uniform(0.3, 3.0, rng)).min(most), pop, at };
                let cut = begin - rng.u64(0..2 * SECOND_NS);
                let healed = at + rng.u64(SECOND_NS / 10..SECOND_NS);
                vec![
                    (cut, Fault::StoreUp(false)),
                    (cut, Fault::CutPop(pop, true)),
                    (at + rng.u64(0..SECOND_NS / 10), Fault::Reload(pop)),
                    (healed, Fault::CutPop(pop, false)),
                    (healed, Fault::StoreUp(true)),
                ]
            }
            Self::ClockSteps => {
                shapes[0] = steady(rng);
                let step = |rng: &mut Rng| {
                    let us = log_uniform(65e6, 3.6e9, rng) as i64;
                    Fault::StoreClock(if rng.bool() { us } else { -us })
                };
                let first = step(rng);
                vec![(begin, first), (rng.u64(begin + SECOND_NS..until), step(rng))]
            }
            Self::Again => {
                setup.rules.truncate(1);
                let paid_s = f64::from(burst) * setup.pops as f64 / rate;
                let each = if paid_s > 12.0 { f64::from(burst) * 12.0 / paid_s } else { f64::from(burst) };
                let period_ns = (paid_s.min(12.0) * 1e9) as u64 + rng.u64(2 * SECOND_NS..5 * SECOND_NS);
                shapes[0] = Shape::Bursts { each: (each as usize).max(1), period_ns };
                Schedule::new()
            }
            Self::Dear => {
                (setup.pops, setup.regions) = (12, setup.regions.min(3));
                setup.rules.truncate(1);
                setup.rules[0].burst = (rate as u32).max(10);
                for shape in &mut *shapes {
                    *shape = Shape::Steady { rate: rate * log_uniform(2.0, 10.0, rng), is_zipf: false };
                }
                Schedule::new()
            }
            Self::DearAtOne => dear_at_one(setup, shapes, &of, rng),
            Self::Silent => silent(setup, shapes, &of, rng),
            Self::SmallBurst => small_burst(setup, shapes, &of, rng),
            Self::AloneAgain => alone_again(setup, shapes, &of, rng),
            Self::Pulses => pulses(setup, shapes, &of, rng),
            Self::LeasesEnd => leases_end(setup, shapes, &of, rng),
            Self::Cold => cold(setup, shapes, &of, rng),
            Self::Nested => nested(setup, &of, rng),
            Self::Replicas => replicas(setup, shapes, &of, rng),
            Self::Hoards => {
                // Back at the POP once its lease has ended, and before it knows that it is out of touch.
                (setup.pops, setup.regions) = (3, setup.regions.min(3));
                let dwell_ns = SECOND_NS + rng.u64(SECOND_NS / 50..SECOND_NS / 5);
                for shape in &mut *shapes {
                    *shape = Shape::Hopping { rate: (rate * log_uniform(1.0, 3.0, rng)).min(most), dwell_ns };
                }
                let mut faults = Schedule::new();
                let mut hop = begin / dwell_ns;
                while (hop + 7) * dwell_ns < until {
                    let pop = usize::try_from(hop).expect("few hops") % setup.pops;
                    faults.push(((hop + 1) * dwell_ns - rng.u64(1..SECOND_NS / 10), Fault::CutPop(pop, true)));
                    faults.push(((hop + 4) * dwell_ns, Fault::CutPop(pop, false)));
                    hop += 7;
                }
                faults
            }
        }
    }
}

/// The trial that a world is drawn for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of {
    /// Tokens per second, ...
    pub(super) rate: f64,
    /// ... and at once.
    pub(super) burst: u32,
    /// The most that a client asks for, in requests per second.
    pub(super) most: f64,
    pub(super) pop: usize,
    /// The earliest time of a fault, ...
    pub(super) begin: u64,
    /// ... and last, in nanoseconds.
    pub(super) until: u64,
}

/// Time for which a POP's link is silent, in nanoseconds, ...
pub(super) const SILENCE_NS: u64 = 4 * SECOND_NS;
/// ... and how long it then works until the next time.
const AFTER_NS: u64 = 8 * SECOND_NS;
/// From when to when only the region is asked that is cut off before and after, in nanoseconds.
pub(super) const AGAIN_AT: (u64, u64) = (14 * SECOND_NS, 32 * SECOND_NS);
/// The least tokens a second of a quota that is flooded in pulses: with fewer, a floor is hardly a token.
const PULSES_RATE_MIN: f64 = 10.0;
/// Slots of a table in which three clients under three rules hardly share any.
const NESTED_SLOTS: u32 = 256;
/// A link to the next door.
const QUICK: Link = Link::perfect(SECOND_NS / 1_000);

pub(super) fn dear_at_one(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    let &Of { rate, burst, pop, .. } = of;
    setup.rules.truncate(1);
    // If a POP reports to two weir-syncs in turn, the store takes it for two POPs.
    setup.syncs_per_region = 1;
    // With a few requests a second, there is sometimes none to report.
    setup.rules[0].burst = burst.min(rate as u32).max(10);
    for shape in &mut *shapes {
        *shape = Shape::OnePop { rate: rate * log_uniform(1.5, 5.0, rng), pop };
    }
    Schedule::new()
}

pub(super) fn silent(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    let &Of { rate, burst, most, pop, until, .. } = of;
    setup.rules.truncate(1);
    setup.syncs_per_region = 1;
    // What comes in a bunch is more than the burst.
    setup.rules[0].burst = burst.min(rate as u32).max(1);
    (setup.near.jitter_ns, setup.near.loss, setup.near.duplication) = (0, 0.0, 0.0);
    for shape in &mut *shapes {
        *shape = Shape::OnePop { rate: (rate * log_uniform(1.5, 10.0, rng)).min(most), pop };
    }
    let times = (1..).map(|n| n * (SILENCE_NS + AFTER_NS)).take_while(|at| at + SILENCE_NS <= until);
    times.map(|at| (at, Fault::Silence(pop, SILENCE_NS))).collect()
}

pub(super) fn small_burst(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    let &Of { rate, most, pop, .. } = of;
    setup.rules.truncate(1);
    setup.syncs_per_region = 1;
    near_by(setup);
    setup.rules[0].burst = ((rate * log_uniform(0.01, 0.1, rng)) as u32).max(1);
    for shape in &mut *shapes {
        let rate = (rate * log_uniform(1.1, 20.0, rng)).min(most);
        // It leaves each POP before all have news of it: then most is admitted that is not charged yet.
        let dwell_ns = rng.u64(3 * SECOND_NS / 5..6 * SECOND_NS / 5);
        *shape = match rng.u8(0..4) {
            0 => Shape::OnePop { rate, pop },
            1 => Shape::Steady { rate, is_zipf: rng.bool() },
            _ => Shape::Hopping { rate, dwell_ns },
        };
    }
    Schedule::new()
}

pub(super) fn alone_again(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    let &Of { rate, most, begin, until, .. } = of;
    setup.rules.truncate(1);
    setup.syncs_per_region = 1;
    let region = rng.usize(0..setup.regions);
    for shape in &mut *shapes {
        let rate = (rate * log_uniform(1.5, 10.0, rng)).min(most);
        *shape = Shape::Visiting { rate, region, regions: setup.regions, span: AGAIN_AT };
    }
    let (heals, again) = AGAIN_AT;
    vec![
        (begin, Fault::CutRegion(region, true)),
        (heals, Fault::CutRegion(region, false)),
        (again, Fault::CutRegion(region, true)),
        (until, Fault::CutRegion(region, false)),
    ]
}

pub(super) fn pulses(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    let &Of { rate, most, .. } = of;
    // One POP in each region, and as many requests beyond the quota as a world may have.
    (setup.pops, setup.regions, setup.syncs_per_region) = (3, 3, 1);
    near_by(setup);
    let rate = rate.min(most / 25.0).max(PULSES_RATE_MIN).ceil();
    let rule = &mut setup.rules[0];
    (rule.rate, rule.burst) = (format!("{rate}/s"), (rate * log_uniform(1.0, 2.0, rng)) as u32 + 1);
    for shape in &mut *shapes {
        let asks = rate * log_uniform(3.0, 5.0, rng);
        let flood = rate * log_uniform(15.0, 20.0, rng);
        *shape = Shape::Pulses { asks, flood, regions: setup.regions };
    }
    Schedule::new()
}

pub(super) fn leases_end(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    let &Of { rate, burst, most, pop, until, .. } = of;
    // With slow links, what refills on the way to the others would hide as many tokens.
    (setup.near, setup.far) = (QUICK, QUICK);
    setup.interval_ns = SECOND_NS / 2;
    setup.terms.interval_ns = setup.interval_ns + setup.round_trip_ns();
    // So that no report comes at the moment at which the lease ends.
    setup.terms.strict_lease_ns = 2 * SECOND_NS + SECOND_NS / 20;
    let each = (burst as usize).min(400);
    let leaves = rng.u64(2 * SECOND_NS..3 * SECOND_NS);
    let (comes, round) = (leaves + 2 * SECOND_NS + rng.u64(0..SECOND_NS / 2), leaves + 4 * SECOND_NS);
    for shape in &mut *shapes {
        let rate = (rate * 0.9).min(most / 2.0);
        *shape = Shape::Returning { rate, pop, round, leaves, comes, each };
    }
    let rounds = (0..).map(|n| n * round).take_while(|at| at + round <= until);
    let cut = |at| [(at + leaves, true), (at + round - SECOND_NS / 2, false)];
    rounds.flat_map(cut).map(|(at, is_cut)| (at, Fault::CutPop(pop, is_cut))).collect()
}

pub(super) fn cold(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    let mut faults = Schedule::new();
    let begins = |rng: &mut Rng| rng.u64(SECOND_NS / 100..3 * SECOND_NS);
    for sync in 0..setup.regions * setup.syncs_per_region {
        faults.extend([(0, Fault::SyncCrash(sync)), (begins(rng), Fault::SyncStart(sync))]);
    }
    if rng.bool() {
        let back = rng.u64(3 * SECOND_NS..of.until.min(15 * SECOND_NS));
        faults.extend([(0, Fault::StoreUp(false)), (back, Fault::StoreUp(true))]);
    } else {
        // What a POP gives before it knows how many POPs there are is not reported (docs/budgets.md). Clients that ask
        // at one rate would seem to be admitted too much.
        for shape in &mut *shapes {
            let high = (of.rate * log_uniform(0.3, 20.0, rng)).min(of.most);
            let half_ns = rng.u64(SECOND_NS / 5..4 * SECOND_NS);
            *shape = Shape::Jumping { low: high / 20.0, high, half_ns };
        }
        faults.push((0, Fault::StoreFlushed));
        for pop in 0..setup.pops {
            faults.extend([(0, Fault::PopCrash(pop)), (begins(rng), Fault::PopStart(pop))]);
        }
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}

pub(super) fn nested(setup: &mut Setup, of: &Of, rng: &mut Rng) -> Schedule {
    // So that no slot has to watch all clients under all rules.
    setup.slots = NESTED_SLOTS;
    let mut wider = of.rate;
    for name in ["r1", "r2"] {
        wider = (wider * log_uniform(1.0, 3.0, rng)).ceil();
        let rule = RuleText { name: name.into(), rate: format!("{wider}/s"), ..setup.rules[0].clone() };
        setup.rules.push(rule);
    }
    Schedule::new()
}

pub(super) fn replicas(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    setup.syncs_per_region = 2;
    for shape in &mut *shapes {
        let rate = (of.rate * log_uniform(0.3, 20.0, rng)).min(of.most);
        *shape = match rng.u8(0..4) {
            0 => Shape::OnePop { rate, pop: of.pop },
            two => Shape::Steady { rate, is_zipf: two == 1 },
        };
    }
    Schedule::new()
}

/// The links and the interval of the design.
fn near_by(setup: &mut Setup) {
    let Setup { near, far, interval_ns, .. } = Setup::default();
    (setup.near, setup.far, setup.interval_ns) = (near, far, interval_ns);
    setup.terms.interval_ns = interval_ns + setup.round_trip_ns();
}
