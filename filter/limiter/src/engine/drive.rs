//! The drive loop of hosts within a proxy: a request is decided, and the calls that it waits for are made.

use alloc::string::String;

use super::effects::{CallResult, LocalReply, RequestStep, SyncCall, Unread};
use super::host::Host;
use super::requests::OpenRequest;
use super::state::Engine;
use weir_protocol::time::Time;
use weir_rules::request::Request;

/// A proxy's side of one request.
pub trait Proxy {
    /// Sets a value for access logs, under this name of filter state.
    fn set_filter_state(&mut self, name: &str, value: &str);

    /// Makes a call; the error describes why it was not made.
    fn call(&mut self, call: &SyncCall) -> Result<(), String>;

    /// Answers the client in place of the upstream; false if the proxy cannot.
    fn answer(&mut self, answer: &LocalReply<'_>) -> bool;
}

/// State of a request after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It continues.
    Continues,
    /// It is held until [`super::effects::Effect::Resume`] names it.
    Held,
    /// It waits for a call.
    Waits,
    /// Its client was answered.
    Answered,
}

impl Engine {
    /// Decides a request whose headers have arrived, or that has waited for the call in `answered`, and has `proxy`
    /// carry out the decision. `None` if it does not wait for that call.
    #[allow(clippy::match_wildcard_for_single_variants, reason = "a gateway's engine has one more step")]
    pub fn drive(
        &mut self,
        open: &mut OpenRequest,
        mut answered: Option<(u64, CallResult)>,
        request: &mut dyn Request,
        (host, now): (&mut dyn Host, Time),
        proxy: &mut dyn Proxy,
    ) -> Option<Progress> {
        loop {
            let decided = match answered.take() {
                None => self.request(open, request, host, now),
                Some(answer) => self.answer_request(open, answer, request, host, now)?,
            };
            // Access logs have them as `%FILTER_STATE(wasm.weir.decision:PLAIN)%`.
            if let Some(logged) = decided.logged {
                proxy.set_filter_state("wasm.weir.decision", logged.decision);
                proxy.set_filter_state("wasm.weir.rule", logged.rule);
            }
            if let Some(rules) = open.take_shadow() {
                proxy.set_filter_state("wasm.weir.shadow", &rules);
            }
            return Some(match decided.step {
                // An answered request must not continue. If the proxy cannot answer, it does.
                RequestStep::Answer(answer) if proxy.answer(&answer) => Progress::Answered,
                RequestStep::Continue | RequestStep::Answer(_) => Progress::Continues,
                RequestStep::Call(call) => match proxy.call(&call) {
                    Ok(()) => Progress::Waits,
                    Err(trouble) => {
                        answered = Some((call.number, Err(Unread::NotMade(trouble))));
                        continue;
                    }
                },
                _ => Progress::Held,
            });
        }
    }
}
