//! Calls to weir-sync and their responses. The host assigns ids of its own to them.

use std::cell::RefCell;

use weir_limiter::engine::{self, CallResult, Caller, SyncCall, Unread};

use crate::host::{self, Headers, HostBuffer};
use crate::http;

/// Maximum number of calls that one VM waits for; beyond it, the oldest is forgotten.
const CALLS_MAX: usize = 4_096;

thread_local! {
    /// Calls in progress, oldest first: the host's id, the context that made the call, and its engine's number
    /// of the call.
    static UNDER_WAY: RefCell<Vec<(u32, u32, u64)>> = const { RefCell::new(Vec::new()) };
}

/// Makes a call for the active context.
pub(crate) fn make(caller: &Caller, call: &SyncCall, context: u32) -> Result<(), String> {
    let cluster = caller.cluster();
    let token = host::http_call(cluster, &caller.headers(call), &call.body, call.timeout_ms)
        .map_err(|status| format!("the host made no call to cluster {cluster:?}: status {}", status.0))?;
    UNDER_WAY.with_borrow_mut(|calls| {
        // Bounded, in case a host never ends its calls.
        if calls.len() >= CALLS_MAX {
            calls.remove(0);
        }
        calls.push((token, context, call.number));
    });
    Ok(())
}

/// Handles the end of the call `token`. Returns the context that made it, and its engine's number of the call.
pub(crate) fn end(token: u32) -> Option<(u32, u64)> {
    UNDER_WAY.with_borrow_mut(|calls| {
        let at = calls.iter().position(|(known, ..)| *known == token)?;
        let (_, context, number) = calls.remove(at);
        Some((context, number))
    })
}

/// Forgets the calls of `context`: their responses are no longer needed.
pub(crate) fn forget(context: u32) {
    UNDER_WAY.with_borrow_mut(|calls| calls.retain(|(_, caller, _)| *caller != context));
}

/// The body of a successful response, or the error. To be called in the callback for the response.
pub(crate) fn read_answer(headers: usize, body_size: usize) -> CallResult {
    if headers == 0 {
        return Err(engine::no_answer());
    }
    engine::answered(http::status(Headers::CallResponse), body_size, || {
        host::buffer(HostBuffer::CallResponseBody, body_size)
            .map_err(|status| Unread::Failed(format!("the host kept weir-sync's answer: status {}", status.0)))
    })
}
