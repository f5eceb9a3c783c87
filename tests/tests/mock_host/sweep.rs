//! Every function of the host, with every status that it may return and with other nonsense: each request gets its
//! decision.
//!
//! Tests of I1.

use weir_tests::conformance::{CALLS, OK, Outcome, STATUSES, Without, decided, left_out, run, sweep};
use weir_tests::mock_host::{Answer, Script};

/// The module's decisions on a host that follows `script`; panics if it traps.
fn outcomes(script: Script, what: &str) -> Vec<Outcome> {
    let run = run(script);
    run.unwrap_or_else(|trap| panic!("{what}: {trap:?}")).outcomes
}

fn always(function: &str, answer: &Answer) -> Vec<Outcome> {
    outcomes(Script::always(function, answer.clone()), &format!("{function} answers {answer:?}"))
}

#[test]
fn runs_cover_every_import_and_export() {
    let run = run(Script::work()).unwrap();
    assert_eq!(left_out(&run), [""; 0]);
    assert_eq!(run.outcomes, decided(Without::Nothing));
}

#[test]
fn every_request_is_decided_under_any_status() {
    for call in &CALLS {
        for status in STATUSES {
            let run = sweep(call.name, status);
            assert!(run.is_ok(), "{}", run.unwrap_err());
        }
    }
}

#[test]
fn a_request_waits_only_for_an_accepted_call() {
    for call in &CALLS {
        for status in STATUSES {
            let is_promise = status == OK && ["proxy_http_call", "proxy_send_local_response"].contains(&call.name);
            let waits = decided(call.without(status).0).contains(&Outcome::Held);
            assert_eq!(waits, is_promise, "{} returns {status}", call.name);
        }
    }
}

#[test]
fn a_single_failing_call_costs_no_decision() {
    let calls = run(Script::work()).unwrap();
    for function in CALLS.iter().map(|call| call.name) {
        for nth in 1..=calls.calls_of(function) {
            for answer in [Answer::Status(1), Answer::Status(10), Answer::Nothing] {
                let script = Script::only(function, nth, answer.clone());
                let outcomes = outcomes(script, &format!("{function}, call {nth}, {answer:?}"));
                assert_eq!(outcomes.len(), calls.outcomes.len());
                // That is a promise.
                let may_wait = function == "proxy_http_call" && answer == Answer::Nothing;
                assert!(may_wait || !outcomes.contains(&Outcome::Held), "{function}, call {nth}, {answer:?}");
            }
        }
    }
}

#[test]
fn every_request_is_decided_under_any_bytes() {
    let bytes = [
        vec![0xff],
        b"\xc3\x28 \x00 no text".to_vec(),
        vec![0; 512],
        (0u32..512).map(|i| (i * 167 + 13).to_le_bytes()[0]).collect(),
        vec![b'1'; 65_536],
        vec![0; 20],
    ];
    let strays = [(1 << 16, 20), (u32::MAX, u32::MAX)].map(|(place, bytes)| Answer::Stray {
        asks: vec![20],
        place: Some(place),
        bytes,
    });
    let answers = bytes.into_iter().map(Answer::Bytes).chain([Answer::Nothing]).chain(strays);
    for answer in answers {
        for (function, without) in [
            ("proxy_get_buffer_bytes", Without::Limits),
            ("proxy_get_header_map_value", Without::Headers),
            ("proxy_get_header_map_pairs", Without::Nothing),
            ("proxy_get_property", Without::Limits),
        ] {
            assert_eq!(always(function, &answer), decided(without), "{function} answers {answer:?}");
        }
        // Whatever the slots hold, they are written: a write's number fits what was read.
        let outcomes = always("proxy_get_shared_data", &answer);
        assert_eq!(outcomes.len(), decided(Without::Nothing).len());
        assert!(!outcomes.contains(&Outcome::Held), "{answer:?}");
    }
}

#[test]
fn every_request_is_decided_under_any_number() {
    for number in [0, 1, u64::from(u32::MAX), u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        for function in ["clock_time_get", "proxy_get_current_time_nanoseconds", "proxy_define_metric"] {
            let outcomes = always(function, &Answer::Number(number));
            assert_eq!(outcomes.len(), decided(Without::Nothing).len());
            assert!(!outcomes.contains(&Outcome::Held), "{function} answers {number}");
        }
    }
}
