//! Charges: a charge that does not fit is debt, and a negative descriptor is refunded, by every kind of rule.

use hyper::Method;
use prost::Message as _;
use serde_json::{Value, json};
use weir_gateway::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir_gateway::proto::envoy::service::rate_limit_quota::v3::RateLimitQuotaUsageReports;
use weir_gateway::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir_gateway::proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use weir_tests::client::{Ask, Client as HttpClient};
use weir_tests::redis::Redis;

use crate::gateway::{Client, DOMAIN, Gateway, TOKEN_OF_CHECKS, ask, descriptor, request};

/// Ten tokens, of which none comes back while a test runs: by each algorithm that can be charged, shared exactly or
/// not.
fn rules() -> Value {
    let rule = |name: &str, more: Value| {
        let mut rule = json!({"name": name, "match": {"headers": [{"name": "x-rule", "equals": name}]},
            "key": [{"header": "x-user"}], "rate": "10/d", "burst": 10});
        for (field, value) in more.as_object().expect("fields") {
            rule[field] = value.clone();
        }
        rule
    };
    let windows = |algorithm: &str, strict| json!({"algorithm": algorithm, "strict": strict, "burst": null});
    let mut rules = vec![
        rule("bucket", json!({})),
        rule("strict", json!({"strict": true})),
        rule("after", json!({"cost": {"after": {"header": "x-tokens"}}})),
        rule("queue", json!({"algorithm": "leaky_bucket", "burst": null})),
    ];
    for algorithm in ["fixed_window", "sliding_window", "sliding_log"] {
        rules.push(rule(algorithm, windows(algorithm, false)));
        rules.push(rule(&format!("strict_{algorithm}"), windows(algorithm, true)));
    }
    for rule in &mut rules {
        rule.as_object_mut().expect("a rule").retain(|_, value| !value.is_null());
    }
    json!({"rules": rules})
}

const RULES: [&str; 9] = [
    "bucket",
    "strict",
    "after",
    "fixed_window",
    "strict_fixed_window",
    "sliding_window",
    "strict_sliding_window",
    "sliding_log",
    "strict_sliding_log",
];

fn hits(rule: &str, user: &str, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&[("x-rule", rule), ("x-user", user)]) }
}

fn back(rule: &str, user: &str, tokens: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { is_negative_hits: true, ..hits(rule, user, tokens) }
}

async fn code(client: &mut Client, descriptor: RateLimitDescriptor) -> Code {
    ask(client, request([descriptor])).await.overall_code()
}

/// The number of twelve requests that pass, which ask first and state their cost afterwards.
async fn passed(client: &mut Client, rule: &str, user: &str, cost: u64) -> usize {
    let mut passed = 0;
    for _ in 0..12 {
        if code(client, hits(rule, user, 0)).await == Code::Ok {
            code(client, hits(rule, user, cost)).await;
            passed += 1;
        }
    }
    passed
}

#[tokio::test]
async fn a_charge_may_become_debt() {
    let redis = Redis::start().await;
    let gateway = Gateway::open(&redis.url(), &rules()).await;
    let mut client = gateway.client().await;
    for rule in RULES {
        assert_eq!(passed(&mut client, rule, "ada", 3).await, 4, "{rule}: ten tokens at three each");
        assert_eq!(passed(&mut client, rule, "bob", 100).await, 1, "{rule}: one that costs more than there is");
        // All of them were let in before the first stated its cost.
        for _ in 0..4 {
            assert_eq!(code(&mut client, hits(rule, "eve", 0)).await, Code::Ok, "{rule}");
        }
        for _ in 0..4 {
            code(&mut client, hits(rule, "eve", 4)).await;
        }
        // A log has no room for more than its limit.
        let owed = if rule.ends_with("sliding_log") { 10 } else { 16 };
        code(&mut client, back(rule, "eve", owed - 10)).await;
        assert_eq!(code(&mut client, hits(rule, "eve", 0)).await, Code::OverLimit, "{rule}: 16 were charged");
    }
}

