//! The module's hooks, called as Envoy calls them, with the functions below in place of Envoy's. One whose arguments do
//! not matter takes none, which the calling convention of C allows.
#![allow(unsafe_code, reason = "Envoy's side of the ABI")]

use std::cell::RefCell;
use std::ptr::null_mut;

use super::*;
use crate::http::read_answer;
use weir_limiter::engine::Unread;

/// Envoy's values for requests, and the module's effects, on a test's thread.
#[derive(Default)]
struct Envoy {
    address: Option<&'static str>,
    log: Vec<String>,
    /// A request that ends within the call that answers it.
    ends: Option<Ptr>,
}

thread_local!(static ENVOY: RefCell<Envoy> = RefCell::default());

fn text(bytes: Bytes) -> String {
    String::from_utf8_lossy(bytes.get()).into_owned()
}

fn write<T>(to: *mut T, value: Option<T>) -> bool {
    let is_there = value.is_some();
    if let Some(value) = value {
        // SAFETY: the module passes a pointer to a value of its own.
        unsafe { *to = value }
    }
    is_there
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_log(_: u32, line: Bytes) {
    ENVOY.with_borrow_mut(|envoy| envoy.log.push(text(line)));
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_get_concurrency() -> u32 {
    1
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_get_header() -> bool {
    false
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_add_header() -> bool {
    true
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_set_header() -> bool {
    true
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_send_response() {
    if let Some(request) = ENVOY.with_borrow_mut(|envoy| envoy.ends.take()) {
        // SAFETY: the request is one of the module's, and ends once.
        unsafe { envoy_dynamic_module_on_http_filter_destroy(request) }
    }
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_get_metadata_string() -> bool {
    false
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_get_metadata_number(
    _: Ptr,
    _: Source,
    namespace: Bytes,
    key: Bytes,
    value: *mut f64,
) -> bool {
    write(value, (text(namespace) == "llm" && text(key) == "tokens").then_some(7.5))
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_get_metadata_bool(
    _: Ptr,
    _: Source,
    _: Bytes,
    key: Bytes,
    value: *mut bool,
) -> bool {
    write(value, (text(key) == "is_free").then_some(true))
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_set_filter_state_bytes() -> bool {
    true
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_get_attribute_string(
    _: Ptr,
    _: EnvoyAttribute,
    value: *mut Bytes,
) -> bool {
    write(value, ENVOY.with_borrow(|envoy| envoy.address).map(|address| Bytes::of(address.as_bytes())))
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_get_attribute_int() -> bool {
    false
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_get_worker_index() -> u32 {
    0
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_continue_decoding() {}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_http_callout() -> u32 {
    2
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_config_http_callout() -> u32 {
    2
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_scheduler_new() -> Ptr {
    null_mut()
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_scheduler_commit() {}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_scheduler_delete() {}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_config_scheduler_new() -> Ptr {
    null_mut()
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_config_scheduler_commit() {}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_config_scheduler_delete() {}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_config_define_counter() -> u32 {
    1
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_config_define_gauge() -> u32 {
    1
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_config_increment_counter() -> u32 {
    1
}
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_config_set_gauge() -> u32 {
    0
}

// As Envoy declares them.
unsafe extern "C" {
    safe fn envoy_dynamic_module_on_program_init() -> *const std::ffi::c_char;
    fn envoy_dynamic_module_on_http_filter_config_new(_: Ptr, name: Bytes, bytes: Bytes) -> Ptr;
    fn envoy_dynamic_module_on_http_filter_config_destroy(config: Ptr);
    fn envoy_dynamic_module_on_http_filter_new(config: Ptr, _: Ptr) -> Ptr;
    fn envoy_dynamic_module_on_http_filter_request_headers(_: Ptr, request: Ptr, _: bool) -> u32;
    fn envoy_dynamic_module_on_http_filter_stream_complete(_: Ptr, request: Ptr);
    fn envoy_dynamic_module_on_http_filter_destroy(request: Ptr);
}

/// A configuration of the module with one rule, which has these fields too.
struct Config(Ptr);

impl Config {
    fn new(fields: &str) -> Self {
        let text = format!(r#"{{"rules": [{{"name": "a", "rate": "1/h", "burst": 2, {fields}}}]}}"#);
        // SAFETY: both texts live until the call returns.
        Self(unsafe {
            envoy_dynamic_module_on_http_filter_config_new(null_mut(), Bytes::of(b"weir"), Bytes::of(text.as_bytes()))
        })
    }

    /// The status of a request that has ended.
    fn status(&self) -> u32 {
        // SAFETY: the configuration has not ended; the request ends once.
        unsafe {
            let request = envoy_dynamic_module_on_http_filter_new(self.0, null_mut());
            let status = envoy_dynamic_module_on_http_filter_request_headers(null_mut(), request, true);
            envoy_dynamic_module_on_http_filter_stream_complete(null_mut(), request);
            envoy_dynamic_module_on_http_filter_destroy(request);
            status
        }
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: the configuration ends once, after its requests.
        unsafe { envoy_dynamic_module_on_http_filter_config_destroy(self.0) }
    }
}

#[test]
fn a_request_may_end_within_the_call_that_answers_it() {
    ENVOY.with_borrow_mut(|envoy| envoy.address = Some("192.0.2.2:80"));
    let config = Config::new(r#""key": ["client_address"]"#);
    assert_eq!([config.status(), config.status()], [0, 0]);
    // SAFETY: the configuration has not ended; the request ends within the hook.
    let status = unsafe {
        let request = envoy_dynamic_module_on_http_filter_new(config.0, null_mut());
        ENVOY.with_borrow_mut(|envoy| envoy.ends = Some(request));
        envoy_dynamic_module_on_http_filter_request_headers(null_mut(), request, true)
    };
    assert_eq!((status, ENVOY.with_borrow(|envoy| envoy.ends.is_none())), (1, true));
}

#[test]
fn a_bad_configuration_is_refused_with_its_errors() {
    let config = Config::new(r#""key": [], "brust": 1"#);
    assert!(config.0.is_null());
    let log = ENVOY.with_borrow(|envoy| envoy.log.join("\n"));
    assert!(log.starts_with("weir: rules[0].key: expected a list of 1 to 8 items, found 0\n"), "{log}");
    assert!(log.contains("\nweir: rules[0].brust: unknown field: did you mean burst?\n"), "{log}");
    // Without a configuration, and without a request, everything continues.
    assert_eq!(config.status(), 0);
    // SAFETY: the hook accepts no request.
    assert_eq!(unsafe { envoy_dynamic_module_on_http_filter_request_headers(null_mut(), null_mut(), true) }, 0);
    assert!(!envoy_dynamic_module_on_program_init().is_null());
}

#[test]
fn every_form_of_envoys_values_is_read() {
    assert_eq!(Bytes::default().get(), b"");
    let stream = StreamHandle(null_mut());
    assert_eq!(stream.metadata("llm", "tokens"), Some(b"7.5".to_vec()));
    assert_eq!(stream.metadata("llm", "is_free"), Some(b"true".to_vec()));
    assert_eq!(stream.metadata("llm", "other"), None);
    let answer = |status: &str, body: &[&str], result: u32| {
        let headers = [EnvoyHeader::of(":status", status)];
        let body: Vec<Bytes> = body.iter().map(|part| Bytes::of(part.as_bytes())).collect();
        let (headers, body) = (Many::of(headers.as_ptr(), 1), Many::of(body.as_ptr(), body.len()));
        read_answer(result, &CalloutResponse { headers, body })
    };
    assert!(matches!(answer("200", &["ab", "", "c"], CALLOUT_ANSWERED), Ok(body) if body == b"abc"));
    assert!(matches!(answer("200", &[], CALLOUT_ANSWERED), Ok(body) if body.is_empty()));
    assert!(matches!(answer("503", &["{}"], CALLOUT_ANSWERED), Err(Unread::Failed(why)) if why.contains("503")));
    assert!(matches!(answer("200", &["ab"], 1), Err(Unread::Failed(_))));
}
