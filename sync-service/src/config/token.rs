//! Where tokens come from: a setting, or a file that is read again when it changes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::values::Secret;

/// The shortest token, in bytes: too long to be guessed.
pub const TOKEN_BYTES_MIN: usize = 16;
/// The longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 1_024;
/// The bit of a file's mode that lets every user of the machine read it.
const OTHERS_MAY_READ: u32 = 0o004;

/// Where tokens come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// There are none.
    None,
    /// One, which the setting says.
    Given(Secret),
    /// A file of tokens, at this path.
    File(String),
}

impl TokenSource {
    /// The file's path, if it is one.
    pub fn path(&self) -> Option<&str> {
        if let Self::File(path) = self { Some(path) } else { None }
    }
}

/// What should be different about the file of secrets at `path`, though it can be used.
pub fn warning(path: &str) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    let sentence = "can be read by every user of this machine: take that from others, as with `chmod o-rwx";
    (mode & OTHERS_MAY_READ != 0).then(|| format!("{path} {sentence} {path}`"))
}

/// Reads a token: printable ASCII without blanks, as it travels in a header.
pub fn read(text: &str) -> Result<Secret, String> {
    let length = TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX;
    let fits = length.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    // The text is not repeated: it is a secret.
    let expected = format!(
        "expected {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} printable ASCII characters without blanks, as \
         `openssl rand -hex 32` makes them"
    );
    fits.then(|| Secret::new(text)).ok_or(expected)
}
