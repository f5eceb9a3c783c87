//! A limit that callers name is one limit, whichever weir-sync they ask; and descriptors bring limits of their own.

use std::fs;

use futures_util::future::join_all;
use hyper::Method;
use serde_json::json;
use weir_gateway::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir_gateway::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use weir_gateway::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir_gateway::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use weir_gateway::proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use weir_tests::client::{Ask, Client};
use weir_tests::redis::Redis;
use weir_tests::wait::until;
use weir_tests::weir_sync::WeirSync;

use crate::answers::rules;
use crate::gateway::{self, Gateway, ask, descriptor, request};

const TOKEN: &str = "a-token-for-limits-of-the-tests";
/// The limit, in a window in which hardly any comes back.
const LIMIT: usize = 60;
const WINDOW_MS: u32 = 86_400_000;

/// The number of checks that a weir-sync lets through, asked one after the other.
async fn allowed(weir_sync: &WeirSync, count: usize) -> usize {
    let mut client = Client::of_port(weir_sync.address().port());
    let ask = Ask::new(Method::POST, "/ratelimit/check").header("content-type", "application/json");
    let ask = ask.header("authorization", &format!("Bearer {TOKEN}"));
    let ask = ask.body(json!({"key": "job:7", "limit": LIMIT, "window_ms": WINDOW_MS}).to_string());
    let mut allowed = 0;
    for _ in 0..count {
        let answer = client.send(&ask).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        allowed += usize::from(answer.json()["allowed"] == true);
    }
    allowed
}

#[tokio::test]
async fn two_regions_share_a_limit_named_by_the_caller() {
    let redis = Redis::start().await;
    let tokens = tempfile::NamedTempFile::new().expect("a file");
    fs::write(tokens.path(), format!("jobs limit {TOKEN}\n")).expect("a file that can be written");
    let path = tokens.path().to_str().expect("a path");
    let arguments = ["--gateway", "on", "--check-token-file", path];
    let mut two = Vec::new();
    for region in ["fra", "nyc"] {
        let weir_sync = WeirSync::start_with(region, &redis.url(), &arguments).await;
        until("it to be ready", async || (weir_sync.status_of("/readyz").await == Some(200)).then_some(())).await;
        two.push(weir_sync);
    }
    // Four callers at each, who ask at once.
    let asked = (0..8).map(|caller| allowed(&two[caller % 2], LIMIT / 4));
    let allowed: usize = join_all(asked).await.into_iter().sum();
    assert_eq!(allowed, LIMIT);
}

/// A descriptor of a user, with a limit of requests a year.
fn of_user(user: &str, requests_per_unit: u32, hits_addend: Option<u64>) -> RateLimitDescriptor {
    let limit = Some(RateLimitOverride { requests_per_unit, unit: Unit::Year.into(), unit_multiplier: None });
    RateLimitDescriptor { limit, hits_addend, ..descriptor(&[("x-user", user)]) }
}

/// The status of one descriptor.
async fn status(client: &mut gateway::Client, of: RateLimitDescriptor) -> DescriptorStatus {
    let answer = ask(client, request([of])).await;
    answer.statuses.into_iter().next().expect("a status")
}

