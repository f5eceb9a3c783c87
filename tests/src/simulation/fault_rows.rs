//! The rows of the table in which something goes wrong, or a strict rule is tried, and those that need one certain
//! mechanism: each fails if that is taken out (ablations.tsv has the list).

use weir_protocol::time::SECOND_NS;

use super::faults::{self, Fault};
use super::reference::Sample;
use super::scenario::{Plan, Size};
use super::setup::{Link, RuleText, Setup};
use super::traffic;
use super::world::World;

/// The time at which faults begin, in seconds.
const FAULT_AT: u64 = 20;
/// Time for which a region is cut off, in seconds.
const CUT_SECONDS: u64 = 60;
/// Time for which a store's loss is watched, and the time from which its end is, in seconds.
const LOSS_SECONDS: u64 = 120;
const LAST_SECONDS: u64 = 30;
/// A little more than how long a budget is remembered once its debt is paid, in seconds.
const FORGOTTEN_SECONDS: u64 = 65;

fn admitted(sample: &Sample) -> u64 {
    sample.tally.admitted
}

fn seconds(world: &World) -> f64 {
    world.reference.samples.len() as f64 / 10.0
}

/// Admitted, as a part of rate x t + burst.
pub(super) fn since_start(world: &World) -> f64 {
    let account = world.reference.account(0, 0);
    let admitted = account.tally.admitted as f64;
    admitted / (account.rate() * seconds(world) + f64::from(account.quota.burst()))
}

/// Every POP is asked for a whole burst at once, and three times the rate from then on, until the debt
/// is paid and a while longer.
pub(super) fn cold_burst(size: Size) -> Plan {
    let end = size.pops as u64 + 60;
    let burst = traffic::between(0, SECOND_NS, traffic::bursts(100, size.pops, 10 * SECOND_NS));
    Plan::of(size, end, traffic::merged(vec![burst, traffic::even(300.0, size.pops)]))
}

/// Time for which an attacker rests, in seconds.
fn rest(size_pops: usize) -> u64 {
    size_pops as u64 + FORGOTTEN_SECONDS
}

/// Every POP is asked for a whole burst at once, and again once the first is forgotten.
pub(super) fn attacker(size: Size) -> Plan {
    let rest = rest(size.pops);
    Plan::of(size, rest + 10, traffic::bursts(100, size.pops, rest * SECOND_NS))
}

/// The second burst, as a part of the first.
pub(super) fn second_burst(world: &World) -> f64 {
    let rest = rest(world.setup.pops);
    world.reference.between(rest, rest + 5, admitted) / world.reference.between(0, 5, admitted)
}

