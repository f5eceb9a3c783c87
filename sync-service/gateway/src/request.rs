//! Requests to be checked: the attributes of a request that another service serves.
//!
//! They may come as a descriptor, and are then copied only when a rule needs them. The key of an entry determines its
//! meaning: the address, method, path or host of a request, or else a header. Anything that a header could not
//! express becomes a claim, because no client can forge a claim: the domain, the keys in their order, and the other
//! descriptors of the request.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_rules::request::{Attribute, LINE_BREAK, Request};

use super::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use super::proto::envoy::service::ratelimit::v3::RateLimitRequest;

/// Request to be decided. It lacks every attribute that is not given.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckRequest {
    /// Address of the client.
    pub address: Option<IpAddr>,
    pub(crate) method: Option<String>,
    pub(crate) host: Option<String>,
    /// Path with its query.
    pub(crate) path: Option<String>,
    /// Header lines, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// Claims by paths of names: those of the request's token, and attributes that no client can forge.
    pub(crate) claims: Vec<(Vec<String>, String)>,
    /// Descriptor that supplies all attributes instead, if the check came as one.
    pub(crate) descriptor: Option<Descriptor>,
    /// Number of requests that the check stands for. With 0, only the quota status is returned.
    pub(crate) hits: u32,
    pub(crate) purpose: CheckPurpose,
    /// Time in seconds within which the actual cost is settled, if the check reserves an estimate.
    pub(crate) reserve_s: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckPurpose {
    Take,
    Peek,
    /// Records what has already happened: consumes the cost, into debt if need be.
    Charge,
    Refund,
}

impl Default for CheckRequest {
    fn default() -> Self {
        Self {
            address: None,
            method: None,
            host: None,
            path: None,
            headers: Vec::new(),
            claims: Vec::new(),
            descriptor: None,
            hits: 1,
            purpose: CheckPurpose::Take,
            reserve_s: None,
        }
    }
}

impl Request for CheckRequest {
    fn times(&self) -> u32 {
        self.hits
    }

    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        let mut room = Vec::new();
        self.attribute_into(attribute, &mut room).then_some(room)
    }

    fn attribute_into(&mut self, attribute: &Attribute, room: &mut Vec<u8>) -> bool {
        room.clear();
        if let Some(descriptor) = &self.descriptor {
            return descriptor.write(attribute, room);
        }
        let text = match attribute {
            // Writing to memory cannot fail.
            Attribute::SourceAddress => {
                return self.address.is_some_and(|address| write!(room, "{address}").is_ok());
            }
            Attribute::Method => self.method.as_ref(),
            Attribute::Path => self.path.as_ref(),
            Attribute::Authority => self.host.as_ref(),
            // Only a proxy has routes.
            Attribute::Route => None,
            Attribute::Header(name) => {
                let lines = self.headers.iter().filter(|(known, _)| known == name);
                return put_lines(lines.map(|(_, value)| value.as_str()), room);
            }
            Attribute::Claim(path) => {
                let claim = self.claims.iter().find(|(known, _)| known == path);
                claim.map(|(_, value)| value)
            }
        };
        text.is_some_and(|text| put(text, room))
    }
}

/// Total time to wait for a store that does not answer. Each call may use at most half of what is left.
#[derive(Debug)]
pub(super) struct Patience(pub(super) Duration);

impl Patience {
    pub(super) fn endless() -> Self {
        Self(Duration::MAX)
    }

    /// Time limit of a call that may take at most `time`.
    pub(super) fn limit(&self, time: Duration) -> Duration {
        time.min(self.0 / 2)
    }

    /// Deducts the time of a call that was not answered.
    pub(super) fn take(&mut self, waited: Duration) {
        self.0 = self.0.saturating_sub(waited);
    }
}

pub(super) const ADDRESS: &str = "remote_address";
const METHOD: &str = "method";
const PATH: &str = "path";
const HOST: &str = "host";
/// First name in the path of each claim that is created here.
const CLAIMS: &str = "ratelimit";

/// One descriptor of a request to Envoy's rate limit service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Descriptor {
    request: Arc<RateLimitRequest>,
    index: usize,
}