#[tokio::test]
async fn negative_hits_refund_at_most_the_burst() {
    let redis = Redis::start().await;
    let gateway = Gateway::open(&redis.url(), &rules()).await;
    let mut client = gateway.client().await;
    // Of a rule that is not strict the fleet keeps what was reported as taken: three are too few to be.
    for rule in ["bucket", "after"] {
        assert_eq!(code(&mut client, hits(rule, "ada", 3)).await, Code::Ok, "{rule}");
        assert_eq!(code(&mut client, back(rule, "ada", 3)).await, Code::Ok, "{rule}");
        assert_eq!(passed(&mut client, rule, "ada", 1).await, 10, "{rule}");
    }
    for rule in RULES.into_iter().filter(|rule| !["bucket", "after"].contains(rule)) {
        for _ in 0..10 {
            assert_eq!(code(&mut client, hits(rule, "ada", 1)).await, Code::Ok, "{rule}");
        }
        assert_eq!(code(&mut client, hits(rule, "ada", 0)).await, Code::OverLimit, "{rule}");
        assert_eq!(code(&mut client, back(rule, "ada", 2)).await, Code::Ok, "{rule}");
        let passes = passed(&mut client, rule, "ada", 1).await;
        assert_eq!(passes, 2, "{rule}: two came back");
        // One hit of the request, by default.
        let one = RateLimitDescriptor { hits_addend: None, ..back(rule, "ada", 1) };
        assert_eq!(code(&mut client, one).await, Code::Ok);
        assert_eq!(passed(&mut client, rule, "ada", 1).await, 1, "{rule}");
        assert_eq!(code(&mut client, back(rule, "ada", 1_000)).await, Code::Ok);
        // What a check that only asked has acquired comes back by itself.
        let whole = passed(&mut client, rule, "ada", 1).await;
        assert!((9..=10).contains(&whole), "{rule}: it is whole, and no more than that: {whole}");
    }
}

#[tokio::test]
async fn queue_places_are_not_refunded() {
    let gateway = Gateway::open("memory", &rules()).await;
    let refused = gateway.client().await.should_rate_limit(request([back("queue", "ada", 1)])).await;
    let refused = refused.expect_err("turns pass");
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert_eq!(
        refused.message(),
        "descriptors[0].is_negative_hits: expected none, as the rule queue counts turns or requests in flight, which \
         do not come back"
    );
}

#[tokio::test]
async fn hits_beyond_the_burst_consume_nothing() {
    let gateway = Gateway::open("memory", &rules()).await;
    let mut client = gateway.client().await;
    for rule in ["bucket", "fixed_window", "sliding_window", "sliding_log"] {
        let of = |hits_addend| {
            let asked = descriptor(&[("x-rule", rule), ("x-user", "ada")]);
            RateLimitRequest { hits_addend, ..request([asked]) }
        };
        let status = async |client: &mut Client, hits| -> DescriptorStatus {
            ask(client, of(hits)).await.statuses.pop().expect("a status")
        };
        let refused = status(&mut client, u32::MAX).await;
        assert_eq!((refused.code(), refused.limit_remaining), (Code::OverLimit, 10), "{rule}");
        assert_eq!(refused.duration_until_reset.expect("a time").seconds, 0, "{rule}: it is whole");
        assert_eq!(status(&mut client, 4).await.limit_remaining, 6, "{rule}");
        let refused = status(&mut client, 7).await;
        assert_eq!((refused.code(), refused.limit_remaining), (Code::OverLimit, 6), "{rule}");
        let reset_s = refused.duration_until_reset.expect("a time").seconds;
        assert!((1..=2 * 86_400).contains(&reset_s), "{rule}: {reset_s}");
        assert_eq!(status(&mut client, 6).await.code(), Code::Ok, "{rule}: what was refused took nothing");
    }
}

/// The status of a call with this message, and its text.
async fn status_of(http: &mut HttpClient, method: &str, message: &[u8]) -> (String, String) {
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    let asked = Ask::new(Method::POST, &format!("/envoy.service.{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", &format!("Bearer {TOKEN_OF_CHECKS}"))
        .body([&[0], &length[..], message].concat());
    let answer = http.send(&asked).await;
    (answer.header("grpc-status").to_owned(), answer.header("grpc-message").replace("%20", " "))
}

// I9
#[tokio::test]
async fn an_unknown_field_is_refused_by_its_number() {
    let gateway = Gateway::open("memory", &rules()).await;
    let mut http = HttpClient::of_port(gateway.address.port()).over_http2();
    let check = request([descriptor(&[("x-rule", "bucket")])]).encode_to_vec();
    let quotas = RateLimitQuotaUsageReports { domain: DOMAIN.into(), ..Default::default() }.encode_to_vec();
    for (method, known) in [
        ("ratelimit.v3.RateLimitService/ShouldRateLimit", check),
        ("rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas", quotas),
    ] {
        assert_ne!(status_of(&mut http, method, &known).await.0, "3");
        // Number 15, as a later caller might send it: a varint.
        let (code, message) = status_of(&mut http, method, &[&known[..], &[15 << 3, 1]].concat()).await;
        assert_eq!((&*code, &*message), ("3", "expected the fields of Envoy 1.40, found number 15"));
    }
}
