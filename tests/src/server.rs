//! Small HTTP/1.1 servers inside the test: an upstream that counts, a weir-sync that lies.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, http};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A request to a server.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Method, URI and headers.
    pub head: Arc<http::request::Parts>,
    /// The body.
    pub body: Bytes,
}

/// A server's response.
#[derive(Clone, Debug)]
pub enum Respond {
    /// A status and a body.
    Now(StatusCode, Bytes),
    /// A response, after this time.
    Later(Duration, Response<Full<Bytes>>),
    /// Nothing, ever.
    Nothing,
}

type Answerer = dyn FnMut(&Asked) -> Respond + Send;

/// A server on a free port of 127.0.0.1, up until dropped.
pub struct Server {
    address: SocketAddr,
    answerer: Arc<Mutex<Box<Answerer>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    tasks: JoinSet<()>,
}

impl Server {
    /// Answers every request with the result of `answer`.
    pub async fn start(answer: impl FnMut(&Asked) -> Respond + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap_or_else(|e| panic!("no port: {e}"));
        let address = listener.local_addr().unwrap_or_else(|e| panic!("no port: {e}"));
        let answerer: Arc<Mutex<Box<Answerer>>> = Arc::new(Mutex::new(Box::new(answer)));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&answerer), Arc::clone(&asked)));
        Self { address, answerer, asked, tasks }
    }

    /// An upstream that answers 200 to everything.
    pub async fn upstream() -> Self {
        Self::start(|_| Respond::Now(StatusCode::OK, Bytes::from_static(b"upstream\n"))).await
    }

    /// An upstream that each request controls: `x-status` is the status it answers (200), `x-late-ms` after
    /// how long (at once), `x-tokens` a header that it sends back.
    pub async fn obedient() -> Self {
        Self::start(|asked| {
            let header = |name| asked.head.headers.get(name).and_then(|value| value.to_str().ok());
            let status = header("x-status").and_then(|text| text.parse().ok()).unwrap_or(StatusCode::OK);
            let late_ms = header("x-late-ms").and_then(|text| text.parse().ok()).unwrap_or(0);
            let mut response = response(status, Bytes::from_static(b"upstream\n"));
            if let Some(tokens) = asked.head.headers.get("x-tokens") {
                response.headers_mut().insert("x-tokens", tokens.clone());
            }
            Respond::Later(Duration::from_millis(late_ms), response)
        })
        .await
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what it answers from now on.
    pub fn answer(&self, answer: impl FnMut(&Asked) -> Respond + Send + 'static) {
        *lock(&self.answerer) = Box::new(answer);
    }

    /// Its requests so far, oldest first.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.asked).clone()
    }

    /// The number of its requests.
    pub fn count(&self) -> usize {
        lock(&self.asked).len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.abort_all();
    }
}

async fn accept(listener: TcpListener, answerer: Arc<Mutex<Box<Answerer>>>, asked: Arc<Mutex<Vec<Asked>>>) {
    // Dropped with this task, and the connections with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, Arc::clone(&answerer), Arc::clone(&asked)));
    }
}

async fn serve(stream: TcpStream, answerer: Arc<Mutex<Box<Answerer>>>, asked: Arc<Mutex<Vec<Asked>>>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (answerer, asked) = (Arc::clone(&answerer), Arc::clone(&asked));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let request = Asked { head: Arc::new(head), body };
            lock(&asked).push(request.clone());
            let answer = lock(&answerer)(&request);
            match answer {
                Respond::Now(status, body) => Ok::<_, Infallible>(response(status, body)),
                Respond::Later(after, response) => {
                    tokio::time::sleep(after).await;
                    Ok(response)
                }
                Respond::Nothing => std::future::pending().await,
            }
        }
    });
    // A client that goes away ends its connection; that is no news.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// A response with this status and body.
pub fn response(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
}

/// A test that failed while it held the lock must not hide its reason behind a second panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
