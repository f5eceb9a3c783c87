//! What the decision may ask about a request.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::address;
use crate::matching::{Folding, HostRead, PathRead};

/// The most attributes that one rule set may ask for.
pub const ATTRIBUTES_MAX: usize = 1_000;

/// Something about a request that a rule may match or count by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// The client's address as the host reports it, after the host's own X-Forwarded-For trust.
    SourceAddress,
    /// The method.
    Method,
    /// The path with its query.
    Path,
    /// The authority (`:authority`, `Host`).
    Authority,
    /// The name of the host's route.
    Route,
    /// The header of this name, in lower case.
    Header(String),
    /// What the host knows of the request's token (JWT) under this path of names.
    Claim(Vec<String>),
}

/// A request. Every attribute costs a call into the host, so each is asked for at most once per
/// decision, and only where a rule needs it.
pub trait Request {
    /// The attribute's bytes; `None` where the host has none.
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>>;

    /// Writes the attribute's bytes to `room`; false if the host has none. A request that has the bytes in memory
    /// can do this without allocating.
    fn attribute_into(&mut self, attribute: &Attribute, room: &mut Vec<u8>) -> bool {
        let bytes = self.attribute(attribute);
        let is_there = bytes.is_some();
        *room = bytes.unwrap_or_default();
        is_there
    }
}

/// Names one of [`Attributes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeId(u16);

impl AttributeId {
    /// [`Attribute::SourceAddress`].
    pub const SOURCE_ADDRESS: Self = Self(0);
    /// [`Attribute::Method`].
    pub const METHOD: Self = Self(1);
    /// [`Attribute::Path`].
    pub const PATH: Self = Self(2);
    /// [`Attribute::Authority`].
    pub const AUTHORITY: Self = Self(3);
    /// [`Attribute::Route`].
    pub const ROUTE: Self = Self(4);
}

/// The attributes that a rule set asks for, numbered, so that each is fetched and kept once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    list: Vec<Attribute>,
}

impl Default for Attributes {
    fn default() -> Self {
        use Attribute::{Authority, Method, Path, Route, SourceAddress};
        Self { list: alloc::vec![SourceAddress, Method, Path, Authority, Route] }
    }
}

impl Attributes {
    /// The number of `attribute`, which may be new; `None` if [`ATTRIBUTES_MAX`] others are known.
    pub fn intern(&mut self, attribute: Attribute) -> Option<AttributeId> {
        let known = self.list.iter().position(|known| *known == attribute);
        if known.is_none() {
            if self.list.len() >= ATTRIBUTES_MAX {
                return None;
            }
            self.list.push(attribute);
        }
        u16::try_from(known.unwrap_or(self.list.len() - 1)).ok().map(AttributeId)
    }

    /// Whether the attribute is credentials (RFC 9110, 11.4).
    pub fn is_credentials(&self, id: AttributeId) -> bool {
        let name = self.get(id).and_then(|attribute| match attribute {
            Attribute::Header(name) => Some(name.as_str()),
            _ => None,
        });
        matches!(name, Some("authorization" | "proxy-authorization"))
    }

    /// The attribute of this number.
    pub fn get(&self, id: AttributeId) -> Option<&Attribute> {
        self.list.get(usize::from(id.0))
    }
}

/// What was fetched of one request; its memory is used again for the next.
#[derive(Debug, Default)]
pub struct Values {
    /// Counts the requests.
    request: u64,
    list: Vec<Value>,
    /// The address, and the request that it was read for.
    client_address: (u64, Option<IpAddr>),
    /// The text of the address that was read last, and the address: the next request is often from the same
    /// connection.
    last_read: (Vec<u8>, Option<IpAddr>),
    /// The path, and the request that it was read for.
    path: (u64, PathRead),
    /// The path in each way of folding it, unless it came folded.
    folded: [Folded; Folding::COUNT],
    /// The host, and the request that it was read for.
    host: (u64, HostRead),
}

