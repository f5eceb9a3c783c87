//! Every function that the module imports.

use super::guest::{Error, Guest, Vm};
use super::host::{Callback, Created, Host, HttpCall, LocalResponse};
use super::message;
use super::script::Answer;
use super::shared::Unwritten;

const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const BAD_ARGUMENT: u32 = 2;
const CAS_MISMATCH: u32 = 8;
const INTERNAL_FAILURE: u32 = 10;
const UNIMPLEMENTED: u32 = 12;
/// WASI's errno for a function that is not there.
const ERRNO_NOSYS: u32 = 52;

/// The result of a function beside its status: the arguments that point to it.
enum Returns {
    Nothing,
    Bytes { data: usize, size: usize },
    Number { at: usize, bytes: usize },
}

/// The effect when the module in `vm` calls the function `name`: the status, or the reason why that ends the callback.
pub(super) fn answer(vm: &mut dyn Vm, name: &str, args: &[u64]) -> Result<u32, Error> {
    let guest = &mut Guest(vm);
    if let Some((_, callbacks)) = guest.host().calls_back.take_if(|(function, _)| function == name) {
        for callback in callbacks {
            match callback {
                Callback::Begins(Created { id, root }) => guest.call("proxy_on_context_create", &[id, root]),
                Callback::Ends(Created { id, .. }) => guest.call("proxy_on_delete", &[id]),
            }?;
        }
    }
    match guest.host().answer(name) {
        Answer::Work => {}
        Answer::Status(status) => return Ok(status),
        answer if scripted(&answer, &returns(name), guest, args)? => return Ok(OK),
        _ => {}
    }
    if name.starts_with("proxy_") { proxy(name, guest, args) } else { wasi(name, guest, args) }
}

