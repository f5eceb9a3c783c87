//! A central rate limit service as small as one can be: gRPC in, one Redis round trip, the answer.
//!
//! It counts in fixed windows of a second, as the usual service does. It runs in a process of its own,
//! the benchmark's program started again, so that its CPU time can be told.

mod message;

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, pipe};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

use crate::port;
use crate::process::Process;
use crate::wait::until;

/// The word that makes the benchmark's program the service.
pub const WORD: &str = "service";
/// How long a counter is kept.
const KEPT_S: u64 = 2;

/// The running service. Dropping it ends it.
pub struct Service {
    process: Process,
    address: SocketAddr,
    _folder: TempDir,
}

impl Service {
    /// Starts it over the Redis at `redis`, where a key may have `limit` requests in a second, and waits until it takes
    /// connections.
    pub async fn start(redis: &str, limit: u32) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("weir-bench-service-").tempdir();
        let folder = folder.map_err(|e| format!("no temporary folder: {e}"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port::free()));
        let program = env::current_exe().map_err(|e| format!("where is this program: {e}"))?;
        let mut command = Command::new(program);
        command.args([WORD, &address.to_string(), redis, &limit.to_string()]);
        let mut process = Process::spawn("the central service", command, &folder.path().join("service.log"));
        until("the central service", async || {
            process.assert_alive();
            TcpStream::connect(address).await.ok()
        })
        .await;
        Ok(Self { process, address, _folder: folder })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

/// Serves until the process is ended.
pub async fn serve(address: &str, redis: &str, limit: &str) -> Result<(), String> {
    let limit: u64 = limit.parse().map_err(|e| format!("{limit}: {e}"))?;
    let client = redis::Client::open(redis).map_err(|e| format!("{redis}: {e}"))?;
    let counters = client.get_multiplexed_async_connection().await.map_err(|e| format!("{redis}: {e}"))?;
    let listener = TcpListener::bind(address).await.map_err(|e| format!("{address}: {e}"))?;
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let counters = counters.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, counters.clone(), limit));
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // A proxy that goes away ends its connection; that is no news.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
    Err("the listener has closed".into())
}

type Answer = http_body_util::combinators::WithTrailers<
    Full<Bytes>,
    std::future::Ready<Option<Result<HeaderMap, std::convert::Infallible>>>,
>;

async fn answer(
    request: Request<Incoming>,
    counters: MultiplexedConnection,
    limit: u64,
) -> Result<Response<Answer>, String> {
    let frame = request.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
    let key = message::key(&frame).ok_or("not a RateLimitRequest")?;
    let count = count(key, counters).await.map_err(|e| e.to_string())?;
    let message = if count > limit { message::OVER_LIMIT } else { message::OK };
    let trailers = HeaderMap::from_iter([(
        hyper::header::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    let body = Full::new(Bytes::from_static(message)).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// One more for the key in this second; how many those are. One round trip.
async fn count(mut key: Vec<u8>, mut counters: MultiplexedConnection) -> Result<u64, RedisError> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    key.extend_from_slice(format!("_{}", now.as_secs()).as_bytes());
    let mut pipe = pipe();
    pipe.cmd("INCRBY").arg(&key).arg(1).cmd("EXPIRE").arg(&key).arg(KEPT_S).ignore();
    let (count,): (u64,) = pipe.query_async(&mut counters).await?;
    Ok(count)
}
