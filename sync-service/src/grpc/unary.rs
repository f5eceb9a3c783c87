//! Unary calls: one message in, one message out, with the whole body in memory.
//!
//! tonic reads and writes streams of messages, and allocates two buffers of eight kilobytes per call. A check takes a
//! few dozen bytes in each direction, and checks are very frequent.

use std::array::IntoIter;
use std::future::ready;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures_util::FutureExt as _;
use futures_util::stream::{Iter, iter};
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::body::{Body as HttpBody, Frame};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};
use prost::Message;
use tonic::Status;
use tonic::body::Body;

/// Length of a message's prefix in bytes: the compression flag and the length.
const PREFIX_BYTES: usize = 5;

/// Reads all of `body`, of at most `bytes_max` bytes. A body that arrives in one piece is not copied. Before
/// waiting for more, `take_room` is called with the number of bytes read.
pub(super) async fn whole<B>(
    mut body: B,
    bytes_max: usize,
    mut take_room: impl FnMut(usize) -> Result<(), Status>,
) -> Result<Bytes, Status>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let (mut whole, mut more) = (Bytes::new(), BytesMut::new());
    loop {
        let frame = if let Some(frame) = body.frame().now_or_never() {
            frame
        } else {
            take_room(whole.len() + more.len())?;
            body.frame().await
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| Status::cancelled("the message broke off"))?;
        let Ok(piece) = frame.into_data() else { continue };
        if whole.len() + more.len() + piece.len() > bytes_max {
            return Err(Status::invalid_argument(format!("expected a message of at most {bytes_max} bytes")));
        }
        if whole.is_empty() {
            whole = piece;
        } else {
            more.extend_from_slice(&piece);
        }
        if body.is_end_stream() {
            break;
        }
    }
    if more.is_empty() {
        return Ok(whole);
    }
    Ok([whole, more.freeze()].concat().into())
}

pub(super) fn message(mut body: Bytes) -> Result<Bytes, Status> {
    let wrong = || Status::internal("expected one message, behind its length");
    if body.len() < PREFIX_BYTES {
        return Err(wrong());
    }
    if body.get_u8() != 0 {
        return Err(Status::internal("expected a message that is not compressed"));
    }
    if usize::try_from(body.get_u32()) != Ok(body.len()) {
        return Err(wrong());
    }
    Ok(body)
}

/// Response with a single message and the status OK.
pub(super) fn answer(message: &impl Message) -> Response<UnaryBody> {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
    bytes.put_u8(0);
    // The length is bounded, because the request's is.
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut bytes);
    let trailers = [(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))];
    let frames = [Ok(Frame::data(bytes.freeze())), Ok(Frame::trailers(trailers.into_iter().collect()))];
    let mut response = Response::new(UnaryBody::Left(StreamBody::new(iter(frames))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Body of a response: a single message and its trailers, or what a tonic service sends.
pub(super) type UnaryBody = Either<StreamBody<Iter<IntoIter<Result<Frame<Bytes>, Status>, 2>>>, Body>;

pub(super) fn shown(headers: &HeaderMap) -> HeaderMap {
    headers.get(AUTHORIZATION).map(|shown| (AUTHORIZATION, shown.clone())).into_iter().collect()
}

/// Copies the message of a response into a buffer of its own size. Buffers of tonic have eight kilobytes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_are_joined_from_pieces_and_bounded() {
        let (one, room) = (Bytes::from_static(b"one piece"), |_| Ok(()));
        let read = whole(Full::new(one.clone()), one.len(), room).await.expect("a body");
        assert_eq!((read.as_ptr(), read.len()), (one.as_ptr(), one.len()), "it was copied");
        let too_long = whole(Full::new(one.clone()), one.len() - 1, room).await.expect_err("too long");
        assert_eq!(too_long.message(), "expected a message of at most 8 bytes");
        let pieces = |texts: &'static [&'static str]| {
            let frame = |text: &&'static str| Ok::<_, Status>(Frame::data(Bytes::from_static(text.as_bytes())));
            StreamBody::new(iter(texts.iter().map(frame)))
        };
        let several: &[&str] = &["", "a", "bc", "", "d"];
        assert_eq!(whole(pieces(several), 4, room).await.expect("a body"), "abcd");
        assert!(whole(pieces(several), 3, room).await.is_err());
        assert_eq!(whole(pieces(&[]), 3, room).await.expect("a body"), "");
    }

    #[test]
    fn anything_but_a_single_message_is_refused() {
        let refused =
            |bytes: &'static [u8]| message(Bytes::from_static(bytes)).expect_err("no message").message().to_owned();
        for bytes in [&[][..], &[0, 0, 0, 0], &[0, 0, 0, 0, 2, 8], &[0, 0, 0, 0, 2, 8, 7, 0]] {
            assert!(refused(bytes).contains("one message"), "{bytes:?}");
        }
        assert!(refused(&[1, 0, 0, 0, 2, 8, 7]).contains("not compressed"));
    }
}
