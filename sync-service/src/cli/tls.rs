//! TLS of the commands.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::output::Failure;
use crate::tls::certificates;

/// Connector that trusts the authorities in `ca_file`, or those of the system.
pub(super) fn connector(ca_file: Option<&str>) -> Result<TlsConnector, Failure> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        for certificate in certificates("--ca-file", path).map_err(Failure::unusable)? {
            let added = roots.add(certificate);
            added.map_err(|error| Failure::unusable(format!("--ca-file: {path}: {error}")))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let sentence =
                "this system has no authorities to trust: --ca-file FILE names a file of them (PEM)";
            return Err(Failure::unusable(sentence));
        }
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config).into())
}
