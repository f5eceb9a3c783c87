//! Requests that reserve tokens until their responses tell what they cost, at several POPs of a fleet: real edges,
//! a real hub and a real budget, in simulated time.

use std::collections::VecDeque;

use fastrand::Rng;
use serde_json::json;
use weir_budget::budget::Budget;
use weir_budget::divide::GrantSettings;
use weir_budget::hub::{Hub, HubSettings, StoreReplies};
use weir_limiter::engine::{
    CallResult, Effect, Engine, HostRules, LocalHost, OpenRequest, RequestStep, SyncCall, UpstreamResponse,
};
use weir_protocol::messages::{Message, Report};
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::request::{Attribute, Request};

const MS: u64 = SECOND_NS / 1_000;
/// Between two looks at what is due.
const STEP_NS: u64 = 10 * MS;
/// Between a POP's reports.
const INTERVAL_NS: u64 = 250 * MS;
/// From a report to its answer.
const ROUND_TRIP_NS: u64 = 60 * MS;
const BEGIN_NS: u64 = 1_000 * SECOND_NS;
/// Tokens a second.
const RATE: u64 = 100;
const BURST: u64 = 2_000;
const RESERVE: u64 = 50;

struct Client;

impl Request for Client {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        (*attribute == Attribute::SourceAddress).then(|| b"192.0.2.1:80".to_vec())
    }
}

/// A response that used so many tokens.
struct Used(u64);

impl UpstreamResponse for Used {
    fn status(&mut self) -> u16 {
        200
    }

    fn header(&mut self, _name: &str) -> Option<Vec<u8>> {
        None
    }

    fn add(&mut self, _name: &str, _value: &str) {}

    fn metadata(&mut self, path: &[String]) -> Option<Vec<u8>> {
        assert_eq!(path, ["llm", "total_tokens"]);
        Some(self.0.to_string().into_bytes())
    }
}

struct Pop {
    edge: Engine,
    site: LocalHost,
    /// When it reports next.
    reports_at: u64,
    /// Requests under way: when each ends, and what it will have cost.
    open: Vec<(u64, u64, OpenRequest)>,
    /// Answers on their way to it: when each comes.
    answers: VecDeque<(u64, u64, CallResult)>,
}

impl Pop {
    fn new(number: u64) -> Self {
        let mut site = LocalHost::new([7; 16], u32::try_from(number).unwrap());
        site.random = number;
        let rule = json!({
            "name": "tokens", "key": ["client_address"], "rate": format!("{RATE}/s"), "burst": BURST,
            "cost": {"after": {"metadata": ["llm", "total_tokens"]}, "reserve": RESERVE},
        });
        let configuration = json!({
            "rules": [rule], "table": {"addresses": 1_600},
            "sync": {"cluster": "weir-sync", "pop": format!("pop{number}"), "key_secret": "no-secret-of-anybody"},
        });
        let bytes = configuration.to_string().into_bytes();
        let configured =
            Engine::configure(&bytes, HostRules::default(), &mut site, Time::from_nanos(BEGIN_NS));
        let (edge, _) = configured.expect("a good configuration");
        let reports_at = BEGIN_NS + number * INTERVAL_NS / 7;
        Self { edge, site, reports_at, open: Vec::new(), answers: VecDeque::new() }
    }

    /// A request that will cost this and take so long. Whether it is let through.
    fn ask(&mut self, cost: u64, lasts_ns: u64, now: u64) -> bool {
        let mut open = OpenRequest::new(0);
        let decided = self.edge.request(&mut open, &mut Client, &mut self.site, Time::from_nanos(now));
        let is_let_through = matches!(decided.step, RequestStep::Continue);
        if is_let_through {
            self.open.push((now + lasts_ns, cost, open));
        }
        is_let_through
    }

    /// Ends the requests whose time has come. Returns what they cost.
    fn end(&mut self, now: u64) -> u64 {
        let (ended, open) = std::mem::take(&mut self.open).into_iter().partition(|(at, ..)| *at <= now);
        self.open = open;
        let time = Time::from_nanos(now);
        let ended: Vec<(u64, u64, OpenRequest)> = ended;
        ended.into_iter().fold(0, |sum, (_, cost, mut open)| {
            self.edge.response_sent(&mut open, &mut Used(cost), &mut self.site, time);
            self.edge.end(&mut open, &mut self.site, time);
            sum + cost
        })
    }

