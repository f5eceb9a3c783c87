//! What to make of a header, a cookie or a query parameter that a request has more than once.

use super::Holds;

/// Which of several values of one name counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// Nothing is said. A header is what the host makes of them, one text with commas; of a cookie or a parameter a
    /// condition looks at each, and a key takes the first.
    #[default]
    Unsaid,
    /// The first.
    First,
    /// The last.
    Last,
    /// None: a key cannot be made of them, and no test be tried on them.
    Limit,
}

/// A request has more than one of what it may have once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeated;

impl Duplicates {
    /// As they are written.
    pub(crate) const NAMES: [(&'static str, Self); 3] =
        [("first", Self::First), ("last", Self::Last), ("limit", Self::Limit)];

    /// The one of `values` that counts.
    pub(crate) fn pick<T>(self, mut values: impl Iterator<Item = T>) -> Result<Option<T>, Repeated> {
        let Some(first) = values.next() else { return Ok(None) };
        match self {
            Self::Last => Ok(values.last().or(Some(first))),
            Self::Limit if values.next().is_some() => Err(Repeated),
            _ => Ok(Some(first)),
        }
    }

    /// What a test says of several values; none where there is no value.
    pub(super) fn holds<T>(
        self,
        mut values: impl Iterator<Item = T>,
        mut test: impl FnMut(T) -> Holds,
    ) -> Option<Holds> {
        if self != Self::Unsaid {
            return self.pick(values).map_or(Some(Holds::Unsure), |value| value.map(test));
        }
        let first = test(values.next()?);
        Some(if values.all(|value| test(value) == first) { first } else { Holds::Unsure })
    }
}

/// The values of a header that the host gives as one text (RFC 9110, 5.3).
pub(crate) fn of_header(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii)
}
