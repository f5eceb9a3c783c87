//! Thin wrappers of calls into the host. A failure is returned as the host's status number, even if unknown.
//!
//! An unknown status must not cause a panic, which would cost a proxy the worker's VM. This is the only file with
//! `unsafe` blocks, a clock or randomness.
#![allow(unsafe_code, reason = "calls into the host; each block states why it is sound")]

use std::ptr::{null, null_mut};

use weir_limiter::engine::LogLevel;
use weir_limiter::response::Header;

use crate::memory::Loan;

/// A status of the host other than OK (proxy-wasm ABI 0.2.1: 1 not found, 2 bad argument, 8 compare-and-swap mismatch,
/// 10 internal failure, 12 unimplemented).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostStatus(pub(crate) u32);

impl HostStatus {
    pub(crate) const NOT_FOUND: Self = Self(1);
    pub(crate) const CAS_MISMATCH: Self = Self(8);
    pub(crate) const INTERNAL_FAILURE: Self = Self(10);
    pub(crate) const UNIMPLEMENTED: Self = Self(12);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Action {
    Continue = 0,
    /// The request is held, or was answered.
    Pause = 1,
}

#[derive(Clone, Copy)]
pub(crate) enum Headers {
    Request = 0,
    Response = 2,
    CallResponse = 6,
}

#[derive(Clone, Copy)]
pub(crate) enum HostBuffer {
    CallResponseBody = 4,
    PluginConfiguration = 7,
}

#[derive(Clone, Copy)]
pub(crate) enum Metric {
    Counter = 0,
    Gauge = 1,
}

const STREAM_REQUEST: u32 = 0;
const LEVEL_CRITICAL: u32 = 5;
const CLOCK_MONOTONIC: u32 = 1;

/// Place where the host writes the address of the bytes that it returns.
type BytesOut = *mut *mut u8;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_log(level: u32, text: *const u8, size: usize) -> u32;
    fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    fn proxy_get_buffer_bytes(kind: u32, start: usize, max: usize, data: BytesOut, size: *mut usize) -> u32;
    fn proxy_get_header_map_value(map: u32, name: *const u8, name_size: usize, data: BytesOut, size: *mut usize)
    -> u32;
    fn proxy_get_header_map_pairs(map: u32, data: BytesOut, size: *mut usize) -> u32;
    fn proxy_remove_header_map_value(map: u32, name: *const u8, name_size: usize) -> u32;
    fn proxy_add_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_get_property(path: *const u8, path_size: usize, data: BytesOut, size: *mut usize) -> u32;
    fn proxy_set_property(path: *const u8, path_size: usize, value: *const u8, value_size: usize) -> u32;
    fn proxy_get_shared_data(key: *const u8, key_size: usize, data: BytesOut, size: *mut usize, cas: *mut u32) -> u32;
    fn proxy_set_shared_data(key: *const u8, key_size: usize, data: *const u8, size: usize, cas: u32) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
    fn proxy_http_call(
        upstream: *const u8,
        upstream_size: usize,
        headers: *const u8,
        headers_size: usize,
        body: *const u8,
        body_size: usize,
        trailers: *const u8,
        trailers_size: usize,
        timeout_ms: u32,
        token: *mut u32,
    ) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, name_size: usize, id: *mut u32) -> u32;
    fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    fn proxy_record_metric(id: u32, value: u64) -> u32;
    fn proxy_get_metric(id: u32, value: *mut u64) -> u32;
    fn proxy_continue_stream(stream: u32) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> u16;
    fn random_get(bytes: *mut u8, size: usize) -> u16;
}

#[cfg(target_os = "wasi")]
unsafe extern "C" {
    fn __wasm_call_ctors();
}

/// The module has no environment, and no working directory. Libc's functions would bring its allocator with them, for
/// what std reports of a panic before [`start`].
#[unsafe(no_mangle)]
extern "C" fn getenv(_: *const u8) -> *const u8 {
    null()
}

#[unsafe(no_mangle)]
extern "C" fn getcwd(_: *mut u8, _: usize) -> *mut u8 {
    null_mut()
}

/// Runs the module's constructors, and directs logs and panics to the host. Call it once per VM.
pub(crate) fn start() {
    // SAFETY: called by a WASI reactor's `_initialize`, which runs the constructors exactly once, before anything else.
    #[cfg(target_os = "wasi")]
    unsafe {
        __wasm_call_ctors();
    }
    std::panic::set_hook(Box::new(|panic| write_log(LEVEL_CRITICAL, &panic.to_string())));
}

