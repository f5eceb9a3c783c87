//! Plays a script to the edge of one POP, as a host drives it.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use weir_limiter::check::DecisionKind;
use weir_limiter::engine::{
    CallResult, Effect, Engine, LocalHost, OpenRequest, RequestDecision, RequestStep as Then, SyncCall, Unread,
    UpstreamResponse,
};
use weir_protocol::messages::{Message, Report};
use weir_protocol::time::Time;
use weir_rules::request::{Attribute, Request};

use super::budgets::Budgets;
use super::script::{Expected, Line, Requests, Step, Upstream, duration, parse};

/// The begin of a script, on the POP's clock; some way from zero, which is a whole number of every window.
const BEGIN: Duration = Duration::from_secs(1_000_000_007);
/// The time of the wall clock then, in seconds since 1970: the first of June 2026, 00:00 UTC.
const BEGIN_UNIX_S: u64 = 1_780_272_000;
/// Keys that the table has places for.
const ADDRESSES: u32 = 4_096;
/// The resolution of the time for which a request was held.
const TURN: Duration = Duration::from_millis(10);
/// No request is held for longer.
const HELD_MAX: Duration = Duration::from_mins(1);

/// A POP that plays a script.
struct Pop {
    edge: Engine,
    site: LocalHost,
    now: Duration,
    /// weir-sync; none where the script never names it.
    budgets: Option<Budgets>,
    is_in_touch: bool,
    /// Requests of which something is left to do.
    in_flight: VecDeque<OpenRequest>,
}

/// The outcomes of a line's requests.
#[derive(Default)]
struct Seen {
    outcomes: Vec<(DecisionKind, Option<String>)>,
    held: Vec<Duration>,
    last: ClientResponse,
}

/// A client's response; empty if the request passes.
#[derive(Default)]
struct ClientResponse {
    status: Option<u16>,
    body: Option<String>,
    headers: Vec<(String, String)>,
}

/// Plays `block` to a POP with the rules of `document`; an error has the line that differs, and the result found.
pub fn play(document: &Value, block: &str) -> Result<(), String> {
    let steps = parse(block)?;
    let is_in_a_fleet = steps.iter().any(|step| matches!(step.line, Line::InTouch(_)));
    let mut pop = Pop::new(document, is_in_a_fleet)?;
    for step in &steps {
        if let Some(at) = step.at {
            pop.now = pop.now.max(BEGIN + at);
        }
        pop.step(step).map_err(|found| format!("{}\n  {found}", step.text))?;
    }
    Ok(())
}

fn time(at: Duration) -> Time {
    Time::from_nanos(u64::try_from(at.as_nanos()).expect("within centuries"))
}

impl Pop {
    fn new(document: &Value, is_in_a_fleet: bool) -> Result<Self, String> {
        let mut configuration = document.clone();
        configuration["table"] = json!({"addresses": ADDRESSES});
        configuration["filter_state"] = json!(true);
        if is_in_a_fleet {
            configuration["sync"] =
                json!({"cluster": "weir-sync", "pop": "fra1", "key_secret": "no-secret-of-anybody"});
        }
        let mut site = LocalHost::new([7; 16], 1);
        let bytes = configuration.to_string().into_bytes();
        let configured = Engine::configure(&bytes, &mut site, time(BEGIN));
        let (edge, _) = configured.map_err(|errors| errors.join("\n"))?;
        let unix_us = (BEGIN_UNIX_S - BEGIN.as_secs()) * 1_000_000;
        Ok(Self {
            edge,
            site,
            now: BEGIN,
            budgets: is_in_a_fleet.then(|| Budgets::new(unix_us)),
            is_in_touch: false,
            in_flight: VecDeque::new(),
        })
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let unix_s = BEGIN_UNIX_S - BEGIN.as_secs();
        self.site.unix_ns = unix_s * 1_000_000_000 + time(self.now).as_nanos();
        self.is_in_touch |= matches!(step.line, Line::InTouch(true));
        self.exchange();
        match &step.line {
            Line::InTouch(is_in_touch) => {
                self.is_in_touch = *is_in_touch;
                Ok(())
            }
            Line::End(count) => {
                if self.in_flight.len() < *count {
                    return Err(format!("there are {} in flight", self.in_flight.len()));
                }
                for mut open in self.in_flight.drain(..count) {
                    self.edge.end(&mut open, &mut self.site, time(self.now));
                }
                Ok(())
            }
            Line::Requests(requests) => {
                let mut seen = self.send(requests);
                compare(&seen.outcomes, &requests.outcomes)?;
                if step.details.iter().any(|(name, _)| name == "held") {
                    self.let_go(&mut seen);
                }
                step.details.iter().try_for_each(|(name, value)| self.check(&seen, name, value))
            }
        }
    }

