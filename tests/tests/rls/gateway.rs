//! A weir-sync with a gateway over gRPC, and a client of it.

use std::fs;
use std::net::SocketAddr;

use serde_json::Value;
use tempfile::NamedTempFile;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use weir_gateway::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir_gateway::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use weir_gateway::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_service_client;
use weir_gateway::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use weir_gateway::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use weir_tests::operator::Operator;
use weir_tests::port;
use weir_tests::wait::until;
use weir_tests::weir_sync::WeirSync;

/// The token that checks carry.
pub(crate) const TOKEN_OF_CHECKS: &str = "a-token-for-checks-of-the-tests";
/// The domain of the tests' requests.
pub(crate) const DOMAIN: &str = "shop";

/// Puts a token on each request.
#[derive(Clone)]
pub(crate) struct Bearer(Option<&'static str>);

impl tonic::service::Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = self.0 {
            let value = format!("Bearer {token}").parse().expect("a token that fits into a header");
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}

/// A client that sends a token.
pub(crate) type Client = RateLimitServiceClient<InterceptedService<Channel, Bearer>>;
/// The same for quotas.
pub(crate) type QuotaClient =
    rate_limit_quota_service_client::RateLimitQuotaServiceClient<InterceptedService<Channel, Bearer>>;

/// A weir-sync that answers gRPC.
pub(crate) struct Gateway {
    pub(crate) weir_sync: WeirSync,
    pub(crate) address: SocketAddr,
    tokens: NamedTempFile,
}

impl Gateway {
    /// Over `store`, with these rules in force.
    pub(crate) async fn open(store: &str, rules: &Value) -> Self {
        Self::open_for("check", store, rules).await
    }

    /// The same, for clients whose token has these scopes.
    pub(crate) async fn open_for(scopes: &str, store: &str, rules: &Value) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], port::free()));
        let listen = address.to_string();
        let tokens = NamedTempFile::new().expect("a file");
        fs::write(tokens.path(), format!("callers {scopes} {TOKEN_OF_CHECKS}\n")).expect("a file to write");
        let path = tokens.path().to_str().expect("a path");
        let arguments = ["--gateway", "on", "--grpc-listen", &listen, "--check-token-file", path];
        let weir_sync = WeirSync::start_with("fra", store, &arguments).await;
        let gateway = Self { weir_sync, address, tokens };
        gateway.serves().await;
        Operator::of(&gateway.weir_sync).put_good(rules).await;
        runs_rules(&gateway.weir_sync).await;
        gateway
    }

    /// Takes its token out of the file, and puts another one in.
    pub(crate) fn revoke(&self) {
        fs::write(self.tokens.path(), "others check another-token-for-checks-of-the-tests\n").expect("a file to write");
    }

    /// A channel to it.
    pub(crate) async fn channel(&self) -> Channel {
        connected(self.address).await
    }

    /// A client that every request is let in from.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(Some(TOKEN_OF_CHECKS)).await
    }

    /// A client that sends this token.
    pub(crate) async fn client_with(&self, token: Option<&'static str>) -> Client {
        RateLimitServiceClient::with_interceptor(self.channel().await, Bearer(token))
    }

    /// A client for quotas that is let in.
    pub(crate) async fn quotas(&self) -> QuotaClient {
        self.quotas_with(Some(TOKEN_OF_CHECKS)).await
    }

    /// A client for quotas that sends this token.
    pub(crate) async fn quotas_with(&self, token: Option<&'static str>) -> QuotaClient {
        rate_limit_quota_service_client::RateLimitQuotaServiceClient::with_interceptor(
            self.channel().await,
            Bearer(token),
        )
    }

    /// A client on a connection of its own to the gateway at `address`.
    pub(crate) async fn client_of(address: SocketAddr) -> Client {
        RateLimitServiceClient::with_interceptor(connected(address).await, Bearer(Some(TOKEN_OF_CHECKS)))
    }

    /// Waits until its health is `SERVING`.
    pub(crate) async fn serves(&self) {
        let channel = self.channel().await;
        until("the gateway to serve", async || {
            let status = crate::health::status(&channel, "").await;
            (status == crate::health::SERVING).then_some(())
        })
        .await;
    }
}

/// A channel to the gateway at `address`.
async fn connected(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    until("the gateway to open", async || endpoint.connect().await.ok()).await
}

/// Waits until the gateway of `weir_sync` runs the current rules.
async fn runs_rules(weir_sync: &WeirSync) {
    let mut operator = Operator::of(weir_sync);
    until("the gateway to run the rules", async || {
        let (current, pops) = operator.fleet().await;
        let is_gateway = |(name, version): &(String, u64)| name.starts_with("gateway/") && *version == current;
        (current > 0 && pops.iter().any(is_gateway)).then_some(())
    })
    .await;
}

/// A descriptor of these entries.
pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

/// A request with these descriptors.
pub(crate) fn request(descriptors: impl Into<Vec<RateLimitDescriptor>>) -> RateLimitRequest {
    RateLimitRequest { domain: DOMAIN.into(), descriptors: descriptors.into(), hits_addend: 0 }
}

/// The answer to `request`.
pub(crate) async fn ask(client: &mut Client, request: RateLimitRequest) -> RateLimitResponse {
    client.should_rate_limit(request).await.expect("an answer").into_inner()
}
