//! `Retry-After` of strict rules is true, by each algorithm: a client that obeys it is let through at its next try.
//! Real edges, a real hub and a real budget, in simulated time.

use std::collections::VecDeque;

use serde_json::{Value, json};
use weir_budget::divide::GrantSettings;
use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, Escrow};
use weir_budget::hub::{Hub, HubSettings, StoreReplies};
use weir_budget::report_limits::ReporterKind;
use weir_limiter::engine::{
    CallResult, Consume, ConsumeReply, Effect, Engine, LocalHost, OpenRequest, RequestStep, SyncCall, UpstreamResponse,
};
use weir_protocol::messages::{Message, Report};
use weir_protocol::time::{SECOND_NS, Time};

use crate::Client;

const MS: u64 = SECOND_NS / 1_000;
/// To weir-sync, and back.
const WAY_NS: u64 = 20 * MS;
const BEGIN_NS: u64 = 1_000 * SECOND_NS;
/// Some time in a minute, and an hour.
const UNIX_BEGIN_US: u64 = 1_800_000_007_123_456;
/// The number of a client's retries: as `Retry(3)` of urllib3.
const RETRIES: u32 = 3;

/// A response of this number of kilobytes.
struct Kilobytes(u64);

impl UpstreamResponse for Kilobytes {
    fn status(&mut self) -> u16 {
        200
    }

    fn header(&mut self, _name: &str) -> Option<Vec<u8>> {
        None
    }

    fn add(&mut self, _name: &str, _value: &str) {}

    fn bytes(&mut self) -> u64 {
        self.0 * 1_024
    }
}

struct Pop {
    edge: Engine,
    site: LocalHost,
    /// The number of its ticks: more than its reports, if it holds requests.
    tick_ns: u64,
    answers: VecDeque<(u64, u64, CallResult)>,
}

/// A weir-sync and its POPs.
struct World {
    now_ns: u64,
    pops: Vec<Pop>,
    hub: Hub,
    budget: Escrow,
    refill_policy: Value,
}

fn time(ns: u64) -> Time {
    Time::from_nanos(ns)
}

fn unix_us(ns: u64) -> u64 {
    UNIX_BEGIN_US + (ns - BEGIN_NS) / 1_000
}

impl World {
    /// With this rule, at two POPs; or at a gateway, which takes.
    fn new(fields: &Value, takes: bool) -> Self {
        let mut rule = json!({"name": "r", "key": ["client_address"], "strict": true});
        let more = fields.as_object().unwrap().clone();
        rule.as_object_mut().unwrap().extend(more);
        if fields["algorithm"] == "quota" {
            rule.as_object_mut().unwrap().remove("strict");
        }
        let pop = |number: u32| {
            let mut site = LocalHost::new([7; 16], number);
            (site.random, site.unix_ns) = (number.into(), UNIX_BEGIN_US * 1_000);
            let pop = format!("pop{number}");
            let sync = json!({"cluster": "weir-sync", "pop": pop, "key_secret": "no-secret-of-anybody"});
            let bytes = json!({"rules": [rule], "table": {"addresses": 160}, "sync": sync}).to_string().into_bytes();
            let configured = Engine::configure(&bytes, &mut site, time(BEGIN_NS));
            let (mut edge, effects) = configured.expect("a good configuration");
            let tick_ns = effects.iter().find_map(|effect| match effect {
                Effect::SetTimer(ms) => Some(u64::from(*ms) * MS),
                _ => None,
            });
            if takes {
                edge.let_take();
            }
            let tick_ns = tick_ns.expect("it ticks");
            Pop { edge, site, tick_ns, answers: VecDeque::new() }
        };
        let settings = HubSettings {
            replica: "eu".into(),
            terms: GrantSettings::default(),
            pop_ttl_ns: 10 * SECOND_NS,
            pops_expected: 0,
        };
        let pops = (1..=2).map(pop).collect();
        let (hub, budget) = (Hub::new(settings), Escrow::default());
        let mut world = Self { now_ns: BEGIN_NS, pops, hub, budget, refill_policy: fields.clone() };
        world.pass(SECOND_NS);
        world
    }

    /// weir-sync's answer to a call, now.
    fn reply(&mut self, call: &SyncCall) -> Vec<u8> {
        let report = Report::decode(&call.body).expect("a report");
        let (now, unix) = (time(self.now_ns), unix_us(self.now_ns));
        let pending = self.hub.report(ReporterKind::Pop, now, unix, report);
        let acquire = |acquire: &AcquireRequest| Ok(self.budget.acquire(unix, &pending.report.pop, acquire));
        let acquired: Vec<Result<AcquireResult, ()>> = pending.acquires().iter().map(acquire).collect();
        let answers = StoreReplies { accounts: vec![], acquired, pops: Ok(2) };
        let outcome = self.hub.settle(now, 0, pending, answers);
        outcome.reply.encode()
    }

