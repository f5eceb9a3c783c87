//! A worker's VM, driven through its exports in a real host's order.

use std::fmt;

use super::guest::Vm;
use super::host::{Ask, CallAnswer, Host, LocalResponse};
use super::interpreter;
use super::shared::SharedData;

/// The first root context's id; later ones and requests count up from it.
const FIRST_ROOT: u32 = 1;
/// The result of a callback that lets the request go on.
pub(super) const CONTINUE: u32 = 0;
/// The result that holds it.
pub(super) const PAUSE: u32 = 1;

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes on to the upstream.
    Continue,
    /// The filter answered it.
    Answered(LocalResponse),
}

/// A request that went through the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its outcome.
    pub decision: Decision,
    /// Headers that the filter added to the response.
    pub added_headers: Vec<(String, String)>,
}

impl Served {
    /// True if it went on to the upstream.
    pub fn allowed(&self) -> bool {
        self.decision == Decision::Continue
    }

    /// The filter's answer; panics if the request went on.
    pub fn answer(&self) -> &LocalResponse {
        match &self.decision {
            Decision::Answered(response) => response,
            Decision::Continue => panic!("the request went on to the upstream"),
        }
    }
}

/// A VM that died, or broke the ABI: where, and the end of its log.
pub struct Trap(String);

impl fmt::Debug for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One worker of a proxy: a VM of the real module, and its host. Methods panic if the VM traps;
/// those named `try_...` give the trap to the caller.
pub struct Worker {
    vm: Box<dyn Vm>,
    root: u32,
    last_context: u32,
}

impl Worker {
    /// A worker on `host`, up to and with `proxy_on_vm_start`.
    pub fn try_start(host: Host) -> Result<Self, Trap> {
        let vm = interpreter::start(host).map_err(|why| Trap(format!("the module does not start: {why}")))?;
        let mut worker = Self { vm, root: FIRST_ROOT, last_context: FIRST_ROOT };
        worker.call("_initialize", &[])?;
        worker.create(FIRST_ROOT, 0)?;
        worker.asked(FIRST_ROOT, "proxy_on_vm_start", &[FIRST_ROOT, 0])?;
        Ok(worker)
    }

    /// A worker of the proxy with this shared data, with a configuration it must accept.
    pub fn configured(shared: &SharedData, configuration: &serde_json::Value) -> Self {
        Self::configured_on(Host::new(shared), configuration)
    }

    /// A worker on `host`, with a configuration it must accept.
    pub fn configured_on(host: Host, configuration: &serde_json::Value) -> Self {
        let mut worker = expect(Self::try_start(host));
        let accepted = worker.configure(configuration.to_string().into_bytes());
        assert!(accepted, "the configuration is refused\n{}", worker.host().log_tail());
        worker
    }

    /// Hands over a configuration; whether the filter accepts it.
    pub fn configure(&mut self, configuration: impl Into<Vec<u8>>) -> bool {
        expect(self.try_configure(configuration))
    }

    /// [`Worker::configure`], with the trap if there is one.
    pub fn try_configure(&mut self, configuration: impl Into<Vec<u8>>) -> Result<bool, Trap> {
        let configuration = configuration.into();
        let size = u32::try_from(configuration.len()).unwrap_or(u32::MAX);
        self.host_mut().configuration = configuration;
        Ok(self.asked(self.root, "proxy_on_configure", &[self.root, size])? != 0)
    }

    /// Envoy's steps when an operator changes the plugin's configuration: a new root context in the same
    /// VM, and if that accepts, the end of the old one. True if it accepts.
    pub fn update(&mut self, configuration: impl Into<Vec<u8>>) -> bool {
        expect(self.try_update(configuration))
    }

    /// [`Worker::update`], with the trap if there is one.
    pub fn try_update(&mut self, configuration: impl Into<Vec<u8>>) -> Result<bool, Trap> {
        let (old, new) = (self.root, self.next_context());
        self.root = new;
        self.create(new, 0)?;
        let accepted = self.try_configure(configuration)?;
        let ended = if accepted { old } else { std::mem::replace(&mut self.root, old) };
        self.delete(ended)?;
        Ok(accepted)
    }

    /// A whole request: headers, the response's headers (a local one's too), the end.
    pub fn request(&mut self, ask: &Ask) -> Served {
        let (id, action) = expect(self.begin(ask));
        let decision = expect(self.decision(action));
        expect(self.end(id, decision))
    }

    /// A request's context and its headers: its id, and what the filter returned.
    pub fn begin(&mut self, ask: &Ask) -> Result<(u32, u32), Trap> {
        let id = self.next_context();
        self.create(id, self.root)?;
        Ok((id, self.headers(id, ask)?))
    }

    /// The root context's id: the plugin that is meant.
    pub fn root(&self) -> u32 {
        self.root
    }

    /// An id that no context has had.
    pub(super) fn next_context(&mut self) -> u32 {
        self.last_context += 1;
        self.last_context
    }

    /// A context: a plugin's if `plugin` is 0, else a request's.
    pub(super) fn create(&mut self, id: u32, plugin: u32) -> Result<(), Trap> {
        self.host_mut().contexts.insert(id);
        self.call_for(id, "proxy_on_context_create", &[id, plugin]).map(drop)
    }

