//! The callbacks that the filter needs, under the ABI's names. A host skips a callback that is not exported,
//! so it costs nothing.
#![allow(unsafe_code, reason = "an export needs it for its name; no block here has any")]

use crate::host::{self, Action};
use crate::plugin::Plugin;
use crate::worker::RequestContext;
use crate::{dispatch, memory};

/// Called once per VM, before all other callbacks.
// The ABI prescribes the name (proxy-wasm, and WASI's reactor convention).
#[unsafe(no_mangle)]
extern "C" fn _initialize() {
    host::start();
}

/// Declares the version of proxy-wasm's ABI by its name; never called.
#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

/// Lends the host memory for its results.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    memory::lend(size)
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(id: u32, plugin: u32) {
    dispatch::create(id, plugin);
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_vm_start(_: u32, _: usize) -> bool {
    true
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(id: u32, size: usize) -> bool {
    dispatch::with_plugin(id, false, |plugin| plugin.on_configure(size))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(id: u32) {
    dispatch::with_plugin(id, (), Plugin::on_tick);
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(id: u32, _: usize, ends: u32) -> Action {
    dispatch::request_headers(id, ends != 0)
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_headers(id: u32, _: usize, _: u32) -> Action {
    dispatch::with_request(id, Action::Continue, RequestContext::on_response_headers)
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_http_call_response(_: u32, call: u32, headers: usize, body_size: usize, _: usize) {
    dispatch::answer(call, headers, body_size);
}

/// Called when a request or a plugin ends. Everything left to do is done here, because another callback
/// (`proxy_on_done`, `proxy_on_log`) would cost every request one more call of the module.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_delete(id: u32) {
    dispatch::delete(id);
}
