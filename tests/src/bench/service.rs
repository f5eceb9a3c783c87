//! A central rate limit service as small as one can be: gRPC in, one Redis round trip, the answer.
//!
//! It counts in fixed windows of a second, as the usual service does. It runs in a process of its own,
//! the benchmark's program started again, so that its CPU time is counted separately.

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
use tokio::net::TcpListener;

use crate::port;
use crate::process::Process;

/// The word that makes the benchmark's program the service.
pub const WORD: &str = "service";
/// Time for which a counter is kept.
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
        let log = folder.path().join("service.log");
        let process = Process::listening("the central service", command, &log, address).await;
        Ok(Self { process, address, _folder: folder })
    }

    /// Its address.
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
    let key = key_of(&frame).ok_or("not a RateLimitRequest")?;
    let count = count(key, counters).await.map_err(|e| e.to_string())?;
    let message = if count > limit { OVER_LIMIT } else { OK };
    let trailers =
        HeaderMap::from_iter([(hyper::header::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
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

// The few fields of `envoy.service.ratelimit.v3` that it needs, read and written by hand: protobuf within a gRPC frame
// (a flag, a length of four bytes, the message).

/// Bytes before the message.
const FRAME_BYTES: usize = 5;

/// `RateLimitResponse { overall_code: OK }`.
const OK: &[u8] = &[0, 0, 0, 0, 2, 0x08, 1];
/// `RateLimitResponse { overall_code: OVER_LIMIT }`.
const OVER_LIMIT: &[u8] = &[0, 0, 0, 0, 2, 0x08, 2];

/// The key of a request's first descriptor: its domain and the descriptor's entries. `None` where the
/// message is something else.
fn key_of(frame: &[u8]) -> Option<Vec<u8>> {
    let message = frame.get(FRAME_BYTES..)?;
    // RateLimitRequest: domain 1, descriptors 2; RateLimitDescriptor: entries 1; Entry: key 1, value 2.
    let mut key = field(message, 1)?.to_vec();
    let mut entries = field(message, 2)?;
    while let Some((1, entry, rest)) = next(entries) {
        for part in [field(entry, 1)?, field(entry, 2)?] {
            key.push(b'_');
            key.extend_from_slice(part);
        }
        entries = rest;
    }
    Some(key)
}

/// The first field with this number.
fn field(mut message: &[u8], number: u64) -> Option<&[u8]> {
    loop {
        let (found, value, rest) = next(message)?;
        if found == number {
            return Some(value);
        }
        message = rest;
    }
}

/// A field's number, its bytes (none where it is a number itself), and what follows.
fn next(message: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (tag, rest) = varint(message)?;
    let (value, rest) = match tag & 7 {
        0 => (&[][..], varint(rest)?.1),
        2 => {
            let (length, rest) = varint(rest)?;
            rest.split_at_checked(usize::try_from(length).ok()?)?
        }
        _ => return None,
    };
    Some((tag >> 3, value, rest))
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (i, byte) in bytes.iter().enumerate().take(9) {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[i + 1..]));
        }
    }
    None
}
