//! Connections of a listener: each has a seat, and limits on time and memory.
//!
//! A connection that does not send its first byte in time, does not read its responses in time, or sends an endless
//! head is closed. If all seats are taken and another connection arrives, an idle connection that has presented no
//! token [gives up its seat](seats). The new connection waits only while no such connection is idle.

mod arriving;
mod seats;
mod together;

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{HeaderMap, HeaderName};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, watch};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;

use crate::access::bearer;
use crate::access::credentials::{Credential, PopPatterns};
use crate::config::Config;
use crate::secrets::{Secrets, bearer_of};
pub(crate) use arriving::Arriving;
use arriving::{Answering, OnTheWay, RequestLifetime, Timely};
use seats::{Seat, Seats};
use together::{Gathered, Together};

/// Response header that makes Envoy remove the sender from load balancing at once.
pub(crate) const GO_ELSEWHERE: HeaderName = HeaderName::from_static("x-envoy-immediate-health-check-fail");
/// Pause after a connection could not be accepted, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum size of a request's head, and so of the read buffer, in bytes.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Maximum size of a request's head over HTTP/2; each field counts for 32 bytes more than its size.
const FIELDS_BYTES_MAX: u32 = 8 * 1024;
/// Maximum number of fields of a head over HTTP/2, where a repeated field takes one byte.
pub(crate) const FIELDS_MAX: usize = 100;
/// Time for the last response of a known connection that gives up its seat.
const LAST_WORDS: Duration = Duration::from_millis(10);
const STREAMS_MAX: u32 = 1_000;
const TOO_MANY: &str =
    "a connection without a token, with too many requests at a time or answers that it does not take";
/// Maximum number of concurrent endless responses per connection.
pub(crate) const LASTING_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    /// For gRPC, which needs many requests at a time.
    Http2,
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Credential of the peer's certificate, if it presented one.
    pub(crate) certificate: Option<Arc<Credential<PopPatterns>>>,
    /// Permits for endless responses.
    lasting: Arc<Semaphore>,
    /// Weak, so that a response that outlives the connection does not keep the seat.
    seat: Weak<Seat>,
    on_the_way: Arc<OnTheWay>,
}

impl Peer {
    fn new(
        address: SocketAddr,
        certificate: Option<Arc<Credential<PopPatterns>>>,
        seat: &Arc<Seat>,
        on_the_way: &Arc<OnTheWay>,
    ) -> Self {
        let (seat, on_the_way) = (Arc::downgrade(seat), Arc::clone(on_the_way));
        let lasting = Arc::new(Semaphore::new(LASTING_MAX));
        let peer = Self { address, certificate, lasting, seat, on_the_way };
        if peer.certificate.is_some() {
            peer.become_known();
        }
        peer
    }

    /// True once the peer has presented a token of any kind, or a certificate.
    pub(crate) fn is_known(&self) -> bool {
        self.on_the_way.is_known()
    }

    fn become_known(&self) {
        self.on_the_way.become_known();
        if let Some(seat) = self.seat.upgrade() {
            seat.become_known();
        }
    }

    fn look_at(&self, headers: &HeaderMap, secrets: Option<&Secrets>) {
        // There may be room among the known connections now.
        let is_seated = self.is_known() && self.seat.upgrade().is_none_or(|seat| seat.is_known());
        if !is_seated && secrets.is_some_and(|secrets| secrets.access.knows(bearer(headers))) {
            self.become_known();
        }
    }

    /// Acquires a permit for an endless response, which takes memory for as long as it lasts.
    pub(crate) fn lasting(&self) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        Arc::clone(&self.lasting).try_acquire_owned()
    }
}

#[derive(Debug)]
pub(crate) struct Connections {
    config: Arc<Config>,
    most: u32,
    protocol: Protocol,
    secrets: Option<Arc<Secrets>>,
    free: Arc<Semaphore>,
    seats: Arc<Seats>,
    /// Changes when the current connections have to end.
    ending: watch::Sender<()>,
    open: Gauge,
}

impl Connections {
    pub(crate) fn new(
        config: Arc<Config>,
        connections_max: u32,
        secrets: Option<Arc<Secrets>>,
        open: Gauge,
        protocol: Protocol,
    ) -> Self {
        let free = Arc::new(Semaphore::new(connections_max as usize));
        let seats = Arc::new(Seats::new(connections_max as usize));
        Self { config, most: connections_max, protocol, secrets, free, seats, ending: watch::Sender::new(()), open }
    }

