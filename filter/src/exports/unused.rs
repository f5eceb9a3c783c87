//! The callbacks that the filter does not need, for a host that calls them without checking that they exist (nginx's
//! `ngx_wasm_module`). On other hosts they would only cost time, so they are built with the feature `nginx` only.

use crate::host::Action;

macro_rules! unused {
    ($($name:ident($($argument:ty),*) $(-> $action:ident)?;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($(_: $argument),*) $(-> $action)? {
                $($action::Continue)?
            }
        )*
    };
}

unused! {
    proxy_on_new_connection(u32) -> Action;
    proxy_on_downstream_data(u32, usize, u32) -> Action;
    proxy_on_downstream_connection_close(u32, u32);
    proxy_on_upstream_data(u32, usize, u32) -> Action;
    proxy_on_upstream_connection_close(u32, u32);
    proxy_on_request_body(u32, usize, u32) -> Action;
    proxy_on_request_trailers(u32, usize) -> Action;
    proxy_on_response_body(u32, usize, u32) -> Action;
    proxy_on_response_trailers(u32, usize) -> Action;
    proxy_on_queue_ready(u32, u32);
    proxy_on_grpc_receive_initial_metadata(u32, u32, u32);
    proxy_on_grpc_receive(u32, u32, usize);
    proxy_on_grpc_receive_trailing_metadata(u32, u32, u32);
    proxy_on_grpc_close(u32, u32, u32);
    proxy_on_foreign_function(u32, u32, usize);
}

/// A context may end at once: what is left to do is done in `proxy_on_delete`.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_done(_: u32) -> bool {
    true
}