impl Descriptor {
    pub(crate) fn new(request: &Arc<RateLimitRequest>, index: usize) -> Self {
        Self { request: Arc::clone(request), index }
    }

    fn entries(&self) -> &[Entry] {
        self.request.descriptors.get(self.index).map_or(&[], |descriptor| &descriptor.entries)
    }

    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        let entry = self.entries().iter().find(|entry| entry.key == key);
        entry.map(|entry| entry.value.as_str())
    }

    pub(crate) fn number(&self, key: &str) -> Option<usize> {
        self.entries().iter().position(|entry| entry.key == key)
    }

    /// Writes an attribute for a rule. Returns false if the descriptor lacks it.
    pub(super) fn write(&self, attribute: &Attribute, room: &mut Vec<u8>) -> bool {
        let key = match attribute {
            Attribute::SourceAddress => ADDRESS,
            Attribute::Method => METHOD,
            Attribute::Path => PATH,
            Attribute::Authority => HOST,
            Attribute::Route => return false,
            Attribute::Header(name) => return self.write_header(name, room),
            Attribute::Claim(path) => return self.write_claim(path, room),
        };
        self.value(key).is_some_and(|value| put(value, room))
    }

    /// Entries with the same name are lines of one header.
    fn write_header(&self, name: &str, room: &mut Vec<u8>) -> bool {
        let is_other = |key: &str| matches!(key, ADDRESS | METHOD | PATH | HOST);
        let is_named = |entry: &&Entry| entry.key.eq_ignore_ascii_case(name) && !is_other(&entry.key);
        put_lines(self.entries().iter().filter(is_named).map(|entry| &*entry.value), room)
    }

    fn write_claim(&self, path: &[String], room: &mut Vec<u8>) -> bool {
        let mut names = path.iter().map(String::as_str);
        if names.next() != Some(CLAIMS) {
            return false;
        }
        match (names.next(), names.next(), names.next()) {
            (Some("domain"), None, None) => put(&self.request.domain, room),
            (Some("entries"), None, None) => put(&self.keys(), room),
            (Some("beside"), None, None) => self.beside().is_some_and(|beside| put(&beside, room)),
            (Some("entry"), Some(key), None) => self.value(key).is_some_and(|value| put(value, room)),
            _ => false,
        }
    }

    fn keys(&self) -> String {
        let mut keys = String::new();
        for (number, entry) in self.entries().iter().enumerate() {
            keys.push_str(if number == 0 { "" } else { "," });
            push_escaped(&mut keys, &entry.key);
        }
        keys
    }

    /// The other descriptors of the request, except those with a limit of their own, which no rule sees.
    fn beside(&self) -> Option<String> {
        let all = self.request.descriptors.iter().enumerate();
        let mut others = all.filter(|(index, other)| *index != self.index && other.limit.is_none()).peekable();
        others.peek()?;
        Some(others.map(|(_, other)| part(other)).collect())
    }
}

/// Text of a descriptor within `ratelimit.beside`: `;key=value,key=value;`.
pub(super) fn part(descriptor: &RateLimitDescriptor) -> String {
    let mut text = String::new();
    for (number, Entry { key, value }) in descriptor.entries.iter().enumerate() {
        text.push(if number == 0 { ';' } else { ',' });
        push_escaped(&mut text, key);
        text.push('=');
        push_escaped(&mut text, value);
    }
    text.push(';');
    text
}

/// Appends `part` with its separators percent-encoded.
pub(super) fn push_escaped(text: &mut String, part: &str) {
    for letter in part.chars() {
        if matches!(letter, '%' | ',' | ';' | '=') {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{:02X}", u32::from(letter));
        } else {
            text.push(letter);
        }
    }
}

/// Appends the lines of a header. Returns false if there are none.
pub(super) fn put_lines<'a>(lines: impl Iterator<Item = &'a str>, room: &mut Vec<u8>) -> bool {
    let mut is_there = false;
    for line in lines {
        if is_there {
            room.push(LINE_BREAK);
        }
        is_there = put(line, room);
    }
    is_there
}

/// Appends the text. Always returns true: the attribute is present.
pub(super) fn put(text: &str, room: &mut Vec<u8>) -> bool {
    room.extend_from_slice(text.as_bytes());
    true
}
