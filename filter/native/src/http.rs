//! Access to the attributes and headers of Envoy's requests and responses, and calls to weir-sync.

use weir_limiter::engine::{self, CallResult, UpstreamResponse};
use weir_limiter::response::HeaderLine;
use weir_rules::RuleSet;
use weir_rules::after::After;
use weir_rules::request::{Attribute, LINE_BREAK, Request};

use crate::abi::{CALLOUT_ANSWERED, CalloutResponse, EnvoyAttribute, Headers, StreamHandle};

/// Default metadata namespace of Envoy's JWT filter.
const CLAIMS: &str = "envoy.filters.http.jwt_authn";

pub(crate) struct HostRequest {
    pub(crate) stream: StreamHandle,
    /// True if the request is known to end with its headers.
    pub(crate) is_without_body: bool,
}

impl HostRequest {
    /// Applies `take` to the attribute's bytes, without copying them.
    fn read<T>(&mut self, attribute: &Attribute, take: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let stream = self.stream;
        match attribute {
            Attribute::SourceAddress => stream.attribute(EnvoyAttribute::SourceAddress, take),
            Attribute::Method => header(stream, Headers::Request, ":method", take),
            Attribute::Path => header(stream, Headers::Request, ":path", take),
            Attribute::Authority => header(stream, Headers::Request, ":authority", take),
            Attribute::Header(name) => header(stream, Headers::Request, name, take),
            // The name of an unnamed route is empty.
            Attribute::Route => {
                let take = |name: &[u8]| (!name.is_empty()).then(|| take(name));
                stream.attribute(EnvoyAttribute::RouteName, take).flatten()
            }
            Attribute::Claim(path) => match path.as_slice() {
                [name] => stream.metadata(CLAIMS, name).map(|value| take(&value)),
                _ => None,
            },
        }
    }
}

impl Request for HostRequest {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        self.read(attribute, <[u8]>::to_vec)
    }

    fn is_without_body(&self) -> bool {
        self.is_without_body
    }

    fn attribute_into(&mut self, attribute: &Attribute, room: &mut Vec<u8>) -> bool {
        room.clear();
        self.read(attribute, |bytes| room.extend_from_slice(bytes)).is_some()
    }

    fn read_attribute(&mut self, attribute: &Attribute, _room: &mut Vec<u8>, read: &mut dyn FnMut(&[u8])) -> bool {
        self.read(attribute, read).is_some()
    }
}

/// Applies `take` to a header's lines, with [`LINE_BREAK`] between them.
fn header<T>(stream: StreamHandle, map: Headers, name: &str, take: impl FnOnce(&[u8]) -> T) -> Option<T> {
    let mut take = Some(take);
    let (mut all, mut count) = (Vec::new(), 0);
    let first = stream.header(map, name, 0, |value, of| {
        count = of;
        if of == 1 {
            return take.take().map(|take| take(value));
        }
        all.extend_from_slice(value);
        None
    });
    if let Some(value) = first? {
        return Some(value);
    }
    for index in 1..count {
        all.push(LINE_BREAK);
        stream.header(map, name, index, |value, _| all.extend_from_slice(value));
    }
    take.take().map(|take| take(&all))
}

pub(crate) struct HostResponse(pub(crate) StreamHandle);

impl UpstreamResponse for HostResponse {
    fn status(&mut self) -> u16 {
        let read = |text: &[u8], _| str::from_utf8(text).ok()?.parse().ok();
        self.0.header(Headers::Response, ":status", 0, read).flatten().unwrap_or(0)
    }

    fn header(&mut self, name: &str) -> Option<Vec<u8>> {
        header(self.0, Headers::Response, name, <[u8]>::to_vec)
    }

    fn lines(&mut self, names: &[&str]) -> Vec<HeaderLine> {
        let mut lines = Vec::new();
        for (place, name) in names.iter().enumerate() {
            let (mut index, mut count) = (0, 1);
            while index < count {
                let read = |value: &[u8], of| (value.to_vec(), of);
                let Some((value, of)) = self.0.header(Headers::Response, name, index, read) else { break };
                lines.push((place, value));
                (index, count) = (index + 1, of);
            }
        }
        lines
    }

    fn remove(&mut self, name: &str) {
        self.0.remove_header(Headers::Response, name);
    }

    fn add(&mut self, name: &str, value: &str) {
        self.0.add_header(Headers::Response, name, value);
    }

    fn bytes(&mut self) -> u64 {
        self.0.number(EnvoyAttribute::ResponseSize).unwrap_or(0)
    }

    fn metadata(&mut self, path: &[String]) -> Option<Vec<u8>> {
        match path {
            [namespace, key] => self.0.metadata(namespace, key),
            _ => None,
        }
    }
}

/// Errors of rules that a native module cannot apply: Envoy's ABI has no access to values inside structures.
pub(crate) fn refusals(rules: &RuleSet) -> Vec<String> {
    let is_deep = |attribute: &&Attribute| matches!(attribute, Attribute::Claim(path) if path.len() > 1);
    let claims = rules.attributes().iter().filter(is_deep).map(|attribute| {
        let Attribute::Claim(path) = attribute else { return String::new() };
        format!(
            "jwt_claim {path:?}: expected a name alone, because Envoy gives a native module no values inside of \
             others: have the JWT filter put the claim into a header (claim_to_headers), and name that, or use the \
             wasm module"
        )
    });
    let is_deep = |after: &After| matches!(after, After::Metadata { path, .. } if path.len() != 2);
    let costs = rules.rules().iter().filter(|rule| rule.after.as_deref().is_some_and(is_deep)).map(|rule| {
        format!(
            "rules[{}].cost.after.metadata: expected a namespace and a name, because Envoy gives a native module no \
             values inside of others: or use the wasm module",
            rule.place()
        )
    });
    claims.chain(costs).collect()
}

/// The body of a successful response, or the error.
pub(crate) fn read_answer(result: u32, reply: &CalloutResponse) -> CallResult {
    if result != CALLOUT_ANSWERED {
        return Err(engine::no_answer());
    }
    let status = str::from_utf8(reply.header(":status")).ok().and_then(|status| status.parse().ok());
    engine::answered(status.unwrap_or(0), reply.size(), || Ok(reply.body()))
}
