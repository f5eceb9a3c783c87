//! Buckets in shared data: several workers, conflicts, corruption, hosts that have none.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::json;
use weir_tests::mock_host::{Answer, Host, Script, SharedData, Worker, ZeroCas};

use crate::harness::{client, plugin, rule, shared, synced, with};

const BOTH: [ZeroCas; 2] = [ZeroCas::Overwrites, ZeroCas::Inserts];

#[test]
fn a_host_without_shared_data_limits_per_worker() {
    for function in ["proxy_get_shared_data", "proxy_set_shared_data"] {
        let shared = shared();
        let mut workers = [1, 2].map(|_| {
            let script = Script::always(function, Answer::Status(12));
            Worker::configured_on(Host::new(&shared).with(script), &plugin(&rule("1/h", 3)))
        });
        for worker in &mut workers {
            assert_eq!(worker.allowed_of(10, &client(1)), 3);
            assert_eq!(worker.host().logged("shared data does not hold the table"), 1);
            assert_eq!(worker.counted("weir.rule.per-address.limited"), 7);
            assert_eq!(worker.counted("weir.table.unavailable"), 0, "its own table is there");
        }
    }
}

/// The crate proxy-wasm-host holds this many keys by default.
#[test]
fn the_default_table_fits_a_store_of_4096_keys() {
    let shared = shared().with_room(4_096);
    let configuration = json!({"rules": [rule("1/h", 3)], "sync": synced(&rule("1/h", 3))["sync"]});
    let mut workers = [1, 2].map(|_| Worker::configured(&shared, &configuration));
    let allowed: usize = workers.iter_mut().map(|worker| worker.allowed_of(9, &client(1))).sum();
    assert_eq!(allowed, 3, "one bucket for both");
    assert_eq!(workers[0].host().logged("does not hold the table"), 0);
    // With all values that are ever stored beside the slots.
    let rules = ["rules.fetch", "rules.version", "rules.refusal", "rules"];
    for key in ["contact", "missed", "behind", "greeted", "handover"].into_iter().chain(rules) {
        assert!(shared.put(format!("weir.{key}").as_bytes(), &[0; 8]), "{key}");
    }
}

#[test]
fn later_failures_of_shared_data_let_requests_pass() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/h", 2)));
    worker.host_mut().follow(Script::always("proxy_get_shared_data", Answer::Status(10)));
    assert_eq!(worker.allowed_of(5, &client(1)), 5);
    assert_eq!(worker.counted("weir.table.unavailable"), 5);
    worker.host_mut().follow(Script::always("proxy_set_shared_data", Answer::Status(10)));
    assert_eq!(worker.allowed_of(5, &client(1)), 5);
    assert_eq!(worker.counted("weir.table.unavailable"), 10);
    worker.host_mut().follow(Script::work());
    assert!(worker.allowed_of(5, &client(1)) <= 2, "once it works again, so does the limit");
}

#[test]
fn a_failed_read_keeps_the_buckets_of_other_clients() {
    let one_slot = with(plugin(&rule("1/h", 2)), "table", json!({"addresses": 16}));
    let mut worker = Worker::configured(&shared(), &one_slot);
    assert_eq!(worker.allowed_of(2, &client(1)), 2);
    worker.host_mut().follow(Script::only("proxy_get_shared_data", 1, Answer::Status(10)));
    assert!(worker.request(&client(2)).allowed());
    assert_eq!(worker.allowed_of(2, &client(1)), 0);
}

