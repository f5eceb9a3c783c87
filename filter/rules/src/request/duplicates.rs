//! What to do about a header, a cookie or a query parameter that a request has more than once.

use alloc::borrow::Cow;

use super::credentials::normalise_credentials;

/// Which of several values of one name counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// Not configured. A condition looks at each value; of a header these are its lines, and all of them as one text
    /// with commas. A key takes the first cookie or parameter, and that one text.
    #[default]
    Unsaid,
    /// The first.
    First,
    /// The last.
    Last,
    /// None: no key is made of them, and no test can tell.
    Limit,
}

/// A request has several values where it may have only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeated;

/// One of several values; `None` says that there may be more that were not looked at.
pub(crate) type OneOf<'a> = Option<Cow<'a, [u8]>>;

impl Duplicates {
    /// Their names in configuration.
    pub(crate) const NAMES: [(&'static str, Self); 3] =
        [("first", Self::First), ("last", Self::Last), ("limit", Self::Limit)];

    /// The one of `values` that counts.
    #[inline(never)]
    pub(crate) fn pick<'a>(
        self,
        values: &mut dyn Iterator<Item = OneOf<'a>>,
    ) -> Result<Option<OneOf<'a>>, Repeated> {
        let Some(first) = values.next() else { return Ok(None) };
        match self {
            Self::Last => Ok(values.last().or(Some(first))),
            Self::Limit if values.next().is_some() => Err(Repeated),
            _ => Ok(Some(first)),
        }
    }
}

/// The values in a header's lines, joined by commas (RFC 9110, 5.3); each is normalised if these are credentials.
pub(crate) fn of_header(joined: &[u8], are_credentials: bool) -> impl Iterator<Item = OneOf<'_>> {
    joined.split(|&b| b == b',').map(move |value| {
        let mut value = Cow::Borrowed(value.trim_ascii());
        if are_credentials {
            normalise_credentials(value.to_mut());
        }
        Some(value)
    })
}
