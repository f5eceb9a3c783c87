//! Keys as text, on the lists that regions share through a store.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::fmt::Write as _;

use weir_protocol::messages::KEY_BYTES_MAX;

/// Error for a text in an unexpected form, written by another version or another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextError(pub(crate) &'static str);

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.0)
    }
}

impl core::error::Error for TextError {}

/// Formats bytes in hex.
#[derive(Clone, Copy, Debug)]
pub struct Hex<'a>(pub &'a [u8]);

impl Hex<'_> {
    /// Appends the digits to `text`. It is called for each charged key, and formatting would take several times
    /// as long.
    pub fn add_to(self, text: &mut String) {
        text.extend(self.digits());
    }

    fn digits(&self) -> impl Iterator<Item = char> {
        let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
        self.0.iter().flat_map(move |byte| [digit(byte >> 4), digit(byte & 15)])
    }
}

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digits().try_for_each(|digit| f.write_char(digit))
    }
}

/// Parses a key's value written by [`Hex`]; it has 1 to [`KEY_BYTES_MAX`] bytes.
pub(crate) fn value_of(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_hex || !(2..=2 * KEY_BYTES_MAX).contains(&text.len()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok()).collect()
}
