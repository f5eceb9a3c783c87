//! Runs requests in the task of the connection on which they arrived.
//!
//! A task per request would be scheduled by itself, and its response would wake the connection, which would run at once
//! to write that one response. Here, the connection answers all requests that it has read before it continues, so that
//! their responses leave in one write. Requests that had to wait also run in the connection's task: an event that wakes
//! several of them leads to one write.

use std::mem;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use hyper::rt::Executor;

use super::arriving::OnTheWay;
use crate::lock;

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Default)]
pub(super) struct Gathered(Arc<Mutex<Vec<Request>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Gathered {
    fn execute(&self, request: F) {
        // A panic ends the request without a response, as it would end a task; the connection continues.
        lock(&self.0).push(Box::pin(AssertUnwindSafe(request).catch_unwind().map(drop)));
    }
}

/// Connection with the requests that it has read.
pub(super) struct Together<C> {
    connection: Pin<Box<C>>,
    gathered: Gathered,
    requests: Vec<Request>,
    waiting: FuturesUnordered<Request>,
    on_the_way: Arc<OnTheWay>,
}

impl<C: Future> Together<C> {
    /// Combines `connection` with its `gathered` requests, which are dropped with it.
    pub(super) fn new(connection: C, gathered: Gathered, on_the_way: Arc<OnTheWay>) -> Self {
        let (requests, waiting) = (Vec::new(), FuturesUnordered::new());
        Self { connection: Box::pin(connection), gathered, requests, waiting, on_the_way }
    }

    pub(super) fn inner(&mut self) -> Pin<&mut C> {
        self.connection.as_mut()
    }

    fn go_on(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(())) = self.waiting.poll_next_unpin(cx) {}
    }

    /// Polls the requests that the connection has just read.
    fn begin(&mut self, cx: &mut Context<'_>) {
        mem::swap(&mut self.requests, &mut *lock(&self.gathered.0));
        for mut request in self.requests.drain(..) {
            if request.poll_unpin(cx).is_pending() {
                self.waiting.push(request);
            }
        }
        // This first poll registers their wakers.
        self.go_on(cx);
    }
}

impl<C: Future> Future for Together<C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let this = &mut *self;
        this.go_on(cx);
        this.on_the_way.next_piece();
        let polled = this.connection.as_mut().poll(cx);
        if polled.is_pending() {
            // A response wakes the connection's task, as it would from another task, and is written at the next poll.
            this.begin(cx);
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn one_that_panics_ends_alone() {
        let gathered = Gathered::default();
        let executor = gathered.clone();
        let connection = async move {
            executor.execute(async { panic!("at once") });
            executor.execute(async {
                yield_now().await;
                panic!("later");
            });
            let (done, is_done) = oneshot::channel();
            executor.execute(async move {
                yield_now().await;
                yield_now().await;
                done.send(7).unwrap();
            });
            is_done.await.unwrap()
        };
        let answered = timeout(LONG, Together::new(connection, gathered, Arc::default())).await.expect("an answer");
        assert_eq!(answered, 7);
    }

    #[tokio::test]
    async fn requests_end_with_their_connection() {
        let gathered = Gathered::default();
        let executor = gathered.clone();
        let (held, is_dropped) = oneshot::channel::<()>();
        let connection = async move {
            executor.execute(async move {
                let _held = held;
                pending::<()>().await;
            });
            yield_now().await;
        };
        timeout(LONG, Together::new(connection, gathered, Arc::default())).await.expect("its end");
        assert!(timeout(LONG, is_dropped).await.expect("an end").is_err());
    }
}