// I3
#[test]
fn a_conflicting_write_is_retried_without_loss() {
    for zero_cas in BOTH {
        let shared = SharedData::new(zero_cas);
        let mut worker = Worker::configured(&shared, &plugin(&rule("1/h", 10)));
        let other = Rc::new(RefCell::new(Worker::configured(&shared, &plugin(&rule("1/h", 10)))));
        let others = Rc::new(RefCell::new(0));
        let mut own = 0;
        for _ in 0..8 {
            let (other, others) = (other.clone(), others.clone());
            worker.host_mut().before_write =
                Some(Box::new(move || *others.borrow_mut() += other.borrow_mut().allowed_of(1, &client(1))));
            own += worker.allowed_of(1, &client(1));
        }
        assert_eq!((own, *others.borrow()), (5, 5), "{zero_cas:?}: one burst for both");
        assert_eq!(worker.counted("weir.table.cas_retried"), 5, "{zero_cas:?}");
        assert_eq!(worker.counted("weir.table.cas_gave_up"), 0, "{zero_cas:?}");
    }
}

// I1
#[test]
fn a_slot_always_in_conflict_still_gets_a_decision() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/h", 2)));
    worker.host_mut().follow(Script::always("proxy_set_shared_data", Answer::Status(8)));
    assert!(worker.request(&client(1)).allowed());
    let writes = worker.host().called("proxy_set_shared_data");
    assert!((2..=100).contains(&writes), "{writes} writes for one request");
    assert_eq!(worker.counted("weir.table.cas_gave_up"), 1);
    assert_eq!(worker.counted("weir.table.cas_retried"), u64::from(writes));
}

#[test]
fn workers_starting_together_agree_if_the_host_allows() {
    let shared = SharedData::new(ZeroCas::Inserts);
    let late = Rc::new(RefCell::new(None));
    let mut host = Host::new(&shared);
    let (late_too, shared_too) = (late.clone(), shared.clone());
    host.before_write = Some(Box::new(move || {
        *late_too.borrow_mut() = Some(Worker::configured(&shared_too, &plugin(&rule("1/h", 4))));
    }));
    let mut first = Worker::configured_on(host, &plugin(&rule("1/h", 4)));
    let mut second = late.borrow_mut().take().expect("the other worker came between");
    let allowed: usize = (0..8).map(|_| first.allowed_of(1, &client(1)) + second.allowed_of(1, &client(1))).sum();
    assert_eq!(allowed, 4);
}

#[test]
fn a_corrupt_slot_is_counted_and_reset() {
    // One key is there, in the last 24 bytes of the units; the others hold nothing, and nor do the debts behind them.
    let used = [0, 4, 5, 6, 9, 16, 384, 407].map(|byte| (byte, true));
    for (byte, is_used) in used.into_iter().chain([24, 40, 383, 408, 511].map(|byte| (byte, false))) {
        let shared = shared();
        let mut worker = Worker::configured(&shared, &plugin(&rule("1/h", 2)));
        assert_eq!(worker.allowed_of(1, &client(1)), 1);
        shared.tamper(b"weir.s5.", |slot| slot[byte] ^= 0x55);
        assert_eq!(worker.allowed_of(5, &client(1)), if is_used { 2 } else { 1 }, "byte {byte}");
        // Sound again after the first write.
        assert_eq!(worker.counted("weir.table.corrupt"), u64::from(is_used), "byte {byte}");
    }
}

// I2
#[test]
fn a_larger_table_only_adds_slots() {
    let shared = shared();
    let sized = |addresses: u32| with(plugin(&rule("1/h", 5)), "table", json!({"addresses": addresses}));
    let mut worker = Worker::configured(&shared, &sized(64));
    assert_eq!(worker.allowed_of(3, &client(1)), 3);
    let slots = |shared: &SharedData| shared.keys().iter().filter(|key| key.starts_with(b"weir.s5.")).count();
    assert_eq!(slots(&shared), 4);
    let writes_of = |shared: &SharedData, addresses| {
        let worker = Worker::configured(shared, &sized(addresses));
        worker.host().called("proxy_set_shared_data")
    };
    assert_eq!(writes_of(&shared, 64), 0, "the next worker finds everything made");
    assert_eq!(writes_of(&shared, 128), 5, "four slots and their count");
    assert_eq!(writes_of(&shared, 64), 0);
    assert_eq!(slots(&shared), 8);
}
