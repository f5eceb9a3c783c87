//! Calls to weir-sync: makes them and reads their answers. Envoy has its own numbers for them.

use weir_limiter::edge::{self, Answered, Call, Caller};

use crate::abi::{CALLOUT_ANSWERED, Callout, Reply};

/// Has `make` make a call. Returns Envoy's number for it, or why there is none.
pub(crate) fn make(
    caller: &Caller,
    call: &Call,
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

/// The body of a good answer, or why there is none.
pub(crate) fn read_answer(result: u32, reply: &Reply<'_>) -> Answered {
    if result != CALLOUT_ANSWERED {
        return Err(edge::no_answer());
    }
    let status = str::from_utf8(reply.header(":status")).ok().and_then(|status| status.parse().ok());
    edge::answered(status.unwrap_or(0), reply.size(), || Ok(reply.body()))
}
