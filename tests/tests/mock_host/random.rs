//! Random answers of the host under random events: never a trap, always a decision.

use proptest::prelude::*;
use serde_json::json;
use weir_protocol::messages::{Allowance, Message, RULES_PATH, Reply, Report, Settled};
use weir_tests::mock_host::{
    Answer, Ask, Begun, CallAnswer, Host, HttpCall, Script, SharedData, Trap, Waiting, Worker, ZeroCas, grant,
};

use crate::harness::{plugin, rule, synced};

/// An event at a worker, or in the proxy.
#[derive(Clone, Debug)]
enum Event {
    /// A request of a client.
    Request(usize, u8),
    /// A request with these bytes for its address and its path.
    StrangeRequest(usize, Vec<u8>),
    Tick(usize),
    /// A good answer to the oldest call: an admit ratio, a level, a number of POPs.
    Reply(usize, (u64, i64, u32)),
    /// Another answer to it: its status, its body, the size that the host claims.
    StrangeReply(usize, (Vec<u8>, Vec<u8>, Option<u32>)),
    /// The monotonic clock and the wall clock jump to these times.
    Clock(usize, (u64, u64)),
    AdvanceMs(usize, u64),
    Reload(usize),
    /// The client of the request that has waited for the longest goes away.
    Leave(usize),
    /// A byte of each slot, or of each rule set in shared data, is something else.
    Tamper(&'static [u8], (usize, u8)),
    /// The fleet is to run another rule set.
    Push(u64),
}

const WORKERS: usize = 2;

fn event() -> impl Strategy<Value = Event> {
    let (worker, bytes) = (0..WORKERS, prop::collection::vec(any::<u8>(), 0..80));
    let status = prop_oneof![Just(b"200".to_vec()), bytes.clone()];
    let strange = (status, bytes.clone(), prop::option::of(any::<u32>()));
    let of = |event: fn(usize) -> Event| worker.clone().prop_map(event);
    prop_oneof![
        8 => (worker.clone(), 0u8..4).prop_map(|(worker, client)| Event::Request(worker, client)),
        1 => (worker.clone(), bytes).prop_map(|(worker, bytes)| Event::StrangeRequest(worker, bytes)),
        4 => of(Event::Tick),
        4 => (worker.clone(), (0u64..=1_000, any::<i64>(), 0u32..400)).prop_map(|(worker, of)| Event::Reply(worker, of)),
        1 => (worker.clone(), strange).prop_map(|(worker, answer)| Event::StrangeReply(worker, answer)),
        1 => (worker.clone(), any::<(u64, u64)>()).prop_map(|(worker, times)| Event::Clock(worker, times)),
        3 => (worker.clone(), 0u64..20_000).prop_map(|(worker, ms)| Event::AdvanceMs(worker, ms)),
        1 => of(Event::Leave),
        1 => of(Event::Reload),
        1 => (0usize..512, 1u8..).prop_map(|change| Event::Tamper(b"weir.s5.", change)),
        1 => (0usize..40, 1u8..).prop_map(|change| Event::Tamper(b"weir.rules", change)),
        2 => (0u64..9).prop_map(Event::Push),
    ]
}

/// A script that answers `odd` of 256 calls with anything.
fn anything(seed: u64, odd: u8) -> Script {
    let mut random = fastrand::Rng::with_seed(seed);
    Script::of(move |function, _| {
        if random.u8(..) >= odd {
            return Answer::Work;
        }
        let status = if random.u8(..) < 200 { random.u32(..14) } else { random.u32(..) };
        let status = match function {
            // "OK" is a promise to answer, the call or the request; the filter cannot detect a false one.
            "proxy_http_call" | "proxy_send_local_response" => status.max(1),
            _ => status,
        };
        match (function, random.u8(..5)) {
            ("proxy_http_call", _) | (_, 0) => Answer::Status(status),
            (_, 1) => Answer::Nothing,
            (_, 2) => Answer::Number(random.u64(..) >> random.u32(..64)),
            (_, 3) => Answer::Stray {
                asks: (0..random.u32(..3)).map(|_| random.u32(..512)).collect(),
                place: random.bool().then(|| random.u32(..256) << random.u32(..25)),
                bytes: random.u32(..256),
            },
            _ => Answer::Bytes((0..random.usize(..600)).map(|_| random.u8(..)).collect()),
        }
    })
}

/// weir-sync's answers for `version`: good sets, and everything else.
fn document(version: &str) -> CallAnswer {
    let rules = |rules: serde_json::Value| CallAnswer::new("200", json!({"rules": rules}).to_string().into_bytes());
    let strict = |name: &str| json!({"name": name, "key": ["client_address"], "rate": "5/m", "strict": true});
    match version {
        "1" => rules(json!([rule("1/s", 3)])),
        "2" => rules(json!([rule("2/s", 3), strict("login")])),
        "3" => rules(json!([strict("login"), strict("other"), rule("1/s", 3)])),
        "4" => rules(json!([{"name": "login", "key": ["client_address"], "rate": "5/parsec"}])),
        "5" => CallAnswer::new("200", b"\xff no document".to_vec()),
        "6" => CallAnswer { claimed_size: Some(u32::MAX), ..CallAnswer::new("200", Vec::new()) },
        "7" => CallAnswer::new("404", Vec::new()),
        _ => CallAnswer::timeout(),
    }
}

/// Workers of one proxy, their requests that wait, and the fleet's rule set.
struct World {
    shared: SharedData,
    seed: u64,
    odd: u8,
    workers: Vec<Worker>,
    waiting: Vec<Vec<Waiting>>,
    rule_set: u64,
}

impl World {
    fn start(&self, seed: u64, with_sync: bool) -> Result<Worker, Trap> {
        let mut worker = Worker::try_start(Host::new(&self.shared).with(anything(seed, self.odd)))?;
        let rule = rule("1/s", 3);
        let plugin = if with_sync { synced(&rule) } else { plugin(&rule) };
        // Refused, where the host hands over nonsense: then everything passes.
        worker.try_configure(plugin.to_string())?;
        Ok(worker)
    }

