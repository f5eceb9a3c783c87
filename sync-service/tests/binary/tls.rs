//! TLS of weir-sync's own: certificates that are read again, and those of clients in place of a token.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use weir_protocol::messages::{self, Message as _};

use crate::running::{Running, answer, report, run, try_answer, until};

/// A connection, secured or not.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

pub(crate) type Stream = Pin<Box<dyn Duplex>>;

/// An authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
pub(crate) struct Certificate {
    cert: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate for these names.
    fn certificate(&self, names: &[&str]) -> Certificate {
        let names: Vec<String> = names.iter().copied().map(Into::into).collect();
        self.signed(&CertificateParams::new(names).unwrap())
    }

    fn signed(&self, params: &CertificateParams) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap();
        Certificate { cert: cert.pem(), key: key.serialize_pem() }
    }
}

/// A client that trusts `authority`, and shows `certificate` if there is one.
pub(crate) fn client(authority: &Authority, certificate: Option<&Certificate>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.0.der().clone()).unwrap();
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let config = match certificate {
        None => builder.with_no_client_auth(),
        Some(Certificate { cert, key }) => {
            let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![cert], key).unwrap()
        }
    };
    Arc::new(config)
}

/// A weir-sync with TLS, whose certificate, and whose clients', are of one authority.
pub(crate) struct Secured {
    pub(crate) authority: Authority,
    pub(crate) folder: TempDir,
    pub(crate) running: Running,
}

impl Secured {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
        write(&folder, &authority.certificate(&["localhost"]));
        std::fs::write(folder.path().join("ca.pem"), authority.0.pem()).unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (cert, key, ca) = (path("cert.pem"), path("key.pem"), path("ca.pem"));
        let tls = ["--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-client-ca-file", &ca];
        let running = Running::start(&[&tls, arguments].concat());
        Self { authority, folder, running }
    }

    /// The file of the authority.
    pub(crate) fn ca(&self) -> String {
        self.folder.path().join("ca.pem").to_str().unwrap().to_owned()
    }

    /// A connection, as soon as it is secured; or the error.
    fn connect(&self, config: &Arc<ClientConfig>) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        Self::connect_to(&self.running.address, config)
    }

    fn connect_to(
        address: &str,
        config: &Arc<ClientConfig>,
    ) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        let mut connection = ClientConnection::new(Arc::clone(config), name).unwrap();
        let mut socket = TcpStream::connect(address).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(connection, socket))
    }

    /// The status of a report of `pop`, if the connection is accepted at all.
    fn report(&self, config: &Arc<ClientConfig>, pop: &str, headers: &str) -> Option<u16> {
        let stream = self.connect(config).ok()?;
        let headers = format!("content-type: {}\r\n{headers}", messages::CONTENT_TYPE);
        // With TLS 1.3 a client learns that its certificate is refused when it reads.
        try_answer(stream, "POST /v1/report", &headers, &report(pop).encode()).ok().map(|(status, _)| status)
    }
}

fn write(folder: &TempDir, certificate: &Certificate) {
    // The key first: a certificate that does not fit its key is not taken.
    std::fs::write(folder.path().join("key.pem"), &certificate.key).unwrap();
    std::fs::write(folder.path().join("cert.pem"), &certificate.cert).unwrap();
}

const TOKEN: &str = "a-token-of-frankfurt";

