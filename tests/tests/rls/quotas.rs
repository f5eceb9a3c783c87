//! Quotas: a client's reports, and its assignments.

use std::time::Duration;

use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::timeout;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status, Streaming};
use weir_gateway::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::bucket_action;
use weir_gateway::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_usage_reports::BucketQuotaUsage;
use weir_gateway::proto::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
};
use weir_gateway::proto::envoy::r#type::v3::TokenBucket;
use weir_gateway::proto::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy};
use weir_tests::client::{Ask, Client};
use weir_tests::redis::Redis;
use weir_tests::wait::until;

use crate::gateway::{DOMAIN, Gateway, descriptor, request};

/// Far above what an answer takes.
const DEADLINE: Duration = Duration::from_mins(2);
/// Long enough for an answer that must not come.
const NOTHING_COMES: Duration = Duration::from_secs(2);

/// A rule of each kind.
fn rules() -> Value {
    json!({
        "deny": [{"path": {"exact": "/never"}}],
        "rules": [
            {"name": "per-user", "key": [{"header": "x-user"}], "rate": "10/s", "burst": 40},
            {"name": "slow", "key": [{"header": "x-slow"}], "rate": "1/m", "burst": 2},
            {"name": "exact", "key": [{"header": "x-exact"}], "rate": "1/h", "burst": 40, "strict": true},
            {"name": "of-the-domain", "key": [{"header": "x-own"}], "rate": "5/s", "burst": 3,
             "match": {"claims": [{"name": ["ratelimit", "domain"], "equals": DOMAIN},
                                  {"name": ["ratelimit", "entries"], "equals": "plan,x-own"}]}},
        ],
    })
}

/// A client's stream.
struct Talk {
    reports: Sender<RateLimitQuotaUsageReports>,
    answers: Streaming<RateLimitQuotaResponse>,
}

/// A bucket's assignment, in short.
#[derive(Clone, Debug, PartialEq)]
enum Assignment {
    Allow,
    Deny,
    /// The most tokens, the tokens per refill, and its interval in seconds.
    Bucket(u32, u32, i64),
}

impl Talk {
    async fn begin(gateway: &Gateway) -> Self {
        let mut client = gateway.quotas().await;
        let (reports, received) = channel(16);
        let received = unfold(received, async |mut received| Some((received.recv().await?, received)));
        let answers = client.stream_rate_limit_quotas(received).await.expect("a stream").into_inner();
        Self { reports, answers }
    }

    async fn report(&self, domain: &str, usages: Vec<BucketQuotaUsage>) {
        let reports = RateLimitQuotaUsageReports { domain: domain.into(), bucket_quota_usages: usages };
        self.reports.send(reports).await.expect("a stream that is open");
    }

    /// The next answer, or what was wrong.
    async fn answer(&mut self) -> Result<Option<RateLimitQuotaResponse>, Status> {
        timeout(DEADLINE, self.answers.message()).await.expect("an answer in time")
    }

    /// The error that ends the stream.
    async fn refusal(&mut self) -> Status {
        loop {
            if let Err(refused) = self.answer().await {
                return refused;
            }
        }
    }

    /// The assignments in the next response, all for this bucket, with the same time to live.
    async fn assigned(&mut self, bucket: &[(&str, &str)]) -> Vec<Assignment> {
        let answer = self.answer().await.expect("an answer").expect("a stream that is open");
        let assignments = answer.bucket_action.into_iter().map(|action| {
            assert_eq!(action.bucket_id, Some(id(bucket)));
            let Some(bucket_action::BucketAction::QuotaAssignmentAction(assigned)) = action.bucket_action else {
                panic!("{action:?}")
            };
            assert_eq!(assigned.assignment_time_to_live.map(|lives| (lives.seconds, lives.nanos)), Some((20, 0)));
            match assigned.rate_limit_strategy.and_then(|it| it.strategy).expect("a strategy") {
                Strategy::BlanketRule(rule) if rule == i32::from(BlanketRule::AllowAll) => Assignment::Allow,
                Strategy::BlanketRule(_) => Assignment::Deny,
                Strategy::TokenBucket(TokenBucket { max_tokens, tokens_per_fill, fill_interval }) => {
                    let interval = fill_interval.expect("an interval");
                    assert_eq!(interval.nanos, 0, "Envoy counts in whole seconds");
                    Assignment::Bucket(max_tokens, tokens_per_fill.expect("tokens"), interval.seconds)
                }
            }
        });
        assignments.collect()
    }
}

fn id(bucket: &[(&str, &str)]) -> BucketId {
    let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    BucketId { bucket: bucket.iter().map(pair).collect() }
}

