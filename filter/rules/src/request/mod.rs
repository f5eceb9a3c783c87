//! A request's attributes, fetched once; its address, host and path in the forms that rules compare; and its
//! named values.

pub mod address;
mod attribute;
mod encodings;
mod fetched;
mod folding;
mod host;
mod value;

pub use attribute::{ATTRIBUTES_MAX, Attribute, AttributeId, Attributes, LINE_BREAK, Request};
pub(crate) use encodings::{Lines, OneOf, normalise_credentials};
pub use encodings::{QUERY_BYTES_MAX, claim_as_text};
pub(crate) use fetched::SearchWork;
pub use fetched::{Fetched, SEARCH_WORK_MAX, Values};
pub use folding::Folding;
pub use host::HOST_BYTES_MAX;
pub(crate) use host::{HostRead, host_of, is_of_name};
pub use value::{CLAIM_NAMES_MAX, Duplicates, NAME_BYTES_MAX, Source, ValueOf};
pub(crate) use value::{Repeated, ValueKind, duplicates, header, names, source};
