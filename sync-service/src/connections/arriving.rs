//! Requests on their way in, and their answers on their way out.
//!
//! A connection keeps its seat for whole requests only. Over HTTP/2, where requests come many at a time, a guest has
//! few of them, and few answers that it does not take: else it is closed.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::Notify;

use super::seats::Seat;

/// The most requests of a guest at a time, where requests need a token.
const ASKED_MAX: u32 = 16;
/// The most answers to a guest that are on their way.
const UNTAKEN_MAX: u32 = 16;

/// The most that is read of a guest before it is answered, in bytes.
pub(super) const PIECE_BYTES: usize = 4 * 1_024;

/// What is on its way of one connection: bytes, and a guest's requests and answers.
#[derive(Debug, Default)]
pub(super) struct OnTheWay {
    /// Bytes of the piece that is being read.
    piece: AtomicUsize,
    /// It is no guest's.
    is_known: AtomicBool,
    asked: AtomicU32,
    /// Answers whose bodies wait for the guest's window, ...
    answers: AtomicU32,
    /// ... and those that wait for its socket.
    unsent: AtomicU32,
    /// Those of both that answer the last piece: nobody can have taken them.
    fresh: AtomicU32,
    /// Notified when there are too many.
    pub(super) too_many: Notify,
}

impl OnTheWay {
    /// What came is answered: the next piece may be read.
    pub(super) fn next_piece(&self) {
        self.piece.store(0, Ordering::Relaxed);
        self.fresh.store(0, Ordering::Relaxed);
    }

    /// So much was read of the piece, in bytes.
    pub(super) fn came(&self, bytes: usize) {
        self.piece.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How much of the piece may be read still, in bytes; any amount of one that is known.
    pub(super) fn left(&self) -> Option<usize> {
        let is_known = self.is_known.load(Ordering::Relaxed);
        (!is_known).then(|| PIECE_BYTES.saturating_sub(self.piece.load(Ordering::Relaxed)))
    }

    /// It is no guest's from now on.
    pub(super) fn become_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// All that was written has gone out.
    pub(super) fn flushed(&self) {
        if self.unsent.load(Ordering::Relaxed) > 0 {
            self.unsent.store(0, Ordering::Relaxed);
        }
    }

    /// True if there are more than a guest may have; one that `needs_token` may have few requests, too.
    fn is_too_much(&self, needs_token: bool) -> bool {
        let of = |count: &AtomicU32| count.load(Ordering::Relaxed);
        let untaken = of(&self.answers) + of(&self.unsent);
        (needs_token && of(&self.asked) > ASKED_MAX) || untaken > UNTAKEN_MAX + of(&self.fresh)
    }
}

/// A request, from its head to its answer.
#[derive(Debug)]
pub(super) struct Turn {
    seat: Arc<Seat>,
    state: AtomicU8,
    /// Of a guest over HTTP/2.
    on_the_way: Option<Arc<OnTheWay>>,
}

/// Its body has not come, ...
const ARRIVING: u8 = 0;
/// ... is there, ...
const WHOLE: u8 = 1;
/// ... or does not matter any more.
const ANSWERED: u8 = 2;

impl Turn {
    /// One whose head is there, of the connection that has this seat.
    pub(super) fn new(seat: &Arc<Seat>, on_the_way: Option<Arc<OnTheWay>>) -> Self {
        if let Some(way) = &on_the_way {
            way.asked.fetch_add(1, Ordering::Relaxed);
        }
        Self { seat: Arc::clone(seat), state: AtomicU8::new(ARRIVING), on_the_way }
    }

    /// Ends its connection's time if it is a guest that asks too much, as one that `needs_token` or not.
    pub(super) async fn let_in(&self, needs_token: bool) {
        if let Some(way) = self.on_the_way.as_ref().filter(|way| way.is_too_much(needs_token)) {
            way.too_many.notify_one();
            std::future::pending::<Infallible>().await;
        }
    }

    /// Its body is there.
    fn arrive(&self) {
        let (before, now) = (ARRIVING, WHOLE);
        if self.state.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.seat.begin();
        }
    }
}

/// Ends a request's turn when it is dropped.
pub(super) struct Answering(pub(super) Arc<Turn>);

impl Answering {
    /// The answer as it goes out.
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

/// A request's body.
#[derive(Debug)]
pub struct Arriving {
    body: Incoming,
    turn: Arc<Turn>,
}

impl Arriving {
    pub(super) fn new(body: Incoming, turn: &Arc<Turn>) -> Self {
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

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
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

/// An answer's body.
#[derive(Debug)]
pub(super) struct Outgoing<B> {
    body: B,
    on_the_way: Option<Arc<OnTheWay>>,
}

impl<B: Body + Unpin> Body for Outgoing<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
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
