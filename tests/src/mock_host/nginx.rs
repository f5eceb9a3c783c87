//! What nginx (1.22, with its `ngx_wasm_module`) does otherwise than Envoy: which calls it takes when, and which end the
//! worker that makes them.

use super::host::Host;

/// The proxy that a host stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// An Envoy.
    Envoy,
    /// An Envoy with the lean module.
    Lean,
    /// An nginx, with the module that is built for it.
    Nginx,
}

/// The callbacks that nginx calls without asking whether they are there.
pub(super) const CALLBACKS: [&str; 12] = [
    "proxy_on_context_create",
    "proxy_on_vm_start",
    "proxy_on_configure",
    "proxy_on_tick",
    "proxy_on_request_headers",
    "proxy_on_request_body",
    "proxy_on_response_headers",
    "proxy_on_response_body",
    "proxy_on_http_call_response",
    "proxy_on_done",
    "proxy_on_log",
    "proxy_on_delete",
];

/// What it calls `:authority`: its own name and port, whatever the client asked for.
const AUTHORITY: &[u8] = b"edge.internal:8080";
/// The status that says that a local response has none for gRPC.
const NO_GRPC_STATUS: i32 = -1;

/// Why nginx ends the worker that makes this call now; none where it takes the call.
pub(super) fn ends_worker(host: &Host, function: &str, args: &[u64]) -> Option<&'static str> {
    if host.proxy != Proxy::Nginx {
        return None;
    }
    let has_request = host.request.is_some();
    match (function, host.callback) {
        ("proxy_http_call", "proxy_on_request_headers" | "proxy_on_request_body" | "proxy_on_tick") => None,
        ("proxy_http_call", "proxy_on_http_call_response") if has_request => None,
        ("proxy_http_call", "proxy_on_http_call_response") => {
            Some("SIGSEGV: a call from a root context's answer")
        }
        ("proxy_http_call", _) => Some("can only send HTTP dispatch during on_request_headers, on_tick"),
        ("proxy_set_tick_period_milliseconds", _) if host.tick_period_ms.is_some() => {
            Some("tick_period already set")
        }
        (
            "proxy_get_property"
            | "proxy_set_property"
            | "proxy_get_header_map_value"
            | "proxy_get_header_map_pairs"
            | "proxy_remove_header_map_value"
            | "proxy_add_header_map_value",
            "proxy_on_delete",
        ) => Some("SIGSEGV: the request is freed"),
        ("proxy_continue_stream" | "proxy_send_local_response", _) if !has_request => {
            Some("SIGSEGV: there is no request")
        }
        ("proxy_send_local_response", _) if !host.responses.is_empty() => Some("a response was stashed"),
        ("proxy_send_local_response", _) if grpc_status(args) != NO_GRPC_STATUS => {
            Some("a gRPC status, which a build for debugging asserts that there is none of")
        }
        _ => None,
    }
}

fn grpc_status(args: &[u64]) -> i32 {
    let low = args.last().map_or(0, |status| status & u64::from(u32::MAX));
    u32::try_from(low).map_or(0, u32::cast_signed)
}

/// The header `name` of the host's request.
pub(super) fn request_header(host: &Host, name: &str) -> Option<Vec<u8>> {
    let asked = |name: &str| host.ask.headers.iter().find(|(known, _)| known == name);
    let found = match (host.proxy, name) {
        (Proxy::Nginx, ":authority") => return Some(AUTHORITY.to_vec()),
        // What the client asked for is in this one alone.
        (Proxy::Nginx, "host") => asked(":authority"),
        _ => asked(name),
    };
    found.map(|(_, value)| value.clone())
}

/// A property of the host's request, or of the host.
pub(super) fn property(host: &Host, path: &str) -> Option<Vec<u8>> {
    let value = host.ask.properties.get(path).or_else(|| host.properties.get(path))?;
    match (host.proxy, path, value.as_slice().try_into()) {
        // Its properties are text.
        (Proxy::Nginx, "response\0size", Ok(size)) => Some(u64::from_le_bytes(size).to_string().into()),
        _ => Some(value.clone()),
    }
}
