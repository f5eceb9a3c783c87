//! The harness itself: if this fails, no other result means anything.

use serde_json::json;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::wait::until;

/// A filter that runs into `unreachable` at every request, in WebAssembly's binary form: types, functions,
/// a page of memory, exports, bodies.
const TRAP: &[u8] = b"\0asm\x01\0\0\0\
    \x01\x10\x03\x60\0\0\x60\x01\x7f\x01\x7f\x60\x03\x7f\x7f\x7f\x01\x7f\
    \x03\x04\x03\0\x01\x02\
    \x05\x03\x01\0\x01\
    \x07\x5a\x04\x06memory\x02\0\x17proxy_abi_version_0_2_1\0\0\
    \x18proxy_on_memory_allocate\0\x01\x18proxy_on_request_headers\0\x02\
    \x0a\x0d\x03\x02\0\x0b\x04\0\x41\0\x0b\x03\0\0\x0b";

/// Of the wasm alone: a native module that dies takes its Envoy with it, which every test sees.
#[tokio::test]
async fn a_filter_that_dies_fails_the_test() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), TRAP).unwrap();
    let mut edge = Envoy::start(Setup::with(json!({})).code(file.path())).await;
    assert_eq!(edge.faults(), [""; 0], "nothing was asked of it yet");
    let seen = async |text: &str| {
        until(&format!("a fault with {text:?}"), async || {
            assert_ne!(edge.client().send(&Ask::get("/")).await.status, 200);
            edge.faults().iter().any(|fault| fault.contains(text)).then_some(())
        })
        .await;
    };
    seen("unreachable").await;
    seen("vm_reload_success").await;
    edge.forgive_faults();
}
