//! The rows of the table that try traffic, quotas and floors in a fleet without faults, and crowds of keys.

use fastrand::Rng;
use weir_protocol::time::SECOND_NS;

use super::account::Account;
use super::scenario::{Plan, Size};
use super::setup::{BY_COST, Link, RuleText};
use super::shapes::Shape;
use super::traffic::{self, Arrival, Traffic, gap_ns};
use super::world::World;

/// `times` the rate of `per_second`, spread evenly.
pub(super) fn contended(size: Size, per_second: u32, burst: u32, times: f64, seconds: u64) -> Plan {
    Plan::of(size, seconds, traffic::even(f64::from(per_second) * times, size.pops)).under(RuleText {
        rate: format!("{per_second}/s"),
        burst,
        ..RuleText::default()
    })
}

/// The same plan with a store that is `round_trip_ns` away, and weir-syncs that are set for it.
pub(super) fn far(plan: Plan, round_trip_ns: u64) -> Plan {
    plan.with(|setup| {
        (setup.far, setup.store_timeout_ns) = (Link::perfect(round_trip_ns / 2), 2 * SECOND_NS);
        setup.terms.interval_ns = setup.interval_ns + setup.round_trip_ns();
    })
}

/// The same plan with this number of weir-syncs in each region: a POP reports to each of them as much less often.
pub(super) fn replicas(count: usize, plan: Plan) -> Plan {
    plan.with(|setup| setup.syncs_per_region = count)
}

/// Time for which a key is new, in seconds.
const NEW_SECONDS: u64 = 5;
/// Time that a client stays at a POP if it moves before all have news of it, in nanoseconds.
const MOVES_NS: u64 = 7 * SECOND_NS / 10;

