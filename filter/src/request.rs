//! The HTTP context: a request from its headers to its end.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use weir_limiter::engine::{CallResult, OpenRequest};

use crate::calls;
use crate::host::{self, Action};
use crate::http::HostResponse;
use crate::worker::Worker;

/// A request. Without a worker, before the first valid configuration, all requests are allowed.
pub(crate) struct RequestContext {
    worker: Option<Rc<RefCell<Worker>>>,
    open: OpenRequest,
    context: u32,
}

impl RequestContext {
    pub(crate) fn new(worker: Option<Rc<RefCell<Worker>>>, context: u32) -> Self {
        Self { worker, open: OpenRequest::new(context), context }
    }

    /// True if anything is left to do for the request after the decision.
    pub(crate) fn has_more_to_do(&self) -> bool {
        !self.open.is_done()
    }

    /// Handles the end of the call `number`, and carries out the decision.
    pub(crate) fn answered(&mut self, number: u64, answer: CallResult) {
        let Some(mut worker) = free(self.worker.as_ref()) else { return };
        let action = worker.decide(&mut self.open, self.context, false, Some((number, answer)));
        // Released first, because the request may end in the call below.
        drop(worker);
        if action == Action::Continue {
            // The host may have dropped the request meanwhile.
            let _ = host::resume_request();
        }
    }

    pub(crate) fn on_request_headers(&mut self, is_without_body: bool) -> Action {
        let Some(mut worker) = free(self.worker.as_ref()) else { return Action::Continue };
        worker.decide(&mut self.open, self.context, is_without_body, None)
    }

    pub(crate) fn on_response_headers(&mut self) -> Action {
        if self.has_more_to_do()
            && let Some(mut worker) = free(self.worker.as_ref())
        {
            let Worker { engine, process, clock, .. } = &mut *worker;
            // Only a charge needs the time.
            let now = if self.open.awaits_cost() { clock.now() } else { clock.latest() };
            engine.response(&mut self.open, &mut HostResponse, process, now);
        }
        Action::Continue
    }

    /// Handles the end of the response, complete or not: charges costs that depend on its size or its
    /// metadata. The rest is released when the context is dropped.
    pub(crate) fn on_end(&mut self) {
        if self.open.awaits_cost()
            && let Some(mut worker) = free(self.worker.as_ref())
        {
            let Worker { engine, process, clock, .. } = &mut *worker;
            engine.response_sent(&mut self.open, &mut HostResponse, process, clock.now());
        }
    }
}

impl Drop for RequestContext {
    /// Ends the request, for whatever reason. Its client may have disconnected while it waited.
    fn drop(&mut self) {
        if !self.has_more_to_do() {
            return;
        }
        calls::forget(self.context);
        if let Some(mut worker) = free(self.worker.as_ref()) {
            let Worker { engine, process, clock, .. } = &mut *worker;
            engine.end(&mut self.open, process, clock.now());
        }
    }
}

/// Borrows the worker; `None` if it is in use, because the host may call back while it acts.
fn free(worker: Option<&Rc<RefCell<Worker>>>) -> Option<RefMut<'_, Worker>> {
    worker?.try_borrow_mut().ok()
}
