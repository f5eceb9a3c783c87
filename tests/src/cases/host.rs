//! A case's side of the limiter: all that it implements of the limiter's traits.

use weir_limiter::table::slot::Slot;
use weir_limiter::table::{LocalSlots, ReadError, Slots, Version, WriteError};
use weir_rules::matching::REGEX_VALUE_BYTES_MAX;
use weir_rules::request::{Attribute, Request};

/// A POST to `path` from `address`, with an API key, and a header as long as a regular expression is tried on.
pub(super) struct Post<'a> {
    pub(super) address: &'a [u8],
    pub(super) path: &'a [u8],
}

impl<'a> Post<'a> {
    pub(super) fn from(address: &'a [u8]) -> Self {
        Self { address, path: b"/" }
    }
}

impl Post<'_> {
    fn has(&self, attribute: &Attribute) -> Option<&[u8]> {
        match attribute {
            Attribute::SourceAddress => Some(self.address),
            Attribute::Method => Some(b"POST"),
            Attribute::Path => Some(self.path),
            Attribute::Authority => Some(b"api.example.com"),
            Attribute::Header(name) if name == "x-api-key" => Some(b"5f0c6d1e9b3a4e07"),
            Attribute::Header(name) if name == "x-long" => Some(&[b'a'; REGEX_VALUE_BYTES_MAX]),
            _ => None,
        }
    }
}

impl Request for Post<'_> {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        self.has(attribute).map(<[u8]>::to_vec)
    }

    fn attribute_into(&mut self, attribute: &Attribute, room: &mut Vec<u8>) -> bool {
        let Some(bytes) = self.has(attribute) else { return false };
        room.clear();
        room.extend_from_slice(bytes);
        true
    }

    fn read_attribute(&mut self, attribute: &Attribute, _room: &mut Vec<u8>, read: &mut dyn FnMut(&[u8])) -> bool {
        self.has(attribute).map(read).is_some()
    }
}

/// Slots that stay empty: what is written is copied once, and then not kept.
pub(super) struct Forgetful {
    empty: LocalSlots,
    written: Slot,
}

impl Forgetful {
    pub(super) fn new(count: u32) -> Self {
        Self { empty: LocalSlots::new(count), written: Slot::empty() }
    }
}

impl Slots for Forgetful {
    fn read(&mut self, index: u32, into: &mut Slot) -> Result<Version, ReadError> {
        self.empty.read(index, into)
    }

    fn write(&mut self, _: u32, slot: &mut Slot, _: Version) -> Result<(), WriteError> {
        self.written.copy_from(std::hint::black_box(slot));
        Ok(())
    }

    fn count(&self) -> u32 {
        self.empty.count()
    }
}
