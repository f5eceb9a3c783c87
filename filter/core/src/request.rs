//! What the decision may ask about a request.

use alloc::vec::Vec;

/// Something about a request that a rule may match or count by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// The client's address as the host reports it, after the host's own X-Forwarded-For trust.
    SourceAddress,
    /// The method.
    Method,
    /// The path with its query.
    Path,
    /// The authority (`:authority`, `Host`).
    Authority,
}

/// How many attributes there are.
pub const ATTRIBUTES: usize = 4;

/// A request. Every attribute costs a call into the host, so each is asked for at most once per
/// decision, and only where a rule needs it.
pub trait Request {
    /// The attribute's bytes; `None` where the host has none.
    fn attribute(&mut self, attribute: Attribute) -> Option<Vec<u8>>;
}

/// A request whose attributes are fetched once.
pub(crate) struct Fetched<'a> {
    request: &'a mut dyn Request,
    values: [Lazy; ATTRIBUTES],
}

#[derive(Clone, Default)]
enum Lazy {
    #[default]
    Unasked,
    Missing,
    Is(Vec<u8>),
}

impl<'a> Fetched<'a> {
    pub(crate) fn new(request: &'a mut dyn Request) -> Self {
        Self { request, values: [const { Lazy::Unasked }; ATTRIBUTES] }
    }

    /// The attribute's bytes, fetched on the first call.
    pub(crate) fn get(&mut self, attribute: Attribute) -> Option<&[u8]> {
        let Self { request, values } = self;
        let value = values.get_mut(attribute as usize)?;
        if matches!(value, Lazy::Unasked) {
            *value = request.attribute(attribute).map_or(Lazy::Missing, Lazy::Is);
        }
        if let Lazy::Is(bytes) = value { Some(bytes) } else { None }
    }
}
