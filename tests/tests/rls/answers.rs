//! Responses: every field of a request has its effect, and every field of a response is set.

use serde_json::{Value, json};
use weir_gateway::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir_gateway::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use weir_gateway::proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use weir_gateway::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

use crate::gateway::{Gateway, ask, descriptor, request};

/// A rule for each part of a descriptor.
pub(crate) fn rules() -> Value {
    let response = json!({"on_allowed": true});
    json!({"rules": [
        {"name": "per-user", "match": {"headers": [{"name": "x-user", "present": true}]}, "key": [{"header": "x-user"}],
         "rate": "10/h", "burst": 10, "response": response},
        {"name": "per-address", "match": {"path": {"exact": "/login"}, "methods": ["POST"], "hosts": ["shop.example"]},
         "key": ["client_address"], "rate": "3/m", "burst": 3},
    ]})
}

fn codes(response: &RateLimitResponse) -> Vec<Code> {
    response.statuses.iter().map(DescriptorStatus::code).collect()
}

fn header<'a>(response: &'a RateLimitResponse, name: &str) -> &'a str {
    let found = response.response_headers_to_add.iter().find(|header| header.key == name);
    found.map_or("", |header| &header.value)
}

#[tokio::test]
async fn every_field_of_a_response_follows_from_the_decision() {
    let gateway = Gateway::open("memory", &rules()).await;
    let mut client = gateway.client().await;
    let user = descriptor(&[("x-user", "ada")]);
    let login = descriptor(&[
        ("remote_address", "203.0.113.7"),
        ("method", "POST"),
        ("host", "shop.example"),
        ("path", "/login"),
    ]);
    let other = descriptor(&[("database", "users")]);
    let both = request([user.clone(), login.clone(), other]);
    let first = ask(&mut client, both.clone()).await;
    assert_eq!((first.overall_code(), codes(&first)), (Code::Ok, vec![Code::Ok; 3]));
    let [of_user, of_login, of_other] = &first.statuses[..] else { panic!("{first:?}") };
    let limit = of_user.current_limit.clone().expect("the limit of an hour");
    assert_eq!((limit.name.as_str(), limit.requests_per_unit, limit.unit()), ("per-user", 10, Unit::Hour));
    assert_eq!((of_user.limit_remaining, of_login.limit_remaining), (9, 2));
    let reset = of_login.duration_until_reset.expect("when it is whole again").seconds;
    assert!((1..=20).contains(&reset), "{reset}");
    assert_eq!((&of_other.current_limit, of_other.duration_until_reset), (&None, None));
    assert!(first.raw_body.is_empty() && first.request_headers_to_add.is_empty());
    // The login has least left, but its rule is silent when it allows, and hides no other.
    assert!(header(&first, "ratelimit").starts_with(r#""per-user";r=9"#), "{first:?}");
    let of_user_alone = ask(&mut client, request([user])).await;
    assert!(header(&of_user_alone, "ratelimit").contains("per-user"), "{of_user_alone:?}");

    for _ in 0..2 {
        assert_eq!(ask(&mut client, request([login.clone()])).await.overall_code(), Code::Ok);
    }
    let refused = ask(&mut client, both).await;
    assert_eq!((refused.overall_code(), codes(&refused)), (Code::OverLimit, vec![Code::Ok, Code::OverLimit, Code::Ok]));
    let wait: u64 = header(&refused, "retry-after").parse().expect("seconds");
    assert!((1..=20).contains(&wait), "{refused:?}");
    assert_eq!(refused.statuses[1].limit_remaining, 0);
    let body: Value = serde_json::from_slice(&refused.raw_body).expect("a problem");
    assert_eq!(body["status"], 429);
    assert_eq!(header(&refused, "content-type"), "application/problem+json");
    assert_eq!(refused.dynamic_metadata, None);
}

#[tokio::test]
async fn hits_count_for_the_request_and_for_each_descriptor() {
    let gateway = Gateway::open("memory", &rules()).await;
    let mut client = gateway.client().await;
    let user = |name: &str, hits_addend| RateLimitDescriptor { hits_addend, ..descriptor(&[("x-user", name)]) };
    let left = async |client: &mut _, hits_addend, descriptors: Vec<RateLimitDescriptor>| {
        let asked = RateLimitRequest { hits_addend, ..request(descriptors) };
        let answer = ask(client, asked).await;
        answer.statuses.iter().map(|status| status.limit_remaining).collect::<Vec<_>>()
    };
    assert_eq!(left(&mut client, 0, vec![user("ada", None)]).await, [9]);
    assert_eq!(left(&mut client, 3, vec![user("ada", None), user("bob", Some(2))]).await, [6, 8]);
    for _ in 0..2 {
        assert_eq!(left(&mut client, 3, vec![user("ada", Some(0))]).await, [5], "as if one were taken");
    }
    let over = RateLimitRequest { hits_addend: 7, ..request([user("ada", None)]) };
    assert_eq!(ask(&mut client, over).await.overall_code(), Code::OverLimit);
    assert_eq!(left(&mut client, 6, vec![user("ada", None)]).await, [0], "what was refused took nothing");
    let asked = ask(&mut client, request([user("ada", Some(0))])).await;
    assert_eq!(asked.overall_code(), Code::OverLimit, "nothing is left for one more");
}