pub(crate) fn log(level: LogLevel, text: &str) {
    // The ABI's levels begin with trace, 0.
    write_log(
        match level {
            LogLevel::Info => 2,
            LogLevel::Warn => 3,
            LogLevel::Error => 4,
        },
        text,
    );
}

fn write_log(level: u32, text: &str) {
    let text = format!("weir: {text}");
    // SAFETY: the host reads the text during the call. A failure to write the log is ignored.
    let _ = unsafe { proxy_log(level, text.as_ptr(), text.len()) };
}

/// Reading of the monotonic clock in nanoseconds; `None` if the host has none.
pub(crate) fn monotonic_ns() -> Option<u64> {
    let mut time = 0;
    // SAFETY: the host writes eight bytes to `time` during the call.
    let errno = unsafe { clock_time_get(CLOCK_MONOTONIC, 1, &raw mut time) };
    (errno == 0).then_some(time)
}

/// Nanoseconds since 1970 by the host's clock; zero if the host has none.
pub(crate) fn unix_ns() -> u64 {
    let mut time = 0;
    // SAFETY: the host writes eight bytes to `time` during the call.
    let status = unsafe { proxy_get_current_time_nanoseconds(&raw mut time) };
    if status == 0 { time } else { 0 }
}

/// Random bytes; `None` if the host provides none.
pub(crate) fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: the host writes `N` bytes during the call.
    let errno = unsafe { random_get(bytes.as_mut_ptr(), N) };
    (errno == 0).then_some(bytes)
}

pub(crate) fn set_tick_period_ms(period: u32) -> Result<(), HostStatus> {
    // SAFETY: no memory is passed.
    done(unsafe { proxy_set_tick_period_milliseconds(period) })
}

/// Up to `max` bytes of a buffer.
pub(crate) fn buffer(kind: HostBuffer, max: usize) -> Result<Vec<u8>, HostStatus> {
    returned(|data, size| {
        // SAFETY: the host writes a pointer and a size during the call.
        unsafe { proxy_get_buffer_bytes(kind as u32, 0, max, data, size) }
    })
}

pub(crate) fn header(map: Headers, name: &str) -> Result<Vec<u8>, HostStatus> {
    returned(|data, size| {
        // SAFETY: the host reads the name and writes a pointer and a size during the call.
        unsafe { proxy_get_header_map_value(map as u32, name.as_ptr(), name.len(), data, size) }
    })
}

/// All headers with all of their lines, in the format of [`serialized`].
pub(crate) fn headers(map: Headers) -> Result<Vec<u8>, HostStatus> {
    returned(|data, size| {
        // SAFETY: the host writes a pointer and a size during the call.
        unsafe { proxy_get_header_map_pairs(map as u32, data, size) }
    })
}

pub(crate) fn remove_header(map: Headers, name: &str) -> Result<(), HostStatus> {
    // SAFETY: the host reads the name during the call.
    done(unsafe { proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len()) })
}

pub(crate) fn add_header(map: Headers, name: &str, value: &str) -> Result<(), HostStatus> {
    // SAFETY: the host reads name and value during the call.
    done(unsafe { proxy_add_header_map_value(map as u32, name.as_ptr(), name.len(), value.as_ptr(), value.len()) })
}

/// A property, whose path has NUL between its parts.
pub(crate) fn property(path: &str) -> Result<Vec<u8>, HostStatus> {
    returned(|data, size| {
        // SAFETY: the host reads the path and writes a pointer and a size during the call.
        unsafe { proxy_get_property(path.as_ptr(), path.len(), data, size) }
    })
}

pub(crate) fn set_property(path: &str, value: &str) -> Result<(), HostStatus> {
    // SAFETY: the host reads path and value during the call.
    done(unsafe { proxy_set_property(path.as_ptr(), path.len(), value.as_ptr(), value.len()) })
}

/// A value of shared data, and its compare-and-swap number.
pub(crate) fn shared_data(key: &[u8]) -> Result<(Vec<u8>, u32), HostStatus> {
    let mut cas = 0;
    let value = returned(|data, size| {
        // SAFETY: the host reads the key and writes a pointer, a size and four bytes during the call.
        unsafe { proxy_get_shared_data(key.as_ptr(), key.len(), data, size, &raw mut cas) }
    })?;
    Ok((value, cas))
}

pub(crate) fn set_shared_data(key: &[u8], value: &[u8], cas: u32) -> Result<(), HostStatus> {
    // SAFETY: the host reads key and value during the call.
    done(unsafe { proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), cas) })
}

