//! A proxy-wasm filter that does nothing, as the SDK makes one: a root context, and a context for each
//! request with every callback at its default.

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

struct Root;

impl Context for Root {}

impl RootContext for Root {
    fn create_http_context(&self, _context: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Nothing))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

struct Nothing;

impl Context for Nothing {}

impl HttpContext for Nothing {}

/// The host calls this once per VM, before anything else.
// The name is the ABI's (proxy-wasm, and WASI's reactor convention).
#[allow(unsafe_code, reason = "an export needs it")]
#[unsafe(no_mangle)]
extern "C" fn _initialize() {
    proxy_wasm::set_root_context(|_| -> Box<dyn RootContext> { Box::new(Root) });
}
