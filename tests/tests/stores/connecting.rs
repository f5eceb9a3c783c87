//! Every way to a Redis: over TCP, TLS and a socket, with and without users, passwords and certificates.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use weir_store::dial::{DialError, LoginFiles};
use weir_store::redis::Redis as RedisStore;
use weir_store::{ChargeBatch, Store};
use weir_tests::redis::{Redis, Setup};
use weir_tests::redis_cluster::Cluster;
use weir_tests::wait::until;

use crate::failing::{with_a_password, with_a_user};
use crate::refusing::refusal;
use crate::{charge, count, entry, in_reach, open, open_with, options, slow};

/// Files of one test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The path of a file with this text.
    fn file(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// The authority that signs certificates.
struct Issuer(CertifiedIssuer<'static, KeyPair>);

impl Issuer {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for `name` and its key.
    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

async fn works(store: &RedisStore) {
    in_reach(store).await;
    assert!(charge(store, entry(b"a", slow(), vec![count(1, 5, 5)])).await.unwrap().charged <= 5);
    assert_eq!(store.register("fra1").await.unwrap(), 1);
}

/// Works over `url` as the user of an ACL; a wrong password, a wrong user and no user are refused, and the reason does
/// not show the password.
async fn an_acl_user_gets_in(url: &str) {
    works(&open(url)).await;
    for (right, wrong) in [("correct-", "battery-"), ("weir-user", "battery-user"), ("weir-user", "")] {
        let refused = url.replace(right, wrong);
        assert_ne!(refused, url);
        let error = refusal(&open(&refused)).await.to_string();
        assert!(error.to_lowercase().contains("password"), "{error}");
        assert!(!error.contains("horse") && !error.contains("battery"), "a secret shows: {error}");
    }
}

#[tokio::test]
async fn an_acl_user_connects_over_tcp_and_a_socket() {
    let redis = Redis::start_with(with_a_user()).await;
    an_acl_user_gets_in(&redis.url()).await;
    an_acl_user_gets_in(&redis.socket()).await;
    for scheme in ["redis+unix", "valkey+unix"] {
        works(&open(&redis.socket().replace("unix", scheme))).await;
    }
}

#[tokio::test]
async fn only_configured_certificates_are_trusted() {
    let (folder, issuer) = (Folder::new(), Issuer::new("ours"));
    let tls = Some(issuer.sign("127.0.0.1"));
    let redis = Redis::start_with(Setup { tls, ..with_a_password("over-tls") }).await;
    works(&open_with(
        &redis.url(),
        &LoginFiles { ca: Some(folder.file("ca.pem", &issuer.pem())), ..LoginFiles::default() },
    ))
    .await;
    let stranger =
        LoginFiles { ca: Some(folder.file("other.pem", &Issuer::new("theirs").pem())), ..LoginFiles::default() };
    let error = refusal(&open_with(&redis.url(), &stranger)).await.to_string();
    assert!(error.contains("certificate") && error.contains("store_ca_file"), "{error}");
    let other_name = redis.url().replace("127.0.0.1", "localhost");
    let files = LoginFiles { ca: Some(folder.file("ca.pem", &issuer.pem())), ..LoginFiles::default() };
    let error = refusal(&open_with(&other_name, &files)).await.to_string();
    assert!(error.contains("127.0.0.1") && error.contains("not valid for name"), "{error}");
}

#[tokio::test]
async fn a_client_certificate_is_presented() {
    let (folder, issuer, other) = (Folder::new(), Issuer::new("ours"), Issuer::new("theirs"));
    let setup =
        Setup { tls: Some(issuer.sign("127.0.0.1")), client_ca: Some(issuer.pem()), ..with_a_password("over-tls") };
    let redis = Redis::start_with(setup).await;
    let ca = Some(folder.file("ca.pem", &issuer.pem()));
    let shown = |name: &str, (cert, key): (String, String)| LoginFiles {
        ca: ca.clone(),
        client_cert: Some(folder.file(&format!("{name}.pem"), &cert)),
        client_key: Some(folder.file(&format!("{name}.key"), &key)),
        ..LoginFiles::default()
    };
    works(&open_with(&redis.url(), &shown("weir", issuer.sign("weir-sync")))).await;
    let none = LoginFiles { ca: ca.clone(), ..LoginFiles::default() };
    let error = refusal(&open_with(&redis.url(), &none)).await.to_string();
    assert!(error.contains("store_client_cert_file"), "{error}");
    let error = refusal(&open_with(&redis.url(), &shown("other", other.sign("weir-sync")))).await.to_string();
    assert!(error.contains("store_client_cert_file"), "{error}");
}

#[tokio::test]
async fn a_client_certificate_is_presented_to_a_cluster() {
    let (folder, issuer) = (Folder::new(), Issuer::new("ours"));
    let tls = Some(issuer.sign("127.0.0.1"));
    let setup = Setup { tls, client_ca: Some(issuer.pem()), ..Setup::default() };
    let cluster = Cluster::start_masters_with(&setup).await;
    let (cert, key) = issuer.sign("weir-sync");
    let ca = LoginFiles { ca: Some(folder.file("ca.pem", &issuer.pem())), ..LoginFiles::default() };
    let files = LoginFiles {
        client_cert: Some(folder.file("weir.pem", &cert)),
        client_key: Some(folder.file("weir.key", &key)),
        ..ca.clone()
    };
    let store = open_with(&cluster.url(), &files);
    let entries: Vec<_> = (0..60).map(|key| entry(&[key], slow(), vec![count(1, 5, 5)])).collect();
    until("every key to be charged", async || {
        let batch = ChargeBatch { replica: "fra", pop: "fra1", entries: &entries };
        store.charge(&batch).await.iter().all(Result::is_ok).then_some(())
    })
    .await;
    for server in cluster.masters() {
        let calls: u32 = server.info("commandstats", "cmdstat_evalsha:calls=").await;
        assert!(calls > 10, "each has its part: {calls}");
    }
    let error = refusal(&open_with(&cluster.url(), &ca)).await.to_string();
    assert!(error.contains("store_client_cert_file"), "{error}");
    let plain = cluster.url().replace("rediss+", "redis+");
    refusal(&open(&plain)).await;
}

#[tokio::test]
async fn a_password_in_a_file_is_read_for_each_connection() {
    let folder = Folder::new();
    let redis = Redis::start_with(with_a_user()).await;
    let url = redis.url().replace(":correct-horse", "");
    let files = LoginFiles { password: Some(folder.file("password", "correct-horse\n")), ..LoginFiles::default() };
    works(&open_with(&url, &files)).await;
    folder.file("password", "battery-staple\n");
    let store = open_with(&url, &files);
    let error = refusal(&store).await.to_string();
    assert!(error.contains("password") && !error.contains("battery"), "{error}");
    folder.file("password", "correct-horse");
    works(&store).await;
}

#[tokio::test]
async fn unusable_files_are_reported_at_start() {
    let folder = Folder::new();
    let (cert, key) = Issuer::new("ours").sign("weir-sync");
    let refused = |files: LoginFiles| -> DialError {
        RedisStore::new("rediss://127.0.0.1", crate::Options { files, ..options() }).err().unwrap()
    };
    let gone = refused(LoginFiles { ca: Some("/nowhere/ca.pem".into()), ..LoginFiles::default() }).to_string();
    assert!(gone.starts_with("store_ca_file: cannot read /nowhere/ca.pem"), "{gone}");
    let swapped = LoginFiles {
        client_cert: Some(folder.file("a", &key)),
        client_key: Some(folder.file("b", &cert)),
        ..LoginFiles::default()
    };
    let swapped = refused(swapped).to_string();
    assert!(swapped.starts_with("store_client_cert_file: expected certificates"), "{swapped}");
    let path = folder.file("d", "");
    fs::write(&path, [0xff, 0xfe, b'p']).unwrap();
    let binary = refused(LoginFiles { password: Some(path), ..LoginFiles::default() }).to_string();
    assert!(binary.starts_with("store_password_file: expected UTF-8"), "{binary}");
    let empty = refused(LoginFiles { password: Some(folder.file("c", "\n")), ..LoginFiles::default() }).to_string();
    assert!(empty.starts_with("store_password_file: expected a password"), "{empty}");
}
