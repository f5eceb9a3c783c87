//! Bindings to the part of Envoy's ABI for dynamic modules that is used here, and safe wrappers.
//!
//! The names, arguments and numbers are those of `source/extensions/dynamic_modules/abi/abi.h` in Envoy 1.40.
//! This is the only file with `unsafe` blocks. They rely on two rules about pointers: a pointer that Envoy passes to a
//! hook is valid until the hook returns, and Envoy passes a pointer that a hook returned to it unchanged to later
//! hooks, until the hook for its end has run.
#![allow(unsafe_code, reason = "calls into Envoy, and pointers that it keeps; each block states why it is sound")]

use std::ffi::{CStr, c_void};
use std::ptr::{NonNull, null};
use std::rc::Rc;
use std::slice;

use weir_limiter::engine::{Caller, LogLevel, SyncCall};
use weir_limiter::response::Header;
use weir_rules::claim_as_text;

type Ptr = *mut c_void;

/// Version of the ABI. Envoy logs a warning for other versions, and refuses one that is too old.
pub(crate) const VERSION: &CStr = c"v0.1.0";

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Bytes {
    data: *const u8,
    size: usize,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct EnvoyHeader {
    name: Bytes,
    value: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) enum HeadersStatus {
    Continue = 0,
    /// The request was answered.
    Stop = 1,
    /// The request and its body are held.
    Hold = 4,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) enum DataStatus {
    Continue = 0,
}

/// Result of a callout that received a response.
pub(crate) const CALLOUT_ANSWERED: u32 = 0;

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) enum Headers {
    Request = 0,
    Response = 2,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) enum EnvoyAttribute {
    ResponseSize = 21,
    SourceAddress = 24,
    RouteName = 61,
}

#[repr(C)]
enum Source {
    Dynamic = 0,
}

