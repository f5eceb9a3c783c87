//! Key values in canonical form, and the other destinations of a key's parts: a hash, a list to show, a look-up.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::fleet_secret::PartsHash;
use crate::matching::Texts;
use crate::request::address::Prefixes;
use weir_protocol::messages::KEY_BYTES_MAX;

/// Precedes the hash of all parts but the address.
const HASH_MARK: u8 = 1;
/// The key of requests that lack a part.
const LACKING_MARK: u8 = 2;
/// The key of all requests.
const ALL_MARK: u8 = 3;
/// Precedes a part in clear.
const CLEAR_MARK: u8 = 7;
/// Stored as the length of a key that does not fit.
const NONE: u8 = u8::MAX;

/// A key's value in canonical form: the same bytes at every POP for the same client.
///
/// Each part is self-delimiting, so no two combinations of parts have the same bytes. An address is its
/// family (4 or 6), the prefix's length in bits, and the bytes that the prefix covers. All other parts
/// together are a mark (1) and a hash of 16 bytes, keyed by the fleet's secret; nothing else of them leaves
/// the POP. If the rule asks for it, a single other part is sent in clear instead: a mark (7) and its value.
/// Two more values consist of a mark alone: requests that lack a part (2), and all requests (3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyValue {
    bytes: [u8; KEY_BYTES_MAX],
    len: u8,
}

impl KeyValue {
    const EMPTY: Self = Self { bytes: [0; KEY_BYTES_MAX], len: 0 };

    /// The key of all requests that lack a part; no request that has every part gets it.
    pub const LACKING: Self = Self::of_mark(LACKING_MARK);
    /// The key of every request under a rule that counts all of them in one bucket.
    pub const ALL: Self = Self::of_mark(ALL_MARK);

    const fn of_mark(mark: u8) -> Self {
        let mut key = Self::EMPTY;
        key.bytes[0] = mark;
        key.len = 1;
        key
    }

    /// The key of `address` cut to `prefixes`.
    pub fn of_address(address: IpAddr, prefixes: Prefixes) -> Self {
        Self::of_parts(Some((address, prefixes)), None)
    }

    /// The key of an address cut to prefixes and of the hash of the other parts; either may be absent.
    pub(crate) fn of_parts(address: Option<(IpAddr, Prefixes)>, others: Option<[u8; 16]>) -> Self {
        let mut key = Self::EMPTY;
        if let Some((address, prefixes)) = address {
            key.push_cut(address, prefixes);
        }
        if let Some(hash) = others {
            key.push(&[HASH_MARK]);
            key.push(&hash);
        }
        key
    }

    /// Begins a key of an address cut to prefixes, if there is one, and of a part in clear. The caller puts
    /// the part next.
    pub(crate) fn with_clear(address: Option<(IpAddr, Prefixes)>) -> Self {
        let mut key = Self::of_parts(address, None);
        key.push(&[CLEAR_MARK]);
        key
    }

    /// Returns the key, or `None` if a part did not fit.
    pub(crate) fn whole(self) -> Option<Self> {
        (self.len != NONE).then_some(self)
    }

    /// The canonical bytes of a key of an address (possibly empty) and a part in clear; `None` if they exceed
    /// [`KEY_BYTES_MAX`].
    pub fn clear(address: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let bytes = [address, &[CLEAR_MARK], value].concat();
        (bytes.len() <= KEY_BYTES_MAX).then_some(bytes)
    }

