//! A request's attributes, fetched once; its address, host and path in the forms that rules compare; and its
//! named values.

pub mod address;
mod attribute;
pub mod claim;
mod cookie;
mod credentials;
mod duplicates;
mod fetched;
mod folding;
mod host;
mod lines;
mod query;
mod value;

pub use attribute::{ATTRIBUTES_MAX, Attribute, AttributeId, Attributes, LINE_BREAK, Request};
pub(crate) use credentials::normalise_credentials;
pub use duplicates::Duplicates;
pub(crate) use duplicates::{OneOf, Repeated};
pub(crate) use fetched::SearchWork;
pub use fetched::{Fetched, SEARCH_WORK_MAX, Values};
pub use folding::Folding;
pub use host::HOST_BYTES_MAX;
pub(crate) use host::{HostRead, host_of, is_of_name};
pub(crate) use lines::Lines;
pub use query::QUERY_BYTES_MAX;
pub use value::{CLAIM_NAMES_MAX, NAME_BYTES_MAX, Source, ValueOf};
pub(crate) use value::{ValueKind, duplicates, header, names, source};
