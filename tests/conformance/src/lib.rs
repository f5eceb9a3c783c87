//! The module on a host that others wrote, the crate proxy-wasm-host, with its checks of what a module may do, and
//! its store. It returns the statuses that it has reason to; the mock host returns the others.
#![cfg(test)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use proxy_wasm_host::abi::v0_2_1::types::{Action, LogLevel, MapType, MetricType, Status, StreamType};
use proxy_wasm_host::abi::v0_2_1::{
    Access, CalloutId, Callouts, Clock, ContextId, Guest, GuestError, Host, HttpCall, HttpCallRefusal,
    HttpCallResponse, Invocation, LocalResponse, LogContext, LogSink, PluginConfig, Started, StreamKind,
    StreamState, VmServices,
};
use proxy_wasm_host::{Engine, HeaderMap, HeaderMapExt, Limits, Module, VecHeaderMap};
use serde_json::{Value, json};
use weir_tests::artefact;
use weir_tests::mock_host::{grant, reply};
use weir_protocol::messages::{Allowance, Leased, Message, Reply, Report, Settled};

static MODULE: LazyLock<Loaded> = LazyLock::new(|| {
    let (engine, path) = (Engine::new().unwrap(), artefact::filter_wasm());
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Loaded { host: Host::new(&engine).unwrap(), module: Module::new(&engine, &bytes).unwrap() }
});

struct Loaded {
    host: Host,
    module: Module,
}

/// The module's requests to its proxy beside a request's own.
#[derive(Default)]
struct Around {
    log: Mutex<Vec<String>>,
    calls: Mutex<Vec<(ContextId, CalloutId, HttpCall<'static>)>>,
    nanoseconds: AtomicU64,
}

impl LogSink for Around {
    fn log(&self, _: LogContext<'_>, _: LogLevel, message: &[u8]) {
        self.log.lock().unwrap().push(String::from_utf8_lossy(message).into_owned());
    }
}

impl Callouts for Around {
    fn http_call(
        &self,
        call: Invocation,
        id: CalloutId,
        request: HttpCall<'_>,
    ) -> Result<(), HttpCallRefusal> {
        if request.upstream.as_ref() != b"weir-sync" {
            return Err(HttpCallRefusal::UnknownUpstream);
        }
        self.calls.lock().unwrap().push((call.context, id, request.into_owned()));
        Ok(())
    }
}

impl Clock for Around {
    fn realtime_nanos(&self) -> u64 {
        1_767_225_600_000_000_000 + self.monotonic_nanos()
    }

    fn monotonic_nanos(&self) -> u64 {
        self.nanoseconds.load(Ordering::Relaxed)
    }
}

/// A request of `address`.
struct Request {
    address: &'static str,
    headers: VecHeaderMap,
    response_headers: VecHeaderMap,
    answer: Option<LocalResponse<'static>>,
    resumed: u32,
}

impl Request {
    fn of(address: &'static str, path: &str) -> Self {
        let header = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let headers =
            [header(":method", "GET"), header(":path", path), header(":authority", "api.example.com")];
        let headers = headers.into_iter().collect();
        Self { address, headers, response_headers: VecHeaderMap::default(), answer: None, resumed: 0 }
    }
}

impl StreamState for Request {
    fn header_map(&mut self, _: Invocation, _: Access, map: MapType) -> Result<&mut dyn HeaderMap, Status> {
        match map {
            MapType::HttpRequestHeaders => Ok(&mut self.headers),
            MapType::HttpResponseHeaders => Ok(&mut self.response_headers),
            _ => Err(Status::BadArgument),
        }
    }

    fn property(&mut self, _: Invocation, path: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Status> {
        if path != [&b"source"[..], b"address"] {
            return Err(Status::NotFound);
        }
        out.extend(self.address.bytes());
        Ok(())
    }

    fn send_local_response(&mut self, _: Invocation, response: LocalResponse<'_>) -> Result<(), Status> {
        self.answer = Some(response.into_owned());
        Ok(())
    }

    fn continue_stream(&mut self, _: Invocation, _: StreamType) -> Result<(), Status> {
        self.resumed += 1;
        Ok(())
    }
}

/// A worker of the proxy.
struct Proxy {
    guest: Guest,
    root: ContextId,
    around: Arc<Around>,
}

impl Proxy {
    fn start(loaded: &Loaded, configuration: &Value) -> Self {
        let around = Arc::new(Around::default());
        around.nanoseconds.store(3_600_000_000_000, Ordering::Relaxed);
        let services =
            VmServices::new(around.clone()).with_callouts(around.clone()).with_clock(around.clone());
        // A machine that does other things as well is not what is tested.
        let limits = Limits::default().with_cpu_time(Duration::from_secs(60));
        let mut guest = Guest::new(&loaded.host, &loaded.module, services, &limits).unwrap();
        let plugin = PluginConfig::new().with_configuration(configuration.to_string());
        match guest.start(plugin).unwrap() {
            Started::Serving(root) => Self { guest, root, around },
            Started::Refused { .. } => panic!("refused: {:?}", around.log.lock().unwrap()),
        }
    }

    /// A request's headers: its context, what the module returned, and the request.
    fn begin(&mut self, request: Request) -> (ContextId, Action, Request) {
        let root = self.root;
        let (begun, request) = self.guest.with(request, |scope| {
            let stream = scope.on_context_create(Some(root))?;
            scope.expect_stream_kind(stream, StreamKind::Http)?;
            let headers = scope.stream().headers.len();
            Ok::<_, GuestError>((
                stream,
                scope.on_request_headers(stream, headers.try_into().unwrap(), true)?,
            ))
        });
        let (stream, action) = begun.unwrap();
        (stream, action, request)
    }

