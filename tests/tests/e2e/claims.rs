//! Claims of a token that Envoy's JWT filter has checked before.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Host, Setup};
use weir_tests::load::repeat;

use crate::plugin::rules;

/// The key that signs tokens.
const SECRET: &[u8] = b"a secret of the tests, of 32 bytes or more";

/// A token (RFC 7519) with these claims, signed (RFC 7515, HS256), which never expires.
fn token(claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let mut claims = claims.clone();
    claims["iss"] = json!("https://tests.example");
    let signed = format!("{}.{}", part(&json!({"alg": "HS256", "typ": "JWT"})), part(&claims));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Envoy's JWT filter: a token may be missing; one that is there must be good, and its claims are `payload`.
fn jwt_filter() -> Value {
    let key = json!({"kty": "oct", "alg": "HS256", "k": URL_SAFE_NO_PAD.encode(SECRET)});
    json!({"name": "jwt", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
        "providers": {"tests": {
            "issuer": "https://tests.example",
            "local_jwks": {"inline_string": json!({"keys": [key]}).to_string()},
            "payload_in_metadata": "payload",
        }},
        "rules": [{"match": {"prefix": "/"}, "requires": {"requires_any": {
            "requirements": [{"provider_name": "tests"}, {"allow_missing": {}}],
        }}}],
    }})
}

/// Envoy gives a module no claims, which are values inside of another: whatever the host of the other tests is,
/// this is the wasm.
async fn edge(rule_set: impl Into<Vec<Value>>) -> Envoy {
    Envoy::start(Setup::with(rules(rule_set)).host(Host::Wasm).before(jwt_filter())).await
}

/// A request with a token of these claims.
fn ask(path: &str, claims: &Value) -> Ask {
    Ask::get(path).header("authorization", &format!("Bearer {}", token(claims)))
}

#[tokio::test]
async fn a_rule_counts_each_subject_for_itself() {
    let key = json!([{"jwt_claim": ["payload", "sub"]}]);
    let edge = edge([json!({"name": "by-subject", "key": key, "rate": "1/h", "burst": 3})]).await;
    let mut client = edge.client();
    for sub in ["alice", "bob"] {
        // Whatever other claims its token has.
        let one = repeat(&mut client, &ask("/", &json!({"sub": sub})), 2).await;
        let other = repeat(&mut client, &ask("/", &json!({"sub": sub, "jti": "2"})), 8).await;
        assert_eq!((one.admitted(), other.admitted(), other.limited()), (2, 1, 7), "{sub}");
    }
    // A request without a token has no subject, and a forged one does not pass the filter before.
    assert_eq!(repeat(&mut client, &Ask::get("/"), 9).await.admitted(), 9);
    let forged = Ask::get("/").header("authorization", &format!("Bearer {}x", token(&json!({"sub": "eve"}))));
    assert_eq!(client.send(&forged).await.status, 401);
}

/// The values that a token's claims are compared with, whatever they are in the token.
#[tokio::test]
async fn conditions_test_claims_of_every_kind() {
    let claims = json!({
        "plan": "gold", "level": 3, "ratio": 0.5, "admin": true, "eight": "12345678",
        "org": {"id": "acme"}, "roles": ["dev", "ops"], "nothing": null,
    });
    let name = |names: &[&str]| json!([&["payload"], names].concat());
    let cases = [
        (json!({"name": name(&["plan"]), "equals": "gold"}), true),
        (json!({"name": name(&["plan"]), "in": ["silver", "gold"]}), true),
        (json!({"name": name(&["plan"]), "prefix": "go"}), true),
        (json!({"name": name(&["plan"]), "regex": "^g.*d$"}), true),
        (json!({"name": name(&["plan"]), "equals": "silver"}), false),
        (json!({"name": name(&["level"]), "equals": "3"}), true),
        (json!({"name": name(&["level"]), "equals": "4"}), false),
        (json!({"name": name(&["ratio"]), "equals": "0.5"}), true),
        (json!({"name": name(&["admin"]), "equals": "true"}), true),
        (json!({"name": name(&["eight"]), "equals": "12345678"}), true),
        (json!({"name": name(&["org", "id"]), "equals": "acme"}), true),
        (json!({"name": name(&["roles", "1"]), "equals": "ops"}), true),
        (json!({"name": name(&["roles", "2"]), "present": false}), true),
        (json!({"name": name(&["roles"]), "present": true}), true),
        (json!({"name": name(&["nothing"]), "present": false}), true),
        (json!({"name": name(&["absent"]), "present": false}), true),
        (json!({"name": name(&["absent", "below"]), "present": true}), false),
    ];
    let rule = |(i, (test, _)): (usize, &(Value, bool))| {
        let matching = json!({"path": {"exact": format!("/{i}")}, "claims": [test]});
        json!({"name": format!("r{i}"), "match": matching, "key": ["all"], "rate": "1/h"})
    };
    let edge = edge(cases.iter().enumerate().map(rule).collect::<Vec<_>>()).await;
    let mut client = edge.client();
    for (i, (test, holds)) in cases.iter().enumerate() {
        let tally = repeat(&mut client, &ask(&format!("/{i}"), &claims), 4).await;
        assert_eq!((tally.admitted(), tally.limited()), if *holds { (1, 3) } else { (4, 0) }, "{test}");
    }
}