/// A bucket's usage in a number of seconds.
fn usage(bucket: &[(&str, &str)], seconds: i64, admitted: u64, refused: u64) -> BucketQuotaUsage {
    BucketQuotaUsage {
        bucket_id: Some(id(bucket)),
        time_elapsed: Some(prost_types::Duration { seconds, nanos: 0 }),
        num_requests_allowed: admitted,
        num_requests_denied: refused,
    }
}

#[tokio::test]
async fn a_bucket_is_assigned_the_quota_of_its_rule() {
    let gateway = Gateway::open("memory", &rules()).await;
    for (bucket, expected) in [
        (vec![("x-user", "ada")], vec![Assignment::Bucket(40, 10_000, 1_000)]),
        // Slow ones and strict ones: a token that was let through before, in a bucket that has the next in a year.
        (vec![("x-slow", "ada")], vec![Assignment::Deny, Assignment::Bucket(1, 1, 31_536_000)]),
        (vec![("x-own", "ada"), ("plan", "free")], vec![Assignment::Bucket(3, 5_000, 1_000)]),
        // Another list of entries, and no rule: no quota.
        (vec![("x-own", "ada")], vec![Assignment::Allow]),
        (vec![("path", "/never"), ("x-user", "ada")], vec![Assignment::Deny]),
        (vec![("x-exact", "ada")], vec![Assignment::Deny, Assignment::Bucket(1, 1, 31_536_000)]),
    ] {
        let mut talk = Talk::begin(&gateway).await;
        talk.report(DOMAIN, vec![usage(&bucket, 0, 0, 1)]).await;
        assert_eq!(talk.assigned(&bucket).await, expected, "{bucket:?}");
    }
    // Two clients share a quota, until one closes its stream.
    let bucket = [("x-user", "eve")];
    let (mut one, other) = (Talk::begin(&gateway).await, Talk::begin(&gateway).await);
    for talk in [&one, &other] {
        talk.report(DOMAIN, vec![usage(&bucket, 0, 0, 1)]).await;
    }
    let mut other = Some(other);
    for burst in [20, 40] {
        until("its share", async || {
            matches!(one.assigned(&bucket).await[..], [Assignment::Bucket(most, ..)] if most == burst).then_some(())
        })
        .await;
        drop(other.take());
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_revoked() {
    let gateway = Gateway::open("memory", &rules()).await;
    let bucket = [("x-user", "ada")];
    let (mut busy, mut idle) = (Talk::begin(&gateway).await, Talk::begin(&gateway).await);
    busy.report(DOMAIN, vec![usage(&bucket, 0, 0, 1)]).await;
    assert_eq!(busy.assigned(&bucket).await, [Assignment::Bucket(40, 10_000, 1_000)]);
    gateway.revoke();
    let refused = until("the stream to end", async || {
        busy.report(DOMAIN, vec![usage(&bucket, 1, 1, 0)]).await;
        timeout(Duration::from_millis(200), busy.answers.message()).await.ok()?.err()
    });
    assert_eq!(refused.await.code(), Code::Unauthenticated);
    assert_eq!(idle.answer().await.expect_err("its end").code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_compressed_message_is_refused_with_the_accepted_encodings() {
    let gateway = Gateway::open("memory", &rules()).await;
    let mut request = Request::new(request([descriptor(&[("x-user", "ada")])]));
    request.metadata_mut().insert("grpc-encoding", "gzip".parse().expect("a value"));
    let check = gateway.client().await.should_rate_limit(request).await.expect_err("a refusal");
    let (_reports, received) = channel::<RateLimitQuotaUsageReports>(1);
    let received = unfold(received, async |mut received| Some((received.recv().await?, received)));
    let mut request = Request::new(received);
    request.metadata_mut().insert("grpc-encoding", "gzip".parse().expect("a value"));
    let stream = gateway.quotas().await.stream_rate_limit_quotas(request).await.expect_err("a refusal");
    for refused in [check, stream] {
        let expected = "grpc-encoding: expected `identity`, found \"gzip\"";
        assert_eq!((refused.code(), refused.message()), (Code::Unimplemented, expected));
        let accepted = refused.metadata().get("grpc-accept-encoding").map(MetadataValue::as_bytes);
        assert_eq!(accepted, Some(&b"identity"[..]));
    }
}

#[tokio::test]
async fn reported_usage_counts_in_the_budget() {
    let gateway = Gateway::open("memory", &rules()).await;
    let bucket = [("x-user", "ada")];
    let mut talk = Talk::begin(&gateway).await;
    // It let 100 through in five seconds, as it knew of no limit. The other bucket cannot be counted.
    let bad = [("remote_address", "nowhere"), ("a", "b")];
    talk.report(DOMAIN, vec![usage(&bad, 0, 2, 1), usage(&bucket, 5, 100, 0)]).await;
    let mut client = Client::of_port(gateway.weir_sync.address().port());
    let ask = Ask::new(hyper::Method::POST, "/v1/check").header("content-type", "application/json");
    let ask = ask.header("authorization", &format!("Bearer {}", crate::gateway::TOKEN_OF_CHECKS));
    let ask = ask.body(json!({"headers": {"x-user": "ada"}, "peek": true}).to_string());
    until("the checks to have little left", async || {
        let answer = client.send(&ask).await.json();
        (answer["decision"] == "limit" || answer["remaining"].as_u64() < Some(5)).then_some(())
    })
    .await;
    // More than the quota is asked for, so it gets what is there, less what it had.
    let rate = until("a lower rate", async || match talk.assigned(&bucket).await[..] {
        [Assignment::Bucket(_, refill, 1_000)] => (refill < 9_500).then_some(refill),
        ref other => panic!("{other:?}"),
    })
    .await;
    assert!(rate >= 2_000, "{rate}");
    let page = client.send(&Ask::get("/metrics")).await.text();
    for row in [
        "weir_sync_gateway_quota_streams{region=\"fra\"} 1",
        "weir_sync_gateway_quota_buckets{region=\"fra\"} 1",
        "weir_sync_gateway_checks_total{region=\"fra\",api=\"quota\",decision=\"allow\"} 100",
        "weir_sync_gateway_checks_total{region=\"fra\",api=\"quota\",decision=\"deny\"} 3",
    ] {
        assert!(page.contains(row), "{row} in {page}");
    }
}

#[tokio::test]
async fn an_error_names_its_place() {
    let gateway = Gateway::open("memory", &rules()).await;
    let good = || usage(&[("x-user", "ada")], 0, 1, 0);
    let nameless = BucketQuotaUsage { bucket_id: None, ..good() };
    for (domain, usage, expected) in [
        ("", good(), "domain: expected a text in the first message of a stream, found none"),
        (DOMAIN, nameless, "bucket_quota_usages[1].bucket_id: expected a bucket with at least one pair"),
        (
            DOMAIN,
            usage(&[("x-user", "ada")], -5, 1, 0),
            "bucket_quota_usages[1].time_elapsed: expected no time before now, found -5 s",
        ),
    ] {
        let mut talk = Talk::begin(&gateway).await;
        talk.report(domain, vec![good(), usage]).await;
        let refused = talk.refusal().await;
        assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, expected));
    }
    let mut talk = Talk::begin(&gateway).await;
    talk.report(DOMAIN, vec![good()]).await;
    talk.answer().await.expect("an answer");
    // No domain is the one before.
    talk.report("", vec![good()]).await;
    talk.report("another", vec![good()]).await;
    let refused = talk.refusal().await;
    let expected = "domain: expected `shop` as before, found `another`";
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, expected));
}