    /// A request's headers: what the filter returned.
    pub(super) fn headers(&mut self, id: u32, ask: &Ask) -> Result<u32, Trap> {
        let host = self.host_mut();
        host.ask = ask.clone();
        host.responses.clear();
        host.added_headers.clear();
        host.filter_state.clear();
        let count = u32::try_from(ask.headers.len()).unwrap_or(0);
        // A body needs a content type.
        let ends = u32::from(ask.headers.iter().all(|(name, _)| name != "content-type"));
        self.asked(id, "proxy_on_request_headers", &[id, count, ends])
    }

    /// The response's headers, and the end of the context.
    pub fn end(&mut self, id: u32, decision: Decision) -> Result<Served, Trap> {
        let on_response = self.asked(id, "proxy_on_response_headers", &[id, 1, 0])?;
        if on_response != CONTINUE {
            return Err(self.complaint(&format!("the response is held: action {on_response}")));
        }
        self.delete(id)?;
        if self.host().responses.len() > usize::from(decision != Decision::Continue) {
            return Err(self.complaint("a second local response"));
        }
        Ok(Served { decision, added_headers: self.host().added_headers.clone() })
    }

    /// The end of a context.
    pub(super) fn delete(&mut self, id: u32) -> Result<(), Trap> {
        let ended = self.call_for(id, "proxy_on_delete", &[id]);
        self.host_mut().contexts.remove(&id);
        ended.map(drop)
    }

    /// A request goes on without an answer, or is held with exactly one.
    pub fn decision(&self, action: u32) -> Result<Decision, Trap> {
        match (action, self.host().responses.as_slice()) {
            (CONTINUE, []) => Ok(Decision::Continue),
            (PAUSE, [response]) => Ok(Decision::Answered(response.clone())),
            (action, responses) => {
                let count = responses.len();
                Err(self.complaint(&format!("no decision: action {action} with {count} local responses")))
            }
        }
    }

    /// The number of requests like this one that go on, of `count`.
    pub fn allowed_of(&mut self, count: usize, ask: &Ask) -> usize {
        (0..count).filter(|_| self.request(ask).allowed()).count()
    }

    /// A tick.
    pub fn tick(&mut self) {
        expect(self.try_tick());
    }

    /// [`Worker::tick`], with the trap if there is one.
    pub fn try_tick(&mut self) -> Result<(), Trap> {
        self.call("proxy_on_tick", &[self.root])
    }

    /// Answers the HTTP call `token`.
    pub fn answer_call(&mut self, token: u32, answer: CallAnswer) {
        expect(self.try_answer_call(token, answer));
    }

    /// [`Worker::answer_call`], with the trap if there is one.
    pub fn try_answer_call(&mut self, token: u32, answer: CallAnswer) -> Result<(), Trap> {
        let headers = u32::try_from(answer.headers.len()).unwrap_or(0);
        let size = answer.claimed_size.unwrap_or(u32::try_from(answer.body.len()).unwrap_or(u32::MAX));
        let host = self.host_mut();
        let answered = host.http_calls.iter().position(|call| call.token == token);
        let request = answered.and_then(|at| host.http_calls.remove(at).request);
        host.call_answer = answer;
        let context = request.unwrap_or(self.root);
        let args = [self.root, token, headers, size, 0];
        self.call_for(context, "proxy_on_http_call_response", &args).map(drop)
    }

    /// Asks the VM for more memory than there is; the trap that ends it, panics if there is none.
    pub fn exhaust(&mut self) -> Trap {
        match self.asked(self.root, "proxy_on_memory_allocate", &[u32::MAX]) {
            Ok(at) => panic!("4 GiB were allocated, at {at}"),
            Err(trap) => trap,
        }
    }

    /// Moves both clocks on.
    pub fn advance_ms(&mut self, ms: u64) {
        let host = self.host_mut();
        host.monotonic_ns += ms * 1_000_000;
        host.unix_ns += ms * 1_000_000;
    }

    /// The value of a counter after a tick has handed it over; panics if it is not defined.
    pub fn counted(&mut self, metric: &str) -> u64 {
        self.tick();
        self.host().metric(metric).unwrap_or_else(|| panic!("there is no metric {metric}"))
    }

    /// The host's side.
    pub fn host(&self) -> &Host {
        self.vm.host()
    }

    /// The host's side, to change it.
    pub fn host_mut(&mut self) -> &mut Host {
        self.vm.host_mut()
    }

    /// The VM's linear memory, in bytes.
    pub fn memory_bytes(&mut self) -> usize {
        self.vm.memory().len()
    }

    /// A callback for the root context.
    fn call(&mut self, export: &'static str, args: &[u32]) -> Result<(), Trap> {
        self.call_for(self.root, export, args).map(drop)
    }

    /// A callback for `context` that has to return something.
    fn asked(&mut self, context: u32, export: &'static str, args: &[u32]) -> Result<u32, Trap> {
        let returned = self.call_for(context, export, args)?;
        returned.ok_or_else(|| self.complaint(&format!("{export} returned nothing")))
    }

    /// A callback for `context`; what it returned, if anything.
    pub fn call_for(&mut self, context: u32, export: &'static str, args: &[u32]) -> Result<Option<u32>, Trap> {
        let request = (context != self.root).then_some(context);
        let host = self.host_mut();
        (host.callback, host.request) = (export, request);
        host.count(export);
        let result = self.vm.call(export, args);
        result.map_err(|why| self.complaint(&format!("{export} trapped: {why}")))
    }

    fn complaint(&self, what: &str) -> Trap {
        Trap(format!("{what}\nthe end of its log:\n{}", self.host().log_tail()))
    }
}

pub(super) fn expect<T>(result: Result<T, Trap>) -> T {
    result.unwrap_or_else(|trap| panic!("{trap:?}"))
}
