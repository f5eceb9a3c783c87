//! Tokens and certificates as files and settings have them.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};

/// Minimum length of a token in bytes, so that it cannot be guessed.
const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: usize = 1_024;

/// Checks a token: printable ASCII without blanks, so that it fits into a header. An error states what was expected.
pub fn check_token(text: &str) -> Result<(), String> {
    let length = TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX;
    let fits = length.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    // The error does not quote the text, because it is a secret.
    let expected = format!(
        "expected {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} printable ASCII characters without blanks, as \
         `openssl rand -hex 32` makes them"
    );
    fits.then_some(()).ok_or(expected)
}

/// Reads all certificates in the file at `path`. An empty file is an error. Errors begin with `setting`.
pub fn certificates(setting: &str, path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(Path::new(path)).and_then(Iterator::collect);
    let certificates: Vec<_> = read.map_err(|error| match error {
        pem::Error::Io(error) => format!("{setting}: cannot read {path}: {error}"),
        error => format!("{setting}: {path}: expected certificates (PEM): {error}"),
    })?;
    if certificates.is_empty() {
        return Err(format!("{setting}: {path}: expected certificates (PEM), found none"));
    }
    Ok(certificates)
}
