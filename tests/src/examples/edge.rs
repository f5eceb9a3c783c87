//! Plays a script to the real limiter of one POP.

use std::collections::VecDeque;
use std::time::Duration;

use weir_limiter::decision::{Decision, Outcome};
use weir_limiter::key::Secret;
use weir_limiter::limiter::{Afterwards, Limiter, Reporter, TableIdentity, What};
use weir_limiter::response::{Answers, BLOCKED_STATUS, DENIED_STATUS};
use weir_limiter::table::LocalSlots;
use weir_rules::RuleSet;
use weir_rules::after::After;
use weir_rules::request::{Attribute, Request};
use weir_wire::time::Time;

use super::budgets::Budgets;
use super::script::{Expected, Line, Requests, Step, Upstream, duration, parse};

/// When a script begins, on the POP's clock; some way from zero, which is a whole number of every window.
const BEGIN: Duration = Duration::from_secs(1_000_000_007);
/// What the wall clock reads then, in seconds since 1970: the first of June 2026, 00:00 UTC.
const BEGIN_UNIX_S: u64 = 1_780_272_000;
/// Slots in the table.
const SLOTS: u32 = 256;

/// A POP that plays a script.
struct Edge {
    limiter: Limiter,
    slots: LocalSlots,
    now: Time,
    /// weir-sync; none where the script never names it.
    budgets: Option<Budgets>,
    is_in_touch: bool,
    in_flight: VecDeque<Afterwards>,
}

/// What became of the requests of a line.
#[derive(Default)]
struct Seen {
    outcomes: Vec<(Outcome, Option<String>)>,
    held: Vec<Duration>,
    last: Option<Decision>,
}

/// Plays `block` to a POP with these rules; an error says which line came to something else, and what.
pub fn play(rules: RuleSet, block: &str) -> Result<(), String> {
    let steps = parse(block)?;
    let is_in_a_fleet = steps.iter().any(|step| matches!(step.line, Line::InTouch(_)));
    let mut edge = Edge::new(rules, is_in_a_fleet);
    for step in &steps {
        if let Some(at) = step.at {
            edge.now = edge.now.max(time(BEGIN + at));
        }
        edge.step(step).map_err(|found| format!("{}\n  {found}", step.text))?;
    }
    Ok(())
}

fn time(at: Duration) -> Time {
    Time::from_nanos(u64::try_from(at.as_nanos()).expect("within centuries"))
}