/// A burst of which a POP gives a part before the fleet knows a key.
pub fn local_burst(size: Size, [local_burst, burst]: [u32; 2], seconds: u64, per_second: f64) -> Plan {
    let rule = RuleText::with(&format!(r#""local_burst": {local_burst}"#));
    Plan::of(size, seconds, traffic::even(per_second, size.pops)).under(RuleText { burst, ..rule }).drained()
}

/// A burst that fills in less than an interval.
pub fn small_burst(size: Size) -> Plan {
    Plan::of(size, 60, traffic::even(150.0, size.pops)).under(RuleText { burst: 5, ..RuleText::default() })
}

/// The same burst, and a client that moves before all have news of it.
pub fn small_burst_moving(size: Size) -> Plan {
    let plan = small_burst(size);
    Plan { traffic: traffic::hopping(300.0, size.pops, MOVES_NS), ..plan }
}

/// Six clients in two networks, each at `times` the rate, counted alone, by network, and all together.
pub fn nested(size: Size, times: f64, of_network: u32, of_all: u32) -> Plan {
    let clients = [0, 1, 2, 256, 257, 258];
    let asking = clients.map(|key| traffic::of(key, 0, traffic::even(100.0 * times, size.pops)));
    let mut plan = Plan::of(size, 60, traffic::merged(asking.into()));
    let wider = |name: &str, bits: u8, rate: u32| RuleText {
        name: name.into(),
        rate: format!("{rate}/s"),
        burst: rate,
        bits,
        ..RuleText::default()
    };
    plan.setup.rules = vec![RuleText::default(), wider("network", 24, of_network), wider("all", 0, of_all)];
    (plan.setup.keys, plan.setup.slots) = (259, 256);
    plan
}

/// Admissions of all clients together, as a part of those of ideal buckets.
pub fn of_all(world: &World) -> f64 {
    let sum = |figure: fn(&Account) -> u64| {
        let accounts = world.reference.accounts().filter(|(rule, ..)| *rule == 0);
        accounts.map(|(.., account)| figure(account)).sum::<u64>() as f64
    };
    sum(|account| account.tally.admitted) / sum(|account| account.ideally)
}

/// Admissions while the key was new, as a part of the ideal bucket's.
pub fn while_new(world: &World) -> f64 {
    world.reference.part((0, NEW_SECONDS), |sample| sample.tally.admitted, |sample| sample.ideally)
}

/// Time for which an honest client is watched, in seconds.
const HONEST_SECONDS: u64 = 100;
/// Long enough that one expensive request hardly counts, in seconds.
const DEAR_SECONDS: u64 = 300;
/// The cost of an expensive request: half of the burst.
const DEAR: u32 = 50;

/// The burst that every POP of a fleet is asked for: smaller if POPs are few, so that each holds few tokens of what
/// is left to it.
fn burst_of(pops: usize) -> u32 {
    if pops > 100 { 100 } else { 20 }
}

/// The time at which the debt of a burst at every POP is paid, and a little later, in seconds.
fn paid_at(pops: usize) -> u64 {
    u64::from(burst_of(pops)) * pops as u64 / 100 + 10
}

/// One burst at every POP; once it is paid, what an honest client asks for.
pub fn burst_then(size: Size, honest: Traffic) -> Plan {
    let (burst, paid) = (burst_of(size.pops), paid_at(size.pops));
    let end = paid + HONEST_SECONDS;
    let each = usize::try_from(burst).expect("a few tokens");
    let burst_everywhere = traffic::between(0, SECOND_NS, traffic::bursts(each, size.pops, end * SECOND_NS));
    let honest = traffic::between(paid * SECOND_NS, end * SECOND_NS, honest);
    Plan::of(size, end, traffic::merged(vec![burst_everywhere, honest]))
        .under(RuleText { burst, ..RuleText::default() })
}

/// The part of the honest client's requests that passed.
pub fn passed_honest(world: &World) -> f64 {
    let begin = paid_at(world.setup.pops);
    let watched = (begin, begin + HONEST_SECONDS);
    world.reference.part(watched, |sample| sample.tally.admitted, |sample| sample.tally.offered)
}

/// Nine tenths of the rate, and five requests more at every POP at once every half minute.
pub fn small_bursts(size: Size) -> Plan {
    let bursts = traffic::bursts(5, size.pops, 30 * SECOND_NS);
    Plan::of(size, 240, traffic::merged(vec![traffic::even(90.0, size.pops), bursts]))
}

fn by_cost(size: Size, traffic: Traffic) -> Plan {
    Plan::of(size, DEAR_SECONDS, traffic).under(RuleText::with(BY_COST))
}

fn dear(tokens_per_second: f64, pops: usize) -> Traffic {
    traffic::costing(DEAR, traffic::even(tokens_per_second / f64::from(DEAR), pops))
}

/// Requests that each cost half of the burst, for `tokens_per_second` in all, at a number of POPs.
pub fn dear_requests(size: Size, tokens_per_second: f64, pops: usize) -> Plan {
    by_cost(size, dear(tokens_per_second, pops))
}

/// Somewhat more than the rate; half of the tokens go to requests that cost one, half to expensive ones.
pub fn mixed(size: Size, pops: usize) -> Plan {
    by_cost(size, traffic::merged(vec![traffic::even(55.0, pops), dear(55.0, pops)]))
}

/// The option that gives region 0 a floor, ...
const OPTION: &str = r#""min_share": {"region-0": 30}"#;
/// ... and the floor as a part of the rate.
const PART: f64 = 0.3;

/// Region 0 has a floor and is asked for `asks` a second; the others are flooded.
pub fn asking(size: Size, asks: f64) -> Plan {
    Plan::of(size, 60, Shape::Floor { asks, flood: 2_000.0, regions: size.regions }.traffic(size.pops))
        .under(RuleText::with(OPTION))
}

/// Admissions of region 0 after settling, as a part of those of an ideal bucket of its floor alone.
/// That bucket, too, refuses some of what is asked for at just its rate.
pub fn of_floor(world: &World) -> f64 {
    world.reference.part((5, 60), |sample| sample.regions[0].admitted, |sample| sample.by_floor)
}

/// A floor of three tokens in ten seconds; region 0 is asked for one of them, the others for ten times the rate.
pub fn slow(size: Size) -> Plan {
    let traffic = Shape::Floor { asks: 0.1, flood: 10.0, regions: size.regions }.traffic(size.pops);
    let plan = Plan { traffic, ..contended(size, 1, 10, 1.0, 600) };
    plan.with(|setup| setup.rules[0].options = OPTION.into())
}

/// A floor whose burst refills faster than a POP's reports reach one of two weir-syncs.
pub fn reported_in_turn(size: Size) -> Plan {
    let traffic = Shape::Floor { asks: 77.0, flood: 600.0, regions: size.regions }.traffic(size.pops);
    let plan = Plan { traffic, ..contended(size, 300, 54, 1.0, 60) };
    replicas(2, plan.with(|setup| setup.rules[0].options = OPTION.into()))
}

/// Region 0 has a floor, and is flooded every other second; the others are flooded all the time.
pub fn in_pulses(size: Size) -> Plan {
    let asking = Shape::Pulses { asks: 400.0, flood: 2_000.0, regions: size.regions };
    Plan::of(size, 60, asking.traffic(size.pops)).under(RuleText::with(OPTION))
}

/// Admissions of region 0, as a part of its floor's rate in the whole time.
pub fn of_its_rate(world: &World) -> f64 {
    let (from, to) = (4, 60);
    let floor = PART * world.reference.account(0, 0).rate() * (to - from) as f64;
    world.reference.between(from, to, |sample| sample.regions[0].admitted) / floor
}

/// Each client's quota, in requests per second, ...
const CROWD_RATE: u32 = 2;
/// ... and its burst.
const CROWD_BURST: u32 = 4;
/// Duration of a crowd, in seconds.
const CROWD_SECONDS: u64 = 20;
/// POPs that a client asks at a time if it moves, and how long it stays, in nanoseconds.
const AT_ONCE: usize = 2;
const STAYS_NS: u64 = SECOND_NS;

/// `keys` clients at twice their quotas, each at all POPs.
pub fn everywhere(size: Size, keys: u32) -> Plan {
    crowd(size, keys, move |rng, _, _| rng.usize(0..size.pops))
}

/// The same, each at two POPs, and a second later at the next two.
pub fn moving(size: Size, keys: u32) -> Plan {
    crowd(size, keys, move |rng, key, at| {
        let moves = usize::try_from(at / STAYS_NS).expect("few moves");
        (key as usize + AT_ONCE * moves + rng.usize(0..AT_ONCE)) % size.pops
    })
}

fn crowd(size: Size, keys: u32, place: impl Fn(&mut Rng, u32, u64) -> usize + 'static) -> Plan {
    let (mut at, per_second) = (0, 2.0 * f64::from(CROWD_RATE) * f64::from(keys));
    let traffic = Box::new(move |rng: &mut Rng| {
        at += gap_ns(rng, per_second);
        let key = rng.u32(0..keys);
        Some(Arrival { at, pop: place(rng, key, at), key, path: 0, cost: 1 })
    });
    let rule = RuleText { rate: format!("{CROWD_RATE}/s"), burst: CROWD_BURST, ..RuleText::default() };
    Plan::of(size, CROWD_SECONDS, traffic).under(rule).with(|setup| {
        // No slot has more of them than it can watch.
        (setup.keys, setup.slots) = (keys, (2 * keys).next_power_of_two());
        // The bound is for keys that are reported every interval.
        setup.bound_max = Some(f64::INFINITY);
    })
}

/// Time for which a crowd is watched that is hardly reported, in seconds.
const WATCHED_SECONDS: u64 = 10;

pub fn million(size: Size) -> Plan {
    let keys = 1_000_000;
    unaccounted(keys, Plan::of(size, WATCHED_SECONDS, traffic::crowd(330_000.0, keys as usize, size.pops)))
}

/// The same plan with this number of clients, whose requests are not accounted for.
fn unaccounted(keys: u32, plan: Plan) -> Plan {
    plan.with(|setup| (setup.keys, setup.is_accounted, setup.slots) = (keys, false, 1_024))
}

/// Keys that were ever hot, in percent.
pub fn percent_hot(world: &World) -> f64 {
    world.wire.hot_len() as f64 * 100.0 / f64::from(world.setup.keys)
}

/// New keys a second at two POPs each, for each POP of the fleet: 20 POPs' part of 100,000.
const NEW_KEYS_PER_POP: f64 = 5_000.0;
/// Time for which they come, in seconds.
const FLOOD_SECONDS: u64 = 20;

/// An attacker makes up keys, 10,000 requests a second at each POP, while one client asks for three
/// times its rate and another for nine tenths.
pub fn flood_of_keys(size: Size, workers: usize) -> Plan {
    let bystander = |key, per_second| traffic::of(key, 1, traffic::even(per_second, size.pops));
    let flood = traffic::new_keys(NEW_KEYS_PER_POP * size.pops as f64, 2, size.pops);
    let traffic = traffic::merged(vec![bystander(0, 300.0), bystander(1, 90.0), flood]);
    let known = RuleText { path: Some("/a"), ..RuleText::default() };
    let flooded = RuleText {
        name: "r1".into(),
        path: Some("/b"),
        rate: "10/s".into(),
        burst: 20,
        options: BY_COST.into(),
        ..RuleText::default()
    };
    Plan::of(size, FLOOD_SECONDS, traffic).with(|setup| {
        setup.rules = vec![known, flooded];
        (setup.keys, setup.slots, setup.workers) = (2, 8_192, workers);
    })
}

/// Admissions of the bystander that stays below its limit, as a part of its requests.
pub fn bystander_passed(world: &World) -> f64 {
    world.reference.account(0, 1).passed()
}

/// Requests that POPs count as unreported, in percent of those with made-up keys.
pub fn percent_dropped(world: &World) -> f64 {
    let dropped: u64 = world.pops.iter().map(|pop| pop.dropped).sum();
    let made_up = NEW_KEYS_PER_POP * 2.0 * (world.pops.len() as u64 * FLOOD_SECONDS) as f64;
    dropped as f64 * 100.0 / made_up
}

/// Clients that stay within their fair share at every POP: they need not be reported.
pub fn quiet_crowd(size: Size) -> Plan {
    let (keys, mut rank) = (10_000, 0);
    let mut requests = traffic::even(3_000.0, size.pops);
    // Each in turn, so that none asks for more than the others.
    let traffic: Traffic = Box::new(move |rng| {
        rank = (rank + 1) % keys;
        requests(rng).map(|next| Arrival { key: rank, ..next })
    });
    unaccounted(keys, Plan::of(size, WATCHED_SECONDS, traffic))
}
