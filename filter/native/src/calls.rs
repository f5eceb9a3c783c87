//! Calls to weir-sync and their responses. Envoy assigns ids of its own to them.

use weir_limiter::engine::{self, CallResult, Caller, SyncCall};

use crate::abi::{CALLOUT_ANSWERED, Callout, CalloutResponse};

/// Makes a call by `make`. Returns Envoy's id of it, or the reason why it was not made.
pub(crate) fn make(
    caller: &Caller,
    call: &SyncCall,
    make: impl FnOnce(&Callout<'_>) -> Result<u64, u32>,
) -> Result<u64, String> {
    let (cluster, headers) = (caller.cluster(), caller.headers(call));
    let callout = Callout { cluster, headers: &headers, body: &call.body, timeout_ms: call.timeout_ms };
    make(&callout).map_err(|result| {
        let why = match result {
            2 => "there is no such cluster",
            4 => "no endpoint takes a request",
            _ => "Envoy refused it",
        };
        format!("Envoy made no call to cluster {cluster:?}: {why} ({result})")
    })
}

/// The body of a successful response, or the error.
pub(crate) fn read_answer(result: u32, reply: &CalloutResponse<'_>) -> CallResult {
    if result != CALLOUT_ANSWERED {
        return Err(engine::no_answer());
    }
    let status = str::from_utf8(reply.header(":status")).ok().and_then(|status| status.parse().ok());
    engine::answered(status.unwrap_or(0), reply.size(), || Ok(reply.body()))
}
