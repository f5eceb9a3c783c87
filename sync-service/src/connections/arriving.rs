//! Accounting of arriving requests and of outgoing responses, and the stream that carries both: everything written must
//! be read in time, even by a peer that reads slowly but steadily. A guest's data is read in pieces, and each piece is
//! answered before the next one is read.
//!
//! A connection is sure of its seat only while it has complete requests. HTTP/2 carries several requests at a time, so
//! a guest's open requests and unread responses are limited there: the connection is closed if it exceeds a limit.

use std::convert::Infallible;
use std::future::Future as _;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};

use super::seats::Seat;

/// Maximum number of a guest's concurrent requests if requests need a token.
const ASKED_MAX: u32 = 16;
/// Maximum number of a guest's responses that are not sent yet.
const UNTAKEN_MAX: u32 = 16;

/// Maximum size of a piece, in bytes.
const PIECE_BYTES: usize = 1_024;

/// State of one connection: bytes read, and a guest's requests and responses.
#[derive(Debug, Default)]
pub(super) struct OnTheWay {
    piece: AtomicUsize,
    /// True if the connection is not a guest's.
    is_known: AtomicBool,
    asked: AtomicU32,
    /// Responses whose bodies wait for the guest's HTTP/2 window.
    answers: AtomicU32,
    unsent: AtomicU32,
    /// Responses to the last piece, which `answers` and `unsent` include. The client could not read them yet.
    fresh: AtomicU32,
    pub(super) too_many: Notify,
}

impl OnTheWay {
    /// Begins the next piece, after the last one was answered.
    pub(super) fn next_piece(&self) {
        self.piece.store(0, Ordering::Relaxed);
        self.fresh.store(0, Ordering::Relaxed);
    }

    /// Bytes of the current piece that may still be read, or `None` if the connection is known, and so unlimited.
    fn left(&self) -> Option<usize> {
        (!self.is_known()).then(|| PIECE_BYTES.saturating_sub(self.piece.load(Ordering::Relaxed)))
    }

    pub(super) fn become_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// True if a guest exceeds its limits. Concurrent requests are limited only if requests need a token.
    fn is_too_much(&self, needs_token: bool) -> bool {
        let of = |count: &AtomicU32| count.load(Ordering::Relaxed);
        let untaken = of(&self.answers) + of(&self.unsent);
        (needs_token && of(&self.asked) > ASKED_MAX) || untaken > UNTAKEN_MAX + of(&self.fresh)
    }
}

#[derive(Debug)]
pub(super) struct RequestLifetime {
    seat: Arc<Seat>,
    state: AtomicU8,
    /// Connection state of a guest over HTTP/2.
    on_the_way: Option<Arc<OnTheWay>>,
}

// States of a request: the body has not arrived, is complete, or no longer matters.
const ARRIVING: u8 = 0;
const WHOLE: u8 = 1;
const ANSWERED: u8 = 2;

impl RequestLifetime {
    /// Starts when the head of a request has arrived on the connection of `seat`.
    pub(super) fn new(seat: &Arc<Seat>, on_the_way: Option<Arc<OnTheWay>>) -> Self {
        if let Some(way) = &on_the_way {
            way.asked.fetch_add(1, Ordering::Relaxed);
        }
        Self { seat: Arc::clone(seat), state: AtomicU8::new(ARRIVING), on_the_way }
    }

    /// Returns at once, or never if a guest exceeds its limits: then the connection is closed.
    pub(super) async fn let_in(&self, needs_token: bool) {
        if let Some(way) = self.on_the_way.as_ref().filter(|way| way.is_too_much(needs_token)) {
            way.too_many.notify_one();
            std::future::pending::<Infallible>().await;
        }
    }

    fn arrive(&self) {
        let (before, now) = (ARRIVING, WHOLE);
        if self.state.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.seat.begin();
        }
    }
}

/// Ends a request's lifetime when dropped.
pub(super) struct Answering(pub(super) Arc<RequestLifetime>);

impl Answering {
    pub(super) fn answer<B>(self, response: Response<B>) -> Response<Outgoing<B>> {
        let on_the_way = self.0.on_the_way.clone();
        if let Some(way) = &on_the_way {
            way.answers.fetch_add(1, Ordering::Relaxed);
            way.fresh.fetch_add(1, Ordering::Relaxed);
        }
        response.map(|body| Outgoing { body, on_the_way })
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if self.0.state.swap(ANSWERED, Ordering::Relaxed) == WHOLE {
            self.0.seat.end();
        }
        if let Some(way) = &self.0.on_the_way {
            way.asked.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Arriving {
    body: Incoming,
    turn: Arc<RequestLifetime>,
}

impl Arriving {
    pub(super) fn new(body: Incoming, turn: &Arc<RequestLifetime>) -> Self {
        let arriving = Self { body, turn: Arc::clone(turn) };
        arriving.look();
        arriving
    }

    fn look(&self) {
        if self.body.is_end_stream() {
            self.turn.arrive();
        }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Ready(None) => self.turn.arrive(),
            Poll::Ready(Some(Ok(_))) => self.look(),
            _ => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[derive(Debug)]
pub(super) struct Outgoing<B> {
    body: B,
    on_the_way: Option<Arc<OnTheWay>>,
}

impl<B: Body + Unpin> Body for Outgoing<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Outgoing<B> {
    fn drop(&mut self) {
        if let Some(way) = &self.on_the_way {
            way.answers.fetch_sub(1, Ordering::Relaxed);
            way.unsent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Stream on which everything written must be sent within `limit` after the peer falls behind.
pub(super) struct Timely<S> {
    stream: S,
    limit: Duration,
    /// Runs while the peer has unread bytes.
    until: Option<Pin<Box<Sleep>>>,
    on_the_way: Arc<OnTheWay>,
}

impl<S: AsyncWrite + Unpin> Timely<S> {
    pub(super) fn new(stream: S, limit: Duration, on_the_way: Arc<OnTheWay>) -> Self {
        Self { stream, limit, until: None, on_the_way }
    }

    /// Runs `write`; fails with `TimedOut` once the time is over.
    fn in_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let written = write(Pin::new(&mut self.stream), cx);
        if written.is_pending() {
            let limit = self.limit;
            let until = self.until.get_or_insert_with(|| Box::pin(sleep(limit)));
            if until.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(ErrorKind::TimedOut.into()));
            }
        }
        written
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timely<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.in_time(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.in_time(cx, |stream, cx| stream.poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.in_time(cx, AsyncWrite::poll_flush);
        if flushed.is_ready() {
            self.until = None;
            let unsent = &self.on_the_way.unsent;
            if unsent.load(Ordering::Relaxed) > 0 {
                unsent.store(0, Ordering::Relaxed);
            }
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.in_time(cx, AsyncWrite::poll_shutdown)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timely<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(left) = self.on_the_way.left() else {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        };
        if left == 0 {
            // The current piece is answered first.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut piece = [0; PIECE_BYTES];
        let mut piece = ReadBuf::new(&mut piece[..left.min(buffer.remaining())]);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut piece);
        buffer.put_slice(piece.filled());
        self.on_the_way.piece.fetch_add(piece.filled().len(), Ordering::Relaxed);
        polled
    }
}
