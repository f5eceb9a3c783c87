//! Access to the attributes and headers of a request and its response, and calls to weir-sync.

use std::cell::RefCell;

use weir_limiter::engine::{self, CallResult, Caller, SyncCall, Unread, UpstreamResponse};
use weir_limiter::response::HeaderLine;
use weir_rules::claim_as_text;
use weir_rules::request::{Attribute, LINE_BREAK, Request};

use crate::host::{self, Headers, HostBuffer, HostStatus};
use crate::memory;

/// Default metadata namespace of Envoy's JWT filter.
const CLAIMS: &str = "metadata\0filter_metadata\0envoy.filters.http.jwt_authn";
/// Path of the dynamic metadata of all filters.
const METADATA: &str = "metadata\0filter_metadata";

/// Reads a metadata value as text: under `place`, at the path of these names.
fn metadata(place: &str, names: &[String]) -> Result<Vec<u8>, HostStatus> {
    let mut path = String::from(place);
    for name in names {
        path.push('\0');
        path.push_str(name);
    }
    host::property(&path).map(claim_as_text)
}

/// The request in the host's current context.
pub(crate) struct HostRequest {
    pub(crate) is_without_body: bool,
    /// Headers, fetched when a rule first needs one; `Some(None)` if the host does not return them.
    #[allow(clippy::option_option, reason = "not asked for yet, and not given, are two things")]
    lines: Option<Option<HeaderLines>>,
}

impl HostRequest {
    pub(crate) fn new(is_without_body: bool) -> Self {
        Self { is_without_body, lines: None }
    }

    fn lines(&mut self) -> Option<&HeaderLines> {
        self.lines.get_or_insert_with(|| HeaderLines::of(Headers::Request)).as_ref()
    }
}

impl Request for HostRequest {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        let value = match attribute {
            Attribute::SourceAddress => host::property("source\0address"),
            Attribute::Method => host::header(Headers::Request, ":method"),
            Attribute::Path => host::header(Headers::Request, ":path"),
            Attribute::Authority => host::header(Headers::Request, ":authority"),
            Attribute::Header(name) => match self.lines() {
                Some(lines) => {
                    let mut value = Vec::new();
                    return lines.write(name, &mut value).then_some(value);
                }
                None => host::header(Headers::Request, name),
            },
            Attribute::Route => host::property("xds\0route_name").or_else(|_| host::property("route_name")),
            Attribute::Claim(path) => metadata(CLAIMS, path),
        };
        // The name of an unnamed route is empty.
        value.ok().filter(|value| !value.is_empty() || *attribute != Attribute::Route)
    }

    fn first_line(&mut self, header: &Attribute) -> Option<Vec<u8>> {
        let Attribute::Header(name) = header else { return None };
        host::header(Headers::Request, name).ok()
    }

    fn is_without_body(&self) -> bool {
        self.is_without_body
    }

    fn attribute_into(&mut self, attribute: &Attribute, room: &mut Vec<u8>) -> bool {
        if let Attribute::Header(name) = attribute
            && let Some(lines) = self.lines()
        {
            return lines.write(name, room);
        }
        memory::reuse(std::mem::take(room));
        let value = self.attribute(attribute);
        let is_there = value.is_some();
        *room = value.unwrap_or_default();
        is_there
    }
}

/// The response in the host's current context.
pub(crate) struct HostResponse;

impl UpstreamResponse for HostResponse {
    fn status(&mut self) -> u16 {
        status(Headers::Response)
    }

    fn header(&mut self, name: &str) -> Option<Vec<u8>> {
        let Some(lines) = HeaderLines::of(Headers::Response) else {
            return host::header(Headers::Response, name).ok();
        };
        let mut value = Vec::new();
        lines.write(name, &mut value).then_some(value)
    }

    fn lines(&mut self, names: &[&str]) -> Vec<HeaderLine> {
        let Some(lines) = HeaderLines::of(Headers::Response) else { return Vec::new() };
        let line = |(name, value): (&[u8], &[u8])| {
            let place = names.iter().position(|known| known.as_bytes() == name)?;
            Some((place, value.to_vec()))
        };
        lines.iter().filter_map(line).collect()
    }

    fn remove(&mut self, name: &str) {
        let _ = host::remove_header(Headers::Response, name);
    }

    fn add(&mut self, name: &str, value: &str) {
        // Headers that the host refuses are left out.
        let _ = host::add_header(Headers::Response, name, value);
    }

    fn bytes(&mut self) -> u64 {
        let size = host::property("response\0size").ok().and_then(|bytes| bytes.try_into().ok());
        size.map_or(0, u64::from_le_bytes)
    }

    fn metadata(&mut self, path: &[String]) -> Option<Vec<u8>> {
        metadata(METADATA, path).ok()
    }
}