    /// Time passes, and POPs report.
    fn pass(&mut self, ns: u64) {
        let until = self.now_ns + ns;
        while self.now_ns < until {
            let next = |pop: &Pop| {
                let tick = (self.now_ns / pop.tick_ns + 1) * pop.tick_ns;
                pop.answers.front().map_or(tick, |(at, ..)| tick.min(*at))
            };
            self.now_ns = self.pops.iter().map(next).fold(until, u64::min);
            for pop in 0..self.pops.len() {
                self.pops[pop].site.unix_ns = unix_us(self.now_ns) * 1_000;
                self.tick(pop);
            }
        }
    }

    fn tick(&mut self, pop: usize) {
        let now = self.now_ns;
        let Pop { edge, site, tick_ns, answers } = &mut self.pops[pop];
        let is_due = now.is_multiple_of(*tick_ns);
        while answers.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, number, answer)) = answers.pop_front() else { break };
            edge.answer(number, answer, site, time(now));
        }
        if !is_due {
            return;
        }
        let effects = edge.tick(site, time(now));
        for effect in effects {
            if let Effect::Call(call) = effect {
                let reply = self.reply(&call);
                self.pops[pop].answers.push_back((now + 2 * WAY_NS, call.number, Ok(reply)));
            }
        }
    }

    /// The result of a gateway's acquire.
    fn take(&mut self, take: &Consume) -> ConsumeReply {
        let rule = &self.pops[0].edge.rules().rules()[usize::from(take.rule)];
        let id = weir_budget::budget::BudgetId::new("r".into(), take.value.as_bytes().to_vec());
        let claims = vec![Claim::take(take.tokens)];
        let (quota, refill_policy) = (rule.quota, rule.sharing.refill_policy);
        let acquired = self.budget.acquire(
            unix_us(self.now_ns),
            "p",
            &AcquireRequest { id, quota, lease_us: 0, refill_policy, window: None, claims },
        );
        let lease = acquired.leases[0];
        let is_taken = lease.charged >= u64::from(take.tokens);
        ConsumeReply { is_taken, left: lease.left, wait_ms: lease.wait_ms }
    }

    /// A request at this POP. Whether it is let through, or when it is to be sent again, in seconds.
    fn ask(&mut self, pop: usize) -> Result<OpenRequest, u64> {
        let mut open = OpenRequest::new(7);
        let now = time(self.now_ns);
        let Pop { edge, site, .. } = &mut self.pops[pop];
        let mut next = Next::of(edge.request(&mut open, &mut Client, site, now).step);
        loop {
            match next {
                Next::LetThrough => return Ok(open),
                Next::Refused(after_s) => {
                    let Pop { edge, site, .. } = &mut self.pops[pop];
                    edge.end(&mut open, site, now);
                    return Err(after_s);
                }
                Next::Call(call) => {
                    self.pass(WAY_NS);
                    let reply = self.reply(&call);
                    self.pass(WAY_NS);
                    let (now, Pop { edge, site, .. }) = (time(self.now_ns), &mut self.pops[pop]);
                    let answer = (call.number, Ok(reply));
                    let decided = edge.answer_request(&mut open, answer, &mut Client, site, now);
                    next = Next::of(decided.expect("it waits").step);
                }
                Next::Take(take) => {
                    let taken = Some(self.take(&take));
                    let (now, Pop { edge, site, .. }) = (time(self.now_ns), &mut self.pops[pop]);
                    let decided = edge.taken(&mut open, taken, &mut Client, site, now);
                    next = Next::of(decided.expect("it waits").step);
                }
            }
        }
    }

    /// Its response is so large.
    fn end(&mut self, pop: usize, mut open: OpenRequest, kilobytes: u64) {
        let (now, Pop { edge, site, .. }) = (time(self.now_ns), &mut self.pops[pop]);
        edge.response_sent(&mut open, &mut Kilobytes(kilobytes), site, now);
        edge.end(&mut open, site, now);
    }

    /// A client that obeys tries until it gets through. How often it was refused.
    fn obey(&mut self, pop: usize) -> u32 {
        for refusals in 0..=RETRIES {
            match self.ask(pop) {
                Ok(open) => {
                    self.end(pop, open, 1);
                    return refusals;
                }
                Err(after_s) => {
                    self.pass(after_s * SECOND_NS);
                }
            }
        }
        panic!("{} refusals in a row: {}", RETRIES + 1, self.refill_policy);
    }
}

/// The next step of a request.
enum Next {
    LetThrough,
    Refused(u64),
    Call(SyncCall),
    Take(Box<Consume>),
}

