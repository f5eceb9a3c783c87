//! Access to the attributes and headers of a request and its response.

use weir_limiter::engine::UpstreamResponse;
use weir_limiter::response::HeaderLine;
use weir_rules::claim;
use weir_rules::request::{Attribute, Request};

use crate::header_lines::HeaderLines;
use crate::host::{self, Headers, HostStatus};
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
    host::property(&path).map(claim::as_text)
}

/// The request in the host's current context.
pub(crate) struct HostRequest {
    pub(crate) is_without_body: bool,
    /// The headers, fetched when a rule first needs one. The inner `None` stands for headers that the host
    /// does not return.
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
        let headers = host::headers(Headers::Response).unwrap_or_default();
        let line = |(name, value): (&[u8], &[u8])| {
            let place = names.iter().position(|known| known.as_bytes() == name)?;
            Some((place, value.to_vec()))
        };
        host::pairs(&headers).filter_map(line).collect()
    }

    fn remove(&mut self, name: &str) {
        let _ = host::remove_header(Headers::Response, name);
    }

    fn add(&mut self, name: &str, value: &str) {
        // A header that the host refuses is left out.
        let _ = host::add_header(Headers::Response, name, value);
    }

    fn bytes(&mut self) -> u64 {
        host::property("response\0size").ok().and_then(number).unwrap_or(0)
    }

    fn metadata(&mut self, path: &[String]) -> Option<Vec<u8>> {
        metadata(METADATA, path).ok()
    }
}

/// Status of a response; 0 if the host returns none.
#[inline(never)]
pub(crate) fn status(of: Headers) -> u16 {
    let status = host::header(of, ":status").ok();
    status.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok()).unwrap_or(0)
}

/// Reads a property that is a number.
fn number(bytes: Vec<u8>) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}