    /// Accepts connections until `shutdown` completes, and answers their requests with `answer`.
    pub(crate) async fn accept<A, F, B>(&self, listener: TcpListener, answer: A, shutdown: impl Future<Output = ()>)
    where
        A: Fn(Request<Arriving>, Arc<Peer>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<Failure>> + Send + Unpin + 'static,
    {
        let accepting = async {
            loop {
                match listener.accept().await {
                    Ok((stream, address)) => {
                        let permit = self.seat().await;
                        tokio::spawn(self.connection(stream, address, permit, answer.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = shutdown => {}
        }
    }

    pub(crate) fn count(&self) -> usize {
        (self.most as usize).saturating_sub(self.free.available_permits())
    }

    /// Closes idle connections at once, and the others when their requests have ended.
    pub(crate) fn send_away(&self) {
        self.ending.send_replace(());
    }

    /// Closes all current connections; returns true if all have ended within `limit`.
    pub(crate) async fn drain(&self, limit: Duration) -> bool {
        self.send_away();
        timeout(limit, self.free.acquire_many(self.most)).await.is_ok()
    }

    /// Acquires a seat, if necessary that of a connection without a token. Never `None`: the semaphore stays open.
    async fn seat(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
                return Some(permit);
            }
            // If no guest is idle, the next guest to become idle is closed.
            let begins = self.seats.begins.notified();
            let is_closing = self.seats.close_guest();
            tokio::select! {
                permit = Arc::clone(&self.free).acquire_owned() => return permit.ok(),
                () = begins, if !is_closing => {}
            }
        }
    }

    fn connection<A, F, B>(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        permit: Option<OwnedSemaphorePermit>,
        answer: A,
    ) -> impl Future<Output = ()> + Send + use<A, F, B>
    where
        A: Fn(Request<Arriving>, Arc<Peer>) -> F + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<Failure>> + Send + Unpin + 'static,
    {
        let (config, protocol, secrets) = (Arc::clone(&self.config), self.protocol, self.secrets.clone());
        let mut ending = self.ending.subscribe();
        let seat = Arc::new(Seat::new(&self.seats, address.ip(), &self.open));
        async move {
            let _permit = permit;
            let closed = seat.close.notified();
            let ended = async {
                tokio::select! {
                    () = closed => Some(if seat.is_known() { LAST_WORDS } else { Duration::ZERO }),
                    // An error would mean that the listener is gone.
                    _ = ending.changed() => None,
                }
            };
            let mut ended = pin!(ended);
            let on_the_way = Arc::<OnTheWay>::default();
            let begun = begun(stream, &config, protocol, secrets.as_deref(), &on_the_way);
            let begun = tokio::select! {
                begun = timeout(config.first_byte_timeout, begun) => begun.ok().flatten(),
                _ = &mut ended => None,
            };
            let Some((stream, certificate)) = begun else { return };
            let peer = Arc::new(Peer::new(address, certificate, &seat, &on_the_way));
            let needs_token = secrets.as_ref().is_some_and(|secrets| secrets.access.has_checks());
            let service = service_fn(|request: Request<Incoming>| {
                peer.look_at(request.headers(), secrets.as_deref());
                let is_bounded = protocol == Protocol::Http2 && !peer.is_known();
                let turn = Arc::new(RequestLifetime::new(&seat, is_bounded.then(|| Arc::clone(&on_the_way))));
                let answering = Answering(Arc::clone(&turn));
                let answered = answer(request.map(|body| Arriving::new(body, &turn)), Arc::clone(&peer));
                async move {
                    turn.let_in(needs_token).await;
                    let response = answered.await;
                    Ok::<_, Infallible>(answering.answer(response))
                }
            });
            let gathered = Gathered::default();
            let builder = limited(&config, protocol, gathered.clone());
            let connection = builder.serve_connection(stream, service);
            let mut connection = Together::new(connection, gathered, Arc::clone(&on_the_way));
            let limit = tokio::select! {
                result = &mut connection => return log(result),
                limit = ended => limit,
                () = on_the_way.too_many.notified() => {
                    if let Some(secrets) = &secrets {
                        secrets.refusals.log(address.ip(), TOO_MANY);
                    }
                    return;
                }
            };
            connection.inner().graceful_shutdown();
            match limit {
                Some(limit) => last_words(limit, connection, &seat).await,
                None => log(connection.await),
            }
        }
    }
}

/// Lets a connection that gives up its `seat` end, within `limit` unless it is answering a request.
async fn last_words(limit: Duration, connection: impl Future<Output = Result<(), Failure>>, seat: &Seat) {
    let mut connection = pin!(connection);
    let ended = timeout(limit, connection.as_mut()).await;
    // A request may have arrived just when the seat was taken away.
    if ended.is_err() && seat.is_busy() {
        log(connection.await);
    }
}

fn log(result: Result<(), Failure>) {
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Waits for a connection's first byte, sets up TLS, if any, and reads the credential of the client's certificate.
async fn begun(
    stream: TcpStream,
    config: &Config,
    protocol: Protocol,
    secrets: Option<&Secrets>,
    on_the_way: &Arc<OnTheWay>,
) -> Option<(Stream, Option<Arc<Credential<PopPatterns>>>)> {
    let address = stream.peer_addr().ok()?;
    // Peeking leaves the byte in the stream. Readiness alone could be spurious.
    stream.peek(&mut [0]).await.ok()?;
    // Replies are small and awaited; without this they may wait for an acknowledgement.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(config.write_timeout));
    let stream = Box::pin(stream);
    let timely = |stream: Pin<Box<dyn Duplex>>| {
        TokioIo::new(Timely::new(stream, config.response_timeout, Arc::clone(on_the_way)))
    };
    let secured = secrets.and_then(|secrets| Some((secrets, secrets.tls.as_ref()?)));
    let Some((secrets, tls)) = secured else {
        return Some((timely(stream), None));
    };
    match tls.acceptor(if protocol == Protocol::Http1 { b"http/1.1" } else { b"h2" }).accept(stream).await {
        Ok(stream) => {
            let certificates = stream.get_ref().1.peer_certificates();
            let bearer = certificates.and_then(|chain| bearer_of(chain.first()?));
            if certificates.is_some() && bearer.is_none() {
                let reason = "a certificate without a DNS name (subjectAltName), expected the name of its POP";
                secrets.refusals.log(address.ip(), reason);
            }
            Some((timely(Box::pin(stream)), bearer.map(Arc::new)))
        }
        // For example a client with plain HTTP, or with a certificate from an unknown authority.
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            secrets.refusals.log(address.ip(), &format!("a connection without valid TLS: {error}"));
            None
        }
        Err(error) => {
            tracing::debug!(%error, "a connection ended early");
            None
        }
    }
}

/// HTTP server for `protocol` with our limits, whose tasks run in `gathered`.
fn limited(config: &Config, protocol: Protocol, gathered: Gathered) -> auto::Builder<Gathered> {
    let mut builder = auto::Builder::new(gathered);
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(config.header_timeout).max_buf_size(HEAD_BYTES_MAX);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX).auto_date_header(false);
    http2.max_header_list_size(FIELDS_BYTES_MAX);
    // The client must answer a ping at this interval.
    http2.keep_alive_interval(config.header_timeout).keep_alive_timeout(config.write_timeout);
    match protocol {
        Protocol::Http1 => builder.http1_only(),
        Protocol::Http2 => builder.http2_only(),
    }
}

/// Reason for the early end of a connection or of a response's body.
type Failure = Box<dyn Error + Send + Sync>;

trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

type Stream = TokioIo<Timely<Pin<Box<dyn Duplex>>>>;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_request_at_the_moment_its_seat_is_taken_is_answered() {
        let seat = Seat::new(&Arc::new(Seats::new(1)), [192, 0, 2, 1].into(), &Gauge::default());
        let is_answered = AtomicBool::new(false);
        let connection = async {
            seat.begin();
            sleep(5 * LAST_WORDS).await;
            is_answered.store(true, Ordering::Relaxed);
            Ok(())
        };
        timeout(Duration::from_secs(10), last_words(LAST_WORDS, connection, &seat)).await.unwrap();
        assert!(is_answered.load(Ordering::Relaxed));
    }
}
