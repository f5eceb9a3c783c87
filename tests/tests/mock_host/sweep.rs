//! Every function of the host, with every status that it may return and with other nonsense: each request gets its
//! decision.
//!
//! Tests of I1.

use serde_json::{Value, json};
use weir_protocol::messages::{Message, Report};
use weir_tests::mock_host::{
    Answer, Ask, CallAnswer, Decision, Host, Script, Trap, Worker, exports, grant, imports, reply,
};

use crate::harness::{client, leased, rule, shared, synced, with};

use self::Outcome::{Answered, Held, Passed};
use self::Without::{Answers, CallEnds, Fleet, Headers, Limits, Nothing, Unreached};

/// Every status of the ABI, and two that are none. The first is OK.
const STATUSES: [u32; 15] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 99, u32::MAX];
/// The number of times that a request may ask weir-sync before it is decided.
const CALLS_MAX: usize = 2;
/// The result of a callback that lets a request go on, and of one that holds it.
const CONTINUE: u32 = 0;
const PAUSE: u32 = 1;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It went on to its upstream, or its host was asked to continue it.
    Passed,
    /// The filter answered it, with this status.
    Answered(u32),
    /// It waits for a call or an answer that its host accepted.
    Held,
}

/// The part that is missing on a host on which a function has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    /// Nothing that a request notices.
    Nothing,
    /// The fleet: no reply of weir-sync arrives.
    Fleet,
    /// The same, but the host accepts the calls: none of them ends.
    CallEnds,
    /// The fleet, and conditions on a request's path: it has none.
    Headers,
    /// Every limit: there is no configuration, no address or no way to answer.
    Limits,
    /// The answers, though the host accepts them.
    Answers,
    /// No run reaches it: it is there for a panic.
    Unreached,
}

/// Every function that the module may import, with the part that is missing if it returns another status than OK, and
/// if it returns OK, does nothing and writes nothing.
const CALLS: [(&str, Without, Without); 23] = [
    ("proxy_log", Nothing, Nothing),
    // It dates a header: the monotonic clock decides.
    ("proxy_get_current_time_nanoseconds", Nothing, Nothing),
    // The run ticks on its own.
    ("proxy_set_tick_period_milliseconds", Nothing, Nothing),
    // The host calls back for the context that made the call.
    ("proxy_set_effective_context", Nothing, Nothing),
    // The plugin has no configuration, or an empty one, which is refused.
    ("proxy_get_buffer_bytes", Limits, Limits),
    // No path is the strict rule's, and an answer without a status is none.
    ("proxy_get_header_map_value", Headers, Headers),
    // A header's first line stands in for all of them.
    ("proxy_get_header_map_pairs", Nothing, Nothing),
    // No upstream of the run states a quota.
    ("proxy_remove_header_map_value", Unreached, Unreached),
    ("proxy_add_header_map_value", Nothing, Nothing),
    // A rule does not apply to a request without an address.
    ("proxy_get_property", Limits, Limits),
    ("proxy_set_property", Nothing, Nothing),
    // The worker has a table of its own.
    ("proxy_get_shared_data", Nothing, Nothing),
    ("proxy_set_shared_data", Nothing, Nothing),
    // The call is the last one for the request.
    ("proxy_continue_stream", Nothing, Nothing),
    // A request whose answer the host does not take goes on.
    ("proxy_send_local_response", Limits, Answers),
    // weir-sync is out of reach: the worker's bucket decides, or the rule's on_sync_loss.
    ("proxy_http_call", Fleet, CallEnds),
    // No decision reads a metric.
    ("proxy_define_metric", Nothing, Nothing),
    ("proxy_increment_metric", Nothing, Nothing),
    ("proxy_record_metric", Nothing, Nothing),
    ("proxy_get_metric", Nothing, Nothing),
    // The wall clock stands in, or time stands still, and no request of the run needs a refill.
    ("clock_time_get", Nothing, Nothing),
    // Keys are hashed with a secret that can be guessed.
    ("random_get", Nothing, Nothing),
    ("fd_write", Unreached, Unreached),
];