#[test]
fn the_name_in_a_clients_certificate_is_its_pops() {
    let secured = Secured::start(&[]);
    let own = &secured.authority;
    let pop = client(own, Some(&own.certificate(&["fra1", "fra_2"])));
    let nameless = client(own, Some(&own.certificate(&[])));
    let patterns = client(own, Some(&own.certificate(&["*.fra.example"])));
    let stranger = client(own, Some(&Authority::new().certificate(&["fra1"])));
    let mut old = CertificateParams::new(vec!["fra1".to_owned()]).unwrap();
    (old.not_before, old.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    let old = client(own, Some(&own.signed(&old)));
    for (config, pop, status, why) in [
        (&pop, "fra1", Some(200), "its name"),
        (&pop, "fra_2", Some(200), "its other name"),
        (&pop, "iad1", Some(403), "another's name"),
        (&client(own, None), "fra1", Some(401), "no certificate, and no token"),
        (&nameless, "fra1", Some(401), "no name"),
        (&patterns, "1.fra.example", Some(403), "a pattern is no name"),
        (&stranger, "fra1", None, "of another authority"),
        (&old, "fra1", None, "expired"),
    ] {
        assert_eq!(secured.report(config, pop, ""), status, "{why}");
    }
    let page = answer(secured.connect(&pop).unwrap(), "GET /metrics", "", b"").1;
    assert!(page.contains(r#"weir_sync_token_uses_total{region="default",token="fra1,fra_2"} 2"#), "{page}");
    assert!(page.contains(r#"weir_sync_reports_total{region="default",outcome="forbidden"} 2"#), "{page}");
    let (code, logs) = secured.running.signal("TERM");
    assert_eq!(code, Some(0));
    for reason in ["found a report of iad1", "without a DNS name", "BadSignature", "certificate expired"] {
        let warned = |line: &&str| line.contains("WARN") && line.contains("peer=127.0.0.1") && line.contains(reason);
        assert_eq!(logs.lines().filter(warned).count(), 1, "{reason}: {logs}");
    }
}

#[test]
fn certificates_are_read_again_when_they_change_and_at_a_hangup() {
    let secured = Secured::start(&["--token", TOKEN]);
    let other = Authority::new();
    let (first, second) = (client(&secured.authority, None), client(&other, None));
    let mut kept = secured.connect(&first).unwrap();
    assert!(secured.connect(&second).is_err(), "it does not trust the first");
    write(&secured.folder, &other.certificate(&["localhost"]));
    until("the second certificate is shown", || secured.connect(&second).is_ok());
    assert!(secured.connect(&first).is_err(), "the first is shown no more");
    let status = answer(&mut kept, "GET /healthz", "", b"").0;
    assert_eq!(status, 200, "connections that are open stay");

    // One that does not fit its key changes nothing, and is logged.
    let cert = secured.folder.path().join("cert.pem");
    std::fs::write(&cert, other.certificate(&["localhost"]).cert).unwrap();
    secured.running.send("HUP");
    let sentence = format!("tls_key_file: expected the key of the certificate in {}", cert.display());
    until("it is refused", || secured.running.logs().contains(&sentence));
    assert!(secured.connect(&second).is_ok());
    write(&secured.folder, &secured.authority.certificate(&["localhost"]));
    secured.running.send("HUP");
    until("the first authority's is shown again", || secured.connect(&first).is_ok());
    let (code, logs) = secured.running.signal("TERM");
    assert_eq!(code, Some(0));
    assert!(logs.contains("key.pem can be read by every user of this machine"), "{logs}");
    assert!(logs.contains("the previous certificates stay in use"), "{logs}");
}

#[test]
fn the_port_for_grpc_has_http_2_over_the_same_tls() {
    // A port that is free, and most likely still is a moment later.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let secured = Secured::start(&["--gateway", "on", "--grpc-listen", &free]);
    let mut config = ClientConfig::clone(&client(&secured.authority, None));
    config.alpn_protocols = vec![b"h2".to_vec()];
    let config = Arc::new(config);
    let mut stream = Secured::connect_to(&free, &config).unwrap();
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]));
    // The preface and empty settings (RFC 9113, 3.4); the answer begins with settings.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[3], 4, "{head:?}");
    assert!(secured.connect(&config).is_err(), "the other port has HTTP/1.1");
}

// I2
#[test]
fn plain_http_and_silence_end_a_secured_connection() {
    let secured = Secured::start(&["--token", TOKEN, "--first-byte-timeout-ms", "200"]);
    let silent = TcpStream::connect(&secured.running.address).unwrap();
    let ended = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(std::time::Duration::from_mins(2))).unwrap();
        // An alert at most, and the end.
        stream.read_to_end(&mut Vec::new()).is_ok()
    };
    assert!(ended(silent), "no handshake in time");
    let plain = TcpStream::connect(&secured.running.address).unwrap();
    std::io::Write::write_all(&mut &plain, b"GET /healthz HTTP/1.1\r\nhost: weir\r\n\r\n").unwrap();
    assert!(ended(plain), "no TLS");
    let (_, logs) = secured.running.signal("TERM");
    assert!(logs.contains("a connection without valid TLS"), "{logs}");
}

#[test]
fn wrong_files_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    write(&folder, &authority.certificate(&["localhost"]));
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    std::fs::write(path("empty.pem"), "").unwrap();
    std::fs::write(path("other.pem"), authority.certificate(&["localhost"]).key).unwrap();
    let [cert, key, empty, other] =
        ["cert.pem", "key.pem", "empty.pem", "other.pem"].map(|name| path(name).to_str().unwrap().to_owned());
    for (arguments, expected) in [
        (vec!["--tls-cert-file", &cert], "tls_cert_file: expected both a certificate and tls_key_file".to_owned()),
        (vec!["--tls-client-ca-file", &cert], "tls_client_ca_file: expected tls_cert_file and tls_key_file".into()),
        (
            vec!["--tls-cert-file", "/nowhere/cert.pem", "--tls-key-file", &key],
            "tls_cert_file: cannot read /nowhere/cert.pem".into(),
        ),
        (
            vec!["--tls-cert-file", &empty, "--tls-key-file", &key],
            format!("tls_cert_file: {empty}: expected certificates (PEM), found none"),
        ),
        (
            vec!["--tls-cert-file", &cert, "--tls-key-file", &empty],
            format!("tls_key_file: {empty}: expected a private key (PEM)"),
        ),
        (
            vec!["--tls-cert-file", &cert, "--tls-key-file", &other],
            format!("tls_key_file: expected the key of the certificate in {cert}"),
        ),
        (
            vec!["--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-client-ca-file", &empty],
            format!("tls_client_ca_file: {empty}: expected certificates (PEM), found none"),
        ),
    ] {
        let errors = run(&[&["--check"], &arguments[..]].concat()).wrong(2);
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.starts_with(&expected), "{errors} is not {expected}");
    }
}
