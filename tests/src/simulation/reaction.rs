//! Time from the first token beyond the quota until the fleet keeps to its rate.

use weir_protocol::time::SECOND_NS;

use super::account::Account;
use super::scenario::{Plan, Size};
use super::traffic::{self, Traffic};
use super::world::World;

/// The part above its rate at which a fleet still counts as keeping to it.
const WITHIN: f64 = 1.05;
/// And the part of the burst that it may be off at any time: admissions are whole.
const SLACK_PART: f64 = 0.05;
/// Clients whose events overlap.
const AT_ONCE: u32 = 10;
/// Time for which a client asks for five times the rate, in nanoseconds.
const EXCESS_NS: u64 = 2 * SECOND_NS;

fn staggered(events: u32, quiet_ns: u64, pops: usize) -> Traffic {
    let each_ns = quiet_ns + EXCESS_NS;
    let lane = move |lane: u32| -> Traffic {
        let clients = (lane..events).step_by(AT_ONCE as usize).map(move |key| {
            let turn = u64::from(key / AT_ONCE);
            // Lanes begin apart, and not in step with the interval.
            let begin = turn * each_ns + u64::from(lane) * each_ns / u64::from(AT_ONCE);
            let excess = traffic::between(begin + quiet_ns, begin + each_ns, traffic::even(500.0, pops));
            let quiet = traffic::between(begin, begin + quiet_ns, traffic::even(40.0, pops));
            traffic::of(key, 0, chain(quiet, excess))
        });
        let mut clients = clients.collect::<Vec<_>>().into_iter();
        let mut current = clients.next();
        Box::new(move |rng| {
            loop {
                if let Some(arrival) = current.as_mut()?(rng) {
                    return Some(arrival);
                }
                current = clients.next();
            }
        })
    };
    traffic::merged((0..AT_ONCE.min(events)).map(lane).collect())
}

fn chain(mut first: Traffic, mut second: Traffic) -> Traffic {
    let mut is_over = false;
    Box::new(move |rng| {
        if !is_over {
            if let Some(arrival) = first(rng) {
                return Some(arrival);
            }
            is_over = true;
        }
        second(rng)
    })
}

/// Time that one client's event took, in milliseconds; `None` if the quota was never exceeded.
pub fn time_ms(account: &Account) -> Option<f64> {
    let begin = account.first_excess?;
    let times = account.times.as_deref()?;
    let (rate, slack) = (account.rate() * WITHIN, f64::from(account.quota.burst()) * SLACK_PART);
    // How far the count is ahead of the rate at an admission; later ones may not be further ahead.
    let ahead = |i: usize| i as f64 - rate * times[i] as f64 / SECOND_NS as f64;
    let mut furthest = f64::MIN;
    let mut settled = times.len();
    for i in (0..times.len()).rev() {
        furthest = furthest.max(ahead(i));
        if times[i] < begin {
            break;
        }
        // From just after admission i on.
        if furthest - ahead(i) <= slack {
            settled = i;
        }
    }
    let end = times.get(settled).copied().unwrap_or(begin);
    Some(end.saturating_sub(begin) as f64 / 1e6)
}

/// The time that all but one in a hundred events keep within, in milliseconds.
pub fn p99_ms(world: &World) -> f64 {
    let mut times: Vec<_> = world.reference.accounts().filter_map(|(_, _, a)| time_ms(a)).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() * 99 / 100).copied().unwrap_or(f64::NAN)
}

/// Events in which the quota was exceeded.
pub fn events(world: &World) -> f64 {
    world.reference.accounts().filter(|(_, _, a)| a.first_excess.is_some()).count() as f64
}

/// Clients, one for each event, that begin at five times the rate everywhere, or ask for 0.4 times the rate for a while
/// before.
pub fn reaction(size: Size, events: u32, is_rising: bool) -> Plan {
    let quiet_ns = if is_rising { 2 * SECOND_NS } else { 0 };
    let each = if is_rising { 4 } else { 2 };
    let seconds = u64::from(events.div_ceil(AT_ONCE)) * each + 4;
    let plan = Plan::of(size, seconds, staggered(events, quiet_ns, size.pops));
    plan.with(|setup| (setup.keys, setup.keeps_times, setup.slots) = (events, true, 256))
}
