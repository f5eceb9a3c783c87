//! Messages as bytes.

use alloc::vec::Vec;
use core::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::limits::MESSAGE_BYTES_MAX;
use super::version::Version;

/// Why a message could not be read. Each says what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// No bytes at all.
    Empty,
    /// A version that is none of [`Version::ALL`].
    Version(u8),
    /// Larger than [`MESSAGE_BYTES_MAX`].
    TooLarge(usize),
    /// Not a message of the expected kind.
    Malformed,
    /// Readable, but a field is out of its limits; names the field.
    Limit(&'static str),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the message is empty: expected a version byte and a body"),
            Self::Version(v) => {
                let [latest, before] = Version::ALL.map(Version::byte);
                write!(f, "the message has version {v}, expected {latest} or {before}")
            }
            Self::TooLarge(n) => {
                write!(f, "the message has {n} bytes, expected at most {MESSAGE_BYTES_MAX}")
            }
            Self::Malformed => f.write_str("the message's body is malformed"),
            Self::Limit(field) => write!(f, "a field is out of its limits: {field}"),
        }
    }
}

impl core::error::Error for WireError {}

/// A message of the budget loop.
pub trait Message: Serialize + DeserializeOwned {
    /// What a message of the version before lacks at its end, with nothing in it.
    const ADDED: &'static [u8] = &[];

    /// Checks what decoding does not: that every field is within its limits.
    fn validate(&self) -> Result<(), WireError>;

    /// The message's bytes, in the latest version.
    fn encode(&self) -> Vec<u8> {
        // Neither message holds anything postcard cannot write (no sequence of unknown length);
        // should that change, the receiver refuses the lone version byte.
        postcard::to_extend(self, alloc::vec![Version::Latest.byte()]).unwrap_or_default()
    }

    /// The message in `bytes`, checked.
    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        Self::read(bytes).map(|(_, message)| message)
    }

    /// The message in `bytes`, checked, and its version.
    fn read(bytes: &[u8]) -> Result<(Version, Self), WireError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(WireError::TooLarge(bytes.len()));
        }
        let (&first, body) = bytes.split_first().ok_or(WireError::Empty)?;
        let version = Version::of(first).ok_or(WireError::Version(first))?;
        let message = if version == Version::Before && !Self::ADDED.is_empty() {
            whole(&[body, Self::ADDED].concat())
        } else {
            whole(body)
        };
        let message: Self = message?;
        message.validate()?;
        Ok((version, message))
    }
}

/// The message that `body` is, and nothing else.
fn whole<M: Message>(body: &[u8]) -> Result<M, WireError> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(WireError::Malformed),
    }
}

pub(super) fn expect(field: &'static str, is_within_limits: bool) -> Result<(), WireError> {
    if is_within_limits { Ok(()) } else { Err(WireError::Limit(field)) }
}
