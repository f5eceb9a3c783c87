//! One message in, one out: a call whose whole body is there.
//!
//! tonic reads and writes streams of messages, and takes two buffers of eight kilobytes for each call. A check has some dozen
//! bytes in either direction, and there are a great many of them.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use hyper::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use prost::Message;
use tonic::Status;
use tonic::body::Body;

/// What goes before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// The one message of a call.
pub(super) fn message<M: Message + Default>(mut body: Bytes) -> Result<M, Status> {
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
    M::decode(body).map_err(|error| Status::internal(error.to_string()))
}

/// The answer with this one message, and the status that all is well.
pub(super) fn answer(message: &impl Message) -> Response<Body> {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
    bytes.put_u8(0);
    // It answers a message of a bounded length.
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut bytes);
    let mut response = Response::new(Body::new(One { message: Some(bytes.freeze()), is_over: false }));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// A message, and the trailers behind it.
struct One {
    message: Option<Bytes>,
    is_over: bool,
}

impl HttpBody for One {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(message) = self.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        self.is_over = true;
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.message.as_ref().map_or(0, |message| message.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    #[tokio::test]
    async fn an_answer_is_a_message_and_a_status() {
        let said = prost_types::Duration { seconds: 7, nanos: 0 };
        let answered = answer(&said).into_body().collect().await.expect("a body");
        let trailers = answered.trailers().cloned().expect("trailers");
        assert_eq!(trailers["grpc-status"], "0");
        let bytes = answered.to_bytes();
        assert_eq!(bytes[..], [0, 0, 0, 0, 2, 8, 7]);
        assert_eq!(message::<prost_types::Duration>(bytes).expect("the message"), said);
    }

    #[test]
    fn what_is_no_single_message_is_refused() {
        let refused = |bytes: &'static [u8]| {
            let read = message::<prost_types::Duration>(Bytes::from_static(bytes));
            read.expect_err("no message").message().to_owned()
        };
        for bytes in [&[][..], &[0, 0, 0, 0], &[0, 0, 0, 0, 2, 8], &[0, 0, 0, 0, 2, 8, 7, 0]] {
            assert!(refused(bytes).contains("one message"), "{bytes:?}");
        }
        assert!(refused(&[1, 0, 0, 0, 2, 8, 7]).contains("not compressed"));
        assert!(refused(&[0, 0, 0, 0, 1, 8]).contains("decode"));
    }
}
