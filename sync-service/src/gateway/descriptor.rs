//! A descriptor as the rules see it. Nothing of it is copied or written before a rule asks for it.
//!
//! An entry's key says what its value is: the address, the method, the path or the host of a request, or else a header. What
//! a header could not say is a claim, as no client can make one up: the domain, the keys in their order, and what stands
//! beside the descriptor.

use std::fmt::Write as _;
use std::sync::Arc;

use weir_rules::request::{Attribute, LINE_BREAK};

use super::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use super::proto::envoy::service::ratelimit::v3::RateLimitRequest;

/// The key of the client's address.
pub(super) const ADDRESS: &str = "remote_address";
/// The keys of other parts of a request that are no headers.
const METHOD: &str = "method";
const PATH: &str = "path";
const HOST: &str = "host";
/// The first name in the path of each claim that is made here.
const CLAIMS: &str = "ratelimit";

/// One descriptor of a request to Envoy's rate limit service.
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor {
    request: Arc<RateLimitRequest>,
    index: usize,
}

impl Descriptor {
    /// That at `index`.
    pub fn new(request: &Arc<RateLimitRequest>, index: usize) -> Self {
        Self { request: Arc::clone(request), index }
    }

    fn entries(&self) -> &[Entry] {
        self.request.descriptors.get(self.index).map_or(&[], |descriptor| &descriptor.entries)
    }

    /// The value of the first entry of this key.
    pub fn value(&self, key: &str) -> Option<&str> {
        let entry = self.entries().iter().find(|entry| entry.key == key);
        entry.map(|entry| entry.value.as_str())
    }

    /// The place of that entry.
    pub fn number(&self, key: &str) -> Option<usize> {
        self.entries().iter().position(|entry| entry.key == key)
    }

    /// Writes what a rule asks for; false if it does not have it.
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

    /// Those of one name are lines of one header.
    fn write_header(&self, name: &str, room: &mut Vec<u8>) -> bool {
        let is_other = |key: &str| matches!(key, ADDRESS | METHOD | PATH | HOST);
        let is_named = |entry: &&Entry| entry.key.eq_ignore_ascii_case(name) && !is_other(&entry.key);
        let mut is_there = false;
        for entry in self.entries().iter().filter(is_named) {
            if is_there {
                room.push(LINE_BREAK);
            }
            is_there = put(&entry.value, room);
        }
        is_there
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

    /// The keys, in their order.
    fn keys(&self) -> String {
        let mut keys = String::new();
        for (number, entry) in self.entries().iter().enumerate() {
            keys.push_str(if number == 0 { "" } else { "," });
            push_escaped(&mut keys, &entry.key);
        }
        keys
    }

    /// What stands beside it, if anything does. A descriptor that brings its own limit is none that a rule is told of.
    fn beside(&self) -> Option<String> {
        let all = self.request.descriptors.iter().enumerate();
        let mut others =
            all.filter(|(index, other)| *index != self.index && other.limit.is_none()).peekable();
        others.peek()?;
        Some(others.map(|(_, other)| part(other)).collect())
    }
}

/// A descriptor as those beside it see it: `;key=value,key=value;`.
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

/// Without the signs that separate, which are written as in a URL.
pub(super) fn push_escaped(text: &mut String, part: &str) {
    for letter in part.chars() {
        if matches!(letter, '%' | ',' | ';' | '=') {
            // Writing to a String does not fail.
            let _ = write!(text, "%{:02X}", u32::from(letter));
        } else {
            text.push(letter);
        }
    }
}

/// It is there.
fn put(text: &str, room: &mut Vec<u8>) -> bool {
    room.extend_from_slice(text.as_bytes());
    true
}