/// A folded path.
#[derive(Clone, Debug, Default)]
struct Folded {
    /// The request that it was folded for.
    request: u64,
    bytes: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Value {
    /// The request that it was last fetched for.
    request: u64,
    is_there: bool,
    bytes: Vec<u8>,
}

/// A request whose attributes are fetched once.
pub struct Fetched<'a> {
    request: &'a mut dyn Request,
    attributes: &'a Attributes,
    values: &'a mut Values,
}

impl<'a> Fetched<'a> {
    /// `request`, with nothing fetched yet.
    pub fn new(request: &'a mut dyn Request, attributes: &'a Attributes, values: &'a mut Values) -> Self {
        // Requests count from 1, so a value that was never fetched is of no request.
        values.request += 1;
        if values.list.len() != attributes.list.len() {
            values.list.resize_with(attributes.list.len(), Value::default);
        }
        Self { request, attributes, values }
    }

    /// The attribute's bytes, fetched on the first call.
    #[inline]
    pub fn get(&mut self, id: AttributeId) -> Option<&[u8]> {
        let place = usize::from(id.0);
        if self.values.list.get(place)?.request != self.values.request {
            self.fetch(id)?;
        }
        self.values.list.get(place).filter(|value| value.is_there).map(|value| value.bytes.as_slice())
    }

    #[inline(never)]
    fn fetch(&mut self, id: AttributeId) -> Option<()> {
        let Self { request, attributes, values, .. } = self;
        let value = values.list.get_mut(usize::from(id.0))?;
        value.is_there = request.attribute_into(attributes.get(id)?, &mut value.bytes);
        value.request = values.request;
        if attributes.is_credentials(id) {
            normalise_credentials(&mut value.bytes);
        }
        Some(())
    }

    /// The path without its query, folded; `None` if the host has none. It is read on the first call; one that came
    /// folded is not copied.
    pub fn path(&mut self, folding: Folding) -> Option<&[u8]> {
        self.get(AttributeId::PATH)?;
        let Values { request, list, path: (read_for, read), folded, .. } = &mut *self.values;
        let target = &list.get(usize::from(AttributeId::PATH.0))?.bytes;
        if *read_for != *request {
            (*read_for, *read) = (*request, PathRead::of(target));
        }
        let path = target.get(..read.len)?;
        if read.is_folded || folding == Folding::NONE {
            return Some(path);
        }
        let folded = folded.get_mut(folding.number())?;
        if folded.request != *request {
            folding.fold(path, &mut folded.bytes);
            folded.request = *request;
        }
        Some(&folded.bytes)
    }

    /// The host without its port, in lower case and backwards, read on the first call; `None` if there is none.
    pub(crate) fn host_backwards(&mut self) -> Option<&[u8]> {
        self.get(AttributeId::AUTHORITY)?;
        let Values { request, list, host: (read_for, read), .. } = &mut *self.values;
        if *read_for != *request {
            read.read(&list.get(usize::from(AttributeId::AUTHORITY.0))?.bytes);
            *read_for = *request;
        }
        Some(read.backwards())
    }

    /// The client's address, read on the first call; `None` if there is none that can be read.
    pub fn client_address(&mut self) -> Option<IpAddr> {
        if self.values.client_address.0 != self.values.request {
            let is_there = self.get(AttributeId::SOURCE_ADDRESS).is_some();
            let Values { list, last_read: (last, read), .. } = &mut *self.values;
            if let Some(text) = list.first().filter(|_| is_there).map(|value| &value.bytes)
                && text != last
            {
                *read = address::parse(text);
                last.clone_from(text);
            }
            let address = read.filter(|_| is_there);
            self.values.client_address = (self.values.request, address);
        }
        self.values.client_address.1
    }
}

