//! A shared token: given as it is, or in a file that can be read again.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::values::Secret;

/// The shortest token, in bytes: nobody gets through as many guesses.
pub const TOKEN_BYTES_MIN: usize = 16;
/// The longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 1_024;
/// Of a file's mode: whoever has an account on the machine may read it.
const OTHERS_MAY_READ: u32 = 0o004;

/// A shared token, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// No token.
    None,
    /// The token itself.
    Given(Secret),
    /// A file that holds it, and the token once it was read.
    File(String, Option<Secret>),
}

impl Token {
    /// The token, once it is known.
    pub fn secret(&self) -> Option<&Secret> {
        match self {
            Self::None => None,
            Self::Given(secret) => Some(secret),
            Self::File(_, secret) => secret.as_ref(),
        }
    }

    /// The same with what its file says now; nothing changes where it comes from no file. Fails with what is
    /// wrong, which names the file.
    pub fn reread(&self) -> Result<Self, String> {
        let Self::File(path, _) = self else { return Ok(self.clone()) };
        let text = fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
        let secret = Self::read(text.trim_end_matches(['\r', '\n']));
        let secret = secret.map_err(|expected| format!("{path}: {expected}"))?;
        Ok(Self::File(path.clone(), Some(secret)))
    }

    /// What its file should not be like, though the token can be used.
    pub fn warning(&self) -> Option<String> {
        let Self::File(path, _) = self else { return None };
        let mode = fs::metadata(path).ok()?.permissions().mode();
        let sentence =
            "can be read by every user of this machine: take that from others, as with `chmod o-rwx";
        (mode & OTHERS_MAY_READ != 0).then(|| format!("{path} {sentence} {path}`"))
    }

    /// Reads a token: printable ASCII without blanks, as it travels in a header.
    pub(super) fn read(text: &str) -> Result<Secret, String> {
        let length = TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX;
        let fits = length.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        // The text is not repeated: it is a secret.
        let expected = format!(
            "expected {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} printable ASCII characters without blanks, as \
             `openssl rand -hex 32` makes them"
        );
        fits.then(|| Secret::new(text)).ok_or(expected)
    }
}
