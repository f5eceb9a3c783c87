//! Tokens, certificates and key secrets: read from files and settings, and checked.

use std::fs;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use weir_rules::fleet_secret::{KEY_SECRET_BYTES_MAX, KEY_SECRET_BYTES_MIN};

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

/// Reads the certificate authorities in the file at `path`. Errors begin with `setting`.
pub fn authorities(setting: &str, path: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(setting, path)? {
        roots.add(certificate).map_err(|error| format!("{setting}: {path}: {error}"))?;
    }
    Ok(roots)
}

/// Reads the POPs' key secret from the file at `path`. Errors begin with `setting`.
pub fn key_secret(setting: &str, path: &str) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{setting}: cannot read {path}: {error}"))?;
    let (text, length) = (text.trim(), KEY_SECRET_BYTES_MIN..=KEY_SECRET_BYTES_MAX);
    let expected = || format!("{setting}: {path}: expected a text of {} to {} bytes", length.start(), length.end());
    if length.contains(&text.len()) { Ok(text.to_owned()) } else { Err(expected()) }
}
