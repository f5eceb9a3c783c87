//! Memory is fixed, whichever clients ask.

use serde_json::json;
use weir_tests::mock_host::{Ask, CallAnswer, SharedData, Worker, grant, reply};

use crate::harness::{exchange, plugin, rule, shared, synced, with};

const ADDRESSES: u32 = 40_000;
/// Half of them warm everything up.
const WARM_UP: u32 = ADDRESSES / 2;

/// One request from each address; what memory stood at after the warm-up and at the end.
fn rotate(
    worker: &mut Worker,
    shared: &SharedData,
    mut tick: impl FnMut(&mut Worker),
) -> [(usize, usize); 2] {
    let mut run = |range: std::ops::Range<u32>| {
        for n in range {
            let [_, a, b, c] = n.to_be_bytes();
            let _ = worker.request(&Ask::from(format!("10.{a}.{b}.{c}:80")));
            if n % 1_000 == 0 {
                // Long enough that a worker forgets some of those it watches.
                worker.advance_ms(20_000);
                tick(worker);
            }
        }
        (worker.memory_bytes(), shared.keys().len())
    };
    [run(0..WARM_UP), run(WARM_UP..ADDRESSES)]
}

// I2
#[test]
fn rotating_addresses_cost_no_memory() {
    let shared = shared();
    let mut worker = Worker::configured(&shared, &plugin(&rule("1/h", 2)));
    let keys = shared.keys().len();
    let [warm, end] = rotate(&mut worker, &shared, Worker::tick);
    assert_eq!(warm, end, "bytes of linear memory, keys of shared data");
    assert_eq!(end.1, keys);
    assert!(worker.counted("weir.table.overflowed") > 0, "more addresses than the table holds");
}

#[test]
fn a_gauge_shows_how_many_addresses_owe_something() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/m", 3)));
    let ask = |worker: &mut Worker, clients: std::ops::Range<u32>| {
        for n in clients {
            assert_eq!(worker.allowed_of(1, &Ask::from(format!("10.0.0.{n}:80"))), 1);
        }
        worker.counted("weir.table.entries_used")
    };
    assert_eq!(ask(&mut worker, 0..30), 30);
    // More than the 64 places; two may have one label.
    let taken = ask(&mut worker, 30..130);
    assert!((125..=130).contains(&taken), "{taken}");
    // Three tokens are back.
    worker.advance_ms(181_000);
    assert_eq!(worker.counted("weir.table.entries_used"), 0);
}

// I2
#[test]
fn rotating_watched_addresses_cost_no_memory() {
    let shared = shared();
    // Every batch of addresses fits, and is full again before the next.
    let plugin = with(synced(&rule("10/s", 2)), "table", json!({"addresses": 4_096}));
    let mut worker = Worker::configured(&shared, &plugin);
    exchange(&mut worker, |report| CallAnswer::new("200", reply(report.sequence, 9, Vec::new())));
    let keys = shared.keys().len();
    let mut said = 0;
    let [warm, end] = rotate(&mut worker, &shared, |worker| {
        let report = exchange(worker, |report| {
            let grants = report.keys.iter().map(|_| grant(500, 1, 100)).collect();
            CallAnswer::new("200", reply(report.sequence, 9, grants))
        });
        said += report.keys.len();
    });
    assert_eq!(warm, end, "bytes of linear memory, keys of shared data");
    assert_eq!(end.1, keys);
    assert!(said > 10_000, "{said} were watched");
}
