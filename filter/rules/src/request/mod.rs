//! A request's attributes, fetched once; its address, host and path in the forms that rules compare; and its
//! named values.

pub mod address;
mod attribute;
pub mod claim;
mod encodings;
mod fetched;
mod folding;
mod host;
mod lines;
mod value;

pub use attribute::{ATTRIBUTES_MAX, Attribute, AttributeId, Attributes, LINE_BREAK, Request};
pub use encodings::QUERY_BYTES_MAX;
pub(crate) use encodings::{OneOf, normalise_credentials};
pub(crate) use fetched::SearchWork;
pub use fetched::{Fetched, SEARCH_WORK_MAX, Values};
pub use folding::Folding;
pub use host::HOST_BYTES_MAX;
pub(crate) use host::{HostRead, host_of, is_of_name};
pub(crate) use lines::Lines;
pub use value::{CLAIM_NAMES_MAX, Duplicates, NAME_BYTES_MAX, Source, ValueOf};
pub(crate) use value::{Repeated, ValueKind, duplicates, header, names, source};