unsafe extern "C" {
    fn envoy_dynamic_module_callback_log(level: u32, text: Bytes);
    fn envoy_dynamic_module_callback_get_concurrency() -> u32;

    fn envoy_dynamic_module_callback_http_get_header(
        filter: Ptr,
        map: Headers,
        name: Bytes,
        value: *mut Bytes,
        index: usize,
        count: *mut usize,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_add_header(filter: Ptr, map: Headers, name: Bytes, value: Bytes) -> bool;
    fn envoy_dynamic_module_callback_http_set_header(filter: Ptr, map: Headers, name: Bytes, value: Bytes) -> bool;
    fn envoy_dynamic_module_callback_http_send_response(
        filter: Ptr,
        status: u32,
        headers: *const EnvoyHeader,
        count: usize,
        body: Bytes,
        details: Bytes,
    );
    fn envoy_dynamic_module_callback_http_get_metadata_string(
        filter: Ptr,
        source: Source,
        namespace: Bytes,
        key: Bytes,
        value: *mut Bytes,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_get_metadata_number(
        filter: Ptr,
        source: Source,
        namespace: Bytes,
        key: Bytes,
        value: *mut f64,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_get_metadata_bool(
        filter: Ptr,
        source: Source,
        namespace: Bytes,
        key: Bytes,
        value: *mut bool,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_set_filter_state_bytes(filter: Ptr, key: Bytes, value: Bytes) -> bool;
    fn envoy_dynamic_module_callback_http_filter_get_attribute_string(
        filter: Ptr,
        attribute: EnvoyAttribute,
        value: *mut Bytes,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_filter_get_attribute_int(
        filter: Ptr,
        attribute: EnvoyAttribute,
        value: *mut u64,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_filter_get_worker_index(filter: Ptr) -> u32;
    fn envoy_dynamic_module_callback_http_filter_continue_decoding(filter: Ptr);
    fn envoy_dynamic_module_callback_http_filter_http_callout(
        filter: Ptr,
        callout: *mut u64,
        cluster: Bytes,
        headers: *const EnvoyHeader,
        count: usize,
        body: Bytes,
        timeout_ms: u64,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_scheduler_new(filter: Ptr) -> Ptr;
    fn envoy_dynamic_module_callback_http_filter_scheduler_commit(scheduler: Ptr, event: u64);
    fn envoy_dynamic_module_callback_http_filter_scheduler_delete(scheduler: Ptr);

    fn envoy_dynamic_module_callback_http_filter_config_scheduler_new(config: Ptr) -> Ptr;
    fn envoy_dynamic_module_callback_http_filter_config_scheduler_commit(scheduler: Ptr, event: u64);
    fn envoy_dynamic_module_callback_http_filter_config_scheduler_delete(scheduler: Ptr);
    fn envoy_dynamic_module_callback_http_filter_config_http_callout(
        config: Ptr,
        callout: *mut u64,
        cluster: Bytes,
        headers: *const EnvoyHeader,
        count: usize,
        body: Bytes,
        timeout_ms: u64,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_config_define_counter(
        config: Ptr,
        name: Bytes,
        labels: *const Bytes,
        count: usize,
        id: *mut usize,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_config_define_gauge(
        config: Ptr,
        name: Bytes,
        labels: *const Bytes,
        count: usize,
        id: *mut usize,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_config_increment_counter(
        config: Ptr,
        id: usize,
        labels: *const Bytes,
        count: usize,
        by: u64,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_config_set_gauge(
        config: Ptr,
        id: usize,
        labels: *const Bytes,
        count: usize,
        value: u64,
    ) -> u32;
}

type GetMetadata<T> = unsafe extern "C" fn(Ptr, Source, Bytes, Bytes, *mut T) -> bool;
type MakeCallout = unsafe extern "C" fn(
    of: Ptr,
    id: *mut u64,
    cluster: Bytes,
    headers: *const EnvoyHeader,
    count: usize,
    body: Bytes,
    timeout_ms: u64,
) -> u32;
type DefineMetric = unsafe extern "C" fn(Ptr, Bytes, *const Bytes, usize, *mut usize) -> u32;
type RecordMetric = unsafe extern "C" fn(Ptr, usize, *const Bytes, usize, u64) -> u32;

impl Default for Bytes {
    fn default() -> Self {
        Self { data: null(), size: 0 }
    }
}

impl Bytes {
    /// Borrows text or bytes of the module. The result must not outlive them.
    fn of(bytes: &(impl AsRef<[u8]> + ?Sized)) -> Self {
        let bytes = bytes.as_ref();
        Self { data: bytes.as_ptr(), size: bytes.len() }
    }

    pub(crate) fn get(&self) -> &[u8] {
        if self.data.is_null() || self.size == 0 {
            return &[];
        }
        // SAFETY: Envoy passes a pointer to `size` bytes, which stay unchanged until the current hook returns or sets
        // the object that they belong to. No caller keeps them beyond its next call into Envoy.
        unsafe { slice::from_raw_parts(self.data, self.size) }
    }
}

impl EnvoyHeader {
    /// Borrows a header of the module. The result must not outlive `name` and `value`.
    fn of(name: &(impl AsRef<[u8]> + ?Sized), value: &(impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { name: Bytes::of(name), value: Bytes::of(value) }
    }
}

/// The response to a callout, valid during the current hook.
pub(crate) struct CalloutResponse {
    pub(crate) headers: Many<EnvoyHeader>,
    pub(crate) body: Many<Bytes>,
}

impl CalloutResponse {
    /// Value of the header `name`; empty if it is missing.
    pub(crate) fn header(&self, name: &str) -> &[u8] {
        let found = self.headers.get().iter().find(|header| header.name.get() == name.as_bytes());
        found.map_or(&[], |header| header.value.get())
    }

    pub(crate) fn size(&self) -> usize {
        self.body.get().iter().map(|part| part.size).sum()
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        self.body.get().iter().flat_map(Bytes::get).copied().collect()
    }
}

/// A list that Envoy passes to a hook as a pointer and a count.
pub(crate) struct Many<T> {
    first: *const T,
    count: usize,
}

impl<T> Many<T> {
    pub(crate) fn of(first: *const T, count: usize) -> Self {
        Self { first, count }
    }

    fn get(&self) -> &[T] {
        if self.first.is_null() || self.count == 0 {
            return &[];
        }
        // SAFETY: Envoy passes a pointer to `count` items, which stay unchanged until the hook returns.
        unsafe { slice::from_raw_parts(self.first, self.count) }
    }
}

/// A value of the module that Envoy keeps for a configuration, and passes to each hook until the configuration ends.
#[repr(transparent)]
pub(crate) struct KeptConfig<T>(*const T);

impl<T> KeptConfig<T> {
    pub(crate) const NONE: Self = Self(null());

    pub(crate) fn new(kept: T) -> Self {
        Self(Box::into_raw(Box::new(kept)))
    }

    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: the pointer was made by `new`, and Envoy passes it only until the hook for its end has run. All
        // requests of the configuration end before that.
        unsafe { self.0.as_ref() }
    }

    /// Takes the value back. Call this only in the hook for the value's end, which Envoy calls once.
    pub(crate) fn end(self) -> Option<Box<T>> {
        // SAFETY: the pointer was made by `new`, and no other reference is left.
        NonNull::new(self.0.cast_mut()).map(|kept| unsafe { Box::from_raw(kept.as_ptr()) })
    }
}

/// [`KeptConfig`] for a request. The value stays alive while a hook runs, even if the request ends in it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct KeptRequest<T>(*const T);

impl<T> KeptRequest<T> {
    pub(crate) fn new(kept: T) -> Self {
        Self(Rc::into_raw(Rc::new(kept)))
    }

    pub(crate) fn get(self) -> Option<Rc<T>> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the pointer was made by `new` on this thread. Envoy passes it only until its end's hook has run.
        unsafe {
            Rc::increment_strong_count(self.0);
            Some(Rc::from_raw(self.0))
        }
    }

    /// Takes the value back. Call this only in the hook for the value's end, which Envoy calls once.
    pub(crate) fn end(self) -> Option<Rc<T>> {
        // SAFETY: as in `get`; this releases the reference that `new` made.
        (!self.0.is_null()).then(|| unsafe { Rc::from_raw(self.0) })
    }
}

pub(crate) fn log(level: LogLevel, text: &str) {
    let level = match level {
        LogLevel::Info => 2,
        LogLevel::Warn => 3,
        LogLevel::Error => 4,
    };
    let text = ["weir: ", text].concat();
    // SAFETY: Envoy reads the text during the call, which any thread may make.
    unsafe { envoy_dynamic_module_callback_log(level, Bytes::of(&text)) }
}

/// Number of Envoy's worker threads. Call this on the main thread only.
pub(crate) fn concurrency() -> u32 {
    // SAFETY: no memory is passed.
    unsafe { envoy_dynamic_module_callback_get_concurrency() }
}

/// Envoy's handle of a request, for hooks of that request.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct StreamHandle(Ptr);

impl StreamHandle {
    /// Applies `read` to the value at `index` of a header and to the number of its values.
    pub(crate) fn header<T>(
        self,
        map: Headers,
        name: &str,
        index: usize,
        read: impl FnOnce(&[u8], usize) -> T,
    ) -> Option<T> {
        let (mut value, mut count) = (Bytes::default(), 0);
        // SAFETY: Envoy reads the name, and writes a pointer and two sizes, during the call.
        let is_there = unsafe {
            envoy_dynamic_module_callback_http_get_header(
                self.0,
                map,
                Bytes::of(name),
                &raw mut value,
                index,
                &raw mut count,
            )
        };
        is_there.then(|| read(value.get(), count))
    }

    /// Adds a header; one that Envoy refuses is left out.
    pub(crate) fn add_header(self, map: Headers, name: &str, value: &str) {
        // SAFETY: Envoy reads both during the call.
        unsafe { envoy_dynamic_module_callback_http_add_header(self.0, map, Bytes::of(name), Bytes::of(value)) };
    }

    pub(crate) fn remove_header(self, map: Headers, name: &str) {
        // SAFETY: Envoy reads the name during the call. A null value removes the header.
        unsafe { envoy_dynamic_module_callback_http_set_header(self.0, map, Bytes::of(name), Bytes::default()) };
    }

    pub(crate) fn respond<'a>(
        self,
        status: u16,
        details: &[u8],
        headers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        body: &[u8],
    ) {
        let headers: Vec<EnvoyHeader> = headers.map(|(name, value)| EnvoyHeader::of(name, value)).collect();
        // SAFETY: Envoy copies everything during the call. The request may end in it.
        unsafe {
            envoy_dynamic_module_callback_http_send_response(
                self.0,
                status.into(),
                headers.as_ptr(),
                headers.len(),
                Bytes::of(body),
                Bytes::of(details),
            );
        }
    }

    pub(crate) fn attribute<T>(self, id: EnvoyAttribute, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let mut value = Bytes::default();
        // SAFETY: Envoy writes a pointer and a size during the call.
        let is_there =
            unsafe { envoy_dynamic_module_callback_http_filter_get_attribute_string(self.0, id, &raw mut value) };
        is_there.then(|| read(value.get()))
    }

    pub(crate) fn number(self, id: EnvoyAttribute) -> Option<u64> {
        let mut value = 0;
        // SAFETY: Envoy writes eight bytes during the call.
        let is_there =
            unsafe { envoy_dynamic_module_callback_http_filter_get_attribute_int(self.0, id, &raw mut value) };
        is_there.then_some(value)
    }

    /// Reads a metadata value as text.
    pub(crate) fn metadata(self, namespace: &str, key: &str) -> Option<Vec<u8>> {
        let (namespace, key) = (Bytes::of(namespace), Bytes::of(key));
        let text = self.metadata_as(envoy_dynamic_module_callback_http_get_metadata_string, namespace, key);
        if let Some(text) = text {
            return Some(text.get().to_vec());
        }
        let number = self.metadata_as(envoy_dynamic_module_callback_http_get_metadata_number, namespace, key);
        let bytes = if let Some(number) = number {
            f64::to_le_bytes(number).to_vec()
        } else {
            let get = envoy_dynamic_module_callback_http_get_metadata_bool;
            vec![u8::from(self.metadata_as(get, namespace, key)?)]
        };
        Some(claim_as_text(bytes))
    }

    fn metadata_as<T: Default>(self, get: GetMetadata<T>, namespace: Bytes, key: Bytes) -> Option<T> {
        let mut value = T::default();
        // SAFETY: Envoy reads both names and writes the value during the call.
        unsafe { get(self.0, Source::Dynamic, namespace, key, &raw mut value) }.then_some(value)
    }

    pub(crate) fn set_filter_state(self, key: &str, value: &str) {
        // SAFETY: Envoy copies both during the call.
        unsafe { envoy_dynamic_module_callback_http_set_filter_state_bytes(self.0, Bytes::of(key), Bytes::of(value)) };
    }

    pub(crate) fn worker(self) -> u32 {
        // SAFETY: no memory is passed.
        unsafe { envoy_dynamic_module_callback_http_filter_get_worker_index(self.0) }
    }

    /// Continues a held request, which may end in this call.
    pub(crate) fn go_on(self) {
        // SAFETY: no memory is passed.
        unsafe { envoy_dynamic_module_callback_http_filter_continue_decoding(self.0) }
    }

    /// Makes a call to weir-sync, which Envoy cancels when the request ends.
    pub(crate) fn call(self, caller: &Caller, call: &SyncCall) -> Result<u64, String> {
        make_call(self.0, envoy_dynamic_module_callback_http_filter_http_callout, caller, call)
    }

    /// Creates a scheduler, with which other threads can run the request's `scheduled` hook.
    pub(crate) fn scheduler(self) -> Scheduler {
        Scheduler {
            // SAFETY: no memory is passed.
            handle: unsafe { envoy_dynamic_module_callback_http_filter_scheduler_new(self.0) },
            commit: envoy_dynamic_module_callback_http_filter_scheduler_commit,
            delete: envoy_dynamic_module_callback_http_filter_scheduler_delete,
        }
    }
}

/// Makes a call to weir-sync for a request or a configuration. Returns Envoy's id of it, or the reason of the failure.
fn make_call(of: Ptr, make: MakeCallout, caller: &Caller, call: &SyncCall) -> Result<u64, String> {
    let texts = caller.headers(call);
    let header = |(name, value): &Header<'_>| EnvoyHeader::of(*name, value.as_bytes());
    let headers: Vec<EnvoyHeader> = texts.iter().map(header).collect();
    let (cluster, body, mut id) = (Bytes::of(&caller.cluster), Bytes::of(&call.body), 0);
    // SAFETY: Envoy copies everything, and writes eight bytes, during the call.
    let result =
        unsafe { make(of, &raw mut id, cluster, headers.as_ptr(), headers.len(), body, call.timeout_ms.into()) };
    let why = match result {
        0 => return Ok(id),
        2 => "there is no such cluster",
        4 => "no endpoint takes a request",
        _ => "Envoy refused it",
    };
    Err(format!("Envoy made no call to cluster {:?}: {why} ({result})", caller.cluster))
}

/// Runs a `scheduled` hook from any thread: that of a request on its worker, that of a configuration on the main
/// thread. Has no effect once the request or the configuration has ended.
pub(crate) struct Scheduler {
    handle: Ptr,
    commit: unsafe extern "C" fn(Ptr, u64),
    delete: unsafe extern "C" fn(Ptr),
}

// SAFETY: Envoy's schedulers may be used and deleted on any thread.
unsafe impl Send for Scheduler {}

impl Scheduler {
    pub(crate) fn run(&self) {
        // SAFETY: the scheduler exists until it is dropped.
        unsafe { (self.commit)(self.handle, 0) }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // SAFETY: the handle is of a scheduler of Envoy, and deleted once.
        unsafe { (self.delete)(self.handle) }
    }
}

/// Envoy's handle of a configuration, for its hooks, which run on the main thread, and for its end.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct ConfigHandle(Ptr);

// SAFETY: the handle is used only in hooks of the configuration, which never run at the same time.
unsafe impl Send for ConfigHandle {}

/// Envoy's id of a counter or a gauge, and the call that changes it.
#[derive(Clone, Copy)]
pub(crate) struct EnvoyMetric {
    id: usize,
    record: RecordMetric,
}

impl ConfigHandle {
    pub(crate) fn scheduler(self) -> Scheduler {
        Scheduler {
            // SAFETY: no memory is passed.
            handle: unsafe { envoy_dynamic_module_callback_http_filter_config_scheduler_new(self.0) },
            commit: envoy_dynamic_module_callback_http_filter_config_scheduler_commit,
            delete: envoy_dynamic_module_callback_http_filter_config_scheduler_delete,
        }
    }

    pub(crate) fn call(self, caller: &Caller, call: &SyncCall) -> Result<u64, String> {
        make_call(self.0, envoy_dynamic_module_callback_http_filter_config_http_callout, caller, call)
    }

    /// Defines a counter with these labels. Envoy accepts definitions only while the configuration is created.
    pub(crate) fn define_counter(self, name: &str, labels: &[&str]) -> Option<EnvoyMetric> {
        let define = envoy_dynamic_module_callback_http_filter_config_define_counter;
        self.define(define, envoy_dynamic_module_callback_http_filter_config_increment_counter, name, labels)
    }

    /// Defines a gauge. Envoy accepts definitions only while the configuration is created.
    pub(crate) fn define_gauge(self, name: &str) -> Option<EnvoyMetric> {
        let define = envoy_dynamic_module_callback_http_filter_config_define_gauge;
        self.define(define, envoy_dynamic_module_callback_http_filter_config_set_gauge, name, &[])
    }

    fn define(self, define: DefineMetric, record: RecordMetric, name: &str, labels: &[&str]) -> Option<EnvoyMetric> {
        let (labels, mut id) = (texts(labels), 0);
        // SAFETY: Envoy copies the texts, and writes a number, during the call.
        let result = unsafe { define(self.0, Bytes::of(name), labels.as_ptr(), labels.len(), &raw mut id) };
        (result == 0).then_some(EnvoyMetric { id, record })
    }

    /// Adds to a counter under these label values, or sets a gauge. A value that Envoy refuses is lost.
    pub(crate) fn record(self, EnvoyMetric { id, record }: EnvoyMetric, labels: &[&str], value: u64) {
        let labels = texts(labels);
        // SAFETY: Envoy copies the texts during the call.
        unsafe { record(self.0, id, labels.as_ptr(), labels.len(), value) };
    }
}

fn texts(texts: &[&str]) -> Vec<Bytes> {
    texts.iter().map(Bytes::of).collect()
}

#[cfg(test)]
mod tests;