impl Edge {
    fn new(rules: RuleSet, is_in_a_fleet: bool) -> Self {
        let identity = TableIdentity { secret: Secret::new([7; 16]), table_id: 1 };
        let reporter = is_in_a_fleet.then(|| Reporter { pop: "fra1".into(), worker: 1 });
        let unix_us = (BEGIN_UNIX_S - BEGIN.as_secs()) * 1_000_000;
        Self {
            limiter: Limiter::new(rules, identity, reporter),
            slots: LocalSlots::new(SLOTS),
            now: time(BEGIN),
            budgets: is_in_a_fleet.then(|| Budgets::new(unix_us)),
            is_in_touch: false,
            in_flight: VecDeque::new(),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        self.exchange();
        match &step.line {
            Line::InTouch(is_in_touch) => {
                self.is_in_touch = *is_in_touch;
                self.exchange();
                Ok(())
            }
            Line::End(count) => {
                if self.in_flight.len() < *count {
                    return Err(format!("there are {} in flight", self.in_flight.len()));
                }
                for done in self.in_flight.drain(..count) {
                    self.limiter.release(done, &mut self.slots, self.now);
                }
                Ok(())
            }
            Line::Requests(requests) => {
                let seen = self.send(requests);
                compare(&seen.outcomes, &requests.outcomes)?;
                step.details.iter().try_for_each(|(name, value)| self.check(&seen, name, value))
            }
        }
    }

    /// A report and its answer, where there is somebody to answer.
    fn exchange(&mut self) {
        let Some(budgets) = self.budgets.as_mut().filter(|_| self.is_in_touch) else { return };
        let Some(report) = self.limiter.report(&mut self.slots, true, self.now) else { return };
        let reply = budgets.answer(&report, self.now);
        self.limiter.apply(report.sequence, &reply, &mut self.slots, self.now).expect("a good reply");
    }

    fn send(&mut self, requests: &Requests) -> Seen {
        let mut seen = Seen::default();
        for _ in 0..requests.times {
            let mut decision = self.decide(requests);
            let rule = decision
                .strictest()
                .and_then(|(rule, _)| self.limiter.rules().rules().get(usize::from(rule)));
            seen.outcomes.push((decision.outcome(), rule.map(|rule| rule.name.clone())));
            if let Decision::Allow { hold_ns, afterwards, .. } = &mut decision {
                seen.held.push(Duration::from_nanos(*hold_ns));
                for done in std::mem::take(afterwards) {
                    self.end(done, &requests.answer);
                }
            }
            seen.last = Some(decision);
        }
        seen
    }

    fn decide(&mut self, requests: &Requests) -> Decision {
        let mut asked = Asked(requests);
        let decision = self.limiter.decide(&mut asked, &mut self.slots, self.now);
        let Decision::Wait(report) = decision else { return decision };
        let mut is_answered = false;
        if let Some(budgets) = self.budgets.as_mut().filter(|_| self.is_in_touch) {
            let reply = budgets.answer(&report, self.now);
            let drawn = self.limiter.drawn(report.sequence, &reply, &mut self.slots, self.now);
            is_answered = drawn.expect("a good reply");
        } else {
            self.limiter.draw_failed(report.sequence, &mut self.slots, self.now);
        }
        self.limiter.decide_again(is_answered, &mut asked, &mut self.slots, self.now)
    }

    /// What is left to do of a request: it goes on being in flight, or its response is there and is charged.
    fn end(&mut self, done: Afterwards, answer: &Upstream) {
        let cost = match &done.what {
            What::Release { .. } => return self.in_flight.push_back(done),
            What::Charge(after) => cost_of(after, answer),
        };
        self.limiter.charge(done, cost, &mut self.slots, self.now);
    }

    /// An indented line.
    fn check(&mut self, seen: &Seen, name: &str, value: &str) -> Result<(), String> {
        let found = match name {
            "held" => {
                let expected: Vec<_> = value.split(", ").map(duration).collect::<Result<_, _>>()?;
                return if seen.held == expected { Ok(()) } else { Err(format!("held: {:?}", seen.held)) };
            }
            "would be limited" => {
                let rules = 0..self.limiter.rules().rules().len();
                let counters = self.limiter.counters();
                rules.map(|rule| counters.take_rule(rule).shadow_limited).sum::<u32>().to_string()
            }
            _ => self.told(seen, name),
        };
        if found == value { Ok(()) } else { Err(format!("{name}: {found}")) }
    }

    /// What the client is told: `status`, `body` or a header of the last answer.
    fn told(&self, seen: &Seen, name: &str) -> String {
        let nothing = || "nothing".to_owned();
        let Some(decision) = &seen.last else { return nothing() };
        let rules = self.limiter.rules().rules();
        let Some((place, standing)) = decision.strictest() else {
            let is_blocked = name == "status" && decision.outcome() == Outcome::Block;
            return if is_blocked { BLOCKED_STATUS.to_string() } else { nothing() };
        };
        let Some(rule) = rules.get(usize::from(place)) else { return nothing() };
        let unix_ns = (BEGIN_UNIX_S - BEGIN.as_secs()) * 1_000_000_000 + self.now.as_nanos();
        let answers = Answers::of(rule);
        let header = |headers: &[(&str, std::borrow::Cow<'_, str>)]| {
            let found = headers.iter().find(|(known, _)| *known == name);
            found.map_or_else(nothing, |(_, value)| value.clone().into_owned())
        };
        match (decision.outcome(), name) {
            (Outcome::Limit, "status") => rule.response.status.to_string(),
            (Outcome::Limit, _) => {
                let Decision::Refuse { jitter_s, .. } = *decision else { return nothing() };
                let numbers = Answers::numbers(rule, &standing, unix_ns, jitter_s);
                let limited = answers.limited(rule, &numbers);
                if name == "body" { limited.body.into_owned() } else { header(&limited.headers) }
            }
            (Outcome::Deny, "status") => DENIED_STATUS.to_string(),
            (Outcome::Deny, "body") => answers.denial().to_owned(),
            (Outcome::Deny, _) => header(&Answers::denied(&standing, 0)),
            _ if rule.response.on_allowed => header(&answers.quota(rule, &standing, unix_ns)),
            _ => nothing(),
        }
    }
}

fn cost_of(after: &After, answer: &Upstream) -> u32 {
    let header = if let After::Header { name, .. } = after {
        answer.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_bytes())
    } else {
        None
    };
    let cost = after.of_status(answer.status).or_else(|| after.of_header(header));
    cost.or_else(|| after.of_bytes(answer.bytes)).unwrap_or(0)
}

fn compare(seen: &[(Outcome, Option<String>)], expected: &[Expected]) -> Result<(), String> {
    let wanted = expected.iter().flat_map(|e| std::iter::repeat_n(e, e.times));
    let differs = |((outcome, by), wanted): (&(Outcome, Option<String>), &Expected)| {
        *outcome != wanted.outcome || (wanted.by.is_some() && *by != wanted.by)
    };
    let count: usize = expected.iter().map(|e| e.times).sum();
    if count == seen.len() && !seen.iter().zip(wanted).any(differs) {
        return Ok(());
    }
    let mut runs: Vec<(usize, &(Outcome, Option<String>))> = Vec::new();
    for one in seen {
        match runs.last_mut() {
            Some((times, last)) if *last == one => *times += 1,
            _ => runs.push((1, one)),
        }
    }
    let named = |by: &Option<String>| by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
    let shown: Vec<_> =
        runs.iter().map(|(n, (outcome, by))| format!("{n} {outcome:?}{}", named(by))).collect();
    Err(format!("found {}", shown.join(", ").to_lowercase()))
}

struct Asked<'a>(&'a Requests);

impl Asked<'_> {
    fn said(&self, name: &str) -> Option<Vec<u8>> {
        let said = self.0.asks.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        said.map(|(_, value)| value.clone().into_bytes())
    }
}

impl Request for Asked<'_> {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::SourceAddress => self.0.address.clone().map(String::into_bytes),
            Attribute::Method => Some(self.0.method.clone().into_bytes()),
            Attribute::Path => Some(self.0.target.clone().into_bytes()),
            Attribute::Authority => self.said("host").or(Some(b"www.example.com".to_vec())),
            Attribute::Route => self.said("route"),
            Attribute::Header(name) => self.said(name),
            Attribute::Claim(names) => self.said(&format!("claim {}", names.join("."))),
        }
    }
}
