//! Stream with a time limit for its reader: everything written must be taken within it, even by a reader that
//! drips steadily. A guest is read one piece at a time, and each piece is answered before the next one is read.

use std::future::Future as _;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::arriving::{OnTheWay, PIECE_BYTES};

/// Stream on which writes must complete within `limit`. The time begins when the peer falls behind, and ends
/// when everything written has been sent.
pub(super) struct Timely<S> {
    stream: S,
    limit: Duration,
    /// Runs while the peer has unread bytes.
    until: Option<Pin<Box<Sleep>>>,
    /// Counters of bytes read and sent.
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
            self.on_the_way.flushed();
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
        self.on_the_way.came(piece.filled().len());
        polled
    }
}
