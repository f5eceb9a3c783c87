//! Key values in canonical form.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::request::address::Prefixes;
use weir_protocol::messages::KEY_BYTES_MAX;

/// Precedes the hash of all parts but the address.
const HASH_MARK: u8 = 1;
/// Precedes a part in clear.
const CLEAR_MARK: u8 = 7;

/// A key's value in canonical form: the same bytes at every POP for the same client.
///
/// No two combinations of parts have the same bytes. An address is its family (4 or 6), the prefix's length in bits,
/// and the bytes that the prefix covers. All other parts together are a mark (1) and a hash of 16 bytes, keyed by the
/// fleet's secret; if the rule asks for it, a single other part is a mark (7) and its value. A mark alone stands for
/// requests that lack a part (2), and for all requests (3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyValue {
    bytes: [u8; KEY_BYTES_MAX],
    len: u8,
}

impl KeyValue {
    const EMPTY: Self = Self { bytes: [0; KEY_BYTES_MAX], len: 0 };

    /// The key of all requests that lack a part; no request that has every part gets it.
    pub const LACKING: Self = Self::of_mark(2);
    /// The key of every request under a rule that counts all of them in one bucket.
    pub const ALL: Self = Self::of_mark(3);

    const fn of_mark(mark: u8) -> Self {
        let mut key = Self::EMPTY;
        key.bytes[0] = mark;
        key.len = 1;
        key
    }

    pub fn of_address(address: IpAddr, prefixes: Prefixes) -> Self {
        Self::of_parts(Some((address, prefixes)), None)
    }

    /// The key of an address cut to prefixes and of the hash of the other parts; either may be absent.
    pub(crate) fn of_parts(address: Option<(IpAddr, Prefixes)>, others: Option<[u8; 16]>) -> Self {
        let mut key = Self::EMPTY;
        if let Some((address, prefixes)) = address {
            let (cut, bits) = prefixes.cut(address);
            let mut push = |family: u8, octets: &[u8]| {
                key.push(&[family, bits]);
                key.push(octets.get(..usize::from(bits).div_ceil(8)).unwrap_or(octets));
            };
            match cut {
                IpAddr::V4(v4) => push(4, &v4.octets()),
                IpAddr::V6(v6) => push(6, &v6.octets()),
            }
        }
        if let Some(hash) = others {
            key.push(&[HASH_MARK]);
            key.push(&hash);
        }
        key
    }

    /// Begins a key of an address cut to prefixes, if there is one, and of a part in clear, which is to be pushed next.
    pub(crate) fn with_clear(address: Option<(IpAddr, Prefixes)>) -> Self {
        let mut key = Self::of_parts(address, None);
        key.push(&[CLEAR_MARK]);
        key
    }

    /// The bytes of a key of an address (possibly empty) and a part in clear; `None` beyond [`KEY_BYTES_MAX`].
    pub fn clear(address: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let bytes = [address, &[CLEAR_MARK], value].concat();
        (bytes.len() <= KEY_BYTES_MAX).then_some(bytes)
    }

    /// Splits canonical bytes into the address (possibly empty) and the part in clear; `None` without such a part.
    pub fn clear_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let covered = match bytes {
            [4 | 6, bits, ..] => 2 + usize::from(*bits).div_ceil(8),
            _ => 0,
        };
        let (address, rest) = bytes.split_at_checked(covered)?;
        rest.split_first().filter(|(mark, _)| **mark == CLEAR_MARK).map(|(_, value)| (address, value))
    }

    /// The key with these canonical bytes; `None` if there are none, or more than [`KEY_BYTES_MAX`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut key = Self::EMPTY;
        (!bytes.is_empty() && key.push(bytes)).then_some(key)
    }

    pub(super) fn push(&mut self, part: &[u8]) -> bool {
        let start = usize::from(self.len);
        let Some(room) = self.bytes.get_mut(start..start + part.len()) else { return false };
        room.copy_from_slice(part);
        // KEY_BYTES_MAX fits a byte.
        self.len = self.len.saturating_add(u8::try_from(part.len()).unwrap_or(0));
        true
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }
}
