//! Random answers of the host under random events: never a trap, always a decision.

use proptest::prelude::*;
use weir_limiter::wire::{Message, Report};
use weir_tests::mock_host::{
    Answer, Ask, CallAnswer, Host, Script, SharedData, Trap, Worker, ZeroCas, grant, reply,
};

use crate::harness::{plugin, rule, synced};

#[derive(Clone, Debug)]
enum Event {
    Request { worker: usize, client: u8 },
    StrangeRequest { worker: usize, bytes: Vec<u8> },
    Tick { worker: usize },
    Reply { worker: usize, ratio: u64, level: i64, pops: u32 },
    StrangeReply { worker: usize, status: Vec<u8>, body: Vec<u8>, claimed: Option<u32> },
    Clock { worker: usize, monotonic: u64, unix: u64 },
    Advance { worker: usize, ms: u64 },
    Reload { worker: usize },
    Tamper { at: usize, with: u8 },
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
        1 => worker.prop_map(|worker| Event::Reload { worker }),
        1 => (0usize..512, 1u8..).prop_map(|(at, with)| Event::Tamper { at, with }),
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
        // What the SDK itself does not survive is pinned in limitations.rs.
        let status = match function {
            "proxy_http_call" => [2, 10][usize::from(roll[3] % 2)],
            "proxy_set_effective_context" => 0,
            // "OK" is a promise to answer the request; nothing the filter sees tells it from the truth.
            "proxy_send_local_response" => status.max(1),
            _ => status,
        };
        match (function, roll[1] % 4) {
            ("proxy_http_call", _) | (_, 0) => Answer::Status(status),
            (_, 1) => Answer::Nothing,
            (_, 2) => Answer::Number(next() >> (roll[4] % 64)),
            _ => Answer::Bytes((0..next() % 600).map(|_| next().to_le_bytes()[0]).collect()),
        }
    })
}

fn start(shared: &SharedData, seed: u64, odd: u8, with_sync: bool) -> Result<Worker, Trap> {
    let mut worker = Worker::try_start(Host::new(shared).with(anything(seed, odd)))?;
    let rule = rule("1/s", 3);
    let plugin = if with_sync { synced(&rule) } else { plugin(&rule) };
    // Refused, where the host hands over nonsense: then everything passes.
    worker.try_configure(plugin.to_string())?;
    Ok(worker)
}

fn happen(
    event: &Event,
    workers: &mut [Worker],
    shared: &SharedData,
    seed: u64,
    odd: u8,
) -> Result<(), Trap> {
    match event {
        Event::Request { worker, client } => {
            workers[*worker].try_request(&Ask::from(format!("192.0.2.{client}:1"))).map(drop)
        }
        Event::StrangeRequest { worker, bytes } => {
            workers[*worker].try_request(&Ask::from(bytes).header(":path", bytes)).map(drop)
        }
        Event::Tick { worker } => workers[*worker].try_tick(),
        Event::Reply { worker, ratio, level, pops } => answer_first(&mut workers[*worker], |report| {
            let grants = report.keys.iter().map(|_| grant(*ratio, level / 1_000, 3_000)).collect();
            CallAnswer::new("200", reply(report.sequence, *pops, grants))
        }),
        Event::StrangeReply { worker, status, body, claimed } => {
            let headers = vec![(":status".to_owned(), status.clone())];
            let answer = CallAnswer { headers, body: body.clone(), claimed_size: *claimed };
            answer_first(&mut workers[*worker], |_| answer)
        }
        Event::Clock { worker, monotonic, unix } => {
            let host = workers[*worker].host_mut();
            (host.monotonic_ns, host.unix_ns) = (*monotonic, *unix);
            Ok(())
        }
        Event::Advance { worker, ms } => {
            let host = workers[*worker].host_mut();
            host.monotonic_ns = host.monotonic_ns.saturating_add(ms * 1_000_000);
            Ok(())
        }
        Event::Reload { worker } => {
            workers[*worker] = start(shared, seed ^ 0xabcd, odd, true)?;
            Ok(())
        }
        Event::Tamper { at, with } => {
            shared
                .tamper(b"weir.s.", |slot| slot.iter_mut().skip(*at).take(1).for_each(|byte| *byte ^= with));
            Ok(())
        }
    }
}

/// Answers the oldest call, if there is one.
fn answer_first(worker: &mut Worker, answer: impl FnOnce(&Report) -> CallAnswer) -> Result<(), Trap> {
    let Some(call) = worker.host().http_calls.first().cloned() else { return Ok(()) };
    let report = Report::decode(&call.body).expect("weir-sync could not read this report");
    worker.try_answer_call(call.token, answer(&report))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_traps_and_always_decides(
        seed: u64,
        odd in prop_oneof![Just(0u8), 1u8..40, Just(255u8)],
        inserts: bool,
        with_sync in prop::bool::weighted(0.8),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let shared = SharedData::new(if inserts { ZeroCas::Inserts } else { ZeroCas::Overwrites });
        let mut workers = Vec::new();
        for i in 0..WORKERS as u64 {
            match start(&shared, seed ^ i, odd, with_sync) {
                Ok(worker) => workers.push(worker),
                Err(trap) => prop_assert!(false, "at the start: {trap:?}"),
            }
        }
        for event in &events {
            if let Err(trap) = happen(event, &mut workers, &shared, seed, odd) {
                prop_assert!(false, "{event:?}: {trap:?}");
            }
        }
    }
}
