//! A request from its headers to its end, on its worker.

use std::cell::{Cell, RefCell};

use weir_limiter::engine::{CallResult, OpenRequest};

use crate::abi::{HeadersStatus, KeptConfig, StreamHandle};
use crate::http::{HostRequest, HostResponse};
use crate::locked;
use crate::plugin::{Decided, Plugin, Worker};
use crate::process::now;

pub(crate) struct RequestContext {
    plugin: KeptConfig<Plugin>,
    stream: StreamHandle,
    worker: usize,
    state: RefCell<State>,
    /// True if the request ended while its state was borrowed.
    has_ended: Cell<bool>,
}

struct State {
    /// `None` before the headers have arrived.
    open: Option<OpenRequest>,
    /// The call that the request waits for: Envoy's id, and the engine's number of it.
    call: Option<(u64, u64)>,
}

impl RequestContext {
    pub(crate) fn new(plugin: KeptConfig<Plugin>, stream: StreamHandle) -> Self {
        Self {
            plugin,
            stream,
            worker: stream.worker() as usize,
            state: RefCell::new(State { open: None, call: None }),
            has_ended: Cell::new(false),
        }
    }

    pub(crate) fn on_request_headers(&self, is_without_body: bool) -> HeadersStatus {
        let request = HostRequest { stream: self.stream, is_without_body };
        let decided = self.with_worker(|worker, state| {
            let open = state.open.insert(worker.open());
            worker.decide((open, &mut state.call), request, None)
        });
        decided.flatten().map_or(HeadersStatus::Continue, |decided| self.carry_out(&decided))
    }

    pub(crate) fn on_answer(&self, callout: u64, answer: CallResult) {
        let decided = self.with_worker(|worker, state| {
            let (_, number) = state.call.take_if(|(known, _)| *known == callout)?;
            let request = HostRequest { stream: self.stream, is_without_body: false };
            worker.decide((state.open.as_mut()?, &mut state.call), request, Some((number, answer)))
        });
        if let Some(Some(decided)) = decided
            && self.carry_out(&decided) == HeadersStatus::Continue
        {
            self.stream.go_on();
        }
    }

    pub(crate) fn on_turn(&self) {
        self.stream.go_on();
    }

    pub(crate) fn on_response_headers(&self) {
        self.with_open(|Worker { engine, seat, .. }, open| {
            engine.response(open, &mut HostResponse(self.stream), seat, now());
        });
    }

    /// Handles the end of the response, complete or not.
    pub(crate) fn on_response_sent(&self) {
        self.with_open(|Worker { engine, seat, .. }, open| {
            if open.awaits_cost() {
                engine.response_sent(open, &mut HostResponse(self.stream), seat, now());
            }
        });
    }

    pub(crate) fn on_end(&self) {
        if self.state.try_borrow_mut().is_err() {
            // The request ends within a call made for it; `with_worker` ends it afterwards.
            self.has_ended.set(true);
            return;
        }
        self.with_open(Worker::end);
    }

    fn carry_out(&self, (status, reply): &Decided) -> HeadersStatus {
        if let Some(reply) = reply {
            reply.send(self.stream);
        }
        *status
    }

    /// Runs `act` unless the request has no pending actions.
    fn with_open(&self, act: impl FnOnce(&mut Worker, &mut OpenRequest)) {
        let is_done = |state: &State| state.open.as_ref().is_none_or(OpenRequest::is_done);
        if self.state.try_borrow().is_ok_and(|state| is_done(&state)) {
            return;
        }
        self.with_worker(|worker, state| {
            if let Some(open) = &mut state.open {
                act(worker, open);
            }
        });
    }

    /// Runs `act` on the request's worker and state; `None` if they are borrowed, because Envoy is calling back.
    fn with_worker<T>(&self, act: impl FnOnce(&mut Worker, &mut State) -> T) -> Option<T> {
        let mut state = self.state.try_borrow_mut().ok()?;
        let mut worker = locked(self.plugin.get()?.worker(self.worker)?);
        let result = act(&mut worker, &mut state);
        if self.has_ended.take()
            && let Some(open) = &mut state.open
        {
            worker.end(open);
        }
        Some(result)
    }
}
