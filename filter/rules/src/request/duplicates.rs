//! Treatment of a header, cookie or query parameter that occurs more than once.

use alloc::borrow::Cow;

use super::credentials::normalise_credentials;

/// Selects the value that counts if there are several of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// Not configured. A condition evaluates each value; for a header these are its lines, and all lines
    /// joined by commas. A key takes the first cookie or parameter, and the joined text of a header.
    #[default]
    Unsaid,
    /// The first value.
    First,
    /// The last value.
    Last,
    /// No value: there is no key, and tests are unsure.
    Limit,
}

/// Error of a request that has several values where it may have only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeated;

/// One of several values. `None` stands for further values that were not read.
pub(crate) type OneOf<'a> = Option<Cow<'a, [u8]>>;

impl Duplicates {
    /// The names in configuration.
    pub(crate) const NAMES: [(&'static str, Self); 3] =
        [("first", Self::First), ("last", Self::Last), ("limit", Self::Limit)];

    /// Selects the value that counts.
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

/// The values in a header's lines, joined by commas (RFC 9110, 5.3). Credentials are normalised.
pub(crate) fn of_header(joined: &[u8], are_credentials: bool) -> impl Iterator<Item = OneOf<'_>> {
    joined.split(|&b| b == b',').map(move |value| {
        let mut value = Cow::Borrowed(value.trim_ascii());
        if are_credentials {
            normalise_credentials(value.to_mut());
        }
        Some(value)
    })
}
