//! HTTP clients: one connection each, so that a test knows which connection carried what.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time that a request may wait for its answer before it counts as lost. Far above what one takes.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// A request to send, as often as wanted.
#[must_use]
#[derive(Clone, Debug)]
pub struct Ask {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Ask {
    /// `GET` of `path`.
    pub fn get(path: &str) -> Self {
        Self::new(Method::GET, path)
    }

    /// `method` on `path`, with the host `edge.localhost`.
    pub fn new(method: Method, path: &str) -> Self {
        let (path, headers, body) = (path.into(), HeaderMap::new(), Bytes::new());
        Self { method, path, headers, body }.header("host", "edge.localhost")
    }

    /// `GET /` with `address` in X-Forwarded-For.
    pub fn from(address: &str) -> Self {
        Self::get("/").forwarded_for(address)
    }

    /// The same with this X-Forwarded-For.
    pub fn forwarded_for(self, addresses: &str) -> Self {
        self.header("x-forwarded-for", addresses)
    }

    /// The same with this header instead of any other of its name.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_str(value).unwrap_or_else(|_| panic!("no header value: {value:?}"));
        self.headers.insert(HeaderName::from_static(name), value);
        self
    }

    /// The same with one more line of this header.
    pub fn line(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_str(value).unwrap_or_else(|_| panic!("no header value: {value:?}"));
        self.headers.append(HeaderName::from_static(name), value);
        self
    }

    /// The same with this body.
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// HTTP/2 takes the host from the URI, HTTP/1 from the header.
    fn request(&self, absolute: bool) -> Request<Full<Bytes>> {
        let mut headers = self.headers.clone();
        let host = if absolute { headers.remove(HOST) } else { None };
        let uri = match host.as_ref().and_then(|host| host.to_str().ok()) {
            Some(host) => format!("http://{host}{}", self.path),
            None => self.path.clone(),
        };
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri.parse().unwrap_or_else(|e| panic!("no URI: {uri:?}: {e}"));
        *request.headers_mut() = headers;
        request
    }
}

/// A response, read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers, and trailers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// A header's value, or "" where there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// A header that holds a number.
    pub fn number(&self, name: &str) -> u64 {
        let text = self.header(name);
        text.parse().unwrap_or_else(|_| panic!("{name} is no number but {text:?} in {self:?}"))
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("no JSON ({e}): {:?}", self.body))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A client with one connection, opened when first needed and again after the server closed it.
#[must_use]
pub struct Client {
    address: SocketAddr,
    http2: bool,
    sender: Option<Sender>,
}

impl Client {
    /// An HTTP/1.1 client.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, http2: false, sender: None }
    }

    /// An HTTP/1.1 client of a port on 127.0.0.1.
    pub fn of_port(port: u16) -> Self {
        Self::new((Ipv4Addr::LOCALHOST, port).into())
    }

    /// The same, but speaking HTTP/2 from the first byte.
    pub fn over_http2(mut self) -> Self {
        self.http2 = true;
        self
    }

    /// Sends and reads the answer; panics where there is none, for the edge must always answer.
    pub async fn send(&mut self, ask: &Ask) -> Answer {
        self.try_send(ask).await.unwrap_or_else(|e| panic!("no answer to {ask:?}: {e}"))
    }

    /// Sends and reads the answer; an error if there is none after 10 s or the connection fails.
    pub async fn try_send(&mut self, ask: &Ask) -> Result<Answer, String> {
        let Ok(answer) = timeout(ANSWER_DEADLINE, self.exchange(ask)).await else {
            // What may still come on this connection answers no later request.
            self.sender = None;
            return Err(format!("nothing within {} s", ANSWER_DEADLINE.as_secs()));
        };
        answer
    }

    async fn exchange(&mut self, ask: &Ask) -> Result<Answer, String> {
        let answer = match self.ready().await? {
            Sender::Http1(sender) => sender.send_request(ask.request(false)).await,
            Sender::Http2(sender) => sender.send_request(ask.request(true)).await,
        };
        match answer {
            Ok(answer) => read(answer).await,
            Err(e) => {
                self.sender = None;
                Err(format!("{e:?}"))
            }
        }
    }

    /// The open connection, or a new one.
    async fn ready(&mut self) -> Result<&mut Sender, String> {
        let open = match &mut self.sender {
            Some(Sender::Http1(sender)) => sender.ready().await.is_ok(),
            Some(Sender::Http2(sender)) => sender.ready().await.is_ok(),
            None => false,
        };
        if !open {
            self.sender = None;
        }
        match &mut self.sender {
            Some(sender) => Ok(sender),
            none => Ok(none.insert(connect(self.address, self.http2).await?)),
        }
    }
}

async fn connect(address: SocketAddr, http2: bool) -> Result<Sender, String> {
    let fail = |e: std::io::Error| format!("cannot connect to {address}: {e}");
    let stream = TcpStream::connect(address).await.map_err(fail)?;
    stream.set_nodelay(true).map_err(fail)?;
    let io = TokioIo::new(stream);
    // A connection's end shows at the next request; its task reports it to nobody.
    if http2 {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.map_err(|e| e.to_string())?;
        drop(tokio::spawn(connection));
        Ok(Sender::Http2(sender))
    } else {
        let (sender, connection) = http1::handshake(io).await.map_err(|e| e.to_string())?;
        drop(tokio::spawn(connection));
        Ok(Sender::Http1(sender))
    }
}

async fn read(answer: Response<Incoming>) -> Result<Answer, String> {
    let (mut head, body) = answer.into_parts();
    let body = body.collect().await.map_err(|e| format!("the body broke off: {e}"))?;
    head.headers.extend(body.trailers().cloned().into_iter().flatten());
    Ok(Answer { status: head.status.as_u16(), headers: head.headers, body: body.to_bytes() })
}