    fn happen(&mut self, event: &Event) -> Result<(), Trap> {
        match event {
            Event::Request(worker, client) => self.request(*worker, &Ask::from(format!("192.0.2.{client}:1"))),
            Event::StrangeRequest(worker, bytes) => self.request(*worker, &Ask::from(bytes).header(":path", bytes)),
            Event::Tick(worker) => return self.workers[*worker].try_tick(),
            Event::Reply(worker, (ratio, level, pops)) => {
                let rule_set = self.rule_set;
                return self.answer_first(*worker, |call| {
                    if call.path().starts_with(RULES_PATH) {
                        return document(call.path().strip_prefix("/v1/rules?version=").unwrap_or_default());
                    }
                    let report = Report::decode(&call.body).expect("weir-sync could not read this report");
                    let grants = vec![Allowance::Hot(grant(*ratio, level / 1_000_000, 3_000)); report.keys.len()];
                    let (sequence, pops, settled) = (report.sequence, *pops, Settled::All);
                    let reply = Reply { sequence, pops, settled, grants, rule_set, ..Reply::default() };
                    CallAnswer::new("200", reply.encode())
                });
            }
            Event::StrangeReply(worker, (status, body, claimed_size)) => {
                let headers = vec![(":status".to_owned(), status.clone())];
                let answer = CallAnswer { headers, body: body.clone(), claimed_size: *claimed_size };
                return self.answer_first(*worker, |_| answer);
            }
            Event::Clock(worker, (monotonic, unix)) => {
                let host = self.workers[*worker].host_mut();
                (host.monotonic_ns, host.unix_ns) = (*monotonic, *unix);
            }
            Event::AdvanceMs(worker, ms) => {
                let host = self.workers[*worker].host_mut();
                host.monotonic_ns = host.monotonic_ns.saturating_add(ms * 1_000_000);
            }
            Event::Reload(worker) => {
                self.waiting[*worker].clear();
                self.workers[*worker] = self.start(self.seed ^ 0xabcd, true)?;
            }
            Event::Leave(worker) => {
                if !self.waiting[*worker].is_empty() {
                    let left = self.waiting[*worker].remove(0);
                    self.workers[*worker].abandon(&left);
                }
            }
            Event::Tamper(keys, (at, with)) => {
                self.shared.tamper(keys, |value| value.iter_mut().skip(*at).take(1).for_each(|byte| *byte ^= with));
            }
            Event::Push(version) => self.rule_set = *version,
        }
        Ok(())
    }

    fn request(&mut self, worker: usize, ask: &Ask) {
        if let Begun::Waiting(waiting) = self.workers[worker].begin_request(ask) {
            self.waiting[worker].push(waiting);
        }
    }

    /// Answers the oldest call, if there is one. A request that waited for it is decided then, unless the host
    /// does not let it, or waits once more.
    fn answer_first(&mut self, worker: usize, answer: impl FnOnce(&HttpCall) -> CallAnswer) -> Result<(), Trap> {
        let (waiting, worker) = (&mut self.waiting[worker], &mut self.workers[worker]);
        let Some(call) = worker.host().http_calls.first().cloned() else { return Ok(()) };
        let Some(at) = waiting.iter().position(|waiting| waiting.call.token == call.token) else {
            return worker.try_answer_call(call.token, answer(&call));
        };
        let mut held = waiting.remove(at);
        let outcomes = ["proxy_continue_stream", "proxy_send_local_response"];
        let decided = |worker: &Worker| -> u32 { outcomes.map(|outcome| worker.host().called(outcome)).iter().sum() };
        let (calls, before) = (worker.host().http_calls.len(), decided(worker));
        worker.try_answer_call(call.token, answer(&call))?;
        match worker.host().http_calls.last() {
            Some(call) if worker.host().http_calls.len() == calls => {
                held.call = call.clone();
                waiting.push(held);
            }
            _ => {
                assert!(decided(worker) > before, "a request waits for nothing");
                worker.abandon(&held);
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    // I1
    #[test]
    fn a_random_host_never_traps_the_filter(
        seed: u64,
        odd in prop_oneof![Just(0u8), 1u8..40, Just(255u8)],
        inserts: bool,
        with_sync in prop::bool::weighted(0.8),
        events in prop::collection::vec(event(), 1..120),
    ) {
        let shared = SharedData::new(if inserts { ZeroCas::Inserts } else { ZeroCas::Overwrites });
        let (workers, waiting) = (Vec::new(), vec![Vec::new(); WORKERS]);
        let mut world = World { shared, seed, odd, workers, waiting, rule_set: 0 };
        for i in 0..WORKERS as u64 {
            match world.start(seed ^ i, with_sync) {
                Ok(worker) => world.workers.push(worker),
                Err(trap) => prop_assert!(false, "at the start: {trap:?}"),
            }
        }
        for event in &events {
            if let Err(trap) = world.happen(event) {
                prop_assert!(false, "{event:?}: {trap:?}");
            }
        }
    }
}
