//! What a module says and is told in a run, one line for each callback and for each call of its host: two runs with
//! the same transcript are the same to whoever is outside.

use super::guest::Guest;

/// A callback with its arguments.
pub(super) fn callback(export: &str, args: &[u32]) -> String {
    format!("{export}{args:?}")
}

/// What it returned.
pub(super) fn returned(value: Option<u32>) -> String {
    value.map_or_else(String::new, |value| format!(" = {value}"))
}

/// A call of the host with its arguments, and what they point to.
pub(super) fn call(guest: &mut Guest<'_>, function: &str, args: &[u64]) -> String {
    let texts = texts(function).iter().map(|at| {
        let [data, size] =
            [*at, at + 1].map(|i| args.get(i).map_or(0, |arg| u32::try_from(*arg).unwrap_or(0)));
        match guest.bytes(data, size) {
            Ok(bytes) => format!(" \"{}\"", bytes.escape_ascii()),
            Err(why) => format!(" {why}"),
        }
    });
    let texts: String = texts.collect();
    format!("  {function}{args:?}{texts}")
}

/// Which arguments of `function` are places of bytes that it is to read; the next argument is how many these are.
fn texts(function: &str) -> &'static [usize] {
    match function {
        "proxy_get_property" | "proxy_get_shared_data" => &[0],
        "proxy_define_metric"
        | "proxy_get_header_map_value"
        | "proxy_remove_header_map_value"
        | "proxy_log" => &[1],
        "proxy_add_header_map_value" => &[1, 3],
        "proxy_set_property" | "proxy_set_shared_data" => &[0, 2],
        "proxy_send_local_response" => &[1, 3, 5],
        "proxy_http_call" => &[0, 2, 4, 6],
        _ => &[],
    }
}