/// Outcomes of the run's requests on a host that lacks this: four of a client, two under a strict rule, two of another
/// client before and after a grant of nothing, two without an address, one after the configuration was replaced.
fn decided(without: Without) -> [Outcome; 11] {
    let first = match without {
        Limits => [Passed; 4],
        Answers => [Passed, Passed, Held, Held],
        _ => [Passed, Passed, Answered(429), Answered(429)],
    };
    let strict = match without {
        Fleet => [Answered(503); 2],
        CallEnds => [Held; 2],
        Answers => [Passed, Held],
        Headers | Limits => [Passed; 2],
        Nothing | Unreached => [Passed, Answered(429)],
    };
    let after_a_grant = match without {
        Nothing | Unreached => Answered(429),
        Answers => Held,
        _ => Passed,
    };
    let [a, b, c, d] = first;
    [a, b, c, d, strict[0], strict[1], Passed, after_a_grant, Passed, Passed, Passed]
}

/// Two of a client's requests pass; a login waits for weir-sync.
fn configuration() -> Value {
    let per_address = with(rule("1/h", 2), "response", json!({"on_allowed": true, "reset": "epoch"}));
    let login = json!({
        "name": "login", "match": {"path": {"exact": "/login"}, "headers": [{"name": "x-probe", "present": false}]},
        "key": ["client_address"], "rate": "5/m", "burst": 5, "strict": true, "on_sync_loss": "deny",
    });
    let mut plugin = with(synced(&per_address), "filter_state", json!(true));
    plugin["rules"].as_array_mut().unwrap().push(login);
    plugin
}

/// A run through every function that the module exports.
struct Run {
    worker: Worker,
    outcomes: Vec<Outcome>,
}

/// A run of the module on a host that follows `script`.
fn run(script: Script) -> Result<Run, Trap> {
    let mut run = Run { worker: Worker::try_start(Host::new(&shared()).with(script))?, outcomes: Vec::new() };
    let root = run.worker.root();
    run.worker.call_for(root, "proxy_abi_version_0_2_1", &[])?;
    run.worker.try_configure(configuration().to_string())?;
    run.exchange(|report| CallAnswer::new("200", reply(report.sequence, 3, Vec::new())))?;
    for _ in 0..4 {
        run.request(&client(1), 0)?;
    }
    run.request(&client(3).header(":path", "/login"), 1)?;
    run.request(&client(4).header(":path", "/login"), 0)?;
    run.request(&client(2), 0)?;
    run.exchange(|report| {
        let nothing = report.keys.iter().map(|_| grant(0, 0, 60_000)).collect();
        CallAnswer::new("200", reply(report.sequence, 3, nothing))
    })?;
    run.request(&client(2), 0)?;
    run.exchange(|_| CallAnswer::new("503", Vec::new()))?;
    run.exchange(|_| CallAnswer::timeout())?;
    run.exchange(|_| CallAnswer::new("200", b"nonsense".to_vec()))?;
    run.request(&Ask::from("/run/client.sock"), 0)?;
    run.request(&Ask::default(), 0)?;
    run.worker.try_update(configuration().to_string())?;
    run.request(&client(5), 0)?;
    Ok(run)
}

impl Run {
    /// A tick after an interval, and answers to all that was sent.
    fn exchange(&mut self, answer: impl Fn(&Report) -> CallAnswer) -> Result<(), Trap> {
        self.worker.advance_ms(2_500);
        self.worker.try_tick()?;
        for call in self.worker.host().http_calls.clone() {
            let report = Report::decode(&call.body).expect("a report");
            self.worker.try_answer_call(call.token, answer(&report))?;
        }
        Ok(())
    }

    /// A request from its begin to its end. If it waits for tokens of weir-sync, it gets this many.
    fn request(&mut self, ask: &Ask, tokens: u64) -> Result<(), Trap> {
        let (id, action) = self.worker.begin(ask)?;
        let mut outcome = self.outcome(action)?;
        for _ in 0..CALLS_MAX {
            let Some(call) = self.worker.host().call_of(id).filter(|_| outcome == Held).cloned() else { break };
            let resumed = self.worker.host().called("proxy_continue_stream");
            let report = Report::decode(&call.body).expect("a report");
            self.worker.try_answer_call(call.token, leased(&report, tokens))?;
            let is_resumed = self.worker.host().called("proxy_continue_stream") > resumed;
            outcome = self.outcome(if is_resumed { CONTINUE } else { PAUSE })?;
        }
        self.outcomes.push(outcome);
        let decision = self.worker.host().response().cloned().map_or(Decision::Continue, Decision::Answered);
        self.worker.end(id, decision).map(drop)
    }

