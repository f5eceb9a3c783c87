//! Descriptions of a rule's quota, its algorithm, and the cost of a request.

use weir_protocol::calendar::Calendar;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::time::SECOND_NS;
use weir_rules::Rule;
use weir_rules::after::After;
use weir_rules::algorithm::Algorithm;
use weir_rules::cost::Cost;
use weir_rules::request::{Attributes, Source};
use weir_rules::variant::{Tier, TierQuota};

use super::condition::{named, source};

const UNITS: [(u64, &str); 3] = [(86_400, "day"), (3_600, "hour"), (60, "minute")];

/// Description of a tier's quota; `rule` is the rule made for the tier.
pub(crate) fn of_tier(tier: &Tier, rule: &Rule) -> String {
    let limit = rule.algorithm.limit();
    match (&tier.change, rule.sharing.refill_policy.windows(), rule.rate) {
        (TierQuota::Unlimited, ..) => "not limited".into(),
        (TierQuota::Times(times), ..) => format!("{times} times as much"),
        (_, Some(calendar), None) => format!("{limit}/{}", window(calendar)),
        (_, _, Some(rate)) => match rule.algorithm {
            Algorithm::TokenBucket(quota) if quota.burst() != rate.count() => format!("{rate}, {limit} at once"),
            _ => rate.to_string(),
        },
        (_, _, None) => format!("{limit} in flight"),
    }
}

pub(crate) fn allowance(rule: &Rule) -> String {
    let limit = rule.algorithm.limit();
    let rate = || match rule.rate {
        Some(rate) => rate.to_string(),
        None => format!("one every {}", span(rule.quota.token_ns())),
    };
    match rule.sharing.refill_policy {
        RefillPolicy::Continuous => {}
        RefillPolicy::Queue => return turns(rule, &format!("{}, one after the other over the whole fleet", rate())),
        RefillPolicy::InFlight(expires_s) => {
            let expires = article(&span(u64::from(expires_s) * SECOND_NS));
            return format!(
                "{limit} in flight at once, counted for the whole fleet; after {expires} a request whose end was not \
                 seen counts no more"
            );
        }
        RefillPolicy::Log(length_s) => {
            let length = span(u64::from(length_s) * SECOND_NS);
            return format!("{limit} in any {length}, to the letter, counted for the whole fleet");
        }
        RefillPolicy::Window(calendar) => {
            let (length, begins) = (window(calendar), begins(calendar));
            return format!("{limit} in each {length} of the calendar ({begins}), counted for the whole fleet");
        }
        RefillPolicy::Sliding(calendar) => {
            let estimated = "estimated from the counts of two windows, counted for the whole fleet";
            return format!("{limit} in any {}, {estimated}", window(calendar));
        }
    }
    match &rule.algorithm {
        Algorithm::TokenBucket(quota) => format!("{}, {} at once", rate(), quota.burst()),
        Algorithm::FixedWindow(window) => {
            let length = article(&span(window.length_ns()));
            format!("{limit} in each window of {length}; each key's windows begin at a time of their own")
        }
        Algorithm::SlidingWindow(window) => {
            format!("{limit} in any {}, estimated from the counts of two windows", span(window.length_ns()))
        }
        Algorithm::SlidingLog(window) => format!("{limit} in any {}, to the letter", span(window.length_ns())),
        Algorithm::LeakyBucket(_) => turns(rule, &format!("{}, one after the other", rate())),
        Algorithm::Concurrency(concurrency) => {
            let expires = article(&span(concurrency.expires_ns()));
            format!("{limit} in flight at once; after {expires} a request counts no more")
        }
    }
}

/// Maximum in any window of the rule's length, if that exceeds the rule's limit.
pub(crate) fn in_any_window(rule: &Rule) -> Option<String> {
    let limit = u64::from(rule.algorithm.limit());
    let rate = rule.rate.map(|rate| (u64::from(rate.count()), span(rate.span().nanos())));
    let (most, length) = match (rule.sharing.refill_policy, &rule.algorithm) {
        // The limit at the end of one window, and again in the next. A sliding window forgets the previous window
        // while the current one passes.
        (RefillPolicy::Window(calendar) | RefillPolicy::Sliding(calendar), _) => (2 * limit, window(calendar)),
        (RefillPolicy::Continuous, Algorithm::FixedWindow(window) | Algorithm::SlidingWindow(window)) => {
            (2 * limit, span(window.length_ns()))
        }
        (RefillPolicy::Continuous, Algorithm::TokenBucket(quota)) => {
            rate.map(|(count, length)| (u64::from(quota.burst()) + count, length))?
        }
        (RefillPolicy::Continuous, Algorithm::LeakyBucket(_)) | (RefillPolicy::Queue, _) => {
            rate.map(|(count, length)| (count + 1, length))?
        }
        (RefillPolicy::Log(_) | RefillPolicy::InFlight(_), _)
        | (_, Algorithm::SlidingLog(_) | Algorithm::Concurrency(_)) => {
            return None;
        }
    };
    let what = if rule.cost == Cost::Fixed(1) && rule.after.is_none() { "requests" } else { "tokens" };
    let at = if matches!(rule.algorithm, Algorithm::TokenBucket(_)) { "In" } else { "At each POP, in" };
    Some(format!("{at} any {length} up to {most} {what}."))
}

