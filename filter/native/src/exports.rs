//! The module's hooks, under the names that Envoy expects. Envoy refuses a module without all of them.
//!
//! A panic that left a hook would abort Envoy. So each hook catches panics, and the request continues.
#![allow(unsafe_code, reason = "an export needs it for its name; no block here has any")]

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_limiter::engine::LogLevel;

use crate::abi::{
    self, Bytes, CalloutResponse, ConfigHandle, DataStatus, EnvoyHeader, HeadersStatus, KeptConfig, KeptRequest, Many,
    StreamHandle,
};
use crate::http::read_answer;
use crate::plugin::Plugin;
use crate::request::RequestContext;

/// The value that Envoy keeps for a request.
type Request = KeptRequest<RequestContext>;

fn contained<T>(otherwise: T, act: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(otherwise)
}

/// Runs `act` on a request, if there is one, and catches panics.
fn with_request(request: Request, act: impl FnOnce(&RequestContext)) {
    contained((), || request.get().as_deref().map_or((), act));
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    let _ = catch_unwind(|| {
        std::panic::set_hook(Box::new(|panic| abi::log(LogLevel::Error, &panic.to_string())));
    });
    abi::VERSION.as_ptr()
}

/// Called to create a configuration; a null result refuses it.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    config: ConfigHandle,
    name: Bytes,
    bytes: Bytes,
) -> KeptConfig<Plugin> {
    contained(KeptConfig::NONE, || {
        let name = String::from_utf8_lossy(name.get());
        let errors = match Plugin::new(config, &name, bytes.get()) {
            Ok(plugin) => return KeptConfig::new(plugin),
            Err(errors) => errors,
        };
        for error in errors {
            abi::log(LogLevel::Error, &error);
        }
        let then = "the configuration is refused: correct the places above; keeping the previous configuration";
        abi::log(LogLevel::Error, then);
        KeptConfig::NONE
    })
}

/// Called when a configuration ends, after all of its requests.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(plugin: KeptConfig<Plugin>) {
    contained((), || {
        if let Some(plugin) = plugin.end() {
            plugin.finish();
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_scheduled(
    config: ConfigHandle,
    plugin: KeptConfig<Plugin>,
    _event: u64,
) {
    contained((), || {
        if let Some(plugin) = plugin.get() {
            plugin.on_tick(config);
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_http_callout_done(
    config: ConfigHandle,
    plugin: KeptConfig<Plugin>,
    callout: u64,
    result: u32,
    headers: *const EnvoyHeader,
    headers_count: usize,
    body: *const Bytes,
    body_count: usize,
) {
    contained((), || {
        let response = CalloutResponse { headers: Many::of(headers, headers_count), body: Many::of(body, body_count) };
        if let Some(plugin) = plugin.get() {
            plugin.on_answer(callout, read_answer(result, &response), config);
        }
    });
}

/// Called when a request begins. A null result would make Envoy close the stream.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_new(plugin: KeptConfig<Plugin>, stream: StreamHandle) -> Request {
    KeptRequest::new(RequestContext::new(plugin, stream))
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    _: StreamHandle,
    request: Request,
    is_all: bool,
) -> HeadersStatus {
    contained(HeadersStatus::Continue, || {
        request.get().map_or(HeadersStatus::Continue, |request| request.on_request_headers(is_all))
    })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
    _: StreamHandle,
    request: Request,
    _is_all: bool,
) -> HeadersStatus {
    with_request(request, RequestContext::on_response_headers);
    HeadersStatus::Continue
}

/// Called when the request is complete. Its attributes are still readable.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_stream_complete(_: StreamHandle, request: Request) {
    with_request(request, RequestContext::on_response_sent);
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_destroy(request: Request) {
    contained((), || {
        if let Some(request) = request.end() {
            request.on_end();
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_callout_done(
    _: StreamHandle,
    request: Request,
    callout: u64,
    result: u32,
    headers: *const EnvoyHeader,
    headers_count: usize,
    body: *const Bytes,
    body_count: usize,
) {
    with_request(request, |request| {
        let response = CalloutResponse { headers: Many::of(headers, headers_count), body: Many::of(body, body_count) };
        request.on_answer(callout, read_answer(result, &response));
    });
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(_: StreamHandle, request: Request, _event: u64) {
    with_request(request, RequestContext::on_turn);
}

/// Defines hooks without effect that Envoy requires.
macro_rules! ignored {
    ($($hook:ident($($argument:ty),*) $(-> $status:ident)?;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $hook($(_: $argument),*) $(-> $status)? {
            $($status::Continue)?
        }
    )*};
}

ignored! {
    envoy_dynamic_module_on_http_filter_request_body(StreamHandle, Request, bool) -> DataStatus;
    envoy_dynamic_module_on_http_filter_request_trailers(StreamHandle, Request) -> DataStatus;
    envoy_dynamic_module_on_http_filter_response_body(StreamHandle, Request, bool) -> DataStatus;
    envoy_dynamic_module_on_http_filter_response_trailers(StreamHandle, Request) -> DataStatus;
    envoy_dynamic_module_on_http_filter_http_stream_headers(StreamHandle, Request, u64, *const EnvoyHeader, usize, bool);
    envoy_dynamic_module_on_http_filter_http_stream_data(StreamHandle, Request, u64, *const Bytes, usize, bool);
    envoy_dynamic_module_on_http_filter_http_stream_trailers(StreamHandle, Request, u64, *const EnvoyHeader, usize);
    envoy_dynamic_module_on_http_filter_http_stream_complete(StreamHandle, Request, u64);
    envoy_dynamic_module_on_http_filter_http_stream_reset(StreamHandle, Request, u64, u32);
    envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(StreamHandle, Request);
    envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(StreamHandle, Request);
}
