//! The HTTP context: request in, decision out.

use std::cell::RefCell;
use std::rc::Rc;

use weir_limiter::decision::{Decision, Outcome, Standing};
use weir_limiter::limiter::{Afterwards, Draw};
use weir_limiter::response::{BLOCKED_BODY, BLOCKED_MESSAGE, BLOCKED_STATUS, blocked_headers};

use crate::answers::body;
use crate::dispatch::Action;
use crate::host::{self, HeaderList, Headers, Status};
use crate::sync::read_reply;
use crate::worker::{RuleIndex, Worker};

/// How often a request waits at most: once, and once more where the rules were replaced meanwhile.
const WAITS_MAX: u8 = 2;

/// One request. Without a worker (no good configuration yet) it lets everything through.
pub(crate) struct RequestContext {
    worker: Option<Rc<RefCell<Worker>>>,
    /// What an allowed response is to say of its strictest rule.
    standing: Option<(RuleIndex, Standing)>,
    /// What a strict rule's request waits for: the call, and what it asked.
    waiting: Option<(u32, Draw)>,
    /// How often it has waited.
    waits: u8,
    /// What is to be done when the request ends, each once.
    afterwards: Vec<Afterwards>,
    context: u32,
}

impl RequestContext {
    pub(crate) fn new(worker: Option<Rc<RefCell<Worker>>>, context: u32) -> Self {
        Self { worker, standing: None, waiting: None, waits: 0, afterwards: Vec::new(), context }
    }

    /// Whether anything is left to do for it once it was decided.
    pub(crate) fn has_more_to_do(&self) -> bool {
        self.standing.is_some() || self.waiting.is_some() || !self.afterwards.is_empty()
    }

    /// Carries out a decision; whether the request goes on.
    fn carry_out(&mut self, worker: &mut Worker, decision: Decision) -> Action {
        if decision.outcome == Outcome::Block {
            worker.note_in_filter_state(&decision);
            let headers = HeaderList::of(&blocked_headers());
            let body = body(BLOCKED_BODY, BLOCKED_MESSAGE);
            let sent = host::send_response(BLOCKED_STATUS, "weir_blocked", &headers, body);
            return paused_if(sent);
        }
        if decision.outcome == Outcome::Allow {
            self.afterwards = worker.afterwards();
        }
        let Decision { outcome, strictest: Some((rule, standing)), hold_ns } = decision else {
            return Action::Continue;
        };
        if outcome == Outcome::Wait {
            self.waiting = worker.send_draw();
            if self.waiting.is_some() {
                self.waits = self.waits.saturating_add(1);
                return Action::Pause;
            }
            let decision = worker.decide_again(false);
            // A decision after waiting is never to wait; should it be, the request is not held up for it.
            return if decision.outcome == Outcome::Wait {
                Action::Continue
            } else {
                self.carry_out(worker, decision)
            };
        }
        worker.note_in_filter_state(&decision);
        if outcome == Outcome::Allow {
            self.standing = worker.tells_allowed(rule).then(|| (worker.index(rule), standing));
            let is_held = hold_ns > 0 && worker.hold(self.context, hold_ns);
            return if is_held { Action::Pause } else { Action::Continue };
        }
        // If the host will not take the answer, the request goes on.
        worker.answer(outcome, rule, &standing).map_or(Action::Continue, paused_if)
    }
}

/// A request that is answered goes no further.
fn paused_if(sent: Result<(), Status>) -> Action {
    match sent {
        Ok(()) => Action::Pause,
        Err(status) => {
            log::warn!("the host did not take a local response: status {}", status.0);
            Action::Continue
        }
    }
}

impl RequestContext {
    /// Takes in the answer to a call.
    pub(crate) fn answered(&mut self, call: u32, headers: usize, body_size: usize) {
        let Some((_, draw)) = self.waiting.take_if(|(waiting, _)| *waiting == call) else { return };
        let Some(worker) = self.worker.clone() else { return };
        let Ok(mut worker) = worker.try_borrow_mut() else { return };
        let has_other_rules = draw.generation() != worker.generation();
        let answered = if let Ok(body) = read_reply(headers, body_size) {
            worker.drawn(draw, &body)
        } else {
            worker.draw_failed(draw);
            false
        };
        // What was asked for is not what other rules want; a token that came all the same is spent first.
        let decision = if answered && has_other_rules && self.waits < WAITS_MAX {
            worker.decide()
        } else {
            worker.decide_again(answered)
        };
        let action = self.carry_out(&mut worker, decision);
        // Free again before the request goes on: that may end in it.
        drop(worker);
        if action == Action::Continue {
            // The host may have dropped the request meanwhile.
            let _ = host::resume_request();
        }
    }

    pub(crate) fn on_request_headers(&mut self) -> Action {
        let Some(worker) = self.worker.clone() else { return Action::Continue };
        let Ok(mut worker) = worker.try_borrow_mut() else { return Action::Continue };
        let decision = worker.decide();
        self.carry_out(&mut worker, decision)
    }

    pub(crate) fn on_response_headers(&mut self) -> Action {
        let standing = self.standing.take();
        if standing.is_none() && self.afterwards.is_empty() {
            return Action::Continue;
        }
        let Some(Ok(mut worker)) = self.worker.as_ref().map(|worker| worker.try_borrow_mut()) else {
            return Action::Continue;
        };
        if !self.afterwards.is_empty() {
            worker.charge_by_headers(&mut self.afterwards);
        }
        for (name, value) in
            standing.iter().flat_map(|(rule, standing)| worker.quota_headers(*rule, standing))
        {
            // A header the host does not take is left out; the response is not held back for it.
            let _ = host::add_header(Headers::Response, name, &value);
        }
        Action::Continue
    }

    /// Its response is complete, or will never be: what that one's size tells the cost of is charged. What is left
    /// then is released when the context is dropped.
    pub(crate) fn on_end(&mut self) {
        if self.afterwards.is_empty() {
            return;
        }
        if let Some(Ok(mut worker)) = self.worker.as_ref().map(|worker| worker.try_borrow_mut()) {
            worker.charge_by_size(&mut self.afterwards);
        }
    }
}

impl Drop for RequestContext {
    /// The end of the request, however it came: answered, reset, timed out. Its client may have left while
    /// it waited.
    fn drop(&mut self) {
        let (draw, afterwards) = (self.waiting.take(), std::mem::take(&mut self.afterwards));
        if draw.is_none() && afterwards.is_empty() {
            return;
        }
        let Some(Ok(mut worker)) = self.worker.as_ref().map(|worker| worker.try_borrow_mut()) else { return };
        if let Some((_, draw)) = draw {
            worker.draw_abandoned(draw);
        }
        worker.release(afterwards);
    }
}