impl Next {
    fn of(step: RequestStep<'_>) -> Self {
        match step {
            // Its turn comes soon.
            RequestStep::Continue | RequestStep::Hold => Self::LetThrough,
            RequestStep::Call(call) => Self::Call(call),
            RequestStep::Take(take) => Self::Take(take),
            RequestStep::Answer(answer) => {
                assert_eq!(answer.status, 429, "{}", answer.details);
                let headers = std::str::from_utf8(answer.headers).unwrap();
                let after = headers.lines().find_map(|line| line.strip_prefix("retry-after: "));
                Self::Refused(after.expect("a time to retry").parse().unwrap())
            }
        }
    }
}

/// Every algorithm that the fleet counts, with the seconds in which its tokens come back.
fn rules() -> Vec<Value> {
    vec![
        json!({"rate": "1/h"}),
        json!({"rate": "5/m"}),
        json!({"rate": "9/m", "cost": 4}),
        json!({"algorithm": "fixed_window", "rate": "5/m"}),
        json!({"algorithm": "fixed_window", "rate": "10/m", "cost": 4}),
        json!({"algorithm": "sliding_window", "rate": "5/m"}),
        json!({"algorithm": "sliding_log", "rate": "5/m"}),
        json!({"algorithm": "sliding_log", "rate": "10/m", "cost": 4}),
        json!({"algorithm": "quota", "rate": "5/hour"}),
        json!({"algorithm": "quota", "rate": "10/hour", "cost": 4}),
        json!({"algorithm": "leaky_bucket", "rate": "5/m", "queue": 2}),
        json!({"rate": "10/m", "cost": {"after": {"response_bytes_per": 1_024}, "reserve": 2}}),
    ]
}

#[test]
fn an_obedient_client_is_admitted_at_its_next_try() {
    for fields in rules() {
        for takes in [false, true] {
            let mut world = World::new(&fields, takes);
            let mut refused = 0;
            for _ in 0..20 {
                let refusals = world.obey(0);
                refused += refusals;
                assert!(refusals <= 1, "{refusals} refusals, takes: {takes}: {fields}");
                if refused == 3 {
                    break;
                }
            }
            assert!(refused > 0, "what is to be tested: {fields}");
        }
    }
}

/// It may meet tokens that another POP has spent and not yet reported, or has on hand of a window. What that gives
/// back may be too little for a dear request, and only then is it known when there is enough.
#[test]
fn a_moving_client_is_admitted_at_its_third_try() {
    let is_window = |fields: &Value| fields["algorithm"] == "fixed_window" || fields["algorithm"] == "quota";
    for fields in rules() {
        let most = if is_window(&fields) && fields["cost"] == 4 { 3 } else { 2 };
        let mut world = World::new(&fields, false);
        for n in 0..8 {
            let refusals = world.obey(n % 2);
            assert!(refusals <= most, "{refusals} refusals: {fields}");
        }
    }
}

/// The second time from memory.
#[test]
fn an_immediate_retry_gets_the_same_retry_after() {
    for fields in rules() {
        for takes in [false, true] {
            let mut world = World::new(&fields, takes);
            let mut waits_s = vec![];
            while waits_s.len() < 3 {
                match world.ask(0) {
                    Ok(open) => world.end(0, open, 2),
                    // By then all know what was spent.
                    Err(_) if waits_s.is_empty() && world.now_ns < BEGIN_NS + 3 * SECOND_NS => {
                        world.pass(SECOND_NS);
                    }
                    Err(after_s) => waits_s.push(after_s),
                }
            }
            let [first, second, third] = waits_s[..] else { unreachable!() };
            assert!(first - third <= 1 && second >= third && first >= second, "{waits_s:?}, takes: {takes}: {fields}");
        }
    }
}

#[test]
fn retry_after_is_as_short_as_possible() {
    // Tokens of these come back one by one, at times that depend on when they were spent.
    let is_uneven = |fields: &Value| {
        let algorithm = fields["algorithm"].as_str().unwrap_or_default();
        algorithm == "leaky_bucket" || algorithm.starts_with("sliding") && fields["cost"] == 4
    };
    for fields in rules().into_iter().filter(|fields| !is_uneven(fields)) {
        for takes in [false, true] {
            let mut world = World::new(&fields, takes);
            let wait_s = (0..100).find_map(|_| match world.ask(0) {
                Ok(open) => {
                    world.end(0, open, 1);
                    None
                }
                Err(after_s) if after_s < 4 => {
                    world.pass(after_s * SECOND_NS);
                    None
                }
                Err(after_s) => Some(after_s),
            });
            let wait_s = wait_s.unwrap_or_else(|| panic!("it is refused for some seconds, takes: {takes}: {fields}"));
            world.pass((wait_s - 2) * SECOND_NS);
            assert!(world.ask(0).is_err(), "{wait_s} s were too long, takes: {takes}: {fields}");
        }
    }
}