    /// A report and its answer. Out of touch, it fails.
    fn exchange(&mut self) {
        let now = time(self.now);
        for effect in self.edge.tick(&mut self.site, now) {
            if let Effect::Call(call) = effect {
                let answer = self.answer(&call);
                self.edge.answer(call.number, answer, &mut self.site, now);
            }
        }
    }

    /// weir-sync's reply.
    fn answer(&mut self, call: &SyncCall) -> CallResult {
        let budgets = self.budgets.as_mut().filter(|_| self.is_in_touch);
        let budgets = budgets.ok_or_else(|| Unread::Failed("out of touch".to_owned()))?;
        Ok(budgets.answer(&Report::decode(&call.body).expect("a report"), time(self.now)))
    }

    fn send(&mut self, requests: &Requests) -> Seen {
        let mut seen = Seen::default();
        for id in 0..u32::try_from(requests.times).expect("few") {
            let mut open = OpenRequest::new(id);
            seen.last = self.decide(&mut open, requests, &mut seen);
            if !open.is_done() {
                let now = time(self.now);
                let mut answer = Answering { answer: &requests.answer, response: &mut seen.last };
                self.edge.response(&mut open, &mut answer, &mut self.site, now);
                self.edge.response_sent(&mut open, &mut answer, &mut self.site, now);
            }
            if !open.is_done() {
                self.in_flight.push_back(open);
            }
        }
        seen
    }

    fn decide(&mut self, open: &mut OpenRequest, requests: &Requests, seen: &mut Seen) -> ClientResponse {
        let (mut asked, now) = (Asked(requests), time(self.now));
        let mut decided = self.edge.request(open, &mut asked, &mut self.site, now);
        // One that fails is made once more.
        while let Then::Call(call) = &decided.step {
            let (number, answer) = (call.number, self.answer(call));
            let answered = self.edge.answer_request(open, (number, answer), &mut asked, &mut self.site, now);
            decided = answered.expect("the call that it waits for");
        }
        record(decided, seen)
    }

    /// Waits until every request that is held has gone on.
    fn let_go(&mut self, seen: &mut Seen) {
        let mut after = Duration::ZERO;
        while seen.held.contains(&Duration::MAX) && after < HELD_MAX {
            for effect in self.edge.tick(&mut self.site, time(self.now + after)) {
                if let Effect::Resume(id) = effect {
                    let allowed = seen.outcomes.iter().enumerate();
                    let mut allowed = allowed.filter(|(_, (outcome, _))| *outcome == DecisionKind::Allow);
                    let place = allowed.position(|(n, _)| n == id as usize).expect("one that was let through");
                    seen.held[place] = after;
                }
            }
            after += TURN;
        }
    }

    /// An indented line.
    fn check(&mut self, seen: &Seen, name: &str, value: &str) -> Result<(), String> {
        let nothing = || "nothing".to_owned();
        let found = match name {
            "held" => {
                let expected: Vec<_> = value.split(", ").map(duration).collect::<Result<_, _>>()?;
                return if seen.held == expected { Ok(()) } else { Err(format!("held: {:?}", seen.held)) };
            }
            "would be limited" => {
                let rules = 0..self.edge.rules().rules().len();
                let counters = self.edge.counters();
                rules.map(|rule| counters.take_rule(rule).shadow_limited).sum::<u32>().to_string()
            }
            "status" => seen.last.status.map_or_else(nothing, |status| status.to_string()),
            "body" => seen.last.body.clone().unwrap_or_else(nothing),
            _ => {
                let header = seen.last.headers.iter().find(|(known, _)| known == name);
                header.map_or_else(nothing, |(_, value)| value.clone())
            }
        };
        if found == value { Ok(()) } else { Err(format!("{name}: {found}")) }
    }
}

