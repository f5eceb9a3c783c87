//! Refusals, and their messages to the caller.

use hyper::Uri;
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use weir_gateway::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir_tests::port;
use weir_tests::wait::until;
use weir_tests::weir_sync::WeirSync;

use crate::answers::rules;
use crate::gateway::{Gateway, descriptor, request};

#[tokio::test]
async fn a_bad_request_is_an_invalid_argument_with_a_place() {
    let gateway = Gateway::open("memory", &rules()).await;
    let mut client = gateway.client().await;
    let long = "x".repeat(1 << 20);
    for (asked, expected) in [
        (RateLimitRequest::default(), "domain: expected a text of 1 to 256 bytes, found 0"),
        (request([]), "descriptors: expected 1 to 64, found 0"),
        (
            request([descriptor(&[("remote_address", "nowhere")])]),
            "descriptors[0].entries[0].value: expected an IP address, as the key is remote_address, found `nowhere`",
        ),
        (request([descriptor(&[("a", &long)])]), "expected a message of at most 262144 bytes"),
    ] {
        let refused = client.should_rate_limit(asked).await.expect_err("a bad request");
        assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, expected));
    }
    let good = request([descriptor(&[("a", "1")])]);
    client.should_rate_limit(good).await.expect("the gateway is open still");
}

#[tokio::test]
async fn a_check_needs_a_token() {
    let gateway = Gateway::open("memory", &rules()).await;
    for token in [None, Some("another-token-of-the-tests")] {
        let mut client = gateway.client_with(token).await;
        let refused = client.should_rate_limit(request([descriptor(&[("a", "1")])])).await.expect_err("no token");
        assert_eq!(refused.code(), Code::Unauthenticated);
        assert!(refused.message().starts_with("expected the metadata `authorization: Bearer`"), "{refused}");
    }
}

#[tokio::test]
async fn without_tokens_a_foreign_host_is_misdirected() {
    let listen = format!("127.0.0.1:{}", port::free());
    let open = WeirSync::start_with("fra", "memory", &["--gateway", "on", "--grpc-listen", &listen]).await;
    let with_tokens = Gateway::open("memory", &rules()).await;
    let asked = async |address: &str, origin: &'static str| {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let endpoint = endpoint.origin(Uri::from_static(origin));
        let channel = until("the port to open", async || endpoint.connect().await.ok()).await;
        HealthClient::new(channel).check(HealthCheckRequest::default()).await.map_err(|status| status.code())
    };
    for own in ["http://127.0.0.1:1", "http://localhost", "http://ratelimit"] {
        asked(&listen, own).await.expect(own);
    }
    let refused = asked(&listen, "http://evil.example:8081").await.expect_err("another host");
    assert_eq!(refused, Code::FailedPrecondition);
    asked(&with_tokens.address.to_string(), "http://weir.example").await.expect("it asks for a token");
    drop(open);
}
