//! Requests in flight that the fleet counts, under loss, crashes and partitions, beside a naive model that sees all
//! POPs at once.

use weir_protocol::time::SECOND_NS;

use super::reserved::Lasting;
use super::scenario::{Plan, Size};
use super::setup::{Ends, RuleText};
use super::windows::{ALL_AT_ONE_NS, SECONDS, at_one_in_the_end, trouble};
use super::world::World;

/// The limit of requests in flight. Of 400 that come each second, some 400 would be.
const LIMIT: i32 = 100;
/// The longest time that a request takes.
const LASTS_NS_MAX: u64 = 2 * SECOND_NS;
/// For how long the figures are taken.
const LOOK_NS: u64 = 3 * SECOND_NS;

/// At last all requests come to one POP: it is to get what all get otherwise.
pub fn concurrency(size: Size) -> Plan {
    let options = format!(
        r#""algorithm": "concurrency", "limit": {LIMIT}, "expires_after_s": {}, "strict": true"#,
        LASTS_NS_MAX / SECOND_NS + 1
    );
    let rule = RuleText { rate: String::new(), burst: 0, options, ..RuleText::default() };
    let mut plan = trouble(size, rule, at_one_in_the_end(size));
    plan.setup.ends = Some(Ends { lasts_ns: LASTS_NS_MAX, cost: 0 });
    plan
}

/// By how many the most that were in flight at once are above the limit.
pub fn above(world: &World) -> f64 {
    let ends = |Lasting { span: (from, to), .. }: &Lasting| [(*from, 1), (*to, -1)];
    let mut changes: Vec<_> = world.lasting.iter().flat_map(ends).collect();
    changes.sort_unstable();
    let in_flight = changes.iter().scan(0_i32, |in_flight, (_, change)| {
        *in_flight += change;
        Some(*in_flight)
    });
    f64::from((in_flight.max().unwrap_or(0) - LIMIT).max(0))
}

/// The number in flight before all requests come to one POP, as a part of the limit.
pub fn used_by_all(world: &World) -> f64 {
    used_until(world, ALL_AT_ONE_NS)
}

/// The same when they do.
pub fn used_by_one(world: &World) -> f64 {
    used_until(world, SECONDS * SECOND_NS)
}

fn used_until(world: &World, end: u64) -> f64 {
    let begin = end - LOOK_NS;
    let within = |Lasting { span: (from, to), .. }: &Lasting| (*to).min(end).saturating_sub((*from).max(begin));
    let sum: u64 = world.lasting.iter().map(within).sum();
    sum as f64 / LOOK_NS as f64 / f64::from(LIMIT)
}