    /// The response's headers, and the end of a request.
    fn end(&mut self, stream: ContextId, request: Request) -> Request {
        let (ended, request) = self.guest.with(request, |scope| {
            assert_eq!(scope.on_response_headers(stream, 1, true)?, Action::Continue);
            assert!(scope.on_done(stream)?);
            scope.on_log(stream)?;
            scope.on_delete(stream).map(drop)
        });
        ended.unwrap();
        request
    }

    /// A whole request that is not held.
    fn request(&mut self, address: &'static str) -> Request {
        let (stream, action, request) = self.begin(Request::of(address, "/"));
        assert_eq!(action == Action::Pause, request.answer.is_some());
        self.end(stream, request)
    }

    /// The call under way, and the report that it is.
    fn report(&self) -> (ContextId, CalloutId, Report) {
        let (context, id, call) = self.around.calls.lock().unwrap().pop().expect("a call to weir-sync");
        (context, id, Report::decode(&call.body).expect("weir-sync could not read this report"))
    }

    /// A tick, and the answer to its report.
    fn exchange(&mut self, answer: impl FnOnce(&Report) -> Vec<u8>) -> Report {
        self.around.nanoseconds.fetch_add(2_500_000_000, Ordering::Relaxed);
        self.guest.enter_root().on_tick(self.root).unwrap();
        let (context, id, report) = self.report();
        let response = received(answer(&report));
        self.guest.enter_root().on_http_call_response(context, id, response).unwrap();
        report
    }

    /// The value of a counter of the proxy.
    fn counter(&self, name: &str) -> u64 {
        let call = Invocation::new(self.guest.id(), self.root);
        let shared = self.guest.services().shared();
        let id = shared.define_metric(call, b"", MetricType::Counter, name.as_bytes()).unwrap();
        shared.get_metric(call, id).unwrap()
    }
}

fn received(body: Vec<u8>) -> HttpCallResponse<'static> {
    HttpCallResponse::received(vec![(b":status".into(), b"200".into())]).with_body(body)
}

fn configuration() -> Value {
    let response = json!({"on_allowed": true});
    json!({
        "rules": [
            {"name": "per-address", "key": ["client_address"], "rate": "1/h", "burst": 3, "response": response},
            {"name": "login", "match": {"path": {"exact": "/login"}}, "key": ["client_address"], "rate": "5/m",
             "burst": 5, "strict": true, "on_sync_loss": "deny"},
        ],
        "table": {"addresses": 64},
        "sync": {"cluster": "weir-sync", "pop": "fra1", "token": "secret"},
    })
}

#[test]
fn a_burst_passes_and_then_answers_have_retry_after() {
    let mut proxy = Proxy::start(&MODULE, &configuration());
    for left in [2, 1, 0] {
        let request = proxy.request("192.0.2.1:4321");
        assert_eq!(request.answer, None);
        let remaining = request.response_headers.get_joined(b"x-ratelimit-remaining", b",");
        assert_eq!(remaining, Some(left.to_string().into_bytes()));
    }
    let answer = proxy.request("192.0.2.1:4321").answer.expect("it is limited");
    assert_eq!(
        (answer.status_code, &*answer.status_code_details),
        (429, &b"weir_limited:per-address"[..])
    );
    for (name, value) in [("retry-after", "3600"), ("ratelimit", r#""per-address";r=0;t=3600"#)] {
        assert_eq!(answer.header(name.as_bytes()), Some(value.as_bytes()), "{name}");
    }
    assert_eq!(proxy.request("192.0.2.2:4321").answer, None, "another client's");
}

#[test]
fn the_reply_to_a_report_limits_the_next_request() {
    let mut proxy = Proxy::start(&MODULE, &configuration());
    proxy.exchange(|report| reply(report.sequence, 3, Vec::new()));
    assert_eq!(proxy.request("192.0.2.1:4321").answer, None);
    let report = proxy.exchange(|report| {
        let nothing_left = report.keys.iter().map(|_| grant(0, 0, 60_000)).collect();
        reply(report.sequence, 3, nothing_left)
    });
    assert_eq!((report.pop.as_str(), report.keys.len()), ("fra1", 1));
    assert_eq!(proxy.request("192.0.2.1:4321").answer.expect("nothing is left").status_code, 429);
    proxy.exchange(|report| reply(report.sequence, 3, Vec::new()));
    let counters = ["weir.rule.per-address.allowed", "weir.rule.per-address.limited"];
    assert_eq!(counters.map(|name| proxy.counter(name)), [1, 1]);
}

#[test]
fn a_strict_request_waits_for_its_answer() {
    let mut proxy = Proxy::start(&MODULE, &configuration());
    for (tokens, resumed, status) in [(1, 1, None), (0, 0, Some(429))] {
        let (stream, action, request) = proxy.begin(Request::of("192.0.2.1:4321", "/login"));
        assert_eq!((action, &request.answer), (Action::Pause, &None));
        let (context, id, report) = proxy.report();
        assert_eq!(context, stream);
        let grants = vec![Allowance::Leased(Leased::of(tokens, 2_000)); report.keys.len()];
        let (sequence, pops, settled) = (report.sequence, 3, Settled::All);
        let reply = Reply { sequence, pops, settled, grants, ..Reply::default() }.encode();
        let (answered, request) =
            proxy.guest.with(request, |scope| scope.on_http_call_response(stream, id, received(reply)));
        answered.unwrap();
        assert_eq!(request.resumed, resumed);
        assert_eq!(request.answer.as_ref().map(|answer| answer.status_code), status);
        proxy.end(stream, request);
    }
}
