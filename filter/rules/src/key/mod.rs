//! Keys: the parts of a request that a rule counts by, and the value that a request has for them.

pub mod fleet_secret;
mod parse;
#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use self::fleet_secret::{FleetSecret, PartsHash};
use crate::matching::{Holds, Texts, test_of};
use crate::request::address::Prefixes;
use crate::request::{
    AttributeId, Attributes, Fetched, Folding, Repeated, Source, ValueOf, host_of, normalise_credentials,
};
use weir_protocol::messages::KEY_BYTES_MAX;

pub(crate) use self::parse::{key, prefixes};

pub const PARTS_MAX: usize = 8;
/// Value for every host that cannot be determined; no host has this name.
const NO_HOST: &[u8] = b"?";
pub const SEGMENTS_MAX: u8 = 16;

/// A rule's key as written. Each tuple of values has its own bucket; without parts (`all`), there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySpec {
    /// Prefixes that the client's address is cut to, if the address is part of the key.
    address: Option<Prefixes>,
    pub(crate) others: Vec<Part>,
    /// Number of `others` that were written before the address.
    address_at: usize,
    /// Kinds and names of `others`, as bytes that no other list of parts has.
    description: Vec<u8>,
    /// True if the value of the only part in `others` is sent to weir-sync in clear.
    is_clear: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPart<'a> {
    ClientAddress(Prefixes),
    Other(&'a Part),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A header, a cookie, a query parameter, a claim, the method or the route.
    Value(ValueOf),
    /// The host, in lower case and without its port.
    Host,
    /// The path without its query, folded and without dot segments.
    Path,
    /// Up to this number of leading segments of the folded path; empty segments do not count.
    PathSegments(u8),
}

/// Reason why a request has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingPart {
    ClientAddress,
    Other,
    /// The request has several values of a part that may have only one.
    Repeated,
}

/// Treatment of a request that lacks a part of the rule's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// The rule does not count the request.
    #[default]
    Skip,
    /// All such requests share one bucket.
    Share,
    /// The rule limits the request at once.
    Limit,
}

impl KeySpec {
    pub fn prefixes(&self) -> Option<Prefixes> {
        self.address
    }

    pub fn is_address(&self) -> bool {
        self.address.is_some() && self.others.is_empty()
    }

    pub fn is_all(&self) -> bool {
        self.address.is_none() && self.others.is_empty()
    }

    pub fn parts(&self) -> impl Iterator<Item = KeyPart<'_>> {
        let others = || self.others.iter().map(KeyPart::Other);
        let address = self.address.map(KeyPart::ClientAddress);
        others().take(self.address_at).chain(address).chain(others().skip(self.address_at))
    }

    /// True if the key has parts that leave the POP as a hash.
    pub fn is_hashed(&self) -> bool {
        !self.others.is_empty()
    }

    /// Marks the only part beside the client's address to be sent in clear; false if there is no such part.
    pub(crate) fn make_clear(&mut self) -> bool {
        self.is_clear = matches!(self.others.as_slice(), [Part::Value(_) | Part::Host | Part::Path]);
        // A different description keeps keys in clear apart from hashed ones. No part's description has this byte.
        self.description.push(u8::MAX);
        self.is_clear
    }

    pub fn is_clear(&self) -> bool {
        self.is_clear
    }

    pub(crate) fn set_prefixes(&mut self, prefixes: Prefixes) {
        self.address = Some(prefixes);
    }

    /// Begins the hash of the parts with the input that all requests have in common.
    pub fn begin(&self, secret: &FleetSecret) -> PartsHash {
        secret.begin(&self.description)
    }

    pub fn value(&self, request: &mut Fetched<'_>, secret: &FleetSecret) -> Result<KeyValue, MissingPart> {
        self.value_of(request, &self.begin(secret))
    }

    /// Computes the request's key with a hash that was [begun](KeySpec::begin) before.
    pub fn value_of(&self, request: &mut Fetched<'_>, begun: &PartsHash) -> Result<KeyValue, MissingPart> {
        if self.is_all() {
            return Ok(KeyValue::ALL);
        }
        let address = match self.address {
            Some(prefixes) => Some((request.client_address().ok_or(MissingPart::ClientAddress)?, prefixes)),
            None => None,
        };
        if self.others.is_empty() {
            return Ok(KeyValue::of_parts(address, None));
        }
        if self.is_clear
            && let [part] = self.others.as_slice()
        {
            let (mut key, mut fits) = (KeyValue::with_clear(address), true);
            part.put(request, &mut |piece| fits &= piece.value().is_none_or(|value| key.push(value)))?;
            // A value that does not fit is hashed.
            if fits {
                return Ok(key);
            }
        }
        let mut hash = *begun;
        for part in &self.others {
            part.put(request, &mut |piece| match piece {
                Piece::Value(value) => hash.put(value),
                Piece::Count(count) => hash.put_count(count),
            })?;
        }
        Ok(KeyValue::of_parts(address, Some(hash.finish())))
    }

    /// Values of each part but the client's address, one or one per path segment; `None` for a missing or
    /// repeated part.
    pub fn others_in_clear(&self, request: &mut Fetched<'_>) -> Vec<Option<Vec<Vec<u8>>>> {
        let in_clear = |part: &Part| {
            let mut values = Vec::new();
            let put = part.put(request, &mut |piece| values.extend(piece.value().map(<[u8]>::to_vec)));
            put.ok().map(|()| values)
        };
        self.others.iter().map(in_clear).collect()
    }

    /// Converts a value that an operator wrote to the form of requests' values.
    pub(crate) fn as_requests_have(&self, written: &str, attributes: &Attributes) -> String {
        let mut bytes = match self.others.as_slice() {
            [Part::Host] => written.to_ascii_lowercase().into_bytes(),
            [Part::Path | Part::PathSegments(_)] => Folding::ALL.of(written.as_bytes()),
            _ => written.as_bytes().to_vec(),
        };
        if let [Part::Value(ValueOf { source: Source::Attribute(id), .. })] = self.others.as_slice()
            && attributes.is_credentials(*id)
        {
            normalise_credentials(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Searches `values` for the request's value of the one part beside the address; unsure if only some match.
    pub(crate) fn is_among(&self, values: &Texts, request: &mut Fetched<'_>) -> Holds {
        match self.others.as_slice() {
            [Part::Value(value)] => {
                test_of(value, request, &mut |value| Holds::of(value.is_some_and(|value| values.contains(value))))
            }
            [part] => {
                // Leading segments of a path are joined by slashes.
                let mut joined: Vec<u8> = Vec::new();
                let put = part.put(request, &mut |piece| {
                    if !joined.is_empty() {
                        joined.push(b'/');
                    }
                    joined.extend(piece.value().unwrap_or_default());
                });
                Holds::of(put.is_ok() && values.contains(&joined))
            }
            _ => Holds::No,
        }
    }

    /// Bytes that identify the key. A rule whose key changes gets other buckets.
    pub fn identity(&self) -> impl Iterator<Item = u8> + '_ {
        let address = self.address.map_or([0, 0], |prefixes| [prefixes.ipv4, prefixes.ipv6]);
        address.into_iter().chain(self.description.iter().copied())
    }
}

enum Piece<'a> {
    /// The value, or one segment of a path.
    Value(&'a [u8]),
    /// The number of segments, which follow.
    Count(usize),
}

impl<'a> Piece<'a> {
    fn value(self) -> Option<&'a [u8]> {
        if let Self::Value(value) = self { Some(value) } else { None }
    }
}