#[tokio::test]
async fn a_stream_needs_a_token() {
    let gateway = Gateway::open("memory", &rules()).await;
    for token in [None, Some("another-token-of-the-tests")] {
        let mut client = gateway.quotas_with(token).await;
        let never = futures_util::stream::pending::<RateLimitQuotaUsageReports>();
        let refused = client.stream_rate_limit_quotas(never).await.expect_err("no token");
        assert_eq!(refused.code(), Code::Unauthenticated);
    }
}

#[tokio::test]
async fn streams_end_when_it_drains() {
    let mut gateway = Gateway::open("memory", &rules()).await;
    let mut talk = Talk::begin(&gateway).await;
    talk.report(DOMAIN, vec![usage(&[("x-user", "ada")], 0, 1, 0)]).await;
    talk.answer().await.expect("an answer");
    let ended = async {
        let refused = talk.refusal().await;
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        assert_eq!(refused.message(), "this weir-sync is stopping: expected another one to be asked");
    };
    tokio::join!(gateway.weir_sync.end(), ended);
}

#[tokio::test]
async fn a_strict_rule_without_its_store_is_assigned_nothing() {
    let mut redis = Redis::start().await;
    let gateway = Gateway::open(&redis.url(), &rules()).await;
    redis.kill();
    let mut talk = Talk::begin(&gateway).await;
    talk.report(DOMAIN, vec![usage(&[("x-exact", "ada")], 0, 0, 1)]).await;
    let answer = timeout(NOTHING_COMES, talk.answers.message()).await;
    assert!(answer.is_err(), "{answer:?}");
}
