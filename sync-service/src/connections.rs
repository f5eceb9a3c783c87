//! Connections: each has a seat, and is held to its share of time and memory.
//!
//! A connection that does not send a byte in time, does not take its answers in time, or sends a head without end is closed. If
//! all seats are taken and one more comes, a connection that has shown no token and waits for a request
//! [gives up its seat](seats). The newcomer waits only while all of these are being answered.

mod arriving;
mod seats;
mod timely;
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
use crate::access::credentials::{Credential, Pops};
use crate::secrets::Secrets;
use crate::tls;
pub use arriving::Arriving;
use arriving::{Answering, OnTheWay, Turn};
use seats::{Seat, Seats};
use timely::Timely;
use together::{Gathered, Together};

/// Has Envoy take the one that answers out of its load balancing at once, not only at the next health check.
pub const GO_ELSEWHERE: HeaderName = HeaderName::from_static("x-envoy-immediate-health-check-fail");
/// How long to pause when a connection cannot be accepted (out of file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The most bytes of a request's head, and so of what is read ahead.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// The most bytes of a request's head over HTTP/2, where many are there at a time; a field counts for 32 more than it
/// has.
const FIELDS_BYTES_MAX: u32 = 8 * 1024;
/// The most fields of a head over HTTP/2, as over HTTP/1.1: there each takes a byte, if it was sent before.
pub const FIELDS_MAX: usize = 100;
/// How long a known connection that gives up its seat has for its last answer. A guest has what its socket takes at
/// once.
const LAST_WORDS: Duration = Duration::from_millis(10);
/// The most requests at a time on a connection of HTTP/2.
const STREAMS_MAX: u32 = 1_000;
/// The most answers at a time, on one connection, that do not end by themselves.
pub const LASTING_MAX: usize = 16;

/// What requests travel in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1: one request at a time.
    Http1,
    /// HTTP/2: many at a time, as gRPC needs.
    Http2,
}

impl Protocol {
    /// Its name in a TLS handshake (RFC 7301).
    fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// What each connection of a listener may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections_max: u32,
    /// How long until the first byte.
    pub first_byte_timeout: Duration,
    /// How long until a request's head is whole, or begins after the last one. A connection of HTTP/2 may be idle for
    /// longer, but its client must answer a ping as often.
    pub header_timeout: Duration,
    /// How long the client may take nothing of an answer.
    pub write_timeout: Duration,
    /// How long the client may take for an answer.
    pub answer_timeout: Duration,
}

/// The other end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// What its certificate is good for, if it showed one.
    pub certificate: Option<Arc<Credential<Pops>>>,
    /// Free places for answers that do not end by themselves.
    lasting: Arc<Semaphore>,
    /// What outlives the connection does not keep its seat.
    seat: Weak<Seat>,
    on_the_way: Arc<OnTheWay>,
}

impl Peer {
    fn new(
        address: SocketAddr,
        certificate: Option<Arc<Credential<Pops>>>,
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

    /// True once it has shown a token of any kind, or a certificate.
    pub fn is_known(&self) -> bool {
        self.on_the_way.is_known()
    }

    fn become_known(&self) {
        self.on_the_way.become_known();
        if let Some(seat) = self.seat.upgrade() {
            seat.become_known();
        }
    }

    /// Looks for a token in the head of its next request.
    fn look_at(&self, headers: &HeaderMap, secrets: Option<&Secrets>) {
        // One that found no room among the known may find it now.
        let is_seated = self.is_known() && self.seat.upgrade().is_none_or(|seat| seat.is_known());
        if !is_seated && secrets.is_some_and(|secrets| secrets.access.knows(bearer(headers))) {
            self.become_known();
        }
    }

    /// A place for an answer that does not end by itself. The connection has few: each takes memory, and needs no more
    /// requests.
    pub fn lasting(&self) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        Arc::clone(&self.lasting).try_acquire_owned()
    }
}

/// The connections of one listener.
#[derive(Debug)]
pub struct Connections {
    limits: Limits,
    protocol: Protocol,
    /// What connections are secured with, if they are.
    secrets: Option<Arc<Secrets>>,
    free: Arc<Semaphore>,
    seats: Arc<Seats>,
    /// Changes when the connections that there are shall end.
    ending: watch::Sender<()>,
    open: Gauge,
}

impl Connections {
    /// None yet, to be secured as `secrets` say; `open` counts them.
    pub fn new(limits: Limits, secrets: Option<Arc<Secrets>>, open: Gauge, protocol: Protocol) -> Self {
        let free = Arc::new(Semaphore::new(limits.connections_max as usize));
        let seats = Arc::new(Seats::new(limits.connections_max as usize));
        Self { limits, protocol, secrets, free, seats, ending: watch::Sender::new(()), open }
    }

    /// Accepts until `shutdown` is done, and has `answer` answer what is asked.
    pub async fn accept<A, F, B>(&self, listener: TcpListener, answer: A, shutdown: impl Future<Output = ()>)
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

    /// How many there are.
    pub fn count(&self) -> usize {
        (self.limits.connections_max as usize).saturating_sub(self.free.available_permits())
    }

    /// Closes those that wait for a request, and the others once their requests have ended.
    pub fn send_away(&self) {
        self.ending.send_replace(());
    }

