//! Encoding of messages.

use alloc::vec::Vec;
use core::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::limits::MESSAGE_BYTES_MAX;

/// Version of the messages, their first byte.
pub const VERSION: u8 = 1;

/// Error of a message that could not be read. Its text states what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The message is empty.
    Empty,
    /// The version is not [`VERSION`].
    Version(u8),
    /// The message is larger than [`MESSAGE_BYTES_MAX`].
    TooLarge(usize),
    /// The body is not a message of the expected kind.
    Malformed,
    /// A field, named here, is out of its limits.
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
    /// Checks the limits of all fields, which decoding does not.
    fn validate(&self) -> Result<(), WireError>;

    /// Encodes the message.
    fn encode(&self) -> Vec<u8> {
        // Serialisation cannot fail: neither message has a type that postcard refuses (a sequence of unknown
        // length). If that changed, the receiver would refuse the lone version byte.
        postcard::to_extend(self, alloc::vec![VERSION]).unwrap_or_default()
    }

    /// Decodes and validates a message.
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