/// Brings credentials into one of their many equal forms: the scheme in lower case, one blank behind it, and no blanks
/// around (RFC 9110, 11.1 and 11.4). What has no scheme only loses the blanks around it.
#[inline(never)]
pub(crate) fn normalise_credentials(value: &mut Vec<u8>) {
    let is_blank = |b: &u8| matches!(b, b' ' | b'\t');
    let has_scheme = value.trim_ascii().iter().any(is_blank);
    value.truncate(value.trim_ascii_end().len());
    let (mut is_in_scheme, mut after_blank) = (has_scheme, true);
    value.retain_mut(|byte| {
        let is_kept = !(after_blank && is_blank(byte));
        // Blanks after the first byte of the rest belong to it.
        after_blank &= !is_kept;
        if is_in_scheme && is_kept {
            is_in_scheme = !is_blank(byte);
            after_blank = !is_in_scheme;
            *byte = if is_in_scheme { byte.to_ascii_lowercase() } else { b' ' };
        }
        is_kept
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_have_one_form() {
        for (value, expected) in [
            ("Bearer aB", "bearer aB"),
            ("  BEARER \t aB c ", "bearer aB c"),
            ("bearer\taB", "bearer aB"),
            ("aB", "aB"),
            (" aB\t", "aB"),
            ("", ""),
            ("  ", ""),
        ] {
            let mut bytes = value.as_bytes().to_vec();
            normalise_credentials(&mut bytes);
            assert_eq!(bytes, expected.as_bytes(), "{value:?}");
        }
    }

    /// Answers every attribute but a header, and counts how often it is asked.
    struct Counting(u32);

    impl Request for Counting {
        fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
            self.0 += 1;
            (!matches!(attribute, Attribute::Header(_))).then(|| b"x".to_vec())
        }
    }

    #[test]
    fn an_attribute_is_asked_for_once_whether_it_is_there_or_not() {
        let (mut attributes, mut values) = (Attributes::default(), Values::default());
        let header = attributes.intern(Attribute::Header("a".into())).unwrap();
        assert_eq!(attributes.intern(Attribute::Header("a".into())), Some(header));
        for _ in 0..2 {
            let mut request = Counting(0);
            let mut fetched = Fetched::new(&mut request, &attributes, &mut values);
            for _ in 0..3 {
                assert_eq!(fetched.get(AttributeId::PATH), Some(&b"x"[..]));
                assert_eq!(fetched.get(header), None);
            }
            assert_eq!(request.0, 2);
        }
    }

    /// Moves to another address whenever it is asked.
    struct Moving(u8);

    impl Request for Moving {
        fn attribute(&mut self, _: &Attribute) -> Option<Vec<u8>> {
            self.0 += 1;
            (self.0 > 1).then(|| std::format!("192.0.2.{}:80", self.0).into_bytes())
        }
    }

    #[test]
    fn the_client_address_is_read_once_per_request() {
        let (attributes, mut values) = (Attributes::default(), Values::default());
        let mut request = Moving(0);
        for expected in [None, Some("192.0.2.2".parse().unwrap()), Some("192.0.2.3".parse().unwrap())] {
            let mut fetched = Fetched::new(&mut request, &attributes, &mut values);
            assert_eq!([fetched.client_address(), fetched.client_address()], [expected; 2]);
        }
    }

    #[test]
    fn there_are_only_so_many_attributes() {
        let mut attributes = Attributes::default();
        let header = |n: usize| Attribute::Header(std::format!("h{n}"));
        assert!((5..ATTRIBUTES_MAX).all(|n| attributes.intern(header(n)).is_some()));
        assert_eq!(attributes.intern(header(ATTRIBUTES_MAX)), None);
        assert!(attributes.intern(header(5)).is_some());
    }

    #[test]
    fn the_numbers_of_the_plain_attributes_are_fixed() {
        let mut attributes = Attributes::default();
        for (attribute, id) in [
            (Attribute::SourceAddress, AttributeId::SOURCE_ADDRESS),
            (Attribute::Method, AttributeId::METHOD),
            (Attribute::Path, AttributeId::PATH),
            (Attribute::Authority, AttributeId::AUTHORITY),
            (Attribute::Route, AttributeId::ROUTE),
        ] {
            assert_eq!(attributes.intern(attribute), Some(id));
        }
    }
}