/// Gives the script's answer, if it is one that the function can give.
fn scripted(answer: &Answer, returns: &Returns, guest: &mut Guest<'_>, args: &[u64]) -> Result<bool, Error> {
    match (answer, returns) {
        (Answer::Nothing, Returns::Bytes { data, size }) => {
            guest.write(low(args, *data), &[0; 4])?;
            guest.write(low(args, *size), &[0; 4])?;
        }
        (Answer::Nothing, Returns::Number { at, bytes }) => guest.write(low(args, *at), &[0; 8][..*bytes])?,
        (Answer::Stray { asks, place, bytes }, Returns::Bytes { data, size }) => {
            let lent = asks.iter().map(|size| guest.allocate(*size)).collect::<Result<Vec<_>, _>>()?;
            let place = place.or(lent.first().copied()).unwrap_or(0);
            guest.write(low(args, *data), &place.to_le_bytes())?;
            guest.write(low(args, *size), &bytes.to_le_bytes())?;
        }
        (Answer::Bytes(bytes), Returns::Bytes { data, size }) => {
            guest.give(bytes, low(args, *data), low(args, *size))?;
        }
        (Answer::Number(number), Returns::Number { at, bytes }) => {
            guest.write(low(args, *at), &number.to_le_bytes()[..*bytes])?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn returns(name: &str) -> Returns {
    match name {
        "proxy_get_buffer_bytes" | "proxy_get_header_map_value" => Returns::Bytes { data: 3, size: 4 },
        "proxy_get_property" | "proxy_get_shared_data" => Returns::Bytes { data: 2, size: 3 },
        "proxy_get_header_map_pairs" => Returns::Bytes { data: 1, size: 2 },
        "proxy_get_current_time_nanoseconds" => Returns::Number { at: 0, bytes: 8 },
        "proxy_http_call" => Returns::Number { at: 9, bytes: 4 },
        "proxy_define_metric" => Returns::Number { at: 3, bytes: 4 },
        "proxy_get_metric" => Returns::Number { at: 1, bytes: 8 },
        "clock_time_get" => Returns::Number { at: 2, bytes: 8 },
        _ => Returns::Nothing,
    }
}

/// An argument of 32 bits.
fn low(args: &[u64], i: usize) -> u32 {
    u32::try_from(args[i] & u64::from(u32::MAX)).unwrap_or(0)
}

fn proxy(name: &str, guest: &mut Guest<'_>, args: &[u64]) -> Result<u32, Error> {
    let arg = |i| low(args, i);
    match name {
        "proxy_log" => {
            let text = guest.bytes(arg(1), arg(2))?;
            guest.host().logs.push((arg(0), String::from_utf8_lossy(&text).into_owned()));
        }
        "proxy_get_current_time_nanoseconds" => {
            let now = guest.host().unix_ns;
            guest.write(arg(0), &now.to_le_bytes())?;
        }
        "proxy_set_tick_period_milliseconds" => guest.host().tick_period_ms = Some(arg(0)),
        "proxy_get_property" => {
            let path = guest.text(arg(0), arg(1))?;
            let host = guest.host();
            let value = host.ask.properties.get(&path).or_else(|| host.properties.get(&path)).cloned();
            return give_or_not_found(guest, value, arg(2), arg(3));
        }
        "proxy_set_property" => {
            let (path, value) = (guest.text(arg(0), arg(1))?, guest.text(arg(2), arg(3))?);
            guest.host().filter_state.insert(path, value);
        }
        "proxy_define_metric" | "proxy_increment_metric" | "proxy_record_metric" | "proxy_get_metric" => {
            return metric(name, guest, args);
        }
        "proxy_get_shared_data" | "proxy_set_shared_data" => return shared_data(name, guest, args),
        "proxy_get_header_map_value" | "proxy_add_header_map_value" | "proxy_remove_header_map_value" => {
            return header(name, guest, args);
        }
        "proxy_get_header_map_pairs" => {
            let pairs = match arg(0) {
                0 => message::serialized(&guest.host().ask.headers),
                2 => message::serialized(&guest.host().upstream_headers),
                _ => return Ok(BAD_ARGUMENT),
            };
            guest.give(&pairs, arg(1), arg(2))?;
        }
        "proxy_get_buffer_bytes" => return buffer(guest, args),
        "proxy_send_local_response" => return local_response(guest, args),
        "proxy_http_call" => return http_call(guest, args),
        "proxy_continue_stream" => guest.host().resumed += 1,
        "proxy_set_effective_context" if !guest.host().contexts.contains(&arg(0)) => return Ok(BAD_ARGUMENT),
        "proxy_set_effective_context" => {}
        _ => return Ok(UNIMPLEMENTED),
    }
    Ok(OK)
}

fn give_or_not_found(guest: &mut Guest<'_>, value: Option<Vec<u8>>, data: u32, size: u32) -> Result<u32, Error> {
    let Some(value) = value else { return Ok(NOT_FOUND) };
    guest.give(&value, data, size)?;
    Ok(OK)
}

fn metric(name: &str, guest: &mut Guest<'_>, args: &[u64]) -> Result<u32, Error> {
    let arg = |i| low(args, i);
    if name == "proxy_get_metric" {
        let Some((_, value)) = guest.host().metrics.get(arg(0) as usize).cloned() else {
            return Ok(BAD_ARGUMENT);
        };
        guest.write(arg(1), &value.to_le_bytes())?;
        return Ok(OK);
    }
    if name != "proxy_define_metric" {
        let Some((_, value)) = guest.host().metrics.get_mut(arg(0) as usize) else {
            return Ok(BAD_ARGUMENT);
        };
        *value = if name == "proxy_record_metric" { args[1] } else { value.wrapping_add(args[1]) };
        return Ok(OK);
    }
    let metric = guest.text(arg(1), arg(2))?;
    let metrics = &mut guest.host().metrics;
    let id = metrics.iter().position(|(known, _)| *known == metric).unwrap_or_else(|| {
        metrics.push((metric, 0));
        metrics.len() - 1
    });
    guest.write(arg(3), &u32::try_from(id).unwrap_or(u32::MAX).to_le_bytes())?;
    Ok(OK)
}

fn shared_data(name: &str, guest: &mut Guest<'_>, args: &[u64]) -> Result<u32, Error> {
    let arg = |i| low(args, i);
    let key = guest.bytes(arg(0), arg(1))?;
    if name == "proxy_get_shared_data" {
        let Some((value, cas)) = guest.host().shared.get(&key) else { return Ok(NOT_FOUND) };
        guest.give(&value, arg(2), arg(3))?;
        guest.write(arg(4), &cas.to_le_bytes())?;
        return Ok(OK);
    }
    let value = guest.bytes(arg(2), arg(3))?;
    if let Some(comes_between) = guest.host().before_write.take() {
        comes_between();
    }
    Ok(match guest.host().shared.set(key, value, arg(4)) {
        Ok(()) => OK,
        Err(Unwritten::Mismatch) => CAS_MISMATCH,
        Err(Unwritten::Full) => INTERNAL_FAILURE,
    })
}

fn header(name: &str, guest: &mut Guest<'_>, args: &[u64]) -> Result<u32, Error> {
    let arg = |i| low(args, i);
    let header = guest.text(arg(1), arg(2))?;
    let host = guest.host();
    match (name, arg(0)) {
        ("proxy_remove_header_map_value", 2) => {
            host.upstream_headers.retain(|(known, _)| *known != header);
            Ok(OK)
        }
        ("proxy_add_header_map_value", 2) => {
            let value = guest.text(arg(3), arg(4))?;
            guest.host().added_headers.push((header, value));
            Ok(OK)
        }
        ("proxy_get_header_map_value", map @ (0 | 6)) => {
            let answered = || host.call_answer.headers.iter().find(|(known, _)| *known == header);
            let asked = || host.ask.headers.iter().find(|(known, _)| *known == header);
            let value = if map == 0 { asked() } else { answered() }.map(|(_, value)| value.clone());
            give_or_not_found(guest, value, arg(3), arg(4))
        }
        _ => Ok(BAD_ARGUMENT),
    }
}

fn buffer(guest: &mut Guest<'_>, args: &[u64]) -> Result<u32, Error> {
    let arg = |i| low(args, i);
    let bytes = match arg(0) {
        4 => guest.host().call_answer.body.clone(),
        7 => guest.host().configuration.clone(),
        _ => return Ok(BAD_ARGUMENT),
    };
    let part: Vec<u8> = bytes.into_iter().skip(arg(1) as usize).take(arg(2) as usize).collect();
    guest.give(&part, arg(3), arg(4))?;
    Ok(OK)
}

fn local_response(guest: &mut Guest<'_>, args: &[u64]) -> Result<u32, Error> {
    let arg = |i| low(args, i);
    let response = LocalResponse {
        status: arg(0),
        details: guest.text(arg(1), arg(2))?,
        body: guest.text(arg(3), arg(4))?,
        headers: guest.map(arg(5), arg(6))?,
        grpc_status: arg(7).cast_signed(),
    };
    guest.host().responses.push(response);
    Ok(OK)
}

fn http_call(guest: &mut Guest<'_>, args: &[u64]) -> Result<u32, Error> {
    let arg = |i| low(args, i);
    let upstream = guest.text(arg(0), arg(1))?;
    let (headers, body) = (guest.map(arg(2), arg(3))?, guest.bytes(arg(4), arg(5))?);
    guest.map(arg(6), arg(7))?;
    if let Some(why) = message::foreign(&body) {
        panic!("{why}");
    }
    if upstream.is_empty() {
        return Ok(BAD_ARGUMENT);
    }
    let host = guest.host();
    host.last_token += 1;
    let token = host.last_token;
    let (timeout_ms, request) = (arg(8), host.request);
    host.http_calls.push(HttpCall { token, upstream, headers, body, timeout_ms, request });
    guest.write(arg(9), &token.to_le_bytes())?;
    Ok(OK)
}

fn wasi(name: &str, guest: &mut Guest<'_>, args: &[u64]) -> Result<u32, Error> {
    let arg = |i| low(args, i);
    match name {
        "clock_time_get" => {
            let host = guest.host();
            let now = if arg(0) == 0 { host.unix_ns } else { host.monotonic_ns };
            guest.write(arg(2), &now.to_le_bytes())?;
        }
        "random_get" => {
            let bytes: Vec<u8> = (0..arg(1)).map(|_| random_byte(guest.host())).collect();
            guest.write(arg(0), &bytes)?;
        }
        "fd_write" => {
            let mut text = Vec::new();
            for i in 0..arg(2) {
                let (at, size) = (guest.u32(arg(1) + 8 * i)?, guest.u32(arg(1) + 8 * i + 4)?);
                text.extend(guest.bytes(at, size)?);
            }
            let written = u32::try_from(text.len()).unwrap_or(0);
            guest.host().logs.push((5, String::from_utf8_lossy(&text).into_owned()));
            guest.write(arg(3), &written.to_le_bytes())?;
        }
        _ => return Ok(ERRNO_NOSYS),
    }
    Ok(OK)
}

/// The same bytes in every run (Marsaglia's xorshift64).
fn random_byte(host: &mut Host) -> u8 {
    let mut x = host.random_state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    host.random_state = x;
    x.to_le_bytes()[3]
}
