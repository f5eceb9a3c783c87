//! The HTTP context: request in, decision out.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use weir_limiter::decision::{Decision, Outcome, Standing};

use crate::host::{self, Headers};
use crate::worker::{Worker, note_in_filter_state};

/// One request. Without a worker (no good configuration yet) it lets everything through.
pub(crate) struct RequestContext {
    worker: Option<Rc<RefCell<Worker>>>,
    /// What an allowed response is to say of its strictest rule.
    standing: Option<(u16, Standing)>,
}

impl RequestContext {
    pub(crate) fn new(worker: Option<Rc<RefCell<Worker>>>) -> Self {
        Self { worker, standing: None }
    }

    /// Answers a limited request. If the host will not take the answer, the request goes on.
    fn answer(worker: &Worker, rule: u16, standing: &Standing) -> Action {
        let Some((rule, answers)) = worker.rule(rule) else { return Action::Continue };
        let headers = answers.limited(rule, standing, host::unix_ns());
        match host::send_response(rule.response.status, "weir_limited", &headers, answers.body()) {
            Ok(()) => Action::Pause,
            Err(status) => {
                log::warn!("the host did not take a local response: status {}", status.0);
                Action::Continue
            }
        }
    }
}

impl Context for RequestContext {}

impl HttpContext for RequestContext {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        let Some(worker) = &self.worker else { return Action::Continue };
        let Ok(mut worker) = worker.try_borrow_mut() else { return Action::Continue };
        let decision = worker.decide();
        let Decision { outcome, strictest: Some((rule, standing)) } = decision else {
            return Action::Continue;
        };
        if let Some((rule, _)) = worker.rule(rule) {
            note_in_filter_state(&decision, &rule.name);
        }
        match outcome {
            Outcome::Allow => {
                self.standing = Some((rule, standing));
                Action::Continue
            }
            Outcome::Limit => Self::answer(&worker, rule, &standing),
        }
    }

    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        let (Some(worker), Some((rule, standing))) = (&self.worker, self.standing.take()) else {
            return Action::Continue;
        };
        if let Ok(worker) = worker.try_borrow() {
            for (name, value) in worker.quota_headers(rule, &standing) {
                // A header the host does not take is left out; the response is not held back for it.
                let _ = host::add_header(Headers::Response, name, &value);
            }
        }
        Action::Continue
    }
}