    fn outcome(&self, action: u32) -> Result<Outcome, Trap> {
        if action == PAUSE && self.worker.host().response().is_none() {
            return Ok(Held);
        }
        Ok(match self.worker.decision(action)? {
            Decision::Continue => Passed,
            Decision::Answered(response) => Answered(response.status),
        })
    }
}

/// The module's decisions on a host that follows `script`; panics if it traps.
fn outcomes(script: Script, what: &str) -> Vec<Outcome> {
    run(script).unwrap_or_else(|trap| panic!("{what}: {trap:?}")).outcomes
}

fn always(function: &str, answer: &Answer) -> Vec<Outcome> {
    outcomes(Script::always(function, answer.clone()), &format!("{function} answers {answer:?}"))
}

#[test]
fn a_run_covers_every_import_and_export() {
    let run = run(Script::work()).unwrap();
    assert_eq!(run.outcomes, decided(Nothing));
    let calls = |name: &str| run.worker.host().called(name);
    for name in imports() {
        let row = CALLS.iter().find(|(known, ..)| known == name);
        let (_, refused, _) = row.unwrap_or_else(|| panic!("{name} is not in the table"));
        assert_eq!(calls(name) > 0, *refused != Unreached, "{name}");
    }
    // Two functions of libc are exported, too, because they are defined here.
    for name in exports().iter().filter(|name| !name.starts_with("get")) {
        assert!(calls(name) > 0, "{name} is not called");
    }
}

#[test]
fn every_request_is_decided_under_any_status() {
    for (function, refused, empty) in CALLS {
        for status in STATUSES {
            let without = if status == 0 { empty } else { refused };
            let found = always(function, &Answer::Status(status));
            assert_eq!(found, decided(without), "{function} returns {status}: {without:?}");
        }
    }
}

#[test]
fn a_single_failing_call_costs_no_decision() {
    let works = run(Script::work()).unwrap();
    for (function, ..) in CALLS {
        for nth in 1..=works.worker.host().called(function) {
            for answer in [Answer::Status(1), Answer::Status(10), Answer::Nothing] {
                let what = format!("{function}, call {nth}, {answer:?}");
                let outcomes = outcomes(Script::only(function, nth, answer.clone()), &what);
                assert_eq!(outcomes.len(), works.outcomes.len());
                // That is a promise.
                let may_wait = function == "proxy_http_call" && answer == Answer::Nothing;
                assert!(may_wait || !outcomes.contains(&Held), "{what}");
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
    for answer in bytes.into_iter().map(Answer::Bytes).chain([Answer::Nothing]).chain(strays) {
        for (function, without) in [
            ("proxy_get_buffer_bytes", Limits),
            ("proxy_get_header_map_value", Headers),
            ("proxy_get_header_map_pairs", Nothing),
            ("proxy_get_property", Limits),
        ] {
            assert_eq!(always(function, &answer), decided(without), "{function} answers {answer:?}");
        }
        // Whatever the slots hold, they are written: a write's number fits what was read.
        let outcomes = always("proxy_get_shared_data", &answer);
        assert!(outcomes.len() == decided(Nothing).len() && !outcomes.contains(&Held), "{answer:?}");
    }
}

#[test]
fn every_request_is_decided_under_any_number() {
    for number in [0, 1, u64::from(u32::MAX), u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        for function in ["clock_time_get", "proxy_get_current_time_nanoseconds", "proxy_define_metric"] {
            let outcomes = always(function, &Answer::Number(number));
            let is_decided = outcomes.len() == decided(Nothing).len() && !outcomes.contains(&Held);
            assert!(is_decided, "{function} answers {number}");
        }
    }
}