fn turns(rule: &Rule, go_on: &str) -> String {
    match rule.quota.burst() - 1 {
        0 => format!("{go_on}; none waits, the rest is limited at once"),
        queue => {
            let longest = span(rule.quota.token_ns().saturating_mul(queue.into()));
            format!("{go_on}: {queue} wait for their turn, the last for {longest}, the rest is limited at once")
        }
    }
}

/// Length of a window in words: `month`, `15 minutes`.
fn window(calendar: Calendar) -> String {
    match calendar.even() {
        None => "month".into(),
        Some((604_800, _)) => "week".into(),
        Some((length_s, _)) => span(u64::from(length_s) * SECOND_NS),
    }
}

fn begins(calendar: Calendar) -> String {
    let at = |seconds: u32| format!("{:02}:{:02}", seconds / 3_600, seconds / 60 % 60);
    match calendar {
        Calendar::Every { length_s: 604_800, phase_s } => {
            let day = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"]
                [phase_s as usize / 86_400 % 7];
            format!("from {day}, {} UTC", at(phase_s % 86_400))
        }
        Calendar::Every { length_s: 86_400, phase_s: phase_s @ 1.. } => format!("from {} UTC", at(phase_s)),
        Calendar::Every { phase_s: 1.., .. } if calendar.longest_us() == 3_600_000_000 => {
            format!("from {} minutes past, UTC", calendar.even().map_or(0, |(_, phase_s)| phase_s / 60))
        }
        Calendar::Month(minutes) if minutes != 0 => {
            let sign = if minutes < 0 { '-' } else { '+' };
            format!("UTC{sign}{}", at(minutes.unsigned_abs() * 60))
        }
        _ => "UTC".into(),
    }
}

/// Description of a request's cost, or `None` if it is one token.
pub(crate) fn cost(rule: &Rule, attributes: &Attributes) -> Option<String> {
    if let Some(after) = rule.after.as_deref() {
        let charged = match after {
            After::Status(statuses) => {
                let statuses = named(statuses.iter().map(ToString::to_string), "or");
                format!("one token if its status is {statuses}, else nothing")
            }
            After::Header { name, default, max } => response_cost(&format!("its header {name}"), *default, *max, rule),
            After::Metadata { path, default, max } => {
                response_cost(&format!("the metadata {}", path.join(".")), *default, *max, rule)
            }
            After::Bytes { per: 1 } => "one token for each byte of it".into(),
            After::Bytes { per } => format!("one token for every {per} bytes of it"),
        };
        if !rule.reserves {
            let text = "A request needs a token to be there and takes none; its response is charged";
            return Some(format!("{text}: {charged}, even into debt."));
        }
        let taken = taken(rule, attributes);
        return Some(format!(
            "A request reserves {taken}; its response is charged instead: {charged}, even into debt."
        ));
    }
    (rule.cost != Cost::Fixed(1)).then(|| format!("A request takes {}.", taken(rule, attributes)))
}

fn taken(rule: &Rule, attributes: &Attributes) -> String {
    match rule.cost {
        Cost::Fixed(1) => "a token".into(),
        Cost::Fixed(cost) => format!("{cost} tokens"),
        Cost::Header { attribute, default, max } => {
            let header = source(&Source::Attribute(attribute), attributes);
            format!("as many tokens as its {header} states, at most {max}, or {default} if it states none")
        }
    }
}

fn response_cost(place: &str, default: Option<u32>, max: u32, rule: &Rule) -> String {
    let default = match default {
        Some(default) => default.to_string(),
        None if rule.reserves => "what was reserved".into(),
        None => "0".into(),
    };
    format!("as many tokens as {place} states, at most {max}, or {default} if it states none")
}

/// A length of time: `15 minutes`, `2.5 s`.
pub(crate) fn span(ns: u64) -> String {
    let seconds = ns / SECOND_NS;
    let unit = UNITS.into_iter().find(|(unit, _)| ns.is_multiple_of(unit * SECOND_NS) && ns > 0);
    match unit {
        Some((unit, name)) if seconds == unit => name.into(),
        Some((unit, name)) => format!("{} {name}s", seconds / unit),
        None if ns == SECOND_NS => "second".into(),
        None if ns.is_multiple_of(SECOND_NS) => format!("{seconds} seconds"),
        None => {
            let micros = ns.div_ceil(1_000);
            format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000).trim_end_matches('0').to_owned() + " s"
        }
    }
}

/// A length of time with an article or a number: `a minute`, `15 minutes`.
pub(crate) fn article(span: &str) -> String {
    let article = if span == "hour" { "an" } else { "a" };
    if span.contains(' ') { span.into() } else { format!("{article} {span}") }
}
