//! Health, and its end.

use std::future::poll_fn;
use std::time::Duration;

use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use hyper::{Method, Request};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use weir_tests::client::{Ask, Client as HttpClient};
use weir_tests::redis::Redis;
use weir_tests::wait::until;

use crate::answers::rules;
use crate::gateway::{Client, Gateway, descriptor, request};

/// Health of a gateway that serves.
pub(crate) const SERVING: i32 = ServingStatus::Serving as i32;
/// More than a message may take.
const DEADLINE: Duration = Duration::from_mins(2);
const NOT_SERVING: i32 = ServingStatus::NotServing as i32;
const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
const QUOTAS: &str = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService";

/// Health of `service`.
pub(crate) async fn status(channel: &Channel, service: &str) -> i32 {
    let request = HealthCheckRequest { service: service.into() };
    let answer = HealthClient::new(channel.clone()).check(request).await;
    answer.map_or(0, |answer| answer.into_inner().status)
}

#[tokio::test]
async fn health_follows_the_store() {
    let mut redis = Redis::start().await;
    let gateway = Gateway::open(&redis.url(), &rules()).await;
    let channel = gateway.channel().await;
    for service in ["", SERVICE, QUOTAS] {
        assert_eq!(status(&channel, service).await, SERVING, "{service}");
    }
    redis.kill();
    until("the gateway to stop serving", async || {
        let both = [status(&channel, SERVICE).await, status(&channel, QUOTAS).await];
        (both == [NOT_SERVING; 2]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_health_watch_ends_with_the_server() {
    let mut gateway = Gateway::open("memory", &rules()).await;
    let mut client = HealthClient::new(gateway.channel().await);
    let request = HealthCheckRequest { service: SERVICE.into() };
    let mut watched = client.watch(request).await.expect("a stream").into_inner();
    let mut next = async || watched.message().await.expect("no error").map(|answer| answer.status);
    assert_eq!(next().await, Some(SERVING));
    let watching = async {
        assert_eq!(next().await, Some(NOT_SERVING));
        assert_eq!(next().await, None);
    };
    tokio::join!(gateway.weir_sync.end(), watching);
}

#[tokio::test]
async fn health_checks_are_bounded() {
    let gateway = Gateway::open("memory", &rules()).await;
    let channel = gateway.channel().await;
    let mut health = HealthClient::new(channel.clone());
    let asked = |service: &str| HealthCheckRequest { service: service.into() };
    let long = health.check(asked(&"x".repeat(2_000))).await.expect_err("a long name");
    let expected = "expected a message of at most 1024 bytes";
    assert_eq!((long.code(), long.message()), (Code::InvalidArgument, expected));
    let mut http = HttpClient::of_port(gateway.address.port()).over_http2();
    for (bytes, status) in [(7_000, 200), (8_192, 431)] {
        let head = Ask::new(Method::POST, "/grpc.health.v1.Health/Check").header("x", &"x".repeat(bytes));
        assert_eq!(http.send(&head.header("content-type", "application/grpc")).await.status, status, "{bytes} bytes");
    }

    let mut watched = Vec::new();
    let refused = loop {
        match health.watch(asked(SERVICE)).await {
            Ok(stream) => watched.push(stream),
            Err(refused) => break refused,
        }
        assert!(watched.len() < 100, "so many streams that nobody pays for");
    };
    assert_eq!((refused.code(), watched.len()), (Code::ResourceExhausted, 4), "{refused}");
    assert_eq!(status(&channel, SERVICE).await, SERVING);
    watched.pop();
    until("the place to be free again", async || health.watch(asked(SERVICE)).await.ok()).await;
}

#[tokio::test]
async fn an_endless_message_is_cut_off() {
    let gateway = Gateway::open("memory", &rules()).await;
    let mut channel = gateway.channel().await;
    poll_fn(|cx| channel.poll_ready(cx)).await.expect("a connection");
    let never = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Status>>());
    let asked = Request::post("/grpc.health.v1.Health/Check").header("content-type", "application/grpc");
    let asked = channel.call(asked.body(Body::new(never)).expect("a request"));
    let answer = timeout(DEADLINE, asked).await.expect("an answer in time").expect("an answer");
    let status = Status::from_header_map(answer.headers()).expect("a status");
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
}

#[tokio::test]
async fn responses_carry_the_drain_header_while_it_drains() {
    let mut gateway = Gateway::open("memory", &rules()).await;
    let (mut before, address) = (gateway.client().await, gateway.address);
    let asked = || request([descriptor(&[("x-user", "ada")])]);
    let sent_away = async |client: &mut Client| {
        let answer = client.should_rate_limit(asked()).await.ok()?;
        let header = answer.metadata().get("x-envoy-immediate-health-check-fail")?.to_str().ok()?.to_owned();
        Some(header)
    };
    assert_eq!(sent_away(&mut before).await, None);
    let draining = async {
        let header = until("to be sent away", async || sent_away(&mut before).await).await;
        assert_eq!(header, "true");
        // Whoever comes now is answered, too.
        let mut after = Gateway::client_of(address).await;
        assert_eq!(sent_away(&mut after).await.as_deref(), Some("true"));
    };
    tokio::join!(gateway.weir_sync.end(), draining);
}
