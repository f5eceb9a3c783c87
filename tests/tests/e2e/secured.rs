//! TLS between Envoy and weir-sync, as docs/envoy.md shows it: the certificate of a POP is its name.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use weir_tests::client::{Ask, Client};
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::repeat;
use weir_tests::process::Process;
use weir_tests::wait::until;
use weir_tests::{artefact, port};

use crate::plugin::{one, with};

/// The page with the cluster's part, and where the part begins and ends.
const PAGE: &str = "../docs/envoy.md";
const BEGIN: &str = "```yaml\n  transport_socket:";

/// The cluster of weir-sync on the page, with the files of `folder` for those of the example.
fn transport_socket(folder: &Path) -> Value {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).unwrap();
    let (_, part) = page.split_once(BEGIN).expect("the page shows the transport socket");
    let part = part.split("```").next().unwrap().replace("/etc/envoy", folder.to_str().unwrap());
    let part: Value = serde_saphyr::from_str(&format!("  transport_socket:{part}")).unwrap();
    part["transport_socket"].clone()
}

/// Writes what the page names: an authority, weir-sync's certificate and that of the POP `fra1`.
fn certificates(folder: &Path) {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Another name than the certificates have, which otherwise look as if they had signed themselves.
    params.distinguished_name.push(DnType::CommonName, "an authority");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    fs::write(folder.join("weir-sync-ca.crt"), authority.pem()).unwrap();
    for (file, name) in [("fra1", "fra1"), ("weir-sync", "weir-sync.example")] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        fs::write(folder.join(format!("{file}.crt")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    }
}

/// A weir-sync with TLS, and where it listens.
async fn weir_sync(folder: &TempDir) -> (Process, SocketAddr, u16) {
    let file = |name: &str| folder.path().join(name);
    let (port, pages) = (port::free(), port::free());
    let mut command = Command::new(artefact::weir_sync());
    command.env_remove("WEIR_SYNC_BIN").args(["--listen", &format!("127.0.0.1:{port}")]);
    command.args(["--ops-listen", &format!("127.0.0.1:{pages}")]);
    command.arg("--tls-cert-file").arg(file("weir-sync.crt")).arg("--tls-key-file").arg(file("weir-sync.key"));
    command.arg("--tls-client-ca-file").arg(file("weir-sync-ca.crt"));
    let mut process = Process::spawn("weir-sync", command, &file("weir-sync.log"));
    until("weir-sync to answer at its pages", async || {
        process.assert_alive();
        let answer = Client::of_port(pages).try_send(&Ask::get("/healthz")).await.ok()?;
        (answer.status == 200).then_some(())
    })
    .await;
    (process, (Ipv4Addr::LOCALHOST, port).into(), pages)
}

#[tokio::test]
async fn a_pop_reports_only_under_the_name_in_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let (_weir_sync, address, pages) = weir_sync(&folder).await;
    let edge = async |pop: &str| {
        let key_secret = "a-secret-of-all-pops";
        let sync = json!({"cluster": "weir-sync", "pop": pop, "interval_ms": 100, "key_secret": key_secret});
        let setup = Setup::with(with(one("api", "1/h", 5), "sync", sync));
        let socket = transport_socket(folder.path());
        let cluster = json!({"name": "weir-sync", "connect_timeout": "1s", "transport_socket": socket});
        Envoy::start(setup.shipped_cluster(cluster, address)).await
    };
    let own = edge("fra1").await;
    assert_eq!(repeat(&mut own.client(), &Ask::get("/").forwarded_for("203.0.113.7"), 9).await.admitted(), 5);
    own.counter_reaches("weir.sync.answered", 3).await;
    assert_eq!(own.counter("weir.sync.failed").await, 0);
    let others = edge("iad1").await;
    others.counter_reaches("weir.sync.failed", 3).await;
    assert_eq!(others.counter("weir.sync.answered").await, 0);
    let page = Client::of_port(pages).send(&Ask::get("/metrics")).await.text();
    let value =
        |row: &str| -> u64 { page.lines().find_map(|line| line.strip_prefix(row)?.trim().parse().ok()).unwrap_or(0) };
    assert!(value(r#"weir_sync_token_uses_total{region="default",token="fra1"}"#) >= 3, "{page}");
    assert!(value(r#"weir_sync_reports_total{region="default",outcome="forbidden"}"#) >= 3, "{page}");
}
