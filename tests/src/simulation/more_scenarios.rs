//! The scenarios of the table that need more than traffic: bursts with rests, faults, rule options,
//! crowds; and their figures.

use weir_protocol::time::SECOND_NS;

use super::faults::{self, Fault};
use super::many;
use super::network::Link;
use super::reaction;
use super::reference::Sample;
use super::scenario::{Plan, Size};
use super::scenarios::crowd_traffic;
use super::setup::{BY_COST, RuleText, Setup};
use super::traffic;
use super::world::World;

/// The time at which faults begin, in seconds.
const FAULT_AT: u64 = 20;
/// Time for which a region is cut off, in seconds.
const CUT_SECONDS: u64 = 60;
/// Time for which a crowd is watched, in seconds.
const CROWD_SECONDS: u64 = 10;
/// Time for which a store's loss is watched, and the time from which its end is, in seconds.
const LOSS_SECONDS: u64 = 120;
const LAST_SECONDS: u64 = 30;
/// A little more than how long a budget is remembered once its debt is paid, in seconds.
const FORGOTTEN_SECONDS: u64 = 65;
fn admitted(sample: &Sample) -> u64 {
    sample.tally.admitted
}

fn seconds(world: &World) -> f64 {
    world.reference.samples().len() as f64 / 10.0
}

/// Admitted, as a part of rate x t + burst.
pub fn since_start(world: &World) -> f64 {
    let account = world.reference.account(0, 0);
    let admitted = account.tally.admitted as f64;
    admitted / (account.rate() * seconds(world) + f64::from(account.quota.burst()))
}

/// Every POP is asked for a whole burst at once, and three times the rate from then on, until the debt
/// is paid and a while longer.
pub fn cold_burst(size: Size) -> Plan {
    let end = size.pops as u64 + 60;
    let burst = traffic::between(0, SECOND_NS, traffic::bursts(100, size.pops, 10 * SECOND_NS));
    Plan::of(size, end, traffic::merged(vec![burst, traffic::even(300.0, size.pops)]))
}

/// Time for which an attacker rests, in seconds.
fn rest(size_pops: usize) -> u64 {
    size_pops as u64 + FORGOTTEN_SECONDS
}

/// Every POP is asked for a whole burst at once, and again once the first is forgotten.
pub fn attacker(size: Size) -> Plan {
    let rest = rest(size.pops);
    Plan::of(size, rest + 10, traffic::bursts(100, size.pops, rest * SECOND_NS))
}

/// The second burst, as a part of the first.
pub fn second_burst(world: &World) -> f64 {
    let rest = rest(world.setup().pops);
    world.reference.between(rest, rest + 5, admitted) / world.reference.between(0, 5, admitted)
}

/// Many clients that exceed their quota, one after the other.
pub fn reaction(size: Size, events: u32, is_rising: bool) -> Plan {
    let traffic = if is_rising { reaction::risers(events, size.pops) } else { reaction::newcomers(events, size.pops) };
    let plan = Plan::of(size, reaction::seconds(events, is_rising), traffic);
    let setup = Setup { keys: events, keeps_times: true, slots: 256, ..plan.setup };
    Plan { setup, ..plan }
}