    /// Sends all away that there are; returns whether all have gone within `limit`.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.send_away();
        timeout(limit, self.free.acquire_many(self.limits.connections_max)).await.is_ok()
    }

    /// Leave to take a seat, if need be that of a guest. The semaphore is never closed.
    async fn seat(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
                return Some(permit);
            }
            // If none waits, the next that begins to wait is closed.
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
        let (limits, protocol, secrets) = (self.limits, self.protocol, self.secrets.clone());
        let mut ending = self.ending.subscribe();
        let seat = Arc::new(Seat::new(&self.seats, address.ip(), &self.open));
        async move {
            let _permit = permit;
            let closed = seat.close.notified();
            let ended = async {
                tokio::select! {
                    () = closed => Some(if seat.is_known() { LAST_WORDS } else { Duration::ZERO }),
                    // An error would mean that the listener is gone, too.
                    _ = ending.changed() => None,
                }
            };
            let mut ended = pin!(ended);
            let on_the_way = Arc::<OnTheWay>::default();
            let begun = begun(stream, limits, protocol, secrets.as_deref(), &on_the_way);
            let begun = tokio::select! {
                begun = timeout(limits.first_byte_timeout, begun) => begun.ok().flatten(),
                _ = &mut ended => None,
            };
            let Some((stream, certificate)) = begun else { return };
            let peer = Arc::new(Peer::new(address, certificate, &seat, &on_the_way));
            let needs_token = secrets.as_ref().is_some_and(|secrets| secrets.access.has_checks());
            let service = service_fn(|request: Request<Incoming>| {
                peer.look_at(request.headers(), secrets.as_deref());
                let is_bounded = protocol == Protocol::Http2 && !peer.is_known();
                let turn = Arc::new(Turn::new(&seat, is_bounded.then(|| Arc::clone(&on_the_way))));
                let answering = Answering(Arc::clone(&turn));
                let answered = answer(request.map(|body| Arriving::new(body, &turn)), Arc::clone(&peer));
                async move {
                    turn.let_in(needs_token).await;
                    let response = answered.await;
                    Ok::<_, Infallible>(answering.answer(response))
                }
            });
            let gathered = Gathered::default();
            let builder = limited(limits, protocol, gathered.clone());
            let connection = builder.serve_connection(stream, service);
            let mut connection = Together::new(connection, gathered, Arc::clone(&on_the_way));
            let limit = tokio::select! {
                result = &mut connection => return log(result),
                limit = ended => limit,
                () = on_the_way.too_many.notified() => return refused_too_many(secrets.as_deref(), address),
            };
            connection.inner().graceful_shutdown();
            match limit {
                Some(limit) => last_words(limit, connection, &seat).await,
                None => log(connection.await),
            }
        }
    }
}

/// Logs why a guest's connection was closed.
fn refused_too_many(secrets: Option<&Secrets>, peer: SocketAddr) {
    let reason =
        "a connection without a token, with too many requests at a time or answers that it does not take";
    if let Some(secrets) = secrets {
        secrets.refusals.log(peer.ip(), reason);
    }
}

/// Lets a connection that gives up its `seat` end, within `limit` unless it is answering.
async fn last_words(limit: Duration, connection: impl Future<Output = Result<(), Failure>>, seat: &Seat) {
    let mut connection = pin!(connection);
    let ended = timeout(limit, connection.as_mut()).await;
    // A request may have arrived just when the seat was taken from it.
    if ended.is_err() && seat.is_busy() {
        log(connection.await);
    }
}

fn log(result: Result<(), Failure>) {
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// A connection from its first byte on, secured if there is TLS, and what its certificate is good for; `None` if there
/// is nothing to serve.
async fn begun(
    stream: TcpStream,
    limits: Limits,
    protocol: Protocol,
    secrets: Option<&Secrets>,
    on_the_way: &Arc<OnTheWay>,
) -> Option<(Stream, Option<Arc<Credential<Pops>>>)> {
    let address = stream.peer_addr().ok()?;
    // The byte stays in the stream. Readiness alone would say less: it may come without a byte.
    stream.peek(&mut [0]).await.ok()?;
    // Replies are small and awaited; without this they may wait for an acknowledgement.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write_timeout));
    let stream = Box::pin(stream);
    let timely = |stream: Pin<Box<dyn Duplex>>| {
        TokioIo::new(Timely::new(stream, limits.answer_timeout, Arc::clone(on_the_way)))
    };
    let secured = secrets.and_then(|secrets| Some((secrets, secrets.tls.as_ref()?)));
    let Some((secrets, tls)) = secured else {
        return Some((timely(stream), None));
    };
    match tls.acceptor(protocol.alpn()).accept(stream).await {
        Ok(stream) => {
            let certificates = stream.get_ref().1.peer_certificates();
            let bearer = certificates.and_then(|chain| tls::bearer(chain.first()?));
            if certificates.is_some() && bearer.is_none() {
                let reason =
                    "a certificate without a DNS name (subjectAltName), expected the name of its POP";
                secrets.refusals.log(address.ip(), reason);
            }
            Some((timely(Box::pin(stream)), bearer.map(Arc::new)))
        }
        // Such as a client that speaks plain HTTP, or one whose certificate is not of our authorities.
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

/// What serves a connection of `protocol`, with our limits; its requests are `gathered`.
fn limited(limits: Limits, protocol: Protocol, gathered: Gathered) -> auto::Builder<Gathered> {
    let mut builder = auto::Builder::new(gathered);
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(limits.header_timeout).max_buf_size(HEAD_BYTES_MAX);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX).auto_date_header(false);
    http2.max_header_list_size(FIELDS_BYTES_MAX);
    http2.keep_alive_interval(limits.header_timeout).keep_alive_timeout(limits.write_timeout);
    match protocol {
        Protocol::Http1 => builder.http1_only(),
        Protocol::Http2 => builder.http2_only(),
    }
}

/// Why a connection ended early, or an answer's body broke off.
type Failure = Box<dyn Error + Send + Sync>;

/// A connection, secured or not.
trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// What hyper reads from.
type Stream = TokioIo<Timely<Pin<Box<dyn Duplex>>>>;

#[cfg(test)]
mod tests;