/// Answers the request in place of the upstream. The headers are in the format of [`serialized`].
pub(crate) fn send_response(status: u16, details: &str, headers: &[u8], body: &str) -> Result<(), HostStatus> {
    // Hosts use this only for gRPC requests.
    let grpc_status = weir_limiter::response::grpc_status(status).into();
    // SAFETY: the host reads everything during the call.
    done(unsafe {
        proxy_send_local_response(
            u32::from(status),
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            grpc_status,
        )
    })
}

pub(crate) fn resume_request() -> Result<(), HostStatus> {
    // SAFETY: no memory is passed.
    done(unsafe { proxy_continue_stream(STREAM_REQUEST) })
}

/// Makes `context` the one that further calls apply to, until the host's next callback.
pub(crate) fn act_for(context: u32) -> Result<(), HostStatus> {
    // SAFETY: no memory is passed.
    done(unsafe { proxy_set_effective_context(context) })
}

/// Makes an HTTP call. Returns the host's id for it.
pub(crate) fn http_call(
    upstream: &str,
    headers: &[Header<'_>],
    body: &[u8],
    timeout_ms: u32,
) -> Result<u32, HostStatus> {
    let (headers, trailers, mut call) = (serialized(headers), serialized(&[]), 0);
    // SAFETY: the host reads the names, the maps and the body and writes four bytes during the call.
    done(unsafe {
        proxy_http_call(
            upstream.as_ptr(),
            upstream.len(),
            headers.as_ptr(),
            headers.len(),
            body.as_ptr(),
            body.len(),
            trailers.as_ptr(),
            trailers.len(),
            timeout_ms,
            &raw mut call,
        )
    })?;
    Ok(call)
}

#[inline(never)]
pub(crate) fn define_metric(kind: Metric, name: &str) -> Result<u32, HostStatus> {
    let mut id = 0;
    // SAFETY: the host reads the name and writes four bytes during the call.
    done(unsafe { proxy_define_metric(kind as u32, name.as_ptr(), name.len(), &raw mut id) })?;
    Ok(id)
}

pub(crate) fn record(gauge: u32, value: u64) -> Result<(), HostStatus> {
    // SAFETY: no memory is passed.
    done(unsafe { proxy_record_metric(gauge, value) })
}

/// Value of a metric over all workers; zero if the host returns none.
#[inline(never)]
pub(crate) fn metric(id: u32) -> u64 {
    let mut value = 0;
    // SAFETY: the host writes eight bytes to `value` during the call.
    let status = unsafe { proxy_get_metric(id, &raw mut value) };
    if status == 0 { value } else { 0 }
}

pub(crate) fn increment(counter: u32, by: u32) -> Result<(), HostStatus> {
    // SAFETY: no memory is passed.
    done(unsafe { proxy_increment_metric(counter, i64::from(by)) })
}

fn done(status: u32) -> Result<(), HostStatus> {
    if status == 0 { Ok(()) } else { Err(HostStatus(status)) }
}

/// Makes a call into the host that returns bytes.
fn returned(call: impl FnOnce(BytesOut, *mut usize) -> u32) -> Result<Vec<u8>, HostStatus> {
    let (mut data, mut size, loan) = (null_mut(), 0, Loan::begin());
    let status = call(&raw mut data, &raw mut size);
    let answer = loan.end(data, size);
    done(status)?;
    if data.is_null() || size == 0 {
        return Ok(Vec::new());
    }
    // Bytes at another address are not in a buffer lent for this call.
    answer.ok_or(HostStatus::INTERNAL_FAILURE)
}

/// Header pairs in the ABI's form: count, sizes, then names and values, each terminated by NUL.
pub(crate) fn serialized(pairs: &[Header<'_>]) -> Vec<u8> {
    let size_of = |n: usize| u32::try_from(n).unwrap_or(0).to_le_bytes();
    let texts: usize = pairs.iter().map(|(name, value)| name.len() + value.as_ref().len()).sum();
    let mut bytes = Vec::with_capacity(4 + 10 * pairs.len() + texts);
    bytes.extend_from_slice(&size_of(pairs.len()));
    for (name, value) in pairs {
        bytes.extend_from_slice(&size_of(name.len()));
        bytes.extend_from_slice(&size_of(value.as_ref().len()));
    }
    for text in pairs.iter().flat_map(|(name, value)| [*name, value.as_ref()]) {
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
    }
    bytes
}
