//! A watched file of rules is stored once, however many weir-syncs watch it, and never replaces a later change by
//! an operator.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use weir_sync::config::Config;

use crate::client::{ask, request};
use crate::exchange::metric;
use crate::gateway::{check, gateway};
use crate::rules::{current, guarded, page, put, rules};
use crate::stores::Shared;
use crate::{Server, until};

/// A folder with a file of rules.
struct Watched(TempDir);

impl Watched {
    fn new(text: &str) -> Self {
        let watched = Self(tempfile::tempdir().unwrap());
        watched.write(text);
        watched
    }

    fn path(&self) -> String {
        self.0.path().join("rules.yaml").to_str().unwrap().into()
    }

    fn write(&self, text: &str) {
        fs::write(self.path(), text).unwrap();
    }

    fn config(&self) -> Config {
        Config { rules_file: Some(self.path()), ..guarded() }
    }
}

fn yaml(rate: &str) -> String {
    format!("# the edge\nrules:\n- {{name: per-address, key: [client_address], rate: {rate}}}\n")
}

/// Waits until the current document is `expected`; returns its version.
async fn runs(server: &Server, expected: &Value) -> u64 {
    until("the file's rules", async || {
        page(server, "/v1/rules").await.status == 200 && current(server).await.1 == *expected
    })
    .await;
    current(server).await.0
}

async fn notes(server: &Server) -> Vec<String> {
    let kept: Value = serde_json::from_slice(&page(server, "/v1/rules/versions").await.body).unwrap();
    kept["versions"].as_array().unwrap().iter().map(|kept| kept["note"].as_str().unwrap().into()).collect()
}

/// Number of times that the file was found invalid.
async fn errors(server: &Server) -> String {
    metric(server, "weir_sync_rules_file_errors_total").await.to_string()
}

/// Waits until the server has taken the file's content, new or not.
async fn taken(server: &Server) {
    until("the file to be taken", async || metric(server, "weir_sync_rules_file_applied").await > 0.0).await;
}

/// Waits until both have found it invalid this many times.
async fn both_looked(a: &Server, b: &Server, times: &str) {
    until("both to have looked", async || errors(a).await == times && errors(b).await == times).await;
}

/// A store that is empty may be about to get the file's rules, and one in memory is empty at each start.
#[tokio::test]
async fn a_gateway_waits_for_the_rules_of_the_file() {
    let file = Watched::new("rules:\n- {name: A, rate: fast}\n");
    let server = Server::start(Config { rules_file: Some(file.path()), ..gateway() }).await;
    let decision = async || check(&server, &json!({"address": "192.0.2.1"})).await["decision"].clone();
    until("the file to be found invalid", async || {
        assert_eq!(decision().await, "deny");
        errors(&server).await == "1"
    })
    .await;
    assert_eq!(page(&server, "/readyz").await.status, 503);
    file.write(&yaml("5/h"));
    let (mut allowed, mut is_ready) = (0, false);
    until("all that there is to be used", async || {
        let found = decision().await;
        if found == "deny" {
            assert!(!is_ready, "once it is ready it knows the rules");
        }
        is_ready |= page(&server, "/readyz").await.status == 200;
        allowed += usize::from(found == "allow");
        found == "limit"
    })
    .await;
    assert_eq!((allowed, is_ready), (5, true));
}

#[tokio::test]
async fn a_file_that_several_watch_is_put_once_per_change() {
    let (store, file) = (Shared::new(Config::default().pop_ttl), Watched::new(&yaml("5/s")));
    let a = Server::start_over(file.config(), store.clone()).await;
    let b = Server::start_over(file.config(), store.clone()).await;
    let first = runs(&a, &rules("5/s")).await;
    file.write(&yaml("6/s"));
    assert_eq!(runs(&b, &rules("6/s")).await, first + 1);
    // Both have read the invalid version, so they have read everything before it.
    file.write("rules:\n- {name: A, key: [client_address], rate: fast}\n");
    both_looked(&a, &b, "1").await;
    assert_eq!(current(&a).await, (first + 1, rules("6/s")));
    assert_eq!(notes(&a).await, ["file", "file"]);
    file.write(&yaml("7/s"));
    assert_eq!(runs(&a, &rules("7/s")).await, first + 2);
    fs::remove_file(file.path()).unwrap();
    both_looked(&a, &b, "2").await;
    assert_eq!(current(&b).await, (first + 2, rules("7/s")));
}

#[tokio::test]
async fn an_operators_put_over_a_file_stays() {
    let (store, file) = (Shared::new(Config::default().pop_ttl), Watched::new(&yaml("5/s")));
    let server = Server::start_over(file.config(), store.clone()).await;
    runs(&server, &rules("5/s")).await;
    let version = put(&server, "if-match: *\r\n", &rules("1/s")).await;
    let headers = "content-type: application/json\r\nauthorization: Bearer an-admin-token-of-the-tests\r\n";
    let off = request("PUT", "/v1/enforcement", headers, br#"{"enforce": false}"#);
    assert_eq!(ask(server.address, &off).await.status, 200);
    // Another server starts, and finds the file unchanged.
    let other = Server::start_over(file.config(), store.clone()).await;
    taken(&other).await;
    file.write("[");
    both_looked(&server, &other, "1").await;
    file.write(&yaml("5/s"));
    taken(&server).await;
    taken(&other).await;
    let (now, document) = current(&other).await;
    assert_eq!((now, &document["enforce"]), (version + 1, &json!(false)));
    file.write(&yaml("8/s"));
    assert_eq!(runs(&server, &rules("8/s")).await, version + 2);
}

#[tokio::test]
async fn a_file_waits_for_the_store() {
    let (store, file) = (Shared::new(Config::default().pop_ttl), Watched::new("["));
    let server = Server::start_over(file.config(), store.clone()).await;
    until("the file to be looked at", async || errors(&server).await == "1").await;
    put(&server, "if-none-match: *\r\n", &rules("1/s")).await;
    store.set_gone(true);
    file.write(&yaml("5/s"));
    // The file has most likely been read by then. The test holds either way.
    tokio::time::sleep(Duration::from_millis(1_600)).await;
    assert_eq!(metric(&server, "weir_sync_rules_file_applied").await.to_string(), "0");
    store.set_gone(false);
    runs(&server, &rules("5/s")).await;
}
