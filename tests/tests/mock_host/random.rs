//! Random answers of the host under random events: never a trap, always a decision.

use proptest::prelude::*;
use serde_json::json;
use weir_protocol::messages::{Allowance, Message, RULES_PATH, Reply, Report, Settled};
use weir_tests::mock_host::{
    Answer, Ask, Begun, CallAnswer, Host, HttpCall, Script, SharedData, Trap, Waiting, Worker, ZeroCas, grant,
};

use crate::harness::{plugin, rule, synced};

#[derive(Clone, Debug)]
enum Event {
    Request {
        worker: usize,
        client: u8,
    },
    StrangeRequest {
        worker: usize,
        bytes: Vec<u8>,
    },
    Tick {
        worker: usize,
    },
    Reply {
        worker: usize,
        ratio: u64,
        level: i64,
        pops: u32,
    },
    StrangeReply {
        worker: usize,
        status: Vec<u8>,
        body: Vec<u8>,
        claimed: Option<u32>,
    },
    Clock {
        worker: usize,
        monotonic: u64,
        unix: u64,
    },
    Advance {
        worker: usize,
        ms: u64,
    },
    Reload {
        worker: usize,
    },
    Tamper {
        at: usize,
        with: u8,
    },
    /// The fleet is to run another rule set.
    Push {
        version: u64,
    },
    /// The rule sets in shared data are something else.
    TamperRules {
        at: usize,
        with: u8,
    },
    /// The client of the request that has waited for the longest goes away.
    Leave {
        worker: usize,
    },
}

const WORKERS: usize = 2;

fn event() -> impl Strategy<Value = Event> {
    let (worker, bytes) = (0..WORKERS, prop::collection::vec(any::<u8>(), 0..80));
    let claimed = prop::option::of(any::<u32>());
    prop_oneof![
        8 => (worker.clone(), 0u8..4).prop_map(|(worker, client)| Event::Request { worker, client }),
        1 => (worker.clone(), bytes.clone()).prop_map(|(worker, bytes)| Event::StrangeRequest { worker, bytes }),
        4 => worker.clone().prop_map(|worker| Event::Tick { worker }),
        4 => (worker.clone(), 0u64..=1_000, any::<i64>(), 0u32..400).prop_map(|(worker, ratio, level, pops)| {
            Event::Reply { worker, ratio, level: level / 1_000, pops }
        }),
        1 => (worker.clone(), prop_oneof![Just(b"200".to_vec()), bytes.clone()], bytes, claimed)
            .prop_map(|(worker, status, body, claimed)| Event::StrangeReply { worker, status, body, claimed }),
        1 => (worker.clone(), any::<u64>(), any::<u64>())
            .prop_map(|(worker, monotonic, unix)| Event::Clock { worker, monotonic, unix }),
        3 => (worker.clone(), 0u64..20_000).prop_map(|(worker, ms)| Event::Advance { worker, ms }),
        1 => worker.clone().prop_map(|worker| Event::Leave { worker }),
        1 => worker.prop_map(|worker| Event::Reload { worker }),
        1 => (0usize..512, 1u8..).prop_map(|(at, with)| Event::Tamper { at, with }),
        2 => (0u64..9).prop_map(|version| Event::Push { version }),
        1 => (0usize..40, 1u8..).prop_map(|(at, with)| Event::TamperRules { at, with }),
    ]
}

/// A script that answers `odd` of 256 calls with anything, from `seed` on (splitmix64).
fn anything(seed: u64, odd: u8) -> Script {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    Script::of(move |function, _| {
        let roll = next().to_le_bytes();
        if roll[0] >= odd {
            return Answer::Work;
        }
        let status = if roll[2] < 200 { u32::from(roll[3] % 14) } else { u32::from_le_bytes([roll[3]; 4]) };
        let status = match function {
            // "OK" is a promise to answer, the call or the request; the filter cannot detect a false one.
            "proxy_http_call" | "proxy_send_local_response" => status.max(1),
            _ => status,
        };
        match (function, roll[1] % 5) {
            ("proxy_http_call", _) | (_, 0) => Answer::Status(status),
            (_, 1) => Answer::Nothing,
            (_, 2) => Answer::Number(next() >> (roll[4] % 64)),
            (_, 3) => Answer::Stray {
                asks: (0..roll[5] % 3).map(|i| u32::from(roll[6]) * u32::from(i)).collect(),
                place: (roll[7] % 2 == 0).then(|| u32::from(roll[2]) << (roll[3] % 25)),
                bytes: u32::from(roll[4]),
            },
            _ => Answer::Bytes((0..next() % 600).map(|_| next().to_le_bytes()[0]).collect()),
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
            Event::Request { worker, client } => {
                self.request(*worker, &Ask::from(format!("192.0.2.{client}:1")));
            }
            Event::StrangeRequest { worker, bytes } => {
                self.request(*worker, &Ask::from(bytes).header(":path", bytes));
            }
            Event::Tick { worker } => return self.workers[*worker].try_tick(),
            Event::Reply { worker, ratio, level, pops } => {
                let rule_set = self.rule_set;
                return self.answer_first(*worker, |call| {
                    if call.path().starts_with(RULES_PATH) {
                        return document(call.path().strip_prefix("/v1/rules?version=").unwrap_or_default());
                    }
                    let report = Report::decode(&call.body).expect("weir-sync could not read this report");
                    let allow = |_| Allowance::Hot(grant(*ratio, level / 1_000, 3_000));
                    let (grants, pops) = (report.keys.iter().map(allow).collect(), *pops);
                    let (sequence, settled) = (report.sequence, Settled::All);
                    let reply = Reply { sequence, pops, settled, grants, rule_set, ..Reply::default() };
                    CallAnswer::new("200", reply.encode())
                });
            }
            Event::StrangeReply { worker, status, body, claimed } => {
                let headers = vec![(":status".to_owned(), status.clone())];
                let answer = CallAnswer { headers, body: body.clone(), claimed_size: *claimed };
                return self.answer_first(*worker, |_| answer);
            }
            Event::Clock { worker, monotonic, unix } => {
                let host = self.workers[*worker].host_mut();
                (host.monotonic_ns, host.unix_ns) = (*monotonic, *unix);
            }
            Event::Advance { worker, ms } => {
                let host = self.workers[*worker].host_mut();
                host.monotonic_ns = host.monotonic_ns.saturating_add(ms * 1_000_000);
            }
            Event::Reload { worker } => {
                self.waiting[*worker].clear();
                self.workers[*worker] = self.start(self.seed ^ 0xabcd, true)?;
            }
            Event::Push { version } => self.rule_set = *version,
            Event::TamperRules { at, with } => self.tamper(b"weir.rules", *at, *with),
            Event::Tamper { at, with } => self.tamper(b"weir.s5.", *at, *with),
            Event::Leave { worker } if !self.waiting[*worker].is_empty() => {
                let left = self.waiting[*worker].remove(0);
                self.workers[*worker].abandon(&left);
            }
            Event::Leave { .. } => {}
        }
        Ok(())
    }

    fn request(&mut self, worker: usize, ask: &Ask) {
        if let Begun::Waiting(waiting) = self.workers[worker].begin_request(ask) {
            self.waiting[worker].push(waiting);
        }
    }

    fn tamper(&self, keys: &[u8], at: usize, with: u8) {
        self.shared.tamper(keys, |value| value.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= with));
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
