//! Attributes of a descriptor. They are copied only when a rule needs them.
//!
//! The key of an entry determines its meaning: the address, method, path or host of a request, or else a
//! header. Anything that a header could not express becomes a claim, because no client can forge a claim: the
//! domain, the keys in their order, and the other descriptors of the request.

use std::fmt::Write as _;
use std::sync::Arc;

use weir_rules::request::{Attribute, LINE_BREAK};

use super::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use super::proto::envoy::service::ratelimit::v3::RateLimitRequest;

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

    /// The other descriptors of the request, but for those with a limit of their own, which no rule sees.
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