fn strict() -> RuleText {
    RuleText::with(r#""strict": true"#)
}

/// A strict rule, asked for a burst at every POP at once, every 10 s.
pub(super) fn strict_burst(size: Size) -> Plan {
    Plan::of(size, 60, traffic::bursts(100, size.pops, 10 * SECOND_NS)).under(strict())
}

/// A strict rule, asked every 15 s at one POP with this many workers for the whole burst that its budget has. Answers
/// come while other requests begin to wait. No message is lost: a request whose acquire is lost is refused.
pub(super) fn strict_burst_at_one_pop(size: Size, workers: usize) -> Plan {
    let plan = Plan::of(size, 60, traffic::bursts(1_000, 1, 15 * SECOND_NS));
    plan.under(RuleText { burst: 1_000, ..strict() }).with(|setup| {
        (setup.workers, setup.near.loss, setup.far.delay_ns) = (workers, 0.0, 4_000_000);
    })
}

/// A strict rule at three tenths of its rate, in a fleet that loses messages. Its requests wait: few come to a POP
/// between two reports. The store is `far_ns` away, there and back.
pub(super) fn strict_below(size: Size, far_ns: u64) -> Plan {
    let plan = Plan::of(size, 32, traffic::between(0, 30 * SECOND_NS, traffic::even(300.0, size.pops)));
    let rule = RuleText { rate: "1000/s".into(), burst: 1_000, ..strict() };
    plan.under(rule).with(|setup| setup.far.delay_ns = far_ns / 2)
}

/// A strict rule under five times its rate while everything goes wrong.
pub(super) fn strict_faults(size: Size) -> Plan {
    let plan = Plan::of(size, 60, traffic::even(500.0, size.pops)).under(strict());
    let lossy = Link { loss: 0.1, duplication: 0.1, ..plan.setup.near };
    let at = |s: u64| s * SECOND_NS;
    plan.hurt(vec![
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
    ])
}

/// Five times the rate; at a moment the store loses data.
pub(super) fn store_loses(size: Size, loss: Fault) -> Plan {
    losing(size, vec![(FAULT_AT * SECOND_NS, loss)])
}

/// Five times the rate; the store is gone for 3 s, and the next one lacks what it wrote last.
pub(super) fn store_fails_over(size: Size, behind_ns: u64) -> Plan {
    losing(size, faults::failover(FAULT_AT * SECOND_NS, 3 * SECOND_NS, behind_ns))
}

fn losing(size: Size, faults: faults::Schedule) -> Plan {
    Plan::of(size, LOSS_SECONDS, traffic::even(500.0, size.pops)).hurt(faults).drained()
}

/// Admitted from ten seconds after the loss to the end of the traffic, as a part of the rate.
pub(super) fn at_last(world: &World) -> f64 {
    let due = world.reference.account(0, 0).rate() * (LOSS_SECONDS - LAST_SECONDS) as f64;
    world.reference.between(LAST_SECONDS, LOSS_SECONDS, admitted) / due
}

/// Admissions beyond the ideal, as a part of those stated for a loss of data: the forgiven debt,
/// and twice the rate until every region has reported its demand again.
pub(super) fn stated_part(world: &World) -> f64 {
    let account = world.reference.account(0, 0);
    let extra = account.tally.admitted as f64 - account.ideally as f64;
    // What is within the tolerance of half a minute does not count as extra.
    let extra = (extra - 0.005 * account.ideally as f64).max(0.0);
    let relearning_s = world.setup.terms.interval_ns as f64 / 1e9;
    extra / (account.forgiven + 2.0 * account.rate() * relearning_s)
}

/// Five times the rate; region 0 does not reach the store for a minute.
pub(super) fn region_cut_off(size: Size) -> Plan {
    let back = FAULT_AT + CUT_SECONDS;
    let cut = [(FAULT_AT, true), (back, false)].map(|(at, is_cut)| (at * SECOND_NS, Fault::CutRegion(0, is_cut)));
    Plan::of(size, back + 100, traffic::even(500.0, size.pops)).hurt(cut.to_vec())
}

/// The same; its weir-syncs end soon after, and start again long before the store is in reach.
pub(super) fn region_restarted_cut_off(size: Size) -> Plan {
    let mut plan = region_cut_off(size);
    for sync in 0..plan.setup.syncs_per_region {
        plan.faults.push(((FAULT_AT + 2) * SECOND_NS, Fault::SyncCrash(sync)));
        plan.faults.push(((FAULT_AT + 4) * SECOND_NS, Fault::SyncStart(sync)));
    }
    plan
}

/// Admissions of region 0 while it was cut off, as a part of its share: its part of all POPs.
pub(super) fn of_share(world: &World) -> f64 {
    let (from, to) = (FAULT_AT + 10, FAULT_AT + CUT_SECONDS);
    let Setup { pops, regions, .. } = world.setup;
    let share = pops.div_ceil(regions) as f64 / pops as f64;
    let due = share * world.reference.account(0, 0).rate() * (to - from) as f64;
    world.reference.between(from, to, |sample| sample.regions[0].admitted) / due
}

/// The time at which a POP is cut off from its weir-sync, in seconds.
const CUT_AT: u64 = 20;
/// The time at which a POP's link falls silent, ...
const SILENT_AT: [u64; 3] = [10, 25, 40];
/// ... for how long, ...
const SILENT_SECONDS: u64 = 4;
/// ... and how long what comes then is watched, in seconds.
const BUNCH_SECONDS: u64 = 5;
/// The number of times that a POP is cut off with tokens that it leased.
const ROUNDS: u64 = 8;
/// Keys of a crowded slot.
const CROWDED: u32 = 12;
/// The number of bursts of its own that a POP is asked for, ...
const OWN_BURSTS: u64 = 4;
/// ... and how far apart, in seconds.
const APART: u64 = 10;

/// Five times the rate, over links on which reports overtake each other and arrive again after later ones.
pub(super) fn overtaking(size: Size) -> Plan {
    let plan = Plan::of(size, 60, traffic::even(500.0, size.pops));
    plan.with(|setup| (setup.near.jitter_ns, setup.near.duplication) = (3 * SECOND_NS / 10, 0.3)).drained()
}

/// Five times the rate everywhere; then the client goes to POP 0, which at that moment loses its
/// weir-sync, with a grant that lets a fifth through.
pub(super) fn lease_ends(size: Size) -> Plan {
    let moves = CUT_AT * SECOND_NS;
    let before = traffic::between(0, moves, traffic::even(500.0, size.pops));
    let after = traffic::between(moves, 60 * SECOND_NS, traffic::even(300.0, 1));
    Plan::of(size, 50, traffic::merged(vec![before, after])).hurt(vec![(moves, Fault::CutPop(0, true))])
}

/// Admissions once the lease was over, as a part of the rate.
pub(super) fn own_quota(world: &World) -> f64 {
    let admitted = world.reference.between(30, 50, |sample| sample.tally.admitted);
    admitted / (world.reference.account(0, 0).rate() * 20.0)
}

/// Three times the rate at POP 0 alone, whose link falls silent and then delivers all at once, in order.
pub(super) fn silent_then_a_bunch(size: Size) -> Plan {
    let plan = Plan::of(size, 60, traffic::even(300.0, 1));
    let plan = plan.with(|setup| setup.near = Link::perfect(setup.near.delay_ns));
    let silences = SILENT_AT.map(|at| (at * SECOND_NS, Fault::Silence(0, SILENT_SECONDS * SECOND_NS)));
    plan.hurt(silences.to_vec())
}

/// Admissions in the seconds after a silence, as a part of the ideal bucket's; the least of all.
pub(super) fn after_a_bunch(world: &World) -> f64 {
    let after = |at: u64| (at + SILENT_SECONDS, at + SILENT_SECONDS + BUNCH_SECONDS);
    let part = |at| world.reference.part(after(at), admitted, |sample| sample.ideally);
    SILENT_AT.map(part).into_iter().fold(f64::INFINITY, f64::min)
}

/// A burst at every POP; then POP 0 loses its weir-sync, with a grant of a part of the burst, and is asked for
/// bursts of its own when its lease is over.
pub(super) fn lease_ends_after_a_burst(size: Size) -> Plan {
    let (begin, end) = own_bursts_span(size.pops);
    let burst = traffic::between(0, SECOND_NS, traffic::bursts(100, size.pops, end * SECOND_NS));
    let own = traffic::bursts(100, 1, APART * SECOND_NS);
    let own = traffic::between(begin * SECOND_NS, end * SECOND_NS, own);
    Plan::of(size, end, traffic::merged(vec![burst, own])).hurt(vec![(CUT_AT * SECOND_NS, Fault::CutPop(0, true))])
}

/// From when to when they are asked for, in seconds: once the debt is paid, and the longest lease is over.
fn own_bursts_span(pops: usize) -> (u64, u64) {
    let begin = pops as u64 + 150;
    (begin, begin + OWN_BURSTS * APART)
}

/// The part of the POP's own bursts that was admitted.
pub(super) fn own_bursts(world: &World) -> f64 {
    world.reference.part(own_bursts_span(world.setup.pops), admitted, |sample| sample.tally.offered)
}

/// A strict rule. Again and again POP 0 is cut off, at times with tokens on hand that it leased ahead. It is not
/// asked for them until their lease is over; then every POP is asked for a burst.
pub(super) fn strict_lease_ends(size: Size) -> Plan {
    // The burst comes later than any lease ends, and sooner than the POP falls back on the rule.
    let [round, cut, burst, healed] = [15, 8, 12, 13].map(|s| s * SECOND_NS);
    let steady = traffic::when(traffic::even(90.0, 1), move |at| at % round < cut);
    let end = ROUNDS * round;
    let bursts = traffic::between(burst, end, traffic::bursts(100, size.pops, round));
    let plan = Plan::of(size, end / SECOND_NS, traffic::merged(vec![steady, bursts])).under(strict());
    let (near, far) = (plan.setup.near, plan.setup.far);
    // With slow links, what refills on the way to the others would hide as many tokens.
    let quick = Link::perfect(1_000_000);
    let links =
        |at, is_cut, near, far| [Fault::CutPop(0, is_cut), Fault::Near(near), Fault::Far(far)].map(|fault| (at, fault));
    let rounds = (0..ROUNDS)
        .map(|n| n * round)
        .flat_map(|begin| [links(begin + cut, true, quick, quick), links(begin + healed, false, near, far)].concat());
    plan.hurt(rounds.collect())
}

/// More keys than a slot has places for, each of which asks for more than its burst when it comes. Their POP reaches no
/// weir-sync, so all that they get comes from its table.
pub(super) fn crowded_slot(size: Size) -> Plan {
    let asking = (0..CROWDED).map(|key| {
        let at = u64::from(key) * SECOND_NS / 5;
        let bursts = traffic::bursts(30, 1, u64::from(CROWDED) * SECOND_NS / 5);
        traffic::of(key, 0, traffic::between(at, u64::MAX, bursts))
    });
    let rule = RuleText { rate: "1/s".into(), burst: 20, ..RuleText::default() };
    let plan = Plan::of(size, 30, traffic::merged(asking.collect())).hurt(vec![(0, Fault::CutPop(0, true))]);
    plan.under(rule).with(|setup| setup.keys = CROWDED)
}

/// The time at which the clock steps, in seconds.
const STEP_AT: u64 = 25;
/// The length of it all, in seconds.
const STEPS_SECONDS: u64 = 100;

fn steps(at: u64, seconds: i64) -> (u64, Fault) {
    (at * SECOND_NS, Fault::StoreClock(seconds * 1_000_000))
}

/// A burst at every POP, and three times the rate; the clock steps before the burst is paid back.
pub(super) fn in_debt(size: Size, seconds: i64) -> Plan {
    let bursts = traffic::between(0, SECOND_NS, traffic::bursts(100, size.pops, 10 * SECOND_NS));
    // Until the debt is paid, and a while longer.
    let seconds_long = size.pops as u64 + STEPS_SECONDS;
    Plan::of(size, seconds_long, traffic::merged(vec![bursts, traffic::even(300.0, size.pops)]))
        .hurt(vec![steps(2, seconds)])
}

/// Three times the rate all the time; the clock steps, and steps back later.
pub(super) fn to_and_fro(size: Size, seconds: i64) -> Plan {
    let faults = vec![steps(STEP_AT, seconds), steps(2 * STEP_AT, -seconds)];
    Plan::of(size, STEPS_SECONDS, traffic::even(300.0, size.pops)).hurt(faults).drained()
}

/// This many requests a second; the clocks of half of the POPs step back by 5 minutes, as where virtual machines
/// are moved.
pub(super) fn of_half_of_the_pops(size: Size, per_second: f64) -> Plan {
    let back = |pop| (STEP_AT * SECOND_NS, Fault::PopClock(pop, -300 * SECOND_NS.cast_signed()));
    let faults = (0..size.pops).step_by(2).map(back).collect();
    Plan::of(size, STEPS_SECONDS, traffic::even(per_second, size.pops)).hurt(faults)
}

/// A strict rule at three times its rate.
pub(super) fn strict_steps(size: Size, seconds: i64) -> Plan {
    to_and_fro(size, seconds).under(strict())
}

/// A strict rule whose burst takes ten minutes to refill and is spent when the clock steps by as much.
pub(super) fn slow_strict_step(size: Size) -> Plan {
    let rule = RuleText { rate: "1/s".into(), burst: 600, ..strict() };
    Plan::of(size, STEPS_SECONDS, traffic::even(60.0, size.pops)).under(rule).hurt(vec![steps(STEP_AT, 600)])
}

/// Admissions from the step on beyond those of the ideal bucket, in bursts.
pub(super) fn bursts_beyond(world: &World) -> f64 {
    let of = |figure: fn(&Sample) -> u64| world.reference.between(STEP_AT, STEPS_SECONDS, figure);
    let beyond = of(|sample| sample.tally.admitted) - of(|sample| sample.ideally);
    beyond / f64::from(world.reference.account(0, 0).quota.burst())
}

/// Admissions beyond burst + rate x t in any span, in bursts.
pub(super) fn overshoot_bursts(world: &World) -> f64 {
    let account = world.reference.account(0, 0);
    account.overshoot_max / f64::from(account.quota.burst())
}