/// Records a request's outcome; returns its client's response.
fn record(decided: RequestDecision<'_>, seen: &mut Seen) -> ClientResponse {
    // A request that no rule counts is let through, and has no decision in access logs.
    let (decision, rule) = decided.logged.unwrap_or(("allow", ""));
    let outcome = match decision {
        "limit" => DecisionKind::Limit,
        "deny" => DecisionKind::Deny,
        "block" => DecisionKind::Block,
        _ => DecisionKind::Allow,
    };
    seen.outcomes.push((outcome, Some(rule).filter(|rule| !rule.is_empty()).map(str::to_owned)));
    match decided.step {
        Then::Answer(answer) => {
            let headers = std::str::from_utf8(answer.headers).expect("lines");
            let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.into(), value.into()));
            let headers = headers.lines().filter_map(header).collect();
            ClientResponse { status: Some(answer.status), body: Some(answer.body.to_owned()), headers }
        }
        Then::Hold => {
            seen.held.push(Duration::MAX);
            ClientResponse::default()
        }
        _ => {
            seen.held.push(Duration::ZERO);
            ClientResponse::default()
        }
    }
}

/// The upstream's answer, on its way to the client.
struct Answering<'a> {
    answer: &'a Upstream,
    response: &'a mut ClientResponse,
}

impl UpstreamResponse for Answering<'_> {
    fn status(&mut self) -> u16 {
        self.answer.status
    }

    fn header(&mut self, name: &str) -> Option<Vec<u8>> {
        field(&self.answer.headers, name)
    }

    fn add(&mut self, name: &str, value: &str) {
        self.response.headers.push((name.to_owned(), value.to_owned()));
    }

    fn bytes(&mut self) -> u64 {
        self.answer.bytes
    }

    fn metadata(&mut self, path: &[String]) -> Option<Vec<u8>> {
        self.header(&format!("metadata {}", path.join(".")))
    }
}

fn compare(seen: &[(DecisionKind, Option<String>)], expected: &[Expected]) -> Result<(), String> {
    let wanted = expected.iter().flat_map(|e| std::iter::repeat_n(e, e.times));
    let differs = |((outcome, by), wanted): (&(DecisionKind, Option<String>), &Expected)| {
        *outcome != wanted.outcome || (wanted.by.is_some() && *by != wanted.by)
    };
    let count: usize = expected.iter().map(|e| e.times).sum();
    if count == seen.len() && !seen.iter().zip(wanted).any(differs) {
        return Ok(());
    }
    let mut runs: Vec<(usize, &(DecisionKind, Option<String>))> = Vec::new();
    for one in seen {
        match runs.last_mut() {
            Some((times, last)) if *last == one => *times += 1,
            _ => runs.push((1, one)),
        }
    }
    let named = |by: &Option<String>| by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
    let shown: Vec<_> = runs.iter().map(|(n, (outcome, by))| format!("{n} {outcome:?}{}", named(by))).collect();
    Err(format!("found {}", shown.join(", ").to_lowercase()))
}

/// The lines of a header.
fn field(headers: &[(String, String)], name: &str) -> Option<Vec<u8>> {
    let found = headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
    let lines: Vec<_> = found.map(|(_, value)| value.as_str()).collect();
    (!lines.is_empty()).then(|| lines.join("\n").into_bytes())
}

struct Asked<'a>(&'a Requests);

impl Request for Asked<'_> {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        let field = |name: &str| field(&self.0.asks, name);
        match attribute {
            Attribute::SourceAddress => self.0.address.clone().map(String::into_bytes),
            Attribute::Method => Some(self.0.method.clone().into_bytes()),
            Attribute::Path => Some(self.0.target.clone().into_bytes()),
            Attribute::Authority => field("host").or(Some(b"www.example.com".to_vec())),
            Attribute::Route => field("route"),
            Attribute::Header(name) => field(name),
            Attribute::Claim(names) => field(&format!("claim {}", names.join("."))),
        }
    }
}
