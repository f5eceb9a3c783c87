//! Every function of the host, with every status it may answer: each request gets its decision.

use weir_tests::mock_host::{
    Answer, Ask, CallAnswer, Host, Script, Trap, Worker, function_names, grant, reply,
};
use weir_wire::messages::{Message, Report};

use crate::harness::{client, rule, shared, synced, with};

/// Every status of the ABI but OK, and two that are none.
pub(crate) const STATUSES: [u32; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 99, u32::MAX];

/// What a run of [`everything`] decides on a host that works: two of the burst of two and two past it, a
/// client before and after a grant of nothing, two without a readable address.
const ON_A_WORKING_HOST: [bool; 8] = [true, true, false, false, true, false, true, true];
/// The same where weir-sync is out of reach: the local bucket decides.
const WITHOUT_SYNC: [bool; 8] = [true, true, false, false, true, true, true, true];
/// The same where nothing can be limited.
const LET_THROUGH: [bool; 8] = [true; 8];

/// Requests, ticks, reports and every kind of answer to them; which requests went on.
pub(crate) fn everything(host: Host) -> Result<(Vec<bool>, Worker), Trap> {
    let mut worker = Worker::try_start(host)?;
    let loud = with(rule("1/h", 2), "response", serde_json::json!({"on_allowed": true, "reset": "epoch"}));
    worker.try_configure(with(synced(&loud), "filter_state", serde_json::json!(true)).to_string())?;
    let mut allowed = Vec::new();
    exchange(&mut worker, |report| CallAnswer::new("200", reply(report.sequence, 3, Vec::new())))?;
    for _ in 0..4 {
        allowed.push(worker.try_request(&client(1))?.allowed());
    }
    allowed.push(worker.try_request(&client(2))?.allowed());
    exchange(&mut worker, |report| {
        let grants = report.keys.iter().map(|_| grant(0, 0, 60_000)).collect();
        CallAnswer::new("200", reply(report.sequence, 3, grants))
    })?;
    allowed.push(worker.try_request(&client(2))?.allowed());
    exchange(&mut worker, |_| CallAnswer::new("503", Vec::new()))?;
    exchange(&mut worker, |_| CallAnswer::timeout())?;
    exchange(&mut worker, |_| CallAnswer::new("200", b"nonsense".to_vec()))?;
    allowed.push(worker.try_request(&Ask::from("/run/client.sock"))?.allowed());
    allowed.push(worker.try_request(&Ask::default())?.allowed());
    Ok((allowed, worker))
}

/// Ticks after an interval, and answers what was sent, if anything was.
fn exchange(worker: &mut Worker, answer: impl Fn(&Report) -> CallAnswer) -> Result<(), Trap> {
    worker.advance_ms(2_500);
    worker.try_tick()?;
    for call in worker.host().http_calls.clone() {
        let report = Report::decode(&call.body).expect("weir-sync could not read this report");
        worker.try_answer_call(call.token, answer(&report))?;
    }
    Ok(())
}

/// What a run decides on a host that answers every call of `function` with something else than OK.
fn decisions_without(function: &str) -> [bool; 8] {
    match function {
        // No configuration, no address, no way to answer: nothing can be limited.
        "proxy_get_buffer_bytes" | "proxy_get_property" | "proxy_send_local_response" => LET_THROUGH,
        "proxy_http_call" | "proxy_get_header_map_value" => WITHOUT_SYNC,
        _ => ON_A_WORKING_HOST,
    }
}

fn run(function: &str, answer: Answer) -> Result<Vec<bool>, Trap> {
    everything(Host::new(&shared()).with(Script::always(function, answer))).map(|(allowed, _)| allowed)
}

#[test]
fn a_working_host_gets_every_decision_right() {
    let (allowed, worker) = everything(Host::new(&shared())).unwrap();
    assert_eq!(allowed, ON_A_WORKING_HOST);
    // The sweep below is worth something only for functions that the run reaches.
    for function in [
        "proxy_add_header_map_value",
        "proxy_define_metric",
        "proxy_get_buffer_bytes",
        "proxy_get_current_time_nanoseconds",
        "proxy_get_header_map_value",
        "proxy_get_property",
        "proxy_get_shared_data",
        "proxy_http_call",
        "proxy_increment_metric",
        "proxy_log",
        "proxy_send_local_response",
        "proxy_set_effective_context",
        "proxy_set_property",
        "proxy_set_shared_data",
        "proxy_set_tick_period_milliseconds",
        "clock_time_get",
        "random_get",
    ] {
        assert!(worker.host().called(function) > 0, "{function} is never called");
    }
}

#[test]
fn every_request_gets_its_decision_whatever_status_a_function_answers() {
    for function in function_names() {
        for status in STATUSES {
            let run = run(&function, Answer::Status(status));
            let allowed = run.unwrap_or_else(|trap| panic!("{function} answers {status}: {trap:?}"));
            assert_eq!(allowed, decisions_without(&function), "{function}: {status}");
        }
    }
}

#[test]
fn a_single_failing_call_costs_no_decision() {
    let (_, worker) = everything(Host::new(&shared())).unwrap();
    for function in function_names() {
        for nth in 1..=worker.host().called(&function) {
            for answer in [Answer::Status(1), Answer::Status(10), Answer::Nothing] {
                let script = Script::only(&function, nth, answer.clone());
                let run = everything(Host::new(&shared()).with(script));
                let (allowed, _) =
                    run.unwrap_or_else(|trap| panic!("{function}, call {nth}, {answer:?}: {trap:?}"));
                assert_eq!(allowed.len(), ON_A_WORKING_HOST.len());
            }
        }
    }
}

#[test]
fn every_request_gets_its_decision_whatever_bytes_a_function_answers() {
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
        for function in [
            "proxy_get_buffer_bytes",
            "proxy_get_header_map_value",
            "proxy_get_property",
            "proxy_get_shared_data",
        ] {
            let run = run(function, answer.clone());
            let allowed = run.unwrap_or_else(|trap| panic!("{function} answers {answer:?}: {trap:?}"));
            match function {
                // Whatever the slots hold, they are written: a write's number fits what was read.
                "proxy_get_shared_data" => assert_eq!(allowed.len(), ON_A_WORKING_HOST.len()),
                _ => assert_eq!(allowed, decisions_without(function), "{function} answers {answer:?}"),
            }
        }
    }
}

#[test]
fn every_request_gets_its_decision_whatever_number_a_function_answers() {
    for number in [0, 1, u64::from(u32::MAX), u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        for function in ["clock_time_get", "proxy_get_current_time_nanoseconds", "proxy_define_metric"] {
            let run = run(function, Answer::Number(number));
            let allowed = run.unwrap_or_else(|trap| panic!("{function} answers {number}: {trap:?}"));
            assert_eq!(allowed.len(), ON_A_WORKING_HOST.len(), "{function} answers {number}");
        }
    }
}