// I6
#[tokio::test]
async fn a_descriptor_may_bring_its_own_limit() {
    let mut redis = Redis::start().await;
    let gateway = Gateway::open_for("check,limit", &redis.url(), &rules()).await;
    let mut client = gateway.client().await;
    for left in [2, 1, 0] {
        let status = status(&mut client, of_user("ann", 3, None)).await;
        assert_eq!((status.code(), status.limit_remaining), (Code::Ok, left));
        let limit = status.current_limit.expect("the limit");
        assert_eq!((limit.requests_per_unit, limit.unit(), limit.name.as_str()), (3, Unit::Year, ""));
        assert!(status.duration_until_reset.expect("when the window ends").seconds > 0);
    }
    let refused = ask(&mut client, request([of_user("ann", 3, None), descriptor(&[("x-user", "ann")])])).await;
    assert_eq!(refused.overall_code(), Code::OverLimit);
    assert_eq!((refused.statuses[0].code(), refused.statuses[0].limit_remaining), (Code::OverLimit, 0));
    let header = &refused.response_headers_to_add[0];
    assert_eq!(header.key, "retry-after");
    let until_reset = refused.statuses[0].duration_until_reset.expect("when the window ends").seconds;
    assert!(header.value.parse::<i64>().expect("seconds").abs_diff(until_reset) <= 1, "{refused:?}");
    // The rules count the other descriptor, and were not asked about the first.
    assert_eq!((refused.statuses[1].code(), refused.statuses[1].limit_remaining), (Code::Ok, 9));

    let asked = RateLimitRequest { hits_addend: u32::MAX, ..request([of_user("bob", 3, None)]) };
    let refused = ask(&mut client, asked).await.statuses;
    assert_eq!((refused[0].code(), refused[0].limit_remaining), (Code::OverLimit, 3), "more hits than the limit");

    let mut code_and_left = async |of| {
        let status = status(&mut client, of).await;
        (status.code(), status.limit_remaining)
    };
    assert_eq!(code_and_left(of_user("ann", 5, None)).await, (Code::Ok, 1), "three and one were counted");
    assert_eq!(code_and_left(of_user("ann", 5, Some(0))).await, (Code::Ok, 1), "it only asked");
    assert_eq!(code_and_left(of_user("ann", 5, None)).await, (Code::Ok, 0));
    assert_eq!(code_and_left(of_user("ann", 5, Some(0))).await, (Code::OverLimit, 0));
    assert_eq!(code_and_left(of_user("bob", 3, Some(3))).await, (Code::Ok, 0));
    assert_eq!(code_and_left(of_user("eve", 0, None)).await, (Code::OverLimit, 0));
    // What has happened is booked, though it does not fit; and some of it is given back.
    assert_eq!(code_and_left(of_user("dan", 4, Some(3))).await, (Code::Ok, 1));
    assert_eq!(code_and_left(of_user("dan", 4, Some(100))).await, (Code::OverLimit, 0));
    assert_eq!(code_and_left(of_user("dan", 200, Some(0))).await, (Code::Ok, 97));
    let back = |hits| RateLimitDescriptor { is_negative_hits: true, ..of_user("dan", 200, Some(hits)) };
    assert_eq!(code_and_left(back(2)).await, (Code::Ok, 99));
    assert_eq!(code_and_left(back(1_000_000)).await, (Code::Ok, 200), "never more than there is");
    redis.kill();
    let refused =
        until("a check that fails", async || client.should_rate_limit(request([of_user("ann", 9, None)])).await.err())
            .await;
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused}");
}

#[tokio::test]
async fn a_limit_may_be_for_several_units() {
    let mut redis = Redis::start().await;
    let gateway = Gateway::open_for("check,limit", &redis.url(), &rules()).await;
    let mut client = gateway.client().await;
    // Ten days: a window that does not end while the test runs, unless it began ten days ago to the second.
    let of = |units| {
        let unit_multiplier = Some(units);
        let limit = Some(RateLimitOverride { requests_per_unit: 2, unit: Unit::Day.into(), unit_multiplier });
        RateLimitDescriptor { limit, ..descriptor(&[("x-user", "ann")]) }
    };
    let first = status(&mut client, of(10)).await;
    let limit = first.current_limit.expect("the limit");
    assert_eq!((limit.requests_per_unit, limit.unit(), limit.unit_multiplier), (2, Unit::Day, Some(10)));
    let left_s = first.duration_until_reset.expect("when the window ends").seconds;
    let unix_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
    let expected_s = 864_000 - unix_s % 864_000;
    assert!(left_s.unsigned_abs().abs_diff(expected_s) <= 60, "{left_s} is not {expected_s}");
    assert_eq!(status(&mut client, of(10)).await.code(), Code::Ok);
    assert_eq!(status(&mut client, of(10)).await.code(), Code::OverLimit);
    assert_eq!(status(&mut client, of(3)).await.code(), Code::Ok, "another window is another count");
    redis.kill();
}

#[tokio::test]
async fn a_callers_limit_needs_a_token_for_limits() {
    let gateway = Gateway::open("memory", &rules()).await;
    let asked = request([descriptor(&[("a", "1")]), of_user("ann", 3, None)]);
    let refused = gateway.client().await.should_rate_limit(asked).await.expect_err("a token for checks");
    assert_eq!(refused.code(), tonic::Code::PermissionDenied);
    let expected = "descriptors[1].limit: expected none, or a token with the role `limit` in check_token_file";
    assert_eq!(refused.message(), expected);
}
