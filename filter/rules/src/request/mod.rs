//! Attributes of a request, fetched once, in the forms that rules compare.

pub mod address;
mod encodings;
mod fetched;
mod folding;
mod host;
mod value;

use alloc::string::String;
use alloc::vec::Vec;

pub(crate) use encodings::{Lines, OneOf, normalise_credentials};
pub use encodings::{QUERY_BYTES_MAX, claim_as_text};
pub use fetched::{Fetched, SEARCH_WORK_MAX, Values};
pub use folding::Folding;
pub use host::HOST_BYTES_MAX;
pub(crate) use host::{HostRead, host_of, is_of_name};
pub use value::{CLAIM_NAMES_MAX, Duplicates, NAME_BYTES_MAX, Source, ValueOf};
pub(crate) use value::{Repeated, ValueKind, duplicates, header, names, source};

pub const ATTRIBUTES_MAX: usize = 1_000;
/// Separates the lines of a header. It does not occur within a line (RFC 9110, 5.5).
pub const LINE_BREAK: u8 = b'\n';

/// An attribute of a request that a rule may match or count by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// The client's address as the host reports it, with the host's own trust in X-Forwarded-For applied.
    SourceAddress,
    Method,
    /// The path with its query.
    Path,
    /// The authority (`:authority`, `Host`).
    Authority,
    Route,
    /// A header; the name is in lower case.
    Header(String),
    /// The value at this path of names in the claims that the host holds for the request's token (JWT).
    Claim(Vec<String>),
}

/// A request. Each attribute is fetched at most once per decision, and only if a rule needs it.
pub trait Request {
    /// Bytes of the attribute, if the host has any. Lines of a header are separated by [`LINE_BREAK`].
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>>;

    fn first_line(&mut self, header: &Attribute) -> Option<Vec<u8>> {
        self.attribute(header)
    }

    /// Number of requests that this one stands for. Each rule charges its cost this number of times.
    fn times(&self) -> u32 {
        1
    }

    fn is_without_body(&self) -> bool {
        false
    }

    /// Writes the attribute's bytes to `room`, without allocating if they are in memory; false if the host has none.
    fn attribute_into(&mut self, attribute: &Attribute, room: &mut Vec<u8>) -> bool {
        let bytes = self.attribute(attribute);
        let is_there = bytes.is_some();
        *room = bytes.unwrap_or_default();
        is_there
    }

    /// Passes the attribute's bytes to `read`, directly if in memory, else through `room`; false if there are none.
    fn read_attribute(&mut self, attribute: &Attribute, room: &mut Vec<u8>, read: &mut dyn FnMut(&[u8])) -> bool {
        let is_there = self.attribute_into(attribute, room);
        if is_there {
            read(room);
        }
        is_there
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeId(u16);

impl AttributeId {
    pub const SOURCE_ADDRESS: Self = Self(0);
    pub const METHOD: Self = Self(1);
    pub const PATH: Self = Self(2);
    pub const AUTHORITY: Self = Self(3);
    pub const ROUTE: Self = Self(4);

    fn place(self) -> usize {
        usize::from(self.0)
    }
}

/// The attributes that a rule set reads, numbered, so that each is fetched and kept once.
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
    /// The id of `attribute`, added if it is new; `None` beyond [`ATTRIBUTES_MAX`].
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

    /// True if the attribute contains credentials (RFC 9110, 11.4).
    pub fn is_credentials(&self, id: AttributeId) -> bool {
        matches!(self.header(id), Some("authorization" | "proxy-authorization"))
    }

    /// True for a header with a single value, not a list, whose lines Envoy joins by commas.
    pub(crate) fn is_singular(&self, id: AttributeId) -> bool {
        let of_one_value = ["authorization", "content-type", "origin", "referer", "user-agent"];
        self.header(id).is_some_and(|name| of_one_value.contains(&name))
    }

    fn header(&self, id: AttributeId) -> Option<&str> {
        let Some(Attribute::Header(name)) = self.get(id) else { return None };
        Some(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Attribute> {
        self.list.iter()
    }

    pub fn get(&self, id: AttributeId) -> Option<&Attribute> {
        self.list.get(id.place())
    }
}
