//! Messages as bytes.

use alloc::vec::Vec;
use core::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::limits::MESSAGE_BYTES_MAX;

/// The version of the messages, their first byte.
pub const VERSION: u8 = 1;

/// Why a message could not be read. Each says what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// No bytes at all.
    Empty,
    /// Another version than [`VERSION`].
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
            Self::Version(v) => write!(f, "the message has version {v}, expected {VERSION}"),
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
    /// Checks what decoding does not: that every field is within its limits.
    fn validate(&self) -> Result<(), WireError>;

    /// The message's bytes.
    fn encode(&self) -> Vec<u8> {
        // Neither message holds anything postcard cannot write (no sequence of unknown length);
        // should that change, the receiver refuses the lone version byte.
        postcard::to_extend(self, alloc::vec![VERSION]).unwrap_or_default()
    }

    /// The message in `bytes`, checked.
    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(WireError::TooLarge(bytes.len()));
        }
        let (&version, body) = bytes.split_first().ok_or(WireError::Empty)?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let Ok((message, [])) = postcard::take_from_bytes::<Self>(body) else {
            return Err(WireError::Malformed);
        };
        message.validate()?;
        Ok(message)
    }
}

pub(super) fn expect(field: &'static str, is_within_limits: bool) -> Result<(), WireError> {
    if is_within_limits { Ok(()) } else { Err(WireError::Limit(field)) }
}
