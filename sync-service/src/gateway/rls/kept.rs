//! Memory savings: only the needed part of a request is kept while its message arrives, and only the needed
//! bytes of a response until its client reads it.

use std::future::ready;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::{Request, Response};
use tonic::Status;
use tonic::body::Body;

/// Headers with only the token of a request.
pub(super) fn shown(headers: &HeaderMap) -> HeaderMap {
    headers.get(AUTHORIZATION).map(|shown| (AUTHORIZATION, shown.clone())).into_iter().collect()
}

/// Response whose message uses only as much memory as it needs until its client reads it. A buffer of tonic has
/// eight kilobytes.
pub(super) async fn compact(response: Response<Body>) -> Response<Body> {
    let (head, body) = response.into_parts();
    let Ok(body) = body.collect().await else {
        return Status::internal("the answer broke off").into_http();
    };
    let trailers = body.trailers().cloned().map(Ok);
    let message = Full::new(Bytes::copy_from_slice(&body.to_bytes()));
    Response::from_parts(head, Body::new(message.with_trailers(ready(trailers))))
}

/// Request without its headers, for methods that need none.
pub(super) fn bare<B>(request: Request<B>) -> Request<B> {
    let (mut head, body) = request.into_parts();
    head.headers = HeaderMap::new();
    Request::from_parts(head, body)
}
