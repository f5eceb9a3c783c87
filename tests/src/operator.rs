//! An operator's calls to a weir-sync: other rules, all rules off, the rules that were, the rules of each POP.

use hyper::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Ask, Client};
use crate::weir_sync::{ADMIN_TOKEN, WeirSync};

/// An operator with the admin token of a weir-sync.
pub struct Operator(Client);

impl Operator {
    /// That of `weir_sync`.
    pub fn of(weir_sync: &WeirSync) -> Self {
        Self(Client::of_port(weir_sync.address().port()))
    }

    /// `GET` of `path`.
    pub async fn get(&mut self, path: &str) -> Answer {
        self.send(Ask::get(path)).await
    }

    /// Resets the key that `value` names, percent-encoded, under the rule.
    pub async fn reset(&mut self, rule: &str, value: &str) {
        let answer = self.send(Ask::new(Method::DELETE, &format!("/v1/keys/{rule}/{value}"))).await;
        assert_eq!(answer.status, 200, "it was not reset: {answer:?}");
    }

    /// Puts `document` over whatever is there.
    pub async fn put(&mut self, document: &Value) -> Answer {
        let ask = Ask::new(Method::PUT, "/v1/rules").header("content-type", "application/json");
        let ask = match self.get("/v1/rules").await.status {
            200 => ask.header("if-match", "*"),
            _ => ask.header("if-none-match", "*"),
        };
        self.send(ask.body(document.to_string())).await
    }

    /// The same of a document that is good; its version.
    pub async fn put_good(&mut self, document: &Value) -> u64 {
        version_in(&self.put(document).await)
    }

    /// Switches all rules on or off; returns the version.
    pub async fn enforce(&mut self, enforce: bool) -> u64 {
        let ask = Ask::new(Method::PUT, "/v1/enforcement").header("content-type", "application/json");
        version_in(&self.send(ask.body(json!({"enforce": enforce}).to_string())).await)
    }

    /// Takes the kept version `to` up again; returns the new version.
    pub async fn roll_back(&mut self, to: u64) -> u64 {
        let ask = Ask::new(Method::POST, "/v1/rules/rollback").header("content-type", "application/json");
        let ask = ask.header("if-match", "*").body(json!({"version": to}).to_string());
        version_in(&self.send(ask).await)
    }

    /// Puts an override to `path`, which must be taken; what it is.
    pub async fn order(&mut self, path: &str, body: &Value) -> Value {
        let ask = Ask::new(Method::PUT, path).header("content-type", "application/json");
        let answer = self.send(ask.body(body.to_string())).await;
        assert_eq!(answer.status, 200, "it was not taken: {answer:?}");
        answer.json()
    }

    /// Lifts the override at `path`.
    pub async fn lift(&mut self, path: &str) {
        let answer = self.send(Ask::new(Method::DELETE, path)).await;
        assert_eq!(answer.status, 200, "it was not lifted: {answer:?}");
    }

    /// Puts `document` for the POPs that `query` names, as a canary.
    pub async fn begin_canary(&mut self, query: &str, document: &Value) {
        let ask = Ask::new(Method::PUT, &format!("/v1/rules?{query}")).header("content-type", "application/json");
        let answer = self.send(ask.header("if-match", "*").body(document.to_string())).await;
        assert_eq!(answer.status, 201, "it did not begin: {answer:?}");
    }

    /// Makes the canary the rule set of all POPs; returns the new version.
    pub async fn promote_canary(&mut self) -> u64 {
        let ask = Ask::new(Method::POST, "/v1/rules/canary/promote").header("if-match", "*");
        version_in(&self.send(ask).await)
    }

    /// Takes the canary back.
    pub async fn withdraw_canary(&mut self) {
        let answer = self.send(Ask::new(Method::DELETE, "/v1/rules/canary")).await;
        assert_eq!(answer.status, 200, "it was not withdrawn: {answer:?}");
    }

    /// The current revision, and the name of each POP with the version it runs, by name.
    pub async fn fleet(&mut self) -> (u64, Vec<(String, u64)>) {
        let page = self.get("/v1/fleet").await.json();
        let pops = page["pops"].as_array().cloned().unwrap_or_default();
        let row = |pop: &Value| (pop["name"].as_str().unwrap_or_default().into(), number(&pop["version"]));
        (number(&page["version"]), pops.iter().map(row).collect())
    }

    async fn send(&mut self, ask: Ask) -> Answer {
        self.0.send(&ask.header("authorization", &format!("Bearer {ADMIN_TOKEN}"))).await
    }
}

fn version_in(answer: &Answer) -> u64 {
    assert!([200, 201].contains(&answer.status), "it was not changed: {answer:?}");
    number(&answer.json()["version"])
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no version: {value}"))
}