fn strict(plan: Plan) -> Plan {
    let setup = Setup { rules: vec![RuleText::with(r#""strict": true"#)], ..plan.setup };
    Plan { setup, ..plan }
}

/// A strict rule, asked for a burst at every POP at once, every 10 s.
pub fn strict_burst(size: Size) -> Plan {
    strict(Plan::of(size, 60, traffic::bursts(100, size.pops, 10 * SECOND_NS)))
}

/// A strict rule, asked every 15 s at one POP with this many workers for the whole burst that its budget has. Answers
/// come while other requests begin to wait. No message is lost: a request whose acquire is lost is refused.
pub fn strict_burst_at_one_pop(size: Size, workers: usize) -> Plan {
    let mut plan = Plan::of(size, 60, traffic::bursts(1_000, 1, 15 * SECOND_NS));
    let rule = RuleText::with(r#""strict": true"#);
    plan.setup.rules = vec![RuleText { burst: 1_000, ..rule }];
    plan.setup.workers = workers;
    plan.setup.near.loss = 0.0;
    plan.setup.far.delay_ns = 4_000_000;
    plan
}

/// A strict rule at three tenths of its rate, in a fleet that loses messages. Its requests wait: few come to a POP
/// between two reports. The store is `far_ns` away, there and back.
pub fn strict_below(size: Size, far_ns: u64) -> Plan {
    let mut plan = Plan::of(size, 32, traffic::between(0, 30 * SECOND_NS, traffic::even(300.0, size.pops)));
    let rule = RuleText::with(r#""strict": true"#);
    plan.setup.rules = vec![RuleText { rate: "1000/s".into(), burst: 1_000, ..rule }];
    plan.setup.far.delay_ns = far_ns / 2;
    plan
}

/// A strict rule under five times its rate while everything goes wrong.
pub fn strict_faults(size: Size) -> Plan {
    let mut plan = strict(Plan::of(size, 60, traffic::even(500.0, size.pops)));
    let lossy = Link { loss: 0.1, duplication: 0.1, ..plan.setup.near };
    let at = |s: u64| s * SECOND_NS;
    plan.faults = vec![
        (at(5), Fault::Near(lossy)),
        (at(10), Fault::PopCrash(0)),
        (at(12), Fault::PopStart(0)),
        (at(15), Fault::CutPop(1, true)),
        (at(22), Fault::CutRegion(2, true)),
        (at(25), Fault::CutPop(1, false)),
        (at(28), Fault::SyncCrash(0)),
        (at(30), Fault::SyncStart(0)),
        (at(35), Fault::CutRegion(2, false)),
        (at(40), Fault::StoreUp(false)),
        (at(45), Fault::StoreUp(true)),
    ];
    plan
}

/// Five times the rate; at a moment the store loses data.
pub fn store_loses(size: Size, loss: Fault) -> Plan {
    losing(size, vec![(FAULT_AT * SECOND_NS, loss)])
}

/// Five times the rate; the store is gone for 3 s, and the next one lacks what it wrote last.
pub fn store_fails_over(size: Size, behind_ns: u64) -> Plan {
    losing(size, faults::failover(FAULT_AT * SECOND_NS, 3 * SECOND_NS, behind_ns))
}

fn losing(size: Size, faults: faults::Schedule) -> Plan {
    let plan = Plan::of(size, LOSS_SECONDS, traffic::even(500.0, size.pops));
    Plan { faults, drain_seconds: 15, ..plan }
}

/// Admitted from ten seconds after the loss to the end of the traffic, as a part of the rate.
#[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
pub fn at_last(world: &World) -> f64 {
    let due = world.reference.account(0, 0).rate() * (LOSS_SECONDS - LAST_SECONDS) as f64;
    world.reference.between(LAST_SECONDS, LOSS_SECONDS, admitted) / due
}

/// Admissions beyond the ideal, as a part of those stated for a loss of data: the forgiven debt,
/// and twice the rate until every region has reported its demand again.
pub fn stated_part(world: &World) -> f64 {
    let account = world.reference.account(0, 0);
    let extra = account.tally.admitted as f64 - account.ideally as f64;
    // What is within the tolerance of half a minute does not count as extra.
    let extra = (extra - 0.005 * account.ideally as f64).max(0.0);
    let relearning_s = world.setup().terms.interval_ns as f64 / 1e9;
    extra / (account.forgiven + 2.0 * account.rate() * relearning_s)
}

/// Five times the rate; region 0 does not reach the store for a minute.
pub fn region_cut_off(size: Size) -> Plan {
    let back = FAULT_AT + CUT_SECONDS;
    let mut plan = Plan::of(size, back + 100, traffic::even(500.0, size.pops));
    plan.faults =
        vec![(FAULT_AT * SECOND_NS, Fault::CutRegion(0, true)), (back * SECOND_NS, Fault::CutRegion(0, false))];
    plan
}

/// The same; its weir-syncs end soon after, and start again long before the store is in reach.
pub fn region_restarted_cut_off(size: Size) -> Plan {
    let mut plan = region_cut_off(size);
    for sync in 0..plan.setup.syncs_per_region {
        plan.faults.push(((FAULT_AT + 2) * SECOND_NS, Fault::SyncCrash(sync)));
        plan.faults.push(((FAULT_AT + 4) * SECOND_NS, Fault::SyncStart(sync)));
    }
    plan
}

/// Five times the rate; the store is as far away as the other side of the earth, twice over.
pub fn store_far_away(size: Size) -> Plan {
    let plan = Plan::of(size, 120, traffic::even(500.0, size.pops));
    let far = Link { delay_ns: 400_000_000, ..plan.setup.far };
    // The time-out of weir-sync, and the round trip that it allows for.
    let store_timeout_ns = plan.setup.store_timeout_ns + 2 * far.delay_ns;
    Plan { setup: Setup { store_timeout_ns, far, ..plan.setup }, ..plan }
}

/// Admissions of region 0 while it was cut off, as a part of its share: its part of all POPs.
pub fn of_share(world: &World) -> f64 {
    let (from, to) = (FAULT_AT + 10, FAULT_AT + CUT_SECONDS);
    let Setup { pops, regions, .. } = *world.setup();
    let share = pops.div_ceil(regions) as f64 / pops as f64;
    let due = share * world.reference.account(0, 0).rate() * (to - from) as f64;
    world.reference.between(from, to, |sample| sample.regions[0].admitted) / due
}

/// A million clients.
pub fn crowd(size: Size) -> Plan {
    let plan = Plan::of(size, CROWD_SECONDS, crowd_traffic(size));
    let setup = Setup { keys: 1_000_000, is_accounted: false, slots: 1_024, ..plan.setup };
    Plan { setup, ..plan }
}

/// Keys that were ever hot, in percent.
pub fn percent_hot(world: &World) -> f64 {
    world.wire.hot_len() as f64 * 100.0 / f64::from(world.setup().keys)
}

/// Bytes on the wire of the POP that has the most, in thousands a second.
pub fn kilobytes(world: &World) -> f64 {
    world.wire.bytes_max() as f64 / CROWD_SECONDS as f64 / 1_000.0
}

/// New keys a second at two POPs each, for each POP of the fleet: 20 POPs' part of 100,000.
const NEW_KEYS_PER_POP: f64 = 5_000.0;
/// Time for which they come, in seconds.
const FLOOD_SECONDS: u64 = 20;

/// An attacker makes up keys, 10,000 requests a second at each POP, while one client asks for three
/// times its rate and another for nine tenths.
pub fn flood_of_keys(size: Size, workers: usize) -> Plan {
    let bystander = |key, per_second| traffic::of(key, 1, traffic::even(per_second, size.pops));
    let flood = many::new_keys(NEW_KEYS_PER_POP * size.pops as f64, 2, size.pops);
    let traffic = traffic::merged(vec![bystander(0, 300.0), bystander(1, 90.0), flood]);
    let plan = Plan::of(size, FLOOD_SECONDS, traffic);
    let known = RuleText { path: Some("/a"), ..RuleText::default() };
    let flooded = RuleText {
        name: "r1".into(),
        path: Some("/b"),
        rate: "10/s".into(),
        burst: 20,
        options: BY_COST.into(),
        ..RuleText::default()
    };
    let setup = Setup { rules: vec![known, flooded], keys: 2, slots: 8_192, workers, ..plan.setup };
    Plan { setup, ..plan }
}

/// Bytes on the wire of the POP that has the most, up and down, in thousands a second.
pub fn flood_kilobytes(world: &World) -> f64 {
    world.wire.bytes_max() as f64 / FLOOD_SECONDS as f64 / 1_000.0
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
