//! Sources of tokens: a setting, or a file that is read again when it changes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::values::Secret;

/// Minimum length of a token in bytes, so that it cannot be guessed.
pub const TOKEN_BYTES_MIN: usize = 16;
/// Maximum length of a token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 1_024;
/// Mode bit that lets every user of the machine read a file.
const OTHERS_MAY_READ: u32 = 0o004;

/// Source of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// No tokens.
    None,
    /// One token, given in a setting.
    Given(Secret),
    /// File of tokens at this path.
    File(String),
}

impl TokenSource {
    /// Path of the file, if the source is one.
    pub fn path(&self) -> Option<&str> {
        if let Self::File(path) = self { Some(path) } else { None }
    }
}

/// Warning about the file of secrets at `path`; none if there is nothing to change.
pub fn warning(path: &str) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    let sentence = "can be read by every user of this machine: take that from others, as with `chmod o-rwx";
    (mode & OTHERS_MAY_READ != 0).then(|| format!("{path} {sentence} {path}`"))
}

/// Parses a token: printable ASCII without blanks, so that it fits into a header.
pub fn read(text: &str) -> Result<Secret, String> {
    let length = TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX;
    let fits = length.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    // The error does not quote the text, because it is a secret.
    let expected = format!(
        "expected {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} printable ASCII characters without blanks, as \
         `openssl rand -hex 32` makes them"
    );
    fits.then(|| Secret::new(text)).ok_or(expected)
}
