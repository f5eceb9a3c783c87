//! Requests of any form.

use serde_json::json;
use weir_tests::mock_host::{Answer, Script, Worker};

use crate::harness::{client, plugin, rule, shared, synced, with};

// I1
#[test]
fn headers_of_any_bytes_get_a_decision() {
    let matching = json!({"hosts": ["api.example.com"], "methods": ["GET"], "path": {"prefix": "/api"}});
    let mut worker = Worker::configured(&shared(), &plugin(&with(rule("1/h", 1), "match", matching)));
    let good = client(1).header(":path", "/api/x?y");
    assert!(worker.request(&good).allowed());
    assert!(!worker.request(&good).allowed());
    let strange = [vec![], vec![0xff; 9], vec![0], b"[".to_vec(), b"?".to_vec(), vec![b'/'; 65_536]];
    for value in &strange {
        for name in [":path", ":method"] {
            assert!(worker.request(&good.clone().header(name, value)).allowed(), "{name}: not the rule's");
        }
        // What is no host may be any host to the upstream.
        let may_be_a_host = value.iter().all(|byte| !byte.is_ascii());
        assert_eq!(worker.request(&good.clone().header(":authority", value)).allowed(), may_be_a_host);
    }
    let mut bare = client(1);
    bare.headers.clear();
    assert!(worker.request(&bare).allowed());
    let prefixed = [b"/api\xff\xfe\x00".to_vec(), [b"/api".to_vec(), vec![b'x'; 65_536]].concat()];
    for value in prefixed {
        assert!(!worker.request(&good.clone().header(":path", value)).allowed(), "still the rule's");
    }
}

#[test]
fn data_outside_of_allocated_memory_is_ignored() {
    let by_method = json!({"name": "r", "key": ["method"], "rate": "1/h", "burst": 1});
    let ask = client(1).header("x", "a");
    // What it asks for, where and how long the answer is; how many of three requests are let through.
    for (asks, place, bytes, through) in [
        (vec![20], None, 20, 1),
        (vec![20], None, 19, 1),
        (vec![20, 30], None, 20, 1),
        (vec![], Some(1 << 16), 20, 3),
        (vec![20], Some(1 << 16), 20, 3),
        (vec![20], None, 21, 3),
    ] {
        let mut worker = Worker::configured(&shared(), &plugin(&by_method));
        let stray = Answer::Stray { asks, place, bytes };
        worker.host_mut().follow(Script::always("proxy_get_header_map_value", stray.clone()));
        assert_eq!(worker.allowed_of(3, &ask), through, "{stray:?}");
        worker.host_mut().follow(Script::work());
        assert_eq!(worker.allowed_of(3, &ask), 1, "after {stray:?}");
    }
}

#[test]
fn repeated_host_answers_leak_no_memory() {
    let by_method = json!({"name": "r", "key": ["method"], "rate": "1/h", "burst": 1});
    let mut worker = Worker::configured(&shared(), &plugin(&by_method));
    let stray = Answer::Stray { asks: vec![5_000, 6_000], place: Some(1 << 16), bytes: 20 };
    worker.host_mut().follow(Script::always("proxy_get_header_map_value", stray));
    let ask = client(1).header("x", "a");
    worker.allowed_of(100, &ask);
    let warm = worker.memory_bytes();
    worker.allowed_of(1_000, &ask);
    assert_eq!(worker.memory_bytes(), warm);
}

/// What a decision asks its host for is most of its cost.
#[test]
fn a_request_makes_only_the_calls_it_needs() {
    let key = json!([{"header": "x"}, {"header": "y"}, {"cookie": "z"}]);
    let by_headers = with(rule("20/s", 100), "key", key);
    let advertised = with(rule("20/s", 100), "response", json!({"on_allowed": true}));
    let ask = client(1).header("x", "a").line("x", "b").header("y", "c").header("cookie", "z=1");
    for (configuration, pairs) in [
        (plugin(&rule("20/s", 100)), 0),
        (synced(&rule("20/s", 100)), 0),
        // An upstream's own quota headers are read.
        (synced(&advertised), 1),
        (plugin(&by_headers), 1),
    ] {
        let mut worker = Worker::configured(&shared(), &configuration);
        worker.host_mut().follow(Script::work());
        assert_eq!(worker.allowed_of(5, &ask), 5);
        let functions = ["proxy_get_shared_data", "proxy_get_header_map_pairs", "proxy_get_header_map_value"];
        assert_eq!(functions.map(|name| worker.host().called(name)), [5, 5 * pairs, 0], "{configuration}");
    }
    // Each refusal of a flood of POSTs brings the address into the module and nothing else.
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/h", 1)));
    let post = client(1).header("content-type", "application/json");
    assert_eq!(worker.allowed_of(2, &post), 1);
    worker.host_mut().lent = 0;
    assert_eq!(worker.allowed_of(10, &post), 0);
    assert_eq!(worker.host().lent, 10);
}

#[test]
fn without_header_pairs_single_headers_are_fetched() {
    let by_header = json!({"name": "r", "key": [{"header": "x"}], "rate": "1/h", "burst": 1});
    let ask = client(1).header("x", "a");
    let claims_too_much = [2u32, 1, 1, 1, u32::MAX].map(u32::to_le_bytes).concat();
    for answer in [
        Answer::Status(12),
        Answer::Nothing,
        Answer::Bytes(vec![0]),
        Answer::Bytes(vec![0; 8]),
        Answer::Bytes(vec![0xff; 64]),
        Answer::Bytes(claims_too_much),
    ] {
        let mut worker = Worker::configured(&shared(), &plugin(&by_header));
        worker.host_mut().follow(Script::always("proxy_get_header_map_pairs", answer.clone()));
        assert_eq!(worker.allowed_of(3, &ask), 1, "{answer:?}");
    }
}

#[test]
fn metadata_of_the_response_replaces_the_reserved_cost() {
    let after = json!({"after": {"metadata": ["llm", "total_tokens"], "max": 50}, "reserve": 20});
    let rule = with(rule("1/h", 100), "cost", after);
    let number = |number: f64| Some(number.to_le_bytes().to_vec());
    // What Envoy hands over, and how many requests of a hundred tokens are let through.
    for (found, through) in [
        (number(10.0), 9),
        (number(20.0), 5),
        (number(45.0), 2),
        (Some(b"10".to_vec()), 9),
        (number(1e9), 2),
        (number(0.0), 200),
        (None, 5),
        (Some(Vec::new()), 5),
        (Some(b"many".to_vec()), 5),
        (Some(b"12345678".to_vec()), 2),
        (Some(vec![1]), 5),
        (Some(vec![0xff; 8]), 5),
        (Some(vec![0; 100_000]), 5),
        (number(-10.0), 5),
        (number(10.5), 5),
        (number(1e300), 5),
        (number(f64::INFINITY), 5),
        (number(f64::NEG_INFINITY), 5),
        (number(f64::NAN), 5),
    ] {
        let mut worker = Worker::configured(&shared(), &plugin(&rule));
        let mut ask = client(1);
        if let Some(found) = &found {
            ask.properties.insert("metadata\0filter_metadata\0llm\0total_tokens".into(), found.clone());
        }
        assert_eq!(worker.allowed_of(200, &ask), through, "{:?}", found.map(|found| found.len()));
    }
}
