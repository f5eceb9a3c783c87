//! A shared token: given as it is, or in a file that can be read again and may hold several.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::values::Secret;

/// The shortest token, in bytes: too long to be guessed.
pub const TOKEN_BYTES_MIN: usize = 16;
/// The longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 1_024;
/// The most tokens that a file holds: each is compared with what every request carries.
pub const TOKENS_MAX: usize = 8;
/// The bit of a file's mode that lets every user of the machine read it.
const OTHERS_MAY_READ: u32 = 0o004;

/// A shared token, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// No token.
    None,
    /// The token itself.
    Given(Secret),
    /// A file of tokens, and its tokens once it was read. All of them are accepted: while a token is replaced, some
    /// POPs send the old one and some the new one.
    File(String, Vec<Secret>),
}

impl Token {
    /// What is accepted, once it is known.
    pub fn secrets(&self) -> &[Secret] {
        match self {
            Self::None => &[],
            Self::Given(secret) => std::slice::from_ref(secret),
            Self::File(_, secrets) => secrets,
        }
    }

    /// Whether a token is accepted for both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.secrets().iter().any(|secret| other.secrets().contains(secret))
    }

    /// The same with what its file says now, or unchanged if it comes from no file. Fails with what is wrong, which
    /// names the file.
    pub fn reread(&self) -> Result<Self, String> {
        let Self::File(path, _) = self else { return Ok(self.clone()) };
        let text = fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
        let read = lines.map(|(index, line)| {
            Self::read(line).map_err(|expected| format!("{path}:{}: {expected}", index + 1))
        });
        let secrets: Vec<_> = read.collect::<Result<_, _>>()?;
        match secrets.len() {
            1..=TOKENS_MAX => Ok(Self::File(path.clone(), secrets)),
            count => Err(format!("{path}: expected 1 to {TOKENS_MAX} tokens, one a line, found {count}")),
        }
    }

    /// What should be different about its file, though the token can be used.
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