    /// Splits canonical bytes into those of the address (possibly empty) and the value of the part in clear;
    /// `None` if there is no such part.
    pub fn clear_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let covered = match bytes {
            [4 | 6, bits, ..] => 2 + usize::from(*bits).div_ceil(8),
            _ => 0,
        };
        let (address, rest) = bytes.split_at_checked(covered)?;
        rest.split_first().filter(|(mark, _)| **mark == CLEAR_MARK).map(|(_, value)| (address, value))
    }

    fn push_cut(&mut self, address: IpAddr, prefixes: Prefixes) {
        let (cut, bits) = prefixes.cut(address);
        let covered = usize::from(bits).div_ceil(8);
        match cut {
            IpAddr::V4(v4) => self.push_address(4, bits, &v4.octets(), covered),
            IpAddr::V6(v6) => self.push_address(6, bits, &v6.octets(), covered),
        }
    }

    /// The key with these canonical bytes; `None` if there are none, or more than [`KEY_BYTES_MAX`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut key = Self::EMPTY;
        key.push(bytes);
        (!bytes.is_empty() && key.as_bytes() == bytes).then_some(key)
    }

    fn push_address(&mut self, family: u8, bits: u8, octets: &[u8], covered: usize) {
        self.push(&[family, bits]);
        self.push(octets.get(..covered).unwrap_or(octets));
    }

    fn push(&mut self, part: &[u8]) {
        let start = usize::from(self.len);
        if let Some(room) = self.bytes.get_mut(start..start + part.len()) {
            room.copy_from_slice(part);
            // `bytes` has KEY_BYTES_MAX bytes, so the length fits a byte.
            self.len = self.len.saturating_add(u8::try_from(part.len()).unwrap_or(0));
        }
    }

    /// The canonical bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

impl PartSink for KeyValue {
    fn put(&mut self, value: &[u8]) {
        let end = usize::from(self.len) + value.len();
        self.push(value);
        if usize::from(self.len) != end {
            self.len = NONE;
        }
    }

    fn put_count(&mut self, _: usize) {}
}

const _: () = assert!(KEY_BYTES_MAX < NONE as usize);

/// Receives the values that a request has for the parts of a key.
pub(super) trait PartSink {
    fn put(&mut self, value: &[u8]);
    /// Announces the number of values that follow for one part.
    fn put_count(&mut self, count: usize);
}

impl PartSink for PartsHash {
    fn put(&mut self, value: &[u8]) {
        self.put(value);
    }

    fn put_count(&mut self, count: usize) {
        self.put_count(count);
    }
}

impl PartSink for Vec<Vec<u8>> {
    fn put(&mut self, value: &[u8]) {
        self.push(value.to_vec());
    }

    fn put_count(&mut self, _: usize) {}
}

/// Looks up the value that is put. Leading segments of a path are joined by `/` first.
pub(super) struct Among<'a> {
    texts: &'a Texts,
    is_found: bool,
    segments: Option<Vec<u8>>,
}

impl<'a> Among<'a> {
    pub(super) fn new(texts: &'a Texts) -> Self {
        Self { texts, is_found: false, segments: None }
    }

    pub(super) fn is_found(&self) -> bool {
        self.segments.as_ref().map_or(self.is_found, |segments| self.texts.contains(segments))
    }
}

impl PartSink for Among<'_> {
    fn put(&mut self, value: &[u8]) {
        let Some(segments) = &mut self.segments else {
            self.is_found = self.texts.contains(value);
            return;
        };
        if !segments.is_empty() {
            segments.push(b'/');
        }
        segments.extend_from_slice(value);
    }

    fn put_count(&mut self, _: usize) {
        self.segments = Some(Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(address: &str, ipv4: u8, ipv6: u8) -> KeyValue {
        KeyValue::of_address(address.parse().unwrap(), Prefixes { ipv4, ipv6 })
    }

    #[test]
    fn one_prefix_is_one_key() {
        assert_eq!(key("2001:db8::1", 32, 64), key("2001:db8::2", 32, 64));
        assert_ne!(key("2001:db8::1", 32, 128), key("2001:db8::2", 32, 128));
        assert_eq!(key("10.0.0.1", 24, 64), key("10.0.0.2", 24, 64));
    }

    #[test]
    fn prefixes_of_different_length_are_different_keys() {
        assert_ne!(key("10.0.0.0", 24, 64), key("10.0.0.0", 23, 64));
        assert_ne!(key("10.0.0.0", 24, 64).as_bytes(), key("10.0.0.0", 32, 64).as_bytes());
    }

    #[test]
    fn canonical_bytes_are_what_they_were() {
        assert_eq!(key("192.0.2.7", 32, 64).as_bytes(), [4, 32, 192, 0, 2, 7]);
        assert_eq!(key("192.0.2.7", 20, 64).as_bytes(), [4, 20, 192, 0, 0]);
        assert_eq!(key("2001:db8:1:2::9", 32, 64).as_bytes(), [6, 64, 0x20, 1, 0x0d, 0xb8, 0, 1, 0, 2]);
    }
}