/// Status of a response; 0 if the host returns none.
#[inline(never)]
fn status(of: Headers) -> u16 {
    let status = host::header(of, ":status").ok();
    status.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok()).unwrap_or(0)
}

/// All header lines of a request or response, in the host's format: count, sizes, then names and values, each
/// terminated by NUL. When asked by name, a host returns only the first line of a header.
struct HeaderLines(Vec<u8>);

impl HeaderLines {
    /// Fetches the header lines; `None` if the host returns none, or malformed ones.
    fn of(map: Headers) -> Option<Self> {
        let lines = Self(host::headers(map).ok()?);
        lines.are_whole().then_some(lines)
    }

    /// Writes the lines of the header to `room`, with [`LINE_BREAK`] between them; false if there are none.
    fn write(&self, name: &str, room: &mut Vec<u8>) -> bool {
        room.clear();
        let mut is_first = true;
        for (_, value) in self.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes())) {
            if !std::mem::take(&mut is_first) {
                room.push(LINE_BREAK);
            }
            room.extend_from_slice(value);
        }
        !is_first
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let sizes = self.sizes().unwrap_or_default();
        let mut rest = self.0.get(4 + sizes.len()..).unwrap_or_default();
        pairs_of(sizes).map_while(move |(name_size, size)| {
            let (pair, behind) = rest.split_at_checked(size)?;
            rest = behind;
            Some((pair.get(..name_size)?, pair.get(name_size + 1..pair.len() - 1)?))
        })
    }

    /// The sizes of each name and its value; `None` if incomplete.
    fn sizes(&self) -> Option<&[u8]> {
        let (count, rest) = self.0.split_first_chunk()?;
        rest.get(..(u32::from_le_bytes(*count) as usize).checked_mul(8)?)
    }

    /// True if the sizes add up to the length of the bytes.
    fn are_whole(&self) -> bool {
        self.sizes().is_some_and(|sizes| {
            let all = pairs_of(sizes).map(|(_, size)| size);
            all.fold(4 + sizes.len(), usize::saturating_add) == self.0.len()
        })
    }
}

impl Drop for HeaderLines {
    fn drop(&mut self) {
        memory::reuse(std::mem::take(&mut self.0));
    }
}

/// The size of each name, and the total size of its pair.
fn pairs_of(sizes: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let size = |bytes: [u8; 4]| u32::from_le_bytes(bytes) as usize;
    sizes.chunks_exact(8).filter_map(move |pair| {
        let (name, value) = pair.split_first_chunk()?;
        let (name, value) = (size(*name), size(*value.first_chunk()?));
        Some((name, name.saturating_add(value).saturating_add(2)))
    })
}

/// Maximum number of pending calls of one VM; beyond it, the oldest is forgotten.
const CALLS_MAX: usize = 4_096;

thread_local! {
    /// Pending calls, oldest first: the host's id, the calling context, and its engine's number.
    static UNDER_WAY: RefCell<Vec<(u32, u32, u64)>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn make_call(caller: &Caller, call: &SyncCall, context: u32) -> Result<(), String> {
    let cluster = caller.cluster.as_str();
    let token = host::http_call(cluster, &caller.headers(call), &call.body, call.timeout_ms)
        .map_err(|status| format!("the host made no call to cluster {cluster:?}: status {}", status.0))?;
    UNDER_WAY.with_borrow_mut(|calls| {
        // Bounded, in case a host never ends its calls.
        if calls.len() >= CALLS_MAX {
            calls.remove(0);
        }
        calls.push((token, context, call.number));
    });
    Ok(())
}

/// Handles the end of the call `token`. Returns the context that made it, and its engine's number of the call.
pub(crate) fn end_call(token: u32) -> Option<(u32, u64)> {
    UNDER_WAY.with_borrow_mut(|calls| {
        let at = calls.iter().position(|(known, ..)| *known == token)?;
        let (_, context, number) = calls.remove(at);
        Some((context, number))
    })
}

/// Forgets the calls of `context`, whose responses are no longer needed.
pub(crate) fn forget_calls(context: u32) {
    UNDER_WAY.with_borrow_mut(|calls| calls.retain(|(_, caller, _)| *caller != context));
}

/// The body of a successful response, or the error. Call this only in the callback for the response.
pub(crate) fn read_answer(headers: usize, body_size: usize) -> CallResult {
    if headers == 0 {
        return Err(engine::no_answer());
    }
    engine::answered(status(Headers::CallResponse), body_size, || {
        host::buffer(HostBuffer::CallResponseBody, body_size)
            .map_err(|status| Unread::Failed(format!("the host kept weir-sync's answer: status {}", status.0)))
    })
}