    /// What it wants to say to weir-sync now, and takes in what weir-sync has answered.
    fn exchange(&mut self, now: u64) -> Vec<SyncCall> {
        let time = Time::from_nanos(now);
        while self.answers.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, number, answer)) = self.answers.pop_front() else { break };
            self.edge.answer(number, answer, &mut self.site, time);
        }
        if now < self.reports_at {
            return Vec::new();
        }
        self.reports_at += INTERVAL_NS;
        let effects = self.edge.tick(&mut self.site, time);
        let call = |effect| if let Effect::Call(call) = effect { Some(call) } else { None };
        effects.into_iter().filter_map(call).collect()
    }
}

/// What a run came to.
#[derive(Debug)]
struct Run {
    /// Tokens that ended requests cost, a second; from the second minute on.
    per_second: f64,
    /// The most by which all requests so far cost more than a burst and the refill since the begin.
    over: f64,
}

/// Twenty minutes at so many POPs, where a client asks so often a second in all. Requests cost up to `cost_max` and
/// last up to `lasts_max_ms`. With `moves`, it asks one POP after the other, a minute each.
#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn run(pops: u64, asks_per_second: u64, cost_max: u64, lasts_max_ms: u64, moves: bool) -> Run {
    let mut rng = Rng::with_seed(7);
    let mut all: Vec<Pop> = (0..pops).map(Pop::new).collect();
    let settings = HubSettings {
        member: "eu".into(),
        terms: GrantSettings::default(),
        pop_ttl_ns: 10 * SECOND_NS,
        pops_expected: 0,
    };
    let (mut hub, mut budget) = (Hub::new(settings), Budget::default());
    let (mut used, mut used_late, mut over) = (0, 0, 0.0_f64);
    let last = 20 * 60 * SECOND_NS;
    for since in (0..last).step_by(usize::try_from(STEP_NS).unwrap()) {
        let now = BEGIN_NS + since;
        for pop in &mut all {
            let cost = pop.end(now);
            used += cost;
            used_late += if since >= 60 * SECOND_NS { cost } else { 0 };
            for call in pop.exchange(now) {
                let report = Report::decode(&call.body).expect("a report");
                let (time, unix_us) = (Time::from_nanos(now), 1_800_000_000_000_000 + now / 1_000);
                let pending = hub.report(time, unix_us, report);
                let charge = |entry: &weir_budget::plan::PlanEntry| {
                    Ok(budget.charge(unix_us, &entry.charge("eu", pending.pop())))
                };
                let accounts = pending.entries().iter().map(charge).collect();
                let answers: StoreReplies<()> =
                    StoreReplies { accounts, drawn: vec![], pops: Ok(u32::try_from(pops).unwrap()) };
                let reply = hub.settle(time, 0, pending, answers).reply.encode();
                pop.answers.push_back((now + ROUND_TRIP_NS, call.number, Ok(reply)));
            }
        }
        over = over.max(used as f64 - BURST as f64 - (RATE * since) as f64 / SECOND_NS as f64);
        if rng.u64(..SECOND_NS) < asks_per_second * STEP_NS {
            let at = if moves { since / (60 * SECOND_NS) % pops } else { rng.u64(..pops) };
            let (cost, lasts_ns) = (rng.u64(..=cost_max), rng.u64(..=lasts_max_ms) * MS);
            all[usize::try_from(at).unwrap()].ask(cost, lasts_ns, now);
        }
    }
    Run { per_second: used_late as f64 / (last / SECOND_NS - 60) as f64, over }
}

/// Requests cost less than they reserve, or more.
// I5
#[test]
#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn a_fleet_admits_what_requests_cost_and_not_what_they_reserve() {
    for (pops, asks, cost_max, moves) in
        [(1, 30, 40, false), (3, 30, 40, false), (3, 10, 200, false), (5, 30, 40, false), (3, 30, 40, true)]
    {
        let run = run(pops, asks, cost_max, 4_000, moves);
        println!("{pops} POPs, {asks}/s, up to {cost_max} each, moves: {moves}: {run:?}");
        assert!((98.0..=101.0).contains(&run.per_second), "{pops} POPs, up to {cost_max} each: {run:?}");
        // What requests cost beyond what they reserve is debt.
        let most = if cost_max > RESERVE { BURST / 2 } else { RESERVE };
        assert!(run.over <= most as f64, "{pops} POPs, up to {cost_max} each: {run:?}");
    }
}