impl Part {
    /// Passes the request's value to `take`; an error if there is none, or more than the part may have.
    fn put(&self, request: &mut Fetched<'_>, take: &mut dyn FnMut(Piece<'_>)) -> Result<(), MissingPart> {
        match self {
            Self::Value(value) => {
                let is_there = value.put(request, |value| take(Piece::Value(value)));
                is_there.map_err(|Repeated| MissingPart::Repeated)?.then_some(()).ok_or(MissingPart::Other)?;
            }
            Self::Host => {
                let authority = request.get(AttributeId::AUTHORITY).ok_or(MissingPart::Other)?;
                take(Piece::Value(&host_of(authority).unwrap_or(NO_HOST).to_ascii_lowercase()));
            }
            Self::Path => take(Piece::Value(&request.resolved_path().ok_or(MissingPart::Other)?)),
            Self::PathSegments(most) => {
                let path = request.resolved_path().ok_or(MissingPart::Other)?;
                let leading = segments(&path).take(usize::from(*most));
                take(Piece::Count(leading.clone().count()));
                leading.for_each(|segment| take(Piece::Value(segment)));
            }
        }
        Ok(())
    }
}

fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    path.split(|&b| b == b'/').filter(|segment| !segment.is_empty())
}

/// Precedes the hash of all parts but the address.
const HASH_MARK: u8 = 1;
/// Precedes a part in clear.
const CLEAR_MARK: u8 = 7;

/// A key's value in canonical form: the same bytes at every POP for the same client.
///
/// No two combinations of parts have the same bytes. An address is its family (4 or 6), the prefix's length in bits,
/// and the bytes that the prefix covers. All other parts together are a mark (1) and a hash of 16 bytes, keyed by the
/// fleet's secret; with `log_key`, a single other part is a mark (7) and its value. A mark alone stands for requests
/// that lack a part (2), and for all requests (3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyValue {
    bytes: [u8; KEY_BYTES_MAX],
    len: u8,
}

impl KeyValue {
    const EMPTY: Self = Self { bytes: [0; KEY_BYTES_MAX], len: 0 };

    /// The key of all requests that lack a part; no request with every part has it.
    pub const LACKING: Self = Self::of_mark(2);
    /// The key of every request under a rule that counts all requests in one bucket.
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

    /// The key of an address, cut to prefixes, and of the hash of the other parts; either may be absent.
    fn of_parts(address: Option<(IpAddr, Prefixes)>, others: Option<[u8; 16]>) -> Self {
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

    /// Begins a key of an address, if any, cut to prefixes, and of a part in clear, which the caller pushes next.
    fn with_clear(address: Option<(IpAddr, Prefixes)>) -> Self {
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

    /// The key with these canonical bytes; `None` if they are empty, or more than [`KEY_BYTES_MAX`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut key = Self::EMPTY;
        (!bytes.is_empty() && key.push(bytes)).then_some(key)
    }

    fn push(&mut self, part: &[u8]) -> bool {
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
