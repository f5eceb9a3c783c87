//! A run through every function that a module exports, on a host that may do anything.

use serde_json::{Value, json};
use weir_protocol::messages::{Allowance, Leased, Message, Reply, Report, Settled};

use crate::mock_host::{Ask, CallAnswer, Decision, Host, Trap, Worker, grant, reply};

/// The number of times that a request may ask weir-sync before it is decided.
const CALLS_MAX: usize = 2;
/// The result of a callback that agrees.
const CONTINUE: u32 = 0;
/// The result that holds a request.
const PAUSE: u32 = 1;

/// Callbacks that a module has only where its host calls them unasked, and how many arguments they take. They do
/// nothing.
const IDLE: [(&str, usize); 15] = [
    ("proxy_on_new_connection", 1),
    ("proxy_on_downstream_data", 3),
    ("proxy_on_downstream_connection_close", 2),
    ("proxy_on_upstream_data", 3),
    ("proxy_on_upstream_connection_close", 2),
    ("proxy_on_request_body", 3),
    ("proxy_on_request_trailers", 2),
    ("proxy_on_response_body", 3),
    ("proxy_on_response_trailers", 2),
    ("proxy_on_queue_ready", 2),
    ("proxy_on_grpc_receive_initial_metadata", 3),
    ("proxy_on_grpc_receive", 3),
    ("proxy_on_grpc_receive_trailing_metadata", 3),
    ("proxy_on_grpc_close", 3),
    ("proxy_on_foreign_function", 3),
];

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It went on to its upstream, or its host was asked to continue it.
    Passed,
    /// The filter answered it, with this status.
    Answered(u32),
    /// It waits for a call that its host accepted.
    Held,
}

/// A run.
pub struct Run {
    worker: Worker,
    /// The outcome of each request.
    pub outcomes: Vec<Outcome>,
}

/// A run to its end.
pub(super) fn run(host: Host) -> Result<Run, Trap> {
    let mut run = Run { worker: Worker::try_start(host)?, outcomes: Vec::new() };
    run.play()?;
    Ok(run)
}

/// Two of a client's requests pass; a login waits for weir-sync.
fn configuration() -> Value {
    let mut per_address = json!({"name": "per-address", "key": ["client_address"], "rate": "1/h", "burst": 2});
    per_address["response"] = json!({"on_allowed": true, "reset": "epoch"});
    let login = json!({
        "name": "login",
        "match": {"path": {"exact": "/login"}, "headers": [{"name": "x-probe", "present": false}]},
        "key": ["client_address"], "rate": "5/m", "burst": 5,
        "strict": true, "on_sync_loss": "deny",
    });
    json!({
        "rules": [per_address, login], "table": {"addresses": 64}, "filter_state": true,
        "sync": {"cluster": "weir-sync", "pop": "fra1", "token": "secret", "interval_ms": 250, "timeout_ms": 700},
    })
}

fn client(n: u8) -> Ask {
    Ask::from(format!("192.0.2.{n}:4321"))
}

/// weir-sync's answer to a request that waits for a token, with this many tokens.
fn leased(report: &Report, tokens: u64) -> CallAnswer {
    let grants = vec![Allowance::Leased(Leased::of(tokens, 2_000)); report.keys.len()];
    let (sequence, pops, settled) = (report.sequence, 3, Settled::All);
    CallAnswer::new("200", Reply { sequence, pops, settled, grants, ..Reply::default() }.encode())
}

/// weir-sync's answer to a report: nothing is left of any key.
fn nothing_left(report: &Report) -> CallAnswer {
    let grants = report.keys.iter().map(|_| grant(0, 0, 60_000)).collect();
    CallAnswer::new("200", reply(report.sequence, 3, grants))
}

impl Run {
    /// The number of calls of the function `name` of the module, or of its host.
    pub fn calls_of(&self, name: &str) -> u32 {
        self.worker.host().called(name)
    }

    fn play(&mut self) -> Result<(), Trap> {
        let root = self.worker.root();
        self.worker.call_for(root, "proxy_abi_version_0_2_1", &[])?;
        self.worker.try_configure(configuration().to_string())?;
        self.exchange(|report| CallAnswer::new("200", reply(report.sequence, 3, Vec::new())))?;
        for _ in 0..4 {
            self.request(&client(1), 0)?;
        }
        self.request(&client(3).header(":path", "/login"), 1)?;
        self.request(&client(4).header(":path", "/login"), 0)?;
        self.request(&client(2), 0)?;
        self.exchange(nothing_left)?;
        self.request(&client(2), 0)?;
        self.exchange(|_| CallAnswer::new("503", Vec::new()))?;
        self.exchange(|_| CallAnswer::timeout())?;
        self.exchange(|_| CallAnswer::new("200", b"nonsense".to_vec()))?;
        self.request(&Ask::from("/run/client.sock"), 0)?;
        self.request(&Ask::default(), 0)?;
        self.idle(root)?;
        self.worker.try_update(configuration().to_string())?;
        self.request(&client(5), 0)
    }

    /// A tick after an interval, and answers to all that was sent.
    fn exchange(&mut self, answer: impl Fn(&Report) -> CallAnswer) -> Result<(), Trap> {
        self.worker.advance_ms(2_500);
        self.worker.try_tick()?;
        for call in self.worker.host().http_calls.clone() {
            self.worker.try_answer_call(call.token, answer(&report_of(&call.body)))?;
        }
        Ok(())
    }

    /// A request from its begin to its end. If it waits for tokens of weir-sync, it gets this many.
    fn request(&mut self, ask: &Ask, tokens: u64) -> Result<(), Trap> {
        let (id, action) = self.worker.begin(ask)?;
        let mut outcome = self.outcome(action)?;
        for _ in 0..CALLS_MAX {
            let call = self.worker.host().call_of(id).filter(|_| outcome == Outcome::Held);
            let Some((token, report)) = call.map(|call| (call.token, report_of(&call.body))) else { break };
            let resumed = self.worker.host().called("proxy_continue_stream");
            self.worker.try_answer_call(token, leased(&report, tokens))?;
            let is_resumed = self.worker.host().called("proxy_continue_stream") > resumed;
            outcome = self.outcome(if is_resumed { CONTINUE } else { PAUSE })?;
        }
        self.outcomes.push(outcome);
        self.idle(id)?;
        let decision = match self.worker.host().response() {
            Some(response) => Decision::Answered(response.clone()),
            None => Decision::Continue,
        };
        self.worker.end(id, decision).map(drop)
    }

    fn outcome(&self, action: u32) -> Result<Outcome, Trap> {
        if action == PAUSE && self.worker.host().response().is_none() {
            return Ok(Outcome::Held);
        }
        Ok(match self.worker.decision(action)? {
            Decision::Continue => Outcome::Passed,
            Decision::Answered(response) => Outcome::Answered(response.status),
        })
    }

    /// The callbacks that do nothing.
    fn idle(&mut self, context: u32) -> Result<(), Trap> {
        for (callback, args) in IDLE {
            if self.worker.has(callback) {
                let returned = self.worker.call_for(context, callback, &[context, 0, 0][..args])?;
                assert!(returned.is_none_or(|action| action == CONTINUE), "{callback} returned {returned:?}");
            }
        }
        Ok(())
    }
}

fn report_of(body: &[u8]) -> Report {
    Report::decode(body).expect("weir-sync could not read this report")
}
