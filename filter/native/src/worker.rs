//! One worker of a configuration: its engine, and the requests that it holds.

use std::collections::HashMap;
use std::sync::Arc;

use weir_limiter::engine::{
    CallResult, Caller, Effect, Engine, HostRules, LocalReply, OpenRequest, Progress, Proxy, SyncCall,
};
use weir_rules::config::PluginConfig;

use crate::abi::{HeadersStatus, Scheduler, StreamHandle};
use crate::http::{HostRequest, unpacked};
use crate::process::{WorkerHandle, now};

/// An engine, with its host state.
pub(crate) struct Worker {
    pub(crate) engine: Engine,
    pub(crate) seat: WorkerHandle,
    /// Names under which the rules are counted, by rule index.
    pub(crate) counted: Vec<String>,
    /// Requests that wait for their turns.
    pub(crate) held: HashMap<u32, Scheduler>,
    numbered: u32,
    /// `None` if no weir-sync is configured.
    pub(crate) caller: Option<Arc<Caller>>,
}

/// The decision on a request. The reply is to be sent after the worker is released: a request may end while it is
/// answered, which calls the worker again.
pub(crate) type Decided = (HeadersStatus, Option<OwnedReply>);

/// A request to be decided.
struct Undecided<'a> {
    stream: StreamHandle,
    caller: Option<&'a Caller>,
    call: &'a mut Option<(u64, u64)>,
    reply: Option<OwnedReply>,
}

impl Proxy for Undecided<'_> {
    fn set_filter_state(&mut self, name: &str, value: &str) {
        self.stream.set_filter_state(name, value);
    }

    fn call(&mut self, call: &SyncCall) -> Result<(), String> {
        let caller = self.caller.ok_or("there is no sync section")?;
        *self.call = Some((self.stream.call(caller, call)?, call.number));
        Ok(())
    }

    fn answer(&mut self, answer: &LocalReply<'_>) -> bool {
        self.reply = Some(OwnedReply::of(answer));
        true
    }
}

/// A response to a client.
pub(crate) struct OwnedReply {
    status: u16,
    /// Details, headers and body, one after the other.
    bytes: Vec<u8>,
    headers_at: usize,
    body_at: usize,
}

impl Worker {
    /// Creates a worker of the filter `name` with its first effects. Returns all errors, each with its place.
    pub(crate) fn begin(name: &str, config: &PluginConfig) -> Result<(Self, Vec<Effect>), Vec<String>> {
        let mut seat = WorkerHandle::new(name);
        let (engine, effects) = Engine::begin(config.clone(), HostRules::default(), &mut seat, now())?;
        let caller = engine.sync().map(Caller::new).map(Arc::new);
        let worker = Self { engine, seat, counted: Vec::new(), held: HashMap::new(), numbered: 0, caller };
        Ok((worker, effects))
    }

    pub(crate) fn open(&mut self) -> OpenRequest {
        self.numbered = self.numbered.wrapping_add(1);
        OpenRequest::new(self.numbered)
    }

    /// Decides a request whose headers have arrived, or that has waited for the call in `answered`. `None` if
    /// it does not wait for that call. Sets `call` if it waits for another.
    pub(crate) fn decide(
        &mut self,
        (open, call): (&mut OpenRequest, &mut Option<(u64, u64)>),
        mut request: HostRequest,
        answered: Option<(u64, CallResult)>,
    ) -> Option<Decided> {
        let stream = request.stream;
        let Self { engine, seat, caller, held, .. } = self;
        let mut proxy = Undecided { stream, caller: caller.as_deref(), call, reply: None };
        let status = match engine.drive(open, answered, &mut request, (seat, now()), &mut proxy)? {
            Progress::Continues => HeadersStatus::Continue,
            Progress::Answered => HeadersStatus::Stop,
            Progress::Waits => HeadersStatus::Hold,
            Progress::Held => {
                held.insert(open.id(), stream.scheduler());
                HeadersStatus::Hold
            }
        };
        Some((status, proxy.reply))
    }

    /// Ends a request, for whatever reason.
    pub(crate) fn end(&mut self, open: &mut OpenRequest) {
        self.held.remove(&open.id());
        self.engine.end(open, &mut self.seat, now());
    }
}

impl OwnedReply {
    fn of(answer: &LocalReply<'_>) -> Self {
        let bytes = [answer.details.as_bytes(), answer.headers, answer.body.as_bytes()].concat();
        let headers_at = answer.details.len();
        let body_at = headers_at + answer.headers.len();
        Self { status: answer.status, bytes, headers_at, body_at }
    }

    pub(crate) fn send(&self, stream: StreamHandle) {
        let (rest, body) = self.bytes.split_at_checked(self.body_at).unwrap_or_default();
        let (details, headers) = rest.split_at_checked(self.headers_at).unwrap_or_default();
        stream.respond(self.status, details, unpacked(headers), body);
    }
}
