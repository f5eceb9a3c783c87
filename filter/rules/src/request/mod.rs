//! What a request has, fetched once: its attributes, its address, host and path in the forms that rules compare, and
//! the values that it has under a name.

pub mod address;
mod attribute;
pub mod claim;
mod cookie;
mod credentials;
mod duplicates;
mod fetched;
mod folding;
mod host;
mod query;
mod value;

pub use attribute::{ATTRIBUTES_MAX, Attribute, AttributeId, Attributes, Request};
pub(crate) use credentials::normalise_credentials;
pub use duplicates::Duplicates;
pub(crate) use duplicates::{OneOf, Repeated};
pub use fetched::{Fetched, Values};
pub use folding::Folding;
pub use host::HOST_BYTES_MAX;
#[cfg(test)]
pub(crate) use host::HostRead;
pub(crate) use host::host_of;
pub use query::QUERY_BYTES_MAX;
pub use value::{CLAIM_NAMES_MAX, NAME_BYTES_MAX, Source, ValueOf};
pub(crate) use value::{Kind, duplicates, names, source};
